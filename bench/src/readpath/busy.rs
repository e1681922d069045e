//! What the machine does to a thread that computes as long as a lookup takes and touches no memory and makes no
//! call: interrupts, other processes' time slices, switches. The tail of lookups that take as long is no shorter.

use std::hint::black_box;
use std::time::Instant;

use anyhow::Result;
use hdrhistogram::Histogram;

use super::clock::timer_ns;
use crate::figures::ratio;

/// Steps that the length of one is measured with, the best of several times.
const CALIBRATION_STEPS: u64 = 2_000;

/// A piece of computing of some length.
#[derive(Clone, Copy, Debug)]
pub struct Busy {
    steps: u64,
}

impl Busy {
    /// Work that takes as long as the median of these times, the clock's share included.
    pub fn as_long_as(singles: &Histogram<u64>) -> Self {
        let mut best = f64::MAX;
        for _ in 0..50 {
            let start = Instant::now();
            compute(CALIBRATION_STEPS);
            best = best.min(start.elapsed().as_nanos() as f64);
        }
        let each = ratio(best, CALIBRATION_STEPS as f64);
        let own = singles.value_at_quantile(0.5) as f64 - timer_ns();
        Self {
            steps: ratio(own, each).max(1.0) as u64,
        }
    }

    /// Times it one by one, as lookups are.
    pub fn time_singles(self, count: usize, singles: &mut Histogram<u64>) -> Result<()> {
        for _ in 0..count {
            let start = Instant::now();
            compute(self.steps);
            singles.record(start.elapsed().as_nanos() as u64)?;
        }
        Ok(())
    }
}

/// Steps of which each needs the one before.
fn compute(steps: u64) {
    let mut word = steps;
    for _ in 0..steps {
        word = black_box(word.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(7));
    }
    black_box(word);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::new_histogram;

    #[test]
    fn it_takes_about_as_long() {
        let mut times = new_histogram().expect("a histogram");
        times.record_n(20_000, 100).expect("records");
        let mut own = new_histogram().expect("a histogram");
        let busy = Busy::as_long_as(&times);
        busy.time_singles(200, &mut own).expect("times");
        let fastest = own.min();
        assert!((10_000..40_000).contains(&fastest), "{fastest} ns");
        assert_eq!(own.len(), 200);
    }
}
