//! sealstone: an embeddable key/value store for records written once and read at any depth.

pub mod env;
pub mod error;
pub mod sync;
