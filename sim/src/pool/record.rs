//! From writes to demand: the node's checkpoints over the generated blocks.
//!
//! ```text
//! every 2 blocks      blockstore and tx_index flush       at the block's end
//! every 58 blocks     the application                     110 ms later
//! every 72 blocks     state                               170 ms later
//! 2 and 5 times       evidence and metadata, no records: a checkpoint that flushes nothing trims, too
//! ```
//!
//! A flush holds each key once, however often it was set since the last one. Its records are spread
//! evenly over the units. How the two frequent checkpoints lie to each other is a choice: overlapped (both
//! hold their slices at once) or one after the other.

use super::application::Application;
use super::chain::Chain;
use super::trace::{Event, Trace, TrimKind};
use super::workload::{Database, Parameters, Set, Sink};

/// Units of a flush: the shards of its memtables.
pub const UNITS: u32 = 16;
/// The most records of a merge slice.
pub const MERGE_RECORDS: u32 = 16_384;

/// How the frequent checkpoints of a pair of blocks lie to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overlap {
    /// The blockstore takes its slices, then tx_index; then both give back; then both trim.
    Overlapped,
    /// tx_index from begin to trim; then, 300 ms later, the blockstore.
    Serial,
    /// The blockstore from begin to trim, then tx_index: who ends when is as if overlapped.
    InTurn,
}

/// Blocks between two checkpoints.
const EVERY: [(Database, u64); 4] = [
    (Database::Blockstore, 2),
    (Database::TxIndex, 2),
    (Database::Application, 58),
    (Database::State, 72),
];
/// Checkpoints of databases that nothing is written to, over the whole run.
const EMPTY: [(Database, u64); 2] = [(Database::Evidence, 2), (Database::Metadata, 5)];

/// What a flush has to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlushDemand {
    /// Whose.
    pub database: Database,
    /// The block after which it begins.
    pub height: u64,
    /// Distinct keys.
    pub records: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Counts sets, distinct ones since the last checkpoint apart.
struct Counter {
    records: [u64; Database::ALL.len()],
    bytes: [u64; Database::ALL.len()],
    /// For each database and slot, the number of the flush that has it already.
    seen: [Vec<u32>; Database::ALL.len()],
    flush: [u32; Database::ALL.len()],
}

impl Sink for Counter {
    fn set(&mut self, set: &Set) {
        let database = set.database as usize;
        if let Some(slot) = set.slot {
            let seen = &mut self.seen[database];
            if seen.len() <= slot as usize {
                seen.resize(slot as usize + 1, 0);
            }
            if seen[slot as usize] == self.flush[database] {
                return;
            }
            seen[slot as usize] = self.flush[database];
        }
        self.records[database] += 1;
        self.bytes[database] += set.bytes();
    }

    fn write(&mut self, _database: Database, _synced: bool) {}
}

/// The databases that checkpoint at the end of the block at `height`, in the order in which they do.
pub fn checkpoints(blocks: u64, height: u64) -> impl Iterator<Item = Database> {
    let due = EVERY
        .into_iter()
        .filter(move |(_, every)| height.is_multiple_of(*every));
    let empty = EMPTY.into_iter().filter(move |(_, times)| {
        let every = blocks / (times + 1);
        every > 0 && height.is_multiple_of(every) && height / every <= *times
    });
    due.chain(empty).map(|(database, _)| database)
}

/// What the flushes of a run have to write, in the order in which they begin.
pub fn flushes(parameters: &Parameters) -> Vec<FlushDemand> {
    let mut counter = Counter {
        records: [0; 7],
        bytes: [0; 7],
        seen: Default::default(),
        flush: [1; 7],
    };
    let slots = Application::slots(parameters.accounts) as usize;
    counter.seen[Database::Application as usize].resize(slots, 0);
    let mut chain = Chain::new(parameters.clone());
    let mut flushes = Vec::new();
    while let Some(height) = chain.block(&mut counter) {
        for database in checkpoints(parameters.blocks, height) {
            let number = database as usize;
            flushes.push(FlushDemand {
                database,
                height,
                records: std::mem::take(&mut counter.records[number]),
                bytes: std::mem::take(&mut counter.bytes[number]),
            });
            counter.flush[number] += 1;
        }
    }
    flushes
}

