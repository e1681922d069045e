//! Tests of segments as a whole, over a small in-memory double of the file system.

mod cursor;
mod damage;
mod disk;
mod files;
mod large;
mod lookup;
#[cfg(loom)]
mod loom_tests;
mod verify;
mod writer;

use disk::Disk;

use super::identity::tests::IDENTITY;
use super::*;
use crate::env::{FileName, Vfs};
use crate::sync::Arc;
use crate::types::{Hasher, KeyHash, KeyspaceId, KeyspaceKind, RecordKind, Sequence};

/// The only keyspace of most tests.
const KEYSPACE: KeyspaceId = KeyspaceId(1);

/// A record as a test gives it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Given {
    keyspace: KeyspaceId,
    key: Vec<u8>,
    sequence: Sequence,
    /// `None` for a tombstone.
    value: Option<Vec<u8>>,
}

impl Given {
    fn new(key: impl Into<Vec<u8>>, sequence: Sequence, value: impl Into<Vec<u8>>) -> Self {
        Self {
            keyspace: KEYSPACE,
            key: key.into(),
            sequence,
            value: Some(value.into()),
        }
    }

    fn tombstone(key: impl Into<Vec<u8>>, sequence: Sequence) -> Self {
        Self {
            value: None,
            ..Self::new(key, sequence, "")
        }
    }

    fn kind(&self) -> RecordKind {
        match self.value {
            Some(_) => RecordKind::Value,
            None => RecordKind::Tombstone,
        }
    }
}

fn sort(records: &mut [Given]) {
    records.sort_by(|a, b| (a.keyspace, &a.key, b.sequence).cmp(&(b.keyspace, &b.key, a.sequence)));
}

/// How a test segment is built.
#[derive(Clone, Debug)]
struct Build {
    hash_bits: u8,
    key_fence_bytes: u32,
    output_bytes: usize,
    quantum_bytes: usize,
    keep_filter_bits: Option<u16>,
}

impl Default for Build {
    fn default() -> Self {
        Self {
            hash_bits: 46,
            key_fence_bytes: 4096,
            output_bytes: 256 * 1024,
            quantum_bytes: 64 * 1024,
            keep_filter_bits: None,
        }
    }
}

impl Build {
    fn hasher(&self) -> Hasher {
        Hasher::new([9; 16], self.hash_bits).of_family(IDENTITY.family_id)
    }

    fn write(&self, disk: &Disk, number: u64, records: &[Given]) -> SegmentSummary {
        let name = FileName::segment(number);
        let file = disk.create_new(name).unwrap();
        let parameters = SegmentParameters {
            key_fence_bytes: self.key_fence_bytes,
            keep_filter_bits: self.keep_filter_bits,
            ..SegmentParameters::new(self.hasher())
        };
        let kind = records.first().and_then(|r| r.keyspace.kind());
        let identity = SegmentIdentity {
            kind: kind.unwrap_or(KeyspaceKind::WriteOnce),
            ..IDENTITY
        };
        let scratch = SegmentScratch::new(
            records.len() as u64,
            1 << 16,
            self.key_fence_bytes,
            self.output_bytes,
        );
        let mut writer = SegmentWriter::new(file, name, identity, parameters, scratch).unwrap();
        for record in records {
            let value = record.value.as_deref().unwrap_or_default();
            let (front, back) = value.split_at(value.len() / 3);
            let slices = [front, back];
            let (keyspace, key) = (record.keyspace, &record.key);
            writer
                .add(keyspace, key, record.sequence, record.kind(), &slices)
                .unwrap();
        }
        loop {
            if let Some(summary) = writer.finish_step(self.quantum_bytes).unwrap() {
                return summary;
            }
        }
    }

    /// A segment on a disk of its own, not touched yet.
    fn open(&self, records: &[Given]) -> Fixture {
        let disk = Disk::new();
        let summary = self.write(&disk, 7, records);
        Fixture::new(disk, &summary.meta, self.hasher())
    }
}

/// A segment to read from.
struct Fixture {
    disk: Disk,
    files: Arc<FileTable>,
    segment: Arc<Segment>,
    buffers: LookupBuffers,
    counts: ReadCounts,
}

impl Fixture {
    fn new(disk: Disk, meta: &SegmentMeta, hasher: Hasher) -> Self {
        Self {
            files: Arc::new(FileTable::new(Arc::new(disk.clone()), 4)),
            segment: Arc::new(Segment::new(meta.pack(), Arc::new(hasher))),
            disk,
            buffers: LookupBuffers::new(),
            counts: ReadCounts::default(),
        }
    }

    /// Sequence and value (or none, for a tombstone) of the newest version up to `bound`.
    fn get_at(
        &mut self,
        keyspace: KeyspaceId,
        key: &[u8],
        bound: Sequence,
    ) -> crate::error::Result<Option<(Sequence, Option<Vec<u8>>)>> {
        let hash = self.segment.hasher().hash(keyspace, key);
        self.get_hash(hash, keyspace, key, bound)
    }

    fn get_hash(
        &mut self,
        hash: KeyHash,
        keyspace: KeyspaceId,
        key: &[u8],
        bound: Sequence,
    ) -> crate::error::Result<Option<(Sequence, Option<Vec<u8>>)>> {
        let (buffers, counts) = (&mut self.buffers, &mut self.counts);
        let wanted = Wanted {
            hash,
            keyspace,
            key,
            bound,
            known_from: u64::MAX,
        };
        let found = self
            .segment
            .lookup(&self.files, &[], &wanted, buffers, counts)?;
        Ok(match found {
            Lookup::Absent => None,
            Lookup::Tombstone { sequence } => Some((sequence, None)),
            Lookup::Value { sequence, value } => {
                Some((sequence, Some(self.buffers.value(&value).to_vec())))
            }
            Lookup::Waits => unreachable!("nothing is read ahead"),
        })
    }

    fn cursor(&self, buffer_bytes: usize) -> SegmentCursor {
        let options = CursorOptions { buffer_bytes };
        SegmentCursor::new(self.segment.clone(), self.files.clone(), options)
    }

    fn verify(&self) -> VerifyReport {
        self.segment.verify(&self.files, &mut |_| {}).unwrap()
    }

    fn name(&self) -> FileName {
        self.segment.name()
    }
}

fn given_of(record: &RecordRef<'_>) -> Given {
    Given {
        keyspace: record.keyspace,
        key: record.key.to_vec(),
        sequence: record.sequence,
        value: (record.kind == RecordKind::Value).then(|| record.value.to_vec()),
    }
}

/// Simple numbered records.
fn numbered(count: u64, value_bytes: usize) -> Vec<Given> {
    let record = |i: u64| {
        let value = vec![i as u8; value_bytes + (i % 7) as usize];
        match i % 11 {
            10 => Given::tombstone(format!("key{i:08}"), i + 1),
            _ => Given::new(format!("key{i:08}"), i + 1, value),
        }
    };
    (0..count).map(record).collect()
}
