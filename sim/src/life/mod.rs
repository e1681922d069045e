//! A run: one to five lives of a store on a disk that fails, from one stream of choices.
//!
//! ```text
//! swarm -> life: open (may fail, may crash) -> check -> steps, each checked -> end -> ... -> last life:
//!          no faults, must open, drain, take a write, and hold all it ever acknowledged
//! ```
//! A life ends by a crash inside a mutating call, by process death or power loss between two steps, by
//! an unwinding panic, or by a clean close. The model knows what may be left.

mod begin;
mod end;
mod events;
mod excuse;
mod last;
mod long_view;
mod reads;
mod record;
mod scene;
mod steps;
mod swarm;
mod writes;

use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};

use sealstone::env::FileKind;

pub use swarm::{Kind, Swarm};

use crate::choices::{Choices, Purpose, Recording};
use crate::disk::{SimulatedPanic, Strength};
use crate::env::SimEnv;
use crate::model::{Model, Violation};
use crate::subject::Subject;

/// Steps kept for the report.
const HISTORY_STEPS: usize = 40;
/// How a run is bounded.
#[derive(Clone, Copy, Debug, Default)]
pub struct RunLimits {
    /// The disk's strength instead of the drawn one.
    pub strength: Option<Strength>,
    /// Most steps of a life, if lower than the drawn number.
    pub steps_max: Option<u32>,
    /// Whether syncs do nothing: an error that is planted in the machine, for tests of the checks.
    pub lying: bool,
    /// Whether every step and call is written down.
    pub trace: bool,
    /// Whether the last steps are kept for a report; a failing run is made again with it.
    pub history: bool,
    /// Whether the run is written down as a plan.
    pub plan: bool,
    /// Whether memory pressure stays normal, whatever was drawn.
    pub still: bool,
    /// Whether no filter comes into memory, whatever was drawn.
    pub unfiltered: bool,
}

/// A rule that did not hold.
#[derive(Clone, Debug)]
pub struct RunFailure {
    /// Which, and how.
    pub violation: Violation,
    /// The step, counted over all lives.
    pub step: u64,
    /// The last steps.
    pub history: Vec<String>,
}

/// What a run did.
#[derive(Clone, Debug)]
pub struct RunReport {
    /// The features, in one line.
    pub swarm: String,
    /// Engine steps.
    pub steps: u64,
    /// Lives that ended by a crash.
    pub crashes: u64,
    /// Faults and features, with how often they took effect.
    pub hits: BTreeMap<String, u64>,
    /// A digest of every call and answer.
    pub digest: u64,
    /// A digest of the bytes on the disk at the end.
    pub bytes: u64,
    /// A digest of the steps at which a write was refused or ran jobs itself for want of room, and of how
    /// often those changed the disk.
    pub stalled: u64,
    /// What was drawn.
    pub recording: Recording,
    /// The rule that did not hold, if one did not.
    pub failure: Option<RunFailure>,
    /// Every step and call, if asked for.
    pub trace: Vec<String>,
    /// The run as a plan, if asked for.
    pub plan: Vec<String>,
}

impl RunReport {
    /// The plan's text. The step at which a rule broke is no longer tried: its error is the failure.
    pub fn plan_text(&self) -> String {
        let mut lines = self.plan.clone();
        if let (Some(_), Some(last)) = (&self.failure, lines.last_mut())
            && let Some(step) = last.strip_prefix("try ")
        {
            *last = step.to_string();
        }
        lines.push("expect model".into());
        lines.join("\n") + "\n"
    }
}

/// Why a life stopped.
enum End {
    /// The process is dead.
    Dead,
    /// A rule does not hold.
    Broken(Violation),
    /// Damage was reported and nothing can be said any more.
    Given,
}

impl From<Violation> for End {
    fn from(violation: Violation) -> Self {
        Self::Broken(violation)
    }
}

type Lived<T> = Result<T, End>;

/// An iterator under way, with what it must yield.
struct Walk<C> {
    cursor: C,
    /// Its name in plans.
    id: u64,
    items: VecDeque<(Vec<u8>, Vec<u8>)>,
}

