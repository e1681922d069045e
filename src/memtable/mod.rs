//! The records of one generation in memory: written once, found by hash, read in order.
//!
//! ```text
//!  writer (one, under the commit lock)          who reads in order
//!     |  record bytes                              |  inserts what the leader has published
//!     v                                            v
//!  chunks  <--- refs (24 bytes a record) <---  ordered index (cursors, flush)
//!                 ^ older versions
//!                 |
//!              hash probe (get)  : newest version of each key, published or not
//! ```
//!
//! The bytes of a record are those of its log frame (see `log::record`): the leader writes them to
//! the log from here, and a flush reads them from here. Nothing is encoded twice.
//!
//! Invariants:
//!
//! * Nothing that a reader can reach changes, but for links and probe slots, which are single words
//!   stored with `Release` after all that they lead to.
//! * All memory comes out of permits, and an append takes all it needs before it changes anything: it
//!   is refused whole or done whole. [`MemtableWriter::cost_bytes`] bounds it beforehand.
//! * A commit is found by [`Memtable::get`] from its append on, and by cursors that seek after its
//!   publishing. Readers with a bound skip later versions, so the moment of either shows to nobody.
//! * Every version of every key stays until the memtable goes. A version is shadowed if another
//!   commit wrote its key later; it is counted by kind of keyspace.
//! * The bytes of the whole memtable have one owner, changed at once by [`Memtable::move_to`], and
//!   are free again when the last handle goes.
//!
//! There is no crash argument: what is here is in the log too, before anybody is told that it is safe.
//!
//! Figures, from a release build on one core of a 2-core virtual machine with 32 MiB of shared cache:
//! 60,000 commits of one record (32-byte key, 100-byte value) in a memtable for 60,000, so a half full
//! table; best of 5 runs; a random order of keys against a sorted one; hash bits make no difference:
//!
//! ```text
//!                                      random    sorted
//! append, ns a record                      82        82
//! into the order one by one, ns a record   654        46   (before readers ordered, sorted)
//! get of an absent key, ns                 52        52
//! get of a present key in cache, ns        51        51
//! get of a present key at random, ns  320-370   285-470   (four or five cache misses)
//! scan, ns a record                       128        23
//! ```

#![deny(unsafe_code)]

mod counts;
mod cursor;
mod encode;
mod found;
mod ordered;
mod probe;
mod refs;
mod shape;
mod space;
mod writer;

#[cfg(test)]
mod model_tests;
#[cfg(test)]
mod stress_tests;
#[cfg(test)]
mod tests;

use std::fmt;

use counts::Counts;
use ordered::{Ordered, Target};
use probe::{Probe, Walk, mix};
use refs::{BLOCK_RECORDS_MAX, Refs};
use space::Space;

pub use counts::KindCounts;
pub use cursor::{Cursor, MemCursor, OwnedMemCursor};
pub use encode::Detached;
pub use found::{EntryRef, Found, ValueRef};
pub use shape::{BatchShape, Op, Refusal};
pub use space::Slices;
pub use writer::MemtableWriter;

use crate::log::record::{RECORD_ALIGN, encoded_len};
use crate::memory::{ChunkWriter, Owner, Permit, Region};
use crate::sync::{Arc, Mutex};
use crate::types::{KeyHash, KeyspaceId, KeyspaceKind, Sequence};

/// Older versions that a lookup steps over before it asks the ordered index instead.
const OLDER_STEPS_MAX: u32 = 16;

/// Sizes of a memtable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemtableOptions {
    /// Refs are taken from the region in blocks of that many records, rounded up to a power of two
    /// from 4 to 32,768.
    pub block_records: u32,
    /// The most records it will ever hold, from 1 to 2^28; the probe table is made for them.
    pub records_max: u32,
    /// Decides the shape of the ordered index, together with the commits.
    pub height_seed: u64,
}

impl MemtableOptions {
    /// A block of about 16 KiB.
    pub const BLOCK_RECORDS: u32 = 512;

    fn block_records(&self) -> u32 {
        self.block_records
            .clamp(4, BLOCK_RECORDS_MAX)
            .next_power_of_two()
    }
}

