//! Snapshots: what they see stays, what they keep in memory is little, and the end of their store.

mod support;

use std::time::Duration;

use sealstone::env::Env;
use sealstone::env::manual::ManualClock;
use sealstone::sync::Arc;
use sealstone::{Durability, ErrorKind, Job, Keyspace, Options, Snapshot, Store};
use support::{
    Map, Random, assert_books, flush, get, kind_of, manual, mutable, one_put, open, put, refused,
    run_all, write_once,
};

use Durability::Buffered;

fn world(options: Options) -> (Store, Keyspace) {
    let store = open(&Env::in_memory(), options);
    let map = mutable(&store, "map");
    (store, map)
}

fn seen(snapshot: &Snapshot, keyspace: &Keyspace, key: &str) -> Option<Vec<u8>> {
    let value = snapshot.get(keyspace, key).expect("reads");
    assert_eq!(
        snapshot.contains(keyspace, key).expect("reads"),
        value.is_some()
    );
    let mut out = b"old".to_vec();
    let found = snapshot.get_into(keyspace, key, &mut out).expect("reads");
    assert_eq!(found.then_some(out), value.as_ref().map(|v| v.to_vec()));
    value.map(|value| value.to_vec())
}

/// Compares all that a snapshot shows with what was there when it was taken.
fn assert_snapshot(snapshot: &Snapshot, keyspace: &Keyspace, model: &Map, keys: u64) {
    let forward: Vec<_> = snapshot
        .iter(keyspace)
        .expect("iterates")
        .map(|item| item.expect("an item"))
        .collect();
    let wanted: Vec<_> = model.iter().map(|(k, v)| (k.clone(), v.clone())).collect();
    assert_eq!(forward, wanted, "at {}", snapshot.sequence());
    let mut backward: Vec<_> = snapshot
        .iter(keyspace)
        .expect("iterates")
        .rev()
        .map(|item| item.expect("an item"))
        .collect();
    backward.reverse();
    assert_eq!(backward, wanted);
    for number in 0..keys {
        let key = format!("key {number}");
        let expected = model.get(key.as_bytes());
        assert_eq!(seen(snapshot, keyspace, &key).as_ref(), expected, "{key}");
    }
}

/// Sizes with which few records make a generation, and four can be pinned.
fn small() -> Options {
    manual()
        .write_region_bytes(2 << 20)
        .chunk_bytes(1024)
        .block_records(16)
        .seal_records(40)
        .seal_bytes(16 << 10)
        .batch_bytes_max(4096)
        .output_buffer_bytes(4096)
        .pinned_generations_max(4)
}

#[test]
fn stable_across_writes_seals_flushes_and_retirement() {
    const KEYS: u64 = 30;
    for drain_every in [1, 5, 1000] {
        let (store, map) = world(small());
        let mut random = Random(drain_every);
        let mut model = Map::new();
        let mut snapshots: Vec<(Snapshot, Map)> = Vec::new();
        for round in 0..300u64 {
            let key = format!("key {}", random.below(KEYS));
            if random.below(4) == 0 {
                map.delete(key.as_bytes(), Buffered).expect("deletes");
                model.remove(key.as_bytes());
            } else {
                let value = format!("{round}").repeat(random.below(20) as usize);
                put(&map, &key, &value);
                model.insert(key.into_bytes(), value.into_bytes());
            }
            if round % 29 == 0 {
                let snapshot = store.snapshot().expect("a snapshot");
                assert_eq!(snapshot.sequence(), round + 1);
                snapshots.push((snapshot, model.clone()));
                if snapshots.len() > 3 {
                    snapshots.remove(random.below(4) as usize);
                }
            }
            if round % drain_every == 0 {
                store.drain().expect("drains");
            }
            if round % 50 == 0 {
                for (snapshot, model) in &snapshots {
                    assert_snapshot(snapshot, &map, model, KEYS);
                }
            }
            assert_books(&store);
        }
        flush(&store);
        for (snapshot, model) in &snapshots {
            assert_snapshot(snapshot, &map, model, KEYS);
        }
        drop(snapshots);
        store.drain().expect("drains");
        let audit = store.audit();
        assert_eq!((audit.pins, audit.lingering), (Vec::new(), Vec::new()));
        assert_eq!(audit.memory.pinned_bytes + audit.memory.retiring_bytes, 0);
    }
}

