//! Many seeds: runs them on several threads, adds up what happened, and says how to reproduce a
//! failure.
//!
//! Seed s is the same run whatever the number of threads. Every [`TWICE_EVERY`]-th seed runs twice
//! and must give the same digest (S21).

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::choices::Choices;
use crate::disk::Strength;
use crate::life::{RunLimits, RunReport, run};
use crate::model::Violation;
use crate::subject::Subject;
use crate::workers::spawn_all;

/// Every so many seeds one runs twice.
pub const TWICE_EVERY: u64 = 500;
/// Every so many seeds one runs again without memory pressure.
pub const STILL_EVERY: u64 = 25;

/// What to sweep.
#[derive(Clone, Debug)]
pub struct SweepOptions<O> {
    /// What each run draws its options from.
    pub base: O,
    /// The seeds.
    pub seeds: Range<u64>,
    /// How each run is bounded.
    pub limits: RunLimits,
    /// Worker threads.
    pub jobs: usize,
    /// Failures after which it ends.
    pub failures_max: usize,
}

/// What a sweep found.
#[derive(Clone, Debug, Default)]
pub struct SweepReport {
    /// Seeds run.
    pub seeds: u64,
    /// Engine steps.
    pub steps: u64,
    /// Lives that ended by a crash.
    pub crashes: u64,
    /// A digest over all runs, independent of the threads.
    pub digest: u64,
    /// Faults and features, with how often they took effect.
    pub hits: BTreeMap<String, u64>,
    /// Seeds that failed, with what happened.
    pub failures: Vec<(u64, RunReport)>,
}

/// Runs one seed.
pub fn run_seed<S: Subject>(seed: u64, base: &S::Options, limits: &RunLimits) -> RunReport {
    let report = run::<S>(Choices::seed(seed), base, limits);
    if report.failure.is_some() && !limits.history {
        // Again, with the last steps told: telling costs as much as running.
        let telling = RunLimits {
            history: true,
            ..*limits
        };
        return run::<S>(Choices::seed(seed), base, &telling);
    }
    if report.failure.is_none() && seed % STILL_EVERY == 1 {
        return without_pressure::<S>(report, seed, base, limits);
    }
    if report.failure.is_some() || !seed.is_multiple_of(TWICE_EVERY) {
        return report;
    }
    twice::<S>(report, Choices::seed(seed), base, limits)
}

/// Makes a run again: equal choices must give equal traces and equal bytes (S21).
pub fn twice<S: Subject>(
    report: RunReport,
    choices: Choices,
    base: &S::Options,
    limits: &RunLimits,
) -> RunReport {
    let again = run::<S>(choices, base, limits);
    if (again.digest, again.bytes) == (report.digest, report.bytes) {
        return report;
    }
    let what = format!(
        "trace {:016x}, then {:016x}; bytes {:016x}, then {:016x}",
        report.digest, again.digest, report.bytes, again.bytes
    );
    differs(report, what)
}

/// Makes a run again with memory pressure and without: what a store writes depends on commits and options
/// alone (S21). Both have no filters, which follow pressure by jobs and reads of their own, so that another
/// job is the next one and other calls meet a fault. Under pressure a write may find no room and be refused,
/// or run more jobs itself than without, which gives files other numbers; where the two differ in that, their
/// bytes are not compared.
fn without_pressure<S: Subject>(
    report: RunReport,
    seed: u64,
    base: &S::Options,
    limits: &RunLimits,
) -> RunReport {
    let made = |still| {
        let limits = RunLimits {
            still,
            unfiltered: true,
            ..*limits
        };
        run::<S>(Choices::seed(seed), base, &limits)
    };
    let (pressed, still) = (made(false), made(true));
    for other in [&pressed, &still] {
        if other.failure.is_some() {
            return other.clone();
        }
    }
    if still.stalled != pressed.stalled {
        return report;
    }
    if still.bytes == pressed.bytes {
        let mut report = report;
        *report.hits.entry("without-pressure".into()).or_default() += 1;
        return report;
    }
    let what = format!(
        "bytes {:016x}, without memory pressure {:016x}",
        pressed.bytes, still.bytes
    );
    differs(report, what)
}

fn differs(report: RunReport, what: String) -> RunReport {
    let failure = crate::life::RunFailure {
        violation: Violation::new("S21", what),
        step: report.steps,
        history: Vec::new(),
    };
    RunReport {
        failure: Some(failure),
        ..report
    }
}

