//! What the `sealstone-sim` command does.

use std::fmt::Write as _;
use std::ops::Range;
use std::time::Duration;

use crate::choices::Choices;
use crate::disk::Strength;
use crate::explore::{Limits, explore};
use crate::life::RunLimits;
use crate::plants;
use crate::script::standard;
use crate::shrink::shrink;
use crate::subject::Subject;
use crate::sweep::{
    SEEDS_FOR_ALL, SweepOptions, SweepReport, describe, expected_hits, run_seed, sweep, twice,
};

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
    plan: Option<String>,
    only: Option<u32>,
    check: bool,
    failures: Option<usize>,
    seconds: Option<u64>,
    lies: bool,
}

fn parse(arguments: &[String]) -> Result<Arguments, String> {
    let mut parsed = Arguments::default();
    let mut rest = arguments.iter();
    while let Some(name) = rest.next() {
        if name == "--trace" {
            parsed.trace = true;
            continue;
        }
        if name == "--check" {
            parsed.check = true;
            continue;
        }
        if name == "--lies" {
            parsed.lies = true;
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
            "--seconds" => parsed.seconds = Some(number()?),
            "--jobs" => parsed.jobs = Some(number()?.max(1) as usize),
            "--rounds" => parsed.rounds = Some(number()? as u32),
            "--only" => parsed.only = Some(number()? as u32),
            "--failures" => parsed.failures = Some(number()?.max(1) as usize),
            "--plan" => parsed.plan = Some(value.clone()),
            "--json" => parsed.json = Some(value.clone()),
            "--seeds" => {
                let (from, to) = value.split_once("..").ok_or("--seeds needs A..B")?;
                let number = |text: &str| text.parse::<u64>().map_err(|error| error.to_string());
                let (from, to) = (number(from)?, number(to)?);
                if from >= to {
                    return Err(format!(
                        "--seeds {value} has no seed: A..B is from A to B-1"
                    ));
                }
                parsed.seeds = Some(from..to);
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
        return Err(format!("commands: {}; or --help", crate::help::names()));
    };
    if crate::help::is_asked(arguments) {
        println!("{}", crate::help::text(command));
        return Ok(true);
    }
    if command == "replay" {
        return crate::corpus::replay(rest);
    }
    if command == "kill-child" {
        // What `kill` starts: ends by a signal or with an error.
        let orders = crate::real::child::Orders::parse(rest)?;
        return crate::real::child::run(&orders)
            .map(|()| true)
            .map_err(|error| error.to_string());
    }
    if command == "pool" {
        return crate::pool::command::execute(rest);
    }
    if command == "age" {
        return crate::age::command::execute(rest);
    }
    let parsed = parse(rest)?;
    match command.as_str() {
        "sweep" => run_sweep(&parsed, &arguments.join(" ")),
        "run" => run_one(&parsed),
        "shrink" => run_shrink(&parsed),
        "digest" => run_digest(&parsed),
        "exhaust" => run_exhaust(&parsed),
        "plants" => run_plants(&parsed, &arguments.join(" ")),
        "kill" => run_kill(&parsed),
        other => Err(format!("no command {other}")),
    }
}

#[allow(clippy::disallowed_methods, reason = "it starts itself again")]
fn run_kill(parsed: &Arguments) -> Result<bool, String> {
    let options = crate::real::kill::KillOptions {
        command: std::env::current_exe().map_err(|error| error.to_string())?,
        time: Duration::from_secs(parsed.seconds.unwrap_or(60)),
        seed: parsed.seed.unwrap_or(1),
        lies: parsed.lies,
    };
    match crate::real::kill::run(&options) {
        Ok(report) => {
            println!("{report:?}");
            Ok(true)
        }
        Err(what) => {
            println!("{what}");
            Ok(false)
        }
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
        failures_max: parsed.failures.unwrap_or(FAILURES_MAX),
    };
    let (report, took) = timed(|| sweep::<Engine>(&options));
    let row = row(&report, parsed.strength, took);
    for (seed, failure) in &report.failures {
        println!("{}\n", describe(*seed, failure, parsed.strength));
    }
    let seconds = took.as_secs_f64();
    println!(
        "{} seeds, {} steps ({:.0} a seed), {} crashes ({:.1} a seed), {} failures, {:.0} seeds/s, \
         {:.0} steps/s",
        report.seeds,
        report.steps,
        report.steps as f64 / report.seeds.max(1) as f64,
        report.crashes,
        report.crashes as f64 / report.seeds.max(1) as f64,
        report.failures.len(),
        report.seeds as f64 / seconds,
        report.steps as f64 / seconds
    );
    if let Some(file) = &parsed.json {
        write(file, &figures("sealstone-sim sweep", line, &[row]))?;
    }
    let dead = if report.seeds < SEEDS_FOR_ALL {
        Vec::new()
    } else {
        report.dead(&expected_hits())
    };
    if !dead.is_empty() {
        println!("never happened: {}", dead.join(", "));
    }
    Ok(report.failures.is_empty() && dead.is_empty())
}

/// The object that a tool writes its figures as.
pub fn figures(tool: &str, arguments: &str, rows: &[String]) -> String {
    format!(
        "{{\"tool\":\"{tool}\",\"commit\":\"{}\",\"machine\":\"{} {}\",\
         \"arguments\":\"{}\",\"rows\":[{}]}}\n",
        env!("SEALSTONE_COMMIT"),
        std::env::consts::OS,
        std::env::consts::ARCH,
        arguments.replace('\\', "\\\\").replace('"', "\\\""),
        rows.join(",")
    )
}

fn row(report: &SweepReport, strength: Option<Strength>, took: Duration) -> String {
    let mut hits = String::new();
    for (what, count) in &report.hits {
        let comma = if hits.is_empty() { "" } else { "," };
        let _ = write!(hits, "{comma}\"{what}\":{count}");
    }
    let strength = strength.map_or("drawn".into(), |s| format!("{s:?}").to_lowercase());
    let first = report.failures.first();
    let (seed, rule) = match first.and_then(|(seed, report)| Some((seed, report.failure.as_ref()?)))
    {
        Some((seed, failure)) => (seed.to_string(), format!("\"{}\"", failure.violation.rule)),
        None => ("null".into(), "null".into()),
    };
    let seconds = took.as_secs_f64();
    format!(
        "{{\"seeds\":{},\"steps\":{},\"crashes\":{},\"failures\":{},\"seeds_per_second\":{:.1},\
         \"steps_per_second\":{:.1},\"strength\":\"{strength}\",\"digest\":\"{:016x}\",\
         \"first_failed_seed\":{seed},\"first_failed_rule\":{rule},\"hits\":{{{hits}}}}}",
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

fn run_limits(parsed: &Arguments) -> RunLimits {
    RunLimits {
        strength: parsed.strength,
        ..RunLimits::default()
    }
}

/// Makes a failing seed small, tells it, and writes it as a plan if a plan can tell it.
fn run_shrink(parsed: &Arguments) -> Result<bool, String> {
    let seed = parsed.seed.ok_or("shrink needs --seed N")?;
    let limits = run_limits(parsed);
    let report = run_seed::<Engine>(seed, &Engine::options(), &limits);
    if report.failure.is_none() {
        println!("seed {seed} does not fail");
        return Ok(true);
    }
    let Some(shrunk) = shrink::<Engine>(report.recording, &Engine::options(), &limits) else {
        return Err("the recorded run does not fail: S21".into());
    };
    let telling = RunLimits {
        history: true,
        plan: true,
        ..limits
    };
    let choices = Choices::recorded(shrunk.recording);
    let told = crate::life::run::<Engine>(choices, &Engine::options(), &telling);
    println!("{}", describe(seed, &told, parsed.strength));
    println!("{} runs, {} steps are left", shrunk.runs, told.steps);
    let Some(failure) = &told.failure else {
        return Err("the shrunk run does not fail again: S21".into());
    };
    let text = told.plan_text();
    let again = crate::plan::run_plan(&text);
    match &again {
        Err(failed) if failed.rule == Some(failure.violation.rule) => println!("{failed}"),
        other => println!("the plan does not tell it: {other:?}"),
    }
    if let Some(file) = &parsed.plan {
        write(file, &text)?;
    }
    Ok(false)
}

/// Equal choices give equal traces and equal bytes.
fn run_digest(parsed: &Arguments) -> Result<bool, String> {
    let seed = parsed.seed.ok_or("digest needs --seed N")?;
    let limits = run_limits(parsed);
    let base = Engine::options();
    let report = crate::life::run::<Engine>(Choices::seed(seed), &base, &limits);
    let report = twice::<Engine>(report, Choices::seed(seed), &base, &limits);
    println!(
        "seed {seed}: trace {:016x}, bytes {:016x}",
        report.digest, report.bytes
    );
    if let Some(failure) = &report.failure {
        println!("{}", failure.violation);
    }
    Ok(report.failure.is_none())
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

/// Plants bugs into a copy of the engine, and sweeps until each is caught.
fn run_plants(parsed: &Arguments, line: &str) -> Result<bool, String> {
    let asked = plants::Asked {
        only: parsed.only,
        check: parsed.check,
        seeds: parsed.seeds.clone(),
        jobs: parsed.jobs.unwrap_or(1),
    };
    let (rows, well) = plants::run(std::path::Path::new("."), &asked)?;
    if asked.check {
        return Ok(well);
    }
    let (median, most) = plants::median_and_most(&rows);
    let count = rows.len();
    println!("{count} plants, seeds to catch: {median} in the median, {most} at most");
    if let Some(file) = &parsed.json {
        let rows: Vec<String> = rows.iter().map(plants::Row::json).collect();
        write(file, &figures("sealstone-sim plants", line, &rows))?;
    }
    Ok(well)
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

/// Writes a report; `-` is the standard output.
#[allow(
    clippy::disallowed_methods,
    reason = "a command writes the file that it was told to"
)]
pub(crate) fn write(file: &str, text: &str) -> Result<(), String> {
    if file == "-" {
        print!("{text}");
        return Ok(());
    }
    std::fs::write(file, text).map_err(|error| format!("{file}: {error}"))
}
