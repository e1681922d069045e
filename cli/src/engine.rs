//! The engine's names as the command uses them.

pub use sealstone::env::Env;
pub use sealstone::env::counting::{Counters, Counts};
pub use sealstone::explain::{Answer, Cost, Explanation, FilterAnswer, Step};
pub use sealstone::{
    Background, Batch, BufferStats, CallerStats, Durability, Error, Iter, KeptStats, Keyspace,
    KeyspaceKind, KeyspaceOptions, Options, PinInfo, ResidentFilters, Result, Stats, Store,
    VerifyReport,
};
