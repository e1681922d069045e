//! `sealstone-sim age`.

use std::fmt::Write as _;
use std::path::PathBuf;

use super::figures::{HEAD, Hour};
use super::{Report, Settings, Watch, run};
use crate::command::{timed, write};

/// Prints each hour and ends the run when its time is over.
struct Printer {
    seconds_max: Option<u64>,
    started: Clock,
}

/// The machine's clock, for the end of a run by `--seconds-max`.
#[allow(
    clippy::disallowed_types,
    reason = "a command may be told how long to run"
)]
struct Clock(std::time::Instant);

impl Clock {
    #[allow(
        clippy::disallowed_methods,
        clippy::disallowed_types,
        reason = "a command may be told how long to run"
    )]
    fn start() -> Self {
        Self(std::time::Instant::now())
    }
}

impl Watch for Printer {
    fn hour(&mut self, number: usize, hour: &Hour) {
        println!("{}", hour.line(number + 1));
    }

    fn is_over(&mut self) -> bool {
        let seconds = self.started.0.elapsed().as_secs();
        self.seconds_max.is_some_and(|most| seconds >= most)
    }
}

#[derive(Debug, Default)]
struct Arguments {
    settings: Settings,
    seconds_max: Option<u64>,
    json: Option<String>,
}

fn parse(arguments: &[String]) -> Result<Arguments, String> {
    let mut parsed = Arguments::default();
    let settings = &mut parsed.settings;
    let mut rest = arguments.iter();
    while let Some(name) = rest.next() {
        let value = rest.next().ok_or_else(|| format!("{name} needs a value"))?;
        let number = || {
            value
                .parse::<u64>()
                .map_err(|error| format!("{name} {value}: {error}"))
        };
        match name.as_str() {
            "--writes" => settings.writes = number()?.clamp(1, 1 << 31),
            "--reopenings" => settings.reopenings = number()?,
            "--seed" => settings.seed = number()?,
            "--seconds-max" => parsed.seconds_max = Some(number()?),
            "--directory" => settings.directory = Some(PathBuf::from(value)),
            "--json" => parsed.json = Some(value.clone()),
            "--limit" => set_limit(settings, value)?,
            other => return Err(format!("no option {other}")),
        }
    }
    Ok(parsed)
}

fn set_limit(settings: &mut Settings, text: &str) -> Result<(), String> {
    let (name, most) = text.split_once('=').ok_or("--limit needs NAME=VALUE")?;
    let limit = settings.limits.iter_mut().find(|limit| limit.name == name);
    let limit = limit.ok_or_else(|| format!("no limit {name}"))?;
    limit.most = most
        .parse()
        .map_err(|error| format!("--limit {text}: {error}"))?;
    Ok(())
}

/// Runs the command; true if every answer was right and every gate held.
///
/// # Errors
/// Arguments that make no sense, or a file that can't be written.
pub fn execute(arguments: &[String]) -> Result<bool, String> {
    let parsed = parse(arguments)?;
    let mut printer = Printer {
        seconds_max: parsed.seconds_max,
        started: Clock::start(),
    };
    println!("{HEAD}");
    let (result, took) = timed(|| run(&parsed.settings, &mut printer));
    let report = match result {
        Ok(report) => report,
        Err(wrong) => {
            println!("wrong: {wrong}");
            return Ok(false);
        }
    };
    for (what, count) in &report.happened {
        print!("{what} {count}, ");
    }
    let written: u64 = report.hours.iter().map(|hour| hour.writes).sum();
    let seconds = took.as_secs_f64();
    println!("{written} writes in {seconds:.1} s");
    for gate in &report.gates {
        let verdict = if gate.holds() { "held" } else { "MISSED" };
        let (measured, limit) = (gate.measured, gate.limit);
        println!(
            "{verdict:<6} {:<24} {measured:>10.3} of {:>8}",
            limit.name, limit.most
        );
        if !gate.holds() {
            println!("       {}", limit.reason);
        }
    }
    if let Some(file) = &parsed.json {
        write(file, &json(&report, arguments, seconds))?;
    }
    Ok(report.missed().is_empty())
}

fn json(report: &Report, arguments: &[String], seconds: f64) -> String {
    let hours = report.hours.iter().enumerate();
    let hours: Vec<_> = hours.map(|(number, hour)| hour.json(number + 1)).collect();
    let mut text = format!(
        "{{\"tool\":\"sealstone-sim age\",\"commit\":\"{}\",\"machine\":\"{} {}\",\
         \"arguments\":\"{}\",\"seconds\":{seconds:.1},\"hours\":[{}],\"gates\":[",
        env!("SEALSTONE_COMMIT"),
        std::env::consts::OS,
        std::env::consts::ARCH,
        arguments.join(" ").replace(['"', '\\'], "?"),
        hours.join(",")
    );
    for (place, gate) in report.gates.iter().enumerate() {
        let comma = if place == 0 { "" } else { "," };
        // JSON knows no infinity.
        let measured = if gate.measured.is_finite() {
            gate.measured.to_string()
        } else {
            "null".into()
        };
        let _ = write!(
            text,
            "{comma}{{\"name\":\"{}\",\"measured\":{measured},\"limit\":{},\"held\":{}}}",
            gate.limit.name,
            gate.limit.most,
            gate.holds()
        );
    }
    text + "]}\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_become_settings() {
        let words = "--writes 5000 --reopenings 3 --seed 9 --limit steps-growth=2.5";
        let words: Vec<_> = words.split(' ').map(String::from).collect();
        let parsed = parse(&words).unwrap().settings;
        assert_eq!(
            (parsed.writes, parsed.reopenings, parsed.seed),
            (5000, 3, 9)
        );
        let limit = parsed.limits.iter().find(|l| l.name == "steps-growth");
        assert_eq!(limit.map(|limit| limit.most), Some(2.5));
        for wrong in [
            "--limit",
            "--limit nothing=1",
            "--limit steps-growth",
            "--what 3",
        ] {
            let words: Vec<_> = wrong.split(' ').map(String::from).collect();
            assert!(parse(&words).is_err(), "{wrong}");
        }
    }
}
