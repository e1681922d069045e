//! Folds: answers stay, costs fall, files go with their last reader, damage is mended.

mod support;

use sealstone::env::{Env, FileKind, FileName};
use sealstone::{ErrorKind, Fold, Job, Keyspace, Options, Store};
use support::{
    Files, Map, Random, assert_content, content, files, flush, get, kind_of, manual, mutable,
    names_of, open, patch_file, put, read_file, write_once,
};

const SEGMENT_RECORDS: u64 = 40;

/// Where the first index page of a run's file is.
const PAGE_OFFSET: u64 = 4096;

fn options(runs: u8) -> Options {
    manual()
        .family_seed([5; 16])
        .write_region_bytes(8 << 20)
        .seal_records(4096)
        .fold(Fold::Runs(runs))
        .window_bytes(0)
}

/// One segment more: new keys, overwritten ones and deleted ones.
fn add_segment(keyspace: &Keyspace, number: u64, model: &mut Map) {
    let mut random = Random(number);
    for i in 0..SEGMENT_RECORDS {
        let key = match random.below(3) {
            0 => format!("key {}", random.below(60)),
            _ => format!("key {number} {i}"),
        };
        if random.below(6) == 0 {
            keyspace
                .delete(key.as_bytes(), sealstone::Durability::Buffered)
                .expect("deletes");
            model.remove(key.as_bytes());
            continue;
        }
        let length = random.below(200) as usize;
        let value = random.bytes(length);
        put(keyspace, &key, &value);
        model.insert(key.into_bytes(), value);
    }
}

/// A store with that many segments, folded as far as they go.
fn filled(env: &Env, options: Options, segments: u64) -> (Store, Keyspace, Map) {
    let store = open(env, options);
    let keyspace = mutable(&store, "map");
    let mut model = Map::new();
    for number in 0..segments {
        add_segment(&keyspace, number, &mut model);
        flush(&store);
    }
    (store, keyspace, model)
}

fn levels(store: &Store) -> Vec<u8> {
    store.audit().runs.iter().map(|run| run.level).collect()
}

fn run_files(env: &Env) -> Vec<FileName> {
    names_of(env, FileKind::Run)
}

#[test]
fn runs_of_a_level_become_one_of_the_next() {
    let env = Env::in_memory();
    let (store, keyspace, model) = filled(&env, options(3), 35);
    // 35 = 1 * 27 + 0 * 9 + 2 * 3 + 2
    assert_eq!(levels(&store), [0, 0, 1, 1, 3]);
    let audit = store.audit();
    assert_eq!(audit.runs[4].segments.len(), 27);
    assert_eq!(audit.runs[4].generations, (1, 27));
    // Of threes, of nines, of twenty-sevens.
    assert_eq!(store.stats().folds, 11 + 3 + 1);
    assert_eq!(run_files(&env).len(), 3, "replaced parts are gone");
    assert_content(&keyspace, &model);
    assert!(
        store
            .verify(&mut |_| {})
            .expect("verifies")
            .damaged
            .is_empty()
    );
    drop((store, keyspace));
    let store = open(&env, options(3));
    assert_eq!(levels(&store), [0, 0, 1, 1, 3]);
    assert_content(&mutable(&store, "map"), &model);
}

#[test]
fn indexes_are_split_by_hash() {
    let env = Env::in_memory();
    let (store, keyspace, model) = filled(&env, options(4).run_part_records(100), 16);
    assert_eq!(levels(&store), [2]);
    let records: u64 = store.stats().segment_records;
    let parts = records.div_ceil(100).next_power_of_two();
    assert_eq!(run_files(&env).len() as u64, parts);
    assert_content(&keyspace, &model);
    assert!(
        store
            .verify(&mut |_| {})
            .expect("verifies")
            .damaged
            .is_empty()
    );
    // Other limits at a later open change nothing that is there.
    drop((store, keyspace));
    let store = open(&env, options(4));
    assert_content(&mutable(&store, "map"), &model);
}

