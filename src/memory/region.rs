//! The region: books and buffers under one lock.
//!
//! Buffers are allocated when first needed and kept for reuse when they come back. `pool` holds the
//! kept ones; before a new one is allocated, kept ones of other sizes are let go until both fit the
//! total (M3). Allocation, zeroing and poisoning happen outside the lock.

use std::fmt;

use super::chunk::{Chunk, ChunkWriter};
use super::ledger::{Ledger, Owner};
use super::permit::Permit;
use super::words::{Spares, Word, Words};
use crate::sync::{Arc, AtomicU32, AtomicU64, Mutex, MutexGuard, Signal};

/// The smallest chunk: a record header and a few key bytes must fit.
const CHUNK_BYTES_MIN: u32 = 64;

/// The largest chunk: offsets are 32 bits, with room to add a record to one.
const CHUNK_BYTES_MAX: u32 = 1 << 30;

/// The free bytes do not cover a request. Nothing was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{needed} bytes of the write region needed, {free} free")]
pub struct Shortage {
    /// Bytes asked for.
    pub needed: u64,
    /// Bytes free at that moment.
    pub free: u64,
}

/// Buffers kept for reuse.
#[derive(Default)]
pub(super) struct Pool {
    chunks: Vec<Box<[u8]>>,
    pub(super) words_32: Spares<AtomicU32>,
    pub(super) words_64: Spares<AtomicU64>,
    bytes: u64,
}

impl Pool {
    /// Lets one buffer go; false if there is none. Words first: their sizes change with options,
    /// chunks are all alike and always wanted again.
    fn drop_one(&mut self) -> bool {
        let bytes = pop_any(&mut self.words_32)
            .or_else(|| pop_any(&mut self.words_64))
            .or_else(|| self.chunks.pop().map(|chunk| chunk.len() as u64));
        self.bytes -= bytes.unwrap_or(0);
        bytes.is_some()
    }
}

/// Drops one array of any length and says how many bytes it had.
fn pop_any<W: Word>(spares: &mut Spares<W>) -> Option<u64> {
    let mut largest = spares.last_entry()?;
    let words = largest.get_mut().pop();
    if largest.get().is_empty() {
        largest.remove();
    }
    words.map(|words| W::bytes_of(words.len()))
}

struct State {
    ledger: Ledger,
    /// Bytes of buffers in use.
    live_bytes: u64,
    pool: Pool,
    watches: u32,
}

impl State {
    /// Counts a buffer about to be allocated and makes room for it among the kept ones.
    fn count_new(&mut self, bytes: u64) {
        self.live_bytes += bytes;
        while self.live_bytes + self.pool.bytes > self.ledger.total_bytes() && self.pool.drop_one()
        {
        }
        self.check();
    }

    /// M2 and M3. Not while unwinding: the order of drops is then no bug of ours.
    fn check(&self) {
        if !cfg!(debug_assertions) || std::thread::panicking() {
            return;
        }
        let held_bytes = self.ledger.total_bytes() - self.ledger.free_bytes();
        debug_assert!(self.live_bytes <= held_bytes, "buffers without a permit");
        debug_assert!(self.live_bytes + self.pool.bytes <= self.ledger.total_bytes());
    }
}

struct Shared {
    chunk_bytes: u32,
    state: Mutex<State>,
    freed: Signal,
}

/// A handle to the write region; clones are the same region.
#[derive(Clone)]
pub struct Region {
    shared: Arc<Shared>,
}

impl Region {
    /// A region of `total_bytes`, all free, whose chunks have `chunk_bytes`, rounded up to a multiple
    /// of 8 between 64 bytes and 1 GiB. Allocates nothing yet.
    pub fn new(total_bytes: u64, chunk_bytes: u32) -> Self {
        let chunk_bytes = chunk_bytes
            .clamp(CHUNK_BYTES_MIN, CHUNK_BYTES_MAX)
            .next_multiple_of(8);
        Self {
            shared: Arc::new(Shared {
                chunk_bytes,
                state: Mutex::new(State {
                    ledger: Ledger::new(total_bytes),
                    live_bytes: 0,
                    pool: Pool::default(),
                    watches: 0,
                }),
                freed: Signal::new(),
            }),
        }
    }

