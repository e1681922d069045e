//! Time of one operation where an operation takes hardly longer than looking at the clock.
//!
//! Operations are timed in blocks and the figure is the median of the blocks: what the clock costs is
//! shared by a block's operations, and another process's time slice spoils one block. Operations that take
//! long are blocks of one. Between two operations stands a fence that the processor does not look beyond,
//! so what is measured is how long somebody waits who needs the answer, not how many fit into a second.

use std::hint::black_box;
use std::time::Instant;

use anyhow::Result;

/// Operations of a block.
const BLOCK: usize = 16;

/// Operations that take longer are timed one by one.
const ALONE_NS: f64 = 20_000.0;

/// Keeps the processor from starting the next operation before this one is done.
#[inline]
fn fence() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every processor of the architecture has the instruction, and it touches no memory.
    unsafe {
        core::arch::x86_64::_mm_lfence();
    }
}

/// Times of blocks.
#[derive(Clone, Debug, Default)]
pub struct Samples {
    /// Nanoseconds an operation, one number a block.
    blocks: Vec<f64>,
}

impl Samples {
    /// None yet.
    pub const fn new() -> Self {
        Self { blocks: Vec::new() }
    }

    /// Runs operations 0 to `count`, fenced, and notes their times.
    pub fn measure(
        &mut self,
        count: usize,
        mut run: impl FnMut(usize) -> Result<()>,
    ) -> Result<()> {
        self.measure_unfenced(count, |operation| {
            run(operation)?;
            fence();
            Ok(())
        })
    }

    /// The same for operations of which each needs the one before.
    pub fn measure_unfenced(
        &mut self,
        count: usize,
        mut run: impl FnMut(usize) -> Result<()>,
    ) -> Result<()> {
        let (mut first, mut block) = (0, BLOCK);
        while first < count {
            let end = count.min(first + block);
            let start = Instant::now();
            for operation in first..end {
                run(black_box(operation))?;
            }
            let elapsed = start.elapsed().as_nanos() as f64;
            let each = elapsed / (end - first) as f64;
            self.blocks.push(each);
            first = end;
            // Long operations need no block, and in one some time slice of somebody else's would always lie.
            block = if each > ALONE_NS { 1 } else { BLOCK };
        }
        Ok(())
    }

    /// The median block.
    pub fn median_ns(&self) -> f64 {
        let mut sorted = self.blocks.clone();
        sorted.sort_unstable_by(f64::total_cmp);
        sorted.get(sorted.len() / 2).copied().unwrap_or(0.0)
    }

    /// The mean of all.
    pub fn mean_ns(&self) -> f64 {
        crate::figures::ratio(self.blocks.iter().sum(), self.blocks.len() as f64)
    }
}

/// What timing a single operation adds to its time.
pub fn timer_ns() -> f64 {
    let mut least = f64::MAX;
    for _ in 0..1_000 {
        let start = Instant::now();
        for _ in 0..BLOCK {
            black_box(Instant::now());
        }
        least = least.min(start.elapsed().as_nanos() as f64 / (BLOCK + 1) as f64);
    }
    least
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_runs_once_and_blocks_are_told_apart() {
        let mut samples = Samples::default();
        let mut seen = Vec::new();
        samples
            .measure(40, |operation| {
                seen.push(operation);
                Ok(())
            })
            .expect("runs");
        assert_eq!(seen, (0..40).collect::<Vec<_>>());
        assert_eq!(samples.blocks.len(), 3);
        let mut slow = Samples::default();
        let sleep = |_| {
            std::thread::sleep(std::time::Duration::from_micros(30));
            Ok(())
        };
        slow.measure(BLOCK + 5, sleep).expect("runs");
        assert_eq!(slow.blocks.len(), 1 + 5);
        let samples = Samples {
            blocks: vec![9.0, 1.0, 2.0],
        };
        assert_eq!((samples.median_ns(), samples.mean_ns()), (2.0, 4.0));
        assert!(timer_ns() > 0.0);
    }
}