/// The trace of these flushes; `overlap` says how each pair of frequent ones lies.
pub fn trace(
    parameters: &Parameters,
    flushes: &[FlushDemand],
    mut overlap: impl FnMut(u64) -> Overlap,
) -> Trace {
    let mut events = Vec::new();
    let mut number = 0;
    let mut place = 0;
    while let Some(demand) = flushes.get(place) {
        number += 1;
        let at_ms = demand.height * parameters.block_ms;
        let next = flushes.get(place + 1);
        match (demand.database, next) {
            (Database::Blockstore, Some(index)) if index.database == Database::TxIndex => {
                let pair = (Flush::new(number, demand), Flush::new(number + 1, index));
                pair_of(pair, at_ms, overlap(demand.height), &mut events);
                number += 1;
                place += 1;
            }
            (Database::Application, _) => {
                Flush::new(number, demand).whole(at_ms + 110, &mut events)
            }
            (Database::State, _) => Flush::new(number, demand).whole(at_ms + 170, &mut events),
            _ => Flush::new(number, demand).whole(at_ms, &mut events),
        }
        place += 1;
    }
    // Steps of one flush stay in order: the sort is stable and their times are equal.
    events.sort_by_key(|(at_ms, _)| *at_ms);
    Trace {
        workload: parameters.workload.name().into(),
        transactions: parameters.transactions,
        blocks: parameters.blocks,
        events,
    }
}

fn pair_of(
    (blockstore, index): (Flush<'_>, Flush<'_>),
    at_ms: u64,
    overlap: Overlap,
    events: &mut Vec<(u64, Event)>,
) {
    match overlap {
        Overlap::Overlapped => {
            blockstore.take(at_ms, events);
            index.take(at_ms, events);
            blockstore.give(at_ms, events);
            index.give(at_ms, events);
            blockstore.trim(at_ms, events);
            index.trim(at_ms, events);
        }
        Overlap::Serial => {
            index.whole(at_ms, events);
            blockstore.whole(at_ms + 300, events);
        }
        Overlap::InTurn => {
            blockstore.whole(at_ms, events);
            index.whole(at_ms, events);
        }
    }
}

/// One flush's events.
struct Flush<'a> {
    number: u32,
    demand: &'a FlushDemand,
}

impl<'a> Flush<'a> {
    const fn new(number: u32, demand: &'a FlushDemand) -> Self {
        Self { number, demand }
    }

    fn take(&self, at_ms: u64, events: &mut Vec<(u64, Event)>) {
        let records = self.demand.records;
        let unit = |unit: u64| {
            let units = u64::from(UNITS);
            (records / units + u64::from(unit < records % units)) as u32
        };
        let flush = self.number;
        let begin = Event::Begin {
            flush,
            database: self.demand.database,
            units: (0..u64::from(UNITS))
                .map(unit)
                .filter(|len| *len > 0)
                .collect(),
        };
        events.push((at_ms, begin));
        events.push((at_ms, Event::Build { flush }));
        let merge = Event::Merge {
            flush,
            records: records.min(u64::from(MERGE_RECORDS)) as u32,
        };
        events.push((at_ms, merge));
    }

    fn give(&self, at_ms: u64, events: &mut Vec<(u64, Event)>) {
        let end = Event::End {
            flush: self.number,
            records: self.demand.records,
            bytes: self.demand.bytes,
        };
        events.push((at_ms, end));
    }

    fn trim(&self, at_ms: u64, events: &mut Vec<(u64, Event)>) {
        let trim = Event::Trim {
            kind: TrimKind::Checkpoint,
            database: self.demand.database,
        };
        events.push((at_ms, trim));
    }

    fn whole(&self, at_ms: u64, events: &mut Vec<(u64, Event)>) {
        if self.demand.records > 0 {
            self.take(at_ms, events);
            self.give(at_ms, events);
        }
        self.trim(at_ms, events);
    }
}
