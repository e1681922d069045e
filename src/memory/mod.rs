//! The write region: one number of bytes, and who holds each of them.
//!
//! ```text
//! Region(total) --try_acquire--> Permit(bytes, owner) --split/absorb/move_to--> ... --drop--> free
//!                                   |
//!                                   +--chunk--> ChunkWriter (payload bytes, grows only)
//!                                   +--words--> Words (atomic words: refs, links, probe slots)
//! ```
//!
//! Memory is taken before it is used, all or nothing, so a refusal has no effect to undo. A permit is
//! the only way to a buffer, and the buffer's bytes stay in a permit as long as it lives.
//!
//! Invariants, checked in debug builds and by the tests:
//!
//! * M1. free + open + sealed + flushing + pinned + retiring + scratch + reserved = total, whenever
//!   the region's lock is free.
//! * M2. Buffers in use never exceed what permits hold: a buffer is given back before its permit.
//! * M3. Buffers in use plus buffers kept for reuse never exceed the total: reuse retains nothing
//!   that the region does not own anyway, whatever the sizes asked for before.
//! * M4. Bytes below a chunk's published length never change while anybody can reach the chunk.
//! * M5. Every byte that a permit gave up is in exactly one other permit or free: split, absorb and
//!   move change no sum.
//!
//! * M6. Every buffer is live, kept, or let go for one reason ([`RegionCounts::add_up`]).
//! * M7. Under a limit below the total nothing new is granted beyond it, what comes back beyond it is not
//!   kept, and what was kept goes by steps; what was granted before stays granted.
//!
//! The region's lock is the innermost of the engine's; it is held for a few additions.
//!
//! Nothing here touches the disk, so there is no crash argument: after a crash the region starts
//! empty.

#![deny(unsafe_code)]

#[allow(
    unsafe_code,
    reason = "shared bytes that grow; its head has the argument and the measurement"
)]
mod chunk;
mod counts;
mod ledger;
#[cfg(all(test, loom))]
mod loom_tests;
mod permit;
mod pool;
mod region;
#[cfg(test)]
mod tests;
mod words;

pub use chunk::{Chunk, ChunkHandle, ChunkWriter};
pub use counts::{BufferCounts, Caller, Class, KeptCounts, PermitCounts, RegionCounts};
pub use ledger::{Ledger, Owner};
pub use permit::Permit;
pub use region::{FreedWatch, Region, Shortage};
pub use words::{Word, Words};
