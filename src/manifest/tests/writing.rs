//! Calls in their order, and what each failing one leaves.

use super::*;
use crate::env::{IoErrorKind, Vfs};
use crate::log::testing::Call;

const CREATE_CALLS: [Call; 6] = [
    Call::Create,
    Call::Allocate,
    Call::Write,
    Call::Sync,
    Call::Rename,
    Call::SyncDir,
];

fn store() -> (TestVfs, ManifestWriter) {
    let vfs = TestVfs::default();
    let writer = ManifestWriter::create(&vfs, &state(), 4096).unwrap();
    assert_eq!(vfs.take_calls(), CREATE_CALLS);
    (vfs, writer)
}

fn names(vfs: &TestVfs) -> Vec<FileName> {
    vfs.list().unwrap().names
}

#[test]
fn an_edit_is_one_write_and_one_barrier() {
    let (vfs, mut writer) = store();
    for (changes, after) in edits().iter().zip(&states()[1..]) {
        writer.append(changes).unwrap();
        assert_eq!(vfs.take_calls(), [Call::Write, Call::Sync]);
        assert_eq!(writer.state(), after);
        assert_eq!(&read_state(&vfs), after);
    }
}

#[test]
fn room_is_allocated_ahead() {
    let vfs = TestVfs::default();
    let mut writer = ManifestWriter::create(&vfs, &state(), 100).unwrap();
    vfs.take_calls();
    let mut allocations = 0;
    for _ in 0..40 {
        writer.append(&[]).unwrap();
        let calls = vfs.take_calls();
        allocations += calls.iter().filter(|call| **call == Call::Allocate).count();
        assert_eq!(calls[calls.len() - 2..], [Call::Write, Call::Sync]);
    }
    // 16 bytes an edit, 100 and a little at a time.
    assert!((4..=6).contains(&allocations), "{allocations}");
}

#[test]
fn no_space_changes_nothing() {
    let (vfs, mut writer) = {
        let vfs = TestVfs::default();
        let writer = ManifestWriter::create(&vfs, &state(), 0).unwrap();
        (vfs, writer)
    };
    let used = writer.used_bytes();
    vfs.allocate_max(Some(used));
    vfs.take_calls();
    let before = vfs.bytes(FileName::MANIFEST);
    let [changes, ..] = edits();
    for _ in 0..2 {
        let error = writer.append(&changes).unwrap_err();
        assert_eq!(error.kind(), &ErrorKind::NoSpace);
        assert_eq!(vfs.take_calls(), [Call::Allocate]);
    }
    assert_eq!(
        (writer.state(), vfs.bytes(FileName::MANIFEST)),
        (&state(), before)
    );
    // A roll that finds no room gives back what it took and leaves the old file in force.
    vfs.allocate_max(Some(used - 1));
    assert_eq!(writer.roll(&vfs).unwrap_err().kind(), &ErrorKind::NoSpace);
    assert_eq!(names(&vfs), [FileName::MANIFEST]);
    vfs.allocate_max(None);
    assert!(writer.failure().is_none());
    writer.append(&changes).unwrap();
    assert_eq!(&read_state(&vfs), writer.state());
}

#[test]
fn the_reserve_is_given_up_before_the_edit() {
    let (vfs, mut writer) = store();
    let changes = vec![Change::AddKeyspace(keyspace(5, &"k".repeat(200)))];
    writer.append(&changes).unwrap();
    // Room for one more edit, but not for the reserve beyond it.
    let length = vfs.bytes(FileName::MANIFEST).unwrap().len() as u64;
    vfs.allocate_max(Some(length + 64));
    let mut last = Ok(());
    while last.is_ok() {
        last = writer.append(&[]);
    }
    assert_eq!(last.unwrap_err().kind(), &ErrorKind::NoSpace);
    assert!(length + 64 - writer.used_bytes() < 16);
    assert!(writer.failure().is_none());
}

#[test]
fn a_failed_write_or_sync_is_final() {
    for kind in [
        IoErrorKind::Other,
        IoErrorKind::NoSpace,
        IoErrorKind::Crashed,
    ] {
        for at in 0..2 {
            let (vfs, mut writer) = store();
            let [first, second, _] = edits();
            writer.append(&first).unwrap();
            vfs.fail_at(Some((at, kind)));
            let error = writer.append(&second).unwrap_err();
            // `NoSpace` would promise that nothing happened.
            assert_ne!(error.kind(), &ErrorKind::NoSpace);
            assert_eq!(error.cause().map(|cause| cause.kind), Some(kind));
            vfs.fail_at(None);
            assert_eq!(writer.state(), &states()[1]);
            assert_eq!(
                writer.append(&second).unwrap_err().kind(),
                &ErrorKind::Poisoned
            );
            assert_eq!(writer.roll(&vfs).unwrap_err().kind(), &ErrorKind::Poisoned);
            assert!(writer.failure().is_some() && vfs.take_calls().is_empty());
            // The edit is there whole, or not at all.
            let read = read(&vfs).unwrap().unwrap();
            assert!(states()[1..3].contains(&read.state), "{read:?}");
        }
    }
}

