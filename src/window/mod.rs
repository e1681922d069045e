//! The window table: where each record of the newest segments lies, so that a lookup of a recent key reads
//! the record and nothing else, however many segments and folds there are.
//!
//! ```text
//! bucket, 64 bytes: 7 slots of 8 bytes | mark      a hash has two buckets
//! slot:  fingerprint, kind, generation, offset, size class, tombstone        (see `slot`)
//! mark:  slots of generations below this were dropped from the bucket; 0 = none
//! ```
//! Segments are named by generation and kind, which folds do not change. Both segments of a generation are
//! covered or none is. The *range* `lo .. hi` says which generations are.
//!
//! Invariants, for every generation that a reader may trust (see [`Probe`]):
//! * `hi` rises above it after all its entries were stored, and `lo` falls to it after that: whoever reads
//!   the range before his probe finds them all, but for what was dropped since.
//! * `lo` rises above it, or the mark of the bucket does, before a slot of it is overwritten: whoever
//!   meets the slot's successor has acquired either, and reads both after his probe.
//! * `lo` never falls once it has risen. Else a reader could read the old range twice and a probe between
//!   that missed what went and came back.
//! * All versions of a key keep their slots until their generation leaves or a mark tells of it, so what is
//!   found above the marks is all there is, and the newest of it the newest.
//!
//! A full pair of buckets drops its oldest slot. Slots of generations that left count as empty; a sweep
//! clears them before their number comes again.
//!
//! (`loom_tests` shows the order of stores and loads, `tests` the rest against a model.)
//!
//! One thread at a time changes the table, under a lock that no reader takes and nobody holds during I/O.

mod fill;
#[cfg(all(test, loom))]
mod loom_tests;
mod memory;
pub mod probe;
pub mod slot;
#[cfg(all(test, not(loom)))]
mod tests;

use std::collections::VecDeque;

use crate::index::{Entry, PackedEntry};
use crate::sync::{AtomicU64, Mutex, Ordering};
use crate::types::KeyspaceKind;

use memory::{BUCKET_BYTES, BUCKET_WORDS, Bucket, TableMemory};
pub use probe::{Probe, Slots};
use slot::{Place, SlotShape};

/// Slots of a bucket; the word behind them is its mark.
const BUCKET_SLOTS: usize = BUCKET_WORDS - 1;

/// Of 16 slots, how many are filled before the oldest generation leaves. Beyond that so many pairs are full
/// that more of the newest would be dropped than is won.
const FILL_SIXTEENTHS: u64 = 14;

/// The table. Cost of an entry: 9.1 bytes of a full one.
#[derive(Debug)]
pub struct Window {
    memory: TableMemory,
    buckets: usize,
    shape: SlotShape,
    /// The oldest generation covered.
    lo: AtomicU64,
    /// Behind the newest generation covered.
    hi: AtomicU64,
    /// Slots that were dropped because their buckets were full.
    dropped: AtomicU64,
    writer: Mutex<Writer>,
}

/// What the one who changes the table knows.
#[derive(Debug)]
struct Writer {
    /// The range as readers see it. Not read back from there: a model then sees each of its changes meet
    /// each of their loads.
    lo: u64,
    hi: u64,
    /// Slots of older generations count as empty. Below `lo` only while a generation is being filled in.
    floor: u64,
    /// No slot is of a newer generation.
    newest: u64,
    /// Live slots of each generation from `floor` on.
    live: VecDeque<u32>,
    /// Their sum.
    live_sum: u64,
    /// Whether older generations may still be filled in: not any more once one has left.
    fills: bool,
    /// Where the sweep goes on.
    sweep_at: usize,
}

/// What the table holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WindowStats {
    /// Its memory, in bytes.
    pub bytes: u64,
    /// Slots in use.
    pub entries: u64,
    /// Generations covered, the second one not.
    pub generations: (u64, u64),
    /// Slots that were dropped because their buckets were full.
    pub dropped: u64,
}

