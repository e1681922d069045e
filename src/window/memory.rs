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
//! after it was made nothing looks at its bytes but through the slice that [`TableMemory::words`] lends,
//! no longer than the mapping lives.
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

/// Mappings from this size on can hold a huge page.
#[cfg(all(target_os = "linux", not(loom)))]
const HUGE_BYTES_MIN: usize = 2 << 20;

/// The words of all buckets.
#[cfg(not(loom))]
#[derive(Debug)]
pub struct TableMemory {
    pages: memmap2::MmapMut,
    words: usize,
}

/// The same of words that a model watches.
#[cfg(loom)]
#[derive(Debug)]
pub struct TableMemory(Box<[AtomicU64]>);

#[cfg(not(loom))]
impl TableMemory {
    /// Zero words for so many buckets, if the system has them.
    pub fn zeroed(buckets: usize) -> Option<Self> {
        let words = buckets.checked_mul(BUCKET_WORDS)?;
        let bytes = words.checked_mul(size_of::<AtomicU64>())?;
        let pages = memmap2::MmapMut::map_anon(bytes).ok()?;
        #[cfg(target_os = "linux")]
        if bytes >= HUGE_BYTES_MIN {
            // A wish: small pages serve as well.
            let _ = pages.advise(memmap2::Advice::HugePage);
        }
        Some(Self { pages, words })
    }

    /// All words, bucket after bucket.
    #[inline]
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: see the module: `words` words lie in the mapping, aligned and initialised, and are only
        // ever accessed as atomics; the borrow keeps the mapping alive.
        unsafe { std::slice::from_raw_parts(self.pages.as_ptr().cast::<AtomicU64>(), self.words) }
    }
}

#[cfg(loom)]
impl TableMemory {
    pub fn zeroed(buckets: usize) -> Option<Self> {
        let words = buckets * BUCKET_WORDS;
        Some(Self((0..words).map(|_| AtomicU64::new(0)).collect()))
    }

    pub fn words(&self) -> &[AtomicU64] {
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
            let words = memory.words();
            assert_eq!(words.len(), buckets * BUCKET_WORDS);
            assert!(words.iter().all(|word| word.load(Ordering::Relaxed) == 0));
            assert_eq!(
                words.as_ptr().addr() % BUCKET_BYTES,
                0,
                "a bucket is one line"
            );
            let last = words.last().expect("words");
            last.store(u64::MAX, Ordering::Relaxed);
            assert_eq!(
                memory.words().last().map(|w| w.load(Ordering::Relaxed)),
                Some(u64::MAX)
            );
        }
    }
}
