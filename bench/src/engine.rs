//! The store as the harness sees it.

use anyhow::{Result, anyhow};
use sealstone::env::Env;
use sealstone::{
    Batch as StoreBatch, Durability, Fold, Keyspace, KeyspaceOptions, Options, ReadMode, Store,
};

use crate::keys::Batch;
use crate::load::LoadOptions;
use crate::target::{Direction, Facts, Scanned, Target};

/// The keyspace that is loaded.
pub const KEYSPACE: &str = "records";

/// An open store and the keyspace under measurement.
#[derive(Debug)]
pub struct Engine {
    /// The store.
    pub store: Store,
    /// Its only keyspace.
    pub records: Keyspace,
    durability: Durability,
}

/// The options of a measurement: the defaults, but for where a generation ends and for what the command
/// line says.
pub fn options(load: &LoadOptions) -> Options {
    let mut options =
        Options::new().seal_records(u32::try_from(load.segment_records).unwrap_or(u32::MAX));
    if let Some(bytes) = load.memory_bytes {
        options = options.memory_bytes(bytes);
    }
    if let Some(bytes) = load.scan_bytes {
        options = options.scan_bytes(bytes);
    }
    if let Some(files) = load.descriptors_max {
        options = options.descriptors_max(files);
    }
    if !load.fold {
        options = options.fold(Fold::Off);
    }
    if let Some(bytes) = load.window_bytes {
        options = options.window_bytes(bytes);
    }
    if load.mapped {
        options = options.read_mode(ReadMode::Mmap);
    }
    options
}

/// Opens or creates the store.
pub fn open(env: Env, load: &LoadOptions) -> Result<Engine> {
    let store = Store::open_with(env, options(load))?;
    let records = store.keyspace(KEYSPACE, KeyspaceOptions::mutable())?;
    let durability = if load.synced {
        Durability::Synced
    } else {
        Durability::Buffered
    };
    Ok(Engine {
        store,
        records,
        durability,
    })
}

impl Target for Engine {
    fn write_batch(&self, batch: &Batch) -> Result<()> {
        let mut writes = StoreBatch::with_capacity(batch.len());
        for (key, value) in batch.records() {
            writes.put(&self.records, key, value);
        }
        self.store.write(writes, self.durability)?;
        Ok(())
    }

    fn settle(&self) -> Result<()> {
        self.store.sync()?;
        // With threads of its own this helps them, and returns once there is nothing left.
        self.store.drain()?;
        Ok(())
    }

    fn scan(&self, direction: Direction, entries_max: u64) -> Result<Scanned> {
        let mut entries = 0;
        let mut items = self.records.iter()?;
        let cursors = self.store.stats().segments;
        while entries < entries_max {
            let item = match direction {
                Direction::Forward => items.next(),
                Direction::Reverse => items.next_back(),
            };
            match item {
                Some(item) => drop(item?),
                None => break,
            }
            entries += 1;
        }
        Ok(Scanned { entries, cursors })
    }

    fn facts(&self) -> Facts {
        let stats = self.store.stats();
        Facts {
            seals: stats.seals,
            commit_barriers: Some(stats.log_syncs - stats.seal_syncs),
            fold_barriers: stats.fold_syncs + 2 * stats.folds,
            filter_bytes: stats.filter_bytes,
            write_region_bytes: stats.memory_high_water_bytes,
            fence_bytes: stats.fence_bytes,
            stalls: stats.stalls,
            busy: stats.busy,
        }
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.store.close().map_err(|error| anyhow!(error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{load, scan};
    use std::path::Path;
    use std::time::Duration;

    fn load_options(directory: &Path, segments: u64) -> LoadOptions {
        LoadOptions {
            directory: directory.to_owned(),
            segments,
            segment_records: 2_000,
            value_bytes: 200,
            batch_records: 100,
            threads: 1,
            synced: true,
            sync_delay: Duration::ZERO,
            round_segments: 4,
            seed: 1,
            memory_bytes: None,
            scan_bytes: None,
            descriptors_max: None,
            fold: true,
            mapped: false,
            window_bytes: None,
        }
    }

    fn open_boxed(env: Env, options: &LoadOptions) -> Result<Box<dyn Target>> {
        Ok(Box::new(open(env, options)?))
    }

    #[test]
    fn a_load_takes_the_barriers_and_bytes_that_it_may() {
        // The second size of batches does not end where a generation does.
        for batch_records in [100, 150] {
            let directory = tempfile::tempdir().expect("a directory");
            let options = LoadOptions {
                batch_records,
                ..load_options(directory.path(), 8)
            };
            let row = load::run(&options, &|env| open_boxed(env, &options)).expect("measures");
            assert_eq!(row.barriers_per_commit, 1.0);
            assert!(row.barriers_per_seal <= 5.0, "{}", row.barriers_per_seal);
            assert!(
                row.written_per_user_byte <= 2.4,
                "{}",
                row.written_per_user_byte
            );
            // Lock, manifest, three logs, segments, a folded run.
            assert!(row.files <= 5 + 8 + 1 + 1, "{}", row.files);
        }
    }

    #[test]
    fn threads_share_barriers() {
        let directory = tempfile::tempdir().expect("a directory");
        let options = LoadOptions {
            threads: 8,
            batch_records: 1,
            segment_records: 500,
            sync_delay: Duration::from_millis(1),
            ..load_options(directory.path(), 1)
        };
        let row = load::run(&options, &|env| open_boxed(env, &options)).expect("measures");
        assert!(
            row.barriers_per_commit <= 0.4,
            "{}",
            row.barriers_per_commit
        );
    }

    #[test]
    fn a_scan_reads_buffers_full() {
        let directory = tempfile::tempdir().expect("a directory");
        let options = LoadOptions {
            segment_records: 500,
            ..load_options(directory.path(), 10)
        };
        let open = |env| open_boxed(env, &options);
        for row in scan::run(&options, u64::MAX, &open).expect("measures") {
            assert_eq!((row.entries, row.cursors), (5_000, 10));
            // 256 bytes a record, 64 KiB a read: 4 reads; beside that some a segment to begin with.
            assert!(
                row.reads_per_1000_entries <= 20.0,
                "{}",
                row.reads_per_1000_entries
            );
        }
    }
}
