//! The exhaustive crash run: a crash before, inside and after every mutating call of a script, and
//! the same for every mutating call of each recovery.
//!
//! What a crash leaves depends on the disk alone, so the script runs once on a recording disk and
//! every recorded state is crashed in several ways:
//!
//! ```text
//! script -> states -> (crash) -> open, check -> power loss -> open, check      S5
//!                                  |         -> write, power loss -> open      life goes on
//!                                  +-> states of the recovery -> (crash) -> open, check    S6
//! ```
//! The state after a call is the state before the next one, so it is tried by itself only where the
//! driver learned something between the two, and at the end.
//!
//! Checked at each open: `durable <= recovered <= issued`, and the content by scans both ways and by
//! point reads of every key ever written.

use crate::disk::state::State;
use crate::disk::{Crash, DiskOptions, Order, Place, Recorded, SimDisk, Strength, Survivors};
use crate::env::SimEnv;
use crate::faults::Call;
use crate::model::{Model, Op, Violation};
use crate::script::{Mark, Step, Walker, check_all};
use crate::subject::Subject;
use crate::workers::spawn_all;

/// How much is tried.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Seeded subsets per crash point, beside nothing, everything and process death.
    pub subsets: u64,
    /// Crashes per crash point of a recovery; 0 leaves recoveries alone.
    pub in_recovery: u64,
    /// About as many stores are opened: where all crash points of all recoveries are more, each
    /// recovery leaves some to its neighbours.
    pub opens_max: u64,
    /// Failures after which it ends.
    pub failures_max: usize,
    /// Worker threads.
    pub threads: usize,
    /// The disk that the script runs on; later lives have an honest one.
    pub disk: DiskOptions,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            subsets: 2,
            in_recovery: 1,
            opens_max: u64::MAX,
            failures_max: 10,
            threads: 2,
            disk: DiskOptions::default(),
        }
    }
}

/// A crash after which a rule did not hold.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Which rule, and how.
    pub violation: Violation,
    /// The mutating call of the script and the place in it.
    pub at: (u64, Place, Call),
    /// How the life ended.
    pub crash: Crash,
    /// The same for the recovery, if it was crashed too.
    pub in_recovery: Option<((u64, Place, Call), Crash)>,
}

/// What was tried and found.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Mutating calls of the script.
    pub mutations: u64,
    /// Crash points: places in calls of the script.
    pub crash_points: u64,
    /// Crash points in recoveries.
    pub recovery_points: u64,
    /// Every so many places of a recovery one was tried; 1 is all of them.
    pub recovery_stride: u64,
    /// Stores opened.
    pub opens: u64,
    /// What went wrong.
    pub failures: Vec<Failure>,
}

impl Report {
    /// One line for people.
    pub fn line(&self, took: std::time::Duration) -> String {
        format!(
            "{} mutating calls, {} crash points and {} in recoveries (1 place in {}), {} opens, \
             {} failures, {:.1} s",
            self.mutations,
            self.crash_points,
            self.recovery_points,
            self.recovery_stride,
            self.opens,
            self.failures.len(),
            took.as_secs_f64()
        )
    }
}

/// Runs `script` and every crash of it.
///
/// # Errors
/// If the script itself fails without any crash.
pub fn explore<S: Subject>(
    options: &S::Options,
    script: &[Step],
    limits: &Limits,
) -> Result<Report, Violation> {
    let env = SimEnv::new(limits.disk);
    env.disk.start_recording();
    let mut walker = Walker::<S>::open(env.clone(), options.clone())?;
    walker.walk(script)?;
    let states = env.disk.stop_recording();
    let (model, marks) = (walker.model.clone(), walker.marks.clone());
    drop(walker);
    let points = distinct(&states);
    let mut explorer = Explorer::<S> {
        options,
        model: &model,
        marks: &marks,
        limits,
        stride: 1,
    };
    explorer.stride = explorer.stride_for(&points)?;
    let parts = spawn_all(limits.threads, |worker| {
        let mut report = Report::default();
        for recorded in points.iter().skip(worker).step_by(limits.threads) {
            explorer.point(recorded, &mut report);
            if report.failures.len() >= limits.failures_max {
                break;
            }
        }
        report
    });
    let mut report = Report {
        mutations: env.disk.mutations(),
        crash_points: states.len() as u64,
        recovery_stride: explorer.stride,
        ..Report::default()
    };
    for part in parts {
        report.recovery_points += part.recovery_points;
        report.opens += part.opens;
        report.failures.extend(part.failures);
    }
    Ok(report)
}

