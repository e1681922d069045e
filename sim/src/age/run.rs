//! The run: its parts, its order, jobs and hours.

use sealstone::env::counting::Counts;
use sealstone::{Error, Job, Progress};

use super::figures::Hour;
use super::keys::Values;
use super::limits::{Extremes, gates};
use super::model::Model;
use super::opening::Opening;
use super::reads::View;
use super::weather::{self, HOURS, Turns, Weather};
use super::world::{Ending, World};
use super::writes::{BATCH_MAX, Op};
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
    /// Those of the batch on its way.
    pub ops: Vec<Op>,
}

impl<'a> Run<'a> {
    pub fn new(settings: &'a Settings) -> Result<Self, String> {
        let world = match &settings.directory {
            Some(directory) => World::real(directory)?,
            None => World::simulated(settings.seed, settings.sync_is_a_lie),
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
