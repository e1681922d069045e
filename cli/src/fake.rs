//! A stand-in for the engine's store with the same calls, so that the command can be built and
//! tested before it. To be deleted with the store's arrival.
//!
//! Everything stands in one ordered map; `sync`, `seal` and `close` write it to one file, which
//! `verify` checks by a checksum at its end.
#![allow(dead_code, reason = "mirrors the engine's calls, used or not")]

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::hash::Hasher as _;
use std::ops::{Bound, Deref, RangeBounds};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sealstone::env::FileName;
use sealstone::error::{Error, ErrorKind, PinInfo, Result};
use sealstone::types::{KeyspaceId, KeyspaceKind, Sequence};
use siphasher::sip::SipHasher13;

const FILE: FileName = FileName::segment(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    Buffered,
    Synced,
}

#[derive(Clone, Debug)]
pub struct Options {
    create: bool,
    read_only: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            create: true,
            read_only: false,
        }
    }
}

impl Options {
    pub fn create(mut self, create: bool) -> Self {
        self.create = create;
        self
    }
    pub fn read_only(mut self, read_only: bool) -> Self {
        self.read_only = read_only;
        self
    }
}

#[derive(Clone, Copy, Debug)]
pub struct KeyspaceOptions {
    kind: KeyspaceKind,
}

impl KeyspaceOptions {
    pub fn write_once() -> Self {
        Self {
            kind: KeyspaceKind::WriteOnce,
        }
    }
    pub fn mutable() -> Self {
        Self {
            kind: KeyspaceKind::Mutable,
        }
    }
}

#[derive(Clone, Debug)]
pub struct KeyspaceInfo {
    pub name: String,
    pub kind: KeyspaceKind,
    pub id: KeyspaceId,
}

#[derive(Clone, Debug, Default)]
pub struct Stats {
    pub reads: u64,
    pub read_bytes: u64,
    pub segments: u64,
    pub runs: u64,
    pub barriers: u64,
    pub opens: u64,
    pub commits: u64,
    pub log_bytes: u64,
}

#[derive(Clone, Debug, Default)]
pub struct Audit {
    /// Bytes of the write region by state.
    pub ledger: BTreeMap<&'static str, u64>,
    pub residency_bytes: u64,
    pub pins: Vec<PinInfo>,
}

#[derive(Clone, Copy, Debug)]
pub struct VerifyProgress {
    pub files: u64,
    pub files_total: u64,
    pub bytes: u64,
    pub bytes_total: u64,
}

#[derive(Clone, Debug)]
pub struct Damage {
    pub file: FileName,
    pub offset: u64,
    pub what: String,
}

#[derive(Clone, Debug, Default)]
pub struct VerifyReport {
    pub files: u64,
    pub records: u64,
    pub bytes: u64,
    pub damaged: Vec<Damage>,
}

#[derive(Default)]
struct Content {
    names: Vec<(String, KeyspaceKind)>,
    records: BTreeMap<(usize, Vec<u8>), Vec<u8>>,
    sequence: Sequence,
    stats: Stats,
}

struct Inner {
    directory: PathBuf,
    read_only: bool,
    content: Mutex<Content>,
}

#[derive(Clone)]
pub struct Store {
    inner: Arc<Inner>,
}

fn io(operation: &'static str, error: &std::io::Error) -> Error {
    Error::new(ErrorKind::Io, operation, error.to_string())
}

impl Store {
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Self> {
        let directory = path.as_ref().to_owned();
        let file = directory.join(FILE.to_string());
        let content = match std::fs::read(&file) {
            Ok(bytes) => decode(&bytes).unwrap_or_default(),
            Err(_) if options.create && !options.read_only => {
                std::fs::create_dir_all(&directory).map_err(|e| io("open", &e))?;
                Content::default()
            }
            Err(error) => {
                return Err(Error::new(ErrorKind::NotAStore, "open", error.to_string()));
            }
        };
        Ok(Self {
            inner: Arc::new(Inner {
                directory,
                read_only: options.read_only,
                content: Mutex::new(content),
            }),
        })
    }

