//! The store's inner state and what happens to it: commit, flush, read, recovery.
//!
//! ```text
//!  submit ---> commit lock: open generation, queue ---> leader: log write, sync, publish
//!     |                        | seal                              |
//!     | WriteOnce check        v                                   v
//!  version <--- install --- flush jobs: segment, sync, sync_dir, one manifest edit
//! ```
//!
//! Locks, in the order in which they may be taken: leader, flush, fold, filters, fill, manifest, commit,
//! registry, residency, pressure, region, the window's. Only leader, flush, fold, filters, fill and manifest are
//! held during I/O, and no reader takes one of those.
//!
//! Poison: the first failed log or manifest write or sync, and the first failed directory sync, is kept;
//! from then on nothing is written, installed or unlinked, and every write answers with it.

pub(crate) mod blanks;
pub(crate) mod check;
mod close;
mod cold;
pub(crate) mod commit;
#[cfg(test)]
mod commit_tests;
pub(crate) mod counters;
pub(crate) mod explain;
pub(crate) mod filter_job;
#[cfg(all(test, not(loom)))]
mod filter_job_tests;
mod filter_pages;
pub(crate) mod filter_set;
pub(crate) mod flush;
pub(crate) mod fold;
mod fold_job;
mod frame;
mod generations;
pub(crate) mod jobs;
#[cfg(all(test, loom))]
mod loom_tests;
pub(crate) mod multi;
pub(crate) mod open;
pub(crate) mod plan_due;
pub(crate) mod pressure;
pub(crate) mod read;
pub(crate) mod read_buffers;
pub(crate) mod recovery;
pub(crate) mod registry;
pub(crate) mod residency;
pub(crate) mod scratch;
pub(crate) mod sizes;
pub(crate) mod states;
pub(crate) mod submit;
pub(crate) mod ticket;
pub(crate) mod verify;
pub(crate) mod version;
pub(crate) mod waiting;
pub(crate) mod window;
pub(crate) mod worker;

use std::collections::{BTreeMap, VecDeque};

use crate::env::{Env, File, LockGuard};
use crate::error::{Error, ErrorKind, Result};
use crate::log::LogIdentity;
use crate::manifest::{KeyspaceEntry, ManifestWriter};
use crate::memory::{Permit, Region};
use crate::memory_stats::Accepted;
use crate::memtable::{Memtable, MemtableOptions, MemtableWriter};
use crate::options::Settings;
use crate::segment::{FileTable, SegmentParameters};
use crate::stats::OpenReport;
use crate::sync::{Arc, ArcSwap, AtomicBool, AtomicU64, Mutex, OnceLock, Ordering, RwLock, Signal};
use crate::types::{Hasher, KeyspaceId, KeyspaceKind, Sequence};
use crate::window::Window;

use blanks::Blanks;
use commit::{Leader, Queued};
use counters::Counters;
use filter_job::FilterSlot;
use filter_set::FilterSet;
use flush::FlushSlot;
use fold::FoldSlot;
use jobs::Maintenance;
use plan_due::PlanDue;
use pressure::PressureState;
use registry::Registry;
use residency::Residency;
use scratch::ScratchPool;
use version::{Generation, Version};
use window::FillJob;

/// Sizes that follow from the options, fixed at open.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    /// Frame bytes after which a generation is sealed.
    pub seal_bytes: u64,
    /// The largest frame.
    pub batch_bytes_max: u64,
    /// What every log file is allocated to.
    pub log_bytes: u64,
    /// Region bytes reserved for the flush.
    pub scratch_bytes: u64,
    /// Region bytes that stay whatever the memory pressure: with them every write comes through.
    pub floor_bytes: u64,
    /// The most bytes of records in a segment.
    pub segment_bytes: u64,
}

/// A log that the manifest names, with its space allocated, that has no frames yet.
#[derive(Debug)]
pub(crate) struct SpareLog {
    pub number: u64,
    pub file: Arc<dyn File>,
}

/// The generation that takes commits.
#[derive(Debug)]
pub(crate) struct OpenGeneration {
    pub handle: Arc<Generation>,
    pub memory: Arc<Memtable>,
    pub writer: MemtableWriter,
    pub records: u64,
    pub bytes: u64,
}

/// What the commit lock guards.
#[derive(Debug)]
pub(crate) struct CommitState {
    /// `None` right after a seal, until the next batch opens a generation.
    pub open: Option<OpenGeneration>,
    pub queue: VecDeque<Queued>,
    pub spares: VecDeque<SpareLog>,
    /// Why the last attempt to make a spare failed.
    pub spare_failure: Option<Error>,
    /// How many flushes went on without the spare that they owe.
    pub spares_missing: u32,
    pub next_generation: u64,
    /// The last sequence given out.
    pub issued: Sequence,
    pub closing: bool,
    /// Who waits for memory.
    pub turns: waiting::Turns,
    /// What got in and what did not, by keyspace.
    pub accepted: Accepted,
}

