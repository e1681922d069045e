//! sealstone: an embeddable key/value store for records written once and read at any depth.

pub mod env;
pub mod error;
pub mod sync;
pub mod types;

mod batch;
mod engine;
mod iter;
#[cfg(test)]
mod iter_tests;
mod keyspace;
mod options;
mod snapshot;
mod stats;
mod store;
mod value;

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

pub use batch::{Batch, Bytes, FillError};
pub use engine::jobs::{Job, Progress};
pub use engine::ticket::Ticket;
pub use error::{Error, ErrorKind, PinInfo, Result};
pub use iter::Iter;
pub use keyspace::{Keyspace, KeyspaceInfo};
pub use options::{Background, Durability, KeyspaceOptions, Options};
pub use snapshot::Snapshot;
pub use stats::{Audit, Cut, MemoryStats, OpenReport, RunAudit, Stats};
pub use store::Store;
pub use types::{KeyspaceId, KeyspaceKind, Sequence};
pub use value::Value;
