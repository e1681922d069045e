//! sealstone: an embeddable key/value store for records written once and read at any depth.
//!
//! A [`Store`] is a directory with one writing process. It holds [`Keyspace`]s, named maps of byte
//! strings: write-once ones, in which a key keeps its first value, and mutable ones, in which the last
//! write wins. A [`Batch`] changes any of them at once: it becomes visible and durable as a whole.
//!
//! ```
//! use sealstone::{Batch, Durability, KeyspaceOptions, Options, Store};
//!
//! # let directory = tempfile::tempdir()?;
//! # let path = directory.path();
//! let store = Store::open(path, Options::new())?;
//! let blocks = store.keyspace("blocks", KeyspaceOptions::write_once())?;
//! let heights = store.keyspace("heights", KeyspaceOptions::mutable())?;
//!
//! let mut batch = Batch::new();
//! batch.put(&blocks, b"00ab", b"the block");
//! batch.put(&heights, 7u32.to_be_bytes(), b"00ab");
//! store.write(batch, Durability::Synced)?;
//!
//! assert_eq!(blocks.get(b"00ab")?.as_deref(), Some(&b"the block"[..]));
//! let (_height, tip) = heights.iter()?.next_back().expect("one record")?;
//! assert_eq!(tip, b"00ab");
//! store.close()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # How it works
//!
//! Commits go to a log and to memory. What was written between two seals is a *generation*; jobs in
//! the background write it to *segments*, immutable files of sorted records with an index and filters.
//! A lookup in a sealed segment takes two reads, one of the index and one of the record, or only that of the
//! record while the segment is among the newest, which a table in memory covers; an absent key takes none
//! where the table or the filters, held in memory under a budget, say so.
//!
//! Memory is one region of fixed size: what does not fit is refused, as [`ErrorKind::Busy`] or
//! [`ErrorKind::TooLarge`], before it has any effect. Everything read from disk is under a checksum;
//! damage is [`ErrorKind::Corruption`] with file and offset, never another answer.
//!
//! # Where to start
//!
//! * [`Store::open`] and [`Options`]: all sizes, with their defaults.
//! * [`Store::write`], and [`Durability`] for what an acknowledgement means; [`Store::submit`] and
//!   [`Store::commit_step`] to queue batches and write them as one group.
//! * [`Keyspace::get`], [`Keyspace::range`], and [`Store::snapshot`] for a view that stays.
//! * [`ErrorKind`]: what can go wrong; every [`Error`] says what to do.
//! * [`Store::stats`] and [`Store::verify`]: what a store is made of, and whether it is whole;
//!   [`Keyspace::explain`]: what the lookup of a key does, and what each step costs.
//! * [`Background::Manual`] with [`Store::runnable`] and [`Store::run`], to step jobs yourself, and
//!   [`env::Env`], behind which directory, clock and randomness can be replaced.

pub mod env;
pub mod error;
pub mod explain;
pub mod sync;
pub mod types;

mod batch;
mod engine;
mod iter;
#[cfg(test)]
mod iter_tests;
mod keyspace;
mod memory_stats;
mod options;
mod snapshot;
mod stats;
mod store;
mod value;
mod verify;

#[doc(hidden)]
pub mod filter;
#[doc(hidden)]
pub mod flush;
#[doc(hidden)]
pub mod index;
#[doc(hidden)]
pub mod log;
#[doc(hidden)]
pub mod manifest;
#[doc(hidden)]
pub mod memory;
#[doc(hidden)]
pub mod memtable;
#[doc(hidden)]
pub mod segment;
#[doc(hidden)]
pub mod window;

pub use batch::{Batch, Bytes, FillError};
pub use engine::jobs::{Job, Progress};
pub use engine::ticket::Ticket;
pub use error::{Error, ErrorKind, PinInfo, Result};
pub use filter::FilterPolicy;
pub use iter::Iter;
pub use keyspace::{Keyspace, KeyspaceInfo};
pub use memory::{BufferCounts, KeptCounts, PermitCounts};
pub use memory_stats::{
    BufferStats, CallerStats, CopyStats, KeptStats, KeyspaceMemory, MemoryCounters, PressureStats,
};
pub use options::{Background, Durability, Fold, KeyspaceOptions, Options, ReadMode};
pub use snapshot::Snapshot;
pub use stats::{
    Audit, Cut, MemoryStats, OpenReport, ResidentFilters, RunAudit, StallStats, Stats,
};
pub use store::Store;
pub use types::{KeyspaceId, KeyspaceKind, Sequence};
pub use value::Value;
pub use verify::{Damage, VerifyProgress, VerifyReport};

/// The example of the README, compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