    /// The size of every chunk.
    pub fn chunk_bytes(&self) -> u32 {
        self.shared.chunk_bytes
    }

    /// The size of the region.
    pub fn total_bytes(&self) -> u64 {
        self.lock().ledger.total_bytes()
    }

    /// Takes `bytes`, all or nothing.
    pub fn try_acquire(&self, bytes: u64, owner: Owner) -> Result<Permit, Shortage> {
        let mut state = self.lock();
        if state.ledger.take(bytes, owner) {
            drop(state);
            Ok(Permit::new(self.clone(), bytes, owner))
        } else {
            Err(Shortage {
                needed: bytes,
                free: state.ledger.free_bytes(),
            })
        }
    }

    /// The books now.
    pub fn ledger(&self) -> Ledger {
        self.lock().ledger
    }

    /// Bytes of buffers kept for reuse now.
    pub fn pooled_bytes(&self) -> u64 {
        self.lock().pool.bytes
    }

    /// Lets kept buffers go until at most `keep_bytes` are kept: what memory pressure asks for. No
    /// permit and no buffer in use is touched.
    pub fn trim_pool(&self, keep_bytes: u64) {
        let mut state = self.lock();
        while state.pool.bytes > keep_bytes && state.pool.drop_one() {}
    }

    /// Watches for bytes that become free. Take it first, then its signal's count, then try to
    /// acquire, then wait: nothing freed in between is missed. Without a watch nobody pays for it.
    pub fn watch_freed(&self) -> FreedWatch {
        self.lock().watches += 1;
        FreedWatch {
            region: self.clone(),
        }
    }

    /// Whether both are handles of one region.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    pub(super) fn give(&self, bytes: u64, owner: Owner) {
        let mut state = self.lock();
        state.ledger.give(bytes, owner);
        state.check();
        let watched = state.watches > 0;
        drop(state);
        if watched {
            self.shared.freed.raise();
        }
    }

    pub(super) fn hand_over(&self, bytes: u64, from: Owner, to: Owner) {
        self.lock().ledger.hand_over(bytes, from, to);
    }

    /// An empty chunk, whose bytes the caller has split off a permit.
    pub(super) fn take_chunk(&self) -> ChunkWriter {
        let len = self.shared.chunk_bytes as usize;
        let mut state = self.lock();
        let spare = state.pool.chunks.pop();
        if spare.is_some() {
            state.pool.bytes -= len as u64;
            state.live_bytes += len as u64;
            state.check();
        } else {
            state.count_new(len as u64);
        }
        drop(state);
        let buffer = spare.unwrap_or_else(|| vec![0; len].into_boxed_slice());
        Chunk::start(buffer, self.clone())
    }

    pub(super) fn put_chunk(&self, buffer: Box<[u8]>) {
        let bytes = buffer.len() as u64;
        let mut state = self.lock();
        state.live_bytes -= bytes;
        state.pool.bytes += bytes;
        state.pool.chunks.push(buffer);
    }

    /// Zeroed words, whose bytes the caller has split off a permit.
    pub(super) fn take_words<W: Word>(&self, len: usize) -> Words<W> {
        let bytes = W::bytes_of(len);
        let mut state = self.lock();
        let spare = W::spares(&mut state.pool)
            .get_mut(&len)
            .and_then(|spares| spares.pop());
        if spare.is_some() {
            state.pool.bytes -= bytes;
            state.live_bytes += bytes;
            state.check();
        } else {
            state.count_new(bytes);
        }
        drop(state);
        Words::new(spare, len, self.clone())
    }

    pub(super) fn put_words<W: Word>(&self, words: Box<[W]>) {
        let bytes = W::bytes_of(words.len());
        let mut state = self.lock();
        state.live_bytes -= bytes;
        state.pool.bytes += bytes;
        W::spares(&mut state.pool)
            .entry(words.len())
            .or_default()
            .push(words);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock()
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.ledger().fmt(f)
    }
}

/// While it lives, the region raises a signal each time bytes become free.
#[derive(Debug)]
pub struct FreedWatch {
    region: Region,
}

impl FreedWatch {
    /// The signal to wait for.
    pub fn signal(&self) -> &Signal {
        &self.region.shared.freed
    }
}

impl Drop for FreedWatch {
    fn drop(&mut self) {
        self.region.lock().watches -= 1;
    }
}
