//! `sealstone-bench load`: how fast records go in, against the disk without an engine.
//!
//! Work is cut into rounds of a few segments. In each round the engine loads the records, then the
//! two limits of [`crate::plain`] write theirs, so that both sides of a ratio see the same disk. A
//! round's records are made before its clock starts; the engine's time includes everything until its
//! background work has settled.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use hdrhistogram::Histogram;
use sealstone::env::counting::{Counters, Counts};
use sealstone::env::{Env, FileKind};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

use crate::delay::delayed;
use crate::figures::{
    disk_use, exact_resident_bytes, microseconds, new_small_histogram, peak_resident_bytes, ratio,
    reset_peak_resident,
};
use crate::keys::{Batch, Source};
use crate::plain::Plain;
use crate::target::{Facts, Open, Target};

/// What a segment may take in memory beside its filter and fences.
const SEGMENT_BYTES_ALLOWED: u64 = 256;

/// What is loaded, and how.
#[derive(Clone, Debug)]
pub struct LoadOptions {
    /// Where the directories of the run are made.
    pub directory: PathBuf,
    /// How many segments' worth of records.
    pub segments: u64,
    /// Records of one segment.
    pub segment_records: u64,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// Records of one commit.
    pub batch_records: u64,
    /// Threads that commit.
    pub threads: usize,
    /// Whether each commit waits for its barrier.
    pub synced: bool,
    /// How much longer each barrier takes.
    pub sync_delay: Duration,
    /// Segments of one round.
    pub round_segments: u64,
    /// The seed of the records.
    pub seed: u64,
    /// All memory of the store; its default if not said.
    pub memory_bytes: Option<u64>,
    /// Memory of scans; its default if not said.
    pub scan_bytes: Option<u64>,
    /// The most segment files open at once; the store's choice if not said.
    pub descriptors_max: Option<u32>,
    /// Whether indexes of old segments are merged.
    pub fold: bool,
    /// Whether lookups read through mappings.
    pub mapped: bool,
    /// Bytes of the window table; the store's choice if not said.
    pub window_bytes: Option<u64>,
}

/// One measurement.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct LoadRow {
    /// Segments' worth of records that were loaded.
    pub segments: u64,
    /// Records that were loaded.
    pub records: u64,
    /// Bytes of a value.
    pub value_bytes: u64,
    /// Records of a commit.
    pub batch_records: u64,
    /// Threads that committed.
    pub threads: u64,
    /// Whether each commit waited for its barrier.
    pub synced: bool,
    /// How much longer each barrier took, in milliseconds.
    pub sync_delay_ms: u64,
    /// Time of the engine.
    pub seconds: f64,
    /// The engine's rate.
    pub records_per_second: f64,
    /// The rate of limit 1: the user's bytes, plainly appended.
    pub plain_records_per_second: f64,
    /// The engine's rate by that of limit 1.
    pub ratio_to_plain: f64,
    /// The engine's rate by that of limit 2: as many bytes as the engine wrote, plainly appended.
    pub ratio_to_same_bytes: f64,
    /// Barriers that commits took, by commit.
    pub barriers_per_commit: f64,
    /// The other barriers less those of folds, by sealed generation.
    pub barriers_per_seal: f64,
    /// Barriers of folds.
    pub fold_barriers: u64,
    /// Bytes written for each byte of keys and values.
    pub written_per_user_byte: f64,
    /// The median commit.
    pub commit_p50_us: f64,
    /// 99 of 100 commits are not slower.
    pub commit_p99_us: f64,
    /// The median append and barrier of limit 1.
    pub plain_sync_p50_us: f64,
    /// The most memory of the process while the engine worked, records in waiting included.
    pub peak_resident_bytes: u64,
    /// The most at the end of a round, to the page. What a round takes of region, window, filters, flush and
    /// fold buffers it keeps, so the end sees it; the peak above is counted by the kernel in batches.
    pub resident_bytes: u64,
    /// Bytes of records in waiting, the harness's own.
    pub harness_bytes: u64,
    /// Bytes of filters in memory at the end.
    pub filter_bytes: u64,
    /// Bytes of page fences in memory at the end.
    pub fence_bytes: u64,
    /// Bytes of filters when `resident_bytes` was measured. A fold that is behind the writer has not replaced the
    /// filters of its inputs yet.
    pub peak_filter_bytes: u64,
    /// Bytes of page fences at that time.
    pub peak_fence_bytes: u64,
    /// The most of the write region that was in use at once.
    pub write_region_bytes: u64,
    /// How much more was resident at most than in the first row, to the page; 0 in it.
    pub peak_growth_bytes: u64,
    /// What that may be: the filters and fences more at the end, and 256 bytes a segment more.
    pub peak_growth_allowed_bytes: u64,
    /// Files of the closed store.
    pub files: u64,
    /// Bytes they take on the disk.
    pub disk_bytes: u64,
    /// Time to open it again.
    pub open_seconds: f64,
    /// Reads made for that.
    pub open_reads: u64,
    /// Writes that had to wait.
    pub stalls: u64,
    /// Writes that were refused and tried again.
    pub busy: u64,
}

