//! sealstone's own way, on the same demand: one write region, chunks taken as records come.
//!
//! The ledger is the engine's: a real [`Region`] and real permits, sizes from the engine's public sums
//! (what a memtable takes empty, what a block of references takes, how large a generation may be). Records
//! are placed in chunks as the engine places them. What is modelled is the buffers behind the permits: one
//! is allocated when none of its kind is spare, and kept from then on. Tests compare that with a real
//! region and with a store.
//!
//! ```text
//! records of a flush --> commits --> open generation --seal--> flushing --> free
//! ```
//!
//! A generation is sealed by its records and bytes, never by a checkpoint, and flushed while the next one
//! fills: two are in memory at once, beside the flush's scratch. Trims, collections and levels are other
//! people's: nothing here reacts to them.

use std::collections::BTreeMap;

use sealstone::log::FRAME_HEADER_BYTES;
use sealstone::log::record::{RECORD_HEADER_BYTES, encoded_len};
use sealstone::memory::{Owner, Permit, Region};
use sealstone::memtable::{BatchShape, Memtable, MemtableOptions};
use sealstone::segment::SegmentScratch;
use sealstone::types::KEY_BYTES_MAX;

use super::replay::Outcome;
use super::trace::{Event, Trace};
use super::workload::Database;

/// Payload of a commit of the application, which cuts its writes: below a chunk, so that it is encoded
/// in place.
const CUT_COMMIT_BYTES: u64 = 96 << 10;
/// Payload of any other: a block's writes, larger than a chunk, so that it is encoded apart.
const COMMIT_BYTES: u64 = 1 << 20;
/// Generations that have to fit: two, and one that a snapshot pins.
const GENERATIONS: u64 = 3;

/// Sizes of the store, by default those of a store that is told nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// The write region.
    pub region_bytes: u64,
    /// A payload chunk.
    pub chunk_bytes: u32,
    /// References of a block.
    pub block_records: u32,
    /// Records that seal a generation.
    pub seal_records: u32,
    /// The flush's output buffer.
    pub output_buffer_bytes: usize,
    /// Record bytes between two key fences.
    pub key_fence_bytes: u32,
}

impl Default for Sizes {
    fn default() -> Self {
        Self {
            region_bytes: 32 << 20,
            chunk_bytes: 128 << 10,
            block_records: MemtableOptions::BLOCK_RECORDS,
            seal_records: 32 << 10,
            output_buffer_bytes: 256 << 10,
            key_fence_bytes: 4096,
        }
    }
}

impl Sizes {
    const fn memtable(&self) -> MemtableOptions {
        MemtableOptions {
            block_records: self.block_records,
            records_max: self.seal_records,
            height_seed: 0,
        }
    }

    const fn scratch_bytes(&self, frame_bytes: u64) -> u64 {
        let records = self.seal_records as u64;
        // A record takes more in a segment than in a frame, for header and padding.
        let data_bytes = frame_bytes + records * 40;
        SegmentScratch::bytes_needed(
            records,
            data_bytes,
            self.key_fence_bytes,
            self.output_buffer_bytes,
        )
    }

    /// Frame bytes that seal a generation: the most with which all that has to fit does.
    pub fn seal_bytes(&self) -> u64 {
        let region = Region::new(self.region_bytes, self.chunk_bytes);
        let key_bytes_max = KEY_BYTES_MAX.min(self.chunk_bytes as usize - 16);
        let fits = |bytes| {
            let one = Memtable::bytes_max(&region, &self.memtable(), bytes, key_bytes_max);
            GENERATIONS * one + self.scratch_bytes(bytes) <= self.region_bytes
        };
        let mut largest = 0;
        let mut step = self.region_bytes.next_power_of_two();
        while step >= 8 {
            if fits(largest + step) {
                largest += step;
            }
            step /= 2;
        }
        largest
    }
}

/// A generation in memory.
struct Generation {
    memory: Permit,
    chunks: u64,
    blocks: u64,
    /// What is left of the last chunk.
    room: u64,
    records: u64,
    frame_bytes: u64,
    payload_bytes: u64,
}

/// Buffers of one kind: how many there are, and how many are in use.
#[derive(Default)]
struct Buffers {
    made: u64,
    used: u64,
}

impl Buffers {
    fn take(&mut self, count: u64) {
        self.used += count;
        self.made = self.made.max(self.used);
    }
}

struct Replay {
    sizes: Sizes,
    seal_bytes: u64,
    region: Region,
    base_bytes: u64,
    block_bytes: u64,
    open: Option<Generation>,
    flushing: Option<Generation>,
    chunks: Buffers,
    blocks: Buffers,
    bases: Buffers,
    refused: u64,
    outcome: Outcome,
}

