//! Iterators: one cursor per overlapping segment and generation, merged.
//!
//! A scan over S segments holds S cursors, whose buffers are taken by permit from the scan memory when
//! the first item is asked for; where memory is short each gets less, and below 4 KiB a cursor the
//! iterator fails with `Busy`. A generation in memory is not held: each step asks for it, and goes on in
//! the generation's segment once the memory has retired.
//!
//! Invariants: keys come in strictly ascending (from the back: descending) order; a key is decided by
//! its newest record within the bound; records newer than the bound are passed over; after an error
//! the iterator is at its end.

use std::cmp::Ordering as Order;
use std::ops::{Bound, RangeBounds};

use crate::engine::Engine;
use crate::engine::version::Generation;
use crate::error::{Error, ErrorKind, Result};
use crate::memory::{Caller, Owner, Permit};
use crate::memtable::{EntryRef, MemCursor, Memtable};
use crate::segment::{CursorOptions, ReadCounts, Segment, SegmentCursor};
use crate::snapshot::ReaderPin;
use crate::sync::Arc;
use crate::types::{KeyspaceId, RecordKind, Sequence};

/// Versions of a key that a step in memory passes one by one before it searches.
const VERSIONS_PASSED_MAX: u32 = 8;

/// The smallest buffer with which a segment is scanned.
const CURSOR_BYTES_MIN: u64 = 4096;

/// The records of a key range, as copies: `(key, value)` in key order, from either end.
///
/// It sees the store as it was when it was made. After an error it is at its end.
#[derive(Debug)]
pub struct Iter {
    pin: Arc<ReaderPin>,
    keyspace: KeyspaceId,
    lower: Bound<Vec<u8>>,
    upper: Bound<Vec<u8>>,
    front: Option<Merge>,
    back: Option<Merge>,
    front_key: Option<Vec<u8>>,
    back_key: Option<Vec<u8>>,
    ended: bool,
}

impl Iter {
    pub(crate) fn over<K: AsRef<[u8]>>(
        pin: Arc<ReaderPin>,
        keyspace: KeyspaceId,
        range: &impl RangeBounds<K>,
    ) -> Self {
        let own = |bound: Bound<&K>| bound.map(|key| key.as_ref().to_vec());
        Self::between(
            pin,
            keyspace,
            own(range.start_bound()),
            own(range.end_bound()),
        )
    }

    pub(crate) fn with_prefix(pin: Arc<ReaderPin>, keyspace: KeyspaceId, prefix: &[u8]) -> Self {
        let upper = match after_prefix(prefix) {
            Some(end) => Bound::Excluded(end),
            None => Bound::Unbounded,
        };
        Self::between(pin, keyspace, Bound::Included(prefix.to_vec()), upper)
    }

    fn between(
        pin: Arc<ReaderPin>,
        keyspace: KeyspaceId,
        lower: Bound<Vec<u8>>,
        upper: Bound<Vec<u8>>,
    ) -> Self {
        Self {
            pin,
            keyspace,
            lower,
            upper,
            front: None,
            back: None,
            front_key: None,
            back_key: None,
            ended: false,
        }
    }

    fn step(&mut self, direction: Direction) -> Option<Result<(Vec<u8>, Vec<u8>)>> {
        if self.ended {
            return None;
        }
        match self.advance(direction) {
            Ok(Some((key, value))) => {
                match direction {
                    Direction::Forward => set(&mut self.front_key, &key),
                    Direction::Backward => set(&mut self.back_key, &key),
                }
                Some(Ok((key, value)))
            }
            Ok(None) => {
                self.end();
                None
            }
            Err(error) => {
                self.end();
                Some(Err(error))
            }
        }
    }

    fn end(&mut self) {
        self.ended = true;
        self.front = None;
        self.back = None;
    }

