//! Many threads at the commit queue: nobody sleeps for ever, nobody is forgotten.

#![allow(
    clippy::disallowed_methods,
    reason = "the test brings the threads whose meeting it is about"
)]

use std::thread;
use std::time::Duration;

use crate::env::Env;
use crate::{
    Background, Batch, Durability, ErrorKind, Keyspace, KeyspaceOptions, Options, Result, Store,
};

const THREADS: u64 = 8;
const COMMITS: u64 = 300;

/// Hands one batch over in one of the ways that there are.
fn hand_over(store: &Store, records: &Keyspace, key: u64, way: u64) -> Result<()> {
    let durability = match key % 3 {
        0 => Durability::Synced,
        _ => Durability::Buffered,
    };
    let key = key.to_be_bytes();
    let mut batch = Batch::new();
    batch.put(records, key, key);
    match way {
        0 => drop(store.submit(batch, durability)?),
        1 => {
            let ticket = store.submit(batch, durability)?;
            thread::yield_now();
            ticket.wait()?;
        }
        _ => drop(store.write(batch, durability)?),
    }
    Ok(())
}

fn write(store: &Store, records: &Keyspace, thread: u64) {
    for number in 0..COMMITS {
        let key = thread * COMMITS + number;
        while let Err(error) = hand_over(store, records, key, (thread + number) % 7) {
            // Memory is short, or the job that would help is another thread's.
            assert!(
                matches!(error.kind(), ErrorKind::Busy { .. }),
                "{error}, thread {thread}"
            );
            store.drain().expect("drains");
        }
        match number % 50 {
            17 => store.seal().expect("seals"),
            31 => store.sync().expect("syncs"),
            _ => {}
        }
    }
}

fn everybody_comes_through(env: Env, options: Options) {
    let store = Store::open_with(env, options).expect("opens");
    let records = store
        .keyspace("records", KeyspaceOptions::mutable())
        .expect("creates");
    let (done, finished) = std::sync::mpsc::channel();
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (store, records, done) = (store.clone(), records.clone(), done.clone());
            scope.spawn(move || {
                write(&store, &records, thread);
                done.send(()).expect("the test waits");
            });
        }
        for _ in 0..THREADS {
            if finished.recv_timeout(Duration::from_secs(60)).is_err() {
                // Inside the scope a panic would wait for the sleepers.
                eprintln!("a writer sleeps for ever: {:?}", store.audit());
                std::process::abort();
            }
        }
    });
    store.sync().expect("syncs");
    assert_eq!(store.sequence(), THREADS * COMMITS);
    assert_eq!(store.durable_sequence(), THREADS * COMMITS);
    store.drain().expect("drains");
    assert_eq!(
        records.iter().expect("opens").count() as u64,
        THREADS * COMMITS
    );
    store.close().expect("closes");
}

fn options() -> Options {
    Options::tiny()
        .write_region_bytes(1 << 20)
        .scan_bytes(4 << 20)
        .seal_records(64)
        .hash_bits(46)
}

#[test]
fn with_threads() {
    let directory = tempfile::tempdir().expect("a directory");
    let env = Env::real(directory.path().join("store")).expect("a directory");
    everybody_comes_through(env, options().background(Background::Threads(2)));
}

#[test]
fn without_threads() {
    everybody_comes_through(Env::in_memory(), options());
}

/// Memory that was another's becomes free without a word from any job: a reader or leader that still
/// held a retired generation, a large batch that was refused.
#[test]
fn a_writer_that_waits_for_memory_wakes_when_it_is_freed() {
    let directory = tempfile::tempdir().expect("a directory");
    let env = Env::real(directory.path().join("store")).expect("a directory");
    let options = options()
        .background(Background::Threads(1))
        .write_deadline(Duration::from_secs(600));
    let store = Store::open_with(env, options).expect("opens");
    let records = store
        .keyspace("records", KeyspaceOptions::mutable())
        .expect("creates");
    let region = &store.inner.engine.region;
    let free = region.ledger().free_bytes();
    let held = region
        .try_acquire(free, crate::memory::Owner::Reserved)
        .expect("is free");
    let (done, finished) = std::sync::mpsc::channel();
    let writer = thread::spawn(move || {
        let written = records.put(b"key", b"value", Durability::Buffered);
        done.send(written).expect("the test waits");
    });
    while store.stats().stalls == 0 {
        thread::yield_now();
    }
    // By now it sleeps; should it not, the test shows less, and never fails.
    thread::sleep(Duration::from_millis(100));
    assert!(store.stats().stalls <= 2, "it does not sleep");
    drop(held);
    let written = finished.recv_timeout(Duration::from_secs(20));
    assert_eq!(written.expect("it woke").expect("there is room"), 1);
    writer.join().expect("ends");
}
