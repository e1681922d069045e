//! What a memtable holds, in numbers. One writer counts; anybody reads.

use super::shape::{BatchShape, Op};
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use crate::types::{KeyspaceId, KeyspaceKind, RecordKind, Sequence};

/// Numbers of one kind of keyspace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KindCounts {
    /// Records that are values.
    pub values: u32,
    /// Records that are tombstones.
    pub tombstones: u32,
    /// Records that a later commit's version of their key shadows.
    pub shadowed: u32,
}

impl KindCounts {
    /// All records.
    pub const fn records(&self) -> u32 {
        self.values + self.tombstones
    }
}

#[derive(Default)]
struct KindCells {
    values: AtomicU32,
    tombstones: AtomicU32,
    shadowed: AtomicU32,
}

#[derive(Default)]
pub(super) struct Counts {
    kinds: [KindCells; KeyspaceKind::ALL.len()],
    payload_bytes: AtomicU64,
    first_sequence: AtomicU64,
    last_sequence: AtomicU64,
    published_sequence: AtomicU64,
    published_records: AtomicU32,
}

/// Raises a counter that only the caller writes.
fn raise(counter: &AtomicU32) {
    counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Release);
}

impl Counts {
    /// Before a commit's first ref: sequences in refs count from the first one.
    pub(super) fn begin(&self, sequence: Sequence) {
        if self.first_sequence() == 0 {
            self.first_sequence.store(sequence, Ordering::Release);
        }
    }

    pub(super) fn add_record(&self, op: &Op<'_>, shadows: bool) {
        let Some(cells) = kind_index(op.keyspace).and_then(|index| self.kinds.get(index)) else {
            return;
        };
        match op.kind {
            RecordKind::Value => raise(&cells.values),
            RecordKind::Tombstone => raise(&cells.tombstones),
        }
        if shadows {
            raise(&cells.shadowed);
        }
    }

    pub(super) fn add_commit(&self, sequence: Sequence, shape: &BatchShape) {
        let before = self.payload_bytes.load(Ordering::Relaxed);
        self.payload_bytes
            .store(before + shape.payload_bytes(), Ordering::Release);
        self.last_sequence.store(sequence, Ordering::Release);
    }

    pub(super) fn add_published(&self, sequence: Sequence, records: u32) {
        let before = self.published_records.load(Ordering::Relaxed);
        self.published_records
            .store(before + records, Ordering::Release);
        self.published_sequence.store(sequence, Ordering::Release);
    }

    pub(super) fn of(&self, kind: KeyspaceKind) -> KindCounts {
        let cells = &self.kinds[usize::from(kind.code())];
        KindCounts {
            values: cells.values.load(Ordering::Acquire),
            tombstones: cells.tombstones.load(Ordering::Acquire),
            shadowed: cells.shadowed.load(Ordering::Acquire),
        }
    }

    pub(super) fn payload_bytes(&self) -> u64 {
        self.payload_bytes.load(Ordering::Acquire)
    }

    pub(super) fn first_sequence(&self) -> Sequence {
        self.first_sequence.load(Ordering::Acquire)
    }

    pub(super) fn last_sequence(&self) -> Sequence {
        self.last_sequence.load(Ordering::Acquire)
    }

    pub(super) fn published_sequence(&self) -> Sequence {
        self.published_sequence.load(Ordering::Acquire)
    }

    pub(super) fn published_records(&self) -> u32 {
        self.published_records.load(Ordering::Acquire)
    }
}

fn kind_index(keyspace: KeyspaceId) -> Option<usize> {
    keyspace.kind().map(|kind| usize::from(kind.code()))
}
