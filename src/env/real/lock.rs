//! The lock of a store: flock(2) on the file `LOCK`, and a register of this process beside it.
//!
//! flock belongs to the open file, so a second handle of the same process is refused like another
//! process, and the kernel drops the lock when the process dies, however it dies. The register says
//! the same for file systems that turn flock into a lock of the whole process (NFS does): there a
//! second handle would be let in. It knows a directory by device and inode, so a symbolic link or
//! another spelling of the path is the same store, and a deleted `LOCK` does not open a second door
//! within the process.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the real backend is where the system's files are opened"
)]

use std::collections::BTreeMap;
use std::fs::TryLockError;
use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags, fstat, openat};

use crate::env::{FileName, IoError, IoErrorKind, IoResult, LockGuard, LockMode};
use crate::sync::StaticMutex;

/// A directory: device and inode.
type DirectoryId = (u64, u64);

/// How often each directory is locked `Shared` here; 0 = `Exclusive`.
static REGISTER: StaticMutex<BTreeMap<DirectoryId, u32>> = StaticMutex::new(BTreeMap::new());

/// An entry of the register, taken out again when dropped.
#[derive(Debug)]
struct Registered {
    directory: DirectoryId,
}

impl Registered {
    fn try_new(directory: DirectoryId, mode: LockMode) -> Option<Self> {
        let mut register = REGISTER.lock();
        match (register.get_mut(&directory), mode) {
            (None, LockMode::Exclusive) => drop(register.insert(directory, 0)),
            (None, LockMode::Shared) => drop(register.insert(directory, 1)),
            (Some(0), _) | (Some(_), LockMode::Exclusive) => return None,
            (Some(readers), LockMode::Shared) => *readers += 1,
        }
        Some(Self { directory })
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        let mut register = REGISTER.lock();
        match register.get_mut(&self.directory) {
            Some(readers) if *readers > 1 => *readers -= 1,
            _ => drop(register.remove(&self.directory)),
        }
    }
}

/// A held lock. The file comes first: its lock must be gone before the register says so.
#[derive(Debug)]
struct RealLock {
    _file: std::fs::File,
    _registered: Registered,
}

impl LockGuard for RealLock {}

/// Locks the store in `directory`.
pub(super) fn try_lock(directory: &OwnedFd, mode: LockMode) -> IoResult<Box<dyn LockGuard>> {
    let held = IoError::new(IoErrorKind::WouldBlock);
    let stat = fstat(directory)?;
    let registered = Registered::try_new((stat.st_dev, stat.st_ino), mode).ok_or(held)?;
    let flags = match mode {
        LockMode::Exclusive => OFlags::RDWR | OFlags::CREATE,
        // A reader may have no right to write, and must not create anything.
        LockMode::Shared => OFlags::RDONLY,
    };
    let file: std::fs::File = openat(
        directory,
        FileName::LOCK.to_string(),
        flags | OFlags::CLOEXEC,
        Mode::from_raw_mode(0o666),
    )?
    .into();
    let locked = match mode {
        LockMode::Exclusive => file.try_lock(),
        LockMode::Shared => file.try_lock_shared(),
    };
    match locked {
        Ok(()) => Ok(Box::new(RealLock {
            _file: file,
            _registered: registered,
        })),
        Err(TryLockError::WouldBlock) => Err(held),
        Err(TryLockError::Error(error)) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_register_alone_refuses_conflicts() {
        // No real directory has inode 0.
        let directory = (u64::MAX, 0);
        let take = |mode| Registered::try_new(directory, mode);
        let writer = take(LockMode::Exclusive).expect("free");
        assert!(take(LockMode::Exclusive).is_none());
        assert!(take(LockMode::Shared).is_none());
        drop(writer);
        let first = take(LockMode::Shared).expect("free");
        let second = take(LockMode::Shared).expect("shared");
        drop(first);
        assert!(take(LockMode::Exclusive).is_none());
        drop(second);
        drop(take(LockMode::Exclusive).expect("free again"));
        assert!(!REGISTER.lock().contains_key(&directory));
    }

    #[test]
    fn the_file_alone_refuses_conflicts() {
        let directory = tempfile::tempdir().expect("a directory");
        let descriptor: OwnedFd = std::fs::File::open(directory.path()).expect("opens").into();
        // Locked by hand, past the register: what another process does.
        let other = std::fs::File::create(directory.path().join("LOCK")).expect("creates");
        other.try_lock().expect("free");
        let held = IoError::new(IoErrorKind::WouldBlock);
        for mode in [LockMode::Exclusive, LockMode::Shared] {
            assert_eq!(try_lock(&descriptor, mode).expect_err("held"), held);
        }
        drop(other);
        // The refusals left nothing behind in the register.
        drop(try_lock(&descriptor, LockMode::Exclusive).expect("free"));
    }
}
