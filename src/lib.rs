//! sealstone: an embeddable key/value store for records written once and read at any depth.

pub mod env;
pub mod error;
pub mod sync;
pub mod types;

#[doc(hidden)]
pub mod filter;
#[doc(hidden)]
pub mod flush;
#[doc(hidden)]
pub mod index;
#[doc(hidden)]
pub mod log;
#[doc(hidden)]
pub mod maintenance;
#[doc(hidden)]
pub mod manifest;
#[doc(hidden)]
pub mod memory;
#[doc(hidden)]
pub mod memtable;
#[doc(hidden)]
pub mod segment;
