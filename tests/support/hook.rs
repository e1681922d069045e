//! A directory whose calls pass a hook: it may fail them, or do something to the store just then.

use std::fmt;

use sealstone::env::{
    Advice, Env, File, FileName, IoError, IoErrorKind, IoResult, Listing, LockGuard, LockMode,
    OpenMode, Vfs,
};
use sealstone::sync::{Arc, Mutex};

/// The calls that a hook sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    Open,
    Create,
    Read,
    Write,
    Sync,
    Allocate,
    Rename,
    Unlink,
    SyncDir,
    /// Word of a read to come: what the hook answers changes nothing.
    WillNeed,
}

/// What is asked before a call; `Err` is the call's answer.
pub type Action = Box<dyn FnMut(Call, FileName) -> IoResult<()> + Send>;

/// The place of the hook.
#[derive(Clone, Default)]
pub struct Hook(Arc<Mutex<Option<Action>>>);

impl fmt::Debug for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hook")
    }
}

/// EIO.
pub const BROKEN: IoError = IoError {
    kind: IoErrorKind::Other,
    code: 5,
};

impl Hook {
    /// From now on every call asks `action` first. Calls that `action` itself leads to do not.
    pub fn set(&self, action: impl FnMut(Call, FileName) -> IoResult<()> + Send + 'static) {
        *self.0.lock() = Some(Box::new(action));
    }

    /// The next call of this kind that `wanted` picks fails, once.
    pub fn fail_once(&self, call: Call, wanted: impl Fn(FileName) -> bool + Send + 'static) {
        let mut armed = true;
        self.set(move |seen, name| {
            if armed && seen == call && wanted(name) {
                armed = false;
                return Err(BROKEN);
            }
            Ok(())
        });
    }

    /// Calls pass again.
    pub fn clear(&self) {
        *self.0.lock() = None;
    }

    fn ask(&self, call: Call, name: FileName) -> IoResult<()> {
        let Some(mut action) = self.0.lock().take() else {
            return Ok(());
        };
        let answer = action(call, name);
        self.0.lock().get_or_insert(action);
        answer
    }
}

/// The same environment with a hook in front of its directory.
pub fn hooked(env: Env) -> (Env, Hook) {
    let hook = Hook::default();
    let vfs = Arc::new(HookedVfs {
        inner: env.vfs,
        hook: hook.clone(),
    });
    (Env { vfs, ..env }, hook)
}

#[derive(Debug)]
struct HookedVfs {
    inner: Arc<dyn Vfs>,
    hook: Hook,
}

impl HookedVfs {
    fn wrap(&self, inner: Arc<dyn File>, name: FileName) -> Arc<dyn File> {
        let hook = self.hook.clone();
        Arc::new(HookedFile { inner, name, hook })
    }
}

impl Vfs for HookedVfs {
    fn create_root(&self) -> IoResult<()> {
        self.inner.create_root()
    }

    fn open(&self, name: FileName, mode: OpenMode) -> IoResult<Arc<dyn File>> {
        self.hook.ask(Call::Open, name)?;
        Ok(self.wrap(self.inner.open(name, mode)?, name))
    }

    fn create_new(&self, name: FileName) -> IoResult<Arc<dyn File>> {
        self.hook.ask(Call::Create, name)?;
        Ok(self.wrap(self.inner.create_new(name)?, name))
    }

    fn rename(&self, from: FileName, to: FileName) -> IoResult<()> {
        self.hook.ask(Call::Rename, to)?;
        self.inner.rename(from, to)
    }

    fn unlink(&self, name: FileName) -> IoResult<()> {
        self.hook.ask(Call::Unlink, name)?;
        self.inner.unlink(name)
    }

    fn list(&self) -> IoResult<Listing> {
        self.inner.list()
    }

    fn sync_dir(&self) -> IoResult<()> {
        self.hook.ask(Call::SyncDir, FileName::MANIFEST)?;
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

    fn link_or_copy_to(&self, name: FileName, target: &dyn Vfs) -> IoResult<()> {
        self.inner.link_or_copy_to(name, target)
    }

    fn describe(&self) -> String {
        self.inner.describe()
    }

    fn as_any(&self) -> &dyn std::any::Any {
        self.inner.as_any()
    }
}

#[derive(Debug)]
struct HookedFile {
    inner: Arc<dyn File>,
    name: FileName,
    hook: Hook,
}

impl File for HookedFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> IoResult<usize> {
        self.hook.ask(Call::Read, self.name)?;
        self.inner.read_at(buffer, offset)
    }

    fn write_at(&self, buffer: &[u8], offset: u64) -> IoResult<usize> {
        self.hook.ask(Call::Write, self.name)?;
        self.inner.write_at(buffer, offset)
    }

    fn sync_data(&self) -> IoResult<()> {
        self.hook.ask(Call::Sync, self.name)?;
        self.inner.sync_data()
    }

    fn set_len(&self, length: u64) -> IoResult<()> {
        self.inner.set_len(length)
    }

    fn allocate(&self, length: u64) -> IoResult<()> {
        self.hook.ask(Call::Allocate, self.name)?;
        self.inner.allocate(length)
    }

    fn len(&self) -> IoResult<u64> {
        self.inner.len()
    }

    fn advise(&self, advice: Advice, offset: u64, length: u64) {
        if advice == Advice::WillNeed {
            let _ = self.hook.ask(Call::WillNeed, self.name);
        }
        self.inner.advise(advice, offset, length);
    }
}