/// What must have happened in a sweep of at least [`SEEDS_FOR_ALL`] seeds: every fault, every kind of
/// step and of end.
pub fn expected_hits() -> Vec<String> {
    let faults = crate::faults::Fault::ALL.iter().map(|fault| fault.name());
    let features = [
        "without-pressure",
        "event-filters",
        "event-flapping",
        "event-purge",
        "event-spike",
        "write",
        "submit",
        "no-op",
        "conflict",
        "refused",
        "failing-closure",
        "scan",
        "range",
        "prefix",
        "get-into",
        "contains",
        "hold",
        "snapshot",
        "iterator",
        "job",
        "install",
        "fold",
        "reopen",
        "read-only",
        "rot",
        "scene-barrier",
        "scene-burst",
        "scene-long-view",
        "scene-no-room",
        "scene-rot",
        "scene-torn-header",
        "end-kill",
        "end-power",
        "end-close",
    ];
    faults.chain(features).map(String::from).collect()
}

/// From so many seeds on a fault or feature that never took effect fails a sweep.
pub const SEEDS_FOR_ALL: u64 = 2000;

/// Runs all seeds.
pub fn sweep<S: Subject>(options: &SweepOptions<S::Options>) -> SweepReport {
    let next = AtomicU64::new(options.seeds.start);
    let enough = AtomicBool::new(false);
    let parts = spawn_all(options.jobs, |_| {
        let mut part = SweepReport::default();
        while !enough.load(Ordering::Relaxed) {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= options.seeds.end {
                break;
            }
            part.add(seed, run_seed::<S>(seed, &options.base, &options.limits));
            if part.failures.len() >= options.failures_max {
                enough.store(true, Ordering::Relaxed);
            }
        }
        part
    });
    let mut total = SweepReport::default();
    for part in parts {
        total.merge(part);
    }
    total.failures.sort_by_key(|(seed, _)| *seed);
    total
}

impl SweepReport {
    fn add(&mut self, seed: u64, report: RunReport) {
        self.seeds += 1;
        self.steps += report.steps;
        self.crashes += report.crashes;
        // Added, not chained: the order of the seeds must not matter.
        self.digest = self
            .digest
            .wrapping_add(report.digest.rotate_left((seed % 64) as u32));
        for (what, count) in &report.hits {
            match self.hits.get_mut(what) {
                Some(sum) => *sum += count,
                None => {
                    self.hits.insert(what.clone(), *count);
                }
            }
        }
        if report.failure.is_some() {
            self.failures.push((seed, report));
        }
    }

    fn merge(&mut self, part: Self) {
        self.seeds += part.seeds;
        self.steps += part.steps;
        self.crashes += part.crashes;
        self.digest = self.digest.wrapping_add(part.digest);
        for (what, count) in part.hits {
            *self.hits.entry(what).or_default() += count;
        }
        self.failures.extend(part.failures);
    }

    /// Faults and features that never took effect although they could have.
    pub fn dead(&self, expected: &[String]) -> Vec<String> {
        let hit = |what: &&String| self.hits.keys().any(|key| key.starts_with(what.as_str()));
        expected.iter().filter(|what| !hit(what)).cloned().collect()
    }
}

/// A failed run for people; the last line reproduces it.
pub fn describe(seed: u64, report: &RunReport, strength: Option<Strength>) -> String {
    let mut text = String::new();
    let Some(failure) = &report.failure else {
        return text;
    };
    let _ = writeln!(
        text,
        "seed {seed}: {} at step {}",
        failure.violation, failure.step
    );
    let _ = writeln!(text, "swarm: {}", report.swarm);
    for line in &failure.history {
        let _ = writeln!(text, "  {line}");
    }
    let hits: Vec<String> = report
        .hits
        .iter()
        .map(|(what, count)| format!("{what}={count}"))
        .collect();
    let _ = writeln!(text, "hits: {}", hits.join(" "));
    let _ = writeln!(text, "digest: {:016x}", report.digest);
    let strength = match strength {
        Some(Strength::Honest) => " --strength honest",
        Some(Strength::Adversarial) => " --strength adversarial",
        None => "",
    };
    let _ = write!(text, "sealstone-sim run --seed {seed}{strength} --trace");
    text
}
