//! Headers, seals, newer forms, limits, and reading again.

use super::*;
use crate::env::{FileName, OpenMode, Vfs};

#[test]
fn reads_back_what_was_written() {
    let commits = commits(&[9, 10, 10]);
    let end = *offsets(&commits).last().unwrap() as u64;
    let (payloads, outcome) = read(&image(&commits), 12);
    assert_eq!(payloads, payloads_of(&commits));
    assert_eq!(outcome.unwrap(), Tail::Clean { offset: end });
}

#[test]
fn the_highest_mark_is_kept_for_the_logs_before() {
    let vfs = TestVfs::default();
    let mut writer = write(&vfs, &commits(&[7, 9, 8]), 1, STAGING_BYTES);
    for (seal, highest) in [(None, 9), (Some(12), 12)] {
        if let Some(mark) = seal {
            writer.seal(mark, &mut Vec::new()).unwrap();
        }
        let mut reader = LogReader::open(&vfs, &IDENTITY, expectation(0)).unwrap();
        let mut buffer = Vec::new();
        while reader.next(&mut buffer).unwrap().is_some() {}
        assert_eq!(reader.highest_mark(), highest);
        assert_eq!(
            (reader.next_sequence(), reader.counted()),
            (13, writer.counted())
        );
    }
}

#[test]
fn empty_log_is_clean() {
    let (payloads, outcome) = read(&image(&[]), 9);
    assert!(payloads.is_empty());
    assert_eq!(outcome.unwrap(), Tail::Clean { offset: 64 });
    let (_, outcome) = read(&image(&[]), FIRST);
    expect_corruption(&outcome, 64);
}

#[test]
fn rightly_checksummed_nonsense_is_refused() {
    let good = header_of(&(payload(0, 24), 9), FIRST);
    let edits: [fn(&mut FrameHeader); 5] = [
        |header| header.sequence = FIRST + 1,
        |header| header.sequence = FIRST - 1,
        |header| header.durable_through = FIRST,
        |header| header.payload_len = 23,
        |header| header.kind = FrameKind::Seal,
    ];
    for edit in edits {
        let mut header = good;
        edit(&mut header);
        let mut bytes = image(&[]);
        bytes[64..104].copy_from_slice(&header.encode(&IDENTITY, 64));
        bytes[104..128].copy_from_slice(&payload(0, 24));
        expect_corruption(&read(&bytes, 0).1, 64);
    }
}

#[test]
fn a_length_beyond_the_file_is_not_believed() {
    let mut header = header_of(&(payload(0, 24), 9), FIRST);
    header.payload_len = !7;
    let mut bytes = image(&[]);
    bytes[64..104].copy_from_slice(&header.encode(&IDENTITY, 64));
    // `read` itself checks that no buffer grew beyond the file.
    assert_eq!(
        expect_torn(&read(&bytes, 0).1, 64),
        (Damage::Length, CAPACITY - 64)
    );
}

#[test]
fn unknown_frame_forms_are_a_newer_version() {
    for (at, value) in [(4, 3), (5, 1), (6, 1), (36, 1)] {
        let mut slot = header_of(&(payload(0, 24), 9), FIRST).encode(&IDENTITY, 64);
        slot[at] = value;
        let checksum = crc32c::crc32c_append(crc32c::crc32c(&slot[4..]), &IDENTITY.binding(64));
        slot[..4].copy_from_slice(&checksum.to_le_bytes());
        let mut bytes = image(&[]);
        bytes[64..104].copy_from_slice(&slot);
        let error = read(&bytes, 0).1.unwrap_err();
        assert!(
            matches!(error.kind(), ErrorKind::UnsupportedVersion { .. }),
            "{error}"
        );
    }
}

