//! What a lookup learns from the table, without a lock.
//!
//! The order of loads is the argument (see the module above): the range, then the slots, then the marks and
//! the range's lower end again. All of them acquire.

use super::slot::{Place, SlotShape};
use super::{BUCKET_SLOTS, Window};
use crate::filter::simd::prefetch;
use crate::index::Entry;
use crate::sync::Ordering;
use crate::types::{KeyHash, KeyspaceKind};

/// Slots of two buckets.
const CANDIDATES_MAX: usize = 2 * BUCKET_SLOTS;

/// Slots with the key's fingerprint, newest first, and for which generations they are all there are.
#[derive(Debug)]
pub struct Probe {
    /// The oldest generation that is trusted.
    pub lo: u64,
    /// Behind the newest generation that is trusted.
    pub hi: u64,
    hash: KeyHash,
    place: Place,
    shape: SlotShape,
    /// The first `count` are candidates.
    slots: [u64; CANDIDATES_MAX],
    count: usize,
}

impl Probe {
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

    /// Keeps those of the slots in `matching`, a bit each, that are of one kind and of trusted generations,
    /// in order.
    #[inline]
    fn settle(&mut self, kind: KeyspaceKind, matching: u32) {
        let (shape, newest) = (self.shape, self.hi - 1);
        let mut kept = 0;
        let mut left = matching;
        while left != 0 {
            let at = left.trailing_zeros() as usize % CANDIDATES_MAX;
            left &= left - 1;
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

impl Window {
    /// Asks for the lines of a hash's buckets. Costs no wait.
    #[inline]
    pub fn prefetch(&self, hash: KeyHash) {
        for bucket in Place::of(hash, self.buckets).buckets {
            if let Some(first) = self.bucket(bucket).first() {
                prefetch(first);
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

    /// Looks a key's hash up. Nothing if the table can say nothing of it.
    #[inline]
    pub fn probe(&self, hash: KeyHash, kind: KeyspaceKind) -> Option<Probe> {
        let hi = self.hi.load(Ordering::Acquire);
        let lo = self.lo.load(Ordering::Acquire);
        if lo >= hi {
            return None;
        }
        let place = Place::of(hash, self.buckets);
        // Every slot to a place of its own, so that no load waits for what an earlier one brought.
        let mut slots = [0; CANDIDATES_MAX];
        let mut matching = 0;
        let buckets = place.buckets.map(|bucket| self.bucket(bucket));
        for (half, bucket) in slots.chunks_exact_mut(BUCKET_SLOTS).zip(buckets) {
            for (to, slot) in half.iter_mut().zip(bucket) {
                *to = slot.load(Ordering::Acquire);
            }
        }
        for (at, slot) in slots.iter().enumerate() {
            matching |= u32::from(*slot != 0 && place.matches(*slot)) << at;
        }
        let mut lo = lo.max(self.lo.load(Ordering::Acquire));
        for bucket in buckets {
            let mark = bucket.last();
            lo = lo.max(mark.map_or(u64::MAX, |mark| mark.load(Ordering::Acquire)));
        }
        if lo >= hi {
            return None;
        }
        let mut probe = Probe {
            lo,
            hi,
            hash,
            place,
            shape: self.shape,
            slots,
            count: 0,
        };
        if matching != 0 {
            probe.settle(kind, matching);
        }
        Some(probe)
    }

    /// Whether the table can't tell a key with this hash from that of the probe.
    pub fn is_alike(&self, probe: &Probe, hash: KeyHash) -> bool {
        probe.place.is_alike(&Place::of(hash, self.buckets))
    }
}
