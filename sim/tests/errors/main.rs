//! Every error of every call on every kind of file in every phase: the outcome of each cell.
//!
//! A cell is (phase, call, file kind, fault). The fault strikes the n-th matching call of the phase, for
//! each n until the phase has no such call left. Whatever happens:
//!
//! * interrupted and short transfers are masked: the phase succeeds;
//! * an error is typed, names its operation and the file (unless the call concerns the directory), and
//!   has a remedy; no answer is ever wrong or "absent" because of it;
//! * a poisoned store refuses every later write and still reads;
//! * after the fault is gone and the store was reopened it holds every acknowledged commit and takes
//!   the next one.
//!
//! The outcomes themselves stand in `table.txt`, a line a cell, so that a change shows. Run with
//! `SEALSTONE_RENEW=1` in the environment to write it anew, and read the difference.

mod damage;
mod phases;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use phases::{Phase, Scene};
use sealstone::env::FileKind;
use sealstone::{Error, ErrorKind};
use sealstone_sim::disk::SyncFailure;
use sealstone_sim::faults::{Call, Fault, Rule};

/// Most strikes tried per cell: beyond that the calls repeat themselves.
const STRIKES_MAX: u64 = 24;

const FAULTS: [Fault; 7] = [
    Fault::Io,
    Fault::NoSpace,
    Fault::NoDescriptor,
    Fault::Short,
    Fault::Interrupted,
    Fault::Sync(SyncFailure::KeepNewClean),
    Fault::Denied,
];

const FILES: [Option<FileKind>; 6] = [
    Some(FileKind::Lock),
    Some(FileKind::Manifest),
    Some(FileKind::Log),
    Some(FileKind::Segment),
    Some(FileKind::Run),
    None,
];

/// What a phase came to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    Masked,
    Failed(String),
    Poisoned(String),
}

impl Outcome {
    fn of(result: Result<(), Error>, poisoned: bool) -> Self {
        let name = |error: &Error| {
            let file = error.file().map_or("directory", |file| match file.kind {
                FileKind::Lock => "lock",
                FileKind::Manifest => "manifest",
                FileKind::Log => "log",
                FileKind::Segment => "segment",
                FileKind::Run => "run",
            });
            let kind = format!("{:?}", error.kind());
            let kind = kind
                .split([' ', '{'])
                .next()
                .unwrap_or_default()
                .to_string();
            format!("{kind} in {} of {file}", error.operation())
        };
        match (result, poisoned) {
            (Ok(()), false) => Self::Masked,
            (Ok(()), true) => Self::Poisoned("unnoticed".to_string()),
            (Err(error), false) => Self::Failed(name(&error)),
            (Err(error), true) => Self::Poisoned(name(&error)),
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Masked => "masked".to_string(),
            Self::Failed(what) => format!("error {what}"),
            Self::Poisoned(what) => format!("poison {what}"),
        }
    }
}

/// Runs one strike; `None` if the phase had no such call any more.
fn strike(
    phase: Phase,
    call: Call,
    file: Option<FileKind>,
    fault: Fault,
    n: u64,
) -> Option<Outcome> {
    let mut scene = Scene::before(phase);
    let mut rule = Rule::once(fault, call, n);
    rule.file = file;
    if fault.is_masked() {
        // Not one, but a storm from there on.
        rule = rule.again(1, 10_000);
    }
    let before = scene.disk().faults(|plan| plan.total_hits());
    scene.disk().arm(rule);
    let result = scene.play(phase);
    let hits = scene.disk().faults(|plan| {
        plan.disarm();
        plan.total_hits()
    });
    if hits == before {
        return None;
    }
    let cell = format!("{phase:?} {} {file:?} {} {n}", call.name(), fault.name());
    if let Err(error) = &result {
        check_error(&cell, call, error);
    }
    let outcome = Outcome::of(result, scene.is_poisoned());
    if fault.is_masked() {
        assert_eq!(outcome, Outcome::Masked, "{cell}");
    }
    scene.check_after(&cell, phase, outcome != Outcome::Masked);
    Some(outcome)
}

/// Calls that name no file.
fn is_of_directory(call: Call) -> bool {
    matches!(
        call,
        Call::List | Call::SyncDir | Call::CreateRoot | Call::Lock
    )
}

fn check_error(cell: &str, call: Call, error: &Error) {
    assert!(!error.operation().is_empty(), "{cell}: {error}");
    assert!(!error.remedy().is_empty(), "{cell}: {error}");
    assert!(
        is_of_directory(call) || error.file().is_some(),
        "{cell}: names no file: {error}"
    );
    assert!(error.cause().is_some(), "{cell}: names no cause: {error}");
    let absurd = [
        ErrorKind::NotAStore,
        ErrorKind::Corruption,
        ErrorKind::MissingFile,
    ];
    assert!(!absurd.contains(error.kind()), "{cell}: {error}");
}

#[test]
fn every_cell_has_its_outcome() {
    let mut table: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut strikes = 0;
    for phase in Phase::ALL {
        for fault in FAULTS {
            for call in fault.calls() {
                for file in FILES {
                    let of_directory = is_of_directory(*call);
                    if of_directory != file.is_none() {
                        continue;
                    }
                    for n in 0..STRIKES_MAX {
                        let Some(outcome) = strike(phase, *call, file, fault, n) else {
                            break;
                        };
                        let file = file.map_or("directory".to_string(), |kind| {
                            format!("{kind:?}").to_lowercase()
                        });
                        let cell = format!(
                            "{:<8} {:<10} {:<9} {:<13}",
                            format!("{phase:?}").to_lowercase(),
                            call.name(),
                            file,
                            fault.name()
                        );
                        table.entry(cell).or_default().insert(outcome.text());
                        strikes += 1;
                    }
                }
            }
        }
    }
    let mut text = String::new();
    for (cell, outcomes) in &table {
        let outcomes: Vec<_> = outcomes.iter().map(String::as_str).collect();
        let _ = writeln!(text, "{cell} {}", outcomes.join(" | "));
    }
    println!("{} cells, {strikes} strikes", table.len());
    assert!(
        table.len() >= 100 && strikes >= 400,
        "{} cells, {strikes} strikes",
        table.len()
    );
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/errors/table.txt");
    renew_or_compare(path, &text);
}

#[allow(
    clippy::disallowed_methods,
    reason = "a test that compares a file, and writes it anew on demand"
)]
fn renew_or_compare(path: &str, text: &str) {
    if std::env::var_os("SEALSTONE_RENEW").is_some() {
        std::fs::write(path, text).expect("writes the table");
    }
    let expected = std::fs::read_to_string(path).expect("the table is there");
    let differing = text
        .lines()
        .zip(expected.lines())
        .find(|(now, then)| now != then);
    assert_eq!(differing, None, "now, and as the table has it");
    assert_eq!(text.lines().count(), expected.lines().count(), "cells");
}
