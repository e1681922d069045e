//! `sealstone-bench readpath`: what a lookup costs as a store grows, against the limits of the machine
//! and against the layout of the field report (`crate::go`).
//!
//! A store of S sealed segments and half a generation in memory is built (or found), opened, and read by
//! three workloads: keys of the newest 40 segments, keys of all, keys that are nowhere. Reads are counted
//! at the environment and by the system; times stand beside P, D and F of the same rounds.

mod busy;
mod case;
mod clock;
mod fixture;
mod judge;
mod limits;
mod measure;
mod plot;
mod row;
mod sealed;
mod system;
#[cfg(test)]
mod tests;
mod threads;
mod writing;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};

use self::case::{Case, Layout, Mode, Opening, Policy, Shape, variants};
use self::fixture::Fixture;
use self::measure::Effort;
use self::row::Row;
use crate::figures::Figures;

/// Lookups of a round where none are asked for; the report's layout takes up to milliseconds for one.
const LOOKUPS: usize = 20_000;
const LOOKUPS_GO: usize = 600;
const LOOKUPS_COLD: usize = 40;

/// Whether indexes are merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Folding {
    /// As by default.
    On,
    /// Never: a run for each segment.
    Off,
}

/// What is measured.
#[derive(Debug, Args)]
#[command(
    args_override_self = true,
    after_help = "\
Examples:
  sealstone-bench readpath --segments 10,100,1000 --json readpath.json
  sealstone-bench readpath --segments 10000 --value-bytes 16 --budget 67108864
  sealstone-bench readpath --segments 100,1000 --layout sealstone,go --plot readpath.svg
  sealstone-bench readpath --segments 1000 --cold --dir target/readpath
  sealstone-bench readpath --segments 1000 --cold --policy none --cold-reads-ahead
  sealstone-bench readpath --segments 100 --while-writing 200
  sealstone-bench readpath --segments 1000 --layout go --variants --dir target/readpath
  sealstone-bench readpath --with a.json --with b.json --plot both.svg

Stores take about 290 bytes a record on disk with values of 200 bytes, 105 with 16: 13 GB for 10,000 segments.
Without --dir they are built in the system's temporary directory, one after the other, and removed."
)]
pub struct Readpath {
    /// Segments of a store, one measurement each.
    #[arg(long, value_delimiter = ',')]
    segments: Vec<u64>,
    /// Whose layout: the engine's, or that of the field report.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "sealstone")]
    layout: Vec<Layout>,
    /// Which filters are in memory; the layout's own choice if not given.
    #[arg(long, value_enum)]
    policy: Option<Policy>,
    /// Bytes that filters may take.
    #[arg(long, default_value_t = 64 << 20)]
    budget: u64,
    /// Bytes of the engine's window table, 0 for none; the engine's choice if not given.
    #[arg(long)]
    window_bytes: Option<u64>,
    /// Whether indexes of old segments are merged.
    #[arg(long, value_enum, default_value = "on")]
    fold: Folding,
    /// How files are read.
    #[arg(long, value_enum, default_value = "pread")]
    mode: Mode,
    /// Evicts the store's files from the system's cache before each lookup.
    #[arg(long)]
    cold: bool,
    /// The engine tells the system of the reads of a lookup before the first: `Options::cold_reads_ahead`.
    #[arg(long)]
    cold_reads_ahead: bool,
    /// Commits a second of 100 records each beside the lookups. The store is spent after it.
    #[arg(long)]
    while_writing: Option<f64>,
    /// Seconds that a workload is measured while writing.
    #[arg(long, default_value_t = 5.0)]
    writing_seconds: f64,
    /// Threads whose rate is compared with that of one.
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// Measures the report's list of variants in place of one.
    #[arg(long)]
    variants: bool,
    /// Filter bits a key of `--layout go`.
    #[arg(long, default_value_t = 12)]
    bits_per_key: u32,
    /// Bits that a key sets in a filter of `--layout go`.
    #[arg(long, default_value_t = 3)]
    k: u32,
    /// Bytes of a value; keys have 32.
    #[arg(long, default_value_t = 200)]
    value_bytes: usize,
    /// Records of one segment.
    #[arg(long, default_value_t = 12_500)]
    segment_records: u64,
    /// The most segment files open at once; a share of the system's limit if not given.
    #[arg(long)]
    descriptors_max: Option<u32>,
    /// Lookups of a round; by default 20,000, of `--layout go` 600, 40 if cold.
    #[arg(long)]
    lookups: Option<usize>,
    /// Rounds: limits and lookups take turns.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Seed of keys and values.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Keeps stores below this directory and uses those that are there.
    #[arg(long, visible_alias = "directory")]
    dir: Option<PathBuf>,
    /// Adds the rows of figures that an earlier run wrote.
    #[arg(long)]
    with: Vec<PathBuf>,
    /// Draws cost against segments, or against the budgets of one store, into this SVG file.
    #[arg(long)]
    plot: Option<PathBuf>,
    /// Writes the figures to this file, or to standard output for `-`.
    #[arg(long)]
    pub json: Option<PathBuf>,
    /// Measures only this one of the cases: what the command starts itself as, once for each.
    #[arg(long, hide = true)]
    case: Option<usize>,
}

