//! Iterators: ranges, both directions, and what happens to the store meanwhile.

mod support;

use std::ops::Bound;

use sealstone::env::{Env, FileKind};
use sealstone::{Durability, ErrorKind, Fold, Iter, Job, Keyspace, Options, Store};
use support::hook::{BROKEN, Call, hooked};
use support::{Map, Random, flush, kind_of, manual, mutable, open, put, run_all, write_once};

use Durability::Buffered;

type Item = (Vec<u8>, Vec<u8>);

fn small() -> Options {
    // One run a segment.
    manual()
        .fold(Fold::Off)
        .write_region_bytes(1 << 20)
        .chunk_bytes(1024)
        .block_records(16)
        .seal_records(16)
        .seal_bytes(8192)
        .batch_bytes_max(8192)
        .output_buffer_bytes(512)
        .cursor_buffer_bytes(512)
        .key_fence_bytes(128)
        .scan_bytes(1 << 20)
        .pinned_generations_max(4)
}

/// A keyspace whose records lie in many segments, a sealed and an open generation, among others
/// before and behind it.
fn layered(seed: u64) -> (Store, Keyspace, Map) {
    let store = open(&Env::in_memory(), small());
    let (before, map, behind) = (
        mutable(&store, "1 before"),
        mutable(&store, "2 map"),
        mutable(&store, "3 behind"),
    );
    let once = write_once(&store, "once");
    let mut random = Random(seed);
    let mut model = Map::new();
    for round in 0..250u64 {
        let key = key_of(&mut random);
        match random.below(8) {
            0 => {
                map.delete(&key, Buffered).expect("deletes");
                model.remove(&key);
            }
            1 => drop(put(&before, &key, "before")),
            2 => drop(put(&behind, &key, "behind")),
            3 => drop(put(&once, &key, "once")),
            _ => {
                let length = random.below(300) as usize;
                let value = random.bytes(length);
                put(&map, &key, &value);
                model.insert(key, value);
            }
        }
        if round < 200 {
            store.drain().expect("drains");
        }
    }
    let audit = store.audit();
    assert!(
        audit.runs.len() > 10 && audit.generations.len() > 1,
        "{audit:?}"
    );
    (store, map, model)
}

/// Short keys over few bytes, so that many share prefixes and 0xFF occurs.
fn key_of(random: &mut Random) -> Vec<u8> {
    let length = random.below(5) as usize;
    (0..length)
        .map(|_| [0, 1, b'a', b'b', 0xFE, 0xFF][random.below(6) as usize])
        .collect()
}

fn bound_of(random: &mut Random) -> Bound<Vec<u8>> {
    match random.below(5) {
        0 => Bound::Unbounded,
        1 | 2 => Bound::Included(key_of(random)),
        _ => Bound::Excluded(key_of(random)),
    }
}

/// What a range should give; unlike the map's own, empty and reversed ones are fine.
fn expected(model: &Map, lower: &Bound<Vec<u8>>, upper: &Bound<Vec<u8>>) -> Vec<Item> {
    let above = |key: &Vec<u8>| match lower {
        Bound::Included(start) => key >= start,
        Bound::Excluded(start) => key > start,
        Bound::Unbounded => true,
    };
    let below = |key: &Vec<u8>| match upper {
        Bound::Included(end) => key <= end,
        Bound::Excluded(end) => key < end,
        Bound::Unbounded => true,
    };
    let inside = model.iter().filter(|(key, _)| above(key) && below(key));
    inside.map(|(k, v)| (k.clone(), v.clone())).collect()
}

/// Takes all items, from the ends that `choose` says, and puts them in order.
fn drain_both(mut iterator: Iter, mut choose: impl FnMut() -> bool) -> Vec<Item> {
    let (mut front, mut back) = (Vec::new(), Vec::new());
    loop {
        let (item, side) = match choose() {
            true => (iterator.next(), &mut front),
            false => (iterator.next_back(), &mut back),
        };
        match item {
            Some(item) => side.push(item.expect("an item")),
            None => break,
        }
    }
    // It is at its end on both sides.
    assert!(iterator.next().is_none() && iterator.next_back().is_none());
    front.extend(back.into_iter().rev());
    front
}