    pub fn keyspace(&self, name: &str, options: KeyspaceOptions) -> Result<Keyspace> {
        if !(1..=255).contains(&name.len()) {
            return Err(Error::invalid("keyspace", "a name has 1 to 255 bytes"));
        }
        let mut content = self.content();
        let index = match content.names.iter().position(|(known, _)| known == name) {
            Some(index) => index,
            None if self.inner.read_only => {
                return Err(Error::new(ErrorKind::Unsupported, "keyspace", "read-only"));
            }
            None => {
                content.names.push((name.to_owned(), options.kind));
                content.names.len() - 1
            }
        };
        if content.names[index].1 != options.kind {
            return Err(Error::invalid("keyspace", "it exists with the other kind"));
        }
        Ok(Keyspace {
            store: self.clone(),
            name: name.to_owned(),
            kind: options.kind,
            index,
        })
    }

    pub fn keyspaces(&self) -> Vec<KeyspaceInfo> {
        let content = self.content();
        let infos = content.names.iter().enumerate();
        infos
            .map(|(index, (name, kind))| KeyspaceInfo {
                name: name.clone(),
                kind: *kind,
                id: KeyspaceId::new(*kind, index as u32).unwrap_or(KeyspaceId(0)),
            })
            .collect()
    }

    pub fn write(&self, batch: Batch<'_>, durability: Durability) -> Result<Sequence> {
        let mut content = self.content();
        let once =
            |content: &Content, index: usize| content.names[index].1 == KeyspaceKind::WriteOnce;
        let mut seen = BTreeMap::new();
        for (index, key, value) in &batch.operations {
            let place = (*index, key.to_vec());
            let old = seen.get(&place).or_else(|| content.records.get(&place));
            if once(&content, *index) && old.is_some_and(|old| *old != value[..]) {
                return Err(Error::new(ErrorKind::Conflict, "write", ""));
            }
            seen.insert(place, value.to_vec());
        }
        content.records.extend(seen);
        content.sequence += 1;
        content.stats.commits += 1;
        let sequence = content.sequence;
        drop(content);
        if durability == Durability::Synced {
            self.sync()?;
        }
        Ok(sequence)
    }

    pub fn sync(&self) -> Result<()> {
        let mut content = self.content();
        if self.inner.read_only {
            return Ok(());
        }
        content.stats.barriers += 1;
        let bytes = encode(&content);
        std::fs::write(self.inner.directory.join(FILE.to_string()), bytes)
            .map_err(|e| io("sync", &e))
    }

    pub fn seal(&self) -> Result<()> {
        self.content().stats.segments = 1;
        self.sync()
    }

    pub fn drain(&self) -> Result<()> {
        Ok(())
    }

    pub fn stats(&self) -> Stats {
        self.content().stats.clone()
    }

    pub fn audit(&self) -> Audit {
        Audit::default()
    }

    pub fn close(&self) -> Result<()> {
        self.sync()
    }

    pub fn reopen(&self) -> Result<Self> {
        self.close()?;
        let options = Options::default().read_only(self.inner.read_only);
        Self::open(&self.inner.directory, options)
    }

    pub fn sequence(&self) -> Sequence {
        self.content().sequence
    }

    pub fn verify(&self, progress: &mut dyn FnMut(VerifyProgress)) -> Result<VerifyReport> {
        let bytes = std::fs::read(self.inner.directory.join(FILE.to_string()))
            .map_err(|e| io("verify", &e))?;
        let total = bytes.len() as u64;
        progress(VerifyProgress {
            files: 0,
            files_total: 1,
            bytes: 0,
            bytes_total: total,
        });
        let mut report = VerifyReport {
            files: 1,
            bytes: total,
            records: self.content().records.len() as u64,
            damaged: Vec::new(),
        };
        if decode(&bytes).is_none() {
            report.damaged.push(Damage {
                file: FILE,
                offset: 0,
                what: "checksum".to_owned(),
            });
        }
        Ok(report)
    }

    fn content(&self) -> MutexGuard<'_, Content> {
        self.inner
            .content
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Clone)]
pub struct Keyspace {
    store: Store,
    name: String,
    kind: KeyspaceKind,
    index: usize,
}

#[derive(Clone, Debug)]
pub struct Value(Arc<[u8]>);

impl Deref for Value {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

pub type Iter = std::vec::IntoIter<Result<(Vec<u8>, Vec<u8>)>>;

impl Keyspace {
    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn kind(&self) -> KeyspaceKind {
        self.kind
    }

    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        let mut content = self.store.content();
        content.stats.reads += 1;
        let place = (self.index, key.as_ref().to_vec());
        Ok(content
            .records
            .get(&place)
            .map(|v| Value(v.as_slice().into())))
    }

    pub fn get_into(&self, key: impl AsRef<[u8]>, out: &mut Vec<u8>) -> Result<bool> {
        let found = self.get(key)?;
        out.clear();
        out.extend_from_slice(found.as_deref().unwrap_or_default());
        Ok(found.is_some())
    }

