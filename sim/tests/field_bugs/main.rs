//! Fifteen bugs that other stores really had, as miniatures: with the bug the simulator names the rule,
//! without it everything holds.
//!
//! Those that need a crash are found by trying every crash of a script; those that need one failing call
//! or one order of steps are told as scenes. What each miniature does wrong is said at its `Bug` or
//! `Plant`. Each test is named by the store and the number of its report.

mod scene;

use sealstone_sim::disk::{Strength, SyncFailure};
use sealstone_sim::faults::{Call, Fault, Rule};
use sealstone_sim::life::RunLimits;
use sealstone_sim::mini::{Mini, Plant, paged, tree, values};
use sealstone_sim::model::Violation;
use sealstone_sim::subject::Subject;
use sealstone_sim::sweep::{SweepOptions, describe, sweep};

use scene::{Outcome, Scene, explored, told};
use sealstone::env::FileKind;

const FAILED_SYNC: Fault = Fault::Sync(SyncFailure::KeepNewClean);

/// The next sync fails; the seed decides which pages reach the disk all the same.
fn failed_sync(seed: u64) -> Rule {
    Rule {
        seed,
        ..Rule::once(FAILED_SYNC, Call::SyncData, 0)
    }
}

/// The one that says the larger file is durable, the file's growth is not: never opened again.
#[test]
fn redb_1276_head_durable_before_growth() {
    explored::<paged::Paged>(paged::Bug::GrowthBehindHead, paged::Bug::None, "S6", &[]);
}

/// Two fields of the head without a checksum, one of them written.
#[test]
fn redb_1293_fields_of_the_head_torn_apart() {
    explored::<paged::Paged>(paged::Bug::FieldsApart, paged::Bug::None, "S6", &[]);
}

/// The old log removed before the name that leads away from it is durable.
#[test]
fn leveldb_195_old_log_gone_before_the_rename() {
    explored::<Mini>(Plant::UnlinkBeforeSyncDir, Plant::None, "S6", &["S2", "S5"]);
}

/// The older log lost its end, the newer one is whole: a hole in the history.
#[test]
fn leveldb_193_older_log_unsynced() {
    explored::<tree::Tree>(
        tree::Bug::OldLogUnsynced,
        tree::Bug::None,
        "S7",
        &["S4", "S5"],
    );
}

/// A torn append, read back as a value of zeros or garbage.
#[test]
fn leveldb_251_torn_append_is_a_value() {
    told::<Mini>(Plant::TornTailAccepted, Plant::None, "S7", |scene| {
        for seed in 0..40 {
            let mut scene = scene.again();
            assert!(scene.put("a", "1", true));
            assert!(scene.put("b", &"2".repeat(2000), false));
            scene.lose_power_but(seed);
            scene.open()?;
        }
        Ok(())
    });
}

/// A log renamed into place, commits acknowledged in it, its name gone.
#[test]
fn etcd_6368_renamed_log_without_directory_sync() {
    told::<tree::Tree>(tree::Bug::NewLogUnnamed, tree::Bug::None, "S2", |scene| {
        assert!(scene.put("a", "1", true));
        scene.subject().seal().expect("goes on in a new log");
        assert!(scene.put("b", "1", true));
        scene.lose_power();
        scene.open()
    });
}

/// The manifest's sync fails, the new segment is removed, and after a restart the edit names it.
#[test]
fn rocksdb_4990_manifest_sync_fails_and_files_go() {
    told::<tree::Tree>(tree::Bug::EditTakenBack, tree::Bug::None, "S6", |scene| {
        for key in ["a", "b"] {
            assert!(scene.put(key, "1", true));
        }
        scene.subject().seal().expect("seals");
        scene.subject().run_job(0, 1).expect("writes the segment");
        scene.arm(Rule::once(FAILED_SYNC, Call::SyncData, 0).on(FileKind::Manifest));
        scene.subject().run_job(0, 1).expect_err("the sync fails");
        assert!(!scene.put("c", "1", true), "poisoned");
        scene.kill();
        scene.open()?;
        scene.lose_power();
        scene.open()
    });
}

/// One sync of the log fails, later ones succeed: what they acknowledge lies behind a gap.
#[test]
fn cockroach_37216_writes_behind_a_gap() {
    told::<Mini>(Plant::NotPoisoned, Plant::None, "S2", |scene| {
        let mut gaps = 0;
        for seed in 0..20 {
            let mut scene = scene.again();
            assert!(scene.put("a", "1", true));
            scene.arm(failed_sync(seed));
            // Three pages; what follows writes the last of them again, never the first two.
            assert!(!scene.put("needle", &"2".repeat(9000), true));
            if scene.survived(format!("needle{}", "2".repeat(8000)).as_bytes()) {
                // The pages of the failed sync got through: no gap.
                continue;
            }
            // Its sequence is free again.
            scene.model.retract_after(1);
            scene.put("c", "1", true);
            scene.lose_power();
            scene.open()?;
            gaps += 1;
        }
        assert!(gaps > 0);
        Ok(())
    });
}

