//! The region: books and buffers under one lock.
//!
//! Buffers are allocated when first needed and kept for reuse when they come back. `pool` holds the
//! kept ones; before a new one is allocated, kept ones of other sizes are let go until both fit the
//! total (M3). Allocation, zeroing, poisoning and freeing happen outside the lock.
//!
//! The limit is the total, or less under memory pressure (M7). The books do not change with it: what is
//! beyond it is free, and not to be had.

use std::fmt;

use super::chunk::{Chunk, ChunkWriter};
use super::counts::{Caller, Class, DropReason, RegionCounts};
use super::ledger::{Ledger, Owner};
use super::permit::Permit;
use super::pool::{Dropped, Pool};
use super::words::{Word, Words};
use crate::sync::{Arc, Mutex, MutexGuard, Signal, Weak};

/// The smallest chunk: a record header and a few key bytes must fit.
const CHUNK_BYTES_MIN: u32 = 64;

/// The largest chunk: offsets are 32 bits, with room to add a record to one.
const CHUNK_BYTES_MAX: u32 = 1 << 30;

/// Chunks that a new list has room for: more than those of most frames, which find none too short then.
const LIST_CHUNKS: usize = 16;

/// Empty lists of chunks that are kept: for the open generation and for writers of large frames.
const LISTS_MAX: usize = 4;

/// The free bytes do not cover a request. Nothing was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{needed} bytes of the write region needed, {free} free")]
pub struct Shortage {
    /// Bytes asked for.
    pub needed: u64,
    /// Bytes free at that moment.
    pub free: u64,
}

struct State {
    ledger: Ledger,
    /// What may be held and kept together.
    limit_bytes: u64,
    /// Bytes of buffers in use.
    live_bytes: u64,
    pool: Pool,
    counts: RegionCounts,
    watches: u32,
}

impl State {
    /// Bytes that can be had.
    fn available_bytes(&self) -> u64 {
        let beyond = self.ledger.total_bytes() - self.limit_bytes;
        self.ledger.free_bytes().saturating_sub(beyond)
    }

    /// Takes one kept buffer out, if live and kept bytes are more than that.
    fn pop_over(&mut self, limit_bytes: u64, reason: DropReason) -> Option<Dropped> {
        if self.live_bytes + self.pool.bytes <= limit_bytes {
            return None;
        }
        let (dropped, class, bytes) = self.pool.pop()?;
        self.counts.dropped(class, bytes, reason, true);
        Some(dropped)
    }

    /// Counts a buffer that is handed out.
    fn count_taken(&mut self, caller: Caller, class: Class, bytes: u64, hit: bool) {
        self.live_bytes += bytes;
        if hit {
            self.pool.bytes -= bytes;
        }
        self.counts.taken(caller, class, bytes, hit);
    }

    /// Counts a buffer that came back, and says whether it is kept.
    fn count_put(&mut self, class: Class, bytes: u64, used: u64) -> bool {
        self.live_bytes -= bytes;
        self.counts.returned(class, bytes, used);
        let kept = self.live_bytes + self.pool.bytes + bytes <= self.limit_bytes;
        if kept {
            self.pool.bytes += bytes;
            self.counts.kept(class, bytes);
        } else {
            self.counts
                .dropped(class, bytes, DropReason::Pressure, false);
        }
        kept
    }

