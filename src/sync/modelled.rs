//! What the engine's locks are under loom, and stand-ins for what loom lacks.
//!
//! What the stand-ins take for granted:
//! * [`ArcSwap`]: a load gives the newest pointer stored, acquires what its store released, releases
//!   nothing, and what it lent lives on. That the crate's own protocol between loads and stores keeps
//!   this promise is not modelled.
//! * [`OnceLock`]: the value is set once; who finds it has acquired its initialisation, and who does not
//!   may come late.
//! * [`Watched`] sees bytes written and lent, not when a buffer goes back: that rests on `Arc`.
//! * Limits of time never pass: a wait ends by its signal or never, so a lost one is a deadlock that loom
//!   reports.

use std::ops::{Deref, Range};
use std::sync::Arc;
use std::time::Duration;

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

pub(super) type BareMutex<T> = loom::sync::Mutex<T>;
pub(super) type BareGuard<'a, T> = loom::sync::MutexGuard<'a, T>;

/// The guard of [`Mutex`].
pub type MutexGuard<'a, T> = loom::sync::MutexGuard<'a, T>;

/// loom's mutex without its poison.
#[derive(Debug, Default)]
pub struct Mutex<T>(loom::sync::Mutex<T>);

impl<T> Mutex<T> {
    /// A lock around `value`.
    pub fn new(value: T) -> Self {
        Self(loom::sync::Mutex::new(value))
    }

    /// Takes the value out.
    pub fn into_inner(self) -> T {
        self.0.into_inner().unwrap_or_else(|e| e.into_inner())
    }

    /// Waits for the lock.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// The value, through exclusive access.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(|e| e.into_inner())
    }

    /// Takes the lock if nobody holds it.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.0.try_lock().ok()
    }
}

/// loom's lock for many readers without its poison.
#[derive(Debug, Default)]
pub struct RwLock<T>(loom::sync::RwLock<T>);

impl<T> RwLock<T> {
    /// A lock around `value`.
    pub fn new(value: T) -> Self {
        Self(loom::sync::RwLock::new(value))
    }

    /// Waits until nobody writes.
    pub fn read(&self) -> loom::sync::RwLockReadGuard<'_, T> {
        self.0.read().unwrap_or_else(|e| e.into_inner())
    }

    /// Waits until nobody reads or writes.
    pub fn write(&self) -> loom::sync::RwLockWriteGuard<'_, T> {
        self.0.write().unwrap_or_else(|e| e.into_inner())
    }
}

/// loom's condition variable with the waits that [`super::Signal`] makes.
#[derive(Debug, Default)]
pub(super) struct Condvar(loom::sync::Condvar);

type Waited<T> = Result<T, std::sync::PoisonError<T>>;

impl Condvar {
    pub fn notify_all(&self) {
        self.0.notify_all();
    }

    pub fn wait_while<'a, T>(
        &self,
        mut guard: BareGuard<'a, T>,
        mut condition: impl FnMut(&mut T) -> bool,
    ) -> Waited<BareGuard<'a, T>> {
        while condition(&mut guard) {
            guard = self.0.wait(guard).unwrap_or_else(|e| e.into_inner());
        }
        Ok(guard)
    }

    pub fn wait_timeout_while<'a, T>(
        &self,
        guard: BareGuard<'a, T>,
        _never_passes: Duration,
        condition: impl FnMut(&mut T) -> bool,
    ) -> Waited<(BareGuard<'a, T>, bool)> {
        let guard = self.wait_while(guard, condition);
        Ok((guard.unwrap_or_else(|e| e.into_inner()), false))
    }
}

/// Stand-in for a cell that is written once.
#[derive(Debug)]
pub struct OnceLock<T> {
    value: std::sync::OnceLock<T>,
    is_set: AtomicBool,
    /// Held while the value is made, as others wait for that.
    making: loom::sync::Mutex<()>,
}

