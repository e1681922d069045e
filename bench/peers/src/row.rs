//! A row of figures: an engine's medians over the rounds, and their ratios to sealstone's of the same rounds.

use serde::{Deserialize, Serialize};

use crate::engines::{Kind, Spec};
use crate::measure::{Append, Cold, Load, Look};

/// One engine in one round.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Sample {
    /// Loading it.
    pub load: Load,
    /// The disk alone, just before.
    pub append: Append,
    /// Looking up with warm caches.
    pub look: Look,
    /// Looking up with cold ones.
    pub cold: Cold,
    /// Bytes on the disk after the lookups' process closed it again: some clean up at an open.
    pub reopened_disk_bytes: u64,
}

/// The figures of an engine. Times and sizes are medians over the rounds.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Row {
    /// The engine.
    pub engine: String,
    /// Its version.
    pub version: String,
    /// Whether a commit that returned is on stable storage.
    pub durable: bool,
    /// Segments' worth of records.
    pub segments: u64,
    /// Records that were loaded.
    pub records: u64,
    /// Bytes of a value.
    pub value_bytes: u64,
    /// Records of a commit.
    pub batch_records: u64,
    /// The cache budget.
    pub cache_bytes: u64,
    /// Bytes of all keys and values.
    pub user_bytes: u64,
    /// Rounds measured.
    pub rounds: u64,
    /// Records by the time to the last acknowledgement; where that is not durability, until it is closed.
    pub load_records_per_second: f64,
    /// The same with settling and closing.
    pub settled_records_per_second: f64,
    /// The rate of appending the same batches to a file, with a sync each, before every load.
    pub append_records_per_second: f64,
    /// The load's rate by that, medians of the rounds.
    pub ratio_to_append: f64,
    /// Settling alone.
    pub settle_seconds: f64,
    /// The median batch.
    pub batch_p50_ms: f64,
    /// The worst batch, the median of the rounds' worst.
    pub batch_worst_ms: f64,
    /// Bytes written to the disk for each byte of keys and values.
    pub written_per_user_byte: f64,
    /// The median hit.
    pub hit_p50_ns: f64,
    /// 99 of 100 hits are not slower.
    pub hit_p99_ns: f64,
    /// The mean hit.
    pub hit_mean_ns: f64,
    /// The median miss.
    pub miss_p50_ns: f64,
    /// 99 of 100 misses are not slower.
    pub miss_p99_ns: f64,
    /// The mean miss.
    pub miss_mean_ns: f64,
    /// Read calls of a hit.
    pub os_reads_per_hit: f64,
    /// Read calls of a miss.
    pub os_reads_per_miss: f64,
    /// Page faults of a hit, the warm ones.
    pub minor_faults_per_hit: f64,
    /// Page faults of a miss, the warm ones.
    pub minor_faults_per_miss: f64,
    /// The median hit with the system's cache cold.
    pub cold_hit_p50_ns: f64,
    /// The read calls of such a hit.
    pub cold_os_reads_per_hit: f64,
    /// The faults of such a hit that waited for the disk.
    pub cold_major_faults_per_hit: f64,
    /// Files of the closed store.
    pub files: f64,
    /// Bytes of the closed store on the disk.
    pub disk_bytes: f64,
    /// The same after it was opened and closed once more.
    pub reopened_disk_bytes: f64,
    /// Memory after the lookups, mapped pages included.
    pub resident_bytes: f64,
    /// Of it what belongs to no file.
    pub anonymous_bytes: f64,
    /// The most memory while loading.
    pub load_peak_resident_bytes: f64,
    /// An open in a fresh process, of a store that was opened and closed before.
    pub open_ms: f64,
    /// The first open after the load, with all files evicted from memory.
    pub cold_open_ms: f64,
    /// sealstone's rate (by calls) by this one's.
    pub load_ratio: f64,
    /// The same with settling and closing.
    pub settled_ratio: f64,
    /// This engine's median hit by sealstone's.
    pub hit_ratio: f64,
    /// This engine's median hit by that of sealstone's mapped reads.
    pub hit_ratio_mmap: f64,
    /// This engine's median miss by sealstone's.
    pub miss_ratio: f64,
    /// This engine's median miss by that of sealstone's mapped reads.
    pub miss_ratio_mmap: f64,
    /// This engine's bytes on the disk by sealstone's.
    pub disk_ratio: f64,
    /// This engine's memory by sealstone's.
    pub resident_ratio: f64,
}

