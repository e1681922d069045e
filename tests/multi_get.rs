//! Several keys at once: answers, errors and counts of one lookup after the other.

mod support;

use proptest::prelude::*;
use sealstone::env::{Env, FileKind};
use sealstone::{Durability, Fold, Keyspace, Options, ReadMode, Store};
use support::{Map, Random, flush, manual, mutable, names_of, open, patch_file, put, write_once};

fn options() -> Options {
    manual()
        .write_region_bytes(16 << 20)
        .seal_records(4096)
        .batch_bytes_max(1 << 20)
        .fold(Fold::Runs(3))
        .run_part_records(60)
}

fn key(number: u64) -> Vec<u8> {
    format!("key {number}").into_bytes()
}

/// Rounds of new, overwritten and deleted keys, each but the last in segments; values from nothing to above the
/// size classes.
fn fill(keyspace: &Keyspace, store: &Store, rounds: u64, model: &mut Map) {
    let mut random = Random(rounds);
    for round in 0..rounds {
        for _ in 0..40 {
            let key = key(random.below(300));
            if random.below(6) == 0 {
                keyspace
                    .delete(&key[..], Durability::Buffered)
                    .expect("deletes");
                model.remove(&key);
                continue;
            }
            let length = match random.below(30) {
                0 => 70_000,
                1 => 0,
                _ => random.below(200),
            };
            let value = random.bytes(length as usize);
            put(keyspace, &key, &value);
            model.insert(key, value);
        }
        if round + 1 < rounds {
            flush(store);
        }
    }
}

/// Lookups, reads, bytes, candidates, false candidates, filter tests, window hits.
fn costs(store: &Store) -> [u64; 7] {
    let stats = store.stats();
    [
        stats.lookups,
        stats.reads,
        stats.read_bytes,
        stats.candidates,
        stats.false_candidates,
        stats.filter_tests,
        stats.window_hits,
    ]
}

fn since<const N: usize>(after: [u64; N], before: [u64; N]) -> [u64; N] {
    std::array::from_fn(|place| after[place] - before[place])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn many_keys_are_as_many_lookups(
        rounds in 1u64..9,
        window in any::<bool>(),
        filters in any::<bool>(),
        hash_bits in prop_oneof![Just(46u8), Just(8)],
        mapped in any::<bool>(),
        asked in proptest::collection::vec((any::<bool>(), 0u64..330), 0..200),
    ) {
        let (env, counters) = Env::in_memory().counting();
        let mode = if mapped { ReadMode::Mmap } else { ReadMode::Pread };
        let options = options()
            .hash_bits(hash_bits)
            .window_bytes(if window { 1 << 16 } else { 0 })
            .filter_budget_bytes(if filters { 1 << 20 } else { 0 })
            .read_mode(mode);
        let store = open(&env, options);
        let (map, once) = (mutable(&store, "map"), write_once(&store, "once"));
        let mut model = Map::new();
        fill(&map, &store, rounds, &mut model);
        put(&once, "key 1", "first");
        flush(&store);
        put(&once, "key 2", "second");
        let keys: Vec<Vec<u8>> = asked.iter().map(|(_, number)| key(*number)).collect();
        let keyspace = |(in_map, _): &(bool, u64)| if *in_map { &map } else { &once };
        let pairs: Vec<_> = asked.iter().map(keyspace).zip(keys.iter().map(Vec::as_slice)).collect();
        let snapshot = store.snapshot().expect("a snapshot");
        // Files opened and tails read.
        snapshot.multi_get(&pairs).expect("reads");
        let before = costs(&store);
        let single: Vec<_> = pairs
            .iter()
            .map(|(keyspace, key)| snapshot.get(keyspace, key).expect("reads"))
            .collect();
        let between = (costs(&store), counters.snapshot());
        let several = snapshot.multi_get(&pairs).expect("reads");
        let (after, seen) = (costs(&store), (counters.snapshot() - between.1).total());
        for (place, (single, several)) in single.iter().zip(&several).enumerate() {
            prop_assert_eq!(single.as_deref(), several.as_deref());
            if asked[place].0 {
                prop_assert_eq!(several.as_deref(), model.get(&keys[place]).map(Vec::as_slice));
            }
        }
        prop_assert_eq!(since(after, between.0), since(between.0, before));
        prop_assert_eq!([seen.reads, seen.read_bytes], [after[1] - between.0[1], after[2] - between.0[2]]);
    }
}

#[test]
fn a_group_without_filters_is_bounded_and_right() {
    let env = Env::in_memory();
    let options = options()
        .fold(Fold::Off)
        .window_bytes(0)
        .filter_budget_bytes(0);
    let store = open(&env, options);
    let map = mutable(&store, "map");
    let mut model = Map::new();
    fill(&map, &store, 30, &mut model);
    let keys: Vec<_> = (0..400).map(key).collect();
    let pairs: Vec<_> = keys.iter().map(|key| (&map, key.as_slice())).collect();
    let values = store.multi_get(&pairs).expect("reads");
    for (key, value) in keys.iter().zip(values) {
        assert_eq!(value.as_deref(), model.get(key).map(Vec::as_slice));
    }
}

#[test]
fn the_error_is_that_of_the_first_key_that_has_one() {
    let env = Env::in_memory();
    let store = open(&env, options().window_bytes(0));
    let map = mutable(&store, "map");
    let keys: Vec<_> = (0..100).map(key).collect();
    for (number, key) in keys.iter().enumerate() {
        put(&map, key, vec![number as u8; 100]);
    }
    flush(&store);
    let name = names_of(&env, FileKind::Segment)[0];
    // In the middle of the records.
    for offset in (4096..9000).step_by(64) {
        patch_file(&env, name, offset, b"#");
    }
    let single: Vec<_> = keys.iter().map(|key| map.get(key)).collect();
    let damaged = single.iter().filter(|answer| answer.is_err()).count();
    assert!((1..100).contains(&damaged), "{damaged} keys are damaged");
    let pairs: Vec<_> = keys.iter().map(|key| (&map, key.as_slice())).collect();
    for from in [0, 10, 50] {
        let several = store.multi_get(&pairs[from..]);
        match single[from..]
            .iter()
            .find_map(|answer| answer.as_ref().err())
        {
            Some(first) => {
                let error = several.expect_err("damage");
                assert_eq!(
                    (error.kind(), error.offset()),
                    (first.kind(), first.offset())
                );
            }
            None => assert_eq!(several.expect("reads").len(), 100 - from),
        }
    }
    let long = vec![7; 70_000];
    let missing = store
        .multi_get(&[(&map, &long)])
        .expect("too long to be there");
    assert!(missing[0].is_none());
}
