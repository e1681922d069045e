//! The report as text: pressure, retention, schedules, limits, verdicts.

use std::fmt::Write as _;

use super::policy;
use super::published;
use super::replay::Outcome;
use super::report::{Report, SCHEDULES};
use super::rules::Reason;
use super::tables::{GIB, change};
use super::verdict::{Cause, benchmark, hidden_by, rate_verdict, runs_needed};
use super::workload::Database;

const MIB: f64 = (1 << 20) as f64;
/// Level changes that are printed one by one.
const CHANGES_SHOWN: usize = 8;

/// Time at each level, for each foreign heap, and what it costs.
pub(super) fn pressure(report: &Report, out: &mut String) {
    let _ = writeln!(
        out,
        "PRESSURE of the pool as built, under a constant foreign heap that doubles from collection to \
         collection\n{:>11} {:>5} {:>9} {:>9} {:>9} {:>8} {:>9} {:>9} {:>9} {:>9}",
        "foreign GiB",
        "cap",
        "normal s",
        "high s",
        "critical",
        "changes",
        "B/tx",
        "trim.prs",
        "budget",
        "gc"
    );
    for step in &report.sweep {
        for (cap, outcome) in [128, 512].iter().zip(&step.outcomes) {
            let seconds = outcome.level_ms().map(|ms| ms as f64 / 1000.0);
            let drops = |reason: Reason| outcome.counters.drops[reason as usize];
            let _ = writeln!(
                out,
                "{:>11.2} {cap:>5} {:>9.1} {:>9.1} {:>9.1} {:>8} {:>9.0} {:>9} {:>9} {:>9}",
                step.foreign_bytes as f64 / GIB,
                seconds[0],
                seconds[1],
                seconds[2],
                outcome.levels.len(),
                report.per_transaction(outcome.counters.fresh_bytes),
                drops(Reason::TrimPressure),
                drops(Reason::Budget),
                drops(Reason::GcPurge)
            );
        }
    }
    let _ = writeln!(
        out,
        "the last three: slices dropped by pressure trims, by the budget, by collections"
    );
    let changed = report
        .sweep
        .iter()
        .max_by_key(|step| step.outcomes[0].levels.len());
    if let Some(step) = changed.filter(|step| !step.outcomes[0].levels.is_empty()) {
        let changes: Vec<String> = step.outcomes[0]
            .levels
            .iter()
            .take(CHANGES_SHOWN)
            .map(|(at_ms, level)| format!("{:.2} s {}", *at_ms as f64 / 1000.0, level.name()))
            .collect();
        let _ = writeln!(
            out,
            "timeline at {:.2} GiB, cap 128, with the most changes: 0.00 s normal, {}",
            step.foreign_bytes as f64 / GIB,
            changes.join(", ")
        );
    }
    let _ = writeln!(out);
}

/// Who kept and held how much.
pub(super) fn retention(report: &Report, out: &mut String) {
    let _ = writeln!(
        out,
        "RETENTION, most MiB at once by owner: held by its flush / kept in the pool, and the \
         longest hold in steps"
    );
    for line in &report.lines {
        let outcome = &line.outcome;
        let mut owners = Vec::new();
        for database in Database::ALL {
            let number = database as usize;
            let held = outcome.held_bytes_max[number] as f64 / MIB;
            let kept = outcome.counters.owner_bytes_max[number] as f64 / MIB;
            if held + kept > 0.0 {
                let name = if line.policy.kind == policy::Kind::Sealstone {
                    "flush scratch"
                } else {
                    database.name()
                };
                let steps = outcome.hold_steps_max[number];
                owners.push(format!("{name} {held:.1}/{kept:.1} {steps}"));
            }
        }
        let _ = writeln!(
            out,
            "{:<16} most in all {:>6.1}, kept {:>6.1}: {}",
            line.policy.name,
            outcome.memory_bytes_max as f64 / MIB,
            outcome.counters.retained_bytes_max as f64 / MIB,
            owners.join(", ")
        );
    }
    let _ = writeln!(
        out,
        "No reader pins a slice: what is held is pinned by a flush, what is kept by the pool alone.\n"
    );
}

