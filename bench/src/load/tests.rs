use super::*;
use crate::appender;

fn options(directory: &Path, threads: usize) -> LoadOptions {
    LoadOptions {
        directory: directory.to_owned(),
        segments: 5,
        segment_records: 40,
        value_bytes: 18,
        batch_records: 10,
        threads,
        synced: true,
        sync_delay: Duration::ZERO,
        round_segments: 2,
        seed: 1,
        memory_bytes: None,
        scan_bytes: None,
        descriptors_max: None,
        fold: true,
        mapped: false,
        window_bytes: None,
    }
}

#[test]
fn a_row_says_what_was_done() {
    for threads in [1, 3] {
        let directory = tempfile::tempdir().expect("a directory");
        prepare(directory.path()).expect("is empty");
        let options = options(directory.path(), threads);
        let row = run(&options, &appender::open).expect("measures");
        assert_eq!((row.segments, row.records), (5, 200));
        assert_eq!(row.threads, threads as u64);
        // 20 commits of one barrier, two "seals" of two, and one byte written for each given.
        assert_eq!(row.barriers_per_commit, 1.0);
        assert_eq!(row.barriers_per_seal, 2.0);
        assert_eq!(row.written_per_user_byte, 1.0);
        assert_eq!((row.files, row.open_reads), (1, 1));
        assert!(row.disk_bytes >= 200 * 50);
        assert_eq!((row.stalls, row.busy), (3, 4));
        // The largest round is two segments.
        assert_eq!(row.harness_bytes, 80 * 50);
        for positive in [
            row.records_per_second,
            row.plain_records_per_second,
            row.ratio_to_plain,
            row.ratio_to_same_bytes,
            row.commit_p50_us,
            row.plain_sync_p50_us,
            row.open_seconds,
        ] {
            assert!(positive > 0.0);
        }
        assert!(row.commit_p99_us >= row.commit_p50_us);
        assert!(!row.summary().is_empty());
        assert!(prepare(directory.path()).is_err());
    }
}

#[test]
fn the_agreed_keys_are_there() {
    let value = serde_json::to_value(LoadRow::default()).expect("is JSON");
    for key in [
        "segments",
        "value_bytes",
        "threads",
        "records_per_second",
        "plain_records_per_second",
        "ratio_to_plain",
        "ratio_to_same_bytes",
        "barriers_per_commit",
        "barriers_per_seal",
        "written_per_user_byte",
        "commit_p50_us",
        "commit_p99_us",
        "plain_sync_p50_us",
        "peak_resident_bytes",
        "filter_bytes",
        "write_region_bytes",
        "fence_bytes",
        "files",
        "disk_bytes",
        "open_seconds",
        "open_reads",
        "stalls",
        "busy",
    ] {
        assert!(value.get(key).is_some_and(|it| it.is_number()), "{key}");
    }
}

#[test]
fn a_slower_barrier_slows_both_sides() {
    let directory = tempfile::tempdir().expect("a directory");
    let options = LoadOptions {
        segments: 1,
        sync_delay: Duration::from_millis(3),
        ..options(directory.path(), 1)
    };
    let row = run(&options, &appender::open).expect("measures");
    assert!(row.commit_p50_us >= 3_000.0);
    assert!(row.plain_sync_p50_us >= 3_000.0);
}

#[test]
fn peaks_are_compared_with_the_first() {
    let row = |segments, peak| LoadRow {
        segments,
        resident_bytes: peak,
        filter_bytes: segments * 1_000,
        fence_bytes: segments * 4,
        // More for a moment, which raises no limit.
        peak_filter_bytes: segments * 2_000,
        peak_fence_bytes: segments * 4,
        ..LoadRow::default()
    };
    let mut rows = vec![row(100, 5_000_000), row(400, 5_400_000)];
    compare_peaks(&mut rows);
    let compared = |row: &LoadRow| (row.peak_growth_bytes, row.peak_growth_allowed_bytes);
    assert_eq!(compared(&rows[0]), (0, 0));
    assert_eq!(compared(&rows[1]), (400_000, 300 * (1_000 + 4 + 256)));
}
