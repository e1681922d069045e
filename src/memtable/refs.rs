//! Refs: 24 bytes for each record, in blocks, with a fixed share of link space.
//!
//! ```text
//! word 0   location u32 (high)      | sequence - first sequence u32
//! word 1   first 8 bytes of the key, big endian, zero-padded; or keyspace u32 | first 4 (see below)
//! word 2   older u32 (high)         | links start u16 | height u4 | spare u4 | keyspace digest u8
//!
//! block    block_records refs of 3 words | links_capacity links of u32
//! ```
//!
//! Refs are named by `node` = index + 1, so that 0 is "none". `older` is the key's next older version.
//!
//! The order of two refs is decided by digest, then word 1, and only on a tie by the record itself.
//! The digest is the keyspace id squeezed to 8 bits such that order is kept: kind, then the counter up
//! to 127, where all larger ones tie. So word 1 can be key bytes alone, eight of them, instead of
//! losing half to an id that most neighbours share; only where digests can tie between two keyspaces
//! does it start with the id.
//!
//! A ref is written once, by the memtable's one writer, before any probe slot or link names it
//! (`Release`); readers come by one of those (`Acquire`), so plain relaxed loads see it whole. Links
//! are written by the publisher alone.
//!
//! Heights come from a fixed function of index and seed: same commits, same lists. A block has 1.5
//! links a record (the mean is 1.33); when they run short, heights are cut such that every later
//! record of the block still gets one. So a block's size never depends on luck.

use crate::memory::{Permit, Words};
use crate::sync::{AtomicU32, AtomicU64, OnceLock, Ordering};
use crate::types::KeyspaceId;

/// The tallest tower: 4^12 records are more than a memtable holds.
pub(super) const HEIGHT_MAX: usize = 12;

/// Words of a ref.
const REF_WORDS: usize = 3;

/// The largest block: its links must be counted by 16 bits.
pub(super) const BLOCK_RECORDS_MAX: u32 = 1 << 15;

/// The counter from which on keyspaces of a kind share a digest.
const DIGEST_COUNTER_MAX: u32 = 127;

/// The keyspace squeezed to 8 bits, keeping order.
pub(super) fn digest(keyspace: KeyspaceId) -> u8 {
    ((keyspace.0 >> 31) << 7 | keyspace.counter().min(DIGEST_COUNTER_MAX)) as u8
}

/// What word 1 of a ref holds: among keys of one digest, a number of the same order.
pub(super) fn prefix(keyspace: KeyspaceId, key: &[u8]) -> u64 {
    match keyspace.counter() < DIGEST_COUNTER_MAX {
        true => key_prefix(key),
        false => u64::from(keyspace.0) << 32 | key_prefix(key) >> 32,
    }
}

/// The first 8 bytes of a key as a number of the same order.
pub(super) fn key_prefix(key: &[u8]) -> u64 {
    match key.first_chunk::<8>() {
        Some(bytes) => u64::from_be_bytes(*bytes),
        None => key
            .iter()
            .zip((0..8).rev())
            .map(|(byte, place)| u64::from(*byte) << (8 * place))
            .sum(),
    }
}

/// A ref, unpacked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ref {
    pub(super) location: u32,
    pub(super) sequence_offset: u32,
    pub(super) prefix: u64,
    pub(super) older: u32,
    pub(super) links_start: u16,
    pub(super) height: u8,
    pub(super) digest: u8,
}

impl Ref {
    fn pack(&self) -> [u64; REF_WORDS] {
        [
            u64::from(self.location) << 32 | u64::from(self.sequence_offset),
            self.prefix,
            u64::from(self.older) << 32
                | u64::from(self.links_start) << 16
                | u64::from(self.height) << 12
                | u64::from(self.digest),
        ]
    }
}

struct Block {
    refs: Words<AtomicU64>,
    links: Words<AtomicU32>,
}

/// All refs of a memtable.
pub(super) struct Refs {
    block_bits: u32,
    height_seed: u64,
    blocks: Box<[OnceLock<Block>]>,
}

