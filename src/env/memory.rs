//! A directory in memory, and with it [`Env::in_memory`]: an environment without a system, for users'
//! tests and the engine's own.
//!
//! It behaves like a well-mannered disk: transfers are whole, everything is durable at once, and a
//! limit on the bytes ([`MemoryVfs::with_capacity`]) gives `NoSpace`. It does not crash or lie; the
//! simulator's does. Files live as long as a name or an open handle holds them.
//!
//! Invariant: `used` is the sum of the lengths of all living files.

use std::collections::BTreeMap;

use super::manual::{ManualClock, SeededEntropy};
use super::pressure::SetPressure;
use super::{
    Env, File, FileName, IoError, IoErrorKind, IoResult, Listing, LockGuard, LockMode, Map,
    OpenMode, Vfs, io,
};
use crate::sync::{Arc, AtomicU64, Mutex, Ordering};

impl Env {
    /// An environment in memory: an empty directory, a [`ManualClock`], the same random bytes each
    /// time, no pressure, no threads. Clones share all of it, so a store can be opened again.
    pub fn in_memory() -> Self {
        Self {
            vfs: Arc::new(MemoryVfs::new()),
            clock: Arc::new(ManualClock::new()),
            entropy: Arc::new(SeededEntropy::new(0)),
            pressure: Arc::new(SetPressure::new()),
            driver: None,
        }
    }
}

/// What a [`MemoryVfs`] says of its descriptors; nothing counts them.
const DESCRIPTORS_MAX: u64 = 1 << 20;

/// A directory in memory.
#[derive(Debug)]
pub struct MemoryVfs {
    space: Arc<Space>,
    state: Arc<Mutex<Directory>>,
}

#[derive(Debug, Default)]
struct Directory {
    created: bool,
    files: BTreeMap<FileName, Arc<Content>>,
    held: Held,
}

/// Who holds the lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Held {
    #[default]
    No,
    Exclusive,
    Shared(u32),
}

impl MemoryVfs {
    /// A directory that does not exist yet, on a disk without a limit.
    pub fn new() -> Self {
        Self::with_capacity(u64::MAX)
    }

    /// The same on a disk of `capacity_bytes`.
    pub fn with_capacity(capacity_bytes: u64) -> Self {
        Self {
            space: Arc::new(Space {
                capacity_bytes: AtomicU64::new(capacity_bytes),
                used_bytes: AtomicU64::new(0),
            }),
            state: Arc::default(),
        }
    }

    /// Changes the size of the disk. What is there stays, also above a smaller size.
    pub fn set_capacity(&self, capacity_bytes: u64) {
        self.space
            .capacity_bytes
            .store(capacity_bytes, Ordering::Relaxed);
    }

    /// Runs `act` on the directory, if it exists.
    fn with<T>(&self, act: impl FnOnce(&mut Directory) -> IoResult<T>) -> IoResult<T> {
        let mut directory = self.state.lock();
        match directory.created {
            true => act(&mut directory),
            false => Err(IoError::new(IoErrorKind::NotFound)),
        }
    }

    fn new_file(&self) -> Arc<Content> {
        Arc::new(Content {
            bytes: Mutex::default(),
            space: Arc::clone(&self.space),
        })
    }
}

impl Default for MemoryVfs {
    fn default() -> Self {
        Self::new()
    }
}

impl Vfs for MemoryVfs {
    fn create_root(&self) -> IoResult<()> {
        self.state.lock().created = true;
        Ok(())
    }

    fn open(&self, name: FileName, mode: OpenMode) -> IoResult<Arc<dyn File>> {
        self.with(|directory| {
            let content = directory.files.get(&name).ok_or(not_found())?;
            Ok(MemoryFile::handle(content, mode))
        })
    }

    fn create_new(&self, name: FileName) -> IoResult<Arc<dyn File>> {
        self.with(|directory| {
            if directory.files.contains_key(&name) {
                return Err(IoError::new(IoErrorKind::AlreadyExists));
            }
            let content = self.new_file();
            let handle = MemoryFile::handle(&content, OpenMode::ReadWrite);
            directory.files.insert(name, content);
            Ok(handle)
        })
    }

    fn rename(&self, from: FileName, to: FileName) -> IoResult<()> {
        self.with(|directory| {
            let content = directory.files.remove(&from).ok_or(not_found())?;
            directory.files.insert(to, content);
            Ok(())
        })
    }

