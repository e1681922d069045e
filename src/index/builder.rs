//! Sorts a segment's entries in place and in bounded steps.
//!
//! Entries arrive in record order and are needed in hash order, several times: for the pages and for
//! each filter. They are sorted within the memory they came in (12 bytes a record, which the flush
//! scratch accounts for): an American flag sort (McIlroy, Bostic, McIlroy 1993) by the top bits of the
//! hash, then a comparison sort of each bucket, which keyed hashes keep small. Every step does about
//! the asked amount of work; the result does not depend on how the steps were cut, since no two
//! entries are equal.

use super::{Entry, PackedEntry};

/// Entries a bucket holds on average: small enough for the cache and for one step.
const BUCKET_ENTRIES: usize = 64;

/// Most buckets; their bounds take 8 bytes each.
const BUCKET_BITS_MAX: u32 = 12;

/// The memory of a sorter, which serves for one set of entries after another.
#[derive(Debug, Default)]
pub struct SorterMemory {
    entries: Vec<PackedEntry>,
    heads: Vec<u32>,
    ends: Vec<u32>,
}

impl SorterMemory {
    /// For so many entries without growing.
    pub fn for_entries(entries_max: usize) -> Self {
        Self {
            entries: Vec::with_capacity(entries_max),
            ..Self::default()
        }
    }

    /// The entries that a sorter left.
    pub fn entries(&self) -> &[PackedEntry] {
        &self.entries
    }

    /// Where the entries are.
    #[cfg(test)]
    pub fn address(&self) -> usize {
        self.entries.as_ptr().addr()
    }
}

/// Collects entries, then sorts them step by step.
#[derive(Debug)]
pub struct Sorter {
    entries: Vec<PackedEntry>,
    bucket_bits: u32,
    /// First entry of each bucket that is not yet in place.
    heads: Vec<u32>,
    /// One behind the last entry of each bucket.
    ends: Vec<u32>,
    phase: Phase,
}

#[derive(Debug, PartialEq, Eq)]
enum Phase {
    Collect,
    Count { done: usize },
    Distribute { bucket: usize },
    SortBuckets { bucket: usize },
    Sorted,
}

impl Sorter {
    /// A sorter in the memory of another one's; it grows only beyond its capacity.
    pub fn new(memory: SorterMemory) -> Self {
        let SorterMemory {
            mut entries,
            heads,
            ends,
        } = memory;
        entries.clear();
        Self {
            entries,
            bucket_bits: 0,
            heads,
            ends,
            phase: Phase::Collect,
        }
    }

    /// Adds an entry. Only before the first [`Sorter::step`].
    pub fn push(&mut self, entry: Entry) {
        assert!(self.phase == Phase::Collect, "no entry after sorting began");
        self.entries.push(entry.pack());
    }

    /// Entries so far.
    pub const fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is none.
    pub const fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Does work on about `budget` entries; `true` once all are sorted.
    pub fn step(&mut self, budget: usize) -> bool {
        let budget = budget.max(1);
        match self.phase {
            Phase::Collect => self.start(),
            Phase::Count { done } => self.count(done, budget),
            Phase::Distribute { bucket } => self.distribute(bucket, budget),
            Phase::SortBuckets { bucket } => self.sort_buckets(bucket, budget),
            Phase::Sorted => {}
        }
        self.phase == Phase::Sorted
    }

    /// The sorted entries; empty before they are sorted.
    pub fn sorted(&self) -> &[PackedEntry] {
        match self.phase {
            Phase::Sorted => &self.entries,
            _ => &[],
        }
    }

    /// Gives the memory back.
    pub fn into_memory(self) -> SorterMemory {
        SorterMemory {
            entries: self.entries,
            heads: self.heads,
            ends: self.ends,
        }
    }

