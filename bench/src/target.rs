//! What a measurement needs of an engine: a few calls, so that the harness is about measuring only.

use anyhow::Result;
use sealstone::env::Env;

use crate::keys::Batch;

/// Which way a scan goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// In key order.
    Forward,
    /// Against it.
    Reverse,
}

impl Direction {
    /// The name in figures.
    pub fn name(self) -> &'static str {
        match self {
            Self::Forward => "forward",
            Self::Reverse => "reverse",
        }
    }
}

/// What a scan did.
#[derive(Clone, Copy, Debug, Default)]
pub struct Scanned {
    /// Entries seen.
    pub entries: u64,
    /// Cursors that it took.
    pub cursors: u64,
}

/// What an engine counts itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct Facts {
    /// Generations sealed so far.
    pub seals: u64,
    /// Barriers that commits asked for, if the engine tells them from others.
    pub commit_barriers: Option<u64>,
    /// Barriers of folds, that of each one's manifest edit included.
    pub fold_barriers: u64,
    /// Bytes of filters in memory.
    pub filter_bytes: u64,
    /// Bytes of page fences in memory.
    pub fence_bytes: u64,
    /// The most of the write region that was in use at once.
    pub write_region_bytes: u64,
    /// Writes that had to wait for memory or a flush.
    pub stalls: u64,
    /// Writes that were refused with `Busy` and tried again.
    pub busy: u64,
}

/// An open store under measurement.
pub trait Target: Sync {
    /// Commits the batch; returns once it is visible, and durable if the run says so.
    fn write_batch(&self, batch: &Batch) -> Result<()>;
    /// Returns once all commits are durable and background work has nothing left to do.
    fn settle(&self) -> Result<()>;
    /// Reads up to `entries_max` entries from one end.
    fn scan(&self, direction: Direction, entries_max: u64) -> Result<Scanned>;
    /// What it counted so far.
    fn facts(&self) -> Facts;
    /// Closes the store; the directory can be opened again after it.
    fn close(self: Box<Self>) -> Result<()>;
}

/// Opens the store in an environment, creating it where there is none.
pub type Open<'a> = &'a dyn Fn(Env) -> Result<Box<dyn Target>>;
