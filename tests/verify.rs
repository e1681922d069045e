//! Verification of whole stores: sound ones are found sound, open, read-only or closed, also beside a
//! writer; damage anywhere is found and named, and hides no other damage.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sealstone::env::{Env, FileKind, FileName, OpenMode};
use sealstone::{
    Background, Batch, Durability, ErrorKind, Keyspace, KeyspaceOptions, Options, Store,
    VerifyProgress, VerifyReport,
};

/// Small generations, and cursors and logs to match.
fn small() -> Options {
    Options::tiny().hash_bits(46)
}

/// Writes `count` records of each kind, numbered from `from`, in batches of both.
fn fill(store: &Store, from: u32, count: u32) {
    let (once, mutable) = keyspaces(store);
    for number in from..from + count {
        let mut batch = Batch::new();
        let value = vec![number as u8; (number % 100) as usize];
        batch.put(&once, number.to_be_bytes(), value.clone());
        batch.put(&mutable, number.to_le_bytes(), value);
        store.write(batch, Durability::Buffered).expect("writes");
    }
}

fn keyspaces(store: &Store) -> (Keyspace, Keyspace) {
    let once = store.keyspace("once", KeyspaceOptions::write_once());
    let mutable = store.keyspace("mutable", KeyspaceOptions::mutable());
    (once.expect("opens"), mutable.expect("opens"))
}

/// A store with segments and commits in a log, closed. 100 batches of 2 records.
fn filled() -> Env {
    let env = Env::in_memory();
    let store = Store::open_with(env.clone(), small()).expect("opens");
    fill(&store, 0, 100);
    store.drain().expect("flushes");
    assert!(store.stats().segments > 4, "several generations");
    store.close().expect("closes");
    env
}

fn closed(env: &Env) -> VerifyReport {
    Store::verify_closed(env, &mut |_| ()).expect("verifies")
}

fn names(env: &Env, kind: FileKind) -> Vec<FileName> {
    let names = env.vfs.list().expect("lists").names;
    names.into_iter().filter(|name| name.kind == kind).collect()
}

/// The logs that hold commits.
fn used_logs(env: &Env) -> Vec<FileName> {
    let mut logs = names(env, FileKind::Log);
    logs.retain(|name| {
        let file = env.vfs.open(*name, OpenMode::Read).expect("opens");
        let mut frame = [0; 8];
        file.read_at(&mut frame, 64).expect("reads");
        frame != [0; 8]
    });
    logs
}

fn flip(env: &Env, name: FileName, offset: u64) {
    let file = env.vfs.open(name, OpenMode::ReadWrite).expect("opens");
    let mut byte = [0];
    assert_eq!(file.read_at(&mut byte, offset), Ok(1));
    byte[0] ^= 0x10;
    file.write_at(&byte, offset).expect("writes");
}

fn files_of(report: &VerifyReport) -> Vec<FileName> {
    let mut files: Vec<_> = report.damaged.iter().map(|damage| damage.file).collect();
    files.sort();
    files.dedup();
    files
}

#[test]
fn a_sound_store_is_sound_open_read_only_and_closed() {
    let env = Env::in_memory();
    let store = Store::open_with(env.clone(), small()).expect("opens");
    let fresh = store.verify(&mut |_| ()).expect("verifies");
    assert!(fresh.is_clean() && fresh.records == 0, "{fresh:?}");
    fill(&store, 0, 100);
    let unflushed = store.verify(&mut |_| ()).expect("verifies");
    assert!(unflushed.is_clean(), "{unflushed:?}");
    assert_eq!(unflushed.records, 200);
    store.drain().expect("flushes");
    let open = store.verify(&mut |_| ()).expect("verifies");
    assert!(open.is_clean(), "{open:?}");
    assert_eq!(open.records, 200);
    let refused = Store::verify_closed(&env, &mut |_| ()).expect_err("locked");
    assert_eq!(*refused.kind(), ErrorKind::Locked);
    store.close().expect("closes");
    let refused = store.verify(&mut |_| ()).expect_err("closed");
    assert_eq!(*refused.kind(), ErrorKind::Closed);

    let closed = closed(&env);
    assert!(closed.is_clean(), "{closed:?}");
    assert_eq!(closed.records, 200);
    let store = Store::open_with(env.clone(), small().read_only(true)).expect("opens");
    assert_eq!(store.verify(&mut |_| ()).expect("verifies"), closed);
    // Readers share the lock.
    assert_eq!(self::closed(&env), closed);
}

