//! The entries of a hash range, read from index pages: what folds are made of.
//!
//! Nothing but pages is read, and every page under its checksum. A range seldom ends where a page does,
//! so the last page is kept for the next range ([`PageKeeper`]): going through an index range by range
//! reads each page once.

use std::ops::Range;

use super::ReadCounts;
use super::files::FileTable;
use super::layout::Places;
use super::reader::Segment;
use crate::error::Result;
use crate::index::page::{PAGE_BYTES, PAGE_ENTRIES_MAX};
use crate::index::{Entry, PackedEntry, first_page};
use crate::sync::Arc;
use crate::types::KeyHash;

const OPERATION: &str = "fold";

/// Of who fills the window table.
const FILL: &str = "fill window";

/// The page that was read last, of whichever index. Empty at first.
#[derive(Debug, Default)]
pub struct PageKeeper {
    /// The file's number and the page's.
    held: Option<(u64, u64)>,
    bytes: Vec<u8>,
}

impl PageKeeper {
    /// Memory of one that has read a page.
    pub const BYTES: u64 = PAGE_BYTES as u64;

    /// Forgets the page; its memory serves for the next.
    pub const fn forget(&mut self) {
        self.held = None;
    }
}

impl Segment {
    /// Hands every entry whose hash is in `hashes`, a range inside the part's, to `take`, in order, until
    /// `take` says false; returns whether all were taken. Reads the pages that hold them, and the tail at first touch.
    pub fn gather(
        self: &Arc<Self>,
        files: &FileTable,
        hashes: &Range<u64>,
        keeper: &mut PageKeeper,
        counts: &mut ReadCounts,
        mut take: impl FnMut(Entry) -> bool,
    ) -> Result<bool> {
        let tail = self.tail(files, counts)?;
        let places = tail.places();
        let from = KeyHash(hashes.start);
        let mut number = first_page(tail.page_fences(), from, tail.prefix_bits()) as u64;
        while number < places.page_count() {
            self.keep_page(files, &places, number, (OPERATION, keeper), counts)?;
            let view = self.page(&places, number, &keeper.bytes, OPERATION)?;
            let mut index = view.lower_bound(from);
            while let Some(entry) = view.entry(index) {
                if entry.hash().0 >= hashes.end {
                    return Ok(true);
                }
                if !take(entry) {
                    return Ok(false);
                }
                index += 1;
            }
            number += 1;
        }
        Ok(true)
    }

    /// Hands the entries of an index page to `take`; false if there is no such page. Reads the page, and the
    /// tail at first touch.
    pub fn page_entries(
        self: &Arc<Self>,
        files: &FileTable,
        number: u64,
        keeper: &mut PageKeeper,
        counts: &mut ReadCounts,
        take: impl FnOnce(&[PackedEntry]),
    ) -> Result<bool> {
        let places = self.tail(files, counts)?.places();
        if number >= places.page_count() {
            return Ok(false);
        }
        self.keep_page(files, &places, number, (FILL, keeper), counts)?;
        take(self.page(&places, number, &keeper.bytes, FILL)?.entries());
        Ok(true)
    }

    /// How many entries have a hash below `hash`. Reads a page, seldom two, and the tail at first touch.
    pub fn rank(
        self: &Arc<Self>,
        files: &FileTable,
        hash: KeyHash,
        keeper: &mut PageKeeper,
        counts: &mut ReadCounts,
    ) -> Result<u64> {
        let tail = self.tail(files, counts)?;
        let places = tail.places();
        let mut number = first_page(tail.page_fences(), hash, tail.prefix_bits()) as u64;
        while number < places.page_count() {
            self.keep_page(files, &places, number, (OPERATION, keeper), counts)?;
            let view = self.page(&places, number, &keeper.bytes, OPERATION)?;
            if view.last_hash() >= hash {
                return Ok(number * PAGE_ENTRIES_MAX as u64 + view.lower_bound(hash) as u64);
            }
            number += 1;
        }
        Ok(self.meta().counts.records)
    }

    fn keep_page(
        self: &Arc<Self>,
        files: &FileTable,
        places: &Places,
        number: u64,
        (operation, keeper): (&'static str, &mut PageKeeper),
        counts: &mut ReadCounts,
    ) -> Result<()> {
        let wanted = Some((self.number(), number));
        if keeper.held == wanted {
            return Ok(());
        }
        // Whatever becomes of the read, the old page is gone.
        keeper.held = None;
        keeper.bytes.resize(PAGE_BYTES, 0);
        let file = self.file(files, counts)?;
        let offset = places.page_offset(number);
        self.read(&file, operation, offset, &mut keeper.bytes, counts)?;
        keeper.held = wanted;
        Ok(())
    }
}
