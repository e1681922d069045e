//! Handles: from any thread, dropped in any order, of stores that are closed, locked or busy.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the store is used from several threads for a while"
)]

mod support;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use sealstone::env::Env;
use sealstone::{
    Background, Batch, Durability, ErrorKind, Keyspace, KeyspaceOptions, Options, Snapshot, Store,
    Ticket, Value,
};
use support::{compact, flush, get, kind_of, manual, mutable, one_put, open, put, write_once};

use Durability::{Buffered, Synced};

#[test]
fn handles_are_shared_between_threads() {
    fn shared<T: Clone + Send + Sync + 'static>() {}
    fn sent<T: Send + 'static>() {}
    shared::<Store>();
    shared::<Keyspace>();
    shared::<Snapshot>();
    shared::<Ticket>();
    shared::<Value>();
    shared::<Options>();
    shared::<KeyspaceOptions>();
    shared::<sealstone::Error>();
    sent::<sealstone::Iter>();
}

/// All kinds of handle, in an order that `turn` picks.
#[test]
fn dropped_in_any_order() {
    for turn in 0..120usize {
        let env = Env::in_memory();
        let store = open(&env, compact());
        let map = mutable(&store, "map");
        put(&map, "k", "value");
        let snapshot = store.snapshot().expect("a snapshot");
        let mut iterator = map.iter().expect("iterates");
        iterator.next().expect("one").expect("an item");
        let ticket = store.submit(one_put(&map, b"queued", b"value"), Buffered);
        let ticket = ticket.expect("submits");
        let value = map.get("k").expect("reads").expect("present");
        let mut handles: Vec<Option<Box<dyn std::any::Any>>> = vec![
            Some(Box::new(store)),
            Some(Box::new(map)),
            Some(Box::new(snapshot)),
            Some(Box::new(iterator)),
            Some(Box::new(ticket)),
        ];
        let mut rest = turn;
        for left in (1..=handles.len()).rev() {
            let locked = Store::open_with(env.clone(), compact());
            assert_eq!(kind_of(locked.map(drop)), ErrorKind::Locked);
            let place = rest % left;
            rest /= left;
            let held = handles.iter_mut().filter(|handle| handle.is_some());
            *held.into_iter().nth(place).expect("one more") = None;
        }
        assert_eq!(&*value, b"value");
        let store = open(&env, compact());
        assert_eq!(get(&mutable(&store, "map"), "k"), Some(b"value".to_vec()));
        // Dropping writes nothing: what was only queued is gone.
        assert_eq!(store.sequence(), 1);
    }
}

#[test]
fn a_ticket_alone_still_commits() {
    let env = Env::in_memory();
    let store = open(&env, compact());
    let map = mutable(&store, "map");
    let ticket = store
        .submit(one_put(&map, b"k", b"value"), Synced)
        .expect("submits");
    drop((store, map));
    assert_eq!(ticket.wait().expect("commits"), 1);
    let store = open(&env, compact());
    assert_eq!(get(&mutable(&store, "map"), "k"), Some(b"value".to_vec()));
}

#[test]
fn close_ends_everything_once() {
    let env = Env::in_memory();
    let store = open(&env, compact());
    let (map, once) = (mutable(&store, "map"), write_once(&store, "once"));
    put(&map, "k", "value");
    let queued = store
        .submit(one_put(&map, b"queued", b"value"), Buffered)
        .expect("submits");
    let mut iterator = map.iter().expect("iterates");
    store.close().expect("closes");
    store.close().expect("again");
    assert_eq!(queued.wait().expect("closing publishes what is queued"), 2);
    let closed = |kind: ErrorKind| assert_eq!(kind, ErrorKind::Closed);
    closed(kind_of(map.get("k")));
    closed(kind_of(map.put("k", "value", Buffered)));
    closed(kind_of(once.put("k", "value", Buffered)));
    closed(kind_of(map.delete("k", Synced)));
    closed(kind_of(map.iter().map(drop)));
    closed(kind_of(store.multi_get(&[(&map, b"k")])));
    closed(kind_of(store.sync()));
    closed(kind_of(store.seal()));
    closed(kind_of(store.commit_step()));
    closed(kind_of(store.submit(Batch::new(), Buffered).map(drop)));
    closed(kind_of(
        store.keyspace("map", KeyspaceOptions::mutable()).map(drop),
    ));
    closed(kind_of(store.run(sealstone::Job::Flush, 1)));
    closed(kind_of(iterator.next().expect("one answer")));
    assert_eq!(store.runnable(), []);
    store.drain().expect("nothing to do");
    assert_eq!(store.sequence(), 2, "it still says where it ended");

    // The lock is free although handles live.
    let again = open(&env, compact());
    let map = mutable(&again, "map");
    assert_eq!(get(&map, "queued"), Some(b"value".to_vec()));
    assert_eq!(again.durable_sequence(), 2);
}

