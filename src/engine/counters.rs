//! Counters: always on, relaxed, read by `stats()`.

use crate::segment::ReadCounts;
use crate::sync::{AtomicU64, Ordering};

/// A number that only grows.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What the engine counts.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub lookups: Counter,
    pub reads: Counter,
    pub read_bytes: Counter,
    pub candidates: Counter,
    pub false_candidates: Counter,
    pub filter_tests: Counter,
    pub scan_reads: Counter,
    pub scan_bytes: Counter,
    pub commits: Counter,
    pub commit_records: Counter,
    pub groups: Counter,
    pub log_syncs: Counter,
    pub flush_syncs: Counter,
    pub seals: Counter,
    pub flushed_segments: Counter,
    pub flush_retries: Counter,
    pub submit_restarts: Counter,
    pub busy: Counter,
    pub stalls: Counter,
    pub unlinks: Counter,
    pub unlink_failures: Counter,
    pub filter_reads: Counter,
    pub filter_loads: Counter,
    pub filter_frees: Counter,
    pub manifest_edits: Counter,
    pub manifest_rolls: Counter,
}

impl Counters {
    /// Adds what a step of a scan did.
    pub fn add_scan(&self, counts: &ReadCounts) {
        if counts.reads > 0 {
            self.scan_reads.add(counts.reads);
            self.scan_bytes.add(counts.bytes);
        }
    }

    /// Adds what one lookup did; nothing is written for a lookup that met no run.
    pub fn add_lookup(&self, counts: &ReadCounts) {
        if counts.filter_tests > 0 {
            self.filter_tests.add(counts.filter_tests);
        }
        if counts.reads > 0 {
            self.reads.add(counts.reads);
            self.read_bytes.add(counts.bytes);
            self.candidates.add(counts.candidates);
            self.false_candidates.add(counts.false_candidates);
        }
    }
}
