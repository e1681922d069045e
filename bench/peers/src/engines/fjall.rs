//! fjall: compression off, Bloom filters of 12 bits a key, a sync a batch, a major compaction to settle.
//!
//! Outside the cache budget: the memtable (64 MiB), and with [`Pinned::All`] every filter and index.

use anyhow::Result;
use fjall::config::{
    BloomConstructionPolicy, CompressionPolicy, FilterPolicy, FilterPolicyEntry,
    PartitioningPolicy, PinningPolicy,
};
use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};

use super::{Reader, Spec, Writer, copy};
use crate::keys::Batch;

/// Which filters and indexes stay in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pinned {
    /// All, undivided.
    All,
    /// Those of the first level or two; the others, divided, share the cache.
    Default,
}

/// An open database.
pub struct Fjall {
    database: Database,
    records: Keyspace,
}

/// Creates or opens it.
pub fn create(spec: &Spec, pinned: Pinned) -> Result<Fjall> {
    let database = Database::builder(&spec.directory)
        .cache_size(spec.cache_bytes)
        .open()?;
    let records = database.keyspace("records", || options(pinned))?;
    Ok(Fjall { database, records })
}

fn options(pinned: Pinned) -> KeyspaceCreateOptions {
    let bits = FilterPolicyEntry::Bloom(BloomConstructionPolicy::BitsPerKey(12.0));
    let options = KeyspaceCreateOptions::default()
        .data_block_compression_policy(CompressionPolicy::disabled())
        .index_block_compression_policy(CompressionPolicy::disabled())
        .filter_policy(FilterPolicy::all(bits));
    match pinned {
        Pinned::Default => options,
        Pinned::All => options
            .filter_block_pinning_policy(PinningPolicy::all(true))
            .index_block_pinning_policy(PinningPolicy::all(true))
            .filter_block_partitioning_policy(PartitioningPolicy::all(false))
            .index_block_partitioning_policy(PartitioningPolicy::all(false)),
    }
}

impl Writer for Fjall {
    fn write(&mut self, batch: &Batch) -> Result<()> {
        let mut writes = self.database.batch().durability(Some(PersistMode::SyncAll));
        for (key, value) in batch.records() {
            writes.insert(&self.records, key, value);
        }
        Ok(writes.commit()?)
    }

    fn settle(&mut self) -> Result<()> {
        self.records.rotate_memtable_and_wait()?;
        Ok(self.records.major_compact()?)
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(self.database.persist(PersistMode::SyncAll)?)
    }
}

impl Reader for Fjall {
    fn get(&self, key: &[u8], out: &mut Vec<u8>) -> Result<bool> {
        let found = self.records.get(key)?;
        if let Some(value) = &found {
            copy(value, out);
        }
        Ok(found.is_some())
    }
}
