//! The store's everyday abilities, over the public API.

use sealstone::env::Env;
use sealstone::{Background, Batch, Durability, ErrorKind, KeyspaceOptions, Options, Store};

fn manual() -> Options {
    Options::new().background(Background::Manual)
}

fn tiny() -> Options {
    Options::tiny()
}

#[test]
fn put_get_seal_flush_reopen() {
    let env = Env::in_memory();
    let store = Store::open_with(env, manual()).expect("open");
    assert!(store.open_report().created);
    let blocks = store
        .keyspace("blocks", KeyspaceOptions::write_once())
        .expect("keyspace");
    let state = store
        .keyspace("state", KeyspaceOptions::mutable())
        .expect("keyspace");
    blocks.put(b"a", b"1", Durability::Synced).expect("put");
    state.put(b"a", b"x", Durability::Synced).expect("put");
    state.put(b"a", b"y", Durability::Buffered).expect("put");
    assert_eq!(blocks.get(b"a").expect("get").as_deref(), Some(&b"1"[..]));
    assert_eq!(state.get(b"a").expect("get").as_deref(), Some(&b"y"[..]));
    assert_eq!(state.get(b"b").expect("get"), None);
    store.seal().expect("seal");
    store.drain().expect("drain");
    assert_eq!(store.stats().segments, 2);
    assert_eq!(blocks.get(b"a").expect("get").as_deref(), Some(&b"1"[..]));
    assert_eq!(state.get(b"a").expect("get").as_deref(), Some(&b"y"[..]));
    state.put(b"b", b"z", Durability::Synced).expect("put");
    let store = store.reopen().expect("reopen");
    assert_eq!(
        state.get(b"a").expect_err("closed").kind(),
        &ErrorKind::Closed
    );
    assert_eq!(store.open_report().replayed_commits, 1);
    let state = store
        .keyspace("state", KeyspaceOptions::mutable())
        .expect("keyspace");
    assert_eq!(state.get(b"a").expect("get").as_deref(), Some(&b"y"[..]));
    assert_eq!(state.get(b"b").expect("get").as_deref(), Some(&b"z"[..]));
    let all: Vec<_> = state
        .iter()
        .expect("iter")
        .map(|item| item.expect("item").0)
        .collect();
    assert_eq!(all, [b"a".to_vec(), b"b".to_vec()]);
}

#[test]
fn thousands_of_records_with_tiny_sizes() {
    let env = Env::in_memory();
    let store = Store::open_with(env, tiny()).expect("open");
    let map = store
        .keyspace("map", KeyspaceOptions::mutable())
        .expect("keyspace");
    let mut model = std::collections::BTreeMap::new();
    let mut x = 1u64;
    for round in 0..400u32 {
        let mut batch = Batch::new();
        for _ in 0..5 {
            x = x
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            let key = format!("key{}", (x >> 33) % 300).into_bytes();
            if x >> 61 == 0 {
                batch.delete(&map, key.clone());
                model.remove(&key);
            } else {
                let value = format!("{round}-{}", x % 1000)
                    .repeat((x >> 40) as usize % 8)
                    .into_bytes();
                batch.put(&map, key.clone(), value.clone());
                model.insert(key, value);
            }
        }
        store.write(batch, Durability::Buffered).expect("write");
        if round % 7 == 0 {
            store.drain().expect("drain");
        }
        if round % 100 == 99 {
            let forward: Vec<_> = map
                .iter()
                .expect("iter")
                .map(|item| item.expect("item"))
                .collect();
            assert!(
                forward.iter().map(|(k, v)| (k, v)).eq(model.iter()),
                "round {round}"
            );
            let mut backward: Vec<_> = map
                .iter()
                .expect("iter")
                .rev()
                .map(|item| item.expect("item"))
                .collect();
            backward.reverse();
            assert_eq!(forward, backward);
        }
    }
    let store = store.reopen().expect("reopen");
    let map = store
        .keyspace("map", KeyspaceOptions::mutable())
        .expect("keyspace");
    for (key, value) in &model {
        assert_eq!(
            map.get(key).expect("get").as_deref(),
            Some(value.as_slice())
        );
    }
    assert!(store.stats().segments > 50);
}

#[test]
fn drain_waits_for_a_thread_that_is_at_a_job() {
    let real = Env::real("unused").expect("an environment");
    let env = Env {
        clock: real.clock,
        driver: real.driver,
        ..Env::in_memory()
    };
    let store = Store::open_with(env, Options::new()).expect("open");
    let map = store
        .keyspace("map", KeyspaceOptions::mutable())
        .expect("keyspace");
    for round in 1..=200u64 {
        let mut batch = Batch::new();
        for key in 0..300u64 {
            batch.put(&map, key.to_le_bytes(), round.to_le_bytes());
        }
        store.write(batch, Durability::Buffered).expect("write");
        store.seal().expect("seal");
        store.drain().expect("drain");
        assert_eq!(store.stats().segments, round);
    }
}
