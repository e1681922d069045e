//! Opens that are refused: why, and that they change nothing on disk.

mod support;

use sealstone::env::{Env, FileKind, FileName};
use sealstone::{Durability, ErrorKind, Store};
use support::{
    Files, assert_refused, compact, content, files, flush, get, machine, manual, mutable, open,
    patch_file, put, read_file, write_once,
};

use Durability::Synced;

/// Where the first frame of a log lies.
const LOG_HEADER_BYTES: usize = 64;

/// A store with all that a manifest can name: segments of both kinds, a sealed log, an open one, spares.
fn everything() -> Files {
    let env = Env::in_memory();
    let store = open(&env, compact().queue_slots(3));
    let (map, once) = (mutable(&store, "map"), write_once(&store, "once"));
    for number in 0..3 {
        put(&map, format!("key {number}"), "value");
        put(&once, format!("key {number}"), "value");
        flush(&store);
    }
    put(&map, "sealed", "value");
    store.seal().expect("seals");
    map.put("open", "value", Synced).expect("puts");
    files(&env)
}

/// Adds what an aborted open leaves.
fn with_debris(mut whole: Files) -> Files {
    let mut temporary = FileName::segment(4000);
    temporary.temporary = true;
    whole.insert(FileName::MANIFEST_TEMPORARY, vec![1; 100]);
    whole.insert(temporary, vec![2; 100]);
    whole.insert(FileName::segment(5000), vec![3; 100]);
    whole.insert(FileName::log(5001), vec![4; 10]);
    whole
}

#[test]
fn debris_goes_and_nothing_else() {
    let whole = with_debris(everything());
    let env = machine(&whole);
    let store = open(&env, compact());
    store.drain().expect("drains");
    let names = env.vfs.list().expect("lists").names;
    assert_eq!(store.audit().files, names);
    assert!(
        names
            .iter()
            .all(|name| !name.temporary && name.number != 5000)
    );
    let highest = names.iter().map(|name| name.number).max();
    assert!(
        highest > Some(5001),
        "numbers go on above all that was there"
    );
    assert_eq!(content(&mutable(&store, "map")).len(), 5);
}

#[test]
fn each_named_file_is_missed() {
    // Guards open.rs, `validate`.
    let whole = with_debris(everything());
    let named = whole
        .keys()
        .filter(|name| name.number < 4000 && !name.temporary && **name != FileName::LOCK);
    let mut missed = 0;
    for name in named {
        let mut rest = whole.clone();
        rest.remove(name);
        let env = machine(&rest);
        let error = assert_refused(&env, compact());
        assert_eq!(error.kind(), &ErrorKind::MissingFile, "{error}");
        assert_eq!(error.file(), Some(*name));
        missed += 1;
    }
    assert!(missed >= 10, "{missed}");
    // The lock file holds nothing.
    let mut rest = whole.clone();
    rest.remove(&FileName::LOCK);
    open(&machine(&rest), compact());
}

#[test]
fn a_newer_format_is_no_corruption() {
    // The version stands behind the magic, and is looked at before any checksum.
    let whole = with_debris(everything());
    let versioned = whole.keys().filter(|name| {
        let file = matches!(name.kind, FileKind::Log | FileKind::Manifest);
        file && name.number < 4000 && !name.temporary
    });
    let mut refusals = 0;
    for name in versioned {
        let env = machine(&whole);
        patch_file(&env, *name, 8, &7u32.to_le_bytes());
        let error = assert_refused(&env, compact());
        let ErrorKind::UnsupportedVersion { found, supported } = error.kind() else {
            panic!("{error}");
        };
        assert_eq!((*found, *supported), (7, 1));
        assert_eq!(error.file(), Some(*name));
        refusals += 1;
    }
    assert!(refusals >= 4, "{refusals}");
}

#[test]
fn damage_refuses_without_effect() {
    // Guards check.rs: without it the first log is flushed before the damage in the second is seen.
    let whole = with_debris(everything());
    for name in whole.keys().filter(|name| name.number < 4000) {
        let used = whole[name].iter().any(|byte| *byte != 0);
        if !used || name.kind == FileKind::Segment || name.temporary {
            continue;
        }
        for at in [0, 9, 20, 40, 63, 70, 100] {
            let env = machine(&whole);
            let byte = whole[name].get(at).copied().unwrap_or(0) ^ 0x40;
            patch_file(&env, *name, at as u64, &[byte]);
            let before = files(&env);
            match Store::open_with(env.clone(), compact()) {
                Ok(_) => {}
                Err(error) => {
                    assert_eq!(error.file(), Some(*name), "{error}");
                    assert!(files(&env) == before, "{name} at {at}: {error}");
                }
            }
        }
    }
}

#[test]
fn a_manifest_that_lost_an_edit_is_found_out() {
    // Guards open.rs, `validate`: an unnamed log above all named ones that holds commits.
    let env = Env::in_memory();
    let store = open(&env, compact());
    let map = mutable(&store, "map");
    // What every job leaves stays, but for the manifest, which is put back as it was.
    let mut kept = Files::new();
    let old = read_file(&env, FileName::MANIFEST);
    for number in 0..6 {
        put(&map, format!("key {number}"), "value");
        store.seal().expect("seals");
        kept.extend(files(&env));
        store.drain().expect("drains");
    }
    put(&map, "last", "value");
    kept.extend(files(&env));
    kept.insert(FileName::MANIFEST, old);
    let error = assert_refused(&machine(&kept), compact());
    assert_eq!(error.kind(), &ErrorKind::Corruption, "{error}");
    assert_eq!(error.file(), Some(FileName::MANIFEST));
}

#[test]
fn a_directory_without_a_manifest_is_not_made_a_store() {
    let mut whole = everything();
    whole.remove(&FileName::MANIFEST);
    let env = machine(&whole);
    let error = assert_refused(&env, manual());
    assert_eq!(error.kind(), &ErrorKind::MissingFile);
    assert_eq!(error.file(), Some(FileName::MANIFEST));
    // But logs without a frame are what a creation leaves that was cut off.
    whole.retain(|name, bytes| {
        let unused = bytes
            .get(LOG_HEADER_BYTES..)
            .is_some_and(|rest| rest.iter().all(|b| *b == 0));
        name.kind == FileKind::Log && unused
    });
    assert!(!whole.is_empty());
    let store = open(&machine(&whole), manual());
    assert!(store.open_report().created);
}

#[test]
fn one_file_in_place_of_another() {
    let whole = everything();
    for kind in [FileKind::Log, FileKind::Segment] {
        let mut names = whole.keys().filter(|name| name.kind == kind);
        let (one, two) = (names.next().expect("one"), names.next_back().expect("two"));
        let mut swapped = whole.clone();
        swapped.insert(*one, whole[two].clone());
        let env = machine(&swapped);
        if kind == FileKind::Log {
            let error = assert_refused(&env, compact());
            assert_eq!(error.kind(), &ErrorKind::Corruption, "{error}");
            assert_eq!(error.file(), Some(*one));
            continue;
        }
        // Segments are looked at when they are first touched.
        let store = open(&env, compact());
        let maps = [mutable(&store, "map"), write_once(&store, "once")];
        let errors = maps.iter().filter_map(|map| map.get("key 0").err());
        let errors: Vec<_> = errors.collect();
        assert!(!errors.is_empty());
        for error in errors {
            assert_eq!(error.kind(), &ErrorKind::Corruption, "{error}");
            assert_eq!(error.file(), Some(*one));
            assert!(error.offset().is_some());
        }
        assert_eq!(get(&maps[0], "sealed"), Some(b"value".to_vec()));
    }
}
