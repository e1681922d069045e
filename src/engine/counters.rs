//! Counters: always on, relaxed, read by `stats()`.

use crate::engine::waiting::StallCause;
use crate::segment::ReadCounts;
use crate::sync::{AtomicU64, Ordering, StaticUsize};

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

/// Stripes of the lookup counters: about as many as threads that look up at once.
const STRIPES: usize = 16;

/// What lookups count. Each thread has its stripe, on cache lines of its own: one counter for all would
/// be what lookups of several threads wait for.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct LookupStripe {
    pub lookups: Counter,
    pub reads: Counter,
    pub read_bytes: Counter,
    pub mapped_reads: Counter,
    pub mapped_bytes: Counter,
    pub candidates: Counter,
    pub false_candidates: Counter,
    pub filter_tests: Counter,
    pub window_hits: Counter,
    pub window_false_candidates: Counter,
    pub window_runs_skipped: Counter,
}

/// Which stripe a thread counts in.
fn stripe_of_thread() -> usize {
    static NEXT: StaticUsize = StaticUsize::new(0);
    thread_local! {
        static OWN: usize = NEXT.fetch_add(1, Ordering::Relaxed) % STRIPES;
    }
    OWN.try_with(|own| *own).unwrap_or(0)
}

/// What the engine counts.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    lookup_stripes: [LookupStripe; STRIPES],
    pub scan_reads: Counter,
    pub scan_bytes: Counter,
    pub commits: Counter,
    pub commit_records: Counter,
    pub groups: Counter,
    pub log_copied_bytes: Counter,
    pub output_copied_bytes: Counter,
    pub log_syncs: Counter,
    pub seal_syncs: Counter,
    pub flush_syncs: Counter,
    pub seals: Counter,
    pub flushed_segments: Counter,
    pub flush_retries: Counter,
    pub submit_restarts: Counter,
    pub busy: Counter,
    pub stalls: Counter,
    pub stalls_by_cause: [Counter; StallCause::ALL.len()],
    pub stalled_writes: Counter,
    pub stall_ns: Counter,
    pub unlinks: Counter,
    pub unlink_failures: Counter,
    pub filter_reads: Counter,
    pub window_reads: Counter,
    pub filter_loads: Counter,
    /// Lookups that were counted at the parts where they ended in vain.
    pub sampled: Counter,
    /// Those parts of them that had no filter.
    pub filter_ghosts: Counter,
    pub filter_frees: Counter,
    pub folds: Counter,
    pub fold_bytes: Counter,
    pub fold_reads: Counter,
    pub fold_syncs: Counter,
    pub fold_retries: Counter,
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

    /// The lookup counters of this thread.
    pub fn of_lookups(&self) -> &LookupStripe {
        &self.lookup_stripes[stripe_of_thread()]
    }

    /// A lookup counter over all threads.
    pub fn lookup_sum(&self, counter: impl Fn(&LookupStripe) -> &Counter) -> u64 {
        self.lookup_stripes
            .iter()
            .map(|stripe| counter(stripe).get())
            .sum()
    }

    /// Adds what one lookup did; nothing is written for a lookup that met no run.
    pub fn add_lookup(&self, counts: &ReadCounts) {
        if *counts == ReadCounts::default() {
            return;
        }
        let stripe = self.of_lookups();
        if counts.filter_tests > 0 {
            stripe.filter_tests.add(counts.filter_tests);
        }
        if counts.window_runs_skipped > 0 {
            stripe.window_runs_skipped.add(counts.window_runs_skipped);
        }
        if counts.window_hits + counts.window_false_candidates > 0 {
            stripe.window_hits.add(counts.window_hits);
            let wrong = counts.window_false_candidates;
            stripe.window_false_candidates.add(wrong);
        }
        if counts.mapped_reads > 0 {
            stripe.mapped_reads.add(counts.mapped_reads);
            stripe.mapped_bytes.add(counts.mapped_bytes);
        }
        if counts.reads > 0 {
            stripe.reads.add(counts.reads);
            stripe.read_bytes.add(counts.bytes);
        }
        if counts.candidates > 0 {
            stripe.candidates.add(counts.candidates);
            stripe.false_candidates.add(counts.false_candidates);
        }
    }
}