/// The middle value, the mean of the two middle ones of an even number; 0 of none.
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let Some(last) = values.len().checked_sub(1) else {
        return 0.0;
    };
    (values[last / 2] + values[last.div_ceil(2)]) / 2.0
}

/// The median over the rounds of `of(this) / of(own)`; 0 where there is nothing to compare.
fn ratio(this: &[Sample], own: Option<&[Sample]>, of: fn(&Sample) -> f64) -> f64 {
    ratio_of(this, own, of, of)
}

/// The same where the two are measured differently.
fn ratio_of(
    this: &[Sample],
    own: Option<&[Sample]>,
    of_this: impl Fn(&Sample) -> f64,
    of_own: impl Fn(&Sample) -> f64,
) -> f64 {
    let pairs = this.iter().zip(own.unwrap_or_default());
    let pairs = pairs.map(|(this, own)| (of_this(this), of_own(own)));
    median(
        pairs
            .filter(|(_, own)| *own > 0.0)
            .map(|(this, own)| this / own),
    )
}

impl Sample {
    /// Time until all was durable: for an engine that acknowledges earlier, until it was closed.
    fn durable_seconds(&self, kind: Kind) -> f64 {
        match kind.is_durable() {
            true => self.load.commit_seconds,
            false => self.all_seconds(),
        }
    }

    fn all_seconds(&self) -> f64 {
        self.load.commit_seconds + self.load.settle_seconds + self.load.close_seconds
    }
}

/// The samples of all engines, each with its rounds in order.
pub type Samples = [(Kind, Vec<Sample>)];

/// The samples of one engine.
fn of(samples: &Samples, kind: Kind) -> Option<&[Sample]> {
    let found = samples.iter().find(|(of, _)| *of == kind);
    found.map(|(_, samples)| &samples[..])
}

/// The rows of all engines.
pub fn rows(samples: &Samples, spec: &Spec) -> Vec<Row> {
    samples
        .iter()
        .filter(|(_, rounds)| !rounds.is_empty())
        .map(|(kind, rounds)| Row::new(*kind, rounds, samples, spec))
        .collect()
}

