//! A batch of operations: borrowed or owned bytes in the caller's memory, nothing of the engine's.
//!
//! [`Batch::prepare`] turns it into what a commit writes: closures run, the operations on one key
//! folded into the last one, in the order of (keyspace, key). For `WriteOnce` keys it also says what
//! must hold of the value that the store has.

use std::borrow::Cow;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::engine::scratch::Scratch;
use crate::error::{Error, ErrorKind, Result};
use crate::keyspace::Keyspace;
use crate::log::record;
use crate::types::{Hasher, KeyHash, KeyspaceId, KeyspaceKind, RecordKind, emptied};

/// What a [`Batch::put_with`] closure returns to refuse the batch.
pub type FillError = Box<dyn std::error::Error + Send + Sync>;

type Fill<'a> = Box<dyn FnOnce(&mut [u8]) -> std::result::Result<(), FillError> + 'a>;

enum Operation<'a> {
    Put(Cow<'a, [u8]>),
    PutWith(usize, Fill<'a>),
    Delete,
}

struct Entry<'a> {
    keyspace: KeyspaceId,
    store: u64,
    key: Cow<'a, [u8]>,
    operation: Operation<'a>,
}

/// Operations on any keyspaces of one store that become visible and durable together.
///
/// Bytes are borrowed for `'a` or owned; they are copied once, when the batch is submitted. Operations
/// apply in order, so the last one on a key counts; in a `WriteOnce` keyspace a second `put` of a key
/// must have the same value unless a `delete` stands between.
///
/// ```
/// # use sealstone::{Batch, Durability, KeyspaceOptions, Options, Store, env::Env};
/// # let store = Store::open_with(Env::in_memory(), Options::new())?;
/// let blocks = store.keyspace("blocks", KeyspaceOptions::write_once())?;
/// let mut batch = Batch::new();
/// batch.put(&blocks, b"height 1", b"header").put_with(&blocks, b"height 2", 3, |out| {
///     out.copy_from_slice(b"abc");
///     Ok(())
/// });
/// store.write(batch, Durability::Synced)?;
/// # Ok::<(), sealstone::Error>(())
/// ```
///
/// Borrowed bytes can't be changed while the batch may still read them:
///
/// ```compile_fail,E0506
/// # use sealstone::{Batch, Durability, KeyspaceOptions, Options, Store, env::Env};
/// # let store = Store::open_with(Env::in_memory(), Options::new())?;
/// # let names = store.keyspace("names", KeyspaceOptions::mutable())?;
/// let mut buffer = *b"key";
/// let mut batch = Batch::new();
/// batch.put(&names, &buffer[..], b"value");
/// buffer = *b"end";
/// store.write(batch, Durability::Synced)?;
/// # Ok::<(), sealstone::Error>(())
/// ```
#[derive(Default)]
pub struct Batch<'a> {
    entries: Vec<Entry<'a>>,
    byte_len: u64,
}

impl<'a> Batch<'a> {
    /// An empty batch.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty batch with room for `operations`.
    pub fn with_capacity(operations: usize) -> Self {
        Self {
            entries: Vec::with_capacity(operations),
            byte_len: 0,
        }
    }

    /// Sets `key` to `value`.
    pub fn put(
        &mut self,
        keyspace: &Keyspace,
        key: impl Into<Bytes<'a>>,
        value: impl Into<Bytes<'a>>,
    ) -> &mut Self {
        let value = value.into().0;
        self.push(keyspace, key.into(), value.len(), Operation::Put(value))
    }

    /// Sets `key` to `len` bytes that `fill` writes when the batch is submitted. An error or panic in
    /// `fill` refuses the whole batch. `fill` must not call the store.
    pub fn put_with(
        &mut self,
        keyspace: &Keyspace,
        key: impl Into<Bytes<'a>>,
        len: usize,
        fill: impl FnOnce(&mut [u8]) -> std::result::Result<(), FillError> + 'a,
    ) -> &mut Self {
        self.push(
            keyspace,
            key.into(),
            len,
            Operation::PutWith(len, Box::new(fill)),
        )
    }

