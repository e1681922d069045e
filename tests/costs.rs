//! What reads cost, counted at the directory: hits, misses, first touches, opens. Without the window table,
//! whose costs are counted in `window.rs`.

mod support;

use sealstone::env::counting::{Counters, Counts};
use sealstone::env::{Env, FileKind};
use sealstone::sync::Arc;
use sealstone::{Batch, Durability, Fold, Keyspace, Options, Stats, Store};
use support::{Random, flush, get, manual, mutable, open, put, write_once};

/// A page of a segment's index.
const PAGE_BYTES: u64 = 4096;

/// Reads and opens of segment files between two moments, by the directory's counters, which must be
/// those of the store.
struct Meter<'a> {
    store: &'a Store,
    counters: &'a Counters,
    counts: Counts,
    stats: Stats,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cost {
    reads: u64,
    bytes: u64,
    opens: u64,
}

const NOTHING: Cost = Cost {
    reads: 0,
    bytes: 0,
    opens: 0,
};

impl<'a> Meter<'a> {
    fn start(store: &'a Store, counters: &'a Counters) -> Self {
        let (counts, stats) = (counters.snapshot(), store.stats());
        Self {
            store,
            counters,
            counts,
            stats,
        }
    }

    fn cost(&self) -> Cost {
        let all = self.counters.snapshot() - self.counts;
        let segment = all.of(FileKind::Segment);
        let stats = self.store.stats();
        let cost = Cost {
            reads: segment.reads,
            bytes: segment.read_bytes,
            opens: segment.opens,
        };
        let counted = Cost {
            reads: stats.reads - self.stats.reads,
            bytes: stats.read_bytes - self.stats.read_bytes,
            opens: stats.opens - self.stats.opens,
        };
        assert_eq!(cost, counted, "the store counts what the directory saw");
        assert_eq!(all.total().reads, segment.reads, "reads of other files");
        cost
    }
}

/// The length of a record in a segment, padding included.
fn record_bytes(key: usize, value: usize) -> u64 {
    ((24 + key + value) as u64).next_multiple_of(8).max(32)
}

fn roomy() -> Options {
    manual()
        .write_region_bytes(512 << 20)
        .filter_budget_bytes(16 << 20)
        .window_bytes(0)
        .seal_records(4096)
        .seal_bytes(40 << 20)
        .batch_bytes_max(2 << 20)
}

/// Keys and values.
type Records = Vec<(Vec<u8>, Vec<u8>)>;

/// Keys with values from nothing to 1 MiB, in one sealed segment.
fn mixed(env: &Env) -> (Store, Keyspace, Records) {
    let store = open(env, roomy());
    let blocks = write_once(&store, "blocks");
    let mut random = Random(7);
    let mut sizes = vec![0, 1, 7, 8, 9, 100, 4095, 4096, 65_535, 65_536, 1 << 20];
    sizes.extend((0..20).map(|_| random.below(1 << 20)));
    sizes.extend((0..400).map(|_| random.below(2000)));
    let mut records = Vec::new();
    for (number, size) in sizes.into_iter().enumerate() {
        let mut key = format!("key {number} ").into_bytes();
        let more = random.below(60) as usize;
        key.extend(random.bytes(more));
        records.push((key, vec![number as u8; size as usize]));
    }
    for (key, value) in &records {
        put(&blocks, key, value);
    }
    flush(&store);
    assert_eq!(store.stats().segments, 1);
    (store, blocks, records)
}

#[test]
fn a_hit_costs_two_reads() {
    let (env, counters) = Env::in_memory().counting();
    let (store, blocks, records) = mixed(&env);
    assert_eq!(store.stats().opens, 1, "by the flush, for all that come");
    let mut out = Vec::new();
    for (number, (key, value)) in records.iter().enumerate() {
        let meter = Meter::start(&store, &counters);
        match number % 3 {
            0 => assert_eq!(get(&blocks, key).as_ref(), Some(value)),
            1 => {
                assert!(blocks.get_into(key, &mut out).expect("reads"));
                assert_eq!(&out, value);
            }
            _ => assert!(blocks.contains(key).expect("reads")),
        }
        let cost = meter.cost();
        let record = record_bytes(key.len(), value.len());
        assert_eq!(cost.reads, 2, "a value of {} bytes", value.len());
        assert!(cost.bytes >= PAGE_BYTES + record, "{cost:?}");
        assert!(
            cost.bytes <= PAGE_BYTES + record + record / 4,
            "{cost:?} for a record of {record}"
        );
        assert_eq!(cost.opens, 0, "a new write-once segment's file is open");
    }
}

