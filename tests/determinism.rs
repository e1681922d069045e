//! The same commits give the same segments, whatever the schedule, the chunks or the quanta.

mod support;

use sealstone::env::{Env, FileKind};
use sealstone::{Batch, Durability, Keyspace, Options, Store};
use support::{Random, files, manual, mutable, open, read_file, write_once};

/// How one of the stores is run.
#[derive(Clone, Copy, Debug)]
struct Schedule {
    chunk_bytes: u32,
    block_records: u32,
    output_buffer_bytes: u32,
    queue_slots: u32,
    filter_budget_bytes: u64,
    /// Jobs run after every that many commits; 0 = only when a write has no room.
    drain_every: u64,
    quantum: u32,
    /// Commits are queued and led in groups of that many.
    group: u64,
    reopen: bool,
}

const PLAIN: Schedule = Schedule {
    chunk_bytes: 4096,
    block_records: 64,
    output_buffer_bytes: 4096,
    queue_slots: 1,
    filter_budget_bytes: 1 << 20,
    drain_every: 1,
    quantum: 1024,
    group: 1,
    reopen: false,
};

fn options(schedule: &Schedule) -> Options {
    manual()
        .family_seed([3; 16])
        .write_region_bytes(8 << 20)
        .seal_records(24)
        .seal_bytes(16 << 10)
        .batch_records_max(40)
        .batch_bytes_max(16 << 10)
        .hash_bits(10)
        .key_fence_bytes(256)
        .chunk_bytes(schedule.chunk_bytes)
        .block_records(schedule.block_records)
        .output_buffer_bytes(schedule.output_buffer_bytes)
        .queue_slots(schedule.queue_slots)
        .filter_budget_bytes(schedule.filter_budget_bytes)
}

fn batch_of(number: u64, map: &Keyspace, once: &Keyspace) -> Batch<'static> {
    let mut random = Random(number);
    let mut batch = Batch::new();
    for _ in 0..=random.below(8) {
        let key = format!("key {}", random.below(200));
        let length = [0, 5, 60, 900, 3000][random.below(5) as usize];
        let value = random.bytes(length);
        match random.below(10) {
            0 => batch.delete(map, key),
            // The value follows from the key, so that putting it again is a no-op.
            1..4 => {
                let value = key.repeat(3);
                batch.put(once, key, value)
            }
            4 => batch.delete(once, key),
            _ => batch.put(map, key, value),
        };
    }
    batch
}

/// Feeds the commits and returns the segments in order of age and kind, with their bytes.
fn segments(schedule: &Schedule) -> Vec<Vec<u8>> {
    let env = Env::in_memory();
    let mut store = open(&env, options(schedule));
    let (mut map, mut once) = (mutable(&store, "map"), write_once(&store, "once"));
    for number in 0..400 {
        let batch = batch_of(number, &map, &once);
        if schedule.group > 1 {
            submit(&store, batch);
            if number % schedule.group == 0 {
                while store.commit_step().expect("commits") {}
            }
        } else {
            store.write(batch, Durability::Buffered).expect("writes");
        }
        if number == 150 || number == 151 {
            store.seal().expect("seals");
        }
        if schedule.drain_every > 0 && number % schedule.drain_every == 0 {
            drain(&store, schedule.quantum);
        }
        if schedule.reopen && number % 97 == 0 {
            store = store.reopen().expect("reopens");
            (map, once) = (mutable(&store, "map"), write_once(&store, "once"));
        }
    }
    store.seal().expect("seals");
    drain(&store, schedule.quantum);
    let mut runs = store.audit().runs;
    runs.sort_by_key(|run| (run.generations, run.kind));
    let numbers = runs.into_iter().flat_map(|run| run.segments);
    let name = sealstone::env::FileName::segment;
    numbers
        .map(|number| read_file(&env, name(number)))
        .collect()
}

/// Queues a batch, making room for it as `write` would.
fn submit(store: &Store, batch: Batch<'static>) {
    while store.audit().memory.free_bytes < 1 << 20 {
        store.commit_step().expect("commits");
        store.drain().expect("drains");
    }
    match store.submit(batch, Durability::Buffered) {
        Ok(ticket) => drop(ticket),
        Err(error) => panic!("{error}"),
    }
}

fn drain(store: &Store, quantum: u32) {
    while let Some(job) = store.runnable().first() {
        store.run(*job, quantum).expect("runs");
    }
}

#[test]
fn segments_do_not_depend_on_the_schedule() {
    let plain = segments(&PLAIN);
    assert!(plain.len() > 60, "{} segments", plain.len());
    let others = [
        Schedule {
            drain_every: 0,
            ..PLAIN
        },
        Schedule {
            drain_every: 7,
            quantum: 1,
            ..PLAIN
        },
        Schedule {
            quantum: 3,
            queue_slots: 4,
            drain_every: 13,
            ..PLAIN
        },
        Schedule {
            chunk_bytes: 512,
            block_records: 4,
            ..PLAIN
        },
        Schedule {
            chunk_bytes: 64 << 10,
            block_records: 512,
            filter_budget_bytes: 0,
            ..PLAIN
        },
        Schedule {
            output_buffer_bytes: 256,
            ..PLAIN
        },
        Schedule {
            group: 3,
            queue_slots: 8,
            drain_every: 4,
            ..PLAIN
        },
        Schedule {
            reopen: true,
            ..PLAIN
        },
        Schedule {
            reopen: true,
            chunk_bytes: 1024,
            drain_every: 0,
            quantum: 2,
            ..PLAIN
        },
    ];
    for schedule in others {
        let other = segments(&schedule);
        assert_eq!(other.len(), plain.len(), "{schedule:?}");
        for (number, (one, other)) in plain.iter().zip(&other).enumerate() {
            assert!(one == other, "segment {number} differs under {schedule:?}");
        }
    }
}

#[test]
fn the_same_choices_give_the_same_directory() {
    let run = || {
        let env = Env::in_memory();
        let store = open(&env, options(&PLAIN));
        let (map, once) = (mutable(&store, "map"), write_once(&store, "once"));
        for number in 0..120 {
            let batch = batch_of(number, &map, &once);
            store.write(batch, Durability::Synced).expect("writes");
            if number % 5 == 0 {
                drain(&store, 8);
            }
        }
        store.close().expect("closes");
        files(&env)
    };
    let (one, two) = (run(), run());
    assert!(one.keys().any(|name| name.kind == FileKind::Segment));
    assert_eq!(one, two);
}

#[test]
fn another_seed_gives_other_segments() {
    let run = |seed: u8| {
        let env = Env::in_memory();
        let store = open(&env, options(&PLAIN).family_seed([seed; 16]));
        let map = mutable(&store, "map");
        support::put(&map, "key", "value");
        support::flush(&store);
        let name = support::names_of(&env, FileKind::Segment)[0];
        read_file(&env, name)
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}
