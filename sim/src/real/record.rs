//! A log of what an engine asked of a file system: every mutating call that succeeded, in one order.
//!
//! The log's lock is held during each such call, so that its order is the order of their effects: what a
//! sync covers is exactly what stands before it.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sealstone::env::{
    Advice, Env, File, FileName, IoResult, Listing, LockGuard, LockMode, Map, OpenMode,
    ReadRequest, Vfs,
};
use sealstone::sync::Mutex;

/// An entry of the log. Handles are numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// The directory was made.
    CreateRoot,
    /// A file was created and is open.
    Create(FileName, u64),
    /// A file was opened for writing.
    Open(FileName, u64),
    /// A handle is gone.
    Close(u64),
    /// Bytes were written at an offset.
    Write(u64, u64, Vec<u8>),
    /// `sync_data` has returned.
    Sync(u64),
    /// The length was set.
    SetLen(u64, u64),
    /// Space was allocated up to a length.
    Allocate(u64, u64),
    /// A name was moved.
    Rename(FileName, FileName),
    /// A name was removed.
    Unlink(FileName),
    /// `sync_dir` has returned.
    SyncDir,
    /// A batch of a thread was acknowledged, with this sequence.
    Acknowledged {
        /// Which thread.
        thread: u64,
        /// Which of its batches.
        counter: u64,
        /// The sequence.
        sequence: u64,
    },
    /// Everything up to this sequence was said to be on stable storage.
    Durable(u64),
}

#[derive(Debug, Default)]
struct Shared {
    entries: Mutex<Vec<Entry>>,
    handles: AtomicU64,
}

/// The log that recorded directories write to.
#[derive(Clone, Debug, Default)]
pub struct Recorder(Arc<Shared>);

impl Recorder {
    /// The same world, with what happens to its directory in the log.
    #[must_use]
    pub fn around(&self, env: &Env) -> Env {
        Env {
            vfs: Arc::new(Recorded {
                recorder: self.clone(),
                inner: env.vfs.clone(),
            }),
            ..env.clone()
        }
    }

    /// Adds what the store has answered.
    pub fn note(&self, entry: Entry) {
        self.0.entries.lock().push(entry);
    }

    /// The entries so far.
    pub fn entries(&self) -> Vec<Entry> {
        self.0.entries.lock().clone()
    }

    fn during<T>(
        &self,
        call: impl FnOnce() -> IoResult<T>,
        entry: impl FnOnce(&T) -> Entry,
    ) -> IoResult<T> {
        let mut entries = self.0.entries.lock();
        let result = call()?;
        entries.push(entry(&result));
        Ok(result)
    }

    fn file(&self, inner: Arc<dyn File>, handle: u64) -> Arc<dyn File> {
        Arc::new(RecordedFile {
            recorder: self.clone(),
            inner,
            handle,
        })
    }

    fn handle(&self) -> u64 {
        self.0.handles.fetch_add(1, Ordering::Relaxed)
    }
}

#[derive(Debug)]
struct Recorded {
    recorder: Recorder,
    inner: Arc<dyn Vfs>,
}

impl Vfs for Recorded {
    fn create_root(&self) -> IoResult<()> {
        let call = || self.inner.create_root();
        self.recorder.during(call, |()| Entry::CreateRoot)
    }

    fn open(&self, name: FileName, mode: OpenMode) -> IoResult<Arc<dyn File>> {
        if mode == OpenMode::Read {
            return self.inner.open(name, mode);
        }
        let handle = self.recorder.handle();
        let call = || self.inner.open(name, mode);
        let file = self.recorder.during(call, |_| Entry::Open(name, handle))?;
        Ok(self.recorder.file(file, handle))
    }

    fn create_new(&self, name: FileName) -> IoResult<Arc<dyn File>> {
        let handle = self.recorder.handle();
        let call = || self.inner.create_new(name);
        let file = self
            .recorder
            .during(call, |_| Entry::Create(name, handle))?;
        Ok(self.recorder.file(file, handle))
    }

    fn rename(&self, from: FileName, to: FileName) -> IoResult<()> {
        let call = || self.inner.rename(from, to);
        self.recorder.during(call, |()| Entry::Rename(from, to))
    }

    fn unlink(&self, name: FileName) -> IoResult<()> {
        let call = || self.inner.unlink(name);
        self.recorder.during(call, |()| Entry::Unlink(name))
    }

    fn list(&self) -> IoResult<Listing> {
        self.inner.list()
    }

    fn sync_dir(&self) -> IoResult<()> {
        let call = || self.inner.sync_dir();
        self.recorder.during(call, |()| Entry::SyncDir)
    }

    fn try_lock(&self, mode: LockMode) -> IoResult<Box<dyn LockGuard>> {
        self.inner.try_lock(mode)
    }

    fn free_space(&self) -> IoResult<u64> {
        self.inner.free_space()
    }

    fn descriptor_limit(&self) -> u64 {
        self.inner.descriptor_limit()
    }

    fn link_or_copy_to(&self, name: FileName, target: &dyn Vfs) -> IoResult<()> {
        self.inner.link_or_copy_to(name, target)
    }

    fn describe(&self) -> String {
        self.inner.describe()
    }

    fn as_any(&self) -> &dyn Any {
        self.inner.as_any()
    }
}

#[derive(Debug)]
struct RecordedFile {
    recorder: Recorder,
    inner: Arc<dyn File>,
    handle: u64,
}

impl Drop for RecordedFile {
    fn drop(&mut self) {
        self.recorder.note(Entry::Close(self.handle));
    }
}

impl File for RecordedFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> IoResult<usize> {
        self.inner.read_at(buffer, offset)
    }

    fn write_at(&self, buffer: &[u8], offset: u64) -> IoResult<usize> {
        let call = || self.inner.write_at(buffer, offset);
        self.recorder.during(call, |written| {
            Entry::Write(self.handle, offset, buffer[..*written].to_vec())
        })
    }

    fn read_many(&self, requests: &mut [ReadRequest<'_>]) {
        self.inner.read_many(requests);
    }

    fn advise(&self, advice: Advice, offset: u64, length: u64) {
        self.inner.advise(advice, offset, length);
    }

    fn sync_data(&self) -> IoResult<()> {
        let call = || self.inner.sync_data();
        self.recorder.during(call, |()| Entry::Sync(self.handle))
    }

    fn set_len(&self, length: u64) -> IoResult<()> {
        let call = || self.inner.set_len(length);
        self.recorder
            .during(call, |()| Entry::SetLen(self.handle, length))
    }

    fn allocate(&self, length: u64) -> IoResult<()> {
        let call = || self.inner.allocate(length);
        self.recorder
            .during(call, |()| Entry::Allocate(self.handle, length))
    }

    fn len(&self) -> IoResult<u64> {
        self.inner.len()
    }

    fn map(&self, length: u64) -> IoResult<Arc<dyn Map>> {
        self.inner.map(length)
    }
}
