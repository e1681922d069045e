//! The index and filters of a segment under verification.

use super::identity::{Chain, Domain, checksum};
use super::layout::{FilterSection, PAGE_FENCE_BYTES, PIECE_CHECKSUM_BYTES};
use super::verify::{Derived, EntrySum, Verifier};
use crate::error::Result;
use crate::filter::{BLOCK_BYTES, Block, FilterBuilder, PIECE_BYTES};
use crate::index::page::{PAGE_BYTES, PAGE_ENTRIES_MAX, PageView};
use crate::index::{Entry, LocationSplit, PackedEntry, fence_of, packed_hash};

/// The walk over the index pages.
#[derive(Default)]
struct PagesPass {
    sum: EntrySum,
    chain: Chain,
    last: Option<PackedEntry>,
    damaged: bool,
}

impl Verifier<'_> {
    /// Checks pages, page fences and filters against each other and against the records. `fences`
    /// are the stored page fences if they are as written.
    pub(super) fn index(&mut self, derived: &Derived, fences: Option<&[u8]>) -> Result<()> {
        let mut pass = PagesPass::default();
        let places = self.footer.layout.places();
        for number in 0..places.page_count() {
            self.index_page(number, derived, fences, &mut pass)?;
        }
        let right = self.footer.layout.pages.checksum;
        let sums = derived.unknown || pass.sum == derived.entries;
        if !pass.damaged && (!sums || pass.chain.0 != right) {
            let what = "the entries are not those of the records";
            self.report.add("index pages", places.pages.offset, what);
        }
        for filter in self.footer.layout.filters.clone() {
            self.filter(&filter, !pass.damaged)?;
        }
        Ok(())
    }

    fn index_page(
        &mut self,
        number: u64,
        derived: &Derived,
        fences: Option<&[u8]>,
        pass: &mut PagesPass,
    ) -> Result<()> {
        let places = self.footer.layout.places();
        let offset = places.page_offset(number);
        let mut page = [0; PAGE_BYTES];
        self.read(offset, &mut page)?;
        let seed = self.segment.seeds().seed(Domain::IndexPage, number);
        let view = match PageView::check(&page, seed) {
            Ok(view) => view,
            Err(what) => {
                self.report.add("index pages", offset, what);
                pass.damaged = true;
                return Ok(());
            }
        };
        pass.chain.push(view.checksum());
        let is_last = number + 1 == places.page_count();
        let mut right = is_last || view.entries().len() == PAGE_ENTRIES_MAX;
        for packed in view.entries() {
            right &= pass.last.is_none_or(|last| last < *packed);
            pass.last = Some(*packed);
            let entry = Entry::unpack(packed);
            if !derived.is_skipped(LocationSplit::SEGMENT.offset_bytes(entry.location())) {
                pass.sum.add(entry);
            }
        }
        if !right {
            self.report.add(
                "index pages",
                offset,
                "entries out of order, or a page not full",
            );
            pass.damaged = true;
        }
        let fence = fence_of(view.last_hash(), self.footer.prefix_bits).to_le_bytes();
        let stored = |fences: &[u8]| fences.as_chunks().0.get(number as usize) == Some(&fence);
        if !fences.is_none_or(stored) {
            let at = self.footer.layout.page_fences.span.offset + number * PAGE_FENCE_BYTES;
            self.report
                .add("page fences", at, "not the fence of its page");
        }
        Ok(())
    }

    /// Checks a filter: its pieces and, if the pages are whole, its blocks against the entries.
    fn filter(&mut self, filter: &FilterSection, pages_whole: bool) -> Result<()> {
        let mut stored = StoredFilter::new(filter);
        let mut builder = FilterBuilder::new(filter.shape);
        let places = self.footer.layout.places();
        let mut page = [0; PAGE_BYTES];
        for number in 0..places.page_count() {
            if !pages_whole {
                break;
            }
            self.read(places.page_offset(number), &mut page)?;
            let seed = self.segment.seeds().seed(Domain::IndexPage, number);
            let Ok(view) = PageView::check(&page, seed) else {
                break;
            };
            for packed in view.entries() {
                while let Some(block) = builder.push(packed_hash(packed)) {
                    self.compare(&mut stored, Some(block))?;
                }
            }
        }
        while let Some(block) = builder.finish() {
            self.compare(&mut stored, pages_whole.then_some(block))?;
        }
        if stored.intact && stored.chain.0 != filter.section.checksum {
            self.report.add(
                "filter",
                filter.section.span.offset,
                "not the pieces of the footer",
            );
        }
        Ok(())
    }

    /// Compares the next stored block with the right one, if that is known.
    fn compare(&mut self, stored: &mut StoredFilter, right: Option<Block>) -> Result<()> {
        if stored.at == stored.piece.len() {
            self.next_piece(stored)?;
        }
        let bytes = stored.piece.get(stored.at..stored.at + BLOCK_BYTES);
        let offset = stored.offset + stored.at as u64;
        stored.at += BLOCK_BYTES;
        if let Some(right) = right
            && stored.piece_intact
            && bytes != Some(right.to_bytes().as_slice())
        {
            self.report
                .add("filter", offset, "not the block of its entries");
            // One entry a piece says enough.
            stored.piece_intact = false;
        }
        Ok(())
    }

    fn next_piece(&mut self, stored: &mut StoredFilter) -> Result<()> {
        let FilterSection { shape, section } = stored.section;
        stored.offset = section.span.offset + stored.pieces * PIECE_BYTES as u64;
        let blocks_end = section.span.offset + shape.bytes();
        let bytes = blocks_end
            .saturating_sub(stored.offset)
            .min(PIECE_BYTES as u64);
        stored.piece.resize(bytes as usize, 0);
        self.read(stored.offset, &mut stored.piece)?;
        let mut sum = [0; PIECE_CHECKSUM_BYTES as usize];
        self.read(blocks_end + stored.pieces * PIECE_CHECKSUM_BYTES, &mut sum)?;
        let seed = self.segment.seeds().seed(Domain::Filter, stored.offset);
        let right = checksum(seed, &stored.piece);
        stored.piece_intact = sum == right.to_le_bytes();
        if !stored.piece_intact {
            stored.intact = false;
            self.report
                .add("filter", stored.offset, "filter piece checksum");
        }
        stored.chain.push(right);
        stored.pieces += 1;
        stored.at = 0;
        Ok(())
    }
}

/// A filter on disk, read piece by piece.
struct StoredFilter {
    section: FilterSection,
    piece: Vec<u8>,
    at: usize,
    offset: u64,
    pieces: u64,
    chain: Chain,
    intact: bool,
    piece_intact: bool,
}

impl StoredFilter {
    fn new(section: &FilterSection) -> Self {
        Self {
            section: *section,
            piece: Vec::new(),
            at: 0,
            offset: section.section.span.offset,
            pieces: 0,
            chain: Chain::default(),
            intact: true,
            piece_intact: true,
        }
    }
}
