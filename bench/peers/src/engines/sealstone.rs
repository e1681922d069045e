//! sealstone: the defaults, with all memory in the budget and a generation of as many records as asked.
//!
//! The budget holds everything: half of it is the write region, the rest filters, scans and the window
//! table. It has no cache of values.

use anyhow::Result;
use sealstone::{
    Batch as StoreBatch, Durability, Keyspace, KeyspaceOptions, Options, ReadMode, Store,
};

use super::{Reader, Spec, Writer};
use crate::keys::Batch;

/// An open store.
pub struct Own {
    store: Store,
    records: Keyspace,
}

/// Creates it.
pub fn create(spec: &Spec) -> Result<Own> {
    open(spec, ReadMode::Pread)
}

/// Opens it with that way of reading.
pub fn open(spec: &Spec, mode: ReadMode) -> Result<Own> {
    let records = u32::try_from(spec.segment_records)?;
    let batch_records = u32::try_from(spec.batch_records)?;
    let options = Options::new()
        .memory_bytes(spec.cache_bytes)
        .seal_records(records)
        .batch_records_max(records.max(batch_records))
        .read_mode(mode);
    let store = Store::open(&spec.directory, options)?;
    let records = store.keyspace("records", KeyspaceOptions::mutable())?;
    Ok(Own { store, records })
}

impl Writer for Own {
    fn write(&mut self, batch: &Batch) -> Result<()> {
        let mut writes = StoreBatch::with_capacity(batch.len());
        for (key, value) in batch.records() {
            writes.put(&self.records, key, value);
        }
        self.store.write(writes, Durability::Synced)?;
        Ok(())
    }

    fn settle(&mut self) -> Result<()> {
        self.store.sync()?;
        Ok(self.store.drain()?)
    }

    fn close(self: Box<Self>) -> Result<()> {
        drop(self.records);
        Ok(self.store.close()?)
    }
}

impl Reader for Own {
    fn get(&self, key: &[u8], out: &mut Vec<u8>) -> Result<bool> {
        Ok(self.records.get_into(key, out)?)
    }
}