#[test]
fn parts_may_become_more_or_fewer_at_a_later_open() {
    let env = Env::in_memory();
    let mut model = Map::new();
    let mut number = 0;
    for part_records in [16, 4096, 64, 1 << 20, 16] {
        let store = open(&env, options(2).run_part_records(part_records));
        let keyspace = mutable(&store, "map");
        for _ in 0..4 {
            add_segment(&keyspace, number, &mut model);
            number += 1;
            flush(&store);
        }
        assert_content(&keyspace, &model);
        let report = store.verify(&mut |_| {}).expect("verifies");
        assert!(report.damaged.is_empty(), "{:?}", report.damaged);
    }
}

#[test]
fn both_kinds_are_folded_each_for_itself() {
    let env = Env::in_memory();
    let store = open(&env, options(2));
    let (map, once) = (mutable(&store, "map"), write_once(&store, "once"));
    let mut model = Map::new();
    for number in 0..6_u64 {
        add_segment(&map, number, &mut model);
        if number % 2 == 0 {
            put(&once, number.to_le_bytes(), [number as u8; 9]);
        }
        flush(&store);
    }
    let levels: Vec<_> = store
        .audit()
        .runs
        .iter()
        .map(|run| (run.kind, run.level))
        .collect();
    let kinds = |wanted| {
        levels
            .iter()
            .filter(move |(kind, _)| *kind == wanted)
            .map(|(_, level)| *level)
    };
    assert_eq!(kinds(once.kind()).collect::<Vec<_>>(), [0, 1]);
    assert_eq!(kinds(map.kind()).collect::<Vec<_>>(), [1, 2]);
    assert_content(&map, &model);
    assert_eq!(content(&once).len(), 3);
    put(&once, 4_u64.to_le_bytes(), [4; 9]);
    let other = once.put(4_u64.to_le_bytes(), [0; 9], sealstone::Durability::Buffered);
    assert!(matches!(kind_of(other), ErrorKind::Conflict));
}

#[test]
fn lookups_cost_by_runs_and_not_by_segments() {
    let env = Env::in_memory();
    let (store, keyspace, model) = filled(&env, options(8).filter_budget_bytes(0), 73);
    // 73 = 1 * 64 + 1 * 8 + 1
    assert_eq!(levels(&store), [0, 1, 2]);
    let reads = |what: &dyn Fn()| {
        let before = store.stats().reads;
        what();
        store.stats().reads - before
    };
    // Every file is touched once.
    assert_content(&keyspace, &model);
    for number in 0..200_u64 {
        let key = format!("no such key {number}");
        let cost = reads(&|| assert_eq!(get(&keyspace, &key), None));
        assert!(cost <= 3, "{cost} reads for an absent key without filters");
    }
    for (key, value) in &model {
        let cost = reads(&|| assert_eq!(get(&keyspace, key).as_ref(), Some(value)));
        assert!(cost <= 4, "{cost} reads for a key without filters");
    }
    drop((store, keyspace));
    let store = open(&env, options(8));
    let keyspace = mutable(&store, "map");
    store.drain().expect("loads filters");
    assert_eq!(store.stats().filters_resident, 3);
    assert_content(&keyspace, &model);
    let before = store.stats();
    for (key, value) in &model {
        assert_eq!(get(&keyspace, key).as_ref(), Some(value));
    }
    let after = store.stats();
    let per_hit = (after.reads - before.reads) as f64 / model.len() as f64;
    assert!(per_hit <= 2.02, "{per_hit} reads a hit with filters");
}

#[test]
fn files_that_only_folds_read_are_closed() {
    let env = Env::in_memory();
    let (store, keyspace, model) = filled(&env, options(3), 35);
    // Those whose filters were loaded.
    assert_eq!(store.stats().open_files, run_files(&env).len() as u64);
    // What a lookup opened stays open: a fold of it is no reason to open it again.
    assert_content(&keyspace, &model);
    assert_eq!(store.stats().open_files, 35 + 3);
    let mut model = model;
    for number in 35..54 {
        add_segment(&keyspace, number, &mut model);
        flush(&store);
    }
    assert_eq!(levels(&store), [3, 3]);
    assert_eq!(store.stats().open_files, 35 + 2);
    assert_content(&keyspace, &model);
}

