//! A record as it stands in a log frame and in a memory chunk.
//!
//! ```text
//! offset  bytes  field (little endian)
//!      0      1  kind: 1 value, 2 tombstone
//!      1      1  flags: 0
//!      2      2  key length
//!      4      4  value length
//!      8      4  keyspace id
//!     12      2  length of the extension area: skippable typed fields, none today
//!     14      2  reserved: 0
//!     16      -  extension area | key | value | zero bytes up to a multiple of 8
//! ```
//!
//! Flags and reserved bytes that are not 0, in a frame whose checksum holds, are a newer format.
//!
//! Memory and log hold the same bytes, so that a commit is encoded once. The checksum is the frame's.

use std::ops::Range;

use crate::types::{KeyspaceId, RecordKind};

/// Bytes of the header.
pub const RECORD_HEADER_BYTES: usize = 16;

/// Records start on multiples of this.
pub const RECORD_ALIGN: usize = 8;

/// The encoded length of a record, padding included.
pub const fn encoded_len(key_len: usize, value_len: usize) -> usize {
    (RECORD_HEADER_BYTES + key_len + value_len).next_multiple_of(RECORD_ALIGN)
}

/// The header of a record without extension.
pub fn encode_header(
    kind: RecordKind,
    keyspace: KeyspaceId,
    key_len: u16,
    value_len: u32,
) -> [u8; RECORD_HEADER_BYTES] {
    let mut header = [0; RECORD_HEADER_BYTES];
    header[0] = kind.code();
    header[2..4].copy_from_slice(&key_len.to_le_bytes());
    header[4..8].copy_from_slice(&value_len.to_le_bytes());
    header[8..12].copy_from_slice(&keyspace.0.to_le_bytes());
    header
}

/// Whether a header is of a newer form: flags or reserved bytes that this release does not know.
pub fn is_newer(bytes: &[u8]) -> bool {
    bytes
        .first_chunk::<RECORD_HEADER_BYTES>()
        .is_some_and(|header| header[1] != 0 || header[14..] != [0, 0])
}

/// A decoded header: where things are, relative to the record's first byte.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordLayout {
    /// Value or tombstone.
    pub kind: RecordKind,
    /// The keyspace.
    pub keyspace: KeyspaceId,
    /// The key's bytes.
    pub key: Range<usize>,
    /// The value's bytes; they may go on in the next chunk when in memory.
    pub value: Range<usize>,
    /// Length with padding.
    pub total_len: usize,
}

/// Decodes the header at the start of `bytes`; `None` if it is no valid header. Does not check that
/// key and value are within `bytes`.
pub fn decode_header(bytes: &[u8]) -> Option<RecordLayout> {
    let header = bytes.first_chunk::<RECORD_HEADER_BYTES>()?;
    let kind = RecordKind::from_code(header[0])?;
    let key_len = usize::from(u16::from_le_bytes([header[2], header[3]]));
    let value_len = u32::from_le_bytes([header[4], header[5], header[6], header[7]]) as usize;
    let keyspace = KeyspaceId(u32::from_le_bytes([
        header[8], header[9], header[10], header[11],
    ]));
    let extension_len = usize::from(u16::from_le_bytes([header[12], header[13]]));
    keyspace.kind()?;
    if header[1] != 0 || header[14..] != [0, 0] || (kind == RecordKind::Tombstone && value_len != 0)
    {
        return None;
    }
    let key_start = RECORD_HEADER_BYTES + extension_len;
    let value_start = key_start + key_len;
    let end = value_start + value_len;
    Some(RecordLayout {
        kind,
        keyspace,
        key: key_start..value_start,
        value: value_start..end,
        total_len: end.next_multiple_of(RECORD_ALIGN),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn headers_round_trip(
            tombstone in any::<bool>(),
            mutable in any::<bool>(),
            counter in 0..=KeyspaceId::COUNTER_MAX,
            key_len in any::<u16>(),
            value_len in any::<u32>(),
        ) {
            let (kind, value_len) = match tombstone {
                true => (RecordKind::Tombstone, 0),
                false => (RecordKind::Value, value_len),
            };
            let id = KeyspaceId(u32::from(mutable) << 31 | counter);
            let header = encode_header(kind, id, key_len, value_len);
            let layout = decode_header(&header).expect("valid");
            prop_assert_eq!((layout.kind, layout.keyspace), (kind, id));
            prop_assert_eq!(layout.key.len(), usize::from(key_len));
            prop_assert_eq!(layout.value.len(), value_len as usize);
            prop_assert_eq!(layout.key.end, layout.value.start);
            let total = encoded_len(key_len.into(), value_len as usize);
            prop_assert_eq!(layout.total_len, total);
            prop_assert!(total >= layout.value.end && total.is_multiple_of(RECORD_ALIGN));
        }

        #[test]
        fn any_header_is_a_layout_or_none(header in any::<[u8; 16]>()) {
            if let Some(layout) = decode_header(&header) {
                prop_assert!(!is_newer(&header));
                prop_assert!(layout.key.start >= RECORD_HEADER_BYTES);
                prop_assert!(layout.total_len >= layout.value.end);
            }
        }
    }

    #[test]
    fn header_round_trip() {
        let id = KeyspaceId(0x8000_0005);
        let header = encode_header(RecordKind::Value, id, 3, 10);
        let layout = decode_header(&header).expect("valid");
        assert_eq!(
            (layout.key, layout.value, layout.total_len),
            (16..19, 19..29, 32)
        );
        assert_eq!((layout.kind, layout.keyspace), (RecordKind::Value, id));
        assert_eq!(encoded_len(3, 10), 32);
        assert_eq!(decode_header(&header[..15]), None);
        assert_eq!(decode_header(&[0; 16]), None);
        assert!(!is_newer(&header) && !is_newer(&[]));
        for at in [1, 14, 15] {
            let mut newer = header;
            newer[at] = 1;
            assert!(is_newer(&newer) && decode_header(&newer).is_none());
        }
    }
}