#[test]
fn interruptions_and_broken_edits_are_not_failures() {
    let (vfs, mut writer) = store();
    let [first, ..] = edits();
    let broken = writer
        .append(&[Change::DropLog { number: 77 }])
        .unwrap_err();
    assert_eq!(broken.kind(), &ErrorKind::Corruption);
    assert!(vfs.take_calls().is_empty());
    vfs.fail_at(Some((1, IoErrorKind::Interrupted)));
    writer.append(&first).unwrap();
    assert_eq!(vfs.take_calls(), [Call::Write, Call::Sync, Call::Sync]);
    assert_eq!(&read_state(&vfs), &states()[1]);
}

#[test]
fn every_failing_step_leaves_the_old_or_the_new() {
    for kind in [
        IoErrorKind::Other,
        IoErrorKind::NoSpace,
        IoErrorKind::TooManyOpenFiles,
    ] {
        for (at, call) in CREATE_CALLS.into_iter().enumerate() {
            let (vfs, writer) = store();
            let [first, ..] = edits();
            let mut newer = states()[1].clone();
            newer.incarnation += 1;
            // The reserve may be given up, so a single failing allocation is none.
            vfs.fail_at(Some((at, kind)));
            let created = ManifestWriter::create(&vfs, &newer, 0);
            vfs.fail_at(None);
            let error = created.expect_err("a failing call");
            let now = read_state(&vfs);
            let renamed = call == Call::SyncDir;
            assert_eq!(
                &now,
                if renamed { &newer } else { writer.state() },
                "{call:?}"
            );
            let early = matches!(call, Call::Create | Call::Allocate | Call::Rename);
            if kind == IoErrorKind::NoSpace {
                let expected = if early {
                    ErrorKind::NoSpace
                } else {
                    ErrorKind::Poisoned
                };
                assert_eq!(error.kind(), &expected, "{call:?}");
            }
            if kind == IoErrorKind::NoSpace && early {
                assert_eq!(names(&vfs), [FileName::MANIFEST], "{call:?}");
            }
            // Whatever is left behind does not stand in the way of the next attempt.
            let mut again = ManifestWriter::create(&vfs, &states()[0], 0).unwrap();
            again.append(&first).unwrap();
            assert_eq!(read_state(&vfs), states()[1]);
            assert_eq!(names(&vfs), [FileName::MANIFEST]);
        }
    }
}

#[test]
fn a_roll_is_final_only_once_it_had_an_effect() {
    for kind in [
        IoErrorKind::Other,
        IoErrorKind::NoSpace,
        IoErrorKind::TooManyOpenFiles,
    ] {
        for (at, call) in CREATE_CALLS.into_iter().enumerate() {
            let vfs = TestVfs::default();
            let mut writer = ManifestWriter::create(&vfs, &state(), 0).unwrap();
            let [first, ..] = edits();
            vfs.fail_at(Some((at, kind)));
            writer.roll(&vfs).expect_err("a failing call");
            vfs.fail_at(None);
            let full = kind == IoErrorKind::NoSpace;
            let goes_on =
                call == Call::Create || (full && matches!(call, Call::Allocate | Call::Rename));
            assert_eq!(writer.failure().is_none(), goes_on, "{call:?} {kind:?}");
            assert_eq!(writer.append(&first).is_ok(), goes_on);
            assert_eq!(read_state(&vfs), states()[usize::from(goes_on)]);
        }
    }
}

#[test]
fn a_roll_keeps_the_state_and_goes_on() {
    let (vfs, mut writer) = store();
    let [first, second, third] = edits();
    writer.append(&first).unwrap();
    let grown = writer.used_bytes();
    writer.append(&second).unwrap();
    assert!(!writer.wants_roll(4096));
    vfs.take_calls();
    writer.roll(&vfs).unwrap();
    assert_eq!(vfs.take_calls(), CREATE_CALLS);
    let read_back = read(&vfs).unwrap().unwrap();
    assert_eq!((&read_back.state, read_back.edits), (&states()[2], 0));
    assert_eq!(read_back.valid_bytes, writer.used_bytes());
    writer.append(&third).unwrap();
    assert_eq!(read_state(&vfs), states()[3]);
    assert!(grown > 64);
}

#[test]
fn a_roll_is_wanted_past_the_limit_and_the_state() {
    let (_, mut writer) = store();
    let base = writer.used_bytes();
    while !writer.wants_roll(0) {
        writer.append(&[]).unwrap();
    }
    // Not before the edits outgrow the state: else a large state would be written every time.
    let edit_bytes = writer.used_bytes() - base;
    assert!(edit_bytes > base - 64 && edit_bytes <= base - 64 + 16);
    assert!(!writer.wants_roll(edit_bytes) && writer.wants_roll(edit_bytes - 1));
}
