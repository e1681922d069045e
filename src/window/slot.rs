//! Slots: where a record of a covered segment lies, in one word; and which buckets a hash may be in.
//!
//! ```text
//! +----------------+------------------------------------+---------------+--------------+
//! | 14 fingerprint | 43 location                        | 6 size class  | 1 tombstone  |
//! |                | 1 kind | generation | offset, 8 B  |               |              |
//! +----------------+------------------------------------+---------------+--------------+
//! ```
//! The generation stands modulo a power of two, at least four times as many as the table holds at once.
//! A record never starts at offset 0, so no slot is 0: that is an empty one.

use crate::index::{Entry, LOCATION_BITS, UNIT_BYTES};
use crate::types::{KeyHash, KeyspaceKind};

const CLASS_BITS: u32 = 6;
const LOCATION_SHIFT: u32 = CLASS_BITS + 1;
const FINGERPRINT_SHIFT: u32 = LOCATION_SHIFT + LOCATION_BITS;

/// Bits of a location beside the kind: generation and offset.
const SHARED_BITS: u32 = LOCATION_BITS - 1;

/// Generations are told apart modulo 16 at least.
const GENERATION_BITS_MIN: u32 = 4;

/// And modulo 2^18 at most: what is counted by generation stays small.
const GENERATION_BITS_MAX: u32 = 18;

/// How a location parts into generation and offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotShape {
    offset_bits: u32,
    generation_bits: u32,
}

/// Where a hash may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Two different ones.
    pub buckets: [usize; 2],
    /// The fingerprint, where it stands in a slot.
    fingerprint: u64,
}

impl Place {
    /// The place of a hash in a table of `buckets`, at least two.
    #[inline]
    pub const fn of(hash: KeyHash, buckets: usize) -> Self {
        let mixed = remix(hash.0);
        let count = buckets as u64;
        let first = fastrange(mixed, count);
        // Another one, whatever the bits: they come from a second multiplication.
        let step = fastrange(mixed.wrapping_mul(0x9E37_79B9_7F4A_7C15), count - 1);
        let second = first + 1 + step;
        let second = if second < count {
            second
        } else {
            second - count
        };
        Self {
            buckets: [first as usize, second as usize],
            fingerprint: mixed << FINGERPRINT_SHIFT,
        }
    }

    /// Whether a slot has the fingerprint. An empty one may.
    #[inline]
    pub const fn matches(&self, slot: u64) -> bool {
        (slot ^ self.fingerprint) >> FINGERPRINT_SHIFT == 0
    }

    /// Whether hashes of both places are one to the table.
    pub fn is_alike(&self, other: &Self) -> bool {
        let [first, second] = self.buckets;
        let same = other.buckets == [first, second] || other.buckets == [second, first];
        let touching = self.buckets.iter().any(|own| other.buckets.contains(own));
        self.fingerprint == other.fingerprint && (same || touching)
    }
}

impl SlotShape {
    /// The shape for segments whose records end below `bytes_max`.
    pub fn for_segments(bytes_max: u64) -> Self {
        let units = bytes_max / UNIT_BYTES;
        let needed = u64::BITS - units.leading_zeros();
        let offset_bits = needed.clamp(
            SHARED_BITS - GENERATION_BITS_MAX,
            SHARED_BITS - GENERATION_BITS_MIN,
        );
        Self {
            offset_bits,
            generation_bits: SHARED_BITS - offset_bits,
        }
    }

    /// The same offsets with as few bits for the generation as there may be.
    #[cfg(test)]
    pub fn narrow(self) -> Self {
        Self {
            generation_bits: GENERATION_BITS_MIN,
            ..self
        }
    }

    /// Whether all records of a file that has its tail at `tail_offset` can be named.
    pub const fn fits(&self, tail_offset: u64) -> bool {
        (tail_offset / UNIT_BYTES) >> self.offset_bits == 0
    }

    /// Generations count modulo this.
    pub const fn modulus(&self) -> u64 {
        1 << self.generation_bits
    }

    /// The most generations that a table may hold at once: slots of those that it held before stay until
    /// a sweep comes by, and a reader may be behind.
    pub const fn generations_max(&self) -> u64 {
        self.modulus() / 4
    }

