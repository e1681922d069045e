//! Buffers kept for reuse.

use super::chunk::{Chunk, ChunkWriter};
use super::counts::Class;
use super::words::{Spares, Word};
use crate::sync::{Arc, AtomicU32, AtomicU64};

/// Buffers that came back and wait for the next request of their size.
#[derive(Default)]
pub(super) struct Pool {
    /// Cleared, with nobody else's share in them.
    pub(super) chunks: Vec<Arc<Chunk>>,
    pub(super) words_32: Spares<AtomicU32>,
    pub(super) words_64: Spares<AtomicU64>,
    /// Empty lists for the chunks of a frame; not buffers, and no part of the books.
    pub(super) lists: Vec<Vec<ChunkWriter>>,
    pub(super) bytes: u64,
}

/// A buffer that is let go: dropped where no lock is held.
pub(super) enum Dropped {
    Chunk(#[allow(dead_code, reason = "held to be dropped")] Arc<Chunk>),
    Words32(#[allow(dead_code, reason = "held to be dropped")] Box<[AtomicU32]>),
    Words64(#[allow(dead_code, reason = "held to be dropped")] Box<[AtomicU64]>),
}

impl Pool {
    /// Takes one buffer out to be let go, with its class and bytes; `None` if there is none. Words first:
    /// their sizes change with options, chunks are all alike and always wanted again.
    pub(super) fn pop(&mut self) -> Option<(Dropped, Class, u64)> {
        let popped = pop_any(&mut self.words_32)
            .map(|(words, bytes)| (Dropped::Words32(words), Class::Slots, bytes))
            .or_else(|| {
                pop_any(&mut self.words_64)
                    .map(|(words, bytes)| (Dropped::Words64(words), Class::Refs, bytes))
            })
            .or_else(|| {
                let chunk = self.chunks.pop()?;
                let bytes = u64::from(chunk.capacity());
                Some((Dropped::Chunk(chunk), Class::Chunk, bytes))
            })?;
        self.bytes -= popped.2;
        Some(popped)
    }
}

/// Takes out an array of the largest length kept, with its bytes.
fn pop_any<W: Word>(spares: &mut Spares<W>) -> Option<(Box<[W]>, u64)> {
    let mut lengths = spares.values_mut().rev();
    let words = lengths.find_map(Vec::pop)?;
    let bytes = W::bytes_of(words.len());
    Some((words, bytes))
}
