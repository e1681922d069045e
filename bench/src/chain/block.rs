//! One block as bytes: what the generator makes, laid out in one buffer, write by write.
//!
//! Values are slices of noise, which no compressor would gain by; where a slice begins follows from the
//! operation's number in the run, so a second run of the generator gives the same bytes and what a store
//! answers can be compared with it.

use sealstone_sim::choices::SmallRandom;
use sealstone_sim::pool::workload::{Database, Set, Sink};

/// Longer than the longest value.
const NOISE_BYTES: usize = 1 << 20;

/// What the buffer is overwritten with once the store must not need it any more.
const POISON: u8 = 0xDB;

/// One operation, as places in the buffer.
#[derive(Clone, Copy, Debug)]
pub struct Operation {
    /// Where it goes.
    pub database: Database,
    key: (usize, usize),
    value: (usize, usize),
    /// The key is written again in later blocks, or again in this one.
    pub rewritten: bool,
}

/// A write: the operations up to `end` that none before it has.
#[derive(Clone, Copy, Debug)]
pub struct Write {
    /// Of which database.
    pub database: Database,
    /// Whether it waits for its barrier.
    pub synced: bool,
    /// The end in the list of operations.
    pub end: usize,
}

/// A block's operations. Buffers are kept from block to block.
#[derive(Debug)]
pub struct Block {
    noise: Vec<u8>,
    bytes: Vec<u8>,
    operations: Vec<Operation>,
    writes: Vec<Write>,
    /// Operations of all blocks so far.
    number: u64,
}

impl Block {
    /// An empty one, before the first block of a run.
    pub fn new(seed: u64) -> Self {
        let mut noise = vec![0; NOISE_BYTES];
        SmallRandom::new(seed).fill(&mut noise);
        Self {
            noise,
            bytes: Vec::new(),
            operations: Vec::new(),
            writes: Vec::new(),
            number: 0,
        }
    }

    /// Removes the operations, so that the next block can be made.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.operations.clear();
        self.writes.clear();
    }

    /// Overwrites all keys and values: they are the caller's again.
    pub fn poison(&mut self) {
        self.bytes.fill(POISON);
    }

    /// In the order of the generator.
    pub fn operations(&self) -> &[Operation] {
        &self.operations
    }

    /// The writes, each with the operations that belong to it.
    pub fn writes(&self) -> impl Iterator<Item = (Write, &[Operation])> {
        let mut start = 0;
        self.writes.iter().map(move |write| {
            let operations = &self.operations[start..write.end];
            start = write.end;
            (*write, operations)
        })
    }

    /// The bytes of an operation's key.
    pub fn key(&self, operation: &Operation) -> &[u8] {
        &self.bytes[operation.key.0..operation.key.1]
    }

    /// The bytes of an operation's value.
    pub fn value(&self, operation: &Operation) -> &[u8] {
        &self.bytes[operation.value.0..operation.value.1]
    }
}

impl Sink for Block {
    fn set(&mut self, set: &Set) {
        let start = self.bytes.len();
        set.key.write(&mut self.bytes);
        let middle = self.bytes.len();
        self.number += 1;
        let value_bytes = set.value_bytes as usize;
        let room = (self.noise.len() - value_bytes) as u64;
        let from = SmallRandom::new(self.number).below(room) as usize;
        self.bytes
            .extend_from_slice(&self.noise[from..from + value_bytes]);
        self.operations.push(Operation {
            database: set.database,
            key: (start, middle),
            value: (middle, self.bytes.len()),
            rewritten: set.slot.is_some(),
        });
    }

    fn write(&mut self, database: Database, synced: bool) {
        self.writes.push(Write {
            database,
            synced,
            end: self.operations.len(),
        });
    }
}
