//! What the manifest knows of a segment, and the short form of it that stays in memory.
//!
//! A store with many segments holds this for each, although it is needed only when a segment is first
//! touched, verified or named in a new manifest. So it is kept packed, once, and shared: the manifest's
//! state and the segment hold the same bytes.
//!
//! ```text
//! varint  lowest sequence, number        first, because they are asked for alone
//! varint  first generation, generations behind it, (part, level, kind) as one number
//! varint  file length, tail offset from the file's end, tail length beyond that
//! varint  records, tombstones, highest sequence from the lowest, bytes of keys, of values
//!      8  footer checksum
//! ```
//!
//! The family is not in it: all segments of a store have one, and whoever unpacks a form knows it.
//! Differences wrap, so every value survives, also what a damaged manifest says. The form is never
//! stored. It nearly always fits the room beside the counts of who shares it; the few that don't, with
//! numbers beyond what a store of terabytes has, are one allocation more. So a handle is one word.

use super::footer::SegmentCounts;
use super::identity::SegmentIdentity;
use crate::env::FileName;
use crate::sync::Arc;
use crate::types::{KeyspaceKind, Sequence};

/// A varint has at most so many bytes.
const VARINT_BYTES_MAX: usize = 10;

/// Varints of the packed form.
const VARINTS: usize = 13;

/// What the manifest knows of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentMeta {
    /// The file's number.
    pub number: u64,
    /// What it is, the same in every replica.
    pub identity: SegmentIdentity,
    /// The file's length.
    pub file_len: u64,
    /// Where its tail (page fences and footer) starts.
    pub tail_offset: u64,
    /// The tail's length; it ends where the file does.
    pub tail_len: u64,
    /// The footer's checksum.
    pub footer_checksum: u64,
    /// Totals over its records.
    pub counts: SegmentCounts,
}

/// Bytes of a packed form that need no allocation of their own. With the counts that is what allocators
/// give for 41 to 56 bytes: 64.
const SHORT_BYTES: usize = 39;

/// The same, packed and shared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackedMeta(Arc<Packed>);

/// The packed form; what is behind the checksum of a short one says nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Packed {
    Short([u8; SHORT_BYTES]),
    Long(Box<[u8]>),
}

const _: () = assert!(size_of::<Packed>() == SHORT_BYTES + 1, "see above");

impl SegmentMeta {
    /// The file's name.
    pub const fn name(&self) -> FileName {
        match self.identity.level {
            0 => FileName::segment(self.number),
            _ => FileName::run(self.number),
        }
    }

    /// The packed form.
    pub fn pack(&self) -> PackedMeta {
        let (identity, counts) = (&self.identity, &self.counts);
        let from_end = self.file_len.wrapping_sub(self.tail_offset);
        let numbers: [u64; VARINTS] = [
            counts.min_sequence,
            self.number,
            identity.generation_lo,
            identity.generation_hi.wrapping_sub(identity.generation_lo),
            u64::from(identity.part) << 16
                | u64::from(identity.level) << 8
                | u64::from(identity.kind.code()),
            self.file_len,
            from_end,
            self.tail_len.wrapping_sub(from_end),
            counts.records,
            counts.tombstones,
            counts.max_sequence.wrapping_sub(counts.min_sequence),
            counts.key_bytes,
            counts.value_bytes,
        ];
        let mut bytes = Vec::with_capacity(VARINTS * VARINT_BYTES_MAX + 8);
        for number in numbers {
            put_varint(&mut bytes, number);
        }
        bytes.extend_from_slice(&self.footer_checksum.to_le_bytes());
        let mut short = [0; SHORT_BYTES];
        let packed = match short.get_mut(..bytes.len()) {
            Some(room) => {
                room.copy_from_slice(&bytes);
                Packed::Short(short)
            }
            None => Packed::Long(bytes.into_boxed_slice()),
        };
        PackedMeta(Arc::new(packed))
    }
}