/// Fresh bytes over seeded schedules.
pub(super) fn sensitivity(report: &Report, out: &mut String) {
    let _ = writeln!(
        out,
        "SENSITIVITY to schedules, bytes a transaction over the undisturbed one and {SCHEDULES} seeds\n\
         {:<16} {:>9} {:>9} {:>9} {:>9}",
        "policy", "min", "mean", "max", "max/min"
    );
    for line in &report.lines {
        let bytes: Vec<f64> = line
            .fresh_bytes
            .iter()
            .map(|bytes| report.per_transaction(*bytes))
            .collect();
        let mean = bytes.iter().sum::<f64>() / bytes.len().max(1) as f64;
        let _ = writeln!(
            out,
            "{:<16} {:>9.0} {mean:>9.0} {:>9.0} {:>9.3}",
            line.policy.name,
            bytes.iter().copied().fold(f64::INFINITY, f64::min),
            bytes.iter().copied().fold(0.0, f64::max),
            line.sensitivity()
        );
    }
    let _ = writeln!(out);
}

/// The limit that bound, in the benchmark and in the trace.
pub(super) fn binding(report: &Report, out: &mut String) {
    let bound = |outcome: &Outcome| {
        let (limit, misses) = outcome.binding();
        format!(
            "{limit} ({misses} of {} misses)",
            outcome.counters.fresh_total()
        )
    };
    let _ = writeln!(
        out,
        "BINDING LIMITS\nmicro-benchmark: {}; with cap 512: {}\ntrace:           {}",
        bound(&report.bench[0]),
        bound(&report.bench[1]),
        bound(&report.base)
    );
    let lifted = change(
        report.base.counters.fresh_bytes,
        report.uncapped.counters.fresh_bytes,
    );
    let (bench, trace) = (report.bench[0].binding().0, report.base.binding().0);
    let _ = writeln!(
        out,
        "Binding: {bench} (benchmark) / {trace} (trace): {}; without a cap the trace changes by \
         {lifted:+.2}%\n",
        if bench == trace {
            "the benchmark stands for the trace"
        } else {
            "benchmark not representative"
        }
    );
}

/// Causes, effects against bands.
pub(super) fn verdict(report: &Report, out: &mut String) {
    let _ = writeln!(
        out,
        "VERDICT by class: the share of its bytes that goes with each cause"
    );
    for verdict in &report.verdicts {
        let shares: Vec<String> = Cause::ALL
            .iter()
            .map(|cause| {
                let name = match cause {
                    Cause::BenchmarkShape => "the benchmark's limit lifted",
                    other => other.name(),
                };
                format!("{name} {:.1}%", 100.0 * verdict.shares[*cause as usize])
            })
            .collect();
        let _ = writeln!(
            out,
            "class {:>6} ({:.2} GiB): {}. {}\n  evidence: {}",
            verdict.class,
            verdict.fresh_bytes as f64 / GIB,
            verdict.cause.name().to_uppercase(),
            verdict.cause.action(report.base.binding().0),
            shares.join(", ")
        );
    }
    let (bench, trace) = (report.bench[0].binding().0, report.base.binding().0);
    if let Some(cause) = benchmark(&report.bench[0], &report.base) {
        let _ = writeln!(
            out,
            "class   8192 in the micro-benchmark: {}. {}\n  evidence: {bench} binds there, {trace} here",
            cause.name().to_uppercase(),
            cause.action(trace)
        );
    }
    let _ = writeln!(
        out,
        "Counts and bytes above are exact: every difference is an effect."
    );
    let Some(workload) = report.workload else {
        return;
    };
    let measured = published::of(workload);
    let total = measured.candidate_total;
    let _ = writeln!(
        out,
        "The measured total, one run an arm: {total:+.2}%, of unknown spread: inconclusive; equal runs \
         that differ by {:.1}% would hide it.",
        hidden_by(total)
    );
    let _ = writeln!(
        out,
        "The measured rate, one run an arm: {}.\nA gate of 2% needs {} runs an arm at this spread \
         ({} to find it four times in five); at the other engine's {:.2}%: {}.",
        rate_verdict(measured.candidate_rate, measured.rate_cv, 1),
        runs_needed(measured.rate_cv, 2.0, false).max(2),
        runs_needed(measured.rate_cv, 2.0, true).max(2),
        measured.other_rate_cv,
        runs_needed(measured.other_rate_cv, 2.0, false)
    );
}
