//! No reader waits for I/O that it did not ask for: in the middle of every call to the directory that a
//! commit, a flush, a fold, a filter load, a fill of the window table or a manifest roll makes, with whatever
//! locks are held there, another thread looks up keys of every kind of place and comes through.

mod support;

use std::collections::BTreeSet;
use std::sync::mpsc;
use std::time::Duration;

use sealstone::env::{Env, FileKind, FileName};
use sealstone::sync::{Arc, Mutex};
use sealstone::{Durability, Fold, Job, Keyspace, Options, Store};
use support::hook::{Call, hooked};
use support::{compact, get, mutable, open, run_all};

/// How long a lookup may take before it counts as stuck. It takes microseconds.
const STUCK: Duration = Duration::from_secs(20);

fn options() -> Options {
    compact()
        .seal_records(8)
        .batch_records_max(8)
        .fold(Fold::Runs(2))
        .manifest_roll_bytes(1024)
        // So that some runs are covered by it and some are not.
        .window_bytes(2048)
}

fn key(number: u32) -> [u8; 4] {
    number.to_be_bytes()
}

/// Looks up keys of all generations that were written, and one of none, on a thread of its own.
#[allow(clippy::disallowed_methods, reason = "a test of threads")]
fn look_up(map: &Keyspace, written: u32) {
    let (done, wait) = mpsc::channel();
    let map = map.clone();
    std::thread::spawn(move || {
        for number in 0..written {
            assert_eq!(get(&map, key(number)).as_deref(), Some(&b"value"[..]));
        }
        assert_eq!(get(&map, key(u32::MAX)), None);
        done.send(()).expect("the test waits");
    });
    wait.recv_timeout(STUCK).expect("a reader is stuck");
}

/// Jobs in the order in which they are run.
fn work(store: &Store) {
    while let Some(job) = store.runnable().first().copied() {
        store.run(job, 1).expect("runs");
    }
}

#[test]
fn lookups_pass_every_call_of_every_job() {
    let (env, hook) = hooked(Env::in_memory());
    let mut seen = BTreeSet::new();
    let calls = Arc::new(Mutex::new(Vec::<(Call, FileKind)>::new()));
    // Opened twice: the second time filters are loaded and the table is filled.
    for round in 0..2 {
        let store = open(&env, options());
        let map = mutable(&store, "map");
        let first = round * 400;
        let watch = |written: u32| {
            let (map, calls) = (map.clone(), calls.clone());
            hook.set(move |call, name: FileName| {
                // Whoever opens a file makes only those wait who want the same one.
                if call != Call::Open {
                    look_up(&map, written);
                }
                calls.lock().push((call, name.kind));
                Ok(())
            });
        };
        watch(first);
        work(&store);
        for number in first..first + 400 {
            watch(number);
            let durability = match number % 3 {
                0 => Durability::Synced,
                _ => Durability::Buffered,
            };
            map.put(key(number), b"value", durability).expect("writes");
            if number % 5 == 0 {
                watch(number + 1);
                work(&store);
            }
        }
        hook.clear();
        run_all(&store, Job::Retire);
        let stats = store.stats();
        assert!(stats.folds > 3 && stats.flushed_segments > 10, "{stats:?}");
        store.close().expect("closes");
    }
    for (call, kind) in calls.lock().iter() {
        seen.insert(format!("{call:?} {kind:?}"));
    }
    println!("{} calls: {seen:?}", calls.lock().len());
    for wanted in [
        "Write Log",
        "Sync Log",
        "Write Segment",
        "Sync Segment",
        "Read Segment",
        "Write Run",
        "Sync Run",
        "Write Manifest",
        "Sync Manifest",
        "SyncDir Manifest",
        "Rename Manifest",
    ] {
        assert!(seen.contains(wanted), "no {wanted} among {seen:?}");
    }
}
