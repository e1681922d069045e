//! The point index: entries of 12 bytes in hash order, packed into pages, one fence a page.
//!
//! ```text
//! entry, 96 bits, most significant first; stored big-endian, so that bytes compare as the number
//! +-----------+--------------------------------+---------------+--------------+
//! | 46 hash   | 43 location                    | 6 size class  | 1 tombstone  |
//! |           | ordinal | offset, 8-byte units |               |              |
//! +-----------+--------------------------------+---------------+--------------+
//! ```
//!
//! Invariants:
//! * Ascending numbers are the order on disk, for a segment's own index and for merged ones. Records
//!   lie in (keyspace, key, newest first) order, so equal hashes of one key come newest first.
//! * No two entries of an index are equal: their locations differ.
//! * An index says where a key *may* be. The record carries the whole key and is compared; nothing is
//!   answered from an entry alone.
//!
//! This module and its children know bytes and numbers, no files: `segment` reads and writes them.

pub mod builder;
pub mod page;

use crate::types::{HASH_BITS, KeyHash};

/// Bytes of a stored entry.
pub const ENTRY_BYTES: usize = 12;

/// Bits of a location: ordinal and offset together.
pub const LOCATION_BITS: u32 = 43;

/// Records and offsets count in units of this many bytes.
pub const UNIT_BYTES: u64 = 8;

/// The size class that says "larger than every class: read the header to learn the length".
pub const SIZE_CLASS_LARGE: u8 = 63;

const CLASS_BITS: u32 = 6;
const HASH_SHIFT: u32 = LOCATION_BITS + CLASS_BITS + 1;
const LOCATION_SHIFT: u32 = CLASS_BITS + 1;

/// An entry as it is stored: big-endian.
pub type PackedEntry = [u8; ENTRY_BYTES];

/// An index entry: a 96-bit number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry(u128);

impl Entry {
    /// An entry. `location` must be below 2^43 and `size_class` below 64.
    pub fn new(hash: KeyHash, location: u64, size_class: u8, tombstone: bool) -> Self {
        assert!(hash.0 >> HASH_BITS == 0, "a hash has 46 bits");
        assert!(location >> LOCATION_BITS == 0, "a location has 43 bits");
        assert!(size_class <= SIZE_CLASS_LARGE, "a size class has 6 bits");
        Self(
            u128::from(hash.0) << HASH_SHIFT
                | u128::from(location) << LOCATION_SHIFT
                | u128::from(size_class) << 1
                | u128::from(tombstone),
        )
    }

    /// The key's hash.
    pub const fn hash(self) -> KeyHash {
        KeyHash((self.0 >> HASH_SHIFT) as u64)
    }

    /// Ordinal and offset, still joined; [`LocationSplit`] parts them.
    pub const fn location(self) -> u64 {
        (self.0 >> LOCATION_SHIFT) as u64 & ((1 << LOCATION_BITS) - 1)
    }

    /// The class of the record's length.
    pub const fn size_class(self) -> u8 {
        (self.0 >> 1) as u8 & SIZE_CLASS_LARGE
    }

    /// Whether the record is a tombstone.
    pub const fn tombstone(self) -> bool {
        self.0 & 1 == 1
    }

    /// As it is stored.
    pub fn pack(self) -> PackedEntry {
        let mut packed = [0; ENTRY_BYTES];
        packed.copy_from_slice(&self.0.to_be_bytes()[16 - ENTRY_BYTES..]);
        packed
    }

    /// From its stored form: every 12 bytes are an entry.
    pub fn unpack(packed: &PackedEntry) -> Self {
        let mut wide = [0; 16];
        wide[16 - ENTRY_BYTES..].copy_from_slice(packed);
        Self(u128::from_be_bytes(wide))
    }
}

/// The hash of a stored entry, without unpacking the rest.
pub fn packed_hash(packed: &PackedEntry) -> KeyHash {
    let top = [
        packed[0], packed[1], packed[2], packed[3], packed[4], packed[5], packed[6], packed[7],
    ];
    KeyHash(u64::from_be_bytes(top) >> (64 - HASH_BITS))
}

/// How a location parts into the segment's ordinal in its run (0 = newest) and an offset. A segment's
/// own index has no ordinal bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocationSplit {
    /// Bits of the ordinal; the offset has the rest of [`LOCATION_BITS`].
    pub ordinal_bits: u8,
}

impl LocationSplit {
    /// All bits are offset.
    pub const SEGMENT: Self = Self { ordinal_bits: 0 };

    /// Bits of the offset.
    pub const fn offset_bits(self) -> u32 {
        LOCATION_BITS - self.ordinal_bits as u32
    }

    /// The ordinal in a location.
    pub const fn ordinal(self, location: u64) -> u64 {
        location >> self.offset_bits()
    }

    /// The offset in a location, in bytes.
    pub const fn offset_bytes(self, location: u64) -> u64 {
        (location & ((1 << self.offset_bits()) - 1)) * UNIT_BYTES
    }
}

/// The longest record of a size class below [`SIZE_CLASS_LARGE`], in bytes: 32, 40, 48, 56, 64, 80,
/// ... four classes an octave, so that a read of the class is less than a quarter longer than needed.
pub const fn size_class_bytes(size_class: u8) -> u64 {
    ((4 + size_class as u64 % 4) << (size_class / 4)) * UNIT_BYTES
}

