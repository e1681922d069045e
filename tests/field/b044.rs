//! B044. Elsewhere nonsense in options was a divisor or an overflow later on. Here each extreme is refused or
//! taken, with threads too. (Options that change between openings: the plan of this number.)

use std::time::Duration;

use sealstone::env::Env;
use sealstone::{Background, Durability, ErrorKind, KeyspaceOptions, Options, Store};

use crate::support::{compact, files, flush, get, manual, mutable, open, put, refused};

#[test]
fn b044_the_largest_numbers_are_refused_or_taken() {
    let refused: [fn(Options) -> Options; 9] = [
        |o| o.seal_bytes(u64::MAX),
        |o| o.batch_bytes_max(u64::MAX),
        |o| o.scan_bytes(u64::MAX),
        |o| o.seal_records(u32::MAX),
        |o| o.batch_records_max(u32::MAX),
        |o| o.chunk_bytes(u32::MAX),
        |o| o.block_records(u32::MAX),
        |o| o.write_region_bytes(u64::MAX),
        |o| o.background(Background::Threads(0)),
    ];
    for set in refused {
        let env = Env::in_memory();
        let error = Store::open_with(env.clone(), set(compact())).unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::InvalidArgument, "{error}");
        assert!(env.vfs.list().is_err(), "a refused open made files");
    }
    let taken = compact()
        .filter_budget_bytes(u64::MAX)
        .descriptors_max(u32::MAX)
        .write_deadline(Duration::MAX)
        .retry_delay(Duration::MAX);
    let store = open(&Env::in_memory(), taken);
    let map = mutable(&store, "map");
    put(&map, "a", "1");
    flush(&store);
    map.put("b", "2", Durability::Synced).unwrap();
    assert_eq!(get(&map, "a"), Some(b"1".to_vec()));
    assert_eq!(map.iter().unwrap().count(), 2);
}

#[test]
fn b044_what_creation_fixed_is_refused_with_both_values() {
    let env = Env::in_memory();
    let created = manual().hash_bits(20).family_seed([7; 16]);
    let store = open(&env, created.clone());
    put(&mutable(&store, "map"), "a", "1");
    // A keyspace's kind, while the store is open.
    let error = refused(store.keyspace("map", KeyspaceOptions::write_once()));
    assert_fixed(&error, "kind", "Mutable", "WriteOnce");
    store.close().unwrap();
    drop(store);
    let before = files(&env);
    for read_only in [false, true] {
        let asked = |options: Options| {
            let options = options.read_only(read_only);
            refused(Store::open_with(env.clone(), options))
        };
        assert_fixed(
            &asked(created.clone().hash_bits(46)),
            "hash_bits",
            "20",
            "46",
        );
        let seeds = ["07".repeat(16), "08".repeat(16)];
        let error = asked(created.clone().family_seed([8; 16]));
        assert_fixed(&error, "family_seed", &seeds[0], &seeds[1]);
    }
    assert!(files(&env) == before);
    // Who says nothing takes what is there, and who asks for it too.
    for options in [manual(), created] {
        let store = open(&env, options);
        assert_eq!(get(&mutable(&store, "map"), "a"), Some(b"1".to_vec()));
    }
}

fn assert_fixed(error: &sealstone::Error, name: &'static str, stored: &str, asked: &str) {
    let kind = ErrorKind::IncompatibleOptions {
        name,
        stored: stored.into(),
        asked: asked.into(),
    };
    assert_eq!(*error.kind(), kind, "{error}");
    let text = error.to_string();
    for part in [name, stored, asked, "stored value"] {
        assert!(text.contains(part), "{text}");
    }
}
