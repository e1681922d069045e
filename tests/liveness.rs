//! What was lost to a full disk comes back, and no option or name can stop the store.

mod support;

use std::time::Duration;

use sealstone::env::manual::ManualClock;
use sealstone::env::{Env, FileKind, FileName, IoError, IoErrorKind};
use sealstone::sync::Arc;
use sealstone::{Batch, Durability, ErrorKind, Keyspace, Options, Store};
use support::hook::{Call, hooked};
use support::{compact, flush, get, kind_of, manual, mutable, open, put};

const FULL: IoError = IoError {
    kind: IoErrorKind::NoSpace,
    code: 28,
};

fn batch_of(map: &Keyspace, records: u32) -> Batch<'static> {
    let mut batch = Batch::new();
    for number in 0..records {
        batch.put(map, number.to_be_bytes(), b"value");
    }
    batch
}

/// Seals by reaching the limit of four records, then runs what can run. Time stands still unless the
/// disk is still full for the write.
fn one_generation(store: &Store, map: &Keyspace, clock: &ManualClock) {
    while let Err(error) = store.write(batch_of(map, 4), Durability::Buffered) {
        assert_eq!(error.kind(), &ErrorKind::NoSpace, "{error}");
        clock.advance(Duration::from_secs(1));
    }
    store
        .drain()
        .expect("a full disk costs a flush only its spare log");
}

#[test]
fn every_spare_log_that_a_full_disk_cost_comes_back() {
    let clock = Arc::new(ManualClock::new());
    let env = Env {
        clock: clock.clone(),
        ..Env::in_memory()
    };
    let (env, hook) = hooked(env);
    let store = open(&env, compact().seal_records(4).batch_records_max(4));
    let map = mutable(&store, "map");
    for _ in 0..4 {
        // The disk is full for one flush and has room again for the next, before the lost spare log
        // is tried again.
        hook.set(|call, name| match (call, name.kind) {
            (Call::Allocate, FileKind::Log) => Err(FULL),
            _ => Ok(()),
        });
        one_generation(&store, &map, &clock);
        hook.clear();
        one_generation(&store, &map, &clock);
    }
    clock.advance(Duration::from_secs(1));
    // One record short of the limit: the next batch needs another log.
    store
        .write(batch_of(&map, 3), Durability::Buffered)
        .expect("there is room");
    store
        .write(batch_of(&map, 2), Durability::Buffered)
        .expect("there is room");
}

#[test]
fn sizes_beyond_all_memory_are_refused() {
    for options in [
        manual().seal_bytes(u64::MAX),
        manual().batch_bytes_max(u64::MAX),
        manual().seal_bytes(u64::MAX / 2),
    ] {
        let kind = kind_of(Store::open_with(Env::in_memory(), options).map(drop));
        let refused = matches!(
            kind,
            ErrorKind::InvalidArgument | ErrorKind::TooLarge { .. }
        );
        assert!(refused, "{kind:?}");
    }
    for options in [manual().memory_bytes(u64::MAX), manual().scan_bytes(0)] {
        // Whatever it says, it says it.
        let _ = Store::open_with(Env::in_memory(), options);
    }
}

#[test]
fn times_beyond_the_clock_mean_for_ever() {
    let (env, hook) = hooked(Env::in_memory());
    let options: Options = compact()
        .write_deadline(Duration::MAX)
        .retry_delay(Duration::MAX);
    // Past zero, so that a sum with the largest duration overflows.
    env.clock.wait(
        &sealstone::sync::Signal::new(),
        0,
        Some(Duration::from_secs(1)),
    );
    let store = open(&env, options);
    let map = mutable(&store, "map");
    put(&map, "k", "value");
    store.seal().expect("seals");
    hook.fail_once(Call::Create, |name| name.kind == FileKind::Segment);
    assert_eq!(kind_of(store.drain()), ErrorKind::Io);
    // It is not tried again, and nobody is hurt.
    assert_eq!(store.runnable(), []);
    put(&map, "k", "another");
    assert_eq!(get(&map, "k"), Some(b"another".to_vec()));
}

#[test]
fn a_job_that_fails_is_never_tried_again_at_once() {
    let options = compact().retry_delay(Duration::ZERO);
    let kind = kind_of(Store::open_with(Env::in_memory(), options).map(drop));
    assert_eq!(kind, ErrorKind::InvalidArgument);
}

#[test]
fn a_file_with_the_last_number_is_not_of_the_store() {
    for number in [u64::MAX, u64::MAX - 1, u64::MAX / 2 + 1] {
        for name in [FileName::log(number), FileName::segment(number)] {
            let env = Env::in_memory();
            let store = open(&env, compact());
            put(&mutable(&store, "map"), "k", "value");
            store.close().expect("closes");
            drop(store);
            env.vfs.create_new(name).expect("creates");
            let store = open(&env, compact());
            let map = mutable(&store, "map");
            assert_eq!(get(&map, "k"), Some(b"value".to_vec()));
            put(&map, "l", "value");
            flush(&store);
            store.close().expect("closes");
        }
    }
}

#[test]
fn a_flush_gets_the_descriptor_of_an_idle_segment() {
    let (env, hook) = hooked(Env::in_memory());
    let store = open(&env, compact());
    let map = mutable(&store, "map");
    for key in ["a", "b", "c"] {
        put(&map, key, "value");
        flush(&store);
        assert_eq!(get(&map, key), Some(b"value".to_vec()));
    }
    assert_eq!(store.audit().descriptors_open, 3);
    for (kind, left) in [(FileKind::Segment, 2), (FileKind::Log, 1)] {
        put(&map, "d", "value");
        store.seal().expect("seals");
        let mut none_left = true;
        hook.set(move |call, name| {
            if call == Call::Create && name.kind == kind && none_left {
                none_left = false;
                let kind = IoErrorKind::TooManyOpenFiles;
                return Err(IoError { kind, code: 24 });
            }
            Ok(())
        });
        store.drain().expect("an idle descriptor makes room");
        assert_eq!(store.audit().descriptors_open, left);
    }
}

#[test]
fn a_scan_that_can_never_fit_says_so() {
    let store = open(&Env::in_memory(), compact().scan_bytes(8 << 10));
    let map = mutable(&store, "map");
    for key in ["a", "b", "c"] {
        put(&map, key, "value");
        flush(&store);
    }
    let mut scan = map.iter().expect("made");
    let kind = kind_of(scan.next().expect("an answer"));
    let wanted = ErrorKind::TooLarge {
        needed: 3 * 4096,
        limit: 8 << 10,
    };
    assert_eq!(kind, wanted);
}

/// Readers have filters too: their jobs load them, within the same budget.
#[test]
fn a_read_only_store_loads_its_filters() {
    let env = Env::in_memory();
    let store = open(&env, compact());
    let map = mutable(&store, "map");
    for number in 0..5 {
        put(&map, format!("key {number}"), "value");
        flush(&store);
    }
    let resident = store.stats().filters_resident;
    assert!(resident > 0);
    store.close().expect("closes");
    let reader = open(&env, compact().read_only(true));
    assert_eq!(reader.stats().filters_resident, 0);
    reader.drain().expect("loads");
    assert_eq!(reader.stats().filters_resident, resident);
    let map = mutable(&reader, "map");
    let before = reader.stats().reads;
    assert_eq!(get(&map, "absent"), None);
    assert!(
        reader.stats().reads <= before + 1,
        "no page is read for each segment"
    );
}
