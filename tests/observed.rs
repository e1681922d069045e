//! What the store counts of its lookups, what its directory sees and what the operating system counts.
//!
//! The only test of its program, so that nobody else makes calls meanwhile.
#![allow(
    clippy::disallowed_methods,
    reason = "the system's own counters are read"
)]

mod support;

use sealstone::env::Env;
use sealstone::{Fold, Keyspace, ReadMode, Store};
use support::{flush, get, manual, mutable, open, put};

const LOOKUPS: u64 = 10_000;
const SEGMENTS: u64 = 20;
const RECORDS: u64 = 500;

/// Calls that read, of the whole process so far.
fn system_reads() -> u64 {
    let text = std::fs::read_to_string("/proc/self/io").expect("the process's counters");
    let line = text.lines().find_map(|line| line.strip_prefix("syscr: "));
    line.expect("a line").parse().expect("a number")
}

fn key(number: u64) -> String {
    format!("key {number}")
}

fn fill(store: &Store) -> Keyspace {
    let map = mutable(store, "map");
    for segment in 0..SEGMENTS {
        for record in 0..RECORDS {
            put(&map, key(segment * RECORDS + record), [7; 200]);
        }
        flush(store);
    }
    map
}

#[test]
fn the_store_its_directory_and_the_system_count_the_same_reads() {
    let directory = tempfile::tempdir().expect("a directory");
    let env = Env::real(directory.path().join("store")).expect("an environment");
    let (env, counters) = env.counting();
    // Without filters misses cost reads, too.
    for (filters, folds) in [(16 << 20, Fold::Off), (0, Fold::default())] {
        for mode in [ReadMode::Pread, ReadMode::Mmap] {
            let options = manual()
                .filter_budget_bytes(filters)
                .fold(folds)
                .window_bytes(0);
            let store = open(&env, options.read_mode(mode).seal_records(RECORDS as u32));
            let map = match store.stats().segments {
                0 => fill(&store),
                _ => mutable(&store, "map"),
            };
            store.drain().expect("drains");
            for hits in [true, false] {
                let asked = |number: u64| match hits {
                    true => key(number * 7919 % (SEGMENTS * RECORDS)),
                    false => format!("absent {number}"),
                };
                // Every file is touched.
                for number in 0..LOOKUPS {
                    assert_eq!(get(&map, asked(number)).is_some(), hits);
                }
                let (stats, counts, system) = (store.stats(), counters.snapshot(), system_reads());
                for number in 0..LOOKUPS {
                    assert_eq!(get(&map, asked(number)).is_some(), hits);
                }
                // Reading the system's counters is a few calls, too.
                let system = system_reads() - system;
                let seen = (counters.snapshot() - counts).total();
                let after = store.stats();
                let counted = after.reads - stats.reads;
                println!(
                    "{mode:?}, hits {hits}, filters {filters}: {counted} reads, {system} calls"
                );
                assert_eq!(after.lookups - stats.lookups, LOOKUPS);
                assert_eq!(counted, seen.reads);
                assert_eq!(after.read_bytes - stats.read_bytes, seen.read_bytes);
                assert_eq!(after.mapped_reads - stats.mapped_reads, seen.mapped_reads);
                assert_eq!(after.mapped_bytes - stats.mapped_bytes, seen.mapped_bytes);
                let apart = system.abs_diff(counted);
                assert!(
                    apart * 100 <= counted.max(LOOKUPS),
                    "{counted} reads, {system} calls"
                );
                match mode {
                    ReadMode::Pread => assert_eq!(seen.mapped_reads, 0),
                    ReadMode::Mmap => assert_eq!(seen.reads, 0),
                }
                if hits {
                    let accesses = seen.reads + seen.mapped_reads;
                    assert!(accesses >= 2 * LOOKUPS, "{accesses}");
                } else if filters == 0 {
                    assert!(seen.reads + seen.mapped_reads >= LOOKUPS);
                }
            }
            store.close().expect("closes");
        }
    }
}
