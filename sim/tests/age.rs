//! The ageing run, small: every answer right, every gate held, and every gate able to fail.

use sealstone_sim::age::limits::LIMITS;
use sealstone_sim::age::{Report, Settings, Unwatched, run};
use sealstone_sim::heap::Counted;

#[global_allocator]
static ALLOCATOR: Counted<std::alloc::System> = Counted(std::alloc::System);

const WRITES: u64 = 100_000;

fn age(settings: &Settings) -> Report {
    run(settings, &mut Unwatched).unwrap_or_else(|wrong| panic!("{wrong}"))
}

fn missed(report: &Report) -> Vec<&'static str> {
    let missed = report.missed();
    missed.iter().map(|gate| gate.limit.name).collect()
}

#[test]
fn a_day_of_a_small_store_keeps_its_counts() {
    let report = age(&Settings {
        writes: WRITES,
        ..Settings::default()
    });
    for gate in &report.gates {
        println!(
            "{:<24} {:.3} of {}",
            gate.limit.name, gate.measured, gate.limit.most
        );
    }
    assert_eq!(missed(&report), [""; 0]);
    assert_eq!(report.hours.len(), 24);
    // Not an empty run: everything that it is made of happened.
    for (what, count) in &report.happened {
        assert!(
            *count > 0 || *what == "views given up",
            "{what} never happened"
        );
    }
    let writes: u64 = report.hours.iter().map(|hour| hour.writes).sum();
    let stalls: u64 = report.hours.iter().map(|hour| hour.stalls).sum();
    let openings: u64 = report.hours.iter().map(|hour| hour.openings).sum();
    assert_eq!((writes, openings), (WRITES, 11));
    assert!(stalls > 0);
}

#[test]
fn a_real_directory_ages_alike() {
    let directory = tempfile::tempdir().expect("a directory");
    let settings = Settings {
        reopenings: 5,
        directory: Some(directory.path().join("store")),
        ..small(20_000)
    };
    assert_eq!(missed(&age(&settings)), [""; 0]);
}

/// Few writes make small segments: what each of them takes counts for more.
fn small(writes: u64) -> Settings {
    let mut settings = Settings {
        writes,
        ..Settings::default()
    };
    for limit in &mut settings.limits {
        if limit.name.ends_with("-amplification") || limit.name == "heap-a-segment" {
            limit.most *= 2.0;
        }
    }
    settings
}

#[test]
fn every_gate_can_fail() {
    let mut settings = small(10_000);
    for limit in &mut settings.limits {
        limit.most = f64::NEG_INFINITY;
    }
    let all: Vec<_> = LIMITS.iter().map(|limit| limit.name).collect();
    assert_eq!(missed(&age(&settings)), all);
}

#[test]
fn equal_seeds_give_equal_figures() {
    let figures = |seed| {
        let report = age(&Settings {
            seed,
            ..small(10_000)
        });
        let hours = report.hours.iter().enumerate();
        hours.map(|(n, hour)| hour.json(n)).collect::<Vec<_>>()
    };
    // First, because a thread's first lookup allocates its buffers.
    let other = figures(4);
    let one = figures(3);
    assert_eq!(one, figures(3));
    assert_ne!(one, other);
}

#[test]
fn a_disk_that_forgets_is_noticed() {
    let settings = Settings {
        sync_is_a_lie: true,
        ..small(10_000)
    };
    let wrong = run(&settings, &mut Unwatched).map(|report| report.happened);
    let wrong = wrong.expect_err("a loss of power took what was synced");
    assert!(
        wrong.contains("PowerLoss") || wrong.contains("opening"),
        "{wrong}"
    );
}
