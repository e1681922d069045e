//! One report: demand, policies, schedules, a sweep, all of one trace.

use super::bench;
use super::demand::{self, Demand};
use super::policy::{self, BASE, POLICIES, Policy};
use super::published;
use super::record::{self, Overlap};
use super::replay::{Outcome, replay};
use super::schedule::{disturb, with_collections};
use super::trace::Trace;
use super::verdict::{ClassVerdict, Evidence, classes};
use super::workload::{Parameters, Workload};

/// Seeded schedules that each policy is replayed under.
pub const SCHEDULES: u64 = 8;
/// Rounds of the micro-benchmark.
const ROUNDS: u32 = 16;
const GIB: u64 = 1 << 30;
/// Heaps of everybody else that the sweep goes through, in MiB: the cliffs are at 4 and 8 GiB.
const FOREIGN_MIB: [u64; 12] = [
    0, 1024, 2048, 3072, 4032, 4064, 4096, 5120, 6144, 7168, 8128, 8192,
];

/// A policy's figures.
#[derive(Clone, Debug)]
pub struct Line {
    /// Which.
    pub policy: Policy,
    /// Undisturbed.
    pub outcome: Outcome,
    /// Fresh bytes under the undisturbed and all seeded schedules.
    pub fresh_bytes: Vec<u64>,
}

impl Line {
    /// The most fresh bytes over the fewest; 1 = no schedule changes anything.
    pub fn sensitivity(&self) -> f64 {
        let most = self.fresh_bytes.iter().max().copied().unwrap_or(0);
        let fewest = self.fresh_bytes.iter().min().copied().unwrap_or(0);
        most.max(1) as f64 / fewest.max(1) as f64
    }
}

/// One step of the sweep over foreign heap.
#[derive(Clone, Debug)]
pub struct Sweep {
    /// Heap of everybody else.
    pub foreign_bytes: u64,
    /// As built, with the base's cap and with the candidate's.
    pub outcomes: [Outcome; 2],
}

/// Everything that is printed.
#[derive(Clone, Debug)]
pub struct Report {
    /// The workload, if it is one of the two.
    pub workload: Option<Workload>,
    /// Its trace.
    pub trace: Trace,
    /// Demand before any policy.
    pub demand: Demand,
    /// The policies asked for, the base first.
    pub lines: Vec<Line>,
    /// The base, if the frequent checkpoints never overlapped.
    pub serial: Option<Outcome>,
    /// The base.
    pub base: Outcome,
    /// The base without the limit that binds in the micro-benchmark.
    pub uncapped: Outcome,
    /// Causes by class.
    pub verdicts: Vec<ClassVerdict>,
    /// The sweep over foreign heap.
    pub sweep: Vec<Sweep>,
    /// The micro-benchmark, with the base's cap and with the candidate's.
    pub bench: [Outcome; 2],
}

/// The generated trace of a workload, and the one with serial checkpoints.
pub fn generate(workload: Workload) -> [Trace; 2] {
    let parameters = Parameters::measured(workload);
    let flushes = record::flushes(&parameters);
    [Overlap::Overlapped, Overlap::Serial]
        .map(|overlap| record::trace(&parameters, &flushes, |_| overlap))
}

/// A policy that the report itself needs.
fn known(name: &str) -> Result<&'static Policy, String> {
    policy::named(name).ok_or_else(|| format!("no policy {name}"))
}

fn outcome_of(trace: &Trace, name: &str) -> Result<Outcome, String> {
    Ok(replay(trace, known(name)?, 0))
}

