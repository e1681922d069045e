//! Real files and processes: the kill loop and the recorded log, each shortly, and each with a plant.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "real directories and processes are what is tested"
)]

use std::collections::BTreeMap;
use std::time::Duration;

use sealstone::env::{Env, FileKind, FileName};
use sealstone_sim::disk::{DiskOptions, SimDisk};
use sealstone_sim::real::Scratch;
use sealstone_sim::real::kill::{self, KillOptions};
use sealstone_sim::real::record::{Entry, Recorder};
use sealstone_sim::real::replay::{self, make, replay, without_syncs};

fn kills(lies: bool) -> KillOptions {
    KillOptions {
        command: env!("CARGO_BIN_EXE_sealstone-sim").into(),
        time: Duration::from_secs(4),
        seed: 7,
        lies,
    }
}

#[test]
fn what_was_acknowledged_survives_the_process() {
    let report = kill::run(&kills(false)).expect("nothing is lost");
    println!("{report:?}");
    assert!(
        report.kills >= 5 && report.acknowledged >= 100,
        "{report:?}"
    );
}

#[test]
fn a_process_that_lies_is_noticed() {
    let what = kill::run(&kills(true)).expect_err("it lied");
    assert!(what.contains("gone"), "{what}");
}

/// A run on the real file system: its log, and its files at the end.
fn recorded(batches: u64) -> (Vec<Entry>, BTreeMap<FileName, Vec<u8>>) {
    let scratch = Scratch::new().expect("a directory");
    let env = Env::real(scratch.path()).expect("an environment");
    let recorder = Recorder::default();
    replay::record(&env, batches, &recorder).expect("runs");
    let mut files = BTreeMap::new();
    for name in env.vfs.list().expect("lists").names {
        let path = scratch.path().join(name.to_string());
        files.insert(name, std::fs::read(path).expect("reads"));
    }
    (recorder.entries(), files)
}

#[test]
fn the_log_of_a_real_run_survives_each_cut() {
    let (entries, mut files) = recorded(40);
    let disk = SimDisk::new(DiskOptions::default());
    make(&entries, &disk).expect("the log fits");
    files.remove(&FileName::LOCK);
    let simulated = disk.live_files();
    assert_eq!(
        simulated.keys().collect::<Vec<_>>(),
        files.keys().collect::<Vec<_>>()
    );
    assert!(simulated == files, "the log has not all that was done");
    let report = replay(&entries, 1).unwrap_or_else(|what| panic!("{what}"));
    println!("{report:?}");
    assert!(
        report.calls >= 100 && report.cuts == 3 * report.calls,
        "{report:?}"
    );
    assert!(report.opens >= 3 * report.cuts, "{report:?}");
    assert!(report.shorter > 0, "no crash cost anything: {report:?}");
    assert_eq!(report.batches_most, 80);
}

/// The replay bites: without the syncs of one kind of file, something that was answered is gone.
#[test]
fn a_log_without_its_syncs_is_noticed() {
    let (entries, _) = recorded(12);
    replay(&entries, 1).unwrap_or_else(|what| panic!("{what}"));
    for kind in [FileKind::Log, FileKind::Segment, FileKind::Manifest] {
        let planted = without_syncs(&entries, kind);
        assert!(planted.len() < entries.len());
        replay(&planted, 1).expect_err(&format!("{kind:?}: not noticed"));
    }
    let mut early = entries.clone();
    early.insert(1, Entry::Durable(1));
    replay(&early, 0).expect_err("durable before it was written");
    let without: Vec<Entry> = entries
        .iter()
        .filter(|entry| **entry != Entry::SyncDir)
        .cloned()
        .collect();
    replay(&without, 1).expect_err("names are not durable");
}
