//! The run: batches, jobs, hours.

use std::time::Duration;

use sealstone::env::counting::Counts;
use sealstone::{Batch, Durability, Error, ErrorKind, Job, Progress};

use super::figures::Hour;
use super::keys::{BLOCKS, KEY_BYTES, KEYSPACES, Values, key_of};
use super::limits::{Extremes, gates};
use super::model::{Model, State};
use super::opening::Opening;
use super::reads::View;
use super::weather::{self, HOURS, Turns, Weather};
use super::world::{Ending, World};
use super::{Report, Settings, Watch};
use crate::choices::SmallRandom;
use crate::heap;

/// Why a step did not come to its end.
#[derive(Debug)]
pub enum Stop {
    /// The process died, as it was to.
    Dead,
    /// The store did what it must not.
    Wrong(String),
}

/// The result of a step.
pub type Step<T = ()> = Result<T, Stop>;

/// One operation: a key comes into a state.
#[derive(Clone, Copy, Debug)]
struct Op {
    keyspace: usize,
    id: u64,
    before: State,
    after: State,
}

/// The most operations of a batch.
const BATCH_MAX: u64 = 200;

/// Names that are overwritten again and again.
const HOT_NAMES: u64 = 256;

/// Steps of jobs after which a write must have found memory.
const PATIENCE: u32 = 100_000;

/// How often each thing happened.
#[derive(Debug, Default)]
pub struct Happened {
    pub overwrites: u64,
    pub deletes: u64,
    pub repeats: u64,
    pub conflicts: u64,
    pub groups: u64,
    pub views: u64,
    pub view_reads: u64,
    pub views_given_up: u64,
    pub closes: u64,
    pub kills: u64,
    pub power_losses: u64,
    pub lost_changes: u64,
    pub scanned: u64,
}

impl Happened {
    fn list(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("overwrites", self.overwrites),
            ("deletes", self.deletes),
            ("repeats", self.repeats),
            ("conflicts", self.conflicts),
            ("groups", self.groups),
            ("views", self.views),
            ("view reads", self.view_reads),
            ("views given up", self.views_given_up),
            ("closes", self.closes),
            ("kills", self.kills),
            ("power losses", self.power_losses),
            ("changes lost", self.lost_changes),
            ("records scanned", self.scanned),
        ]
    }
}

/// See the module.
pub struct Run<'a> {
    pub settings: &'a Settings,
    pub random: SmallRandom,
    pub values: Values,
    pub model: Model,
    pub world: World,
    pub opening: Option<Opening>,
    /// How many there were.
    pub openings: u64,
    pub view: Option<View>,
    /// When to look again, in writes.
    pub next_sample: u64,
    /// When to take or look at a view.
    pub next_view: u64,
    pub written: u64,
    /// The last sequence that the model has changes of.
    pub sequence: u64,
    /// How the current opening was made to end, once it is to.
    pub ending: Option<Ending>,
    pub hour: Hour,
    pub extremes: Extremes,
    pub happened: Happened,
    pub heap_start: i64,
    hours: Vec<Hour>,
    counts: Counts,
    weather: Weather,
    batches: u64,
    ops: Vec<Op>,
}

impl<'a> Run<'a> {
    pub fn new(settings: &'a Settings) -> Result<Self, String> {
        let world = match &settings.directory {
            Some(directory) => World::real(directory)?,
            None => World::simulated(settings.seed),
        };
        let values = Values::new(settings.seed);
        let counts = world.counts();
        Ok(Self {
            settings,
            random: SmallRandom::new(settings.seed),
            values,
            model: Model::new(values, settings.writes),
            world,
            opening: None,
            openings: 0,
            view: None,
            next_sample: 0,
            next_view: 0,
            written: 0,
            sequence: 0,
            ending: None,
            hour: Hour::default(),
            extremes: Extremes::default(),
            happened: Happened::default(),
            heap_start: heap::live_bytes(),
            hours: heap::apart(|| Vec::with_capacity(HOURS as usize + 1)),
            counts,
            weather: weather::of_hour(0),
            batches: 0,
            ops: heap::apart(|| Vec::with_capacity(BATCH_MAX as usize)),
        })
    }

    pub fn run(mut self, watch: &mut dyn Watch) -> Result<Report, String> {
        let what = self.whole(watch);
        match what {
            Ok(()) => {
                let gates = gates(&self.settings.limits, &self.hours, &self.extremes);
                Ok(Report {
                    gates,
                    happened: self.happened.list(),
                    hours: self.hours,
                })
            }
            Err(Stop::Dead) => Err("the process died and nobody asked for it".into()),
            Err(Stop::Wrong(what)) => Err(format!(
                "seed {}, {} of {} writes: {what}",
                self.settings.seed, self.written, self.settings.writes
            )),
        }
    }

