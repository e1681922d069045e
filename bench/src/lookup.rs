//! `sealstone-bench lookup`: point lookups of one thread by where the key is: time, reads, opened files,
//! allocations.

use std::hint::black_box;
use std::time::Instant;

use anyhow::{Result, ensure};
use hdrhistogram::Histogram;
use sealstone::Stats;
use sealstone::env::Env;
use serde::Serialize;

use crate::allocations;
use crate::delay::delayed;
use crate::engine::{self, Engine};
use crate::figures::{new_histogram, ratio, resident_bytes, thread_processor_time};
use crate::keys::{Batch, Source};
use crate::load::LoadOptions;
use crate::target::Target;

/// Records that stay in memory for the lookups that end there.
const MEMORY_RECORDS: u64 = 5_000;

/// Where a key is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// In the generation that takes commits.
    HitInMemory,
    /// In any of the segments.
    HitInSegment,
    /// Nowhere.
    Miss,
}

impl Workload {
    const ALL: [Self; 3] = [Self::HitInMemory, Self::HitInSegment, Self::Miss];
}

/// One measurement.
#[derive(Clone, Debug, Default, Serialize)]
pub struct LookupRow {
    /// Segments in the store.
    pub segments: u64,
    /// Where the keys are.
    pub workload: String,
    /// Bytes of a value.
    pub value_bytes: u64,
    /// The most segment files open at once.
    pub descriptor_cap: u64,
    /// Lookups measured, after as many to warm up.
    pub lookups: u64,
    /// Reads of a lookup.
    pub reads: f64,
    /// Bytes read by a lookup.
    pub bytes: f64,
    /// Accesses of a lookup to mappings, in place of reads.
    pub mapped_reads: f64,
    /// Segments that a lookup looked into.
    pub candidates: f64,
    /// Those of them in vain.
    pub false_candidates: f64,
    /// Files opened by a lookup.
    pub opens_per_lookup: f64,
    /// Files opened for each segment looked into.
    pub opens_per_candidate: f64,
    /// Allocations of a lookup.
    pub allocations: f64,
    /// Their bytes.
    pub allocated_bytes: f64,
    /// The median.
    pub p50_ns: u64,
    /// 99 of 100 are not slower.
    pub p99_ns: u64,
    /// The mean.
    pub mean_ns: f64,
    /// Processor time of a lookup, the harness's share included.
    pub processor_ns: f64,
    /// Filters in memory.
    pub filter_bytes: u64,
    /// Memory of the process.
    pub resident_bytes: u64,
}

/// Loads the records, opens the store again, and looks keys up.
pub fn run(options: &LoadOptions, lookups: u64) -> Result<Vec<LookupRow>> {
    let env = delayed(
        Env::real(options.directory.join("store"))?,
        options.sync_delay,
    );
    let source = Source::new(options.seed, options.value_bytes);
    fill(&engine::open(env.clone(), options)?, options, &source)?;

    let engine = engine::open(env, options)?;
    let sealed = options.segments * options.segment_records;
    for batch in source.batches(sealed, MEMORY_RECORDS.min(options.segment_records / 2), 100) {
        engine.write_batch(&batch)?;
    }
    // Filters are loaded by jobs.
    engine.settle()?;
    Workload::ALL
        .into_iter()
        .map(|workload| measure(&engine, options, &source, workload, lookups))
        .collect()
}

fn fill(engine: &Engine, options: &LoadOptions, source: &Source) -> Result<()> {
    for segment in 0..options.segments {
        let first = segment * options.segment_records;
        for batch in source.batches(first, options.segment_records, options.batch_records) {
            engine.write_batch(&batch)?;
        }
    }
    engine.settle()?;
    Ok(engine.store.close()?)
}

/// Keys by number, far apart from one lookup to the next, each at most a few times.
fn keys(options: &LoadOptions, source: &Source, workload: Workload, count: u64) -> Vec<Batch> {
    let sealed = options.segments * options.segment_records;
    let (first, range) = match workload {
        Workload::HitInSegment => (0, sealed),
        Workload::HitInMemory => (sealed, MEMORY_RECORDS.min(options.segment_records / 2)),
        Workload::Miss => (sealed + MEMORY_RECORDS, u64::MAX >> 20),
    };
    // A step that has no factor in common with any range made of 2, 3 and 5.
    const STEP: u64 = 2_654_435_761;
    (0..count)
        .flat_map(|number| source.batches(first + number.wrapping_mul(STEP) % range.max(1), 1, 1))
        .collect()
}

