//! A filter in memory.

use super::memory::{BlockMemory, FilterPages};
use super::{Algorithm, BLOCK_BYTES, Block, FilterShape, block, block::remix, simd};
use crate::types::KeyHash;

/// Blocks and what they mean. Its bits were checked when it was loaded, or come from the build.
#[derive(Debug)]
pub struct ResidentFilter(BlockMemory);

impl ResidentFilter {
    /// A filter from its blocks; `None` if their number is not the shape's.
    pub fn new(shape: FilterShape, blocks: &[Block]) -> Option<Self> {
        if blocks.len() as u64 != shape.blocks {
            return None;
        }
        let mut filter = Self::empty(shape);
        filter.fill(0, blocks.iter().copied());
        Some(filter)
    }

    /// A filter whose blocks are to be filled in.
    pub fn empty(shape: FilterShape) -> Self {
        Self::empty_in(shape, None)
    }

    /// The same in pages that were reserved for it, if they are of its size.
    pub fn empty_in(shape: FilterShape, pages: Option<FilterPages>) -> Self {
        Self(BlockMemory::zeroed(&shape, pages))
    }

    /// Sets blocks from a place on.
    pub fn fill(&mut self, from: usize, blocks: impl Iterator<Item = Block>) {
        for (place, block) in (from..).zip(blocks) {
            self.0.set(place, &block);
        }
    }

    /// Its shape.
    pub fn shape(&self) -> FilterShape {
        let meaning = self.0.meaning();
        FilterShape {
            algorithm: meaning.algorithm,
            bits_per_key: meaning.bits_per_key,
            prefix_bits: meaning.prefix_bits,
            blocks: self.0.blocks() as u64,
        }
    }

    /// The memory of its blocks, in bytes.
    pub fn bytes(&self) -> usize {
        self.shape().resident_bytes() as usize
    }

    /// As many of them are in a mapping of their own: all or none.
    pub fn mapped_bytes(&self) -> usize {
        match &self.0 {
            BlockMemory::Mapped(..) => self.bytes(),
            BlockMemory::Heap(..) => 0,
        }
    }

    /// Whether the hash may be among those inserted; `false` is certain. A filter without blocks
    /// holds no key.
    #[inline]
    pub fn may_contain(&self, hash: KeyHash) -> bool {
        simd::run(Test(self, hash))
    }

    /// The same by portable code, for a caller that asks many filters in one [`simd::run`]: `remixed` is the
    /// hash as [`remix`] spreads it.
    #[inline(always)]
    pub fn may_contain_remixed(&self, hash: KeyHash, remixed: u64) -> bool {
        let place = self.shape().block_of(hash) as usize;
        match &self.0 {
            BlockMemory::Heap(_, blocks) => blocks
                .get(place)
                .is_some_and(|block| self.block_may_contain(&block.0, remixed)),
            BlockMemory::Mapped(_, pages) => pages
                .as_chunks()
                .0
                .get(place)
                .is_some_and(|block| self.block_may_contain(block, remixed)),
        }
    }

    #[inline(always)]
    fn block_may_contain(&self, block: &impl block::Words, remixed: u64) -> bool {
        match self.0.meaning().algorithm {
            Algorithm::Split => block::contains_split(block, remixed),
            Algorithm::Free { k } => block::contains_free(block, remixed, k),
        }
    }

    /// Asks for the hash's cache line, to be tested soon. Costs no wait.
    #[inline]
    pub fn prefetch(&self, hash: KeyHash) {
        let place = self.shape().block_of(hash) as usize;
        match &self.0 {
            BlockMemory::Heap(_, blocks) => {
                if let Some(block) = blocks.get(place) {
                    simd::prefetch(block);
                }
            }
            BlockMemory::Mapped(_, pages) => {
                if let Some(block) = pages.as_chunks::<BLOCK_BYTES>().0.get(place) {
                    simd::prefetch(block);
                }
            }
        }
    }
}

/// The test of one hash.
struct Test<'a>(&'a ResidentFilter, KeyHash);

impl simd::BlockTests for Test<'_> {
    type Answers = bool;

    #[inline(always)]
    fn run(self) -> bool {
        self.0.may_contain_remixed(self.1, remix(self.1))
    }
}

