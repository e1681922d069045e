//! The layout answers right, and its counts are the report's.

use super::*;
use crate::keys::{Batch, Source};
use sealstone::env::Env;

const SEGMENT_RECORDS: u64 = 12_500;

/// Every `step`-th record of a range is looked up; returns reads a lookup.
fn reads(env: &Env, options: &GoOptions, source: &Source, range: (u64, u64), hit: bool) -> f64 {
    let (env, counters) = env.clone().counting();
    let store = GoStore::open(env, options, &[]).expect("opens");
    let before = counters.snapshot();
    let lookups = 3_000;
    let mut found = Vec::new();
    for lookup in 0..lookups {
        let number = range.0 + lookup * (range.1 - range.0) / lookups;
        let batch = &source.batches(number, 1, 1)[0];
        let (key, value) = batch.records().next().expect("a record");
        assert_eq!(store.get(key, &mut found).expect("answers"), hit);
        assert!(!hit || found == value);
    }
    (counters.snapshot() - before).total().reads as f64 / lookups as f64
}

fn options(segments: u64) -> GoOptions {
    GoOptions {
        segments,
        residency: Residency::Window,
        index: IndexMode::Read,
        files_max: 4_096,
    }
}

/// Published: reads a deep hit and a miss with the window's filters resident, and with all.
fn published_counts(env: &Env, segments: u64, window: [f64; 2], all: [f64; 2]) {
    let source = Source::new(1, 8);
    build(env, &source, segments, SEGMENT_RECORDS, (12, 3)).expect("builds");
    let sealed = segments * SEGMENT_RECORDS;
    for (residency, expected, within) in [
        (Residency::Window, window, 0.05),
        // The publication itself differs by 8 % from theory here.
        (Residency::All, all, 0.1),
    ] {
        let options = GoOptions {
            residency,
            ..options(segments)
        };
        for (range, hit, expected) in [
            ((0, sealed), true, expected[0]),
            ((sealed, sealed + 1_000_000), false, expected[1]),
        ] {
            let reads = reads(env, &options, &source, range, hit);
            assert!(
                (reads / expected - 1.0).abs() <= within,
                "{segments} segments, {residency:?}, hit {hit}: {reads} reads, published {expected}"
            );
        }
    }
}

#[test]
fn a_hundred_segments_cost_the_published_reads() {
    published_counts(&Env::in_memory(), 100, [58.4, 111.0], [17.1, 10.8]);
}

#[test]
#[ignore = "1.1 GB of files"]
fn a_thousand_segments_cost_the_published_reads() {
    let directory = tempfile::tempdir().expect("a directory");
    let env = Env::real(directory.path().join("store")).expect("an environment");
    published_counts(&env, 1_000, [689.8, 1_377.0], [81.4, 138.0]);
}

#[test]
fn variants_cost_other_reads_and_answer_the_same() {
    let env = Env::in_memory();
    let source = Source::new(2, 8);
    build(&env, &source, 100, 500, (12, 3)).expect("builds");
    let hits = |options: &GoOptions| reads(&env, options, &source, (0, 50_000), true);
    let cold = hits(&options(100));
    for index in [IndexMode::Mapped, IndexMode::Resident] {
        let all = GoOptions {
            residency: Residency::All,
            index,
            ..options(100)
        };
        // Only the value is read.
        assert_eq!(hits(&all), 1.0, "{index:?}");
    }
    let some = GoOptions {
        residency: Residency::Newest(40 * 4_096),
        ..options(100)
    };
    assert!(hits(&some) < cold);
    // Four files open at most, so lookups open more.
    let (tail, few) = (source.batches(50_000, 10, 10), options(100));
    let few = GoOptions {
        files_max: 4,
        ..few
    };
    let store = GoStore::open(env, &few, &tail).expect("opens");
    let mut value = Vec::new();
    for (key, expected) in tail.iter().flat_map(Batch::records) {
        assert!(store.get(key, &mut value).expect("answers"));
        assert_eq!(value, expected);
    }
    assert_eq!(store.opens(), 0);
    for batch in source.batches(0, 200, 1) {
        let (key, _) = batch.records().next().expect("a record");
        assert!(store.get(key, &mut value).expect("answers"));
    }
    assert!(store.opens() > 200, "{}", store.opens());
    assert_eq!(store.filter_bytes(), 21 * 4_096 + 21_000);
}

#[test]
fn the_window_starts_where_the_description_says() {
    for (segments, start) in [
        (10, 1),
        (39, 1),
        (40, 20),
        (100, 80),
        (119, 80),
        (1_000, 980),
    ] {
        assert_eq!(tier_start(segments), start);
    }
}
