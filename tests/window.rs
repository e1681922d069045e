//! The window table: what lookups of recent keys cost, counted at the directory, and that answers do not
//! depend on it.

mod support;

use sealstone::env::counting::Counters;
use sealstone::env::{Env, FileKind};
use sealstone::sync::Arc;
use sealstone::{Batch, Durability, Fold, Job, Keyspace, Options, Store};
use support::{Map, Random, flush, get, manual, mutable, open, put, write_once};

/// Segments of 40 records, eight runs a fold, no filters: what the table does not answer costs reads.
fn options() -> Options {
    manual()
        .write_region_bytes(1 << 20)
        .chunk_bytes(4096)
        .seal_records(RECORDS as u32)
        .seal_bytes(16 << 10)
        .batch_bytes_max(16 << 10)
        .output_buffer_bytes(4096)
        .filter_budget_bytes(0)
        .window_bytes(64 << 10)
}

/// Records of a segment.
const RECORDS: u64 = 40;

fn key(segment: u64, record: u64) -> Vec<u8> {
    format!("key {segment} {record}").into_bytes()
}

fn value(segment: u64, record: u64) -> Vec<u8> {
    format!("value {segment} {record}").into_bytes()
}

/// Writes that many segments more, from the one with this number on.
fn grow(store: &Store, map: &Keyspace, from: u64, count: u64) {
    for segment in from..from + count {
        let mut batch = Batch::new();
        for record in 0..RECORDS {
            batch.put(map, key(segment, record), value(segment, record));
        }
        store.write(batch, Durability::Buffered).expect("writes");
        store.drain().expect("drains");
    }
}

/// What some work reads of segments and runs.
fn reads(counters: &Counters, work: impl FnOnce()) -> u64 {
    let before = counters.snapshot();
    work();
    let spent = counters.snapshot() - before;
    spent.of(FileKind::Segment).reads + spent.of(FileKind::Run).reads
}

fn counted() -> (Env, Arc<Counters>) {
    Env::in_memory().counting()
}

/// The reads of a hit on this key.
fn hit_reads(counters: &Counters, map: &Keyspace, segment: u64, record: u64) -> u64 {
    reads(counters, || {
        assert_eq!(get(map, key(segment, record)), Some(value(segment, record)));
    })
}

#[test]
fn a_recent_key_costs_one_read_whatever_was_folded() {
    let (env, counters) = counted();
    let store = open(&env, options());
    let map = mutable(&store, "map");
    for count in [1, 6, 13, 100] {
        grow(&store, &map, store.stats().segments, count);
        let segments = store.stats().segments;
        for segment in 0..segments {
            for record in [0, 17, RECORDS - 1] {
                assert_eq!(hit_reads(&counters, &map, segment, record), 1, "{segment}");
            }
        }
        let misses = || {
            for number in 0..200 {
                assert_eq!(get(&map, format!("absent {number}")), None);
            }
        };
        // One fingerprint in 16,384 is another key's, in two buckets that are half full.
        assert!(reads(&counters, misses) <= 2);
    }
    let stats = store.stats();
    assert!(stats.folds > 10 && stats.runs < 20, "{} runs", stats.runs);
    assert_eq!((stats.window_segments, stats.segments), (120, 120));
    assert_eq!(
        (stats.window_entries, stats.window_dropped),
        (120 * RECORDS, 0)
    );
    assert_eq!(stats.window_generations.1 - stats.window_generations.0, 120);
    assert_eq!(
        (stats.candidates, stats.false_candidates),
        (0, 0),
        "no run was asked"
    );
    assert!(stats.window_hits >= 120 && stats.window_runs_skipped > 800);
}

#[test]
fn what_does_not_fit_is_asked_of_its_runs() {
    let (env, counters) = counted();
    // About ten segments of 120.
    let store = open(
        &env,
        options().window_bytes(4096).filter_budget_bytes(1 << 20),
    );
    let map = mutable(&store, "map");
    grow(&store, &map, 0, 120);
    store.drain().expect("loads filters");
    let stats = store.stats();
    let covered = stats.window_segments;
    assert!((8..=10).contains(&covered), "{covered} segments");
    let (mut recent, mut old) = (0, 0);
    for segment in 0..120 {
        for record in 0..RECORDS {
            // A filter may be wrong: one page.
            let cost = hit_reads(&counters, &map, segment, record);
            match segment >= 120 - covered {
                true => recent += cost,
                false => old += cost,
            }
        }
    }
    let of_old = (120 - covered) * RECORDS;
    assert!(
        (2 * of_old..of_old * 21 / 10).contains(&old),
        "{old} reads for {of_old}"
    );
    // Some were dropped from full buckets, and cost a second read.
    let of_recent = covered * RECORDS;
    assert!(
        (of_recent..of_recent * 13 / 10).contains(&recent),
        "{recent} for {of_recent}"
    );
    assert!(store.stats().window_hits >= of_recent * 3 / 4);
}

