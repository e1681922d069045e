//! The command as a whole, with small stores.

use super::*;
use clap::Parser;

#[derive(Debug, Parser)]
#[command(args_override_self = true)]
struct Line {
    #[command(flatten)]
    readpath: Readpath,
}

/// The command with small stores in `directory`.
fn readpath(directory: &Path, arguments: &str) -> Readpath {
    let small = "readpath --segment-records 500 --value-bytes 20 --lookups 200 --rounds 2";
    let line = format!("{small} {arguments}");
    let mut readpath = Line::try_parse_from(line.split_whitespace())
        .expect("parses")
        .readpath;
    readpath.dir = Some(directory.to_owned());
    readpath
}

#[test]
fn counts_and_times_of_the_engine() {
    let directory = tempfile::tempdir().expect("a directory");
    let rows = readpath(directory.path(), "--segments 20 --window-bytes 0")
        .measure(Process::This)
        .expect("measures");
    assert_eq!(rows.len(), 3);
    let [window, deep, miss] = &rows[..] else {
        panic!("three workloads");
    };
    for row in &rows {
        assert_eq!((row.segments, row.memtable_records), (20, 250));
        // Two of eight folded, four left.
        assert_eq!(row.runs, 6);
        assert!(row.lookup_ns > 0.0 && row.p_ns > 0.0 && row.d_ns > 0.0 && row.f_ns > 0.0);
        assert!(row.p50_ns <= row.p99_ns && row.p99_ns <= row.p999_ns);
        assert!(row.build_seconds > 0.0 && row.disk_bytes > 0 && row.filter_bytes > 0);
        // The filters of all entries, 12 bits each, and what a fold writes once more.
        assert!(
            (15.0..80.0).contains(&row.index_bytes_per_record),
            "{}",
            row.index_bytes_per_record
        );
        assert_eq!(row.opens_per_lookup, 0.0);
        // A kernel that does not account says 0.
        assert!(
            row.os_reads == 0.0 || (row.os_reads - row.reads).abs() < 0.02,
            "{}",
            row.os_reads
        );
    }
    assert!((1.0..2.2).contains(&window.reads) && (2.0..2.2).contains(&deep.reads));
    assert!(miss.reads < 0.2 && miss.candidates == miss.false_candidates);
    // Found again, and not built again.
    let again = readpath(directory.path(), "--segments 20 --window-bytes 0")
        .measure(Process::This)
        .expect("measures");
    assert_eq!(again[0].build_seconds, rows[0].build_seconds);
    let value = serde_json::to_value(figures(rows)).expect("is JSON");
    for key in [
        "segments",
        "runs",
        "layout",
        "policy",
        "budget_bytes",
        "bits_per_key",
        "k",
        "fold",
        "mode",
        "cold",
        "while_writing",
        "memtable_records",
        "descriptor_cap",
        "workload",
        "reads",
        "os_reads",
        "minor_faults",
        "opens_per_lookup",
        "bytes",
        "candidates",
        "false_candidates",
        "resident_bytes",
        "p50_ns",
        "p99_ns",
        "p999_ns",
        "mean_ns",
        "p_ns",
        "d_ns",
        "f_ns",
    ] {
        assert!(value["rows"][0].get(key).is_some(), "{key}");
    }
}

#[test]
fn what_the_window_covers_costs_one_read() {
    let directory = tempfile::tempdir().expect("a directory");
    let rows = readpath(directory.path(), "--segments 20 --budget 0")
        .measure(Process::This)
        .expect("measures");
    let [window, deep, miss] = &rows[..] else {
        panic!("three workloads");
    };
    // It covers all of so small a store.
    assert_eq!((window.reads, deep.reads, miss.reads), (1.0, 1.0, 0.0));
}

#[test]
fn a_small_budget_and_folds_off_cost_reads() {
    let directory = tempfile::tempdir().expect("a directory");
    let folded = readpath(
        directory.path(),
        "--segments 20 --window-bytes 0 --budget 0",
    )
    .measure(Process::This)
    .expect("measures");
    // Without filters every run is asked, but one whose last hash is below the key's.
    assert!(folded[2].runs == 6 && (5.9..=6.0).contains(&folded[2].reads));
    let unfolded = readpath(
        directory.path(),
        "--segments 20 --window-bytes 0 --budget 0 --fold off",
    );
    let unfolded = unfolded.measure(Process::This).expect("measures");
    assert!(unfolded[2].runs == 20 && (19.0..=20.0).contains(&unfolded[2].reads));
    assert!(unfolded[2].index_bytes_per_record < folded[2].index_bytes_per_record);
}

