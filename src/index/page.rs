//! An index page: 4 KiB of entries under one checksum.
//!
//! ```text
//! offset  bytes  field (little endian)
//!      0      8  XXH3-64 over the rest, seeded by the file's identity and the page's number
//!      8      2  entries in the page, 1 to 340
//!     10      6  reserved: 0
//!     16      -  entries of 12 bytes, ascending; zero bytes up to 4096
//! ```
//!
//! The seed makes a page that belongs elsewhere (another file, another place) look damaged. Every page
//! but an index's last one is full, so a page's number follows from an entry's rank.

use twox_hash::XxHash3_64;

use super::{ENTRY_BYTES, Entry, PackedEntry, packed_hash};
use crate::types::KeyHash;

/// Bytes of a page: one block of common file systems, one page of the page cache.
pub const PAGE_BYTES: usize = 4096;

/// Bytes before the entries.
pub const PAGE_HEADER_BYTES: usize = 16;

/// Entries of a full page.
pub const PAGE_ENTRIES_MAX: usize = (PAGE_BYTES - PAGE_HEADER_BYTES) / ENTRY_BYTES;

/// Pages that hold `entries` entries.
pub const fn pages_for(entries: u64) -> u64 {
    entries.div_ceil(PAGE_ENTRIES_MAX as u64)
}

/// Encodes 1 to 340 ascending entries as the page whose seed is `seed`; returns its checksum.
pub fn encode_page(entries: &[PackedEntry], seed: u64, page: &mut [u8; PAGE_BYTES]) -> u64 {
    assert!((1..=PAGE_ENTRIES_MAX).contains(&entries.len()));
    page.fill(0);
    page[8..10].copy_from_slice(&(entries.len() as u16).to_le_bytes());
    let bytes = entries.as_flattened();
    page[PAGE_HEADER_BYTES..PAGE_HEADER_BYTES + bytes.len()].copy_from_slice(bytes);
    let checksum = XxHash3_64::oneshot_with_seed(seed, &page[8..]);
    page[..8].copy_from_slice(&checksum.to_le_bytes());
    checksum
}

/// A page whose checksum is right.
#[derive(Clone, Copy, Debug)]
pub struct PageView<'a> {
    entries: &'a [PackedEntry],
    checksum: u64,
}

impl<'a> PageView<'a> {
    /// Checks a page read from disk; says what is wrong with it otherwise.
    pub fn check(page: &'a [u8], seed: u64) -> Result<Self, &'static str> {
        let page: &[u8; PAGE_BYTES] = page.try_into().map_err(|_| "an index page is cut")?;
        let (stored, rest) = page.split_at(8);
        let checksum = XxHash3_64::oneshot_with_seed(seed, rest);
        if stored != checksum.to_le_bytes() {
            return Err("index page checksum");
        }
        let count = usize::from(u16::from_le_bytes([page[8], page[9]]));
        if !(1..=PAGE_ENTRIES_MAX).contains(&count) {
            return Err("index page entry count");
        }
        let (entries, _) = page[PAGE_HEADER_BYTES..].as_chunks::<ENTRY_BYTES>();
        let entries = entries.get(..count).ok_or("index page entry count")?;
        Ok(Self { entries, checksum })
    }

    /// The entries, ascending.
    pub const fn entries(&self) -> &'a [PackedEntry] {
        self.entries
    }

    /// The page's checksum.
    pub const fn checksum(&self) -> u64 {
        self.checksum
    }

    /// The index of the first entry whose hash is not below `hash`; the number of entries if none is.
    pub fn lower_bound(&self, hash: KeyHash) -> usize {
        self.entries
            .partition_point(|packed| packed_hash(packed) < hash)
    }

    /// The entry at `index`.
    pub fn entry(&self, index: usize) -> Option<Entry> {
        self.entries.get(index).map(Entry::unpack)
    }

    /// The largest hash of the page.
    pub fn last_hash(&self) -> KeyHash {
        self.entries.last().map_or(KeyHash(0), packed_hash)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(count: u64) -> Vec<PackedEntry> {
        (0..count)
            .map(|i| Entry::new(KeyHash(i / 3 * 1000), i, 5, false).pack())
            .collect()
    }

    #[test]
    fn pages_find_the_first_of_equal_hashes() {
        let entries = entries(340);
        let mut page = [0; PAGE_BYTES];
        encode_page(&entries, 9, &mut page);
        let view = PageView::check(&page, 9).expect("intact");
        assert_eq!(view.entries(), entries);
        assert_eq!(view.lower_bound(KeyHash(2000)), 6);
        assert_eq!(view.lower_bound(KeyHash(2001)), 9);
        assert_eq!(view.lower_bound(KeyHash(1 << 45)), 340);
        assert_eq!(view.last_hash(), KeyHash(113_000));
        assert_eq!(view.entry(340), None);
    }

    #[test]
    fn every_flipped_byte_and_every_other_place_is_seen() {
        let mut page = [0; PAGE_BYTES];
        let checksum = encode_page(&entries(7), 9, &mut page);
        // Frozen: pages are part of the format.
        assert_eq!(checksum, 0xADF0_F8A5_6930_E4CC);
        for at in 0..PAGE_BYTES {
            page[at] ^= 0x10;
            assert!(PageView::check(&page, 9).is_err(), "byte {at}");
            page[at] ^= 0x10;
        }
        assert!(PageView::check(&page, 10).is_err());
        assert!(PageView::check(&page[..4095], 9).is_err());
    }
}
