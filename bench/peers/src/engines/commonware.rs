//! commonware-storage's archives, write-once stores addressed by an index and a key: records' numbers are
//! the indexes, lookups are by key, a sync ends a batch.
//!
//! *Prunable*: journals, and an index of all keys in memory, outside the cache budget, rebuilt at open.
//! *Immutable*: a hash table on disk. Both are asynchronous: lookups run on the runtime's main thread, reads
//! on its blocking ones. The runtime's start, with its flush of the file system, is not part of an open.

use std::num::{NonZeroU64, NonZeroUsize};

use anyhow::{Context as _, Result, anyhow};
use bytes::Bytes;
use commonware_runtime::buffer::paged::{CacheRef, page_size};
use commonware_runtime::{Runner as _, tokio};
use commonware_storage::archive::{Archive, Identifier, immutable, prunable};
use commonware_storage::translator::EightCap;
use commonware_utils::sequence::FixedBytes;
use futures_executor::block_on;

use super::{Place, Reader, Spec, Writer, copy};
use crate::keys::{Batch, KEY_BYTES};

/// The context of its runtime.
pub type Context = tokio::Context;

type Key = FixedBytes<KEY_BYTES>;

/// Pages of its cache on disk, their checksums included.
const PAGE_BYTES: u32 = 4096;

/// Write and replay buffers.
const BUFFER_BYTES: usize = 1 << 20;

/// Sections of that many segments' records: a file a section and journal.
const SECTION_SEGMENTS: u64 = 10;

/// An archive; it is consumed by each write and comes back with its success.
pub struct Store<A> {
    archive: Option<A>,
    next: u64,
}

/// Runs `body` inside the runtime.
pub fn within<T>(spec: &Spec, body: impl FnOnce(Place) -> Result<T>) -> Result<T> {
    let config = tokio::Config::new()
        .with_worker_threads(2)
        .with_storage_directory(&spec.directory);
    // Lookups block inside the one poll of this future, so its budget of operations is never renewed: with
    // one, the runtime would stop waking it after some hundred.
    tokio::Runner::new(config).start(|context| {
        ::tokio::task::unconstrained(async move { body(Place::Commonware(Box::new(context))) })
    })
}

fn context(place: Place) -> Result<Context> {
    match place {
        Place::Commonware(context) => Ok(*context),
        Place::Plain => Err(anyhow!("no runtime around this engine")),
    }
}

fn cache(spec: &Spec) -> Result<CacheRef> {
    let pages = usize::try_from(spec.cache_bytes / u64::from(PAGE_BYTES))?;
    let pages = NonZeroUsize::new(pages).context("a cache of no page")?;
    Ok(CacheRef::new(page_size(PAGE_BYTES), pages))
}

fn section_records(spec: &Spec) -> Result<NonZeroU64> {
    NonZeroU64::new(SECTION_SEGMENTS * spec.segment_records).context("segments of no record")
}

const fn buffer() -> NonZeroUsize {
    match NonZeroUsize::new(BUFFER_BYTES) {
        Some(bytes) => bytes,
        None => NonZeroUsize::MIN,
    }
}

/// Creates or opens one with its index in memory.
pub fn prunable(
    spec: &Spec,
    place: Place,
) -> Result<Store<prunable::Archive<EightCap, Context, Key, Bytes>>> {
    let config = prunable::Config {
        translator: EightCap,
        metadata_partition: "metadata".into(),
        key_partition: "keys".into(),
        key_page_cache: cache(spec)?,
        value_partition: "values".into(),
        compression: None,
        codec_config: (..).into(),
        items_per_section: section_records(spec)?,
        key_write_buffer: buffer(),
        value_write_buffer: buffer(),
        replay_buffer: buffer(),
    };
    let archive = block_on(prunable::Archive::init(context(place)?, config))?;
    Ok(Store::new(archive))
}

/// Creates or opens one with its index on disk.
pub fn immutable(
    spec: &Spec,
    place: Place,
) -> Result<Store<immutable::Archive<Context, Key, Bytes>>> {
    // Sized to the data, as one who knows how much is coming would: about four keys an entry.
    let entries = u32::try_from(spec.records / 4)?.next_power_of_two();
    let config = immutable::Config {
        metadata_partition: "metadata".into(),
        freezer_table_partition: "table".into(),
        freezer_table_initial_size: entries,
        freezer_table_resize_frequency: 4,
        freezer_table_resize_chunk_size: 16_384,
        freezer_key_partition: "keys".into(),
        freezer_key_page_cache: cache(spec)?,
        freezer_value_partition: "values".into(),
        freezer_value_target_size: 100 << 20,
        freezer_value_compression: None,
        ordinal_partition: "ordinal".into(),
        items_per_section: section_records(spec)?,
        freezer_key_write_buffer: buffer(),
        freezer_value_write_buffer: buffer(),
        ordinal_write_buffer: buffer(),
        replay_buffer: buffer(),
        codec_config: (..).into(),
    };
    let archive = block_on(immutable::Archive::init(context(place)?, config))?;
    Ok(Store::new(archive))
}

impl<A> Store<A> {
    fn new(archive: A) -> Self {
        Self {
            archive: Some(archive),
            next: 0,
        }
    }
}

impl<A: Archive<Key = Key, Value = Bytes>> Writer for Store<A> {
    fn write(&mut self, batch: &Batch) -> Result<()> {
        let mut archive = self.archive.take().context("an earlier write failed")?;
        block_on(async {
            for (key, value) in batch.records() {
                let key = Key::new(key.try_into()?);
                let value = Bytes::copy_from_slice(value);
                archive = archive.put(self.next, key, &value).await?;
                self.next += 1;
            }
            self.archive = Some(archive.sync().await?);
            Ok(())
        })
    }

    fn settle(&mut self) -> Result<()> {
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

impl<A: Archive<Key = Key, Value = Bytes>> Reader for Store<A> {
    fn get(&self, key: &[u8], out: &mut Vec<u8>) -> Result<bool> {
        let key = Key::new(key.try_into()?);
        let archive = self.archive.as_ref().context("an earlier write failed")?;
        let found = block_on(archive.get(Identifier::Key(&key)))?;
        if let Some(value) = &found {
            copy(value, out);
        }
        Ok(found.is_some())
    }
}
