//! Records into chunks, and frames that bring chunks of their own.
//!
//! Both ways of appending place records by the same rules, those of [`Placement`](super::shape): the
//! positions of a detached frame's records are worked out again from lengths alone.

use super::shape::{BatchShape, Op, Refusal};
use super::space::Place;
use crate::log::record::{RECORD_ALIGN, RECORD_HEADER_BYTES, encode_header};
use crate::memory::{ChunkWriter, Permit};

/// Where records are written: a chunk, and more to go on in.
pub(super) trait Sink {
    /// The chunk being filled, if there is one.
    fn chunk(&mut self) -> Option<&mut ChunkWriter>;

    /// Leaves it for the next one; false if there is none.
    fn advance(&mut self) -> bool;

    /// Where the next byte goes.
    fn place(&self) -> Place;
}

/// Writes a record and says where it starts; `None` if the sink ran out.
pub(super) fn write_record(sink: &mut impl Sink, op: &Op<'_>) -> Option<Place> {
    let key_len = u16::try_from(op.key.len()).ok()?;
    let value_len = u32::try_from(op.value.len()).ok()?;
    let header = encode_header(op.kind, op.keyspace, key_len, value_len);
    let room = sink.chunk().map_or(0, |chunk| chunk.remaining() as usize);
    if room < RECORD_HEADER_BYTES + op.key.len() && !sink.advance() {
        return None;
    }
    let place = sink.place();
    let chunk = sink.chunk()?;
    chunk.append(&header)?;
    chunk.append(op.key)?;
    let mut rest = op.value;
    loop {
        let chunk = sink.chunk()?;
        let len = rest.len().min(chunk.remaining() as usize);
        let (front, back) = rest.split_at_checked(len)?;
        chunk.append(front)?;
        if back.is_empty() {
            let end = chunk.len() as usize;
            let padding = end.next_multiple_of(RECORD_ALIGN) - end;
            chunk.append([0; RECORD_ALIGN].get(..padding)?)?;
            return Some(place);
        }
        rest = back;
        if !sink.advance() {
            return None;
        }
    }
}

/// A frame encoded into chunks of its own, outside the commit lock. Dropping it gives all back.
pub struct Detached {
    // Chunks go before the permit that holds their bytes.
    chunks: Vec<ChunkWriter>,
    permit: Permit,
    shape: BatchShape,
}

struct DetachedSink<'a> {
    chunks: &'a mut Vec<ChunkWriter>,
    permit: &'a mut Permit,
    source: &'a mut Permit,
}

impl Sink for DetachedSink<'_> {
    fn chunk(&mut self) -> Option<&mut ChunkWriter> {
        self.chunks.last_mut()
    }

    fn advance(&mut self) -> bool {
        match self.source.chunk() {
            Some((chunk, part)) => {
                self.chunks.push(chunk);
                self.permit.absorb(part);
                true
            }
            None => false,
        }
    }

    fn place(&self) -> Place {
        Place::FIRST
    }
}

impl Detached {
    /// Region bytes that [`Detached::encode`] takes for a batch.
    pub fn cost_bytes(permit: &Permit, shape: &BatchShape) -> u64 {
        shape.chunks_fresh() * u64::from(permit.region().chunk_bytes())
    }

    /// Encodes operations into chunks out of the permit, whose rest later pays for their refs.
    ///
    /// On refusal nothing was changed, and the permit has all its bytes.
    pub fn encode(ops: &[Op<'_>], permit: &mut Permit) -> Result<Self, Refusal> {
        let shape = BatchShape::of(permit.region().chunk_bytes(), ops)?;
        let needed = Self::cost_bytes(permit, &shape);
        let refusal = Refusal::PermitTooSmall {
            needed,
            given: permit.bytes(),
        };
        let mut source = permit.split(needed).ok_or(refusal)?;
        let mut detached = Self {
            chunks: permit.region().take_list(),
            permit: source.split(0).ok_or(refusal)?,
            shape,
        };
        detached.chunks.reserve(shape.chunks_fresh() as usize);
        let mut sink = DetachedSink {
            chunks: &mut detached.chunks,
            permit: &mut detached.permit,
            source: &mut source,
        };
        for op in ops {
            if write_record(&mut sink, op).is_none() {
                debug_assert!(false, "room was taken for it");
                return Err(refusal);
            }
        }
        debug_assert_eq!(source.bytes(), 0);
        Ok(detached)
    }

    /// The frame's payload, piece by piece: what its checksum is taken over.
    pub fn slices(&self) -> impl Iterator<Item = &[u8]> {
        self.chunks
            .iter()
            .filter_map(|chunk| chunk.handle().get()?.bytes_from(0))
    }

    /// The shape of what it was encoded from.
    pub fn shape(&self) -> &BatchShape {
        &self.shape
    }

    /// Takes it apart again: the bytes of its chunks, for another use.
    pub fn into_permit(self) -> Permit {
        self.into_parts().1
    }

    /// Its chunks and their bytes. The first must go before the second.
    pub(super) fn into_parts(self) -> (Vec<ChunkWriter>, Permit) {
        (self.chunks, self.permit)
    }
}