/// Sums over the rounds.
struct Totals {
    elapsed: Duration,
    commits: u64,
    user_bytes: u64,
    latency: Histogram<u64>,
    /// Of each thread, of the round at hand. Made once: what is measured shares the allocator.
    latencies: Vec<Histogram<u64>>,
    counts: Counts,
    peak_resident_bytes: u64,
    resident_bytes: u64,
    /// What the store had in memory at that time.
    at_peak: Facts,
    harness_bytes: u64,
}

/// Loads, measures, and opens the store again.
pub fn run(options: &LoadOptions, open: Open<'_>) -> Result<LoadRow> {
    let place = |name: &str| -> Result<Env> {
        let env = Env::real(options.directory.join(name))?;
        Ok(delayed(env, options.sync_delay))
    };
    let (env, counters) = place("store")?.counting();
    let mut plain = Plain::create(place("plain")?)?;
    let mut same_bytes = Plain::create(place("same-bytes")?)?;
    let target = open(env.clone())?;
    let start = counters.snapshot();
    let mut totals = Totals::new(options.threads)?;
    let mut round = Vec::new();
    for (first, records) in rounds(options) {
        let source = Source::new(options.seed, options.value_bytes);
        source.refill(&mut round, first, records, options.batch_records);
        let before = counters.snapshot();
        engine_round(target.as_ref(), &round, &mut totals)?;
        let written = (counters.snapshot() - before).total().written_bytes;
        // With several threads the best a disk can do is one barrier for all of them.
        plain.append(&round, options.threads, options.synced)?;
        let groups = round.len().div_ceil(options.threads.max(1)) as u64;
        same_bytes.append_filler(written, groups, options.synced)?;
    }
    totals.counts = counters.snapshot() - start;
    let facts = target.facts();
    target.close()?;
    let mut row = row_of(options, &totals, facts, &plain, &same_bytes);
    (row.files, row.disk_bytes) = disk_use(&options.directory.join("store"))?;
    reopen(&mut row, env, &counters, open)?;
    Ok(row)
}

/// The rounds: the first record of each, and how many there are.
fn rounds(options: &LoadOptions) -> impl Iterator<Item = (u64, u64)> {
    let round_records = (options.segment_records * options.round_segments).max(1);
    let records = options.segment_records * options.segments;
    (0..records)
        .step_by(usize::try_from(round_records).unwrap_or(usize::MAX))
        .map(move |first| (first, round_records.min(records - first)))
}

