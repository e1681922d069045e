//! The store as the harness sees it.

use anyhow::{Result, anyhow};
use sealstone::env::Env;
use sealstone::{Batch as StoreBatch, Durability, Keyspace, KeyspaceOptions, Options, Store};

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
            commit_barriers: Some(stats.log_syncs),
            stalls: stats.stalls,
            busy: stats.busy,
        }
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.store.close().map_err(|error| anyhow!(error))
    }
}
