//! The write region: refusals without effect, exact books, sizes that are too small.

mod support;

use std::time::Duration;

use sealstone::env::Env;
use sealstone::{Batch, Durability, ErrorKind, Job, Keyspace, Options, Progress, Store};
use support::{
    Map, Random, assert_books, assert_content, files, flush, get, kind_of, manual, mutable,
    one_put, open, put, refused, write_once,
};

use Durability::Buffered;

fn small() -> Options {
    manual()
        .write_region_bytes(256 << 10)
        .chunk_bytes(1024)
        .block_records(16)
        .seal_records(32)
        .seal_bytes(16 << 10)
        .batch_bytes_max(16 << 10)
        .output_buffer_bytes(1024)
}

fn world(options: Options) -> (Env, Store, Keyspace) {
    let env = Env::in_memory();
    let store = open(&env, options);
    let map = mutable(&store, "map");
    (env, store, map)
}

/// Writes without running a job until a write is refused; says what it was refused with.
fn fill(store: &Store, map: &Keyspace, value: &[u8]) -> ErrorKind {
    for number in 0..10_000 {
        let key = format!("key {number}").into_bytes();
        match store.try_write(one_put(map, &key, value), Buffered) {
            Ok(_) => assert_books(store),
            Err(error) => return error.kind().clone(),
        }
    }
    panic!("the region is finite");
}

#[test]
fn busy_has_no_effect() {
    for value_bytes in [0, 100, 1000, 3000, 12_000] {
        let (env, store, map) = world(small().queue_slots(64));
        let value = vec![7; value_bytes];
        let busy = fill(&store, &map, &value);
        let ErrorKind::Busy {
            needed,
            free,
            pinned_by: None,
        } = busy
        else {
            panic!("{busy:?}");
        };
        assert!(needed > free, "{needed} of {free}");
        let (audit, bytes) = (store.audit(), files(&env));
        for durability in [Buffered, Durability::Synced] {
            let again = store.try_write(one_put(&map, b"one more", &value), durability);
            assert!(matches!(kind_of(again), ErrorKind::Busy { .. }));
        }
        let ticket = store.submit(one_put(&map, b"one more", &value), Buffered);
        assert!(matches!(kind_of(ticket.map(drop)), ErrorKind::Busy { .. }));
        assert_eq!(store.audit(), audit);
        assert_eq!(files(&env), bytes);
        assert_eq!(get(&map, "one more"), None);
        assert!(store.stats().busy >= 4);
        store.drain().expect("drains");
        store
            .try_write(one_put(&map, b"one more", &value), Buffered)
            .expect("there is room again");
        assert_eq!(get(&map, "one more"), Some(value));
        assert_books(&store);
    }
}

#[test]
fn without_a_spare_log_it_is_busy_too() {
    let (env, store, map) = world(small().write_region_bytes(4 << 20));
    let busy = fill(&store, &map, &[7; 1000]);
    assert!(
        matches!(
            busy,
            ErrorKind::Busy {
                pinned_by: None,
                ..
            }
        ),
        "{busy:?}"
    );
    let (audit, bytes) = (store.audit(), files(&env));
    assert!(
        audit.memory.free_bytes > 1 << 20,
        "memory is not the reason"
    );
    let again = store.try_write(one_put(&map, b"one more", &[7; 1000]), Buffered);
    assert!(matches!(kind_of(again), ErrorKind::Busy { .. }));
    assert_eq!((store.audit(), files(&env)), (audit, bytes));
    // The open generation goes on as long as it has room: it is the next one that needs a log.
    put(&map, "small", "value");
    store.drain().expect("drains");
    put(&map, "one more", [7; 1000]);
}

#[test]
fn write_helps_itself_when_nobody_else_does() {
    let (_, store, map) = world(small());
    let mut model = Map::new();
    let mut random = Random(1);
    for number in 0..3000 {
        let key = format!("key {}", random.below(500)).into_bytes();
        let length = [0, 10, 700, 5000][random.below(4) as usize];
        let value = vec![number as u8; length];
        store
            .write(one_put(&map, &key, &value), Buffered)
            .expect("writes, running jobs as needed");
        model.insert(key, value);
    }
    let stats = store.stats();
    assert!(
        stats.stalls > 10 && stats.flushed_segments > 50,
        "{stats:?}"
    );
    assert_content(&map, &model);
}

