//! Recovery with other limits than the store was written with, little room, and without writing.

mod support;

use sealstone::env::counting::Counts;
use sealstone::env::memory::MemoryVfs;
use sealstone::env::{Env, FileKind};
use sealstone::sync::Arc;
use sealstone::{Batch, Durability, ErrorKind, Options, Store};
use support::{
    Map, Random, assert_books, assert_content, assert_refused, compact, files, flush, get, killed,
    kind_of, manual, mutable, open, put, refused,
};

use Durability::{Buffered, Synced};

/// Generations of up to a MiB.
fn large() -> Options {
    manual()
        .write_region_bytes(64 << 20)
        .seal_bytes(1 << 20)
        .seal_records(100_000)
        .batch_bytes_max(1 << 20)
        .batch_records_max(20_000)
}

/// About as small as it gets.
fn small() -> Options {
    manual()
        .write_region_bytes(192 << 10)
        .chunk_bytes(1024)
        .block_records(16)
        .seal_records(64)
        .seal_bytes(8192)
        .batch_bytes_max(8192)
        .output_buffer_bytes(512)
}

/// What the death of a process with large generations leaves: one sealed, one open.
fn large_logs() -> (Env, Map) {
    let env = Env::in_memory();
    let store = open(&env, large());
    let map = mutable(&store, "map");
    let mut random = Random(5);
    let mut model = Map::new();
    for number in 0..1200u64 {
        let key = format!("key {}", random.below(700)).into_bytes();
        let length = random.below(800) as usize;
        let value = random.bytes(length);
        put(&map, &key, &value);
        model.insert(key, value);
        if number == 800 {
            store.seal().expect("seals");
        }
    }
    (killed(&env), model)
}

#[test]
fn memory_smaller_than_the_log_splits_generations() {
    // Guards recovery.rs, `recover_log`: the flush between two replays.
    let (env, model) = large_logs();
    let store = open(&env, small());
    let report = store.open_report();
    assert!(report.split_generations >= 4, "{report:?}");
    assert!(report.flushed_segments > report.split_generations);
    assert_eq!(report.replayed_commits, 1200);
    assert_books(&store);
    assert_content(&mutable(&store, "map"), &model);
    // The rest that stayed open is in a new log, and the store goes on.
    let map = mutable(&store, "map");
    assert_eq!(put(&map, "one more", "value"), 1201);
    flush(&store);
    let store = store.reopen().expect("reopens");
    assert_eq!(store.open_report().split_generations, 0);
    assert_eq!(
        get(&mutable(&store, "map"), "one more"),
        Some(b"value".to_vec())
    );
}

#[test]
fn memory_larger_than_the_log_splits_nothing() {
    let (env, model) = large_logs();
    let store = open(&env, large());
    assert_eq!(store.open_report().split_generations, 0);
    assert_eq!(store.open_report().flushed_segments, 1);
    assert_content(&mutable(&store, "map"), &model);
}

#[test]
fn a_commit_above_memory_names_the_bytes() {
    // Guards check.rs, `check_fits` and `sized`: the number is one that works.
    for (records, value_bytes) in [(1, 900_000), (900, 1000), (15_000, 0), (1, 400_000)] {
        let env = Env::in_memory();
        let store = open(&env, large());
        let map = mutable(&store, "map");
        put(&map, "before", "value");
        store.seal().expect("seals");
        put(&map, "with it", "value");
        let mut batch = Batch::new();
        for number in 0..records {
            batch.put(&map, format!("key {number}"), vec![7; value_bytes]);
        }
        store.write(batch, Buffered).expect("writes");
        let env = killed(&env);
        let error = assert_refused(&env, small());
        let ErrorKind::TooLarge { needed, limit } = *error.kind() else {
            panic!("{error}");
        };
        assert_eq!(limit, 192 << 10);
        assert!(needed > limit, "{error}");
        assert!(error.to_string().contains("write_region_bytes"), "{error}");
        assert_eq!(error.file().map(|file| file.kind), Some(FileKind::Log));
        assert!(error.offset() > Some(64), "{error}");
        let store = open(&env, small().write_region_bytes(needed));
        assert_eq!(store.sequence(), 3);
        let map = mutable(&store, "map");
        assert_eq!(map.iter().expect("iterates").count(), records + 2);
    }
}

