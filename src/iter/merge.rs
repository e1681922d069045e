//! The merge of an iterator's sources in one direction.

use std::cmp::Ordering as Order;

use crate::engine::version::Generation;
use crate::error::Result;
use crate::memory::Permit;
use crate::memtable::{EntryRef, MemCursor, Memtable};
use crate::segment::{CursorOptions, ReadCounts, Segment, SegmentCursor};
use crate::snapshot::ReaderPin;
use crate::sync::Arc;
use crate::types::{KeyspaceId, RecordKind, Sequence};

use super::memory::cursor_memory;

/// Versions of a key that a step in memory passes one by one before it searches.
const VERSIONS_PASSED_MAX: u32 = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    Forward,
    Backward,
}

/// Where a source starts, as seen in its direction.
#[derive(Clone, Copy, Debug)]
pub(super) enum From<'a> {
    /// At the keyspace's near end.
    End,
    /// At this key, included.
    At(&'a [u8]),
    /// Behind this key.
    Beyond(&'a [u8]),
}

/// One record on its way out.
#[derive(Debug, Default)]
pub(super) struct Item {
    pub key: Vec<u8>,
    pub value: Vec<u8>,
    sequence: Sequence,
    pub kind: RecordKind,
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
pub(super) struct Merge {
    keyspace: KeyspaceId,
    backward: bool,
    sources: Vec<Source>,
    heap: Vec<Head>,
    buffer_bytes: u32,
    _permit: Option<Permit>,
}

impl Merge {
    pub fn open(
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
    pub fn next(&mut self, pin: &ReaderPin) -> Result<Option<Item>> {
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

/// The key right after `key`.
fn successor(key: &[u8]) -> Vec<u8> {
    let mut next = Vec::with_capacity(key.len() + 1);
    next.extend_from_slice(key);
    next.push(0);
    next
}
