use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::types::{HASH_BITS, KeyHash};

const KINDS: [KeyspaceKind; 2] = KeyspaceKind::ALL;

fn entry(hash: u64, units: u64) -> PackedEntry {
    Entry::new(
        KeyHash(hash),
        units,
        (units % 63) as u8,
        units.is_multiple_of(5),
    )
    .pack()
}

/// Spread as the keyed hash spreads keys.
fn hash_of(key: u64) -> u64 {
    key.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - HASH_BITS)
}

fn table(buckets: usize) -> Window {
    let shape = SlotShape::for_segments(1 << 20).narrow();
    Window::with_shape(buckets, shape).expect("two buckets")
}

/// One generation of one kind.
fn install(window: &Window, generation: u64, entries: &[PackedEntry]) {
    let fits = window.reserve(generation, entries.len() as u64, 4096);
    if fits {
        window.insert(generation, KINDS[0], entries);
    }
    window.publish(generation, fits);
}

fn found(window: &Window, hash: u64) -> Option<Vec<(u64, u64)>> {
    let mut slots = Slots::default();
    let probe = window.probe(KeyHash(hash), KINDS[0], &mut slots)?;
    let all = probe.candidates();
    Some(
        all.map(|(generation, entry)| (generation, entry.location()))
            .collect(),
    )
}

#[test]
fn what_is_installed_is_found_newest_first() {
    let mut window = table(64);
    window.start(7);
    assert_eq!(found(&window, hash_of(1)), None, "nothing is covered");
    install(&window, 7, &[entry(hash_of(1), 8), entry(hash_of(2), 12)]);
    install(&window, 8, &[entry(hash_of(1), 9), entry(hash_of(1), 30)]);
    assert_eq!(
        found(&window, hash_of(1)),
        Some(vec![(8, 9), (8, 30), (7, 8)])
    );
    assert_eq!(found(&window, hash_of(2)), Some(vec![(7, 12)]));
    assert_eq!(found(&window, hash_of(3)), Some(Vec::new()));
    let mut slots = Slots::default();
    let other_kind = window
        .probe(KeyHash(hash_of(1)), KINDS[1], &mut slots)
        .expect("covered");
    assert_eq!(other_kind.candidates().count(), 0);
    assert_eq!((other_kind.lo, other_kind.hi), (7, 9));
    assert_eq!(window.stats().entries, 4);
}

#[test]
fn nothing_is_found_before_it_is_published() {
    let mut window = table(64);
    window.start(0);
    install(&window, 0, &[entry(hash_of(1), 8)]);
    assert!(window.reserve(1, 1, 4096));
    window.insert(1, KINDS[0], &[entry(hash_of(1), 9)]);
    window.insert(1, KINDS[0], &[entry(hash_of(1), 9)]);
    assert_eq!(found(&window, hash_of(1)), Some(vec![(0, 8)]));
    window.publish(1, true);
    assert_eq!(found(&window, hash_of(1)), Some(vec![(1, 9), (0, 8)]));
    assert_eq!(window.stats().entries, 2, "stored twice, there once");
}

#[test]
fn what_does_not_fit_is_not_covered() {
    let mut window = table(4);
    window.start(0);
    install(&window, 0, &[entry(hash_of(1), 8)]);
    let many: Vec<_> = (0..window.entries_max() + 1)
        .map(|key| entry(hash_of(key), key + 8))
        .collect();
    install(&window, 1, &many);
    assert_eq!(found(&window, hash_of(1)), None);
    assert_eq!(window.stats().generations, (2, 2));
    install(&window, 2, &[entry(hash_of(1), 8)]);
    assert_eq!(found(&window, hash_of(1)), Some(vec![(2, 8)]));
    assert!(!window.reserve(3, 1, 1 << 40), "an offset that no slot has");
    assert!(!window.begin_fill(1, 1, 4096), "one has left");
}

