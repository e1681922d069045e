//! The system's clocks and its random numbers.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the real backend is where the system's clocks are read"
)]

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::rand::{GetRandomFlags, getrandom};

use crate::env::{Clock, Entropy, IoResult};
use crate::sync::Signal;

/// The system's monotonic clock, counted from when this value was made, and its wall clock.
#[derive(Debug)]
pub struct RealClock {
    start: Instant,
}

impl RealClock {
    /// A clock that starts at zero now.
    pub fn new() -> Self {
        Self {
            start: Instant::now(),
        }
    }
}

impl Default for RealClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for RealClock {
    fn monotonic(&self) -> Duration {
        self.start.elapsed()
    }

    fn wall_ms(&self) -> u64 {
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| {
                u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
            })
    }

    fn wait(&self, signal: &Signal, seen: u64, until: Option<Duration>) {
        let timeout = until.map(|until| until.saturating_sub(self.monotonic()));
        signal.block(seen, timeout);
    }
}

/// The system's random number generator, getrandom(2).
#[derive(Clone, Copy, Debug, Default)]
pub struct RealEntropy;

impl Entropy for RealEntropy {
    fn fill(&self, mut buffer: &mut [u8]) -> IoResult<()> {
        // Long requests may come back short, and a signal may interrupt the wait for the first seed.
        while !buffer.is_empty() {
            match getrandom(&mut *buffer, GetRandomFlags::empty()) {
                Ok(count) => buffer = buffer.split_at_mut(count).1,
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::Arc;

    #[test]
    fn waiting_ends_by_signal_or_by_time() {
        let clock = RealClock::new();
        let signal = Signal::new();
        signal.raise();
        // The count differs already: no waiting, even without a limit.
        clock.wait(&signal, 0, None);
        let until = clock.monotonic() + Duration::from_millis(20);
        clock.wait(&signal, 1, Some(until));
        assert!(clock.monotonic() >= until);
        // A moment in the past is no wait at all.
        clock.wait(&signal, 1, Some(Duration::ZERO));
    }

    #[test]
    fn another_thread_ends_a_wait() {
        let clock = RealClock::new();
        let signal = Arc::new(Signal::new());
        let raiser = Arc::clone(&signal);
        let thread = std::thread::spawn(move || raiser.raise());
        clock.wait(&signal, 0, None);
        thread.join().expect("the raiser ends");
        assert_eq!(signal.count(), 1);
    }

    #[test]
    fn random_bytes_differ() {
        let (mut first, mut second) = ([0; 32], [0; 32]);
        RealEntropy.fill(&mut first).expect("random bytes");
        RealEntropy.fill(&mut second).expect("random bytes");
        assert_ne!(first, second);
        assert_ne!(first, [0; 32]);
        RealEntropy.fill(&mut []).expect("nothing to do");
    }
}
