//! Descriptors with a thousand segments: a cap that covers the files costs no open after warm-up, a
//! smaller one at most one for each candidate record.

mod support;

use sealstone::env::Env;
use sealstone::{Batch, Durability, Fold, Keyspace, Options, Store};
use support::{Random, get, manual, mutable, open};

const SEGMENTS: u64 = 1000;
const RECORDS: u64 = 4;

fn small() -> Options {
    // One run a segment.
    manual()
        .fold(Fold::Off)
        .window_bytes(0)
        .write_region_bytes(1 << 20)
        .chunk_bytes(4096)
        .seal_records(RECORDS as u32)
        .seal_bytes(4096)
        .batch_bytes_max(4096)
        .output_buffer_bytes(4096)
}

fn key(segment: u64, record: u64) -> Vec<u8> {
    format!("key {segment} {record}").into_bytes()
}

/// A directory in memory with that store, closed.
fn thousand() -> Env {
    let env = Env::in_memory();
    let store = open(&env, small().filter_budget_bytes(0));
    let map = mutable(&store, "map");
    for segment in 0..SEGMENTS {
        let mut batch = Batch::new();
        for record in 0..RECORDS {
            batch.put(&map, key(segment, record), format!("value {segment}"));
        }
        store.write(batch, Durability::Buffered).expect("writes");
        store.drain().expect("drains");
    }
    assert_eq!(store.stats().segments, SEGMENTS);
    store.close().expect("closes");
    env
}

/// Opens and candidates of one lookup.
fn cost(store: &Store, map: &Keyspace, key: &[u8], there: bool) -> (u64, u64) {
    let before = store.stats();
    assert_eq!(get(map, key).is_some(), there);
    let after = store.stats();
    (
        after.opens - before.opens,
        after.candidates - before.candidates,
    )
}

/// Reads the tail of every segment.
fn warm_up(map: &Keyspace) {
    assert_eq!(get(map, "absent"), None);
}

#[test]
fn a_cap_that_covers_the_files_costs_no_open() {
    let env = thousand();
    for filters in [0, 1 << 20] {
        let options = small().filter_budget_bytes(filters);
        let store = open(&env, options.descriptors_max(SEGMENTS as u32));
        let map = mutable(&store, "map");
        store.drain().expect("loads filters");
        for segment in 0..SEGMENTS {
            cost(&store, &map, &key(segment, 0), true);
        }
        assert_eq!(store.audit().descriptors_open, SEGMENTS);
        let mut random = Random(1);
        for _ in 0..100 {
            let (segment, record) = (random.below(SEGMENTS), random.below(RECORDS));
            let (opens, candidates) = cost(&store, &map, &key(segment, record), true);
            assert!(candidates >= 1);
            assert_eq!(opens, 0, "segment {segment}");
            assert_eq!(cost(&store, &map, &key(segment, 9), false).0, 0);
        }
        store.close().expect("closes");
    }
}

#[test]
fn a_smaller_cap_costs_an_open_for_each_candidate_at_most() {
    const CAP: u64 = 64;
    let env = thousand();
    for filters in [0, 1 << 20] {
        let options = small().filter_budget_bytes(filters);
        let store = open(&env, options.descriptors_max(CAP as u32));
        let map = mutable(&store, "map");
        store.drain().expect("loads filters");
        warm_up(&map);
        let mut random = Random(2);
        let mut opens_seen = 0;
        for _ in 0..200 {
            let (segment, record) = (random.below(SEGMENTS), random.below(RECORDS));
            for (key, there) in [(key(segment, record), true), (key(segment, 9), false)] {
                let (opens, candidates) = cost(&store, &map, &key, there);
                assert!(
                    opens <= candidates,
                    "{opens} opens, {candidates} candidates"
                );
                opens_seen += opens;
            }
            assert!(store.audit().descriptors_open <= CAP);
        }
        assert!(opens_seen > 0, "the cap was never met");
        store.close().expect("closes");
    }
}

#[test]
fn few_files_in_use_stay_open_under_a_small_cap() {
    const CAP: u64 = 64;
    let env = thousand();
    let store = open(
        &env,
        small()
            .filter_budget_bytes(1 << 20)
            .descriptors_max(CAP as u32),
    );
    let map = mutable(&store, "map");
    store.drain().expect("loads filters");
    // Half of the cap is asked again and again; what else is asked comes and goes.
    let hot = CAP / 2;
    for segment in 0..hot {
        cost(&store, &map, &key(segment, 0), true);
    }
    let mut random = Random(3);
    let (mut lookups, mut reopened) = (0, 0);
    for round in 0..20 {
        for segment in 0..hot {
            let (opens, candidates) = cost(&store, &map, &key(segment, 1), true);
            // Filters that are wrong ask other files.
            reopened += u64::from(opens > 0 && candidates == 1);
            lookups += 1;
        }
        for _ in 0..4 {
            let segment = hot + random.below(SEGMENTS - hot);
            cost(&store, &map, &key(segment, round % RECORDS), true);
        }
    }
    assert!(
        reopened * 50 <= lookups,
        "{reopened} opens, {lookups} lookups"
    );
}
