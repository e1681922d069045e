//! R13 to R18: how syncs fail, and no space.

use sealstone::env::io::write_all_at;
use sealstone::env::{FileKind, IoErrorKind};
use sealstone_sim::disk::{Strength, SyncFailure};
use sealstone_sim::faults::{Call, Fault, Rule};

use super::*;

fn failing_sync(disk: &SimDisk, form: SyncFailure, seed: u64) {
    let mut rule = Rule::once(Fault::Sync(form), Call::SyncData, 0).on(FileKind::Log);
    rule.seed = seed;
    disk.arm(rule);
}

/// A disk on which four sectors were overwritten and a sync is about to fail.
fn before_failure(form: SyncFailure, seed: u64) -> (SimDisk, Arc<dyn File>) {
    let disk = disk();
    let file = durable(&disk, LOG, &sectors(b'o', 16));
    write_all_at(&*file, &sectors(b'n', 16), 0).unwrap();
    failing_sync(&disk, form, seed);
    (disk, file)
}

/// A seed whose failing sync loses something.
fn losing_seed() -> u64 {
    let loses = |seed: &u64| {
        let (disk, file) = before_failure(SyncFailure::KeepNewClean, *seed);
        file.sync_data().is_err() && disk.durable_files()[&LOG] != sectors(b'n', 16)
    };
    (0..SEEDS).find(loses).unwrap()
}

#[test]
fn r13_after_a_failed_sync_pages_are_clean_new_and_lost() {
    let mut lost = 0;
    for seed in 0..SEEDS {
        let (disk, file) = before_failure(SyncFailure::KeepNewClean, seed);
        assert_eq!(file.sync_data().unwrap_err().code, 5);
        assert_eq!(
            read(&disk, LOG),
            Some(sectors(b'n', 16)),
            "the cache shows the new bytes"
        );
        file.sync_data().expect("the next sync has nothing to do");
        let after = read(&disk.imagine(&KEEP_ALL), LOG).unwrap();
        lost += u32::from(after != sectors(b'n', 16));
        assert_eq!(disk.imagine(&DROP_ALL).durable_files()[&LOG], after);
        // Writing the same bytes again makes the pages dirty, and a sync writes them.
        write_all_at(&*file, &sectors(b'n', 16), 0).unwrap();
        file.sync_data().unwrap();
        assert_eq!(read(&disk.imagine(&DROP_ALL), LOG), Some(sectors(b'n', 16)));
    }
    assert!(
        lost > SEEDS as u32 / 2 && lost < SEEDS as u32,
        "lost {lost}"
    );
}

#[test]
fn r13_a_killed_process_leaves_clean_lost_pages_to_the_next() {
    let (disk, file) = before_failure(SyncFailure::KeepNewClean, losing_seed());
    let form = |disk: &SimDisk| disk.durable_files()[&LOG] != sectors(b'n', 16);
    file.sync_data().unwrap_err();
    assert!(form(&disk));
    let next = disk.imagine(&Crash::Kill);
    assert_eq!(read(&next, LOG), Some(sectors(b'n', 16)));
    let file = next.open(LOG, OpenMode::ReadWrite).unwrap();
    file.sync_data()
        .expect("this sync succeeds and changes nothing");
    assert!(form(&next.imagine(&DROP_ALL)));
}

#[test]
fn r14_the_error_may_come_with_the_next_sync() {
    let (disk, file) = before_failure(SyncFailure::LateReport, losing_seed());
    file.sync_data().expect("the failing sync says nothing");
    assert_ne!(disk.durable_files()[&LOG], sectors(b'n', 16));
    assert_eq!(file.sync_data().unwrap_err().code, 5);
    file.sync_data().unwrap();
    assert_ne!(disk.durable_files()[&LOG], sectors(b'n', 16));
}

#[test]
fn r15_the_cache_may_go_back_to_the_old_bytes() {
    let mut back = 0;
    for seed in 0..SEEDS {
        let (disk, file) = before_failure(SyncFailure::RevertToOld, seed);
        write_all_at(&*file, b"tail", 8192).unwrap();
        file.sync_data().unwrap_err();
        let live = disk.live_files()[&LOG].clone();
        assert_eq!(live, disk.durable_files()[&LOG]);
        back += u32::from(live.starts_with(b"o"));
    }
    assert!(back > 0);
}

