//! The write-ahead log: one file per generation, holding frames of commits.
//!
//! ```text
//! file = header (64) | frame | frame | ... | seal frame | zeros up to the allocated length
//! ```
//!
//! Invariants:
//! * a file is created, allocated and synced before the manifest names it, and is never continued by
//!   a later open: at one place of one file a frame is written at most once;
//! * sequences are consecutive; the last frame of a finished log is its seal, which counts the rest;
//! * each frame header says how far the history was durable when it was written (its *mark*), and its
//!   checksum binds it to store, file number, incarnation and offset: what an earlier file left on
//!   the same blocks, or a write gone astray, is no frame.
//!
//! Crash argument. A power cut may keep any subset of the sectors written since the last sync, so the
//! first damaged frame may be followed by whole ones. Those that follow were not acknowledged either,
//! unless one of them carries a mark at or above the damaged place: then that place had been synced,
//! a power cut can't explain the damage, and recovery refuses instead of forgetting commits. The
//! manifest's own mark for the log serves in the same way where no later frame exists.

pub mod frame;
pub mod header;
pub mod reader;
pub mod record;
pub mod scan;
pub mod writer;

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

pub use frame::{
    FRAME_HEADER_BYTES, FrameHeader, FrameKind, SEAL_FRAME_BYTES, Seal, payload_checksum,
};
pub(crate) use header::unsupported;
pub use header::{LOG_HEADER_BYTES, LOG_VERSION, LogIdentity, create};
pub use reader::{Damage, Frame, LogExpectation, LogReader, Tail, read_payload};
pub use scan::{first_sequence, probe};
pub use writer::{FrameToWrite, LogWriter, STAGING_BYTES};
