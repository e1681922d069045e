//! Keyspaces: named maps inside a store.

use std::ops::RangeBounds;

use crate::batch::{Batch, Bytes};
use crate::engine::Engine;
use crate::error::{Error, ErrorKind, Result};
use crate::explain::Explanation;
use crate::iter::Iter;
use crate::manifest::{Change, KeyspaceEntry};
use crate::options::Durability;
use crate::snapshot::{ReaderPin, Snapshot};
use crate::store::{Inner, Store};
use crate::sync::Arc;
use crate::types::{KeyspaceId, KeyspaceKind, Sequence};
use crate::value::Value;

/// The longest name, in bytes.
const NAME_BYTES_MAX: usize = 255;

/// What [`Store::keyspaces`] says of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyspaceInfo {
    /// Its name.
    pub name: String,
    /// Its kind.
    pub kind: KeyspaceKind,
    /// Its number on disk.
    pub id: KeyspaceId,
}

impl KeyspaceInfo {
    pub(crate) fn of(entry: &KeyspaceEntry) -> Self {
        Self {
            name: entry.name.clone(),
            kind: entry.kind,
            id: entry.id,
        }
    }
}

/// A handle to a keyspace of an open store. Cheap to clone; keeps the store open.
#[derive(Clone, Debug)]
pub struct Keyspace {
    store: Arc<Inner>,
    entry: Arc<KeyspaceEntry>,
}

impl Keyspace {
    pub(crate) fn new(store: Arc<Inner>, entry: KeyspaceEntry) -> Self {
        Self {
            store,
            entry: Arc::new(entry),
        }
    }

    pub(crate) fn store_token(&self) -> u64 {
        self.store.engine.token
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.entry.name
    }

    /// Its kind.
    pub fn kind(&self) -> KeyspaceKind {
        self.entry.kind
    }

    /// Its number on disk.
    pub fn id(&self) -> KeyspaceId {
        self.entry.id
    }

    /// Writes one value. A batch of several costs less.
    pub fn put<'a>(
        &self,
        key: impl Into<Bytes<'a>>,
        value: impl Into<Bytes<'a>>,
        durability: Durability,
    ) -> Result<Sequence> {
        let mut batch = Batch::new();
        batch.put(self, key, value);
        Store {
            inner: self.store.clone(),
        }
        .write(batch, durability)
    }

    /// Removes one key.
    pub fn delete<'a>(
        &self,
        key: impl Into<Bytes<'a>>,
        durability: Durability,
    ) -> Result<Sequence> {
        let mut batch = Batch::new();
        batch.delete(self, key);
        Store {
            inner: self.store.clone(),
        }
        .write(batch, durability)
    }

    /// The value of a key, as an owned guard. No read for a key in memory, one for a key in
    /// a segment that the window table covers, two in another; see [`explain`](Self::explain).
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        self.store
            .engine
            .get_with(self.id(), key.as_ref(), |hit| hit.into_value())
    }

    /// Copies the value of a key into `out`, replacing its content; false if the key is absent.
    pub fn get_into(&self, key: impl AsRef<[u8]>, out: &mut Vec<u8>) -> Result<bool> {
        let found = self
            .store
            .engine
            .get_with(self.id(), key.as_ref(), |hit| hit.copy_into(out))?;
        Ok(found.is_some())
    }

    /// Whether a key has a value. Costs what `get` costs.
    pub fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        Ok(self
            .store
            .engine
            .get_with(self.id(), key.as_ref(), |_| ())?
            .is_some())
    }

    /// What [`get`](Self::get) of this key does, step by step: the generations in memory and the runs that
    /// it asks, what their filters say, the index pages and records that it reads, and the cost of each. It
    /// is that lookup, made by the same code and counted as one. A failure of the lookup is part of the
    /// explanation. Error: `Closed`.
    ///
    /// ```
    /// # use sealstone::{Durability, KeyspaceOptions, Options, Store, env::Env};
    /// use sealstone::explain::{Answer, Step};
    /// # let store = Store::open_with(Env::in_memory(), Options::new())?;
    /// # let names = store.keyspace("names", KeyspaceOptions::mutable())?;
    /// names.put("a", "1", Durability::Buffered)?;
    /// let explanation = names.explain("a")?;
    /// assert!(matches!(explanation.answer, Answer::Value { bytes: 1, .. }));
    /// assert!(matches!(explanation.steps[..], [Step::Memory { found: true, .. }]));
    /// assert_eq!(explanation.cost.reads, 0);
    /// # Ok::<(), sealstone::Error>(())
    /// ```
    pub fn explain(&self, key: impl AsRef<[u8]>) -> Result<Explanation> {
        self.store.engine.explain(self.id(), key.as_ref())
    }

    /// The records with keys in `range`, in key order, from either end, as of now.
    ///
    /// ```
    /// # use sealstone::{Durability, KeyspaceOptions, Options, Store, env::Env};
    /// # let store = Store::open_with(Env::in_memory(), Options::new())?;
    /// # let names = store.keyspace("names", KeyspaceOptions::mutable())?;
    /// names.put("a", "1", Durability::Buffered)?;
    /// names.put("b", "2", Durability::Buffered)?;
    /// let last = names.range("a"..).expect("open").next_back().expect("two records")?;
    /// assert_eq!(last, (b"b".to_vec(), b"2".to_vec()));
    /// # Ok::<(), sealstone::Error>(())
    /// ```
    pub fn range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<Iter> {
        Ok(Iter::over(self.reader()?, self.id(), &range))
    }

    /// The records whose keys start with `prefix`.
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Result<Iter> {
        Ok(Iter::with_prefix(
            self.reader()?,
            self.id(),
            prefix.as_ref(),
        ))
    }

    /// All records.
    pub fn iter(&self) -> Result<Iter> {
        self.range::<&[u8]>(..)
    }

    /// A view of the whole store as it is now.
    pub fn snapshot(&self) -> Result<Snapshot> {
        Store {
            inner: self.store.clone(),
        }
        .snapshot()
    }

    fn reader(&self) -> Result<Arc<ReaderPin>> {
        ReaderPin::register(&self.store, Some(self.kind()), "iterator")
    }
}

