//! The memory of the table: words that any thread loads while one stores.
//!
//! The table is one mapping of its own, zero pages from the system that cost nothing until they are
//! written, and asks for huge pages: a probe touches two lines anywhere in it. Where the system has no
//! mapping to give there is no table.
//!
//! # Why unsafe is needed, and why it is sound
//!
//! Safe code has no way to see a mapping's bytes as atomics. The mapping is anonymous, private and of a
//! fixed length; it starts on a page, so on 8 bytes; every 8 bytes are an `AtomicU64`, zero among them; and
//! after it was made nothing looks at its bytes but through the slice that [`TableMemory::buckets`] lends,
//! no longer than the mapping lives. An array of atomics lies as they do one after the other.
#![cfg_attr(
    not(loom),
    allow(
        unsafe_code,
        reason = "a mapping seen as atomics: measured, see `BUCKET_WORDS`"
    )
)]

use crate::sync::AtomicU64;

/// Words of a bucket: one cache line.
///
/// For figures see `window::tests::window_times`.
pub const BUCKET_WORDS: usize = 8;

/// Bytes of a bucket.
pub const BUCKET_BYTES: usize = BUCKET_WORDS * 8;

/// One cache line of the table. Of a fixed length, so that a probe needs no bound for each of its words.
pub type Bucket = [AtomicU64; BUCKET_WORDS];

/// Mappings from this size on can hold a huge page.
#[cfg(all(target_os = "linux", not(loom)))]
const HUGE_BYTES_MIN: usize = 2 << 20;

/// The words of all buckets.
#[cfg(not(loom))]
#[derive(Debug)]
pub struct TableMemory {
    pages: memmap2::MmapMut,
    buckets: usize,
}

/// The same of words that a model watches.
#[cfg(loom)]
#[derive(Debug)]
pub struct TableMemory(Box<[Bucket]>);

#[cfg(not(loom))]
impl TableMemory {
    /// Zero words for so many buckets, if the system has them.
    pub fn zeroed(buckets: usize) -> Option<Self> {
        let bytes = buckets.checked_mul(size_of::<Bucket>())?;
        let pages = memmap2::MmapMut::map_anon(bytes).ok()?;
        #[cfg(target_os = "linux")]
        if bytes >= HUGE_BYTES_MIN {
            // A wish: small pages serve as well.
            let _ = pages.advise(memmap2::Advice::HugePage);
        }
        Some(Self { pages, buckets })
    }

    /// All buckets.
    #[inline]
    pub fn buckets(&self) -> &[Bucket] {
        // SAFETY: see the module: the words of so many buckets lie in the mapping, aligned and initialised,
        // and are only ever accessed as atomics; the borrow keeps the mapping alive.
        unsafe { std::slice::from_raw_parts(self.pages.as_ptr().cast::<Bucket>(), self.buckets) }
    }
}

#[cfg(loom)]
impl TableMemory {
    pub fn zeroed(buckets: usize) -> Option<Self> {
        let bucket = |_| std::array::from_fn(|_| AtomicU64::new(0));
        Some(Self((0..buckets).map(bucket).collect()))
    }

    pub fn buckets(&self) -> &[Bucket] {
        &self.0
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::sync::Ordering;

    #[test]
    fn all_words_are_there_and_zero() {
        for buckets in [2, 63, 64, 1 << 16] {
            let memory = TableMemory::zeroed(buckets).expect("pages");
            assert_eq!(memory.buckets().len(), buckets);
            let words = memory.buckets().as_flattened();
            assert!(words.iter().all(|word| word.load(Ordering::Relaxed) == 0));
            assert_eq!(
                words.as_ptr().addr() % BUCKET_BYTES,
                0,
                "a bucket is one line"
            );
            let last = words.last().expect("words");
            last.store(u64::MAX, Ordering::Relaxed);
            assert_eq!(
                memory.buckets()[buckets - 1]
                    .last()
                    .map(|w| w.load(Ordering::Relaxed)),
                Some(u64::MAX)
            );
        }
    }
}
