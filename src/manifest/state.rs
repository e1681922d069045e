//! What the manifest says, in memory: a plain value that edits change.
//!
//! The lists are kept sorted (keyspaces by id, logs and segments by number), so that equal histories
//! have equal states and equal bytes.

use crate::segment::PackedMeta;
use crate::types::{Hasher, KeyspaceId, KeyspaceKind, Sequence};

/// A named keyspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyspaceEntry {
    /// Its id, which holds the kind too.
    pub id: KeyspaceId,
    /// Its kind.
    pub kind: KeyspaceKind,
    /// Its name, 1 to 255 bytes.
    pub name: String,
}

/// A log that may hold commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogEntry {
    /// The file's number.
    pub number: u64,
    /// The open that made it.
    pub incarnation: u64,
    /// Commits up to this one are known to be durable in it; 0 if none are.
    pub durable_through: Sequence,
    /// The generation that its commits belong to; 0 while the order of the logs decides.
    pub first_generation: u64,
}

impl LogEntry {
    /// A log that has taken no frame yet.
    pub const fn spare(number: u64, incarnation: u64) -> Self {
        Self {
            number,
            incarnation,
            durable_through: 0,
            first_generation: 0,
        }
    }
}

/// The whole state of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManifestState {
    /// This store.
    pub store_id: u128,
    /// The family it shares segments with.
    pub family_id: u128,
    /// The family's hash seed.
    pub hash_seed: [u8; 16],
    /// Significant bits of key hashes, 1 to 46.
    pub hash_bits: u8,
    /// Counts the opens for writing.
    pub incarnation: u64,
    /// The next file number that is free.
    pub next_number: u64,
    /// The last edit.
    pub edit_number: u64,
    /// Every commit up to this one is in segments.
    pub flushed_through: Sequence,
    /// Keyspaces by id.
    pub keyspaces: Vec<KeyspaceEntry>,
    /// Logs by number.
    pub logs: Vec<LogEntry>,
    /// Segments and the parts of folded runs, by number. There may be many, so they are packed, and shared
    /// with who reads them.
    pub segments: Vec<PackedMeta>,
    /// The generation that follows the last one in segments.
    pub next_generation: u64,
    /// Whether the last edit ended in a clean close.
    pub clean_close: bool,
}

impl ManifestState {
    /// The state of a new store before its first open: numbers and generations start at 1.
    pub fn new(store_id: u128, family_id: u128, hash_seed: [u8; 16], hash_bits: u8) -> Self {
        Self {
            store_id,
            family_id,
            hash_seed,
            hash_bits,
            incarnation: 0,
            next_number: 1,
            edit_number: 0,
            flushed_through: 0,
            keyspaces: Vec::new(),
            logs: Vec::new(),
            segments: Vec::new(),
            next_generation: 1,
            clean_close: false,
        }
    }

    /// The family's hasher.
    pub fn hasher(&self) -> Hasher {
        Hasher::new(self.hash_seed, self.hash_bits).of_family(self.family_id)
    }

    /// The log with `number`.
    pub fn log(&self, number: u64) -> Option<&LogEntry> {
        let at = self.log_place(number).ok()?;
        self.logs.get(at)
    }

    /// The segment with `number`.
    pub fn segment(&self, number: u64) -> Option<&PackedMeta> {
        let at = self.segment_place(number).ok()?;
        self.segments.get(at)
    }

    /// The keyspace with `name`.
    pub fn keyspace(&self, name: &str) -> Option<&KeyspaceEntry> {
        self.keyspaces.iter().find(|entry| entry.name == name)
    }

    pub(super) fn log_place(&self, number: u64) -> Result<usize, usize> {
        self.logs.binary_search_by_key(&number, |log| log.number)
    }

    pub(super) fn segment_place(&self, number: u64) -> Result<usize, usize> {
        self.segments
            .binary_search_by_key(&number, PackedMeta::number)
    }

    pub(super) fn keyspace_place(&self, id: KeyspaceId) -> Result<usize, usize> {
        self.keyspaces.binary_search_by_key(&id, |entry| entry.id)
    }
}
