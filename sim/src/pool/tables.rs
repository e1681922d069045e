//! The report as text: demand, misses, counterfactuals, sharing.

use std::fmt::Write as _;

use super::published::{self, SLICE_MIB};
use super::replay::{Caller, Outcome};
use super::report::Report;
use super::rules::Reason;
use super::tables_more as more;
use super::verdict::gate;
use super::workload::Database;

const MIB: f64 = (1 << 20) as f64;
pub(super) const GIB: f64 = (1 << 30) as f64;

/// All tables.
pub fn text(report: &Report) -> String {
    let mut out = String::new();
    let trace = &report.trace;
    let _ = writeln!(
        out,
        "{}: {} transactions, {} blocks, {} events\n",
        trace.workload, trace.transactions, trace.blocks, report.demand.events
    );
    demand(report, &mut out);
    base(report, &mut out);
    misses(report, &mut out);
    counterfactuals(report, &mut out);
    attribution(report, &mut out);
    sharing(report, &mut out);
    more::pressure(report, &mut out);
    more::retention(report, &mut out);
    more::sensitivity(report, &mut out);
    more::binding(report, &mut out);
    more::verdict(report, &mut out);
    out
}

fn demand(report: &Report, out: &mut String) {
    let _ = writeln!(
        out,
        "DEMAND before any policy\n{:<12} {:<7} {:>6} {:>7} {:>22} {:>13} {:>8} {:>11}",
        "database",
        "caller",
        "class",
        "gets",
        "used p50/p90/max",
        "granted/used",
        "maxheld",
        "hold steps"
    );
    for row in &report.demand.rows {
        let used = format!("{}/{}/{}", row.used_p50, row.used_p90, row.used_max);
        let _ = writeln!(
            out,
            "{:<12} {:<7} {:>6} {:>7} {:>22} {:>13.1} {:>8} {:>11}",
            row.database.name(),
            row.caller.name(),
            row.class,
            row.gets,
            used,
            row.granted_per_used,
            row.held_max,
            row.hold_steps_max
        );
    }
    let _ = writeln!(
        out,
        "held at once by all: {} slices; needed: {:.1} kB a transaction\n",
        report.demand.held_max,
        report.per_transaction(report.demand.used_entries * 88) / 1000.0
    );
}

/// Fresh slices of the two sizes that the node's profile shows.
pub fn slices(outcome: &Outcome) -> [u64; 2] {
    [outcome.counters.fresh[9], outcome.counters.fresh[10]]
}

/// Shares of fresh bytes of the two callers, in per cent.
pub fn split(outcome: &Outcome) -> [f64; 2] {
    let by = outcome.fresh_by_caller;
    let sum = (by[0] + by[1]).max(1) as f64;
    [Caller::Build, Caller::Merge].map(|caller| 100.0 * by[caller as usize] as f64 / sum)
}

fn base(report: &Report, out: &mut String) {
    let Some(workload) = report.workload else {
        return;
    };
    let _ = writeln!(
        out,
        "BASE against the node's profile\n{:<34} {:>9} {:>10} {:>9} {:>15}",
        "", "8192", "16384", "GiB", "build/merge %"
    );
    let measured = published::of(workload);
    let [build, merge] = measured.slices();
    let _ = writeln!(
        out,
        "{:<34} {build:>9.0} {merge:>10.0} {:>9.2} {:>7.2}/{:>6.2}   (measured on the node)",
        "profile",
        (build * SLICE_MIB[0] + merge * SLICE_MIB[1]) / 1024.0,
        measured.split()[0],
        measured.split()[1]
    );
    let outcomes = [
        ("overlapped checkpoints (base)", Some(&report.base)),
        ("serial checkpoints", report.serial.as_ref()),
    ];
    for (name, outcome) in outcomes {
        let Some(outcome) = outcome else { continue };
        let [build, merge] = slices(outcome);
        let shares = split(outcome);
        let _ = writeln!(
            out,
            "{name:<34} {build:>9} {merge:>10} {:>9.2} {:>7.2}/{:>6.2}   (replayed)",
            outcome.counters.fresh_bytes as f64 / GIB,
            shares[0],
            shares[1]
        );
    }
    let _ = writeln!(out);
}

fn misses(report: &Report, out: &mut String) {
    let _ = write!(
        out,
        "MISSES, each with one reason, in per cent; a drop counts only if a later get would have hit\n\
         {:<16} {:>7}",
        "policy", "misses"
    );
    for reason in Reason::ALL {
        let _ = write!(out, " {:>8}", short(reason));
    }
    let _ = writeln!(out, " {:>7} {:>10}", "drops", "regretted");
    for line in &report.lines {
        let counters = &line.outcome.counters;
        let total = counters.fresh_total();
        let _ = write!(out, "{:<16} {total:>7}", line.policy.name);
        for reason in Reason::ALL {
            let count = counters.misses[reason as usize];
            let share = 100.0 * count as f64 / total.max(1) as f64;
            let _ = write!(out, " {share:>8.1}");
        }
        let drops: u64 = counters.drops.iter().sum();
        let _ = writeln!(out, " {drops:>7} {:>10}", counters.regretted_total());
    }
    let base = &report.base.counters;
    let counted = |counts: &[u64], what: &str| {
        let named: Vec<String> = Reason::ALL
            .iter()
            .filter(|reason| counts[**reason as usize] > 0)
            .map(|reason| format!("{} {}", reason.name(), counts[*reason as usize]))
            .collect();
        format!("base, {what}: {}", named.join(", "))
    };
    let _ = writeln!(
        out,
        "{}\n{}\n",
        counted(&base.misses, "misses"),
        counted(&base.drops, "drops")
    );
}

