use clap::Parser;
use serde_json::{Value, json};

use super::*;
use crate::figures::Figures;
use crate::gate::{self, GateOptions, Verdict};

/// The command line of the tests.
#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    chain: ChainArguments,
}

fn arguments(directory: &Path, more: &str) -> ChainArguments {
    let directory = directory.to_str().expect("UTF-8");
    let line = format!("chain --directory {directory} --scale 1 --memory-bytes 16777216 {more}");
    Line::try_parse_from(line.split_whitespace())
        .expect("parses")
        .chain
}

fn measure(more: &str) -> Vec<ChainRow> {
    let directory = tempfile::tempdir().expect("a directory");
    arguments(directory.path(), more)
        .measure()
        .expect("measures")
}

const SMALL: &str =
    "--workload plain-send,small-multisend --blocks 24 --warmup-blocks 16 --seconds 600";

#[test]
fn rows_have_the_agreed_keys() {
    let row = serde_json::to_value(ChainRow::default()).expect("is JSON");
    for key in [
        "workload",
        "blocks",
        "transactions",
        "transactions_per_second",
        "alloc_bytes_per_tx",
        "alloc_by_site",
        "write_path_allocs_per_op",
        "copies_per_payload_byte",
        "minor_faults_per_tx",
        "peak_resident_bytes",
        "retained_bytes",
        "commit_p50_us",
        "commit_p99_us",
    ] {
        assert!(row.get(key).is_some(), "{key}");
    }
}

#[test]
fn counts_are_the_same_in_each_run() {
    let exact = |row: &ChainRow| {
        let mut row = serde_json::to_value(row).expect("is JSON");
        let map = row.as_object_mut().expect("an object");
        map.retain(|key, _| {
            // What the clock, the system and other tests have a say in.
            !key.ends_with("_us")
                && !key.ends_with("seconds")
                && !["transactions_per_second", "minor_faults_per_tx"].contains(&key.as_str())
                && key != "peak_resident_bytes"
        });
        row
    };
    // What a process or a thread makes once is not the second run's.
    measure("--blocks 1 --warmup-blocks 0");
    let (first, second) = (measure(SMALL), measure(SMALL));
    assert_eq!(first.len(), 2);
    for (first, second) in first.iter().zip(&second) {
        assert_eq!(exact(first), exact(second));
    }
}

#[test]
fn a_run_writes_what_it_says_and_the_store_has_it() {
    for row in measure(SMALL) {
        assert!(row.complete);
        assert_eq!((row.blocks, row.transactions), (24, 24 * 23));
        // Every second block the blockstore's and the index's, and now and then others.
        assert!((24..=34).contains(&row.checkpoints), "{}", row.checkpoints);
        // 30 or 37 sets of a transaction in the index, one in the blockstore, 40 to 56 in the application.
        let each = row.operations as f64 / row.transactions as f64;
        assert!((70.0..95.0).contains(&each), "{each}");
        // The index's two, the blockstore's two, the application's one, the state's one.
        assert_eq!(row.synced_commits, 6 * 24);
        assert!(row.seals > 8, "{}", row.seals);
        assert!(row.values_checked > 24 * 16);
        assert_eq!(row.ownership_violations, 0);
    }
}

#[test]
fn causes_and_sites_add_up() {
    for row in measure(SMALL) {
        let causes = [
            row.write_allocs_large_per_op,
            row.write_allocs_generations_per_op,
            row.write_allocs_opens_per_op,
            row.write_allocs_rest_per_op,
        ];
        let sum: f64 = causes.iter().sum();
        assert!((sum - row.write_path_allocs_per_op).abs() < 1e-9);
        // A commit takes nothing from the heap, whatever it opens.
        assert_eq!(row.write_path_allocs_per_op, 0.0, "{row:?}");
        let sum: f64 = row.alloc_by_site.values().sum();
        assert!((sum - row.alloc_bytes_per_tx).abs() < 1e-6 * sum);
        for site in ["batch", "flush"] {
            assert!(row.alloc_by_site[site] > 0.0, "{site}");
        }
        assert_eq!(
            row.alloc_by_site.get("write").copied().unwrap_or_default(),
            0.0
        );
        // Once into the region and once out of it, whatever the log does.
        assert_eq!(row.copies_chunk, 1.0);
        assert!((1.0..2.5).contains(&row.copies_output), "{row:?}");
        assert!(row.retained_bytes > 1 << 20);
    }
}

#[test]
fn checkpoints_may_seal_and_threads_may_work() {
    for more in ["--checkpoint seal", "--jobs threads"] {
        let rows = measure(&format!("--blocks 8 --warmup-blocks 2 {more}"));
        let [row] = &rows[..] else {
            panic!("one row");
        };
        assert_eq!(row.ownership_violations, 0, "{more}");
        let background = row.alloc_by_site.get("background");
        assert_eq!(background.is_some(), row.jobs == "threads");
        assert!(background.is_none_or(|bytes| *bytes > 0.0));
        if row.checkpoint == "seal" {
            // Each pair of blocks ends a generation.
            assert!(row.seals >= 4, "{}", row.seals);
        }
    }
}

#[test]
fn time_that_is_up_ends_a_run_at_a_block() {
    let rows = measure("--blocks 5 --warmup-blocks 0 --seconds 0");
    assert_eq!((rows[0].blocks, rows[0].complete), (0, false));
    assert_eq!(rows[0].ownership_violations, 0);
}

/// A run against itself: counts pass, times of one run a side do not tell; and against one that takes more.
#[test]
fn the_gate_reads_what_is_written() {
    let directory = tempfile::tempdir().expect("a directory");
    let write = |name: &str, rows: Value| {
        let path = directory.path().join(name);
        Figures::new("chain", rows.as_array().expect("rows").clone())
            .write(&path)
            .expect("writes");
        path
    };
    let rows = serde_json::to_value(measure("--blocks 6 --warmup-blocks 4")).expect("is JSON");
    let base = write("base.json", rows.clone());
    let mut worse = rows;
    let total = worse[0]["alloc_bytes_per_tx"].as_f64().expect("a number");
    worse[0]["alloc_bytes_per_tx"] = json!(total * 1.05);
    worse[0]["alloc_by_site"]["batch"] = json!(0.0);
    let worse = write("worse.json", worse);
    let judge = |candidate: &PathBuf, site: Option<&str>| {
        gate::run(&GateOptions {
            base: vec![base.clone()],
            candidate: vec![candidate.clone()],
            site: site.map(str::to_owned),
            workload: Some("plain-send".to_owned()),
        })
        .expect("judges")
    };
    let same = judge(&base, None);
    assert_eq!(Verdict::of(&same), Verdict::Inconclusive);
    for row in &same {
        let timed = ["throughput", "commit p50", "commit p99"].contains(&row.gate.as_str());
        assert_eq!(row.pass, (!timed).then_some(true), "{row:?}");
    }
    let moved = judge(&worse, Some("batch"));
    assert_eq!(Verdict::of(&moved), Verdict::Reject);
}