#[test]
fn several_keys_of_one_version() {
    let (store, map) = world(manual());
    let once = write_once(&store, "once");
    put(&map, "a", "1");
    put(&once, "b", "1");
    let snapshot = store.snapshot().expect("a snapshot");
    put(&map, "a", "2");
    let keys: [(&Keyspace, &[u8]); 4] = [(&map, b"a"), (&once, b"b"), (&map, b"b"), (&map, b"a")];
    let old = snapshot.multi_get(&keys).expect("reads");
    let new = store.multi_get(&keys).expect("reads");
    let texts = |values: Vec<Option<sealstone::Value>>| -> Vec<_> {
        values.into_iter().map(|v| v.map(|v| v.to_vec())).collect()
    };
    let some = |text: &str| Some(text.as_bytes().to_vec());
    assert_eq!(texts(old), [some("1"), some("1"), None, some("1")]);
    assert_eq!(texts(new), [some("2"), some("1"), None, some("2")]);
    assert!(store.multi_get(&[]).expect("reads").is_empty());
}

#[test]
fn an_unshadowed_generation_frees_its_memory() {
    let (store, map) = world(small());
    put(&map, "before", "1");
    let snapshot = store.snapshot().expect("a snapshot");
    put(&map, "after", "2");
    let free = store.audit().memory.free_bytes;
    flush(&store);
    let audit = store.audit();
    assert_eq!(audit.lingering, [0; 0]);
    assert_eq!(audit.memory.pinned_bytes, 0);
    assert!(audit.memory.free_bytes > free);
    assert_eq!(audit.pins, [1], "although the snapshot is still there");
    // It reads the segment and passes over what is newer.
    assert_eq!(seen(&snapshot, &map, "before"), Some(b"1".to_vec()));
    assert_eq!(seen(&snapshot, &map, "after"), None);
    assert_eq!(snapshot.iter(&map).expect("iterates").count(), 1);
}

#[test]
fn only_a_bound_inside_a_generation_pins_it() {
    let (store, map) = world(small());
    let before = store.snapshot().expect("a snapshot");
    put(&map, "k", "1");
    put(&map, "k", "2");
    let last = store.snapshot().expect("a snapshot");
    flush(&store);
    assert_eq!(store.audit().lingering, [0; 0]);
    assert_eq!(seen(&before, &map, "k"), None);
    assert_eq!(seen(&last, &map, "k"), Some(b"2".to_vec()));
}

#[test]
fn shadows_of_another_kind_or_within_a_commit_pin_nothing() {
    let (store, map) = world(small());
    let once = write_once(&store, "once");
    put(&once, "k", "1");
    let iterator = once.iter().expect("iterates");
    put(&map, "k", "1");
    put(&map, "k", "2");
    flush(&store);
    assert_eq!(
        store.audit().lingering,
        [0; 0],
        "an iterator reads one kind"
    );
    drop(iterator);

    let snapshot = store.snapshot().expect("a snapshot");
    put(&map, "a", "1");
    let inside = store.snapshot().expect("a snapshot");
    let mut batch = sealstone::Batch::new();
    batch.put(&map, "b", "1").put(&map, "b", "2");
    store.write(batch, Buffered).expect("writes");
    flush(&store);
    assert_eq!(store.audit().lingering, [0; 0]);
    assert_eq!(seen(&inside, &map, "b"), None);
    assert_eq!(seen(&snapshot, &map, "a"), None);
}

#[test]
fn a_shadowed_generation_stays_until_its_pin_goes() {
    let (store, map) = world(small());
    put(&map, "k", "1");
    let snapshot = store.snapshot().expect("a snapshot");
    let clone = snapshot.clone();
    put(&map, "k", "2");
    flush(&store);
    let audit = store.audit();
    assert_eq!(audit.lingering.len(), 1);
    assert!(audit.memory.pinned_bytes > 0);
    assert_books(&store);
    let pin = store.stats().oldest_pin.expect("named");
    assert_eq!((pin.creator.as_str(), pin.sequence), ("snapshot", 1));
    assert_eq!(pin.bytes, audit.memory.pinned_bytes);
    assert_eq!(seen(&snapshot, &map, "k"), Some(b"1".to_vec()));
    assert_eq!(get(&map, "k"), Some(b"2".to_vec()));
    drop(snapshot);
    run_all(&store, Job::Retire);
    assert_eq!(seen(&clone, &map, "k"), Some(b"1".to_vec()));
    assert_eq!(store.audit().lingering.len(), 1, "the clone still needs it");
    drop(clone);
    assert_eq!(store.runnable(), [Job::Retire]);
    run_all(&store, Job::Retire);
    let audit = store.audit();
    assert_eq!((audit.lingering.len(), audit.memory.pinned_bytes), (0, 0));
}