#[test]
fn the_index_bytes_written_grow_with_the_levels_alone() {
    let env = Env::in_memory();
    let store = open(&env, options(8));
    let keyspace = mutable(&store, "map");
    for number in 0..64_u64 {
        for i in 0..2_000_u64 {
            put(&keyspace, (number << 32 | i).to_be_bytes(), b"v");
        }
        flush(&store);
    }
    let stats = store.stats();
    assert_eq!(levels(&store), [2]);
    // Twice folded; 12 bytes an entry, filters of 3.5 and 3 bytes a key, page ends.
    let per_record = stats.fold_bytes as f64 / (64.0 * 2_000.0);
    assert!(per_record <= 2.0 * 16.5, "{per_record} bytes a record");
}

#[test]
fn a_snapshot_reads_what_it_read_before() {
    let env = Env::in_memory();
    let (store, keyspace, mut model) = filled(&env, options(3), 9);
    let snapshot = store.snapshot().expect("a snapshot");
    let iterator = keyspace.iter().expect("iterates");
    let old = model.clone();
    let held = run_files(&env);
    for number in 9..40 {
        add_segment(&keyspace, number, &mut model);
        flush(&store);
    }
    assert_eq!(levels(&store), [0, 1, 2, 3]);
    for (key, value) in &old {
        let found = snapshot.get(&keyspace, key).expect("reads");
        let found = found.map(|value| value.to_vec());
        assert_eq!(found.as_ref(), Some(value));
    }
    assert_eq!(
        iterator.map(|item| item.expect("an item")).collect::<Map>(),
        old
    );
    assert!(
        held.iter().all(|name| run_files(&env).contains(name)),
        "its reader is there"
    );
    assert_content(&keyspace, &model);
    drop(snapshot);
    assert_eq!(store.runnable(), [Job::Unlink]);
    store.drain().expect("drains");
    assert!(
        held.iter().all(|name| !run_files(&env).contains(name)),
        "its reader is gone"
    );
    let audit = store.audit();
    assert_eq!(files(&env).into_keys().collect::<Vec<_>>(), audit.files);
}

/// The bytes of all runs, whatever their numbers.
fn runs_of(env: &Env) -> Vec<Vec<u8>> {
    let mut runs: Vec<_> = run_files(env)
        .into_iter()
        .map(|name| read_file(env, name))
        .collect();
    runs.sort();
    runs
}

#[test]
fn equal_commits_give_equal_runs_under_any_schedule() {
    let one = Env::in_memory();
    let (store, _, model) = filled(&one, options(3).run_part_records(64), 30);
    drop(store);
    let other = Env::in_memory();
    let late = options(3).run_part_records(64).fold(Fold::Off);
    let (store, keyspace, again) = filled(&other, late, 30);
    assert_eq!(model, again);
    assert_eq!(levels(&store), [0; 30], "nothing is folded");
    drop((store, keyspace));
    let store = open(&other, options(3).run_part_records(64).fold_bytes(768));
    while store.runnable().contains(&Job::Fold) {
        store.run(Job::Fold, 1).expect("folds");
    }
    store.drain().expect("drains");
    assert_eq!(levels(&store), [1, 3]);
    assert_content(&mutable(&store, "map"), &model);
    assert!(runs_of(&one) == runs_of(&other), "other bytes");
}

#[test]
fn a_damaged_run_is_made_again_from_its_segments() {
    let env = Env::in_memory();
    let (store, keyspace, model) = filled(&env, options(4), 16);
    drop((store, keyspace));
    let damaged = run_files(&env);
    let intact = runs_of(&env);
    for name in &damaged {
        let bytes = read_file(&env, *name);
        patch_file(
            &env,
            *name,
            PAGE_OFFSET + 100,
            &[bytes[PAGE_OFFSET as usize + 100] ^ 1],
        );
    }
    let store = open(&env, options(4));
    let keyspace = mutable(&store, "map");
    let report = store.verify(&mut |_| {}).expect("verifies");
    assert!(!report.damaged.is_empty());
    assert!(
        report
            .damaged
            .iter()
            .all(|damage| damaged.contains(&damage.file))
    );
    // Whatever was damaged, the segments answer.
    assert_content(&keyspace, &model);
    assert!(store.runnable().contains(&Job::Fold));
    store.drain().expect("drains");
    assert!(
        store
            .verify(&mut |_| {})
            .expect("verifies")
            .damaged
            .is_empty()
    );
    assert_content(&keyspace, &model);
    assert!(
        runs_of(&env) == intact,
        "the same bytes under another number"
    );
    assert!(run_files(&env).iter().all(|name| !damaged.contains(name)));
}

