//! The engine's names as the command uses them: the one place to change when its store lands.

pub use crate::fake::{
    Batch, Durability, Iter, Keyspace, KeyspaceOptions, Options, Store, VerifyReport,
};
pub use sealstone::error::{Error, ErrorKind, Result};
pub use sealstone::types::KeyspaceKind;
