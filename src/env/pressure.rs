//! Memory pressure as a value that somebody sets: a test, or who embeds the store and has a signal of their
//! own. The real backend asks the system instead.

use super::{Pressure, PressureLevel};
use crate::sync::{Ordering, StaticU8};

/// A [`Pressure`] that says what it was last told.
///
/// Keep an `Arc` of it, put a clone into `Env::pressure`, and call [`set`](Self::set) at any time.
#[derive(Debug, Default)]
pub struct SetPressure(StaticU8);

impl SetPressure {
    /// `Normal` until told otherwise.
    pub const fn new() -> Self {
        Self(StaticU8::new(0))
    }

    /// Says `level` from now on.
    pub fn set(&self, level: PressureLevel) {
        let code = match level {
            PressureLevel::Normal => 0,
            PressureLevel::High => 1,
            PressureLevel::Critical => 2,
        };
        // A level is a hint that stands alone: nothing else is published with it.
        self.0.store(code, Ordering::Relaxed);
    }
}

impl Pressure for SetPressure {
    fn level(&self) -> PressureLevel {
        match self.0.load(Ordering::Relaxed) {
            0 => PressureLevel::Normal,
            1 => PressureLevel::High,
            _ => PressureLevel::Critical,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_says_what_it_was_told() {
        let cell = SetPressure::new();
        assert_eq!(cell.level(), PressureLevel::Normal);
        for level in [
            PressureLevel::Critical,
            PressureLevel::High,
            PressureLevel::Normal,
        ] {
            cell.set(level);
            assert_eq!(cell.level(), level);
        }
    }
}
