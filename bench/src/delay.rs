//! An environment whose barriers take longer: `--sync-delay-ms`.
//!
//! Fast disks hide how many barriers a design needs, since each costs nearly nothing; a few
//! milliseconds a barrier, as on a plain disk or a busy cloud volume, show it.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use sealstone::env::{
    Advice, Env, File, FileName, IoResult, Listing, LockGuard, LockMode, Map, OpenMode,
    ReadRequest, Vfs,
};

/// The same environment with every `sync_data` and `sync_dir` longer by `delay`. Nothing is wrapped
/// for a delay of zero.
pub fn delayed(env: Env, delay: Duration) -> Env {
    if delay.is_zero() {
        return env;
    }
    let vfs = DelayedVfs {
        inner: env.vfs,
        delay,
    };
    Env {
        vfs: Arc::new(vfs),
        ..env
    }
}

#[derive(Debug)]
struct DelayedVfs {
    inner: Arc<dyn Vfs>,
    delay: Duration,
}

impl DelayedVfs {
    fn wrap(&self, inner: Arc<dyn File>) -> Arc<dyn File> {
        let delay = self.delay;
        Arc::new(DelayedFile { inner, delay })
    }
}

impl Vfs for DelayedVfs {
    fn create_root(&self) -> IoResult<()> {
        self.inner.create_root()
    }
    fn open(&self, name: FileName, mode: OpenMode) -> IoResult<Arc<dyn File>> {
        Ok(self.wrap(self.inner.open(name, mode)?))
    }
    fn create_new(&self, name: FileName) -> IoResult<Arc<dyn File>> {
        Ok(self.wrap(self.inner.create_new(name)?))
    }
    fn rename(&self, from: FileName, to: FileName) -> IoResult<()> {
        self.inner.rename(from, to)
    }
    fn unlink(&self, name: FileName) -> IoResult<()> {
        self.inner.unlink(name)
    }
    fn list(&self) -> IoResult<Listing> {
        self.inner.list()
    }
    fn sync_dir(&self) -> IoResult<()> {
        std::thread::sleep(self.delay);
        self.inner.sync_dir()
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
    fn mapping_limit(&self) -> u64 {
        self.inner.mapping_limit()
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
struct DelayedFile {
    inner: Arc<dyn File>,
    delay: Duration,
}

impl File for DelayedFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> IoResult<usize> {
        self.inner.read_at(buffer, offset)
    }
    fn write_at(&self, buffer: &[u8], offset: u64) -> IoResult<usize> {
        self.inner.write_at(buffer, offset)
    }
    fn read_many(&self, requests: &mut [ReadRequest<'_>]) {
        self.inner.read_many(requests);
    }
    fn advise(&self, advice: Advice, offset: u64, length: u64) {
        self.inner.advise(advice, offset, length);
    }
    fn sync_data(&self) -> IoResult<()> {
        std::thread::sleep(self.delay);
        self.inner.sync_data()
    }
    fn set_len(&self, length: u64) -> IoResult<()> {
        self.inner.set_len(length)
    }
    fn allocate(&self, length: u64) -> IoResult<()> {
        self.inner.allocate(length)
    }
    fn len(&self) -> IoResult<u64> {
        self.inner.len()
    }
    fn map(&self, length: u64) -> IoResult<Arc<dyn Map>> {
        self.inner.map(length)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    const DELAY: Duration = Duration::from_millis(2);

    #[test]
    fn a_delayed_backend_conforms() {
        let env = || delayed(Env::in_memory(), DELAY);
        sealstone::env::conformance::check(&env(), &env()).expect("conforms");
    }

    #[test]
    fn barriers_take_longer() {
        let env = delayed(Env::in_memory(), DELAY);
        env.vfs.create_root().expect("creates");
        let file = env.vfs.create_new(FileName::log(1)).expect("creates");
        let start = Instant::now();
        file.sync_data().expect("syncs");
        env.vfs.sync_dir().expect("syncs");
        assert!(start.elapsed() >= 2 * DELAY);
    }
}