#[test]
fn the_largest_batch_fits_after_any_other() {
    let mut random = Random(9);
    for round in 0..60 {
        let (_, store, map) = world(small().pinned_generations_max(0));
        for _ in 0..random.below(120) {
            let length = random.below(4000) as usize;
            let value = random.bytes(length);
            let key = format!("key {}", random.below(30)).into_bytes();
            store
                .write(one_put(&map, &key, &value), Buffered)
                .expect("writes");
        }
        let largest = vec![9; (16 << 10) - 40 - 16 - 8];
        store
            .write(one_put(&map, b"largest", &largest), Buffered)
            .unwrap_or_else(|error| panic!("round {round}: {error}"));
        assert_eq!(get(&map, "largest"), Some(largest));
    }
}

#[test]
fn the_books_are_exact_at_every_step() {
    let (_, store, map) = world(
        small()
            .write_region_bytes(512 << 10)
            .pinned_generations_max(3),
    );
    let once = write_once(&store, "once");
    let idle = store.audit().memory;
    assert_eq!(idle.free_bytes + idle.scratch_bytes, idle.total_bytes);
    let mut random = Random(4);
    let mut snapshots = Vec::new();
    for round in 0..600u64 {
        let mut batch = Batch::new();
        for _ in 0..random.below(5) {
            let key = format!("key {}", random.below(60));
            let length = [0, 9, 300, 2500][random.below(4) as usize];
            batch.put(&map, key.clone(), random.bytes(length));
            batch.put(&once, key.clone(), key);
        }
        let before = store.audit().memory;
        match store.submit(batch, Buffered) {
            Ok(ticket) => drop(ticket),
            Err(error) => {
                assert!(matches!(error.kind(), ErrorKind::Busy { .. }), "{error}");
                assert_eq!(store.audit().memory, before);
            }
        }
        assert_books(&store);
        let memory = store.audit().memory;
        assert_eq!(memory.reserved_bytes, 0, "nothing is kept back");
        assert_eq!(memory.scratch_bytes, idle.scratch_bytes);
        if random.below(3) == 0 {
            store.commit_step().expect("commits");
        }
        if random.below(40) == 0 {
            snapshots.push(store.snapshot().expect("a snapshot"));
        }
        if random.below(30) == 0 && !snapshots.is_empty() {
            snapshots.remove(random.below(snapshots.len() as u64) as usize);
        }
        for _ in 0..random.below(6) {
            if let Some(job) = store.runnable().first() {
                store.run(*job, 1 + random.below(8) as u32).expect("runs");
                assert_books(&store);
            }
        }
        if round % 100 == 99 {
            snapshots.clear();
            store.drain().expect("drains");
            let memory = store.audit().memory;
            let kept = memory.flushing_bytes + memory.pinned_bytes + memory.retiring_bytes;
            assert_eq!((kept, memory.sealed_bytes), (0, 0), "{memory:?}");
        }
    }
    flush(&store);
    assert_eq!(store.audit().memory, idle, "all of it comes back");
}

#[test]
fn a_reader_in_a_retired_generation_does_not_upset_the_books() {
    let (_, store, map) = world(small());
    put(&map, "k", "value");
    let value = map.get("k").expect("reads").expect("present");
    let mut iterator = map.iter().expect("iterates");
    iterator.next().expect("one").expect("an item");
    flush(&store);
    assert_books(&store);
    let memory = store.audit().memory;
    assert_eq!(memory.free_bytes + memory.scratch_bytes, memory.total_bytes);
    assert_eq!(&*value, b"value", "it is the caller's own");
}

/// Opens with that region, or says how much it would take.
fn needed(options: &Options, write_region_bytes: u64) -> Option<u64> {
    let env = Env::in_memory();
    let options = options.clone().write_region_bytes(write_region_bytes);
    let error = Store::open_with(env.clone(), options).err()?;
    let ErrorKind::TooLarge { needed, limit } = error.kind() else {
        panic!("{error}");
    };
    assert_eq!(*limit, write_region_bytes);
    assert!(needed > limit, "{error}");
    assert!(error.to_string().contains("write_region_bytes"), "{error}");
    assert!(env.vfs.list().is_err(), "not even the directory was made");
    Some(*needed)
}

