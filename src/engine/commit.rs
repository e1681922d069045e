//! The commit queue and its leader: write the queued frames, sync once, publish in order.
//!
//! Whoever holds the leader lock takes everything queued, at most up to the next seal (a group never
//! spans two logs), writes the frames with one gathered write, syncs if any ticket asks for it or a seal
//! ends the group, and only then publishes, in sequence order. So a visible commit never depends on a
//! sync that has not returned, and a group costs at most one barrier.
//!
//! Crash argument: a frame is acknowledged as synced only after the sync of its log returned; logs are
//! synced, with a seal frame at their end, before the first frame of the next one is written. What
//! recovery finds is therefore a prefix of the commits that has every acknowledged one.
//!
//! Who waits for a ticket leads when it can, else sleeps until its ticket is resolved or it is called:
//! a leader that leaves something queued calls the first ticket in the queue that somebody waits for.
//! So a commit costs its thread at most one sleep more than the group before it, and nobody is woken in
//! vain. Tickets that nobody waits for are the background job's.
//!
//! If a write or sync fails, nothing of the group is published, every ticket of the group and behind
//! it fails, and the store is poisoned.

use std::collections::VecDeque;

use crate::engine::states;
use crate::engine::ticket::TicketState;
use crate::engine::{CommitState, Engine, SpareLog};
use crate::env::{FileName, IoError, IoErrorKind, IoResult};
use crate::error::{Error, Result};
use crate::log::{FrameHeader, FrameKind, LogWriter};
use crate::memtable::{Appended, Memtable};
use crate::sync::{Arc, MutexGuard, Ordering};
use crate::types::Sequence;

/// A frame that waits for the leader.
#[derive(Debug)]
pub(crate) struct CommitFrame {
    pub sequence: Sequence,
    pub memory: Arc<Memtable>,
    pub appended: Appended,
    pub records: u32,
    pub payload_len: u64,
    pub payload_crc: u32,
    pub synced: bool,
    pub ticket: Arc<TicketState>,
}

/// What stands in the commit queue.
#[derive(Debug)]
pub(crate) enum Queued {
    /// The next commits go to this log. Nothing before it stands in the same group.
    Rotate(SpareLog),
    /// A commit.
    Commit(CommitFrame),
    /// A ticket without a frame.
    Barrier {
        needs: Sequence,
        outcome: Result<Sequence>,
        synced: bool,
        ticket: Arc<TicketState>,
    },
    /// The generation ends here.
    Seal(states::Sealed),
}

impl Queued {
    /// Tells its ticket, if it has one, that it failed.
    pub fn fail(self, error: &Error) {
        match self {
            Self::Commit(CommitFrame { ticket, .. }) | Self::Barrier { ticket, .. } => {
                ticket.resolve(Err(error.clone()));
            }
            Self::Rotate(_) | Self::Seal(_) => {}
        }
    }

    fn ticket(&self) -> Option<&Arc<TicketState>> {
        match self {
            Self::Commit(CommitFrame { ticket, .. }) | Self::Barrier { ticket, .. } => Some(ticket),
            Self::Rotate(_) | Self::Seal(_) => None,
        }
    }

    fn wants_sync(&self) -> bool {
        match self {
            Self::Commit(CommitFrame { synced, .. }) | Self::Barrier { synced, .. } => *synced,
            Self::Seal(_) => true,
            Self::Rotate(_) => false,
        }
    }
}

/// What the leader lock guards: the log that takes frames.
#[derive(Debug)]
pub(crate) struct Leader {
    pub log: Option<LogWriter>,
    pub log_number: u64,
    /// Whether the log has bytes that no sync has covered.
    pub dirty: bool,
    pub staging: Vec<u8>,
}

impl Leader {
    pub fn new() -> Self {
        Self {
            log: None,
            log_number: 0,
            dirty: false,
            staging: Vec::new(),
        }
    }
}