/// The states that differ from the next one in content or in what the driver knew.
pub(crate) fn distinct(states: &[Recorded]) -> Vec<&Recorded> {
    let repeated = |(index, recorded): &(usize, &Recorded)| {
        let next = states.get(index + 1);
        recorded.place == Place::After && next.is_some_and(|next| next.mark == recorded.mark)
    };
    states
        .iter()
        .enumerate()
        .filter(|state| !repeated(state))
        .map(|(_, state)| state)
        .collect()
}

struct Explorer<'a, S: Subject> {
    options: &'a S::Options,
    model: &'a Model,
    marks: &'a [Mark],
    limits: &'a Limits,
    stride: u64,
}

/// The seeded survivors of a point: orders, sectors and strengths take turns.
pub(crate) fn subset(seed: u64) -> Crash {
    let mut survivors = Survivors::seeded(seed);
    survivors.order = match seed % 5 {
        0 => Order::PrefixPerFile,
        1 => Order::PrefixGlobal,
        _ => Order::AnySubset,
    };
    survivors.sector_bytes = if seed.is_multiple_of(3) { 4096 } else { 512 };
    if seed.is_multiple_of(7) {
        survivors.strength = Strength::Adversarial;
    }
    Crash::Power(survivors)
}

impl<S: Subject> Explorer<'_, S> {
    fn point(&self, recorded: &Recorded, report: &mut Report) {
        let point = recorded.mutation * 3 + recorded.place as u64;
        let mut crashes = vec![Crash::Power(Survivors::NOTHING)];
        if !recorded.state.is_settled() {
            crashes.push(Crash::Kill);
            crashes.push(Crash::Power(Survivors::EVERYTHING));
            crashes.extend((0..self.limits.subsets).map(|n| subset(point * 17 + n)));
        }
        for crash in crashes {
            let at = (recorded.mutation, recorded.place, recorded.call);
            let failure = |violation, in_recovery| Failure {
                violation,
                at,
                crash,
                in_recovery,
            };
            let mark = &self.marks[recorded.mark as usize];
            let state = recorded.state.after(&crash);
            let recoveries = match self.first_open(&state, mark, report) {
                Ok(recoveries) => recoveries,
                Err(violation) => {
                    report.failures.push(failure(violation, None));
                    continue;
                }
            };
            for (recovery, crash) in self.chosen(&recoveries, point) {
                report.recovery_points += 1;
                let state = recovery.state.after(&crash);
                if let Err(violation) = self.open(&state, mark, report) {
                    let at = (recovery.mutation, recovery.place, recovery.call);
                    report.failures.push(failure(violation, Some((at, crash))));
                }
            }
            if report.failures.len() >= self.limits.failures_max {
                return;
            }
        }
    }

    /// How many places of a recovery must be passed over for the opens to stay within the limit,
    /// judged by the recovery after the last point.
    fn stride_for(&self, points: &[&Recorded]) -> Result<u64, Violation> {
        let Some(last) = points.last() else {
            return Ok(1);
        };
        let env = SimEnv::on(SimDisk::from_state(
            last.state.after(&Crash::Kill),
            DiskOptions::default(),
        ));
        env.disk.start_recording();
        self.opened(
            &env,
            &self.marks[last.mark as usize],
            &mut Report::default(),
        )?;
        let places = distinct(&env.disk.stop_recording()).len() as u64 * self.limits.in_recovery;
        let crashes = points.len() as u64 * (3 + self.limits.subsets);
        let room = self.limits.opens_max.saturating_sub(3 * crashes).max(1);
        Ok((crashes * places).div_ceil(room).max(1))
    }

    /// The crashes tried in a recovery. Which kind falls on which place turns with the point, so that
    /// neighbouring points cover what one leaves out. What leaves the same bytes as the last one that
    /// kept nothing is left out.
    fn chosen<'r>(&self, recoveries: &'r [Recorded], point: u64) -> Vec<(&'r Recorded, Crash)> {
        let nothing = Crash::Power(Survivors::NOTHING);
        let mut last: Option<&State> = None;
        let mut chosen = Vec::new();
        for (recorded, index) in distinct(recoveries).into_iter().zip(point..) {
            if !index.is_multiple_of(self.stride) {
                continue;
            }
            for turn in index..index + self.limits.in_recovery {
                let crash = match turn % 4 {
                    _ if recorded.state.is_settled() => nothing,
                    0 => nothing,
                    1 => Crash::Kill,
                    _ => subset(turn * 31 + point),
                };
                if crash == nothing {
                    if last.is_some_and(|last| last.same_durable(&recorded.state)) {
                        continue;
                    }
                    last = Some(&recorded.state);
                }
                chosen.push((recorded, crash));
            }
        }
        chosen
    }

    /// Opens after a crash, and looks at what may follow. Returns the states of the recovery.
    fn first_open(
        &self,
        state: &State,
        mark: &Mark,
        report: &mut Report,
    ) -> Result<Vec<Recorded>, Violation> {
        let env = SimEnv::on(SimDisk::from_state(state.clone(), DiskOptions::default()));
        if self.limits.in_recovery > 0 {
            env.disk.start_recording();
        }
        let (subject, mut model) = self.opened(&env, mark, report)?;
        let recoveries = env.disk.stop_recording();
        check_all(&subject, &model, model.visible)?;

        // Recovered means durable: the next loss of power takes nothing of it.
        let lost = env.disk.imagine(&Crash::Power(Survivors::NOTHING)).state();
        let exact = Mark {
            durable: model.durable,
            issued: model.issued,
        };
        self.open(&lost, &exact, report).map_err(|violation| {
            Violation::new("S5", format!("recovered, then lost: {violation}"))
        })?;

        // Life goes on: a synced write on top stays.
        let ops = [Op::put(
            model.keyspaces() - 1,
            "after the crash",
            "one more",
        )];
        let sequence = model.issue(&ops);
        let written = subject.write(&ops, true);
        let acked = written.map_err(|stop| Violation::new("S19", format!("write: {stop:?}")))?;
        if acked != sequence {
            let what = format!("the commit after {} was called {acked}", sequence - 1);
            return Err(Violation::new("S1", what));
        }
        model.acknowledge(sequence, true);
        let lost = env.disk.imagine(&Crash::Power(Survivors::NOTHING)).state();
        drop(subject);
        if env.disk.descriptors() != 0 {
            return Err(Violation::new(
                "S14",
                "descriptors are left after the store is dropped",
            ));
        }
        let again = Explorer::<S> {
            model: &model,
            ..*self
        };
        let exact = Mark {
            durable: sequence,
            issued: sequence,
        };
        again.open(&lost, &exact, report)?;
        Ok(recoveries)
    }

    /// Opens and checks, nothing else.
    fn open(&self, state: &State, mark: &Mark, report: &mut Report) -> Result<(), Violation> {
        let env = SimEnv::on(SimDisk::from_state(state.clone(), DiskOptions::default()));
        let (subject, model) = self.opened(&env, mark, report)?;
        check_all(&subject, &model, model.visible)
    }

    fn opened(
        &self,
        env: &SimEnv,
        mark: &Mark,
        report: &mut Report,
    ) -> Result<(S, Model), Violation> {
        report.opens += 1;
        let subject = S::open(&env.env(), self.options)
            .map_err(|stop| Violation::new("S6", format!("open: {:?} {}", stop.kind, stop.text)))?;
        let mut model = self.model.clone();
        model.issued = mark.issued;
        model.durable = mark.durable;
        model.recover(subject.recovered())?;
        Ok((subject, model))
    }
}

impl<S: Subject> Clone for Explorer<'_, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S: Subject> Copy for Explorer<'_, S> {}
