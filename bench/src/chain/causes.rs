//! Why a write allocated.
//!
//! ```text
//! beginnings       of a generation: its memtable's head, its handle, a version
//! large batches    of more than 1,024 operations
//! opened files     of a segment that a write-once check had to look into
//! the rest         everything else
//! ```
//!
//! A write is put down whole to the first cause that it has. Chunks of the write region cost nothing: they are
//! used again with the count of their users.

use sealstone::Store;

/// What a store has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counted {
    /// The newest generation.
    generation: u64,
    opens: u64,
}

impl Counted {
    fn by(store: &Store) -> Self {
        let stats = store.stats();
        Self {
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
    /// Begins to count: generations and files of before are not meant.
    pub fn start(store: &Store) -> Self {
        Self {
            last: Counted::by(store),
            ..Self::default()
        }
    }

    /// A write made that many allocations. Asks the store, which takes memory and time, unless it made none:
    /// then it began nothing either.
    pub fn note(&mut self, allocations: u64, large: bool, store: &Store) {
        if allocations == 0 {
            return;
        }
        let now = Counted::by(store);
        self.all += allocations;
        *if now.generation > self.last.generation {
            &mut self.generations
        } else if large {
            &mut self.large
        } else if now.opens > self.last.opens {
            &mut self.opens
        } else {
            &mut self.rest
        } += allocations;
        self.last = now;
    }
}
