//! The seed sweep, on the miniature engine: the right one passes, each wrong one is caught.

use sealstone_sim::choices::Choices;
use sealstone_sim::disk::Strength;
use sealstone_sim::faults::Fault;
use sealstone_sim::life::{RunLimits, run};
use sealstone_sim::mini::{Mini, Plant};
use sealstone_sim::sweep::{SweepOptions, describe, sweep};

fn options(base: Plant, seeds: u64, strength: Option<Strength>) -> SweepOptions<Plant> {
    let limits = RunLimits {
        strength,
        ..RunLimits::default()
    };
    SweepOptions {
        base,
        seeds: 0..seeds,
        limits,
        jobs: 2,
        failures_max: 1,
    }
}

#[test]
fn the_right_miniature_passes() {
    for strength in [Strength::Honest, Strength::Adversarial] {
        let report = sweep::<Mini>(&options(Plant::None, 4000, Some(strength)));
        if let Some((seed, failure)) = report.failures.first() {
            panic!("{}", describe(*seed, failure, Some(strength)));
        }
        // No dead knob, and no empty runs.
        let faults: Vec<String> = Fault::ALL.iter().map(|f| f.name().to_string()).collect();
        assert_eq!(report.dead(&faults), Vec::<String>::new());
        assert!(report.steps > 100 * report.seeds && report.crashes > report.seeds);
    }
}

#[test]
fn each_wrong_miniature_is_caught() {
    let caught = |plant: &Plant| {
        let report = sweep::<Mini>(&options(*plant, 20_000, None));
        let first = report.failures.first();
        println!(
            "{plant:?}: {:?}",
            first.map(|(seed, run)| (seed, run.failure.as_ref()))
        );
        first.is_some()
    };
    let missed: Vec<_> = Plant::ALL.iter().filter(|plant| !caught(plant)).collect();
    assert!(missed.is_empty(), "{missed:?}");
}

#[test]
fn a_recording_replays_a_run_and_nothing_is_the_simplest_run() {
    let limits = RunLimits::default();
    for seed in 0..30 {
        let first = run::<Mini>(Choices::seed(seed), &Plant::None, &limits);
        let again = run::<Mini>(
            Choices::recorded(first.recording.clone()),
            &Plant::None,
            &limits,
        );
        assert_eq!(
            (first.digest, first.steps),
            (again.digest, again.steps),
            "seed {seed}"
        );
    }
    let simplest = run::<Mini>(Choices::bytes(&[]), &Plant::None, &limits);
    assert!(simplest.failure.is_none() && simplest.crashes == 0 && simplest.steps <= 2);
    assert_eq!(
        simplest.hits.keys().filter(|hit| hit.contains('-')).count(),
        0
    );
}

#[test]
fn equal_seeds_give_equal_sweeps_on_any_number_of_threads() {
    let digest = |jobs| {
        let options = SweepOptions {
            jobs,
            ..options(Plant::None, 300, None)
        };
        sweep::<Mini>(&options).digest
    };
    assert_eq!(digest(1), digest(2));
}