/// fsyncgate: the sync is tried again, and its answer believed.
#[test]
fn postgresql_fsyncgate_retry_believed() {
    told::<Mini>(Plant::SyncRetried, Plant::None, "S2", |scene| {
        for seed in 0..20 {
            let mut scene = scene.again();
            assert!(scene.put("a", "1", true));
            scene.arm(failed_sync(seed));
            scene.put("b", "1", true);
            scene.lose_power();
            scene.open()?;
        }
        Ok(())
    });
}

/// Numbers of new files follow from an older manifest; the file of that number held commits.
#[test]
fn pebble_984_file_numbers_reused() {
    let others = ["S2", "S4", "S6", "S7"];
    explored::<tree::Tree>(tree::Bug::NumbersReused, tree::Bug::None, "S5", &others);
}

/// An index entry whose value's space holds another record with a right checksum.
#[test]
fn commonware_4260_entry_adopts_another_record() {
    let others = ["S2", "S3", "S4", "S5"];
    explored::<values::Values>(
        values::Bug::RecordsOfNobody,
        values::Bug::None,
        "S7",
        &others,
    );
}

/// What a read returned points into space that a later read fills.
#[test]
fn pogreb_20_slice_points_into_recycled_space() {
    told::<tree::Tree>(tree::Bug::SlicesRecycled, tree::Bug::None, "S10", |scene| {
        for key in 0..4 {
            assert!(scene.put(format!("{key}"), &format!("value {key}"), true));
        }
        let mut held = Vec::new();
        for key in 0..4 {
            let value = scene.subject().hold(0, format!("{key}").as_bytes());
            let value = value
                .expect("can be kept")
                .expect("is read")
                .expect("is there");
            assert_eq!(value.as_ref(), format!("value {key}").as_bytes());
            held.push(value);
        }
        for (key, value) in held.iter().enumerate() {
            if value.as_ref() != format!("value {key}").as_bytes() {
                return Err(Violation::new("S10", format!("value {key} changed")));
            }
        }
        Ok(())
    });
}

/// The collector removes files under an iterator that is half-way.
#[test]
fn badger_203_files_removed_under_an_iterator() {
    told::<tree::Tree>(
        tree::Bug::CollectedUnderReaders,
        tree::Bug::None,
        "S8",
        |scene| {
            scene.segment(0..4);
            scene.segment(4..8);
            let cursor = scene.subject().cursor(0).expect("there are some");
            let mut cursor = cursor.expect("starts");
            let mut next = |at: u32| match tree::Tree::advance(&mut cursor, false) {
                Some(Ok(item)) if item.0 == format!("key {at}").into_bytes() => Ok(()),
                other => Err(Violation::new("S8", format!("at key {at}: {other:?}"))),
            };
            (0..3).try_for_each(&mut next)?;
            // The third segment makes a merge of all.
            scene.segment(8..12);
            assert_eq!(scene.subject().jobs(), 0);
            (3..8).try_for_each(&mut next)?;
            drop(cursor);
            scene.drain();
            scene.check()
        },
    );
}

/// A compaction that can't open an input goes on without it.
#[test]
fn goleveldb_41_compaction_without_descriptors() {
    let play = |scene: &mut Scene<tree::Tree>| -> Outcome {
        scene.segment(0..4);
        scene.segment(4..8);
        assert!(scene.put("key 8", "value", true));
        scene.subject().seal().expect("seals");
        for _ in ["write", "install"] {
            scene.subject().run_job(0, 1).expect("flushes");
        }
        scene.arm(Rule::once(Fault::NoDescriptor, Call::Open, 0).on(FileKind::Segment));
        let _ = scene.subject().run_job(0, 1);
        assert_eq!(scene.hits(), 1);
        scene.drain();
        scene.check()
    };
    told::<tree::Tree>(tree::Bug::InputSkipped, tree::Bug::None, "S7", play);
}

/// The filter's reader and its builder disagree about bytes with the top bit set.
#[test]
fn pebble_629_filter_of_high_bytes() {
    told::<tree::Tree>(
        tree::Bug::FilterSignExtends,
        tree::Bug::None,
        "S7",
        |scene| {
            let keys = [&b"abcd\xFE"[..], b"abcd\x7F", b"\x80"];
            for key in keys {
                assert!(scene.put(key, "value", true));
            }
            scene.segment(0..1);
            scene.check()
        },
    );
}

/// The engines without a bug, on seeds, with every fault.
#[test]
fn without_a_bug_seeds_hold() {
    fn pass<S: Subject>(right: &S::Options) {
        for strength in [Strength::Honest, Strength::Adversarial] {
            let limits = RunLimits {
                strength: Some(strength),
                steps_max: Some(150),
                ..RunLimits::default()
            };
            let report = sweep::<S>(&SweepOptions {
                base: right.clone(),
                seeds: 0..500,
                limits,
                jobs: 2,
                failures_max: 1,
            });
            if let Some((seed, failure)) = report.failures.first() {
                panic!("{}", describe(*seed, failure, Some(strength)));
            }
            assert!(report.crashes > 500 && report.steps > 50_000);
        }
    }
    pass::<paged::Paged>(&paged::Bug::None);
    pass::<values::Values>(&values::Bug::None);
    pass::<tree::Tree>(&tree::Bug::None);
}
