//! What writing takes from the heap, counted at the allocator and told apart by where in a write's life it
//! is taken.

#![allow(
    clippy::disallowed_methods,
    reason = "whether each allocation's place is printed is asked of the environment"
)]

mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use sealstone::env::Env;
use sealstone::{Batch, Durability, Fold, Job, Keyspace, Options, Progress, Store};
use support::{manual, mutable, open, write_once};

/// What one thread has taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Taken {
    calls: u64,
    bytes: u64,
}

thread_local! {
    static TAKEN: Cell<Taken> = const { Cell::new(Taken { calls: 0, bytes: 0 }) };
    static TELL: Cell<bool> = const { Cell::new(false) };
}

struct Counting;

fn count(bytes: usize) {
    let _ = TAKEN.try_with(|taken| {
        let Taken { calls, bytes: sum } = taken.get();
        taken.set(Taken {
            calls: calls + 1,
            bytes: sum + bytes as u64,
        });
    });
    if TELL.try_with(|tell| tell.replace(false)).unwrap_or(false) {
        eprintln!(
            "{bytes} bytes\n{}",
            std::backtrace::Backtrace::force_capture()
        );
        TELL.with(|tell| tell.set(true));
    }
}

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller keeps the contract.
        unsafe { System.alloc(layout) }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller keeps the contract.
        unsafe { System.alloc_zeroed(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract.
        unsafe { System.dealloc(pointer, layout) }
    }
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size);
        // SAFETY: the caller keeps the contract.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// What `work` takes on this thread.
fn taken<T>(work: impl FnOnce() -> T) -> (T, Taken) {
    let before = TAKEN.get();
    // With this in the environment each one's place in the code is printed.
    TELL.set(std::env::var_os("SEALSTONE_TELL").is_some());
    let result = work();
    TELL.set(false);
    let after = TAKEN.get();
    let difference = Taken {
        calls: after.calls - before.calls,
        bytes: after.bytes - before.bytes,
    };
    (result, difference)
}

fn small() -> Options {
    manual()
        .write_region_bytes(4 << 20)
        .chunk_bytes(64 << 10)
        .block_records(512)
        .seal_records(1000)
        .seal_bytes(256 << 10)
        .batch_bytes_max(64 << 10)
        .queue_slots(4)
}

struct World {
    store: Store,
    map: Keyspace,
    once: Keyspace,
}

fn world() -> World {
    world_of(small())
}

fn world_of(options: Options) -> World {
    let directory = tempfile::tempdir().expect("a directory");
    // The files of a real directory: those in memory grow on the heap.
    let env = Env::real(directory.keep()).expect("a path");
    let store = open(&env, options);
    let map = mutable(&store, "map");
    let once = write_once(&store, "once");
    World { store, map, once }
}

/// A batch of four records; its own memory is the caller's.
fn batch<'a>(world: &World, key: &'a [u8; 8], value: &'a [u8]) -> Batch<'a> {
    let mut batch = Batch::new();
    batch.put(&world.map, &key[..], value);
    batch.put(&world.map, &key[1..], value);
    batch.put(&world.once, &key[..], value);
    batch.put(&world.once, &key[2..], value);
    batch
}

/// Writes a generation but for its last commit; says what each write took.
fn write_generation(world: &World, round: u64) -> Vec<Taken> {
    (0..240)
        .map(|number: u64| {
            let key = (round << 32 | number << 8).to_be_bytes();
            let batch = batch(world, &key, &[7; 100]);
            let durability = match number % 8 {
                0 => Durability::Synced,
                _ => Durability::Buffered,
            };
            let (written, taken) = taken(|| world.store.write(batch, durability));
            written.expect("writes");
            taken
        })
        .collect()
}

/// Runs the flush of a sealed generation; what each step took, and whether it was the last.
fn flush_steps(world: &World) -> Vec<Taken> {
    let mut steps = Vec::with_capacity(10_000);
    loop {
        let (progress, taken) = taken(|| world.store.run(Job::Flush, 16));
        steps.push(taken);
        if progress.expect("flushes") == Progress::Finished {
            return steps;
        }
    }
}

/// Generations until everything that is kept is there.
fn warmed() -> World {
    let world = world();
    for round in 0..4 {
        write_generation(&world, round);
        world.store.seal().expect("seals");
        world.store.drain().expect("drains");
    }
    world
}

/// Those that took something, with their place.
fn taking(all: &[Taken]) -> Vec<(usize, Taken)> {
    let all = all.iter().copied().enumerate();
    all.filter(|(_, taken)| taken.calls > 0).collect()
}

fn sum(all: &[Taken]) -> Taken {
    all.iter().fold(Taken::default(), |sum, taken| Taken {
        calls: sum.calls + taken.calls,
        bytes: sum.bytes + taken.bytes,
    })
}

/// Opening a generation among them: it finds the memory of those before it. A chunk comes with its count, and a
/// file that a write-once check reads was opened by the flush.
#[test]
fn a_write_takes_nothing() {
    let world = warmed();
    let opens = world.store.stats().opens;
    let chunks = chunk_requests(&world);
    let writes = write_generation(&world, 9);
    let opens = world.store.stats().opens - opens;
    let chunks = chunk_requests(&world) - chunks;
    let taking = taking(&writes);
    println!(
        "{} writes, {opens} files opened, {chunks} chunks: {taking:?}",
        writes.len()
    );
    let all = sum(&writes);
    assert!(chunks >= 2, "one more than the generation's first");
    assert_eq!(opens, 0);
    assert_eq!(all, Taken::default(), "{taking:?}");
}

