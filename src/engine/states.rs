//! The states of a generation after its seal, as tokens that the next state consumes.
//!
//! `Sealed` (closed, its last commits may be unpublished) -> `QueuedGeneration` (all published, its log
//! synced with the seal frame) -> `FlushingGeneration` -> `FlushedGeneration` (segments durable and
//! installed) -> retired (memory given back). Only maintenance holds tokens; readers hold the shared
//! handle. Each step moves the memory to its next owner in the ledger.

use crate::engine::OpenGeneration;
use crate::engine::version::Generation;
use crate::memory::Owner;
use crate::memtable::Memtable;
use crate::sync::Arc;

/// Closed to commits; stands in the commit queue behind its last one.
#[derive(Debug)]
pub(crate) struct Sealed {
    handle: Arc<Generation>,
    memory: Arc<Memtable>,
}

impl Sealed {
    /// Closes the open generation: its writer ends here.
    pub fn new(open: OpenGeneration) -> Self {
        open.memory.move_to(Owner::Sealed);
        Self {
            handle: open.handle,
            memory: open.writer.seal(),
        }
    }

    /// The leader has published its commits and synced its log.
    pub fn queue(self) -> QueuedGeneration {
        QueuedGeneration {
            handle: self.handle,
            memory: self.memory,
        }
    }
}

/// Waits for the flush.
#[derive(Debug)]
pub(crate) struct QueuedGeneration {
    handle: Arc<Generation>,
    memory: Arc<Memtable>,
}

impl QueuedGeneration {
    pub fn start(self) -> FlushingGeneration {
        self.memory.move_to(Owner::Flushing);
        FlushingGeneration {
            handle: self.handle,
            memory: self.memory,
        }
    }
}

/// Being written to segments.
#[derive(Debug)]
pub(crate) struct FlushingGeneration {
    handle: Arc<Generation>,
    memory: Arc<Memtable>,
}

impl FlushingGeneration {
    pub fn handle(&self) -> &Arc<Generation> {
        &self.handle
    }

    pub fn memory(&self) -> &Arc<Memtable> {
        &self.memory
    }

    /// Its runs are installed; the memory stays while a reader's bound needs it.
    pub fn flushed(self) -> FlushedGeneration {
        self.memory.move_to(Owner::Pinned);
        FlushedGeneration {
            handle: self.handle,
        }
    }
}

/// Installed; its memory may go as soon as no pin needs it.
#[derive(Debug)]
pub(crate) struct FlushedGeneration {
    handle: Arc<Generation>,
}

impl FlushedGeneration {
    pub fn handle(&self) -> &Arc<Generation> {
        &self.handle
    }

    /// Takes the memory out, which goes back once its last reader is through.
    pub fn retire(self) -> (Option<Arc<Memtable>>, Arc<Generation>) {
        let memory = self.handle.retire();
        if let Some(memory) = &memory {
            memory.move_to(Owner::Retiring);
        }
        (memory, self.handle)
    }
}
