//! The memtable's only writer: places records, makes refs, fills the probe.
//!
//! An append first takes all it needs (chunks, blocks of refs) out of the permit, or refuses; from
//! then on it can't fail and takes nothing more. What it did not need stays in the permit.
//!
//! A small append allocates nothing: it copies into the current chunk and writes into the current
//! block. A chunk that was used before takes nothing from the heap.

use super::encode::{Sink, write_record};
use super::probe::{Walk, mix};
use super::refs::{Ref, Refs, digest, prefix};
use super::shape::{BatchShape, Op, Placement, Refusal};
use super::space::Place;
use super::{Appended, Detached, Memtable};
use crate::memory::{ChunkWriter, Permit, Region};
use crate::sync::Arc;
use crate::types::Sequence;

/// The right to append to a memtable; there is one, used under the commit lock.
pub struct MemtableWriter {
    // Chunk writers go before the memtable, which may hold the last permit.
    tail: Tail,
    memtable: Arc<Memtable>,
    refs_used: u32,
    blocks: u32,
    links_used: u32,
    last_sequence: Sequence,
}

/// The chunk being filled, and those taken to go on in.
struct Tail {
    current: Option<(u32, ChunkWriter)>,
    /// Taken for the append under way, last one first; empty between appends.
    ahead: Vec<ChunkWriter>,
    slots_used: u32,
}

impl Tail {
    fn room(&self) -> u32 {
        self.current
            .as_ref()
            .map_or(0, |(_, chunk)| chunk.remaining())
    }
}

/// The tail of a memtable, as the encoder sees it.
struct TailSink<'a> {
    tail: &'a mut Tail,
    memtable: &'a Memtable,
}

impl Sink for TailSink<'_> {
    fn chunk(&mut self) -> Option<&mut ChunkWriter> {
        self.tail.current.as_mut().map(|(_, chunk)| chunk)
    }

    fn advance(&mut self) -> bool {
        let Some(chunk) = self.tail.ahead.pop() else {
            return false;
        };
        let slot = self.tail.slots_used;
        self.tail.slots_used += 1;
        if let Some((left, _)) = &self.tail.current {
            self.memtable.space.join(*left, slot);
        }
        let put = self.memtable.space.put(slot, chunk.handle().clone());
        self.tail.current = Some((slot, chunk));
        put
    }

    fn place(&self) -> Place {
        let (slot, offset) = match &self.tail.current {
            Some((slot, chunk)) => (*slot, chunk.len()),
            None => (0, 0),
        };
        Place { slot, offset }
    }
}

impl std::fmt::Debug for MemtableWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "MemtableWriter({:?})", self.memtable)
    }
}

impl MemtableWriter {
    pub(super) fn new(memtable: Arc<Memtable>, region: &Region) -> Self {
        Self {
            tail: Tail {
                current: None,
                ahead: region.take_list(),
                slots_used: 0,
            },
            memtable,
            refs_used: 0,
            blocks: 0,
            links_used: 0,
            last_sequence: 0,
        }
    }

    /// The memtable it writes to.
    pub fn memtable(&self) -> &Arc<Memtable> {
        &self.memtable
    }

    /// The last sequence appended; 0 = none.
    pub fn last_sequence(&self) -> Sequence {
        self.last_sequence
    }

    /// Records that still fit.
    pub fn records_left(&self) -> u32 {
        self.memtable.records_max - self.refs_used
    }

    /// Gives the right up: nothing is appended any more.
    pub fn seal(mut self) -> Arc<Memtable> {
        self.memtable
            .keep_list(std::mem::take(&mut self.tail.ahead));
        self.memtable
    }

    /// An upper bound of the region bytes that this batch takes here now, by whichever of the two
    /// ways; or why it can't be taken at all.
    ///
    /// It never exceeds [`Memtable::cost_bytes_max`], which depends on nothing that changes.
    pub fn cost_bytes(&self, shape: &BatchShape) -> Result<u64, Refusal> {
        let fits_tail = shape.payload_bytes() <= u64::from(self.tail.room());
        let chunks = if fits_tail { 0 } else { shape.chunks_fresh() };
        self.check_room(shape.records(), chunks)?;
        Ok(self.bytes_of(chunks, shape.records()))
    }