    /// The slot of an entry of a segment's own index.
    pub const fn pack(
        &self,
        place: &Place,
        kind: KeyspaceKind,
        generation: u64,
        entry: Entry,
    ) -> u64 {
        // What does not fit is damage of an index, and points to damage.
        let units = entry.location() & ((1 << self.offset_bits) - 1);
        let shared = (generation & (self.modulus() - 1)) << self.offset_bits | units;
        let location = (kind.code() as u64) << SHARED_BITS | shared;
        place.fingerprint
            | location << LOCATION_SHIFT
            | (entry.size_class() as u64) << 1
            | entry.tombstone() as u64
    }

    /// The generation of a slot, given the newest that it can be of. Nothing if there is none so old.
    #[inline]
    pub const fn generation(&self, slot: u64, newest: u64) -> Option<u64> {
        let stored = slot >> (LOCATION_SHIFT + self.offset_bits);
        newest.checked_sub(newest.wrapping_sub(stored) & (self.modulus() - 1))
    }

    /// The code of the kind of a slot's segment.
    #[inline]
    pub const fn kind_code(slot: u64) -> u8 {
        (slot >> (LOCATION_SHIFT + SHARED_BITS)) as u8 & 1
    }

    /// The entry of the segment's own index that a slot was made of.
    #[inline]
    pub fn entry(&self, slot: u64, hash: KeyHash) -> Entry {
        let units = slot >> LOCATION_SHIFT & ((1 << self.offset_bits) - 1);
        let class = (slot >> 1) as u8 & ((1 << CLASS_BITS) - 1);
        Entry::new(hash, units, class, slot & 1 == 1)
    }
}

const fn fastrange(bits: u64, count: u64) -> u64 {
    ((bits as u128 * count as u128) >> 64) as u64
}

/// All bits from all bits: hashes may have few, all of them at the top of 46.
const fn remix(hash: u64) -> u64 {
    let mut x = hash ^ hash >> 32;
    x = x.wrapping_mul(0xD6E8_FEB8_6659_FD93);
    x = (x ^ x >> 32).wrapping_mul(0xD6E8_FEB8_6659_FD93);
    x ^ x >> 32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn shapes_leave_room_for_both() {
        for (bytes, offset_bits) in [
            (0, 24),
            (4096, 24),
            (32 << 20, 24),
            (1 << 30, 28),
            (1 << 36, 34),
        ] {
            let shape = SlotShape::for_segments(bytes);
            assert_eq!(shape.offset_bits, offset_bits, "{bytes}");
            assert_eq!(shape.offset_bits + shape.generation_bits, SHARED_BITS);
            assert!(shape.fits(bytes) && shape.generations_max() >= 4);
        }
        assert!(!SlotShape::for_segments(4096).fits(8 << 24));
    }

    proptest! {
        #[test]
        fn slots_keep_their_fields(
            hash in 0u64..1 << 46,
            (units, class, tombstone) in (1u64..1 << 20, 0u8..64, any::<bool>()),
            generation in any::<u64>(),
            behind in 0u64..1 << 18,
            buckets in 2usize..1 << 24,
        ) {
            let shape = SlotShape::for_segments(4 << 20);
            let place = Place::of(KeyHash(hash), buckets);
            prop_assert!(place.buckets[0] != place.buckets[1]);
            prop_assert!(place.buckets.iter().all(|bucket| *bucket < buckets));
            let entry = Entry::new(KeyHash(hash), units, class, tombstone);
            for kind in KeyspaceKind::ALL {
                let slot = shape.pack(&place, kind, generation, entry);
                prop_assert!(slot != 0 && place.matches(slot));
                prop_assert_eq!(SlotShape::kind_code(slot), kind.code());
                prop_assert_eq!(shape.entry(slot, KeyHash(hash)), entry);
                if let Some(newest) = generation.checked_add(behind) {
                    prop_assert_eq!(shape.generation(slot, newest), Some(generation));
                }
            }
        }
    }

    /// Top bits alone spread over buckets and fingerprints.
    #[test]
    fn few_hash_bits_spread() {
        let places: Vec<_> = (0..256_u64)
            .map(|top| Place::of(KeyHash(top << 38), 64))
            .collect();
        let mut fingerprints: Vec<_> = places.iter().map(|place| place.fingerprint).collect();
        fingerprints.sort_unstable();
        fingerprints.dedup();
        assert!(fingerprints.len() > 250, "{}", fingerprints.len());
        for side in 0..2 {
            let mut load = [0; 64];
            places
                .iter()
                .for_each(|place| load[place.buckets[side]] += 1);
            assert!(load.iter().all(|count| *count <= 16), "{load:?}");
        }
    }
}
