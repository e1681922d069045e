//! Snapshots: a version and a bound, held until dropped.

use std::ops::RangeBounds;

use crate::engine::Engine;
use crate::engine::read::Reach;
use crate::engine::registry::Pin;
use crate::engine::version::Version;
use crate::error::{Error, ErrorKind, Result};
use crate::iter::Iter;
use crate::keyspace::Keyspace;
use crate::store::Inner;
use crate::sync::Arc;
use crate::types::{KeyspaceKind, Sequence};
use crate::value::Value;

/// What a registered reader holds: the version, the bound, its place in the registry.
#[derive(Debug)]
pub(crate) struct ReaderPin {
    pub inner: Arc<Inner>,
    pub version: Arc<Version>,
    pub bound: Sequence,
    id: u64,
}

impl ReaderPin {
    /// Registers a reader of one kind, or of all. Bound and version are taken under the registry lock:
    /// no retirement and no installation falls between them.
    pub fn register(
        inner: &Arc<Inner>,
        kind: Option<KeyspaceKind>,
        creator: &'static str,
    ) -> Result<Arc<Self>> {
        let engine = &inner.engine;
        engine.check_open(creator)?;
        let since = engine.env.clock.monotonic();
        let kinds = match kind {
            None => [true; 2],
            Some(kind) => [
                kind == KeyspaceKind::WriteOnce,
                kind == KeyspaceKind::Mutable,
            ],
        };
        let mut registry = engine.registry.lock();
        let bound = engine.visible();
        let version = engine.version.load_full();
        let id = registry.register(Pin {
            bound,
            kinds,
            since,
            creator,
        });
        drop(registry);
        Ok(Arc::new(Self {
            inner: inner.clone(),
            version,
            bound,
            id,
        }))
    }
}

impl ReaderPin {
    pub fn engine(&self) -> &Engine {
        &self.inner.engine
    }
}

impl Drop for ReaderPin {
    fn drop(&mut self) {
        let mut registry = self.engine().registry.lock();
        registry.release(self.id);
        let lingering = !registry.lingering.is_empty();
        let sealed = self.engine().version.load().generations.len() > 1;
        drop(registry);
        if lingering {
            // A generation may have waited for this reader alone.
            self.engine().work.0.raise();
        }
        if lingering || sealed {
            // A writer may have, too: it counts the generations that readers keep.
            self.engine().progress.raise();
        }
    }
}

/// A view of the whole store as it was when it was taken. Cheap to clone and to hold: it keeps memory
/// only while a generation holds older versions of keys that it can see, and files only until dropped.
///
/// Reads cost what they cost without a snapshot. After `close` or `reopen` they answer `Closed`.
#[derive(Clone, Debug)]
pub struct Snapshot {
    pin: Arc<ReaderPin>,
}

impl Snapshot {
    pub(crate) fn new(pin: Arc<ReaderPin>) -> Self {
        Self { pin }
    }

    /// The last commit it sees.
    pub fn sequence(&self) -> Sequence {
        self.pin.bound
    }

    /// The value of a key, as an owned guard.
    pub fn get(&self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        self.check(keyspace)?;
        let Self { pin } = self;
        let id = keyspace.id();
        pin.engine().get_at(
            &pin.version,
            Reach::at(pin.bound),
            id,
            key.as_ref(),
            |hit| hit.into_value(),
        )
    }

    /// Copies the value of a key into `out`, replacing its content; false if the key is absent.
    pub fn get_into(
        &self,
        keyspace: &Keyspace,
        key: impl AsRef<[u8]>,
        out: &mut Vec<u8>,
    ) -> Result<bool> {
        self.check(keyspace)?;
        let Self { pin } = self;
        let id = keyspace.id();
        let found = pin.engine().get_at(
            &pin.version,
            Reach::at(pin.bound),
            id,
            key.as_ref(),
            |hit| hit.copy_into(out),
        )?;
        Ok(found.is_some())
    }

    /// Whether a key has a value.
    pub fn contains(&self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<bool> {
        self.check(keyspace)?;
        let Self { pin } = self;
        let id = keyspace.id();
        Ok(pin
            .engine()
            .get_at(&pin.version, Reach::at(pin.bound), id, key.as_ref(), |_| ())?
            .is_some())
    }

    /// The values of several keys, in the order asked. Costs the reads of as many [`get`](Self::get)s; those of
    /// up to 64 keys at a time are made together, sorted, those of a file by one
    /// [`read_many`](crate::env::File::read_many). The error is that of the first key that has one.
    pub fn multi_get(&self, keys: &[(&Keyspace, &[u8])]) -> Result<Vec<Option<Value>>> {
        for (keyspace, _) in keys {
            self.check(keyspace)?;
        }
        let Self { pin } = self;
        let keys: Vec<_> = keys
            .iter()
            .map(|(keyspace, key)| (keyspace.id(), *key))
            .collect();
        let reach = Reach::at(pin.bound);
        pin.engine().multi_get_at(&pin.version, reach, &keys)
    }

    /// The records with keys in `range`, in key order, from either end.
    pub fn range<K: AsRef<[u8]>>(
        &self,
        keyspace: &Keyspace,
        range: impl RangeBounds<K>,
    ) -> Result<Iter> {
        self.check(keyspace)?;
        Ok(Iter::over(self.pin.clone(), keyspace.id(), &range))
    }

    /// The records whose keys start with `prefix`.
    pub fn prefix(&self, keyspace: &Keyspace, prefix: impl AsRef<[u8]>) -> Result<Iter> {
        self.check(keyspace)?;
        Ok(Iter::with_prefix(
            self.pin.clone(),
            keyspace.id(),
            prefix.as_ref(),
        ))
    }

    /// All records of the keyspace.
    pub fn iter(&self, keyspace: &Keyspace) -> Result<Iter> {
        self.range::<&[u8]>(keyspace, ..)
    }

    fn check(&self, keyspace: &Keyspace) -> Result<()> {
        self.pin.engine().check_open("snapshot")?;
        if keyspace.store_token() != self.pin.engine().token {
            let detail = "a keyspace handle of another or an earlier store";
            return Err(Error::new(ErrorKind::InvalidArgument, "snapshot", detail));
        }
        Ok(())
    }
}
