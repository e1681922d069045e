//! Measures one case: three workloads, first their counts, in a store whose calls are counted, then their
//! times, in the same store opened as its users have it, in rounds with the limits between.

use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use hdrhistogram::Histogram;
use rand_pcg::Pcg64;
use rand_pcg::rand_core::Rng;
use sealstone::env::counting::Counters;
use sealstone::env::{Advice, Env, File, OpenMode};

use super::busy::Busy;
use super::case::{Case, Shape};
use super::clock::{Samples, timer_ns};
use super::fixture::Fixture;
use super::limits::{Chain, PlainReads};
use super::row::Row;
use super::sealed::{self, Reader};
use super::system::SystemCounts;
use super::{threads, writing};
use crate::figures::{new_histogram, ratio, resident_bytes};
use crate::keys::{KEY_BYTES, Source};

/// Segments of HitInWindow.
const WINDOW_SEGMENTS: u64 = 40;

/// Numbers of records that no store has.
const ABSENT_FIRST: u64 = 1 << 44;

/// Lines of D in a round: several times around where all lines fit into a cache.
const CHAIN_LINES: usize = 40_000;

/// Where the keys of a workload are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// In the newest segments.
    HitInWindow,
    /// In any segment.
    HitDeep,
    /// Nowhere.
    Miss,
}

impl Workload {
    /// All, in the order of rows.
    pub const ALL: [Self; 3] = [Self::HitInWindow, Self::HitDeep, Self::Miss];

    /// Whether its keys are there.
    pub fn hits(self) -> bool {
        self != Self::Miss
    }

    /// The numbers of its records: first and how many.
    fn range(self, shape: &Shape) -> (u64, u64) {
        let sealed = shape.sealed_records();
        let window = (WINDOW_SEGMENTS * shape.segment_records).min(sealed);
        match self {
            Self::HitInWindow => (sealed - window, window),
            Self::HitDeep => (0, sealed),
            Self::Miss => (ABSENT_FIRST, 1 << 40),
        }
    }
}

/// Keys in the order of their lookups.
#[derive(Debug)]
pub struct Keys {
    numbers: Vec<u64>,
    bytes: Vec<u8>,
}

impl Keys {
    /// Random records of a workload.
    pub fn pick(shape: &Shape, workload: Workload, count: usize, seed: u64) -> Self {
        let (first, range) = workload.range(shape);
        let mut generator = Pcg64::new(seed.into(), workload as u128 + 7);
        // Values are cut from the same stream, so the record's length matters.
        let source = Source::new(shape.seed, shape.value_bytes);
        let mut batches = Vec::new();
        let mut keys = Self {
            numbers: Vec::with_capacity(count),
            bytes: Vec::with_capacity(count * KEY_BYTES),
        };
        for _ in 0..count {
            let number = first + generator.next_u64() % range;
            source.refill(&mut batches, number, 1, 1);
            keys.numbers.push(number);
            keys.bytes
                .extend_from_slice(&batches[0].bytes()[..KEY_BYTES]);
        }
        keys
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.numbers.len()
    }

    /// One of them.
    pub fn key(&self, place: usize) -> &[u8] {
        &self.bytes[place * KEY_BYTES..(place + 1) * KEY_BYTES]
    }
}

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Lookups timed in a round, half of them one by one, half in blocks.
    pub lookups: usize,
    /// Rounds.
    pub rounds: usize,
    /// Whether files are evicted before each lookup.
    pub cold: bool,
    /// Commits a second meanwhile.
    pub while_writing: Option<f64>,
    /// How long a workload is measured while writing.
    pub writing_time: Duration,
    /// Threads to compare with one.
    pub threads: usize,
}

/// An open store under measurement and what is measured beside it.
struct Bench<'a> {
    case: &'a Case,
    effort: &'a Effort,
    reader: Box<dyn Reader>,
    alone: Box<dyn Reader>,
    files: Vec<Arc<dyn File>>,
    chain: Chain,
}