fn measure(
    engine: &Engine,
    options: &LoadOptions,
    source: &Source,
    workload: Workload,
    lookups: u64,
) -> Result<LookupRow> {
    let keys = keys(options, source, workload, lookups);
    let mut latency = new_histogram()?;
    let mut out = Vec::new();
    // Warm up on the same keys: files opened, tails read, pages in the system's cache.
    look_up(engine, &keys, workload, &mut out, &mut latency)?;
    latency.reset();
    let before = engine.store.stats();
    let processor = thread_processor_time();
    // Inside: asking for the processor's time takes memory, too.
    let (count, bytes) = allocations::of_thread();
    look_up(engine, &keys, workload, &mut out, &mut latency)?;
    let after = allocations::of_thread();
    let processor = thread_processor_time() - processor;
    let stats = engine.store.stats();
    let each = |of: fn(&Stats) -> u64| ratio((of(&stats) - of(&before)) as f64, lookups as f64);
    let candidates = each(|stats| stats.candidates);
    Ok(LookupRow {
        segments: stats.segments,
        workload: format!("{workload:?}"),
        value_bytes: options.value_bytes as u64,
        descriptor_cap: engine.store.audit().descriptors_max,
        lookups,
        reads: each(|stats| stats.reads),
        bytes: each(|stats| stats.read_bytes),
        mapped_reads: each(|stats| stats.mapped_reads),
        candidates,
        false_candidates: each(|stats| stats.false_candidates),
        opens_per_lookup: each(|stats| stats.opens),
        opens_per_candidate: ratio(each(|stats| stats.opens), candidates),
        allocations: ratio((after.0 - count) as f64, lookups as f64),
        allocated_bytes: ratio((after.1 - bytes) as f64, lookups as f64),
        p50_ns: latency.value_at_quantile(0.5),
        p99_ns: latency.value_at_quantile(0.99),
        mean_ns: latency.mean(),
        processor_ns: ratio(processor.as_nanos() as f64, lookups as f64),
        filter_bytes: stats.filter_bytes,
        resident_bytes: resident_bytes(),
    })
}

fn look_up(
    engine: &Engine,
    keys: &[Batch],
    workload: Workload,
    out: &mut Vec<u8>,
    latency: &mut Histogram<u64>,
) -> Result<()> {
    for batch in keys {
        for (key, value) in batch.records() {
            let start = Instant::now();
            let found = black_box(engine.records.get_into(key, out)?);
            latency.record(start.elapsed().as_nanos() as u64)?;
            ensure!(found == (workload != Workload::Miss), "a wrong answer");
            ensure!(!found || out == value, "a wrong value");
        }
    }
    Ok(())
}

impl LookupRow {
    /// One line for people.
    pub fn summary(&self) -> String {
        format!(
            "{} segments, {}: p50 {} ns, p99 {} ns, processor {:.0} ns, {:.3} reads of {:.0} bytes, {:.3} mapped, {:.3} candidates, {:.3} in \
             vain, {:.3} opens, {:.2} allocations of {:.0} bytes",
            self.segments,
            self.workload,
            self.p50_ns,
            self.p99_ns,
            self.processor_ns,
            self.reads,
            self.bytes,
            self.mapped_reads,
            self.candidates,
            self.false_candidates,
            self.opens_per_lookup,
            self.allocations,
            self.allocated_bytes,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use std::time::Duration;

    fn options(directory: &Path, descriptors_max: Option<u32>) -> LoadOptions {
        LoadOptions {
            directory: directory.to_owned(),
            segments: 60,
            segment_records: 40,
            value_bytes: 18,
            batch_records: 20,
            threads: 1,
            synced: false,
            sync_delay: Duration::ZERO,
            round_segments: 1,
            seed: 1,
            memory_bytes: None,
            scan_bytes: None,
            descriptors_max,
            fold: true,
            mapped: false,
            window_bytes: Some(0),
        }
    }

    #[test]
    fn mapped_lookups_make_no_reads_and_allocate_nothing() {
        let mut reads = Vec::new();
        for mapped in [false, true] {
            let directory = tempfile::tempdir().expect("a directory");
            let options = LoadOptions {
                mapped,
                ..options(directory.path(), None)
            };
            let rows = run(&options, 2_000).expect("measures");
            for row in &rows {
                assert_eq!(row.allocations, 0.0, "{}", row.workload);
            }
            match mapped {
                true => assert!(rows.iter().all(|row| row.reads == 0.0)),
                false => assert!(rows.iter().all(|row| row.mapped_reads == 0.0)),
            }
            reads.push(
                rows.iter()
                    .map(|row| row.reads + row.mapped_reads)
                    .collect::<Vec<_>>(),
            );
        }
        assert!(
            reads[1][1] >= 2.0 && reads[0].len() == reads[1].len(),
            "{reads:?}"
        );
    }

    #[test]
    fn files_are_opened_once_if_the_cap_covers_them_and_once_a_candidate_at_most_otherwise() {
        for (cap, covered) in [(None, true), (Some(8), false)] {
            let directory = tempfile::tempdir().expect("a directory");
            let rows = run(&options(directory.path(), cap), 2_000).expect("measures");
            assert_eq!(rows.len(), 3);
            for row in &rows {
                assert_eq!(row.segments, 60);
                match covered {
                    true => assert_eq!(row.opens_per_lookup, 0.0, "{}", row.workload),
                    // The index may be a file of its own, that of a folded run.
                    false => assert!(row.opens_per_candidate <= 2.0, "{}", row.workload),
                }
            }
            let [memory, segment, miss] = &rows[..] else {
                panic!("three workloads");
            };
            assert_eq!((memory.reads, memory.candidates), (0.0, 0.0));
            // Filters let one segment in a few hundred through in vain.
            assert!((2.0..3.0).contains(&segment.reads), "{}", segment.reads);
            assert!(covered || segment.opens_per_lookup > 0.5);
            assert!(miss.reads < 1.0 && miss.candidates == miss.false_candidates);
        }
    }
}
