//! The simulated world: one disk, a clock that only moves when asked, seeded entropy, a pressure
//! dial. No threads: background work is stepped by the caller.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use sealstone::env::{Clock, Entropy, Env, IoResult, Pressure, PressureLevel};
use sealstone::sync::{Mutex, Signal};

use crate::choices::SmallRandom;
use crate::disk::{Crash, DiskOptions, SimDisk};

/// How far a wait without a limit moves the clock: nobody else can raise the signal meanwhile.
const ENDLESS_WAIT: Duration = Duration::from_secs(3600);
/// The wall clock's zero: 2020-01-01, in milliseconds since 1970.
const EPOCH_MS: u64 = 1_577_836_800_000;

/// Virtual time.
#[derive(Debug, Default)]
pub struct SimClock {
    nanos: AtomicU64,
    wall_skew_ms: AtomicU64,
    endless_waits: AtomicU64,
}

impl SimClock {
    /// Moves time forward.
    pub fn advance(&self, by: Duration) {
        self.nanos
            .fetch_add(by.as_nanos() as u64, Ordering::Relaxed);
    }

    /// Makes the wall clock jump; monotonic time does not.
    pub fn jump_wall(&self, ms: i64) {
        self.wall_skew_ms.fetch_add(ms as u64, Ordering::Relaxed);
    }

    /// Waits without a limit: on a real machine some would have hung.
    pub fn endless_waits(&self) -> u64 {
        self.endless_waits.load(Ordering::Relaxed)
    }
}

impl Clock for SimClock {
    fn monotonic(&self) -> Duration {
        Duration::from_nanos(self.nanos.load(Ordering::Relaxed))
    }

    fn wall_ms(&self) -> u64 {
        let ms = self.nanos.load(Ordering::Relaxed) / 1_000_000;
        (EPOCH_MS + ms).wrapping_add(self.wall_skew_ms.load(Ordering::Relaxed))
    }

    fn wait(&self, signal: &Signal, seen: u64, until: Option<Duration>) {
        if signal.count() != seen {
            return;
        }
        match until {
            Some(until) => {
                self.nanos
                    .fetch_max(until.as_nanos() as u64, Ordering::Relaxed);
            }
            None => {
                self.endless_waits.fetch_add(1, Ordering::Relaxed);
                self.advance(ENDLESS_WAIT);
            }
        }
    }
}

/// Randomness that follows from a seed.
#[derive(Debug)]
pub struct SimEntropy(Mutex<SmallRandom>);

impl Entropy for SimEntropy {
    fn fill(&self, buffer: &mut [u8]) -> IoResult<()> {
        self.0.lock().fill(buffer);
        Ok(())
    }
}

/// A dial for memory pressure.
#[derive(Debug, Default)]
pub struct SimPressure {
    level: AtomicU8,
    /// Looks until one finds it critical; 0 = none will.
    spike_in: AtomicU32,
}

impl SimPressure {
    /// Turns it.
    pub fn set(&self, level: PressureLevel) {
        self.level.store(level as u8, Ordering::Relaxed);
    }

    /// Where it stands.
    pub fn get(&self) -> PressureLevel {
        match self.level.load(Ordering::Relaxed) {
            0 => PressureLevel::Normal,
            1 => PressureLevel::High,
            _ => PressureLevel::Critical,
        }
    }

    /// Has the `look`-th look from now, counted from 1, find it critical, and none after it.
    pub fn spike(&self, look: u32) {
        self.spike_in.store(look, Ordering::Relaxed);
    }
}

impl Pressure for SimPressure {
    fn level(&self) -> PressureLevel {
        let left = self.spike_in.load(Ordering::Relaxed);
        self.spike_in
            .store(left.saturating_sub(1), Ordering::Relaxed);
        match left {
            1 => PressureLevel::Critical,
            _ => self.get(),
        }
    }
}

/// A simulated machine in one life.
#[derive(Clone, Debug)]
pub struct SimEnv {
    /// The disk.
    pub disk: SimDisk,
    /// Time; goes on over restarts.
    pub clock: Arc<SimClock>,
    /// The pressure dial; Normal after a restart.
    pub pressure: Arc<SimPressure>,
    entropy: Arc<SimEntropy>,
}

impl SimEnv {
    /// A machine with an empty disk.
    pub fn new(options: DiskOptions) -> Self {
        Self::on(SimDisk::new(options))
    }

    /// A machine with that disk.
    pub fn on(disk: SimDisk) -> Self {
        let seed = disk.options().seed;
        Self {
            disk,
            clock: Arc::default(),
            pressure: Arc::default(),
            entropy: Arc::new(SimEntropy(Mutex::new(SmallRandom::new(seed)))),
        }
    }

    /// Everything that the disk and the entropy decide follows from this seed from now on.
    pub fn reseed(&mut self, seed: u64) {
        self.disk.set_options(|options| options.seed = seed);
        self.entropy = Arc::new(SimEntropy(Mutex::new(SmallRandom::new(seed))));
    }

    /// The machine after a crash.
    pub fn restart(&self, crash: &Crash) -> Self {
        Self {
            disk: self.disk.restart(crash),
            clock: Arc::clone(&self.clock),
            pressure: Arc::default(),
            entropy: Arc::clone(&self.entropy),
        }
    }

    /// What a store is given.
    pub fn env(&self) -> Env {
        Env {
            vfs: Arc::new(self.disk.clone()),
            clock: Arc::clone(&self.clock) as Arc<dyn Clock>,
            entropy: Arc::clone(&self.entropy) as Arc<dyn Entropy>,
            pressure: Arc::clone(&self.pressure) as Arc<dyn Pressure>,
            driver: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_moves_time_and_never_blocks() {
        let clock = SimClock::default();
        let signal = Signal::new();
        clock.wait(&signal, 0, Some(Duration::from_secs(5)));
        assert_eq!(clock.monotonic(), Duration::from_secs(5));
        signal.raise();
        clock.wait(&signal, 0, Some(Duration::from_secs(9)));
        assert_eq!(clock.monotonic(), Duration::from_secs(5));
        clock.wait(&signal, 1, Some(Duration::from_secs(1)));
        assert_eq!(clock.monotonic(), Duration::from_secs(5), "time went back");
        clock.jump_wall(-1000);
        assert_eq!(clock.wall_ms(), EPOCH_MS + 4000);
        clock.wait(&signal, 1, None);
        assert_eq!(clock.endless_waits(), 1);
    }

    #[test]
    fn entropy_follows_from_the_seed() {
        let draw = |seed| {
            let env = SimEnv::new(DiskOptions {
                seed,
                ..DiskOptions::default()
            })
            .env();
            let mut bytes = [0; 16];
            env.entropy.fill(&mut bytes).unwrap();
            bytes
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
    }
}
