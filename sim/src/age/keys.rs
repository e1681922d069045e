//! Keys and values that follow from numbers, so that no key has to be remembered.
//!
//! ```text
//! "blocks" (write-once): id -> 8 bytes that look random (a bijection, so that a scan finds the id)
//! "names"  (mutable):    id -> id mod 16, then the id in 7 bytes: sixteen sequences that grow
//! value:                 4 to 16 bytes that follow from seed, keyspace, id and version
//! ```

use crate::choices::SmallRandom;

/// The keyspaces of an ageing store, by name.
pub const KEYSPACES: [&str; 2] = ["blocks", "names"];

/// The write-once one.
pub const BLOCKS: usize = 0;

/// The mutable one.
pub const NAMES: usize = 1;

/// Bytes of every key.
pub const KEY_BYTES: usize = 8;

/// Groups of names, each in the order of its ids.
pub const GROUPS: u64 = 16;

/// Ids from here on are never written: lookups that must find nothing.
pub const NEVER: u64 = 1 << 40;

const FACTORS: [u64; 2] = [0x9E37_79B9_7F4A_7C15, 0xBF58_476D_1CE4_E5B9];

/// The number that undoes a multiplication by an odd one: each step doubles the bits that are right.
const fn inverse(odd: u64) -> u64 {
    let mut guess = odd;
    let mut step = 0;
    while step < 5 {
        guess = guess.wrapping_mul(2u64.wrapping_sub(odd.wrapping_mul(guess)));
        step += 1;
    }
    guess
}

const INVERSES: [u64; 2] = [inverse(FACTORS[0]), inverse(FACTORS[1])];

fn scatter(id: u64) -> u64 {
    let once = id.wrapping_mul(FACTORS[0]);
    (once ^ (once >> 32)).wrapping_mul(FACTORS[1])
}

fn gather(scattered: u64) -> u64 {
    let once = scattered.wrapping_mul(INVERSES[1]);
    (once ^ (once >> 32)).wrapping_mul(INVERSES[0])
}

/// The key of an id.
pub fn key_of(keyspace: usize, id: u64) -> [u8; KEY_BYTES] {
    if keyspace == BLOCKS {
        return scatter(id).to_be_bytes();
    }
    (((id % GROUPS) << 56) | id).to_be_bytes()
}

/// The id of a key; none for one that no id has.
pub fn id_of(keyspace: usize, key: &[u8]) -> Option<u64> {
    let number = u64::from_be_bytes(key.try_into().ok()?);
    let id = if keyspace == BLOCKS {
        gather(number)
    } else {
        number & ((1 << 56) - 1)
    };
    (key_of(keyspace, id) == key).then_some(id)
}

/// Values of one run.
#[derive(Clone, Copy, Debug)]
pub struct Values {
    seed: u64,
}

impl Values {
    /// Those of a seed.
    pub const fn new(seed: u64) -> Self {
        Self { seed }
    }

    fn random(self, keyspace: usize, id: u64, version: u16) -> SmallRandom {
        let place = (id << 17) | (u64::from(version) << 1) | keyspace as u64;
        SmallRandom::new(self.seed ^ scatter(place))
    }

    /// The length of a version's value.
    pub fn length(self, keyspace: usize, id: u64, version: u16) -> usize {
        4 + self.random(keyspace, id, version).below(13) as usize
    }

    /// A version's value, in place of what `target` held.
    pub fn fill(self, keyspace: usize, id: u64, version: u16, target: &mut Vec<u8>) {
        let mut random = self.random(keyspace, id, version);
        let length = 4 + random.below(13) as usize;
        target.clear();
        target.resize(length, 0);
        random.fill(target);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_lead_back_to_their_ids() {
        for id in (0..5000).chain([NEVER, NEVER + 77, (1 << 56) - 1]) {
            for keyspace in [BLOCKS, NAMES] {
                assert_eq!(id_of(keyspace, &key_of(keyspace, id)), Some(id));
            }
        }
        assert_eq!(id_of(NAMES, &[3, 0, 0, 0, 0, 0, 0, 4]), None, "wrong group");
        assert_eq!(id_of(BLOCKS, b"short"), None);
    }

    #[test]
    fn versions_and_keyspaces_have_their_own_values() {
        let values = Values::new(1);
        let fill = |keyspace, id, version| {
            let mut value = vec![9; 40];
            values.fill(keyspace, id, version, &mut value);
            assert_eq!(value.len(), values.length(keyspace, id, version));
            value
        };
        let first = fill(BLOCKS, 7, 1);
        assert_eq!(first, fill(BLOCKS, 7, 1));
        assert_ne!(first, fill(BLOCKS, 7, 2));
        assert_ne!(first, fill(BLOCKS, 8, 1));
        assert_ne!(first, fill(NAMES, 7, 1));
    }
}