/// The inner state that all handles of one store share.
#[derive(Debug)]
pub(crate) struct Engine {
    pub env: Env,
    pub settings: Settings,
    pub sizes: Sizes,
    pub hasher: Arc<Hasher>,
    pub family_id: u128,
    pub store_id: u128,
    pub incarnation: u64,
    /// Tells handles of this opening from those of others.
    pub token: u64,
    pub parameters: SegmentParameters,
    pub region: Region,
    pub scan_region: Region,
    pub files: Arc<FileTable>,
    pub leader: Mutex<Leader>,
    pub manifest: Mutex<Option<ManifestWriter>>,
    pub flush: Mutex<FlushSlot>,
    pub fold: Mutex<FoldSlot>,
    pub commit: Mutex<CommitState>,
    pub registry: Mutex<Registry>,
    pub filters: Mutex<FilterSlot>,
    pub residency: Mutex<Residency>,
    /// When lookups that were counted make a plan of it due.
    pub plan_due: Arc<PlanDue>,
    pub window: Option<Window>,
    pub fill: Mutex<Option<FillJob>>,
    pub maintenance: Mutex<Maintenance>,
    pub keyspaces: Mutex<BTreeMap<String, KeyspaceEntry>>,
    /// Held while a keyspace is being created, so that it is created once.
    pub creating: Mutex<()>,
    pub version: ArcSwap<Version>,
    pub filter_set: ArcSwap<FilterSet>,
    /// The last sequence given out, readable without the commit lock.
    pub issued: AtomicU64,
    pub visible: AtomicU64,
    pub durable: AtomicU64,
    /// The newest sequence whose generation has left memory.
    pub retired_through: AtomicU64,
    pub next_number: AtomicU64,
    pub poison: OnceLock<Error>,
    pub closed: AtomicBool,
    /// Raised when a generation retires, a spare log is made, a pin goes, a writer no longer waits, or the
    /// store fails or closes. Not when others give memory back otherwise: see `waiting`.
    pub progress: Signal,
    /// Raised when a quantum of a job has ended.
    pub stepped: Signal,
    /// Raised when a job may have become runnable.
    pub work: Arc<worker::WorkSignal>,
    pub counters: Counters,
    pub pressure: PressureState,
    /// Memory that writes use again.
    pub scratch: ScratchPool,
    /// Memory that generations use again.
    pub blanks: Blanks,
    pub lock: Mutex<Option<Box<dyn LockGuard>>>,
    /// Held for reading by every job's quantum: closing waits for it.
    pub gate: RwLock<()>,
    pub report: OpenReport,
    /// Read-only: how many logs the manifest names, and their file bytes.
    pub stored_logs: (u64, u64),
    /// The flush's share of the region, held for good.
    pub _scratch: Option<Permit>,
}

impl Engine {
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Refuses when the store is closed.
    pub fn check_open(&self, operation: &'static str) -> Result<()> {
        if self.is_closed() {
            return Err(Error::new(
                ErrorKind::Closed,
                operation,
                "this handle's store is closed",
            ));
        }
        Ok(())
    }

    /// Refuses when the store takes no writes.
    pub fn check_writable(&self, operation: &'static str) -> Result<()> {
        self.check_open(operation)?;
        if self.settings.read_only {
            let detail = "the store was opened read-only";
            return Err(Error::new(ErrorKind::Unsupported, operation, detail));
        }
        match self.poison.get() {
            Some(cause) => Err(cause.clone()),
            None => Ok(()),
        }
    }

    /// Keeps the first failure after which nothing may be written, fails all who wait, and returns what
    /// every write answers from now on.
    pub fn poison(&self, cause: &Error) -> Error {
        let kept = self.poison.get_or_init(|| cause.poison()).clone();
        let queue = std::mem::take(&mut self.commit.lock().queue);
        for queued in queue {
            queued.fail(&kept);
        }
        self.progress.raise();
        self.work.0.raise();
        kept
    }

    pub fn visible(&self) -> Sequence {
        self.visible.load(Ordering::Acquire)
    }

    /// A file number that no file ever had.
    pub fn take_number(&self) -> u64 {
        self.next_number.fetch_add(1, Ordering::Relaxed)
    }

    pub fn log_identity(&self, number: u64) -> LogIdentity {
        LogIdentity {
            store_id: self.store_id,
            number,
            incarnation: self.incarnation,
        }
    }

    pub fn memtable_options(&self, generation: u64) -> MemtableOptions {
        memtable_options(&self.settings, &self.hasher, generation)
    }

    pub fn keyspace_kind(&self, keyspace: KeyspaceId) -> KeyspaceKind {
        keyspace.kind_or_mutable()
    }
}

/// The options of the memtable of a generation: the height seed differs by generation, so that no
/// pattern of keys meets the same towers twice.
pub(crate) fn memtable_options(
    settings: &Settings,
    hasher: &Hasher,
    generation: u64,
) -> MemtableOptions {
    let mixed = hasher.hash(KeyspaceId(0), &generation.to_le_bytes());
    MemtableOptions {
        block_records: settings.block_records,
        records_max: settings.records_max(),
        height_seed: mixed.0,
    }
}
