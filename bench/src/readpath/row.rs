//! One row of figures.

use serde::{Deserialize, Serialize};

/// One workload on one store. Times are of one thread; those ending in `_ns` but `p50` to `p999` are
/// medians of blocks (see `clock`).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Sealed segments when it was opened.
    pub segments: u64,
    /// Records of one.
    pub segment_records: u64,
    /// Bytes of a value; keys have 32.
    pub value_bytes: u64,
    /// Indexes that a lookup may have to ask.
    pub runs: u64,
    /// `sealstone` or `go`.
    pub layout: String,
    /// Which filters are in memory.
    pub policy: String,
    /// The most that they take.
    pub budget_bytes: u64,
    /// Filter bits a key by the bytes in memory; of the other layout those on disk.
    pub bits_per_key: f64,
    /// Bits that a key sets; 0 where the engine chooses.
    pub k: u32,
    /// Whether indexes are merged.
    pub fold: bool,
    /// `pread`, `mmap` or `resident`.
    pub mode: String,
    /// Whether files were evicted before each lookup.
    pub cold: bool,
    /// Whether the system was told of reads before they were made.
    #[serde(default)]
    pub cold_reads_ahead: bool,
    /// Commits a second meanwhile, as asked for; 0 for none.
    pub while_writing: f64,
    /// Those that there were.
    pub commits_per_second: f64,
    /// Generations flushed meanwhile.
    pub flushes_meanwhile: u64,
    /// Folds meanwhile.
    pub folds_meanwhile: u64,
    /// Records that are not sealed.
    pub memtable_records: u64,
    /// The most files open at once.
    pub descriptor_cap: u64,
    /// `HitInWindow`, `HitDeep` or `Miss`.
    pub workload: String,
    /// Lookups that were timed.
    pub lookups: u64,
    /// Reads of a lookup, as the engine asked for them.
    pub reads: f64,
    /// The same as the system counted them for the thread.
    pub os_reads: f64,
    /// Page faults of a lookup.
    pub minor_faults: f64,
    /// Files opened by a lookup.
    pub opens_per_lookup: f64,
    /// Bytes read by a lookup.
    pub bytes: f64,
    /// Indexes looked into.
    pub candidates: f64,
    /// In vain.
    pub false_candidates: f64,
    /// How much memory of the process the open store has resident, after lookups.
    pub resident_bytes: u64,
    /// Filters in memory.
    pub filter_bytes: u64,
    /// Page fences in memory.
    pub fence_bytes: u64,
    /// The median of single lookups; it includes `timer_ns`.
    pub p50_ns: u64,
    /// 99 of 100 are not slower.
    pub p99_ns: u64,
    /// 999 of 1,000 are not slower.
    pub p999_ns: u64,
    /// `p99_ns` without the writer, in the same run; 0 where there is none.
    pub quiet_p99_ns: u64,
    /// `p999_ns` without the writer; 0 where there is none.
    #[serde(default)]
    pub quiet_p999_ns: u64,
    /// 999 of 1,000 pieces of computing as long as the median lookup, timed in turns with the lookups, are not
    /// slower; 0 if it was not measured.
    #[serde(default)]
    pub machine_p999_ns: u64,
    /// The mean.
    pub mean_ns: f64,
    /// A lookup: what ratios are taken of.
    pub lookup_ns: f64,
    /// What the clock adds to a single lookup.
    pub timer_ns: f64,
    /// P: a plain read of a record's bytes.
    pub p_ns: f64,
    /// D(n): a line of an array as large as filters of all keys.
    pub d_ns: f64,
    /// F: the same lookups in a store of the unsealed records alone.
    pub f_ns: f64,
    /// Building the store.
    pub build_seconds: f64,
    /// Its bytes on disk.
    pub disk_bytes: u64,
    /// Its files.
    pub files: u64,
    /// Index, filter and fence bytes ever written, by record.
    pub index_bytes_per_record: f64,
    /// Threads of the rates below; 0 where they were not measured.
    pub threads: u64,
    /// Lookups a second of all threads.
    pub lookups_per_second: f64,
    /// By that of one thread.
    pub scaling: f64,
    /// The same of plain reads.
    pub plain_scaling: f64,
    /// Must-show limits that were missed.
    pub missed: String,
}

impl Row {
    /// The name of the series that a row belongs to.
    pub fn series(&self) -> String {
        let Self {
            layout,
            policy,
            mode,
            ..
        } = self;
        let fold = if self.fold || layout == "go" {
            ""
        } else {
            ", folds off"
        };
        let bloom = match self.k {
            0 => String::new(),
            k => format!(", {} b/key k={k}", self.bits_per_key),
        };
        let mode = match mode.as_str() {
            "pread" => "",
            "mmap" => ", mapped",
            _ => ", index resident",
        };
        let cold = if self.cold { ", cold" } else { "" };
        let writing = if self.while_writing > 0.0 {
            ", while writing"
        } else {
            ""
        };
        let budget = match policy.as_str() {
            "all" | "window-only" | "none" => String::new(),
            _ => format!(" {:.1} MB", self.budget_bytes as f64 / 1e6),
        };
        format!("{layout} {policy}{budget}{bloom}{mode}{fold}{cold}{writing}")
    }
}
