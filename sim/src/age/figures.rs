//! What is counted, hour by hour, and how it is shown.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use sealstone::{Job, Stats, Store};

use crate::heap;

/// Sampled lookups of one class.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lookups {
    /// How many.
    pub lookups: u64,
    /// Their reads.
    pub reads: u64,
    /// Runs looked into.
    pub candidates: u64,
    /// Those without the key.
    pub false_candidates: u64,
    /// Keys that the window table found.
    pub window_hits: u64,
    /// Records that it named for other keys.
    pub window_false_candidates: u64,
    /// Filters asked.
    pub filter_tests: u64,
    /// Segments of the key's kind whose filter was not in memory, once a lookup.
    pub unfiltered: u64,
}

impl Lookups {
    /// What the lookups of some work cost.
    pub fn of<T>(store: &Store, work: impl FnOnce() -> T) -> (T, Self) {
        let before = Self::so_far(store);
        let done = work();
        let after = Self::so_far(store);
        let lookups = after.lookups - before.lookups;
        let spent = Self {
            lookups,
            reads: after.reads - before.reads,
            candidates: after.candidates - before.candidates,
            false_candidates: after.false_candidates - before.false_candidates,
            window_hits: after.window_hits - before.window_hits,
            window_false_candidates: after.window_false_candidates - before.window_false_candidates,
            filter_tests: after.filter_tests - before.filter_tests,
            // Half of the segments are of the kind that a lookup asks, and so are half of the lookups.
            unfiltered: lookups * after.unfiltered / 2,
        };
        (done, spent)
    }

    fn so_far(store: &Store) -> Self {
        let of = |stats: Stats| Self {
            lookups: stats.lookups,
            reads: stats.reads,
            candidates: stats.candidates,
            false_candidates: stats.false_candidates,
            window_hits: stats.window_hits,
            window_false_candidates: stats.window_false_candidates,
            filter_tests: stats.filter_tests,
            unfiltered: stats.segments.saturating_sub(stats.filters_resident),
        };
        heap::apart(|| of(store.stats()))
    }

    /// Adds others.
    pub fn add(&mut self, other: &Self) {
        self.lookups += other.lookups;
        self.reads += other.reads;
        self.candidates += other.candidates;
        self.false_candidates += other.false_candidates;
        self.window_hits += other.window_hits;
        self.window_false_candidates += other.window_false_candidates;
        self.filter_tests += other.filter_tests;
        self.unfiltered += other.unfiltered;
    }

    /// Lookups that found their key in a segment.
    pub fn sealed_hits(&self) -> u64 {
        self.candidates - self.false_candidates + self.window_hits
    }
}

/// Classes of sampled lookups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Keys that have a value.
    Hit,
    /// Keys that were never written.
    Miss,
    /// Keys that were deleted.
    Deleted,
}

/// All classes.
pub const CLASSES: [Class; 3] = [Class::Hit, Class::Miss, Class::Deleted];

/// One hour, or several.
#[derive(Clone, Debug, Default)]
pub struct Hour {
    /// Its weather.
    pub weather: String,
    /// Operations written.
    pub writes: u64,
    /// Their bytes, keys and values.
    pub user_bytes: u64,
    /// Sampled lookups, by class.
    pub lookups: [Lookups; 3],
    /// Steps of jobs that did something.
    pub steps: BTreeMap<Job, u64>,
    /// Writes refused for want of memory, each tried again after a job's step.
    pub stalls: u64,
    /// Write and barrier calls on the directory.
    pub disk_calls: u64,
    /// Bytes written to the directory.
    pub written_bytes: u64,
    /// Segment files opened.
    pub segment_opens: u64,
    /// Openings of the store.
    pub openings: u64,
    /// The most heap bytes of the engine.
    pub heap_peak_bytes: u64,
    /// What the options allow: write region, filters, scans.
    pub configured_bytes: u64,
    /// The most bytes of the write region in use, as sampled.
    pub region_peak_bytes: u64,
    /// Descriptors of segments, and their cap, at the end of the hour.
    pub descriptors: (u64, u64),
    /// The most filter bytes, and the budget, at the end of the hour.
    pub filters: (u64, u64),
    /// Filters in memory.
    pub filters_resident: u64,
    /// Bytes of page fences in memory.
    pub fence_bytes: u64,
    /// Segments.
    pub segments: u64,
    /// Their records.
    pub segment_records: u64,
    /// Runs that a lookup may have to ask.
    pub runs: u64,
    /// File bytes of segments and logs.
    pub file_bytes: u64,
    /// Bytes of keys and values that a reader can find.
    pub live_bytes: u64,
    /// Keys that a reader can find.
    pub live_keys: u64,
}

