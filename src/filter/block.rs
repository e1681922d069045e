//! One block: setting and testing the bits of a key. The portable path, and the definition of the bits.

use super::{Algorithm, BLOCK_BYTES};
use crate::types::KeyHash;

/// Words of a block.
pub const BLOCK_WORDS: usize = 8;

/// 512 bits in one cache line. On disk: the words in order, little endian.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C, align(64))]
pub struct Block(pub [u64; BLOCK_WORDS]);

impl Block {
    /// As it stands on disk.
    pub fn to_bytes(&self) -> [u8; BLOCK_BYTES] {
        let mut bytes = [0; BLOCK_BYTES];
        for (to, word) in bytes.as_chunks_mut().0.iter_mut().zip(&self.0) {
            *to = word.to_le_bytes();
        }
        bytes
    }

    /// From its form on disk.
    pub fn from_bytes(bytes: &[u8; BLOCK_BYTES]) -> Self {
        let mut block = Self::default();
        for (word, from) in block.0.iter_mut().zip(bytes.as_chunks().0) {
            *word = u64::from_le_bytes(*from);
        }
        block
    }

    /// Sets the bits of a hash.
    pub fn insert(&mut self, algorithm: Algorithm, hash: KeyHash) {
        insert(&mut self.0, algorithm, hash);
    }

    /// Whether all bits of a hash are set. [`super::simd::run`] is the fast way.
    #[cfg(test)]
    pub fn contains(&self, algorithm: Algorithm, hash: KeyHash) -> bool {
        let remixed = remix(hash);
        match algorithm {
            Algorithm::Split => contains_split(&self.0, remixed),
            Algorithm::Free { k } => contains_free(&self.0, remixed, k),
        }
    }
}

/// Sets the bits of a hash in the words of a block.
pub fn insert(words: &mut [u64; BLOCK_WORDS], algorithm: Algorithm, hash: KeyHash) {
    let remixed = remix(hash);
    match algorithm {
        Algorithm::Split => {
            for (word, bits) in words.iter_mut().zip(split_mask(remixed)) {
                *word |= bits;
            }
        }
        Algorithm::Free { k } => {
            for (word, bit) in free_bits(remixed, k) {
                words[word] |= bit;
            }
        }
    }
}

/// The words of a block, wherever it is.
pub trait Words {
    /// The word at a place below [`BLOCK_WORDS`].
    fn word(&self, place: usize) -> u64;
}

impl Words for [u64; BLOCK_WORDS] {
    #[inline(always)]
    fn word(&self, place: usize) -> u64 {
        self[place % BLOCK_WORDS]
    }
}

/// As it stands on disk.
impl Words for [u8; BLOCK_BYTES] {
    #[inline(always)]
    fn word(&self, place: usize) -> u64 {
        u64::from_le_bytes(self.as_chunks().0[place % BLOCK_WORDS])
    }
}

/// The test of [`Algorithm::Split`]: without a branch, so that it becomes vector code wherever
/// the target has vector shifts.
#[inline(always)]
pub fn contains_split(block: &impl Words, remixed: u64) -> bool {
    let mut missing = 0;
    for (place, bits) in split_mask(remixed).into_iter().enumerate() {
        missing |= !block.word(place) & bits;
    }
    missing == 0
}

/// The test of [`Algorithm::Free`].
#[inline(always)]
pub fn contains_free(block: &impl Words, remixed: u64, k: u8) -> bool {
    free_bits(remixed, k).all(|(word, bit)| block.word(word) & bit != 0)
}

/// Spreads the 46 bits over 64 (the finalizer of SplitMix64, Steele, Lea, Flood 2014): bits that
/// already chose the block must say nothing about those inside it. Part of the format.
#[inline(always)]
pub const fn remix(hash: KeyHash) -> u64 {
    let mut x = hash.0;
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

#[inline(always)]
fn split_mask(remixed: u64) -> [u64; BLOCK_WORDS] {
    let mut mask = [0; BLOCK_WORDS];
    for (i, word) in mask.iter_mut().enumerate() {
        *word = 1 << ((remixed >> (6 * i)) & 63);
    }
    mask
}

#[inline(always)]
fn free_bits(remixed: u64, k: u8) -> impl Iterator<Item = (usize, u64)> {
    (0..u32::from(k)).map(move |j| {
        let place = (remixed >> (9 * j)) & 511;
        ((place >> 6) as usize, 1 << (place & 63))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Frozen: the bits are part of the format. A change here needs a new algorithm id.
    #[test]
    fn frozen_bits() {
        assert_eq!(remix(KeyHash(0)), 0);
        assert_eq!(remix(KeyHash(1)), 0x5692_161D_100B_05E5);
        let mut split = Block::default();
        split.insert(Algorithm::Split, KeyHash(0x1234_5678_9ABC));
        split.insert(Algorithm::Split, KeyHash(1));
        let mut free = Block::default();
        free.insert(Algorithm::Free { k: 5 }, KeyHash(0x1234_5678_9ABC));
        free.insert(Algorithm::Free { k: 3 }, KeyHash(1));
        assert_eq!(split.0, SPLIT);
        assert_eq!(free.0, FREE);
        assert_eq!(Block::from_bytes(&split.to_bytes()), split);
        assert_eq!(split.to_bytes()[8..16], SPLIT[1].to_le_bytes());
    }

    const SPLIT: [u64; 8] = [
        0x0000_0020_0004_0000,
        0x0000_0000_0088_0000,
        0x0001_0000_0000_0002,
        0x4000_0000_0000_0004,
        0x1000_0000_0001_0000,
        0x0010_0000_0000_0004,
        0x0000_0002_0800_0000,
        0x0000_0000_0000_1020,
    ];
    const FREE: [u64; 8] = [
        0x0000_0000_0080_0404,
        0x0000_0000_0000_0000,
        0x0000_0000_0000_0000,
        0x0000_0000_0004_0000,
        0x4000_0000_0800_0000,
        0x0000_0000_0000_0000,
        0x0000_0000_0000_0004,
        0x0000_0020_0000_0000,
    ];

    #[test]
    fn a_key_sets_at_most_k_bits() {
        for hash in (0..1000).map(|i| KeyHash(i * 0x3_1234_5677)) {
            for bits in [4, 8, 12] {
                let algorithm = Algorithm::for_bits(bits);
                let mut block = Block::default();
                block.insert(algorithm, hash);
                let ones: u32 = block.0.iter().map(|word| word.count_ones()).sum();
                assert!((1..=u32::from(algorithm.code().1)).contains(&ones));
                assert!(block.contains(algorithm, hash));
            }
        }
    }
}