/// Replays a trace.
pub fn replay(trace: &Trace, sizes: &Sizes) -> Outcome {
    let region = Region::new(sizes.region_bytes, sizes.chunk_bytes);
    let seal_bytes = sizes.seal_bytes();
    let options = sizes.memtable();
    let mut one = BatchShape::new(sizes.chunk_bytes);
    // A record of nothing fits whatever a chunk can be.
    let _ = one.add(0, 0);
    let least = Memtable::cost_bytes_max(&region, &options, &one);
    let scratch_bytes = sizes.scratch_bytes(seal_bytes);
    let scratch = region.try_acquire(scratch_bytes, Owner::Scratch).ok();
    let mut replay = Replay {
        sizes: *sizes,
        seal_bytes,
        base_bytes: Memtable::base_bytes(&region, &options),
        block_bytes: least - u64::from(sizes.chunk_bytes),
        region,
        open: None,
        flushing: None,
        chunks: Buffers::default(),
        blocks: Buffers::default(),
        bases: Buffers::default(),
        refused: u64::from(scratch.is_none()),
        outcome: Outcome {
            copied_bytes: [("chunk", 0), ("output", 0), ("none", 0)],
            ..Outcome::default()
        },
    };
    replay.outcome.held_bytes_max[Database::Bench as usize] = scratch_bytes;
    let mut owners = BTreeMap::new();
    for (at_ms, event) in &trace.events {
        replay.outcome.end_ms = *at_ms;
        replay.outcome.steps += 1;
        match event {
            Event::Begin {
                flush, database, ..
            } => {
                owners.insert(*flush, *database);
            }
            Event::End {
                flush,
                records,
                bytes,
            } => {
                let commit_bytes = match owners.remove(flush) {
                    Some(Database::Application) => CUT_COMMIT_BYTES,
                    _ => COMMIT_BYTES,
                };
                replay.accept(*records, *bytes, commit_bytes);
            }
            Event::Get { count, used, .. } => {
                let records = u64::from(*count) * u64::from(*used);
                let bytes = records * super::gopool::ENTRY_BYTES;
                replay.accept(records, bytes, CUT_COMMIT_BYTES);
            }
            _ => {}
        }
    }
    replay.finish(scratch_bytes)
}

impl Replay {
    /// Takes the records of one flush, as commits.
    fn accept(&mut self, records: u64, bytes: u64, commit_bytes: u64) {
        if records == 0 {
            return;
        }
        let (mean, more) = (bytes / records, bytes % records);
        for (count, record_bytes) in [(records - more, mean), (more, mean + 1)] {
            let record = encoded_len(0, record_bytes as usize) as u64;
            let commit = (commit_bytes / record).max(1);
            let mut left = count;
            while left > 0 {
                let take = left.min(commit);
                self.commit(take, record, record_bytes);
                left -= take;
            }
        }
    }

    fn commit(&mut self, records: u64, record: u64, record_bytes: u64) {
        let payload_bytes = records * record;
        let frame_bytes = payload_bytes + FRAME_HEADER_BYTES as u64;
        let seal_records = u64::from(self.sizes.seal_records);
        let full = self.open.as_ref().is_some_and(|open| {
            open.records + records > seal_records
                || open.frame_bytes + frame_bytes > self.seal_bytes
        });
        if full {
            self.seal();
        }
        if self.open.is_none() {
            let Ok(memory) = self.region.try_acquire(self.base_bytes, Owner::Open) else {
                self.refused += 1;
                return;
            };
            self.bases.take(1);
            self.outcome.counters.granted_bytes += self.base_bytes;
            self.open = Some(Generation {
                memory,
                chunks: 0,
                blocks: 0,
                room: 0,
                records: 0,
                frame_bytes: 0,
                payload_bytes: 0,
            });
        }
        let Some(open) = &mut self.open else {
            return;
        };
        let chunk_bytes = u64::from(self.sizes.chunk_bytes);
        let apart = payload_bytes > chunk_bytes;
        let before = if apart { 0 } else { open.room };
        let (chunks, mut room) = place(chunk_bytes, before, records, record);
        if apart {
            // What comes next goes on where there is more room.
            room = room.max(open.room);
        }
        let held = open.blocks * u64::from(self.sizes.block_records);
        let beyond = (open.records + records).saturating_sub(held);
        let blocks = beyond.div_ceil(u64::from(self.sizes.block_records));
        let needed = chunks * chunk_bytes + blocks * self.block_bytes;
        let Ok(permit) = self.region.try_acquire(needed, Owner::Reserved) else {
            self.refused += 1;
            return;
        };
        open.memory.absorb(permit);
        (open.chunks, open.blocks) = (open.chunks + chunks, open.blocks + blocks);
        open.room = room;
        open.records += records;
        open.frame_bytes += frame_bytes;
        open.payload_bytes += payload_bytes;
        self.chunks.take(chunks);
        self.blocks.take(blocks);
        let outcome = &mut self.outcome;
        outcome.held_max = outcome.held_max.max(self.chunks.used);
        outcome.counters.gets += chunks + blocks;
        outcome.counters.granted_bytes += needed;
        outcome.copied_bytes[0].1 += payload_bytes;
        outcome.copied_bytes[1].1 += records * record_bytes;
        // Of a record: itself, a reference with its links, two slots of the probe table.
        let reference = self.block_bytes / u64::from(self.sizes.block_records);
        outcome.needed_bytes += payload_bytes + records * (reference + 8);
        let in_use = self.region.total_bytes() - self.region.ledger().free_bytes();
        outcome.memory_bytes_max = outcome.memory_bytes_max.max(in_use);
    }

