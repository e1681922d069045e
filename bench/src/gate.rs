//! `sealstone-bench gate`: whether a candidate may replace a base, judged from the figures that both left.
//!
//! Counts are judged exactly: the same code on the same input allocates the same bytes. Times are judged
//! against the spread of their own runs, which takes at least two a side; with one a side the answer is
//! always "inconclusive". There is one verdict. A site that allocates less while the total rises was only
//! moved, and is rejected.

mod table;
mod times;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::Serialize;
use serde_json::{Map, Value};

pub use table::print;

/// How much less the site under change has to allocate.
const SITE_FALL: f64 = 0.10;

/// How much worse a time may be.
const TIME_LOSS: f64 = 0.02;

/// What is compared.
#[derive(Clone, Debug)]
pub struct GateOptions {
    /// Figures of the base, one file a run.
    pub base: Vec<PathBuf>,
    /// Figures of the candidate.
    pub candidate: Vec<PathBuf>,
    /// The site that the change is about.
    pub site: Option<String>,
    /// The workload, where the figures have several.
    pub workload: Option<String>,
}

/// One gate.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GateRow {
    /// What is judged.
    pub gate: String,
    /// The base: the median of its runs.
    pub current: f64,
    /// What the candidate must not exceed, or not fall below.
    pub target: f64,
    /// The candidate: the median of its runs.
    pub measured: f64,
    /// Null where the runs do not tell.
    pub pass: Option<bool>,
    /// Runs a side that would tell.
    pub runs_needed: Option<u64>,
    /// What else is to be said.
    pub note: String,
}

/// What comes of all gates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Every gate passes.
    Accept,
    /// One fails.
    Reject,
    /// None fails, and one does not tell.
    Inconclusive,
}

impl Verdict {
    /// The word in figures.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Accept => "accept",
            Self::Reject => "reject",
            Self::Inconclusive => "inconclusive",
        }
    }

    /// Of these gates.
    pub fn of(rows: &[GateRow]) -> Self {
        if rows.iter().any(|row| row.pass == Some(false)) {
            Self::Reject
        } else if rows.iter().any(|row| row.pass.is_none()) {
            Self::Inconclusive
        } else {
            Self::Accept
        }
    }
}

/// The row of one run.
#[derive(Clone, Debug)]
struct Run {
    file: PathBuf,
    row: Map<String, Value>,
}

impl Run {
    fn number(&self, key: &str) -> Result<f64> {
        let number = self.row.get(key).and_then(Value::as_f64);
        number.with_context(|| format!("{}: no number {key}", self.file.display()))
    }

    fn sites(&self) -> Result<BTreeMap<String, f64>> {
        let sites = self.row.get("alloc_by_site").and_then(Value::as_object);
        let sites = sites.with_context(|| format!("{}: no alloc_by_site", self.file.display()))?;
        let numbers = sites.iter().map(|(name, bytes)| {
            let bytes = bytes.as_f64();
            let bytes = bytes.with_context(|| format!("site {name} is no number"))?;
            Ok((name.clone(), bytes))
        });
        numbers.collect()
    }
}

/// Reads all figures and judges.
pub fn run(options: &GateOptions) -> Result<Vec<GateRow>> {
    let read = |files: &[PathBuf]| -> Result<Vec<Run>> {
        let runs = files
            .iter()
            .map(|file| read_run(file, options.workload.as_deref()));
        runs.collect()
    };
    let (base, candidate) = (read(&options.base)?, read(&options.candidate)?);
    if base.is_empty() || candidate.is_empty() {
        bail!("a base and a candidate are needed");
    }
    judge(&base, &candidate, options.site.as_deref())
}

fn read_run(file: &Path, workload: Option<&str>) -> Result<Run> {
    let text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
    let figures: Value = serde_json::from_str(&text).with_context(|| file.display().to_string())?;
    let rows = figures.get("rows").and_then(Value::as_array);
    let rows = rows.with_context(|| format!("{}: no rows", file.display()))?;
    let is_wanted = |row: &&Map<String, Value>| {
        let own = row.get("workload").and_then(Value::as_str);
        workload.is_none() || own == workload
    };
    let wanted: Vec<_> = rows
        .iter()
        .filter_map(Value::as_object)
        .filter(is_wanted)
        .collect();
    match wanted[..] {
        [row] => Ok(Run {
            file: file.to_owned(),
            row: row.clone(),
        }),
        [] => bail!("{}: no row of the workload", file.display()),
        _ => bail!("{}: {} rows; name a workload", file.display(), wanted.len()),
    }
}

