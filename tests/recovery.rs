//! Opening after the death of the process: what is replayed, cut, refused.

mod support;

use sealstone::env::{Env, FileKind, FileName};
use sealstone::{Batch, Durability, ErrorKind, Store};
use support::{
    Files, Map, assert_content, assert_refused, compact, content, files, flush, killed, machine,
    mutable, names_of, open, patch_file, put, read_file, replace_file, write_once,
};

use Durability::{Buffered, Synced};

/// Where the first frame of a log lies.
const LOG_HEADER_BYTES: usize = 64;
const FRAME_HEADER_BYTES: usize = 40;

/// Opens and says what was recovered.
fn recover(env: &Env) -> (Store, Map) {
    let store = open(env, compact());
    let map = content(&mutable(&store, "map"));
    (store, map)
}

fn model(keys: &[&str]) -> Map {
    let items = keys
        .iter()
        .map(|key| (key.as_bytes().to_vec(), b"value".to_vec()));
    items.collect()
}

#[test]
fn the_death_of_the_process_loses_nothing_visible() {
    // A segment, a sealed generation, an open one; and again without an open one.
    for open_too in [true, false] {
        let env = Env::in_memory();
        let store = open(&env, compact());
        let (map, once) = (mutable(&store, "map"), write_once(&store, "once"));
        put(&map, "a", "value");
        flush(&store);
        put(&map, "b", "value");
        put(&once, "b", "value");
        store.seal().expect("seals");
        if open_too {
            put(&map, "c", "value");
            map.delete("a", Buffered).expect("deletes");
        }
        let (store, recovered) = recover(&killed(&env));
        let report = store.open_report();
        assert!(!report.created && report.cut.is_empty());
        assert_eq!(report.flushed_segments, 2, "one a kind");
        if open_too {
            assert_eq!(recovered, model(&["b", "c"]));
            assert_eq!((report.recovered_through, report.replayed_commits), (5, 4));
            assert!(report.rewritten_bytes > 0);
        } else {
            assert_eq!(recovered, model(&["a", "b"]));
            assert_eq!((report.recovered_through, report.replayed_commits), (3, 2));
            assert_eq!(report.rewritten_bytes, 0);
        }
        assert_eq!(store.sequence(), report.recovered_through);
        assert_eq!(store.durable_sequence(), report.recovered_through);
        let map = mutable(&store, "map");
        assert_eq!(put(&map, "next", "value"), report.recovered_through + 1);
    }
}

#[test]
fn the_commit_that_reached_the_limit_was_the_last() {
    // Its seal was queued in the same group, but not every death comes behind it.
    let env = Env::in_memory();
    let store = open(&env, compact().seal_records(100));
    let map = mutable(&store, "map");
    for number in 0..50 {
        put(&map, format!("key {number}"), "value");
    }
    let again = open(&killed(&env), compact().seal_records(50));
    assert_eq!(again.stats().segments, 1, "it is full by today's limit");
    assert_eq!(content(&mutable(&again, "map")).len(), 50);
}

/// A log with buffered commits, which no mark covers: its name, and where each frame starts.
fn buffered_log() -> (Env, FileName, Vec<usize>) {
    let env = Env::in_memory();
    let store = open(&env, compact());
    let map = mutable(&store, "map");
    let log = names_of(&env, FileKind::Log)[0];
    let mut starts = vec![LOG_HEADER_BYTES];
    for key in ["1", "22", "333", "4444"] {
        put(&map, key, "value");
        let bytes = read_file(&env, log);
        let used = bytes.iter().rposition(|byte| *byte != 0).expect("frames") + 1;
        starts.push(used.next_multiple_of(8));
    }
    (killed(&env), log, starts)
}

const KEYS: [&str; 4] = ["1", "22", "333", "4444"];