    fn start(&mut self) {
        let buckets = (self.entries.len() / BUCKET_ENTRIES).max(1);
        self.bucket_bits = buckets.ilog2().min(BUCKET_BITS_MAX);
        for bounds in [&mut self.heads, &mut self.ends] {
            bounds.clear();
            bounds.resize(1 << self.bucket_bits, 0);
        }
        self.phase = Phase::Count { done: 0 };
    }

    fn count(&mut self, done: usize, budget: usize) {
        let to = self.entries.len().min(done + budget);
        for entry in &self.entries[done..to] {
            self.ends[bucket_of(entry, self.bucket_bits)] += 1;
        }
        if to < self.entries.len() {
            self.phase = Phase::Count { done: to };
            return;
        }
        let mut start = 0;
        for (head, end) in self.heads.iter_mut().zip(&mut self.ends) {
            *head = start;
            start += *end;
            *end = start;
        }
        self.phase = Phase::Distribute { bucket: 0 };
    }

    /// Swaps each misplaced entry to the head of its bucket.
    fn distribute(&mut self, mut bucket: usize, mut budget: usize) {
        while bucket < self.heads.len() {
            while self.heads[bucket] < self.ends[bucket] {
                if budget == 0 {
                    self.phase = Phase::Distribute { bucket };
                    return;
                }
                budget -= 1;
                let at = self.heads[bucket] as usize;
                let home = bucket_of(&self.entries[at], self.bucket_bits);
                if home != bucket {
                    self.entries.swap(at, self.heads[home] as usize);
                }
                self.heads[home] += 1;
            }
            bucket += 1;
        }
        self.phase = Phase::SortBuckets { bucket: 0 };
    }

    fn sort_buckets(&mut self, mut bucket: usize, budget: usize) {
        let mut done = 0;
        while bucket < self.ends.len() && done < budget {
            let start = match bucket {
                0 => 0,
                _ => self.ends[bucket - 1] as usize,
            };
            let end = self.ends[bucket] as usize;
            self.entries[start..end].sort_unstable_by_key(Entry::unpack);
            done += end - start;
            bucket += 1;
        }
        self.phase = match bucket == self.ends.len() {
            true => Phase::Sorted,
            false => Phase::SortBuckets { bucket },
        };
    }
}

fn bucket_of(entry: &PackedEntry, bucket_bits: u32) -> usize {
    let top = u32::from(u16::from_be_bytes([entry[0], entry[1]]));
    (top >> (16 - bucket_bits)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::KeyHash;
    use proptest::prelude::*;

    fn sorted(hashes: &[u64], budget: usize) -> (Vec<PackedEntry>, usize) {
        let mut sorter = Sorter::new(SorterMemory::for_entries(hashes.len()));
        for (location, hash) in hashes.iter().enumerate() {
            sorter.push(Entry::new(KeyHash(*hash), location as u64, 0, false));
        }
        let mut steps = 1;
        while !sorter.step(budget) {
            steps += 1;
        }
        (sorter.sorted().to_vec(), steps)
    }

    proptest! {
        #[test]
        fn sorts_for_every_budget(
            hash_bits in 1u32..=46,
            raw in proptest::collection::vec(0u64..1 << 46, 0..2000),
            budget in 1usize..3000,
        ) {
            let keep = 46 - hash_bits;
            let hashes: Vec<u64> = raw.iter().map(|h| h >> keep << keep).collect();
            let (result, steps) = sorted(&hashes, budget);
            let mut expected = result.clone();
            expected.sort();
            expected.dedup();
            prop_assert_eq!(expected.len(), hashes.len());
            prop_assert_eq!(&result, &expected);
            prop_assert!(steps <= 3 * hashes.len() / budget + 6 + hashes.len() / 64);
        }
    }

    #[test]
    fn one_bucket_of_equal_hashes_sorts() {
        let (result, _) = sorted(&[5 << 38; 10_000], 100);
        assert!(result.is_sorted());
        assert_eq!(result.len(), 10_000);
    }
}
