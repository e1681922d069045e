//! What a segment is, and the checksum seeds that follow from it.
//!
//! ```text
//! offset  bytes  field (little endian), 40 in all
//!      0     16  family id
//!     16      8  first generation
//!     24      8  last generation
//!     32      1  kind of its keyspaces
//!     33      1  level
//!     34      2  part
//!     36      4  reserved: 0
//! ```
//!
//! A segment carries neither store id nor file number, so that replicas and checkpoints can share its
//! file byte for byte; the manifest binds a number to an identity. All checksums inside are seeded by
//! the identity and by the place, so that bytes of another file or another place look damaged.

use twox_hash::XxHash3_64;

use crate::index::UNIT_BYTES;
use crate::types::KeyspaceKind;

/// The identity of a segment or run: equal content has an equal identity, in every replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentIdentity {
    /// The family of stores that share seed and segments.
    pub family_id: u128,
    /// The oldest generation whose records it may hold.
    pub generation_lo: u64,
    /// The newest.
    pub generation_hi: u64,
    /// The kind of all its keyspaces.
    pub kind: KeyspaceKind,
    /// 0 for what a flush wrote.
    pub level: u8,
    /// The part, where a level is split by hash prefix.
    pub part: u16,
}

impl SegmentIdentity {
    /// Bytes of the encoded form.
    pub const BYTES: usize = 40;

    /// The encoded form.
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..16].copy_from_slice(&self.family_id.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.generation_lo.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.generation_hi.to_le_bytes());
        bytes[32] = self.kind.code();
        bytes[33] = self.level;
        bytes[34..36].copy_from_slice(&self.part.to_le_bytes());
        bytes
    }

    /// From the encoded form; `None` if it is not one.
    pub fn decode(bytes: &[u8; Self::BYTES]) -> Option<Self> {
        let (family, rest) = bytes.split_first_chunk::<16>()?;
        let (lo, rest) = rest.split_first_chunk::<8>()?;
        let (hi, rest) = rest.split_first_chunk::<8>()?;
        let [kind, level, part_lo, part_hi, 0, 0, 0, 0] = *rest.first_chunk::<8>()? else {
            return None;
        };
        Some(Self {
            family_id: u128::from_le_bytes(*family),
            generation_lo: u64::from_le_bytes(*lo),
            generation_hi: u64::from_le_bytes(*hi),
            kind: KeyspaceKind::from_code(kind)?,
            level,
            part: u16::from_le_bytes([part_lo, part_hi]),
        })
    }

    /// The seeds of the checksums inside.
    pub fn seeds(&self) -> Seeds {
        Seeds {
            base: XxHash3_64::oneshot(&self.encode()),
        }
    }
}

/// What a checksum protects: equal bytes in two roles have different checksums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Domain {
    /// Records.
    Record = 1,
    /// A piece of key fences.
    KeyFences = 2,
    /// An index page.
    IndexPage = 3,
    /// A piece of the filter with this many bits a key is seeded by its place in the file.
    Filter = 4,
    /// The page fences.
    PageFences = 5,
}

/// Derives checksum seeds from an identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seeds {
    base: u64,
}

impl Seeds {
    /// The seed of the `place`-th thing of a domain.
    pub fn seed(self, domain: Domain, place: u64) -> u64 {
        let mut input = [0; 16];
        input[0] = domain as u8;
        input[8..].copy_from_slice(&place.to_le_bytes());
        XxHash3_64::oneshot_with_seed(self.base, &input)
    }

    /// The initial CRC-32C of the records; [`record_crc_start`] adds the place.
    pub fn record_base(self) -> u32 {
        self.seed(Domain::Record, 0) as u32
    }
}

/// Where the CRC-32C of the record at `offset` starts. A different offset is a difference that the
/// CRC of equal bytes can't lose, so a record read from the wrong place never passes.
pub const fn record_crc_start(record_base: u32, offset: u64) -> u32 {
    let units = offset / UNIT_BYTES;
    record_base ^ units as u32 ^ ((units >> 32) as u32).rotate_left(16)
}

/// XXH3-64.
pub fn checksum(seed: u64, bytes: &[u8]) -> u64 {
    XxHash3_64::oneshot_with_seed(seed, bytes)
}

/// The checksum of a section made of many checked pieces: a chain over their checksums, so that
/// neither writer nor verifier needs the section at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Chain(pub u64);

impl Chain {
    /// Appends a piece's checksum.
    pub fn push(&mut self, piece: u64) {
        self.0 = XxHash3_64::oneshot_with_seed(self.0, &piece.to_le_bytes());
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// An identity for tests.
    pub(crate) const IDENTITY: SegmentIdentity = SegmentIdentity {
        family_id: 0x0123_4567_89AB_CDEF_0011_2233_4455_6677,
        generation_lo: 5,
        generation_hi: 5,
        kind: KeyspaceKind::WriteOnce,
        level: 0,
        part: 0,
    };

    #[test]
    fn identities_round_trip_and_each_field_counts() {
        let bytes = IDENTITY.encode();
        assert_eq!(SegmentIdentity::decode(&bytes), Some(IDENTITY));
        for at in 0..SegmentIdentity::BYTES {
            let mut other = bytes;
            other[at] ^= 0x40;
            assert_ne!(SegmentIdentity::decode(&other), Some(IDENTITY), "byte {at}");
        }
        let seeds = IDENTITY.seeds();
        // Frozen: seeds are part of the format.
        assert_eq!(seeds.seed(Domain::IndexPage, 3), 0x6EC8_11BC_14A1_1F08);
        assert_ne!(
            seeds.seed(Domain::IndexPage, 3),
            seeds.seed(Domain::IndexPage, 4)
        );
        assert_ne!(
            seeds.seed(Domain::IndexPage, 3),
            seeds.seed(Domain::Filter, 3)
        );
        let next = SegmentIdentity {
            part: 1,
            ..IDENTITY
        };
        assert_ne!(next.seeds(), seeds);
        assert_ne!(record_crc_start(7, 64), record_crc_start(7, 72));
        assert_ne!(record_crc_start(7, 64), record_crc_start(7, 64 + (8 << 32)));
    }
}
