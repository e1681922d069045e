//! Where the sections of a segment are.
//!
//! ```text
//! head | records | key fences | 0.. | index pages | filter | filter | .. | page fences | footer
//! 0     64                           multiple of 4096                     <--- tail: one read --->
//! ```
//!
//! A filter section is its blocks, then one XXH3-64 for each piece of 256 blocks. The order is fixed and
//! the sections touch (pages start on a page boundary, zeros before), so there is one right place for
//! each, and a footer that says otherwise is refused whole.

use super::fences::FENCE_PIECE_BYTES;
use super::footer::{HEAD_BYTES, SegmentCounts};
use crate::filter::FilterShape;
use crate::index::page::{PAGE_BYTES, pages_for};
use crate::index::{LOCATION_BITS, UNIT_BYTES};

/// Bytes of a page fence.
pub const PAGE_FENCE_BYTES: u64 = 4;

/// Bytes of a filter piece's checksum.
pub const PIECE_CHECKSUM_BYTES: u64 = 8;

/// A range of the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// The first byte.
    pub offset: u64,
    /// The length.
    pub bytes: u64,
}

impl Span {
    /// One behind the last byte.
    pub const fn end(self) -> u64 {
        self.offset.saturating_add(self.bytes)
    }
}

/// A section as the footer names it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Section {
    /// Where it is.
    pub span: Span,
    /// Records, fences, entries, blocks or pages in it.
    pub items: u64,
    /// Its checksum: over the bytes of page fences, chained over the pieces of the others.
    pub checksum: u64,
}

/// A stored filter alternative.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilterSection {
    /// What its bits mean.
    pub shape: FilterShape,
    /// Where they are.
    pub section: Section,
}

impl FilterSection {
    /// Where the checksums of its pieces are.
    pub const fn checksums(&self) -> Span {
        Span {
            offset: self.section.span.offset + self.shape.bytes(),
            bytes: self.shape.pieces() * PIECE_CHECKSUM_BYTES,
        }
    }
}

/// Where records, key fences and index pages are: all of the layout that stays in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Places {
    /// Records.
    pub records: Span,
    /// Key fences.
    pub key_fences: Span,
    /// Index pages.
    pub pages: Span,
}

impl Places {
    /// The places of sections with these lengths: they touch, and pages start on a page boundary.
    pub const fn touching(record_bytes: u64, key_fence_bytes: u64, pages: u64) -> Self {
        let records = Self::records_of(record_bytes);
        let key_fences = Span {
            offset: records.end(),
            bytes: key_fence_bytes,
        };
        let pages = Span {
            offset: key_fences.end().next_multiple_of(PAGE_BYTES as u64),
            bytes: pages * PAGE_BYTES as u64,
        };
        Self {
            records,
            key_fences,
            pages,
        }
    }

    /// The place of so many bytes of records.
    pub const fn records_of(record_bytes: u64) -> Span {
        Span {
            offset: HEAD_BYTES as u64,
            bytes: record_bytes,
        }
    }

    /// Index pages.
    pub const fn page_count(&self) -> u64 {
        self.pages.bytes / PAGE_BYTES as u64
    }

    /// The offset of an index page.
    pub const fn page_offset(&self, number: u64) -> u64 {
        self.pages.offset + number * PAGE_BYTES as u64
    }

    /// Pieces of key fences.
    pub const fn fence_piece_count(&self) -> u64 {
        self.key_fences.bytes.div_ceil(FENCE_PIECE_BYTES as u64)
    }

    /// Where a piece of key fences is; clipped to the section.
    pub fn fence_piece(&self, number: u64) -> Span {
        let offset = self.key_fences.offset + number * FENCE_PIECE_BYTES as u64;
        let end = self.key_fences.end();
        Span {
            offset,
            bytes: end.saturating_sub(offset).min(FENCE_PIECE_BYTES as u64),
        }
    }
}

/// All sections.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SegmentLayout {
    /// Records.
    pub records: Section,
    /// Key fences.
    pub key_fences: Section,
    /// Index pages.
    pub pages: Section,
    /// Filter alternatives of known algorithms.
    pub filters: Vec<FilterSection>,
    /// Page fences.
    pub page_fences: Section,
}

impl SegmentLayout {
    /// The places that reading by key needs.
    pub const fn places(&self) -> Places {
        Places {
            records: self.records.span,
            key_fences: self.key_fences.span,
            pages: self.pages.span,
        }
    }

    /// Index pages.
    pub const fn page_count(&self) -> u64 {
        self.places().page_count()
    }

    /// Checks that every section is where it must be in a file of this level and of `file_bytes`, with a
    /// footer of `footer_bytes`; says which is not. After that, all places lie inside the file.
    pub fn check(
        &self,
        level: u8,
        counts: &SegmentCounts,
        file_bytes: u64,
        footer_bytes: u64,
    ) -> Result<(), &'static str> {
        let inside = |section: &Section| {
            let end = section.span.offset.checked_add(section.span.bytes);
            end.is_some_and(|end| end <= file_bytes)
        };
        let all = [
            &self.records,
            &self.key_fences,
            &self.pages,
            &self.page_fences,
        ];
        let filters = self.filters.iter().map(|filter| &filter.section);
        if !all.into_iter().chain(filters).all(inside) {
            return Err("a section outside the file");
        }
        // A part of a folded run has entries and no records of its own.
        let items = if level == 0 { counts.records } else { 0 };
        let records = self.records.span;
        let right = records.offset == HEAD_BYTES as u64
            && records.bytes.is_multiple_of(UNIT_BYTES)
            && records.end() / UNIT_BYTES < 1 << LOCATION_BITS
            && self.records.items == items
            && (level == 0 || records.bytes + self.key_fences.span.bytes == 0)
            && counts.tombstones <= counts.records
            && counts.min_sequence <= counts.max_sequence;
        if !right {
            return Err("records section");
        }
        if self.key_fences.span.offset != records.end() {
            return Err("key fences section");
        }
        let pages = self.pages.span;
        let right = pages.offset
            == self
                .key_fences
                .span
                .end()
                .next_multiple_of(PAGE_BYTES as u64)
            && self.pages.items == counts.records
            && pages_for(counts.records).checked_mul(PAGE_BYTES as u64) == Some(pages.bytes);
        if !right {
            return Err("index pages section");
        }
        self.check_filters()?;
        let fences = self.page_fences.span;
        let right = fences.bytes == self.page_count() * PAGE_FENCE_BYTES
            && self.page_fences.items == self.page_count()
            && Some(fences.end()) == file_bytes.checked_sub(footer_bytes);
        match right {
            true => Ok(()),
            false => Err("page fences section"),
        }
    }

    fn check_filters(&self) -> Result<(), &'static str> {
        for FilterSection { shape, section } in &self.filters {
            let span = section.span;
            // The span is inside the file, so what does not fit 64 bits can't be its length.
            let bytes = shape
                .blocks
                .checked_mul(crate::filter::BLOCK_BYTES as u64)
                .and_then(|blocks| blocks.checked_add(shape.pieces() * PIECE_CHECKSUM_BYTES));
            let right = bytes == Some(span.bytes)
                && span.offset >= self.pages.span.end()
                && span.end() <= self.page_fences.span.offset;
            if !right {
                return Err("filter section");
            }
        }
        Ok(())
    }
}
