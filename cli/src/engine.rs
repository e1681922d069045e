//! The engine's names as the command uses them.

pub use sealstone::env::Env;
pub use sealstone::env::counting::{Counters, Counts};
pub use sealstone::explain::{Answer, Cost, Explanation, FilterAnswer, Step};
pub use sealstone::{
    Background, Batch, Durability, Error, Iter, Keyspace, KeyspaceKind, KeyspaceOptions,
    MemoryStats, Options, Result, Store, VerifyReport,
};
