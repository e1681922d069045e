//! Finding a place by key: a binary search over the key fences, then records one by one.
//!
//! Reads: about log2 of the fence pieces (one piece has a hundred fences or more), then one window. A
//! fence that is only a prefix of its block's first key, and of the wanted one, is settled by reading
//! that record: long shared prefixes add at most log2 of the blocks.

use std::cmp::{Ordering, Reverse};

use super::ReadCounts;
use super::cursor::{Position, RecordRef, SegmentCursor};
use super::fences::{FenceAnswer, SearchKey};
use super::layout::Places;
use crate::error::Result;
use crate::types::{KeyspaceId, Sequence};

/// Bytes read to see one record, while searching.
const PROBE_BYTES: usize = 1024;

/// A place in record order.
#[derive(Clone, Copy, Debug)]
struct Target<'a> {
    keyspace: KeyspaceId,
    key: &'a [u8],
    sequence: Sequence,
    search: SearchKey,
}

impl Target<'_> {
    /// How a record lies to the target.
    fn compare(&self, record: &RecordRef<'_>) -> Ordering {
        let place = (record.keyspace, record.key, Reverse(record.sequence));
        place.cmp(&(self.keyspace, self.key, Reverse(self.sequence)))
    }
}

impl SegmentCursor {
    /// Goes to the first record that is not before (keyspace, key, sequence descending): with
    /// `Sequence::MAX` the newest version of the key, or what follows it. `false` if there is none;
    /// the cursor then stands behind the last record.
    pub fn seek(
        &mut self,
        keyspace: KeyspaceId,
        key: &[u8],
        sequence: Sequence,
        counts: &mut ReadCounts,
    ) -> Result<bool> {
        let target = Target {
            keyspace,
            key,
            sequence,
            search: SearchKey::new(keyspace, key),
        };
        self.place(Position::Lost);
        let places = self.places(counts)?;
        if places.records.bytes == 0 {
            self.position = Position::After;
            return Ok(false);
        }
        let start = self.find_block(places, &target, counts)?;
        self.place(Position::Lost);
        self.want_bytes = (self.buffer_bytes / 4)
            .max(PROBE_BYTES)
            .min(self.buffer_bytes);
        self.settle(start, self.want_bytes, counts)?;
        while self
            .current()
            .is_some_and(|record| target.compare(&record) == Ordering::Less)
        {
            if !self.next(counts)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Goes to the last record before every version of the key; `false` if there is none, with the
    /// cursor in front of the first record.
    pub fn seek_before(
        &mut self,
        keyspace: KeyspaceId,
        key: &[u8],
        counts: &mut ReadCounts,
    ) -> Result<bool> {
        self.seek(keyspace, key, Sequence::MAX, counts)?;
        self.prev(counts)
    }

    /// The start of the last block from which the search may begin.
    fn find_block(
        &mut self,
        places: Places,
        target: &Target<'_>,
        counts: &mut ReadCounts,
    ) -> Result<u64> {
        // The last piece whose first fence lets the search begin there; the first one always does.
        let (mut low, mut high) = (0, places.fence_piece_count());
        while low + 1 < high {
            let middle = low.midpoint(high);
            self.load_piece(places, middle, counts)?;
            match self.may_begin(0, target, counts)? {
                true => low = middle,
                false => high = middle,
            }
        }
        self.load_piece(places, low, counts)?;
        let (mut low, mut high) = (0, self.piece.fences.len());
        while low + 1 < high {
            let middle = low.midpoint(high);
            match self.may_begin(middle, target, counts)? {
                true => low = middle,
                false => high = middle,
            }
        }
        let first = self.piece.fences.get(low).map(|fence| fence.offset);
        first.ok_or_else(|| {
            let offset = places.key_fences.offset;
            self.segment
                .damage(super::cursor::OPERATION, offset, "no key fences")
        })
    }

    /// Whether every record before the block of a fence is before the target.
    fn may_begin(
        &mut self,
        index: usize,
        target: &Target<'_>,
        counts: &mut ReadCounts,
    ) -> Result<bool> {
        let Some(fence) = self.piece.fences.get(index) else {
            return Ok(false);
        };
        match target
            .search
            .ask(fence.separator(&self.piece.bytes), fence.inexact)
        {
            FenceAnswer::HereOrLater => Ok(true),
            FenceAnswer::Before => Ok(false),
            FenceAnswer::AskRecord => {
                let offset = fence.offset;
                self.settle(offset, PROBE_BYTES.min(self.buffer_bytes), counts)?;
                let record = self.current();
                Ok(record.is_some_and(|record| target.compare(&record) == Ordering::Less))
            }
        }
    }
}
