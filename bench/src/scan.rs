//! `sealstone-bench scan`: entries a second in key order and against it, and the reads they cost.

use std::time::Instant;

use anyhow::Result;
use sealstone::env::Env;
use serde::Serialize;

use crate::delay::delayed;
use crate::figures::{ratio, reset_peak_resident, resident_bytes, thread_processor_time};
use crate::keys::Source;
use crate::load::LoadOptions;
use crate::target::{Direction, Open};

/// One measurement.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ScanRow {
    /// Segments' worth of records in the store.
    pub segments: u64,
    /// `forward` or `reverse`.
    pub direction: String,
    /// Entries that were seen.
    pub entries: u64,
    /// The rate.
    pub entries_per_second: f64,
    /// Processor time of an entry.
    pub processor_ns_per_entry: f64,
    /// Reads that 1,000 entries cost.
    pub reads_per_1000_entries: f64,
    /// Cursors that the scan took.
    pub cursors: u64,
    /// Memory of the process after the scan.
    pub resident_bytes: u64,
}

/// Loads the records, opens the store again, and scans it once in each direction.
pub fn run(options: &LoadOptions, entries_max: u64, open: Open<'_>) -> Result<Vec<ScanRow>> {
    let env = Env::real(options.directory.join("store"))?;
    let (env, counters) = delayed(env, options.sync_delay).counting();
    let target = open(env.clone())?;
    let source = Source::new(options.seed, options.value_bytes);
    for segment in 0..options.segments {
        let first = segment * options.segment_records;
        for batch in source.batches(first, options.segment_records, options.batch_records) {
            target.write_batch(&batch)?;
        }
    }
    target.settle()?;
    target.close()?;

    let target = open(env)?;
    let mut rows = Vec::new();
    for direction in [Direction::Forward, Direction::Reverse] {
        reset_peak_resident();
        let before = counters.snapshot();
        let processor = thread_processor_time();
        let start = Instant::now();
        let scanned = target.scan(direction, entries_max)?;
        let seconds = start.elapsed().as_secs_f64();
        let processor = thread_processor_time() - processor;
        let reads = (counters.snapshot() - before).total().reads;
        rows.push(ScanRow {
            segments: options.segments,
            direction: direction.name().to_owned(),
            entries: scanned.entries,
            entries_per_second: ratio(scanned.entries as f64, seconds),
            processor_ns_per_entry: ratio(processor.as_nanos() as f64, scanned.entries as f64),
            reads_per_1000_entries: ratio(reads as f64 * 1e3, scanned.entries as f64),
            cursors: scanned.cursors,
            resident_bytes: resident_bytes(),
        });
    }
    target.close()?;
    Ok(rows)
}

impl ScanRow {
    /// One line for people.
    pub fn summary(&self) -> String {
        format!(
            "{} segments, {}: {:.0} entries/s, {:.0} ns of processor each, {:.1} reads/1000 entries, {} cursors",
            self.segments,
            self.direction,
            self.entries_per_second,
            self.processor_ns_per_entry,
            self.reads_per_1000_entries,
            self.cursors
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::appender;
    use std::time::Duration;

    #[test]
    fn both_directions_are_measured() {
        let directory = tempfile::tempdir().expect("a directory");
        let options = LoadOptions {
            directory: directory.path().to_owned(),
            segments: 2,
            segment_records: 10,
            value_bytes: 8,
            batch_records: 5,
            threads: 1,
            synced: false,
            sync_delay: Duration::ZERO,
            round_segments: 1,
            seed: 1,
            memory_bytes: None,
            scan_bytes: None,
            descriptors_max: None,
            fold: true,
            mapped: false,
            window_bytes: None,
        };
        let rows = run(&options, 500, &appender::open).expect("measures");
        let directions: Vec<_> = rows.iter().map(|row| row.direction.as_str()).collect();
        assert_eq!(directions, ["forward", "reverse"]);
        for row in &rows {
            assert_eq!((row.segments, row.entries, row.cursors), (2, 500, 1));
            assert_eq!(row.reads_per_1000_entries, 2.0);
            assert!(row.entries_per_second > 0.0 && row.resident_bytes > 0);
            assert!(row.summary().contains(&row.direction));
        }
        let value = serde_json::to_value(&rows[0]).expect("is JSON");
        for key in [
            "segments",
            "direction",
            "entries_per_second",
            "reads_per_1000_entries",
            "cursors",
            "resident_bytes",
        ] {
            assert!(value.get(key).is_some(), "{key}");
        }
    }
}