impl CommitState {
    /// Moves what is queued for one log to an empty group: up to a seal, or to where the next log begins.
    fn take_group(&mut self, group: &mut VecDeque<Queued>) {
        let mut end = 0;
        for queued in &self.queue {
            if end > 0 && matches!(queued, Queued::Rotate(_)) {
                break;
            }
            end += 1;
            if matches!(queued, Queued::Seal(_)) {
                break;
            }
        }
        group.extend(self.queue.drain(..end));
    }
}

impl Engine {
    /// Commits one group; false if nothing is queued. Waits for another leader.
    pub fn commit_step(&self) -> Result<bool> {
        self.lead(self.leader.lock())
    }

    /// Commits one group unless somebody else is at it.
    pub fn try_commit_step(&self) -> Option<Result<bool>> {
        Some(self.lead(self.leader.try_lock()?))
    }

    /// Whether anything is queued.
    pub fn has_queued(&self) -> bool {
        !self.commit.lock().queue.is_empty()
    }

    /// Whether anything is queued that nobody waits for.
    pub fn has_unattended(&self) -> bool {
        let commit = self.commit.lock();
        let mut tickets = commit.queue.iter().filter_map(Queued::ticket);
        tickets.any(|ticket| !ticket.is_attended())
    }

    fn lead(&self, mut leader: MutexGuard<'_, Leader>) -> Result<bool> {
        if self.is_closed() {
            // Closing has failed whatever was still queued.
            return Ok(false);
        }
        let mut group = self.scratch.take_group();
        self.commit.lock().take_group(&mut group);
        if group.is_empty() {
            drop(leader);
            self.scratch.give_group(group);
            self.call_next_leader();
            return Ok(false);
        }
        let written = match self.poison.get() {
            Some(cause) => Err(cause.clone()),
            None => {
                if matches!(group.front(), Some(Queued::Rotate(_)))
                    && let Some(Queued::Rotate(spare)) = group.pop_front()
                {
                    self.rotate(&mut leader, spare);
                }
                self.write_group(&mut leader, &group)
                    .map_err(|error| self.poison(&error))
            }
        };
        match written {
            Ok(durable) => {
                self.publish(&mut group, durable);
                drop(leader);
                self.call_next_leader();
                self.resolve_all(group);
                Ok(true)
            }
            Err(cause) => {
                drop(leader);
                for queued in group.drain(..) {
                    queued.fail(&cause);
                }
                self.scratch.give_group(group);
                self.call_next_leader();
                Err(cause)
            }
        }
    }

    /// Wakes somebody who waits for what is still queued. Called without the leader lock.
    fn call_next_leader(&self) {
        let next = {
            let commit = self.commit.lock();
            let mut tickets = commit.queue.iter().filter_map(Queued::ticket);
            tickets.find(|ticket| ticket.is_attended()).cloned()
        };
        if let Some(ticket) = next {
            ticket.call_to_lead();
        }
    }

    fn rotate(&self, leader: &mut Leader, spare: SpareLog) {
        let identity = self.log_identity(spare.number);
        leader.log = Some(LogWriter::new(spare.file, identity, self.sizes.log_bytes));
        leader.log_number = spare.number;
        leader.dirty = false;
    }

    /// Writes and, where asked, syncs; says whether everything up to the group's end is durable.
    fn write_group(&self, leader: &mut Leader, group: &VecDeque<Queued>) -> Result<bool> {
        let wants_sync = group.iter().any(Queued::wants_sync);
        let file = FileName::log(leader.log_number);
        self.write_frames(leader, group)
            .map_err(|cause| Error::io("commit", file, cause))?;
        if wants_sync && leader.dirty {
            if let Some(log) = &mut leader.log {
                log.sync()
                    .map_err(|cause| Error::io("commit", file, cause))?;
                self.counters.log_syncs.add(1);
                let asked = group.iter().filter(|queued| queued.ticket().is_some());
                if !asked.into_iter().any(Queued::wants_sync) {
                    self.counters.seal_syncs.add(1);
                }
            }
            leader.dirty = false;
        }
        Ok(!leader.dirty)
    }