impl Window {
    /// An empty table of at most `bytes` for segments whose records end below `segment_bytes`. Nothing if
    /// two buckets do not fit, or the system has not so much. Takes its memory once and for all.
    pub fn new(bytes: u64, segment_bytes: u64) -> Option<Self> {
        let buckets = usize::try_from(bytes).ok()? / BUCKET_BYTES;
        Self::with_shape(buckets, SlotShape::for_segments(segment_bytes))
    }

    fn with_shape(buckets: usize, shape: SlotShape) -> Option<Self> {
        if buckets < 2 {
            return None;
        }
        Some(Self {
            memory: TableMemory::zeroed(buckets)?,
            buckets,
            shape,
            lo: AtomicU64::new(0),
            hi: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            writer: Mutex::new(Writer {
                lo: 0,
                hi: 0,
                floor: 0,
                newest: 0,
                live: VecDeque::new(),
                live_sum: 0,
                fills: true,
                sweep_at: 0,
            }),
        })
    }

    /// Before the first use: generations from `generation` on come by [`Self::insert`], older ones by
    /// [`Self::fill`].
    pub fn start(&mut self, generation: u64) {
        let writer = self.writer.get_mut();
        (writer.lo, writer.hi) = (generation, generation);
        (writer.floor, writer.newest) = (generation, generation);
        self.lo.store(generation, Ordering::Release);
        self.hi.store(generation, Ordering::Release);
    }

    /// The most slots in use.
    pub const fn entries_max(&self) -> u64 {
        (self.buckets * BUCKET_SLOTS) as u64 * FILL_SIXTEENTHS / 16
    }

    /// What it holds.
    pub fn stats(&self) -> WindowStats {
        let writer = self.writer.lock();
        WindowStats {
            bytes: (self.buckets * BUCKET_BYTES) as u64,
            entries: writer.live_sum,
            generations: (writer.lo, writer.hi),
            dropped: self.dropped.load(Ordering::Relaxed),
        }
    }

    /// Makes room for a segment of a generation that is not covered yet and newer than all that are; lets
    /// the oldest go for it. False if it does not fit: it is to be published without its entries.
    /// `tail_offset` is where its records have ended.
    pub fn reserve(&self, generation: u64, records: u64, tail_offset: u64) -> bool {
        let mut writer = self.writer.lock();
        if records > self.entries_max() || !self.shape.fits(tail_offset) {
            return false;
        }
        while writer.live_sum + records > self.entries_max()
            || generation.saturating_sub(writer.floor) >= self.shape.generations_max()
        {
            if writer.floor >= generation {
                // Its other segment takes the room.
                return false;
            }
            self.evict(&mut writer);
        }
        true
    }

    /// Lets the oldest generation go.
    fn evict(&self, writer: &mut Writer) {
        writer.fills = false;
        writer.floor += 1;
        let left = u64::from(writer.live.pop_front().unwrap_or(0));
        writer.live_sum -= left;
        // Only then may its slots be overwritten.
        if writer.lo < writer.floor {
            self.set_lo(writer, writer.floor);
        }
    }

    /// Stores entries of a segment that [`Self::reserve`] made room for. No reader finds them before
    /// [`Self::publish`]. Storing an entry again changes nothing. About 20 to 50 ns an entry.
    pub fn insert(&self, generation: u64, kind: KeyspaceKind, entries: &[PackedEntry]) {
        let mut writer = self.writer.lock();
        writer.newest = writer.newest.max(generation);
        for packed in entries {
            self.store(&mut writer, generation, kind, Entry::unpack(packed));
        }
    }

    /// The next generation is installed from now on: readers trust the table for it if it is `complete`,
    /// that is, if all entries of its segments were inserted. Else nothing older is covered, either.
    pub fn publish(&self, generation: u64, complete: bool) {
        let mut writer = self.writer.lock();
        let next = generation.saturating_add(1);
        let passed = next.saturating_sub(writer.hi);
        if !complete {
            writer.fills = false;
            writer.floor = next;
            writer.live.clear();
            writer.live_sum = 0;
            self.set_lo(&mut writer, next);
        }
        writer.newest = writer.newest.max(generation);
        writer.hi = next;
        self.hi.store(next, Ordering::Release);
        self.sweep(&mut writer, passed);
    }

