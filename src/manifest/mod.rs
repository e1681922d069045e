//! The manifest: what is part of the store. Everything else in the directory is debris or foreign.
//!
//! ```text
//! file  = header (64) | state frame | edit frame | ... | zeros up to the allocated length
//! frame = length u32 | CRC-32C u32 | edit number u64 | payload of `length` bytes | zeros to 8
//! ```
//!
//! Invariants:
//! * the file is never continued by a later open: each writes a new one with the state it found, under
//!   a temporary name, syncs it and renames it to the one fixed name;
//! * edits are numbered without a gap, and number n + 1 is written only after n was synced;
//! * a frame's checksum covers its length, number and place, and the store and incarnation;
//! * the state in memory is that of the durable edits: a failed one leaves it as it was.
//!
//! Crash argument. The new file is whole and durable before the rename, so a crash leaves the old one
//! or the new one. Of the edits only the last can be in doubt: one that tears is the last thing in the
//! file and is cut; a damaged frame with a valid one behind it was durable, so it is refused.

pub mod change;
mod fields;
pub mod file;
pub mod runs;
pub mod state;
mod validate;
pub mod writer;

#[cfg(test)]
mod tests;

pub use change::{Change, Edit};
pub use file::{MANIFEST_VERSION, ManifestRead, read};
pub use runs::NamedRun;
pub use state::{KeyspaceEntry, LogEntry, ManifestState};
pub use writer::ManifestWriter;