/// Measures all workloads on a store that was built: what they count in a store whose every call is counted,
/// and then times in the store as its users have it.
pub fn run(fixture: &Fixture, case: &Case, effort: &Effort) -> Result<Vec<Row>> {
    let mut rows = count_all(fixture, case, effort)?;
    let reader = open_warm(fixture.env()?, case, effort)?;
    let alone = sealed::open_memory_only(&case.shape, &case.opening)?;
    let files = match effort.cold {
        true => all_files(&fixture.env()?)?,
        false => Vec::new(),
    };
    let mut bench = Bench {
        case,
        effort,
        reader,
        alone,
        files,
        chain: Chain::new(case.shape.sealed_records())?,
    };
    for (workload, row) in Workload::ALL.into_iter().zip(&mut rows) {
        bench.time(&fixture.store_directory(), workload, row)?;
    }
    Ok(rows)
}

/// Opens the store and looks some keys up.
fn open_warm(env: Env, case: &Case, effort: &Effort) -> Result<Box<dyn Reader>> {
    let reader = sealed::open(env, &case.shape, &case.opening)?;
    let keys = effort.lookups.min(20_000);
    let warm = Keys::pick(&case.shape, Workload::HitDeep, keys, 99);
    count(reader.as_ref(), &case.shape, Workload::HitDeep, &warm)?;
    Ok(reader)
}

/// The rows of all workloads with what is counted, and the memory of the store.
fn count_all(fixture: &Fixture, case: &Case, effort: &Effort) -> Result<Vec<Row>> {
    let before_bytes = resident_bytes();
    let (env, counters) = fixture.env()?.counting();
    let reader = open_warm(env, case, effort)?;
    let resident_bytes = resident_bytes().saturating_sub(before_bytes);
    let mut rows = Vec::new();
    for workload in Workload::ALL {
        let mut row = new_row(fixture, case, effort, reader.as_ref());
        row.resident_bytes = resident_bytes;
        row.workload = format!("{workload:?}");
        let keys = pick(case, effort, workload);
        count(reader.as_ref(), &case.shape, workload, &keys)?;
        counts(
            reader.as_ref(),
            (case, &counters),
            workload,
            &keys,
            &mut row,
        )?;
        rows.push(row);
    }
    Ok(rows)
}

/// The keys of a workload.
fn pick(case: &Case, effort: &Effort, workload: Workload) -> Keys {
    let count = effort.lookups * effort.rounds;
    Keys::pick(&case.shape, workload, count, 1)
}

/// Looks every key up once and compares the values.
fn count(reader: &dyn Reader, shape: &Shape, workload: Workload, keys: &Keys) -> Result<()> {
    let source = Source::new(shape.seed, shape.value_bytes);
    let (mut batches, mut value) = (Vec::new(), Vec::new());
    for (place, number) in keys.numbers.iter().enumerate() {
        let found = reader.get(keys.key(place), &mut value)?;
        ensure!(found == workload.hits(), "a wrong answer");
        if found {
            source.refill(&mut batches, *number, 1, 1);
            ensure!(value == batches[0].bytes()[KEY_BYTES..], "a wrong value");
        }
    }
    Ok(())
}

fn all_files(env: &Env) -> Result<Vec<Arc<dyn File>>> {
    let mut files = Vec::new();
    for name in env.vfs.list()?.names {
        if matches!(
            name.kind,
            sealstone::env::FileKind::Segment | sealstone::env::FileKind::Run
        ) {
            files.push(env.vfs.open(name, OpenMode::Read)?);
        }
    }
    Ok(files)
}

fn new_row(fixture: &Fixture, case: &Case, effort: &Effort, reader: &dyn Reader) -> Row {
    let Case { shape, opening } = case;
    let facts = reader.facts();
    let bits_per_key = match shape.bits_per_key {
        0 => ratio(
            8.0 * facts.filter_bytes as f64,
            shape.sealed_records() as f64,
        ),
        bits => f64::from(bits),
    };
    Row {
        segments: facts.segments,
        segment_records: shape.segment_records,
        value_bytes: shape.value_bytes as u64,
        runs: facts.runs,
        layout: format!("{:?}", shape.layout).to_lowercase(),
        policy: opening.policy_name(shape.layout),
        budget_bytes: opening.budget_bytes,
        bits_per_key,
        k: shape.k,
        fold: shape.fold,
        mode: format!("{:?}", opening.mode).to_lowercase(),
        cold: effort.cold,
        cold_reads_ahead: opening.cold_reads_ahead,
        while_writing: effort.while_writing.unwrap_or(0.0),
        memtable_records: shape.memtable_records,
        descriptor_cap: facts.descriptor_cap,
        filter_bytes: facts.filter_bytes,
        fence_bytes: facts.fence_bytes,
        build_seconds: fixture.built.build_seconds,
        disk_bytes: fixture.built.disk_bytes,
        files: fixture.built.files,
        index_bytes_per_record: fixture.built.index_bytes_per_record,
        timer_ns: timer_ns(),
        ..Row::default()
    }
}