#[test]
fn header_table() {
    let whole = image(&commits(&[9]));
    let edited = |at: usize, new: &[u8], checksummed: bool| {
        let mut bytes = whole.clone();
        bytes[at..at + new.len()].copy_from_slice(new);
        if checksummed {
            let checksum = crc32c::crc32c_append(crc32c::crc32c(&bytes[..12]), &bytes[16..64]);
            bytes[12..16].copy_from_slice(&checksum.to_le_bytes());
        }
        bytes
    };
    let newer = |found| ErrorKind::UnsupportedVersion {
        found,
        supported: LOG_VERSION,
    };
    let cases = [
        ("empty", Vec::new(), ErrorKind::Corruption),
        ("short", whole[..63].to_vec(), ErrorKind::Corruption),
        ("zeros", vec![0; CAPACITY as usize], ErrorKind::Corruption),
        ("magic", edited(0, b"SEALLOG2", true), ErrorKind::Corruption),
        ("version 0", edited(8, &[0], true), newer(0)),
        ("newer", edited(8, &[2], true), newer(2)),
        ("newer, other head", edited(8, &[9], false), newer(9)),
        ("no version", edited(10, &[1], true), ErrorKind::Corruption),
        (
            "the last version",
            edited(8, &[0xFF; 2], true),
            newer(0xFFFF),
        ),
        ("feature", edited(60, &[1], true), newer(2)),
        ("other store", edited(16, &[1], true), ErrorKind::Corruption),
        (
            "other number",
            edited(32, &[1], true),
            ErrorKind::Corruption,
        ),
        (
            "other incarnation",
            edited(40, &[1], true),
            ErrorKind::Corruption,
        ),
    ];
    for (what, bytes, kind) in cases {
        let error = read(&bytes, 0).1.expect_err(what);
        assert_eq!(
            (error.kind(), error.file()),
            (&kind, Some(IDENTITY.name())),
            "{what}"
        );
    }
    let (payloads, outcome) = read(&edited(48, &[1], true), 0);
    assert_eq!(
        (payloads.len(), outcome.is_ok()),
        (1, true),
        "compatible feature"
    );
    let missing = LogReader::open(&TestVfs::default(), &IDENTITY, expectation(0)).unwrap_err();
    assert_eq!(missing.kind(), &ErrorKind::MissingFile);
}

#[test]
fn seal_ends_and_counts() {
    let commits = commits(&[9, 9, 9]);
    let vfs = TestVfs::default();
    let mut writer = write(&vfs, &commits, 2, STAGING_BYTES);
    let counted = *writer.counted();
    writer.seal(12, &mut Vec::new()).unwrap();
    let whole = vfs.bytes(IDENTITY.name()).unwrap();
    let offsets = offsets(&commits);
    let end = offsets[3] + SEAL_FRAME_BYTES as usize;
    let (payloads, outcome) = read(&whole, 12);
    assert_eq!(payloads, payloads_of(&commits));
    assert_eq!(
        outcome.unwrap(),
        Tail::Sealed {
            offset: end as u64,
            seal: counted
        }
    );
    assert_eq!(
        counted,
        Seal {
            records: 3,
            bytes: 24 + 40 + 56,
            first: 10,
            last: 12
        }
    );
    // The manifest knows of more than the sealed log has.
    expect_corruption(&read(&whole, 13).1, offsets[3]);
    // The seal's mark covers every commit; the seal itself may tear.
    for at in offsets[0]..end {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x10;
        let index = offsets.partition_point(|start| *start <= at) - 1;
        let (payloads, outcome) = read(&bytes, 0);
        assert_eq!(payloads, payloads_of(&commits[..index]));
        if index < 3 {
            expect_corruption(&outcome, offsets[index]);
        } else {
            expect_torn(&outcome, offsets[3]);
        }
    }
}

#[test]
fn a_seal_that_counts_other_frames_is_corruption() {
    let (header, payload) = Seal {
        records: 2,
        bytes: 24,
        first: 10,
        last: 10,
    }
    .encode(9);
    let commits = commits(&[9]);
    let end = offsets(&commits)[1];
    let mut bytes = image(&commits);
    bytes[end..end + 40].copy_from_slice(&header.encode(&IDENTITY, end as u64));
    bytes[end + 40..end + 72].copy_from_slice(&payload);
    expect_corruption(&read(&bytes, 0).1, end);
}

#[test]
fn long_payloads_are_refused_only_if_whole() {
    let commits = commits(&[9, 9]);
    let offsets = offsets(&commits);
    let mut bytes = image(&commits);
    let limited = LogExpectation {
        payload_bytes_max: 32,
        ..expectation(0)
    };
    let (payloads, outcome) = read_with(&bytes, limited, 64);
    assert_eq!(payloads.len(), 1);
    let kind = ErrorKind::TooLarge {
        needed: 40,
        limit: 32,
    };
    assert_eq!(outcome.unwrap_err().kind(), &kind);
    bytes[offsets[1] + 60] ^= 1;
    expect_torn(&read_with(&bytes, limited, 64).1, offsets[1]);
}