impl Refs {
    /// No refs, with room for `records_max` in blocks of `block_records`, a power of two.
    pub(super) fn new(block_records: u32, records_max: u32, height_seed: u64) -> Self {
        debug_assert!(block_records.is_power_of_two());
        Self {
            block_bits: block_records.trailing_zeros(),
            height_seed,
            blocks: (0..records_max.div_ceil(block_records))
                .map(|_| OnceLock::new())
                .collect(),
        }
    }

    /// Gives all blocks back.
    pub(super) fn clear(&mut self) {
        for block in &mut self.blocks {
            *block = OnceLock::new();
        }
    }

    /// Decides heights from now on; there are no refs yet.
    pub(super) fn set_height_seed(&mut self, height_seed: u64) {
        self.height_seed = height_seed;
    }

    /// Heap bytes of the list of blocks.
    pub(super) fn list_bytes(block_records: u32, records_max: u32) -> u64 {
        u64::from(records_max.div_ceil(block_records)) * size_of::<OnceLock<Block>>() as u64
    }

    /// Bytes of one block.
    pub(super) fn block_bytes(block_records: u32) -> u64 {
        8 * REF_WORDS as u64 * u64::from(block_records)
            + 4 * u64::from(links_capacity(block_records))
    }

    fn block_records(&self) -> u32 {
        1 << self.block_bits
    }

    /// Adds the `number`-th block out of the permit; the rest is the block's own permit. `None` if
    /// the permit is too small or there is no such place.
    pub(super) fn add_block(&self, number: u32, permit: &mut Permit) -> Option<Permit> {
        let cell = self.blocks.get(number as usize)?;
        let mut part = permit.split(Self::block_bytes(self.block_records()))?;
        let (refs, refs_part) = part.words(REF_WORDS << self.block_bits)?;
        let (links, links_part) = part.words(links_capacity(self.block_records()) as usize)?;
        part.absorb(refs_part);
        part.absorb(links_part);
        cell.set(Block { refs, links }).ok()?;
        Some(part)
    }

    /// Writes a new ref; nobody may know its number yet.
    pub(super) fn write(&self, node: u32, entry: &Ref) {
        let words = self.words(node);
        debug_assert!(words.is_some(), "no block for a ref");
        for (word, value) in words.into_iter().flatten().zip(entry.pack()) {
            word.store(value, Ordering::Relaxed);
        }
    }

    fn words(&self, node: u32) -> Option<&[AtomicU64; REF_WORDS]> {
        let index = node.wrapping_sub(1);
        let block = self
            .blocks
            .get((index >> self.block_bits) as usize)?
            .get()?;
        let start = REF_WORDS * (index & (self.block_records() - 1)) as usize;
        block.refs.get(start..)?.first_chunk()
    }

    fn word(&self, node: u32, number: usize) -> u64 {
        let words = self.words(node);
        debug_assert!(words.is_some(), "no such ref");
        words.map_or(0, |words| words[number].load(Ordering::Relaxed))
    }

    /// Where a ref's record is.
    pub(super) fn location(&self, node: u32) -> u32 {
        (self.word(node, 0) >> 32) as u32
    }

    /// A ref's sequence, from the memtable's first.
    pub(super) fn sequence_offset(&self, node: u32) -> u32 {
        self.word(node, 0) as u32
    }

    /// A ref's key prefix.
    pub(super) fn prefix(&self, node: u32) -> u64 {
        self.word(node, 1)
    }

    /// A ref's keyspace digest.
    pub(super) fn digest(&self, node: u32) -> u8 {
        self.word(node, 2) as u8
    }

    /// The node of the next older version; 0 = none.
    pub(super) fn older(&self, node: u32) -> u32 {
        (self.word(node, 2) >> 32) as u32
    }

    /// The height of a ref's tower.
    pub(super) fn height(&self, node: u32) -> usize {
        (self.word(node, 2) >> 12 & 15) as usize
    }

    /// A ref's link on a level below its height.
    pub(super) fn link(&self, node: u32, level: usize) -> Option<&AtomicU32> {
        let index = node.wrapping_sub(1);
        let block = self
            .blocks
            .get((index >> self.block_bits) as usize)?
            .get()?;
        let start = (self.word(node, 2) >> 16) as u16;
        block.links.get(usize::from(start) + level)
    }

