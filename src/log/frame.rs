//! A frame: one commit, or the seal that ends a log.
//!
//! ```text
//! offset  bytes  field (little endian)
//!      0      4  CRC-32C of the 36 bytes below, then of store id, number, incarnation, file offset
//!      4      1  kind: 1 commit, 2 seal
//!      5      1  flags: 0
//!      6      2  reserved: 0
//!      8      8  sequence: the commit's; of a seal the last commit's
//!     16      8  durable through: every commit up to this one was synced when this was written
//!     24      4  payload length, a multiple of 8
//!     28      4  records in the payload; of a seal 0
//!     32      4  CRC-32C of the payload
//!     36      4  reserved: 0
//!     40      -  payload: records (see `record`), or a seal's counts
//!
//! seal payload: records u64 | payload bytes u64 | first sequence u64 | last sequence u64
//! ```
//!
//! Frames start on multiples of 8 and follow each other without a gap. The header has a checksum of
//! its own, so that its mark can be believed although its payload is torn.

use crate::types::Sequence;

use super::header::{LogIdentity, u32_at, u64_at};

/// Bytes of a frame's header.
pub const FRAME_HEADER_BYTES: usize = 40;

/// Frames start on multiples of this, and their payloads are multiples of it.
pub const FRAME_ALIGN: usize = 8;

/// Bytes of a seal frame, header included. Writers keep room for one.
pub const SEAL_FRAME_BYTES: u64 = (FRAME_HEADER_BYTES + SEAL_PAYLOAD_BYTES) as u64;

const SEAL_PAYLOAD_BYTES: usize = 32;

/// What a frame holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameKind {
    /// The records of one commit.
    Commit,
    /// The counts of the whole log; nothing follows.
    Seal,
}

/// A frame's header, without what the file's identity and the place add to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// What the frame holds.
    pub kind: FrameKind,
    /// The commit's sequence; of a seal, the last commit's.
    pub sequence: Sequence,
    /// The mark: all commits up to this one were durable when the frame was written.
    pub durable_through: Sequence,
    /// Payload bytes, a multiple of 8.
    pub payload_len: u32,
    /// Records in the payload.
    pub records: u32,
    /// CRC-32C of the payload.
    pub payload_crc: u32,
}

impl FrameHeader {
    /// Bytes of the whole frame.
    pub const fn frame_len(&self) -> u64 {
        FRAME_HEADER_BYTES as u64 + self.payload_len as u64
    }

    /// The header as it stands at `offset` of the log `identity`.
    pub fn encode(&self, identity: &LogIdentity, offset: u64) -> [u8; FRAME_HEADER_BYTES] {
        let mut bytes = [0; FRAME_HEADER_BYTES];
        bytes[4] = match self.kind {
            FrameKind::Commit => 1,
            FrameKind::Seal => 2,
        };
        bytes[8..16].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.durable_through.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.payload_len.to_le_bytes());
        bytes[28..32].copy_from_slice(&self.records.to_le_bytes());
        bytes[32..36].copy_from_slice(&self.payload_crc.to_le_bytes());
        let checksum = header_checksum(&bytes, identity, offset);
        bytes[..4].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }
}

/// What stands where a frame header may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// A header written for this very place.
    Frame(FrameHeader),
    /// Nothing was written here.
    Zeros,
    /// Bytes, but no header of this log.
    Damaged,
    /// Rightly checksummed, but of a kind or with flags that this release does not know.
    Unknown,
}

/// Looks at the first bytes at `offset` (fewer than a header's only where the file ends).
pub(super) fn decode(bytes: &[u8], identity: &LogIdentity, offset: u64) -> Place {
    let Some(header) = bytes.first_chunk::<FRAME_HEADER_BYTES>() else {
        return if bytes.iter().all(|byte| *byte == 0) {
            Place::Zeros
        } else {
            Place::Damaged
        };
    };
    if *header == [0; FRAME_HEADER_BYTES] {
        return Place::Zeros;
    }
    if u32_at(header, 0) != header_checksum(header, identity, offset) {
        return Place::Damaged;
    }
    let kind = match header[4] {
        1 => FrameKind::Commit,
        2 => FrameKind::Seal,
        _ => return Place::Unknown,
    };
    if header[5..8] != [0; 3] || header[36..] != [0; 4] {
        return Place::Unknown;
    }
    Place::Frame(FrameHeader {
        kind,
        sequence: u64_at(header, 8),
        durable_through: u64_at(header, 16),
        payload_len: u32_at(header, 24),
        records: u32_at(header, 28),
        payload_crc: u32_at(header, 32),
    })
}

fn header_checksum(header: &[u8; FRAME_HEADER_BYTES], identity: &LogIdentity, offset: u64) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&header[4..]), &identity.binding(offset))
}

/// The checksum of a payload that lies in pieces.
pub fn payload_checksum(pieces: &[&[u8]]) -> u32 {
    pieces
        .iter()
        .fold(0, |checksum, piece| crc32c::crc32c_append(checksum, piece))
}

/// What a seal frame says of the log before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seal {
    /// Records of all commits.
    pub records: u64,
    /// Payload bytes of all commits.
    pub bytes: u64,
    /// The first commit, 0 if none.
    pub first: Sequence,
    /// The last commit, 0 if none.
    pub last: Sequence,
}

impl Seal {
    /// The counts with one more commit.
    pub(super) fn counting(mut self, commit: &FrameHeader) -> Self {
        if self.first == 0 {
            self.first = commit.sequence;
        }
        self.last = commit.sequence;
        self.records += u64::from(commit.records);
        self.bytes += u64::from(commit.payload_len);
        self
    }

    /// The frame: header and payload.
    pub(super) fn encode(
        &self,
        durable_through: Sequence,
    ) -> (FrameHeader, [u8; SEAL_PAYLOAD_BYTES]) {
        let mut payload = [0; SEAL_PAYLOAD_BYTES];
        for (bytes, value) in payload.chunks_exact_mut(8).zip(self.fields()) {
            bytes.copy_from_slice(&value.to_le_bytes());
        }
        let header = FrameHeader {
            kind: FrameKind::Seal,
            sequence: self.last,
            durable_through,
            payload_len: SEAL_PAYLOAD_BYTES as u32,
            records: 0,
            payload_crc: crc32c::crc32c(&payload),
        };
        (header, payload)
    }

    /// Whether `payload` is this seal's.
    pub(super) fn is(&self, payload: &[u8]) -> bool {
        self.encode(0).1 == payload
    }

    fn fields(&self) -> [u64; 4] {
        [self.records, self.bytes, self.first, self.last]
    }
}