#[test]
fn older_generations_are_filled_in_from_the_newest_on() {
    let mut window = Window::new(4096, 1 << 20).expect("a table");
    window.start(5);
    assert_eq!(window.fills_below(), Some(5));
    assert!(window.begin_fill(4, 2, 4096));
    assert!(window.fill(4, KINDS[0], &[entry(hash_of(1), 8)]));
    assert_eq!(found(&window, hash_of(1)), None, "half of it");
    // A flush comes between.
    install(&window, 5, &[entry(hash_of(1), 9)]);
    assert_eq!(found(&window, hash_of(1)), Some(vec![(5, 9)]));
    assert!(window.fill(4, KINDS[0], &[entry(hash_of(1), 10)]));
    assert!(window.publish_fill(4));
    assert_eq!(
        found(&window, hash_of(1)),
        Some(vec![(5, 9), (4, 8), (4, 10)])
    );
    // Generation 3 has no segment.
    assert!(window.begin_fill(2, 1, 4096) && window.fill(2, KINDS[0], &[entry(hash_of(2), 8)]));
    assert!(window.publish_fill(2));
    assert_eq!(found(&window, hash_of(2)), Some(vec![(2, 8)]));
    assert_eq!(window.stats().entries, 4);
    assert!(window.begin_fill(1, 3, 4096) && window.fill(1, KINDS[0], &[entry(hash_of(3), 8)]));
    window.end_filling();
    assert_eq!(window.stats().entries, 4);
    assert!(!window.publish_fill(1) && window.fills_below().is_none());
    assert_eq!(window.stats().generations, (2, 6));
}

#[test]
fn a_fill_ends_where_a_newer_generation_needs_the_room() {
    let mut window = table(4);
    window.start(5);
    let most = window.entries_max();
    assert!(window.begin_fill(4, most, 4096));
    let half: Vec<_> = (0..most / 2)
        .map(|key| entry(hash_of(key), key + 8))
        .collect();
    assert!(window.fill(4, KINDS[0], &half));
    let new: Vec<_> = (0..most)
        .map(|key| entry(hash_of(key + 100), key + 8))
        .collect();
    install(&window, 5, &new);
    assert!(!window.fill(4, KINDS[0], &half) && !window.publish_fill(4));
    assert_eq!(window.stats().generations, (5, 6));
    let known = (0..most).filter(|key| found(&window, hash_of(key + 100)).is_some());
    assert!(known.count() as u64 > most / 2);
}

/// What a step of the model does.
#[derive(Clone, Debug)]
enum Step {
    /// Entries of both kinds: keys of a few, and whether the second kind is there, too.
    Install(Vec<u8>, bool),
    /// A generation that was there before, of so many entries.
    Fill(Vec<u8>),
}

fn step() -> impl Strategy<Value = Step> {
    let keys = || prop::collection::vec(any::<u8>(), 1..24);
    prop_oneof![
        5 => (keys(), any::<bool>()).prop_map(|(keys, both)| Step::Install(keys, both)),
        1 => keys().prop_map(Step::Fill),
    ]
}

/// All entries ever, by kind and hash: generation and location.
type Model = BTreeMap<(u8, u64), Vec<(u64, u64)>>;

/// For what it trusts, the table finds what the model has, all of it.
fn assert_matches(window: &Window, model: &Model, hashes: u64) -> u64 {
    let mut trusted = 0;
    let none = Vec::new();
    for kind in KINDS {
        for key in 0..hashes {
            let hash = hash_of(key);
            let mut slots = Slots::default();
            let Some(probe) = window.probe(KeyHash(hash), kind, &mut slots) else {
                continue;
            };
            trusted += 1;
            let all = model.get(&(kind.code(), hash)).unwrap_or(&none).iter();
            let range = probe.lo..probe.hi;
            let mut expected: Vec<_> = all.filter(|(g, _)| range.contains(g)).copied().collect();
            expected.sort_by_key(|(generation, units)| (!generation, *units));
            let got = probe
                .candidates()
                .map(|(generation, entry)| (generation, entry.location()));
            // Fingerprints of so few keys differ, or share no bucket.
            assert_eq!(got.collect::<Vec<_>>(), expected, "key {key}, {range:?}");
        }
    }
    trusted
}

