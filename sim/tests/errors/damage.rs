//! Files that are not what they were: cut, extended, missing, swapped, with a flipped bit in each piece
//! of 512 bytes. After a clean close every byte was durable, so each damage is either a typed error
//! with its file, or of no consequence: never another answer, never a panic.

use sealstone::env::{FileKind, FileName};
use sealstone::{Batch, Durability, Error, ErrorKind, KeyspaceOptions, Options, Store};
use sealstone_sim::disk::{DiskOptions, SimDisk};
use sealstone_sim::env::SimEnv;

const KEYS: u32 = 60;

fn key(number: u32) -> Vec<u8> {
    format!("key {number:04}").into_bytes()
}

fn value(number: u32) -> Vec<u8> {
    format!("{number} ")
        .repeat(number as usize * 7 % 200)
        .into_bytes()
}

/// A closed store with segments and a live log, whose store id depends on `seed`.
fn closed_store(seed: u64) -> SimEnv {
    let env = SimEnv::new(DiskOptions {
        seed,
        ..DiskOptions::default()
    });
    let store = Store::open_with(env.env(), Options::tiny()).expect("opens");
    let map = store
        .keyspace("map", KeyspaceOptions::mutable())
        .expect("keyspace");
    for number in 0..KEYS {
        let mut batch = Batch::new();
        batch.put(&map, key(number), value(number));
        store.write(batch, Durability::Synced).expect("writes");
    }
    store.drain().expect("drains");
    assert!(store.stats().segments >= 2);
    store.close().expect("closes");
    env
}

/// Opens, reads all keys by lookup and by scan. Panics at a wrong answer.
fn read_all(disk: &SimDisk, what: &str) -> Result<(), Error> {
    let store = Store::open_with(SimEnv::on(disk.clone()).env(), Options::tiny())?;
    let map = store.keyspace("map", KeyspaceOptions::mutable())?;
    let mut failed = None;
    for number in 0..KEYS + 2 {
        match map.get(key(number)) {
            Ok(found) => {
                let expected = (number < KEYS).then(|| value(number));
                assert_eq!(
                    found.map(|found| found.to_vec()),
                    expected,
                    "{what}: key {number}"
                );
            }
            Err(error) => failed = Some(error),
        }
    }
    let mut number = 0;
    for item in map.iter()? {
        match item {
            Ok((found, content)) => {
                assert_eq!((found, content), (key(number), value(number)), "{what}");
                number += 1;
            }
            Err(error) => failed = Some(error),
        }
    }
    assert!(failed.is_some() || number == KEYS, "{what}: {number} keys");
    failed.map_or(Ok(()), Err)
}

/// Whether a verification lists the file.
fn is_listed(disk: &SimDisk, name: FileName) -> bool {
    let env = SimEnv::on(disk.clone()).env();
    let report = Store::verify_closed(&env, &mut |_| {}).expect("verifies");
    report.damaged.iter().any(|damage| damage.file == name)
}

/// A typed error that names the file, or nothing; says whether it was an error.
fn outcome(disk: &SimDisk, name: FileName, what: &str) -> bool {
    let Err(error) = read_all(disk, what) else {
        // For a damaged run its segments answer; only who verifies is told.
        return name.kind == FileKind::Run && is_listed(disk, name);
    };
    let expected = matches!(
        error.kind(),
        ErrorKind::Corruption | ErrorKind::MissingFile | ErrorKind::UnsupportedVersion { .. }
    );
    assert!(expected, "{what}: {error}");
    let file = error.file();
    // A log that lacks what the manifest knows, or the reverse, is found in one of the two.
    let counterpart = matches!(
        (name.kind, file.map(|file| file.kind)),
        (FileKind::Manifest, Some(FileKind::Log | FileKind::Segment))
            | (FileKind::Log, Some(FileKind::Manifest))
    );
    assert!(file == Some(name) || counterpart, "{what}: {error}");
    true
}

