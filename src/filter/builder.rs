//! Builds a filter from hashes in index order, one block at a time, in constant memory.

use super::{Block, FilterShape};
use crate::types::KeyHash;

/// Takes ascending hashes and gives out finished blocks in order.
#[derive(Debug)]
pub struct FilterBuilder {
    shape: FilterShape,
    /// The number of the block being filled.
    current: u64,
    block: Block,
}

impl FilterBuilder {
    /// A builder of a filter of this shape.
    pub fn new(shape: FilterShape) -> Self {
        Self {
            shape,
            current: 0,
            block: Block::default(),
        }
    }

    /// The shape.
    pub const fn shape(&self) -> FilterShape {
        self.shape
    }

    /// Adds a hash, not below the one before; hands each block that is thereby complete to `emit`.
    pub fn push(&mut self, hash: KeyHash, mut emit: impl FnMut(Block)) {
        let wanted = self.shape.block_of(hash);
        assert!(wanted >= self.current, "hashes come in order");
        while self.current < wanted {
            emit(std::mem::take(&mut self.block));
            self.current += 1;
        }
        self.block.insert(self.shape.algorithm, hash);
    }

    /// Hands out at most `budget` of the blocks that are left; `true` once there is none.
    pub fn finish_step(&mut self, budget: u64, mut emit: impl FnMut(Block)) -> bool {
        let to = self.shape.blocks.min(self.current.saturating_add(budget));
        while self.current < to {
            emit(std::mem::take(&mut self.block));
            self.current += 1;
        }
        self.current == self.shape.blocks
    }
}