/// Whose process a case is measured in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Process {
    /// This one: its memory then also has what the cases before have left.
    This,
    /// One of its own, started from the same program with the same arguments.
    Own,
}

impl Readpath {
    fn case(&self, layout: Layout, segments: u64) -> Case {
        let go = layout == Layout::Go;
        Case {
            shape: Shape {
                layout,
                segments,
                segment_records: self.segment_records,
                value_bytes: self.value_bytes,
                memtable_records: self.segment_records / 2,
                fold: self.fold == Folding::On && !go,
                bits_per_key: if go { self.bits_per_key } else { 0 },
                k: if go { self.k } else { 0 },
                seed: self.seed,
            },
            opening: Opening {
                policy: self.policy,
                budget_bytes: self.budget,
                window_bytes: self.window_bytes,
                mode: self.mode,
                descriptors_max: self.descriptors_max,
                cold_reads_ahead: self.cold_reads_ahead,
            },
        }
    }

    fn effort(&self, layout: Layout) -> Effort {
        let lookups = match (self.cold, layout) {
            (true, _) => LOOKUPS_COLD,
            (false, Layout::Sealstone) => LOOKUPS,
            (false, Layout::Go) => LOOKUPS_GO,
        };
        Effort {
            lookups: self.lookups.unwrap_or(lookups).max(2),
            rounds: self.rounds.max(1),
            cold: self.cold,
            while_writing: self.while_writing,
            writing_time: Duration::from_secs_f64(self.writing_seconds),
            threads: self.threads,
        }
    }

    /// All measurements, refused before the first one if one of them can't be made.
    fn cases(&self) -> Result<Vec<Case>> {
        let mut cases = Vec::new();
        for segments in &self.segments {
            for layout in &self.layout {
                let case = self.case(*layout, *segments);
                match self.variants {
                    true => cases.extend(variants(&case)),
                    false => cases.push(case),
                }
            }
        }
        for case in &cases {
            case.check()?;
            let writes = self.while_writing.is_some();
            ensure!(
                !writes || case.shape.layout == Layout::Sealstone,
                "--layout go is only read: no --while-writing"
            );
            ensure!(
                !(writes && self.cold),
                "--cold and --while-writing exclude each other"
            );
        }
        if let Some(rate) = self.while_writing {
            ensure!(
                rate.is_finite() && rate > 0.0,
                "--while-writing takes a rate above 0"
            );
        }
        Ok(cases)
    }

    fn measure_in(&self, directory: &Path, process: Process) -> Result<Vec<Row>> {
        let mut rows = Vec::new();
        let cases = self.cases()?;
        let wanted = |place| self.case.is_none_or(|only| only == place);
        for (place, case) in cases.iter().enumerate().filter(|(place, _)| wanted(*place)) {
            // The process that was started for a case leaves the store to the one that started it.
            let keep = self.dir.is_some() || self.case.is_some();
            let mut fixture = Fixture::prepare(directory, &case.shape, keep)?;
            rows.extend(match process {
                Process::Own => {
                    let rows = measure_apart(directory, place);
                    if self.while_writing.is_some() {
                        fixture.spoil()?;
                    }
                    rows?
                }
                Process::This => {
                    if self.while_writing.is_some() && self.case.is_none() {
                        fixture.spoil()?;
                    }
                    let rows = measure::run(&fixture, case, &self.effort(case.shape.layout))?;
                    for row in &rows {
                        eprintln!("{}", summary(row));
                    }
                    rows
                }
            });
        }
        Ok(rows)
    }

