//! To come.

pub mod identity;