    fn whole(&mut self, watch: &mut dyn Watch) -> Step {
        heap::take_peak_bytes();
        self.open()?;
        let writes = self.settings.writes;
        let hour_end = |hours: usize| writes * (hours as u64 + 1) / HOURS;
        while self.written < writes && !watch.is_over() {
            match self.batch() {
                Err(Stop::Dead) if self.ending.is_some() => self.restart()?,
                other => other?,
            }
            if self.written >= hour_end(self.hours.len()) {
                self.end_hour(watch)?;
            }
        }
        // A loss of power that did not come any more.
        self.world.disarm();
        self.finish()
    }

    /// One batch or group, and what happens between two of them.
    fn batch(&mut self) -> Step {
        self.batches += 1;
        match self.random.below(8) {
            0 => self.write_group()?,
            _ => self.write_one()?,
        }
        if self.batches.is_multiple_of(64) {
            self.write_conflict()?;
        }
        self.take_turns()?;
        self.look()?;
        let due = |n: u64| self.settings.writes / (self.settings.reopenings + 1) * (n + 1);
        let number = self.openings - 1;
        if number < self.settings.reopenings && self.written >= due(number) {
            self.end_opening()?;
        }
        Ok(())
    }

    /// Whatever the store says while the process is dead does not matter.
    pub fn stop(&self, what: &str, error: &Error) -> Stop {
        if self.world.is_dead() {
            return Stop::Dead;
        }
        Stop::Wrong(format!("{what}: {error}"))
    }

    pub fn opening(&self) -> Step<&Opening> {
        let none = || Stop::Wrong("no store is open".into());
        self.opening.as_ref().ok_or_else(none)
    }

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

    fn write_one(&mut self) -> Step {
        self.draw_batch();
        let durability = self.durability();
        let sequence = self.persist(|run, batch| {
            let opening = run.opening.as_ref();
            opening.map_or(Ok(0), |opening| opening.store.try_write(batch, durability))
        })?;
        self.committed(sequence, self.sequence)
    }

    /// A few batches that become one group of the log.
    fn write_group(&mut self) -> Step {
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
    fn write_conflict(&mut self) -> Step {
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

    fn take_turns(&mut self) -> Step {
        let steps = match self.weather.turns {
            Turns::Steady => 3,
            Turns::Eager => u32::MAX,
            Turns::Lazy if self.batches.is_multiple_of(64) => 8,
            Turns::Bursts if self.batches.is_multiple_of(64) => 40,
            Turns::Lazy | Turns::Bursts => 0,
        };
        for _ in 0..steps {
            if !self.step()? {
                break;
            }
        }
        Ok(())
    }

    /// A step of a job; false if none is runnable.
    pub fn step(&mut self) -> Step<bool> {
        let quantum = 256 << self.random.below(3);
        let any = self.random.below(4) == 0;
        let opening = self.opening()?;
        let jobs = opening.store.runnable();
        let Some(first) = jobs.first() else {
            return Ok(false);
        };
        let index = if any {
            self.batches as usize % jobs.len()
        } else {
            0
        };
        let job: Job = *jobs.get(index).unwrap_or(first);
        let progress = opening.store.run(job, quantum);
        match progress.map_err(|error| self.stop("a job", &error))? {
            Progress::Nothing => {}
            Progress::Did | Progress::Finished => {
                *self.hour.steps.entry(job).or_default() += 1;
            }
        }
        Ok(true)
    }

    fn end_hour(&mut self, watch: &mut dyn Watch) -> Step {
        self.measure()?;
        let counts = self.world.counts();
        let total = (counts - self.counts).total();
        self.hour.disk_calls += total.writes + (counts - self.counts).barriers();
        self.hour.written_bytes += total.written_bytes;
        self.counts = counts;
        self.hour.weather = self.weather.name();
        let hour = std::mem::take(&mut self.hour);
        heap::apart(|| {
            watch.hour(self.hours.len(), &hour);
            self.hours.push(hour.clone());
        });
        drop(hour);
        self.weather = weather::of_hour(self.hours.len() as u64);
        self.world.pressure().set(self.weather.pressure);
        Ok(())
    }

    /// Turns the dial of a new life to where it was.
    pub fn restore_pressure(&self) {
        self.world.pressure().set(self.weather.pressure);
    }
}
