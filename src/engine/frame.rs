//! The frame that a prepared batch comes to, once the write-once checks have said which of its operations
//! are written: their list, with length and checksum of the payload, all before the commit lock.

use crate::batch::{Expected, Prepared, PreparedOp};
use crate::engine::submit::{Outcome, Verdict};
use crate::log::{FRAME_HEADER_BYTES, record};
use crate::memtable::Op;

/// What will be written: the operations that are no no-ops, with length and checksum of the payload.
pub(super) struct Frame<'p, 'a> {
    pub(super) ops: Vec<Op<'p>>,
    pub(super) payload_len: u64,
    pub(super) payload_crc: u32,
    _batch: std::marker::PhantomData<&'a ()>,
}

impl<'p, 'a> Frame<'p, 'a> {
    /// The frame, its operations in an empty list.
    pub(super) fn of(
        prepared: &'p Prepared<'a>,
        verdicts: &[Verdict],
        mut ops: Vec<Op<'p>>,
    ) -> Self {
        let written = |op: &&'p PreparedOp<'a>, verdict: &Verdict| {
            !(matches!(op.expected, Some(Expected::Own)) && verdict.outcome == Outcome::Same)
        };
        ops.reserve(prepared.ops.len());
        let (mut payload_len, mut payload_crc) = (0, 0);
        for (op, verdict) in prepared.ops.iter().zip(verdicts) {
            if !written(&op, verdict) {
                continue;
            }
            let value = op.value_bytes();
            let header = record::encode_header(
                op.record_kind(),
                op.keyspace,
                op.key.len() as u16,
                value.len() as u32,
            );
            let unpadded = header.len() + op.key.len() + value.len();
            let padded = record::encoded_len(op.key.len(), value.len());
            payload_crc = crc32c::crc32c_append(payload_crc, &header);
            payload_crc = crc32c::crc32c_append(payload_crc, &op.key);
            payload_crc = crc32c::crc32c_append(payload_crc, value);
            payload_crc = crc32c::crc32c_append(payload_crc, &[0; 8][..padded - unpadded]);
            payload_len += padded as u64;
            let (keyspace, kind, hash) = (op.keyspace, op.record_kind(), op.hash);
            ops.push(Op {
                keyspace,
                kind,
                key: &op.key,
                value,
                hash,
            });
        }
        Self {
            ops,
            payload_len,
            payload_crc,
            _batch: std::marker::PhantomData,
        }
    }

    pub(super) fn frame_bytes(&self) -> u64 {
        self.payload_len + FRAME_HEADER_BYTES as u64
    }
}