#[test]
fn a_commit_of_more_records_than_todays_limit_is_recovered() {
    // Guards recovery.rs, `recovery_generation`.
    let env = Env::in_memory();
    let store = open(&env, large());
    let map = mutable(&store, "map");
    put(&map, "before", "value");
    let mut batch = Batch::new();
    for number in 0..500 {
        batch.put(&map, format!("key {number}"), "");
    }
    store.write(batch, Buffered).expect("writes");
    put(&map, "behind", "value");
    let fewer = small().seal_bytes(64 << 10).write_region_bytes(2 << 20);
    let store = open(&killed(&env), fewer.seal_records(16));
    let map = mutable(&store, "map");
    assert_eq!(map.iter().expect("iterates").count(), 502);
    assert_books(&store);
}

#[test]
fn keys_longer_than_todays_chunks() {
    let env = Env::in_memory();
    let store = open(&env, manual());
    let map = mutable(&store, "map");
    let long = vec![b'k'; 50_000];
    put(&map, &long, "value");
    // In the log: it does not fit a chunk, and the refusal says what would.
    let error = assert_refused(&killed(&env), small());
    let ErrorKind::TooLarge { needed, limit } = *error.kind() else {
        panic!("{error}");
    };
    assert_eq!((needed, limit), (50_016, 1024), "{error}");
    assert!(error.to_string().contains("chunk_bytes"), "{error}");
    let roomy = small().write_region_bytes(8 << 20).seal_bytes(64 << 10);
    let store_again = open(&killed(&env), roomy.chunk_bytes(needed as u32));
    assert_eq!(
        get(&mutable(&store_again, "map"), &long),
        Some(b"value".to_vec())
    );
    // In a segment: it is found by any opening.
    flush(&store);
    store.close().expect("closes");
    let store = open(&killed(&env), small());
    let map = mutable(&store, "map");
    assert_eq!(get(&map, &long), Some(b"value".to_vec()));
    assert_content(&map, &Map::from([(long.clone(), b"value".to_vec())]));
    let refused = map.put(&long, "again", Buffered);
    assert!(matches!(kind_of(refused), ErrorKind::TooLarge { .. }));
}

#[test]
fn a_read_only_open_writes_nothing() {
    let (env, model) = large_logs();
    let before = files(&env);
    let (env, counters) = env.counting();
    let store = open(&env, large().read_only(true));
    assert_content(&mutable(&store, "map"), &model);
    let snapshot = store.snapshot().expect("a snapshot");
    assert_eq!(snapshot.sequence(), 1200);
    let map = mutable(&store, "map");
    for failure in [
        map.put("k", "v", Buffered).map(drop),
        map.delete("k", Synced).map(drop),
        store.seal(),
        store.sync(),
    ] {
        assert_eq!(kind_of(failure), ErrorKind::Unsupported);
    }
    let create = store.keyspace("new", sealstone::KeyspaceOptions::mutable());
    assert_eq!(kind_of(create), ErrorKind::InvalidArgument);
    assert_eq!(store.runnable(), []);
    store.drain().expect("nothing to do");
    drop((snapshot, map));
    store.close().expect("closes");
    let counts: Counts = counters.snapshot();
    let total = counts.total();
    let written = total.writes + total.creates + total.unlinks + total.renames + total.allocates;
    assert_eq!((written, counts.barriers()), (0, 0));
    assert!(files(&env) == before);

    // Where the logs do not fit it says what it takes.
    let error = assert_refused(&env, small().read_only(true));
    let ErrorKind::TooLarge { needed, limit } = *error.kind() else {
        panic!("{error}");
    };
    assert!(needed > limit, "{error}");
    let store = open(&env, small().write_region_bytes(needed).read_only(true));
    assert_content(&mutable(&store, "map"), &model);
}

/// A disk of that many bytes with the files of another.
fn disk(whole: &support::Files, free_bytes: u64) -> (Env, Arc<MemoryVfs>) {
    let used: u64 = whole.values().map(|bytes| bytes.len() as u64).sum();
    let vfs = Arc::new(MemoryVfs::with_capacity(used + free_bytes));
    let env = Env {
        vfs: vfs.clone(),
        ..Env::in_memory()
    };
    env.vfs.create_root().expect("creates");
    for (name, bytes) in whole {
        support::replace_file(&env, *name, bytes);
    }
    (env, vfs)
}