impl Row {
    fn new(kind: Kind, rounds: &[Sample], samples: &Samples, spec: &Spec) -> Self {
        let own = of(samples, Kind::Sealstone);
        let mapped = of(samples, Kind::SealstoneMmap);
        let middle = |of: fn(&Sample) -> f64| median(rounds.iter().map(of));
        let rate = |seconds: f64| spec.records as f64 / seconds.max(f64::MIN_POSITIVE);
        let durable_seconds = median(rounds.iter().map(|round| round.durable_seconds(kind)));
        Self {
            engine: kind.name(),
            version: kind.version(),
            durable: kind.is_durable(),
            segments: spec.records / spec.segment_records.max(1),
            records: spec.records,
            value_bytes: spec.value_bytes as u64,
            batch_records: spec.batch_records,
            cache_bytes: spec.cache_bytes,
            user_bytes: spec.user_bytes(),
            rounds: rounds.len() as u64,
            load_records_per_second: rate(durable_seconds),
            settled_records_per_second: rate(middle(Sample::all_seconds)),
            append_records_per_second: rate(middle(|round| round.append.seconds)),
            ratio_to_append: ratio_of(
                rounds,
                Some(rounds),
                |round| round.append.seconds,
                |round| round.durable_seconds(kind),
            ),
            settle_seconds: middle(|round| round.load.settle_seconds),
            batch_p50_ms: middle(|round| round.load.batch_p50_ms),
            batch_worst_ms: middle(|round| round.load.batch_worst_ms),
            written_per_user_byte: middle(|round| round.load.written_bytes as f64)
                / spec.user_bytes() as f64,
            hit_p50_ns: middle(|round| round.look.hit.p50_ns as f64),
            hit_p99_ns: middle(|round| round.look.hit.p99_ns as f64),
            hit_mean_ns: middle(|round| round.look.hit.mean_ns),
            miss_p50_ns: middle(|round| round.look.miss.p50_ns as f64),
            miss_p99_ns: middle(|round| round.look.miss.p99_ns as f64),
            miss_mean_ns: middle(|round| round.look.miss.mean_ns),
            os_reads_per_hit: middle(|round| round.look.hit.os_reads),
            os_reads_per_miss: middle(|round| round.look.miss.os_reads),
            minor_faults_per_hit: middle(|round| round.look.hit.minor_faults),
            minor_faults_per_miss: middle(|round| round.look.miss.minor_faults),
            cold_hit_p50_ns: middle(|round| round.cold.hit.p50_ns as f64),
            cold_os_reads_per_hit: middle(|round| round.cold.hit.os_reads),
            cold_major_faults_per_hit: middle(|round| round.cold.hit.major_faults),
            files: middle(|round| round.load.files as f64),
            disk_bytes: middle(|round| round.load.disk_bytes as f64),
            reopened_disk_bytes: middle(|round| round.reopened_disk_bytes as f64),
            resident_bytes: middle(|round| round.look.resident_bytes as f64),
            anonymous_bytes: middle(|round| round.look.anonymous_bytes as f64),
            load_peak_resident_bytes: middle(|round| round.load.peak_resident_bytes as f64),
            open_ms: middle(|round| round.look.open_ms),
            cold_open_ms: middle(|round| round.cold.open_ms),
            load_ratio: ratio_of(
                rounds,
                own,
                |round| round.durable_seconds(kind),
                |round| round.durable_seconds(Kind::Sealstone),
            ),
            settled_ratio: ratio(rounds, own, Sample::all_seconds),
            hit_ratio: ratio(rounds, own, |round| round.look.hit.p50_ns as f64),
            hit_ratio_mmap: ratio(rounds, mapped, |round| round.look.hit.p50_ns as f64),
            miss_ratio: ratio(rounds, own, |round| round.look.miss.p50_ns as f64),
            miss_ratio_mmap: ratio(rounds, mapped, |round| round.look.miss.p50_ns as f64),
            disk_ratio: ratio(rounds, own, |round| round.load.disk_bytes as f64),
            resident_ratio: ratio(rounds, own, |round| round.look.resident_bytes as f64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn sample(seconds: f64, hit_p50_ns: u64) -> Sample {
        let mut sample = Sample::default();
        sample.load.commit_seconds = seconds;
        sample.load.close_seconds = 1.0;
        sample.look.hit.p50_ns = hit_p50_ns;
        sample
    }

    #[test]
    fn medians() {
        assert_eq!(median([]), 0.0);
        assert_eq!(median([3.0]), 3.0);
        assert_eq!(median([9.0, 1.0, 2.0]), 2.0);
        assert_eq!(median([4.0, 1.0, 2.0, 9.0]), 3.0);
    }

    #[test]
    fn ratios_are_of_the_same_round_and_missing_ones_are_zero() {
        let samples = [
            (
                Kind::Sealstone,
                vec![sample(1.0, 100), sample(2.0, 200), sample(4.0, 400)],
            ),
            (
                Kind::Redb,
                vec![sample(3.0, 150), sample(6.0, 500), sample(8.0, 400)],
            ),
            (
                Kind::ParityDb,
                vec![sample(1.0, 50), sample(1.0, 50), sample(1.0, 50)],
            ),
            (Kind::Lmdb, Vec::new()),
        ];
        let spec = Spec {
            directory: PathBuf::new(),
            cache_bytes: 1,
            records: 1_000,
            segment_records: 100,
            batch_records: 10,
            value_bytes: 68,
        };
        let rows = rows(&samples, &spec);
        assert_eq!(rows.len(), 3);
        let redb = &rows[1];
        assert_eq!(
            (redb.engine.as_str(), redb.segments, redb.user_bytes),
            ("redb", 10, 100_000)
        );
        assert_eq!(
            (redb.load_ratio, redb.hit_ratio, redb.hit_ratio_mmap),
            (3.0, 1.5, 0.0)
        );
        assert!((redb.load_records_per_second - 1_000.0 / 6.0).abs() < 1e-6);
        // Not durable before it is closed.
        assert!((rows[2].load_records_per_second - 500.0).abs() < 1e-6);
        assert_eq!(rows[2].load_ratio, 1.0);
    }
}