#[test]
fn a_torn_tail_is_cut_and_reported() {
    // Guards reader.rs, `conclude`, and recovery.rs: what it hands out and reports.
    let (env, log, starts) = buffered_log();
    let whole = files(&env);
    let end = *starts.last().expect("an end");
    for cut in (LOG_HEADER_BYTES..=end).step_by(4) {
        let env = machine(&whole);
        let zeros = vec![0; end - cut];
        patch_file(&env, log, cut as u64, &zeros);
        // Padding is zero anyway.
        let kept = |end: &&usize| !anything(&whole[&log], cut, **end);
        let frames = starts[1..].iter().filter(kept).count();
        let (store, recovered) = recover(&env);
        assert_eq!(recovered, model(&KEYS[..frames]), "cut at {cut}");
        let report = store.open_report();
        let torn = anything(&whole[&log], starts[frames], cut);
        match &report.cut[..] {
            [] => assert!(!torn, "cut at {cut} was not reported"),
            [reported] => {
                assert!(torn, "{reported:?}");
                assert_eq!(reported.file, log);
                assert_eq!(reported.offset, starts[frames] as u64);
                assert!(reported.bytes <= (end - starts[frames]) as u64);
            }
            _ => panic!("{report:?}"),
        }
        // What was cut does not come back.
        let map = mutable(&store, "map");
        put(&map, "new", "value");
        let (_, again) = recover(&killed(&env));
        let mut wanted = model(&KEYS[..frames]);
        wanted.insert(b"new".to_vec(), b"value".to_vec());
        assert_eq!(again, wanted);
    }
}

/// Whether anything but zeros lies between two places.
fn anything(bytes: &[u8], from: usize, to: usize) -> bool {
    bytes[from..to.max(from)].iter().any(|byte| *byte != 0)
}

#[test]
fn a_flipped_bit_in_an_unsynced_tail_is_cut() {
    let (env, log, starts) = buffered_log();
    let whole = files(&env);
    let end = *starts.last().expect("an end");
    for at in (LOG_HEADER_BYTES..end).step_by(3) {
        let env = machine(&whole);
        let byte = whole[&log][at] ^ 0x10;
        patch_file(&env, log, at as u64, &[byte]);
        let frames = starts.iter().filter(|start| **start <= at).count() - 1;
        let (store, recovered) = recover(&env);
        assert_eq!(recovered, model(&KEYS[..frames]), "flipped at {at}");
        assert_eq!(store.open_report().cut.len(), 1);
        assert_eq!(store.open_report().cut[0].offset, starts[frames] as u64);
    }
}

/// The same with synced commits: each later frame says that the earlier ones were durable.
fn synced_log() -> (Files, FileName, Vec<usize>) {
    let env = Env::in_memory();
    let store = open(&env, compact());
    let map = mutable(&store, "map");
    let log = names_of(&env, FileKind::Log)[0];
    let mut starts = vec![LOG_HEADER_BYTES];
    for key in KEYS {
        map.put(key, "value", Synced).expect("puts");
        let bytes = read_file(&env, log);
        let used = bytes.iter().rposition(|byte| *byte != 0).expect("frames") + 1;
        starts.push(used.next_multiple_of(8));
    }
    (files(&env), log, starts)
}

#[test]
fn damage_before_a_mark_is_corruption() {
    // Guards frames' marks (commit.rs, `write_frames`) and reader.rs, `conclude`.
    let (whole, log, starts) = synced_log();
    let last = starts[3];
    for at in (LOG_HEADER_BYTES..last).step_by(3) {
        let env = machine(&whole);
        let byte = whole[&log][at] ^ 0x01;
        patch_file(&env, log, at as u64, &[byte]);
        let error = assert_refused(&env, compact());
        let frame = starts.iter().rfind(|start| **start <= at).expect("one");
        assert_eq!(error.kind(), &ErrorKind::Corruption, "flipped at {at}");
        assert_eq!(error.file(), Some(log));
        assert_eq!(
            error.offset(),
            Some(*frame as u64),
            "flipped at {at}: {error}"
        );
    }
    // A hole of zeros, as a lost write leaves it.
    let env = machine(&whole);
    patch_file(&env, log, starts[1] as u64, &vec![0; starts[2] - starts[1]]);
    let error = assert_refused(&env, compact());
    assert_eq!(
        (error.file(), error.offset()),
        (Some(log), Some(starts[1] as u64))
    );
}