proptest! {
    /// Marks, full pairs, evictions, generation numbers that wrap, fills: never a wrong "absent", and never a
    /// slot that names something else.
    #[test]
    fn the_model(
        buckets in 2usize..12,
        keys in 1u64..80,
        steps in prop::collection::vec(step(), 1..80),
    ) {
        let mut window = table(buckets);
        let (mut next, mut below) = (100, 100);
        window.start(next);
        let mut model = Model::new();
        let mut units = 8;
        for step in steps {
            let mut make = |keys_of: &[u8], kind: KeyspaceKind, generation: u64| {
                let entries: Vec<_> = keys_of.iter().map(|key| {
                    units += 4;
                    let hash = hash_of(u64::from(*key) % keys);
                    let versions = model.entry((kind.code(), hash)).or_default();
                    versions.push((generation, units));
                    entry(hash, units)
                }).collect();
                entries
            };
            match step {
                Step::Install(keys, both) => {
                    let mut complete = true;
                    for kind in KINDS.into_iter().take(1 + usize::from(both)) {
                        let entries = make(&keys, kind, next);
                        let fits = window.reserve(next, entries.len() as u64, 4096);
                        if fits {
                            window.insert(next, kind, &entries);
                        }
                        complete &= fits;
                    }
                    window.publish(next, complete);
                    next += 1;
                }
                Step::Fill(keys) => {
                    below -= 1;
                    let entries = make(&keys, KINDS[1], below);
                    if window.begin_fill(below, entries.len() as u64, 4096) {
                        window.fill(below, KINDS[1], &entries);
                        window.publish_fill(below);
                    } else {
                        // None below can come any more.
                        prop_assert_eq!(window.fills_below(), None);
                    }
                }
            }
            assert_matches(&window, &model, keys);
            let stats = window.stats();
            prop_assert!(stats.entries <= window.entries_max());
            prop_assert!(stats.generations.1 - stats.generations.0 <= 4);
        }
    }
}

/// How many of the newest entries a full table still answers for.
#[test]
fn most_of_a_full_table_is_trusted() {
    let mut window = Window::new(1 << 20, 1 << 20).expect("a table");
    window.start(0);
    let each = 500;
    let generations = 3 * window.entries_max() / each;
    for generation in 0..generations {
        let keys = generation * each..(generation + 1) * each;
        let entries: Vec<_> = keys
            .map(|key| entry(hash_of(key), 8 + key % 1000))
            .collect();
        install(&window, generation, &entries);
    }
    let (lo, hi) = window.stats().generations;
    let held = (lo * each..hi * each).filter(|key| {
        let found = found(&window, hash_of(*key)).unwrap_or_default();
        found.contains(&(key / each, 8 + key % 1000))
    });
    let (held, all) = (held.count() as u64, (hi - lo) * each);
    println!(
        "{held} of {all} entries are found, {} dropped ever",
        window.stats().dropped
    );
    assert!(held * 100 >= all * 90, "{held} of {all}");
    assert!(all >= window.entries_max() - each);
}

/// How long an entry and a probe take: `cargo test --release -p sealstone --lib window_times -- --ignored
/// --nocapture`.
#[test]
#[ignore = "a measurement"]
#[allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "it measures time"
)]
fn window_times() {
    for mib in [1, 8, 64] {
        let mut window = Window::new(mib << 20, 4 << 20).expect("a table");
        window.start(0);
        let each = 12_500.min(window.entries_max() / 8);
        let (mut generation, mut inserting) = (0, 0);
        // Filled twice, so that the second time all are full.
        let rounds = 2 * window.entries_max() / each;
        while generation < rounds {
            let keys = generation * each..(generation + 1) * each;
            let mut entries: Vec<_> = keys
                .map(|key| entry(hash_of(key), 8 + key % 1000))
                .collect();
            entries.sort_unstable();
            assert!(window.reserve(generation, each, 4096));
            let start = std::time::Instant::now();
            window.insert(generation, KINDS[0], &entries);
            if generation >= rounds / 2 {
                inserting += start.elapsed().as_nanos() as u64;
            }
            window.publish(generation, true);
            generation += 1;
        }
        let newest = (generation - 1) * each;
        let lookups = 2_000_000;
        let probes = |base: u64| {
            let start = std::time::Instant::now();
            let mut found = 0;
            let mut key = 1_u64;
            for _ in 0..lookups {
                key = key
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(found | 1);
                let hash = hash_of(base + (key >> 33) % newest);
                let mut slots = Slots::default();
                let probe = window.probe(KeyHash(hash), KINDS[0], &mut slots);
                found += probe.map_or(0, |probe| probe.candidates().count() as u64);
            }
            (start.elapsed().as_nanos() as f64 / lookups as f64, found)
        };
        let (hit, found) = probes(newest - newest / 3);
        let (miss, wrong) = probes(1 << 50);
        println!(
            "{mib:>3} MiB: {:.1} ns an entry, {hit:.1} ns a dependent probe that finds ({found} in {lookups}), \
             {miss:.1} ns one that does not ({wrong})",
            inserting as f64 / ((rounds - rounds / 2) * each) as f64,
        );
    }
}