    fn unlink(&self, name: FileName) -> IoResult<()> {
        self.with(|directory| directory.files.remove(&name).map(drop).ok_or(not_found()))
    }

    fn list(&self) -> IoResult<Listing> {
        self.with(|directory| {
            Ok(Listing {
                names: directory.files.keys().copied().collect(),
                foreign: 0,
            })
        })
    }

    fn sync_dir(&self) -> IoResult<()> {
        self.with(|_| Ok(()))
    }

    fn try_lock(&self, mode: LockMode) -> IoResult<Box<dyn LockGuard>> {
        self.with(|directory| {
            if mode == LockMode::Shared && !directory.files.contains_key(&FileName::LOCK) {
                return Err(not_found());
            }
            directory.held = match (directory.held, mode) {
                (Held::No, LockMode::Exclusive) => Held::Exclusive,
                (Held::No, LockMode::Shared) => Held::Shared(1),
                (Held::Shared(readers), LockMode::Shared) => Held::Shared(readers + 1),
                _ => return Err(IoError::new(IoErrorKind::WouldBlock)),
            };
            let files = &mut directory.files;
            files
                .entry(FileName::LOCK)
                .or_insert_with(|| self.new_file());
            Ok(Box::new(MemoryLock(Arc::clone(&self.state))) as Box<dyn LockGuard>)
        })
    }

    fn free_space(&self) -> IoResult<u64> {
        self.with(|_| Ok(self.space.free_bytes()))
    }

    fn descriptor_limit(&self) -> u64 {
        DESCRIPTORS_MAX
    }

    fn link_or_copy_to(&self, name: FileName, target: &dyn Vfs) -> IoResult<()> {
        io::copy_file(self, name, target)
    }

    fn describe(&self) -> String {
        "(memory)".to_owned()
    }

    fn as_any(&self) -> &dyn std::any::Any {
        self
    }
}

const fn not_found() -> IoError {
    IoError::new(IoErrorKind::NotFound)
}

#[derive(Debug)]
struct MemoryLock(Arc<Mutex<Directory>>);

impl LockGuard for MemoryLock {}

impl Drop for MemoryLock {
    fn drop(&mut self) {
        let held = &mut self.0.lock().held;
        *held = match *held {
            Held::Shared(readers) if readers > 1 => Held::Shared(readers - 1),
            _ => Held::No,
        };
    }
}

/// The size of the disk and what is taken of it.
#[derive(Debug)]
struct Space {
    capacity_bytes: AtomicU64,
    used_bytes: AtomicU64,
}

impl Space {
    fn free_bytes(&self) -> u64 {
        let used = self.used_bytes.load(Ordering::Relaxed);
        self.capacity_bytes
            .load(Ordering::Relaxed)
            .saturating_sub(used)
    }

