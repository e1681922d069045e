//! The engine's names as the command uses them.

pub use sealstone::env::Env;
pub use sealstone::env::counting::{Counters, Counts};
pub use sealstone::{
    Batch, Durability, Error, Iter, Keyspace, KeyspaceKind, KeyspaceOptions, MemoryStats, Options,
    ResidentFilters, Result, Stats, Store, VerifyReport,
};
