//! `sealstone-sim pool`.
//!
//! ```text
//! sealstone-sim pool [--workload plain-send|small-multisend] [--policy NAME|all]
//!                    [--trace FILE] [--record FILE] [--json FILE|-]
//! ```
//! With `--json -` the figures take the place of the tables.

use super::report::{Report, generate};
use super::tables;
use super::trace::Trace;
use super::workload::Workload;

#[derive(Debug, Default)]
struct Arguments {
    workload: Option<Workload>,
    policy: Option<String>,
    trace: Option<String>,
    record: Option<String>,
    json: Option<String>,
}

fn parse(arguments: &[String]) -> Result<Arguments, String> {
    let mut parsed = Arguments::default();
    let mut rest = arguments.iter();
    while let Some(name) = rest.next() {
        let value = rest.next().ok_or_else(|| format!("{name} needs a value"))?;
        let place = match name.as_str() {
            "--workload" => {
                let named = Workload::named(value).ok_or(format!("no workload {value}"))?;
                parsed.workload = Some(named);
                continue;
            }
            "--policy" => &mut parsed.policy,
            "--trace" => &mut parsed.trace,
            "--record" => &mut parsed.record,
            "--json" => &mut parsed.json,
            other => return Err(format!("no option {other}")),
        };
        *place = Some(value.clone());
    }
    if parsed.trace.is_some() && parsed.workload.is_some() {
        return Err("--trace and --workload exclude each other".into());
    }
    Ok(parsed)
}

/// Runs the command.
///
/// # Errors
/// Arguments that make no sense, a trace that can't be read, or a file that can't be.
pub fn execute(arguments: &[String]) -> Result<bool, String> {
    let parsed = parse(arguments)?;
    let (trace, serial) = match &parsed.trace {
        Some(file) => {
            let trace = Trace::read(&read(file)?).map_err(|error| format!("{file}: {error}"))?;
            (trace, None)
        }
        None => {
            let workload = parsed.workload.unwrap_or(Workload::PlainSend);
            let [overlapped, serial] = generate(workload);
            (overlapped, Some(serial))
        }
    };
    if let Some(file) = &parsed.record {
        crate::command::write(file, &trace.write())?;
    }
    let policy = parsed.policy.as_deref().unwrap_or("all");
    let report = Report::new(trace, serial.as_ref(), policy)?;
    if parsed.json.as_deref() != Some("-") {
        print!("{}", tables::text(&report));
    }
    if let Some(file) = &parsed.json {
        let line = format!("pool {}", arguments.join(" "));
        let text = crate::command::figures("sealstone-sim pool", line.trim(), &report.rows());
        crate::command::write(file, &text)?;
    }
    Ok(true)
}

#[allow(
    clippy::disallowed_methods,
    reason = "a command reads the file it was told to"
)]
fn read(file: &str) -> Result<String, String> {
    std::fs::read_to_string(file).map_err(|error| format!("{file}: {error}"))
}
