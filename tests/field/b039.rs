//! B039. Elsewhere one had to sleep between close and open, and an empty lock file blocked every start. Here
//! close and drop return when threads have ended and the lock is free, and a kill frees it too.
#![allow(
    clippy::disallowed_methods,
    reason = "a real directory, a process to kill, and a file in the lock's place"
)]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use sealstone::env::FileName;
use sealstone::{Background, Durability, ErrorKind, Options, Store};

use crate::support::{get, mutable};

/// Names the directory for the child that is going to be killed.
const DIRECTORY: &str = "SEALSTONE_TEST_DIRECTORY";

fn options() -> Options {
    Options::new()
        .seal_bytes(64 << 10)
        .batch_bytes_max(64 << 10)
        .background(Background::Threads(1))
}

fn reopened(path: &Path) -> Store {
    Store::open(path, options()).expect("opens at once")
}

#[test]
fn b039_close_and_drop_free_the_lock() {
    let directory = tempfile::tempdir().unwrap();
    for round in 0..100_u32 {
        let store = reopened(directory.path());
        let map = mutable(&store, "map");
        for i in 0..5 {
            map.put(format!("{round} {i}"), "v", Durability::Buffered)
                .unwrap();
        }
        // The flush is running, or about to, when the handle goes.
        store.seal().unwrap();
        if round % 2 == 0 {
            store.close().unwrap();
        }
        drop((map, store));
    }
    let store = reopened(directory.path());
    assert_eq!(mutable(&store, "map").iter().unwrap().count(), 500);
}

/// Not a test of its own: the process that is killed.
#[test]
fn b039_child() {
    let Some(path) = std::env::var_os(DIRECTORY) else {
        return;
    };
    let store = reopened(Path::new(&path));
    let map = mutable(&store, "map");
    map.put("acknowledged", "1", Durability::Synced).unwrap();
    println!("\nready");
    loop {
        map.put("more", "1", Durability::Buffered).unwrap();
    }
}

#[test]
fn b039_a_kill_frees_the_lock() {
    let directory = tempfile::tempdir().unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "b039::b039_child", "--nocapture"])
        .env(DIRECTORY, directory.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = BufReader::new(child.stdout.take().unwrap());
    assert!(
        output
            .lines()
            .map_while(Result::ok)
            .any(|line| line == "ready")
    );
    let error = Store::open(directory.path(), options()).unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Locked, "{error}");
    child.kill().unwrap();
    child.wait().unwrap();
    let store = reopened(directory.path());
    assert_eq!(
        get(&mutable(&store, "map"), "acknowledged"),
        Some(b"1".to_vec())
    );
}

#[test]
fn b039_a_directory_in_the_locks_place_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let lock = directory.path().join(FileName::LOCK.to_string());
    std::fs::create_dir(&lock).unwrap();
    let error = Store::open(directory.path(), options()).unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Io, "{error}");
    assert_eq!(error.file(), Some(FileName::LOCK), "{error}");
    std::fs::remove_dir(&lock).unwrap();
    drop(reopened(directory.path()));
}
