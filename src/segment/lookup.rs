//! Looks one key up by its hash: an index page, then the record.
//!
//! Cost of a hit: two reads, 4 KiB and the record's size class (less than a quarter longer than the
//! record). A record above the classes is read in two: its header, then the rest. A miss that no filter
//! caught: one read. In a mapped file each of these is an access to the mapping instead: page and record
//! are verified where they lie, and nothing is copied but what the caller takes. What can add to that: a first touch (one read); equal hashes of other keys, or
//! versions newer than the bound, before the wanted one (one read each); equal hashes across pages, or
//! a fence equal to the wanted one below the hash (one page each).
//!
//! Every record read must be what its entry says: class, tombstone, and a key with that hash. One that
//! is not is `Corruption` even if its checksum is right: else a misplaced entry would be a silent miss.

use std::ops::Range;

use super::ahead::{Asked, ReadAhead};
use super::buffers::{LookupBuffers, RecordBytes};
use super::files::{FileTable, OpenFile, Slotted};
use super::layout::{Places, Span};
use super::reader::{Segment, newer};
use super::record::{self, LENGTHS_BYTES, RecordLayout};
use super::{ReadCounts, footer::SEGMENT_VERSION};
use crate::env::Advice;
use crate::error::Result;
use crate::explain::{Cost, Step};
use crate::index::page::{PAGE_BYTES, PageView};
use crate::index::{
    Entry, LocationSplit, SIZE_CLASS_LARGE, first_page, packed_hash, size_class_bytes,
    size_class_of,
};
use crate::sync::Arc;
use crate::types::{KeyHash, KeyspaceId, RecordKind, Sequence};

/// What errors of reads say was being done.
pub const OPERATION: &str = "get";

/// What a segment knows of a key at a sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// Nothing.
    Absent,
    /// It was deleted.
    Tombstone {
        /// By this commit.
        sequence: Sequence,
    },
    /// It has a value: [`LookupBuffers::value`] gives the bytes.
    Value {
        /// By this commit.
        sequence: Sequence,
        /// Where the value is in the buffers.
        value: Range<usize>,
    },
    /// Not known yet: a read is wanted that is made with those of others ([`ReadAhead`]).
    Waits,
}

/// What is looked for.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// The key's hash.
    pub hash: KeyHash,
    /// Its keyspace.
    pub keyspace: KeyspaceId,
    /// The key.
    pub key: &'a [u8],
    /// Versions above this sequence do not count.
    pub bound: Sequence,
    /// Segments of generations from here on are known not to have it: the window table covers them.
    pub known_from: u64,
}

/// Where an index and its records are.
struct Source<'a> {
    files: &'a FileTable,
    /// The segments that ordinals count, newest first; the index's own file where there is none.
    records: &'a [Arc<Segment>],
    file: &'a OpenFile,
    places: &'a Places,
    split: LocationSplit,
}

impl Segment {
    /// The newest version of the key with a sequence not above the bound. `records` are the segments that
    /// a folded run's entries point to, newest first; a segment's own index needs none. Errors:
    /// `Corruption` for damage met on the way, `MissingFile`, `Io`, `TooManyOpenFiles`,
    /// `UnsupportedVersion`.
    pub fn lookup(
        self: &Arc<Self>,
        files: &FileTable,
        records: &[Arc<Segment>],
        wanted: &Wanted<'_>,
        buffers: &mut LookupBuffers,
        counts: &mut ReadCounts,
    ) -> Result<Lookup> {
        if self.is_newer_than(wanted.bound) {
            return Ok(Lookup::Absent);
        }
        let hash = wanted.hash;
        let tail = self.tail(files, counts)?;
        let page = first_page(tail.page_fences(), hash, tail.prefix_bits()) as u64;
        let places = tail.places();
        if page == places.page_count() {
            buffers.watch(counts, |cost| Step::NoPage {
                file: self.name(),
                cost,
            });
            return Ok(Lookup::Absent);
        }
        counts.candidates += 1;
        let found = self.with_file(files, counts, |file, counts| {
            let source = Source {
                files,
                records,
                file,
                places: &places,
                split: tail.split(),
            };
            self.search(&source, page, wanted, buffers, counts)
        })?;
        if found == Lookup::Absent {
            counts.false_candidates += 1;
        }
        Ok(found)
    }

