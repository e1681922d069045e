//! The locks and atomics of the engine: the one place that a model checker replaces.
//!
//! Nothing else in `src/` names `std::sync` locks or atomics, or swapped pointers. `Mutex` and `RwLock`
//! do not poison: a panic in a caller's closure must not turn into a second panic in another thread,
//! and the engine keeps its own, explicit poison state (see `error`).
//!
//! With `--cfg loom` everything here comes from loom, or from a stand-in over loom's atomics where loom
//! has none (`modelled` says what a stand-in takes for granted). Reference counts stay the standard
//! library's in both: that `Arc` is right is assumed.

#[cfg(all(test, loom))]
pub(crate) mod loom_tests;
#[cfg(loom)]
mod modelled;
#[cfg_attr(loom, allow(dead_code, reason = "statics alone use it there"))]
mod standard;

#[cfg(loom)]
use modelled as imp;
#[cfg(not(loom))]
use standard as imp;

pub use std::sync::{Arc, Weak};
use std::time::Duration;

#[cfg(not(loom))]
pub use std::sync::OnceLock;
#[cfg(not(loom))]
pub use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};

#[cfg(loom)]
pub use loom::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
#[cfg(loom)]
pub use modelled::OnceLock;

pub use imp::{Mutex, MutexGuard, RwLock};

#[cfg(not(loom))]
pub(crate) use arc_swap::{ArcSwap, ArcSwapOption, Guard};
#[cfg(loom)]
pub(crate) use modelled::{ArcSwap, ArcSwapOption, Guard};

/// What statics are made of, and what `const` functions make: they outlive a model, and order nothing
/// between threads.
pub(crate) use standard::Mutex as StaticMutex;
pub(crate) use std::sync::OnceLock as StaticOnceLock;
pub(crate) use std::sync::atomic::{AtomicU8 as StaticU8, AtomicU64 as StaticU64};

pub(crate) use imp::Watched;

#[cfg(loom)]
pub(crate) use loom::thread;
#[cfg(not(loom))]
pub(crate) use std::thread;

/// Counts events and wakes those who wait for the next one.
///
/// A waiter reads [`count`](Signal::count), looks at the state it cares about, and then waits with
/// the count it saw: a [`raise`](Signal::raise) in between is never lost. Waiting itself goes through
/// `Clock::wait`, so that a simulated clock can advance instead of blocking.
#[derive(Debug, Default)]
pub struct Signal {
    state: imp::BareMutex<SignalState>,
    raised: imp::Condvar,
}

#[derive(Debug, Default)]
struct SignalState {
    count: u64,
    /// Threads that block: without any, raising makes no system call.
    waiters: u32,
}

impl Signal {
    /// A signal that was never raised.
    pub fn new() -> Self {
        Self::default()
    }

    /// How often it was raised so far.
    pub fn count(&self) -> u64 {
        self.lock().count
    }

    /// Counts one event and wakes all waiters.
    pub fn raise(&self) {
        let mut state = self.lock();
        state.count += 1;
        let waited_for = state.waiters > 0;
        drop(state);
        if waited_for {
            self.raised.notify_all();
        }
    }

    /// Blocks the thread until the count differs from `seen` or `timeout` has passed. For real
    /// clocks only; everything else calls `Clock::wait`.
    pub fn block(&self, seen: u64, timeout: Option<Duration>) {
        let mut state = self.lock();
        state.waiters += 1;
        let same = |state: &mut SignalState| state.count == seen;
        let mut state = match timeout {
            Some(timeout) => {
                self.raised
                    .wait_timeout_while(state, timeout, same)
                    .unwrap_or_else(|poisoned| poisoned.into_inner())
                    .0
            }
            None => self
                .raised
                .wait_while(state, same)
                .unwrap_or_else(|poisoned| poisoned.into_inner()),
        };
        state.waiters -= 1;
    }

    fn lock(&self) -> imp::BareGuard<'_, SignalState> {
        self.state
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}
