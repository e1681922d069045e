//! The memtable's address space: its chunks, in the order in which they came.
//!
//! ```text
//! location (u32)  =  slot << unit_bits | offset / 8       0 = the first record of the first chunk
//!
//! slot 0          slot 1 (a detached frame's)   slot 2
//! | a b c[c..  |  | x x x x x x x x |           | ..c] d e      |
//!            next -----------------------------> 2
//! ```
//!
//! A frame that fills its chunk goes on in the chunk that `next` names, not always in the one after
//! it: a detached frame may have brought its own chunks in between. A chunk that is left is left for
//! good, so its written length is the end of the frame that left it.
//!
//! `next` is stored before anything is written to the chunk it names; readers come to a record by a
//! ref that was stored (`Release`) after both.

use crate::log::record::{RECORD_HEADER_BYTES, decode_header};
use crate::memory::{Chunk, ChunkHandle, Region};
use crate::sync::{AtomicU32, OnceLock, Ordering};
use crate::types::{KeyspaceId, RecordKind};

use super::found::ValueRef;

/// Locations count in this unit, which records are aligned to.
const UNIT_BYTES: u32 = 8;

#[derive(Default)]
struct Slot {
    chunk: OnceLock<ChunkHandle>,
    /// The slot of the chunk that the frame at this chunk's end goes on in, plus one; 0 = none.
    next: AtomicU32,
}

/// Where a record starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) slot: u32,
    pub(super) offset: u32,
}

impl Place {
    /// Where the first record of all is.
    pub(super) const FIRST: Self = Self { slot: 0, offset: 0 };
}

pub(super) struct Space {
    unit_bits: u32,
    slots: Box<[Slot]>,
}

/// A record as it stands in its chunk.
pub(super) struct Record<'a> {
    pub(super) kind: RecordKind,
    pub(super) keyspace: KeyspaceId,
    pub(super) key: &'a [u8],
    pub(super) value: ValueRef<'a>,
}

impl Space {
    /// An empty space with a slot for each chunk that the region could ever give.
    pub(super) fn new(region: &Region) -> Self {
        Self {
            unit_bits: unit_bits(region.chunk_bytes()),
            slots: (0..Self::slots_of(region))
                .map(|_| Slot::default())
                .collect(),
        }
    }

    /// Gives all chunks back.
    pub(super) fn clear(&mut self) {
        for slot in &mut self.slots {
            *slot = Slot::default();
        }
    }

    /// Heap bytes of a space over this region.
    pub(super) fn bytes_of(region: &Region) -> u64 {
        u64::from(Self::slots_of(region)) * size_of::<Slot>() as u64
    }

    /// Slots of a space over this region: no more chunks than it has bytes for, nor than locations.
    fn slots_of(region: &Region) -> u32 {
        let limit = 1u64 << (u32::BITS - unit_bits(region.chunk_bytes()));
        let chunks = region.total_bytes() / u64::from(region.chunk_bytes());
        u32::try_from(chunks.min(limit)).unwrap_or(u32::MAX)
    }

    /// Chunks that it can take in all.
    pub(super) fn slots_max(&self) -> u32 {
        self.slots.len() as u32
    }

    /// Puts a chunk into a free slot; false if the slot does not exist or is taken.
    pub(super) fn put(&self, slot: u32, chunk: ChunkHandle) -> bool {
        self.slots
            .get(slot as usize)
            .is_some_and(|entry| entry.chunk.set(chunk).is_ok())
    }

    /// Says where the frame at the end of a chunk goes on.
    pub(super) fn join(&self, slot: u32, next: u32) {
        if let Some(entry) = self.slots.get(slot as usize) {
            entry.next.store(next + 1, Ordering::Release);
        }
    }

    /// The location of a place.
    pub(super) fn location(&self, place: Place) -> u32 {
        debug_assert!(place.offset.is_multiple_of(UNIT_BYTES));
        (place.slot << self.unit_bits) | (place.offset / UNIT_BYTES)
    }

    /// The place of a location.
    pub(super) fn place(&self, location: u32) -> Place {
        Place {
            slot: location >> self.unit_bits,
            offset: (location & ((1 << self.unit_bits) - 1)) * UNIT_BYTES,
        }
    }

    fn chunk(&self, slot: u32) -> Option<&Chunk> {
        self.slots.get(slot as usize)?.chunk.get()?.get()
    }

    fn next(&self, slot: u32) -> Option<u32> {
        let next = self.slots.get(slot as usize)?.next.load(Ordering::Acquire);
        next.checked_sub(1)
    }

    /// The record at a location.
    pub(super) fn record(&self, location: u32) -> Option<Record<'_>> {
        let place = self.place(location);
        let bytes = self.chunk(place.slot)?.bytes_from(place.offset)?;
        let layout = decode_header(bytes)?;
        Some(Record {
            kind: layout.kind,
            keyspace: layout.keyspace,
            key: bytes.get(layout.key)?,
            value: ValueRef::new(Slices {
                space: self,
                at: Place {
                    slot: place.slot,
                    offset: place.offset + layout.value.start as u32,
                },
                remaining: layout.value.len() as u64,
            }),
        })
    }

    /// Keyspace and key of the record at a location.
    pub(super) fn key(&self, location: u32) -> Option<(KeyspaceId, &[u8])> {
        let place = self.place(location);
        let bytes = self.chunk(place.slot)?.bytes_from(place.offset)?;
        let layout = decode_header(bytes)?;
        Some((layout.keyspace, bytes.get(layout.key)?))
    }

    /// The `len` bytes of a frame that starts at a location.
    pub(super) fn frame(&self, location: u32, len: u64) -> Slices<'_> {
        Slices {
            space: self,
            at: self.place(location),
            remaining: len,
        }
    }
}

/// Bits of a location that say where in a chunk.
fn unit_bits(chunk_bytes: u32) -> u32 {
    debug_assert!(chunk_bytes as usize >= RECORD_HEADER_BYTES);
    chunk_bytes
        .div_ceil(UNIT_BYTES)
        .next_power_of_two()
        .trailing_zeros()
}

/// A run of bytes, chunk by chunk. No item is empty.
#[derive(Clone)]
pub struct Slices<'a> {
    space: &'a Space,
    at: Place,
    remaining: u64,
}

impl Slices<'_> {
    /// Bytes still to come.
    pub fn remaining(&self) -> u64 {
        self.remaining
    }
}

impl<'a> Iterator for Slices<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        while self.remaining > 0 {
            let written = self
                .space
                .chunk(self.at.slot)
                .and_then(|chunk| chunk.bytes_from(self.at.offset));
            let here = written.unwrap_or_default();
            let len = (here.len() as u64).min(self.remaining);
            self.remaining -= len;
            if self.remaining > 0 {
                let Some(slot) = self.space.next(self.at.slot) else {
                    debug_assert!(false, "a frame ends before its length");
                    self.remaining = 0;
                    return None;
                };
                self.at = Place { slot, offset: 0 };
            }
            if len > 0 {
                return here.get(..len as usize);
            }
        }
        None
    }
}