#[test]
fn without_a_table_everything_is_as_it_was() {
    let (env, counters) = counted();
    let store = open(&env, options().window_bytes(0).fold(Fold::Off));
    let map = mutable(&store, "map");
    grow(&store, &map, 0, 3);
    assert_eq!(hit_reads(&counters, &map, 2, 5), 2);
    let stats = store.stats();
    assert_eq!((stats.window_bytes, stats.window_entries), (0, 0));
    assert_eq!((stats.window_segments, stats.window_hits), (0, 0));
    assert!(!store.runnable().contains(&Job::FillWindow));
}

#[test]
fn an_eighth_of_all_memory_by_default() {
    let store = open(&Env::in_memory(), manual().memory_bytes(16 << 20));
    assert_eq!(store.stats().window_bytes, 2 << 20);
    let store = open(&Env::in_memory(), options().window_bytes(127));
    assert_eq!(store.stats().window_bytes, 0);
}

#[test]
fn a_segment_beyond_the_table_leaves_it_empty() {
    let (env, counters) = counted();
    let store = open(&env, options().window_bytes(256));
    let map = mutable(&store, "map");
    for number in 0..5 {
        put(&map, key(number, 0), value(number, 0));
        flush(&store);
    }
    assert_eq!(hit_reads(&counters, &map, 0, 0), 1);
    grow(&store, &map, 10, 1);
    assert_eq!(store.stats().window_segments, 0);
    assert_eq!(hit_reads(&counters, &map, 10, 0), 2);
    put(&map, key(20, 0), value(20, 0));
    flush(&store);
    assert_eq!(hit_reads(&counters, &map, 20, 0), 1);
    assert_eq!(store.stats().window_segments, 1);
}

#[test]
fn snapshots_see_what_they_saw() {
    let (env, counters) = counted();
    let store = open(&env, options());
    let map = mutable(&store, "map");
    put(&map, "key", "1");
    put(&map, "gone", "1");
    flush(&store);
    let first = store.snapshot().expect("a snapshot");
    put(&map, "key", "2");
    map.delete("gone", Durability::Buffered).expect("deletes");
    put(&map, "new", "2");
    flush(&store);
    let second = store.snapshot().expect("a snapshot");
    put(&map, "key", "3");
    flush(&store);
    grow(&store, &map, 0, 20);
    let see = |snapshot: &sealstone::Snapshot, key: &str| {
        let value = snapshot.get(&map, key).expect("reads");
        value.map(|value| String::from_utf8_lossy(&value).into_owned())
    };
    let text = |text: &str| Some(text.to_owned());
    for _ in 0..2 {
        assert_eq!(
            (see(&first, "key"), see(&first, "gone")),
            (text("1"), text("1"))
        );
        assert_eq!(see(&first, "new"), None);
        assert_eq!(
            (see(&second, "key"), see(&second, "gone")),
            (text("2"), None)
        );
    }
    let one = reads(&counters, || assert_eq!(see(&first, "key"), text("1")));
    assert_eq!(one, 1, "what is newer than the snapshot is not its own");
    assert_eq!(get(&map, "key"), Some(b"3".to_vec()));
    assert_eq!(get(&map, "gone"), None);
}

#[test]
fn both_kinds_have_their_records() {
    let (env, counters) = counted();
    let store = open(&env, options());
    let (map, blocks) = (mutable(&store, "map"), write_once(&store, "blocks"));
    for number in 0..60_u32 {
        put(&map, format!("key {number}"), format!("mutable {number}"));
        put(&blocks, format!("key {number}"), format!("once {number}"));
    }
    flush(&store);
    assert_eq!(
        (store.stats().segments, store.stats().window_segments),
        (6, 6)
    );
    let cost = reads(&counters, || {
        for number in 0..60 {
            let key = format!("key {number}");
            assert_eq!(
                get(&map, &key),
                Some(format!("mutable {number}").into_bytes())
            );
            assert_eq!(
                get(&blocks, &key),
                Some(format!("once {number}").into_bytes())
            );
        }
    });
    assert_eq!(cost, 120);
    // The second look of a write-once key, too.
    let again = reads(&counters, || {
        put(&blocks, "key 7", "once 7");
    });
    assert_eq!(again, 1);
}

