//! Failing runs get small and stay the same failure; runs are told as plans that come out the same.

use sealstone_sim::choices::Choices;
use sealstone_sim::faults::Fault;
use sealstone_sim::life::{RunLimits, run};
use sealstone_sim::mini::{Mini, Plant};
use sealstone_sim::plan::run_plan;
use sealstone_sim::shrink::shrink;
use sealstone_sim::store::SimStore;
use sealstone_sim::subject::Subject;

#[test]
fn failures_get_small_and_keep_their_rule() {
    let limits = RunLimits::default();
    for plant in [Plant::AckBeforeSync, Plant::DeletesResurrect] {
        let failing = (0..4000)
            .map(|seed| run::<Mini>(Choices::seed(seed), &plant, &limits))
            .find(|report| report.failure.is_some())
            .expect("the plant is caught");
        let rule = failing.failure.as_ref().unwrap().violation.rule;
        let shrunk = shrink::<Mini>(failing.recording.clone(), &plant, &limits).unwrap();
        let left = shrunk.report.failure.as_ref().unwrap();
        assert_eq!(left.violation.rule, rule);
        let nonzero = |lists: &sealstone_sim::choices::Recording| {
            lists.lists.iter().flatten().filter(|v| **v != 0).count()
        };
        let (before, after) = (nonzero(&failing.recording), nonzero(&shrunk.recording));
        println!(
            "{plant:?}: {before} choices, then {after}, in {} runs",
            shrunk.runs
        );
        assert!(after <= 40 && after < before, "{before} {after}");
        assert!(shrunk.report.steps <= failing.steps);
        // Nothing of it hangs on the seed any more.
        let again = run::<Mini>(Choices::recorded(shrunk.recording), &plant, &limits);
        assert_eq!(again.digest, shrunk.report.digest);
    }
}

#[test]
fn a_run_that_holds_does_not_shrink() {
    let recording = Choices::seed(1).recording().clone();
    assert!(shrink::<Mini>(recording, &Plant::None, &RunLimits::default()).is_none());
}

/// From a failing seed to a plan that is kept: the machine's syncs do nothing, sealstone loses what it
/// acknowledged; the run gets small, is written as a plan, and the plan fails in the same way. On a drive
/// that tells the truth the same plan holds.
#[test]
fn a_failing_seed_becomes_a_plan_that_fails_alike() {
    let limits = RunLimits {
        lying: true,
        ..RunLimits::default()
    };
    let mut rules = std::collections::BTreeSet::new();
    let failing = (0..400)
        .map(|seed| run::<SimStore>(Choices::seed(seed), &SimStore::options(), &limits))
        .filter(|report| report.failure.is_some());
    for failing in failing.take(3) {
        let rule = failing.failure.as_ref().unwrap().violation.rule;
        let base = SimStore::options();
        let shrunk = shrink::<SimStore>(failing.recording.clone(), &base, &limits).unwrap();
        let telling = RunLimits {
            plan: true,
            ..limits
        };
        let small = run::<SimStore>(Choices::recorded(shrunk.recording), &base, &telling);
        assert_eq!(small.failure.as_ref().unwrap().violation.rule, rule);
        assert!(small.steps <= failing.steps);
        let text = small.plan_text();
        println!("{rule}: {} steps, then {}", failing.steps, small.steps);
        let failure = run_plan(&text).expect_err("the plan lost its point");
        let what = &small.failure.as_ref().unwrap().violation.what;
        assert_eq!(failure.rule, Some(rule), "{what}: {failure}\n{text}");
        let truthful = text.replace("disk lying", "disk truthful");
        assert_ne!(text, truthful);
        if let Err(failure) = run_plan(&truthful) {
            panic!("without the plant: {failure}\n{truthful}");
        }
        rules.insert(rule);
    }
    assert!(rules.contains("S2"), "{rules:?}");
}

#[test]
fn runs_told_as_plans_hold_as_plans() {
    let limits = RunLimits {
        plan: true,
        ..RunLimits::default()
    };
    let (mut told, mut steps) = (0, 0);
    for seed in 0..150 {
        let report = run::<SimStore>(Choices::seed(seed), &SimStore::options(), &limits);
        assert!(report.failure.is_none(), "seed {seed}");
        // Damage ends a run early, and a plan does not know that.
        let damages = |hit: &String| {
            let fault = Fault::ALL.into_iter().find(|f| hit.starts_with(f.name()));
            hit == "rot" || fault.is_some_and(Fault::damages)
        };
        if report.hits.keys().any(damages) {
            continue;
        }
        let text = report.plan.join("\n") + "\nexpect model\n";
        match run_plan(&text) {
            Ok(plan) => {
                told += 1;
                steps += plan.steps;
            }
            Err(failure) => panic!("seed {seed}: {failure}"),
        }
    }
    assert!(
        told > 100 && steps > 100 * told,
        "{told} plans, {steps} steps"
    );
}
