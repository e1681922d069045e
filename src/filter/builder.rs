//! Builds a filter from hashes in index order, one block at a time, in constant memory.

use super::block::{BLOCK_WORDS, insert};
use super::{Block, FilterShape};
use crate::types::KeyHash;

/// Takes ascending hashes and gives out finished blocks in order.
#[derive(Debug)]
pub struct FilterBuilder {
    shape: FilterShape,
    /// The number of the block being filled.
    current: u64,
    /// Its words. Not a `Block`: the alignment of one would be that of whatever has a builder in it, and
    /// aligned objects that come and go with each flush leave holes in the heap that nothing else fills.
    words: [u64; BLOCK_WORDS],
}

impl FilterBuilder {
    /// A builder of a filter of this shape.
    pub fn new(shape: FilterShape) -> Self {
        Self {
            shape,
            current: 0,
            words: [0; BLOCK_WORDS],
        }
    }

    /// The shape.
    pub const fn shape(&self) -> FilterShape {
        self.shape
    }

    /// Takes a hash, not below the one before. `Some` is a block that is thereby complete: call again
    /// with the same hash until `None` says that it was added.
    pub fn push(&mut self, hash: KeyHash) -> Option<Block> {
        let wanted = self.shape.block_of(hash);
        assert!(wanted >= self.current, "hashes come in order");
        if self.current < wanted {
            return self.give();
        }
        insert(&mut self.words, self.shape.algorithm, hash);
        None
    }

    /// The next of the blocks that are left behind the last hash; `None` once there is none.
    pub fn finish(&mut self) -> Option<Block> {
        match self.current < self.shape.blocks {
            true => self.give(),
            false => None,
        }
    }

    fn give(&mut self) -> Option<Block> {
        self.current += 1;
        Some(Block(std::mem::take(&mut self.words)))
    }
}
