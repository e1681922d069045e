//! RocksDB: compression off, Bloom filters of 12 bits a key, a synced write a batch, a compaction of the
//! whole range to settle.
//!
//! Outside the cache budget: the memtables (64 MiB each), and with [`Index::Outside`] every filter and index.

use anyhow::Result;
use rocksdb::{
    BlockBasedOptions, BottommostLevelCompaction, Cache, CompactOptions, DB, DBCompressionType,
    DataBlockIndexType, FlushOptions, Options, WriteBatch, WriteOptions,
};

use super::{Reader, Spec, Writer, copy};
use crate::keys::Batch;

/// Where filters and indexes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Index {
    /// With the open files: all in memory, without a bound.
    Outside,
    /// In the cache, before data, those of the first level pinned.
    Cached,
}

/// An open database.
pub struct Rocks {
    database: DB,
}

/// Creates or opens it.
pub fn create(spec: &Spec, index: Index) -> Result<Rocks> {
    let mut table = BlockBasedOptions::default();
    table.set_block_cache(&Cache::new_lru_cache(usize::try_from(spec.cache_bytes)?));
    table.set_block_size(4 << 10);
    table.set_bloom_filter(12.0, false);
    table.set_data_block_index_type(DataBlockIndexType::BinaryAndHash);
    if index == Index::Cached {
        table.set_cache_index_and_filter_blocks(true);
        table.set_pin_l0_filter_and_index_blocks_in_cache(true);
    }
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_compression_type(DBCompressionType::None);
    options.set_bottommost_compression_type(DBCompressionType::None);
    options.set_write_buffer_size(64 << 20);
    options.set_optimize_filters_for_hits(false);
    options.set_block_based_table_factory(&table);
    let database = DB::open(&options, &spec.directory)?;
    Ok(Rocks { database })
}

impl Writer for Rocks {
    fn write(&mut self, batch: &Batch) -> Result<()> {
        let mut writes = WriteBatch::default();
        for (key, value) in batch.records() {
            writes.put(key, value);
        }
        let mut options = WriteOptions::default();
        options.set_sync(true);
        Ok(self.database.write_opt(writes, &options)?)
    }

    fn settle(&mut self) -> Result<()> {
        let mut flush = FlushOptions::default();
        flush.set_wait(true);
        self.database.flush_opt(&flush)?;
        let mut options = CompactOptions::default();
        options.set_bottommost_level_compaction(BottommostLevelCompaction::Force);
        self.database
            .compact_range_opt(None::<&[u8]>, None::<&[u8]>, &options);
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.database.cancel_all_background_work(true);
        Ok(())
    }
}

impl Reader for Rocks {
    fn get(&self, key: &[u8], out: &mut Vec<u8>) -> Result<bool> {
        let found = self.database.get_pinned(key)?;
        if let Some(value) = &found {
            copy(value, out);
        }
        Ok(found.is_some())
    }
}