#[test]
fn a_reopened_store_leaves_old_handles_behind() {
    let env = Env::in_memory();
    let store = open(&env, compact());
    let map = mutable(&store, "map");
    put(&map, "k", "value");
    for round in 0..5 {
        let again = store.reopen();
        if round == 0 {
            let again = again.expect("reopens");
            assert_eq!(get(&mutable(&again, "map"), "k"), Some(b"value".to_vec()));
            assert_eq!(kind_of(map.get("k")), ErrorKind::Closed);
            assert_eq!(
                kind_of(store.reopen()),
                ErrorKind::Locked,
                "the new one has it"
            );
        } else {
            again.expect("the last one was dropped");
        }
    }
}

fn real(path: &Path, options: Options) -> sealstone::Result<Store> {
    Store::open(path, options)
}

#[test]
fn two_opens_of_one_directory() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("a store with \u{e9} and spaces");
    let store = real(&path, manual()).expect("opens");
    let error = support::refused(real(&path, manual()));
    assert_eq!(error.kind(), &ErrorKind::Locked);
    assert!(error.to_string().contains("close the other"), "{error}");
    let error = support::refused(real(&path, manual().read_only(true)));
    assert_eq!(error.kind(), &ErrorKind::Locked);
    let map = mutable(&store, "map");
    put(&map, "k", "value");
    store.close().expect("closes");
    let one = real(&path, manual().read_only(true)).expect("opens");
    let two = real(&path, manual().read_only(true)).expect("readers share it");
    assert_eq!(kind_of(real(&path, manual())), ErrorKind::Locked);
    for store in [&one, &two] {
        assert_eq!(get(&mutable(store, "map"), "k"), Some(b"value".to_vec()));
        let map = mutable(store, "map");
        let refused = map.put("k", "other", Buffered);
        assert_eq!(kind_of(refused), ErrorKind::Unsupported);
    }
    drop((one, two));
    real(&path, manual()).expect("opens");
}

#[test]
fn not_a_store() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("missing");
    for options in [manual().create(false), manual().read_only(true)] {
        let kind = kind_of(real(&path, options));
        assert_eq!(kind, ErrorKind::NotAStore);
        assert!(!path.exists(), "nothing was made");
    }
    let kind = kind_of(real(directory.path(), manual().create(false)));
    assert_eq!(kind, ErrorKind::NotAStore);
    let listed = directory.path().read_dir().expect("lists").count();
    assert_eq!(listed, 0, "nothing was made");
}

const WRITERS: u64 = 8;

/// What the writers have been told, each of its own keys.
struct Shared {
    stop: AtomicBool,
    /// Rounds acknowledged, by writer.
    rounds: [AtomicU64; WRITERS as usize],
}

/// A store whose generations are small, so that seals, flushes and retirements never end.
fn stormy() -> Options {
    Options::new()
        .background(Background::Threads(2))
        .write_region_bytes(2 << 20)
        .chunk_bytes(4096)
        .block_records(16)
        .seal_records(64)
        .seal_bytes(32 << 10)
        .batch_bytes_max(16 << 10)
        .output_buffer_bytes(4096)
        .filter_budget_bytes(64 << 10)
        .pinned_generations_max(8)
        .descriptors_max(32)
        .hash_bits(12)
        .manifest_roll_bytes(8192)
}