#[test]
fn every_range_from_both_ends() {
    let (_store, map, model) = layered(1);
    let mut random = Random(99);
    for round in 0..400 {
        let (lower, upper) = (bound_of(&mut random), bound_of(&mut random));
        let wanted = expected(&model, &lower, &upper);
        let range = (
            lower.as_ref().map(Vec::as_slice),
            upper.as_ref().map(Vec::as_slice),
        );
        let open = || map.range::<&[u8]>(range).expect("iterates");
        let what = format!("round {round}: {range:?}");
        assert_eq!(drain_both(open(), || true), wanted, "{what}");
        assert_eq!(drain_both(open(), || false), wanted, "{what}");
        let mixed = drain_both(open(), || random.below(2) == 0);
        assert_eq!(mixed, wanted, "{what}");
    }
}

#[test]
fn every_prefix() {
    let (_store, map, model) = layered(2);
    let mut random = Random(5);
    for _ in 0..200 {
        let prefix = key_of(&mut random);
        let wanted: Vec<_> = model
            .iter()
            .filter(|(key, _)| key.starts_with(&prefix))
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect();
        let open = || map.prefix(&prefix).expect("iterates");
        assert_eq!(drain_both(open(), || true), wanted, "{prefix:?}");
        assert_eq!(drain_both(open(), || false), wanted, "{prefix:?}");
    }
}

#[test]
fn empty_and_reversed_ranges_have_no_items() {
    let (_store, map, model) = layered(3);
    let middle = model.keys().nth(model.len() / 2).expect("keys").clone();
    let before = model.keys().nth(model.len() / 2 - 1).expect("keys").clone();
    let none = |range: (Bound<&[u8]>, Bound<&[u8]>)| {
        for forward in [true, false] {
            let iterator = map.range::<&[u8]>(range).expect("iterates");
            assert_eq!(drain_both(iterator, || forward), [], "{range:?}");
        }
    };
    let (low, high) = (before.as_slice(), middle.as_slice());
    none((Bound::Included(high), Bound::Included(low)));
    none((Bound::Excluded(high), Bound::Excluded(low)));
    none((Bound::Included(high), Bound::Excluded(high)));
    none((Bound::Excluded(high), Bound::Included(high)));
    none((Bound::Excluded(high), Bound::Excluded(high)));
    none((Bound::Excluded(low), Bound::Excluded(high)));
    none((Bound::Included(&[0xFF; 9]), Bound::Unbounded));
    none((Bound::Unbounded, Bound::Excluded(&[])));
    let one = map.range(middle.clone()..=middle).expect("iterates");
    assert_eq!(one.count(), 1);
    let store = open(&Env::in_memory(), manual());
    let empty = mutable(&store, "empty");
    assert_eq!(empty.iter().expect("iterates").count(), 0);
    assert!(empty.iter().expect("iterates").next_back().is_none());
}

/// Takes one item from each end in turn; between two items something happens to the store.
fn held(store: &Store, map: &Keyspace, model: &Map, mut meanwhile: impl FnMut(u64)) {
    let mut iterator = map.iter().expect("iterates");
    let mut wanted: std::collections::VecDeque<_> = model.iter().collect();
    let mut step = 0;
    while let Some((key, value)) = if step % 2 == 0 {
        wanted.pop_front()
    } else {
        wanted.pop_back()
    } {
        let item = if step % 2 == 0 {
            iterator.next()
        } else {
            iterator.next_back()
        };
        let item = item.expect("one more").expect("an item");
        assert_eq!((&item.0, &item.1), (key, value), "step {step}");
        meanwhile(step);
        step += 1;
    }
    assert!(iterator.next().is_none());
    drop(iterator);
    store.drain().expect("drains");
    assert_eq!(store.audit().scan_bytes, 0, "its memory is given back");
    assert_eq!(store.audit().pins, [0; 0]);
}

#[test]
fn held_across_flush_and_retirement() {
    for seed in 0..4 {
        let (store, map, model) = layered(seed);
        // Flushed and retired while the iterator is under way: it goes on in the segments.
        held(&store, &map, &model, |step| {
            if step == 5 {
                flush(&store);
                let audit = store.audit();
                assert!(audit.generations.is_empty());
            }
        });
        let (store, map, model) = layered(seed + 10);
        held(&store, &map, &model, |_| {
            if let Some(job) = store.runnable().first() {
                store.run(*job, 1).expect("runs");
            }
        });
    }
}

