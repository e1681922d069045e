//! B057. Elsewhere a call after close ran into a closed channel, or waited for ever for a thread that had
//! ended. Here it is `Closed`, also for those that are waiting, and what was acknowledged is there.
#![allow(
    clippy::disallowed_methods,
    reason = "threads that are at work while the store closes"
)]

use std::collections::BTreeSet;
use std::thread;

use sealstone::env::Env;
use sealstone::sync::{Arc, AtomicBool, Ordering};
use sealstone::{Background, Durability, ErrorKind, Options, Store};

use crate::support::{compact, get, kind_of, mutable, open};

#[test]
fn b057_every_call_after_close_is_closed() {
    let store = open(&Env::in_memory(), compact());
    let map = mutable(&store, "map");
    map.put("a", "1", Durability::Synced).unwrap();
    let snapshot = store.snapshot().unwrap();
    let mut iterator = map.iter().unwrap();
    let value = map.get("a").unwrap().unwrap();
    store.close().unwrap();
    assert_eq!(
        kind_of(map.put("b", "2", Durability::Buffered)),
        ErrorKind::Closed
    );
    assert_eq!(
        kind_of(map.delete("b", Durability::Buffered)),
        ErrorKind::Closed
    );
    assert_eq!(kind_of(map.get("a").map(|_| ())), ErrorKind::Closed);
    assert_eq!(
        kind_of(snapshot.get(&map, "a").map(|_| ())),
        ErrorKind::Closed
    );
    assert_eq!(kind_of(map.iter().map(|_| ())), ErrorKind::Closed);
    assert_eq!(kind_of(store.snapshot().map(|_| ())), ErrorKind::Closed);
    assert_eq!(kind_of(store.seal()), ErrorKind::Closed);
    assert_eq!(kind_of(store.sync()), ErrorKind::Closed);
    match iterator.next() {
        Some(Err(error)) => assert_eq!(*error.kind(), ErrorKind::Closed),
        Some(Ok(item)) => assert_eq!(item, (b"a".to_vec(), b"1".to_vec())),
        None => panic!("a view does not end early without a word"),
    }
    if let Err(error) = store.close() {
        assert_eq!(*error.kind(), ErrorKind::Closed);
    }
    assert_eq!(&*value, b"1");
}

/// Readers, writers, an iterator; the main thread closes or drops. Each write that was acknowledged counts.
fn round(directory: &std::path::Path, number: u32, dropped: bool) {
    let options = Options::new()
        .seal_bytes(16 << 10)
        .batch_bytes_max(16 << 10)
        .seal_records(32)
        .memory_bytes(8 << 20)
        .background(Background::Threads(1));
    let store = Store::open(directory, options).unwrap();
    let map = mutable(&store, "map");
    map.put("read", "1", Durability::Buffered).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let writer = {
        let (map, stop) = (map.clone(), stop.clone());
        thread::spawn(move || {
            let mut acknowledged = BTreeSet::new();
            for i in 0.. {
                if dropped && stop.load(Ordering::Acquire) {
                    break;
                }
                let key = format!("{number} {i}");
                // Large enough that it soon waits for the flush.
                match map.put(key.as_str(), vec![7; 3000], Durability::Buffered) {
                    Ok(_) => drop(acknowledged.insert(key)),
                    Err(error) => {
                        assert_eq!(*error.kind(), ErrorKind::Closed, "{error}");
                        break;
                    }
                }
            }
            acknowledged
        })
    };
    let reader = {
        let (map, stop) = (map.clone(), stop.clone());
        thread::spawn(move || {
            while !stop.load(Ordering::Acquire) {
                let result = map
                    .get("read")
                    .map(|value| value.map(|value| value.to_vec()));
                match result {
                    Ok(value) => assert_eq!(value, Some(b"1".to_vec())),
                    Err(error) => return assert_eq!(*error.kind(), ErrorKind::Closed, "{error}"),
                }
            }
        })
    };
    while store.stats().commits < 20 + u64::from(number) * 7 {
        thread::yield_now();
    }
    if dropped {
        stop.store(true, Ordering::Release);
        drop(store);
    } else {
        store.close().unwrap();
    }
    drop(map);
    let acknowledged = writer.join().expect("no panic");
    stop.store(true, Ordering::Release);
    reader.join().expect("no panic");
    let store = Store::open(directory, Options::new().memory_bytes(8 << 20)).unwrap();
    let map = mutable(&store, "map");
    for key in &acknowledged {
        assert_eq!(get(&map, key), Some(vec![7; 3000]), "{key}");
    }
    assert!(acknowledged.len() > 10);
}

#[test]
fn b057_close_while_others_are_busy() {
    for number in 0..20 {
        let directory = tempfile::tempdir().unwrap();
        round(directory.path(), number, number % 2 == 1);
    }
}