#[cfg(test)]
impl PartialEq for ResidentFilter {
    fn eq(&self, other: &Self) -> bool {
        self.shape() == other.shape() && self.0.to_bytes() == other.0.to_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::super::FilterBuilder;
    use super::*;
    use crate::types::{Hasher, KeyspaceId};
    use proptest::prelude::*;

    fn build(mut hashes: Vec<KeyHash>, bits_per_key: u16, prefix_bits: u8) -> ResidentFilter {
        hashes.sort();
        let shape = FilterShape::for_keys(hashes.len() as u64, bits_per_key, prefix_bits);
        let mut builder = FilterBuilder::new(shape);
        let mut blocks = Vec::new();
        for hash in hashes {
            while let Some(block) = builder.push(hash) {
                blocks.push(block);
            }
        }
        while let Some(block) = builder.finish() {
            blocks.push(block);
        }
        ResidentFilter::new(shape, &blocks).expect("all blocks came")
    }

    fn keyed(from: u64, count: u64) -> Vec<KeyHash> {
        let hasher = Hasher::new([3; 16], 46);
        (from..from + count)
            .map(|i| hasher.hash(KeyspaceId(0), &i.to_le_bytes()))
            .collect()
    }

    proptest! {
        #[test]
        fn no_false_negatives(
            raw in proptest::collection::vec(0u64..1 << 46, 0..600),
            bits in prop_oneof![Just(4u16), Just(8), Just(12), Just(16)],
            kept in 1u32..=46,
            prefix_bits in 0u8..8,
        ) {
            let clear = (1u64 << (46 - prefix_bits)) - 1;
            let hashes: Vec<KeyHash> =
                raw.iter().map(|h| KeyHash((h >> (46 - kept) << (46 - kept)) & clear)).collect();
            let filter = build(hashes.clone(), bits, prefix_bits);
            for hash in hashes {
                prop_assert!(filter.may_contain(hash));
            }
        }
    }

    /// False positives expected of a block filter: blocks hold a Poisson number of keys.
    fn theory(bits_per_key: f64, k: i32, slots: f64, bits_each: f64) -> f64 {
        let mean = 512.0 / bits_per_key;
        let mut weight = (-mean).exp();
        let mut sum = 0.0;
        for keys in 0..1000 {
            let filled = 1.0 - (1.0 - 1.0 / slots).powf(bits_each * f64::from(keys));
            sum += weight * filled.powi(k);
            weight *= mean / f64::from(keys + 1);
        }
        sum
    }

    #[test]
    fn false_positives_are_as_theory_says() {
        let keys = 200_000;
        for (bits, k, slots, bits_each) in [
            (4, 3, 512.0, 3.0),
            (8, 5, 512.0, 5.0),
            (12, 8, 64.0, 1.0),
            (16, 8, 64.0, 1.0),
        ] {
            let filter = build(keyed(0, keys), bits, 0);
            let absent = keyed(1 << 40, 1_000_000);
            let hits = absent.iter().filter(|h| filter.may_contain(**h)).count();
            let measured = hits as f64 / absent.len() as f64;
            let expected = theory(f64::from(bits), k, slots, bits_each);
            assert!(
                measured < 1.3 * expected && measured > expected / 1.3,
                "{bits} bits a key: measured {measured:.6}, theory {expected:.6}"
            );
        }
    }

    /// Frozen: a digest of the whole filter of a fixed key set, for every alternative.
    #[test]
    fn frozen_filters() {
        let digests = [4, 8, 12, 16].map(|bits| {
            let filter = build(keyed(0, 1000), bits, 0);
            let bytes = filter.0.to_bytes();
            (bytes.len(), crc32c::crc32c(&bytes))
        });
        assert_eq!(
            digests,
            [
                (512, 0x7751_81F1),
                (1024, 0xC572_DB39),
                (1536, 0xDA61_1C33),
                (2048, 0x54DE_EFBF)
            ]
        );
    }

    #[test]
    fn an_empty_filter_holds_nothing() {
        let filter = build(Vec::new(), 12, 0);
        assert_eq!(filter.bytes(), 0);
        assert!(!filter.may_contain(KeyHash(0)));
        assert!(ResidentFilter::new(filter.shape(), &[Block::default()]).is_none());
    }
}