    fn advance(&mut self, direction: Direction) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        self.pin.engine().check_open("scan")?;
        let mut merge = match direction {
            Direction::Forward => self.front.take(),
            Direction::Backward => self.back.take(),
        };
        let merge = match &mut merge {
            Some(merge) => merge,
            None => merge.insert(self.open(direction)?),
        };
        let item = loop {
            let Some(item) = merge.next(&self.pin)? else {
                break None;
            };
            if self.passed(direction, &item.key) {
                break None;
            }
            if item.kind == RecordKind::Value {
                break Some((item.key, item.value));
            }
        };
        let merge = std::mem::take(merge);
        match direction {
            Direction::Forward => self.front = Some(merge),
            Direction::Backward => self.back = Some(merge),
        }
        Ok(item)
    }

    /// Whether `key` lies beyond the range's far end, or where the other direction has been.
    fn passed(&self, direction: Direction, key: &[u8]) -> bool {
        match direction {
            Direction::Forward => {
                let beyond = match &self.upper {
                    Bound::Included(end) => key > end.as_slice(),
                    Bound::Excluded(end) => key >= end.as_slice(),
                    Bound::Unbounded => false,
                };
                beyond || self.back_key.as_deref().is_some_and(|back| key >= back)
            }
            Direction::Backward => {
                let beyond = match &self.lower {
                    Bound::Included(start) => key < start.as_slice(),
                    Bound::Excluded(start) => key <= start.as_slice(),
                    Bound::Unbounded => false,
                };
                beyond || self.front_key.as_deref().is_some_and(|front| key <= front)
            }
        }
    }

    fn open(&self, direction: Direction) -> Result<Merge> {
        let from = match direction {
            Direction::Forward => match &self.lower {
                Bound::Included(key) => From::At(key),
                Bound::Excluded(key) => From::Beyond(key),
                Bound::Unbounded => From::End,
            },
            Direction::Backward => match &self.upper {
                Bound::Included(key) => From::At(key),
                Bound::Excluded(key) => From::Beyond(key),
                Bound::Unbounded => From::End,
            },
        };
        Merge::open(&self.pin, self.keyspace, direction, from)
    }
}

impl Iterator for Iter {
    type Item = Result<(Vec<u8>, Vec<u8>)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.step(Direction::Forward)
    }
}

impl DoubleEndedIterator for Iter {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.step(Direction::Backward)
    }
}

impl std::iter::FusedIterator for Iter {}

fn set(slot: &mut Option<Vec<u8>>, key: &[u8]) {
    let slot = slot.get_or_insert_default();
    slot.clear();
    slot.extend_from_slice(key);
}

/// The smallest key above all that start with `prefix`; `None` if there is none.
fn after_prefix(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte != 0xFF)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end)
}

/// The key right after `key`.
fn successor(key: &[u8]) -> Vec<u8> {
    let mut next = Vec::with_capacity(key.len() + 1);
    next.extend_from_slice(key);
    next.push(0);
    next
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Forward,
    Backward,
}

