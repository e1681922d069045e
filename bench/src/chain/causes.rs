//! Why a write allocated.
//!
//! ```text
//! chunk handles    one for each chunk of the write region that it took
//! large batches    of more operations than the store keeps lists for: lists of their own
//! beginnings       of a generation: its memtable's head, its handle, a version
//! opened files     of a segment that a write-once check had to look into
//! the rest         everything else
//! ```
//!
//! Less the chunks' handles, a write is put down whole to the first cause that it has. Lists that have grown
//! too large are not kept, so writes behind a large batch grow theirs anew: that is the rest, and nothing else
//! once buffers are warm.

use sealstone::Store;

/// What a store has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counted {
    chunks: u64,
    /// The newest generation.
    generation: u64,
    opens: u64,
}

impl Counted {
    fn by(store: &Store) -> Self {
        let stats = store.stats();
        let buffers = stats.memory_counters.buffers.iter();
        let chunks = buffers.filter(|one| one.class == "chunk" && one.caller == "write");
        Self {
            chunks: chunks.map(|one| one.counts.hits + one.counts.misses).sum(),
            generation: store.audit().generations.first().copied().unwrap_or(0),
            opens: stats.opens,
        }
    }
}

/// Allocations of writes by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Causes {
    /// All of them.
    pub all: u64,
    /// Chunks' handles.
    pub chunks: u64,
    /// Large batches.
    pub large: u64,
    /// Writes that began a generation.
    pub generations: u64,
    /// Writes that opened a segment's file.
    pub opens: u64,
    /// All other writes.
    pub rest: u64,
    last: Counted,
}

impl Causes {
    /// Begins to count: chunks, generations and files of before are not meant.
    pub fn start(store: &Store) -> Self {
        Self {
            last: Counted::by(store),
            ..Self::default()
        }
    }

    /// A write made that many allocations. Asks the store, which takes memory and time, unless it made none:
    /// then it took no chunk and began nothing either.
    pub fn note(&mut self, allocations: u64, large: bool, store: &Store) {
        if allocations == 0 {
            return;
        }
        let now = Counted::by(store);
        let handles = allocations.min(now.chunks - self.last.chunks);
        self.all += allocations;
        self.chunks += handles;
        let others = allocations - handles;
        *if large {
            &mut self.large
        } else if now.generation > self.last.generation {
            &mut self.generations
        } else if now.opens > self.last.opens {
            &mut self.opens
        } else {
            &mut self.rest
        } += others;
        self.last = now;
    }
}