    fn write_frames(&self, leader: &mut Leader, group: &VecDeque<Queued>) -> IoResult<()> {
        let durable_through = self.durable.load(Ordering::Acquire);
        let seal = group.iter().any(|queued| matches!(queued, Queued::Seal(_)));
        let frames = group.iter().filter_map(|queued| match queued {
            Queued::Commit(frame) => {
                let header = FrameHeader {
                    kind: FrameKind::Commit,
                    sequence: frame.sequence,
                    durable_through,
                    records: frame.records,
                    payload_len: frame.payload_len as u32,
                    payload_crc: frame.payload_crc,
                };
                Some((header, frame.memory.payload(&frame.appended)))
            }
            _ => None,
        });
        let records = frames.clone().map(|(header, _)| u64::from(header.records));
        self.counters.commit_records.add(records.sum());
        if frames.clone().next().is_none() && !seal {
            return Ok(());
        }
        leader.dirty = true;
        let Leader { log, staging, .. } = leader;
        let Some(log) = log else {
            return Err(IoError::new(IoErrorKind::Other));
        };
        let staged_bytes = log.staged_bytes();
        log.append_frames(frames, staging)?;
        let copied_bytes = log.staged_bytes() - staged_bytes;
        self.counters.log_copied_bytes.add(copied_bytes);
        if seal {
            log.seal(durable_through, staging)
        } else {
            Ok(())
        }
    }

    /// Makes the group's commits visible, in order, and hands a sealed generation over: what has an
    /// order happens under the leader lock. Nobody is told yet.
    fn publish(&self, group: &mut VecDeque<Queued>, durable: bool) {
        self.counters.groups.add(1);
        for queued in group.iter() {
            if let Queued::Commit(frame) = queued {
                frame.memory.publish(&frame.appended);
                self.visible.store(frame.sequence, Ordering::Release);
                if durable {
                    self.durable.store(frame.sequence, Ordering::Release);
                }
                self.counters.commits.add(1);
            }
        }
        if durable {
            // Also what earlier groups wrote and this one's sync has covered.
            self.durable.store(self.visible(), Ordering::Release);
        }
        if matches!(group.back(), Some(Queued::Seal(_)))
            && let Some(Queued::Seal(sealed)) = group.pop_back()
        {
            self.queue_for_flush(sealed);
            self.work.0.raise();
        }
    }

    fn resolve_all(&self, mut group: VecDeque<Queued>) {
        for queued in group.drain(..) {
            match queued {
                Queued::Commit(frame) => frame.ticket.resolve(Ok(frame.sequence)),
                Queued::Barrier {
                    needs,
                    outcome,
                    ticket,
                    ..
                } => {
                    debug_assert!(
                        needs <= self.visible(),
                        "a barrier stands behind what it needs"
                    );
                    ticket.resolve(outcome);
                }
                Queued::Seal(_) | Queued::Rotate(_) => {}
            }
        }
        self.scratch.give_group(group);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::Env;
    use crate::error::ErrorKind;

    fn barrier() -> Queued {
        Queued::Barrier {
            needs: 0,
            outcome: Ok(0),
            synced: false,
            ticket: TicketState::new(),
        }
    }

    #[test]
    fn a_group_never_spans_two_logs() {
        let env = Env::in_memory();
        env.vfs.create_root().expect("creates");
        let file = env.vfs.create_new(FileName::log(1)).expect("creates");
        let rotate = Queued::Rotate(SpareLog { number: 1, file });
        let mut state = CommitState {
            open: None,
            // A barrier behind a seal, and then a batch that opens the next generation.
            queue: VecDeque::from([barrier(), barrier(), rotate, barrier()]),
            spares: VecDeque::new(),
            spare_failure: None,
            spares_missing: 0,
            next_generation: 0,
            issued: 0,
            closing: false,
            turns: Default::default(),
            accepted: Default::default(),
        };
        let mut take_group = || {
            let mut group = VecDeque::new();
            state.take_group(&mut group);
            group
        };
        assert_eq!(take_group().len(), 2);
        let second = take_group();
        assert_eq!(second.len(), 2);
        assert!(matches!(second.front(), Some(Queued::Rotate(_))));
        assert!(take_group().is_empty());
        let closed = Error::new(ErrorKind::Closed, "commit", "");
        second.into_iter().for_each(|queued| queued.fail(&closed));
    }
}
