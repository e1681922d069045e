//! Lookups through mappings: the answers, costs and errors of reading by calls, under a cap, and never a
//! signal for a file that was cut before it was mapped.

mod support;

use sealstone::env::counting::Counters;
use sealstone::env::{Env, FileKind, FileName, OpenMode};
use sealstone::explain::Answer;
use sealstone::sync::Arc;
use sealstone::{
    Durability, Error, ErrorKind, Fold, Job, Keyspace, Options, ReadMode, Stats, Store,
};
use support::{
    Map, Random, assert_content, flush, get, manual, mutable, names_of, open, patch_file, put,
    read_file, refused, run_all, write_once,
};
use tempfile::TempDir;

const MODES: [ReadMode; 2] = [ReadMode::Pread, ReadMode::Mmap];

/// A directory of the operating system, counted. It goes with the first of the three.
fn real() -> (TempDir, Env, Arc<Counters>) {
    let directory = tempfile::tempdir().expect("a directory");
    let (env, counters) = Env::real(directory.path().join("store"))
        .expect("an environment")
        .counting();
    (directory, env, counters)
}

fn options() -> Options {
    manual()
        .write_region_bytes(16 << 20)
        .filter_budget_bytes(0)
        .seal_records(4096)
        .batch_bytes_max(1 << 20)
        .fold(Fold::Runs(3))
        .run_part_records(100)
}

/// New keys, overwritten ones and deleted ones, with values from nothing to far above the size classes.
fn write_round(keyspace: &Keyspace, round: u64, model: &mut Map) {
    let mut random = Random(round);
    for i in 0..40 {
        let key = match random.below(3) {
            0 => format!("key {}", random.below(60)),
            _ => format!("key {round} {i}"),
        }
        .into_bytes();
        if random.below(6) == 0 {
            keyspace
                .delete(&key[..], Durability::Buffered)
                .expect("deletes");
            model.remove(&key);
            continue;
        }
        let length = match random.below(40) {
            0 => 300_000,
            1 => 70_000,
            2 => 0,
            _ => random.below(200),
        };
        let value = random.bytes(length as usize);
        put(keyspace, &key, &value);
        model.insert(key, value);
    }
}

/// A store of folded runs and fresh segments, closed; keys of 0 to 7 rounds are in them.
fn filled(env: &Env, options: Options) -> Map {
    let store = open(env, options);
    let keyspace = mutable(&store, "map");
    let mut model = Map::new();
    for round in 0..8 {
        write_round(&keyspace, round, &mut model);
        flush(&store);
    }
    store.close().expect("closes");
    model
}

/// Keys that are there and such that are not.
fn keys(model: &Map) -> Vec<Vec<u8>> {
    let absent = (0..50).map(|i| format!("absent {i}").into_bytes());
    let deleted = (0..60).map(|i| format!("key {i}").into_bytes());
    model.keys().cloned().chain(absent).chain(deleted).collect()
}

/// What a call answers, as far as the mode may not change it.
type Answered = Result<Option<Vec<u8>>, (ErrorKind, Option<FileName>, Option<u64>)>;

fn plain(error: &Error) -> (ErrorKind, Option<FileName>, Option<u64>) {
    (error.kind().clone(), error.file(), error.offset())
}

fn answers(keyspace: &Keyspace, keys: &[Vec<u8>]) -> Vec<Answered> {
    let get = |key: &Vec<u8>| {
        let got = keyspace.get(key);
        let got = got.map(|value| value.map(|value| value.to_vec()));
        let mut out = b"old".to_vec();
        let into = keyspace.get_into(key, &mut out);
        let into = into.map(|found| found.then_some(out));
        match (&got, &into) {
            (Ok(got), Ok(into)) => assert_eq!(got, into),
            (got, into) => assert_eq!(got.is_err(), into.is_err()),
        }
        got.map_err(|error| plain(&error))
    };
    keys.iter().map(get).collect()
}

fn difference(after: &Stats, before: &Stats) -> [u64; 4] {
    [
        after.reads - before.reads,
        after.read_bytes - before.read_bytes,
        after.mapped_reads - before.mapped_reads,
        after.mapped_bytes - before.mapped_bytes,
    ]
}