impl Engine {
    fn known_keyspace(&self, name: &str, kind: KeyspaceKind) -> Result<Option<KeyspaceEntry>> {
        let known = self.keyspaces.lock().get(name).cloned();
        match known {
            Some(entry) if entry.kind != kind => {
                let fixed = ErrorKind::IncompatibleOptions {
                    name: "kind",
                    stored: format!("{:?}", entry.kind),
                    asked: format!("{kind:?}"),
                };
                Err(Error::new(fixed, "keyspace", format!("keyspace {name:?}")))
            }
            known => Ok(known),
        }
    }

    /// Finds or creates a keyspace: one synced manifest edit before it can be used.
    pub(crate) fn keyspace(&self, name: &str, kind: KeyspaceKind) -> Result<KeyspaceEntry> {
        self.check_open("keyspace")?;
        if name.is_empty() || name.len() > NAME_BYTES_MAX {
            let detail = format!(
                "a keyspace name has 1 to {NAME_BYTES_MAX} bytes, not {}",
                name.len()
            );
            return Err(Error::invalid("keyspace", detail));
        }
        // Whoever asks for one that exists does not wait for the creation of another.
        if let Some(entry) = self.known_keyspace(name, kind)? {
            return Ok(entry);
        }
        // Held over the edit, so that two callers do not create it twice. No reader takes this lock.
        let _creating = self.creating.lock();
        if let Some(entry) = self.known_keyspace(name, kind)? {
            return Ok(entry);
        }
        if self.settings.read_only {
            let detail = format!("keyspace {name:?} does not exist and the store is read-only");
            return Err(Error::new(ErrorKind::InvalidArgument, "keyspace", detail));
        }
        self.check_writable("keyspace")?;
        let counter = {
            let keyspaces = self.keyspaces.lock();
            let same = keyspaces.values().filter(|entry| entry.kind == kind);
            same.map(|entry| entry.id.counter())
                .max()
                .map_or(1, |last| last + 1)
        };
        let Some(id) = KeyspaceId::new(kind, counter) else {
            return Err(Error::invalid("keyspace", "no keyspace number is left"));
        };
        let entry = KeyspaceEntry {
            id,
            kind,
            name: name.to_string(),
        };
        self.edit_manifest(&[Change::AddKeyspace(entry.clone())])?;
        self.keyspaces
            .lock()
            .insert(name.to_string(), entry.clone());
        Ok(entry)
    }
}
