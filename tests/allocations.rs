//! What writing takes from the heap, counted at the allocator and told apart by where in a write's life it
//! is taken.

mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use sealstone::env::Env;
use sealstone::{Batch, Durability, Job, Keyspace, Options, Progress, Store};
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
    let directory = tempfile::tempdir().expect("a directory");
    // The files of a real directory: those in memory grow on the heap.
    let env = Env::real(directory.keep()).expect("a path");
    let store = open(&env, small());
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

#[test]
fn a_write_takes_nothing() {
    let world = world();
    for round in 0..4 {
        write_generation(&world, round);
        world.store.seal().expect("seals");
        world.store.drain().expect("drains");
    }
    let writes = write_generation(&world, 9);
    let taking: Vec<_> = writes
        .iter()
        .enumerate()
        .filter(|(_, taken)| taken.calls > 0)
        .collect();
    println!(
        "{} of {} writes take: {taking:?}",
        taking.len(),
        writes.len()
    );
    // The first opens the generation; and each chunk has a shared count, which is its own.
    let sum: u64 = writes.iter().map(|taken| taken.calls).sum();
    assert!(taking.len() <= 4, "{taking:?}");
    assert!(sum <= 40, "{sum}");
}

#[test]
fn a_flush_takes_a_fixed_number() {
    let world = world();
    for round in 0..4 {
        write_generation(&world, round);
        world.store.seal().expect("seals");
        world.store.drain().expect("drains");
    }
    write_generation(&world, 9);
    world.store.seal().expect("seals");
    let steps = flush_steps(&world);
    let taking: Vec<_> = steps
        .iter()
        .enumerate()
        .filter(|(_, taken)| taken.calls > 0)
        .collect();
    let sum: u64 = steps.iter().map(|taken| taken.calls).sum();
    let bytes: u64 = steps.iter().map(|taken| taken.bytes).sum();
    println!(
        "{sum} calls, {bytes} bytes in {} of {} steps: {taking:?}",
        taking.len(),
        steps.len()
    );
    let runs = world.store.stats().runs;
    assert!(sum <= 64, "{sum}");
    assert!(bytes <= (16 << 10) + 16 * runs, "{bytes}");
}
