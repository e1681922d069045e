//! The small types that every part speaks: sequences, keyspace ids, record kinds, key hashes.

use std::hash::Hasher as _;

use siphasher::sip::SipHasher13;

/// The place of a commit in the store's history; the first is 1, 0 stands for "before all".
pub type Sequence = u64;

/// The longest key, in bytes.
pub const KEY_BYTES_MAX: usize = 65_535;

/// Significant bits of a [`KeyHash`].
pub const HASH_BITS: u32 = 46;

/// What may be done to the keys of a keyspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KeyspaceKind {
    /// A key keeps its first value: the same value again is a no-op, another one a `Conflict`.
    WriteOnce,
    /// The last write wins.
    Mutable,
}

impl KeyspaceKind {
    /// Both kinds, in the order of their ids, which is the order of flush.
    pub const ALL: [Self; 2] = [Self::WriteOnce, Self::Mutable];

    /// The kind's number in formats, and its index in per-kind arrays.
    pub const fn code(self) -> u8 {
        match self {
            Self::WriteOnce => 0,
            Self::Mutable => 1,
        }
    }

    /// The kind with this number.
    pub const fn from_code(code: u8) -> Option<Self> {
        match code {
            0 => Some(Self::WriteOnce),
            1 => Some(Self::Mutable),
            _ => None,
        }
    }
}

/// A keyspace's number: its kind in the top two bits (00 `WriteOnce`, 10 `Mutable`), so that the
/// records of one kind are contiguous in key order, and a counter below.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyspaceId(pub u32);

impl KeyspaceId {
    /// The largest counter.
    pub const COUNTER_MAX: u32 = 0x3FFF_FFFF;

    /// The id of the `counter`-th keyspace of a kind; `None` above [`Self::COUNTER_MAX`].
    pub fn new(kind: KeyspaceKind, counter: u32) -> Option<Self> {
        (counter <= Self::COUNTER_MAX).then_some(Self((u32::from(kind.code()) << 31) | counter))
    }

    /// The kind; `None` for an id that no version of the format uses.
    pub fn kind(self) -> Option<KeyspaceKind> {
        match self.0 >> 30 {
            0b00 => Some(KeyspaceKind::WriteOnce),
            0b10 => Some(KeyspaceKind::Mutable),
            _ => None,
        }
    }

    /// The kind, which is `Mutable` for an id that no version of the format uses. Lookups ask.
    #[inline]
    pub const fn kind_or_mutable(self) -> KeyspaceKind {
        match self.0 >> 30 {
            0b00 => KeyspaceKind::WriteOnce,
            _ => KeyspaceKind::Mutable,
        }
    }

    /// The counter below the kind.
    pub const fn counter(self) -> u32 {
        self.0 & Self::COUNTER_MAX
    }
}

/// What a record says of its key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum RecordKind {
    /// It has this value.
    #[default]
    Value,
    /// It was deleted.
    Tombstone,
}

impl RecordKind {
    /// The kind's number in formats.
    pub const fn code(self) -> u8 {
        match self {
            Self::Value => 1,
            Self::Tombstone => 2,
        }
    }

    /// The kind with this number.
    pub const fn from_code(code: u8) -> Option<Self> {
        match code {
            1 => Some(Self::Value),
            2 => Some(Self::Tombstone),
            _ => None,
        }
    }
}

/// The keyed hash of (keyspace, key): 46 bits, right-aligned. With fewer `hash_bits` the top ones are
/// kept and the rest is zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyHash(pub u64);

/// An id and a key up to so long are hashed in one piece, which takes half as long.
const HASHED_AT_ONCE_BYTES: usize = 4 + 64;

/// Hashes keys with the store family's seed (SipHash-1-3, Aumasson and Bernstein 2012), so that no
/// caller can choose keys that collide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hasher {
    seed: [u8; 16],
    family_id: u128,
    hash_bits: u8,
}

impl Hasher {
    /// A hasher that keeps the top `hash_bits` (1 to 46) of 46 bits.
    pub fn new(seed: [u8; 16], hash_bits: u8) -> Self {
        debug_assert!((1..=HASH_BITS).contains(&u32::from(hash_bits)));
        Self {
            seed,
            family_id: 0,
            hash_bits,
        }
    }

    /// The hasher of that family.
    pub const fn of_family(mut self, family_id: u128) -> Self {
        self.family_id = family_id;
        self
    }

    /// Whose it is: what all segments of a store have in common is kept once.
    pub const fn family_id(&self) -> u128 {
        self.family_id
    }

    /// The bits kept.
    pub const fn hash_bits(&self) -> u8 {
        self.hash_bits
    }

    /// The hash of a key of a keyspace.
    #[inline]
    pub fn hash(&self, keyspace: KeyspaceId, key: &[u8]) -> KeyHash {
        let sip = SipHasher13::new_with_key(&self.seed);
        let mut whole = [0; HASHED_AT_ONCE_BYTES];
        let id = keyspace.0.to_le_bytes();
        let hashed = match whole.get_mut(..id.len() + key.len()) {
            Some(whole) => {
                whole[..id.len()].copy_from_slice(&id);
                whole[id.len()..].copy_from_slice(key);
                sip.hash(whole)
            }
            None => {
                let mut hasher = sip;
                hasher.write(&id);
                hasher.write(key);
                hasher.finish()
            }
        };
        let kept = HASH_BITS.min(u32::from(self.hash_bits));
        let top = hashed >> (64 - HASH_BITS);
        KeyHash(top >> (HASH_BITS - kept) << (HASH_BITS - kept))
    }
}

/// The same list, emptied, for items that borrow from elsewhere. The standard library collects in place
/// where sizes agree, which `tests/allocations.rs` counts; if it did not, this would only be slower.
pub(crate) fn emptied<T, U>(mut list: Vec<T>) -> Vec<U> {
    list.clear();
    list.into_iter().filter_map(|_| None).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_carry_their_kind() {
        for kind in KeyspaceKind::ALL {
            let id = KeyspaceId::new(kind, 7).expect("small counter");
            assert_eq!((id.kind(), id.counter()), (Some(kind), 7));
        }
        assert_eq!(KeyspaceId::new(KeyspaceKind::Mutable, 1 << 30), None);
        assert_eq!(KeyspaceId(0x4000_0000).kind(), None);
        for id in [0, 7, 1 << 31, 7 | 1 << 31, 1 << 30, u32::MAX].map(KeyspaceId) {
            let kind = id.kind().unwrap_or(KeyspaceKind::Mutable);
            assert_eq!(id.kind_or_mutable(), kind);
        }
        assert!(
            KeyspaceId::new(KeyspaceKind::WriteOnce, 9) < KeyspaceId::new(KeyspaceKind::Mutable, 0)
        );
    }

    #[test]
    fn fewer_hash_bits_are_the_top_ones() {
        let seed = [7; 16];
        let id = KeyspaceId(3);
        let full = Hasher::new(seed, 46).hash(id, b"key").0;
        let short = Hasher::new(seed, 8).hash(id, b"key").0;
        assert!(full < 1 << 46);
        assert_eq!(short, full >> 38 << 38);
        // A frozen value: the hash is part of the format.
        assert_eq!(full, 0x084a_b251_9bae);
    }
}