#[test]
fn both_modes_give_the_same_answers_at_the_same_cost() {
    for hash_bits in [46, 8] {
        let (_directory, env, counters) = real();
        let options = options().hash_bits(hash_bits);
        let model = filled(&env, options.clone());
        let keys = keys(&model);
        let wanted: Vec<_> = keys.iter().map(|key| Ok(model.get(key).cloned())).collect();
        let mut costs = Vec::new();
        for mode in MODES {
            let store = open(&env, options.clone().read_mode(mode));
            let keyspace = mutable(&store, "map");
            assert_eq!(answers(&keyspace, &keys), wanted, "{mode:?}, first touch");
            let (stats, counts) = (store.stats(), counters.snapshot());
            assert_eq!(answers(&keyspace, &keys), wanted, "{mode:?}");
            let pairs: Vec<_> = keys.iter().map(|key| (&keyspace, key.as_slice())).collect();
            let several = store.multi_get(&pairs).expect("reads");
            for (value, key) in several.iter().zip(&keys) {
                assert_eq!(value.as_deref(), model.get(key).map(Vec::as_slice));
            }
            let cost = difference(&store.stats(), &stats);
            let seen = (counters.snapshot() - counts).total();
            let seen = [
                seen.reads,
                seen.read_bytes,
                seen.mapped_reads,
                seen.mapped_bytes,
            ];
            assert_eq!(cost, seen, "the store counts what its directory saw");
            costs.push(cost);
            assert_content(&keyspace, &model);
            store.close().expect("closes");
        }
        let [pread, mapped] = [costs[0], costs[1]];
        assert!(pread[0] > 500, "{pread:?}");
        assert_eq!(pread[2..], [0, 0]);
        assert_eq!(mapped[..2], [0, 0], "no call once all is mapped");
        assert_eq!(mapped[2..], pread[..2], "an access for each read");
    }
}

#[test]
fn snapshots_and_write_once_checks_read_mapped_files() {
    let (_directory, env, _) = real();
    let store = open(&env, options().read_mode(ReadMode::Mmap));
    let (blocks, map) = (write_once(&store, "blocks"), mutable(&store, "map"));
    put(&blocks, "a", "1");
    put(&map, "key", "old");
    flush(&store);
    let snapshot = store.snapshot().expect("a snapshot");
    put(&map, "key", "new");
    flush(&store);
    let old = snapshot.get(&map, "key").expect("reads");
    assert_eq!(old.as_deref(), Some(&b"old"[..]));
    assert_eq!(get(&map, "key"), Some(b"new".to_vec()));
    put(&blocks, "a", "1");
    let other = refused(blocks.put("a", "2", Durability::Buffered));
    assert_eq!(*other.kind(), ErrorKind::Conflict);
    assert!(store.stats().mapped_reads > 0);
}

/// The files that lookups read.
fn sealed(env: &Env) -> Vec<FileName> {
    let mut names = names_of(env, FileKind::Segment);
    names.extend(names_of(env, FileKind::Run));
    names
}

fn read_only(env: &Env, mode: ReadMode) -> (Store, Keyspace) {
    let store = open(env, options().read_only(true).read_mode(mode));
    let keyspace = mutable(&store, "map");
    (store, keyspace)
}

#[test]
fn damage_of_any_piece_is_found_as_by_calls() {
    let (_directory, env, _) = real();
    let model = filled(&env, options());
    let keys = keys(&model);
    let wanted: Vec<Answered> = keys.iter().map(|key| Ok(model.get(key).cloned())).collect();
    let (mut failed, mut places) = (0, 0);
    let mut random = Random(3);
    assert!(!names_of(&env, FileKind::Run).is_empty());
    for name in sealed(&env) {
        let bytes = read_file(&env, name);
        let tail = bytes.len() as u64 - 200;
        let drawn = (0..8).map(|_| random.below(bytes.len() as u64));
        for offset in drawn.chain([20, 4100, 4200, tail, tail + 150]) {
            let offset = offset.min(bytes.len() as u64 - 1);
            let byte = bytes[offset as usize];
            patch_file(&env, name, offset, &[byte ^ 0x10]);
            let [by_calls, mapped] = MODES.map(|mode| {
                let (_store, keyspace) = read_only(&env, mode);
                answers(&keyspace, &keys)
            });
            assert_eq!(mapped, by_calls, "byte {offset} of {name}");
            for (answer, wanted) in mapped.iter().zip(&wanted) {
                match answer {
                    Ok(_) => assert_eq!(answer, wanted, "byte {offset} of {name}"),
                    Err((kind, _, _)) => {
                        assert_eq!(*kind, ErrorKind::Corruption);
                        failed += 1;
                    }
                }
            }
            places += 1;
            patch_file(&env, name, offset, &[byte]);
        }
    }
    assert!(places > 50 && failed > 100, "{failed} in {places} places");
}