/// A writer puts the round number in three of its keys and one of a write-once keyspace, in one batch.
fn writer(store: &Store, shared: &Shared, me: u64) {
    let (map, once) = (mutable(store, "map"), write_once(store, "once"));
    let mut round = 0u64;
    while !shared.stop.load(Ordering::Relaxed) {
        round += 1;
        let mut batch = Batch::new();
        for part in 0..3u8 {
            let filler = vec![part; (round % 90) as usize];
            let value = [&round.to_be_bytes()[..], &filler].concat();
            batch.put(&map, key(me, part), value);
        }
        batch.put(
            &once,
            [me.to_be_bytes(), round.to_be_bytes()].concat(),
            "written",
        );
        let durability = match round % 16 {
            0 => Synced,
            _ => Buffered,
        };
        store.write(batch, durability).expect("writes");
        shared.rounds[me as usize].store(round, Ordering::Release);
    }
}

fn key(writer: u64, part: u8) -> Vec<u8> {
    format!("writer {writer} part {part}").into_bytes()
}

fn round_of(value: &[u8]) -> u64 {
    u64::from_be_bytes(value[..8].try_into().expect("eight bytes"))
}

/// What was acknowledged before is seen, and what is seen does not go back.
fn point_reader(store: &Store, shared: &Shared) -> u64 {
    let map = mutable(store, "map");
    let mut last = BTreeMap::new();
    let mut reads = 0;
    while !shared.stop.load(Ordering::Relaxed) {
        for me in 0..WRITERS {
            for part in 0..3 {
                let told = shared.rounds[me as usize].load(Ordering::Acquire);
                let value = map.get(key(me, part)).expect("reads");
                let seen = value.map_or(0, |value| round_of(&value));
                let before = last.insert((me, part), seen).unwrap_or(0);
                assert!(seen >= told && seen >= before, "{seen} {told} {before}");
                reads += 1;
            }
        }
    }
    reads
}

/// A snapshot shows whole batches only, by keys and by scans.
fn snapshot_reader(store: &Store, shared: &Shared) -> u64 {
    let (map, once) = (mutable(store, "map"), write_once(store, "once"));
    let mut looks = 0;
    while !shared.stop.load(Ordering::Relaxed) {
        let snapshot = store.snapshot().expect("a snapshot");
        let scan: BTreeMap<_, _> = snapshot
            .iter(&map)
            .expect("iterates")
            .map(|item| item.expect("an item"))
            .collect();
        for me in 0..WRITERS {
            let rounds: Vec<_> = (0..3)
                .map(|part| scan.get(&key(me, part)).map(|value| round_of(value)))
                .collect();
            assert!(rounds.iter().all(|round| *round == rounds[0]), "{rounds:?}");
            for part in 0..3 {
                let value = snapshot.get(&map, key(me, part)).expect("reads");
                assert_eq!(value.map(|value| round_of(&value)), rounds[0]);
            }
            if let Some(round) = rounds[0] {
                let name = |round: u64| [me.to_be_bytes(), round.to_be_bytes()].concat();
                assert!(snapshot.contains(&once, name(round)).expect("reads"));
                assert!(!snapshot.contains(&once, name(round + 1)).expect("reads"));
            }
        }
        looks += 1;
    }
    looks
}

fn storm(store: &Store, seconds: f64) -> Vec<u64> {
    let shared = Shared {
        stop: AtomicBool::new(false),
        rounds: Default::default(),
    };
    thread::scope(|scope| {
        let shared = &shared;
        for me in 0..WRITERS {
            scope.spawn(move || writer(store, shared, me));
        }
        let points = scope.spawn(|| point_reader(store, shared));
        let looks = scope.spawn(|| snapshot_reader(store, shared));
        let end = Instant::now() + Duration::from_secs_f64(seconds);
        while Instant::now() < end {
            thread::sleep(Duration::from_millis(20));
            support::assert_books(store);
        }
        shared.stop.store(true, Ordering::Relaxed);
        assert!(points.join().expect("no panic") > 100);
        assert!(looks.join().expect("no panic") > 1);
    });
    shared.rounds.map(AtomicU64::into_inner).to_vec()
}

