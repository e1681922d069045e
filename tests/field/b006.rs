//! B006. Elsewhere fields outside any checksum reached the arithmetic of the layout: an assertion fired, a
//! count of zero looped for ever, gigabytes were reserved. Here each byte at both ends of each file may be
//! anything: what comes is right, or damage, or (of the manifest's and the log's ends) a cut that is named.

use sealstone::env::{FileKind, FileName};
use sealstone::{Durability, ErrorKind, Store};

use crate::allocations::largest_during;
use crate::support::{Files, compact, flush, machine, mutable, open, put};
use sealstone::env::Env;

/// The largest allocation that a small store may need.
const ALLOCATION_BYTES_MAX: usize = 8 << 20;

fn image() -> Files {
    let env = Env::in_memory();
    let store = open(&env, compact());
    let map = mutable(&store, "map");
    for i in 0..10 {
        put(&map, format!("segment {i}"), "old");
    }
    flush(&store);
    for i in 0..10 {
        map.put(format!("log {i}"), "new", Durability::Synced)
            .unwrap();
    }
    crate::support::files(&env)
}

/// Opens and reads everything; what was wrong is told apart.
fn look(files: &Files, name: FileName, what: &str) -> &'static str {
    let env = machine(files);
    let damage = |error: &sealstone::Error| {
        let expected = matches!(
            error.kind(),
            ErrorKind::Corruption | ErrorKind::MissingFile | ErrorKind::UnsupportedVersion { .. }
        );
        assert!(expected, "{what}: {error}");
    };
    let verified = Store::verify_closed(&env, &mut |_| ());
    if let Err(error) = &verified {
        damage(error);
    }
    let store = match Store::open_with(env, compact()) {
        Ok(store) => store,
        Err(error) => {
            damage(&error);
            let file = error.file().expect("names the file");
            // A last edit that is damaged can't be told from one that was cut off; what it had dropped is
            // missing then.
            let dropped = *error.kind() == ErrorKind::MissingFile && name == FileName::MANIFEST;
            assert!(file == name || dropped, "{what}: {error}");
            return "refused";
        }
    };
    let report = store.open_report();
    let cut = !report.cut.is_empty() || report.manifest_cut_bytes > 0;
    let map = mutable(&store, "map");
    let mut damaged = false;
    let mut missing = 0;
    for i in 0..10 {
        for (key, value) in [(format!("segment {i}"), "old"), (format!("log {i}"), "new")] {
            match map.get(&key) {
                Ok(Some(found)) => assert_eq!(&*found, value.as_bytes(), "{what}"),
                Ok(None) => missing += 1,
                Err(error) => {
                    damage(&error);
                    damaged = true;
                }
            }
        }
    }
    for item in map.iter().expect("iterates") {
        if let Err(error) = item {
            damage(&error);
            damaged = true;
        }
    }
    assert!(missing == 0 || cut, "{what}: {missing} are gone silently");
    // Only the last record of a log may go with a cut.
    assert!(missing <= 1, "{what}: {missing} are gone");
    if damaged { "damaged" } else { "right" }
}

#[test]
fn b006_every_header_byte_and_length_may_lie() {
    let good = image();
    let mut outcomes = std::collections::BTreeMap::new();
    for (name, bytes) in &good {
        if name.kind == FileKind::Lock {
            continue;
        }
        let used = bytes
            .iter()
            .rposition(|byte| *byte != 0)
            .map_or(0, |at| at + 1);
        let ends = (0..128.min(used)).chain(used.saturating_sub(128)..used);
        for offset in ends {
            let wide: &[&[u8]] = &[&[0], &[0xFF], &[bytes[offset] ^ 0x80]];
            let lengths: &[&[u8]] = &[
                &1_u32.to_le_bytes(),
                &0x8000_0000_u32.to_le_bytes(),
                &u32::MAX.to_le_bytes(),
                &0_u32.to_le_bytes(),
                &(1_u64 << 63).to_le_bytes(),
            ];
            let lengths = if offset % 4 == 0 { lengths } else { &[] };
            for new in wide.iter().chain(lengths) {
                // Numbers stand on multiples of their size; so one patch never meets two frames.
                if offset % new.len() != 0 {
                    continue;
                }
                if offset + new.len() > bytes.len() || bytes[offset..offset + new.len()] == **new {
                    continue;
                }
                let mut files = good.clone();
                let patched = files.get_mut(name).unwrap();
                patched[offset..offset + new.len()].copy_from_slice(new);
                let what = format!("{name} at {offset}: {new:x?}");
                let (outcome, largest) = largest_during(|| look(&files, *name, &what));
                assert!(largest <= ALLOCATION_BYTES_MAX, "{what}: {largest}");
                *outcomes.entry((name.kind, outcome)).or_insert(0) += 1;
            }
        }
    }
    // The sweep met damage of each kind of file.
    for kind in [FileKind::Manifest, FileKind::Log, FileKind::Segment] {
        let met = ["refused", "damaged"].map(|how| outcomes.get(&(kind, how)).unwrap_or(&0));
        assert!(met[0] + met[1] > 10, "{outcomes:?}");
    }
}
