//! Writes a segment: records stream through, then [`SegmentWriter::finish_step`] ends it step by step.
//!
//! Invariants:
//! * The file is written from front to back, once; equal input gives equal bytes, however the calls
//!   and the steps were cut.
//! * Records come in (keyspace, key, sequence descending) order; a wrong order is a bug of the caller
//!   and refused by an assertion before anything is written.
//! * Memory: the output buffer, 12 bytes a record, the key fences, the last key; while finishing also
//!   4 bytes an index page, a page, and a filter piece. All of it is the caller's ([`SegmentScratch`])
//!   and given back, so that writing one segment after another leaves no holes in the heap. The filter
//!   that the caller wants to keep comes on top.
//!
//! Crash: nothing names the file until the caller has synced it and its directory entry and then made a
//! manifest edit durable; a cut file has no footer and is a number that the manifest never gave out.
//! After an error the writer is dead: every later call says the same.

use super::fences::{KeyFenceBuilder, Separator, key_fence_bytes_max};
use super::finish::{Finish, FinishBuffers};
use super::footer::{HEAD_BYTES, SegmentCounts, encode_head};
use super::identity::{Chain, Seeds, SegmentIdentity};
use super::layout::{Section, Span};
use super::output::Output;
use super::record::{RecordHeader, padded_bytes};
use crate::env::{File, FileName};
use crate::error::{Error, Result};
use crate::index::builder::{Sorter, SorterMemory};
use crate::index::page::{PAGE_BYTES, pages_for};
use crate::index::{ENTRY_BYTES, Entry, PackedEntry, UNIT_BYTES, size_class_of};
use crate::sync::Arc;
use crate::types::{Hasher, KEY_BYTES_MAX, KeyspaceId, RecordKind, Sequence};

/// Bytes of the output buffer by default: large enough that a write call costs little against the
/// copying it does.
pub const OUTPUT_BYTES_DEFAULT: usize = 256 * 1024;

/// Bytes of records a key fence by default: a seek reads about one page too much.
pub const KEY_FENCE_BYTES_DEFAULT: u32 = 4096;

/// Filter alternatives of small segments and runs, in bits a key.
pub const FILTER_BITS_DEFAULT: [u16; 2] = [12, 16];

/// How a segment is built: nothing here depends on the machine or on time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentParameters {
    /// Bytes of records a key fence.
    pub key_fence_bytes: u32,
    /// Filter alternatives to store, in bits a key.
    pub filter_bits: Vec<u16>,
    /// The alternative to hand over in memory, if one is wanted. Does not change the file.
    pub keep_filter_bits: Option<u16>,
    /// Hashes keys with the family's seed.
    pub hasher: Hasher,
}

impl SegmentParameters {
    /// Defaults, for a store with this hasher.
    pub fn new(hasher: Hasher) -> Self {
        Self {
            key_fence_bytes: KEY_FENCE_BYTES_DEFAULT,
            filter_bits: FILTER_BITS_DEFAULT.to_vec(),
            keep_filter_bits: None,
            hasher,
        }
    }
}

/// The buffers of a writer, made once and passed from segment to segment.
#[derive(Debug, Default)]
pub struct SegmentScratch {
    sorter: SorterMemory,
    key_fences: Vec<u8>,
    output: Vec<u8>,
    last_key: Vec<u8>,
    finish: FinishBuffers,
}

impl SegmentScratch {
    /// Buffers for segments of at most `records_max` records and `data_bytes_max` bytes of records on
    /// disk. A segment beyond that makes them grow.
    pub fn new(
        records_max: u64,
        data_bytes_max: u64,
        key_fence_bytes: u32,
        output_bytes: usize,
    ) -> Self {
        let fences = key_fence_bytes_max(data_bytes_max, key_fence_bytes) as usize;
        Self {
            sorter: SorterMemory::for_entries(records_max as usize),
            key_fences: Vec::with_capacity(fences),
            output: Vec::with_capacity(output_bytes),
            ..Self::default()
        }
    }

    /// What a finished writer left: its segment's entries, in the order of the index.
    pub fn entries(&self) -> &[PackedEntry] {
        self.sorter.entries()
    }

