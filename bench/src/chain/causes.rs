//! Why a write allocated.
//!
//! ```text
//! chunk handles    one for each chunk of the write region that it took
//! beginnings       of a generation: its memtable's head, its handle, a version
//! opened files     of a segment that a write-once check had to look into
//! the rest         everything else: nothing, once buffers are warm
//! ```
//!
//! A write that allocated and did one of the last two is put down to it whole, less the chunks' handles.

use sealstone::Store;

/// What a store has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counted {
    chunks: u64,
    generations: u64,
    opens: u64,
}

impl Counted {
    fn by(store: &Store) -> Self {
        let stats = store.stats();
        let requests = |class| {
            let buffers = stats.memory_counters.buffers.iter();
            let own = buffers.filter(|one| one.class == class && one.caller == "write");
            own.map(|one| one.counts.hits + one.counts.misses).sum()
        };
        Self {
            chunks: requests("chunk"),
            // A generation takes one table of slots when it begins.
            generations: requests("slots"),
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
    /// Writes that began a generation.
    pub generations: u64,
    /// Writes that opened a segment's file and began nothing.
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
    pub fn note(&mut self, allocations: u64, store: &Store) {
        if allocations == 0 {
            return;
        }
        let now = Counted::by(store);
        let handles = allocations.min(now.chunks - self.last.chunks);
        self.all += allocations;
        self.chunks += handles;
        let others = allocations - handles;
        *if now.generations > self.last.generations {
            &mut self.generations
        } else if now.opens > self.last.opens {
            &mut self.opens
        } else {
            &mut self.rest
        } += others;
        self.last = now;
    }
}
