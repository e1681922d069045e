//! Memory pressure: what a level means for the store, and when it changes.
//!
//! ```text
//!            write region may hold and keep      filters may take
//! Normal     all of it                           the budget
//! High       the floor + half of the rest        half of it
//! Critical   the floor                           a quarter of it
//! ```
//!
//! The floor is what two generations, the pinned ones and the flush take at their worst (`sizes`): with it
//! every batch that may be written comes through. What is above it are queue slots, that is sealed
//! generations that wait for their flush while others are written, and chunks kept for reuse. So pressure
//! makes writers wait for the flush earlier, and gives memory of kept chunks back to the system. It seals
//! nothing, takes nothing away that was granted, and changes no byte of any segment.
//!
//! The level is looked at by every write and every quantum of a job. It rises at once. It falls by one level
//! after a second without that level or a worse one, so that a signal that flaps does not empty and fill
//! memory in turn. What a user sets with `set_pressure` counts at once, both ways. Kept chunks go a few at
//! a look, so no write pays for all of them. Filters follow in the next step of their job (`filter_job`).

use std::time::Duration;

use crate::engine::Engine;
use crate::env::PressureLevel;
use crate::sync::{AtomicBool, AtomicU8, Mutex, Ordering};

/// How long a level has to be absent before the next lower one counts.
pub(crate) const CALM: Duration = Duration::from_secs(1);

/// Kept buffers that one look gives back: 2 MiB with chunks of the default size.
const TRIM_BUFFERS_MAX: u32 = 16;

/// The level that counts, and what it depends on.
#[derive(Debug, Default)]
pub(crate) struct PressureState {
    /// The level's number.
    level: AtomicU8,
    /// There is something to do at the next look although the level is what it was.
    unsettled: AtomicBool,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    set: Option<PressureLevel>,
    level: PressureLevel,
    /// Since when the environment has said less than `level`.
    calm_since: Option<Duration>,
    changes: u64,
}

impl Inner {
    /// The level that counts from now on, when the environment says `said`.
    fn next(&mut self, said: PressureLevel, now: Duration) -> PressureLevel {
        if let Some(set) = self.set {
            self.calm_since = None;
            return set;
        }
        if said >= self.level {
            self.calm_since = None;
            return said;
        }
        let since = *self.calm_since.get_or_insert(now);
        if now.saturating_sub(since) < CALM {
            return self.level;
        }
        self.calm_since = Some(now);
        match self.level {
            PressureLevel::Critical => PressureLevel::High.max(said),
            PressureLevel::High | PressureLevel::Normal => said,
        }
    }
}

const fn code(level: PressureLevel) -> u8 {
    match level {
        PressureLevel::Normal => 0,
        PressureLevel::High => 1,
        PressureLevel::Critical => 2,
    }
}

impl PressureState {
    /// The level that counts, without a lock.
    pub fn level(&self) -> PressureLevel {
        match self.level.load(Ordering::Relaxed) {
            0 => PressureLevel::Normal,
            1 => PressureLevel::High,
            _ => PressureLevel::Critical,
        }
    }
}

impl Engine {
    /// Follows the environment's level. Without a change it costs one question and two loads.
    pub fn look_at_pressure(&self) {
        let said = self.env.pressure.level();
        let state = &self.pressure;
        let same = code(said) == state.level.load(Ordering::Relaxed);
        if same && !state.unsettled.load(Ordering::Relaxed) {
            return;
        }
        let mut inner = state.inner.lock();
        let level = inner.next(said, self.env.clock.monotonic());
        self.apply_pressure(&mut inner, level);
        let more = self.region.trim(TRIM_BUFFERS_MAX);
        let settled = !more && inner.set.is_none() && inner.calm_since.is_none();
        state.unsettled.store(!settled, Ordering::Relaxed);
    }

    /// What the user says in place of the environment; `None` gives it back.
    pub fn set_pressure(&self, set: Option<PressureLevel>) {
        let mut inner = self.pressure.inner.lock();
        let before = inner.set;
        inner.set = set;
        if let Some(level) = set {
            self.apply_pressure(&mut inner, level);
        } else if before.is_some() {
            let said = self.env.pressure.level();
            inner.calm_since = None;
            self.apply_pressure(&mut inner, said);
        }
        self.pressure.unsettled.store(true, Ordering::Relaxed);
    }

    fn apply_pressure(&self, inner: &mut Inner, level: PressureLevel) {
        if level == inner.level {
            return;
        }
        let fell = level < inner.level;
        inner.level = level;
        inner.changes += 1;
        self.pressure.level.store(code(level), Ordering::Relaxed);
        self.region.set_limit(self.region_limit(level));
        if fell {
            // Who waits for memory may find some.
            self.progress.raise();
        }
        // Filters follow, by their job.
        self.work.0.raise();
    }

    /// The level that counts now.
    pub fn pressure_level(&self) -> PressureLevel {
        self.pressure.inner.lock().level
    }

    /// How often it has changed.
    pub fn pressure_changes(&self) -> u64 {
        self.pressure.inner.lock().changes
    }

    /// Bytes of the write region that may be held and kept at a level.
    fn region_limit(&self, level: PressureLevel) -> u64 {
        let total = self.region.total_bytes();
        let floor = self.sizes.floor_bytes.min(total);
        match level {
            PressureLevel::Normal => total,
            PressureLevel::High => floor + (total - floor) / 2,
            PressureLevel::Critical => floor,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use PressureLevel::{Critical, High, Normal};

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// Takes a look, and keeps what it says.
    fn look(inner: &mut Inner, said: PressureLevel, now: Duration) -> PressureLevel {
        inner.level = inner.next(said, now);
        inner.level
    }

    #[test]
    fn it_rises_at_once_and_falls_step_by_step() {
        let mut inner = Inner::default();
        assert_eq!(look(&mut inner, Critical, at(0)), Critical);
        assert_eq!(look(&mut inner, Normal, at(10)), Critical, "calm begins");
        assert_eq!(look(&mut inner, Normal, at(10)), Critical);
        assert_eq!(look(&mut inner, Normal, at(11)), High);
        assert_eq!(look(&mut inner, Normal, at(11)), High);
        assert_eq!(look(&mut inner, Normal, at(12)), Normal);
    }

    #[test]
    fn what_flaps_stays_up() {
        let mut inner = Inner::default();
        for number in 0..100u64 {
            let said = if number % 2 == 0 { High } else { Normal };
            let now = Duration::from_millis(900 * number);
            assert_eq!(look(&mut inner, said, now), High);
        }
    }

    #[test]
    fn what_a_user_says_counts_at_once() {
        let mut inner = Inner {
            set: Some(Critical),
            ..Inner::default()
        };
        assert_eq!(look(&mut inner, Normal, at(0)), Critical);
        inner.set = Some(Normal);
        assert_eq!(look(&mut inner, Critical, at(0)), Normal);
        inner.set = None;
        assert_eq!(look(&mut inner, High, at(0)), High);
    }
}
