//! Batches: order, limits, closures, atomic visibility.

mod support;

use sealstone::env::Env;
use sealstone::{Batch, Durability, ErrorKind, Keyspace, Options, Store};
use support::{
    Map, assert_books, assert_content, content, files, flush, get, kind_of, manual, mutable, open,
    put, refused, write_once,
};

use Durability::{Buffered, Synced};

/// Bytes of a frame's header in the log, and of a record's.
const FRAME_HEADER_BYTES: u64 = 40;
const RECORD_HEADER_BYTES: usize = 16;

fn world(options: Options) -> (Env, Store, Keyspace) {
    let env = Env::in_memory();
    let store = open(&env, options);
    let map = mutable(&store, "map");
    (env, store, map)
}

/// Asserts that a batch is refused with this kind and leaves nothing behind.
fn assert_refused(env: &Env, store: &Store, batch: Batch<'_>, kind: &ErrorKind) {
    let (before, bytes) = (store.audit(), files(env));
    assert_eq!(&kind_of(store.write(batch, Synced)), kind);
    assert_eq!(store.audit(), before);
    assert_eq!(files(env), bytes);
    assert_books(store);
}

fn too_large(needed: u64, limit: u64) -> ErrorKind {
    ErrorKind::TooLarge { needed, limit }
}

#[test]
fn the_last_operation_on_a_key_counts() {
    let (_, store, map) = world(manual());
    let mut batch = Batch::new();
    for number in 0..100 {
        batch.put(&map, "k", format!("{number}"));
    }
    batch.put(&map, "gone", "value").delete(&map, "gone");
    batch.delete(&map, "back").put(&map, "back", "again");
    assert_eq!(batch.len(), 104);
    assert_eq!(store.write(batch, Buffered).expect("writes"), 1);
    assert_eq!(get(&map, "k"), Some(b"99".to_vec()));
    assert_eq!(get(&map, "gone"), None);
    assert_eq!(get(&map, "back"), Some(b"again".to_vec()));
    assert_eq!(store.stats().commit_records, 3, "one record a key");
    flush(&store);
    assert_eq!(get(&map, "k"), Some(b"99".to_vec()));
    assert_eq!(content(&map).len(), 2);
}

#[test]
fn keyspaces_do_not_mix() {
    let (_, store, map) = world(manual());
    let (other, once) = (mutable(&store, "other"), write_once(&store, "once"));
    let mut batch = Batch::new();
    batch
        .put(&map, "k", "1")
        .put(&other, "k", "2")
        .put(&once, "k", "3")
        .delete(&other, "x");
    store.write(batch, Buffered).expect("writes");
    for flushed in [false, true] {
        if flushed {
            flush(&store);
        }
        for (keyspace, value) in [(&map, "1"), (&other, "2"), (&once, "3")] {
            let model = Map::from([(b"k".to_vec(), value.into())]);
            assert_content(keyspace, &model);
        }
    }
}

#[test]
fn empty_things() {
    let (env, store, map) = world(manual());
    let bytes = files(&env);
    assert!(Batch::new().is_empty());
    assert_eq!(store.write(Batch::new(), Synced).expect("nothing"), 0);
    assert_eq!((store.sequence(), files(&env)), (0, bytes));
    put(&map, "", "the empty key");
    put(&map, "the empty value", "");
    let once = write_once(&store, "once");
    put(&once, "", "");
    put(&once, "", "");
    let model = Map::from([
        (Vec::new(), b"the empty key".to_vec()),
        (b"the empty value".to_vec(), Vec::new()),
    ]);
    for flushed in [false, true] {
        if flushed {
            flush(&store);
        }
        assert_content(&map, &model);
        assert_content(&once, &Map::from([(Vec::new(), Vec::new())]));
        assert_eq!(
            kind_of(once.put("", "x", Buffered)),
            ErrorKind::Conflict,
            "an empty value is a value"
        );
    }
    map.delete("", Buffered).expect("deletes");
    assert_eq!(get(&map, ""), None);
    assert!(map.contains("the empty value").expect("reads"));
}

#[test]
fn records_limit() {
    let (env, store, map) = world(manual().batch_records_max(5));
    let batch = |count: u32| {
        let mut batch = Batch::new();
        for number in 0..count {
            batch.put(&map, number.to_be_bytes(), "value");
        }
        batch
    };
    store.write(batch(5), Buffered).expect("at the limit");
    assert_refused(&env, &store, batch(6), &too_large(6, 5));
}

#[test]
fn bytes_limit() {
    let limit = 10_000;
    let (env, store, map) = world(manual().batch_bytes_max(limit));
    let room = limit as usize - FRAME_HEADER_BYTES as usize - RECORD_HEADER_BYTES - 3;
    let batch = |value: usize| {
        let mut batch = Batch::new();
        batch.put(&map, "key", vec![7; value]);
        batch
    };
    assert_eq!(batch(room).byte_len() + FRAME_HEADER_BYTES, limit);
    store.write(batch(room), Buffered).expect("at the limit");
    assert_eq!(get(&map, "key").map(|value| value.len()), Some(room));
    let above = too_large(limit + 8, limit);
    assert_refused(&env, &store, batch(room + 1), &above);
    let detail = refused(store.write(batch(room + 1), Buffered)).to_string();
    assert!(detail.contains("batch_bytes_max"), "{detail}");
}

