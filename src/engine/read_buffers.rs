//! The buffers of a thread's lookups, kept from one to the next.

use std::cell::Cell;

use crate::explain::{Cost, Step, Trace};
use crate::segment::{FileTable, LookupBuffers, ReadCounts};

thread_local! {
    static KEPT: Cell<Option<Box<LookupBuffers>>> = const { Cell::new(None) };
}

/// The buffers of one lookup: those that the thread's last one left, so that a lookup allocates nothing
/// but what it hands out. A lookup inside another one's closure gets its own.
#[derive(Default)]
pub(crate) struct ThreadBuffers(Option<Box<LookupBuffers>>);

impl ThreadBuffers {
    pub fn get(&mut self) -> &mut LookupBuffers {
        self.0.get_or_insert_with(|| {
            let kept = KEPT.try_with(Cell::take).ok().flatten();
            kept.unwrap_or_else(|| Box::new(LookupBuffers::of_thread()))
        })
    }

    /// Buffers of a lookup whose steps are kept.
    pub fn watched() -> Self {
        Self(Some(Box::new(LookupBuffers::watched())))
    }

    /// From now on reads are made together.
    pub fn set_ahead(&mut self) {
        self.get().set_ahead();
    }

    /// The next lookup begins, or begins again.
    pub fn begin(&mut self, owner: usize) {
        if let Some(ahead) = self.get().ahead() {
            ahead.begin(owner);
        }
    }

    /// Whether the lookup that was made last has stopped for a read.
    pub fn waits(&mut self) -> bool {
        self.get().ahead().is_some_and(|ahead| ahead.waits())
    }

    /// Makes the reads that lookups have stopped for.
    pub fn read_ahead(
        &mut self,
        files: &FileTable,
        is_asked_before: bool,
        counts: &mut ReadCounts,
    ) {
        if let Some(ahead) = self.get().ahead() {
            ahead.read(files, is_asked_before, counts);
        }
    }

    /// The steps that were kept.
    pub fn take_trace(&mut self) -> Trace {
        let trace = self.0.as_mut().and_then(|buffers| buffers.take_trace());
        trace.map(|trace| *trace).unwrap_or_default()
    }

    #[inline]
    pub fn is_watched(&self) -> bool {
        self.0.as_ref().is_some_and(|buffers| buffers.is_watched())
    }

    /// Keeps a step, if the lookup is watched.
    #[inline]
    pub fn watch(&mut self, counts: &ReadCounts, step: impl FnOnce(Cost) -> Step) {
        if let Some(buffers) = &mut self.0 {
            buffers.watch(counts, step);
        }
    }

    #[inline]
    pub fn watch_end(&mut self, counts: &ReadCounts) {
        if let Some(buffers) = &mut self.0 {
            buffers.watch_end(counts);
        }
    }
}

impl Drop for ThreadBuffers {
    fn drop(&mut self) {
        if let Some(mut buffers) = self.0.take() {
            buffers.trim();
            let _ = KEPT.try_with(|kept| kept.set(Some(buffers)));
        }
    }
}
