//! The committed traces and tables: what the generator makes and the replays give, byte for byte.
//!
//! `SEALSTONE_RENEW=1 cargo test -p sealstone-sim --test pool corpus` writes them anew.

use std::path::PathBuf;

use sealstone_sim::pool::bench;
use sealstone_sim::pool::report::Report;
use sealstone_sim::pool::tables::text;
use sealstone_sim::pool::trace::Trace;

use crate::{PLAIN, SMALL};

#[allow(
    clippy::disallowed_methods,
    reason = "a test reads and writes the corpus"
)]
fn same(name: &str, expected: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../corpus/pool")
        .join(name);
    if std::env::var_os("SEALSTONE_RENEW").is_some() {
        std::fs::write(&path, expected).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap();
    let differs = found.lines().zip(expected.lines()).find(|(a, b)| a != b);
    let renew = "if that is meant, write corpus/pool anew as the head of this file says";
    assert_eq!(differs, None, "{name}: {renew}");
    assert!(found == expected, "{name} has another length: {renew}");
}

#[test]
fn traces_are_what_the_generator_makes() {
    same("plain-send.trace", &PLAIN[0].write());
    same("small-multisend.trace", &SMALL[0].write());
    same("micro-benchmark.trace", &bench::trace(16).write());
}

#[test]
fn tables_are_what_the_replays_give() {
    for (name, traces) in [("plain-send", &PLAIN), ("small-multisend", &SMALL)] {
        let report = Report::new(traces[0].clone(), Some(&traces[1]), "all").unwrap();
        same(&format!("{name}.table"), &text(&report));
    }
    let report = Report::new(bench::trace(16), None, "all").unwrap();
    same("micro-benchmark.table", &text(&report));
}

/// A trace that was written and read again gives the same report.
#[test]
fn a_trace_read_back_is_the_trace() {
    for traces in [&PLAIN, &SMALL] {
        for trace in traces.iter() {
            assert_eq!(Trace::read(&trace.write()).as_ref(), Ok(trace));
        }
    }
}