    /// The open generation is sealed; the flush of the one before has ended by now.
    fn seal(&mut self) {
        self.retire();
        if let Some(mut open) = self.open.take() {
            open.memory.move_to(Owner::Sealed);
            open.memory.move_to(Owner::Flushing);
            self.flushing = Some(open);
        }
    }

    fn retire(&mut self) {
        if let Some(done) = self.flushing.take() {
            self.outcome.counters.puts += done.chunks + done.blocks;
            self.chunks.used -= done.chunks;
            self.blocks.used -= done.blocks;
            self.bases.used -= 1;
        }
    }

    fn finish(mut self, scratch_bytes: u64) -> Outcome {
        let fresh_bytes = self.chunks.made * u64::from(self.sizes.chunk_bytes)
            + self.blocks.made * self.block_bytes
            + self.bases.made * self.base_bytes
            + scratch_bytes;
        let counters = &mut self.outcome.counters;
        counters.fresh_bytes = fresh_bytes;
        counters.fresh[0] = self.chunks.made + self.blocks.made + self.bases.made + 1;
        counters.misses[super::rules::Reason::Cold as usize] = counters.fresh[0];
        counters.lease_hits = counters
            .gets
            .saturating_sub(self.chunks.made + self.blocks.made);
        counters.retained_bytes_max = fresh_bytes;
        debug_assert!(self.region.ledger().is_exact());
        debug_assert_eq!(self.refused, 0, "two generations always fit");
        self.outcome
    }
}

/// Places records of one length: chunks taken, and what is left of the last one. A header (the key's
/// length is not known here, so the header alone) stays whole, a value goes on in the next chunk.
fn place(chunk: u64, mut room: u64, records: u64, record: u64) -> (u64, u64) {
    let mut left = records;
    let mut chunks = 0;
    while left > 0 {
        if room < RECORD_HEADER_BYTES as u64 {
            chunks += 1;
            room = chunk;
        }
        let whole = (room / record).min(left);
        room -= whole * record;
        left -= whole;
        if left > 0 && room >= RECORD_HEADER_BYTES as u64 {
            let beyond = record - room;
            let more = beyond.div_ceil(chunk);
            chunks += more;
            room = more * chunk - beyond;
            left -= 1;
        }
    }
    (chunks, room)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_placed_as_the_engine_places_them() {
        for (records, value_bytes) in [(1, 5000), (700, 100), (2000, 84), (40, 3000), (1, 0)] {
            let mut shape = BatchShape::new(4096);
            for _ in 0..records {
                shape.add(0, value_bytes).unwrap();
            }
            let record = encoded_len(0, value_bytes) as u64;
            let (chunks, _) = place(4096, 0, records, record);
            assert_eq!(chunks, shape.chunks_fresh(), "{records} of {value_bytes}");
        }
    }

    #[test]
    fn a_real_region_allocates_what_the_model_says() {
        use std::sync::atomic::AtomicU64;
        let region = Region::new(8 << 20, 4096);
        let mut buffers = Buffers::default();
        let mut allocated_bytes = 0;
        for count in [3, 9, 2, 9, 30, 1, 30] {
            let kept_before = region.pooled_bytes();
            let mut permit = region.try_acquire(count * 4096 + 800, Owner::Open).unwrap();
            let chunks: Vec<_> = (0..count).map(|_| permit.chunk().unwrap()).collect();
            let words = permit.words::<AtomicU64>(100).unwrap();
            let reused = kept_before - region.pooled_bytes();
            allocated_bytes += count * 4096 + 800 - reused;
            buffers.take(count);
            drop((chunks, words));
            buffers.used -= count;
        }
        assert_eq!(allocated_bytes, buffers.made * 4096 + 800);
    }

    #[test]
    fn the_default_generation_is_about_a_ninth_of_the_region() {
        let seal_bytes = Sizes::default().seal_bytes();
        assert!((3_000_000..4_500_000).contains(&seal_bytes), "{seal_bytes}");
    }
}
