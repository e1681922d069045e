//! Models of the table: a lookup beside one who installs, evicts, drops and fills in.
//!
//! Each model was seen to fail under a change of the code that it is about:
//! * `loom_a_lookup_beside_installs_and_evictions`: `hi` raised before the entries are stored; `lo` raised
//!   after the room is given; slots loaded Relaxed; `lo` not read again after the probe.
//! * `loom_a_lookup_beside_a_full_pair`: the mark raised after the slot is overwritten; marks not read.
//! * `loom_a_lookup_beside_a_fill`: `lo` lowered before the entries are stored.

use super::slot::SlotShape;
use super::*;
use crate::sync::Arc;
use crate::sync::loom_tests::explore;
use crate::types::KeyHash;

const KIND: KeyspaceKind = KeyspaceKind::Mutable;

/// The key that is looked up. In a table of two buckets every key has both.
const KEY: u64 = 1 << 40;

/// With their own fingerprints.
fn others(count: u64) -> impl Iterator<Item = u64> {
    (1..=count).map(|number| (number + 2) << 36)
}

fn entry(hash: u64, units: u64) -> PackedEntry {
    Entry::new(KeyHash(hash), units, 1, false).pack()
}

fn table(first: u64) -> Window {
    let shape = SlotShape::for_segments(1 << 20).narrow();
    let mut window = Window::with_shape(2, shape).expect("two buckets");
    window.start(first);
    window
}

fn install(window: &Window, generation: u64, hashes: impl Iterator<Item = u64>) {
    let entries: Vec<_> = hashes.map(|hash| entry(hash, 8 + generation)).collect();
    let fits = window.reserve(generation, entries.len() as u64, 4096);
    assert!(fits);
    window.insert(generation, KIND, &entries);
    window.publish(generation, true);
}

/// What a lookup may be told: every generation of `having` inside the trusted range is found, newest first.
/// Returns the newest found, 0 if there is none.
fn check(window: &Window, having: &[u64]) -> Option<usize> {
    let mut slots = Slots::default();
    let probe = window.probe(KeyHash(KEY), KIND, &mut slots)?;
    let expected: Vec<_> = having
        .iter()
        .copied()
        .filter(|generation| (probe.lo..probe.hi).contains(generation))
        .collect();
    let found: Vec<_> = probe.candidates().map(|(g, _)| g).collect();
    assert_eq!(found, expected, "{} .. {}", probe.lo, probe.hi);
    Some(found.first().copied().unwrap_or(0) as usize)
}

#[test]
fn loom_a_lookup_beside_installs_and_evictions() {
    explore("window: install and evict", 3, 3, |seen| {
        let window = Arc::new(table(1));
        install(&window, 1, [KEY].into_iter());
        install(&window, 2, others(11));
        let there = window.clone();
        // It needs the room of the first generation, and takes its slot.
        let writer = loom::thread::spawn(move || install(&there, 3, [KEY].into_iter()));
        let newest = check(&window, &[3, 1]);
        writer.join().expect("ends");
        check(&window, &[3]);
        seen.saw(newest.unwrap_or(0).div_ceil(2));
    });
}

#[test]
fn loom_a_lookup_beside_a_full_pair() {
    explore("window: a full pair", 3, 2, |seen| {
        let window = Arc::new(table(1));
        install(&window, 1, [KEY].into_iter());
        // All slots but one, more than the table would take by itself.
        let entries: Vec<_> = others(12).map(|hash| entry(hash, 8)).collect();
        window.insert(2, KIND, &entries);
        window.publish(2, true);
        let there = window.clone();
        let writer = loom::thread::spawn(move || {
            there.insert(3, KIND, &[entry(20 << 36, 8), entry(21 << 36, 8)]);
            there.publish(3, true);
        });
        let found = check(&window, &[1]);
        writer.join().expect("ends");
        assert_eq!(check(&window, &[]), Some(0), "only above the mark");
        seen.saw(found.unwrap_or(0));
    });
}

#[test]
fn loom_a_lookup_beside_a_fill() {
    explore("window: fill", 3, 2, |seen| {
        let window = Arc::new(table(2));
        install(&window, 2, others(1));
        let there = window.clone();
        let writer = loom::thread::spawn(move || {
            assert!(there.begin_fill(1, 1, 4096));
            assert!(there.fill(1, KIND, &[entry(KEY, 8)]));
            assert!(there.publish_fill(1));
        });
        let found = check(&window, &[1]);
        writer.join().expect("ends");
        assert_eq!(check(&window, &[1]), Some(1));
        seen.saw(found.unwrap_or(0));
    });
}
