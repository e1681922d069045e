//! The replays against the field's figures.

use std::time::Duration;

use sealstone_sim::choices::SmallRandom;
use sealstone_sim::command::timed;
use sealstone_sim::pool::gopool::GoPool;
use sealstone_sim::pool::policy::{Kind, Policy};
use sealstone_sim::pool::report::Report;
use sealstone_sim::pool::rules::{Counters, Reason, Rules};
use sealstone_sim::pool::tables::{slices, text};
use sealstone_sim::pool::trace::{Level, TrimKind};
use sealstone_sim::pool::verdict::{Cause, benchmark};
use sealstone_sim::pool::workload::Database;

use crate::{PLAIN, SMALL, outcome, policy, within};

/// The field's own replay had 7,981 and 456.
#[test]
fn the_base_row() {
    let base = outcome(&PLAIN[0], "cap128");
    let [build, merge] = slices(&base);
    println!(
        "overlapped {build} / {merge}, serial {:?}",
        slices(&outcome(&PLAIN[1], "cap128"))
    );
    within(build as f64, 7_981.0, 0.02, "8192");
    within(merge as f64, 456.0, 0.02, "16384");
    let cap = Reason::Cap as usize;
    assert_eq!(
        (base.counters.drops[cap], base.counters.misses[cap]),
        (0, 0)
    );
    within(
        base.counters.retained_bytes_max as f64,
        58.0 * 1048576.0,
        0.02,
        "peak",
    );
    assert_eq!(
        base.held_max,
        16 * 5 + 1 - 6,
        "an application's flush, six slices less by stealing"
    );
}

#[test]
fn serial_checkpoints_are_the_low_bracket() {
    let [build, merge] = slices(&outcome(&PLAIN[1], "cap128"));
    within(build as f64, 946.0, 0.02, "8192");
    within(merge as f64, 456.0, 0.02, "16384");
}

#[test]
fn the_cap_does_nothing_while_the_trim_is_on() {
    for trace in [&PLAIN[0], &SMALL[0]] {
        let fresh = |name| outcome(trace, name).counters.fresh_bytes as f64;
        let base = fresh("cap128");
        within(fresh("cap512"), base, 0.01, "cap 512");
        within(fresh("uncapped"), base, 0.01, "no cap");
        for name in ["trim-off", "exact"] {
            assert!(
                fresh(name) < 0.3 * base,
                "{name}: {} of {base}",
                fresh(name)
            );
        }
        assert!(
            fresh("streaming") < 0.001 * base,
            "streaming: {}",
            fresh("streaming")
        );
        within(fresh("oracle"), fresh("trim-off"), 0.01, "the oracle");
    }
}

#[test]
fn the_other_rows_of_the_fields_replay() {
    let plain = |name| outcome(&PLAIN[0], name);
    let [build, merge] = slices(&plain("no-stealing"));
    within(build as f64, 11_768.0, 0.02, "no stealing");
    assert_eq!(merge, 1);
    let [build, merge] = slices(&plain("trim-off"));
    assert!(build < 100 && merge <= 2, "trim off: {build} {merge}");
    let exact = plain("exact");
    within(slices(&exact)[0] as f64, 925.0, 0.02, "exact");
    within(
        exact.counters.fresh[6] as f64,
        7_056.0,
        0.02,
        "exact, slices of 1024",
    );
    assert_eq!(slices(&exact)[1], 16);
    assert_eq!(slices(&plain("streaming")), [0, 1]);
}

/// Each replay's rules are as told: what is granted for what is needed.
#[test]
fn granted_for_used() {
    for trace in [&PLAIN[0], &PLAIN[1]] {
        for name in ["cap128", "no-stealing", "trim-off"] {
            let granted = outcome(trace, name).granted_per_used();
            println!("{name}: {granted:.2}");
            assert!((8.3..=12.9).contains(&granted), "{name}: {granted}");
        }
    }
    for trace in [&PLAIN[0], &SMALL[0]] {
        let granted = outcome(trace, "sealstone").granted_per_used();
        println!("sealstone: {granted:.3}");
        assert!((1.0..=1.10).contains(&granted), "{granted}");
    }
}

#[test]
fn misses_are_the_trims() {
    let base = outcome(&PLAIN[0], "cap128").counters;
    let of = |reason: Reason| base.misses[reason as usize];
    assert_eq!(base.misses.iter().sum::<u64>(), base.fresh_total());
    assert!(of(Reason::Cold) < 100, "cold {}", of(Reason::Cold));
    assert_eq!(
        of(Reason::Stolen) + 1,
        base.fresh[10],
        "all merge slices but the first"
    );
    assert!(of(Reason::TrimCheckpoint) * 100 > 98 * base.fresh[9]);
    assert_eq!(base.regretted_total(), of(Reason::TrimCheckpoint));
}

/// The best of three: other work on the machine is not the report's time.
#[test]
fn a_report_takes_less_than_two_seconds() {
    let trace = &PLAIN[0];
    let mut least = Duration::MAX;
    for _ in 0..3 {
        let (report, took) = timed(|| {
            Report::new(trace.clone(), Some(&PLAIN[1]), "all").map(|report| text(&report))
        });
        assert!(report.is_ok());
        least = least.min(took);
    }
    let report = Report::new(trace.clone(), None, "all").unwrap();
    let (events, policies) = (report.demand.events, report.lines.len());
    println!("{events} events, {policies} policies: {least:?}");
    assert!(events >= 35_000 && policies >= 12);
    assert!(least <= Duration::from_secs(2), "{least:?}");
}