/// A commit in a memtable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// Its sequence.
    pub sequence: Sequence,
    /// Number of its first record, from 1.
    pub first_ref: u32,
    /// Its records.
    pub count: u32,
    /// Bytes of its frame's payload.
    pub payload_len: u64,
    location: u32,
}

impl Appended {
    fn new(sequence: Sequence, first_ref: u32, shape: &BatchShape) -> Self {
        Self {
            sequence,
            first_ref,
            count: shape.records(),
            payload_len: shape.payload_bytes(),
            location: 0,
        }
    }
}

/// The records of one generation; shared by its readers, its writer and its publisher.
pub struct Memtable {
    // All that has buffers goes before the permit that holds their bytes.
    space: Space,
    refs: Refs,
    probe: Probe,
    ordered: Ordered,
    counts: Counts,
    chunk_bytes: u32,
    block_records: u32,
    records_max: u32,
    permit: Mutex<Permit>,
}

impl Memtable {
    /// Region bytes that an empty memtable takes: itself, the probe table, and the lists of chunks
    /// and blocks.
    pub fn base_bytes(region: &Region, options: &MemtableOptions) -> u64 {
        size_of::<Self>() as u64
            + Space::bytes_of(region)
            + Refs::list_bytes(options.block_records(), options.records_max)
            + 4 * Probe::slots_of(options.records_max) as u64
    }

    /// The most that a batch can take of any memtable with these options, whatever is in it.
    pub fn cost_bytes_max(region: &Region, options: &MemtableOptions, shape: &BatchShape) -> u64 {
        let block_records = options.block_records();
        let blocks = shape.records().div_ceil(block_records);
        shape.chunks_fresh() * u64::from(region.chunk_bytes())
            + u64::from(blocks) * Refs::block_bytes(block_records)
    }

    /// The most that a memtable with these options can hold, when all its frames together have
    /// `payload_bytes`, no key is longer than `key_bytes_max`, and frames are detached only if they
    /// are [large](BatchShape::is_large).
    ///
    /// A chunk is left with less room than a head, or with less than the head that went on from it
    /// then took of the next one, or because a large frame brought a chunk with more room.
    pub fn bytes_max(
        region: &Region,
        options: &MemtableOptions,
        payload_bytes: u64,
        key_bytes_max: usize,
    ) -> u64 {
        let chunk_bytes = u64::from(region.chunk_bytes());
        let head_bytes = encoded_len(key_bytes_max, 0) as u64;
        let filled_bytes = chunk_bytes.saturating_sub(head_bytes) + RECORD_ALIGN as u64;
        let by_heads = payload_bytes.div_ceil(filled_bytes);
        let by_pairs = 2 * payload_bytes / chunk_bytes + 1;
        let by_large = payload_bytes / chunk_bytes + 1;
        let blocks = options.records_max.div_ceil(options.block_records());
        Self::base_bytes(region, options)
            + (by_heads.min(by_pairs) + by_large) * chunk_bytes
            + u64::from(blocks) * Refs::block_bytes(options.block_records())
    }

    /// A memtable's head and lists, without any bytes of the region.
    pub fn blank(region: &Region, options: &MemtableOptions) -> Arc<Self> {
        let block_records = options.block_records();
        Arc::new(Self {
            space: Space::new(region),
            refs: Refs::new(block_records, options.records_max, options.height_seed),
            probe: Probe::none(region),
            ordered: Ordered::new(),
            counts: Counts::default(),
            chunk_bytes: region.chunk_bytes(),
            block_records,
            records_max: options.records_max,
            permit: Mutex::new(region.nothing(Owner::Retiring)),
        })
    }

    /// Heap bytes of a blank one's lists.
    pub fn blank_bytes(region: &Region, options: &MemtableOptions) -> u64 {
        Space::bytes_of(region) + Refs::list_bytes(options.block_records(), options.records_max)
    }