/// The smallest size class that holds a record of `padded_bytes`.
#[inline]
pub const fn size_class_of(padded_bytes: u64) -> u8 {
    let units = padded_bytes.div_ceil(UNIT_BYTES);
    if units <= 4 {
        return 0;
    }
    // Shift until four to eight units remain, rounding up.
    let shift = units.ilog2() - 2;
    // `div_ceil` would divide: 10 ns of every lookup.
    let quarter = ((units - 1) >> shift) + 1 - 4;
    let class = 4 * shift as u64 + quarter;
    if class < SIZE_CLASS_LARGE as u64 {
        class as u8
    } else {
        SIZE_CLASS_LARGE
    }
}

/// The fence of a hash: its top 32 bits below the part's prefix.
pub const fn fence_of(hash: KeyHash, prefix_bits: u8) -> u32 {
    let left_aligned = hash.0 << (64 - HASH_BITS) << prefix_bits;
    (left_aligned >> 32) as u32
}

/// The first page that can hold `hash`, given the fence of every page's last hash. The number of
/// pages if none can. The search goes on to later pages while their last hash is not above it.
pub fn first_page(fences: &[u32], hash: KeyHash, prefix_bits: u8) -> usize {
    let wanted = fence_of(hash, prefix_bits);
    let guess = ((u64::from(wanted) * fences.len() as u64) >> 32) as usize;
    partition_point_near(fences, guess, |fence| *fence < wanted)
}

/// What [`slice::partition_point`] gives, found from a guess on: hashes are spread evenly, so a page's place
/// follows from its hash but for a few pages, and most often one cache line of fences is looked at in place of
/// one for each halving. Measured with 36,000 pages: see `docs/performance.md`.
fn partition_point_near<T>(items: &[T], guess: usize, is_below: impl Fn(&T) -> bool) -> usize {
    let below = |place: usize| items.get(place).is_some_and(&is_below);
    let (mut low, mut high) = (0, items.len());
    let mut step = GALLOP_STEP;
    if below(guess) {
        low = guess + 1;
        while low + step < high {
            if !below(low + step) {
                high = low + step;
                break;
            }
            low += step + 1;
            step *= 2;
        }
    } else {
        high = guess.min(high);
        while low + step < high {
            if below(high - step) {
                low = high - step + 1;
                break;
            }
            high -= step;
            step *= 2;
        }
    }
    let between = items.get(low..high).unwrap_or(&[]);
    low + between.partition_point(is_below)
}

/// The first step away from the guess.
const GALLOP_STEP: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_guess_changes_no_partition_point(
            mut items in proptest::collection::vec(0u32..500, 0..300),
            guess in 0usize..320,
            wanted in 0u32..510,
        ) {
            items.sort_unstable();
            let plain = items.partition_point(|item| *item < wanted);
            prop_assert_eq!(partition_point_near(&items, guess, |item| *item < wanted), plain);
        }
    }

    #[test]
    fn size_classes_are_tight() {
        assert_eq!(
            (0..7).map(size_class_bytes).collect::<Vec<_>>(),
            [32, 40, 48, 56, 64, 80, 96]
        );
        let mut below = 0;
        for class in 0..SIZE_CLASS_LARGE {
            let bytes = size_class_bytes(class);
            assert_eq!(size_class_of(bytes), class);
            assert_eq!(size_class_of(below + 1), class);
            assert!(below == 0 || bytes * 4 <= (below + 8) * 5, "class {class}");
            below = bytes;
        }
        assert_eq!(below, 1_572_864);
        assert_eq!(size_class_of(below + 1), SIZE_CLASS_LARGE);
        assert_eq!(size_class_of(u64::from(u32::MAX)), SIZE_CLASS_LARGE);
    }

    #[test]
    fn frozen_entry() {
        let entry = Entry::new(KeyHash(0x3A5A_1234_5678), 0x712_3456_789A, 37, true);
        assert_eq!(
            entry.pack(),
            [
                0xE9, 0x68, 0x48, 0xD1, 0x59, 0xE3, 0x89, 0x1A, 0x2B, 0x3C, 0x4D, 0x4B
            ]
        );
    }

    proptest! {
        #[test]
        fn entries_keep_their_fields_and_order(
            a in (0u64..1 << 46, 0u64..1 << 43, 0u8..64, any::<bool>()),
            b in (0u64..1 << 46, 0u64..1 << 43, 0u8..64, any::<bool>()),
        ) {
            let entry = |t: (u64, u64, u8, bool)| Entry::new(KeyHash(t.0), t.1, t.2, t.3);
            let x = entry(a);
            prop_assert_eq!((x.hash().0, x.location(), x.size_class(), x.tombstone()), a);
            prop_assert_eq!(Entry::unpack(&x.pack()), x);
            prop_assert_eq!(packed_hash(&x.pack()), x.hash());
            prop_assert_eq!(x.pack().cmp(&entry(b).pack()), a.cmp(&b));
        }

        #[test]
        fn locations_part(ordinal_bits in 0u8..20, ordinal in any::<u64>(), offset in any::<u64>()) {
            let split = LocationSplit { ordinal_bits };
            let ordinal = ordinal & ((1 << ordinal_bits) - 1);
            let units = offset & ((1 << split.offset_bits()) - 1);
            let location = ordinal << split.offset_bits() | units;
            prop_assert_eq!(split.ordinal(location), ordinal);
            prop_assert_eq!(split.offset_bytes(location), units * 8);
        }
    }
}