    fn take(&self, bytes: u64) -> IoResult<()> {
        let capacity = self.capacity_bytes.load(Ordering::Relaxed);
        let grown = |used: u64| used.checked_add(bytes).filter(|sum| *sum <= capacity);
        self.used_bytes
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, grown)
            .map(drop)
            .map_err(|_| IoError::new(IoErrorKind::NoSpace))
    }

    fn give_back(&self, bytes: u64) {
        self.used_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// The bytes of a file.
#[derive(Debug)]
struct Content {
    bytes: Mutex<Vec<u8>>,
    space: Arc<Space>,
}

impl Content {
    /// Sets the length, if the disk has room for it.
    fn resize(&self, bytes: &mut Vec<u8>, length: u64) -> IoResult<()> {
        let before = bytes.len() as u64;
        let target = usize::try_from(length).map_err(|_| IoError::new(IoErrorKind::NoSpace))?;
        if length > before {
            self.space.take(length - before)?;
            if bytes.try_reserve(target - bytes.len()).is_err() {
                self.space.give_back(length - before);
                return Err(IoError::new(IoErrorKind::NoSpace));
            }
        } else {
            self.space.give_back(before - length);
        }
        bytes.resize(target, 0);
        Ok(())
    }
}

impl Drop for Content {
    fn drop(&mut self) {
        let length = self.bytes.lock().len();
        self.space.give_back(length as u64);
    }
}

#[derive(Debug)]
struct MemoryFile {
    content: Arc<Content>,
    mode: OpenMode,
}

impl MemoryFile {
    fn handle(content: &Arc<Content>, mode: OpenMode) -> Arc<dyn File> {
        Arc::new(Self {
            content: Arc::clone(content),
            mode,
        })
    }

    fn check_writable(&self) -> IoResult<()> {
        match self.mode {
            OpenMode::ReadWrite => Ok(()),
            OpenMode::Read => Err(IoError::new(IoErrorKind::Other)),
        }
    }
}

impl File for MemoryFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> IoResult<usize> {
        let bytes = self.content.bytes.lock();
        let rest = usize::try_from(offset)
            .ok()
            .and_then(|offset| bytes.get(offset..))
            .unwrap_or(&[]);
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }

    fn write_at(&self, buffer: &[u8], offset: u64) -> IoResult<usize> {
        self.check_writable()?;
        let mut bytes = self.content.bytes.lock();
        let end = offset.saturating_add(buffer.len() as u64);
        if end > bytes.len() as u64 && !buffer.is_empty() {
            self.content.resize(&mut bytes, end)?;
        }
        if !buffer.is_empty() {
            // Below the length, so it fits an index.
            let start = bytes.len().min(offset as usize);
            bytes[start..start + buffer.len()].copy_from_slice(buffer);
        }
        Ok(buffer.len())
    }

    fn sync_data(&self) -> IoResult<()> {
        Ok(())
    }

    fn set_len(&self, length: u64) -> IoResult<()> {
        self.check_writable()?;
        self.content.resize(&mut self.content.bytes.lock(), length)
    }

    fn allocate(&self, length: u64) -> IoResult<()> {
        self.check_writable()?;
        let mut bytes = self.content.bytes.lock();
        match length > bytes.len() as u64 {
            true => self.content.resize(&mut bytes, length),
            false => Ok(()),
        }
    }

    fn len(&self) -> IoResult<u64> {
        Ok(self.content.bytes.lock().len() as u64)
    }

    fn map(&self, length: u64) -> IoResult<Arc<dyn Map>> {
        let bytes = self.content.bytes.lock();
        let mapped = usize::try_from(length)
            .ok()
            .and_then(|length| bytes.get(..length))
            .ok_or(IoError::new(IoErrorKind::UnexpectedEof))?;
        // A sealed file does not change, so a copy is as good as a view.
        Ok(Arc::new(MemoryMap(mapped.into())))
    }
}

#[derive(Debug)]
struct MemoryMap(Box<[u8]>);

impl Map for MemoryMap {
    fn bytes(&self) -> &[u8] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_refuses_and_recovers() {
        let vfs = MemoryVfs::with_capacity(100);
        vfs.create_root().expect("creates");
        let file = vfs.create_new(FileName::log(1)).expect("creates");
        file.allocate(60).expect("fits");
        assert_eq!(vfs.free_space(), Ok(40));
        let full = IoError::new(IoErrorKind::NoSpace);
        assert_eq!(file.allocate(101), Err(full));
        assert_eq!(file.write_at(&[1; 50], 60), Err(full));
        assert_eq!(file.set_len(u64::MAX), Err(full));
        assert_eq!(file.len(), Ok(60));
        // Within what was allocated a write never fails.
        vfs.set_capacity(0);
        assert_eq!(file.write_at(&[1; 60], 0), Ok(60));
        vfs.set_capacity(120);
        file.allocate(101).expect("there is room again");
        file.set_len(10).expect("shrinks");
        assert_eq!(vfs.free_space(), Ok(110));
        // An unlinked file is there until its last handle goes.
        vfs.unlink(FileName::log(1)).expect("removes");
        assert_eq!(vfs.free_space(), Ok(110));
        drop(file);
        assert_eq!(vfs.free_space(), Ok(120));
    }

    #[test]
    fn a_missing_directory_holds_nothing() {
        let vfs = MemoryVfs::new();
        assert_eq!(vfs.list(), Err(not_found()));
        assert_eq!(
            vfs.create_new(FileName::MANIFEST).map(drop),
            Err(not_found())
        );
        vfs.create_root().expect("creates");
        assert_eq!(vfs.list(), Ok(Listing::default()));
    }
}