impl PackedMeta {
    fn numbers(&self) -> Varints<'_> {
        match &*self.0 {
            Packed::Short(bytes) => Varints(bytes),
            Packed::Long(bytes) => Varints(bytes),
        }
    }

    /// The lowest sequence of a record.
    pub fn min_sequence(&self) -> Sequence {
        self.numbers().next()
    }

    /// The file's number.
    pub fn number(&self) -> u64 {
        let mut numbers = self.numbers();
        numbers.next();
        numbers.next()
    }

    /// Its first generation and its last.
    pub fn generations(&self) -> (u64, u64) {
        let mut numbers = self.numbers();
        numbers.next();
        numbers.next();
        let first = numbers.next();
        (first, first.wrapping_add(numbers.next()))
    }

    /// The file's name: a level above 0 has an index and no records.
    pub fn name(&self) -> FileName {
        match self.role().level {
            0 => FileName::segment(self.number()),
            _ => FileName::run(self.number()),
        }
    }

    /// What it is.
    pub fn role(&self) -> Role {
        let mut numbers = self.numbers();
        for _ in 0..4 {
            numbers.next();
        }
        Role::of_number(numbers.next())
    }

    /// Its records, or the entries of a part.
    pub fn records(&self) -> u64 {
        let mut numbers = self.numbers();
        for _ in 0..8 {
            numbers.next();
        }
        numbers.next()
    }

    /// Its bytes in memory beside the counts of who shares it.
    pub fn bytes(&self) -> usize {
        let beside = match &*self.0 {
            Packed::Short(_) => 0,
            Packed::Long(bytes) => bytes.len(),
        };
        size_of::<Packed>() + beside
    }

    /// The plain form, of a store of that family.
    pub fn unpack(&self, family_id: u128) -> SegmentMeta {
        let mut numbers = self.numbers();
        let mut next = || numbers.next();
        let (min_sequence, number) = (next(), next());
        let (generation_lo, generations, role) = (next(), next(), next());
        let (file_len, from_end, tail_more) = (next(), next(), next());
        let (records, tombstones, sequences, key_bytes, value_bytes) =
            (next(), next(), next(), next(), next());
        let checksum = numbers.0.first_chunk().copied().unwrap_or_default();
        let Role { kind, level, part } = Role::of_number(role);
        SegmentMeta {
            number,
            identity: SegmentIdentity {
                family_id,
                generation_lo,
                generation_hi: generation_lo.wrapping_add(generations),
                kind,
                level,
                part,
            },
            file_len,
            tail_offset: file_len.wrapping_sub(from_end),
            tail_len: tail_more.wrapping_add(from_end),
            footer_checksum: u64::from_le_bytes(checksum),
            counts: SegmentCounts {
                records,
                tombstones,
                min_sequence,
                max_sequence: min_sequence.wrapping_add(sequences),
                key_bytes,
                value_bytes,
            },
        }
    }
}

/// What a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Role {
    /// Of these keyspaces.
    pub kind: KeyspaceKind,
    /// 0 for a segment, more for the part of a folded run.
    pub level: u8,
    /// Which part.
    pub part: u16,
}

impl Role {
    fn of_number(number: u64) -> Self {
        Self {
            // Packed from a kind, so it is one.
            kind: KeyspaceKind::from_code(number as u8).unwrap_or(KeyspaceKind::Mutable),
            level: (number >> 8) as u8,
            part: (number >> 16) as u16,
        }
    }
}

/// Seven bits a byte, the low ones first; the top bit says that more follow.
fn put_varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

struct Varints<'a>(&'a [u8]);

impl Varints<'_> {
    fn next(&mut self) -> u64 {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let Some((byte, rest)) = self.0.split_first() else {
                break;
            };
            self.0 = rest;
            number |= u64::from(byte & 0x7F) << shift;
            if byte & 0x80 == 0 {
                break;
            }
        }
        number
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Small numbers, large ones and those at the edges of varints.
    fn any_number() -> impl Strategy<Value = u64> {
        prop_oneof![0..300_u64, any::<u64>(), Just(u64::MAX), Just(1 << 63)]
    }

    proptest! {
        #[test]
        fn every_meta_survives_packing(
            numbers in prop::collection::vec(any_number(), 13),
            family_id in any::<u128>(),
            write_once in any::<bool>(),
            level in any::<u8>(),
            part in any::<u16>(),
        ) {
            let meta = SegmentMeta {
                number: numbers[0],
                identity: SegmentIdentity {
                    family_id,
                    generation_lo: numbers[1],
                    generation_hi: numbers[2],
                    kind: KeyspaceKind::ALL[usize::from(!write_once)],
                    level,
                    part,
                },
                file_len: numbers[3],
                tail_offset: numbers[4],
                tail_len: numbers[5],
                footer_checksum: numbers[6],
                counts: SegmentCounts {
                    records: numbers[7],
                    tombstones: numbers[8],
                    min_sequence: numbers[9],
                    max_sequence: numbers[10],
                    key_bytes: numbers[11],
                    value_bytes: numbers[12],
                },
            };
            let packed = meta.pack();
            prop_assert_eq!(packed.unpack(family_id), meta.clone());
            prop_assert_eq!(packed.number(), meta.number);
            prop_assert_eq!(packed.name(), meta.name());
            prop_assert_eq!(packed.records(), meta.counts.records);
            prop_assert_eq!(packed.min_sequence(), meta.counts.min_sequence);
            let identity = meta.identity;
            let role = packed.role();
            prop_assert_eq!((role.kind, role.level, role.part), (identity.kind, level, part));
            prop_assert_eq!(packed.generations(), (identity.generation_lo, identity.generation_hi));
        }
    }
}