#[test]
fn after_a_clean_close_the_manifest_knows_how_far_the_log_goes() {
    // Guards close.rs, `settle`: its `MarkLog`.
    let env = Env::in_memory();
    let store = open(&env, compact());
    let map = mutable(&store, "map");
    let log = names_of(&env, FileKind::Log)[0];
    put(&map, "a", "value");
    put(&map, "b", "value");
    store.close().expect("closes");
    patch_file(
        &env,
        log,
        (LOG_HEADER_BYTES + FRAME_HEADER_BYTES + 20) as u64,
        &[0xFF],
    );
    let error = assert_refused(&env, compact());
    assert_eq!(error.kind(), &ErrorKind::Corruption, "{error}");
    assert_eq!(error.file(), Some(log));
}

#[test]
fn what_was_recovered_is_marked_in_the_manifest() {
    // Guards open.rs, `next_state`: the new log's mark.
    let (env, _, _) = buffered_log();
    let (store, _) = recover(&env);
    store.drain().expect("removes the old log");
    let env = killed(&env);
    let log = *names_of(&env, FileKind::Log)
        .iter()
        .find(|name| read_file(&env, **name)[LOG_HEADER_BYTES..][..8] != [0; 8])
        .expect("the log that it was copied to");
    patch_file(&env, log, LOG_HEADER_BYTES as u64 + 50, &[0xFF]);
    let error = assert_refused(&env, compact());
    assert_eq!(
        (error.kind(), error.file()),
        (&ErrorKind::Corruption, Some(log))
    );
}

#[test]
fn a_gap_between_logs_is_corruption() {
    // Guards recovery.rs, `expect_no_frames`: a log that goes on behind one without its seal.
    let env = Env::in_memory();
    let store = open(&env, compact());
    let map = mutable(&store, "map");
    let log = names_of(&env, FileKind::Log)[0];
    put(&map, "a", "value");
    let one = read_file(&env, log);
    let used = one.iter().rposition(|byte| *byte != 0).expect("a frame") + 1;
    let used = used.next_multiple_of(8);
    put(&map, "b", "value");
    store.seal().expect("seals");
    put(&map, "c", "value");
    let whole = files(&env);
    // The seal alone is gone; the last commit too; everything.
    let seal = whole[&log]
        .iter()
        .rposition(|byte| *byte != 0)
        .expect("a seal");
    for cut in [seal, used, LOG_HEADER_BYTES] {
        let env = machine(&whole);
        let mut bytes = whole[&log].clone();
        bytes[cut..].fill(0);
        replace_file(&env, log, &bytes);
        let error = assert_refused(&env, compact());
        assert_eq!(error.kind(), &ErrorKind::Corruption, "{error}");
        assert!(error.file().is_some() && error.offset().is_some());
        if cut > LOG_HEADER_BYTES {
            assert_eq!(error.file(), Some(log), "the place where it breaks off");
        }
    }
}

#[test]
fn batches_recover_whole() {
    let env = Env::in_memory();
    let store = open(&env, compact());
    let (map, once) = (mutable(&store, "map"), write_once(&store, "once"));
    let mut batch = Batch::new();
    batch
        .put(&map, "a", "value")
        .put(&once, "a", "value")
        .delete(&map, "b")
        .put(&map, "", "");
    store.write(batch, Buffered).expect("writes");
    let log = names_of(&env, FileKind::Log)[0];
    let whole = files(&env);
    let used = whole[&log]
        .iter()
        .rposition(|byte| *byte != 0)
        .expect("a frame");
    let damaged = machine(&whole);
    patch_file(&damaged, log, used as u64, &[0]);
    let (store, recovered) = recover(&damaged);
    assert_eq!((store.sequence(), recovered), (0, Map::new()));
    let store = open(&machine(&whole), compact());
    assert_content(
        &mutable(&store, "map"),
        &Map::from([(Vec::new(), Vec::new()), (b"a".to_vec(), b"value".to_vec())]),
    );
    assert_content(&write_once(&store, "once"), &model(&["a"]));
}
