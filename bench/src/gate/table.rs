//! The gates for people.

use super::{GateRow, Verdict};

/// Prints a line for each gate, and the verdict with the gate that decides it.
pub fn print(rows: &[GateRow]) {
    println!(
        "{:<32} {:>14} {:>14} {:>14}  result",
        "gate", "current", "target", "measured"
    );
    for row in rows {
        println!(
            "{:<32} {:>14} {:>14} {:>14}  {} {}",
            row.gate,
            number(row.current),
            number(row.target),
            number(row.measured),
            word(row.pass),
            row.note
        );
    }
    let verdict = Verdict::of(rows);
    let deciding = rows.iter().find(|row| match verdict {
        Verdict::Accept => false,
        Verdict::Reject => row.pass == Some(false),
        Verdict::Inconclusive => row.pass.is_none(),
    });
    match deciding {
        None => println!("{}", verdict.name()),
        Some(row) => println!("{}: {} {}", verdict.name(), row.gate, row.note),
    }
}

fn word(pass: Option<bool>) -> &'static str {
    match pass {
        Some(true) => "pass",
        Some(false) => "FAIL",
        None => "?",
    }
}

fn number(value: f64) -> String {
    match value.fract() == 0.0 && value.abs() < 1e15 {
        true => format!("{value:.0}"),
        false => format!("{value:.2}"),
    }
}