    /// Appends a commit: copies its operations, makes them visible to [`Memtable::get`], and takes
    /// what that needs out of the permit. A key may occur only once in `ops`.
    ///
    /// On refusal nothing was changed, and the permit has all its bytes.
    pub fn append(
        &mut self,
        sequence: Sequence,
        ops: &[Op<'_>],
        permit: &mut Permit,
    ) -> Result<Appended, Refusal> {
        let shape = BatchShape::of(self.memtable.chunk_bytes, ops)?;
        self.check_sequence(sequence)?;
        let mut walk = Placement::after(self.memtable.chunk_bytes, self.tail.room());
        for op in ops {
            walk.place(op.key.len(), op.value.len());
        }
        self.check_room(shape.records(), walk.chunks)?;
        self.take(walk.chunks, shape.records(), permit)?;

        self.begin(sequence);
        let mut appended = Appended::new(sequence, self.refs_used + 1, &shape);
        for (number, op) in ops.iter().enumerate() {
            let mut sink = TailSink {
                tail: &mut self.tail,
                memtable: &self.memtable,
            };
            let place = write_record(&mut sink, op);
            debug_assert!(place.is_some(), "room was taken for it");
            let location = self.memtable.space.location(place.unwrap_or(Place::FIRST));
            if number == 0 {
                appended.location = location;
            }
            self.add_ref(op, location);
        }
        debug_assert!(self.tail.ahead.is_empty());
        self.memtable.counts.add_commit(sequence, &shape);
        Ok(appended)
    }

    /// Appends a commit that was encoded into chunks of its own. `ops` are those it was encoded from.
    ///
    /// On refusal nothing was changed; the frame is given back.
    pub fn append_detached(
        &mut self,
        sequence: Sequence,
        detached: Detached,
        ops: &[Op<'_>],
        permit: &mut Permit,
    ) -> Result<Appended, (Refusal, Detached)> {
        if let Err(refusal) = self.accept_detached(sequence, &detached, ops, permit) {
            return Err((refusal, detached));
        }
        let shape = *detached.shape();
        let (mut frame, frame_permit) = detached.into_parts();
        self.memtable.absorb(frame_permit);
        self.begin(sequence);

        let first_slot = self.tail.slots_used;
        let mut appended = Appended::new(sequence, self.refs_used + 1, &shape);
        appended.location = self.memtable.space.location(Place {
            slot: first_slot,
            offset: 0,
        });
        for (number, chunk) in (first_slot..).zip(&frame) {
            self.memtable.space.put(number, chunk.handle().clone());
            if number > first_slot {
                self.memtable.space.join(number - 1, number);
            }
        }
        self.tail.slots_used += frame.len() as u32;
        self.add_detached_refs(first_slot, ops);
        if let Some(last) = frame.pop()
            && last.remaining() > self.tail.room()
        {
            self.tail.current = Some((self.tail.slots_used - 1, last));
        }
        permit.region().put_list(frame);
        self.memtable.counts.add_commit(sequence, &shape);
        Ok(appended)
    }

    /// Checks all that could refuse a detached frame, and takes the blocks for its refs.
    fn accept_detached(
        &mut self,
        sequence: Sequence,
        detached: &Detached,
        ops: &[Op<'_>],
        permit: &mut Permit,
    ) -> Result<(), Refusal> {
        let shape = BatchShape::of(self.memtable.chunk_bytes, ops)?;
        if shape != *detached.shape() {
            return Err(Refusal::OtherOps);
        }
        self.check_sequence(sequence)?;
        self.check_room(shape.records(), shape.chunks_fresh())?;
        self.take(0, shape.records(), permit)
    }

    /// Makes the refs of a frame that starts in a chunk of its own, by the walk that placed it.
    fn add_detached_refs(&mut self, first_slot: u32, ops: &[Op<'_>]) {
        let chunk_bytes = self.memtable.chunk_bytes;
        let mut walk = Placement::after(chunk_bytes, 0);
        for op in ops {
            let (chunk, offset) = walk.place(op.key.len(), op.value.len());
            let location = self.memtable.space.location(Place {
                slot: first_slot + chunk as u32 - 1,
                offset,
            });
            self.add_ref(op, location);
        }
    }

    fn check_sequence(&self, sequence: Sequence) -> Result<(), Refusal> {
        let first = self.memtable.first_sequence();
        let in_reach = first == 0 || u32::try_from(sequence.saturating_sub(first)).is_ok();
        match sequence > self.last_sequence && sequence < Sequence::MAX && in_reach {
            true => Ok(()),
            false => Err(Refusal::SequenceOrder {
                sequence,
                last: self.last_sequence,
            }),
        }
    }

    fn check_room(&self, records: u32, chunks: u64) -> Result<(), Refusal> {
        if records > self.records_left() {
            return Err(Refusal::TooManyRecords {
                needed: u64::from(self.refs_used) + u64::from(records),
                limit: self.memtable.records_max,
            });
        }
        let limit = self.memtable.space.slots_max();
        let needed = u64::from(self.tail.slots_used) + chunks;
        match needed <= u64::from(limit) {
            true => Ok(()),
            false => Err(Refusal::TooManyChunks { needed, limit }),
        }
    }

    /// Blocks to add before that many more refs fit.
    fn blocks_for(&self, records: u32) -> u32 {
        let refs = self.refs_used + records;
        refs.div_ceil(self.memtable.block_records) - self.blocks
    }

    fn bytes_of(&self, chunks: u64, records: u32) -> u64 {
        chunks * u64::from(self.memtable.chunk_bytes)
            + u64::from(self.blocks_for(records)) * Refs::block_bytes(self.memtable.block_records)
    }

    /// Takes chunks and blocks out of the permit, or nothing.
    fn take(&mut self, chunks: u64, records: u32, permit: &mut Permit) -> Result<(), Refusal> {
        let needed = self.bytes_of(chunks, records);
        if needed == 0 {
            return Ok(());
        }
        let refusal = Refusal::PermitTooSmall {
            needed,
            given: permit.bytes(),
        };
        let mut part = permit.split(needed).ok_or(refusal)?;
        let mut taken = part.split(0).ok_or(refusal)?;
        for _ in 0..chunks {
            let (chunk, chunk_part) = part.chunk().ok_or(refusal)?;
            self.tail.ahead.push(chunk);
            taken.absorb(chunk_part);
        }
        for _ in 0..self.blocks_for(records) {
            let block_part = self.memtable.refs.add_block(self.blocks, &mut part);
            taken.absorb(block_part.ok_or(refusal)?);
            self.blocks += 1;
        }
        debug_assert_eq!(part.bytes(), 0);
        self.memtable.absorb(taken);
        Ok(())
    }

    fn begin(&mut self, sequence: Sequence) {
        self.memtable.counts.begin(sequence);
        self.last_sequence = sequence;
    }

    /// Makes the ref of a record that is in place, and lets the probe find it.
    fn add_ref(&mut self, op: &Op<'_>, location: u32) {
        let node = self.refs_used + 1;
        let mixed = mix(op.hash, op.keyspace, op.key);
        let memtable = &self.memtable;
        let (slot, older) = match memtable.walk(mixed, op.keyspace, op.key) {
            Some(Walk::Held { slot, newest }) => (slot, newest),
            Some(Walk::Empty { slot }) => (slot, 0),
            None => {
                debug_assert!(false, "the probe is at most half full");
                return;
            }
        };
        debug_assert!(
            older == 0
                || memtable.sequence_offset(self.last_sequence)
                    != Some(memtable.refs.sequence_offset(older)),
            "a key twice in one commit"
        );
        let (height, links_start) = memtable.refs.tower(node, &mut self.links_used);
        let entry = Ref {
            location,
            sequence_offset: memtable.sequence_offset(self.last_sequence).unwrap_or(0),
            prefix: prefix(op.keyspace, op.key),
            older,
            links_start,
            height,
            digest: digest(op.keyspace),
        };
        memtable.refs.write(node, &entry);
        memtable.probe.set(slot, mixed, node);
        memtable.counts.add_record(op, older != 0);
        self.refs_used = node;
    }
}
