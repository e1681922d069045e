//! The exhaustive crash run, on the miniature engine and on sealstone.

use sealstone_sim::command::timed;
use sealstone_sim::disk::DiskOptions;
use sealstone_sim::explore::{Limits, Report, explore};
use sealstone_sim::mini::{Mini, Plant};
use sealstone_sim::script::{Step, standard};
use sealstone_sim::store::SimStore;
use sealstone_sim::subject::Subject;

fn run<S: Subject>(options: &S::Options, script: &[Step], limits: &Limits) -> Report {
    explore::<S>(options, script, limits).unwrap_or_else(|violation| panic!("{violation}"))
}

fn mini_script() -> Vec<Step> {
    standard(&Mini::kinds(), 12)
}

#[test]
fn the_right_miniature_passes() {
    let report = run::<Mini>(&Plant::None, &mini_script(), &Limits::default());
    println!("{report:?}");
    assert!(report.mutations >= 200 && report.crash_points == 3 * report.mutations);
    assert!(
        report.recovery_points > 10 * report.crash_points,
        "{report:?}"
    );
    assert!(report.failures.is_empty(), "{:#?}", report.failures);
}

#[test]
fn each_wrong_miniature_that_needs_no_fault_is_caught() {
    for (plant, rules) in [
        (Plant::AckBeforeSync, &["S2"][..]),
        (Plant::NoSyncDirAfterCreate, &["S2", "S5", "S6"]),
        (Plant::TornTailAccepted, &["S1", "S3", "S6", "S7"]),
        (Plant::RecoveryTrustsRead, &["S5"]),
        (Plant::UnlinkBeforeSyncDir, &["S2", "S6"]),
        (Plant::RenameBeforeSync, &["S5", "S6"]),
        (Plant::DeletesResurrect, &["S4"]),
    ] {
        let report = explore::<Mini>(&plant, &mini_script(), &Limits::default());
        let caught: Vec<&str> = match &report {
            Ok(report) => report.failures.iter().map(|f| f.violation.rule).collect(),
            Err(violation) => vec![violation.rule],
        };
        assert!(!caught.is_empty(), "{plant:?} was not caught");
        assert!(
            caught.iter().any(|rule| rules.contains(rule)),
            "{plant:?}: {caught:?}"
        );
    }
}

/// The gate: sealstone itself, every crash of the script and every crash of every recovery.
#[test]
fn sealstone_survives_every_crash() {
    let script = standard(&SimStore::kinds(), 8);
    let limits = Limits {
        subsets: 1,
        opens_max: 60_000,
        ..Limits::default()
    };
    let (report, took) = timed(|| run::<SimStore>(&SimStore::options(), &script, &limits));
    println!("{}", report.line(took));
    assert!(report.failures.is_empty(), "{:#?}", report.failures);
    assert!(report.mutations >= 200, "{}", report.mutations);
}

/// The checks bite on the engine too: on a drive whose syncs do nothing, acknowledged commits go.
#[test]
fn a_lying_drive_is_noticed() {
    let script = standard(&SimStore::kinds(), 3);
    let disk = DiskOptions {
        sync_is_a_lie: true,
        ..DiskOptions::default()
    };
    let limits = Limits {
        subsets: 1,
        in_recovery: 0,
        disk,
        ..Limits::default()
    };
    let report = run::<SimStore>(&SimStore::options(), &script, &limits);
    let rules: Vec<&str> = report.failures.iter().map(|f| f.violation.rule).collect();
    assert!(rules.contains(&"S2"), "{rules:?}");
}
