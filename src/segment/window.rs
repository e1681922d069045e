//! A stretch of the records section in memory, from which verified records are taken.

use super::ReadCounts;
use super::files::FileTable;
use super::footer::SEGMENT_VERSION;
use super::layout::Span;
use super::reader::{Segment, newer};
use super::record::{self, RECORD_BYTES_MIN, RecordLayout};
use crate::error::Result;
use crate::sync::Arc;

/// Where records are read from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Source<'a> {
    pub(super) segment: &'a Arc<Segment>,
    pub(super) files: &'a FileTable,
    pub(super) records: Span,
    pub(super) operation: &'static str,
}

/// Bytes of the records section; they begin with a record.
#[derive(Debug, Default)]
pub(super) struct RecordWindow {
    /// Only the first `len` are read.
    bytes: Vec<u8>,
    offset: u64,
    len: usize,
    /// Memory beyond this is let go when a smaller read comes.
    keep_bytes: usize,
}

impl RecordWindow {
    /// An empty window that keeps `keep_bytes` of memory once it has grown to that.
    pub(super) fn new(keep_bytes: usize) -> Self {
        Self {
            keep_bytes,
            ..Self::default()
        }
    }

    /// The file offset of the first byte.
    pub(super) const fn offset(&self) -> u64 {
        self.offset
    }

    /// Memory held, in bytes.
    pub(super) const fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// Forgets what was read.
    pub(super) const fn clear(&mut self) {
        self.len = 0;
    }

    /// What the window has from file offset `at` on.
    pub(super) fn from(&self, at: u64) -> &[u8] {
        let start = at
            .checked_sub(self.offset)
            .and_then(|start| usize::try_from(start).ok());
        let read = self.bytes.get(..self.len).unwrap_or_default();
        start
            .and_then(|start| read.get(start..))
            .unwrap_or_default()
    }

    /// Reads `bytes` bytes from file offset `at`, which the caller has checked to exist.
    pub(super) fn fill(
        &mut self,
        source: &Source<'_>,
        at: u64,
        bytes: usize,
        counts: &mut ReadCounts,
    ) -> Result<()> {
        self.len = 0;
        self.offset = at;
        if self.bytes.capacity() > self.keep_bytes && bytes <= self.keep_bytes {
            // One large record must not hold its memory for the rest of a scan.
            self.bytes = Vec::new();
        }
        self.read_up_to(source, bytes, counts)
    }

    /// The verified record at `at`; reads `want` bytes, or the record if it is longer, when the window
    /// does not have it.
    pub(super) fn record(
        &mut self,
        source: &Source<'_>,
        at: u64,
        want: usize,
        counts: &mut ReadCounts,
    ) -> Result<RecordLayout> {
        let damage = |what| source.segment.damage(source.operation, at, what);
        let available = source.records.end().saturating_sub(at);
        if at < source.records.offset || available < RECORD_BYTES_MIN {
            return Err(damage("a record outside the records section"));
        }
        let clip = |bytes: u64| bytes.min(available) as usize;
        if (self.from(at).len() as u64) < RECORD_BYTES_MIN {
            self.fill(
                source,
                at,
                clip((want as u64).max(RECORD_BYTES_MIN)),
                counts,
            )?;
        }
        let layout = record::decode(self.from(at)).map_err(damage)?;
        let bytes = layout.padded_bytes;
        if bytes > available {
            return Err(damage("a record longer than the records section"));
        }
        if (self.from(at).len() as u64) < bytes {
            match self.offset == at {
                true => self.read_up_to(source, bytes as usize, counts)?,
                false => self.fill(source, at, clip(bytes.max(want as u64)), counts)?,
            }
        }
        let base = source.segment.record_base();
        record::verify(self.from(at), &layout, base, at).map_err(damage)?;
        if layout.unknown_flags != 0 {
            let (name, found) = (source.segment.name(), SEGMENT_VERSION + 1);
            return Err(newer(
                source.operation,
                name,
                at,
                found,
                "unknown record flags",
            ));
        }
        Ok(layout)
    }

    /// Reads on until the window has `bytes` bytes.
    fn read_up_to(
        &mut self,
        source: &Source<'_>,
        bytes: usize,
        counts: &mut ReadCounts,
    ) -> Result<()> {
        if self.bytes.len() < bytes {
            self.bytes.reserve_exact(bytes - self.bytes.len());
            self.bytes.resize(bytes, 0);
        }
        let from = self.offset + self.len as u64;
        let buffer = &mut self.bytes[self.len..bytes];
        let file = source.segment.file(source.files, counts)?;
        source
            .segment
            .read(&file, source.operation, from, buffer, counts)?;
        self.len = bytes;
        Ok(())
    }
}
