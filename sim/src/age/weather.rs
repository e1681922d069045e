//! What the day brings: when jobs get a turn, how short memory is, how openings begin and end. All of it
//! follows from the hour or the number of the opening, so that two runs of a size can be compared.

use sealstone::env::PressureLevel;
use sealstone::{Background, Options};

use super::world::Ending;

/// Hours of a run.
pub const HOURS: u64 = 24;

/// When jobs run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turns {
    /// A few steps after each batch.
    Steady,
    /// Whatever is runnable, after each batch.
    Eager,
    /// Hardly; else when a write is refused.
    Lazy,
    /// Many at once, now and then.
    Bursts,
}

/// The weather of an hour.
#[derive(Clone, Copy, Debug)]
pub struct Weather {
    /// When jobs run.
    pub turns: Turns,
    /// How short memory is.
    pub pressure: PressureLevel,
}

/// A cycle that fits into a quarter of the hours, so that the first and the last have the same.
const CYCLE: [Weather; 6] = {
    use PressureLevel::{Critical, High, Normal};
    use Turns::{Bursts, Eager, Lazy, Steady};
    const fn weather(turns: Turns, pressure: PressureLevel) -> Weather {
        Weather { turns, pressure }
    }
    [
        weather(Steady, Normal),
        weather(Eager, High),
        weather(Lazy, Normal),
        weather(Bursts, Critical),
        weather(Steady, High),
        weather(Lazy, Critical),
    ]
};

/// The weather of an hour, from 0.
pub fn of_hour(hour: u64) -> Weather {
    CYCLE[(hour % CYCLE.len() as u64) as usize]
}

impl Weather {
    /// For the table.
    pub fn name(&self) -> String {
        format!("{:?} {:?}", self.turns, self.pressure).to_lowercase()
    }
}

/// How the opening of that number ends, from 0.
pub fn ending(opening: u64) -> Ending {
    let cycle = [
        Ending::Close,
        Ending::PowerLoss,
        Ending::Kill,
        Ending::PowerLossInside,
    ];
    cycle[(opening % cycle.len() as u64) as usize]
}

/// Records of a generation: enough generations to age with, none larger than a real one.
pub fn seal_records(writes: u64) -> u64 {
    (writes / 128).clamp(256, 1 << 17)
}

/// The memory that an opening is given, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// The write region.
    pub region_bytes: u64,
    /// The filter budget.
    pub filter_bytes: u64,
    /// The scan memory.
    pub scan_bytes: u64,
}

impl Budget {
    /// All of it.
    pub const fn total(&self) -> u64 {
        self.region_bytes + self.filter_bytes + self.scan_bytes
    }
}

/// Openings whose filter budget is half of what their filters would take. Early ones: without merged runs
/// a segment without filter costs every miss a read.
const DROUGHTS: [u64; 2] = [2, 3];

/// What an opening gets: `written` of `writes` operations lie behind it.
pub fn budget(opening: u64, written: u64, writes: u64) -> Budget {
    let seal_records = seal_records(writes);
    // Two segments a generation, and those that recoveries make.
    let segments = 2 * writes / seal_records + 100;
    // 12 bits a record are 1.5 bytes; small segments round up.
    let filter_bytes = if DROUGHTS.contains(&opening) {
        written * 3 / 4
    } else {
        writes * 2 + segments * 64
    };
    Budget {
        region_bytes: (seal_records * 768).max(1 << 20),
        filter_bytes,
        // Three scans with the smallest buffers.
        scan_bytes: 3 * segments * 4096,
    }
}

/// Bytes of a chunk of the write region.
fn chunk_bytes(budget: &Budget) -> u32 {
    let bytes = (budget.region_bytes / 512).next_power_of_two();
    bytes.clamp(4096, 128 << 10) as u32
}

/// Whether chunks have pages of their own, which the heap does not count.
pub fn chunks_are_mapped(budget: &Budget) -> bool {
    chunk_bytes(budget) >= 16 << 10
}

/// The hash seed of every store that ages.
const FAMILY_SEED: [u8; 16] = *b"sealstone ages  ";

/// How an opening is made.
pub fn options(opening: u64, budget: &Budget, writes: u64) -> Options {
    let caps = [0, 64, 256, 16];
    Options::new()
        .background(Background::Manual)
        // On a real directory, too, equal seeds give equal counts.
        .family_seed(FAMILY_SEED)
        .write_region_bytes(budget.region_bytes)
        .filter_budget_bytes(budget.filter_bytes)
        .scan_bytes(budget.scan_bytes)
        // About the newest fifth of the records.
        .window_bytes(writes * 2)
        .chunk_bytes(chunk_bytes(budget))
        .seal_records(seal_records(writes) as u32)
        .cursor_buffer_bytes(16 << 10)
        .manifest_roll_bytes(64 << 10)
        .descriptors_max(caps[(opening % caps.len() as u64) as usize])
}