    /// The record of an entry that the window table names, if it is of the wanted key and not newer than
    /// the bound. One read, of the record; a first touch adds the tail's. `is_alike` says whether a key
    /// with another hash may stand behind the entry: where it may not, the record is damage.
    #[inline]
    pub fn lookup_entry(
        self: &Arc<Self>,
        files: &FileTable,
        entry: Entry,
        is_alike: impl FnOnce(KeyHash) -> bool,
        wanted: &Wanted<'_>,
        buffers: &mut LookupBuffers,
        counts: &mut ReadCounts,
    ) -> Result<Lookup> {
        if self.is_newer_than(wanted.bound) {
            return Ok(Lookup::Absent);
        }
        let records = self.tail(files, counts)?.records();
        let offset = LocationSplit::SEGMENT.offset_bytes(entry.location());
        let (buffer, ahead) = (&mut buffers.record, buffers.ahead.as_deref_mut());
        let record = self.with_file(files, counts, |file, counts| {
            self.read_record(file, records, (entry, offset), buffer, ahead, counts)
        })?;
        let Some(record) = record else {
            return Ok(Lookup::Waits);
        };
        let key = buffer.get(record.key.clone()).unwrap_or_default();
        let is_wanted = record.keyspace == wanted.keyspace && key == wanted.key;
        if !is_wanted && !is_alike(self.hasher().hash(record.keyspace, key)) {
            let what = "the record's key has another hash than its place in memory";
            return Err(self.damage(OPERATION, offset, what));
        }
        let found = match is_wanted {
            true => told(record, wanted),
            false => None,
        };
        buffers.watch(counts, |cost| Step::Record {
            file: self.name(),
            offset,
            size_class_bytes: class_bytes(entry),
            tombstone: entry.tombstone(),
            wanted: found.is_some(),
            cost,
        });
        match found {
            Some(_) => counts.window_hits += 1,
            None => counts.window_false_candidates += 1,
        }
        Ok(found.unwrap_or(Lookup::Absent))
    }

    /// Tells the system of the index page that a lookup of a hash reads first, if its file is open and its
    /// tail known. Costs a system call and no wait.
    pub fn ask_for_page(&self, hash: KeyHash) {
        let Some(tail) = self.known_tail() else {
            return;
        };
        let page = first_page(tail.page_fences(), hash, tail.prefix_bits()) as u64;
        let places = tail.places();
        if page < places.page_count() {
            self.ask_for(places.page_offset(page), PAGE_BYTES);
        }
    }

    /// Tells the system that these bytes will be read, if the file is open.
    pub(super) fn ask_for(&self, offset: u64, bytes: usize) {
        if let Some(file) = &*self.slot().used() {
            let file = file.file();
            file.advise(Advice::WillNeed, offset, bytes as u64);
        }
    }

    /// Tries every entry with the hash, from `page` on.
    fn search(
        self: &Arc<Self>,
        source: &Source<'_>,
        mut page: u64,
        wanted: &Wanted<'_>,
        buffers: &mut LookupBuffers,
        counts: &mut ReadCounts,
    ) -> Result<Lookup> {
        let LookupBuffers {
            page: page_buffer,
            record,
            trace,
            ahead,
        } = buffers;
        page_buffer.resize(PAGE_BYTES, 0);
        let places = source.places;
        while page < places.page_count() {
            let offset = places.page_offset(page);
            let bytes = match self.mapped(source.file, OPERATION, offset, PAGE_BYTES, counts)? {
                Some(bytes) => bytes,
                None => {
                    let ahead = ahead.as_deref_mut();
                    if !self.read_or_wait(source.file, offset, page_buffer, ahead, counts)? {
                        return Ok(Lookup::Waits);
                    }
                    &*page_buffer
                }
            };
            let view = self.page(places, page, bytes, OPERATION)?;
            let mut index = view.lower_bound(wanted.hash);
            if let Some(trace) = trace {
                let cost = trace.cost_since(counts);
                trace.push(self.page_step(places, page, &view, wanted.hash, cost));
            }
            while let Some(entry) = view
                .entry(index)
                .filter(|entry| entry.hash() == wanted.hash)
            {
                let found = match source.records.is_empty() {
                    true => {
                        self.try_own(source, entry, wanted, record, ahead.as_deref_mut(), counts)?
                    }
                    false => self.try_other(
                        source,
                        (page, entry),
                        wanted,
                        record,
                        ahead.as_deref_mut(),
                        counts,
                    )?,
                };
                if let Some(trace) = trace {
                    let cost = trace.cost_since(counts);
                    trace.push(self.record_step(source, entry, found.is_some(), cost));
                }
                if let Some(found) = found {
                    return Ok(found);
                }
                record.release();
                index += 1;
            }
            if view.last_hash() > wanted.hash {
                break;
            }
            page += 1;
        }
        Ok(Lookup::Absent)
    }