#[test]
fn progress_grows_to_its_totals() {
    let env = filled();
    let mut seen = Vec::new();
    let report = Store::verify_closed(&env, &mut |progress| seen.push(progress)).expect("verifies");
    let last = *seen.last().expect("some progress");
    assert_eq!(
        (last.files, last.bytes),
        (last.files_total, last.bytes_total)
    );
    assert_eq!(last.files, report.files);
    let grows = |pair: &[VerifyProgress]| {
        pair[0].bytes <= pair[1].bytes && pair[0].bytes_total == pair[1].bytes_total
    };
    assert!(seen.windows(2).all(grows));
    assert!(report.bytes <= last.bytes_total);
}

#[test]
fn damage_in_every_segment_is_found_beside_the_others() {
    let env = filled();
    let segments = names(&env, FileKind::Segment);
    for (place, name) in segments.iter().enumerate() {
        let file = env.vfs.open(*name, OpenMode::Read).expect("opens");
        let file_len = file.len().expect("a length");
        // Head, records, index, filters, footer: another part of each.
        flip(&env, *name, file_len * place as u64 / segments.len() as u64);
    }
    env.vfs.unlink(segments[1]).expect("removes");
    let report = closed(&env);
    assert_eq!(files_of(&report), segments);
    let missing = report.damaged.iter().find(|at| at.file == segments[1]);
    assert_eq!(missing.map(|at| at.what.as_str()), Some("no such file"));
}

#[test]
fn every_piece_of_a_segment_counts() {
    let env = filled();
    let name = names(&env, FileKind::Segment)[0];
    let file = env.vfs.open(name, OpenMode::Read).expect("opens");
    for offset in (0..file.len().expect("a length")).step_by(7) {
        flip(&env, name, offset);
        let report = closed(&env);
        assert_eq!(files_of(&report), [name], "byte {offset}");
        flip(&env, name, offset);
    }
    assert!(closed(&env).is_clean());
}

#[test]
fn damage_that_keeps_a_store_from_opening_is_named() {
    let env = filled();
    let [log] = used_logs(&env)[..] else {
        panic!("one log holds commits");
    };
    let segment = names(&env, FileKind::Segment)[0];
    for (name, offset) in [
        (FileName::MANIFEST, 0),
        (FileName::MANIFEST, 40),
        (FileName::MANIFEST, 90),
        (log, 3),
        (log, 20),
        (log, 64 + 8),
        (log, 64 + 40 + 3),
    ] {
        flip(&env, name, offset);
        flip(&env, segment, 500);
        let refused = Store::open_with(env.clone(), small()).expect_err("damaged");
        assert_eq!(*refused.kind(), ErrorKind::Corruption, "{name} {offset}");
        let report = closed(&env);
        // The segments are named by the manifest.
        let all = [name, segment];
        let expected = if name == FileName::MANIFEST { 1 } else { 2 };
        assert_eq!(files_of(&report), all[..expected], "byte {offset}");
        assert!(report.damaged[0].offset <= offset, "{report:?}");
        assert!(!report.damaged[0].what.is_empty());
        flip(&env, name, offset);
        flip(&env, segment, 500);
    }
    env.vfs.unlink(log).expect("removes");
    assert_eq!(files_of(&closed(&env)), [log]);
    env.vfs.unlink(FileName::MANIFEST).expect("removes");
    assert_eq!(files_of(&closed(&env)), [FileName::MANIFEST]);
}