impl Report {
    /// Works everything out. `asked` is a policy's name or `all`.
    ///
    /// # Errors
    /// No policy of that name.
    pub fn new(trace: Trace, serial: Option<&Trace>, asked: &str) -> Result<Self, String> {
        let policies: Vec<&Policy> = POLICIES
            .iter()
            .filter(|one| asked == "all" || one.name == asked || one.name == BASE.name)
            .collect();
        if asked != "all" && policy::named(asked).is_none() {
            let names: Vec<&str> = POLICIES.iter().map(|one| one.name).collect();
            return Err(format!(
                "no policy {asked}; there are: {}",
                names.join(", ")
            ));
        }
        let schedules: Vec<Trace> = (1..=SCHEDULES).map(|seed| disturb(&trace, seed)).collect();
        let lines = policies
            .into_iter()
            .map(|policy| {
                let outcome = replay(&trace, policy, 0);
                let mut fresh_bytes = vec![outcome.counters.fresh_bytes];
                fresh_bytes.extend(
                    schedules
                        .iter()
                        .map(|trace| replay(trace, policy, 0).counters.fresh_bytes),
                );
                Line {
                    policy: *policy,
                    outcome,
                    fresh_bytes,
                }
            })
            .collect();
        let of = |name| outcome_of(&trace, name);
        let (base, uncapped) = (replay(&trace, &BASE, 0), of("uncapped")?);
        let verdicts = classes(&Evidence {
            base: &base,
            oracle: &of("oracle")?,
            exact: &of("exact")?,
            streaming: &of("streaming")?,
            bench_limit_lifted: &uncapped,
        });
        Ok(Self {
            workload: Workload::named(&trace.workload),
            demand: demand::of(&trace),
            lines,
            serial: serial.map(|trace| replay(trace, &BASE, 0)),
            verdicts,
            base,
            uncapped,
            sweep: sweep(&trace)?,
            bench: [BASE.rules.cap, 512]
                .map(|cap| replay(&bench::trace(ROUNDS), &bench::policy(cap), 0)),
            trace,
        })
    }

    /// Bytes for each transaction.
    pub fn per_transaction(&self, bytes: u64) -> f64 {
        bytes as f64 / self.trace.transactions.max(1) as f64
    }

    /// The rows of the figures, as JSON objects.
    pub fn rows(&self) -> Vec<String> {
        self.lines.iter().map(|line| self.row(line)).collect()
    }

    fn row(&self, line: &Line) -> String {
        let outcome = &line.outcome;
        let counters = &outcome.counters;
        let reasons: Vec<String> = super::rules::Reason::ALL
            .iter()
            .map(|reason| {
                format!(
                    "\"{}\":{}",
                    reason.name(),
                    counters.misses[*reason as usize]
                )
            })
            .collect();
        let copied: u64 = outcome.copied_bytes.iter().map(|(_, bytes)| bytes).sum();
        format!(
            "{{\"workload\":\"{}\",\"policy\":\"{}\",\"fresh_bytes_per_tx\":{:.1},\
             \"granted_per_used\":{:.4},\"peak_retained_bytes\":{},\"max_held\":{},\
             \"regretted_drops\":{},\"sensitivity\":{:.4},\"fresh_bytes\":{},\"fresh_slices\":{},\
             \"gets\":{},\"drops\":{},\"cleared_bytes_per_tx\":{:.1},\"copied_bytes_per_tx\":{:.1},\
             \"binding\":\"{}\",\"misses\":{{{}}}}}",
            self.trace.workload,
            line.policy.name,
            self.per_transaction(counters.fresh_bytes),
            outcome.granted_per_used(),
            counters.retained_bytes_max,
            outcome.held_max,
            counters.regretted_total(),
            line.sensitivity(),
            counters.fresh_bytes,
            counters.fresh_total(),
            counters.gets,
            counters.drops.iter().sum::<u64>(),
            self.per_transaction(counters.cleared_bytes),
            self.per_transaction(copied),
            outcome.binding().0,
            reasons.join(",")
        )
    }
}

/// The heap that a process has without the pools, as far as collections go.
const HEAP_BYTES_MIN: u64 = GIB / 4;

fn sweep(trace: &Trace) -> Result<Vec<Sweep>, String> {
    let policies = [known("as-built")?, known("as-built-cap512")?];
    let workload = Workload::named(&trace.workload);
    let steps = FOREIGN_MIB.into_iter().map(|mib| {
        let foreign_bytes = mib * (GIB >> 10);
        // Only of a workload that was profiled is it known how fast it allocates.
        let collected = workload.map(|workload| {
            let heap_bytes = foreign_bytes.max(HEAP_BYTES_MIN);
            with_collections(trace, published::of(workload).collection_ms(heap_bytes))
        });
        let trace = collected.as_ref().unwrap_or(trace);
        Sweep {
            foreign_bytes,
            outcomes: policies.map(|policy| replay(trace, policy, foreign_bytes)),
        }
    });
    Ok(steps.collect())
}