    /// Removes `key`; in a `WriteOnce` keyspace the key is free again.
    pub fn delete(&mut self, keyspace: &Keyspace, key: impl Into<Bytes<'a>>) -> &mut Self {
        self.push(keyspace, key.into(), 0, Operation::Delete)
    }

    /// How many operations it holds.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Bytes that its operations take in the log, before operations on the same key are folded.
    pub fn byte_len(&self) -> u64 {
        self.byte_len
    }

    /// Removes all operations and keeps the memory.
    pub fn clear(&mut self) {
        self.entries.clear();
        self.byte_len = 0;
    }

    fn push(
        &mut self,
        keyspace: &Keyspace,
        key: Bytes<'a>,
        value_len: usize,
        operation: Operation<'a>,
    ) -> &mut Self {
        self.byte_len = self
            .byte_len
            .saturating_add(record_bytes(key.0.len(), value_len));
        let store = keyspace.store_token();
        self.entries.push(Entry {
            keyspace: keyspace.id(),
            store,
            key: key.0,
            operation,
        });
        self
    }

    /// Runs the closures and folds operations on one key, in lists of `scratch`. Has no effect on the store.
    pub(crate) fn prepare(self, limits: &Limits, scratch: &mut Scratch) -> Result<Prepared<'a>> {
        limits.check(&self)?;
        let mut operations: Vec<Raw<'a>> = emptied(std::mem::take(&mut scratch.raw));
        operations.reserve(self.entries.len());
        for (order, entry) in self.entries.into_iter().enumerate() {
            let value = match entry.operation {
                Operation::Put(value) => Some(value),
                Operation::PutWith(len, fill) => Some(Cow::Owned(run_fill(len, fill)?)),
                Operation::Delete => None,
            };
            operations.push(Raw {
                keyspace: entry.keyspace,
                key: entry.key,
                order,
                value,
            });
        }
        // No two are equal: their order in the batch differs.
        operations.sort_unstable_by(|a, b| {
            (a.keyspace, &a.key, a.order).cmp(&(b.keyspace, &b.key, b.order))
        });
        let ops = emptied(std::mem::take(&mut scratch.prepared));
        let prepared = fold(&mut operations, ops, &limits.hasher);
        scratch.raw = emptied(operations);
        prepared
    }
}

impl fmt::Debug for Batch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Batch({} operations, {} bytes)",
            self.entries.len(),
            self.byte_len
        )
    }
}

/// Key or value bytes on their way into a batch: borrowed or owned.
#[derive(Clone, Debug)]
pub struct Bytes<'a>(Cow<'a, [u8]>);

impl<'a> From<&'a [u8]> for Bytes<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self(Cow::Borrowed(bytes))
    }
}

impl<'a, const N: usize> From<&'a [u8; N]> for Bytes<'a> {
    fn from(bytes: &'a [u8; N]) -> Self {
        Self(Cow::Borrowed(bytes))
    }
}

impl<'a> From<&'a Vec<u8>> for Bytes<'a> {
    fn from(bytes: &'a Vec<u8>) -> Self {
        Self(Cow::Borrowed(bytes))
    }
}

impl<'a> From<&'a str> for Bytes<'a> {
    fn from(text: &'a str) -> Self {
        Self(Cow::Borrowed(text.as_bytes()))
    }
}

impl From<Vec<u8>> for Bytes<'_> {
    fn from(bytes: Vec<u8>) -> Self {
        Self(Cow::Owned(bytes))
    }
}

impl<const N: usize> From<[u8; N]> for Bytes<'_> {
    fn from(bytes: [u8; N]) -> Self {
        Self(Cow::Owned(bytes.to_vec()))
    }
}

impl From<String> for Bytes<'_> {
    fn from(text: String) -> Self {
        Self(Cow::Owned(text.into_bytes()))
    }
}

impl<'a> From<Cow<'a, [u8]>> for Bytes<'a> {
    fn from(bytes: Cow<'a, [u8]>) -> Self {
        Self(bytes)
    }
}