    /// Measures, prints the table, draws; returns the rows.
    pub fn measure(&self, process: Process) -> Result<Vec<Row>> {
        self.cases()?;
        if let (Some(_), Some(directory)) = (self.case, &self.dir) {
            return self.measure_in(directory, Process::This);
        }
        let mut rows = Vec::new();
        for path in &self.with {
            rows.extend(earlier(path)?);
        }
        rows.extend(match &self.dir {
            Some(directory) => self.measure_in(directory, process)?,
            None => {
                let name = format!("sealstone-readpath-{}", std::process::id());
                let directory = std::env::temp_dir().join(name);
                let measured = self.measure_in(&directory, process);
                // Each store went with its measurement; the directory is empty, or was never made.
                let _ = std::fs::remove_dir(&directory);
                measured?
            }
        });
        ensure!(
            !rows.is_empty(),
            "nothing to do: give --segments, or --with and --plot"
        );
        judge::mark(&mut rows);
        println!("{}", judge::table(&rows));
        if let Some(path) = &self.plot {
            std::fs::write(path, plot::svg(&rows))
                .with_context(|| format!("writing {}", path.display()))?;
        }
        Ok(rows)
    }
}

/// Measures one case in a process of its own: memory is then that of the case.
fn measure_apart(directory: &Path, case: usize) -> Result<Vec<Row>> {
    let json = directory.join(format!("case-{case}.json"));
    let status = std::process::Command::new(std::env::current_exe()?)
        .args(std::env::args_os().skip(1))
        .arg("--dir")
        .arg(directory)
        .arg("--json")
        .arg(&json)
        .args(["--case", &case.to_string()])
        .status()?;
    ensure!(status.success(), "measuring failed: {status}");
    let rows = earlier(&json)?;
    std::fs::remove_file(&json)?;
    Ok(rows)
}

fn earlier(path: &Path) -> Result<Vec<Row>> {
    let text = std::fs::read(path).with_context(|| format!("reading {}", path.display()))?;
    let mut figures: serde_json::Value = serde_json::from_slice(&text)?;
    serde_json::from_value(figures["rows"].take())
        .with_context(|| format!("{} has no rows of this command", path.display()))
}

/// The figures of a run.
pub fn figures(rows: Vec<Row>) -> Figures<Row> {
    Figures::new("readpath", rows)
}

/// One line for people, while others are still being measured.
fn summary(row: &Row) -> String {
    let mut text = format!(
        "{} segments, {} runs, {}, {}: {:.3} reads ({:.3} of the system, {:.0} bytes), {:.3} candidates, {:.3} in \
         vain, {:.2} opens, {:.0} ns, p50 {} p99 {} p99.9 {}; P {:.0}, D {:.1}, F {:.0}, clock {:.0} ns; {:.1} MB \
         of memory, {:.1} filters; built in {:.0} s, {:.0} MB in {} files, {:.1} index bytes a record",
        row.segments,
        row.runs,
        row.series(),
        row.workload,
        row.reads,
        row.os_reads,
        row.bytes,
        row.candidates,
        row.false_candidates,
        row.opens_per_lookup,
        row.lookup_ns,
        row.p50_ns,
        row.p99_ns,
        row.p999_ns,
        row.p_ns,
        row.d_ns,
        row.f_ns,
        row.timer_ns,
        row.resident_bytes as f64 / 1e6,
        row.filter_bytes as f64 / 1e6,
        row.build_seconds,
        row.disk_bytes as f64 / 1e6,
        row.files,
        row.index_bytes_per_record,
    );
    if row.while_writing > 0.0 {
        text += &format!(
            "; {:.0} commits/s, {} flushes, {} folds, quiet p99 {} ns, p99.9 {} ns",
            row.commits_per_second,
            row.flushes_meanwhile,
            row.folds_meanwhile,
            row.quiet_p99_ns,
            row.quiet_p999_ns
        );
    }
    if row.machine_p999_ns > 0 {
        text += &format!("; the machine's own p99.9 {} ns", row.machine_p999_ns);
    }
    if row.threads > 1 {
        text += &format!(
            "; {} threads {:.0} lookups/s, {:.2} times one, plain reads {:.2}",
            row.threads, row.lookups_per_second, row.scaling, row.plain_scaling
        );
    }
    text
}
