//! Who may open what at the same time, and what is left of a store that can't be opened.
#![allow(
    clippy::disallowed_methods,
    reason = "tests look at files from outside"
)]

mod support;

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use sealstone::{Options, Store};
use support::{Place, corpus, printed};

const TRANSACTIONS: &str = "bitcoin-transactions.dump";

/// Every subcommand that reads, with the arguments it needs.
const READING: [(&str, &[&str]); 7] = [
    ("get", &["text:a"]),
    ("explain", &["text:a"]),
    ("scan", &[]),
    ("dump", &[]),
    ("keyspaces", &[]),
    ("stats", &[]),
    ("verify", &[]),
];

/// A store with a segment, and commits in a log.
fn loaded() -> Place {
    let place = Place::new();
    let verified = ["--verify", &corpus(TRANSACTIONS)];
    place.run("load", &verified).expect(0);
    let input = printed(None, &["a", "1", "b", "2"]);
    place.run_with("load", &[], &input).expect(0);
    place
}

/// Names and content of everything in the store's directory.
fn content(place: &Place) -> Vec<(PathBuf, Vec<u8>)> {
    let entries = std::fs::read_dir(place.store()).expect("a directory");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let mut content: Vec<_> = paths
        .map(|path| (path.clone(), std::fs::read(&path).expect("a file")))
        .collect();
    content.sort();
    content
}

#[test]
fn reading_changes_nothing_and_goes_on_beside_other_readers() {
    let place = loaded();
    let before = content(&place);
    let options = Options::new().create(false).read_only(true);
    let reader = Store::open(place.store(), options).expect("opens");
    for (subcommand, arguments) in READING {
        place.run(subcommand, arguments).expect(0);
    }
    assert!(content(&place) == before);
    let refused = place.run_with("load", &[], &printed(None, &["c", "3"]));
    refused.expect_message(&["locked"]);
    drop(reader);
    place
        .run_with("load", &[], &printed(None, &["c", "3"]))
        .expect(0);
}

#[test]
fn a_writer_locks_everybody_out() {
    let place = loaded();
    let writer = Store::open(place.store(), Options::new()).expect("opens");
    for (subcommand, arguments) in READING {
        let ran = place.run(subcommand, arguments);
        ran.expect_message(&["locked", "LOCK", "a store "]);
    }
    writer.close().expect("closes");
    for (subcommand, arguments) in READING {
        place.run(subcommand, arguments).expect(0);
    }
}

/// Takes the right to write away from the store, its files and the directories above it.
fn make_read_only(place: &Place) {
    let set = |path: &Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("set");
    };
    for (path, _) in content(place) {
        set(&path, 0o444);
    }
    set(Path::new(place.store()), 0o555);
    set(Path::new(&place.path("")), 0o755);
}

