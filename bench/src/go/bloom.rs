//! The classic Bloom filter of the layout: no hashing, the key's own words choose the bits.

use super::Key;

/// The least that a filter takes, in bytes.
const BYTES_MIN: u64 = 4_096;

/// Mixes a word for hashes beyond the key's four words: the finaliser of SplitMix64.
const fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    word ^ (word >> 31)
}

/// The size of a filter and how many bits a key sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Bytes of the bitmap.
    pub bytes: u64,
    /// Bits that a key sets, k.
    pub hashes: u32,
}

impl Shape {
    /// A filter for so many keys. The published one has 12 bits a key and 3 hashes.
    pub fn for_keys(keys: u64, bits_per_key: u32, hashes: u32) -> Self {
        Self {
            bytes: (keys * u64::from(bits_per_key) / 8).max(BYTES_MIN),
            hashes,
        }
    }

    /// Byte and mask of one of the key's bits. Hashes 0 to 3 are the key's words; the variants with more
    /// of them mix the words again.
    fn place(&self, key: &Key, hash: u32) -> (u64, u8) {
        let words = key.as_chunks::<8>().0;
        let word = u64::from_be_bytes(words[hash as usize % words.len()]);
        let word = match hash as usize / words.len() {
            0 => word,
            turn => mix(word.wrapping_add((turn as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15))),
        };
        let place = word % (self.bytes * 256);
        (place >> 8, 1 << (place & 7))
    }

    /// Sets the key's bits.
    pub fn insert(&self, bits: &mut [u8], key: &Key) {
        for hash in 0..self.hashes {
            let (byte, mask) = self.place(key, hash);
            bits[byte as usize] |= mask;
        }
    }

    /// Whether the key may be in it, by bytes that `byte` fetches; the first zero bit ends the test.
    pub fn may_contain<E>(
        &self,
        key: &Key,
        mut byte: impl FnMut(u64) -> Result<u8, E>,
    ) -> Result<bool, E> {
        for hash in 0..self.hashes {
            let (place, mask) = self.place(key, hash);
            if byte(place)? & mask == 0 {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    fn key(number: u64) -> Key {
        let mut key = Key::default();
        for (turn, word) in key.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            *word = mix(number * 4 + turn as u64 + 1).to_be_bytes();
        }
        key
    }

    #[test]
    fn keys_are_found_and_others_seldom() {
        // Bits per key, hashes, and the textbook's rate of false positives in 10,000.
        for (bits_per_key, hashes, expected) in [(12, 3, 108.0), (12, 8, 31.4), (8, 3, 305.8)] {
            let shape = Shape::for_keys(12_500, bits_per_key, hashes);
            let mut bits = vec![0; shape.bytes as usize];
            for number in 0..12_500 {
                shape.insert(&mut bits, &key(number));
            }
            let found = |number| {
                let byte = |place| Ok::<_, Infallible>(bits[place as usize]);
                shape.may_contain(&key(number), byte).expect("no errors")
            };
            assert!((0..12_500).all(found));
            let wrong = (12_500..212_500).filter(|number| found(*number)).count();
            let rate = wrong as f64 / 20.0;
            assert!((expected * 0.9..expected * 1.1).contains(&rate), "{rate}");
        }
    }

    #[test]
    fn a_bit_is_where_the_description_says() {
        let mut key = Key::default();
        key[6..8].copy_from_slice(&[0x12, 0x35]);
        let shape = Shape::for_keys(12_500, 12, 3);
        assert_eq!(shape.bytes, 18_750);
        assert_eq!(shape.place(&key, 0), (0x12, 1 << 5));
        assert_eq!(Shape::for_keys(10, 12, 3).bytes, 4_096);
    }
}