fn damaged(env: &SimEnv, damage: impl FnOnce(&SimDisk)) -> SimDisk {
    let disk = SimDisk::from_state(env.disk.state(), env.disk.options());
    damage(&disk);
    disk
}

fn files(env: &SimEnv) -> Vec<(FileName, Vec<u8>)> {
    env.disk
        .live_files()
        .into_iter()
        .filter(|(name, _)| name.kind != FileKind::Lock)
        .collect()
}

#[test]
fn a_flipped_bit_in_each_piece() {
    let env = closed_store(1);
    let (mut flips, mut noticed) = (0, 0);
    for (name, bytes) in files(&env) {
        for piece in 0..bytes.len().div_ceil(512) {
            let offset = piece * 512 + piece * 131 % 512.min(bytes.len() - piece * 512);
            let mask = 1 << (piece % 8);
            let what = format!("bit {} of byte {offset} of {name}", piece % 8);
            let disk = damaged(&env, |disk| assert!(disk.flip(name, offset as u64, mask)));
            noticed += u32::from(outcome(&disk, name, &what));
            flips += 1;
        }
    }
    println!("{flips} flips, {noticed} noticed");
    assert!(
        flips >= 60 && noticed * 4 >= flips,
        "{flips} flips, {noticed} noticed"
    );
}

#[test]
fn cut_and_extended() {
    let env = closed_store(2);
    for (name, bytes) in files(&env) {
        // The allocated zeros behind the last frame are no content.
        let used = bytes
            .iter()
            .rposition(|byte| *byte != 0)
            .map_or(0, |last| last + 1);
        for length in (0..bytes.len()).step_by(512).chain([bytes.len() - 1]) {
            let what = format!("{name} cut to {length} of {} bytes", bytes.len());
            let disk = damaged(&env, |disk| assert!(disk.resize(name, length as u64)));
            let noticed = outcome(&disk, name, &what);
            let content_lost = length < used && name.kind != FileKind::Manifest;
            assert!(noticed || !content_lost, "{what}: not noticed");
        }
        for more in [1, 511, 4096, 1 << 30] {
            let what = format!("{name} with {more} zeros more");
            let length = bytes.len() as u64 + more;
            let disk = damaged(&env, |disk| assert!(disk.resize(name, length)));
            let noticed = outcome(&disk, name, &what);
            assert!(
                noticed || name.kind != FileKind::Segment,
                "{what}: not noticed"
            );
        }
    }
}

#[test]
fn missing() {
    let env = closed_store(3);
    for (name, _) in files(&env) {
        let disk = damaged(&env, |disk| assert!(disk.remove(name)));
        assert!(outcome(&disk, name, &format!("{name} missing")), "{name}");
    }
}

#[test]
fn swapped_between_numbers_and_stores() {
    let (env, other) = (closed_store(4), closed_store(5));
    let (ours, theirs) = (files(&env), files(&other));
    let replace = |disk: &SimDisk, name: FileName, bytes: &[u8]| {
        assert!(disk.resize(name, bytes.len() as u64) && disk.overwrite(name, 0, bytes));
    };
    let mut swaps = 0;
    for (name, bytes) in &ours {
        for (from, content) in ours
            .iter()
            .filter(|(from, _)| from != name && from.kind == name.kind)
        {
            let disk = damaged(&env, |disk| replace(disk, *name, content));
            assert!(
                outcome(&disk, *name, &format!("{from} in place of {name}")),
                "{from}, {name}"
            );
            swaps += 1;
        }
        // Equal family and commits: a segment of the other store is this store's segment.
        let twin = theirs.iter().find(|(from, _)| from == name);
        let Some((_, content)) = twin.filter(|(from, _)| from.kind != FileKind::Segment) else {
            continue;
        };
        if content == bytes {
            continue;
        }
        let disk = damaged(&env, |disk| replace(disk, *name, content));
        assert!(
            outcome(&disk, *name, &format!("{name} of another store")),
            "{name}"
        );
        swaps += 1;
    }
    assert!(swaps > 10, "{swaps}");
}