#[test]
fn a_store_that_may_not_be_written_can_be_read() {
    let place = loaded();
    // The superuser may write everywhere: then somebody else, who may not reach the build's directory,
    // reads.
    let program = place.path("sealstone");
    std::fs::copy(env!("CARGO_BIN_EXE_sealstone"), &program).expect("copies");
    make_read_only(&place);
    let probe = Path::new(place.store()).join("probe");
    let superuser = std::fs::write(&probe, b"").is_ok();
    if superuser {
        std::fs::remove_file(&probe).expect("removes");
    }
    let before = content(&place);
    let run = |subcommand: &str, arguments: &[&str]| {
        let mut command = Command::new(&program);
        command.args([subcommand, "--store", place.store()]);
        command.args(arguments).current_dir("/");
        if superuser {
            command.uid(65_534).gid(65_534);
        }
        command.output().expect("the command starts")
    };
    for (subcommand, arguments) in READING {
        let output = run(subcommand, arguments);
        let err = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{subcommand}: {err}");
    }
    assert_eq!(run("get", &["text:b"]).stdout, b"2");
    let refused = run("load", &[&corpus(TRANSACTIONS)]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(content(&place) == before);
    // So that it can be removed.
    std::fs::set_permissions(place.store(), std::fs::Permissions::from_mode(0o755)).expect("set");
}

/// The names in the store that end so, and the places in them that `verify` names.
fn damage(place: &Place) -> Vec<(String, u64)> {
    let row = place.run("verify", &["--json", "-"]).expect(1).row();
    let places = row["damaged"].as_array().expect("a list").clone();
    let named = places.iter().map(|at| {
        assert!(at["what"].as_str().is_some_and(|what| !what.is_empty()));
        let file = at["file"].as_str().expect("a name").to_owned();
        (file, at["offset"].as_u64().expect("an offset"))
    });
    named.collect()
}

fn flip(path: &Path, offset: usize) {
    let mut bytes = std::fs::read(path).expect("a file");
    bytes[offset] ^= 4;
    std::fs::write(path, bytes).expect("written");
}

#[test]
fn damage_that_keeps_a_store_from_opening_is_named_with_its_place() {
    let place = loaded();
    let is_used_log = |(path, bytes): &&(PathBuf, Vec<u8>)| {
        path.extension().is_some_and(|extension| extension == "log") && bytes[64..72] != [0; 8]
    };
    let before = content(&place);
    let log = &before.iter().find(is_used_log).expect("commits").0;
    let manifest = &Path::new(place.store()).join("MANIFEST");
    let segment = &before
        .iter()
        .find(|(path, _)| path.extension().is_some_and(|extension| extension == "seg"));
    let segment = &segment.expect("a segment").0;
    let name = |path: &Path| {
        path.file_name()
            .expect("a name")
            .to_string_lossy()
            .into_owned()
    };
    for (path, offset, at) in [(manifest, 100, 64), (manifest, 12, 12), (log, 110, 64)] {
        flip(path, offset);
        place
            .run("get", &["text:a"])
            .expect_message(&["corruption", &name(path)]);
        assert_eq!(damage(&place), [(name(path), at)]);
        flip(path, offset);
    }
    // One does not hide the other.
    flip(log, 110);
    std::fs::remove_file(segment).expect("removes");
    let found = damage(&place);
    assert_eq!(found, [(name(log), 64), (name(segment), 0)]);
    std::fs::remove_file(manifest).expect("removes");
    assert_eq!(damage(&place), [("MANIFEST".to_owned(), 0)]);
}

#[test]
fn a_newer_format_is_not_called_damage() {
    let place = loaded();
    let manifest = Path::new(place.store()).join("MANIFEST");
    let mut bytes = std::fs::read(&manifest).expect("a manifest");
    bytes[8] = 200;
    std::fs::write(&manifest, bytes).expect("written");
    for (subcommand, arguments) in READING {
        let ran = place.run(subcommand, arguments);
        ran.expect_message(&["version 200", "MANIFEST"]);
    }
}

#[test]
fn no_output_goes_over_what_is_read() {
    let place = loaded();
    let before = content(&place);
    let files: Vec<String> = before
        .iter()
        .map(|(path, _)| path.to_str().expect("a name").to_owned())
        .chain([format!("{}/new", place.store())])
        .collect();
    for file in &files {
        for (subcommand, option) in [
            ("dump", "--output"),
            ("stats", "--json"),
            ("verify", "--json"),
            ("keyspaces", "--json"),
            ("load", "--json"),
        ] {
            let input = printed(None, &["c", "3"]);
            let ran = place.run_with(subcommand, &[option, file], &input);
            ran.expect_message(&["directory of the store", "choose another file"]);
        }
    }
    assert!(content(&place) == before);
    // Another way to the same file, and an input.
    let link = place.path("link");
    std::os::unix::fs::symlink(&files[0], &link).expect("links");
    let ran = place.run("stats", &["--json", &link]);
    ran.expect_message(&["leads to a file of the store"]);
    let input = place.file("input", &printed(None, &["c", "3"]));
    let ran = place.run("load", &["--json", &input, &input]);
    ran.expect_message(&["one of the files that are read"]);
    assert!(content(&place) == before);
}

#[test]
fn a_dump_that_fails_leaves_the_older_one() {
    let place = loaded();
    let output = place.file("dump", b"an older dump");
    let segment = content(&place)
        .into_iter()
        .map(|(path, _)| path)
        .find(|path| path.extension().is_some_and(|extension| extension == "seg"))
        .expect("a segment");
    let whole = std::fs::read(&segment).expect("reads");
    std::fs::write(&segment, &whole[..100]).expect("cuts");
    place.run("dump", &["--output", &output]).expect(2);
    assert_eq!(std::fs::read(&output).expect("reads"), b"an older dump");
    std::fs::write(&segment, &whole).expect("mends");
    place.run("dump", &["--output", &output]).expect(0);
    assert!(
        std::fs::read(&output)
            .expect("reads")
            .ends_with(b"DATA=END\n")
    );
    // Nothing is left over beside it.
    let beside = Path::new(&output).parent().expect("a directory");
    let names = std::fs::read_dir(beside)
        .expect("lists")
        .map(|entry| entry.expect("an entry"));
    let partial = |name: &std::ffi::OsString| name.to_string_lossy().contains("partial");
    assert!(
        !names
            .map(|entry| entry.file_name())
            .any(|name| partial(&name))
    );
}