    /// Height and first link of the next ref, when the block's first `links_used` links are given
    /// away; raises `links_used`.
    pub(super) fn tower(&self, node: u32, links_used: &mut u32) -> (u8, u16) {
        let within = node.wrapping_sub(1) & (self.block_records() - 1);
        if within == 0 {
            *links_used = 0;
        }
        let later = self.block_records() - 1 - within;
        let spare = links_capacity(self.block_records()) - *links_used - later;
        let start = *links_used as u16;
        let height = random_height(self.height_seed, node).min(spare);
        *links_used += height;
        (height as u8, start)
    }
}

/// Links of a block.
const fn links_capacity(block_records: u32) -> u32 {
    block_records + block_records / 2
}

/// 1 + the number of leading quarters: each level has a fourth of the one below.
fn random_height(seed: u64, node: u32) -> u32 {
    let bits = scramble(seed ^ u64::from(node));
    1 + (bits.trailing_zeros() / 2).min(HEIGHT_MAX as u32 - 1)
}

/// Spreads a number over 64 bits (the finaliser of splitmix64).
pub(super) const fn scramble(number: u64) -> u64 {
    let mut bits = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{Owner, Region};
    use crate::types::KeyspaceKind;

    #[test]
    fn prefix_and_digest_keep_order() {
        let keys: [&[u8]; 8] = [b"", b"\0", b"\0\0", b"a", b"a\0", b"ab", b"abcdefgh", b"b"];
        assert!(
            keys.windows(2)
                .all(|pair| key_prefix(pair[0]) <= key_prefix(pair[1]))
        );
        assert!(key_prefix(b"a") < key_prefix(b"ab"));
        let late = [127, 128].map(KeyspaceId);
        assert!(prefix(late[0], b"zzzzz") < prefix(late[1], b""));
        assert!(prefix(late[0], b"zzzy") < prefix(late[0], b"zzzz"));
        let ids: Vec<_> = KeyspaceKind::ALL
            .into_iter()
            .flat_map(|kind| [0, 1, 126, 127, 128, 1 << 20].map(|n| KeyspaceId::new(kind, n)))
            .map(|id| digest(id.expect("small counter")))
            .collect();
        assert!(ids.is_sorted());
        assert_eq!(ids.iter().filter(|&&id| id == 127).count(), 3);
    }

    #[test]
    fn refs_come_back_as_written() {
        let region = Region::new(1 << 20, 4096);
        let mut permit = region.try_acquire(1 << 19, Owner::Open).expect("free");
        let refs = Refs::new(4, 8, 7);
        let first = refs.add_block(0, &mut permit);
        let second = refs.add_block(1, &mut permit);
        assert_eq!(first.map(|part| part.bytes()), Some(Refs::block_bytes(4)));
        assert!(second.is_some() && refs.add_block(2, &mut permit).is_none());
        let entry = Ref {
            location: 0xFFFF_FFFE,
            sequence_offset: 0x8000_0001,
            prefix: u64::MAX - 5,
            older: 0xFFFF_FFF0,
            links_start: 0xFFFD,
            height: 12,
            digest: 0xA5,
        };
        refs.write(5, &entry);
        assert_eq!(refs.location(5), entry.location);
        assert_eq!(refs.sequence_offset(5), entry.sequence_offset);
        assert_eq!(refs.prefix(5), entry.prefix);
        assert_eq!(refs.older(5), entry.older);
        assert_eq!((refs.height(5), refs.digest(5)), (12, 0xA5));
        drop(refs);
    }

    #[test]
    fn every_record_of_a_block_gets_a_link() {
        for (block_records, seed) in [(4, 0), (4, 3), (8, 1), (64, 9), (512, 5)] {
            let refs = Refs::new(block_records, 4096, seed);
            let mut used = 0;
            let mut heights = [0u32; HEIGHT_MAX + 1];
            for node in 1..=4096 {
                let (height, start) = refs.tower(node, &mut used);
                assert!((1..=HEIGHT_MAX as u8).contains(&height));
                assert!(u32::from(start) + u32::from(height) <= links_capacity(block_records));
                heights[usize::from(height)] += 1;
            }
            assert!(heights[1] > 2500 && heights[2] > 400, "{heights:?}");
        }
    }
}
