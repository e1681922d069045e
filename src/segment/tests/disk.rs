//! A double of the file system: bytes in memory, short and interrupted transfers, a descriptor limit.

use std::any::Any;
use std::collections::BTreeMap;

use crate::env::{
    File, FileName, IoError, IoErrorKind, IoResult, Listing, LockGuard, LockMode, Map, OpenMode,
    Vfs,
};
use crate::segment::{FileSlot, Slotted};
use crate::sync::{Arc, AtomicU64, Mutex, Ordering};

/// A slot and the name of its file of 8 bytes.
#[derive(Debug)]
pub(super) struct Named {
    name: FileName,
    slot: FileSlot,
}

impl Named {
    pub(super) fn new(name: FileName) -> Arc<Self> {
        let slot = FileSlot::default();
        Arc::new(Self { name, slot })
    }
}

impl Slotted for Named {
    fn slot(&self) -> &FileSlot {
        &self.slot
    }

    fn name(&self) -> FileName {
        self.name
    }

    fn file_bytes(&self) -> u64 {
        8
    }
}

#[derive(Debug, Default)]
struct State {
    files: Mutex<BTreeMap<FileName, Arc<Mutex<Vec<u8>>>>>,
    /// Descriptors handed out and not dropped.
    open: AtomicU64,
    /// Descriptors that may be open at once; 0 = any number.
    limit: AtomicU64,
    /// Bytes that a transfer moves at most; 0 = any number. Every third is interrupted then.
    transfer_max: AtomicU64,
    transfers: AtomicU64,
    /// Writes fail with NoSpace from this offset on; 0 = never.
    full_at: AtomicU64,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Disk(Arc<State>);

impl Disk {
    pub(super) fn new() -> Self {
        Self::default()
    }

    pub(super) fn open_now(&self) -> u64 {
        self.0.open.load(Ordering::Relaxed)
    }

    pub(super) fn limit(&self, limit: u64) {
        self.0.limit.store(limit, Ordering::Relaxed);
    }

    pub(super) fn transfer_max(&self, bytes: u64) {
        self.0.transfer_max.store(bytes, Ordering::Relaxed);
    }

    pub(super) fn full_at(&self, offset: u64) {
        self.0.full_at.store(offset, Ordering::Relaxed);
    }

    pub(super) fn bytes(&self, name: FileName) -> Vec<u8> {
        self.0.files.lock()[&name].lock().clone()
    }

    pub(super) fn put(&self, name: FileName, bytes: Vec<u8>) {
        self.0
            .files
            .lock()
            .insert(name, Arc::new(Mutex::new(bytes)));
    }

    /// Changes the bytes under every open descriptor.
    pub(super) fn edit(&self, name: FileName, edit: impl FnOnce(&mut Vec<u8>)) {
        edit(&mut self.0.files.lock()[&name].lock());
    }

    fn descriptor(&self, data: Arc<Mutex<Vec<u8>>>) -> IoResult<Arc<dyn File>> {
        let limit = self.0.limit.load(Ordering::Relaxed);
        if limit > 0 && self.open_now() >= limit {
            return Err(IoError::new(IoErrorKind::TooManyOpenFiles));
        }
        self.0.open.fetch_add(1, Ordering::Relaxed);
        Ok(Arc::new(Descriptor {
            state: self.0.clone(),
            data,
        }))
    }
}

#[derive(Debug)]
struct Descriptor {
    state: Arc<State>,
    data: Arc<Mutex<Vec<u8>>>,
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        self.state.open.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Descriptor {
    fn allowed(&self, wanted: usize) -> IoResult<usize> {
        match self.state.transfer_max.load(Ordering::Relaxed) {
            0 => Ok(wanted),
            max => match self.state.transfers.fetch_add(1, Ordering::Relaxed) % 3 {
                2 => Err(IoError::new(IoErrorKind::Interrupted)),
                _ => Ok(wanted.min(max as usize)),
            },
        }
    }
}

impl File for Descriptor {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> IoResult<usize> {
        let data = self.data.lock();
        let from = data.get(offset as usize..).unwrap_or_default();
        let count = self.allowed(buffer.len().min(from.len()))?;
        buffer[..count].copy_from_slice(&from[..count]);
        Ok(count)
    }

    fn write_at(&self, buffer: &[u8], offset: u64) -> IoResult<usize> {
        let full_at = self.state.full_at.load(Ordering::Relaxed);
        if full_at > 0 && offset + buffer.len() as u64 > full_at {
            return Err(IoError::new(IoErrorKind::NoSpace));
        }
        let count = self.allowed(buffer.len())?;
        let mut data = self.data.lock();
        let end = offset as usize + count;
        if data.len() < end {
            data.resize(end, 0);
        }
        data[offset as usize..end].copy_from_slice(&buffer[..count]);
        Ok(count)
    }

    fn sync_data(&self) -> IoResult<()> {
        Ok(())
    }

    fn set_len(&self, length: u64) -> IoResult<()> {
        self.data.lock().resize(length as usize, 0);
        Ok(())
    }

    fn allocate(&self, length: u64) -> IoResult<()> {
        self.set_len(length)
    }

    fn len(&self) -> IoResult<u64> {
        Ok(self.data.lock().len() as u64)
    }
}

const UNSUPPORTED: IoError = IoError::new(IoErrorKind::Unsupported);

impl Vfs for Disk {
    fn create_root(&self) -> IoResult<()> {
        Ok(())
    }

    fn open(&self, name: FileName, _mode: OpenMode) -> IoResult<Arc<dyn File>> {
        let data = self.0.files.lock().get(&name).cloned();
        self.descriptor(data.ok_or(IoError::new(IoErrorKind::NotFound))?)
    }

    fn create_new(&self, name: FileName) -> IoResult<Arc<dyn File>> {
        let data = Arc::new(Mutex::new(Vec::new()));
        self.0.files.lock().insert(name, data.clone());
        self.descriptor(data)
    }

    fn rename(&self, _from: FileName, _to: FileName) -> IoResult<()> {
        Err(UNSUPPORTED)
    }

    fn unlink(&self, name: FileName) -> IoResult<()> {
        let gone = self.0.files.lock().remove(&name);
        gone.map(drop).ok_or(IoError::new(IoErrorKind::NotFound))
    }

    fn list(&self) -> IoResult<Listing> {
        Err(UNSUPPORTED)
    }

    fn sync_dir(&self) -> IoResult<()> {
        Ok(())
    }

    fn try_lock(&self, _mode: LockMode) -> IoResult<Box<dyn LockGuard>> {
        Err(UNSUPPORTED)
    }

    fn free_space(&self) -> IoResult<u64> {
        Ok(u64::MAX)
    }

    fn descriptor_limit(&self) -> u64 {
        self.0.limit.load(Ordering::Relaxed)
    }

    fn map(&self, _file: &dyn File, _length: u64) -> IoResult<Arc<dyn Map>> {
        Err(UNSUPPORTED)
    }

    fn link_or_copy_to(&self, _name: FileName, _target: &dyn Vfs) -> IoResult<()> {
        Err(UNSUPPORTED)
    }

    fn describe(&self) -> String {
        "memory".into()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
