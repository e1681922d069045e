//! Fuzz targets: each a function of bytes, run by `cargo test` over `corpus/fuzz` and repeatable inputs,
//! and by a fuzzing engine as long as one likes (`fuzz/run`, `docs/testing.md`).
//!
//! One program and no library: libFuzzer's symbols are found in nothing else.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "targets read their corpus; the engine alone is held to its Env"
)]

mod dump;
mod engine;
mod filter;
mod heads;
mod log;
mod manifest;
mod options;
mod segment;
mod support;