    fn set_lo(&self, writer: &mut Writer, lo: u64) {
        writer.lo = lo;
        self.lo.store(lo, Ordering::Release);
    }

    #[inline]
    fn bucket(&self, bucket: usize) -> Option<&Bucket> {
        self.memory.buckets().get(bucket)
    }

    /// Stores one slot.
    fn store(&self, writer: &mut Writer, generation: u64, kind: KeyspaceKind, entry: Entry) {
        let place = Place::of(entry.hash(), self.buckets);
        let new = self.shape.pack(&place, kind, generation, entry);
        let mut empty: [(usize, Option<&AtomicU64>); 2] = [(0, None); 2];
        let mut oldest: Option<(u64, &AtomicU64, &AtomicU64)> = None;
        for (bucket, empty) in place.buckets.iter().zip(&mut empty) {
            let Some((mark, slots)) = self.bucket(*bucket).and_then(|it| it.split_last()) else {
                return;
            };
            for slot in slots {
                let word = slot.load(Ordering::Relaxed);
                let age = match word {
                    0 => None,
                    word => self.shape.generation(word, writer.newest),
                };
                match age.filter(|age| *age >= writer.floor) {
                    Some(_) if word == new => return,
                    Some(age) if oldest.is_none_or(|(old, ..)| age < old) => {
                        oldest = Some((age, slot, mark));
                    }
                    Some(_) => {}
                    None => *empty = (empty.0 + 1, Some(slot)),
                }
            }
        }
        let [first, second] = empty;
        let emptier = if second.0 > first.0 {
            second.1
        } else {
            first.1
        };
        match (emptier, oldest) {
            (Some(slot), _) => slot.store(new, Ordering::Release),
            (None, Some((age, slot, mark))) if age < generation => {
                self.raise(mark, age);
                slot.store(new, Ordering::Release);
                writer.count(age, -1);
            }
            (None, oldest) => {
                // It is itself the oldest.
                if let Some((_, _, mark)) = oldest {
                    self.raise(mark, generation);
                }
                return;
            }
        }
        writer.count(generation, 1);
    }

    /// Says in a bucket's mark that a slot of `generation` is not in it although it should be.
    fn raise(&self, mark: &AtomicU64, generation: u64) {
        let above = generation.saturating_add(1);
        if mark.load(Ordering::Relaxed) < above {
            mark.store(above, Ordering::Release);
        }
        self.dropped.fetch_add(1, Ordering::Relaxed);
    }

    /// Clears slots of generations that left: all of the table in a quarter of the modulus.
    fn sweep(&self, writer: &mut Writer, generations: u64) {
        let quarter = self.shape.modulus() / 4;
        let each = (self.buckets as u64).div_ceil(quarter);
        let count = each.saturating_mul(generations).min(self.buckets as u64);
        for _ in 0..count {
            let slots = self.bucket(writer.sweep_at).and_then(|it| it.split_last());
            for slot in slots.map_or(&[][..], |(_, slots)| slots) {
                let word = slot.load(Ordering::Relaxed);
                let age = self.shape.generation(word, writer.newest);
                if word != 0 && age.is_none_or(|age| age < writer.floor) {
                    slot.store(0, Ordering::Release);
                }
            }
            writer.sweep_at = (writer.sweep_at + 1) % self.buckets;
        }
    }
}

impl Writer {
    /// Counts a live slot in or out.
    fn count(&mut self, generation: u64, change: i32) {
        let Some(place) = generation.checked_sub(self.floor) else {
            return;
        };
        let place = place as usize;
        if self.live.len() <= place {
            self.live.resize(place + 1, 0);
        }
        if let Some(count) = self.live.get_mut(place) {
            *count = count.saturating_add_signed(change);
            self.live_sum = self.live_sum.saturating_add_signed(change.into());
        }
    }
}