/// What lookups ask for and what the system sees of it.
fn counts(
    reader: &dyn Reader,
    (case, counters): (&Case, &Counters),
    workload: Workload,
    keys: &Keys,
    row: &mut Row,
) -> Result<()> {
    // Without the comparing: what it touches would be counted with the lookups.
    let mut value = Vec::with_capacity(case.shape.value_bytes + 4096);
    let facts = reader.facts();
    let asked = counters.snapshot();
    let system = SystemCounts::of_thread();
    let mut found = 0;
    for place in 0..keys.len() {
        found += usize::from(reader.get(keys.key(place), &mut value)?);
    }
    let system = SystemCounts::since(system);
    let asked = (counters.snapshot() - asked).total();
    let after = reader.facts();
    ensure!(
        found == if workload.hits() { keys.len() } else { 0 },
        "wrong answers"
    );
    let each = |count: u64| ratio(count as f64, keys.len() as f64);
    row.reads = each(asked.reads);
    row.bytes = each(asked.read_bytes);
    row.os_reads = each(system.reads);
    row.minor_faults = each(system.minor_faults);
    row.opens_per_lookup = each(after.opens - facts.opens);
    row.candidates = each(after.candidates - facts.candidates);
    row.false_candidates = each(after.false_candidates - facts.false_candidates);
    Ok(())
}

