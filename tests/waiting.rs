//! Threads that meet: a key that is there is found, and who waits is woken.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the meeting of threads is what this is about"
)]

mod support;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use sealstone::env::{Env, FileKind};
use sealstone::sync::{Arc, Signal};
use sealstone::{Background, Durability, Options, Store};
use support::hook::{Call, hooked};
use support::{mutable, one_put};

use Durability::Buffered;

/// A quick disk, and real threads and time.
fn threaded() -> Env {
    let directory = tempfile::tempdir().expect("a directory");
    let env = Env::real(directory.path()).expect("a path");
    Env {
        vfs: Env::in_memory().vfs,
        ..env
    }
}

fn small() -> Options {
    Options::new()
        .background(Background::Threads(2))
        .write_region_bytes(4 << 20)
        .chunk_bytes(1024)
        .block_records(16)
        .seal_records(4)
        .seal_bytes(4096)
        .batch_bytes_max(4096)
        .output_buffer_bytes(512)
}

#[test]
fn a_key_that_is_always_there_is_always_found() {
    // Guards read.rs, `Reach::now`: while a lookup is under way its generation may be flushed and retire,
    // and the segment has only the newest version, which is newer than the bound that was read.
    let store = Store::open_with(threaded(), small()).expect("opens");
    let map = mutable(&store, "map");
    map.put("k", 0u64.to_be_bytes(), Buffered).expect("puts");
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let mut last = 0;
                while !stop.load(Ordering::Relaxed) {
                    let value = map.get("k").expect("reads").expect("always there");
                    let round = u64::from_be_bytes(value[..].try_into().expect("eight bytes"));
                    assert!(round >= last, "{round} behind {last}");
                    last = round;
                }
            });
        }
        let end = Instant::now() + Duration::from_millis(600);
        for round in 1u64.. {
            let written = map.put("k", round.to_be_bytes(), Buffered);
            written.expect("puts");
            if Instant::now() > end {
                break;
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(store.stats().flushed_segments > 10);
}

#[test]
fn who_waits_for_a_spare_log_is_woken() {
    // Guards flush.rs, `flush_step`: every flush here ends without a retirement, because a snapshot
    // pins its generation; what it brings is a log.
    let (env, hook) = hooked(threaded());
    let options = small()
        .seal_records(2)
        .pinned_generations_max(4)
        .background(Background::Threads(1))
        .write_deadline(Duration::from_secs(20));
    let store = Store::open_with(env, options).expect("opens");
    let map = mutable(&store, "map");
    let gate = Arc::new(Signal::new());
    let held = gate.clone();
    let mut first = true;
    hook.set(move |call, name| {
        if first && call == Call::Sync && name.kind == FileKind::Segment {
            first = false;
            held.block(0, Some(Duration::from_secs(10)));
        }
        Ok(())
    });
    let (inner, inner_map) = (store.clone(), map.clone());
    let writer = thread::spawn(move || {
        let mut snapshots = Vec::new();
        for round in 0..4u8 {
            for part in 0..2u8 {
                let value = [round, part];
                let batch = one_put(&inner_map, b"k", &value);
                inner.write(batch, Buffered).expect("writes");
                if part == 0 {
                    snapshots.push(inner.snapshot().expect("a snapshot"));
                }
            }
        }
        snapshots
    });
    // Until it has no log to go on in.
    let end = Instant::now() + Duration::from_secs(10);
    while store.stats().stalls == 0 {
        assert!(Instant::now() < end, "it never waits");
        thread::sleep(Duration::from_millis(5));
    }
    thread::sleep(Duration::from_millis(50));
    let start = Instant::now();
    gate.raise();
    let snapshots = writer.join().expect("no panic");
    assert!(
        start.elapsed() < Duration::from_secs(10),
        "it was not woken"
    );
    assert_eq!(store.sequence(), 8);
    assert!(!store.audit().lingering.is_empty());
    drop(snapshots);
}