/// What lives with an open store.
struct Open<S: Subject> {
    walks: Vec<Walk<S::Cursor>>,
    /// Snapshots with their sequence and their name in plans.
    views: Vec<(S::View, u64, u64)>,
    /// Tickets with the sequence each must get and whether it was to be synced.
    tickets: VecDeque<(S::Ticket, u64, bool)>,
    poisoned: bool,
    /// The same before this step: from then on nothing may be acknowledged.
    was_poisoned: bool,
    subject: S,
}

struct Run<S: Subject> {
    choices: Choices,
    swarm: Swarm,
    env: SimEnv,
    options: S::Options,
    model: Model,
    /// No faults any more.
    clean: bool,
    /// Something was damaged: content may be missing, but never wrong.
    damaged: bool,
    /// The medium lost something that it said it took.
    lost: bool,
    /// What rotted since the last open, and whether it was a single bit.
    rotten: Vec<(FileKind, bool)>,
    /// The pressure dial does not move.
    still: bool,
    unfiltered: bool,
    /// Filter tests of lookups while all filters were there, and those that were wrong.
    filtered: (u64, u64),
    /// Struck faults that no loop hides, when this life began.
    struck_before: u64,
    /// The same without those that only say that there is no room, before anything happened.
    struck_hard_before: u64,
    /// Reads of this life that began a touch again which a fault had cut short.
    touched_again: u64,
    values: u64,
    steps: u64,
    crashes: u64,
    hits: BTreeMap<String, u64>,
    history: VecDeque<String>,
    digest: u64,
    stalled: u64,
    telling: bool,
    trace: Option<Vec<String>>,
    plan: Option<Vec<String>>,
    /// Numbers the snapshots and iterators.
    names: u64,
    /// Bytes that reads handed out, with copies: they outlive every store.
    held: VecDeque<(S::Held, Vec<u8>)>,
    /// The newest segment when this was last looked at.
    newest: u64,
    /// What is on the stage.
    scene: scene::Scene,
}

/// Makes one run of a store whose options are drawn from `base`.
pub fn run<S: Subject>(choices: Choices, base: &S::Options, limits: &RunLimits) -> RunReport {
    silence_simulated_panics();
    let mut choices = choices;
    let mut swarm = Swarm::draw(&mut choices, limits.strength);
    if let Some(most) = limits.steps_max {
        swarm.steps_max = swarm.steps_max.min(most);
    }
    let options = drawn_options::<S>(&mut choices, base, 1, limits.unfiltered);
    let seed = choices.subseed(Purpose::Crash);
    let mut run = Run::<S> {
        env: SimEnv::new(swarm.disk(seed)),
        swarm,
        options,
        choices,
        model: Model::new(&S::kinds()),
        clean: false,
        damaged: false,
        lost: false,
        rotten: Vec::new(),
        still: limits.still,
        unfiltered: limits.unfiltered,
        filtered: (0, 0),
        struck_before: 0,
        struck_hard_before: 0,
        touched_again: 0,
        values: 0,
        steps: 0,
        crashes: 0,
        hits: BTreeMap::new(),
        history: VecDeque::new(),
        digest: 0,
        stalled: 0,
        telling: limits.trace || limits.history,
        trace: limits.trace.then(Vec::new),
        plan: limits.plan.then(Vec::new),
        names: 0,
        held: VecDeque::new(),
        newest: 0,
        scene: scene::Scene::None,
    };
    run.env
        .disk
        .set_options(|disk| disk.sync_is_a_lie = limits.lying);
    run.plan_head(seed);
    if limits.trace {
        run.env.disk.start_trace();
    }
    let violation = run.lives().err();
    run.report(violation)
}

/// Panics thrown to end a process are no news; all others are printed as ever.
pub(crate) fn silence_simulated_panics() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let earlier = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !info.payload().is::<SimulatedPanic>() {
                earlier(info);
            }
        }));
    });
}

/// Options of a life, with filters or without.
fn drawn_options<S: Subject>(
    choices: &mut Choices,
    base: &S::Options,
    life: u32,
    unfiltered: bool,
) -> S::Options {
    let drawn = S::draw_options(choices, base, life);
    match unfiltered {
        true => S::without_filters(drawn),
        false => drawn,
    }
}

impl<S: Subject> Run<S> {
    /// Options of a later life.
    fn draw_options(&mut self, life: u32) {
        self.options = drawn_options::<S>(&mut self.choices, &self.options, life, self.unfiltered);
    }

