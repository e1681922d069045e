//! A directory in memory that counts calls and fails on demand, for the tests of logs and manifests.

use std::collections::BTreeMap;

use crate::env::{
    File, FileName, IoError, IoErrorKind, IoResult, Listing, LockGuard, LockMode, Map, OpenMode,
    Vfs,
};
use crate::sync::{Arc, Mutex};

/// A call of the backend that tests care about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    Create,
    Write,
    Sync,
    Allocate,
    Rename,
    SyncDir,
    Unlink,
}

#[derive(Debug, Default)]
struct State {
    files: BTreeMap<FileName, Arc<Mutex<Vec<u8>>>>,
    calls: Vec<Call>,
    largest_read: usize,
    /// How many reads still work before one fails.
    reads_left: Option<usize>,
    /// Fails the call at this place of the counted ones, with this kind.
    fail_at: Option<(usize, IoErrorKind)>,
    allocated_max: Option<u64>,
}

impl State {
    fn call(&mut self, call: Call) -> IoResult<()> {
        let place = self.calls.len();
        self.calls.push(call);
        match self.fail_at {
            Some((at, kind)) if at == place => Err(IoError::new(kind)),
            _ => Ok(()),
        }
    }
}

/// The directory. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct TestVfs(Arc<Mutex<State>>);

#[derive(Debug)]
struct TestFile {
    bytes: Arc<Mutex<Vec<u8>>>,
    vfs: TestVfs,
}

impl TestVfs {
    /// The counted calls since the last time.
    pub(crate) fn take_calls(&self) -> Vec<Call> {
        std::mem::take(&mut self.0.lock().calls)
    }

    /// The longest buffer that any read offered so far.
    pub(crate) fn largest_read(&self) -> usize {
        self.0.lock().largest_read
    }

    /// Lets the counted call number `at`, from now on, fail. `None` ends that.
    pub(crate) fn fail_at(&self, at: Option<(usize, IoErrorKind)>) {
        let mut state = self.0.lock();
        state.calls.clear();
        state.fail_at = at;
    }

    /// Lets one read fail after `reads` more have worked. Returns whether an earlier order is due still.
    pub(crate) fn fail_read_after(&self, reads: Option<usize>) -> bool {
        let mut state = self.0.lock();
        std::mem::replace(&mut state.reads_left, reads).is_some()
    }

    /// Allocations above this many bytes fail with `NoSpace`.
    pub(crate) fn allocate_max(&self, bytes: Option<u64>) {
        self.0.lock().allocated_max = bytes;
    }

    /// The bytes of a file.
    pub(crate) fn bytes(&self, name: FileName) -> Option<Vec<u8>> {
        let state = self.0.lock();
        state.files.get(&name).map(|bytes| bytes.lock().clone())
    }

    /// Puts a file there.
    pub(crate) fn put(&self, name: FileName, bytes: Vec<u8>) {
        let file = Arc::new(Mutex::new(bytes));
        self.0.lock().files.insert(name, file);
    }

    fn file(&self, bytes: Arc<Mutex<Vec<u8>>>) -> Arc<dyn File> {
        Arc::new(TestFile {
            bytes,
            vfs: self.clone(),
        })
    }
}