/// The pinned ones, the one that was sealed last, and the one that was open when there were so many.
#[test]
fn pins_keep_two_generations_more_than_the_option_says_and_no_third() {
    for most in 0..4 {
        let store = open(&Env::in_memory(), small().pinned_generations_max(most));
        let map = mutable(&store, "map");
        let mut snapshots = Vec::new();
        let kind = loop {
            if let Err(error) = store.try_write(one_put(&map, b"k", b"old"), Buffered) {
                break error.kind().clone();
            }
            snapshots.push(store.snapshot().expect("a snapshot"));
            // In the same generation, so that it keeps the version that the snapshot sees.
            store
                .try_write(one_put(&map, b"k", b"new"), Buffered)
                .expect("writes");
            store.seal().expect("seals");
            store.drain().expect("drains");
        };
        assert!(
            matches!(
                kind,
                ErrorKind::Busy {
                    pinned_by: Some(_),
                    ..
                }
            ),
            "{kind:?}"
        );
        assert_eq!(store.audit().lingering.len(), most as usize + 2);
    }
}

#[test]
fn pinned_memory_is_bounded_and_busy_names_the_pin() {
    let clock = Arc::new(ManualClock::new());
    let env = Env {
        clock: clock.clone(),
        ..Env::in_memory()
    };
    let store = open(&env, small().pinned_generations_max(1));
    let map = mutable(&store, "map");
    let mut snapshots = Vec::new();
    let mut busy = None;
    for round in 0..10_000 {
        let value = vec![7; 1000];
        match store.try_write(one_put(&map, b"k", &value), Buffered) {
            Ok(_) if round % 2 == 0 => {
                clock.advance(Duration::from_secs(1));
                snapshots.push(store.snapshot().expect("a snapshot"));
            }
            Ok(_) => {}
            Err(error) => {
                let jobs = !store.runnable().is_empty();
                if !jobs {
                    busy = Some(error);
                    break;
                }
                store.drain().expect("drains");
            }
        }
        assert_books(&store);
    }
    let busy = busy.expect("the region is finite");
    let ErrorKind::Busy {
        needed,
        free,
        pinned_by: Some(pin),
    } = busy.kind()
    else {
        panic!("{busy}");
    };
    assert!(needed > free, "{busy}");
    assert_eq!(pin.creator, "snapshot");
    assert_eq!(pin.sequence, 1, "the oldest");
    assert_eq!(pin.age, Duration::from_secs(snapshots.len() as u64 - 1));
    assert!(
        busy.to_string().contains("snapshot at sequence 1"),
        "{busy}"
    );
    // Readers are never revoked.
    assert_eq!(seen(&snapshots[0], &map, "k").map(|v| v.len()), Some(1000));
    // `write` gives the same answer once no job is left, and goes on when the pins are gone.
    let error = refused(store.write(one_put(&map, b"k", &[7; 1000]), Buffered));
    assert!(matches!(error.kind(), ErrorKind::Busy { .. }), "{error}");
    drop(snapshots);
    store
        .write(one_put(&map, b"k", b"new"), Buffered)
        .expect("writes");
    assert_eq!(get(&map, "k"), Some(b"new".to_vec()));
    store.drain().expect("drains");
    assert_eq!(store.audit().memory.pinned_bytes, 0);
}

#[test]
fn a_write_once_generation_with_a_freed_key_is_shadowed_too() {
    let (store, _) = world(small());
    let once = write_once(&store, "once");
    put(&once, "k", "1");
    let one = store.snapshot().expect("a snapshot");
    once.delete("k", Buffered).expect("deletes");
    let none = store.snapshot().expect("a snapshot");
    put(&once, "k", "2");
    flush(&store);
    assert_eq!(store.audit().lingering.len(), 1);
    assert_eq!(seen(&one, &once, "k"), Some(b"1".to_vec()));
    assert_eq!(seen(&none, &once, "k"), None);
    assert_eq!(get(&once, "k"), Some(b"2".to_vec()));
}

#[test]
fn the_end_of_the_store() {
    let (store, map) = world(manual());
    put(&map, "k", "1");
    let snapshot = store.snapshot().expect("a snapshot");
    let value = snapshot.get(&map, "k").expect("reads").expect("present");
    let mut iterator = snapshot.iter(&map).expect("iterates");
    let again = store.reopen().expect("reopens");
    let map_again = mutable(&again, "map");
    assert_eq!(kind_of(snapshot.get(&map, "k")), ErrorKind::Closed);
    assert_eq!(kind_of(snapshot.get(&map_again, "k")), ErrorKind::Closed);
    assert_eq!(kind_of(snapshot.iter(&map).map(drop)), ErrorKind::Closed);
    assert_eq!(kind_of(store.snapshot().map(drop)), ErrorKind::Closed);
    let item = iterator.next().expect("one answer");
    assert_eq!(kind_of(item), ErrorKind::Closed);
    assert!(iterator.next().is_none() && iterator.next_back().is_none());
    // What was handed out belongs to the caller.
    assert_eq!(&*value, b"1");
    assert_eq!(snapshot.sequence(), 1);
    drop((store, map, snapshot, iterator));
    assert_eq!(get(&map_again, "k"), Some(b"1".to_vec()));
    assert_eq!(again.audit().pins, [0; 0]);
}