#[test]
fn a_payload_can_go_bad_between_two_reads() {
    let vfs = TestVfs::default();
    let mut bytes = image(&commits(&[9]));
    bytes[64 + 45] ^= 1;
    vfs.put(IDENTITY.name(), bytes);
    let file = vfs.open(IDENTITY.name(), OpenMode::Read).unwrap();
    let mut buffer = vec![1];
    for offset in [64, 72, 1000, 1 << 40] {
        let error = read_payload(&*file, &IDENTITY, offset, &mut buffer).unwrap_err();
        assert_eq!(error.kind(), &ErrorKind::Corruption);
        assert_eq!((error.offset(), buffer.len()), (Some(offset), 0));
    }
}

#[test]
fn probe_tells_frames_from_debris() {
    let probe_of = |bytes: Vec<u8>| {
        let vfs = TestVfs::default();
        vfs.put(FileName::log(9), bytes);
        probe(&vfs, FileName::log(9))
    };
    assert_eq!(probe_of(Vec::new()).unwrap(), None);
    assert_eq!(probe_of(vec![0; 500]).unwrap(), None);
    assert_eq!(probe_of(image(&[])).unwrap(), Some((IDENTITY, false)));
    let mut bytes = image(&commits(&[9, 9]));
    assert_eq!(probe_of(bytes.clone()).unwrap(), Some((IDENTITY, true)));
    // The first frame may be gone: the second proves as much.
    bytes[64..128].fill(0);
    assert_eq!(probe_of(bytes.clone()).unwrap(), Some((IDENTITY, true)));
    bytes[8] = 2;
    let error = probe_of(bytes.clone()).unwrap_err();
    // A torn header says any version; without a byte behind it, it is debris.
    bytes[64..].fill(0);
    assert_eq!(probe_of(bytes).unwrap(), None);
    assert!(matches!(
        error.kind(),
        ErrorKind::UnsupportedVersion { found: 2, .. }
    ));
}

#[test]
fn a_failed_read_is_neither_a_tear_nor_damage() {
    let commits = commits(&[9, 9, 9]);
    let mut bytes = image(&commits);
    bytes[offsets(&commits)[2] + 60] ^= 1;
    for reads in 0.. {
        let vfs = TestVfs::default();
        vfs.put(IDENTITY.name(), bytes.clone());
        let open = || LogReader::with_window(&vfs, &IDENTITY, expectation(0), 64);
        vfs.fail_read_after(Some(reads));
        let mut reader = open().or_else(|error| match error.kind() {
            ErrorKind::Io => open(),
            _ => Err(error),
        });
        let reader = reader.as_mut().unwrap();
        let mut buffer = Vec::new();
        let mut payloads = Vec::new();
        loop {
            match reader.next(&mut buffer) {
                Ok(Some(_)) => payloads.push(buffer.clone()),
                Ok(None) => break,
                // The same frame can be asked for again.
                Err(error) => assert_eq!(error.kind(), &ErrorKind::Io),
            }
        }
        assert_eq!(payloads, payloads_of(&commits[..2]));
        assert!(matches!(reader.tail(), Some(Tail::Torn { .. })));
        if vfs.fail_read_after(None) {
            assert!(reads > 20, "{reads} reads, each met once");
            break;
        }
    }
}

#[test]
fn the_format_is_frozen() {
    let vfs = TestVfs::default();
    let mut writer = write(&vfs, &commits(&[9, 10]), 1, STAGING_BYTES);
    writer.seal(11, &mut Vec::new()).unwrap();
    let checksum = crc32c::crc32c(&vfs.bytes(IDENTITY.name()).unwrap());
    assert_eq!((writer.offset(), checksum), (FROZEN_LEN, FROZEN_CHECKSUM));
}

/// Of the sample file; another value is another format, and needs another version.
const FROZEN_LEN: u64 = 280;
const FROZEN_CHECKSUM: u32 = 3_308_153_810;
