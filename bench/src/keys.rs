//! The records that are loaded: uniform 32-byte keys and values without structure, the same in every
//! run with the same seed.
//!
//! Record `i` is a fixed piece of one PCG stream, so any record can be made again without those
//! before it.

use rand_pcg::Pcg64;
use rand_pcg::rand_core::Rng;

/// Bytes of a key.
pub const KEY_BYTES: usize = 32;

/// The stream that records are cut from; another one than the generator's default on purpose.
const STREAM: u128 = 0x5EA1_5704E;

/// Some records, prepared before the clock starts: keys and values one after the other.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    bytes: Vec<u8>,
    record_bytes: usize,
}

impl Batch {
    /// Keys and values in order.
    pub fn records(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.bytes
            .chunks_exact(self.record_bytes)
            .map(|record| record.split_at(KEY_BYTES))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.bytes.len() / self.record_bytes
    }

    /// All user bytes in one piece.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl AsRef<[u8]> for Batch {
    fn as_ref(&self) -> &[u8] {
        self.bytes()
    }
}

/// The source of records.
#[derive(Clone, Copy, Debug)]
pub struct Source {
    seed: u64,
    value_bytes: usize,
}

impl Source {
    /// Records with values of `value_bytes`.
    pub fn new(seed: u64, value_bytes: usize) -> Self {
        Self { seed, value_bytes }
    }

    /// Records `first..first + count` as batches of `batch_records`, the last one perhaps smaller.
    pub fn batches(&self, first: u64, count: u64, batch_records: u64) -> Vec<Batch> {
        let mut batches = Vec::new();
        self.refill(&mut batches, first, count, batch_records);
        batches
    }

    /// The same into batches that are there already, in their memory: what is measured shares the
    /// allocator, and buffers that came and went would leave it holes.
    pub fn refill(&self, batches: &mut Vec<Batch>, first: u64, count: u64, batch_records: u64) {
        let batch_records = batch_records.max(1);
        batches.resize_with(count.div_ceil(batch_records) as usize, Batch::default);
        let firsts = (first..first + count).step_by(batch_records as usize);
        for (batch, next) in batches.iter_mut().zip(firsts) {
            self.fill(batch, next, (first + count).min(next + batch_records));
        }
    }

    fn fill(&self, batch: &mut Batch, first: u64, end: u64) {
        let record_bytes = KEY_BYTES + self.value_bytes;
        batch.record_bytes = record_bytes;
        let bytes = &mut batch.bytes;
        bytes.clear();
        bytes.resize(record_bytes * (end - first) as usize, 0);
        let mut generator = Pcg64::new(u128::from(self.seed), STREAM);
        // Whole words a record, so that records start at multiples.
        let words = record_bytes.div_ceil(8);
        generator.advance(u128::from(first) * words as u128);
        for record in bytes.chunks_exact_mut(record_bytes) {
            for piece in record.chunks_mut(8) {
                let word = generator.next_u64().to_le_bytes();
                piece.copy_from_slice(&word[..piece.len()]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_do_not_depend_on_the_batches() {
        let source = Source::new(7, 21);
        let all = source.batches(0, 100, 100);
        let cut = source.batches(40, 60, 7);
        assert_eq!(cut.iter().map(Batch::len).sum::<usize>(), 60);
        assert_eq!(cut.last().map(Batch::len), Some(4));
        let expected: Vec<_> = all[0].records().skip(40).collect();
        let found: Vec<_> = cut.iter().flat_map(Batch::records).collect();
        assert_eq!(found, expected);
        assert_eq!(found[0].0.len(), KEY_BYTES);
        assert_eq!(found[0].1.len(), 21);
    }

    #[test]
    fn keys_are_distinct_and_spread() {
        let batch = &Source::new(1, 8).batches(0, 4_096, 4_096)[0];
        let mut keys: Vec<_> = batch.records().map(|(key, _)| key).collect();
        let low_half = keys.iter().filter(|key| key[0] < 128).count();
        // Ten standard deviations (32) around one half.
        assert!((1_728..2_368).contains(&low_half), "{low_half}");
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), 4_096);
        let other = &Source::new(2, 8).batches(0, 1, 1)[0];
        assert_ne!(other.bytes(), &batch.bytes()[..40]);
    }
}
