//! The laboratory: what would a memory policy do under a node's demand, before anybody runs the node.
//!
//! ```text
//! workload, application, tx_index ... --> record --> trace (text) --> replay x policies --> report
//!                                                      ^  schedule (events between any two)
//! ```
//!
//! It generates what two workloads of a chain write, turns that into a trace of demand, replays the trace
//! against the field's pool of entry slices in several settings and against sealstone's write region, and
//! prints what decides between them: counts and bytes, the same on every run. Nothing here is measured
//! on a clock, and nothing reaches `src/` but through its public face.
//!
//! `docs/laboratory.md` says how to read each table.

pub mod application;
pub mod bench;
pub mod chain;
pub mod command;
pub mod demand;
pub mod gopool;
pub mod policy;
pub mod published;
pub mod record;
pub mod replay;
pub mod report;
pub mod rules;
pub mod schedule;
pub mod sealstone;
pub mod tables;
mod tables_more;
pub mod trace;
pub mod verdict;
pub mod workload;
