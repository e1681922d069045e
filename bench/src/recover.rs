//! `sealstone-bench recover`: how long an open takes for the log that a killed process left.
//!
//! Another process writes the log and dies by abort, so that nothing of it is in the memory that is
//! measured.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use sealstone::env::Env;
use sealstone::{Durability, KeyspaceOptions, Options, Store};
use serde::Serialize;

use crate::engine::KEYSPACE;
use crate::figures::{peak_resident_bytes, ratio, reset_peak_resident, resident_bytes};
use crate::keys::Source;

const MIB: u64 = 1 << 20;

/// A write region holds three generations, each of which can take three times the bytes of its frames
/// when keys are as long as they may be.
const REGION_BY_LOG: u64 = 12;

/// Bytes that three generations and a flush take for a record beside its frame.
const REGION_BY_RECORD: u64 = 200;

/// What is left behind, and how it is opened.
#[derive(Clone, Debug)]
pub struct RecoverOptions {
    /// MiB of frames in the log.
    pub log_mib: u64,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// Records of a commit.
    pub batch_records: u64,
    /// The write region at the open; by default the one that the log was written with.
    pub write_region_bytes: Option<u64>,
}

/// One measurement.
#[derive(Clone, Debug, Default, Serialize)]
pub struct RecoverRow {
    /// MiB of frames in the log.
    pub log_mib: u64,
    /// Commits in it.
    pub commits: u64,
    /// Bytes of a value.
    pub value_bytes: u64,
    /// Memory that the store was given for what it recovers.
    pub write_region_bytes: u64,
    /// Time of the open.
    pub open_seconds: f64,
    /// The same by the log's size.
    pub seconds_per_mib: f64,
    /// Reads made.
    pub open_reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Segments written because memory was smaller than the log.
    pub split_generations: u64,
    /// How much the process's memory grew at most.
    pub peak_growth_bytes: u64,
}

impl RecoverOptions {
    /// Records that fill the log, and some more.
    fn records(&self) -> u64 {
        self.log_mib * MIB / (48 + self.value_bytes as u64) + 2 * self.batch_records
    }

    fn region_bytes(&self) -> u64 {
        self.log_mib * MIB * REGION_BY_LOG + self.records() * REGION_BY_RECORD + 16 * MIB
    }

    /// The store's options: a generation for the whole log, unless memory is said to be smaller.
    fn store(&self) -> Options {
        let options = Options::new()
            .filter_budget_bytes(4 * MIB)
            .scan_bytes(4 * MIB);
        match self.write_region_bytes {
            Some(bytes) => options.write_region_bytes(bytes),
            None => options
                .write_region_bytes(self.region_bytes())
                .seal_bytes((self.log_mib + 1) * MIB)
                .seal_records(self.records() as u32),
        }
    }
}

/// Writes the log and dies. Runs in a process of its own.
pub fn leave_behind(directory: &Path, options: &RecoverOptions) -> Result<()> {
    let store = Store::open(directory, options.store())?;
    fill(&store, options)?;
    std::process::abort();
}

fn fill(store: &Store, options: &RecoverOptions) -> Result<()> {
    let records = store.keyspace(KEYSPACE, KeyspaceOptions::mutable())?;
    let source = Source::new(1, options.value_bytes);
    let (mut first, mut frame_bytes) = (0, 0);
    while frame_bytes < options.log_mib * MIB {
        for batch in source.batches(first, options.batch_records, options.batch_records) {
            let mut writes = sealstone::Batch::with_capacity(batch.len());
            for (key, value) in batch.records() {
                writes.put(&records, key, value);
            }
            frame_bytes += writes.byte_len();
            store.write(writes, Durability::Buffered)?;
        }
        first += options.batch_records;
    }
    let whole = options.write_region_bytes.is_some() || store.stats().seals == 0;
    ensure!(whole, "the log is to be one generation's");
    Ok(())
}

/// Has another process leave a log behind, and opens it.
pub fn run(directory: &Path, options_of: &RecoverOptions) -> Result<RecoverRow> {
    let status = Command::new(std::env::current_exe()?)
        .arg("leave-behind")
        .arg("--directory")
        .arg(directory)
        .args(["--log-mib", &options_of.log_mib.to_string()])
        .args(["--value-bytes", &options_of.value_bytes.to_string()])
        .args(["--batch-records", &options_of.batch_records.to_string()])
        .stderr(std::process::Stdio::null())
        .status()
        .context("starting the process that is to die")?;
    ensure!(status.code().is_none(), "it ended with {status} instead");
    open(directory, options_of)
}

/// Opens what is there.
fn open(directory: &Path, options_of: &RecoverOptions) -> Result<RecoverRow> {
    let write_region_bytes = options_of
        .write_region_bytes
        .unwrap_or(options_of.region_bytes());
    let (env, counters) = Env::real(directory)?.counting();
    let before_bytes = resident_bytes();
    reset_peak_resident();
    let start = Instant::now();
    let store = Store::open_with(env, options_of.store())?;
    let open_seconds = start.elapsed().as_secs_f64();
    let peak_growth_bytes = peak_resident_bytes().saturating_sub(before_bytes);
    let counts = counters.snapshot().total();
    let report = store.open_report();
    store.close()?;
    Ok(RecoverRow {
        log_mib: options_of.log_mib,
        commits: report.replayed_commits,
        value_bytes: options_of.value_bytes as u64,
        write_region_bytes,
        open_seconds,
        seconds_per_mib: ratio(open_seconds, options_of.log_mib as f64),
        open_reads: counts.reads,
        read_bytes: counts.read_bytes,
        written_bytes: counts.written_bytes,
        split_generations: report.split_generations,
        peak_growth_bytes,
    })
}

impl RecoverRow {
    /// One line for people.
    pub fn summary(&self) -> String {
        format!(
            "{} MiB of log, {} commits: {:.3} s, {:.4} s/MiB, {} reads, {} MiB read, {} MiB written, memory \
             grew by {} MiB with a region of {} MiB, {} splits",
            self.log_mib,
            self.commits,
            self.open_seconds,
            self.seconds_per_mib,
            self.open_reads,
            self.read_bytes / MIB,
            self.written_bytes / MIB,
            self.peak_growth_bytes / MIB,
            self.write_region_bytes / MIB,
            self.split_generations,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_left_open_is_recovered() {
        let options = RecoverOptions {
            log_mib: 1,
            value_bytes: 100,
            batch_records: 50,
            write_region_bytes: None,
        };
        let directory = tempfile::tempdir().expect("a directory");
        let store = Store::open(directory.path(), options.store()).expect("opens");
        fill(&store, &options).expect("writes");
        // Dropped, not closed: nothing more is written.
        drop(store);
        let row = open(directory.path(), &options).expect("opens");
        // Frames of 50 records of 152 bytes.
        assert_eq!(row.commits, MIB.div_ceil(50 * 152));
        assert!(row.open_seconds > 0.0 && row.seconds_per_mib > 0.0);
        assert!(row.read_bytes >= MIB && row.written_bytes >= MIB);
        assert_eq!(row.split_generations, 0);
        assert!(row.summary().contains("1 MiB of log"));
    }
}
