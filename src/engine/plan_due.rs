//! Whether counted lookups make a plan of filters due: what lookups look at, without the lock of the books.
//!
//! Waking the job is a system call, which to a lookup that reads nothing is twenty times all else that it
//! does. It was made for every 16th counted lookup, one in 1,024 of all, and so it was their 99.9th
//! percentile. Now only the lookup that makes a plan due makes it, and the next one when there is a new plan.

use crate::sync::{AtomicU64, Ordering};

/// The count at which the next plan is due. The books set it with every plan, under their lock.
#[derive(Debug)]
pub(crate) struct PlanDue(AtomicU64);

impl Default for PlanDue {
    fn default() -> Self {
        Self(AtomicU64::new(Self::NEVER))
    }
}

impl PlanDue {
    /// However many are counted; or whoever is to be told has been.
    const NEVER: u64 = u64::MAX;

    /// The next plan is due at this count, or at none.
    pub fn set(&self, counted: Option<u64>) {
        self.0
            .store(counted.unwrap_or(Self::NEVER), Ordering::Relaxed);
    }

    /// Whether the job is to be told that so many lookups were counted: once a plan.
    #[inline]
    pub fn is_reached(&self, counted: u64) -> bool {
        let due = self.0.load(Ordering::Relaxed);
        counted >= due && self.take(due)
    }

    /// Takes what was seen, never what a plan has set meanwhile: that one would be missed.
    #[cold]
    fn take(&self, due: u64) -> bool {
        let order = Ordering::Relaxed;
        self.0
            .compare_exchange(due, Self::NEVER, order, order)
            .is_ok()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn one_is_told_and_the_next_plan_tells_another() {
        let due = PlanDue::default();
        assert!(!due.is_reached(1 << 40));
        for at in [5, 9, 9, 2] {
            due.set(Some(at));
            assert!(!due.is_reached(at - 1));
            assert!(due.is_reached(at + 1));
            assert!(!due.is_reached(at + 1));
        }
        due.set(None);
        assert!(!due.is_reached(1 << 40));
    }
}
