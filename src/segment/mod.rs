//! Segments: immutable sealed files of records in (keyspace, key, newest first) order, each with its own
//! index and filters.
//!
//! One file holds records and index, so the two can't disagree. `layout` draws the file, `footer` the
//! footer, `record` a record, `fences` the key fences; pages are `index::page`, filters `filter`.
//!
//! * `writer`, `finish`: records stream in, the rest follows in bounded steps;
//! * `reader`: a sealed segment, its first touch, its filters;
//! * `lookup`, `buffers`: one key, by hash: an index page, then the record; `ahead`: the reads of several keys
//!   together;
//! * `gather`, `part`: the entries of a hash range, and the index of a folded run made from them;
//! * `cursor`, `seek`: records in key order, both ways;
//! * `verify`: everything that can be checked in a file, damage by damage;
//! * `files`: which files are open.
//!
//! Invariants:
//! * Nothing read is believed before its checksum, and no length before it is compared with what the
//!   file can hold. Damage is a typed error with file and offset, never another answer.
//! * All checksums are seeded by the segment's identity and the place: bytes of another file or another
//!   place are damage.
//! * A segment changes nothing after it is sealed: readers need no lock.

mod ahead;
mod buffers;
pub mod cursor;
pub mod fences;
pub mod files;
mod filter_load;
pub mod finish;
pub mod footer;
pub mod gather;
pub mod identity;
pub mod layout;
pub mod lookup;
pub mod meta;
pub mod output;
pub mod part;
pub mod reader;
pub mod record;
mod seek;
pub mod verify;
mod verify_index;
mod window;
pub mod writer;

#[cfg(test)]
mod tests;

pub use ahead::ReadAhead;
pub use buffers::{LookupBuffers, RECORD_BYTES_KEPT, RecordBytes};
pub use cursor::{CursorOptions, RecordRef, SegmentCursor};
pub use files::{FileSlot, FileTable, Mapping, OpenFile, Slotted};
pub use filter_load::FilterLoad;
pub use finish::SegmentSummary;
pub use footer::{Footer, SegmentCounts};
pub use gather::PageKeeper;
pub use identity::SegmentIdentity;
pub use lookup::{Lookup, Wanted};
pub use meta::{PackedMeta, SegmentMeta};
pub use part::{PartBuffers, PartPlan, PartWriter};
pub use reader::{Filtered, Segment, Tail};
pub use verify::{Damage, VerifyReport};
pub use writer::{SegmentParameters, SegmentScratch, SegmentWriter};

/// What reading has cost: plain fields of the caller, so that counting is no shared write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadCounts {
    /// Reads asked of the backend.
    pub reads: u64,
    /// Bytes of those reads.
    pub bytes: u64,
    /// Accesses to mappings in place of reads.
    pub mapped_reads: u64,
    /// Bytes of those accesses.
    pub mapped_bytes: u64,
    /// Files opened.
    pub opens: u64,
    /// Tails read, or tried to, because nobody had touched the file.
    pub first_touches: u64,
    /// Filters tested.
    pub filter_tests: u64,
    /// Segments whose index page was read.
    pub candidates: u64,
    /// Those among them that did not have the key.
    pub false_candidates: u64,
    /// Keys found by the window table.
    pub window_hits: u64,
    /// Records that the table named and that were not the wanted one.
    pub window_false_candidates: u64,
    /// Runs that need not be asked because the table covers them.
    pub window_runs_skipped: u64,
}

impl ReadCounts {
    /// What was read, without what was learned: of a lookup that stops and will be made again.
    #[must_use]
    pub const fn of_reads(self) -> Self {
        Self {
            filter_tests: 0,
            candidates: 0,
            false_candidates: 0,
            window_hits: 0,
            window_false_candidates: 0,
            window_runs_skipped: 0,
            ..self
        }
    }
}
