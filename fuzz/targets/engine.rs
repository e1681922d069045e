//! The whole engine: bytes are the choices of the simulator, which runs lives of a store on a disk that
//! fails and checks every rule after every step.

use crate::support::{Seen, target};
use sealstone_sim::choices::Choices;
use sealstone_sim::life::{RunLimits, run};
use sealstone_sim::store::SimStore;
use sealstone_sim::subject::Subject;

/// Short lives: a fuzzer learns more from many.
const STEPS_MAX: u32 = 48;

fn engine(bytes: &[u8], seen: &Seen) {
    let limits = RunLimits {
        steps_max: Some(STEPS_MAX),
        ..RunLimits::default()
    };
    let live = |limits| run::<SimStore>(Choices::bytes(bytes), &SimStore::options(), limits);
    let report = live(&limits);
    if let Some(failure) = &report.failure {
        // Again, with the last steps told.
        let told = live(&RunLimits {
            history: true,
            ..limits
        });
        let history = told.failure.map(|failure| failure.history.join("\n"));
        panic!(
            "{} at step {}\n{}\n{}",
            failure.violation,
            failure.step,
            report.swarm,
            history.unwrap_or_default()
        );
    }
    if report.steps >= 20 {
        seen.hit("long runs");
    }
    if report.crashes > 0 {
        seen.hit("runs with a crash");
    }
    for what in report.hits.keys() {
        seen.hit(what.split('-').next().unwrap_or(what));
    }
}

target!("engine", engine, inputs 600, bytes 2048, seen [
    ("long runs", 100),
    ("runs with a crash", 100),
    ("write", 200),
    ("snapshot", 30),
    ("iterator", 50),
    ("install", 100),
]);