fn ratio(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

impl Hour {
    /// Adds the counts (not the sizes) of another hour.
    pub fn add_counts(&mut self, other: &Self) {
        self.writes += other.writes;
        self.user_bytes += other.user_bytes;
        for (sum, more) in self.lookups.iter_mut().zip(&other.lookups) {
            sum.add(more);
        }
        for (job, steps) in &other.steps {
            *self.steps.entry(*job).or_default() += steps;
        }
        self.stalls += other.stalls;
        self.disk_calls += other.disk_calls;
        self.written_bytes += other.written_bytes;
        self.segment_opens += other.segment_opens;
        self.openings += other.openings;
    }

    /// The lookups of a class.
    pub fn class(&self, class: Class) -> &Lookups {
        &self.lookups[class as usize]
    }

    /// Steps of one job.
    pub fn steps_of(&self, job: Job) -> u64 {
        self.steps.get(&job).copied().unwrap_or(0)
    }

    /// Steps per 1,000 writes, without those that load filters after an opening.
    pub fn steps_per_thousand(&self) -> f64 {
        let all: u64 = self.steps.values().sum();
        1000.0 * ratio(all - self.steps_of(Job::LoadFilter), self.writes)
    }

    /// Calls that write or sync, per 1,000 writes.
    pub fn disk_calls_per_thousand(&self) -> f64 {
        1000.0 * ratio(self.disk_calls, self.writes)
    }

    /// File bytes a byte that a reader can find.
    pub fn space_amplification(&self) -> f64 {
        ratio(self.file_bytes, self.live_bytes)
    }

    /// Bytes written a byte that was asked to be written.
    pub fn write_amplification(&self) -> f64 {
        ratio(self.written_bytes, self.user_bytes)
    }

    /// The table's row.
    pub fn line(&self, number: usize) -> String {
        let reads = |class: Class| {
            let lookups = self.class(class);
            ratio(lookups.reads, lookups.lookups)
        };
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        format!(
            "{number:>4} {:<13} {:>10} {:>10} {:>6.3} {:>6.3} {:>6.3} {:>6.2} {:>6.2} {:>5} {:>5} \
             {:>8.2} {:>8.2} {:>7.2} {:>8.2} {:>9} {:>7.1} {:>7.1} {:>6} {:>6}",
            self.weather,
            self.writes,
            self.live_keys,
            reads(Class::Hit),
            reads(Class::Miss),
            reads(Class::Deleted),
            self.space_amplification(),
            self.write_amplification(),
            self.segments,
            self.runs,
            mib(self.heap_peak_bytes),
            mib(self.configured_bytes),
            mib(self.region_peak_bytes),
            mib(self.filters.0),
            format!("{}/{}", self.descriptors.0, self.descriptors.1),
            self.steps_per_thousand(),
            self.disk_calls_per_thousand(),
            self.steps_of(Job::LoadFilter),
            self.stalls,
        )
    }

    /// The row as JSON.
    pub fn json(&self, number: usize) -> String {
        let mut text = format!("{{\"hour\":{number},\"weather\":\"{}\"", self.weather);
        for class in CLASSES {
            let name = format!("{class:?}").to_lowercase();
            let l = self.class(class);
            let _ = write!(
                text,
                ",\"{name}\":{{\"lookups\":{},\"reads\":{},\"candidates\":{},\
                 \"false_candidates\":{},\"filter_tests\":{}}}",
                l.lookups, l.reads, l.candidates, l.false_candidates, l.filter_tests
            );
        }
        for (job, steps) in &self.steps {
            let _ = write!(text, ",\"steps_{job:?}\":{steps}");
        }
        for (name, value) in self.numbers() {
            let _ = write!(text, ",\"{name}\":{value}");
        }
        text + "}"
    }

    fn numbers(&self) -> [(&'static str, u64); 20] {
        [
            ("writes", self.writes),
            ("user_bytes", self.user_bytes),
            ("stalls", self.stalls),
            ("disk_calls", self.disk_calls),
            ("written_bytes", self.written_bytes),
            ("segment_opens", self.segment_opens),
            ("openings", self.openings),
            ("heap_peak_bytes", self.heap_peak_bytes),
            ("configured_bytes", self.configured_bytes),
            ("region_peak_bytes", self.region_peak_bytes),
            ("descriptors", self.descriptors.0),
            ("filter_bytes", self.filters.0),
            ("filters_resident", self.filters_resident),
            ("fence_bytes", self.fence_bytes),
            ("segments", self.segments),
            ("segment_records", self.segment_records),
            ("runs", self.runs),
            ("file_bytes", self.file_bytes),
            ("live_bytes", self.live_bytes),
            ("live_keys", self.live_keys),
        ]
    }
}

/// The table's head.
pub const HEAD: &str = "hour weather           writes  live keys  r/hit r/miss  r/del  space  write  segs  runs heap MiB  allowed  region  filters      desc steps/k calls/k  loads stalls";