/// Readers keep memtables, handles and versions that would have been used again: a flush makes others.
#[test]
fn a_write_takes_nothing_whatever_readers_hold() {
    let world = warmed();
    let mut held = Vec::new();
    for round in 10..16 {
        let writes = write_generation(&world, round);
        assert_eq!(taking(&writes), [], "{round}");
        let snapshot = world.store.snapshot().expect("pins");
        let mut entries = world.once.iter().expect("pins");
        assert!(entries.next().is_some());
        held.push((snapshot, entries));
        world.store.seal().expect("seals");
        world.store.drain().expect("drains");
        if round % 2 == 1 {
            held.clear();
        }
    }
}

/// Checks that read segments and folded runs nobody has read before: their files are open, and the thread's
/// buffers are there whatever else it has looked up.
#[test]
fn a_check_that_reads_takes_nothing() {
    const ROUNDS: u64 = 24;
    let options = small().fold(Fold::Runs(4)).window_bytes(0);
    let world = world_of(options.batch_bytes_max(128 << 10));
    let key = |round: u64, number: u64| (round << 32 | number << 8).to_be_bytes();
    let large = vec![7; 100_000];
    for round in 0..ROUNDS {
        write_generation(&world, round);
        for number in 0..2 {
            let mut batch = Batch::new();
            batch.put(&world.map, [number; 1], &large[..]);
            let written = world.store.write(batch, Durability::Buffered);
            written.expect("writes");
        }
        world.store.seal().expect("seals");
        world.store.drain().expect("drains");
    }
    // Its first look, its first lists.
    for number in 0..2 {
        let key = key(0, number);
        let written = world
            .store
            .write(batch(&world, &key, &[7; 100]), Durability::Buffered);
        written.expect("writes");
    }
    let before = world.store.stats();
    let mut all = Vec::new();
    for round in 0..ROUNDS {
        let value = world.map.get([0; 1]).expect("reads");
        assert_eq!(value.map(|value| value.len()), Some(large.len()));
        // There already, with the same value.
        let key = key(round, 9);
        let batch = batch(&world, &key, &[7; 100]);
        let (written, taken) = taken(|| world.store.write(batch, Durability::Buffered));
        written.expect("writes");
        all.push(taken);
    }
    let after = world.store.stats();
    assert!(after.folds > 2, "{}", after.folds);
    assert!(after.reads - before.reads >= 4 * ROUNDS, "they read");
    assert_eq!(taking(&all), []);
}

/// Batches of a chain's block: lists of their operations and chunks are kept, and chunks come with their counts.
#[test]
fn a_large_write_takes_nothing() {
    const RECORDS: u64 = 5_000;
    const ROUNDS: u64 = 6;
    let world = world_of(
        small()
            .memory_bytes(256 << 20)
            .write_region_bytes(192 << 20)
            .seal_records(RECORDS as u32 * 4)
            .seal_bytes(16 << 20)
            .batch_records_max(RECORDS as u32)
            .batch_bytes_max(4 << 20),
    );
    let mut all = Taken::default();
    for round in 0..ROUNDS {
        for number in 0..3 {
            let keys: Vec<_> = (0..RECORDS)
                .map(|record| ((round * 3 + number) << 32 | record).to_be_bytes())
                .collect();
            let mut batch = Batch::new();
            for key in &keys {
                batch.put(&world.map, key, [7; 100]);
            }
            let chunks = chunk_requests(&world);
            let (written, taken) = taken(|| world.store.write(batch, Durability::Buffered));
            written.expect("writes");
            let chunks = chunk_requests(&world) - chunks;
            if round < 3 {
                continue;
            }
            assert!(chunks >= 9, "{chunks}");
            all = sum(&[all, taken]);
        }
        world.store.seal().expect("seals");
        world.store.drain().expect("drains");
    }
    assert_eq!(all, Taken::default());
}

fn chunk_requests(world: &World) -> u64 {
    let buffers = world.store.stats().memory_counters.buffers;
    let chunks = buffers.iter().filter(|one| one.class == "chunk");
    chunks.map(|one| one.counts.hits + one.counts.misses).sum()
}

/// Of the flush of a generation of both kinds: none while records are merged and pages are built, and a fixed
/// number where segments, logs and versions begin and end.
#[test]
fn a_flush_takes_a_fixed_number() {
    let world = warmed();
    write_generation(&world, 9);
    world.store.seal().expect("seals");
    let steps = flush_steps(&world);
    let taking = taking(&steps);
    let Taken { calls, bytes } = sum(&steps);
    println!(
        "{calls} calls, {bytes} bytes in {} of {} steps: {taking:?}",
        taking.len(),
        steps.len()
    );
    let runs = world.store.stats().runs;
    assert!(calls <= 64, "{calls}");
    assert!(bytes <= (16 << 10) + 16 * runs, "{bytes}");
    // 60 steps of 16 records each and 2 KiB of pages a step: all but a few take nothing.
    assert!(steps.len() > 150 && taking.len() <= 20, "{taking:?}");
}

/// Each byte is copied into a chunk once, and into the output buffer once, with its index and filters.
#[test]
fn a_byte_is_copied_twice() {
    let world = warmed();
    let copies = world.store.stats().memory_counters.copies;
    println!("{copies:?}");
    assert!(copies.accepted_bytes > 0);
    assert_eq!(
        copies.chunk_bytes, copies.accepted_bytes,
        "once, and all have come back"
    );
    // Once more where small frames leave together in one write.
    assert!(copies.log_bytes >= copies.accepted_bytes);
    let records = world.store.stats().segment_records;
    let index_bytes = copies.output_bytes.saturating_sub(copies.accepted_bytes);
    assert!(copies.output_bytes >= copies.accepted_bytes);
    assert!(
        index_bytes <= 80 * records + 8 * 8192,
        "{index_bytes} of {records}"
    );
}
