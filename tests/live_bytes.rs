//! What a sealed segment takes in memory, counted at the allocator: its filter, its page fences and at
//! most 256 bytes.
//!
//! The only test of its program, so that nothing else allocates meanwhile.

mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::path::Path;
use std::sync::atomic::{AtomicI64, Ordering};

use sealstone::env::Env;
use sealstone::{Batch, Durability, Fold, Keyspace, Store};
use support::{get, manual, mutable, one_put, open};

static LIVE_BYTES: AtomicI64 = AtomicI64::new(0);

struct Counting;

// SAFETY: every call goes to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE_BYTES.fetch_add(layout.size() as i64, Ordering::Relaxed);
        // SAFETY: the caller's promises are the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE_BYTES.fetch_sub(layout.size() as i64, Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn live_bytes() -> i64 {
    LIVE_BYTES.load(Ordering::Relaxed)
}

#[test]
fn allocations_are_seen() {
    let before = live_bytes();
    let block = std::hint::black_box(vec![1_u8; 5 << 20]);
    assert!(live_bytes() - before > 4 << 20);
    drop(block);
    assert!(live_bytes() - before < 1 << 20);
    nothing_is_left_of_a_store_that_is_gone();
    a_segment_takes_its_filter_its_fences_and_little_more();
}

/// Records of a segment: more than one index page holds.
const RECORDS: u32 = 400;

/// Grows the store to that many segments.
fn grow(store: &Store, map: &Keyspace, segments: u64) {
    while store.stats().segments < segments {
        let mut batch = Batch::new();
        for record in 0..RECORDS {
            batch.put(map, key(store.stats().segments, record), b"value".to_vec());
        }
        store.write(batch, Durability::Buffered).expect("writes");
        store.drain().expect("drains");
    }
}

fn key(segment: u64, record: u32) -> Vec<u8> {
    format!("key {segment} {record}").into_bytes()
}

/// Live bytes without filters and fences.
fn rest_bytes(store: &Store) -> i64 {
    let stats = store.stats();
    assert_eq!(stats.filters_resident, stats.segments);
    let known = stats.filter_bytes + stats.fence_bytes;
    drop(stats);
    live_bytes() - known as i64
}

/// The store that is measured.
fn open_in(directory: &Path) -> (Store, Keyspace) {
    // One run a segment: the most that they take.
    let options = manual()
        .fold(Fold::Off)
        .write_region_bytes(8 << 20)
        .seal_records(RECORDS)
        .seal_bytes(64 << 10)
        .batch_bytes_max(64 << 10)
        // Its list takes 4 bytes a generation that it covers, which is the window's.
        .window_bytes(0)
        .descriptors_max(8);
    let store = Store::open(directory, options).expect("opens");
    let map = mutable(&store, "map");
    (store, map)
}

/// What a store of that many segments takes without filters and fences: as written, and as opened once
/// its filters are loaded.
fn taken(segments: u64) -> (i64, i64) {
    let directory = tempfile::tempdir().expect("a directory");
    let before = live_bytes();
    let (store, map) = open_in(directory.path());
    grow(&store, &map, segments);
    assert!(store.stats().fence_bytes >= segments * 8);
    let written = rest_bytes(&store) - before;
    store.close().expect("closes");
    drop((map, store));
    let before = live_bytes();
    let (store, map) = open_in(directory.path());
    store.drain().expect("loads filters");
    assert!(get(&map, key(0, 0)).is_some());
    (written, rest_bytes(&store) - before)
}

fn a_segment_takes_its_filter_its_fences_and_little_more() {
    const FEW: u64 = 100;
    const MANY: u64 = 400;
    // Whatever is made once in the life of the process.
    taken(1);
    let (few, many) = (taken(FEW), taken(MANY));
    let each = |few: i64, many: i64| (many - few) / (MANY - FEW) as i64;
    let (written, opened) = (each(few.0, many.0), each(few.1, many.1));
    println!("beside filter and fences a segment takes {written} bytes written, {opened} opened");
    assert!((1..=256).contains(&written), "{written} bytes a segment");
    assert!((1..=256).contains(&opened), "{opened} bytes a segment");
}

/// Chunks so small that they are the allocator's: what is taken for one is what is given back.
fn nothing_is_left_of_a_store_that_is_gone() {
    let options = manual()
        .write_region_bytes(4 << 20)
        .chunk_bytes(4096)
        .seal_bytes(64 << 10)
        .batch_bytes_max(64 << 10);
    for round in 0..3 {
        let before = live_bytes();
        let env = Env::in_memory();
        let store = open(&env, options.clone());
        let map = mutable(&store, "map");
        for number in 0..200_u32 {
            let key = number.to_be_bytes();
            let batch = one_put(&map, &key, &[7; 1000]);
            store.write(batch, Durability::Buffered).expect("writes");
        }
        assert!(live_bytes() - before > 200_000, "not counted");
        drop((map, store, env));
        // What a thread keeps for itself is taken in the first round.
        assert!(round == 0 || live_bytes() <= before, "{round}");
    }
}
