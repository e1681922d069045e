//! `sealstone-bench`: measurements, printed for people and written in the one form of all figures.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "measuring needs the system's clock, threads and files"
)]

mod allocations;
#[cfg(test)]
mod appender;
mod chain;
mod delay;
mod engine;
mod figures;
mod gate;
mod go;
mod keys;
mod load;
mod lookup;
mod plain;
mod readpath;
mod recover;
mod scan;
mod target;
mod workplace;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, anyhow, ensure};
use clap::{Args, Parser, Subcommand, ValueEnum};
use sealstone::env::Env;

use crate::chain::ChainArguments;
use crate::figures::Figures;
use crate::gate::{GateOptions, Verdict};
use crate::load::LoadOptions;
use crate::readpath::{Process, Readpath};
use crate::recover::RecoverOptions;
use crate::target::Target;
use crate::workplace::Workplace;

#[global_allocator]
static ALLOCATOR: allocations::Counting = allocations::Counting;

/// Measures sealstone.
#[derive(Debug, Parser)]
#[command(version)]
struct Command {
    #[command(subcommand)]
    measurement: Measurement,
}

#[derive(Debug, Subcommand)]
enum Measurement {
    /// How fast records go in, against plain appending.
    Load(Workload),
    /// How fast they come out in order.
    Scan {
        #[command(flatten)]
        workload: Workload,
        /// Entries of one scan.
        #[arg(long, default_value_t = 100_000)]
        entries_max: u64,
    },
    /// How long single keys take, by where they are.
    Lookup {
        #[command(flatten)]
        workload: Workload,
        /// Lookups of one measurement.
        #[arg(long, default_value_t = 100_000)]
        lookups: u64,
    },
    /// What a lookup costs as the store grows, against the machine's limits and the field report's layout.
    Readpath(Box<Readpath>),
    /// How long an open takes after a process was killed.
    Recover(Recovery),
    /// What a chain node's blocks cost: rate, allocations by site, copies, faults, memory.
    Chain(ChainArguments),
    /// Whether a candidate may replace a base, from the figures that both left.
    Gate(Gates),
    /// The process that is killed.
    #[command(hide = true)]
    LeaveBehind(Recovery),
}

/// What is compared: files that `--json` wrote, one for each run.
#[derive(Debug, Args)]
struct Gates {
    /// Figures of the base.
    #[arg(long, num_args = 1.., required = true)]
    base: Vec<PathBuf>,
    /// Figures of the candidate.
    #[arg(long, num_args = 1.., required = true)]
    candidate: Vec<PathBuf>,
    /// The site that the change is about: it has to allocate a tenth less.
    #[arg(long)]
    site: Option<String>,
    /// The workload, where a file has rows of several.
    #[arg(long)]
    workload: Option<String>,
    /// Writes the figures to this file, or to standard output for `-`.
    #[arg(long)]
    json: Option<PathBuf>,
}

impl Gates {
    fn judge(self) -> Result<()> {
        let rows = gate::run(&GateOptions {
            base: self.base,
            candidate: self.candidate,
            site: self.site,
            workload: self.workload,
        })?;
        gate::print(&rows);
        let verdict = Verdict::of(&rows);
        let mut figures = Figures::new("gate", rows);
        figures.verdict = Some(verdict.name());
        write(&self.json, figures)?;
        match verdict {
            Verdict::Accept => Ok(()),
            // What a script asks: neither is an acceptance, and they are not the same.
            Verdict::Reject => std::process::exit(1),
            Verdict::Inconclusive => std::process::exit(3),
        }
    }
}

/// What a killed process left; one row for each size of log.
#[derive(Debug, Args)]
struct Recovery {
    /// A directory to work in; made if missing, and emptied of what the run made. Without it one of its own in
    /// the current directory, which goes afterwards.
    #[arg(long)]
    directory: Option<PathBuf>,
    /// MiB of frames in the log, one measurement each.
    #[arg(long, value_delimiter = ',', default_value = "16")]
    log_mib: Vec<u64>,
    /// Bytes of a value; keys have 32.
    #[arg(long, default_value_t = 200)]
    value_bytes: usize,
    /// Records of one commit.
    #[arg(long, visible_alias = "batch", default_value_t = 100)]
    batch_records: u64,
    /// Memory for the open, smaller perhaps than the log.
    #[arg(long)]
    write_region_bytes: Option<u64>,
    /// Writes the figures to this file, or to standard output for `-`.
    #[arg(long)]
    json: Option<PathBuf>,
}

