//! Stores that hold something else than the input, and what the check says of them.

use std::io::Write as _;

use clap::Parser;
use tempfile::TempDir;

use super::*;
use crate::engine::{Batch, Durability, KeyspaceOptions};
use crate::input::{Backslashes, Spool};
use crate::text::writer::{Heading, Writer};
use crate::text::{Dialect, Form};

type Pairs<'a> = &'a [(&'a [u8], &'a [u8])];

#[derive(Parser)]
struct OnlyStore {
    #[command(flatten)]
    store: StoreArgs,
}

fn store_args(directory: &TempDir) -> StoreArgs {
    let path = directory.path().join("store");
    OnlyStore::parse_from(["".as_ref(), "--store".as_ref(), path.as_os_str()]).store
}

fn dump_file(directory: &TempDir, records: Pairs<'_>) -> Vec<Input> {
    let path = directory.path().join("input.dump");
    let mut file = std::fs::File::create(&path).unwrap();
    let mut writer = Writer::new(Vec::new());
    let heading = Heading {
        form: Form::Print,
        dialect: Dialect::Berkeley,
        database: None,
        map_bytes: 0,
    };
    writer.begin(&heading).unwrap();
    for (key, value) in records {
        writer.record(key, value).unwrap();
    }
    writer.end().unwrap();
    file.write_all(&writer.finish().unwrap()).unwrap();
    Input::from_arguments(&[path], Backslashes::Auto).unwrap()
}

/// The row of a check of a store that holds `held` against an input of `records`; the same for a
/// file and a spool.
fn checked(records: Pairs<'_>, held: Pairs<'_>, was_empty: bool) -> (Status, Map<String, Value>) {
    let directory = tempfile::tempdir().unwrap();
    let args = store_args(&directory);
    let (store, counters) = args.open_or_create().unwrap();
    let keyspace = store.keyspace("main", KeyspaceOptions::mutable()).unwrap();
    for (key, value) in held {
        let mut batch = Batch::new();
        batch.put(&keyspace, *key, *value);
        store.write(batch, Durability::Buffered).unwrap();
    }
    let loaded = [Loaded {
        keyspace,
        was_empty,
    }];
    let inputs = dump_file(&directory, records);
    let mut spool = Spool::new().unwrap();
    for (key, value) in records {
        spool.push(0, key, value).unwrap();
    }
    let mut results = [None, Some(spool.finish().unwrap())].map(|spool| {
        let replay = Replay {
            inputs: &inputs,
            spools: &[spool],
            forced: None,
            loaded: &loaded,
        };
        let mut row = Map::new();
        row.insert("records".to_owned(), json!(records.len()));
        let status = run(&args, &counters, &replay, &mut row).unwrap();
        row.remove("verify_seconds");
        (status, row)
    });
    let (status, row) = &mut results[0];
    let result = (*status, row.clone());
    assert_eq!(results[1].0, result.0);
    let counts = |row: &Map<String, Value>| NAMES.map(|name| row[name].clone());
    assert_eq!(counts(&results[1].1), counts(&result.1));
    result
}

const NAMES: [&str; 5] = [
    "hits_verified",
    "misses_verified",
    "wrong",
    "missing",
    "superseded",
];

#[track_caller]
fn expect(found: (Status, Map<String, Value>), status: Status, counts: [u64; 5]) {
    assert_eq!(NAMES.map(|name| found.1[name].as_u64().unwrap()), counts);
    assert_eq!(found.0, status);
}

const INPUT: Pairs<'static> = &[(b"a", b"1"), (b"b", b"2"), (b"long enough key", b"")];

#[test]
fn what_was_loaded_is_right() {
    expect(checked(INPUT, INPUT, true), Status::Fine, [3, 3, 0, 0, 0]);
}

#[test]
fn another_value_is_wrong() {
    let held: Pairs<'_> = &[(b"a", b"1"), (b"b", b"3"), (b"long enough key", b"")];
    expect(
        checked(INPUT, held, true),
        Status::Negative,
        [2, 3, 1, 0, 0],
    );
    let held: Pairs<'_> = &[(b"a", b""), (b"b", b"2"), (b"long enough key", b"\0")];
    expect(
        checked(INPUT, held, false),
        Status::Negative,
        [1, 3, 2, 0, 0],
    );
}

#[test]
fn a_lost_record_is_missing() {
    let held: Pairs<'_> = &[(b"a", b"1"), (b"long enough key", b"")];
    expect(
        checked(INPUT, held, true),
        Status::Negative,
        [2, 3, 0, 1, 0],
    );
}

#[test]
fn the_last_of_several_values_is_the_right_one() {
    let twice: Pairs<'_> = &[(b"a", b"1"), (b"b", b"2"), (b"a", b"3")];
    let last: Pairs<'_> = &[(b"a", b"3"), (b"b", b"2")];
    expect(checked(twice, last, true), Status::Fine, [2, 3, 0, 0, 1]);
    let first: Pairs<'_> = &[(b"a", b"1"), (b"b", b"2")];
    expect(
        checked(twice, first, true),
        Status::Negative,
        [2, 3, 1, 0, 0],
    );
}

#[test]
fn a_record_that_nobody_loaded_is_wrong_in_a_fresh_keyspace() {
    let ghost = absent_key(b"a", 0);
    let held: Vec<(&[u8], &[u8])> = [INPUT, &[(&ghost[..], &b"boo"[..])]].concat();
    expect(
        checked(INPUT, &held, true),
        Status::Negative,
        [3, 3, 1, 0, 0],
    );
    // In one that held records before, nobody can tell.
    expect(checked(INPUT, &held, false), Status::Fine, [3, 3, 0, 0, 0]);
    // And if the input has it, it is no absent key; another one takes its place.
    expect(checked(&held, &held, true), Status::Fine, [4, 4, 0, 0, 0]);
}

#[test]
fn suspects_are_settled_in_bounded_memory() {
    let keys: Vec<Vec<u8>> = (0..300_u32)
        .map(|n| [&n.to_be_bytes()[..], &[7; 60_000]].concat())
        .collect();
    let records: Vec<(&[u8], &[u8])> = keys.iter().map(|key| (&key[..], &b"new"[..])).collect();
    let held: Vec<(&[u8], &[u8])> = keys.iter().map(|key| (&key[..], &b"old"[..])).collect();
    assert!(keys.iter().map(Vec::len).sum::<usize>() > SUSPECT_BYTES);
    expect(
        checked(&records, &held, true),
        Status::Negative,
        [0, 300, 300, 0, 0],
    );
}

#[test]
fn an_input_that_changed_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let args = store_args(&directory);
    let (store, counters) = args.open_or_create().unwrap();
    let keyspace = store.keyspace("main", KeyspaceOptions::mutable()).unwrap();
    let loaded = [Loaded {
        keyspace,
        was_empty: true,
    }];
    let inputs = dump_file(&directory, &[]);
    let replay = Replay {
        inputs: &inputs,
        spools: &[None],
        forced: None,
        loaded: &loaded,
    };
    let mut row = Map::new();
    row.insert("records".to_owned(), json!(1));
    assert!(run(&args, &counters, &replay, &mut row).is_err());
}

#[test]
fn derived_keys_differ_and_stay_near() {
    for key in [&b""[..], b"short", b"exactly 12 b", &[7; 65_535]] {
        let one = absent_key(key, 0);
        assert_ne!(one, key);
        assert_ne!(one, absent_key(key, 1));
        assert!(one.len() <= 65_535);
        let shared = if key.len() < 12 {
            key.len()
        } else {
            key.len() - 8
        };
        assert_eq!(one[..shared], key[..shared]);
    }
}