    fn lives(&mut self) -> Result<(), Violation> {
        for life in 1..=self.swarm.lives {
            self.clean = life == self.swarm.lives;
            if life > 1 {
                self.draw_options(life);
                self.plan_lines(|run| S::plan_options(&run.options));
                self.look_without_writing()?;
            }
            if !self.life()? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// One life; false if damage ends the run.
    fn life(&mut self) -> Result<bool, Violation> {
        let mut open = match self.open_at_last() {
            Ok(open) => open,
            Err(End::Given) => return Ok(false),
            Err(End::Broken(violation)) => return Err(violation),
            Err(End::Dead) => return Err(Violation::new("S6", "open never came to an end")),
        };
        let steps = 1 + self.choices.below(Purpose::Workload, self.swarm.steps_max);
        let end = self.guarded(|run| run.steps(&mut open, steps));
        match end {
            Ok(()) if self.clean => {
                let end = self.guarded(|run| run.last_words(&mut open));
                drop(open);
                match end {
                    Ok(()) | Err(End::Given) => Ok(true),
                    Err(End::Broken(violation)) => Err(violation),
                    Err(End::Dead) => Err(Violation::new("S19", "died without a crash point")),
                }
            }
            Ok(()) => self.end_by_choice(open),
            Err(End::Dead) => {
                // What the process would still have done while it dies finds a dead disk.
                drop(open);
                self.crash();
                Ok(true)
            }
            Err(End::Given) => Ok(false),
            Err(End::Broken(violation)) => Err(violation),
        }
    }

    /// Runs something that may unwind.
    fn guarded<T>(&mut self, work: impl FnOnce(&mut Self) -> Lived<T>) -> Lived<T> {
        match catch_unwind(AssertUnwindSafe(|| work(self))) {
            Ok(result) => result,
            Err(panic) if panic.is::<SimulatedPanic>() => Err(End::Dead),
            Err(panic) => {
                let text = panic.downcast_ref::<String>().cloned();
                let text = text.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_string()));
                let what = format!("the engine panicked: {}", text.unwrap_or_default());
                Err(Violation::new("panic", what).into())
            }
        }
    }

    fn did(&mut self, what: impl FnOnce() -> String) {
        if !self.telling {
            return;
        }
        let what = what();
        self.take_disk_trace();
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{:5} {what}", self.steps));
        }
        if self.history.len() == HISTORY_STEPS {
            self.history.pop_front();
        }
        self.history.push_back(format!("{:5} {what}", self.steps));
    }

    fn take_disk_trace(&mut self) {
        if let Some(trace) = &mut self.trace {
            trace.extend(
                self.env
                    .disk
                    .take_trace()
                    .into_iter()
                    .map(|line| format!("        {line}")),
            );
        }
    }

    fn hit(&mut self, what: &str) {
        match self.hits.get_mut(what) {
            Some(count) => *count += 1,
            None => {
                self.hits.insert(what.to_string(), 1);
            }
        }
    }

    fn mix(&mut self, value: u64) {
        self.digest = (self.digest ^ value)
            .wrapping_mul(0x9FB2_1C65_1E98_DF25)
            .rotate_left(31);
    }

    fn report(mut self, violation: Option<Violation>) -> RunReport {
        self.take_disk_trace();
        let violation = violation.or_else(|| {
            let wrong = self.env.disk.violations();
            wrong.first().map(|what| Violation::new("S9", what.clone()))
        });
        let hits = self.env.disk.faults(|plan| plan.hits().clone());
        for ((fault, call), count) in hits {
            *self
                .hits
                .entry(format!("{}-{call:?}", fault.name()))
                .or_default() += count;
        }
        RunReport {
            swarm: format!("{} options: {:?}", self.swarm, self.options),
            steps: self.steps,
            crashes: self.crashes,
            hits: self.hits,
            digest: self.digest ^ self.env.disk.digest(),
            bytes: self.env.disk.content_digest(),
            stalled: self.stalled,
            recording: self.choices.recording().clone(),
            failure: violation.map(|violation| RunFailure {
                violation,
                step: self.steps,
                history: self.history.into_iter().collect(),
            }),
            trace: self.trace.unwrap_or_default(),
            plan: self.plan.unwrap_or_default(),
        }
    }
}
