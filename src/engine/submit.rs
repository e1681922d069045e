//! Submitting a batch: checks, one permit, encoding, a place in the queue.
//!
//! Everything that can fail happens before any effect. `WriteOnce` is checked twice: against a version,
//! outside the commit lock, where segments may be read; then under the lock against what was submitted
//! since, from memory alone. If the second look changes the verdict of an operation, or what it would
//! have to look at has left memory, submit starts over; from the third time on it holds retirement off,
//! so that it ends. Who may take memory while others wait for it is `waiting`'s affair.

use crate::batch::{Batch, Limits, Prepared};
use crate::engine::commit::{CommitFrame, Queued};
use crate::engine::frame::Frame;
use crate::engine::generations::Fresh;
use crate::engine::read::{Hit, Reach};
use crate::engine::scratch::Scratch;
use crate::engine::ticket::TicketState;
use crate::engine::waiting::Denied;
use crate::engine::{CommitState, Engine, OpenGeneration};
use crate::error::{Error, ErrorKind, Result};
use crate::log::record;
use crate::memory::{Owner, Permit};
use crate::memtable::{BatchShape, Detached, Memtable, Refusal};
use crate::options::Durability;
use crate::sync::{Arc, MutexGuard, Ordering};
use crate::types::{RecordKind, Sequence, emptied};

/// After how many starts retirement is held off.
const STARTS_BEFORE_HOLD: u32 = 2;

/// What a caller wants of a batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    pub durability: Durability,
    /// It waits for the ticket, and leads the queue if nobody does.
    pub attended: bool,
    /// Its place among those who wait for memory, if it has one.
    pub place: Option<u64>,
}

/// What a submit comes to.
pub(crate) type Submitted<T> = std::result::Result<T, Denied>;

impl Asked {
    fn ticket(self, engine: &Engine) -> Arc<TicketState> {
        let ticket = engine.scratch.take_ticket();
        if self.attended {
            ticket.attend();
        }
        ticket
    }
}

/// What the newest record of a checked key said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// 0 when the key was never written.
    sequence: Sequence,
    pub(super) outcome: Outcome,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// No value: the put goes ahead.
    Free,
    /// The expected value is there.
    Same,
    /// Another value is there.
    Conflict,
}

const UNCHECKED: Verdict = Verdict {
    sequence: 0,
    outcome: Outcome::Free,
};

/// The first look: verdicts in the order of the operations, and up to where it saw everything.
struct Check {
    verdicts: Vec<Verdict>,
    position: Sequence,
}

enum Enqueued {
    Done(Arc<TicketState>),
    /// The second look disagrees with the first.
    Changed,
}

/// Holds retirement off until dropped.
struct Hold<'a>(&'a Engine);

impl<'a> Hold<'a> {
    fn take(engine: &'a Engine) -> Self {
        engine.registry.lock().holds += 1;
        Self(engine)
    }
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        self.0.registry.lock().holds -= 1;
        self.0.work.0.raise();
    }
}