/// The encoded length of a record of any length, also one that is going to be refused.
fn record_bytes(key_len: usize, value_len: usize) -> u64 {
    if value_len > MAX_LEN {
        return u64::MAX;
    }
    record::encoded_len(key_len, value_len) as u64
}

/// Values above this are not measured exactly; the largest frame is far smaller.
const MAX_LEN: usize = usize::MAX / 4;

fn run_fill(len: usize, fill: Fill<'_>) -> Result<Vec<u8>> {
    let mut value = vec![0; len];
    match catch_unwind(AssertUnwindSafe(|| fill(&mut value))) {
        Ok(Ok(())) => Ok(value),
        Ok(Err(error)) => Err(Error::new(ErrorKind::Refused, "submit", error.to_string())),
        Err(_) => Err(Error::new(
            ErrorKind::Refused,
            "submit",
            "the closure panicked",
        )),
    }
}

/// What a batch may be.
pub(crate) struct Limits {
    pub hasher: Hasher,
    pub store: u64,
    pub key_bytes_max: usize,
    pub records_max: u32,
    pub frame_bytes_max: u64,
}

impl Limits {
    fn check(&self, batch: &Batch<'_>) -> Result<()> {
        let too_large = |what: &str, needed: u64, limit: u64| {
            Err(Error::new(
                ErrorKind::TooLarge { needed, limit },
                "submit",
                what,
            ))
        };
        if batch.entries.len() > self.records_max as usize {
            let (needed, limit) = (batch.entries.len() as u64, self.records_max.into());
            return too_large("operations of the batch (batch_records_max)", needed, limit);
        }
        for entry in &batch.entries {
            if entry.store != self.store {
                return Err(Error::new(
                    ErrorKind::InvalidArgument,
                    "submit",
                    "a keyspace handle of another or an earlier store",
                ));
            }
            if entry.key.len() > self.key_bytes_max {
                let (needed, limit) = (entry.key.len() as u64, self.key_bytes_max as u64);
                return too_large("key bytes", needed, limit);
            }
        }
        let frame_bytes = batch
            .byte_len
            .saturating_add(crate::log::FRAME_HEADER_BYTES as u64);
        if frame_bytes > self.frame_bytes_max {
            return too_large(
                "bytes of the batch (batch_bytes_max)",
                frame_bytes,
                self.frame_bytes_max,
            );
        }
        Ok(())
    }
}

/// An operation as it was asked for, its closure run.
#[derive(Debug)]
pub(crate) struct Raw<'a> {
    keyspace: KeyspaceId,
    key: Cow<'a, [u8]>,
    order: usize,
    value: Option<Cow<'a, [u8]>>,
}

/// The one thing that a batch does to a key.
#[derive(Debug)]
pub(crate) struct PreparedOp<'a> {
    pub keyspace: KeyspaceId,
    pub key: Cow<'a, [u8]>,
    pub hash: KeyHash,
    pub value: Option<Cow<'a, [u8]>>,
    /// `WriteOnce` only: the value that a present key must have, or the batch is a `Conflict`.
    pub expected: Option<Expected<'a>>,
}

/// What a `WriteOnce` operation asks of the stored value.
#[derive(Debug)]
pub(crate) enum Expected<'a> {
    /// The same value as the operation's own; if it is there, there is nothing to write.
    Own,
    /// This value (a `delete` follows in the batch); the operation is written in any case.
    Other(Cow<'a, [u8]>),
}

impl PreparedOp<'_> {
    pub fn record_kind(&self) -> RecordKind {
        if self.value.is_some() {
            RecordKind::Value
        } else {
            RecordKind::Tombstone
        }
    }

    pub fn value_bytes(&self) -> &[u8] {
        self.value.as_deref().unwrap_or_default()
    }

    /// The value that a present key must have; `None` if anything goes.
    pub fn expected_value(&self) -> Option<&[u8]> {
        match &self.expected {
            None => None,
            Some(Expected::Own) => Some(self.value_bytes()),
            Some(Expected::Other(value)) => Some(value),
        }
    }
}