#[test]
fn a_file_cut_before_it_is_mapped_is_corruption_and_no_signal() {
    let (_directory, env, _) = real();
    let model = filled(&env, options().fold(Fold::Runs(64)));
    let keys = keys(&model);
    for name in sealed(&env) {
        let bytes = read_file(&env, name);
        let length = bytes.len() as u64;
        for cut in [0, 1, 100, 4095, 4096, length / 2, length - 1] {
            let file = env.vfs.open(name, OpenMode::ReadWrite).expect("opens");
            file.set_len(cut).expect("cuts");
            let (_store, keyspace) = read_only(&env, ReadMode::Mmap);
            let answers = answers(&keyspace, &keys);
            let errors: Vec<_> = answers.into_iter().filter_map(Result::err).collect();
            assert!(!errors.is_empty(), "{name} cut to {cut}");
            for (kind, file, _) in errors {
                assert_eq!((kind, file), (ErrorKind::Corruption, Some(name)));
            }
            patch_file(&env, name, 0, &bytes);
        }
    }
    let (_store, keyspace) = read_only(&env, ReadMode::Mmap);
    assert_content(&keyspace, &model);
}

/// A store of that many small segments, one key each.
fn small_segments(env: &Env, count: u64) -> Options {
    let options = options().fold(Fold::Off);
    let store = open(env, options.clone());
    let map = mutable(&store, "map");
    for number in 0..count {
        put(&map, number.to_be_bytes(), [number as u8; 100]);
        flush(&store);
    }
    store.close().expect("closes");
    options.read_mode(ReadMode::Mmap)
}

#[test]
fn a_file_cut_while_it_was_closed_is_corruption_and_no_signal() {
    let (_directory, env, _) = real();
    let store = open(&env, small_segments(&env, 2).descriptors_max(1));
    let map = mutable(&store, "map");
    // The newer segment takes the only descriptor, and the older one's mapping goes with its own.
    for number in [0_u64, 1] {
        assert_eq!(
            get(&map, number.to_be_bytes()),
            Some(vec![number as u8; 100])
        );
    }
    let stats = store.stats();
    assert_eq!((stats.open_files, stats.mappings), (1, 1));
    let older = names_of(&env, FileKind::Segment)[0];
    let bytes = read_file(&env, older);
    let file = env.vfs.open(older, OpenMode::ReadWrite).expect("opens");
    file.set_len(64).expect("cuts");
    let error = refused(map.get(0_u64.to_be_bytes()));
    assert_eq!(
        (error.kind(), error.file()),
        (&ErrorKind::Corruption, Some(older))
    );
    assert_eq!(store.stats().mappings, 0, "what is too short is not mapped");
    patch_file(&env, older, 0, &bytes);
    store.close().expect("closes");
    let store = open(&env, options().read_mode(ReadMode::Mmap));
    assert!(get(&mutable(&store, "map"), 0_u64.to_be_bytes()).is_some());
}

#[test]
fn the_cap_on_mappings_holds_and_the_rest_is_read_by_calls() {
    const SEGMENTS: u64 = 30;
    let (_directory, env, counters) = real();
    let options = small_segments(&env, SEGMENTS);
    for (most, files, mapped) in [(4, 0, 4), (0, 0, SEGMENTS), (4, 2, 2), (100, 5, 5)] {
        let before = counters.snapshot();
        let options = options.clone().mappings_max(most).descriptors_max(files);
        let store = open(&env, options);
        let map = mutable(&store, "map");
        for round in 0..2 {
            for number in 0..SEGMENTS {
                let value = get(&map, number.to_be_bytes());
                assert_eq!(value, Some(vec![number as u8; 100]));
                let stats = store.stats();
                assert!(stats.mappings <= mapped, "{} of {mapped}", stats.mappings);
                assert!(stats.mappings <= stats.open_files);
            }
            assert_eq!(get(&map, "absent"), None, "round {round}");
        }
        let stats = store.stats();
        assert_eq!(stats.mappings, mapped);
        assert!(stats.mapped_reads > 0);
        let maps = (counters.snapshot() - before).total().maps;
        if files == 0 {
            assert_eq!(maps, mapped, "each file is mapped once or never");
        }
        store.close().expect("closes");
        drop((map, store));
    }
}