#[test]
fn snapshots_and_several_keys_cost_the_same() {
    let (env, counters) = Env::in_memory().counting();
    let (store, blocks, records) = mixed(&env);
    let keys: Vec<_> = records[..50]
        .iter()
        .map(|(k, _)| (&blocks, k.as_slice()))
        .collect();
    let meter = Meter::start(&store, &counters);
    let values = store.multi_get(&keys).expect("reads");
    assert_eq!(meter.cost().reads, 100);
    for ((_, value), got) in records.iter().zip(values) {
        assert_eq!(got.as_deref(), Some(value.as_slice()));
    }
    let snapshot = store.snapshot().expect("a snapshot");
    let meter = Meter::start(&store, &counters);
    let value = snapshot.get(&blocks, &records[3].0).expect("reads");
    assert_eq!(value.as_deref(), Some(records[3].1.as_slice()));
    assert_eq!(meter.cost().reads, 2);
}

#[test]
fn a_filtered_miss_costs_nothing() {
    let (env, counters) = Env::in_memory().counting();
    let (store, blocks, records) = mixed(&env);
    get(&blocks, &records[0].0);
    let mut wrong = 0;
    for number in 0..2000 {
        let before = store.stats();
        let meter = Meter::start(&store, &counters);
        assert_eq!(get(&blocks, format!("absent {number}")), None);
        let after = store.stats();
        assert_eq!(after.filter_tests - before.filter_tests, 1);
        let false_candidates = after.false_candidates - before.false_candidates;
        let cost = meter.cost();
        // A wrong filter costs its page and nothing else.
        assert_eq!(cost.reads, false_candidates);
        assert_eq!(cost.bytes, false_candidates * PAGE_BYTES);
        wrong += false_candidates;
    }
    assert!(wrong <= 20, "{wrong} of 2,000 filters were wrong");
}

#[test]
fn keys_in_memory_and_tombstones() {
    let (env, counters) = Env::in_memory().counting();
    let store = open(&env, roomy());
    let map = mutable(&store, "map");
    put(&map, "gone", "value");
    put(&map, "stays", "value");
    flush(&store);
    map.delete("gone", Durability::Buffered).expect("deletes");
    let meter = Meter::start(&store, &counters);
    assert_eq!(get(&map, "gone"), None);
    assert_eq!(meter.cost(), NOTHING, "the tombstone is in memory");
    flush(&store);
    let meter = Meter::start(&store, &counters);
    assert_eq!(get(&map, "gone"), None);
    let cost = meter.cost();
    assert_eq!((cost.reads, cost.bytes), (2, PAGE_BYTES + 32));
}

/// A store of that many segments of four records each; the newest has the last numbers.
fn small_segments(env: &Env, count: u64, options: Options) {
    let store = open(env, options);
    let map = mutable(&store, "map");
    for number in 0..count {
        let mut batch = Batch::new();
        for record in 0..4 {
            batch.put(&map, key(number, record), format!("value {number}"));
        }
        store.write(batch, Durability::Buffered).expect("writes");
        store.drain().expect("drains");
    }
    assert_eq!(store.stats().segments, count);
    store.close().expect("closes");
}

fn key(segment: u64, record: u64) -> Vec<u8> {
    format!("key {segment} {record}").into_bytes()
}

fn small() -> Options {
    // One run a segment.
    manual()
        .fold(Fold::Off)
        .write_region_bytes(1 << 20)
        .chunk_bytes(4096)
        .seal_records(4)
        .seal_bytes(4096)
        .batch_bytes_max(4096)
        .output_buffer_bytes(4096)
        .filter_budget_bytes(0)
        .window_bytes(0)
}

fn counted() -> (Env, Arc<Counters>) {
    Env::in_memory().counting()
}

