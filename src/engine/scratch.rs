//! Memory that writes use again: lists of operations, queued groups, tickets.
//!
//! A write's own lists live as long as its call, so after a few writes there is one set for each thread that
//! writes at a time, and a write of usual size takes nothing from the heap. What is kept is bounded in number
//! and size: a large batch, or the many threads of a moment, take theirs and give it back to the heap.

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

/// Operations that a kept list has room for: about 300 KiB a set.
const OPERATIONS_MAX: usize = 1024;

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
}

/// What is kept.
#[derive(Debug, Default)]
pub(crate) struct ScratchPool {
    sets: Mutex<Vec<Scratch>>,
    groups: Mutex<Vec<VecDeque<Queued>>>,
    tickets: Mutex<Vec<Arc<TicketState>>>,
}

impl ScratchPool {
    pub fn take(&self) -> Scratch {
        self.sets.lock().pop().unwrap_or_default()
    }

    pub fn give(&self, scratch: Scratch) {
        if scratch.is_small() {
            give(&self.sets, scratch, SETS_MAX);
        }
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