impl File for TestFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> IoResult<usize> {
        let mut state = self.vfs.0.lock();
        state.largest_read = state.largest_read.max(buffer.len());
        match state.reads_left {
            Some(0) => {
                state.reads_left = None;
                return Err(IoError::new(IoErrorKind::Other));
            }
            left => state.reads_left = left.map(|left| left - 1),
        }
        let bytes = self.bytes.lock();
        let start = bytes.len().min(usize::try_from(offset).unwrap());
        // Short on purpose: the callers' loops must cope.
        let count = buffer.len().min(bytes.len() - start).min(100_000);
        buffer[..count].copy_from_slice(&bytes[start..start + count]);
        Ok(count)
    }

    fn write_at(&self, buffer: &[u8], offset: u64) -> IoResult<usize> {
        let failed = self.vfs.0.lock().call(Call::Write);
        // A failing write stores a part, as a real one may.
        let stored = match failed {
            Ok(()) => buffer,
            Err(_) => &buffer[..buffer.len() / 2],
        };
        let mut bytes = self.bytes.lock();
        let start = usize::try_from(offset).unwrap();
        let end = start + stored.len();
        if bytes.len() < end {
            bytes.resize(end, 0);
        }
        bytes[start..end].copy_from_slice(stored);
        failed.map(|()| buffer.len())
    }

    fn sync_data(&self) -> IoResult<()> {
        self.vfs.0.lock().call(Call::Sync)
    }

    fn set_len(&self, length: u64) -> IoResult<()> {
        self.bytes
            .lock()
            .resize(usize::try_from(length).unwrap(), 0);
        Ok(())
    }

    fn allocate(&self, length: u64) -> IoResult<()> {
        let mut state = self.vfs.0.lock();
        state.call(Call::Allocate)?;
        if state.allocated_max.is_some_and(|max| length > max) {
            return Err(IoError::new(IoErrorKind::NoSpace));
        }
        let mut bytes = self.bytes.lock();
        let length = bytes.len().max(usize::try_from(length).unwrap());
        bytes.resize(length, 0);
        Ok(())
    }

    fn len(&self) -> IoResult<u64> {
        Ok(self.bytes.lock().len() as u64)
    }
}

impl Vfs for TestVfs {
    fn create_root(&self) -> IoResult<()> {
        Ok(())
    }

    fn open(&self, name: FileName, _mode: OpenMode) -> IoResult<Arc<dyn File>> {
        let bytes = self.0.lock().files.get(&name).cloned();
        let bytes = bytes.ok_or(IoError::new(IoErrorKind::NotFound))?;
        Ok(self.file(bytes))
    }

    fn create_new(&self, name: FileName) -> IoResult<Arc<dyn File>> {
        let mut state = self.0.lock();
        state.call(Call::Create)?;
        if state.files.contains_key(&name) {
            return Err(IoError::new(IoErrorKind::AlreadyExists));
        }
        let bytes = Arc::new(Mutex::new(Vec::new()));
        state.files.insert(name, bytes.clone());
        drop(state);
        Ok(self.file(bytes))
    }

    fn rename(&self, from: FileName, to: FileName) -> IoResult<()> {
        let mut state = self.0.lock();
        state.call(Call::Rename)?;
        let file = state.files.remove(&from);
        let file = file.ok_or(IoError::new(IoErrorKind::NotFound))?;
        state.files.insert(to, file);
        Ok(())
    }

    fn unlink(&self, name: FileName) -> IoResult<()> {
        let mut state = self.0.lock();
        state.call(Call::Unlink)?;
        let file = state.files.remove(&name);
        file.map(|_| ()).ok_or(IoError::new(IoErrorKind::NotFound))
    }

    fn list(&self) -> IoResult<Listing> {
        Ok(Listing {
            names: self.0.lock().files.keys().copied().collect(),
            foreign: 0,
        })
    }

    fn sync_dir(&self) -> IoResult<()> {
        self.0.lock().call(Call::SyncDir)
    }

    fn try_lock(&self, _mode: LockMode) -> IoResult<Box<dyn LockGuard>> {
        Err(IoError::new(IoErrorKind::Unsupported))
    }

    fn free_space(&self) -> IoResult<u64> {
        Ok(u64::MAX)
    }

    fn descriptor_limit(&self) -> u64 {
        64
    }

    fn map(&self, _file: &dyn File, _length: u64) -> IoResult<Arc<dyn Map>> {
        Err(IoError::new(IoErrorKind::Unsupported))
    }

    fn link_or_copy_to(&self, _name: FileName, _target: &dyn Vfs) -> IoResult<()> {
        Err(IoError::new(IoErrorKind::Unsupported))
    }

    fn describe(&self) -> String {
        "memory".to_owned()
    }

    fn as_any(&self) -> &dyn std::any::Any {
        self
    }
}