fn engine_round(target: &dyn Target, round: &[Batch], totals: &mut Totals) -> Result<()> {
    let bytes: u64 = round.iter().map(|batch| batch.bytes().len() as u64).sum();
    reset_peak_resident();
    let start = Instant::now();
    commit_all(target, round, &mut totals.latencies)?;
    let committed = start.elapsed();
    totals.look(target);
    let start = Instant::now();
    target.settle()?;
    totals.elapsed += committed + start.elapsed();
    totals.look(target);
    for latency in &mut totals.latencies {
        totals.latency.add(&*latency)?;
        latency.reset();
    }
    totals.commits += round.len() as u64;
    totals.user_bytes += bytes;
    totals.peak_resident_bytes = totals.peak_resident_bytes.max(peak_resident_bytes());
    totals.harness_bytes = totals.harness_bytes.max(bytes);
    Ok(())
}

/// Commits the batches from a thread for each histogram, each taking every n-th one.
fn commit_all(
    target: &dyn Target,
    round: &[Batch],
    latencies: &mut [Histogram<u64>],
) -> Result<()> {
    let threads = latencies.len();
    let commit = |first: usize, latency: &mut Histogram<u64>| -> Result<()> {
        for batch in round.iter().skip(first).step_by(threads) {
            let start = Instant::now();
            target.write_batch(batch)?;
            latency.record(start.elapsed().as_nanos() as u64)?;
        }
        Ok(())
    };
    if let [latency] = latencies {
        return commit(0, latency);
    }
    std::thread::scope(|scope| {
        let each = latencies.iter_mut().enumerate();
        let running: Vec<_> = each
            .map(|(first, latency)| scope.spawn(move || commit(first, latency)))
            .collect();
        for thread in running {
            thread.join().map_err(|_| anyhow!("a writer panicked"))??;
        }
        Ok(())
    })
}

fn row_of(
    options: &LoadOptions,
    totals: &Totals,
    facts: Facts,
    plain: &Plain,
    same_bytes: &Plain,
) -> LoadRow {
    let records = options.segments * options.segment_records;
    let rate = |elapsed: Duration| ratio(records as f64, elapsed.as_secs_f64());
    let written = totals.counts.total().written_bytes;
    let commit_barriers = commit_barriers(options, totals, facts);
    let background = commit_barriers + facts.fold_barriers;
    let seal_barriers = totals.counts.barriers().saturating_sub(background);
    let quantile = |quantile| microseconds(totals.latency.value_at_quantile(quantile));
    LoadRow {
        segments: options.segments,
        records,
        value_bytes: options.value_bytes as u64,
        batch_records: options.batch_records,
        threads: options.threads as u64,
        synced: options.synced,
        sync_delay_ms: options.sync_delay.as_millis() as u64,
        seconds: totals.elapsed.as_secs_f64(),
        records_per_second: rate(totals.elapsed),
        plain_records_per_second: rate(plain.elapsed),
        ratio_to_plain: ratio(rate(totals.elapsed), rate(plain.elapsed)),
        ratio_to_same_bytes: ratio(rate(totals.elapsed), rate(same_bytes.elapsed)),
        barriers_per_commit: ratio(commit_barriers as f64, totals.commits as f64),
        fold_barriers: facts.fold_barriers,
        barriers_per_seal: ratio(seal_barriers as f64, facts.seals as f64),
        written_per_user_byte: ratio(written as f64, totals.user_bytes as f64),
        commit_p50_us: quantile(0.5),
        commit_p99_us: quantile(0.99),
        plain_sync_p50_us: plain.latency_p50_us(),
        peak_resident_bytes: totals.peak_resident_bytes,
        resident_bytes: totals.resident_bytes,
        harness_bytes: totals.harness_bytes,
        filter_bytes: facts.filter_bytes,
        fence_bytes: facts.fence_bytes,
        peak_filter_bytes: totals.at_peak.filter_bytes,
        peak_fence_bytes: totals.at_peak.fence_bytes,
        write_region_bytes: facts.write_region_bytes,
        stalls: facts.stalls,
        busy: facts.busy,
        ..LoadRow::default()
    }
}

