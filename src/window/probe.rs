//! What a lookup learns from the table, without a lock.
//!
//! The order of loads is the argument (see the module above): the range, then the slots, then the marks and
//! the range's lower end again. All of them acquire. A slot that has the fingerprint is loaded a second time, to
//! be kept: what left between the two had the marks or the range raised before.

use super::memory::{BUCKET_WORDS, Bucket};
use super::slot::{Place, SlotShape};
use super::{BUCKET_SLOTS, Window};
use crate::filter::simd::prefetch;
use crate::index::Entry;
use crate::sync::Ordering;
use crate::types::{KeyHash, KeyspaceKind};

/// Slots of two buckets.
const CANDIDATES_MAX: usize = 2 * BUCKET_SLOTS;

/// Room for the slots that a probe finds.
#[derive(Debug, Default)]
pub struct Slots([u64; CANDIDATES_MAX]);

/// Slots with the key's fingerprint, newest first, and for which generations they are all there are.
#[derive(Debug)]
pub struct Probe<'a> {
    /// The oldest generation that is trusted.
    pub lo: u64,
    /// Behind the newest generation that is trusted.
    pub hi: u64,
    hash: KeyHash,
    place: Place,
    shape: SlotShape,
    /// The first `count` are candidates.
    slots: &'a mut [u64; CANDIDATES_MAX],
    count: usize,
}

impl Probe<'_> {
    /// Records that may be of the key, of trusted generations, newest first: each with its generation and
    /// what the index of its segment has of it.
    pub fn candidates(&self) -> impl Iterator<Item = (u64, Entry)> {
        self.slots.iter().take(self.count).map(|slot| {
            let generation = self.shape.generation(*slot, self.hi - 1);
            (generation.unwrap_or(0), self.shape.entry(*slot, self.hash))
        })
    }

    /// Whether there is any.
    #[inline]
    pub const fn has_candidates(&self) -> bool {
        self.count > 0
    }

    /// Takes the words that still have the fingerprint; those in `matching` had it a moment ago, a bit each.
    #[inline]
    fn gather(&mut self, buckets: [&Bucket; 2], matching: u32) {
        let mut left = matching;
        while left != 0 {
            let at = left.trailing_zeros() as usize;
            left &= left - 1;
            let word = &buckets[at / BUCKET_WORDS % 2][at % BUCKET_WORDS];
            let slot = word.load(Ordering::Acquire);
            if slot != 0 && self.place.matches(slot) && self.count < CANDIDATES_MAX {
                self.slots[self.count] = slot;
                self.count += 1;
            }
        }
    }

    /// Keeps those of the slots that are of one kind and of trusted generations, in order.
    #[inline]
    fn settle(&mut self, kind: KeyspaceKind) {
        let (shape, newest) = (self.shape, self.hi - 1);
        let mut kept = 0;
        for at in 0..self.count.min(CANDIDATES_MAX) {
            let slot = self.slots[at];
            let generation = shape.generation(slot, newest);
            let trusted = generation.is_some_and(|generation| generation >= self.lo);
            if trusted && SlotShape::kind_code(slot) == kind.code() {
                self.slots[kept] = slot;
                kept += 1;
            }
        }
        self.count = kept;
        if kept < 2 {
            return;
        }
        // Within a segment the records of one key lie newest first.
        self.slots[..kept].sort_unstable_by_key(|slot| {
            (newest - shape.generation(*slot, newest).unwrap_or(0), *slot)
        });
    }
}

impl Place {
    /// Which slots of a bucket have the fingerprint, a bit each; an empty one may. All are loaded without a
    /// branch, so that none waits for what an earlier one brought.
    #[inline]
    fn matching(&self, bucket: &Bucket) -> u32 {
        let mut matching = 0;
        for (at, slot) in bucket.iter().enumerate().take(BUCKET_SLOTS) {
            matching |= u32::from(self.matches(slot.load(Ordering::Acquire))) << at;
        }
        matching
    }
}

impl Window {
    /// Asks for the lines of a hash's buckets. Costs no wait.
    #[inline]
    pub fn prefetch(&self, hash: KeyHash) {
        for bucket in Place::of(hash, self.buckets).buckets {
            if let Some(bucket) = self.bucket(bucket) {
                prefetch(bucket);
            }
        }
    }

    /// The oldest generation covered, as far as it can be known before a probe. Nothing if the table covers
    /// none.
    #[inline]
    pub fn covered_from(&self) -> Option<u64> {
        let lo = self.lo.load(Ordering::Acquire);
        let hi = self.hi.load(Ordering::Acquire);
        (lo < hi).then_some(lo)
    }

    /// Looks a key's hash up. Nothing if the table can say nothing of it. What is found stands in `slots`.
    #[inline]
    pub fn probe<'a>(
        &self,
        hash: KeyHash,
        kind: KeyspaceKind,
        slots: &'a mut Slots,
    ) -> Option<Probe<'a>> {
        let hi = self.hi.load(Ordering::Acquire);
        let lo = self.lo.load(Ordering::Acquire);
        if lo >= hi {
            return None;
        }
        let place = Place::of(hash, self.buckets);
        let [first, second] = place.buckets;
        let buckets = [self.bucket(first)?, self.bucket(second)?];
        let matching = place.matching(buckets[0]) | place.matching(buckets[1]) << BUCKET_WORDS;
        let mut probe = Probe {
            lo,
            hi,
            hash,
            place,
            shape: self.shape,
            slots: &mut slots.0,
            count: 0,
        };
        if matching != 0 {
            probe.gather(buckets, matching);
        }
        let mut lo = lo.max(self.lo.load(Ordering::Acquire));
        for bucket in buckets {
            let mark = bucket.last();
            lo = lo.max(mark.map_or(u64::MAX, |mark| mark.load(Ordering::Acquire)));
        }
        if lo >= hi {
            return None;
        }
        probe.lo = lo;
        if probe.count > 0 {
            probe.settle(kind);
        }
        Some(probe)
    }

    /// Whether the table can't tell a key with this hash from that of the probe.
    pub fn is_alike(&self, probe: &Probe<'_>, hash: KeyHash) -> bool {
        probe.place.is_alike(&Place::of(hash, self.buckets))
    }
}