/// A batch ready to be checked and encoded: one operation a key, in (keyspace, key) order.
#[derive(Debug)]
pub(crate) struct Prepared<'a> {
    pub ops: Vec<PreparedOp<'a>>,
}

/// Folds operations in order of (keyspace, key, order) into an empty list.
fn fold<'a>(
    raw: &mut Vec<Raw<'a>>,
    mut ops: Vec<PreparedOp<'a>>,
    hasher: &Hasher,
) -> Result<Prepared<'a>> {
    ops.reserve(raw.len());
    for operation in raw.drain(..) {
        let same =
            |op: &&mut PreparedOp<'a>| op.keyspace == operation.keyspace && op.key == operation.key;
        let write_once = operation.keyspace.kind() == Some(KeyspaceKind::WriteOnce);
        match ops.last_mut().filter(same) {
            None => {
                let expected = (write_once && operation.value.is_some()).then_some(Expected::Own);
                let hash = hasher.hash(operation.keyspace, &operation.key);
                let Raw {
                    keyspace,
                    key,
                    value,
                    ..
                } = operation;
                ops.push(PreparedOp {
                    keyspace,
                    key,
                    hash,
                    value,
                    expected,
                });
            }
            Some(op) if !write_once => op.value = operation.value,
            Some(op) => fold_write_once(op, operation.value)?,
        }
    }
    Ok(Prepared { ops })
}

fn fold_write_once<'a>(op: &mut PreparedOp<'a>, value: Option<Cow<'a, [u8]>>) -> Result<()> {
    match (op.value.take(), value) {
        (Some(earlier), Some(later)) if earlier != later => Err(Error::new(
            ErrorKind::Conflict,
            "submit",
            "two values for one key in the batch",
        )),
        (earlier, None) => {
            // What the first put asked of the store still has to hold, although its value goes.
            if let (Some(Expected::Own), Some(value)) = (&op.expected, earlier) {
                op.expected = Some(Expected::Other(value));
            }
            Ok(())
        }
        (_, later) => {
            op.value = later;
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(order: usize, key: &'static [u8], value: Option<&'static [u8]>) -> Raw<'static> {
        let keyspace = KeyspaceId::new(KeyspaceKind::WriteOnce, 1).expect("small");
        Raw {
            keyspace,
            key: Cow::Borrowed(key),
            order,
            value: value.map(Cow::Borrowed),
        }
    }

    fn hasher() -> Hasher {
        Hasher::new([1; 16], 46)
    }

    #[test]
    fn put_delete_put_keeps_the_first_expectation() {
        let mut raw = vec![
            raw(0, b"k", Some(b"a")),
            raw(1, b"k", None),
            raw(2, b"k", Some(b"b")),
        ];
        let prepared = fold(&mut raw, Vec::new(), &hasher()).expect("legal");
        assert_eq!(prepared.ops.len(), 1);
        assert_eq!(prepared.ops[0].value_bytes(), b"b");
        assert_eq!(prepared.ops[0].expected_value(), Some(&b"a"[..]));
        assert!(matches!(prepared.ops[0].expected, Some(Expected::Other(_))));
    }

    #[test]
    fn two_values_conflict_and_the_same_twice_is_one() {
        let mut twice = vec![raw(0, b"k", Some(b"a")), raw(1, b"k", Some(b"a"))];
        assert_eq!(
            fold(&mut twice, Vec::new(), &hasher())
                .expect("legal")
                .ops
                .len(),
            1
        );
        let mut two = vec![raw(0, b"k", Some(b"a")), raw(1, b"k", Some(b"b"))];
        assert_eq!(
            fold(&mut two, Vec::new(), &hasher())
                .expect_err("conflict")
                .kind(),
            &ErrorKind::Conflict
        );
    }

    #[test]
    fn delete_first_expects_nothing() {
        let mut ops = vec![raw(0, b"k", None), raw(1, b"k", Some(b"b"))];
        let prepared = fold(&mut ops, Vec::new(), &hasher()).expect("legal");
        assert_eq!(prepared.ops[0].expected_value(), None);
        assert_eq!(prepared.ops[0].record_kind(), RecordKind::Value);
    }
}