    /// Where the large ones are.
    #[cfg(test)]
    pub(super) fn addresses(&self) -> [usize; 3] {
        [
            self.sorter.address(),
            self.key_fences.as_ptr().addr(),
            self.output.as_ptr().addr(),
        ]
    }

    /// All memory that writing such a segment takes, the small buffers of a finishing writer
    /// included, without a kept filter.
    pub const fn bytes_needed(
        records_max: u64,
        data_bytes_max: u64,
        key_fence_bytes: u32,
        output_bytes: usize,
    ) -> u64 {
        let last_key = if data_bytes_max < KEY_BYTES_MAX as u64 {
            data_bytes_max
        } else {
            KEY_BYTES_MAX as u64
        };
        records_max * ENTRY_BYTES as u64
            + key_fence_bytes_max(data_bytes_max, key_fence_bytes)
            + output_bytes as u64
            + last_key
            + super::finish::working_bytes(records_max)
            + pages_for(records_max) * 4
            + PAGE_BYTES as u64
    }
}

/// A segment being written.
#[derive(Debug)]
pub struct SegmentWriter {
    pub(super) output: Output,
    pub(super) identity: SegmentIdentity,
    pub(super) seeds: Seeds,
    pub(super) parameters: SegmentParameters,
    pub(super) counts: SegmentCounts,
    pub(super) records_chain: Chain,
    pub(super) sorter: Sorter,
    pub(super) key_fences: KeyFenceBuilder,
    pub(super) finish: Finish,
    record_base: u32,
    /// Where the current block of the key fences began.
    block_start: u64,
    last: Option<(KeyspaceId, Sequence)>,
    last_key: Vec<u8>,
    failed: Option<Error>,
}

impl SegmentWriter {
    /// Starts a segment in `file`, which is empty and called `name`.
    pub fn new(
        file: Arc<dyn File>,
        name: FileName,
        identity: SegmentIdentity,
        parameters: SegmentParameters,
        scratch: SegmentScratch,
    ) -> Result<Self> {
        let seeds = identity.seeds();
        let mut output = Output::new(file, name, scratch.output);
        output.write(&encode_head(&identity))?;
        Ok(Self {
            output,
            identity,
            seeds,
            parameters,
            counts: SegmentCounts::default(),
            records_chain: Chain::default(),
            sorter: Sorter::new(scratch.sorter),
            key_fences: KeyFenceBuilder::new(scratch.key_fences, seeds),
            finish: Finish::new(scratch.finish),
            record_base: seeds.record_base(),
            block_start: 0,
            last: None,
            last_key: scratch.last_key,
            failed: None,
        })
    }

    /// Records so far.
    pub const fn records(&self) -> u64 {
        self.counts.records
    }

    /// Bytes that were copied into the output buffer so far.
    pub const fn copied_bytes(&self) -> u64 {
        self.output.copied()
    }

    /// Bytes of the file so far.
    pub const fn file_bytes(&self) -> u64 {
        self.output.offset()
    }

    /// Appends a record; the value's bytes are those of the slices in order. Errors are those of the
    /// backend, as of the operation "flush".
    pub fn add(
        &mut self,
        keyspace: KeyspaceId,
        key: &[u8],
        sequence: Sequence,
        kind: RecordKind,
        value: &[&[u8]],
    ) -> Result<()> {
        self.alive()?;
        let value_len = self.check(keyspace, key, sequence, kind, value);
        let offset = self.output.offset();
        self.begin_block(offset, keyspace, key);
        let header = RecordHeader {
            keyspace,
            sequence,
            kind,
            key_len: key.len() as u16,
            value_len,
        };
        let header = header.encode(self.record_base, offset, key, value);
        let padded = padded_bytes(key.len(), u64::from(value_len));
        let result = self.write_record(&header, key, value, offset + padded);
        self.guard(result)?;
        self.sorter.push(Entry::new(
            self.parameters.hasher.hash(keyspace, key),
            offset / UNIT_BYTES,
            size_class_of(padded),
            kind == RecordKind::Tombstone,
        ));
        let [c0, c1, c2, c3, ..] = header;
        self.records_chain
            .push(u64::from(u32::from_le_bytes([c0, c1, c2, c3])));
        self.count(sequence, kind, key.len(), value_len);
        self.last = Some((keyspace, sequence));
        self.last_key.clear();
        self.last_key.extend_from_slice(key);
        Ok(())
    }

