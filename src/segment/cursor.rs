//! Walks the records of a segment in key order, both ways.
//!
//! A cursor has one window of records and one piece of key fences; it holds no descriptor between
//! calls. Going forward it reads the next window from where the last one ended; going back it asks the
//! fences for block starts that together fill a window. So a scan costs about one read a buffer either
//! way, and a record larger than the buffer grows it for as long as it is needed.
//!
//! Invariants:
//! * A record is handed out only after its checksum, which depends on its place. Steps within a window
//!   follow verified lengths; going back, lengths that were not yet verified decide where records
//!   start, but a wrong length makes the walk miss the window's end or meet a bad checksum at the
//!   damaged record before anything in front of it.
//! * `starts` has the offsets of all records between the window's start and the current one.
//! * After an error the cursor has no place until the next seek: it never goes on as if at an end.

use super::fences::{FENCE_PIECE_BYTES, Fence, PIECE_FENCES_MAX, decode_piece};
use super::files::FileTable;
use super::layout::Places;
use super::reader::Segment;
use super::record::RecordLayout;
use super::window::{RecordWindow, Source};
use super::{ReadCounts, record};
use crate::error::{Error, Result};
use crate::index::UNIT_BYTES;
use crate::sync::Arc;
use crate::types::{KeyspaceId, RecordKind, Sequence};

pub(super) const OPERATION: &str = "scan";

/// Sizes of a cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CursorOptions {
    /// Bytes of a window: what a scan reads at once.
    pub buffer_bytes: usize,
}

impl Default for CursorOptions {
    /// 64 KiB: a warm read of that costs six of 4 KiB and brings sixteen times as much.
    fn default() -> Self {
        Self {
            buffer_bytes: 64 * 1024,
        }
    }
}

/// A record under a cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordRef<'a> {
    /// The keyspace.
    pub keyspace: KeyspaceId,
    /// The key.
    pub key: &'a [u8],
    /// The commit it came with.
    pub sequence: Sequence,
    /// Value or tombstone.
    pub kind: RecordKind,
    /// The value.
    pub value: &'a [u8],
}

/// Where a cursor stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Position {
    /// In front of the first record.
    Before,
    /// On the record at this offset.
    At(u64, RecordLayout),
    /// Behind the last record.
    After,
    /// Nowhere, after an error.
    Lost,
}

/// A decoded piece of key fences.
#[derive(Debug, Default)]
pub(super) struct Piece {
    pub(super) number: Option<u64>,
    pub(super) bytes: Vec<u8>,
    pub(super) fences: Vec<Fence>,
}

/// A cursor over one segment.
#[derive(Debug)]
pub struct SegmentCursor {
    pub(super) segment: Arc<Segment>,
    pub(super) files: Arc<FileTable>,
    pub(super) buffer_bytes: usize,
    pub(super) position: Position,
    pub(super) window: RecordWindow,
    /// In units of 8 bytes, from the window's start.
    pub(super) starts: Vec<u32>,
    pub(super) piece: Piece,
    /// How much the next forward read brings: little right after a seek, then the whole buffer.
    pub(super) want_bytes: usize,
}

impl SegmentCursor {
    /// A cursor in front of the first record. Reads nothing yet.
    pub fn new(segment: Arc<Segment>, files: Arc<FileTable>, options: CursorOptions) -> Self {
        let buffer_bytes = options.buffer_bytes.max(record::RECORD_BYTES_MIN as usize);
        Self {
            segment,
            files,
            buffer_bytes,
            position: Position::Before,
            window: RecordWindow::new(buffer_bytes),
            starts: Vec::new(),
            piece: Piece::default(),
            want_bytes: buffer_bytes,
        }
    }

    /// Memory that a cursor takes while records fit its buffer: the window, record starts in it, and a
    /// piece of fences with its decoded form.
    pub const fn memory_bytes(options: CursorOptions) -> usize {
        let starts = starts_max(options.buffer_bytes) * size_of::<u32>();
        let fences = PIECE_FENCES_MAX * size_of::<Fence>();
        options.buffer_bytes + starts + FENCE_PIECE_BYTES + fences
    }