#[test]
fn a_damaged_run_is_mended_before_it_is_folded() {
    let env = Env::in_memory();
    let (store, keyspace, mut model) = filled(&env, options(2), 6);
    assert_eq!(levels(&store), [1, 2]);
    drop((store, keyspace));
    for name in run_files(&env) {
        let bytes = read_file(&env, name);
        let byte = bytes[PAGE_OFFSET as usize + 100] ^ 1;
        patch_file(&env, name, PAGE_OFFSET + 100, &[byte]);
    }
    // Nobody looks anything up: the next folds meet the damage.
    let store = open(&env, options(2));
    let keyspace = mutable(&store, "map");
    for number in 6..8 {
        add_segment(&keyspace, number, &mut model);
        flush(&store);
    }
    assert_eq!(levels(&store), [3]);
    assert_eq!(store.stats().fold_retries, 2);
    let report = store.verify(&mut |_| {}).expect("verifies");
    assert!(report.damaged.is_empty(), "{:?}", report.damaged);
    assert_content(&keyspace, &model);
}

#[test]
fn what_a_damaged_segment_is_part_of_stays_unfolded() {
    let env = Env::in_memory();
    let (store, keyspace, model) = filled(&env, options(3).fold(Fold::Off), 3);
    drop((store, keyspace));
    let name = names_of(&env, FileKind::Segment)[1];
    let bytes = read_file(&env, name);
    let is_page = |page: &[u8]| {
        let count = page.get(8..10) == Some(&[page[8].clamp(1, SEGMENT_RECORDS as u8), 0]);
        count && page.get(10..16) == Some(&[0; 6]) && page.len() == 4096
    };
    let page = bytes.chunks(4096).position(is_page).expect("an index page") as u64 * 4096;
    patch_file(&env, name, page + 50, &[bytes[page as usize + 50] ^ 1]);
    let store = open(&env, options(3));
    // It is not tried again and again, and no writer hears of it.
    store.drain().expect("drains");
    assert_eq!(store.stats().fold_retries, 1);
    assert_eq!(levels(&store), [0, 0, 0]);
    assert!(run_files(&env).is_empty());
    // Scans need no index.
    assert_eq!(content(&mutable(&store, "map")), model);
}

#[test]
fn a_missing_run_refuses_to_open() {
    let env = Env::in_memory();
    let (store, keyspace, _) = filled(&env, options(2), 2);
    drop((store, keyspace));
    let name = run_files(&env)[0];
    env.vfs.unlink(name).expect("unlinks");
    let error = Store::open_with(env, options(2)).expect_err("refused");
    assert_eq!(
        (error.kind(), error.file()),
        (&ErrorKind::MissingFile, Some(name))
    );
}

#[test]
fn what_a_fold_left_behind_goes_at_the_next_open() {
    let env = Env::in_memory();
    let (store, keyspace, model) = filled(&env, options(3).fold(Fold::Off), 3);
    drop((store, keyspace));
    let store = open(&env, options(3));
    store.run(Job::Fold, 8).expect("begins");
    store.run(Job::Fold, 8).expect("goes on");
    let begun = run_files(&env);
    assert_eq!(begun.len(), 1);
    let left: Files = files(&env);
    drop(store);
    let env = support::machine(&left);
    let store = open(&env, options(3).fold(Fold::Off));
    assert!(run_files(&env).is_empty());
    assert_content(&mutable(&store, "map"), &model);
}
