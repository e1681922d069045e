//! The Python readers, which know the formats from `docs/format.md` alone, against the engine.
//!
//! Where there is no `python3` these tests say so and pass; `.ci/run` installs it.

use std::path::Path;
use std::process::{Command, Output};

use sealstone::{Batch, Durability, KeyspaceOptions, Options, Store};

use crate::{corpus, damage, images, report, script, text};

/// Runs a program of `tests/format`; `None` without Python.
fn python(program: &str, argument: &Path) -> Option<Output> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/format");
    // Without a cache of compiled modules: the sources' directory stays as it is.
    let output = Command::new("python3")
        .arg("-B")
        .arg(directory.join(program))
        .arg(argument)
        .output();
    match output {
        Ok(output) => Some(output),
        Err(error) => {
            eprintln!("python3 can't be run, {program} is not checked: {error}");
            None
        }
    }
}

fn assert_dump(store: &Path, expected: &str, name: &str) -> Option<String> {
    let output = python("reader.py", store)?;
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{name}: {errors}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "{name}");
    Some(errors)
}

#[test]
fn python_reads_the_images() {
    for name in images::NAMES {
        let image = corpus().join(name);
        let expected = text(image.join("expect.dump"));
        let Some(errors) = assert_dump(&image.join("store"), &expected, name) else {
            return;
        };
        // Two files of one image are torn.
        let cuts = if name == "torn-tail" { 2 } else { 0 };
        assert_eq!(errors.lines().count(), cuts, "{name}: {errors}");
        assert!(errors.lines().all(|line| line.ends_with("the rest is cut")));
    }
}

#[test]
fn python_sees_the_damage() {
    // One in seven, over all kinds of file: a process for each takes a while.
    for case in damage::cases(&corpus()).iter().step_by(7) {
        let (_guard, store) = case.copy(&corpus());
        let Some(output) = python("reader.py", &store) else {
            return;
        };
        let (image, file, damage) = (case.image, &case.file, case.damage);
        let errors = String::from_utf8_lossy(&output.stderr);
        // A damaged last edit of a manifest looks torn, and is cut.
        let seen = output.status.code() != Some(0) || errors.contains("cut");
        assert!(seen, "{image} {file} {damage:?}: {errors}");
        assert!(
            errors.contains(file) || file.as_str() == "MANIFEST",
            "{image} {file}: {errors}"
        );
        assert!(
            !errors.contains("Traceback"),
            "{image} {file} {damage:?}: {errors}"
        );
    }
}

#[test]
fn python_checks_the_vectors() {
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/format.md");
    let Some(output) = python("vectors.py", &document) else {
        return;
    };
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
}

/// Sizes that no image has: many pages, several filter pieces, key fence pieces, the largest class.
#[test]
fn python_reads_a_larger_store() {
    let guard = tempfile::tempdir().expect("a directory");
    let options = Options::new().background(sealstone::Background::Manual);
    let store = Store::open(guard.path(), options).expect("opens");
    let once = store.keyspace("once", KeyspaceOptions::write_once());
    let often = store.keyspace("often", KeyspaceOptions::mutable());
    let (once, often) = (once.expect("a keyspace"), often.expect("a keyspace"));
    let mut expected = script::Model::new();
    let mut record = |name: &str, key: Vec<u8>, value: Vec<u8>| {
        expected
            .entry(name.to_owned())
            .or_default()
            .insert(key, value);
    };
    for from in (0..12_000_u32).step_by(2000) {
        let mut batch = Batch::new();
        for n in from..from + 2000 {
            let key = n.wrapping_mul(2_654_435_761).to_be_bytes().to_vec();
            let value = n.to_string().into_bytes();
            batch.put(&once, key.clone(), value.clone());
            record("once", key, value);
        }
        store.write(batch, Durability::Buffered).expect("writes");
    }
    let large = vec![0xA5; 2 << 20];
    often
        .put(b"large", &large, Durability::Buffered)
        .expect("writes");
    record("often", b"large".to_vec(), large);
    store.seal().expect("seals");
    store.drain().expect("drains");
    assert_eq!(store.stats().segments, 2);
    store.close().expect("closes");
    assert_dump(guard.path(), &report::dump(&expected), "a larger store");
}
