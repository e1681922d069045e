//! Arrays of atomic words out of the region: refs, links and probe slots.
//!
//! They are recycled by exact length: a memtable's blocks all have one size, and so have the probe
//! tables of a store's memtables.

use std::collections::BTreeMap;
use std::ops::Deref;

use super::counts::Class;
use super::pool::Pool;
use super::region::Region;
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// An atomic integer that the region hands out arrays of.
#[allow(
    private_interfaces,
    reason = "only the two words below can implement it"
)]
pub trait Word: Sized + Send + Sync + 'static {
    /// Bytes of one.
    const BYTES: u64;

    #[doc(hidden)]
    const CLASS: Class;

    /// The word with value zero.
    fn zero() -> Self;

    /// Sets it to zero; nobody else can reach it at that time.
    fn clear(&self);

    #[doc(hidden)]
    fn spares(pool: &mut Pool) -> &mut Spares<Self>;

    /// Bytes that `len` words take.
    fn bytes_of(len: usize) -> u64 {
        len as u64 * Self::BYTES
    }
}

/// Arrays kept for reuse, by length.
pub(super) type Spares<W> = BTreeMap<usize, Vec<Box<[W]>>>;

#[allow(private_interfaces, reason = "see the trait")]
impl Word for AtomicU32 {
    const BYTES: u64 = size_of::<u32>() as u64;
    const CLASS: Class = Class::Slots;

    fn zero() -> Self {
        Self::new(0)
    }

    fn clear(&self) {
        self.store(0, Ordering::Relaxed);
    }

    fn spares(pool: &mut Pool) -> &mut Spares<Self> {
        &mut pool.words_32
    }
}

#[allow(private_interfaces, reason = "see the trait")]
impl Word for AtomicU64 {
    const BYTES: u64 = size_of::<u64>() as u64;
    const CLASS: Class = Class::Refs;

    fn zero() -> Self {
        Self::new(0)
    }

    fn clear(&self) {
        self.store(0, Ordering::Relaxed);
    }

    fn spares(pool: &mut Pool) -> &mut Spares<Self> {
        &mut pool.words_64
    }
}

/// An array of words; goes back to the region when dropped.
pub struct Words<W: Word> {
    words: Box<[W]>,
    region: Region,
}

impl<W: Word> Words<W> {
    /// No words at all, which the region does not count.
    pub fn none(region: &Region) -> Self {
        Self {
            words: Box::default(),
            region: region.clone(),
        }
    }

    /// An array of zeros, `spare` if there is one.
    pub(super) fn new(spare: Option<Box<[W]>>, len: usize, region: Region) -> Self {
        let words = match spare {
            Some(words) => {
                words.iter().for_each(W::clear);
                words
            }
            None => (0..len).map(|_| W::zero()).collect(),
        };
        Self { words, region }
    }
}

impl<W: Word> Deref for Words<W> {
    type Target = [W];

    fn deref(&self) -> &[W] {
        &self.words
    }
}

impl<W: Word> Drop for Words<W> {
    fn drop(&mut self) {
        let words = std::mem::take(&mut self.words);
        if !words.is_empty() {
            self.region.put_words(words);
        }
    }
}
