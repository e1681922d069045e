//! B014. Elsewhere all filters were loaded at the start: minutes for some hundred files. Here opening reads
//! manifest and logs; it does not touch a segment, however many there are.

use sealstone::env::{Env, FileKind, FileName};
use sealstone::{Batch, Durability, Fold, Options};

use crate::allocations::kept_after;
use crate::support::{get, killed, manual, mutable, open, read_file};

fn options() -> Options {
    // As many filters as segments: the case at its worst.
    manual()
        .fold(Fold::Off)
        .seal_records(1000)
        .seal_bytes(64 << 10)
        .batch_bytes_max(64 << 10)
        .filter_budget_bytes(10 * 1700)
}

/// A store with that many segments, closed or killed with a hundred records in its log.
fn built(segments: u64, with_log: bool) -> Env {
    let env = Env::in_memory();
    let store = open(&env, options());
    let map = mutable(&store, "map");
    for segment in 0..segments {
        let mut batch = Batch::new();
        for i in 0..1000 {
            batch.put(&map, format!("{segment:05}{i:04}").into_bytes(), &b"v"[..]);
        }
        store.write(batch, Durability::Buffered).unwrap();
        store.seal().unwrap();
        store.drain().unwrap();
    }
    assert_eq!(store.stats().segments, segments);
    if with_log {
        for i in 0..100 {
            map.put(format!("log{i:04}"), "v", Durability::Buffered)
                .unwrap();
        }
        return killed(&env);
    }
    store.close().unwrap();
    killed(&env)
}

#[test]
fn b014_opening_does_not_read_every_segment() {
    let (mut log_bytes, mut kept_bytes) = (Vec::new(), Vec::new());
    for with_log in [false, true] {
        for segments in [10, 100, 1000] {
            let env = built(segments, with_log);
            let manifest_bytes = read_file(&env, FileName::MANIFEST).len() as u64;
            let (env, counters) = env.counting();
            let (store, kept) = kept_after(|| open(&env, options()));
            kept_bytes.push((segments as i64, kept));
            let counts = counters.snapshot();
            // Calls do not follow the segments either: those of lock, manifest, listing, logs.
            let windows = manifest_bytes.div_ceil(64 << 10);
            assert!(
                counts.of(FileKind::Manifest).reads <= windows + 4,
                "{counts:?}"
            );
            let of_segments = counts.of(FileKind::Segment);
            assert_eq!(of_segments.reads, 0, "{segments}: {of_segments:?}");
            assert_eq!(of_segments.opens, 0, "{segments}: {of_segments:?}");
            let of_manifest = counts.of(FileKind::Manifest);
            assert!(
                of_manifest.read_bytes <= manifest_bytes + 4096,
                "{of_manifest:?}"
            );
            if with_log {
                log_bytes.push(counts.of(FileKind::Log).read_bytes);
            }
            // The newest key and one that is not there, with the budget's filters in memory.
            let map = mutable(&store, "map");
            assert!(store.stats().filter_bytes <= store.stats().filter_budget_bytes);
            assert!(get(&map, format!("{:05}0999", segments - 1)).is_some());
            let read = counters.snapshot() - counts;
            // One segment's tail, page and record; with a log in front nothing more.
            assert!(
                read.of(FileKind::Segment).read_bytes <= 64 << 10,
                "{read:?}"
            );
            store.drain().unwrap();
            let stats = store.stats();
            assert!(stats.filters_resident >= 9, "{}", stats.filters_resident);
            assert!(stats.filter_bytes <= stats.filter_budget_bytes);
            // A key that is not there, in the range of all: its page where no filter says no.
            let before = counters.snapshot();
            assert!(get(&map, "000000500x").is_none());
            let read = (counters.snapshot() - before).of(FileKind::Segment);
            let unfiltered = segments + 1 - stats.filters_resident;
            assert!(read.reads <= 3 * unfiltered, "{segments}: {read:?}");
        }
    }
    // In memory each segment takes what the manifest says of it.
    for pair in kept_bytes.chunks(3) {
        let (few, many) = (pair[0], pair[2]);
        let (segments, bytes) = (many.0 - few.0, many.1 - few.1);
        assert!(bytes <= 1024 * segments, "{kept_bytes:?}");
    }
    println!("{kept_bytes:?}");
    // What the log adds does not depend on the segments.
    assert!(
        log_bytes.iter().all(|bytes| *bytes == log_bytes[0]),
        "{log_bytes:?}"
    );
}
