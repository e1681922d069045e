//! A record as it stands in a segment.
//!
//! ```text
//! offset  bytes  field (little endian)
//!      0      4  CRC-32C of everything that follows up to the value's end, started from the file's
//!                identity and the record's place
//!      4      4  keyspace id
//!      8      8  sequence
//!     16      4  value length
//!     20      2  key length
//!     22      1  kind: 1 value, 2 tombstone
//!     23      1  flags: bit 0 = an extension area follows the header
//!     24    2+n  only with flag 0: length n, then n bytes of skippable typed fields
//!      -      -  key | value | zero bytes up to a multiple of 8, and to 32 at least
//! ```
//!
//! Lengths are believed only within the bytes that were read; the checksum comes before anything else
//! is believed.

use std::ops::Range;

use super::identity::record_crc_start;
use crate::index::UNIT_BYTES;
use crate::types::{KeyspaceId, RecordKind, Sequence};

/// Bytes of the header.
pub const RECORD_HEADER_BYTES: usize = 24;

/// The shortest record, which is the smallest size class.
pub const RECORD_BYTES_MIN: u64 = 32;

const FLAG_EXTENSION: u8 = 1;

/// The length of a record on disk.
pub const fn padded_bytes(key_len: usize, value_len: u64) -> u64 {
    let bytes = (RECORD_HEADER_BYTES + key_len) as u64 + value_len;
    let padded = bytes.next_multiple_of(UNIT_BYTES);
    if padded < RECORD_BYTES_MIN {
        RECORD_BYTES_MIN
    } else {
        padded
    }
}

/// What the header says of a record that is being written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordHeader {
    /// The keyspace.
    pub keyspace: KeyspaceId,
    /// The commit it came with.
    pub sequence: Sequence,
    /// Value or tombstone.
    pub kind: RecordKind,
    /// The key's length.
    pub key_len: u16,
    /// The value's length.
    pub value_len: u32,
}

impl RecordHeader {
    /// The header's bytes in front of `key` and `value`, for a record at `offset`.
    pub fn encode(
        &self,
        record_base: u32,
        offset: u64,
        key: &[u8],
        value: &[&[u8]],
    ) -> [u8; RECORD_HEADER_BYTES] {
        let mut header = [0; RECORD_HEADER_BYTES];
        header[4..8].copy_from_slice(&self.keyspace.0.to_le_bytes());
        header[8..16].copy_from_slice(&self.sequence.to_le_bytes());
        header[16..20].copy_from_slice(&self.value_len.to_le_bytes());
        header[20..22].copy_from_slice(&self.key_len.to_le_bytes());
        header[22] = self.kind.code();
        let mut crc = record_crc_start(record_base, offset);
        crc = crc32c::crc32c_append(crc, &header[4..]);
        crc = crc32c::crc32c_append(crc, key);
        for slice in value {
            crc = crc32c::crc32c_append(crc, slice);
        }
        header[..4].copy_from_slice(&crc.to_le_bytes());
        header
    }
}

/// A decoded record: where things are, relative to its first byte.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordLayout {
    /// The stored checksum.
    pub crc: u32,
    /// The keyspace.
    pub keyspace: KeyspaceId,
    /// The commit it came with.
    pub sequence: Sequence,
    /// Value or tombstone.
    pub kind: RecordKind,
    /// Flags this version does not know; they don't change the lengths.
    pub unknown_flags: u8,
    /// The key's bytes.
    pub key: Range<usize>,
    /// The value's bytes.
    pub value: Range<usize>,
    /// Its length on disk, padding included.
    pub padded_bytes: u64,
}

/// Bytes that [`decode`] needs at most to know a record's lengths.
pub const LENGTHS_BYTES: usize = RECORD_HEADER_BYTES + 2;

/// Decodes the lengths at the start of `bytes` (at least [`LENGTHS_BYTES`] of them); says what is
/// wrong with them otherwise. Nothing is checked yet: see [`verify`].
#[inline]
pub fn decode(bytes: &[u8]) -> Result<RecordLayout, &'static str> {
    let header = bytes
        .first_chunk::<RECORD_HEADER_BYTES>()
        .ok_or("a record header is cut")?;
    let word = |at: usize| {
        u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
    };
    let kind = RecordKind::from_code(header[22]).ok_or("record kind")?;
    let value_len = word(16);
    if kind == RecordKind::Tombstone && value_len != 0 {
        return Err("a tombstone with a value");
    }
    let mut key_start = RECORD_HEADER_BYTES as u64;
    if header[23] & FLAG_EXTENSION != 0 {
        let area = bytes.get(24..26).ok_or("a record header is cut")?;
        key_start += 2 + u64::from(u16::from_le_bytes([area[0], area[1]]));
    }
    let value_start = key_start + u64::from(u16::from_le_bytes([header[20], header[21]]));
    let end = value_start + u64::from(value_len);
    let place = |at: u64| usize::try_from(at).map_err(|_| "a record larger than memory");
    Ok(RecordLayout {
        crc: word(0),
        keyspace: KeyspaceId(word(4)),
        sequence: u64::from(word(8)) | u64::from(word(12)) << 32,
        kind,
        unknown_flags: header[23] & !FLAG_EXTENSION,
        key: place(key_start)?..place(value_start)?,
        value: place(value_start)?..place(end)?,
        padded_bytes: end.next_multiple_of(UNIT_BYTES).max(RECORD_BYTES_MIN),
    })
}