impl Recovery {
    fn options(&self, log_mib: u64) -> RecoverOptions {
        RecoverOptions {
            log_mib,
            value_bytes: self.value_bytes,
            batch_records: self.batch_records,
            write_region_bytes: self.write_region_bytes,
        }
    }

    fn measure(&self) -> Result<()> {
        let mut rows = Vec::new();
        let place = Workplace::of(self.directory.as_deref())?;
        for log_mib in &self.log_mib {
            let directory = place.path().join(format!("log-{log_mib}"));
            load::prepare(&directory)?;
            let row = recover::run(&directory, &self.options(*log_mib));
            std::fs::remove_dir_all(&directory)?;
            let row = row?;
            eprintln!("{}", row.summary());
            rows.push(row);
        }
        write(&self.json, Figures::new("recover", rows))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Durability {
    /// Each commit waits for its barrier.
    Synced,
    /// Only the end of a round does.
    Buffered,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Folding {
    /// As by default.
    On,
    /// Never: a run for each segment.
    Off,
}

/// What is loaded; one row for each number of segments.
#[derive(Debug, Args)]
#[command(args_override_self = true)]
struct Workload {
    /// A directory to work in; made if missing, and emptied of what the run made. Without it one of its own in
    /// the current directory, which goes afterwards.
    #[arg(long)]
    directory: Option<PathBuf>,
    /// Segments' worth of records, one measurement each.
    #[arg(long, value_delimiter = ',', default_value = "10")]
    segments: Vec<u64>,
    /// Records of one segment.
    #[arg(long, default_value_t = 12_500)]
    segment_records: u64,
    /// Bytes of a value; keys have 32.
    #[arg(long, default_value_t = 200)]
    value_bytes: usize,
    /// Records of one commit.
    #[arg(long, visible_alias = "batch", default_value_t = 100)]
    batch_records: u64,
    /// Threads that commit.
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// What a commit waits for.
    #[arg(long, value_enum, default_value = "synced")]
    durability: Durability,
    /// How much longer each barrier takes.
    #[arg(long, default_value_t = 0)]
    sync_delay_ms: u64,
    /// Segments between two switches from the engine to the plain limits and back.
    #[arg(long, default_value_t = 10)]
    round_segments: u64,
    /// Seed of keys and values.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// All memory of the store; its default if not given.
    #[arg(long)]
    memory_bytes: Option<u64>,
    /// Memory of scans; a share of all if not given.
    #[arg(long)]
    scan_bytes: Option<u64>,
    /// The most segment files open at once; a share of the system's limit if not given.
    #[arg(long)]
    descriptors_max: Option<u32>,
    /// Whether indexes of old segments are merged.
    #[arg(long, value_enum, default_value = "on")]
    fold: Folding,
    /// Lookups read sealed files through mappings.
    #[arg(long)]
    mapped: bool,
    /// Bytes of the window table, 0 for none; the store's choice if not given.
    #[arg(long)]
    window_bytes: Option<u64>,
    /// Writes the figures to this file, or to standard output for `-`.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Measures only this one of the rows: what the command starts itself as, once for each.
    #[arg(long, hide = true)]
    row: Option<usize>,
}

impl Workload {
    /// Of one measurement, in its part of a directory.
    fn options(&self, directory: &Path, segments: u64) -> LoadOptions {
        LoadOptions {
            directory: directory.join(format!("segments-{segments}")),
            segments,
            segment_records: self.segment_records,
            value_bytes: self.value_bytes,
            batch_records: self.batch_records,
            threads: self.threads,
            synced: self.durability == Durability::Synced,
            sync_delay: Duration::from_millis(self.sync_delay_ms),
            round_segments: self.round_segments,
            seed: self.seed,
            memory_bytes: self.memory_bytes,
            scan_bytes: self.scan_bytes,
            descriptors_max: self.descriptors_max,
            fold: self.fold == Folding::On,
            mapped: self.mapped,
            window_bytes: self.window_bytes,
        }
    }

    /// One measurement for each number of segments, each in a directory of its own that goes after.
    fn measure<R>(
        &self,
        mut run: impl FnMut(&LoadOptions) -> Result<Vec<R>>,
        summary: impl Fn(&R) -> String,
    ) -> Result<Vec<R>> {
        let mut all = Vec::new();
        let workplace = Workplace::of(self.directory.as_deref())?;
        let asked = |place: usize| self.row.is_none_or(|row| row == place);
        let rows = self.segments.iter().enumerate();
        for (_, segments) in rows.filter(|(place, _)| asked(*place)) {
            let options = self.options(workplace.path(), *segments);
            load::prepare(&options.directory)?;
            let rows = run(&options);
            std::fs::remove_dir_all(&options.directory)?;
            for row in rows? {
                eprintln!("{}", summary(&row));
                all.push(row);
            }
        }
        Ok(all)
    }
}

impl Workload {
    /// Each row in a process of its own: its memory is then that of its run, without the holes that the
    /// runs before it left. And all at the same addresses, where the system can: how many pages of the
    /// program and its libraries are resident depends on them by up to 220 KiB, whatever is done.
    fn measure_apart(&self) -> Result<Vec<load::LoadRow>> {
        let mut all = Vec::new();
        let workplace = Workplace::of(self.directory.as_deref())?;
        std::fs::create_dir_all(workplace.path())?;
        for row in 0..self.segments.len() {
            let json = workplace.path().join(format!("row-{row}.json"));
            let status = at_fixed_addresses(&std::env::current_exe()?)
                .args(std::env::args_os().skip(1))
                .arg("--directory")
                .arg(workplace.path())
                .args(["--row", &row.to_string()])
                .arg("--json")
                .arg(&json)
                .status()?;
            ensure!(status.success(), "measuring failed: {status}");
            let mut figures: serde_json::Value = serde_json::from_slice(&std::fs::read(&json)?)?;
            std::fs::remove_file(&json)?;
            all.extend(serde_json::from_value::<Vec<load::LoadRow>>(
                figures["rows"].take(),
            )?);
        }
        Ok(all)
    }
}

/// A command that runs a program without random addresses, if the system lets us choose; else as it is.
fn at_fixed_addresses(program: &Path) -> std::process::Command {
    use std::process::Command;
    let fixed = |program: &Path| {
        let mut command = Command::new("setarch");
        command.arg("-R").arg(program);
        command
    };
    let tried = fixed(Path::new("true")).output();
    match tried.is_ok_and(|tried| tried.status.success()) {
        true => fixed(program),
        false => Command::new(program),
    }
}

/// Where the engine is plugged in.
fn open(env: Env, options: &LoadOptions) -> Result<Box<dyn Target>> {
    Ok(Box::new(engine::open(env, options)?))
}

fn main() -> Result<()> {
    match Command::parse().measurement {
        Measurement::Load(workload) => {
            let mut rows = match workload.segments.len() > 1 && workload.row.is_none() {
                true => workload.measure_apart()?,
                false => workload.measure(
                    |options| Ok(vec![load::run(options, &|env| open(env, options))?]),
                    load::LoadRow::summary,
                )?,
            };
            load::compare_peaks(&mut rows);
            write(&workload.json, Figures::new("load", rows))
        }
        Measurement::Scan {
            workload,
            entries_max,
        } => {
            let rows = workload.measure(
                |options| scan::run(options, entries_max, &|env| open(env, options)),
                scan::ScanRow::summary,
            )?;
            write(&workload.json, Figures::new("scan", rows))
        }
        Measurement::Lookup { workload, lookups } => {
            let rows = workload.measure(
                |options| lookup::run(options, lookups),
                lookup::LookupRow::summary,
            )?;
            write(&workload.json, Figures::new("lookup", rows))
        }
        Measurement::Readpath(readpath) => {
            let rows = readpath.measure(Process::Own)?;
            write(&readpath.json, readpath::figures(rows))
        }
        Measurement::Chain(chain) => {
            let rows = chain.measure()?;
            write(&chain.json, Figures::new("chain", rows))
        }
        Measurement::Recover(recovery) => recovery.measure(),
        Measurement::Gate(gates) => gates.judge(),
        Measurement::LeaveBehind(recovery) => match (&recovery.directory, &recovery.log_mib[..]) {
            (Some(directory), [log_mib]) => {
                recover::leave_behind(directory, &recovery.options(*log_mib))
            }
            _ => Err(anyhow!("one log at a time, in a directory")),
        },
    }
}

fn write<R: serde::Serialize>(json: &Option<PathBuf>, figures: Figures<R>) -> Result<()> {
    match json {
        Some(target) => figures.write(target),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        Command::command().debug_assert();
        let line = "sealstone-bench load --directory d --segments 10,100 --sync-delay-ms 5";
        let command = Command::try_parse_from(line.split(' ')).expect("parses");
        let Measurement::Load(workload) = command.measurement else {
            panic!("another measurement");
        };
        assert_eq!(workload.segments, [10, 100]);
        let options = workload.options(Path::new("d"), 100);
        assert_eq!(options.sync_delay, Duration::from_millis(5));
        assert!(options.synced);
    }
}
