//! How much room a batch takes, worked out without writing it; and why it may be refused.

use crate::log::record::{RECORD_HEADER_BYTES, encoded_len};
use crate::types::{KEY_BYTES_MAX, KeyHash, KeyspaceId, RecordKind};

/// One operation of a commit.
#[derive(Clone, Copy, Debug)]
pub struct Op<'a> {
    /// The keyspace.
    pub keyspace: KeyspaceId,
    /// A value, or a tombstone (whose value is empty).
    pub kind: RecordKind,
    /// The key.
    pub key: &'a [u8],
    /// The value.
    pub value: &'a [u8],
    /// The store's hash of (keyspace, key).
    pub hash: KeyHash,
}

/// Why a memtable, frame or record was not made. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// A key does not fit a chunk, or is longer than any key may be.
    #[error("a key of {bytes} bytes, the limit is {limit}")]
    KeyTooLong {
        /// Its length.
        bytes: usize,
        /// The longest that fits.
        limit: usize,
    },
    /// A value is too long for a record's header.
    #[error("a value of {bytes} bytes does not fit a record")]
    ValueTooLong {
        /// Its length.
        bytes: usize,
    },
    /// A tombstone with a value, or a keyspace id of no known kind.
    #[error("not a valid operation")]
    InvalidOp,
    /// The memtable would hold more records than its probe table was made for.
    #[error("{needed} records, the memtable holds at most {limit}")]
    TooManyRecords {
        /// Records there would be.
        needed: u64,
        /// Records there may be.
        limit: u32,
    },
    /// The memtable would hold more chunks than its address space or its region has.
    #[error("{needed} chunks, the memtable holds at most {limit}")]
    TooManyChunks {
        /// Chunks there would be.
        needed: u64,
        /// Chunks there may be.
        limit: u32,
    },
    /// The permit has too few bytes.
    #[error("{needed} bytes needed, the permit has {given}")]
    PermitTooSmall {
        /// Bytes needed.
        needed: u64,
        /// Bytes it has.
        given: u64,
    },
    /// The sequence is not above the last one, or 2^32 or more above the memtable's first.
    #[error("sequence {sequence} can't follow {last}")]
    SequenceOrder {
        /// The one given.
        sequence: u64,
        /// The last one accepted.
        last: u64,
    },
    /// The operations are not those that the detached frame was encoded from.
    #[error("the operations are not those of the detached frame")]
    OtherOps,
    /// Options out of range.
    #[error("block_records or records_max out of range")]
    InvalidOptions,
}

/// The room that a batch takes: records, encoded bytes, and the chunks it would fill from an empty
/// one.
///
/// What it takes from a partly filled chunk on is never more: a record placed from an earlier address
/// never ends at a later one than from a later address, and an empty chunk that is still to be taken
/// stands after every address in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchShape {
    records: u32,
    payload_bytes: u64,
    fresh: Placement,
}

impl BatchShape {
    /// A batch of nothing, for a region with chunks of this size.
    pub fn new(chunk_bytes: u32) -> Self {
        Self {
            records: 0,
            payload_bytes: 0,
            fresh: Placement::after(chunk_bytes, 0),
        }
    }

    /// The shape of these operations.
    pub fn of(chunk_bytes: u32, ops: &[Op<'_>]) -> Result<Self, Refusal> {
        let mut shape = Self::new(chunk_bytes);
        for op in ops {
            let valid = op.keyspace.kind().is_some()
                && (op.kind == RecordKind::Value || op.value.is_empty());
            if !valid {
                return Err(Refusal::InvalidOp);
            }
            shape.add(op.key.len(), op.value.len())?;
        }
        Ok(shape)
    }

    /// Adds a record.
    pub fn add(&mut self, key_bytes: usize, value_bytes: usize) -> Result<(), Refusal> {
        let limit = KEY_BYTES_MAX.min(self.fresh.chunk_bytes as usize - RECORD_HEADER_BYTES);
        if key_bytes > limit {
            return Err(Refusal::KeyTooLong {
                bytes: key_bytes,
                limit,
            });
        }
        if u32::try_from(value_bytes).is_err() {
            return Err(Refusal::ValueTooLong { bytes: value_bytes });
        }
        self.records = self.records.checked_add(1).ok_or(Refusal::TooManyRecords {
            needed: u64::from(self.records) + 1,
            limit: u32::MAX,
        })?;
        self.payload_bytes += encoded_len(key_bytes, value_bytes) as u64;
        self.fresh.place(key_bytes, value_bytes);
        Ok(())
    }

    /// Records added.
    pub const fn records(&self) -> u32 {
        self.records
    }

    /// Bytes of the frame's payload: what the log gets.
    pub const fn payload_bytes(&self) -> u64 {
        self.payload_bytes
    }

    /// Whether its frame is larger than a chunk, so that it should be encoded apart.
    pub const fn is_large(&self) -> bool {
        self.payload_bytes > self.fresh.chunk_bytes as u64
    }

    /// Chunks that the frame fills when it starts in a new one.
    pub const fn chunks_fresh(&self) -> u64 {
        self.fresh.chunks
    }
}

/// A walk over chunks that places records as the encoder does.
///
/// Header and key of a record stay together; what is left of a chunk that is too small for them stays
/// unwritten. The value goes on in the next chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Placement {
    chunk_bytes: u32,
    /// Room left in the chunk reached.
    room: u32,
    /// Chunks taken on the way.
    pub(super) chunks: u64,
}

impl Placement {
    /// Starts in a chunk with that much room; 0 = there is none.
    pub(super) fn after(chunk_bytes: u32, room: u32) -> Self {
        Self {
            chunk_bytes,
            room,
            chunks: 0,
        }
    }

    /// Places a record whose header and key fit a chunk: the number of the chunk it starts in, of
    /// those taken, from 1, and the offset there.
    pub(super) fn place(&mut self, key_bytes: usize, value_bytes: usize) -> (u64, u32) {
        if (self.room as usize) < RECORD_HEADER_BYTES + key_bytes {
            self.chunks += 1;
            self.room = self.chunk_bytes;
        }
        let start = (self.chunks, self.chunk_bytes - self.room);
        let total = encoded_len(key_bytes, value_bytes) as u64;
        match u64::from(self.room).checked_sub(total) {
            Some(room) => self.room = room as u32,
            None => {
                let beyond = total - u64::from(self.room);
                let chunks = beyond.div_ceil(u64::from(self.chunk_bytes));
                self.chunks += chunks;
                self.room = (chunks * u64::from(self.chunk_bytes) - beyond) as u32;
            }
        }
        start
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn head_moves_to_the_next_chunk_and_value_goes_on() {
        let mut shape = BatchShape::new(64);
        shape.add(24, 0).expect("fits");
        assert_eq!((shape.chunks_fresh(), shape.payload_bytes()), (1, 40));
        // 24 bytes left: a key of 9 does not fit behind its header, so those are lost.
        shape.add(9, 100).expect("fits");
        assert_eq!((shape.chunks_fresh(), shape.payload_bytes()), (3, 168));
        // It ended exactly at a chunk's end.
        shape.add(0, 0).expect("fits");
        assert_eq!((shape.chunks_fresh(), shape.records()), (4, 3));
        let refused = shape.add(49, 0);
        let expected = Refusal::KeyTooLong {
            bytes: 49,
            limit: 48,
        };
        assert_eq!(refused, Err(expected));
    }
}
