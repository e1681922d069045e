//! The streaming merge of a sealed generation into one segment per kind.
//!
//! Pure: it knows a memtable and a segment writer, no manifest and no file names. The newest version of
//! each key is written; older ones are counted as shadowed, and `written + shadowed = planned` is
//! checked. Records go straight from the memtable's chunks into the writer's output buffer.

use crate::error::{Error, ErrorKind, Result};
use crate::memtable::{Memtable, OwnedMemCursor};
use crate::segment::{SegmentScratch, SegmentSummary, SegmentWriter};
use crate::sync::Arc;
use crate::types::{KeyspaceId, KeyspaceKind, Sequence, emptied};

/// The flush of one kind's records of one generation, as bounded steps.
#[derive(Debug)]
pub(crate) struct KindFlush {
    cursor: OwnedMemCursor,
    kind: KeyspaceKind,
    writer: SegmentWriter,
    last_key: Option<(KeyspaceId, Vec<u8>)>,
    /// The pieces of a value that lies in several chunks; empty between two records.
    pieces: Vec<&'static [u8]>,
    written: u64,
    shadowed: u64,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The memtable's records are being put in order.
    Order,
    Stream,
    Finish,
}

impl KindFlush {
    /// A flush of `kind`'s records into `writer`.
    pub fn new(memory: Arc<Memtable>, kind: KeyspaceKind, writer: SegmentWriter) -> Self {
        Self {
            cursor: memory.owned_cursor(),
            kind,
            writer,
            last_key: None,
            pieces: Vec::new(),
            written: 0,
            shadowed: 0,
            stage: Stage::Order,
        }
    }

    /// Does about `quantum` records' worth; the summary once the file is whole (and not yet synced).
    pub fn step(&mut self, quantum: u32) -> Result<Option<SegmentSummary>> {
        match self.stage {
            Stage::Order => {
                if self.cursor.memtable().order(quantum.max(1)) {
                    let first = KeyspaceId::new(self.kind, 0).unwrap_or_default();
                    self.cursor.seek(first, &[], Sequence::MAX);
                    self.stage = Stage::Stream;
                }
            }
            Stage::Stream => {
                if self.stream(quantum)? {
                    self.stage = Stage::Finish;
                }
            }
            Stage::Finish => {
                let quantum_bytes = (quantum as usize).saturating_mul(FINISH_BYTES_PER_RECORD);
                return self.writer.finish_step(quantum_bytes);
            }
        }
        Ok(None)
    }

    /// Bytes copied into the output buffer so far.
    pub fn copied_bytes(&self) -> u64 {
        self.writer.copied_bytes()
    }

    /// The writer's buffers, for the next one.
    pub fn into_scratch(self) -> SegmentScratch {
        self.writer.into_scratch()
    }

    /// Streams up to `quantum` versions; true at the end.
    fn stream(&mut self, quantum: u32) -> Result<bool> {
        for _ in 0..quantum.max(1) {
            let Some(entry) = self.cursor.entry() else {
                return self.end();
            };
            if entry.keyspace.kind() != Some(self.kind) {
                return self.end();
            }
            let shadowed = self
                .last_key
                .as_ref()
                .is_some_and(|(keyspace, key)| *keyspace == entry.keyspace && *key == entry.key);
            if shadowed {
                self.shadowed += 1;
            } else {
                let (keyspace, key, sequence) = (entry.keyspace, entry.key, entry.sequence);
                let mut slices = entry.value.slices();
                match (slices.next(), slices.next()) {
                    // Nearly every value: the rest of a chunk holds it.
                    (first, None) => {
                        let whole = first.unwrap_or_default();
                        self.writer
                            .add(keyspace, key, sequence, entry.kind, &[whole])?;
                    }
                    _ => {
                        let mut pieces: Vec<&[u8]> = emptied(std::mem::take(&mut self.pieces));
                        pieces.extend(entry.value.slices());
                        self.writer
                            .add(keyspace, key, sequence, entry.kind, &pieces)?;
                        self.pieces = emptied(pieces);
                    }
                }
                self.written += 1;
                remember(&mut self.last_key, entry.keyspace, entry.key);
            }
            self.cursor.next();
        }
        Ok(false)
    }

    fn end(&self) -> Result<bool> {
        let planned = u64::from(self.cursor.memtable().counts(self.kind).records());
        if self.written + self.shadowed != planned {
            let detail = format!(
                "planned {planned} records, wrote {}, {} shadowed",
                self.written, self.shadowed
            );
            return Err(Error::new(ErrorKind::Corruption, "flush", detail));
        }
        Ok(true)
    }
}

/// How many bytes of index and filter one record's worth of quantum may write.
const FINISH_BYTES_PER_RECORD: usize = 64;

fn remember(last: &mut Option<(KeyspaceId, Vec<u8>)>, keyspace: KeyspaceId, key: &[u8]) {
    match last {
        Some((last_keyspace, last_key)) => {
            *last_keyspace = keyspace;
            last_key.clear();
            last_key.extend_from_slice(key);
        }
        None => *last = Some((keyspace, key.to_vec())),
    }
}