    fn page_step(
        &self,
        places: &Places,
        page: u64,
        view: &PageView<'_>,
        hash: KeyHash,
        cost: Cost,
    ) -> Step {
        let equal = view
            .entries()
            .iter()
            .filter(|entry| packed_hash(entry) == hash);
        Step::Page {
            file: self.name(),
            page,
            pages: places.page_count(),
            entries: equal.count() as u64,
            cost,
        }
    }

    fn record_step(&self, source: &Source<'_>, entry: Entry, wanted: bool, cost: Cost) -> Step {
        let location = entry.location();
        let ordinal = usize::try_from(source.split.ordinal(location)).ok();
        let segment = ordinal.and_then(|ordinal| source.records.get(ordinal));
        Step::Record {
            file: segment.map_or(self.name(), |segment| segment.name()),
            offset: source.split.offset_bytes(location),
            size_class_bytes: class_bytes(entry),
            tombstone: entry.tombstone(),
            wanted,
            cost,
        }
    }

    /// Reads the record of an entry of the segment's own index; `None` if it is not the wanted key or is
    /// newer than the bound.
    fn try_own(
        self: &Arc<Self>,
        source: &Source<'_>,
        entry: Entry,
        wanted: &Wanted<'_>,
        buffer: &mut RecordBytes,
        ahead: Option<&mut ReadAhead>,
        counts: &mut ReadCounts,
    ) -> Result<Option<Lookup>> {
        let offset = LocationSplit::SEGMENT.offset_bytes(entry.location());
        let (file, records) = (source.file, source.places.records);
        let record = self.read_record(file, records, (entry, offset), buffer, ahead, counts)?;
        let Some(record) = record else {
            return Ok(Some(Lookup::Waits));
        };
        if self.is_of_other_key(&record, buffer, wanted, entry) {
            let what = "the record's key has another hash than its index entry";
            return Err(self.damage(OPERATION, offset, what));
        }
        Ok(judge(record, buffer, wanted))
    }

    /// The same for an entry of a folded run's index, whose record lies in one of its segments. What is
    /// wrong between the two is damage of the index, which can be made again from the segments.
    fn try_other(
        &self,
        source: &Source<'_>,
        (page, entry): (u64, Entry),
        wanted: &Wanted<'_>,
        buffer: &mut RecordBytes,
        ahead: Option<&mut ReadAhead>,
        counts: &mut ReadCounts,
    ) -> Result<Option<Lookup>> {
        let location = entry.location();
        let ordinal = usize::try_from(source.split.ordinal(location)).ok();
        let damage = |what| self.damage(OPERATION, source.places.page_offset(page), what);
        let segment = ordinal.and_then(|ordinal| source.records.get(ordinal));
        let segment = segment.ok_or_else(|| damage("an entry of a segment that the run lacks"))?;
        let is_known =
            wanted.known_from != u64::MAX && segment.generations().1 >= wanted.known_from;
        if is_known || segment.is_newer_than(wanted.bound) {
            return Ok(None);
        }
        let records = segment.tail(source.files, counts)?.records();
        let offset = source.split.offset_bytes(location);
        let record = segment.with_file(source.files, counts, |file, counts| {
            segment.read_record(file, records, (entry, offset), buffer, ahead, counts)
        })?;
        let Some(record) = record else {
            return Ok(Some(Lookup::Waits));
        };
        if segment.is_of_other_key(&record, buffer, wanted, entry) {
            return Err(damage("an entry of another hash than its record's key"));
        }
        Ok(judge(record, buffer, wanted))
    }

    /// Whether the record's key has another hash than the entry: then it is neither the wanted key nor one
    /// that shares its hash.
    fn is_of_other_key(
        &self,
        record: &RecordLayout,
        buffer: &RecordBytes,
        wanted: &Wanted<'_>,
        entry: Entry,
    ) -> bool {
        let key = buffer.get(record.key.clone()).unwrap_or_default();
        (record.keyspace != wanted.keyspace || key != wanted.key)
            && self.hasher().hash(record.keyspace, key) != entry.hash()
    }