const fn short(reason: Reason) -> &'static str {
    match reason {
        Reason::TrimCheckpoint => "trim.ckp",
        Reason::TrimFlush => "trim.fl",
        Reason::TrimPressure => "trim.prs",
        other => other.name(),
    }
}

fn counterfactuals(report: &Report, out: &mut String) {
    let _ = writeln!(
        out,
        "COUNTERFACTUALS, bytes a transaction\n{:<16} {:>9} {:>8} {:>9} {:>9} {:>8} {:>8} {:>8} \
         {:>8}  note",
        "policy", "fresh", "delta", "peak MiB", "cleared", "copy 1", "copy 2", "copy 3", "gr/used"
    );
    let base = report.base.counters.fresh_bytes;
    for line in &report.lines {
        let outcome = &line.outcome;
        let fresh = outcome.counters.fresh_bytes;
        let delta = change(base, fresh);
        let copied = outcome
            .copied_bytes
            .map(|(_, bytes)| report.per_transaction(bytes));
        let note = if line.policy.name == super::policy::BASE.name {
            ""
        } else if delta.abs() < 0.05 {
            "NO EFFECT: not the binding limit"
        } else {
            ""
        };
        let _ = writeln!(
            out,
            "{:<16} {:>9.0} {:>7.1}% {:>9.1} {:>9.0} {:>8.0} {:>8.0} {:>8.0} {:>8.2}  {}{note}",
            line.policy.name,
            report.per_transaction(fresh),
            delta,
            outcome.counters.retained_bytes_max as f64 / MIB,
            report.per_transaction(outcome.counters.cleared_bytes),
            copied[0],
            copied[1],
            copied[2],
            outcome.granted_per_used(),
            if note.is_empty() {
                line.policy.what
            } else {
                ""
            }
        );
    }
    let _ = writeln!(
        out,
        "copies: into build slices, into the merge slice, into the backend's list (sealstone: payload \
         into chunks, into the output buffer)\n"
    );
}

/// From one to the other, in per cent.
pub(super) fn change(from: u64, to: u64) -> f64 {
    100.0 * (to as f64 - from as f64) / from.max(1) as f64
}

fn attribution(report: &Report, out: &mut String) {
    let _ = writeln!(
        out,
        "RE-ATTRIBUTION, bytes a transaction by site and in all\n{:<16} {:>9} {:>9} {:>9} {:>9} \
         {:>9} {:>9}  gate",
        "policy", "build", "merge", "site", "site %", "total", "total %"
    );
    let total = report.workload.map(|workload| {
        let measured = published::of(workload);
        measured.total_gib * GIB / measured.transactions as f64
    });
    let base_site = report.per_transaction(report.base.counters.fresh_bytes);
    // Without a profile the sites are all there is.
    let base_total = total.unwrap_or(base_site);
    for line in &report.lines {
        let by = line
            .outcome
            .fresh_by_caller
            .map(|bytes| report.per_transaction(bytes));
        let site = report.per_transaction(line.outcome.counters.fresh_bytes);
        let total = base_total - base_site + site;
        let percent = |from: f64, to: f64| 100.0 * (to - from) / from.max(1.0);
        let (site_by, total_by) = (percent(base_site, site), percent(base_total, total));
        let _ = writeln!(
            out,
            "{:<16} {:>9.0} {:>9.0} {site:>9.0} {site_by:>8.1}% {total:>9.0} {total_by:>8.2}%  {}",
            line.policy.name,
            by[0],
            by[1],
            if line.policy.name == super::policy::BASE.name {
                ""
            } else {
                gate(site_by, total_by).name()
            }
        );
    }
    if let Some(workload) = report.workload {
        let measured = published::of(workload);
        let _ = writeln!(
            out,
            "{:<16} {:>9} {:>9} {:>9} {:>8.1}% {:>9} {:>8.2}%  {}",
            "measured cap512",
            "-",
            "-",
            "-",
            measured.candidate_site,
            "-",
            measured.candidate_total,
            gate(measured.candidate_site, measured.candidate_total).name()
        );
    }
    let _ = writeln!(
        out,
        "total: the profile's, with this site changed and no other; what else moves only a run of the \
         node shows\n"
    );
}

fn sharing(report: &Report, out: &mut String) {
    let counters = &report.base.counters;
    let tables = [
        (
            "EVICTIONS of the base: whose slice (row), by whose trim",
            &counters.evicted,
        ),
        (
            "REGRETTED: who missed it (row), by whose trim",
            &counters.regretted,
        ),
    ];
    for (title, matrix) in tables {
        let involved: Vec<Database> = Database::ALL
            .into_iter()
            .filter(|one| {
                let number = *one as usize;
                matrix[number].iter().any(|n| *n > 0) || matrix.iter().any(|row| row[number] > 0)
            })
            .collect();
        let _ = write!(out, "{title}\n{:<12}", "");
        for culprit in &involved {
            let _ = write!(out, " {:>12}", culprit.name());
        }
        let _ = writeln!(out);
        for victim in &involved {
            let _ = write!(out, "{:<12}", victim.name());
            for culprit in &involved {
                let _ = write!(out, " {:>12}", matrix[*victim as usize][*culprit as usize]);
            }
            let _ = writeln!(out);
        }
        let _ = writeln!(out);
    }
}
