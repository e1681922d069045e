//! What the `sealstone-sim` command does.

use std::fmt::Write as _;
use std::ops::Range;
use std::time::Duration;

use crate::disk::Strength;
use crate::explore::{Limits, explore};
use crate::life::RunLimits;
use crate::script::standard;
use crate::subject::Subject;
use crate::sweep::{SweepOptions, SweepReport, describe, run_seed, sweep};

/// The engine that the command runs.
type Engine = crate::store::SimStore;

/// Failures after which a sweep ends.
const FAILURES_MAX: usize = 10;

#[derive(Debug, Default)]
struct Arguments {
    seeds: Option<Range<u64>>,
    strength: Option<Strength>,
    jobs: Option<usize>,
    json: Option<String>,
    seed: Option<u64>,
    rounds: Option<u32>,
    trace: bool,
}

fn parse(arguments: &[String]) -> Result<Arguments, String> {
    let mut parsed = Arguments::default();
    let mut rest = arguments.iter();
    while let Some(name) = rest.next() {
        if name == "--trace" {
            parsed.trace = true;
            continue;
        }
        let value = rest.next().ok_or_else(|| format!("{name} needs a value"))?;
        let number = || {
            value
                .parse::<u64>()
                .map_err(|error| format!("{name} {value}: {error}"))
        };
        match name.as_str() {
            "--seed" => parsed.seed = Some(number()?),
            "--jobs" => parsed.jobs = Some(number()?.max(1) as usize),
            "--rounds" => parsed.rounds = Some(number()? as u32),
            "--json" => parsed.json = Some(value.clone()),
            "--seeds" => {
                let (from, to) = value.split_once("..").ok_or("--seeds needs A..B")?;
                let number = |text: &str| text.parse::<u64>().map_err(|error| error.to_string());
                parsed.seeds = Some(number(from)?..number(to)?);
            }
            "--strength" => {
                parsed.strength = Some(match value.as_str() {
                    "honest" => Strength::Honest,
                    "adversarial" => Strength::Adversarial,
                    other => return Err(format!("no strength {other}")),
                });
            }
            other => return Err(format!("no option {other}")),
        }
    }
    Ok(parsed)
}

/// Runs the command; true if every rule held.
///
/// # Errors
/// Arguments that make no sense, or a file that can't be written.
pub fn execute(arguments: &[String]) -> Result<bool, String> {
    let Some((command, rest)) = arguments.split_first() else {
        return Err("commands: sweep, run, replay, exhaust".into());
    };
    if command == "replay" {
        return crate::corpus::replay(rest);
    }
    let parsed = parse(rest)?;
    match command.as_str() {
        "sweep" => run_sweep(&parsed, &arguments.join(" ")),
        "run" => run_one(&parsed),
        "exhaust" => run_exhaust(&parsed),
        other => Err(format!("no command {other}")),
    }
}

fn run_sweep(parsed: &Arguments, line: &str) -> Result<bool, String> {
    let seeds = parsed.seeds.clone().ok_or("sweep needs --seeds A..B")?;
    let limits = RunLimits {
        strength: parsed.strength,
        ..RunLimits::default()
    };
    let jobs = parsed.jobs.unwrap_or(1);
    let options = SweepOptions {
        base: Engine::options(),
        seeds,
        limits,
        jobs,
        failures_max: FAILURES_MAX,
    };
    let (report, took) = timed(|| sweep::<Engine>(&options));
    let row = row(&report, parsed.strength, took);
    for (seed, failure) in &report.failures {
        println!("{}\n", describe(*seed, failure, parsed.strength));
    }
    let seconds = took.as_secs_f64();
    println!(
        "{} seeds, {} steps, {} crashes, {} failures, {:.0} seeds/s, {:.0} steps/s",
        report.seeds,
        report.steps,
        report.crashes,
        report.failures.len(),
        report.seeds as f64 / seconds,
        report.steps as f64 / seconds
    );
    if let Some(file) = &parsed.json {
        let text = format!(
            "{{\"tool\":\"sealstone-sim sweep\",\"commit\":\"{}\",\"machine\":\"{} {}\",\
             \"arguments\":\"{line}\",\"rows\":[{row}]}}\n",
            option_env!("SEALSTONE_COMMIT").unwrap_or("unknown"),
            std::env::consts::OS,
            std::env::consts::ARCH
        );
        write(file, &text)?;
    }
    Ok(report.failures.is_empty())
}

fn row(report: &SweepReport, strength: Option<Strength>, took: Duration) -> String {
    let mut hits = String::new();
    for (what, count) in &report.hits {
        let comma = if hits.is_empty() { "" } else { "," };
        let _ = write!(hits, "{comma}\"{what}\":{count}");
    }
    let strength = strength.map_or("drawn".into(), |s| format!("{s:?}").to_lowercase());
    let seconds = took.as_secs_f64();
    format!(
        "{{\"seeds\":{},\"steps\":{},\"crashes\":{},\"failures\":{},\"seeds_per_second\":{:.1},\
         \"steps_per_second\":{:.1},\"strength\":\"{strength}\",\"digest\":\"{:016x}\",\
         \"hits\":{{{hits}}}}}",
        report.seeds,
        report.steps,
        report.crashes,
        report.failures.len(),
        report.seeds as f64 / seconds,
        report.steps as f64 / seconds,
        report.digest
    )
}

fn run_one(parsed: &Arguments) -> Result<bool, String> {
    let seed = parsed.seed.ok_or("run needs --seed N")?;
    let limits = RunLimits {
        strength: parsed.strength,
        trace: parsed.trace,
        ..RunLimits::default()
    };
    let report = run_seed::<Engine>(seed, &Engine::options(), &limits);
    for line in &report.trace {
        println!("{line}");
    }
    if report.failure.is_some() {
        println!("{}", describe(seed, &report, parsed.strength));
        return Ok(false);
    }
    println!(
        "seed {seed}: {} steps, {} crashes, digest {:016x}",
        report.steps, report.crashes, report.digest
    );
    println!("swarm: {}", report.swarm);
    Ok(true)
}

fn run_exhaust(parsed: &Arguments) -> Result<bool, String> {
    let script = standard(&Engine::kinds(), parsed.rounds.unwrap_or(12));
    let limits = Limits {
        threads: parsed.jobs.unwrap_or(1),
        ..Limits::default()
    };
    let (report, took) = timed(|| explore::<Engine>(&Engine::options(), &script, &limits));
    let report = report.map_err(|violation| format!("the script itself fails: {violation}"))?;
    for failure in &report.failures {
        println!("{failure:?}");
    }
    println!("{}", report.line(took));
    Ok(report.failures.is_empty())
}

/// How long something takes on the machine's clock.
#[allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a command tells how long it took; no decision hangs on it"
)]
pub fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let start = std::time::Instant::now();
    let result = work();
    (result, start.elapsed().max(Duration::from_nanos(1)))
}

#[allow(
    clippy::disallowed_methods,
    reason = "a command writes the file that it was told to"
)]
fn write(file: &str, text: &str) -> Result<(), String> {
    if file == "-" {
        print!("{text}");
        return Ok(());
    }
    std::fs::write(file, text).map_err(|error| format!("{file}: {error}"))
}