/// The engine's own count, or else an estimate: of the barriers on logs at most one for each commit.
fn commit_barriers(options: &LoadOptions, totals: &Totals, facts: Facts) -> u64 {
    facts.commit_barriers.unwrap_or_else(|| {
        let on_logs = totals.counts.of(FileKind::Log).sync_data;
        if options.synced {
            on_logs.min(totals.commits)
        } else {
            0
        }
    })
}

fn reopen(row: &mut LoadRow, env: Env, counters: &Arc<Counters>, open: Open<'_>) -> Result<()> {
    let before = counters.snapshot();
    let start = Instant::now();
    let target = open(env)?;
    row.open_seconds = start.elapsed().as_secs_f64();
    row.open_reads = (counters.snapshot() - before).total().reads;
    target.close()
}

impl Totals {
    fn new(threads: usize) -> Result<Self> {
        let latencies = (0..threads.max(1)).map(|_| new_small_histogram());
        Ok(Self {
            latencies: latencies.collect::<Result<_>>()?,
            elapsed: Duration::ZERO,
            commits: 0,
            user_bytes: 0,
            latency: new_small_histogram()?,
            counts: Counts::default(),
            peak_resident_bytes: 0,
            resident_bytes: 0,
            at_peak: Facts::default(),
            harness_bytes: 0,
        })
    }

    /// Keeps what is resident, if it is the most so far, and what the store has of it in filters and fences.
    fn look(&mut self, target: &dyn Target) {
        let resident_bytes = exact_resident_bytes();
        if resident_bytes > self.resident_bytes {
            self.resident_bytes = resident_bytes;
            self.at_peak = target.facts();
        }
    }
}

impl LoadRow {
    /// One line for people.
    pub fn summary(&self) -> String {
        format!(
            "{} segments of {} B values, {} threads: {:.0} records/s, {:.2} of plain, {:.2} of the \
             same bytes, {:.2} barriers/commit, {:.2} barriers/seal, {:.2} written/user byte, commit \
             p50 {:.0} us p99 {:.0} us (plain p50 {:.0} us), peak {} bytes resident, {} of filters, {} of \
             fences",
            self.segments,
            self.value_bytes,
            self.threads,
            self.records_per_second,
            self.ratio_to_plain,
            self.ratio_to_same_bytes,
            self.barriers_per_commit,
            self.barriers_per_seal,
            self.written_per_user_byte,
            self.commit_p50_us,
            self.commit_p99_us,
            self.plain_sync_p50_us,
            self.peak_resident_bytes,
            self.filter_bytes,
            self.fence_bytes,
        )
    }
}

/// Compares each row's memory with that of the first, which should have the fewest segments.
pub fn compare_peaks(rows: &mut [LoadRow]) {
    let Some((first, others)) = rows.split_first_mut() else {
        return;
    };
    for row in others {
        let more = |of: fn(&LoadRow) -> u64| of(row).saturating_sub(of(first));
        let fixed = more(|row| row.segments) * SEGMENT_BYTES_ALLOWED;
        let allowed = more(|row| row.filter_bytes) + more(|row| row.fence_bytes) + fixed;
        let growth = more(|row| row.resident_bytes);
        row.peak_growth_allowed_bytes = allowed;
        row.peak_growth_bytes = growth;
        eprintln!(
            "memory: {} segments have at most {growth} bytes more resident than {}; filters, fences and \
             {SEGMENT_BYTES_ALLOWED} bytes a segment are {allowed}",
            row.segments, first.segments,
        );
    }
}

/// The directory must be a new one: a measurement never mixes with what was there.
pub fn prepare(directory: &Path) -> Result<()> {
    std::fs::create_dir_all(directory)?;
    if std::fs::read_dir(directory)?.next().is_some() {
        return Err(anyhow!("{} is not empty", directory.display()));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