impl Bench<'_> {
    fn time(&mut self, directory: &Path, workload: Workload, row: &mut Row) -> Result<()> {
        let shape = &self.case.shape;
        let window = (workload == Workload::HitInWindow).then_some(WINDOW_SEGMENTS);
        let mut plain = PlainReads::open(directory, shape.record_bytes(), window)?;
        let keys = pick(self.case, self.effort, workload);
        let places = plain.places(keys.len());
        // Files opened, tails read, pages in the system's cache; but not in the processor's, neither for
        // plain reads nor for lookups: each is made once before all the others and once when it is timed.
        plain.measure(&places, &mut Samples::default())?;
        count(self.reader.as_ref(), shape, workload, &keys)?;
        self.times(&plain, &places, workload, &keys, row)?;
        if let Some(rate) = self.effort.while_writing {
            (row.quiet_p99_ns, row.quiet_p999_ns) = (row.p99_ns, row.p999_ns);
            self.times_while_writing(rate, workload, &keys, row)?;
        }
        if self.effort.threads > 1 {
            let reader = self.reader.as_ref();
            threads::measure(reader, &mut plain, self.effort.threads, &keys, row)?;
        }
        Ok(())
    }

    fn evict(&self) -> Result<()> {
        for file in &self.files {
            file.advise(Advice::DontNeed, 0, file.len()?);
        }
        Ok(())
    }

    /// Rounds of the limits and of lookups, in turn.
    fn times(
        &mut self,
        plain: &PlainReads,
        places: &[(u32, u64)],
        workload: Workload,
        keys: &Keys,
        row: &mut Row,
    ) -> Result<()> {
        let (mut singles, mut machine) = (new_histogram()?, new_histogram()?);
        let [mut p, mut d, mut f, mut blocks] = [const { Samples::new() }; 4];
        let half = (self.effort.lookups / 2).max(1);
        for round in 0..self.effort.rounds {
            let first = round * self.effort.lookups;
            let places = &places[first..first + half];
            if !self.effort.cold {
                plain.measure(places, &mut p)?;
            }
            self.chain.measure(CHAIN_LINES, &mut d)?;
            // The second half of the round's keys: the first is for the single ones.
            let timed = first + half..keys.len().min(first + self.effort.lookups);
            time_blocks(self.alone.as_ref(), false, keys, timed.clone(), &mut f)?;
            if self.effort.cold {
                let all = first..timed.end;
                self.time_cold(
                    plain,
                    (places, workload.hits()),
                    keys,
                    all,
                    (&mut p, &mut blocks),
                    &mut singles,
                )?;
                continue;
            }
            time_singles(
                self.reader.as_ref(),
                keys,
                first..first + half,
                &mut singles,
            )?;
            Busy::as_long_as(&singles).time_singles(half, &mut machine)?;
            time_blocks(
                self.reader.as_ref(),
                workload.hits(),
                keys,
                timed,
                &mut blocks,
            )?;
        }
        row.p_ns = p.median_ns();
        row.d_ns = d.median_ns();
        row.f_ns = f.median_ns();
        row.lookup_ns = blocks.median_ns();
        row.mean_ns = blocks.mean_ns();
        row.lookups = keys.len() as u64;
        fill_quantiles(&singles, &machine, row);
        Ok(())
    }

    /// Each lookup, and each plain read, with every page of the store's files evicted before it.
    #[allow(clippy::too_many_arguments, reason = "places, keys and three sinks")]
    fn time_cold(
        &self,
        plain: &PlainReads,
        (places, hits): (&[(u32, u64)], bool),
        keys: &Keys,
        range: std::ops::Range<usize>,
        (p, blocks): (&mut Samples, &mut Samples),
        singles: &mut Histogram<u64>,
    ) -> Result<()> {
        for (turn, place) in range.enumerate() {
            self.evict()?;
            let start = Instant::now();
            let end = place + 1;
            time_blocks(self.reader.as_ref(), hits, keys, place..end, blocks)?;
            singles.record(start.elapsed().as_nanos() as u64)?;
            if let Some(place) = places.get(turn) {
                self.evict()?;
                plain.measure(&[*place], p)?;
            }
        }
        Ok(())
    }

    fn times_while_writing(
        &self,
        rate: f64,
        workload: Workload,
        keys: &Keys,
        row: &mut Row,
    ) -> Result<()> {
        let (mut singles, mut machine) = (new_histogram()?, new_histogram()?);
        let before = self.reader.facts();
        let end = Instant::now() + self.effort.writing_time;
        let source = Source::new(self.case.shape.seed, self.case.shape.value_bytes);
        // Numbers that neither the store nor an earlier workload has.
        let first = (1 << 43) + ((workload as u64) << 36);
        row.commits_per_second =
            writing::beside(self.reader.as_ref(), &source, first, rate, || {
                while Instant::now() < end {
                    time_singles(self.reader.as_ref(), keys, 0..keys.len(), &mut singles)?;
                    Busy::as_long_as(&singles).time_singles(keys.len(), &mut machine)?;
                }
                Ok(())
            })?;
        let after = self.reader.facts();
        row.flushes_meanwhile = after.flushes - before.flushes;
        row.folds_meanwhile = after.folds - before.folds;
        row.lookups = singles.len();
        row.mean_ns = singles.mean();
        fill_quantiles(&singles, &machine, row);
        Ok(())
    }
}

fn fill_quantiles(singles: &Histogram<u64>, machine: &Histogram<u64>, row: &mut Row) {
    row.p50_ns = singles.value_at_quantile(0.5);
    row.p99_ns = singles.value_at_quantile(0.99);
    row.p999_ns = singles.value_at_quantile(0.999);
    row.machine_p999_ns = machine.value_at_quantile(0.999);
}

fn time_singles(
    reader: &dyn Reader,
    keys: &Keys,
    range: std::ops::Range<usize>,
    singles: &mut Histogram<u64>,
) -> Result<()> {
    let mut value = Vec::new();
    for place in range {
        let start = Instant::now();
        black_box(reader.get(keys.key(place), &mut value)?);
        singles.record(start.elapsed().as_nanos() as u64)?;
    }
    Ok(())
}

fn time_blocks(
    reader: &dyn Reader,
    hits: bool,
    keys: &Keys,
    range: std::ops::Range<usize>,
    samples: &mut Samples,
) -> Result<()> {
    let mut value = Vec::new();
    let mut wrong = 0;
    let first = range.start;
    samples.measure(range.len(), |place| {
        wrong += u64::from(reader.get(keys.key(first + place), &mut value)? != hits);
        Ok(())
    })?;
    ensure!(wrong == 0, "wrong answers");
    Ok(())
}
