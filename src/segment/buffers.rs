//! The buffers of lookups: the index page and the record that were read last, or where the record is mapped.
//!
//! A record that is mapped is shown where it lies, and keeps its mapping meanwhile. That is for the time of one
//! lookup: what a caller keeps is a copy, because what was verified once may be read anew from a disk that
//! has gone bad, and because a value that held its mapping would keep the space of files long removed.

use std::ops::Range;

use super::ReadCounts;
use super::ahead::ReadAhead;
use super::files::Mapping;
use crate::env::part;
use crate::explain::{Cost, Step, Trace};
use crate::index::page::PAGE_BYTES;
use crate::sync::Arc;

/// Record buffers above this are not kept from lookup to lookup.
pub const RECORD_BYTES_KEPT: usize = 64 << 10;

/// The first record buffer, so that records of a usual size find room in it.
const RECORD_BYTES_FIRST: usize = 4096;

/// The buffers of lookups, to be used again and again.
#[derive(Debug, Default)]
pub struct LookupBuffers {
    pub(super) page: Vec<u8>,
    pub(super) record: RecordBytes,
    pub(super) trace: Option<Box<Trace>>,
    pub(super) ahead: Option<Box<ReadAhead>>,
}

impl LookupBuffers {
    /// Buffers that grow when first used.
    pub const fn new() -> Self {
        Self {
            page: Vec::new(),
            record: RecordBytes {
                buffer: Vec::new(),
                kept: Vec::new(),
                mapped: None,
            },
            trace: None,
            ahead: None,
        }
    }

    /// Buffers that a thread keeps: made whole, so that a read takes nothing from the heap later, however many
    /// lookups come to an end without one before.
    pub fn of_thread() -> Self {
        let mut buffers = Self::new();
        buffers.page.reserve_exact(PAGE_BYTES);
        buffers.record.buffer.reserve_exact(RECORD_BYTES_FIRST);
        buffers
    }

    /// Buffers of a lookup whose steps are kept.
    pub fn watched() -> Self {
        Self {
            trace: Some(Box::default()),
            ..Self::new()
        }
    }

    /// From now on reads are made together with those of other lookups.
    pub fn set_ahead(&mut self) {
        self.ahead.get_or_insert_default();
    }

    /// The reads that are made together, if they are.
    pub fn ahead(&mut self) -> Option<&mut ReadAhead> {
        self.ahead.as_deref_mut()
    }

    /// Whether steps are kept.
    #[inline]
    pub const fn is_watched(&self) -> bool {
        self.trace.is_some()
    }

    /// The steps so far; none are kept from now on.
    pub fn take_trace(&mut self) -> Option<Box<Trace>> {
        self.trace.take()
    }

    /// Keeps a step, if the lookup is watched: made from what it has cost.
    #[inline]
    pub fn watch(&mut self, counts: &ReadCounts, step: impl FnOnce(Cost) -> Step) {
        if let Some(trace) = &mut self.trace {
            let cost = trace.cost_since(counts);
            trace.push(step(cost));
        }
    }

    /// Ends what was counted in `counts`.
    #[inline]
    pub fn watch_end(&mut self, counts: &ReadCounts) {
        if let Some(trace) = &mut self.trace {
            trace.end(counts);
        }
    }

    /// The bytes of a range that a lookup returned.
    #[inline]
    pub fn value(&self, range: &Range<usize>) -> &[u8] {
        self.record.get(range.clone()).unwrap_or_default()
    }

    /// Whether the record lies in a mapping, not in the buffer.
    pub const fn is_mapped(&self) -> bool {
        self.record.mapped.is_some()
    }

    /// The record buffer itself, for a caller that keeps a value of more than [`RECORD_BYTES_KEPT`].
    pub fn take_record(&mut self) -> Vec<u8> {
        self.record.take_large()
    }

    /// Lets go of the mapping, of what was read ahead, and of a record buffer that is not kept.
    #[inline]
    pub fn trim(&mut self) {
        self.record.mapped = None;
        self.ahead = None;
        if self.record.buffer.capacity() > RECORD_BYTES_KEPT {
            drop(self.record.take_large());
        }
    }
}

