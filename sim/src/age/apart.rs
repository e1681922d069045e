//! A directory whose own memory is nobody's business: a simulated disk holds all bytes of all files, and
//! the engine's memory could not be seen beside them. Every call goes on inside [`crate::heap::apart`].

use std::any::Any;
use std::mem::ManuallyDrop;
use std::sync::Arc;

use sealstone::env::{
    Advice, File, FileName, IoResult, Listing, LockGuard, LockMode, Map, OpenMode, ReadRequest, Vfs,
};

use crate::heap::apart;

/// See the module.
#[derive(Debug)]
pub struct ApartVfs {
    inner: Apart<Arc<dyn Vfs>>,
}

impl ApartVfs {
    /// The same directory, uncounted.
    pub fn new(inner: Arc<dyn Vfs>) -> Self {
        Self {
            inner: Apart::new(inner),
        }
    }

    fn wrap(&self, file: Arc<dyn File>) -> Arc<dyn File> {
        Arc::new(ApartFile {
            vfs: Apart::new(Arc::clone(&self.inner.0)),
            inner: Apart::new(file),
        })
    }
}

/// What was made apart and has to go apart.
#[derive(Debug)]
struct Apart<T>(ManuallyDrop<T>);

impl<T> Apart<T> {
    fn new(inner: T) -> Self {
        Self(ManuallyDrop::new(inner))
    }
}

impl<T> Drop for Apart<T> {
    fn drop(&mut self) {
        // SAFETY: this is the only place that drops it, and nobody reaches it afterwards.
        apart(|| unsafe { ManuallyDrop::drop(&mut self.0) });
    }
}

impl Vfs for ApartVfs {
    fn create_root(&self) -> IoResult<()> {
        apart(|| self.inner.0.create_root())
    }

    fn open(&self, name: FileName, mode: OpenMode) -> IoResult<Arc<dyn File>> {
        Ok(self.wrap(apart(|| self.inner.0.open(name, mode))?))
    }

    fn create_new(&self, name: FileName) -> IoResult<Arc<dyn File>> {
        Ok(self.wrap(apart(|| self.inner.0.create_new(name))?))
    }

    fn rename(&self, from: FileName, to: FileName) -> IoResult<()> {
        apart(|| self.inner.0.rename(from, to))
    }

    fn unlink(&self, name: FileName) -> IoResult<()> {
        apart(|| self.inner.0.unlink(name))
    }

    fn list(&self) -> IoResult<Listing> {
        // The list is the caller's.
        self.inner.0.list()
    }

    fn sync_dir(&self) -> IoResult<()> {
        apart(|| self.inner.0.sync_dir())
    }

    fn try_lock(&self, mode: LockMode) -> IoResult<Box<dyn LockGuard>> {
        let guard = apart(|| self.inner.0.try_lock(mode))?;
        Ok(Box::new(ApartLock(Apart::new(guard))))
    }

    fn free_space(&self) -> IoResult<u64> {
        self.inner.0.free_space()
    }

    fn descriptor_limit(&self) -> u64 {
        self.inner.0.descriptor_limit()
    }

    fn link_or_copy_to(&self, name: FileName, target: &dyn Vfs) -> IoResult<()> {
        apart(|| self.inner.0.link_or_copy_to(name, target))
    }

    fn describe(&self) -> String {
        self.inner.0.describe()
    }

    fn as_any(&self) -> &dyn Any {
        self.inner.0.as_any()
    }
}

#[derive(Debug)]
struct ApartLock(#[expect(dead_code, reason = "held until dropped")] Apart<Box<dyn LockGuard>>);

impl LockGuard for ApartLock {}

#[derive(Debug)]
struct ApartMap(Apart<Arc<dyn Map>>);

impl Map for ApartMap {
    fn bytes(&self) -> &[u8] {
        self.0.0.bytes()
    }
}

#[derive(Debug)]
struct ApartFile {
    vfs: Apart<Arc<dyn Vfs>>,
    inner: Apart<Arc<dyn File>>,
}

impl ApartFile {
    fn file(&self) -> &dyn File {
        &**self.inner.0
    }
}

impl File for ApartFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> IoResult<usize> {
        apart(|| self.file().read_at(buffer, offset))
    }

    fn write_at(&self, buffer: &[u8], offset: u64) -> IoResult<usize> {
        apart(|| self.file().write_at(buffer, offset))
    }

    fn read_many(&self, requests: &mut [ReadRequest<'_>]) {
        apart(|| self.file().read_many(requests));
    }

    fn advise(&self, advice: Advice, offset: u64, length: u64) {
        self.file().advise(advice, offset, length);
    }

    fn sync_data(&self) -> IoResult<()> {
        apart(|| self.file().sync_data())
    }

    fn set_len(&self, length: u64) -> IoResult<()> {
        apart(|| self.file().set_len(length))
    }

    fn allocate(&self, length: u64) -> IoResult<()> {
        apart(|| self.file().allocate(length))
    }

    fn len(&self) -> IoResult<u64> {
        self.file().len()
    }

    fn map(&self, length: u64) -> IoResult<Arc<dyn Map>> {
        let map = apart(|| self.vfs.0.map(self.file(), length))?;
        Ok(Arc::new(ApartMap(Apart::new(map))))
    }
}

#[cfg(test)]
mod tests {
    use sealstone::env::{Env, conformance};

    use super::*;

    #[test]
    fn it_conforms_as_what_it_wraps() {
        let wrapped = || {
            let env = Env::in_memory();
            Env {
                vfs: Arc::new(ApartVfs::new(env.vfs)),
                ..env
            }
        };
        conformance::check(&wrapped(), &wrapped()).unwrap();
    }
}
