//! B021. Elsewhere a newer file was called corrupt, and a good store deleted for it. Here another format
//! version is told apart from damage, with file and both numbers, and nothing is touched.

use sealstone::env::{Env, FileKind, FileName};
use sealstone::{ErrorKind, Store};

use crate::support::{Files, assert_refused, compact, files, flush, machine, mutable, open, put};

fn image() -> Files {
    let env = Env::in_memory();
    let store = open(&env, compact());
    let map = mutable(&store, "map");
    put(&map, "in a segment", "1");
    flush(&store);
    put(&map, "in a log", "2");
    files(&env)
}

/// Sets the version of a head and makes its checksum right.
fn with_version(files: &Files, name: FileName, version: u32) -> Files {
    let mut files = files.clone();
    let bytes = files.get_mut(&name).unwrap();
    bytes[8..12].copy_from_slice(&version.to_le_bytes());
    let crc = crc32c::crc32c_append(crc32c::crc32c(&bytes[..12]), &bytes[16..64]);
    bytes[12..16].copy_from_slice(&crc.to_le_bytes());
    if name.kind == FileKind::Segment {
        let at = bytes.len() - 12;
        bytes[at..at + 4].copy_from_slice(&version.to_le_bytes());
    }
    files
}

fn assert_unsupported(error: &sealstone::Error, name: FileName, version: u32) {
    let expected = ErrorKind::UnsupportedVersion {
        found: version,
        supported: 1,
    };
    assert_eq!(*error.kind(), expected, "{error}");
    assert_eq!(error.file(), Some(name), "{error}");
    let text = error.to_string();
    let (words, remedy) = match version {
        0 => ("format version 0 is none of 1 to 1".into(), "from a copy"),
        _ => (
            format!("format version {version} is newer than 1"),
            "newer release",
        ),
    };
    assert!(text.contains(&words) && text.contains(remedy), "{text}");
}

#[test]
fn b021_a_store_of_another_format_version() {
    let good = image();
    // The check of the patch itself: the version of today, written again, changes nothing.
    for name in good.keys().filter(|name| name.kind != FileKind::Lock) {
        assert_eq!(with_version(&good, *name, 1), good, "{name}");
    }
    let with_frame = |name: &&FileName| good[*name].iter().skip(64).any(|byte| *byte != 0);
    let of = |kind| {
        good.keys()
            .filter(with_frame)
            .find(|name| name.kind == kind)
    };
    for kind in [FileKind::Manifest, FileKind::Log, FileKind::Segment] {
        let name = *of(kind).unwrap();
        for version in [2, 0, 255] {
            let env = machine(&with_version(&good, name, version));
            let before = files(&env);
            if kind == FileKind::Segment {
                // Segments are opened when they are first asked.
                let store = open(&machine(&before), compact());
                let error = mutable(&store, "map").get("in a segment").unwrap_err();
                assert_unsupported(&error, name, version);
            } else {
                assert_unsupported(&assert_refused(&env, compact()), name, version);
                let read_only = compact().read_only(true);
                assert_unsupported(&assert_refused(&env, read_only), name, version);
            }
            match Store::verify_closed(&env, &mut |_| ()) {
                Err(error) => assert_unsupported(&error, name, version),
                Ok(report) => {
                    assert!(!report.is_clean());
                    assert!(report.damaged.iter().any(|damage| damage.file == name));
                }
            }
            assert!(files(&env) == before);
        }
    }
}