#[test]
fn too_small_a_region_is_refused_with_the_number_that_works() {
    let variants = [
        small(),
        small().seal_bytes(1 << 20),
        small().batch_bytes_max(3 << 20),
        small().pinned_generations_max(7),
        small().chunk_bytes(128).block_records(2),
        manual(),
        manual().seal_records(100_000),
        manual().batch_records_max(300_000).seal_records(10),
        manual().output_buffer_bytes(8 << 20),
        manual().chunk_bytes(1 << 20).seal_bytes(40 << 20),
        manual().key_fence_bytes(64).seal_bytes(1 << 20),
    ];
    for (number, options) in variants.iter().enumerate() {
        let needed_bytes = needed(options, 4096).expect("too small");
        assert_eq!(needed(options, needed_bytes), None, "variant {number}");
        let just_below = needed(options, needed_bytes - 1);
        assert_eq!(
            just_below,
            Some(needed_bytes),
            "variant {number}: it is the least"
        );
        // With it the largest generation can be written and flushed.
        let options = options.clone().write_region_bytes(needed_bytes);
        let (_, store, map) = world(options);
        for round in 0..3 {
            let value = vec![round; 900];
            store
                .write(one_put(&map, b"k", &value), Buffered)
                .expect("writes");
            flush(&store);
        }
    }
}

#[test]
fn options_out_of_range_are_refused() {
    let odd = [
        manual().hash_bits(7),
        manual().hash_bits(47),
        manual().chunk_bytes(63),
        manual().chunk_bytes(u32::MAX),
        manual().block_records(1),
        manual().queue_slots(0),
        manual().pinned_generations_max(65),
        manual().output_buffer_bytes(255),
        manual().cursor_buffer_bytes(0),
        manual().key_fence_bytes(63),
        manual().manifest_roll_bytes(0),
        manual().seal_records(0),
        manual().batch_records_max(0),
        manual().batch_records_max(u32::MAX),
        manual().write_region_bytes(4095),
        manual().memory_bytes(0),
        Options::new().background(sealstone::Background::Threads(0)),
        // There are no threads in memory.
        Options::new().background(sealstone::Background::Threads(1)),
    ];
    for options in odd {
        let env = Env::in_memory();
        let error = refused(Store::open_with(env.clone(), options.clone()));
        assert_eq!(error.kind(), &ErrorKind::InvalidArgument, "{options:?}");
        assert!(env.vfs.list().is_err(), "nothing was made");
    }
}

#[test]
fn write_gives_up_only_when_no_job_is_left() {
    let (_, store, map) = world(small().pinned_generations_max(0));
    put(&map, "k", "first");
    let snapshot = store.snapshot().expect("a snapshot");
    let value = vec![7; 4000];
    let mut refused_with = None;
    for _ in 0..1000 {
        if let Err(error) = store.write(one_put(&map, b"k", &value), Buffered) {
            refused_with = Some(error);
            break;
        }
    }
    // One snapshot pins one generation, and there is room for that.
    assert!(refused_with.is_none(), "{refused_with:?}");
    drop(snapshot);
    let mut snapshots = Vec::new();
    let error = loop {
        snapshots.push(store.snapshot().expect("a snapshot"));
        if let Err(error) = store.write(one_put(&map, b"k", &value), Buffered) {
            break error;
        }
        assert!(snapshots.len() < 1000);
    };
    assert!(matches!(error.kind(), ErrorKind::Busy { .. }), "{error}");
    assert_eq!(store.runnable(), []);
    assert_eq!(
        store.run(Job::Flush, 1).expect("nothing to do"),
        Progress::Nothing
    );
    drop(snapshots);
    store
        .write(one_put(&map, b"k", &value), Buffered)
        .expect("writes");
}

#[test]
fn a_deadline_of_nothing_helps_nobody() {
    let (_, store, map) = world(small().write_deadline(Duration::ZERO));
    let mut number = 0u32;
    let error = loop {
        let key = number.to_be_bytes();
        if let Err(error) = store.write(one_put(&map, &key, &[7; 1000]), Buffered) {
            break error;
        }
        number += 1;
    };
    assert!(matches!(error.kind(), ErrorKind::Busy { .. }), "{error}");
    assert!(!store.runnable().is_empty());
}
