//! The layout of the field report, to be read beside sealstone's own: a store of sealed segments with an
//! index of whole keys each, as a published Go store has it. Written from the description of its files
//! and of its lookup, not from its code.
//!
//! Segment `h` (1 is the oldest) is two files. All integers are big-endian.
//!
//! ```text
//! records, named as a segment             index, named as a run
//! +--------------------------------+      +---------------------------------------------+
//! | "SEG1", version, 0, count: 24  |      | "SIDX", version, count, bloom bytes, k: 32  |
//! +--------------------------------+      +---------------------------------------------+
//! | key 32, length 8, value        |      | key 32, offset 8, length 8   (sorted)       |
//! | ...                            |      | ...                                         |
//! +--------------------------------+      +---------------------------------------------+
//!                                         | bloom                                       |
//!                                         +---------------------------------------------+
//! ```
//!
//! A lookup asks the live tail, then the newest segments (if a filter over all their keys does not deny
//! the key), then the history, newest first. Each segment's Bloom filter is asked first: in memory, or
//! where it is not resident by one read of one byte for each of its hashes until one denies. Behind it is a
//! binary search with one read a probe, and one read of the value.
//!
//! What is resident by default are the filters of the newest segments: those from tier start
//! `floor(S/N) N - N` on, N = 20, so 21 to 40 of them; 21 at S = 100 and 1,000, which the report's counts
//! bear out.
//!
//! Left out, since no lookup of the measurement meets it: sealing, manifests, recovery, merging, sets.

mod bloom;
mod build;
mod pool;
mod store;

#[cfg(test)]
mod tests;

pub use bloom::Shape;
pub use build::build;
pub use store::{GoOptions, GoStore, IndexMode, Residency};

use sealstone::env::FileName;

use crate::keys::KEY_BYTES;

/// A key of the layout.
type Key = [u8; KEY_BYTES];

/// Bytes before the records.
const DATA_HEADER_BYTES: u64 = 24;

/// Bytes before the entries.
const INDEX_HEADER_BYTES: u64 = 32;

/// Key, offset, length.
const ENTRY_BYTES: usize = KEY_BYTES + 16;

/// Blocks between two starts of a window; each covers twice as many.
const WINDOW_BLOCKS: u64 = 20;

/// The file of the records of segment `height`.
const fn data_name(height: u64) -> FileName {
    FileName::segment(height)
}

/// The file of its index and filter.
const fn index_name(height: u64) -> FileName {
    FileName::run(height)
}

/// The oldest segment whose filter is resident by default.
const fn tier_start(segments: u64) -> u64 {
    let start = (segments / WINDOW_BLOCKS * WINDOW_BLOCKS).saturating_sub(WINDOW_BLOCKS);
    if start == 0 { 1 } else { start }
}