/// Checks the record that lies at `offset` of the file and at the start of `bytes`, whose lengths
/// [`decode`] gave.
#[inline]
pub fn verify(
    bytes: &[u8],
    layout: &RecordLayout,
    record_base: u32,
    offset: u64,
) -> Result<(), &'static str> {
    let checked = bytes.get(4..layout.value.end).ok_or("a record is cut")?;
    if crc32c::crc32c_append(record_crc_start(record_base, offset), checked) != layout.crc {
        return Err("record checksum");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sample() -> Vec<u8> {
        let header = RecordHeader {
            keyspace: KeyspaceId(3),
            sequence: 0x0102_0304_0506_0708,
            kind: RecordKind::Value,
            key_len: 3,
            value_len: 10,
        };
        let mut bytes = header
            .encode(77, 640, b"key", &[b"01234", b"56789"])
            .to_vec();
        bytes.extend_from_slice(b"key0123456789");
        bytes.resize(padded_bytes(3, 10) as usize, 0);
        bytes
    }

    #[test]
    fn records_round_trip() {
        let bytes = sample();
        let layout = decode(&bytes).expect("valid");
        assert_eq!(verify(&bytes, &layout, 77, 640), Ok(()));
        assert_eq!(&bytes[layout.key.clone()], b"key");
        assert_eq!(&bytes[layout.value.clone()], b"0123456789");
        assert_eq!(
            (layout.sequence, layout.padded_bytes),
            (0x0102_0304_0506_0708, 40)
        );
        // Frozen: the checksum is part of the format.
        assert_eq!(layout.crc, 0x9A81_9C26);
        assert!(verify(&bytes, &layout, 77, 648).is_err(), "another place");
        assert!(verify(&bytes, &layout, 78, 640).is_err(), "another file");
        assert_eq!(padded_bytes(0, 0), 32);
    }

    proptest! {
        #[test]
        fn any_record_round_trips(
            key in prop::collection::vec(any::<u8>(), 0..40),
            value in prop::collection::vec(any::<u8>(), 0..80),
            sequence in any::<u64>(),
            cut in 0..80_usize,
            place in (any::<u32>(), (8..1_u64 << 43).prop_map(|unit| unit * 8)),
        ) {
            let header = RecordHeader {
                keyspace: KeyspaceId(3),
                sequence,
                kind: RecordKind::Value,
                key_len: key.len() as u16,
                value_len: value.len() as u32,
            };
            // However the value lies in pieces.
            let (first, second) = value.split_at(cut.min(value.len()));
            let mut bytes = header.encode(place.0, place.1, &key, &[first, second]).to_vec();
            bytes.extend_from_slice(&key);
            bytes.extend_from_slice(&value);
            bytes.resize(padded_bytes(key.len(), value.len() as u64) as usize, 0);
            let layout = decode(&bytes).expect("valid");
            prop_assert_eq!(verify(&bytes, &layout, place.0, place.1), Ok(()));
            prop_assert_eq!(&bytes[layout.key.clone()], key.as_slice());
            prop_assert_eq!(&bytes[layout.value.clone()], value.as_slice());
            prop_assert_eq!((layout.sequence, layout.kind), (sequence, RecordKind::Value));
            prop_assert!(verify(&bytes, &layout, place.0 ^ 1, place.1).is_err());
        }
    }

    fn valid(bytes: &[u8]) -> bool {
        decode(bytes).is_ok_and(|layout| verify(bytes, &layout, 77, 640).is_ok())
    }

    #[test]
    fn every_flip_and_cut_is_seen() {
        let bytes = sample();
        for at in 0..37 {
            for bit in 0..8 {
                let mut bad = bytes.clone();
                bad[at] ^= 1 << bit;
                assert!(!valid(&bad), "byte {at} bit {bit}");
            }
        }
        for len in 0..37 {
            assert!(!valid(&bytes[..len]), "{len}");
        }
    }

    #[test]
    fn extensions_are_skipped() {
        let mut bytes = sample();
        bytes[23] = 1;
        bytes.splice(24..24, [2, 0, 0xAA, 0xBB]);
        let crc = crc32c::crc32c_append(record_crc_start(77, 640), &bytes[4..41]);
        bytes[..4].copy_from_slice(&crc.to_le_bytes());
        let layout = decode(&bytes).expect("valid");
        assert_eq!(verify(&bytes, &layout, 77, 640), Ok(()));
        assert_eq!(&bytes[layout.key.clone()], b"key");
        assert_eq!(layout.unknown_flags, 0);
        bytes[23] = 0x81;
        assert_eq!(decode(&bytes).expect("valid").unknown_flags, 0x80);
    }
}
