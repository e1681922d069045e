//! Writes: what a batch is made of, and how it gets in.
//!
//! The model is brought to where a batch leads before the store is asked, under the sequence that the batch
//! must get. If the process dies on the way the batch may have survived or not: recovery tells, and the
//! model follows it.

use std::time::Duration;

use sealstone::{Batch, Durability, Error, ErrorKind};

use super::keys::{BLOCKS, KEY_BYTES, KEYSPACES, key_of};
use super::model::State;
use super::run::{Run, Step, Stop};
use super::weather::HOURS;

/// One operation: a key comes into a state.
#[derive(Clone, Copy, Debug)]
pub struct Op {
    keyspace: usize,
    id: u64,
    before: State,
    after: State,
}

/// The most operations of a batch.
pub const BATCH_MAX: u64 = 200;

/// Names that are overwritten again and again.
const HOT_NAMES: u64 = 256;

/// Steps of jobs after which a write must have found memory.
const PATIENCE: u32 = 100_000;

impl Run<'_> {
    /// Draws the operations of a batch and brings the model to where they lead. The first one always
    /// brings a new key: every batch changes something, so every batch is a commit.
    fn draw_batch(&mut self) {
        let size = match self.random.below(8) {
            0 | 1 => 1,
            2..=6 => self.random.below(31) + 2,
            _ => self.random.below(BATCH_MAX - 32) + 33,
        };
        let size = size.min(self.settings.writes - self.written).max(1);
        self.sequence += 1;
        self.ops.clear();
        for place in 0..size {
            let op = self.draw_op(place == 0);
            self.model.set(op.keyspace, op.id, op.after, self.sequence);
            self.ops.push(op);
            self.written += 1;
            self.hour.writes += 1;
            let value = op
                .after
                .live()
                .map(|v| self.values.length(op.keyspace, op.id, v));
            self.hour.user_bytes += (KEY_BYTES + value.unwrap_or(0)) as u64;
        }
        let day = Duration::from_secs(HOURS * 3600);
        let nanos = day.as_nanos() * u128::from(size) / u128::from(self.settings.writes);
        self.world
            .clock()
            .advance(Duration::from_nanos(nanos as u64));
    }

    fn draw_op(&mut self, new: bool) -> Op {
        let keyspace = self.random.below(2) as usize;
        let ids = self.model.ids(keyspace);
        if !new && ids > 0 {
            if self.happened.deletes * 20 < self.written {
                self.happened.deletes += 1;
                return self.op(keyspace, None, State::deleted);
            }
            if self.happened.overwrites * 5 < self.written {
                self.happened.overwrites += 1;
                let hot = keyspace != BLOCKS && self.random.chance(1, 4);
                let id = hot.then(|| self.random.below(ids.min(HOT_NAMES)));
                return self.overwrite(keyspace, id);
            }
        }
        let id = self.model.new_id(keyspace);
        self.op(keyspace, Some(id), State::written)
    }

    fn overwrite(&mut self, keyspace: usize, id: Option<u64>) -> Op {
        let op = self.op(keyspace, id, State::written);
        let repeated = op.before.live().is_some() && self.random.chance(1, 5);
        if !op.before.has_next() || (keyspace == BLOCKS && repeated) {
            // The same value again.
            self.happened.repeats += 1;
            let after = op.before;
            return Op { after, ..op };
        }
        op
    }

    /// An operation on a key that has been written, live if one of a few tries finds such a one.
    fn op(&mut self, keyspace: usize, id: Option<u64>, change: fn(State) -> State) -> Op {
        let id = id.unwrap_or_else(|| {
            let ids = self.model.ids(keyspace);
            let mut id = self.random.below(ids);
            for _ in 0..4 {
                if self.model.state(keyspace, id).live().is_some() {
                    break;
                }
                id = self.random.below(ids);
            }
            id
        });
        let before = self.model.state(keyspace, id);
        // A key whose last write was lost with a crash was never written, and has nothing to delete.
        let after = change(before);
        Op {
            keyspace,
            id,
            before,
            after,
        }
    }

    fn build(&self) -> Step<Batch<'static>> {
        let opening = self.opening()?;
        let mut batch = Batch::with_capacity(2 * self.ops.len());
        for op in &self.ops {
            let keyspace = &opening.keyspaces[op.keyspace];
            let key = key_of(op.keyspace, op.id).to_vec();
            let Some(version) = op.after.live() else {
                batch.delete(keyspace, key);
                continue;
            };
            let changes = op.before.live().is_some_and(|before| before != version);
            if op.keyspace == BLOCKS && changes {
                batch.delete(keyspace, key.clone());
            }
            let mut value = Vec::new();
            self.values.fill(op.keyspace, op.id, version, &mut value);
            batch.put(keyspace, key, value);
        }
        Ok(batch)
    }

    fn durability(&mut self) -> Durability {
        match self.random.chance(1, 16) {
            true => Durability::Synced,
            false => Durability::Buffered,
        }
    }

    /// Does it until memory is there for it.
    fn persist<T>(
        &mut self,
        mut attempt: impl FnMut(&Self, Batch<'static>) -> sealstone::Result<T>,
    ) -> Step<T> {
        for _ in 0..PATIENCE {
            let batch = self.build()?;
            match attempt(self, batch) {
                Ok(done) => return Ok(done),
                Err(error) if matches!(error.kind(), ErrorKind::Busy { .. }) => {
                    self.hour.stalls += 1;
                    self.relieve(&error)?;
                }
                Err(error) => return Err(self.stop("write", &error)),
            }
        }
        Err(Stop::Wrong("a write waits for ever".into()))
    }

    /// Makes room for a write that was refused.
    fn relieve(&mut self, error: &Error) -> Step {
        if self.step()? {
            return Ok(());
        }
        if self.drop_view() {
            self.happened.views_given_up += 1;
            return Ok(());
        }
        Err(Stop::Wrong(format!(
            "refused with nothing left to do: {error}"
        )))
    }

    pub fn write_one(&mut self) -> Step {
        self.draw_batch();
        let durability = self.durability();
        let sequence = self.persist(|run, batch| {
            let opening = run.opening.as_ref();
            opening.map_or(Ok(0), |opening| opening.store.try_write(batch, durability))
        })?;
        self.committed(sequence, self.sequence)
    }

    /// A few batches that become one group of the log.
    pub fn write_group(&mut self) -> Step {
        let first = self.sequence + 1;
        let mut tickets = Vec::new();
        for _ in 0..2 + self.random.below(3) {
            if self.written >= self.settings.writes {
                break;
            }
            self.draw_batch();
            let durability = self.durability();
            let ticket = self.persist(|run, batch| {
                let opening = run.opening.as_ref();
                opening
                    .map(|opening| opening.store.submit(batch, durability))
                    .transpose()
            })?;
            tickets.extend(ticket);
        }
        while self.commit_step()? {}
        for (ticket, sequence) in tickets.into_iter().zip(first..) {
            let result = ticket.try_result();
            let result = result.ok_or_else(|| Stop::Wrong("a ticket stays open".into()))?;
            let got = result.map_err(|error| self.stop("commit", &error))?;
            self.committed(got, sequence)?;
        }
        self.happened.groups += 1;
        Ok(())
    }

    fn commit_step(&self) -> Step<bool> {
        let result = self.opening()?.store.commit_step();
        result.map_err(|error| self.stop("commit", &error))
    }

    fn committed(&mut self, got: u64, expected: u64) -> Step {
        if got != expected {
            return Err(Stop::Wrong(format!(
                "commit {expected} got the sequence {got}"
            )));
        }
        let durable = self.opening()?.store.durable_sequence();
        self.model.settle(durable);
        Ok(())
    }

    /// Another value for a write-once key that has one.
    pub fn write_conflict(&mut self) -> Step {
        let id = self.random.below(self.model.ids(BLOCKS));
        if self.model.state(BLOCKS, id).live().is_none() {
            return Ok(());
        }
        let opening = self.opening()?;
        let mut batch = Batch::new();
        batch.put(
            &opening.keyspaces[BLOCKS],
            key_of(BLOCKS, id).to_vec(),
            "no",
        );
        match opening.store.try_write(batch, Durability::Buffered) {
            Err(error) if *error.kind() == ErrorKind::Conflict => {}
            // Memory is asked for first.
            Err(error) if matches!(error.kind(), ErrorKind::Busy { .. }) => return Ok(()),
            Err(error) => return Err(self.stop("a conflicting write", &error)),
            Ok(_) => {
                let name = KEYSPACES[BLOCKS];
                return Err(Stop::Wrong(format!("{name} {id} took another value")));
            }
        }
        self.happened.conflicts += 1;
        Ok(())
    }
}
