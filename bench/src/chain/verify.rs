//! Whether the store has what the blocks said: bytes of its own, not the caller's.
//!
//! After each block some keys and values are set aside, the block's buffer is overwritten, and the store is
//! asked for them. At the end the generator runs once more, and of all keys that are written once every so
//! many are compared.

use anyhow::Result;
use sealstone_sim::pool::chain::Chain;
use sealstone_sim::pool::workload::{Database, Parameters};

use super::block::Block;
use super::node::Node;

/// Operations of a block that are asked for right after it.
const RECENT: usize = 16;

/// Blocks between two looks at the write region's counts.
const LEDGER_BLOCKS: u64 = 16;

/// At the end one operation of so many is asked for.
const STEP: usize = 97;

/// What was found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// Values compared.
    pub values: u64,
    /// Those that were others or absent, and counts that did not add up.
    pub violations: u64,
}

impl Checked {
    fn compare(
        &mut self,
        node: &mut Node,
        database: Database,
        key: &[u8],
        value: &[u8],
    ) -> Result<()> {
        self.values += 1;
        self.violations += u64::from(!node.has(database, key, value)?);
        Ok(())
    }

    /// Compares operations of the first `blocks` blocks.
    pub fn all(&mut self, node: &mut Node, parameters: &Parameters, blocks: u64) -> Result<()> {
        let mut chain = Chain::new(parameters.clone());
        let mut block = Block::new(parameters.seed);
        for _ in 0..blocks {
            block.clear();
            if chain.block(&mut block).is_none() {
                break;
            }
            let once = block.operations().iter().filter(|one| !one.rewritten);
            for operation in once.step_by(STEP) {
                let (key, value) = (block.key(operation), block.value(operation));
                self.compare(node, operation.database, key, value)?;
            }
        }
        Ok(())
    }
}

/// Checks blocks as they come, with buffers of its own.
#[derive(Debug, Default)]
pub struct Recent {
    bytes: Vec<u8>,
    places: Vec<(Database, usize, usize, usize)>,
    blocks: u64,
    checked: Checked,
}

impl Recent {
    /// What all checks found.
    pub fn outcome(self) -> Checked {
        self.checked
    }

    /// Sets some operations aside, overwrites the block, and asks the store for them.
    pub fn check(&mut self, node: &mut Node, block: &mut Block) -> Result<()> {
        self.bytes.clear();
        self.places.clear();
        // The state's responses are set twice in a block: only the second value counts.
        let operations = block.operations().iter();
        let operations = operations.filter(|one| one.database != Database::State);
        let step = (block.operations().len() / RECENT).max(1);
        for operation in operations.step_by(step) {
            let start = self.bytes.len();
            self.bytes.extend_from_slice(block.key(operation));
            let middle = self.bytes.len();
            self.bytes.extend_from_slice(block.value(operation));
            let end = self.bytes.len();
            self.places.push((operation.database, start, middle, end));
        }
        block.poison();
        for (database, start, middle, end) in &self.places {
            let (key, value) = (&self.bytes[*start..*middle], &self.bytes[*middle..*end]);
            self.checked.compare(node, *database, key, value)?;
        }
        self.blocks += 1;
        if self.blocks.is_multiple_of(LEDGER_BLOCKS) {
            self.checked.violations += u64::from(!node.ledger_is_exact());
        }
        Ok(())
    }
}