fn assert_rounds(store: &Store, rounds: &[u64]) {
    let (map, once) = (mutable(store, "map"), write_once(store, "once"));
    for (me, round) in (0..WRITERS).zip(rounds) {
        for part in 0..3 {
            let value = get(&map, key(me, part)).expect("present");
            assert_eq!(round_of(&value), *round);
        }
        let prefix = me.to_be_bytes();
        let mut names = once.prefix(prefix).expect("iterates");
        let last = names.next_back().expect("one").expect("an item").0;
        assert_eq!(round_of(&last[8..]), *round);
        assert_eq!(names.count() as u64 + 1, *round, "each round once");
    }
}

#[test]
fn writers_and_readers_for_a_while() {
    let directory = tempfile::tempdir().expect("a directory");
    let options = stormy();
    let store = real(directory.path(), options.clone()).expect("opens");
    let rounds = storm(&store, 1.0);
    let stats = store.stats();
    assert!(stats.flushed_segments > 4 && !stats.poisoned, "{stats:?}");
    assert_rounds(&store, &rounds);
    // Buffered commits are in the log of a process that goes on; the store may be opened again.
    let store = store.reopen().expect("reopens");
    assert_rounds(&store, &rounds);
    flush(&store);
    let store = store.reopen_with(manual()).expect("reopens");
    assert_rounds(&store, &rounds);
}

#[test]
fn single_synced_commits_from_many_threads_share_barriers() {
    let directory = tempfile::tempdir().expect("a directory");
    let env = Env::real(directory.path()).expect("a path");
    let (env, counters) = env.counting();
    let store = Store::open_with(env, Options::new()).expect("opens");
    let map = mutable(&store, "map");
    let before = counters.snapshot().barriers();
    thread::scope(|scope| {
        for me in 0..WRITERS {
            let map = &map;
            scope.spawn(move || {
                for round in 0..20u64 {
                    let key = [me.to_be_bytes(), round.to_be_bytes()].concat();
                    map.put(key, "value", Synced).expect("writes");
                }
            });
        }
    });
    let barriers = counters.snapshot().barriers() - before;
    assert_eq!(store.stats().commits, WRITERS * 20);
    assert_eq!(store.durable_sequence(), WRITERS * 20);
    assert!(barriers <= WRITERS * 20, "{barriers}");
}

#[test]
fn close_while_others_write() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = real(directory.path(), stormy()).expect("opens");
    let map = mutable(&store, "map");
    let written = thread::scope(|scope| {
        let writers: Vec<_> = (0..4u64)
            .map(|me| {
                let map = map.clone();
                scope.spawn(move || {
                    let mut done = Vec::new();
                    for round in 0.. {
                        let key = format!("{me} {round}").into_bytes();
                        match map.put(&key, "value", Buffered) {
                            Ok(_) => done.push(key),
                            Err(error) => {
                                assert_eq!(error.kind(), &ErrorKind::Closed, "{error}");
                                break;
                            }
                        }
                    }
                    done
                })
            })
            .collect();
        thread::sleep(Duration::from_millis(150));
        store.close().expect("closes");
        let done = writers.into_iter().map(|w| w.join().expect("no panic"));
        done.flatten().collect::<Vec<_>>()
    });
    assert!(written.len() > 10);
    drop(map);
    let store = real(directory.path(), manual()).expect("opens");
    let map = mutable(&store, "map");
    for key in &written {
        assert!(
            map.contains(key).expect("reads"),
            "{key:?} was acknowledged"
        );
    }
    // Nothing that was refused is there.
    assert_eq!(map.iter().expect("iterates").count(), written.len());
}