#[test]
fn no_room_to_recover() {
    // Rule 8: nothing named is touched, and the next open with room finds everything.
    let (env, model) = large_logs();
    let whole = files(&env);
    let mut refusals = 0;
    let mut free_bytes = 0;
    loop {
        let (env, vfs) = disk(&whole, free_bytes);
        match Store::open_with(env.clone(), compact()) {
            Ok(store) => {
                assert_content(&mutable(&store, "map"), &model);
                break;
            }
            Err(error) => {
                assert_eq!(error.kind(), &ErrorKind::NoSpace, "{error}");
                assert!(error.to_string().contains("free disk space"), "{error}");
                let left = files(&env);
                for (name, bytes) in &whole {
                    assert!(left[name] == *bytes, "{name} was touched");
                }
                vfs.set_capacity(u64::MAX);
                let store = open(&env, compact());
                assert_content(&mutable(&store, "map"), &model);
                store.drain().expect("drains");
                let names = env.vfs.list().expect("lists").names;
                assert_eq!(store.audit().files, names);
            }
        }
        refusals += 1;
        free_bytes += 50_000;
        assert!(refusals < 100);
    }
    assert!(refusals > 3, "{refusals}");
}

#[test]
fn a_full_disk_refuses_writes_and_life_goes_on() {
    let vfs = Arc::new(MemoryVfs::with_capacity(600_000));
    let clock = Arc::new(sealstone::env::manual::ManualClock::new());
    let env = Env {
        vfs: vfs.clone(),
        clock: clock.clone(),
        ..Env::in_memory()
    };
    let store = open(&env, compact().queue_slots(2));
    let map = mutable(&store, "map");
    let mut model = Map::new();
    let mut write = |number: u32| {
        let (key, value) = (
            format!("key {number}").into_bytes(),
            vec![number as u8; 3000],
        );
        let result = map.put(&key, &value, Synced);
        if result.is_ok() {
            model.insert(key, value);
        }
        result
    };
    let mut number = 0;
    let error = loop {
        if let Err(error) = write(number) {
            break error;
        }
        number += 1;
        assert!(number < 1000);
    };
    // Which of the two depends on what ran out first: a log to write to, or memory behind a flush that
    // can't write.
    let kind = error.kind().clone();
    let told = matches!(kind, ErrorKind::NoSpace | ErrorKind::Busy { .. });
    assert!(told, "{error}");
    assert!(!store.stats().poisoned);
    let (audit, bytes) = (store.audit(), files(&env));
    assert_eq!(kind_of(write(number)), kind);
    let mut after = store.audit();
    after.descriptors_open = audit.descriptors_open;
    assert_eq!((after, files(&env)), (audit, bytes), "no effect");
    vfs.set_capacity(u64::MAX);
    clock.advance(std::time::Duration::from_secs(1));
    for more in 0..100 {
        write(number + more).expect("there is room again");
    }
    store.drain().expect("drains");
    assert_content(&map, &model);
    assert_eq!(store.audit().files, env.vfs.list().expect("lists").names);
    let store = store.reopen().expect("reopens");
    assert_content(&mutable(&store, "map"), &model);
}

#[test]
fn a_full_disk_at_every_size() {
    // Wherever the room ends, what was acknowledged is there when it comes back.
    for capacity in (150_000..700_000).step_by(23_456) {
        let vfs = Arc::new(MemoryVfs::with_capacity(capacity));
        let env = Env {
            vfs: vfs.clone(),
            ..Env::in_memory()
        };
        let Ok(store) = Store::open_with(env.clone(), compact()) else {
            continue;
        };
        let map = match store.keyspace("map", sealstone::KeyspaceOptions::mutable()) {
            Ok(map) => map,
            Err(error) => {
                assert_eq!(error.kind(), &ErrorKind::NoSpace);
                continue;
            }
        };
        let mut model = Map::new();
        for number in 0..300u32 {
            let (key, value) = (number.to_be_bytes(), vec![number as u8; 1500]);
            match map.put(key, &value, Buffered) {
                Ok(_) => drop(model.insert(key.to_vec(), value)),
                Err(_) => break,
            }
            let _ = store.drain();
        }
        assert!(!store.stats().poisoned, "at {capacity}");
        assert_content(&map, &model);
        vfs.set_capacity(u64::MAX);
        let store = open(&killed(&env), compact());
        assert_content(&mutable(&store, "map"), &model);
    }
}

#[test]
fn refusals_of_creation() {
    let vfs = Arc::new(MemoryVfs::with_capacity(1000));
    let env = Env {
        vfs: vfs.clone(),
        ..Env::in_memory()
    };
    for _ in 0..3 {
        let error = refused(Store::open_with(env.clone(), compact()));
        assert_eq!(error.kind(), &ErrorKind::NoSpace, "{error}");
    }
    vfs.set_capacity(u64::MAX);
    let store = open(&env, compact());
    assert!(store.open_report().created);
    store.drain().expect("drains");
    assert_eq!(store.audit().files, env.vfs.list().expect("lists").names);
}