#[test]
fn a_manifest_that_lost_its_edits_is_damage() {
    let env = filled();
    let store = Store::open_with(env.clone(), small()).expect("opens");
    let mode = OpenMode::ReadWrite;
    let file = env.vfs.open(FileName::MANIFEST, mode).expect("opens");
    let mut old = vec![0; file.len().expect("a length") as usize];
    assert_eq!(file.read_at(&mut old, 0), Ok(old.len()));
    // Segments come after this state, and a log that holds commits.
    fill(&store, 100, 100);
    store.drain().expect("flushes");
    fill(&store, 200, 3);
    store.close().expect("closes");
    let file = env.vfs.open(FileName::MANIFEST, mode).expect("opens");
    file.set_len(0).expect("cuts");
    file.write_at(&old, 0).expect("writes");
    let report = closed(&env);
    assert_eq!(report.damaged[0].file, FileName::MANIFEST, "{report:?}");
    assert!(report.damaged[0].what.contains("lost an edit"));
}

#[test]
fn what_is_no_store_is_refused() {
    let env = Env::in_memory();
    let refused = Store::verify_closed(&env, &mut |_| ()).expect_err("no directory");
    assert_eq!(*refused.kind(), ErrorKind::NotAStore);
    env.vfs.create_root().expect("creates");
    let refused = Store::verify_closed(&env, &mut |_| ()).expect_err("no manifest");
    assert_eq!(*refused.kind(), ErrorKind::NotAStore);
    assert_eq!(env.vfs.list().expect("lists").names, []);
}

#[test]
fn an_open_store_sees_damage_under_it() {
    let env = Env::in_memory();
    let store = Store::open_with(env.clone(), small()).expect("opens");
    fill(&store, 0, 20);
    store.drain().expect("flushes");
    fill(&store, 20, 3);
    let [log] = used_logs(&env)[..] else {
        panic!("one log holds commits");
    };
    let segment = names(&env, FileKind::Segment)[0];
    for (name, offset) in [(FileName::MANIFEST, 90), (log, 64 + 40 + 3), (segment, 100)] {
        flip(&env, name, offset);
        let report = store.verify(&mut |_| ()).expect("verifies");
        assert_eq!(files_of(&report), [name]);
        flip(&env, name, offset);
    }
    // The last visible commit is expected, although no mark says that it is durable.
    let file = env.vfs.open(log, OpenMode::ReadWrite).expect("opens");
    let mut bytes = vec![0; 4096];
    file.read_at(&mut bytes, 0).expect("reads");
    let used = bytes.iter().rposition(|byte| *byte != 0).expect("frames");
    flip(&env, log, used as u64);
    let report = store.verify(&mut |_| ()).expect("verifies");
    assert_eq!(files_of(&report), [log]);
}

#[test]
fn a_verification_beside_a_writer_finds_no_damage() {
    let env = Env::in_memory();
    let driver = Env::real("unused").expect("an environment").driver;
    let env = Env { driver, ..env };
    let clock = Env::real("unused").expect("an environment").clock;
    let env = Env { clock, ..env };
    let options = small().background(Background::Threads(1));
    let store = Store::open_with(env, options).expect("opens");
    let writing = Arc::new(AtomicBool::new(true));
    let writer = {
        let (store, writing) = (store.clone(), writing.clone());
        #[allow(clippy::disallowed_methods, reason = "a test of two threads")]
        std::thread::spawn(move || {
            fill(&store, 0, 1500);
            writing.store(false, Ordering::Release);
        })
    };
    let mut rounds = 0;
    while writing.load(Ordering::Acquire) || rounds == 0 {
        let report = store.verify(&mut |_| ()).expect("verifies");
        assert!(report.is_clean(), "{:?}", &report.damaged[0]);
        rounds += 1;
    }
    writer.join().expect("the writer ends");
    let report = store.verify(&mut |_| ()).expect("verifies");
    assert!(report.is_clean());
    assert_eq!(report.records, 3000);
    assert!(rounds > 1, "{rounds} rounds");
}