#[test]
fn a_job_fills_it_after_an_opening() {
    let (env, counters) = counted();
    let store = open(&env, options());
    let map = mutable(&store, "map");
    grow(&store, &map, 0, 30);
    put(&map, "open", "in the log");
    store.close().expect("closes");
    for read_only in [true, false] {
        let store = open(&env, options().read_only(read_only));
        let map = mutable(&store, "map");
        let stats = store.stats();
        assert_eq!((stats.window_entries, stats.window_segments), (0, 0));
        assert_eq!(hit_reads(&counters, &map, 29, 1), 3, "tail, page, record");
        assert!(store.runnable().contains(&Job::FillWindow));
        store.drain().expect("fills");
        assert!(!store.runnable().contains(&Job::FillWindow));
        let stats = store.stats();
        assert_eq!(
            (stats.window_entries, stats.window_segments),
            (30 * RECORDS, 30)
        );
        // A tail and a page of each but the one that was touched.
        assert_eq!(stats.window_reads, 30 + 29);
        for segment in 0..30 {
            assert_eq!(hit_reads(&counters, &map, segment, 7), 1, "{segment}");
        }
        assert_eq!(get(&map, "absent"), None);
        store.close().expect("closes");
    }
}

#[test]
fn it_fills_from_the_newest_on_as_far_as_it_goes() {
    let (env, counters) = counted();
    let store = open(&env, options());
    let map = mutable(&store, "map");
    grow(&store, &map, 0, 30);
    store.close().expect("closes");
    let store = open(&env, options().window_bytes(4096));
    let map = mutable(&store, "map");
    // Step by step, and flushes in between.
    let mut covered = 0;
    let mut next = 30;
    while store.runnable().contains(&Job::FillWindow) {
        store.run(Job::FillWindow, 1).expect("fills");
        let now = store.stats().window_segments;
        if now > covered && now == 4 {
            grow(&store, &map, next, 1);
            next += 1;
        }
        covered = now;
        for segment in 0..next {
            assert!(hit_reads(&counters, &map, segment, 3) <= 32);
        }
    }
    let stats = store.stats();
    assert!(
        (8..=10).contains(&stats.window_segments),
        "{}",
        stats.window_segments
    );
    assert_eq!(next, 31);
    grow(&store, &map, next, 20);
    for segment in 0..next + 20 {
        assert!(hit_reads(&counters, &map, segment, 3) <= 32);
    }
    assert!(!store.runnable().contains(&Job::FillWindow));
}

/// Random writes of few keys, seals, folds, snapshots and reopenings under tables of all sizes: every answer
/// is the model's.
#[test]
fn answers_do_not_depend_on_it() {
    for (seed, window_bytes) in [0, 128, 256, 512, 1024, 4096, 65_536]
        .into_iter()
        .enumerate()
    {
        for hash_bits in [8, 12, 46] {
            let mut random = Random(seed as u64 * 100 + hash_bits);
            let options = Options::tiny()
                .window_bytes(window_bytes)
                .hash_bits(hash_bits as u8)
                .write_region_bytes(1 << 20)
                .pinned_generations_max(4);
            let env = Env::in_memory();
            let mut store = open(&env, options.clone());
            let mut map = mutable(&store, "map");
            let mut model = Map::new();
            let mut views = Vec::new();
            for step in 0..600 {
                let key = format!("key {}", random.below(90)).into_bytes();
                match random.below(20) {
                    0 => flush(&store),
                    1 => {
                        let view = store.snapshot().expect("a snapshot");
                        views.push((view, model.clone()));
                        if views.len() > 3 {
                            views.remove(0);
                        }
                    }
                    2 if step % 7 == 0 => {
                        views.clear();
                        store.close().expect("closes");
                        store = open(&env, options.clone());
                        map = mutable(&store, "map");
                    }
                    3 => {
                        let jobs = store.runnable();
                        if let Some(job) = jobs.last() {
                            store.run(*job, 1).expect("runs");
                        }
                    }
                    4..=6 => {
                        map.delete(key.as_slice(), Durability::Buffered)
                            .expect("deletes");
                        model.remove(&key);
                    }
                    _ => {
                        put(&map, &key, format!("value {step}"));
                        model.insert(key, format!("value {step}").into_bytes());
                    }
                }
                let key = format!("key {}", random.below(100)).into_bytes();
                assert_eq!(get(&map, &key).as_ref(), model.get(&key), "step {step}");
                for (view, then) in &views {
                    let value = view.get(&map, &key).expect("reads");
                    assert_eq!(value.as_deref(), then.get(&key).map(Vec::as_slice));
                }
            }
        }
    }
}