impl<T> Default for OnceLock<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> OnceLock<T> {
    /// An empty cell.
    pub fn new() -> Self {
        Self {
            value: std::sync::OnceLock::new(),
            is_set: AtomicBool::new(false),
            making: loom::sync::Mutex::new(()),
        }
    }

    /// The value, if it is there and has been seen.
    pub fn get(&self) -> Option<&T> {
        match self.is_set.load(Ordering::Acquire) {
            true => self.value.get(),
            false => None,
        }
    }

    /// Sets the value; the first one stands.
    pub fn set(&self, value: T) -> Result<(), T> {
        let _making = self.making.lock();
        self.value.set(value)?;
        self.is_set.store(true, Ordering::Release);
        Ok(())
    }

    /// The value, made if it is not there.
    pub fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
        if let Some(value) = self.get() {
            return value;
        }
        let _making = self.making.lock();
        let value = self.value.get_or_init(make);
        self.is_set.store(true, Ordering::Release);
        value
    }
}

/// Stand-in for a pointer that is swapped whole.
#[derive(Debug)]
struct Swapped<P> {
    newest: std::sync::Mutex<P>,
    /// Counts stores, and carries what they release.
    stores: AtomicUsize,
}

impl<P: Clone> Swapped<P> {
    fn new(value: P) -> Self {
        Self {
            newest: std::sync::Mutex::new(value),
            stores: AtomicUsize::new(0),
        }
    }

    fn load(&self) -> P {
        // As a read and write in one it finds the newest count, and continues its release.
        self.stores.fetch_add(0, Ordering::Acquire);
        self.newest
            .lock()
            .map(|newest| newest.clone())
            .expect("whole")
    }

    fn swap(&self, value: P) -> P {
        self.stores.fetch_add(1, Ordering::AcqRel);
        std::mem::replace(&mut *self.newest.lock().expect("whole"), value)
    }
}

/// What a load lends.
#[derive(Debug)]
pub struct Guard<P>(P);

impl<P> Deref for Guard<P> {
    type Target = P;

    fn deref(&self) -> &P {
        &self.0
    }
}

/// A shared pointer, or none, that is swapped whole.
#[derive(Debug)]
pub struct ArcSwapAny<P>(Swapped<P>);

/// With a pointer always.
pub type ArcSwap<T> = ArcSwapAny<Arc<T>>;
/// With a pointer or none.
pub type ArcSwapOption<T> = ArcSwapAny<Option<Arc<T>>>;

impl<T> ArcSwapAny<Arc<T>> {
    pub fn from_pointee(value: T) -> Self {
        Self::new(Arc::new(value))
    }
}

impl<T> ArcSwapAny<Option<Arc<T>>> {
    pub fn empty() -> Self {
        Self::new(None)
    }
}

impl<P: Clone> ArcSwapAny<P> {
    pub fn new(value: P) -> Self {
        Self(Swapped::new(value))
    }

    pub fn load(&self) -> Guard<P> {
        Guard(self.0.load())
    }

    pub fn load_full(&self) -> P {
        self.0.load()
    }

    pub fn store(&self, value: P) {
        drop(self.0.swap(value));
    }

    pub fn swap(&self, value: P) -> P {
        self.0.swap(value)
    }
}

/// Watches accesses to bytes, one by one, that loom cannot see: a race is a failed model.
#[derive(Debug)]
pub(crate) struct Watched(Box<[UnsafeCell<()>]>);

impl Watched {
    pub fn new(bytes: usize) -> Self {
        Self((0..bytes).map(|_| UnsafeCell::new(())).collect())
    }

    pub fn write(&self, range: Range<usize>) {
        let cells = self.0.get(range).unwrap_or(&[]);
        cells.iter().for_each(|cell| cell.with_mut(|_| ()));
    }

    pub fn read(&self, range: Range<usize>) {
        let cells = self.0.get(range).unwrap_or(&[]);
        cells.iter().for_each(|cell| cell.with(|_| ()));
    }
}
