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
//! If a write or sync fails, nothing of the group is published, every ticket of the group and behind
//! it fails, and the store is poisoned.

use std::collections::VecDeque;

use crate::engine::states;
use crate::engine::ticket::TicketState;
use crate::engine::{CommitState, Engine, SpareLog};
use crate::env::{FileName, IoError, IoErrorKind, IoResult};
use crate::error::{Error, Result};
use crate::log::{FrameHeader, FrameKind, FrameToWrite, LogWriter};
use crate::memtable::{Appended, Memtable};
use crate::sync::{Arc, Ordering};
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
    fn take_group(&mut self) -> VecDeque<Queued> {
        let seal = self
            .queue
            .iter()
            .position(|queued| matches!(queued, Queued::Seal(_)));
        match seal {
            Some(place) if place + 1 < self.queue.len() => {
                let rest = self.queue.split_off(place + 1);
                std::mem::replace(&mut self.queue, rest)
            }
            _ => std::mem::take(&mut self.queue),
        }
    }
}

impl Engine {
    /// Commits one group; false if nothing is queued. Waits for another leader.
    pub fn commit_step(&self) -> Result<bool> {
        let mut leader = self.leader.lock();
        self.lead(&mut leader)
    }

    /// Commits one group unless somebody else is at it.
    pub fn try_commit_step(&self) -> Option<Result<bool>> {
        let mut leader = self.leader.try_lock()?;
        Some(self.lead(&mut leader))
    }

    /// Whether anything is queued.
    pub fn has_queued(&self) -> bool {
        !self.commit.lock().queue.is_empty()
    }

    fn lead(&self, leader: &mut Leader) -> Result<bool> {
        if self.is_closed() {
            // Closing has failed whatever was still queued.
            return Ok(false);
        }
        let group = self.commit.lock().take_group();
        if group.is_empty() {
            return Ok(false);
        }
        if let Some(cause) = self.poison.get() {
            let cause = cause.clone();
            fail_all(group, &cause);
            self.progress.raise();
            return Err(cause);
        }
        let mut group = group;
        if matches!(group.front(), Some(Queued::Rotate(_)))
            && let Some(Queued::Rotate(spare)) = group.pop_front()
        {
            self.rotate(leader, spare);
        }
        match self.write_group(leader, &group) {
            Ok(synced) => {
                self.publish(group, synced);
                self.progress.raise();
                Ok(true)
            }
            Err(error) => {
                let cause = self.poison(&error);
                fail_all(group, &cause);
                self.progress.raise();
                Err(cause)
            }
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
            }
            leader.dirty = false;
        }
        Ok(!leader.dirty)
    }

    fn write_frames(&self, leader: &mut Leader, group: &VecDeque<Queued>) -> IoResult<()> {
        let durable_through = self.durable.load(Ordering::Acquire);
        let mut slices: Vec<Vec<&[u8]>> = Vec::with_capacity(group.len());
        let mut headers = Vec::with_capacity(group.len());
        let mut seal = false;
        for queued in group {
            match queued {
                Queued::Commit(frame) => {
                    headers.push(FrameHeader {
                        kind: FrameKind::Commit,
                        sequence: frame.sequence,
                        durable_through,
                        records: frame.records,
                        payload_len: frame.payload_len as u32,
                        payload_crc: frame.payload_crc,
                    });
                    let mut parts = Vec::new();
                    frame.memory.payload_slices(&frame.appended, &mut parts);
                    slices.push(parts);
                    self.counters.commit_records.add(u64::from(frame.records));
                }
                Queued::Seal(_) => seal = true,
                Queued::Rotate(_) | Queued::Barrier { .. } => {}
            }
        }
        if headers.is_empty() && !seal {
            return Ok(());
        }
        let frames: Vec<_> = headers
            .into_iter()
            .zip(&slices)
            .map(|(header, payload)| FrameToWrite { header, payload })
            .collect();
        leader.dirty = true;
        let Leader { log, staging, .. } = leader;
        let Some(log) = log else {
            return Err(IoError::new(IoErrorKind::Other));
        };
        log.append(&frames, staging)?;
        if seal {
            log.seal(durable_through, staging)
        } else {
            Ok(())
        }
    }

    fn publish(&self, group: VecDeque<Queued>, durable: bool) {
        self.counters.groups.add(1);
        for queued in group {
            match queued {
                Queued::Commit(frame) => {
                    frame.memory.publish(&frame.appended);
                    self.visible.store(frame.sequence, Ordering::Release);
                    if durable {
                        self.durable.store(frame.sequence, Ordering::Release);
                    }
                    self.counters.commits.add(1);
                    frame.ticket.resolve(Ok(frame.sequence));
                }
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
                Queued::Seal(sealed) => self.queue_for_flush(sealed),
                Queued::Rotate(_) => {}
            }
        }
        if durable {
            // Also what earlier groups wrote and this one's sync has covered.
            self.durable.store(self.visible(), Ordering::Release);
        }
        self.work.0.raise();
    }
}

fn fail_all(group: VecDeque<Queued>, error: &Error) {
    for queued in group {
        queued.fail(error);
    }
}