    /// Reads and verifies the record of an entry, at an offset, into `buffer`; nothing if a read is to wait.
    #[inline]
    fn read_record(
        self: &Arc<Self>,
        file: &OpenFile,
        records: Span,
        (entry, offset): (Entry, u64),
        buffer: &mut RecordBytes,
        mut ahead: Option<&mut ReadAhead>,
        counts: &mut ReadCounts,
    ) -> Result<Option<RecordLayout>> {
        let damage = |what| self.damage(OPERATION, offset, what);
        if offset < records.offset || offset >= records.end() {
            return Err(damage("an index entry points outside the records"));
        }
        let available = records.end() - offset;
        let large = entry.size_class() == SIZE_CLASS_LARGE;
        let first_bytes = match large {
            true => LENGTHS_BYTES as u64,
            false => size_class_bytes(entry.size_class()),
        };
        let first_bytes = first_bytes.min(available) as usize;
        let first = 0..first_bytes;
        if !self.read_part(file, offset, first, buffer, ahead.as_deref_mut(), counts)? {
            return Ok(None);
        }
        let record = record::decode(buffer.first(first_bytes)).map_err(damage)?;
        if record.padded_bytes > available
            || size_class_of(record.padded_bytes) != entry.size_class()
            || (record.kind == RecordKind::Tombstone) != entry.tombstone()
        {
            return Err(damage("the record is not as its index entry says"));
        }
        let whole = record.value.end;
        if large && !self.read_part(file, offset, first_bytes..whole, buffer, ahead, counts)? {
            return Ok(None);
        }
        record::verify(buffer.first(whole), &record, self.record_base(), offset).map_err(damage)?;
        if record.unknown_flags != 0 {
            let found = SEGMENT_VERSION + 1;
            return Err(newer(
                OPERATION,
                self.name(),
                offset,
                found,
                "unknown record flags",
            ));
        }
        Ok(Some(record))
    }

    /// Reads a part of the record at `offset` into the same part of `buffer`, or lets it show where the
    /// record is mapped. False if the read is to wait.
    #[inline]
    fn read_part(
        self: &Arc<Self>,
        file: &OpenFile,
        offset: u64,
        part: Range<usize>,
        buffer: &mut RecordBytes,
        ahead: Option<&mut ReadAhead>,
        counts: &mut ReadCounts,
    ) -> Result<bool> {
        let from = offset + part.start as u64;
        let mapped = self.mapped(file, OPERATION, from, part.len(), counts)?;
        if let Some(mapping) = file.mapping().filter(|_| mapped.is_some()) {
            buffer.set_mapped(mapping, offset);
            return Ok(true);
        }
        self.read_or_wait(file, from, buffer.room(part), ahead, counts)
    }

    /// Reads, or takes what was read with others; false if it is to be read with others.
    #[inline]
    fn read_or_wait(
        self: &Arc<Self>,
        file: &OpenFile,
        offset: u64,
        buffer: &mut [u8],
        ahead: Option<&mut ReadAhead>,
        counts: &mut ReadCounts,
    ) -> Result<bool> {
        if let Some(ahead) = ahead {
            match ahead.ask(self, offset, buffer)? {
                Asked::Done => return Ok(true),
                Asked::Later => return Ok(false),
                Asked::Now => {}
            }
        }
        self.read(file, OPERATION, offset, buffer, counts)?;
        Ok(true)
    }
}

/// How much of a record is read at once; nothing where its header is read first.
fn class_bytes(entry: Entry) -> Option<u64> {
    match entry.size_class() {
        SIZE_CLASS_LARGE => None,
        class => Some(size_class_bytes(class)),
    }
}

/// What a record says of the wanted key: nothing if it is another one, or newer than the bound.
#[inline]
fn judge(record: RecordLayout, buffer: &RecordBytes, wanted: &Wanted<'_>) -> Option<Lookup> {
    let key = buffer.get(record.key.clone()).unwrap_or_default();
    match record.keyspace == wanted.keyspace && key == wanted.key {
        true => told(record, wanted),
        false => None,
    }
}

/// What a record of the wanted key says; nothing if it is newer than the bound.
#[inline]
fn told(record: RecordLayout, wanted: &Wanted<'_>) -> Option<Lookup> {
    if record.sequence > wanted.bound {
        return None;
    }
    let sequence = record.sequence;
    Some(match record.kind {
        RecordKind::Tombstone => Lookup::Tombstone { sequence },
        RecordKind::Value => Lookup::Value {
            sequence,
            value: record.value,
        },
    })
}