    /// Makes it a blank one again: all buffers and bytes go back to the region. Its lists stay.
    pub fn clear(&mut self) {
        let region = self.permit.get_mut().region().clone();
        self.space.clear();
        self.refs.clear();
        self.probe = Probe::none(&region);
        self.ordered = Ordered::new();
        self.counts = Counts::default();
        // Behind all that had buffers.
        *self.permit.get_mut() = region.nothing(Owner::Retiring);
    }

    /// An empty memtable and its only writer. Takes [`Memtable::base_bytes`] out of the permit and
    /// becomes the `Open` owner's.
    pub fn create(
        options: &MemtableOptions,
        permit: &mut Permit,
    ) -> Result<(Arc<Self>, MemtableWriter), Refusal> {
        let blank = Self::blank(&permit.region().clone(), options);
        Self::create_in(blank, options, permit)
    }

    /// The same in the lists of a blank one, which has no other holder and was made with options that differ
    /// in the height seed alone; if that is not so, new ones are made.
    pub fn create_in(
        mut blank: Arc<Self>,
        options: &MemtableOptions,
        permit: &mut Permit,
    ) -> Result<(Arc<Self>, MemtableWriter), Refusal> {
        if !(1..=probe::RECORDS_MAX).contains(&options.records_max) {
            return Err(Refusal::InvalidOptions);
        }
        let region = permit.region().clone();
        let needed = Self::base_bytes(&region, options);
        let refusal = Refusal::PermitTooSmall {
            needed,
            given: permit.bytes(),
        };
        let mut own = permit.split(needed).ok_or(refusal)?;
        own.move_to(Owner::Open);
        let slots = Probe::slots_of(options.records_max);
        let (words, words_part) = own.words(slots).ok_or(refusal)?;
        own.absorb(words_part);
        let alike = (blank.records_max, blank.block_records, blank.chunk_bytes)
            == (
                options.records_max,
                options.block_records(),
                region.chunk_bytes(),
            );
        if !alike || Arc::get_mut(&mut blank).is_none() {
            blank = Self::blank(&region, options);
        }
        if let Some(memtable) = Arc::get_mut(&mut blank) {
            memtable.refs.set_height_seed(options.height_seed);
            memtable.probe = Probe::new(words, options.records_max);
            *memtable.permit.get_mut() = own;
        }
        let writer = MemtableWriter::new(blank.clone(), &region);
        Ok((blank, writer))
    }

    /// Lets cursors see a commit. Calls come one after the other, in the order of sequences; the
    /// writer and readers may be at work meanwhile.
    pub fn publish(&self, appended: &Appended) {
        debug_assert_eq!(appended.first_ref, self.published_records() + 1);
        self.counts.add_published(appended.sequence, appended.count);
    }

