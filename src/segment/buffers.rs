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
use crate::sync::Arc;

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
                mapped: None,
            },
            trace: None,
            ahead: None,
        }
    }

    /// The same for a lookup whose steps are kept.
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

    /// The record buffer itself, for a caller that keeps the value; the next lookup makes another.
    pub fn take_record(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.record.buffer)
    }

    /// Lets go of the mapping, of what was read ahead, and of the record buffer if it grew beyond `bytes_max`.
    #[inline]
    pub fn trim(&mut self, bytes_max: usize) {
        self.record.mapped = None;
        self.ahead = None;
        if self.record.buffer.capacity() > bytes_max {
            self.record.buffer = Vec::new();
        }
    }
}

/// The record that was read last.
#[derive(Debug, Default)]
pub struct RecordBytes {
    /// Only grows.
    buffer: Vec<u8>,
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
            self.buffer.resize(part.end, 0);
        }
        &mut self.buffer[part]
    }
}
