//! A clock that moves when told, and random bytes from a fixed seed: with them a run repeats exactly.

use std::time::Duration;

use super::{Clock, Entropy, IoResult};
use crate::sync::{Ordering, Signal, StaticU64};

/// A clock that stands still until it is moved.
///
/// A wait with a time limit moves it there at once; a wait without one blocks until another thread
/// raises the signal.
#[derive(Debug, Default)]
pub struct ManualClock {
    monotonic_ns: StaticU64,
}

impl ManualClock {
    /// 2020-01-01, where the wall clock of a new [`ManualClock`] stands.
    pub const START_MS: u64 = 1_577_836_800_000;

    /// A clock at zero.
    pub const fn new() -> Self {
        Self {
            monotonic_ns: StaticU64::new(0),
        }
    }

    /// Moves it on.
    pub fn advance(&self, by: Duration) {
        self.monotonic_ns
            .fetch_add(nanoseconds(by), Ordering::Relaxed);
    }
}

impl Clock for ManualClock {
    fn monotonic(&self) -> Duration {
        Duration::from_nanos(self.monotonic_ns.load(Ordering::Relaxed))
    }

    fn wall_ms(&self) -> u64 {
        Self::START_MS + self.monotonic_ns.load(Ordering::Relaxed) / 1_000_000
    }

    fn wait(&self, signal: &Signal, seen: u64, until: Option<Duration>) {
        match until {
            _ if signal.count() != seen => {}
            Some(until) => {
                self.monotonic_ns
                    .fetch_max(nanoseconds(until), Ordering::Relaxed);
            }
            None => signal.block(seen, None),
        }
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Bytes that depend on a seed and on how many were taken: the same in every run.
#[derive(Debug)]
pub struct SeededEntropy {
    state: StaticU64,
}

impl SeededEntropy {
    /// The stream that belongs to `seed`.
    pub const fn new(seed: u64) -> Self {
        Self {
            state: StaticU64::new(seed),
        }
    }

    /// The next word of SplitMix64 (Steele, Lea, Flood 2014).
    fn next(&self) -> u64 {
        const STEP: u64 = 0x9E37_79B9_7F4A_7C15;
        let mut word = self
            .state
            .fetch_add(STEP, Ordering::Relaxed)
            .wrapping_add(STEP);
        word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        word ^ (word >> 31)
    }
}

impl Entropy for SeededEntropy {
    fn fill(&self, buffer: &mut [u8]) -> IoResult<()> {
        for piece in buffer.chunks_mut(8) {
            let word = self.next().to_le_bytes();
            piece.copy_from_slice(&word[..piece.len()]);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_moves_when_told() {
        let clock = ManualClock::new();
        let signal = Signal::new();
        clock.advance(Duration::from_secs(2));
        clock.wait(&signal, 0, Some(Duration::from_secs(5)));
        assert_eq!(clock.monotonic(), Duration::from_secs(5));
        assert_eq!(clock.wall_ms(), ManualClock::START_MS + 5_000);
        // It never goes back, and a raised signal moves nothing.
        clock.wait(&signal, 0, Some(Duration::from_secs(1)));
        signal.raise();
        clock.wait(&signal, 0, Some(Duration::from_secs(9)));
        clock.wait(&signal, 0, None);
        assert_eq!(clock.monotonic(), Duration::from_secs(5));
    }

    #[test]
    fn random_bytes_repeat_with_the_seed() {
        let draw = |seed| {
            let mut bytes = [0; 20];
            let entropy = SeededEntropy::new(seed);
            entropy.fill(&mut bytes).expect("never fails");
            (bytes, entropy.next())
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
        // The published first value of SplitMix64 for seed 0.
        assert_eq!(SeededEntropy::new(0).next(), 0xE220_A839_7B1D_CDAF);
    }
}
