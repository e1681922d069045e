//! What one process measures of one engine: a load, or an open and lookups in a store that is there.
//!
//! System reads and faults are those of the whole process, because some engines read on threads of their
//! own; nothing else runs in it. Resident bytes are what the process has more than before the engine was
//! opened, with the harness's records and keys in memory by then.

use std::fs::File;
use std::hint::black_box;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};

use crate::engines::{Kind, Reader, Spec};
use crate::figures::{new_histogram, peak_resident_bytes, reset_peak_resident};
use crate::keys::{Batch, KEY_BYTES, Source};
use crate::system::{self, Counts, Memory};

/// The seed of the records that are loaded.
const SEED: u64 = 1;

/// The seed of keys that no store holds.
const SEED_OF_MISSES: u64 = 0xAB5E_4001;

/// Records prepared at a time, before the clock goes on.
const PREPARED_RECORDS: u64 = 100_000;

/// What a load took.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Load {
    /// From the first batch to the last one's acknowledgement.
    pub commit_seconds: f64,
    /// Until background work was done and files had their final shape.
    pub settle_seconds: f64,
    /// To close the store.
    pub close_seconds: f64,
    /// The median batch.
    pub batch_p50_ms: f64,
    /// The slowest batch.
    pub batch_worst_ms: f64,
    /// The most memory of the process while it loaded, less what it had before.
    pub peak_resident_bytes: u64,
    /// Bytes given to the device on the process's behalf, as the system counts them.
    pub written_bytes: u64,
    /// Files of the closed store.
    pub files: u64,
    /// Bytes they take on the disk.
    pub disk_bytes: u64,
}

/// Lookups of one kind.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Lookups {
    /// The median.
    pub p50_ns: u64,
    /// 99 of 100 are not slower.
    pub p99_ns: u64,
    /// The mean.
    pub mean_ns: f64,
    /// Read calls of a lookup.
    pub os_reads: f64,
    /// Their bytes.
    pub os_read_bytes: f64,
    /// Page faults of a lookup that were served without the disk.
    pub minor_faults: f64,
    /// Page faults of a lookup that waited for the disk.
    pub major_faults: f64,
}

/// What a fresh process measured in a store.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Look {
    /// Until the store could be asked.
    pub open_ms: f64,
    /// Keys that are there.
    pub hit: Lookups,
    /// Keys that are not.
    pub miss: Lookups,
    /// Memory after all lookups, mapped pages included.
    pub resident_bytes: u64,
    /// Of it what belongs to no file.
    pub anonymous_bytes: u64,
}

/// What the disk can do without an engine.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Append {
    /// Time of all appends and their syncs.
    pub seconds: f64,
}

/// The same, for lookups after all of the store's files were evicted from the system's cache.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Cold {
    /// Until the store could be asked.
    pub open_ms: f64,
    /// Keys that are there, each looked up once.
    pub hit: Lookups,
}

/// Loads a store and closes it.
pub fn load(kind: Kind, spec: &Spec) -> Result<Load> {
    let source = Source::new(SEED, spec.value_bytes);
    let prepared = PREPARED_RECORDS.next_multiple_of(spec.batch_records.max(1));
    let mut batches = source.batches(0, prepared.min(spec.records), spec.batch_records);
    let resident = Memory::now().resident_bytes;
    reset_peak_resident();
    let written = system::written_bytes();
    let mut row = kind.within(spec, |place| {
        let mut row = Load::default();
        let mut latency = new_histogram()?;
        let mut writer = kind.create(spec, place)?;
        let mut committed = Duration::ZERO;
        for first in (0..spec.records).step_by(usize::try_from(prepared)?) {
            let count = prepared.min(spec.records - first);
            source.refill(&mut batches, first, count, spec.batch_records);
            for batch in &batches {
                let start = Instant::now();
                writer.write(batch)?;
                let elapsed = start.elapsed();
                committed += elapsed;
                latency.record(elapsed.as_nanos() as u64)?;
            }
        }
        row.commit_seconds = committed.as_secs_f64();
        row.batch_p50_ms = latency.value_at_quantile(0.5) as f64 / 1e6;
        row.batch_worst_ms = latency.max() as f64 / 1e6;
        let start = Instant::now();
        writer.settle()?;
        row.settle_seconds = start.elapsed().as_secs_f64();
        let start = Instant::now();
        writer.close()?;
        row.close_seconds = start.elapsed().as_secs_f64();
        Ok(row)
    })?;
    row.peak_resident_bytes = peak_resident_bytes().saturating_sub(resident);
    row.written_bytes = system::written_bytes().saturating_sub(written);
    (row.files, row.disk_bytes) = system::disk_use(&spec.directory)?;
    Ok(row)
}