#[test]
fn what_folds_remove_is_read_to_its_last_reader() {
    let (_directory, env, _) = real();
    let options = options().read_mode(ReadMode::Mmap);
    let store = open(&env, options);
    let keyspace = mutable(&store, "map");
    let mut model = Map::new();
    for round in 0..5 {
        write_round(&keyspace, round, &mut model);
        flush(&store);
    }
    let snapshot = store.snapshot().expect("a snapshot");
    let keys = keys(&model);
    let read = |keyspace: &Keyspace| {
        for key in &keys {
            let value = snapshot.get(keyspace, key).expect("reads");
            assert_eq!(value.as_deref(), model.get(key).map(Vec::as_slice));
        }
    };
    read(&keyspace);
    let before = names_of(&env, FileKind::Run);
    assert!(!before.is_empty() && store.stats().mappings > 0);
    let mut later = model.clone();
    for round in 5..15 {
        write_round(&keyspace, round, &mut later);
        flush(&store);
        read(&keyspace);
    }
    // Gone under the mappings, as another process would see it.
    for name in &before {
        let _ = env.vfs.unlink(*name);
    }
    read(&keyspace);
    drop(snapshot);
    store.drain().expect("drains");
    run_all(&store, Job::Unlink);
    let left = names_of(&env, FileKind::Run);
    assert!(before.iter().all(|name| !left.contains(name)), "{left:?}");
    assert_content(&keyspace, &later);
    let files = store.stats().open_files;
    assert_eq!(store.stats().mappings, files);
    assert!(
        files <= sealed(&env).len() as u64,
        "no file is held that is gone"
    );
}

#[test]
fn a_value_outlives_its_file_and_its_store() {
    let (_directory, env, _) = real();
    let model = filled(&env, options());
    let (store, keyspace) = read_only(&env, ReadMode::Mmap);
    let values: Vec<_> = model
        .keys()
        .map(|key| keyspace.get(key).expect("reads").expect("there"))
        .collect();
    assert!(store.stats().mapped_reads > 0);
    drop((keyspace, store));
    for name in sealed(&env) {
        let file = env.vfs.open(name, OpenMode::ReadWrite).expect("opens");
        file.set_len(0).expect("cuts");
    }
    for (value, wanted) in values.iter().zip(model.values()) {
        assert_eq!(**value, wanted[..]);
    }
}

#[test]
fn a_directory_that_can_not_be_mapped_is_read_by_calls() {
    let (env, counters) = Env::in_memory().counting();
    let model = filled(&env, options());
    let store = open(&env, options().read_mode(ReadMode::Mmap));
    let keyspace = mutable(&store, "map");
    assert_content(&keyspace, &model);
    let stats = store.stats();
    assert_eq!((stats.mapped_reads, stats.mappings), (0, 0));
    assert_eq!(counters.snapshot().total().maps, 0);
    assert!(stats.reads > 0);
}

#[test]
fn scans_and_checks_read_by_calls() {
    let (_directory, env, counters) = real();
    let model = filled(&env, options());
    let (store, keyspace) = read_only(&env, ReadMode::Mmap);
    let first = model.keys().next().expect("a key");
    assert!(matches!(
        keyspace.explain(first).expect("explains").answer,
        Answer::Value { .. }
    ));
    let before = counters.snapshot();
    assert_eq!(support::content(&keyspace), model);
    assert!(
        store
            .verify(&mut |_| {})
            .expect("verifies")
            .damaged
            .is_empty()
    );
    let seen = (counters.snapshot() - before).total();
    assert_eq!(seen.mapped_reads, 0);
    assert!(seen.reads > 0);
}

/// Met by the simulator: a record of another key with the same hash kept its file while the next was opened.
#[test]
fn mapped_lookups_pin_no_more_files_than_others() {
    let (_directory, env, _) = real();
    let options = options().hash_bits(8);
    let model = filled(&env, options.clone());
    let store = open(&env, options.descriptors_max(2).read_mode(ReadMode::Mmap));
    let keyspace = mutable(&store, "map");
    for key in keys(&model) {
        assert_eq!(get(&keyspace, &key), model.get(&key).cloned());
        let stats = store.stats();
        assert!(stats.open_files <= 2, "{} files", stats.open_files);
        assert!(stats.mappings <= stats.open_files);
    }
}
