//! The locks and atomics of the engine: the one place that a model checker replaces.
//!
//! Nothing else in `src/` names `std::sync` locks or atomics. `Mutex` and `RwLock` do not poison: a
//! panic in a caller's closure must not turn into a second panic in another thread, and the engine
//! keeps its own, explicit poison state (see `error`).

pub use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
pub use std::sync::{Arc, OnceLock, Weak};

use std::time::Duration;

/// A mutual-exclusion lock that ignores panics of earlier holders.
#[derive(Debug, Default)]
#[allow(
    clippy::disallowed_types,
    reason = "this is the module that wraps them"
)]
pub struct Mutex<T: ?Sized>(std::sync::Mutex<T>);

/// The guard of [`Mutex`].
pub type MutexGuard<'a, T> = std::sync::MutexGuard<'a, T>;

#[allow(
    clippy::disallowed_types,
    reason = "this is the module that wraps them"
)]
impl<T> Mutex<T> {
    /// A lock around `value`.
    pub const fn new(value: T) -> Self {
        Self(std::sync::Mutex::new(value))
    }

    /// Takes the value out.
    pub fn into_inner(self) -> T {
        self.0
            .into_inner()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Waits for the lock.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// The value, through exclusive access.
    pub fn get_mut(&mut self) -> &mut T {
        self.0
            .get_mut()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Takes the lock if nobody holds it.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Some(guard),
            Err(std::sync::TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(std::sync::TryLockError::WouldBlock) => None,
        }
    }
}

/// A lock for many readers or one writer that ignores panics of earlier holders.
#[derive(Debug, Default)]
#[allow(
    clippy::disallowed_types,
    reason = "this is the module that wraps them"
)]
pub struct RwLock<T: ?Sized>(std::sync::RwLock<T>);

#[allow(
    clippy::disallowed_types,
    reason = "this is the module that wraps them"
)]
impl<T> RwLock<T> {
    /// A lock around `value`.
    pub const fn new(value: T) -> Self {
        Self(std::sync::RwLock::new(value))
    }

    /// Waits until nobody writes.
    pub fn read(&self) -> std::sync::RwLockReadGuard<'_, T> {
        self.0
            .read()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Waits until nobody reads or writes.
    pub fn write(&self) -> std::sync::RwLockWriteGuard<'_, T> {
        self.0
            .write()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// Counts events and wakes those who wait for the next one.
///
/// A waiter reads [`count`](Signal::count), looks at the state it cares about, and then waits with
/// the count it saw: a [`raise`](Signal::raise) in between is never lost. Waiting itself goes through
/// `Clock::wait`, so that a simulated clock can advance instead of blocking.
#[derive(Debug, Default)]
#[allow(
    clippy::disallowed_types,
    reason = "this is the module that wraps them"
)]
pub struct Signal {
    state: std::sync::Mutex<SignalState>,
    raised: std::sync::Condvar,
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

    fn lock(&self) -> MutexGuard<'_, SignalState> {
        self.state
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}