/// Appends the batches of a load to a file, each with a sync of its own.
pub fn append(spec: &Spec) -> Result<Append> {
    let source = Source::new(SEED, spec.value_bytes);
    let mut file = File::create(spec.directory.join("plain"))?;
    let mut batches = Vec::new();
    let mut elapsed = Duration::ZERO;
    for first in (0..spec.records).step_by(usize::try_from(spec.batch_records)?) {
        let count = spec.batch_records.min(spec.records - first);
        source.refill(&mut batches, first, count, count);
        for batch in &batches {
            let start = Instant::now();
            file.write_all(batch.bytes())?;
            file.sync_data()?;
            elapsed += start.elapsed();
        }
    }
    let seconds = elapsed.as_secs_f64();
    Ok(Append { seconds })
}

/// Opens a loaded store and looks keys up: each once to verify its answer, which also warms what there is
/// to warm, and once timed and counted, with all the others between.
pub fn look(kind: Kind, spec: &Spec, lookups: u64) -> Result<Look> {
    let hits = Keys::present(spec, lookups);
    let misses = Keys::absent(spec, lookups);
    let before = Memory::now();
    kind.within(spec, |place| {
        let start = Instant::now();
        let reader = kind.open(spec, place)?;
        let open_ms = start.elapsed().as_secs_f64() * 1e3;
        hits.verify(reader.as_ref())?;
        let hit = hits.time(reader.as_ref())?;
        misses.verify(reader.as_ref())?;
        let miss = misses.time(reader.as_ref())?;
        let after = Memory::now();
        Ok(Look {
            open_ms,
            hit,
            miss,
            resident_bytes: after.resident_bytes.saturating_sub(before.resident_bytes),
            anonymous_bytes: after.anonymous_bytes.saturating_sub(before.anonymous_bytes),
        })
    })
}

/// Evicts the store's files, opens it and looks keys up once each.
pub fn look_cold(kind: Kind, spec: &Spec, lookups: u64) -> Result<Cold> {
    let hits = Keys::present(spec, lookups);
    evict_all(&spec.directory)?;
    kind.within(spec, |place| {
        let start = Instant::now();
        let reader = kind.open(spec, place)?;
        Ok(Cold {
            open_ms: start.elapsed().as_secs_f64() * 1e3,
            hit: hits.time(reader.as_ref())?,
        })
    })
}

fn evict_all(directory: &Path) -> Result<()> {
    for path in system::files_below(directory)? {
        system::evict(&path)?;
    }
    Ok(())
}

/// Keys to look up, and what is to come of it.
struct Keys {
    bytes: Vec<u8>,
    numbers: Vec<u64>,
    source: Source,
    are_present: bool,
}

impl Keys {
    /// Uniform over all records, each once as long as there are that many.
    fn present(spec: &Spec, count: u64) -> Self {
        // A prime above any number of records that fits on a disk here.
        const STEP: u64 = 2_654_435_761;
        let number = |place: u64| place.wrapping_mul(STEP) % spec.records.max(1);
        Self::of(SEED, spec, (0..count).map(number).collect(), true)
    }

    fn absent(spec: &Spec, count: u64) -> Self {
        Self::of(SEED_OF_MISSES, spec, (0..count).collect(), false)
    }

    fn of(seed: u64, spec: &Spec, numbers: Vec<u64>, are_present: bool) -> Self {
        let source = Source::new(seed, spec.value_bytes);
        let mut one = Vec::new();
        let mut bytes = Vec::with_capacity(numbers.len() * KEY_BYTES);
        for &number in &numbers {
            source.refill(&mut one, number, 1, 1);
            for (key, _) in one.iter().flat_map(Batch::records) {
                bytes.extend_from_slice(key);
            }
        }
        Self {
            bytes,
            numbers,
            source,
            are_present,
        }
    }