    /// Asserts that the record may come next; returns the value's length.
    fn check(
        &self,
        keyspace: KeyspaceId,
        key: &[u8],
        sequence: Sequence,
        kind: RecordKind,
        value: &[&[u8]],
    ) -> u32 {
        assert!(self.finish.not_begun(), "no record after finishing began");
        assert!(key.len() <= KEY_BYTES_MAX, "a key has at most 65,535 bytes");
        assert!(
            keyspace.kind() == Some(self.identity.kind),
            "a segment has one kind"
        );
        let value_len: usize = value.iter().map(|slice| slice.len()).sum();
        let value_len = u32::try_from(value_len).expect("a value's length has 32 bits");
        assert!(
            kind == RecordKind::Value || value_len == 0,
            "a tombstone has no value"
        );
        if let Some((last_keyspace, last_sequence)) = self.last {
            let last = (last_keyspace, self.last_key.as_slice());
            let rising = match last.cmp(&(keyspace, key)) {
                std::cmp::Ordering::Less => true,
                std::cmp::Ordering::Equal => sequence < last_sequence,
                std::cmp::Ordering::Greater => false,
            };
            assert!(
                rising,
                "records come in (keyspace, key, newest first) order"
            );
        }
        value_len
    }

    /// Begins a block, and its fence, if the last one is full.
    fn begin_block(&mut self, offset: u64, keyspace: KeyspaceId, key: &[u8]) {
        let separator = match self.last {
            None => Separator::FIRST,
            Some(_) if offset - self.block_start < u64::from(self.parameters.key_fence_bytes) => {
                return;
            }
            Some((last, _)) => Separator::between((last, &self.last_key), (keyspace, key)),
        };
        self.key_fences.push(offset, &separator);
        self.block_start = offset;
    }

    fn write_record(&mut self, header: &[u8], key: &[u8], value: &[&[u8]], end: u64) -> Result<()> {
        self.output.write(header)?;
        self.output.write(key)?;
        for slice in value {
            self.output.write(slice)?;
        }
        let padding = end - self.output.offset();
        self.output.write(&[0; 32][..padding as usize])
    }

    fn count(&mut self, sequence: Sequence, kind: RecordKind, key_len: usize, value_len: u32) {
        let counts = &mut self.counts;
        counts.min_sequence = match counts.records {
            0 => sequence,
            _ => counts.min_sequence.min(sequence),
        };
        counts.max_sequence = counts.max_sequence.max(sequence);
        counts.records += 1;
        counts.tombstones += u64::from(kind == RecordKind::Tombstone);
        counts.key_bytes += key_len as u64;
        counts.value_bytes += u64::from(value_len);
    }

    /// The records section, once no record follows.
    pub(super) fn records_section(&self, end: u64) -> Section {
        Section {
            span: Span {
                offset: HEAD_BYTES as u64,
                bytes: end - HEAD_BYTES as u64,
            },
            items: self.counts.records,
            checksum: self.records_chain.0,
        }
    }

    /// Refuses once a call has failed.
    pub(super) fn alive(&self) -> Result<()> {
        match &self.failed {
            None => Ok(()),
            Some(error) => Err(error.clone()),
        }
    }

    /// Remembers a failure.
    pub(super) fn guard<T>(&mut self, result: Result<T>) -> Result<T> {
        if let Err(error) = &result {
            self.failed = Some(error.clone());
        }
        result
    }

    /// Gives the buffers back, whatever state the writer is in. What is not flushed is lost.
    pub fn into_scratch(self) -> SegmentScratch {
        SegmentScratch {
            sorter: self.sorter.into_memory(),
            key_fences: self.key_fences.into_bytes(),
            output: self.output.into_buffer(),
            last_key: self.last_key,
            finish: self.finish.buffers,
        }
    }
}
