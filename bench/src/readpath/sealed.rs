//! The stores under measurement, as the harness sees them. What the engine's options can't say is refused
//! here, in one place.

use anyhow::{Result, bail, ensure};
use sealstone::env::Env;
use sealstone::{
    Batch as StoreBatch, Durability, FilterPolicy, Fold, Keyspace, KeyspaceOptions, Options,
    ReadMode, Store,
};

use super::case::{Layout, Mode, Opening, Policy, Shape};
use crate::engine::KEYSPACE;
use crate::go::{GoOptions, GoStore};
use crate::keys::{Batch, Source};

/// What the engine does if it is told nothing.
pub const DEFAULT_POLICY: Policy = Policy::Planned;

/// What a store counts and has.
#[derive(Clone, Copy, Debug, Default)]
pub struct Facts {
    /// Indexes that a lookup may have to ask.
    pub runs: u64,
    /// Sealed segments.
    pub segments: u64,
    /// Bytes of filters in memory.
    pub filter_bytes: u64,
    /// Bytes of page fences in memory.
    pub fence_bytes: u64,
    /// Indexes looked into.
    pub candidates: u64,
    /// In vain.
    pub false_candidates: u64,
    /// Files opened for lookups.
    pub opens: u64,
    /// The most files open at once.
    pub descriptor_cap: u64,
    /// Generations flushed.
    pub flushes: u64,
    /// Folds.
    pub folds: u64,
}

/// A store that answers lookups.
pub trait Reader: Sync {
    /// Puts the value of the key into `value`; false if there is none.
    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool>;
    /// What it counted so far.
    fn facts(&self) -> Facts;
    /// Commits records beside the lookups.
    fn write(&self, batch: &Batch) -> Result<()>;
}

/// The engine's options for a measurement.
pub fn options(shape: &Shape, opening: &Opening) -> Result<Options> {
    let mut options = Options::new()
        .cold_reads_ahead(opening.cold_reads_ahead)
        .seal_records(u32::try_from(shape.segment_records)?)
        .filter_budget_bytes(opening.budget_bytes);
    if !shape.fold {
        options = options.fold(Fold::Off);
    }
    if let Some(files) = opening.descriptors_max {
        options = options.descriptors_max(files);
    }
    if let Some(bytes) = opening.window_bytes {
        options = options.window_bytes(bytes);
    }
    options = options.filter_policy(match opening.policy.unwrap_or(DEFAULT_POLICY) {
        Policy::Planned => FilterPolicy::Planned,
        Policy::NewestFirst => FilterPolicy::NewestFirst,
        Policy::WindowOnly => FilterPolicy::WindowOnly,
        Policy::All => FilterPolicy::All,
        Policy::None => FilterPolicy::None,
    });
    Ok(match opening.mode {
        Mode::Pread => options,
        Mode::Mmap => options.read_mode(ReadMode::Mmap),
        Mode::Resident => bail!("the engine has no option for the read mode Resident"),
    })
}

/// An open engine.
#[derive(Debug)]
pub struct Sealed {
    /// The store.
    pub store: Store,
    records: Keyspace,
}

impl Sealed {
    /// Opens or creates the store.
    pub fn open(env: Env, shape: &Shape, opening: &Opening) -> Result<Self> {
        let store = Store::open_with(env, options(shape, opening)?)?;
        let records = store.keyspace(KEYSPACE, KeyspaceOptions::mutable())?;
        Ok(Self { store, records })
    }

    /// Returns once background work has nothing left to do.
    pub fn settle(&self) -> Result<()> {
        self.store.sync()?;
        Ok(self.store.drain()?)
    }
}

impl Reader for Sealed {
    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        Ok(self.records.get_into(key, value)?)
    }

    fn facts(&self) -> Facts {
        let stats = self.store.stats();
        Facts {
            runs: stats.runs,
            segments: stats.segments,
            filter_bytes: stats.filter_bytes,
            fence_bytes: stats.fence_bytes,
            candidates: stats.candidates,
            false_candidates: stats.false_candidates,
            opens: stats.opens,
            descriptor_cap: self.store.audit().descriptors_max,
            flushes: stats.flushed_segments,
            folds: stats.folds,
        }
    }

    fn write(&self, batch: &Batch) -> Result<()> {
        let mut writes = StoreBatch::with_capacity(batch.len());
        for (key, value) in batch.records() {
            writes.put(&self.records, key, value);
        }
        self.store.write(writes, Durability::Buffered)?;
        Ok(())
    }
}

/// The report's layout, open.
#[derive(Debug)]
struct GoReader {
    store: GoStore,
    options: GoOptions,
}

impl Reader for GoReader {
    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        self.store.get(key, value)
    }

    fn facts(&self) -> Facts {
        let (candidates, false_candidates) = self.store.searches();
        Facts {
            runs: self.options.segments,
            segments: self.options.segments,
            filter_bytes: self.store.filter_bytes(),
            candidates,
            false_candidates,
            opens: self.store.opens(),
            descriptor_cap: self.options.files_max,
            ..Facts::default()
        }
    }

    fn write(&self, _: &Batch) -> Result<()> {
        bail!("--layout go is only read")
    }
}

/// Opens a store that was built, everything in memory that belongs there.
pub fn open(env: Env, shape: &Shape, opening: &Opening) -> Result<Box<dyn Reader>> {
    match shape.layout {
        Layout::Sealstone => {
            let sealed = Sealed::open(env, shape, opening)?;
            sealed.settle()?;
            let segments = sealed.facts().segments;
            ensure!(
                segments == shape.segments,
                "the store has {segments} segments, not {}",
                shape.segments
            );
            Ok(Box::new(sealed))
        }
        Layout::Go => open_go(env, shape, shape.segments, opening),
    }
}

/// Opens the report's layout: so many segments, and the records of `shape` that are not sealed.
fn open_go(env: Env, shape: &Shape, segments: u64, opening: &Opening) -> Result<Box<dyn Reader>> {
    let limit = env.vfs.descriptor_limit() * 3 / 4;
    let options = GoOptions {
        segments,
        residency: opening.go_residency()?,
        index: opening.go_index(),
        files_max: opening.descriptors_max.map_or(limit, u64::from),
    };
    let source = Source::new(shape.seed, shape.value_bytes);
    let count = shape.memtable_records;
    let tail = source.batches(shape.sealed_records(), count, count.max(1));
    let store = GoStore::open(env, &options, &tail)?;
    Ok(Box::new(GoReader { store, options }))
}

/// A store that has the records in memory and nothing else: what a lookup costs beside all segments.
pub fn open_memory_only(shape: &Shape, opening: &Opening) -> Result<Box<dyn Reader>> {
    let env = Env::in_memory();
    if shape.layout == Layout::Go {
        return open_go(env, shape, 0, opening);
    }
    let sealed = Sealed::open(env, shape, opening)?;
    let source = Source::new(shape.seed, shape.value_bytes);
    for batch in source.batches(shape.sealed_records(), shape.memtable_records, 100) {
        sealed.write(&batch)?;
    }
    sealed.settle()?;
    Ok(Box::new(sealed))
}