#[test]
fn r16_each_description_learns_of_a_failure_once() {
    let (disk, file) = before_failure(SyncFailure::KeepNewClean, losing_seed());
    let other = disk.open(LOG, OpenMode::ReadWrite).unwrap();
    file.sync_data().unwrap_err();
    file.sync_data().unwrap();
    other.sync_data().unwrap_err();
    other.sync_data().unwrap();
    let late = disk.open(LOG, OpenMode::ReadWrite).unwrap();
    late.sync_data().expect("opened after somebody was told");
    // If nobody was told, the next to open the file is.
    write_all_at(&*file, b"x", 0).unwrap();
    failing_sync(&disk, SyncFailure::LateReport, 0);
    file.sync_data().unwrap();
    drop((file, other, late));
    let heir = disk.open(LOG, OpenMode::ReadWrite).unwrap();
    heir.sync_data().unwrap_err();
    heir.sync_data().unwrap();
}

#[test]
fn r16_the_first_loss_of_power_ends_all_that() {
    let (disk, file) = before_failure(SyncFailure::LateReport, losing_seed());
    file.sync_data().unwrap();
    let next = disk.imagine(&KEEP_ALL);
    next.open(LOG, OpenMode::ReadWrite)
        .unwrap()
        .sync_data()
        .unwrap();
    let next = disk.imagine(&Crash::Kill);
    next.open(LOG, OpenMode::ReadWrite)
        .unwrap()
        .sync_data()
        .unwrap_err();
}

#[test]
fn r17_a_metadata_error_makes_the_file_system_read_only() {
    let (disk, file) = before_failure(SyncFailure::ShutDown, 0);
    let denied = IoErrorKind::PermissionDenied;
    assert_eq!(file.sync_data().unwrap_err().kind, denied);
    assert_eq!(file.write_at(b"x", 0).unwrap_err().kind, denied);
    assert_eq!(disk.create_new(FileName::log(2)).unwrap_err().kind, denied);
    assert_eq!(disk.unlink(LOG).unwrap_err().kind, denied);
    assert_eq!(disk.sync_dir().unwrap_err().kind, denied);
    assert_eq!(read(&disk, LOG), Some(sectors(b'n', 16)), "reads go on");
    assert!(
        disk.imagine(&Crash::Kill)
            .create_new(FileName::log(2))
            .is_err()
    );
    disk.imagine(&DROP_ALL)
        .create_new(FileName::log(2))
        .unwrap();
}

#[test]
fn r18_no_space_from_every_call_that_can_say_it() {
    let no_space = |result: sealstone::env::IoResult<()>| {
        assert_eq!(result.unwrap_err().kind, IoErrorKind::NoSpace);
    };
    let disk = disk();
    disk.set_options(|options| options.capacity_bytes = 3 * 4096);
    let file = durable(&disk, LOG, &[1; 100]);
    assert_eq!(disk.free_space().unwrap(), 2 * 4096);
    no_space(file.allocate(4 * 4096));
    assert_eq!(
        file.len().unwrap(),
        100,
        "a refused allocation has no effect"
    );
    assert_eq!(
        file.write_at(&[2; 20_000], 0).unwrap(),
        3 * 4096,
        "a full disk writes short first"
    );
    no_space(file.write_at(&[2; 1], 3 * 4096).map(drop));
    file.write_at(&[3; 100], 0).expect("no new space needed");
    file.set_len(0).unwrap();
    file.allocate(3 * 4096).expect("the room came back");
    for (index, call) in [Call::CreateNew, Call::Rename, Call::SyncData]
        .into_iter()
        .enumerate()
    {
        disk.arm(Rule::once(Fault::NoSpace, call, 0));
        let name = FileName::log(10 + index as u64);
        no_space(match call {
            Call::CreateNew => disk.create_new(name).map(drop),
            Call::Rename => disk.rename(LOG, name),
            _ => file.sync_data(),
        });
    }
    assert_eq!(disk.faults(|plan| plan.total_hits()), 3);
}

#[test]
fn r18_space_of_an_open_unlinked_file_is_free_when_it_is_closed() {
    let disk = disk();
    disk.set_options(|options| options.capacity_bytes = 2 * 4096);
    let file = durable(&disk, LOG, &[1; 8192]);
    disk.unlink(LOG).unwrap();
    assert_eq!(disk.free_space().unwrap(), 0);
    drop(file);
    assert_eq!(disk.free_space().unwrap(), 8192);
}

#[test]
fn adversarial_a_failed_sync_may_drop_a_truncation() {
    let dropped = |strength| {
        (0..SEEDS).any(|seed| {
            let disk = disk();
            disk.set_options(|options| options.strength = strength);
            let file = durable(&disk, LOG, &sectors(b'o', 4));
            file.set_len(0).unwrap();
            failing_sync(&disk, SyncFailure::KeepNewClean, seed);
            file.sync_data().unwrap_err();
            disk.durable_files()[&LOG].len() == 2048
        })
    };
    assert!(dropped(Strength::Adversarial));
    assert!(!dropped(Strength::Honest));
}