#[test]
fn held_across_writes_of_the_same_keys() {
    for seed in 0..4 {
        let (store, map, model) = layered(seed);
        let mut random = Random(seed);
        held(&store, &map, &model, |step| {
            let key = key_of(&mut random);
            match random.below(3) {
                0 => drop(map.delete(&key, Buffered).expect("deletes")),
                _ => drop(put(&map, &key, format!("new {step}"))),
            }
            if step % 9 == 0 {
                store.drain().expect("drains");
            }
        });
    }
}

#[test]
fn an_unstarted_iterator_sees_the_moment_of_its_making() {
    let store = open(&Env::in_memory(), manual());
    let map = mutable(&store, "map");
    put(&map, "k", "old");
    let mut iterator = map.iter().expect("iterates");
    put(&map, "k", "new");
    put(&map, "l", "new");
    flush(&store);
    assert_eq!(store.audit().lingering.len(), 1, "a shadow it may need");
    let item = iterator.next().expect("one").expect("an item");
    assert_eq!(item, (b"k".to_vec(), b"old".to_vec()));
    assert!(iterator.next().is_none());
    assert_eq!(store.stats().oldest_pin.expect("a pin").creator, "iterator");
    drop(iterator);
    run_all(&store, Job::Retire);
    assert_eq!(store.audit().lingering, [0; 0]);
}

#[test]
fn an_error_ends_it() {
    let (env, hook) = hooked(Env::in_memory());
    let store = open(&env, small());
    let map = mutable(&store, "map");
    for number in 0..64 {
        put(&map, format!("key {number:02}"), vec![7; 200]);
    }
    flush(&store);
    for forward in [true, false] {
        let mut iterator = map.iter().expect("iterates");
        let mut step = || match forward {
            true => iterator.next(),
            false => iterator.next_back(),
        };
        let mut good = 0;
        for _ in 0..5 {
            step().expect("one more").expect("an item");
            good += 1;
        }
        hook.set(|call, name| match (call, name.kind) {
            (Call::Read, FileKind::Segment) => Err(BROKEN),
            _ => Ok(()),
        });
        let error = loop {
            match step().expect("an error comes before the end") {
                Ok(_) => good += 1,
                Err(error) => break error,
            }
        };
        hook.clear();
        assert!(good < 64);
        assert_eq!(error.kind(), &ErrorKind::Io);
        assert!(
            error.file().is_some() && error.offset().is_some(),
            "{error}"
        );
        assert!(iterator.next().is_none() && iterator.next_back().is_none());
    }
    assert_eq!(
        map.iter().expect("iterates").count(),
        64,
        "the next is fine"
    );
}

#[test]
fn closed_once_then_the_end() {
    let (store, map, _) = layered(4);
    let mut started = map.iter().expect("iterates");
    started.next().expect("one").expect("an item");
    let mut fresh = map.iter().expect("iterates");
    store.close().expect("closes");
    for iterator in [&mut started, &mut fresh] {
        let item = iterator.next_back().expect("one answer");
        assert_eq!(kind_of(item), ErrorKind::Closed);
        assert!(iterator.next().is_none() && iterator.next_back().is_none());
    }
    assert_eq!(kind_of(map.iter().map(drop)), ErrorKind::Closed);
}

#[test]
fn scan_memory_is_bounded() {
    let (store, map, model) = layered(6);
    drop((store, map));
    let env = Env::in_memory();
    let store = open(&env, small().scan_bytes(16 << 10));
    let map = mutable(&store, "map");
    for (key, value) in &model {
        put(&map, key, value);
    }
    flush(&store);
    // Each holds its cursors' buffers from the first item on; where nothing is left, one is refused.
    let mut held = Vec::new();
    let refused = loop {
        let mut iterator = map.iter().expect("iterates");
        match iterator.next().expect("an answer") {
            Ok(_) => held.push(iterator),
            Err(error) => {
                assert!(iterator.next().is_none());
                break error;
            }
        }
        assert!(store.audit().scan_bytes <= 16 << 10);
        assert!(held.len() < 100);
    };
    assert!(
        matches!(refused.kind(), ErrorKind::Busy { .. }),
        "{refused}"
    );
    assert!(refused.to_string().contains("scan_bytes"), "{refused}");
    assert!(!held.is_empty());
    for mut iterator in held {
        let rest = iterator.by_ref().map(|item| item.expect("an item"));
        assert_eq!(rest.count(), model.len() - 1);
    }
    assert_eq!(store.audit().scan_bytes, 0);
}