    /// The newest version of a key with `sequence <= bound`. With `Sequence::MAX` commits that are
    /// not published yet are seen too. `hash` must be the store's hash of (keyspace, key).
    pub fn get(
        &self,
        keyspace: KeyspaceId,
        key: &[u8],
        hash: KeyHash,
        bound: Sequence,
    ) -> Option<Found<'_>> {
        let mixed = mix(hash, keyspace, key);
        match self.walk(mixed, keyspace, key)? {
            Walk::Held { newest, .. } => {
                let node = self.version_at(newest, keyspace, key, bound)?;
                let entry = self.entry(node)?;
                Some(Found {
                    kind: entry.kind,
                    sequence: entry.sequence,
                    value: entry.value,
                })
            }
            Walk::Empty { .. } => None,
        }
    }

    /// From a key's newest version to the newest one within the bound.
    fn version_at(
        &self,
        newest: u32,
        keyspace: KeyspaceId,
        key: &[u8],
        bound: Sequence,
    ) -> Option<u32> {
        let offset = self.sequence_offset(bound)?;
        let mut node = newest;
        let mut steps = 0;
        while node != 0 && self.refs.sequence_offset(node) > offset {
            if steps == OLDER_STEPS_MAX && bound <= self.published_sequence() {
                // A key written often, read far back: all of it up to the bound can be had in order.
                self.order(u32::MAX);
                let target = Target::new(keyspace, key, offset);
                let found = self.first_from(&target);
                return (found != 0 && self.compare_key(found, &target).is_eq()).then_some(found);
            }
            node = self.refs.older(node);
            steps += 1;
        }
        (node != 0).then_some(node)
    }

    fn walk(&self, mixed: u64, keyspace: KeyspaceId, key: &[u8]) -> Option<Walk> {
        let target = Target::new(keyspace, key, 0);
        self.probe
            .walk(mixed, |node| self.compare_key(node, &target).is_eq())
    }

    fn entry(&self, node: u32) -> Option<EntryRef<'_>> {
        let record = self.space.record(self.refs.location(node));
        debug_assert!(record.is_some(), "a ref without its record");
        let record = record?;
        Some(EntryRef {
            keyspace: record.keyspace,
            key: record.key,
            sequence: self.first_sequence() + u64::from(self.refs.sequence_offset(node)),
            kind: record.kind,
            value: record.value,
        })
    }

    /// A cursor over published entries, standing nowhere.
    pub fn cursor(&self) -> MemCursor<'_> {
        Cursor::new(self)
    }

    /// A cursor where another one of this memtable [stood](Cursor::node): entries never move.
    pub fn cursor_at(&self, node: u32) -> MemCursor<'_> {
        Cursor::at(self, node)
    }

    /// The same as [`Memtable::cursor`], keeping the memtable alive.
    pub fn owned_cursor(self: &Arc<Self>) -> OwnedMemCursor {
        Cursor::new(self.clone())
    }

    /// The payload of a commit's frame, in the log's form, in pieces as large as they stand here.
    pub fn payload(&self, appended: &Appended) -> Slices<'_> {
        self.space.frame(appended.location, appended.payload_len)
    }

    /// Adds those pieces to a list.
    pub fn payload_slices<'a>(&'a self, appended: &Appended, out: &mut Vec<&'a [u8]>) {
        out.extend(self.payload(appended));
    }

    /// Changes the owner of all its bytes, at once.
    pub fn move_to(&self, owner: Owner) {
        self.permit.lock().move_to(owner);
    }

    /// Gives the region a list of chunks for the next writer.
    fn keep_list(&self, list: Vec<ChunkWriter>) {
        let region = self.permit.lock().region().clone();
        region.put_list(list);
    }

    fn absorb(&self, part: Permit) {
        self.permit.lock().absorb(part);
    }

    /// Region bytes that it holds.
    pub fn memory_bytes(&self) -> u64 {
        self.permit.lock().bytes()
    }

    /// Whose its bytes are.
    pub fn owner(&self) -> Owner {
        self.permit.lock().owner()
    }

    /// Numbers of one kind of keyspace.
    pub fn counts(&self, kind: KeyspaceKind) -> KindCounts {
        self.counts.of(kind)
    }

    /// Records of all commits appended.
    pub fn records(&self) -> u32 {
        KeyspaceKind::ALL
            .map(|kind| self.counts(kind).records())
            .iter()
            .sum()
    }

    /// Versions older than another commit's version of the same key, in keyspaces of a kind.
    pub fn shadowed(&self, kind: KeyspaceKind) -> u32 {
        self.counts(kind).shadowed
    }

    /// Records of all commits published.
    pub fn published_records(&self) -> u32 {
        self.counts.published_records()
    }

    /// Bytes of all frames' payloads.
    pub fn payload_bytes(&self) -> u64 {
        self.counts.payload_bytes()
    }

    /// The first sequence appended; 0 = none.
    pub fn first_sequence(&self) -> Sequence {
        self.counts.first_sequence()
    }

    /// The last sequence appended; 0 = none.
    pub fn last_sequence(&self) -> Sequence {
        self.counts.last_sequence()
    }

    /// The last sequence published; 0 = none.
    pub fn published_sequence(&self) -> Sequence {
        self.counts.published_sequence()
    }
}

impl fmt::Debug for Memtable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memtable")
            .field("first_sequence", &self.first_sequence())
            .field("last_sequence", &self.last_sequence())
            .field("records", &self.records())
            .field("memory_bytes", &self.memory_bytes())
            .finish_non_exhaustive()
    }
}
