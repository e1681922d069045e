//! The gate: sealstone itself on 2,000 fixed seeds, and on as many that follow from the commit, so that
//! every commit looks where none looked before and a failure can still be repeated.

use std::ops::Range;

use sealstone_sim::life::RunLimits;
use sealstone_sim::store::SimStore;
use sealstone_sim::subject::Subject;
use sealstone_sim::sweep::{SweepOptions, describe, expected_hits, sweep};

const SEEDS: u64 = 2000;

fn pass(seeds: Range<u64>) {
    let options = SweepOptions {
        base: SimStore::options(),
        seeds,
        limits: RunLimits::default(),
        jobs: 2,
        failures_max: 1,
    };
    let report = sweep::<SimStore>(&options);
    if let Some((seed, failure)) = report.failures.first() {
        panic!("{}", describe(*seed, failure, None));
    }
    // No dead knob, and no empty runs.
    assert_eq!(report.dead(&expected_hits()), Vec::<String>::new());
    assert!(report.steps >= 150 * report.seeds, "{} steps", report.steps);
    assert!(2 * report.crashes >= 3 * report.seeds);
}

#[test]
fn fixed_seeds_pass() {
    pass(0..SEEDS);
}

#[test]
fn seeds_of_this_commit_pass() {
    let commit = env!("SEALSTONE_COMMIT");
    // Without a repository: other fixed seeds.
    let digits = commit.get(..8).unwrap_or_default();
    let first = u64::from_str_radix(digits, 16).unwrap_or(1) << 16;
    println!("commit {commit}: seeds {first}..{}", first + SEEDS);
    pass(first..first + SEEDS);
}