#[test]
fn key_limit() {
    let (env, store, map) = world(manual());
    let longest = vec![b'k'; 65_535];
    put(&map, &longest, "value");
    let mut batch = Batch::new();
    batch.put(&map, vec![b'k'; 65_536], "value");
    assert_refused(&env, &store, batch, &too_large(65_536, 65_535));
    assert_eq!(get(&map, vec![b'k'; 65_536]), None);
    flush(&store);
    assert_eq!(get(&map, &longest), Some(b"value".to_vec()));
    assert_content(&map, &Map::from([(longest, b"value".to_vec())]));

    // A chunk holds the longest key behind its record header.
    let (env, store, map) = world(manual().chunk_bytes(1024));
    let longest = vec![b'k'; 1024 - RECORD_HEADER_BYTES];
    put(&map, &longest, "value");
    assert_eq!(get(&map, &longest), Some(b"value".to_vec()));
    let mut batch = Batch::new();
    batch.put(&map, vec![b'k'; 1009], "value");
    assert_refused(&env, &store, batch, &too_large(1009, 1008));
}

#[test]
fn absurd_lengths_allocate_nothing() {
    let (env, store, map) = world(manual());
    for len in [usize::MAX, usize::MAX - 64, 1 << 62, 1 << 40, 1 << 33] {
        let mut batch = Batch::new();
        batch.put_with(&map, "key", len, |_| panic!("must not run"));
        batch.put_with(&map, "another", len, |_| panic!("must not run"));
        let (before, bytes) = (store.audit(), files(&env));
        let kind = kind_of(store.write(batch, Buffered));
        assert!(matches!(kind, ErrorKind::TooLarge { .. }), "{kind:?}");
        assert_eq!((store.audit(), files(&env)), (before, bytes));
    }
}

#[test]
fn closures_fill_fail_and_panic() {
    let (env, store, map) = world(manual());
    let source = vec![1, 2, 3];
    let mut batch = Batch::new();
    batch.put_with(&map, "filled", 3, |out| {
        assert_eq!(out, [0; 3]);
        out.copy_from_slice(&source);
        Ok(())
    });
    batch.put_with(&map, "left alone", 2, |_| Ok(()));
    batch.put_with(&map, "nothing", 0, |out| {
        assert!(out.is_empty());
        Ok(())
    });
    store.write(batch, Buffered).expect("writes");
    assert_eq!(get(&map, "filled"), Some(source));
    assert_eq!(get(&map, "left alone"), Some(vec![0, 0]));
    assert_eq!(get(&map, "nothing"), Some(Vec::new()));

    let mut batch = Batch::new();
    batch
        .put(&map, "before", "value")
        .put_with(&map, "k", 4, |_| Err("no such source".into()));
    let error = refused(store.submit(batch, Buffered).map(drop));
    assert_eq!(error.kind(), &ErrorKind::Refused);
    assert!(error.to_string().contains("no such source"), "{error}");

    let mut batch = Batch::new();
    batch
        .put(&map, "before", "value")
        .put_with(&map, "k", 4, |_| panic!("a caller's panic"));
    assert_refused(&env, &store, batch, &ErrorKind::Refused);
    assert_eq!(get(&map, "before"), None);
    put(&map, "life", "goes on");
    assert_eq!(store.sequence(), 2);
}

#[test]
fn handles_of_another_store_are_refused() {
    let (_, first, map) = world(manual());
    let (env, second, own) = world(manual());
    let foreign = |keyspace: &Keyspace| {
        let mut batch = Batch::new();
        batch.put(&own, "k", "value").put(keyspace, "k", "value");
        assert_refused(&env, &second, batch, &ErrorKind::InvalidArgument);
        let snapshot = second.snapshot().expect("a snapshot");
        let got = snapshot.get(keyspace, "k");
        assert_eq!(kind_of(got), ErrorKind::InvalidArgument);
        let got = snapshot.iter(keyspace).map(drop);
        assert_eq!(kind_of(got), ErrorKind::InvalidArgument);
        let got = second.multi_get(&[(keyspace, b"k")]);
        assert_eq!(kind_of(got), ErrorKind::InvalidArgument);
    };
    foreign(&map);
    // Nor of an earlier opening of the same store.
    let second = first.reopen().expect("reopens");
    let mut batch = Batch::new();
    batch.put(&map, "k", "value");
    let kind = kind_of(second.write(batch, Buffered));
    assert_eq!(kind, ErrorKind::InvalidArgument);
    assert_eq!(kind_of(map.put("k", "v", Buffered)), ErrorKind::Closed);
}