fn judge(base: &[Run], candidate: &[Run], site: Option<&str>) -> Result<Vec<GateRow>> {
    let workload = |run: &Run| run.row.get("workload").cloned();
    let first = workload(&base[0]);
    if base
        .iter()
        .chain(candidate)
        .any(|run| workload(run) != first)
    {
        bail!("runs of different workloads can't be compared");
    }
    let mut rows = Vec::new();
    if let Some(site) = site {
        rows.extend(site_gates(base, candidate, site)?);
    }
    rows.push(count("total", base, candidate, "alloc_bytes_per_tx", 1.0)?);
    let rate = "transactions_per_second";
    rows.push(time("throughput", base, candidate, rate, true)?);
    rows.push(time("commit p50", base, candidate, "commit_p50_us", false)?);
    rows.push(time("commit p99", base, candidate, "commit_p99_us", false)?);
    rows.push(count("retention", base, candidate, "retained_bytes", 1.0)?);
    rows.push(ownership(candidate)?);
    note_moved(&mut rows, site);
    Ok(rows)
}

/// The site itself, and the largest of the others: it must not grow instead.
fn site_gates(base: &[Run], candidate: &[Run], site: &str) -> Result<Vec<GateRow>> {
    let of = |runs: &[Run], name: &str| -> Result<Vec<f64>> {
        let sites = runs
            .iter()
            .map(|run| Ok(run.sites()?.get(name).copied().unwrap_or(0.0)));
        sites.collect()
    };
    let before = of(base, site)?;
    if before.iter().all(|bytes| *bytes == 0.0) {
        bail!("no site {site} in the base");
    }
    let mut rows = vec![exact(
        &format!("site {site}"),
        &before,
        &of(candidate, site)?,
        1.0 - SITE_FALL,
    )];
    let sites = candidate[0].sites()?;
    let others = sites.into_iter().filter(|(name, _)| name != site);
    let next = others.max_by(|(_, a), (_, b)| a.total_cmp(b));
    if let Some((next, _)) = next {
        let name = format!("next largest site {next}");
        rows.push(exact(&name, &of(base, &next)?, &of(candidate, &next)?, 1.0));
    }
    Ok(rows)
}

fn count(name: &str, base: &[Run], candidate: &[Run], key: &str, factor: f64) -> Result<GateRow> {
    Ok(exact(
        name,
        &numbers(base, key)?,
        &numbers(candidate, key)?,
        factor,
    ))
}

fn time(name: &str, base: &[Run], candidate: &[Run], key: &str, more: bool) -> Result<GateRow> {
    let (base, candidate) = (numbers(base, key)?, numbers(candidate, key)?);
    Ok(times::judge(name, &base, &candidate, more, TIME_LOSS))
}

fn numbers(runs: &[Run], key: &str) -> Result<Vec<f64>> {
    runs.iter().map(|run| run.number(key)).collect()
}

/// A count that must not exceed `factor` of the base's. Where a side's own runs differ, only what holds for
/// each pair of runs is an answer.
fn exact(name: &str, base: &[f64], candidate: &[f64], factor: f64) -> GateRow {
    let least = |side: &[f64]| side.iter().copied().fold(f64::INFINITY, f64::min);
    let most = |side: &[f64]| side.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let pass = if most(candidate) <= least(base) * factor {
        Some(true)
    } else if least(candidate) > most(base) * factor {
        Some(false)
    } else {
        None
    };
    let note = match pass {
        None => "the runs of a side differ: a count should not".to_owned(),
        Some(_) => String::new(),
    };
    GateRow {
        gate: name.to_owned(),
        current: times::median(base),
        target: times::median(base) * factor,
        measured: times::median(candidate),
        pass,
        runs_needed: None,
        note,
    }
}

/// Bytes that were used after they had been given back: none, ever.
fn ownership(candidate: &[Run]) -> Result<GateRow> {
    let mut row = GateRow {
        gate: "ownership checks".to_owned(),
        current: 0.0,
        target: 0.0,
        measured: 0.0,
        pass: None,
        runs_needed: None,
        note: "not in the figures".to_owned(),
    };
    let key = "ownership_violations";
    if candidate.iter().all(|run| run.row.contains_key(key)) {
        row.measured = numbers(candidate, key)?.into_iter().fold(0.0, f64::max);
        row.pass = Some(row.measured == 0.0);
        row.note = String::new();
    }
    Ok(row)
}

/// Says what a falling site under a rising total is.
fn note_moved(rows: &mut [GateRow], site: Option<&str>) {
    let Some(site) = site else { return };
    let name = format!("site {site}");
    let fell = rows
        .iter()
        .any(|row| row.gate == name && row.measured < row.current);
    if let Some(total) = rows.iter_mut().find(|row| row.gate == "total")
        && fell
        && total.pass == Some(false)
    {
        total.note = format!("{name} fell, the total rose: the bytes were moved, not saved");
    }
}

#[cfg(test)]
mod tests;
