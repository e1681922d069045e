//! How frames reach the file, and damage drawn at random.

use proptest::prelude::*;

use super::super::testing::Call;
use super::*;
use crate::env::{IoErrorKind, Vfs};

#[test]
fn a_group_of_small_frames_is_one_write() {
    let commits = commits(&[9, 9, 9, 9]);
    let vfs = TestVfs::default();
    let mut writer = write(&vfs, &commits, 4, STAGING_BYTES);
    assert_eq!(
        vfs.take_calls(),
        [Call::Create, Call::Allocate, Call::Write, Call::Write]
    );
    writer.sync().unwrap();
    assert_eq!(vfs.take_calls(), [Call::Sync]);
    // Pieces above half the staging go straight: header, 13 bytes, 27 bytes, at most.
    let vfs = TestVfs::default();
    write(&vfs, &commits[..1], 1, 40);
    assert_eq!(vfs.take_calls().len(), 3 + 2);
    assert_eq!(vfs.bytes(IDENTITY.name()).unwrap(), image(&commits[..1]));
}

#[test]
fn room_is_kept_for_the_seal() {
    let vfs = TestVfs::default();
    let mut writer = write(&vfs, &[], 1, STAGING_BYTES);
    let mut staging = Vec::new();
    let room = writer.remaining();
    assert_eq!(room, CAPACITY - LOG_HEADER_BYTES - SEAL_FRAME_BYTES);
    let append = |writer: &mut LogWriter, len: u64, staging: &mut Vec<u8>| {
        let commit = (payload(1, len as usize), 9);
        let frame = FrameToWrite {
            header: header_of(&commit, FIRST),
            payload: &[&commit.0],
        };
        writer.append(&[frame], staging)
    };
    vfs.take_calls();
    let refused = append(&mut writer, room - 40 + 8, &mut staging).unwrap_err();
    assert_eq!(
        (refused.kind, writer.failure()),
        (IoErrorKind::NoSpace, None)
    );
    vfs.allocate_max(Some(CAPACITY));
    assert_eq!(
        writer.reserve(room + 8).unwrap_err().kind,
        IoErrorKind::NoSpace
    );
    assert_eq!(
        (writer.offset(), vfs.take_calls()),
        (64, vec![Call::Allocate])
    );
    append(&mut writer, room - 40, &mut staging).unwrap();
    assert_eq!(writer.remaining(), 0);
    vfs.allocate_max(None);
    writer.reserve(100).unwrap();
    assert_eq!(writer.remaining(), 100);
    writer.seal(9, &mut staging).unwrap();
    let length = vfs.bytes(IDENTITY.name()).unwrap().len() as u64;
    assert_eq!(length, CAPACITY + 100);
}

#[test]
fn a_failed_write_or_sync_is_final() {
    let commit = (payload(1, 24), 9);
    let frame = FrameToWrite {
        header: header_of(&commit, FIRST),
        payload: &[&commit.0],
    };
    for fail_sync in [false, true] {
        let vfs = TestVfs::default();
        let mut writer = write(&vfs, &[], 1, STAGING_BYTES);
        let mut staging = Vec::new();
        vfs.fail_at(Some((usize::from(fail_sync), IoErrorKind::Other)));
        let written = writer.append(&[frame], &mut staging);
        assert_eq!(written.is_err(), !fail_sync);
        assert_eq!(writer.sync().unwrap_err().kind, IoErrorKind::Other);
        vfs.fail_at(None);
        assert_eq!(writer.sync().unwrap_err().kind, IoErrorKind::Other);
        assert_eq!(
            writer.append(&[], &mut staging).unwrap_err().kind,
            IoErrorKind::Other
        );
        assert_eq!(
            writer.seal(9, &mut staging).unwrap_err().kind,
            IoErrorKind::Other
        );
        assert_eq!(writer.reserve(1).unwrap_err().kind, IoErrorKind::Other);
        assert!(writer.failure().is_some() && vfs.take_calls().is_empty());
    }
}

#[test]
fn failed_creation_leaves_nothing() {
    for at in 0..3 {
        let vfs = TestVfs::default();
        vfs.fail_at(Some((at, IoErrorKind::NoSpace)));
        assert_eq!(
            create(&vfs, &IDENTITY, CAPACITY).unwrap_err().kind,
            IoErrorKind::NoSpace
        );
        assert_eq!(vfs.list().unwrap().names, []);
    }
}

proptest! {
    #[test]
    fn any_grouping_writes_the_same_bytes(
        lengths in prop::collection::vec(0_usize..12, 1..8),
        group in 1_usize..8,
        staging_bytes in 40_usize..300,
        window_bytes in 64_usize..300,
    ) {
        let commits: Vec<_> = lengths
            .iter()
            .enumerate()
            .map(|(index, length)| (payload(index as u64, length * 8), 9))
            .collect();
        let vfs = TestVfs::default();
        write(&vfs, &commits, group, staging_bytes);
        let bytes = vfs.bytes(IDENTITY.name()).unwrap();
        prop_assert_eq!(&bytes, &image(&commits));
        let (payloads, outcome) = read_with(&bytes, expectation(0), window_bytes);
        prop_assert_eq!(payloads, payloads_of(&commits));
        let clean = matches!(outcome, Ok(Tail::Clean { .. }));
        prop_assert!(clean);
    }

    #[test]
    fn any_damage_leaves_a_prefix_that_keeps_what_is_marked(
        marks in prop::collection::vec(0_u64..3, 3),
        manifest_mark in 0_u64..13,
        edits in prop::collection::vec((0_usize..400, any::<u8>(), 1_usize..60), 1..4),
        length in 0_usize..500,
    ) {
        let marks: Vec<_> = marks.iter().zip(FIRST..).map(|(back, at)| at - 1 - back).collect();
        let commits = commits(&marks);
        let mut bytes = image(&commits);
        for (at, value, count) in edits {
            bytes[at..at + count].fill(value);
        }
        bytes.truncate(length.max(100));
        let (payloads, outcome) = read(&bytes, manifest_mark);
        prop_assert_eq!(&payloads[..], &payloads_of(&commits)[..payloads.len()]);
        if outcome.is_ok() {
            prop_assert!(FIRST + payloads.len() as u64 > manifest_mark);
        }
    }
}
