//! What is newer is called newer, and not damaged: versions, feature bits, forms.

use std::path::Path;

use sealstone::log::{FrameHeader, FrameKind, LogIdentity, payload_checksum};
use sealstone::{Error, ErrorKind, Store};

use crate::report;
use crate::tear;

fn small() -> (tempfile::TempDir, std::path::PathBuf) {
    report::copy(&crate::corpus().join("small/store"))
}

/// Changes a file in place.
fn change(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = std::fs::read(path).expect("reads");
    change(&mut bytes);
    std::fs::write(path, bytes).expect("writes");
}

/// Opens for writing and reads everything.
fn outcome(store: &Path) -> Result<(), Error> {
    let store = Store::open_with(crate::script::env(store), report::options())?;
    report::contents(&store).map(drop)
}

fn newer(found: u32) -> ErrorKind {
    ErrorKind::UnsupportedVersion {
        found,
        supported: 1,
    }
}

/// The first file with this extension, or the manifest.
fn file(store: &Path, extension: &str) -> std::path::PathBuf {
    match extension {
        "" => store.join("MANIFEST"),
        _ => tear::files(store, extension).remove(0),
    }
}

/// A head's checksum: over all of it but its own place.
fn fix_head(bytes: &mut [u8]) {
    let checksum = crc32c::crc32c_append(crc32c::crc32c(&bytes[..12]), &bytes[16..64]);
    bytes[12..16].copy_from_slice(&checksum.to_le_bytes());
}

#[test]
fn versions_come_before_checksums() {
    // The version of a segment that a reader looks at is the trailer's.
    for (extension, at) in [("", 8), ("log", 8), ("seg", usize::MAX)] {
        for (version, kind) in [(2, newer(2)), (0, newer(0))] {
            let (_guard, store) = small();
            change(&file(&store, extension), |bytes| {
                let at = at.min(bytes.len() - 12);
                bytes[at] = version;
                if extension.is_empty() {
                    // Nor does a head that is otherwise unreadable keep a newer version from being seen.
                    bytes[30] ^= 0xFF;
                }
            });
            let before = files(&store);
            let error = outcome(&store).expect_err("refused");
            assert_eq!(*error.kind(), kind, "{extension}: {error}");
            if extension != "seg" {
                assert_eq!(files(&store), before, "a refused open changes nothing");
            }
        }
    }
}

fn files(store: &Path) -> Vec<(std::path::PathBuf, Vec<u8>)> {
    ["log", "seg"]
        .iter()
        .flat_map(|extension| tear::files(store, extension))
        .chain([store.join("MANIFEST")])
        .map(|path| (path.clone(), std::fs::read(&path).expect("reads")))
        .collect()
}

#[test]
fn unknown_features_are_ignored_or_refused() {
    for (extension, compatible, incompatible) in [("", 16, 24), ("log", 48, 56)] {
        for (at, expected) in [(compatible, None), (incompatible, Some(newer(2)))] {
            let (_guard, store) = small();
            change(&file(&store, extension), |bytes| {
                bytes[at] = 0x10;
                fix_head(bytes);
            });
            let found = outcome(&store).err().map(|error| error.kind().clone());
            assert_eq!(found, expected, "{extension} at byte {at}");
        }
    }
}

/// Changes the last frame of the only log with frames, and its checksums with it.
fn edit_last_frame(store: &Path, edit: impl Fn(&mut [u8]) + Copy) {
    for path in tear::files(store, "log") {
        change(&path, |bytes| {
            let [.., start, end] = tear::log_frames(bytes)[..] else {
                return;
            };
            edit(&mut bytes[start + 40..end]);
            let word = |at: usize| *bytes[at..].first_chunk::<8>().expect("a header");
            let identity = LogIdentity {
                store_id: u128::from_le_bytes(*bytes[16..].first_chunk().expect("a head")),
                number: u64::from_le_bytes(word(32)),
                incarnation: u64::from_le_bytes(word(40)),
            };
            let header = FrameHeader {
                kind: FrameKind::Commit,
                sequence: u64::from_le_bytes(word(start + 8)),
                durable_through: u64::from_le_bytes(word(start + 16)),
                payload_len: (end - start - 40) as u32,
                records: (u64::from_le_bytes(word(start + 24)) >> 32) as u32,
                payload_crc: payload_checksum(&[&bytes[start + 40..end]]),
            };
            let header = header.encode(&identity, start as u64);
            bytes[start..start + 40].copy_from_slice(&header);
        });
    }
}

#[test]
fn log_records_of_a_newer_form_are_newer() {
    for at in [1, 14] {
        let (_guard, store) = small();
        edit_last_frame(&store, |payload| payload[at] = 1);
        let error = outcome(&store).expect_err("refused");
        assert_eq!(*error.kind(), newer(2), "byte {at}: {error}");
    }
    let (_guard, store) = small();
    edit_last_frame(&store, |_| ());
    outcome(&store).expect("the frame is as it was");
}

#[test]
fn a_record_of_an_unnamed_keyspace_says_that_the_manifest_lost_it() {
    let (_guard, store) = small();
    edit_last_frame(&store, |payload| payload[8] = 77);
    for _ in 0..2 {
        let error = outcome(&store).expect_err("refused");
        assert_eq!(*error.kind(), ErrorKind::Corruption, "{error}");
        assert_eq!(error.file(), Some(sealstone::env::FileName::MANIFEST));
    }
}