#[test]
fn the_verdict_is_not_the_cap() {
    let report = Report::new(PLAIN[0].clone(), None, "cap512").unwrap();
    assert_eq!(report.lines.len(), 2);
    assert_eq!(report.bench[0].binding().0, "cap");
    assert_eq!(report.base.binding().0, "trim");
    for verdict in &report.verdicts {
        assert!(verdict.shares[Cause::BenchmarkShape as usize].abs() < 0.01);
        assert!(matches!(verdict.class, 8192 | 16384), "{verdict:?}");
    }
    let causes: Vec<Cause> = report
        .verdicts
        .iter()
        .map(|verdict| verdict.cause)
        .collect();
    println!("{:?}", report.verdicts);
    assert_eq!(causes[0], Cause::DuplicateMaterialisation);
    let claim = benchmark(&report.bench[0], &report.base);
    assert_eq!(claim, Some(Cause::BenchmarkShape));
    assert!(report.verdicts[0].shares[Cause::PoolMiss as usize] > 0.9);
    let text = text(&report);
    assert!(text.contains("benchmark not representative"), "{text}");
    assert!(text.contains("92.44/  7.56"), "{text}");
}

/// A trace in which the cap does bind gets another verdict: there the benchmark is right.
#[test]
fn where_the_cap_binds_it_is_the_pool() {
    let report = Report::new(sealstone_sim::pool::bench::trace(16), None, "uncapped").unwrap();
    assert_eq!(report.verdicts[0].cause, Cause::PoolMiss);
    assert_eq!(benchmark(&report.bench[0], &report.base), None);
}

/// The cliffs: from 4 GiB on budgets are halved, from 8 GiB on nothing is kept, so that every get misses.
#[test]
fn foreign_heap_has_two_cliffs() {
    let report = Report::new(PLAIN[0].clone(), None, "cap128").unwrap();
    let at = |gib: f64| {
        let bytes = (gib * (1u64 << 30) as f64) as u64;
        let step = report.sweep.iter().find(|step| step.foreign_bytes == bytes);
        &step.unwrap().outcomes[0]
    };
    let level_ms = |gib| at(gib).level_ms();
    let fresh = |gib| at(gib).counters.fresh_bytes;
    assert_eq!((level_ms(1.0)[1], level_ms(1.0)[2]), (0, 0));
    assert!(level_ms(5.0)[1] > 100 * level_ms(5.0)[0].max(1) && level_ms(5.0)[2] == 0);
    assert!(level_ms(8.0)[2] > 100 * level_ms(8.0)[0].max(1));
    assert_ne!(fresh(3.0), fresh(5.0));
    assert_eq!(fresh(5.0), fresh(6.0));
    assert!(fresh(8.0) > fresh(3.0) && fresh(8.0) > fresh(5.0));
    let counters = &at(8.0).counters;
    assert!(
        counters.fresh_total() * 1000 > 998 * counters.gets,
        "{counters:?}"
    );
}

/// What the oracle keeps is what a pool that drops nothing needs, and no more.
#[test]
fn the_oracle_keeps_what_will_be_asked_for() {
    let keeping = Policy {
        kind: Kind::Shared,
        ..*policy("oracle")
    };
    for trace in [&PLAIN[0], &SMALL[0]] {
        let oracle = outcome(trace, "oracle").counters;
        let keeping = sealstone_sim::pool::replay::replay(trace, &keeping, 0).counters;
        assert_eq!(oracle.fresh_bytes, keeping.fresh_bytes);
        assert!(oracle.retained_bytes_max <= keeping.retained_bytes_max);
        assert_eq!(oracle.regretted_total(), 0);
        let kept = |counted: &Counters| counted.to_lease;
        assert!(
            kept(&oracle) < kept(&keeping),
            "it drops what nobody will ask for"
        );
    }
}

/// The books balance after every event, whatever happens in between.
#[test]
fn books_balance_under_events() {
    let mut random = SmallRandom::new(11);
    for name in ["cap128", "as-built", "trim16", "no-stealing"] {
        let mut pool = GoPool::new(Rules {
            budget_bytes: 40 << 20,
            cap: 12,
            ..policy(name).rules
        });
        let mut held = Vec::new();
        for step in 0..20_000 {
            let owner = Database::ALL[random.below(6) as usize];
            match random.below(40) {
                0 => pool.collect(),
                1 => pool.trim(TrimKind::Checkpoint, owner),
                2 => pool.trim(TrimKind::Flush, owner),
                3 => {
                    let levels = [Level::Normal, Level::High, Level::Critical];
                    pool.set_level(levels[random.below(3) as usize]);
                }
                4 => pool.trim(TrimKind::Pressure, owner),
                5..=21 if held.len() < 80 => {
                    let want = 1 << random.below(22);
                    held.push(pool.get(owner, want));
                }
                _ if !held.is_empty() => {
                    let place = random.below(held.len() as u64) as usize;
                    pool.put(owner, held.swap_remove(place));
                }
                _ => {}
            }
            pool.check()
                .unwrap_or_else(|wrong| panic!("{name}, step {step}: {wrong}"));
        }
        assert!(pool.counters.regretted_total() > 100, "{:?}", pool.counters);
    }
}
