//! Filters: a few bits a key that answer "certainly not in this index" without a read.
//!
//! A filter is a row of blocks of 512 bits, one cache line each. A key touches one block:
//!
//! ```text
//! block   = floor(h * blocks / 2^64), h = the hash's bits below the part's prefix, left-aligned
//! remixed = two rounds of xor-shift and multiply over the 46 bits (see `block::remix`)
//! id 1    "split": bit (remixed >> 6i) & 63 of word i, for each of the 8 words      (k = 8)
//! id 2    "free":  bits (remixed >> 9j) & 511 of the block, for j below k           (k = 3, 5)
//! ```
//!
//! Invariants:
//! * No false negatives: what was inserted is contained, on every machine.
//! * All bits come from the 46 bits that an index entry has, so a merge of indexes can build filters
//!   without touching a record.
//! * The block number never falls as the hash rises: a filter is built block by block while the
//!   entries stream by, and the keys of a hash prefix are a slice of it.
//! * Algorithm id, k and length stand in the format; an id unknown here is a filter that is not there.
//!
//! Filters are read from disk only to become resident, never to answer a lookup: reading the index
//! page costs the same and also answers a hit.

pub mod block;
pub mod builder;
pub mod memory;
pub mod planner;
mod policy;
pub mod resident;
pub mod simd;

pub use block::Block;
pub use builder::FilterBuilder;
pub use memory::FilterPages;
pub use policy::{FilterPolicy, WINDOW_SEGMENTS};
pub use resident::ResidentFilter;

use crate::types::{HASH_BITS, KeyHash};

/// Bytes of a block: a cache line.
pub const BLOCK_BYTES: usize = 64;

/// Bits of a block.
pub const BLOCK_BITS: u64 = 512;

/// Blocks under one checksum on disk.
pub const PIECE_BLOCKS: usize = 256;

/// Bytes under one checksum on disk.
pub const PIECE_BYTES: usize = PIECE_BLOCKS * BLOCK_BYTES;

/// How the bits inside a block are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// One bit in each of the 8 words.
    Split,
    /// `k` bits anywhere in the block.
    Free {
        /// Bits a key sets, 1 to 7.
        k: u8,
    },
}

impl Algorithm {
    /// The best known for this many bits a key: with few, eight bits a key fill a block too far.
    pub const fn for_bits(bits_per_key: u16) -> Self {
        match bits_per_key {
            0..=5 => Self::Free { k: 3 },
            6..=10 => Self::Free { k: 5 },
            _ => Self::Split,
        }
    }

    /// Id and k as they stand in the format.
    pub const fn code(self) -> (u8, u8) {
        match self {
            Self::Split => (1, 8),
            Self::Free { k } => (2, k),
        }
    }

    /// The algorithm with this id and k; `None` if this version knows none.
    pub const fn from_code(id: u8, k: u8) -> Option<Self> {
        match (id, k) {
            (1, 8) => Some(Self::Split),
            (2, 1..=7) => Some(Self::Free { k }),
            _ => None,
        }
    }
}

/// What a filter's bits mean: everything but the bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilterShape {
    /// How bits are chosen inside a block.
    pub algorithm: Algorithm,
    /// The nominal bits a key, by which alternatives are named.
    pub bits_per_key: u16,
    /// How many leading hash bits all keys of the part share.
    pub prefix_bits: u8,
    /// Blocks.
    pub blocks: u64,
}

impl FilterShape {
    /// The shape for `keys` keys.
    pub const fn for_keys(keys: u64, bits_per_key: u16, prefix_bits: u8) -> Self {
        Self {
            algorithm: Algorithm::for_bits(bits_per_key),
            bits_per_key,
            prefix_bits,
            blocks: (keys * bits_per_key as u64).div_ceil(BLOCK_BITS),
        }
    }

    /// Bytes of the blocks, in memory and on disk.
    pub const fn bytes(&self) -> u64 {
        self.blocks * BLOCK_BYTES as u64
    }

    /// Pieces on disk, each under a checksum of its own.
    pub const fn pieces(&self) -> u64 {
        self.blocks.div_ceil(PIECE_BLOCKS as u64)
    }

    /// The block of a hash. Below [`FilterShape::blocks`] unless there is none.
    pub const fn block_of(&self, hash: KeyHash) -> u64 {
        let left_aligned = hash.0 << (64 - HASH_BITS) << self.prefix_bits;
        ((left_aligned as u128 * self.blocks as u128) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn codes_round_trip_and_unknown_ones_are_none() {
        for bits in [4, 8, 12, 16] {
            let algorithm = Algorithm::for_bits(bits);
            let (id, k) = algorithm.code();
            assert_eq!(Algorithm::from_code(id, k), Some(algorithm));
        }
        assert_eq!(Algorithm::for_bits(8), Algorithm::Free { k: 5 });
        assert_eq!(Algorithm::for_bits(4), Algorithm::Free { k: 3 });
        assert_eq!(Algorithm::for_bits(12), Algorithm::Split);
        for (id, k) in [(0, 8), (1, 7), (2, 0), (2, 8), (3, 8)] {
            assert_eq!(Algorithm::from_code(id, k), None);
        }
    }

    proptest! {
        #[test]
        fn blocks_are_monotone_in_the_hash(a in 0u64..1 << 46, b in 0u64..1 << 46, keys in 1u64..1 << 30) {
            let shape = FilterShape::for_keys(keys, 12, 0);
            let (low, high) = (a.min(b), a.max(b));
            prop_assert!(shape.block_of(KeyHash(low)) <= shape.block_of(KeyHash(high)));
            prop_assert!(shape.block_of(KeyHash(high)) < shape.blocks);
        }

        #[test]
        fn a_prefix_spreads_over_all_blocks(prefix in 0u64..16, rest in 0u64..1 << 42) {
            let shape = FilterShape { prefix_bits: 4, ..FilterShape::for_keys(1 << 20, 8, 4) };
            let whole = FilterShape { prefix_bits: 0, ..shape };
            let hash = KeyHash(prefix << 42 | rest);
            prop_assert_eq!(shape.block_of(hash), whole.block_of(KeyHash(rest << 4)));
        }
    }
}