/// Where a source starts, as seen in its direction.
#[derive(Clone, Copy, Debug)]
enum From<'a> {
    /// At the keyspace's near end.
    End,
    /// At this key, included.
    At(&'a [u8]),
    /// Behind this key.
    Beyond(&'a [u8]),
}

/// One record on its way out.
#[derive(Debug, Default)]
struct Item {
    key: Vec<u8>,
    value: Vec<u8>,
    sequence: Sequence,
    kind: RecordKind,
}

impl Item {
    fn of(entry: &EntryRef<'_>) -> Self {
        Self {
            key: entry.key.to_vec(),
            value: entry.value.to_vec(),
            sequence: entry.sequence,
            kind: entry.kind,
        }
    }
}

#[derive(Debug)]
enum Source {
    Memory {
        generation: Arc<Generation>,
        current: Option<Item>,
        /// Where the memtable's cursor stood: the way on is one step from there.
        node: u32,
    },
    Segment(Box<SegmentCursor>),
    /// While it is being moved.
    Vacant,
}

/// A source in the heap: most comparisons are decided by the front of its key, which is kept here, and
/// need not look into the source.
#[derive(Clone, Copy, Debug)]
struct Head {
    /// The key's first bytes as a number that rises in the direction of the merge.
    front: u64,
    place: usize,
}

/// The merge of all sources in one direction, as a binary heap.
#[derive(Debug, Default)]
struct Merge {
    keyspace: KeyspaceId,
    backward: bool,
    sources: Vec<Source>,
    heap: Vec<Head>,
    buffer_bytes: u32,
    _permit: Option<Permit>,
}

impl Merge {
    fn open(
        pin: &ReaderPin,
        keyspace: KeyspaceId,
        direction: Direction,
        from: From<'_>,
    ) -> Result<Self> {
        let engine = pin.engine();
        let kind = engine.keyspace_kind(keyspace);
        let runs = pin.version.runs[usize::from(kind.code())].iter();
        let segments: Vec<_> = runs
            .flat_map(|run| run.segments().iter())
            .filter(|segment| !segment.is_newer_than(pin.bound))
            .cloned()
            .collect();
        let cursors = (segments.len() + pin.version.generations.len()) as u64;
        let (permit, buffer_bytes) = cursor_memory(engine, cursors)?;
        let mut merge = Self {
            keyspace,
            backward: direction == Direction::Backward,
            sources: Vec::with_capacity(cursors as usize),
            heap: Vec::with_capacity(cursors as usize),
            buffer_bytes,
            _permit: Some(permit),
        };
        for generation in &pin.version.generations {
            merge.add_generation(pin, generation, from)?;
        }
        for segment in segments {
            merge.add_segment(pin, segment, from)?;
        }
        Ok(merge)
    }

    fn add_generation(
        &mut self,
        pin: &ReaderPin,
        generation: &Arc<Generation>,
        from: From<'_>,
    ) -> Result<()> {
        match self.memory_item(pin, generation, from, 0) {
            Some((current, node)) => {
                let generation = generation.clone();
                self.sources.push(Source::Memory {
                    generation,
                    current,
                    node,
                });
                self.enter(self.sources.len() - 1);
                Ok(())
            }
            None => self.add_runs_of(pin, generation, from),
        }
    }

    fn add_runs_of(
        &mut self,
        pin: &ReaderPin,
        generation: &Generation,
        from: From<'_>,
    ) -> Result<()> {
        let kind = pin.engine().keyspace_kind(self.keyspace);
        for run in generation.runs().iter().filter(|run| run.kind() == kind) {
            for segment in run.segments() {
                self.add_segment(pin, segment.clone(), from)?;
            }
        }
        Ok(())
    }

    fn add_segment(
        &mut self,
        pin: &ReaderPin,
        segment: Arc<Segment>,
        from: From<'_>,
    ) -> Result<()> {
        let files = pin.engine().files.clone();
        let options = CursorOptions {
            buffer_bytes: self.buffer_bytes as usize,
        };
        let mut cursor = SegmentCursor::new(segment, files, options);
        let mut counts = ReadCounts::default();
        let placed = self.place(&mut cursor, from, &mut counts);
        pin.engine().counters.add_scan(&counts);
        placed?;
        self.settle(pin, &mut cursor)?;
        self.sources.push(Source::Segment(Box::new(cursor)));
        self.enter(self.sources.len() - 1);
        Ok(())
    }

    fn place(
        &self,
        cursor: &mut SegmentCursor,
        from: From<'_>,
        counts: &mut ReadCounts,
    ) -> Result<bool> {
        let keyspace = self.keyspace;
        match (self.backward, from) {
            (false, From::End) => cursor.seek(keyspace, &[], Sequence::MAX, counts),
            (false, From::At(key)) => cursor.seek(keyspace, key, Sequence::MAX, counts),
            (false, From::Beyond(key)) => {
                cursor.seek(keyspace, &successor(key), Sequence::MAX, counts)
            }
            (true, From::End) => match self.following() {
                Some(next) => cursor.seek_before(next, &[], counts),
                None => cursor.seek_last(counts),
            },
            (true, From::At(key)) => cursor.seek_before(keyspace, &successor(key), counts),
            (true, From::Beyond(key)) => cursor.seek_before(keyspace, key, counts),
        }
    }

    /// The id after this keyspace's; `None` for the very last.
    fn following(&self) -> Option<KeyspaceId> {
        self.keyspace.0.checked_add(1).map(KeyspaceId)
    }

    /// Moves a cursor past records that the bound hides.
    fn settle(&self, pin: &ReaderPin, cursor: &mut SegmentCursor) -> Result<()> {
        while cursor
            .current()
            .is_some_and(|record| record.sequence > pin.bound)
        {
            self.move_cursor(pin, cursor)?;
        }
        Ok(())
    }

    fn move_cursor(&self, pin: &ReaderPin, cursor: &mut SegmentCursor) -> Result<()> {
        let mut counts = ReadCounts::default();
        let moved = if self.backward {
            cursor.prev(&mut counts)
        } else {
            cursor.next(&mut counts)
        };
        pin.engine().counters.add_scan(&counts);
        moved.map(|_| ())
    }

    /// The generation's first key from `from` on that the bound admits, with its newest admitted record,
    /// and where it stands; `None` if the memory has retired. `node` is where the item before stood.
    fn memory_item(
        &self,
        pin: &ReaderPin,
        generation: &Generation,
        from: From<'_>,
        node: u32,
    ) -> Option<(Option<Item>, u32)> {
        let guard = generation.memory();
        let memory = guard.as_ref()?;
        let mut cursor = match (self.backward, from) {
            (false, From::Beyond(_)) if node != 0 => {
                let mut cursor = memory.cursor_at(node);
                cursor.next();
                cursor
            }
            _ => self.memory_place(memory, from),
        };
        let mut passed = 0;
        loop {
            let Some(entry) = cursor.entry() else {
                return Some((None, 0));
            };
            if entry.keyspace != self.keyspace {
                return Some((None, 0));
            }
            let known = matches!(from, From::Beyond(key) if key == entry.key);
            if self.backward {
                // The oldest version of a key: the search goes on to the newest one within the bound.
                let key = entry.key.to_vec();
                cursor.seek(self.keyspace, &key, pin.bound);
                if let Some(entry) = cursor.entry()
                    && entry.keyspace == self.keyspace
                    && entry.key == key
                {
                    return Some((Some(Item::of(&entry)), 0));
                }
                cursor.seek_before(self.keyspace, &key, Sequence::MAX);
            } else if !known && entry.sequence <= pin.bound {
                return Some((Some(Item::of(&entry)), cursor.node()));
            } else if passed < VERSIONS_PASSED_MAX {
                // Another version of the key before, or one that is newer than the bound.
                passed += 1;
                cursor.next();
            } else {
                let key = entry.key.to_vec();
                let bound = if known { 0 } else { pin.bound };
                cursor.seek(self.keyspace, &key, bound);
                passed = 0;
                if known && cursor.entry().is_some_and(|entry| entry.key == key) {
                    cursor.next();
                }
            }
        }
    }

    /// A cursor at the first entry from `from` on, whatever its sequence.
    fn memory_place<'m>(&self, memory: &'m Memtable, from: From<'_>) -> MemCursor<'m> {
        let mut cursor = memory.cursor();
        match (self.backward, from) {
            (false, From::End) => cursor.seek(self.keyspace, &[], Sequence::MAX),
            (false, From::At(key)) => cursor.seek(self.keyspace, key, Sequence::MAX),
            (false, From::Beyond(key)) => cursor.seek(self.keyspace, key, 0),
            (true, From::End) => match self.following() {
                Some(next) => cursor.seek_before(next, &[], Sequence::MAX),
                None => cursor.seek_last(),
            },
            (true, From::At(key)) => {
                cursor.seek_before(self.keyspace, &successor(key), Sequence::MAX);
            }
            (true, From::Beyond(key)) => cursor.seek_before(self.keyspace, key, Sequence::MAX),
        }
        cursor
    }

    /// The next key's newest record, tombstones included.
    fn next(&mut self, pin: &ReaderPin) -> Result<Option<Item>> {
        let Some(first) = self.heap.first().copied() else {
            return Ok(None);
        };
        let item = self.take(first.place);
        // Older records of the same key in other sources.
        self.advance(pin, first.place, &item.key)?;
        let front = self.front(&item.key);
        while let Some(top) = self.heap.first().copied()
            && top.front == front
            && self
                .peek(top.place)
                .is_some_and(|(key, _)| key == item.key.as_slice())
        {
            self.advance(pin, top.place, &item.key)?;
        }
        Ok(Some(item))
    }

    fn take(&mut self, place: usize) -> Item {
        match &mut self.sources[place] {
            Source::Memory { current, .. } => current.take().unwrap_or_default(),
            Source::Segment(cursor) => match cursor.current() {
                Some(record) => Item {
                    key: record.key.to_vec(),
                    value: record.value.to_vec(),
                    kind: record.kind,
                    sequence: record.sequence,
                },
                None => Item::default(),
            },
            Source::Vacant => Item::default(),
        }
    }

    /// Moves the heap's first source past `key`.
    fn advance(&mut self, pin: &ReaderPin, place: usize, key: &[u8]) -> Result<()> {
        let source = std::mem::replace(&mut self.sources[place], Source::Vacant);
        match source {
            Source::Memory {
                generation, node, ..
            } => {
                let from = From::Beyond(key);
                let found = self.memory_item(pin, &generation, from, node);
                let retired = found.is_none();
                let (current, node) = found.unwrap_or_default();
                self.sources[place] = Source::Memory {
                    generation: generation.clone(),
                    current,
                    node,
                };
                self.sift_first();
                if retired {
                    self.add_runs_of(pin, &generation, from)?;
                }
            }
            Source::Segment(mut cursor) => {
                while cursor
                    .current()
                    .is_some_and(|r| r.keyspace == self.keyspace && r.key == key)
                {
                    self.move_cursor(pin, &mut cursor)?;
                }
                self.settle(pin, &mut cursor)?;
                self.sources[place] = Source::Segment(cursor);
                self.sift_first();
            }
            Source::Vacant => self.sift_first(),
        }
        Ok(())
    }

    fn peek(&self, place: usize) -> Option<(&[u8], Sequence)> {
        match &self.sources[place] {
            Source::Memory { current, .. } => current
                .as_ref()
                .map(|item| (item.key.as_slice(), item.sequence)),
            Source::Segment(cursor) => cursor
                .current()
                .filter(|record| record.keyspace == self.keyspace)
                .map(|record| (record.key, record.sequence)),
            Source::Vacant => None,
        }
    }

    fn front(&self, key: &[u8]) -> u64 {
        let front = key_front(key);
        if self.backward { !front } else { front }
    }

    /// A source as it enters the heap; `None` at its end.
    fn head(&self, place: usize) -> Option<Head> {
        let (key, _) = self.peek(place)?;
        let front = self.front(key);
        Some(Head { front, place })
    }

    /// Order of two sources that both have a record: by key in the direction, newest first.
    fn before(&self, a: Head, b: Head) -> bool {
        if a.front != b.front {
            return a.front < b.front;
        }
        match (self.peek(a.place), self.peek(b.place)) {
            (Some((key_a, sequence_a)), Some((key_b, sequence_b))) => {
                let keys = if self.backward {
                    key_b.cmp(key_a)
                } else {
                    key_a.cmp(key_b)
                };
                keys.then(sequence_b.cmp(&sequence_a)) == Order::Less
            }
            (Some(_), None) => true,
            (None, _) => false,
        }
    }

    /// Puts a new source into the heap, unless it is at its end.
    fn enter(&mut self, place: usize) {
        if let Some(head) = self.head(place) {
            self.heap.push(head);
            self.sift_up(self.heap.len() - 1);
        }
    }

    fn sift_up(&mut self, mut child: usize) {
        while child > 0 {
            let parent = (child - 1) / 2;
            if !self.before(self.heap[child], self.heap[parent]) {
                break;
            }
            self.heap.swap(child, parent);
            child = parent;
        }
    }

    /// The first source has moved: restores the heap, dropping the source at its end.
    ///
    /// A source that stays first costs two comparisons. Any other goes down to a leaf, one comparison a
    /// level, and up again: among many sources its next key is most often among the last.
    fn sift_first(&mut self) {
        let Some(first) = self.heap.first().copied() else {
            return;
        };
        match self.head(first.place) {
            Some(head) => self.heap[0] = head,
            None => drop(self.heap.swap_remove(0)),
        }
        let Some(moved) = self.heap.first().copied() else {
            return;
        };
        let stays =
            (1..=2).all(|child| child >= self.heap.len() || self.before(moved, self.heap[child]));
        if stays {
            return;
        }
        let mut parent = 0;
        while 2 * parent + 1 < self.heap.len() {
            let (left, right) = (2 * parent + 1, 2 * parent + 2);
            let right_first =
                right < self.heap.len() && self.before(self.heap[right], self.heap[left]);
            let child = if right_first { right } else { left };
            self.heap.swap(parent, child);
            parent = child;
        }
        self.sift_up(parent);
    }
}

/// The first 8 bytes of a key as a number of the same order.
fn key_front(key: &[u8]) -> u64 {
    match key.first_chunk::<8>() {
        Some(bytes) => u64::from_be_bytes(*bytes),
        None => {
            let mut bytes = [0; 8];
            bytes[..key.len()].copy_from_slice(key);
            u64::from_be_bytes(bytes)
        }
    }
}

/// Takes the buffers of `cursors` cursors, smaller ones where memory is short.
fn cursor_memory(engine: &Engine, cursors: u64) -> Result<(Permit, u32)> {
    let wanted = u64::from(engine.settings.cursor_buffer_bytes);
    let least = CURSOR_BYTES_MIN.min(wanted);
    let share = engine.scan_region.ledger().free_bytes() / 2 / cursors.max(1);
    let each = wanted.min(share.max(least));
    let permit = engine
        .scan_region
        .try_acquire_for(Caller::Scan, each * cursors, Owner::Scratch);
    let permit = permit.map_err(|shortage| {
        let needed = least * cursors;
        let limit = engine.scan_region.total_bytes();
        let kind = match needed <= limit {
            true => ErrorKind::Busy {
                needed: shortage.needed,
                free: shortage.free,
                pinned_by: None,
            },
            // Not even alone: there is nothing to wait for.
            false => ErrorKind::TooLarge { needed, limit },
        };
        let detail = format!("{cursors} cursors do not fit the scan memory (scan_bytes)");
        Error::new(kind, "scan", detail)
    })?;
    Ok((permit, each as u32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefix_ends() {
        assert_eq!(after_prefix(b"ab"), Some(b"ac".to_vec()));
        assert_eq!(after_prefix(b"a\xff"), Some(b"b".to_vec()));
        assert_eq!(after_prefix(b"\xff\xff"), None);
        assert_eq!(after_prefix(b""), None);
    }
}