#[test]
fn open_reads_manifest_and_logs_only() {
    const SEGMENTS: u64 = 1000;
    let (env, counters) = counted();
    small_segments(&env, SEGMENTS, small());
    let before = counters.snapshot();
    let store = open(&env, small());
    let opened = counters.snapshot() - before;
    assert_eq!(store.stats().segments, SEGMENTS);
    assert_eq!(opened.of(FileKind::Segment), Default::default());
    assert!(opened.of(FileKind::Manifest).reads > 0 && opened.of(FileKind::Log).reads > 0);
    assert_eq!(store.audit().descriptors_open, 0);

    let map = mutable(&store, "map");
    let meter = Meter::start(&store, &counters);
    assert_eq!(get(&map, key(SEGMENTS - 1, 2)), Some(b"value 999".to_vec()));
    let first = meter.cost();
    assert_eq!(
        (first.reads, first.opens),
        (3, 1),
        "tail, page, record of one file"
    );

    // No filter is in memory: a miss asks every run once, the first time also for its tail.
    let meter = Meter::start(&store, &counters);
    assert_eq!(get(&map, "absent"), None);
    let touched = meter.cost();
    assert!(touched.reads <= 2 * SEGMENTS, "{touched:?}");
    assert_eq!(touched.opens, SEGMENTS - 1);
    for absent in ["absent", "key", "key 500 9", "zzz"] {
        let meter = Meter::start(&store, &counters);
        assert_eq!(get(&map, absent), None);
        let cost = meter.cost();
        assert!(cost.reads <= SEGMENTS && cost.opens == 0, "{cost:?}");
    }
    for segment in [0, 1, 500, 999] {
        let meter = Meter::start(&store, &counters);
        assert!(get(&map, key(segment, 0)).is_some());
        let cost = meter.cost();
        let asked = SEGMENTS - segment;
        assert!(cost.reads <= asked + 1 && cost.opens == 0, "{cost:?}");
    }
}

#[test]
fn filters_load_by_jobs_and_spare_the_runs() {
    const SEGMENTS: u64 = 50;
    let (env, counters) = counted();
    small_segments(&env, SEGMENTS, small());
    let store = open(&env, small().filter_budget_bytes(1 << 20));
    let map = mutable(&store, "map");
    assert_eq!(store.stats().filters_resident, 0, "open loads none");
    store.drain().expect("loads filters");
    assert_eq!(store.stats().filters_resident, SEGMENTS);
    assert_eq!(store.stats().filter_loads, SEGMENTS);
    let meter = Meter::start(&store, &counters);
    let wrong = store.stats().false_candidates;
    for number in 0..100 {
        assert_eq!(get(&map, format!("absent {number}")), None);
    }
    let wrong = store.stats().false_candidates - wrong;
    assert_eq!(meter.cost().reads, wrong);
    assert!(wrong < 50, "{wrong} of 5,000 filters were wrong");
}

#[test]
fn a_lookup_loads_no_filter() {
    let (env, counters) = counted();
    small_segments(&env, 3, small());
    let store = open(&env, small().filter_budget_bytes(1 << 20));
    let map = mutable(&store, "map");
    get(&map, "absent");
    let meter = Meter::start(&store, &counters);
    get(&map, "absent");
    assert!(meter.cost().bytes <= 3 * PAGE_BYTES);
    assert_eq!(store.stats().filters_resident, 0);
}

#[test]
fn few_descriptors_cost_opens_and_nothing_else() {
    let (env, counters) = counted();
    small_segments(&env, 30, small());
    let store = open(&env, small().descriptors_max(4));
    let map = mutable(&store, "map");
    assert_eq!(get(&map, "absent"), None);
    for segment in [0, 7, 29, 7, 15] {
        let meter = Meter::start(&store, &counters);
        assert!(get(&map, key(segment, 1)).is_some());
        let cost = meter.cost();
        // One file a run on the way, each opened at most once.
        let asked = 30 - segment;
        assert!(
            cost.reads <= asked + 1 && cost.opens <= asked,
            "{segment}: {cost:?}"
        );
        assert!(store.audit().descriptors_open <= 4);
    }
}