impl Engine {
    /// Runs the batch's closures and folds its operations.
    pub fn prepare<'a>(&self, batch: Batch<'a>, scratch: &mut Scratch) -> Result<Prepared<'a>> {
        self.check_writable("submit")?;
        let limits = Limits {
            hasher: *self.hasher,
            store: self.token,
            key_bytes_max: self.settings.key_bytes_max,
            records_max: self.settings.batch_records_max,
            frame_bytes_max: self.sizes.batch_bytes_max,
        };
        batch.prepare(&limits, scratch)
    }

    /// Gives the batch a place in the queue, or refuses it without effect. The caller waits for an
    /// `attended` ticket; any other is the background job's.
    pub fn submit(
        &self,
        prepared: &Prepared<'_>,
        asked: Asked,
        scratch: &mut Scratch,
    ) -> Submitted<Arc<TicketState>> {
        self.check_writable("submit")?;
        self.look_at_pressure();
        let mut hold = None;
        for start in 0u32.. {
            if start == STARTS_BEFORE_HOLD {
                hold = Some(Hold::take(self));
            }
            let check = self.first_look(prepared, std::mem::take(&mut scratch.verdicts))?;
            let frame = Frame::of(
                prepared,
                &check.verdicts,
                emptied(std::mem::take(&mut scratch.ops)),
            );
            let enqueued = self.encode_outside(&frame, asked).map(|detached| {
                let large = detached.is_some();
                let memories = &mut scratch.memories;
                (
                    large,
                    self.enqueue(prepared, &check, &frame, detached, asked, memories),
                )
            });
            scratch.ops = emptied(frame.ops);
            scratch.verdicts = check.verdicts;
            let (large, enqueued) = match enqueued {
                Ok(enqueued) => enqueued,
                Err(denied) => (false, Err(denied)),
            };
            match enqueued {
                Err(denied) => {
                    if denied.cause.is_some() {
                        self.count_refusal(prepared);
                    }
                    if large && asked.place.is_none() {
                        // Somebody may have begun to wait since for what this one has just given back.
                        self.progress.raise();
                    }
                    return Err(denied);
                }
                Ok(Enqueued::Done(ticket)) => {
                    drop(hold);
                    if !ticket.is_attended() {
                        self.work.0.raise();
                    }
                    return Ok(ticket);
                }
                Ok(Enqueued::Changed) => self.counters.submit_restarts.add(1),
            }
        }
        unreachable!("the loop returns")
    }

    /// A ticket that resolves when everything submitted so far is published, and durable if asked. The
    /// caller waits for it.
    pub fn submit_barrier(&self, durability: Durability) -> Result<Arc<TicketState>> {
        self.check_writable("sync")?;
        let mut commit = self.commit.lock();
        self.check_accepting(&commit)?;
        let needs = commit.issued;
        let asked = Asked {
            durability,
            attended: true,
            place: None,
        };
        Ok(self.barrier(&mut commit, needs, Ok(needs), asked))
    }

    /// Counts a refused batch for each keyspace in it; its operations are in their order.
    fn count_refusal(&self, prepared: &Prepared<'_>) {
        let accepted = &mut self.commit.lock().accepted;
        for same in prepared.ops.chunk_by(|a, b| a.keyspace == b.keyspace) {
            if let Some(op) = same.first() {
                accepted.refuse(op.keyspace);
            }
        }
    }

    pub(super) fn check_accepting(&self, commit: &CommitState) -> Result<()> {
        if commit.closing {
            return Err(Error::new(
                ErrorKind::Closed,
                "submit",
                "the store is closing",
            ));
        }
        match self.poison.get() {
            Some(cause) => Err(cause.clone()),
            None => Ok(()),
        }
    }

    fn first_look(&self, prepared: &Prepared<'_>, mut verdicts: Vec<Verdict>) -> Result<Check> {
        // The position is read first: all that was submitted up to it is found below.
        let position = self.issued.load(Ordering::Acquire);
        verdicts.clear();
        verdicts.resize(prepared.ops.len(), UNCHECKED);
        if prepared.ops.iter().all(|op| op.expected.is_none()) {
            return Ok(Check { verdicts, position });
        }
        let version = self.version.load();
        for (op, verdict) in prepared.ops.iter().zip(&mut verdicts) {
            if let Some(expected) = op.expected_value() {
                let found = self.lookup(
                    &version,
                    op.keyspace,
                    &op.key,
                    op.hash,
                    Reach::SUBMITTED,
                    |hit| verdict_of(&hit, expected),
                )?;
                *verdict = found.unwrap_or(UNCHECKED);
            }
        }
        Ok(Check { verdicts, position })
    }

    /// Frames larger than a chunk are encoded before the lock, into chunks of their own.
    fn encode_outside(&self, frame: &Frame<'_, '_>, asked: Asked) -> Submitted<Option<Detached>> {
        if frame.payload_len <= u64::from(self.settings.chunk_bytes) || frame.ops.is_empty() {
            return Ok(None);
        }
        let shape = BatchShape::of(self.settings.chunk_bytes, &frame.ops).map_err(refused)?;
        let needed = shape.chunks_fresh() * u64::from(self.settings.chunk_bytes);
        self.check_turn(&self.commit.lock(), asked.place, needed)?;
        let mut permit = self
            .region
            .try_acquire(needed, Owner::Reserved)
            .map_err(|shortage| self.short_of_memory(shortage.needed, shortage.free))?;
        let detached = Detached::encode(&frame.ops, &mut permit).map_err(refused)?;
        Ok(Some(detached))
    }

    fn enqueue(
        &self,
        prepared: &Prepared<'_>,
        check: &Check,
        frame: &Frame<'_, '_>,
        detached: Option<Detached>,
        asked: Asked,
        memories: &mut Vec<Arc<Memtable>>,
    ) -> Submitted<Enqueued> {
        let mut commit = self.commit.lock();
        self.check_accepting(&commit)?;
        let stands = self.second_look(prepared, check, memories);
        memories.clear();
        if !stands {
            return Ok(Enqueued::Changed);
        }
        let conflicts = check
            .verdicts
            .iter()
            .filter(|v| v.outcome == Outcome::Conflict);
        if let Some(conflict) = conflicts.min_by_key(|verdict| verdict.sequence) {
            let error = Error::new(
                ErrorKind::Conflict,
                "submit",
                "nothing of the batch was applied",
            );
            // What rests on an unpublished commit resolves with it.
            let ticket = self.barrier(&mut commit, conflict.sequence, Err(error), asked);
            return Ok(Enqueued::Done(ticket));
        }
        if frame.ops.is_empty() {
            let newest = check.verdicts.iter().map(|v| v.sequence).max().unwrap_or(0);
            let ticket = self.barrier(&mut commit, newest, Ok(newest), asked);
            return Ok(Enqueued::Done(ticket));
        }
        self.append(&mut commit, frame, detached, asked)
            .map(Enqueued::Done)
    }

    /// Whether the first look still stands, from memory alone. `memories` is an empty list.
    fn second_look(
        &self,
        prepared: &Prepared<'_>,
        check: &Check,
        memories: &mut Vec<Arc<Memtable>>,
    ) -> bool {
        if prepared.ops.iter().all(|op| op.expected.is_none()) {
            return true;
        }
        if !self.memories_after(check.position, memories) {
            return false;
        }
        prepared
            .ops
            .iter()
            .zip(&check.verdicts)
            .all(|(op, verdict)| {
                let Some(expected) = op.expected_value() else {
                    return true;
                };
                let newest = memories
                    .iter()
                    .find_map(|memory| memory.get(op.keyspace, &op.key, op.hash, Sequence::MAX))
                    .filter(|found| found.sequence > check.position);
                match newest {
                    None => verdict.sequence <= check.position,
                    Some(found) => verdict_of(&Hit::memory(&found), expected) == *verdict,
                }
            })
    }

    /// Lists the memtables, newest first, of all generations that took commits after `position`; false if one
    /// has left memory. Installed generations that still linger count: no list misses one, because both
    /// lists change under the registry lock.
    fn memories_after(&self, position: Sequence, memories: &mut Vec<Arc<Memtable>>) -> bool {
        let registry = self.registry.lock();
        if self.retired_through.load(Ordering::Acquire) > position {
            return false;
        }
        let version = self.version.load();
        let all = version
            .generations
            .iter()
            .chain(registry.lingering.iter().rev());
        for generation in all.filter(|generation| generation.last_sequence() > position) {
            match generation.memory().as_ref() {
                Some(memory) => memories.push(memory.clone()),
                None => return false,
            }
        }
        true
    }

    /// Appends the frame to the open generation, sealing and opening one where the limits say so. All
    /// resources are taken before the first effect.
    fn append(
        &self,
        commit: &mut MutexGuard<'_, CommitState>,
        frame: &Frame<'_, '_>,
        detached: Option<Detached>,
        asked: Asked,
    ) -> Submitted<Arc<TicketState>> {
        let records = frame.ops.len() as u64;
        let bytes = frame.frame_bytes();
        self.check_turn(commit, asked.place, bytes)?;
        let fits = commit
            .open
            .as_ref()
            .is_some_and(|open| self.fits(open, records, bytes));
        let fresh = if fits {
            None
        } else {
            Some(self.prepare_generation(commit, bytes)?)
        };
        let permit = self.permit_for(commit.open.as_ref(), fresh.as_ref(), frame, &detached);
        let mut permit = match permit {
            Ok(permit) => permit,
            Err(error) => {
                self.abandon_generation(commit, fresh);
                return Err(error);
            }
        };
        if let Some(fresh) = fresh {
            self.enter_generation(commit, fresh);
        }
        let sequence = commit.issued + 1;
        let Some(open) = commit.open.as_mut() else {
            return Err(Error::new(ErrorKind::Io, "submit", "no open generation").into());
        };
        let appended = match detached {
            Some(detached) => open
                .writer
                .append_detached(sequence, detached, &frame.ops, &mut permit)
                .map_err(|(refusal, _)| refused(refusal))?,
            None => open
                .writer
                .append(sequence, &frame.ops, &mut permit)
                .map_err(refused)?,
        };
        open.records += records;
        open.bytes += bytes;
        open.handle.set_last_sequence(sequence);
        let ticket = asked.ticket(self);
        let queued = Queued::Commit(CommitFrame {
            sequence,
            memory: open.memory.clone(),
            appended,
            records: records as u32,
            payload_len: frame.payload_len,
            payload_crc: frame.payload_crc,
            synced: asked.durability == Durability::Synced,
            ticket: ticket.clone(),
        });
        commit.queue.push_back(queued);
        for op in &frame.ops {
            let record_bytes = record::encoded_len(op.key.len(), op.value.len()) as u64;
            commit.accepted.add(op.keyspace, record_bytes);
        }
        commit.issued = sequence;
        self.issued.store(sequence, Ordering::Release);
        if self.is_full(commit.open.as_ref()) {
            self.seal_open(commit);
        }
        Ok(ticket)
    }

    /// What the frame takes of the generation that it goes to.
    fn permit_for(
        &self,
        open: Option<&OpenGeneration>,
        fresh: Option<&Fresh>,
        frame: &Frame<'_, '_>,
        detached: &Option<Detached>,
    ) -> Submitted<Permit> {
        let chunk_bytes = self.settings.chunk_bytes;
        let shape = BatchShape::of(chunk_bytes, &frame.ops).map_err(refused)?;
        let writer = fresh
            .map(|fresh| &fresh.writer)
            .or(open.map(|open| &open.writer));
        let Some(writer) = writer else {
            return Err(self.no_log(frame.frame_bytes()));
        };
        let mut needed = writer.cost_bytes(&shape).map_err(refused)?;
        if detached.is_some() {
            // Its chunks are paid for already.
            needed = needed.saturating_sub(shape.chunks_fresh() * u64::from(chunk_bytes));
        }
        self.region
            .try_acquire(needed, Owner::Reserved)
            .map_err(|shortage| self.short_of_memory(shortage.needed, shortage.free))
    }

    /// A ticket without a frame: resolves once `needs` is published, and durable if asked.
    fn barrier(
        &self,
        commit: &mut CommitState,
        needs: Sequence,
        outcome: Result<Sequence>,
        asked: Asked,
    ) -> Arc<TicketState> {
        let synced = asked.durability == Durability::Synced && outcome.is_ok();
        let satisfied =
            needs <= self.visible() && (!synced || needs <= self.durable.load(Ordering::Acquire));
        if satisfied {
            return TicketState::resolved(outcome);
        }
        let ticket = asked.ticket(self);
        commit.queue.push_back(Queued::Barrier {
            needs,
            outcome,
            synced,
            ticket: ticket.clone(),
        });
        ticket
    }
}

/// A refusal that the limits, checked before, should have excluded.
pub(super) fn refused(refusal: Refusal) -> Error {
    Error::invalid("submit", refusal.to_string())
}

fn verdict_of(hit: &Hit<'_>, expected: &[u8]) -> Verdict {
    let outcome = match hit.kind {
        RecordKind::Tombstone => Outcome::Free,
        RecordKind::Value if hit.value_equals(expected) => Outcome::Same,
        RecordKind::Value => Outcome::Conflict,
    };
    Verdict {
        sequence: hit.sequence,
        outcome,
    }
}