#[test]
fn the_other_layout_has_the_same_columns() {
    let directory = tempfile::tempdir().expect("a directory");
    let line = "--segments 45 --segment-records 50 --layout go --variants --lookups 40";
    let rows = readpath(directory.path(), line)
        .measure(Process::This)
        .expect("measures");
    assert_eq!(rows.len(), 3 * 13);
    for row in &rows {
        assert_eq!((row.layout.as_str(), row.segments), ("go", 45));
        // One read of the value where filters and indexes are in memory.
        if row.mode != "pread" && row.policy == "all" && row.workload != "Miss" {
            assert_eq!(row.reads, 1.0);
        }
    }
}

#[test]
fn cold_lookups_are_timed_one_by_one() {
    let directory = tempfile::tempdir().expect("a directory");
    let line = "--segments 3 --layout sealstone,go --cold --lookups 6";
    let rows = readpath(directory.path(), line)
        .measure(Process::This)
        .expect("measures");
    assert_eq!(rows.len(), 6);
    for row in &rows {
        assert!(row.cold && row.lookups == 12 && row.p_ns > 0.0 && row.p50_ns > 0);
    }
}

/// What the lookups of `F` find in a store without segments: nothing, whatever the layout.
#[test]
fn a_store_of_the_unsealed_records_has_none_of_the_sealed() {
    let directory = tempfile::tempdir().expect("a directory");
    for layout in [Layout::Sealstone, Layout::Go] {
        let case = readpath(directory.path(), "").case(layout, 3);
        let alone = sealed::open_memory_only(&case.shape, &case.opening).expect("opens");
        let source = crate::keys::Source::new(case.shape.seed, case.shape.value_bytes);
        let found = |first, count| {
            let batches = source.batches(first, count, count);
            let mut value = Vec::new();
            let mut get = |key: &[u8]| alone.get(key, &mut value).expect("answers");
            batches[0].records().filter(|(key, _)| get(key)).count()
        };
        assert_eq!((found(0, 1_500), found(1_500, 250)), (0, 250), "{layout:?}");
    }
}

#[test]
fn a_writer_beside_spoils_the_store() {
    let directory = tempfile::tempdir().expect("a directory");
    let line = "--segments 3 --while-writing 100 --writing-seconds 0.3 --threads 2";
    let rows = readpath(directory.path(), line)
        .measure(Process::This)
        .expect("measures");
    for row in &rows {
        assert!(row.commits_per_second > 0.0 && row.quiet_p99_ns > 0);
        assert!(row.threads == 2 && row.scaling > 0.0 && row.plain_scaling > 0.0);
    }
    assert!(rows.iter().any(|row| row.flushes_meanwhile > 0));
    let left = std::fs::read_dir(directory.path()).expect("lists").count();
    assert_eq!(left, 0);
}

#[test]
fn what_can_not_be_measured_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    for (line, words) in [
        (
            "--segments 5 --mode resident",
            "no option for the read mode",
        ),
        (
            "--segments 5 --layout go --policy planned",
            "has the policies",
        ),
        ("--segments 5 --layout go --while-writing 5", "only read"),
        (
            "--segments 5 --cold --while-writing 5",
            "exclude each other",
        ),
        ("--segments 0", "above 0"),
        ("", "nothing to do"),
    ] {
        let error = readpath(directory.path(), line)
            .measure(Process::This)
            .expect_err(line);
        assert!(error.to_string().contains(words), "{line}: {error}");
    }
    assert_eq!(
        std::fs::read_dir(directory.path()).expect("lists").count(),
        0
    );
}

#[test]
fn figures_of_earlier_runs_are_drawn_with_others() {
    let directory = tempfile::tempdir().expect("a directory");
    let (json, svg) = (
        directory.path().join("a.json"),
        directory.path().join("a.svg"),
    );
    let rows = vec![
        Row {
            segments: 10,
            layout: "go".to_owned(),
            workload: "Miss".to_owned(),
            lookup_ns: 1_000.0,
            ..Row::default()
        };
        2
    ];
    figures(rows.clone()).write(&json).expect("writes");
    let mut again = readpath(directory.path(), "");
    (again.with, again.plot) = (vec![json], Some(svg.clone()));
    assert_eq!(again.measure(Process::This).expect("draws"), rows);
    assert!(
        std::fs::read_to_string(svg)
            .expect("reads")
            .contains("<polyline")
    );
}
