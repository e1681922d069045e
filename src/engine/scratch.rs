//! Memory that writes use again: lists of operations, queued groups, tickets.
//!
//! A write's own lists live as long as its call, so after a few writes there is one set for each thread that
//! writes at a time, and a write takes nothing from the heap. What is kept is bounded in number and size:
//! batches of up to 1,024 operations always find theirs again, larger ones within a 16th of the write region, 2 MiB at most;
//! a batch beyond that, or the many threads of a moment, take theirs and give it back to the heap.

use std::collections::VecDeque;

use crate::batch::{Prepared, PreparedOp, Raw};
use crate::engine::commit::Queued;
use crate::engine::submit::Verdict;
use crate::engine::ticket::TicketState;
use crate::memtable::{Memtable, Op};
use crate::sync::{Arc, Mutex};
use crate::types::emptied;

/// Sets of lists that are kept.
const SETS_MAX: usize = 4;

/// Operations that the lists of any kept set may have room for: about 300 KiB a set.
const OPERATIONS_MAX: usize = 1024;

/// The part of the write region's size that larger sets may take beside it, together.
const LARGE_PART: u64 = 16;

/// The most of it, however large the region is: lists of some 7,000 operations.
const LARGE_BYTES_MAX: u64 = 2 << 20;

/// Tickets that are kept.
const TICKETS_MAX: usize = 64;

/// The lists of one write, empty between two writes.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    pub raw: Vec<Raw<'static>>,
    pub prepared: Vec<PreparedOp<'static>>,
    pub ops: Vec<Op<'static>>,
    pub verdicts: Vec<Verdict>,
    pub memories: Vec<Arc<Memtable>>,
}

impl Scratch {
    /// Takes the lists of a batch back.
    pub fn keep(&mut self, prepared: Prepared<'_>) {
        self.prepared = emptied(prepared.ops);
    }

    fn is_small(&self) -> bool {
        let lists = [
            self.raw.capacity(),
            self.prepared.capacity(),
            self.ops.capacity(),
            self.verdicts.capacity(),
        ];
        lists.iter().all(|capacity| *capacity <= OPERATIONS_MAX)
    }

    /// What it holds of the heap.
    fn bytes(&self) -> usize {
        self.raw.capacity() * size_of::<Raw<'_>>()
            + self.prepared.capacity() * size_of::<PreparedOp<'_>>()
            + self.ops.capacity() * size_of::<Op<'_>>()
            + self.verdicts.capacity() * size_of::<Verdict>()
            + self.memories.capacity() * size_of::<Arc<Memtable>>()
    }
}

/// What is kept.
#[derive(Debug, Default)]
pub(crate) struct ScratchPool {
    /// What sets that are not small may hold together, in bytes.
    large_bytes_max: usize,
    sets: Mutex<Vec<Scratch>>,
    groups: Mutex<Vec<VecDeque<Queued>>>,
    tickets: Mutex<Vec<Arc<TicketState>>>,
}

impl ScratchPool {
    /// Of a store with a write region of that size.
    pub fn new(write_region_bytes: u64) -> Self {
        let large_bytes_max = (write_region_bytes / LARGE_PART).min(LARGE_BYTES_MAX);
        Self {
            large_bytes_max: usize::try_from(large_bytes_max).unwrap_or(usize::MAX),
            ..Self::default()
        }
    }

    pub fn take(&self) -> Scratch {
        self.sets.lock().pop().unwrap_or_default()
    }

    pub fn give(&self, scratch: Scratch) {
        if scratch.is_small() || self.has_room_for(&scratch) {
            give(&self.sets, scratch, SETS_MAX);
        }
    }

    /// Whether a set that is not small may be kept beside those that are.
    fn has_room_for(&self, scratch: &Scratch) -> bool {
        let sets = self.sets.lock();
        let large = sets.iter().filter(|set| !set.is_small());
        let bytes: usize = large.map(Scratch::bytes).sum();
        bytes.saturating_add(scratch.bytes()) <= self.large_bytes_max
    }

    pub fn take_group(&self) -> VecDeque<Queued> {
        self.groups.lock().pop().unwrap_or_default()
    }

    pub fn give_group(&self, group: VecDeque<Queued>) {
        debug_assert!(group.is_empty(), "whoever waits for it would never know");
        if group.capacity() <= OPERATIONS_MAX {
            give(&self.groups, group, SETS_MAX);
        }
    }

    /// A ticket that nobody has.
    pub fn take_ticket(&self) -> Arc<TicketState> {
        let kept = self.tickets.lock().pop();
        kept.unwrap_or_default()
    }

    /// Keeps a ticket that was waited for, unless its leader still has it too.
    pub fn give_ticket(&self, mut ticket: Arc<TicketState>) {
        if let Some(state) = Arc::get_mut(&mut ticket) {
            state.reset();
            give(&self.tickets, ticket, TICKETS_MAX);
        }
    }
}

/// Keeps one more, unless there are enough; what goes is dropped after the lock.
fn give<T>(kept: &Mutex<Vec<T>>, item: T, most: usize) {
    let mut kept = kept.lock();
    if kept.len() < most {
        kept.push(item);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(operations: usize) -> Scratch {
        Scratch {
            ops: Vec::with_capacity(operations),
            ..Scratch::default()
        }
    }

    #[test]
    fn small_sets_are_kept_whatever_the_region() {
        let pool = ScratchPool::new(4096);
        for _ in 0..2 * SETS_MAX {
            pool.give(of(OPERATIONS_MAX));
        }
        assert_eq!(pool.sets.lock().len(), SETS_MAX);
    }

    #[test]
    fn large_sets_are_kept_within_their_part_of_the_region() {
        let bytes = of(10_000).bytes();
        let pool = ScratchPool::new(LARGE_PART * (2 * bytes as u64 + 1));
        for _ in 0..3 {
            pool.give(of(10_000));
        }
        assert_eq!(pool.sets.lock().len(), 2);
        pool.give(of(10));
        assert_eq!(pool.sets.lock().len(), 3);
        let pool = ScratchPool::new(LARGE_PART * (bytes as u64 - 1));
        pool.give(of(10_000));
        assert!(pool.sets.lock().is_empty());
    }
}