    fn verify(&self, reader: &dyn Reader) -> Result<()> {
        let mut one = Vec::new();
        let mut out = Vec::new();
        for (key, &number) in self.bytes.chunks_exact(KEY_BYTES).zip(&self.numbers) {
            let found = reader.get(key, &mut out)?;
            ensure!(found == self.are_present, "a wrong answer: {found}");
            if found {
                self.source.refill(&mut one, number, 1, 1);
                let expected = one.iter().flat_map(Batch::records).next();
                ensure!(expected == Some((key, &out[..])), "a wrong value");
            }
        }
        Ok(())
    }

    fn time(&self, reader: &dyn Reader) -> Result<Lookups> {
        let mut latency = new_histogram()?;
        let mut out = Vec::new();
        let before = Counts::of_process();
        for key in self.bytes.chunks_exact(KEY_BYTES) {
            let start = Instant::now();
            let found = black_box(reader.get(key, &mut out)?);
            latency.record(start.elapsed().as_nanos() as u64)?;
            ensure!(found == self.are_present, "a wrong answer: {found}");
        }
        let counts = Counts::since(before);
        let each = |count: u64| count as f64 / self.numbers.len().max(1) as f64;
        Ok(Lookups {
            p50_ns: latency.value_at_quantile(0.5),
            p99_ns: latency.value_at_quantile(0.99),
            mean_ns: latency.mean(),
            os_reads: each(counts.reads),
            os_read_bytes: each(counts.read_bytes),
            minor_faults: each(counts.minor_faults),
            major_faults: each(counts.major_faults),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(directory: &Path) -> Spec {
        Spec {
            directory: directory.to_owned(),
            cache_bytes: 16 << 20,
            records: 2_000,
            segment_records: 200,
            batch_records: 100,
            value_bytes: 100,
        }
    }

    #[test]
    fn a_load_and_both_ways_of_looking_measure_something() -> Result<()> {
        let directory = tempfile::tempdir()?;
        let spec = spec(directory.path());
        let load = load(Kind::Sealstone, &spec)?;
        assert!(load.commit_seconds > 0.0 && load.batch_worst_ms >= load.batch_p50_ms);
        assert!(load.files > 1 && load.disk_bytes >= spec.user_bytes());
        let look = look(Kind::Sealstone, &spec, 1_000)?;
        assert!(look.hit.p50_ns > 0 && look.hit.p99_ns >= look.hit.p50_ns);
        // Kernels without accounting say 0.
        assert!(look.hit.os_reads == 0.0 || look.hit.os_reads >= 1.0);
        assert!(look.miss.os_reads < 1.0);
        let mapped = super::look(Kind::SealstoneMmap, &spec, 1_000)?;
        assert!(mapped.hit.os_reads < 0.1, "{}", mapped.hit.os_reads);
        assert!(append(&spec)?.seconds > 0.0);
        assert!(look_cold(Kind::Sealstone, &spec, 100)?.hit.p50_ns > 0);
        Ok(())
    }

    #[test]
    fn a_wrong_answer_is_an_error() -> Result<()> {
        struct Liar;
        impl Reader for Liar {
            fn get(&self, key: &[u8], out: &mut Vec<u8>) -> Result<bool> {
                out.clear();
                out.extend_from_slice(key);
                Ok(true)
            }
        }
        let spec = spec(Path::new("."));
        let wrong = |keys: Keys| keys.verify(&Liar).err().map(|error| error.to_string());
        assert_eq!(
            wrong(Keys::present(&spec, 5)).as_deref(),
            Some("a wrong value")
        );
        assert_eq!(
            wrong(Keys::absent(&spec, 5)).as_deref(),
            Some("a wrong answer: true")
        );
        assert!(Keys::absent(&spec, 5).time(&Liar).is_err());
        Ok(())
    }

    #[test]
    fn keys_are_distinct_and_of_the_right_stream() {
        let spec = spec(Path::new("."));
        let keys = Keys::present(&spec, 2_000);
        let mut numbers = keys.numbers.clone();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), 2_000);
        let first = Source::new(SEED, spec.value_bytes).batches(keys.numbers[1], 1, 1);
        let expected = first[0].records().next().map(|(key, _)| key);
        assert_eq!(keys.bytes.chunks_exact(KEY_BYTES).nth(1), expected);
    }
}
