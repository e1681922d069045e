//! Every check fails on a miniature that breaks its rule, and says that rule: the simulator's own test.
//!
//! For each of S1 to S22 one engine that is right but for one thing. Seeds are run until some fail; the
//! rule in question must be the one that is named most. (That a lost sequence is now and then seen as
//! a wrong value first is no fault.) `docs/testing.md` has the table.

use std::collections::BTreeMap;

use sealstone_sim::explore::{Limits, explore};
use sealstone_sim::life::RunLimits;
use sealstone_sim::mini::tree::{Bug, Tree};
use sealstone_sim::mini::{Mini, Plant, paged};
use sealstone_sim::plan::run_plan;
use sealstone_sim::script::standard;
use sealstone_sim::subject::Subject;
use sealstone_sim::sweep::{SweepOptions, run_seed, sweep};

/// The rule that the failures among these seeds name most, and all of them.
fn named<S: Subject>(bug: S::Options, seeds: u64, failures_max: usize) -> (&'static str, String) {
    let report = sweep::<S>(&SweepOptions {
        base: bug,
        seeds: 0..seeds,
        limits: RunLimits {
            steps_max: Some(150),
            ..RunLimits::default()
        },
        jobs: 1,
        failures_max,
    });
    let mut rules: BTreeMap<&'static str, u32> = BTreeMap::new();
    for (_, run) in &report.failures {
        let failure = run.failure.as_ref().expect("a failure");
        *rules.entry(failure.violation.rule).or_default() += 1;
    }
    let most = rules.iter().max_by_key(|(_, count)| **count);
    let most = most.map_or("none", |(rule, _)| *rule);
    let all = format!("{rules:?} in {} seeds", report.seeds);
    (most, all)
}

fn tree(bug: Bug, rule: &str) {
    let (most, all) = named::<Tree>(bug, 3000, 24);
    println!("{bug:?}: {all}");
    assert_eq!(most, rule, "{bug:?}: {all}");
}

fn mini(plant: Plant, rule: &str) {
    let (most, all) = named::<Mini>(plant, 6000, 8);
    println!("{plant:?}: {all}");
    assert_eq!(most, rule, "{plant:?}: {all}");
}

#[test]
fn s01_sequences_follow() {
    tree(Bug::SequencesSkipped, "S1");
}

#[test]
fn s02_acknowledged_is_durable() {
    mini(Plant::AckBeforeSync, "S2");
}

#[test]
fn s03_nothing_is_invented() {
    tree(Bug::CommitsInvented, "S3");
}

#[test]
fn s04_deleted_stays_deleted() {
    mini(Plant::DeletesResurrect, "S4");
}

#[test]
fn s05_recovered_is_durable() {
    let script = standard(&Mini::kinds(), 6);
    let report = explore::<Mini>(&Plant::RecoveryTrustsRead, &script, &Limits::default());
    let failures = report.expect("holds without a crash").failures;
    let rules: Vec<&str> = failures.iter().map(|f| f.violation.rule).collect();
    // Where the crash in recovery comes first, the same loss is one of what was acknowledged.
    let recovered = rules.iter().filter(|rule| **rule == "S5").count();
    assert!(2 * recovered > rules.len(), "{rules:?}");
}

#[test]
fn s06_stores_open() {
    let (most, all) = named::<paged::Paged>(paged::Bug::FieldsApart, 2000, 8);
    assert_eq!(most, "S6", "{all}");
}

#[test]
fn s07_reads_are_right() {
    tree(Bug::FilterSignExtends, "S7");
}

#[test]
fn s08_views_stay() {
    tree(Bug::CollectedUnderReaders, "S8");
}

#[test]
fn s09_files_are_known() {
    tree(Bug::FilesForgotten, "S9");
}

#[test]
fn s10_bytes_handed_out_stay() {
    let (most, all) = named::<Tree>(Bug::SlicesRecycled, 3000, 6);
    assert_eq!(most, "S10", "{all}");
}

#[test]
fn s11_flushes_install_what_was_sealed() {
    tree(Bug::FlushCutShort, "S11");
}

#[test]
fn s12_filters_keep_their_budget() {
    tree(Bug::FiltersKept, "S12");
}

#[test]
fn s13_memory_is_given_back() {
    tree(Bug::CursorsLeak, "S13");
}

#[test]
fn s14_descriptors_are_listed() {
    mini(Plant::LeaksDescriptors, "S14");
}

#[test]
fn s15_the_ledger_adds_up() {
    tree(Bug::MemoryReturnedTwice, "S15");
}

#[test]
fn s16_poison_stays() {
    mini(Plant::NotPoisoned, "S16");
}

#[test]
fn s17_errors_have_reasons() {
    tree(Bug::ErrorsInvented, "S17");
}

#[test]
fn s18_damage_is_not_returned() {
    let (most, all) = named::<Tree>(Bug::SegmentsBelieved, 8000, 1);
    println!("{all}");
    assert_eq!(most, "S18", "{all}");
}

#[test]
fn s19_jobs_end() {
    let (most, all) = named::<Tree>(Bug::MergesForEver, 200, 1);
    assert_eq!(most, "S19", "{all}");
}

#[test]
fn s20_lookups_have_a_price() {
    tree(Bug::ReadsPerKey, "S20");
}

#[test]
fn s21_equal_choices_are_equal_runs() {
    let rule = |bug| {
        let report = run_seed::<Tree>(0, &bug, &RunLimits::default());
        report.failure.map(|failure| failure.violation.rule)
    };
    assert_eq!(rule(Bug::ProcessesCounted), Some("S21"));
    assert_eq!(rule(Bug::None), None);
}

/// The plan that holds the golden bytes fails at them when one value differs.
#[test]
fn s22_bytes_of_a_fixed_plan() {
    let plan = include_str!("../../corpus/plans/0014-golden-image.plan");
    run_plan(plan).expect("holds");
    let other = plan.replacen("v{i} buffered", "w{i} buffered", 1);
    assert_ne!(plan, other);
    let failure = run_plan(&other).expect_err("other bytes go unnoticed");
    assert!(failure.text.contains("image-digest"), "{failure}");
}