    /// M2, M3 and M6. Not while unwinding: the order of drops is then no bug of ours.
    fn check(&self) {
        if !cfg!(debug_assertions) || std::thread::panicking() {
            return;
        }
        let held_bytes = self.ledger.total_bytes() - self.ledger.free_bytes();
        debug_assert!(self.live_bytes <= held_bytes, "buffers without a permit");
        debug_assert!(self.live_bytes + self.pool.bytes <= self.ledger.total_bytes());
        debug_assert!(self.counts.add_up(), "{:?}", self.counts);
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

/// What a chunk remembers its region by.
pub(super) struct WeakRegion(Weak<Shared>);

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
                    limit_bytes: total_bytes,
                    live_bytes: 0,
                    pool: Pool::default(),
                    counts: RegionCounts::default(),
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

    /// Takes `bytes`, all or nothing. It counts for the flush if the owner is `Scratch`, else for writes.
    pub fn try_acquire(&self, bytes: u64, owner: Owner) -> Result<Permit, Shortage> {
        let caller = match owner {
            Owner::Scratch => Caller::Flush,
            _ => Caller::Write,
        };
        self.try_acquire_for(caller, bytes, owner)
    }

    /// Takes `bytes` for a caller, all or nothing.
    pub fn try_acquire_for(
        &self,
        caller: Caller,
        bytes: u64,
        owner: Owner,
    ) -> Result<Permit, Shortage> {
        let mut state = self.lock();
        let free = state.available_bytes();
        let granted = bytes <= free && state.ledger.take(bytes, owner);
        state.counts.asked(caller, bytes, granted);
        drop(state);
        match granted {
            true => Ok(Permit::new(self.clone(), bytes, owner, caller)),
            false => Err(Shortage {
                needed: bytes,
                free,
            }),
        }
    }

    /// A permit of no bytes, which can absorb others.
    pub fn nothing(&self, owner: Owner) -> Permit {
        Permit::new(self.clone(), 0, owner, Caller::Write)
    }

    /// The books now.
    pub fn ledger(&self) -> Ledger {
        self.lock().ledger
    }

    /// Bytes of buffers kept for reuse now.
    pub fn pooled_bytes(&self) -> u64 {
        self.lock().pool.bytes
    }

    /// All counts.
    pub fn counts(&self) -> RegionCounts {
        self.lock().counts.clone()
    }

    /// What may be held and kept together: the total, or less under pressure.
    pub fn limit_bytes(&self) -> u64 {
        self.lock().limit_bytes
    }

    /// Sets that limit, at most the total. Permits that were granted stay; kept buffers beyond it go by
    /// [`trim`](Self::trim).
    pub fn set_limit(&self, limit_bytes: u64) {
        let mut state = self.lock();
        let raised = limit_bytes > state.limit_bytes;
        state.limit_bytes = limit_bytes.min(state.ledger.total_bytes());
        let watched = raised && state.watches > 0;
        drop(state);
        if watched {
            self.shared.freed.raise();
        }
    }

    /// Lets at most so many kept buffers go that are beyond the limit; true if there are more.
    pub fn trim(&self, buffers_max: u32) -> bool {
        for _ in 0..buffers_max {
            let dropped = {
                let mut state = self.lock();
                let limit_bytes = state.limit_bytes;
                state.pop_over(limit_bytes, DropReason::Pressure)
            };
            if dropped.is_none() {
                return false;
            }
        }
        let state = self.lock();
        state.live_bytes + state.pool.bytes > state.limit_bytes && state.pool.bytes > 0
    }

    /// Lets kept buffers go until at most `keep_bytes` are kept, whatever the limit. No permit and no
    /// buffer in use is touched.
    pub fn trim_pool(&self, keep_bytes: u64) {
        loop {
            let dropped = {
                let mut state = self.lock();
                if state.pool.bytes <= keep_bytes {
                    return;
                }
                let popped = state.pool.pop();
                popped.map(|(dropped, class, bytes)| {
                    state
                        .counts
                        .dropped(class, bytes, DropReason::Pressure, true);
                    dropped
                })
            };
            if dropped.is_none() {
                return;
            }
        }
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
    pub(super) fn take_chunk(&self, caller: Caller) -> ChunkWriter {
        let capacity = self.shared.chunk_bytes;
        let mut state = self.lock();
        let spare = state.pool.chunks.pop();
        state.count_taken(caller, Class::Chunk, capacity.into(), spare.is_some());
        self.make_room(state);
        let weak = || WeakRegion(Arc::downgrade(&self.shared));
        spare
            .unwrap_or_else(|| Chunk::new(capacity, weak()))
            .start()
    }

    /// The region that a chunk came from, if there still is one.
    pub(super) fn from_weak(weak: &WeakRegion) -> Option<Self> {
        let shared = weak.0.upgrade()?;
        Some(Self { shared })
    }

    /// Takes one user's share in a chunk; with the last one's the chunk came back. All shares are given up
    /// under the lock, so of two that come at once just one is the last.
    pub(super) fn put_chunk(&self, mut chunk: Arc<Chunk>) {
        let state = self.lock();
        let Some(alone) = Arc::get_mut(&mut chunk) else {
            drop(chunk);
            drop(state);
            return;
        };
        drop(state);
        let (bytes, used) = (u64::from(alone.capacity()), alone.len());
        alone.clear();
        let mut state = self.lock();
        if state.count_put(Class::Chunk, bytes, used.into()) {
            state.pool.chunks.push(chunk);
        } else {
            drop(state);
            drop(chunk);
        }
    }

    /// An empty list for chunks, with the room that an earlier one had.
    pub fn take_list(&self) -> Vec<ChunkWriter> {
        let kept = self.lock().pool.lists.pop();
        kept.unwrap_or_else(|| Vec::with_capacity(LIST_CHUNKS))
    }

    /// Keeps a list for the next, unless there are enough. Chunks in it go first. It never has more room than
    /// the region has chunks, twice, or than it began with.
    pub fn put_list(&self, mut list: Vec<ChunkWriter>) {
        list.clear();
        let mut state = self.lock();
        if list.capacity() > 0 && state.pool.lists.len() < LISTS_MAX {
            state.pool.lists.push(list);
        }
    }

    /// Zeroed words, whose bytes the caller has split off a permit.
    pub(super) fn take_words<W: Word>(&self, len: usize, caller: Caller) -> Words<W> {
        let bytes = W::bytes_of(len);
        let mut state = self.lock();
        let spare = W::spares(&mut state.pool)
            .get_mut(&len)
            .and_then(|spares| spares.pop());
        state.count_taken(caller, W::CLASS, bytes, spare.is_some());
        self.make_room(state);
        Words::new(spare, len, self.clone())
    }

    pub(super) fn put_words<W: Word>(&self, words: Box<[W]>) {
        let bytes = W::bytes_of(words.len());
        let mut state = self.lock();
        if state.count_put(W::CLASS, bytes, bytes) {
            W::spares(&mut state.pool)
                .entry(words.len())
                .or_default()
                .push(words);
        } else {
            drop(state);
            drop(words);
        }
    }

    /// Lets kept buffers go until what was just counted as handed out fits the total beside the rest; what
    /// a lower limit asks for is `trim`'s affair, a few at a time. They are freed outside the lock, and no
    /// list is made where none goes.
    fn make_room(&self, mut state: MutexGuard<'_, State>) {
        let total_bytes = state.ledger.total_bytes();
        let mut dropped = Vec::new();
        while let Some(buffer) = state.pop_over(total_bytes, DropReason::Room) {
            dropped.push(buffer);
        }
        state.check();
        drop(state);
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