    pub fn range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<Iter> {
        let inside = |key: &[u8]| {
            let low = match range.start_bound() {
                Bound::Included(low) => key >= low.as_ref(),
                Bound::Excluded(low) => key > low.as_ref(),
                Bound::Unbounded => true,
            };
            low && match range.end_bound() {
                Bound::Included(high) => key <= high.as_ref(),
                Bound::Excluded(high) => key < high.as_ref(),
                Bound::Unbounded => true,
            }
        };
        Ok(self.filtered(inside))
    }

    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Result<Iter> {
        Ok(self.filtered(|key| key.starts_with(prefix.as_ref())))
    }

    pub fn iter(&self) -> Result<Iter> {
        Ok(self.filtered(|_| true))
    }

    fn filtered(&self, inside: impl Fn(&[u8]) -> bool) -> Iter {
        let content = self.store.content();
        let ours = content.records.range((self.index, Vec::new())..);
        let found: Vec<_> = ours
            .take_while(|((index, _), _)| *index == self.index)
            .filter(|((_, key), _)| inside(key))
            .map(|((_, key), value)| Ok((key.clone(), value.clone())))
            .collect();
        found.into_iter()
    }
}

type Put<'a> = (usize, Cow<'a, [u8]>, Cow<'a, [u8]>);

#[derive(Default)]
pub struct Batch<'a> {
    operations: Vec<Put<'a>>,
}

impl<'a> Batch<'a> {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn put(
        &mut self,
        keyspace: &Keyspace,
        key: impl Into<Cow<'a, [u8]>>,
        value: impl Into<Cow<'a, [u8]>>,
    ) -> &mut Self {
        self.operations
            .push((keyspace.index, key.into(), value.into()));
        self
    }

    pub fn len(&self) -> usize {
        self.operations.len()
    }

    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    pub fn byte_len(&self) -> usize {
        self.operations
            .iter()
            .map(|(_, k, v)| k.len() + v.len())
            .sum()
    }
}

fn checksum(bytes: &[u8]) -> [u8; 8] {
    let mut hasher = SipHasher13::new();
    hasher.write(bytes);
    hasher.finish().to_le_bytes()
}

fn encode(content: &Content) -> Vec<u8> {
    let mut out = Vec::new();
    let put = |out: &mut Vec<u8>, bytes: &[u8]| {
        out.extend((bytes.len() as u64).to_le_bytes());
        out.extend(bytes);
    };
    out.extend(content.sequence.to_le_bytes());
    out.extend((content.names.len() as u64).to_le_bytes());
    for (name, kind) in &content.names {
        out.extend(u64::from(kind.code()).to_le_bytes());
        put(&mut out, name.as_bytes());
    }
    for ((index, key), value) in &content.records {
        out.extend((*index as u64).to_le_bytes());
        put(&mut out, key);
        put(&mut out, value);
    }
    out.extend(checksum(&out));
    out
}

fn decode(bytes: &[u8]) -> Option<Content> {
    let (body, sum) = bytes.split_last_chunk::<8>()?;
    if checksum(body) != *sum {
        return None;
    }
    let mut rest = body;
    let number = |rest: &mut &[u8]| -> Option<u64> {
        let (head, tail) = rest.split_first_chunk::<8>()?;
        *rest = tail;
        Some(u64::from_le_bytes(*head))
    };
    let mut content = Content {
        sequence: number(&mut rest)?,
        ..Content::default()
    };
    content.stats.segments = 1;
    let take = |rest: &mut &[u8]| -> Option<Vec<u8>> {
        let len = number(rest)? as usize;
        let (head, tail) = rest.split_at_checked(len)?;
        *rest = tail;
        Some(head.to_vec())
    };
    let (count, tail) = rest.split_first_chunk::<8>()?;
    rest = tail;
    for _ in 0..u64::from_le_bytes(*count) {
        let (code, tail) = rest.split_first_chunk::<8>()?;
        rest = tail;
        let name = String::from_utf8(take(&mut rest)?).ok()?;
        content
            .names
            .push((name, KeyspaceKind::from_code(code[0])?));
    }
    while let Some((index, tail)) = rest.split_first_chunk::<8>() {
        rest = tail;
        let index = u64::from_le_bytes(*index) as usize;
        let key = take(&mut rest)?;
        let value = take(&mut rest)?;
        content.records.insert((index, key), value);
    }
    Some(content)
}
