//! The standard library's locks, without their poison: see the module above.

#![allow(
    clippy::disallowed_types,
    reason = "this is the module that wraps them"
)]

/// A condition variable, to be used with the bare mutex beside it.
pub(super) type Condvar = std::sync::Condvar;
/// The mutex under the condition variable.
pub(super) type BareMutex<T> = std::sync::Mutex<T>;
/// Its guard.
pub(super) type BareGuard<'a, T> = std::sync::MutexGuard<'a, T>;

/// A mutual-exclusion lock that ignores panics of earlier holders.
#[derive(Debug, Default)]
pub struct Mutex<T: ?Sized>(std::sync::Mutex<T>);

/// The guard of [`Mutex`].
pub type MutexGuard<'a, T> = std::sync::MutexGuard<'a, T>;

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
pub struct RwLock<T: ?Sized>(std::sync::RwLock<T>);

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

/// Bytes whose accesses a model watches for races; nothing at all outside of one.
#[derive(Debug)]
pub(crate) struct Watched;

impl Watched {
    /// For a buffer of so many bytes.
    #[inline(always)]
    pub fn new(_bytes: usize) -> Self {
        Self
    }

    /// The bytes are about to be written.
    #[inline(always)]
    pub fn write(&self, _range: std::ops::Range<usize>) {}

    /// The bytes are about to be lent for reading.
    #[inline(always)]
    pub fn read(&self, _range: std::ops::Range<usize>) {}
}
