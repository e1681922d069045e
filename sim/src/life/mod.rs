//! A run: one to five lives of a store on a disk that fails, from one stream of choices.
//!
//! ```text
//! swarm -> life: open (may fail, may crash) -> check -> steps, each checked -> end -> ... -> last life:
//!          no faults, must open, drain, take a write, and hold all it ever acknowledged
//! ```
//! A life ends by a crash inside a mutating call, by process death or power loss between two steps, by
//! an unwinding panic, or by a clean close. The model knows what may be left.

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

use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};

use sealstone::env::FileKind;

pub use swarm::{Kind, Swarm};

use crate::choices::{Choices, Purpose, Recording};
use crate::disk::{AimedCrash, CrashPoint, Place, SimulatedPanic, Strength};
use crate::env::SimEnv;
use crate::faults::{Call, Fault, Rule};
use crate::model::{Model, Violation};
use crate::subject::Subject;

/// Steps kept for the report.
const HISTORY_STEPS: usize = 40;
/// Opens of a life that may fail or crash before it is given clean air.
const TROUBLED_OPENS_MAX: u32 = 3;

/// Calls that a crash is aimed at. A log's first write is its header.
const RARE_CALLS: [(Call, Option<FileKind>); 5] = [
    (Call::SyncDir, None),
    (Call::Rename, None),
    (Call::Unlink, None),
    (Call::CreateNew, None),
    (Call::Write, Some(FileKind::Log)),
];

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

    /// Opens, through failures and crashes, at last in clean air.
    fn open_at_last(&mut self) -> Lived<Open<S>> {
        for attempt in 0..=TROUBLED_OPENS_MAX {
            let calm = self.clean || attempt == TROUBLED_OPENS_MAX;
            self.prepare(calm);
            if !calm {
                self.set_the_stage();
            }
            match self.guarded(|run| run.open_once(calm)) {
                Ok(open) => return Ok(open),
                Err(End::Dead) => self.crash(),
                Err(end) => return Err(end),
            }
        }
        Err(End::Dead)
    }

    /// Arms what may go wrong in the coming life.
    fn prepare(&mut self, calm: bool) {
        let disk = self.env.disk.clone();
        disk.faults(|plan| plan.disarm());
        disk.crash_at(None);
        disk.crash_on(None);
        self.plan_line(|| "fault off".into());
        self.struck_before = self.struck();
        self.struck_hard_before = self.struck_hard();
        self.touched_again = 0;
        let limits = match calm {
            true => crate::disk::DiskOptions::default(),
            false => self.swarm.disk(0),
        };
        disk.set_options(|options| {
            options.capacity_bytes = limits.capacity_bytes;
            options.descriptors_max = limits.descriptors_max;
        });
        self.plan_limits(calm);
        if calm {
            return;
        }
        for (fault, gap) in self.swarm.faults.clone() {
            let after = u64::from(self.choices.below(Purpose::Fault, 2 * gap));
            // Zero is the simplest choice, and no fault is simpler than one.
            if after > 0 {
                let seed = self.choices.subseed(Purpose::Fault);
                let (times, every) = match fault {
                    _ if fault.is_masked() => (50, after / 4),
                    // What is short stays short for a while.
                    Fault::NoSpace | Fault::NoDescriptor => (1 << (after % 4), 0),
                    _ => (1, 0),
                };
                let after = after - 1;
                let rule = Rule {
                    fault,
                    call: None,
                    file: None,
                    after,
                    every,
                    times,
                    seed,
                };
                self.plan_rule(&rule);
                disk.arm(rule);
            }
        }
        if self.choices.below(Purpose::Crash, 8) < self.swarm.crash_eighths {
            let bits = self.choices.below(Purpose::Crash, 8);
            let mutation = u64::from(self.choices.below(Purpose::Crash, 4 << bits));
            let place = *self.choices.pick(
                Purpose::Crash,
                &[Place::Before, Place::Inside, Place::After],
            );
            let panic = self.choices.chance(Purpose::Crash, 1, 8);
            if self.choices.chance(Purpose::Crash, 1, 4) {
                // What is rare among the calls is what order hangs on.
                let (call, file) = *self.choices.pick(Purpose::Crash, &RARE_CALLS);
                let after = u64::from(self.choices.below(Purpose::Crash, 1 << (bits / 2)));
                let aimed = AimedCrash {
                    call,
                    file,
                    after,
                    place,
                    panic,
                };
                self.plan_aimed_crash(&aimed);
                disk.crash_on(Some(aimed));
                return;
            }
            let point = CrashPoint {
                mutation,
                place,
                panic,
            };
            self.plan_crash_point(&point);
            disk.crash_at(Some(point));
        }
    }

    fn open_once(&mut self, calm: bool) -> Lived<Open<S>> {
        self.did(|| {
            let faults = if calm { "no" } else { "some" };
            format!("open, {faults} faults armed")
        });
        self.plan_line(|| "try open".into());
        let opened = S::open(&self.env.env(), &self.options);
        self.note_damage();
        let subject = match opened {
            Ok(subject) => subject,
            Err(stop) if self.env.disk.is_dead() => {
                self.did(|| format!("open: {}", stop.text));
                return Err(End::Dead);
            }
            Err(stop) if self.damaged => {
                self.did(|| format!("open: {}", stop.text));
                return if calm {
                    Err(End::Given)
                } else {
                    Err(End::Dead)
                };
            }
            Err(stop) if !calm && self.excused(&stop) => {
                // The process gives up and ends.
                self.did(|| format!("open: {}", stop.text));
                return Err(End::Dead);
            }
            Err(stop) => {
                let what = format!("open fails without reason: {:?} {}", stop.kind, stop.text);
                return Err(Violation::new("S6", what).into());
            }
        };
        let recovered = subject.recovered();
        self.did(|| format!("opened, recovered through {recovered}"));
        self.recover(recovered)?;
        self.mix(recovered);
        let mut open = Open {
            walks: Vec::new(),
            views: Vec::new(),
            tickets: VecDeque::new(),
            poisoned: false,
            was_poisoned: false,
            subject,
        };
        self.check_everything(&mut open, (calm && self.clean) || self.damaged)?;
        Ok(open)
    }

    /// Takes over what an open says it recovered.
    fn recover(&mut self, recovered: u64) -> Result<(), Violation> {
        if self.damaged {
            self.check_loss(recovered)?;
            self.model.durable = 0;
        }
        self.rotten.clear();
        // Of a damaged store, what nobody wrote is the damage not seen.
        self.model.recover(recovered).map_err(|found| {
            let rule = self.read_rule(found.rule);
            Violation::new(rule, found.what)
        })
    }

    /// Damage may have taken durable commits, but not where it could be seen: a frame behind the damaged
    /// one says that it was durable, and what is in segments has no frames to lose.
    fn check_loss(&self, recovered: u64) -> Result<(), Violation> {
        if self.lost || !S::TELLS_DURABLE {
            return Ok(());
        }
        let least = match self.rotten[..] {
            [(FileKind::Log, true)] => self.model.told_durable(recovered),
            [(FileKind::Log, false)] | [_, _, ..] => return Ok(()),
            [] | [_] => self.model.durable,
        };
        if recovered < least {
            let what = format!("durable through {least}, recovered {recovered}, without an error");
            return Err(Violation::new("S18", what));
        }
        Ok(())
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
