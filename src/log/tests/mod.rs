//! Tables of damage: what a reader must make of each, known exactly beforehand.

mod damage;
mod forms;
mod writing;

use super::testing::TestVfs;
use super::*;
use crate::env::window::WINDOW_BYTES;
use crate::error::{Error, ErrorKind};

const IDENTITY: LogIdentity = LogIdentity {
    store_id: 0x1122_3344_5566_7788_99AA_BBCC_DDEE_FF00,
    number: 7,
    incarnation: 3,
};
const CAPACITY: u64 = 1024;
const FIRST: u64 = 10;

/// A commit of the test logs: its payload and its mark.
type Commit = (Vec<u8>, u64);

fn expectation(durable_through: u64) -> LogExpectation {
    LogExpectation {
        first_sequence: FIRST,
        durable_through,
        payload_bytes_max: u64::MAX,
    }
}

fn payload(index: u64, len: usize) -> Vec<u8> {
    (0..len)
        .map(|at| (index * 37 + at as u64 * 11) as u8 | 1)
        .collect()
}

/// Commits with the given marks.
fn commits(marks: &[u64]) -> Vec<Commit> {
    let payload_of = |index: usize| payload(index as u64, 24 + 16 * index);
    marks
        .iter()
        .enumerate()
        .map(|(index, mark)| (payload_of(index), *mark))
        .collect()
}

fn header_of(commit: &Commit, sequence: u64) -> FrameHeader {
    FrameHeader {
        kind: FrameKind::Commit,
        sequence,
        durable_through: commit.1,
        payload_len: commit.0.len() as u32,
        records: 1,
        payload_crc: payload_checksum(&[&commit.0]),
    }
}

/// Writes a log in groups of `group` frames; returns the writer.
fn write(vfs: &TestVfs, commits: &[Commit], group: usize, staging_bytes: usize) -> LogWriter {
    let file = create(vfs, &IDENTITY, CAPACITY).unwrap();
    let mut writer = LogWriter::new(file, IDENTITY, CAPACITY).with_staging_bytes(staging_bytes);
    let mut staging = Vec::new();
    let numbered: Vec<_> = commits.iter().zip(FIRST..).collect();
    for chunk in numbered.chunks(group) {
        let pieces: Vec<[&[u8]; 2]> = chunk
            .iter()
            .map(|(commit, _)| <[&[u8]; 2]>::from(commit.0.split_at(commit.0.len() / 3)))
            .collect();
        let frames: Vec<_> = chunk
            .iter()
            .zip(&pieces)
            .map(|((commit, sequence), pieces)| FrameToWrite {
                header: header_of(commit, *sequence),
                payload: pieces,
            })
            .collect();
        writer.append(&frames, &mut staging).unwrap();
        assert!(staging.capacity() <= staging_bytes.max(FRAME_HEADER_BYTES));
    }
    writer
}

fn image(commits: &[Commit]) -> Vec<u8> {
    let vfs = TestVfs::default();
    write(&vfs, commits, 1, STAGING_BYTES);
    vfs.bytes(IDENTITY.name()).unwrap()
}

/// Where each frame starts, and where the next would.
fn offsets(commits: &[Commit]) -> Vec<usize> {
    let mut offset = LOG_HEADER_BYTES as usize;
    let mut offsets = vec![offset];
    for (payload, _) in commits {
        offset += FRAME_HEADER_BYTES + payload.len();
        offsets.push(offset);
    }
    offsets
}

/// Reads a log to its end: the payloads, and the tail or the error.
fn read(bytes: &[u8], durable_through: u64) -> (Vec<Vec<u8>>, Result<Tail, Error>) {
    // Frame by frame and all at once: the window's size decides nothing.
    let narrow = read_with(bytes, expectation(durable_through), 64);
    let wide = read_with(bytes, expectation(durable_through), WINDOW_BYTES);
    assert_eq!(format!("{narrow:?}"), format!("{wide:?}"));
    narrow
}

fn read_with(
    bytes: &[u8],
    expectation: LogExpectation,
    window_bytes: usize,
) -> (Vec<Vec<u8>>, Result<Tail, Error>) {
    let vfs = TestVfs::default();
    vfs.put(IDENTITY.name(), bytes.to_vec());
    let mut payloads = Vec::new();
    let mut reader = match LogReader::with_window(&vfs, &IDENTITY, expectation, window_bytes) {
        Ok(reader) => reader,
        Err(error) => return (payloads, Err(error)),
    };
    let mut buffer = Vec::new();
    let outcome = loop {
        match reader.next(&mut buffer) {
            Ok(Some(frame)) => {
                let mut again = Vec::new();
                let header =
                    read_payload(&**reader.file(), &IDENTITY, frame.offset, &mut again).unwrap();
                assert_eq!((header, &again), (frame.header, &buffer));
                payloads.push(buffer.clone());
            }
            Ok(None) => break Ok(*reader.tail().unwrap()),
            Err(error) => break Err(error),
        }
    };
    let longest = bytes.len().max(64);
    assert!(buffer.capacity() <= longest && vfs.largest_read() <= longest);
    (payloads, outcome)
}

fn expect_torn(outcome: &Result<Tail, Error>, at: usize) -> (Damage, u64) {
    match outcome {
        Ok(Tail::Torn {
            offset,
            what,
            bytes_cut,
        }) if *offset == at as u64 => (*what, *bytes_cut),
        other => panic!("expected a cut at {at}, got {other:?}"),
    }
}

fn expect_corruption(outcome: &Result<Tail, Error>, at: usize) {
    let error = outcome.as_ref().expect_err("expected corruption");
    assert_eq!(error.kind(), &ErrorKind::Corruption, "{error}");
    assert_eq!(error.file(), Some(IDENTITY.name()), "{error}");
    assert_eq!(error.offset(), Some(at as u64), "{error}");
}

fn payloads_of(commits: &[Commit]) -> Vec<Vec<u8>> {
    commits.iter().map(|commit| commit.0.clone()).collect()
}

/// Whether damage of the `index`-th commit contradicts a mark of a later one or the manifest's.
fn is_covered(commits: &[Commit], index: usize, manifest_mark: u64) -> bool {
    let sequence = FIRST + index as u64;
    let later = commits
        .iter()
        .skip(index + 1)
        .any(|commit| commit.1 >= sequence);
    later || manifest_mark >= sequence
}

/// The marks used by the tables: all buffered, all synced, and between.
const MARKS: [[u64; 3]; 4] = [[9, 9, 9], [9, 10, 11], [9, 9, 10], [0, 9, 11]];
