//! A sample store's history, and the tests over it.

mod damage;
mod format;
mod rules;
mod runs;
mod writing;

use super::*;
use crate::env::FileName;
use crate::error::{Error, ErrorKind, Result};
use crate::log::testing::TestVfs;
use crate::segment::{SegmentCounts, SegmentIdentity, SegmentMeta};
use crate::types::{KeyspaceId, KeyspaceKind};

const FAMILY: u128 = 0xF00D << 96;

fn segment(number: u64) -> SegmentMeta {
    SegmentMeta {
        number,
        identity: SegmentIdentity {
            family_id: FAMILY,
            generation_lo: 1,
            generation_hi: 2,
            kind: KeyspaceKind::Mutable,
            level: 0,
            part: 3,
        },
        file_len: 9000,
        tail_offset: 8000,
        tail_len: 1000,
        footer_checksum: 0xDEAD_BEEF_0BAD_CAFE,
        counts: SegmentCounts {
            records: 40,
            tombstones: 4,
            min_sequence: 1,
            max_sequence: 20,
            key_bytes: 400,
            value_bytes: 5000,
        },
    }
}

/// A part of a run over the sample segment's generations, with that many of its records.
fn part_of_run(number: u64, part: u16) -> SegmentMeta {
    let mut meta = segment(number);
    meta.identity.level = 1;
    meta.identity.part = part;
    meta.counts.key_bytes = 0;
    meta.counts.value_bytes = 0;
    meta
}

fn log(number: u64) -> LogEntry {
    LogEntry {
        number,
        incarnation: 1,
        durable_through: 0,
        first_generation: 0,
    }
}

fn keyspace(counter: u32, name: &str) -> KeyspaceEntry {
    KeyspaceEntry {
        id: KeyspaceId(0x8000_0000 | counter),
        kind: KeyspaceKind::Mutable,
        name: name.to_owned(),
    }
}

/// A store with two logs and a keyspace.
fn state() -> ManifestState {
    let mut state = ManifestState::new(0xABCD << 80, FAMILY, *b"sixteen bytes...", 46);
    state.incarnation = 1;
    state.next_number = 3;
    state.edit_number = 5;
    state.keyspaces = vec![keyspace(0, "default")];
    state.logs = vec![log(1), log(2)];
    state
}

/// Three edits that follow it: a keyspace, a flush, a clean close.
fn edits() -> [Vec<Change>; 3] {
    [
        vec![Change::AddKeyspace(keyspace(1, "b"))],
        vec![
            Change::NextNumber(5),
            Change::NextGeneration(3),
            Change::AddSegment(segment(3)),
            Change::AddLog(log(4)),
            Change::DropLog { number: 1 },
            Change::FlushedThrough(20),
        ],
        vec![
            Change::MarkLog {
                number: 2,
                durable_through: 25,
            },
            Change::CleanClose,
        ],
    ]
}

/// The states before and after each edit.
fn states() -> Vec<ManifestState> {
    let mut states = vec![state()];
    for changes in edits() {
        let mut next = states[states.len() - 1].clone();
        let edit = Edit {
            number: next.edit_number + 1,
            changes,
        };
        next.apply(&edit).unwrap();
        states.push(next);
    }
    states
}

/// The file with all edits, and where each frame starts and the last one ends.
fn image(reserve_bytes: u64) -> (Vec<u8>, Vec<usize>) {
    let vfs = TestVfs::default();
    let mut writer = ManifestWriter::create(&vfs, &state(), reserve_bytes).unwrap();
    let mut offsets = vec![64, writer.used_bytes() as usize];
    for changes in edits() {
        writer.append(&changes).unwrap();
        offsets.push(writer.used_bytes() as usize);
    }
    (vfs.bytes(FileName::MANIFEST).unwrap(), offsets)
}

fn read_bytes(bytes: &[u8]) -> Result<ManifestRead> {
    let vfs = TestVfs::default();
    vfs.put(FileName::MANIFEST, bytes.to_vec());
    let result = file::read_with_window(&vfs, 64).map(|read| read.expect("the file is there"));
    assert!(vfs.largest_read() <= bytes.len().max(64));
    result
}

fn read_state(vfs: &TestVfs) -> ManifestState {
    read(vfs).unwrap().unwrap().state
}

fn expect_corruption(result: Result<ManifestRead>, at: usize) {
    let error = result.expect_err("expected corruption");
    assert_eq!(error.kind(), &ErrorKind::Corruption, "{error}");
    assert_eq!(error.file(), Some(FileName::MANIFEST), "{error}");
    assert_eq!(error.offset(), Some(at as u64), "{error}");
}

fn is_newer(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::UnsupportedVersion { .. })
}
