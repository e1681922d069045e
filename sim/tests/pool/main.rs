//! The laboratory: the generator hits the node's figures, the replay gives the field's results, and the
//! verdicts follow.

mod corpus;
mod field;
mod generator;
mod replay;
mod sealstone;

use std::sync::LazyLock;

use sealstone_sim::pool::policy::{Policy, named};
use sealstone_sim::pool::replay::{Outcome, replay as run};
use sealstone_sim::pool::report::generate;
use sealstone_sim::pool::trace::Trace;
use sealstone_sim::pool::workload::Workload;

/// Generated once for all tests: overlapped and serial checkpoints.
static PLAIN: LazyLock<[Trace; 2]> = LazyLock::new(|| generate(Workload::PlainSend));
static SMALL: LazyLock<[Trace; 2]> = LazyLock::new(|| generate(Workload::SmallMultisend));

fn policy(name: &str) -> &'static Policy {
    named(name).unwrap_or_else(|| panic!("no policy {name}"))
}

fn outcome(trace: &Trace, name: &str) -> Outcome {
    run(trace, policy(name), 0)
}

/// Asserts that a value is within a share of what is expected.
#[track_caller]
fn within(value: f64, expected: f64, share: f64, what: &str) {
    let off = (value - expected) / expected;
    assert!(
        off.abs() <= share,
        "{what}: {value}, not {expected} ({:+.2}%)",
        100.0 * off
    );
}