    /// Memory held now: more than [`Self::memory_bytes`] only while a record or block larger than the
    /// buffer is in the window.
    pub const fn held_bytes(&self) -> usize {
        self.window.capacity()
            + self.starts.capacity() * size_of::<u32>()
            + self.piece.bytes.capacity()
            + self.piece.fences.capacity() * size_of::<Fence>()
    }

    /// The segment.
    pub const fn segment(&self) -> &Arc<Segment> {
        &self.segment
    }

    /// The record under the cursor; `None` in front of the first and behind the last.
    pub fn current(&self) -> Option<RecordRef<'_>> {
        let Position::At(offset, layout) = &self.position else {
            return None;
        };
        let bytes = self.window.from(*offset);
        Some(RecordRef {
            keyspace: layout.keyspace,
            key: bytes.get(layout.key.clone())?,
            sequence: layout.sequence,
            kind: layout.kind,
            value: bytes.get(layout.value.clone())?,
        })
    }

    /// Goes to the first record; `false` if there is none.
    pub fn seek_first(&mut self, counts: &mut ReadCounts) -> Result<bool> {
        self.place(Position::Before);
        self.next(counts)
    }

    /// Goes to the last record; `false` if there is none.
    pub fn seek_last(&mut self, counts: &mut ReadCounts) -> Result<bool> {
        self.place(Position::After);
        self.prev(counts)
    }

    /// Goes to the next record; `false` behind the last one.
    #[allow(
        clippy::should_implement_trait,
        reason = "a cursor goes both ways and can fail"
    )]
    pub fn next(&mut self, counts: &mut ReadCounts) -> Result<bool> {
        let records = self.places(counts)?.records;
        let at = match self.take_position()? {
            Position::At(offset, layout) => {
                self.note_start(offset);
                offset + layout.padded_bytes
            }
            Position::After => records.end(),
            _ => records.offset,
        };
        if at == records.end() {
            self.position = Position::After;
            return Ok(false);
        }
        self.settle(at, self.want_bytes, counts)?;
        Ok(true)
    }

    /// Goes to the record before; `false` in front of the first one.
    pub fn prev(&mut self, counts: &mut ReadCounts) -> Result<bool> {
        let records = self.places(counts)?.records;
        let at = match self.take_position()? {
            Position::At(offset, _) => offset,
            Position::After => records.end(),
            _ => records.offset,
        };
        if at == records.offset {
            self.position = Position::Before;
            return Ok(false);
        }
        if self.starts.is_empty() {
            self.read_back(at, counts)?;
        }
        let Some(start) = self.starts.pop() else {
            return Err(self
                .segment
                .damage(OPERATION, at, "no record before this one"));
        };
        let start = self.window.offset() + u64::from(start) * UNIT_BYTES;
        self.settle(start, self.buffer_bytes, counts)?;
        Ok(true)
    }

    /// Notes where a record of the window starts.
    fn note_start(&mut self, at: u64) {
        if self.starts.capacity() == 0 {
            self.starts.reserve_exact(starts_max(self.buffer_bytes));
        }
        let units = (at - self.window.offset()) / UNIT_BYTES;
        // A window is a few buffers, or one block: below 2^35 bytes.
        self.starts.push(units as u32);
    }

    pub(super) fn places(&self, counts: &mut ReadCounts) -> Result<Places> {
        Ok(self.segment.tail(&self.files, counts)?.places())
    }

    /// Forgets the window and stands somewhere else.
    pub(super) fn place(&mut self, position: Position) {
        self.position = position;
        self.window.clear();
        self.starts.clear();
    }

    fn take_position(&mut self) -> Result<Position> {
        match std::mem::replace(&mut self.position, Position::Lost) {
            Position::Lost => Err(Error::invalid(
                OPERATION,
                "the cursor lost its place: seek first",
            )),
            position => Ok(position),
        }
    }

    /// Stands on the record at `at`.
    pub(super) fn settle(
        &mut self,
        at: u64,
        want_bytes: usize,
        counts: &mut ReadCounts,
    ) -> Result<()> {
        self.position = Position::Lost;
        let source = Source {
            segment: &self.segment,
            files: &self.files,
            records: self.places(counts)?.records,
            operation: OPERATION,
        };
        let before = self.window.offset();
        let layout = self.window.record(&source, at, want_bytes, counts)?;
        if self.window.offset() != before {
            self.starts.clear();
            self.want_bytes = self.buffer_bytes;
        }
        self.position = Position::At(at, layout);
        Ok(())
    }

    /// Reads the blocks in front of `end` that fit the buffer (one at least) and notes their records.
    fn read_back(&mut self, end: u64, counts: &mut ReadCounts) -> Result<()> {
        let segment = self.segment.clone();
        let places = self.places(counts)?;
        let start = self.block_start_before(places, end, counts)?;
        let source = Source {
            segment: &segment,
            files: &self.files,
            records: places.records,
            operation: OPERATION,
        };
        self.window
            .fill(&source, start, (end - start) as usize, counts)?;
        let mut at = start;
        while at < end {
            let record = record::decode(self.window.from(at))
                .map_err(|what| segment.damage(OPERATION, at, what))?;
            self.note_start(at);
            at = at.saturating_add(record.padded_bytes);
        }
        match at == end {
            true => Ok(()),
            false => Err(segment.damage(OPERATION, start, "records do not fill their block")),
        }
    }

    /// The start of the earliest block from which on everything up to `end` fits the buffer, within
    /// one piece of fences; of the last block before `end` if none does.
    fn block_start_before(
        &mut self,
        places: Places,
        end: u64,
        counts: &mut ReadCounts,
    ) -> Result<u64> {
        self.load_piece_before(places, end, counts)?;
        let fences = &self.piece.fences;
        let mut start = None;
        for fence in fences.iter().rev().filter(|fence| fence.offset < end) {
            if start.is_some() && end - fence.offset > self.buffer_bytes as u64 {
                break;
            }
            start = Some(fence.offset);
        }
        match start.filter(|start| *start >= places.records.offset) {
            Some(start) => Ok(start),
            None => Err(self.segment.damage(
                OPERATION,
                places.key_fences.offset,
                "no key fence before a record",
            )),
        }
    }

    /// Loads the piece that has the last fence in front of `end`.
    fn load_piece_before(
        &mut self,
        places: Places,
        end: u64,
        counts: &mut ReadCounts,
    ) -> Result<()> {
        let pieces = places.fence_piece_count();
        let first_before = |piece: &Piece| piece.fences.first().is_some_and(|f| f.offset < end);
        if let Some(number) = self.piece.number {
            let reaches = self
                .piece
                .fences
                .last()
                .is_some_and(|fence| fence.offset >= end);
            if first_before(&self.piece) && (reaches || number + 1 == pieces) {
                return Ok(());
            }
            if !first_before(&self.piece) && number > 0 {
                // Going back step by step: the piece before is the likely one.
                self.load_piece(places, number - 1, counts)?;
                if first_before(&self.piece) {
                    return Ok(());
                }
            }
        }
        let (mut low, mut high) = (0, pieces);
        while low + 1 < high {
            let middle = low.midpoint(high);
            self.load_piece(places, middle, counts)?;
            match first_before(&self.piece) {
                true => low = middle,
                false => high = middle,
            }
        }
        self.load_piece(places, low, counts)
    }

    /// Loads a piece of key fences, unless it is loaded.
    pub(super) fn load_piece(
        &mut self,
        places: Places,
        number: u64,
        counts: &mut ReadCounts,
    ) -> Result<()> {
        if self.piece.number == Some(number) {
            return Ok(());
        }
        self.piece.number = None;
        let span = places.fence_piece(number);
        let file = self.segment.file(&self.files, counts)?;
        self.piece.bytes.resize(span.bytes as usize, 0);
        let segment = &self.segment;
        segment.read(&file, OPERATION, span.offset, &mut self.piece.bytes, counts)?;
        let Piece { bytes, fences, .. } = &mut self.piece;
        decode_piece(bytes, number, segment.seeds(), fences)
            .map_err(|what| segment.damage(OPERATION, span.offset, what))?;
        self.piece.number = Some(number);
        Ok(())
    }
}

/// Records that a buffer can hold.
const fn starts_max(buffer_bytes: usize) -> usize {
    buffer_bytes / record::RECORD_BYTES_MIN as usize + 1
}