#[test]
fn frames_larger_than_chunks() {
    let options = manual()
        .chunk_bytes(256)
        .seal_records(64)
        .seal_bytes(64 << 10)
        .batch_bytes_max(64 << 10)
        .write_region_bytes(2 << 20);
    let (_, store, map) = world(options);
    let mut model = Map::new();
    let mut random = support::Random(3);
    for round in 0..60 {
        let mut batch = Batch::new();
        for _ in 0..random.below(6) {
            let key = format!("key {}", random.below(40)).into_bytes();
            let length = [10, 200, 256, 300, 5000][random.below(5) as usize];
            let value = random.bytes(length);
            batch.put(&map, key.clone(), value.clone());
            model.insert(key, value);
        }
        store.write(batch, Buffered).expect("writes");
        assert_books(&store);
        if round % 8 == 7 {
            assert_content(&map, &model);
            store.drain().expect("drains");
        }
    }
    assert_content(&map, &model);
    let store = store.reopen().expect("reopens");
    assert_content(&mutable(&store, "map"), &model);
    assert!(store.stats().segments > 2);
}

#[test]
fn a_batch_above_the_seal_limit_fills_a_generation_alone() {
    let options = manual().seal_records(4).batch_records_max(20);
    let (_, store, map) = world(options);
    put(&map, "before", "value");
    let mut batch = Batch::new();
    for number in 0..20u32 {
        batch.put(&map, number.to_be_bytes(), "value");
    }
    store.write(batch, Buffered).expect("writes");
    put(&map, "after", "value");
    assert_eq!(store.stats().seals, 2);
    flush(&store);
    let records: Vec<_> = store.audit().runs.iter().map(|run| run.records).collect();
    assert_eq!(records, [1, 20, 1], "newest first");
    assert_eq!(content(&map).len(), 22);
}

#[test]
fn seals_come_before_the_batch_that_would_pass_and_behind_the_one_that_reaches() {
    let (_, store, map) = world(manual().seal_records(4));
    let write = |first: u32, count: u32| {
        let mut batch = Batch::new();
        for number in first..first + count {
            batch.put(&map, number.to_be_bytes(), "value");
        }
        store.write(batch, Buffered).expect("writes");
        store.stats().seals
    };
    assert_eq!(write(0, 3), 0);
    assert_eq!(write(3, 2), 1, "3 + 2 would pass: sealed before");
    assert_eq!(write(5, 2), 2, "2 + 2 reach it: sealed behind");
    assert_eq!(write(7, 4), 3);
    store.seal().expect("seals");
    assert_eq!(store.stats().seals, 3, "an empty generation is not sealed");
    assert_eq!(write(11, 1), 3);
    flush(&store);
    let records: Vec<_> = store.audit().runs.iter().map(|run| run.records).collect();
    assert_eq!(records, [1, 4, 4, 3]);
}

#[test]
fn a_batch_becomes_visible_at_once() {
    let (_, store, map) = world(manual());
    put(&map, "a", "1");
    let mut batch = Batch::new();
    batch.put(&map, "a", "2").put(&map, "b", "2");
    let ticket = store.submit(batch, Buffered).expect("submits");
    assert_eq!(content(&map).len(), 1);
    assert_eq!(get(&map, "a"), Some(b"1".to_vec()));
    let snapshot = store.snapshot().expect("a snapshot");
    assert_eq!(ticket.wait().expect("commits"), 2);
    assert_eq!(get(&map, "a"), Some(b"2".to_vec()));
    assert_eq!(get(&map, "b"), Some(b"2".to_vec()));
    assert_eq!(snapshot.get(&map, "b").expect("reads"), None);
}

#[test]
fn odd_keyspace_names() {
    let (_, store, _) = world(manual());
    let mutable = sealstone::KeyspaceOptions::mutable();
    let longest = "n".repeat(255);
    for name in [" ", "\0", "LOCK", "../x", "\u{e9}\u{1f980}", &longest] {
        let keyspace = store.keyspace(name, mutable).expect("a name");
        put(&keyspace, "k", name);
    }
    for name in ["", &"n".repeat(256), &"\u{e9}".repeat(128)] {
        let kind = kind_of(store.keyspace(name, mutable));
        assert_eq!(kind, ErrorKind::InvalidArgument);
    }
    let once = sealstone::KeyspaceOptions::write_once();
    let kind = kind_of(store.keyspace(" ", once));
    let other_kind = matches!(kind, ErrorKind::IncompatibleOptions { name: "kind", .. });
    assert!(other_kind, "{kind:?}");
    let store = store.reopen().expect("reopens");
    let names: Vec<_> = store.keyspaces().into_iter().map(|k| k.name).collect();
    assert_eq!(names.len(), 7);
    for name in names.iter().filter(|name| *name != "map") {
        let keyspace = store.keyspace(name, mutable).expect("exists");
        assert_eq!(get(&keyspace, "k").as_deref(), Some(name.as_bytes()));
    }
}