/// The record that was read last.
#[derive(Debug, Default)]
pub struct RecordBytes {
    /// Only grows.
    buffer: Vec<u8>,
    /// The one for records up to [`RECORD_BYTES_KEPT`], while a larger one is in use.
    kept: Vec<u8>,
    /// The file's mapping and the record's offset in it, if the record is not in the buffer.
    mapped: Option<(Arc<Mapping>, u64)>,
}

impl RecordBytes {
    /// A part of the record, if it was read.
    #[inline]
    pub fn get(&self, range: Range<usize>) -> Option<&[u8]> {
        match &self.mapped {
            None => self.buffer.get(range),
            Some((mapping, offset)) => {
                let length = range.end.checked_sub(range.start)?;
                let start = offset.checked_add(range.start as u64)?;
                part(mapping.map().bytes(), start, length)
            }
        }
    }

    /// Its first bytes; nothing if fewer were read.
    #[inline]
    pub(super) fn first(&self, bytes: usize) -> &[u8] {
        self.get(0..bytes).unwrap_or_default()
    }

    /// Shows the record at `offset` of a mapped file.
    #[inline]
    pub(super) fn set_mapped(&mut self, mapping: &Arc<Mapping>, offset: u64) {
        self.mapped = Some((mapping.clone(), offset));
    }

    /// Forgets where a record is mapped.
    pub(super) fn release(&mut self) {
        self.mapped = None;
    }

    /// Room for a part of the record.
    #[inline]
    pub(super) fn room(&mut self, part: Range<usize>) -> &mut [u8] {
        self.mapped = None;
        if self.buffer.len() < part.end {
            self.grow(part.end);
        }
        &mut self.buffer[part]
    }

    /// By powers of two, so that records of all sizes make a kept buffer grow a few times only. A large record
    /// gets a buffer of its own: once that is gone, a small one finds the kept buffer again.
    fn grow(&mut self, bytes: usize) {
        if bytes <= RECORD_BYTES_KEPT {
            let capacity = bytes.next_power_of_two().max(RECORD_BYTES_FIRST);
            self.buffer.reserve_exact(capacity - self.buffer.len());
        } else if self.buffer.capacity() <= RECORD_BYTES_KEPT {
            let mut large = Vec::with_capacity(bytes);
            large.extend_from_slice(&self.buffer);
            self.kept = std::mem::replace(&mut self.buffer, large);
        }
        self.buffer.resize(bytes, 0);
    }

    /// The large buffer; the kept one takes its place.
    fn take_large(&mut self) -> Vec<u8> {
        std::mem::replace(&mut self.buffer, std::mem::take(&mut self.kept))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_record_leaves_the_kept_buffer() {
        let mut buffers = LookupBuffers::new();
        buffers.record.room(0..1000).fill(1);
        let kept = buffers.record.buffer.as_ptr();
        assert_eq!(buffers.record.buffer.capacity(), RECORD_BYTES_FIRST);
        for taken in [true, false] {
            // Its lengths are read first, and stay.
            buffers.record.room(0..8).fill(2);
            buffers.record.room(8..RECORD_BYTES_KEPT + 1).fill(3);
            assert_eq!(buffers.value(&(7..9)), [2, 3]);
            if taken {
                assert_eq!(buffers.take_record().capacity(), RECORD_BYTES_KEPT + 1);
            }
            buffers.trim();
            buffers.record.room(0..RECORD_BYTES_FIRST);
            assert_eq!(buffers.record.buffer.as_ptr(), kept);
        }
    }

    #[test]
    fn a_kept_buffer_grows_a_few_times() {
        let mut buffers = LookupBuffers::new();
        let mut capacities = Vec::new();
        for bytes in 1..=RECORD_BYTES_KEPT {
            buffers.record.room(0..bytes);
            capacities.push(buffers.record.buffer.capacity());
        }
        capacities.dedup();
        assert!(capacities.len() <= 5, "{capacities:?}");
        buffers.trim();
        assert_eq!(buffers.record.buffer.capacity(), RECORD_BYTES_KEPT);
    }
}
