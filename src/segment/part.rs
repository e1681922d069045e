//! Writes a part of a folded run: index pages, filters, page fences and footer, without records.
//!
//! ```text
//! head, zeros to 4096 | index pages | filter | filter | .. | page fences | footer
//! ```
//!
//! How many entries come is known beforehand, so the place of every section is, and pages and filters are
//! written side by side while the entries stream by once.
//!
//! Invariants:
//! * Entries come ascending and all of them belong to the part; equal entries give equal bytes, however
//!   the calls were cut.
//! * Memory: [`PartBuffers`] (a page of entries, the pages written at once, a piece for each filter and 8 bytes
//!   for each of its pieces, 8 bytes an index page for the fences), which serve part after part; for each filter
//!   a block.
//!
//! Crash: nothing names the file until the caller has synced it and its directory entry and then made a
//! manifest edit durable.

use super::finish::SegmentSummary;
use super::footer::{Footer, HEAD_BYTES, SegmentCounts, encode_head};
use super::identity::{Chain, Domain, Seeds, SegmentIdentity, checksum};
use super::layout::{FilterSection, PAGE_FENCE_BYTES, Section, SegmentLayout, Span};
use super::meta::SegmentMeta;
use super::reader::Tail;
use crate::env::io::write_all_at;
use crate::env::{File, FileName};
use crate::error::{Error, Result};
use crate::filter::{Block, FilterBuilder, FilterShape, PIECE_BYTES};
use crate::index::page::{PAGE_BYTES, PAGE_ENTRIES_MAX, encode_page, pages_for};
use crate::index::{Entry, PackedEntry, fence_of, packed_hash};
use crate::sync::Arc;
use crate::types::Sequence;

/// Pages written at once.
const PAGES_AT_ONCE: usize = 16;

/// What a part is, known before its first entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartPlan {
    /// Its identity; the level is above 0.
    pub identity: SegmentIdentity,
    /// How many entries come.
    pub entries: u64,
    /// The lowest sequence in the run.
    pub min_sequence: Sequence,
    /// The highest.
    pub max_sequence: Sequence,
    /// Hash bits of the store.
    pub hash_bits: u8,
    /// Leading hash bits that all its entries share.
    pub prefix_bits: u8,
    /// Bits of a location that say which segment.
    pub ordinal_bits: u8,
    /// Filter alternatives to store, in bits a key.
    pub filter_bits: Vec<u16>,
}

/// The memory of a writer. Kept from part to part: a store that takes it anew for each fold has its peak when a
/// fold and a full write region meet, and holes in the heap. What depends on how long a part is, fences and
/// checksums, is 100 KiB for parts of four million entries, the most by default.
#[derive(Debug, Default)]
pub struct PartBuffers {
    /// Entries of the page at hand.
    chunk: Vec<PackedEntry>,
    /// Whole pages that are not in the file yet.
    pages: Vec<u8>,
    /// A piece of each filter.
    pieces: Vec<Vec<u8>>,
    /// Checksums of each filter's pieces.
    sums: Vec<Vec<u8>>,
    page_fences: Vec<u32>,
    /// The encoded page fences and the footer.
    tail: Vec<u8>,
}

/// A part being written.
#[derive(Debug)]
pub struct PartWriter {
    file: Arc<dyn File>,
    name: FileName,
    plan: PartPlan,
    seeds: Seeds,
    pages: Span,
    /// Entries of the page at hand.
    chunk: Vec<PackedEntry>,
    /// Whole pages that are not in the file yet.
    buffer: Vec<u8>,
    /// Bytes of pages in the file.
    written: u64,
    page_fences: Vec<u32>,
    chain: Chain,
    filters: Vec<FilterStream>,
    tail_offset: u64,
    entries: u64,
    tombstones: u64,
    last: Option<PackedEntry>,
    /// What this part has no use for, or not yet.
    spare: PartBuffers,
}

/// A filter that is written while the entries stream by.
#[derive(Debug)]
struct FilterStream {
    builder: FilterBuilder,
    span: Span,
    piece: Vec<u8>,
    sums: Vec<u8>,
    /// Bytes of blocks in the file.
    written: u64,
    chain: Chain,
}

impl PartWriter {
    /// Starts a part in `file`, which is empty and called `name`, in the memory of `buffers`.
    pub fn new(
        file: Arc<dyn File>,
        name: FileName,
        plan: PartPlan,
        mut buffers: PartBuffers,
    ) -> Result<Self> {
        debug_assert!(plan.identity.level > 0, "level 0 has records");
        let pages = Span {
            offset: PAGE_BYTES as u64,
            bytes: pages_for(plan.entries) * PAGE_BYTES as u64,
        };
        let mut next = pages.end();
        let mut filters = Vec::new();
        for bits in &plan.filter_bits {
            let shape = FilterShape::for_keys(plan.entries, *bits, plan.prefix_bits);
            let bytes = shape.bytes() + shape.pieces() * 8;
            let span = Span {
                offset: next,
                bytes,
            };
            next = span.end();
            filters.push(FilterStream {
                builder: FilterBuilder::new(shape),
                span,
                piece: emptied(
                    buffers.pieces.pop().unwrap_or_default(),
                    PIECE_BYTES.min(shape.bytes() as usize),
                ),
                sums: emptied(
                    buffers.sums.pop().unwrap_or_default(),
                    shape.pieces() as usize * 8,
                ),
                written: 0,
                chain: Chain::default(),
            });
        }
        let writer = Self {
            seeds: plan.identity.seeds(),
            pages,
            chunk: emptied(buffers.chunk, PAGE_ENTRIES_MAX),
            buffer: emptied(buffers.pages, PAGES_AT_ONCE * PAGE_BYTES),
            written: 0,
            page_fences: emptied(buffers.page_fences, pages_for(plan.entries) as usize),
            chain: Chain::default(),
            filters,
            tail_offset: next,
            entries: 0,
            tombstones: 0,
            last: None,
            spare: PartBuffers {
                pieces: buffers.pieces,
                sums: buffers.sums,
                tail: buffers.tail,
                ..PartBuffers::default()
            },
            file,
            name,
            plan,
        };
        let mut head = [0; PAGE_BYTES];
        head[..HEAD_BYTES].copy_from_slice(&encode_head(&writer.plan.identity));
        writer.write(&head, 0)?;
        Ok(writer)
    }

    /// Appends an entry, above the one before.
    pub fn push(&mut self, packed: &PackedEntry) -> Result<()> {
        assert!(
            self.last.is_none_or(|last| last < *packed),
            "entries come ascending"
        );
        assert!(
            self.entries < self.plan.entries,
            "no more than were announced"
        );
        self.last = Some(*packed);
        self.entries += 1;
        self.tombstones += u64::from(Entry::unpack(packed).tombstone());
        let hash = packed_hash(packed);
        for which in 0..self.filters.len() {
            while let Some(block) = self.filters[which].builder.push(hash) {
                self.add_block(which, block)?;
            }
        }
        self.chunk.push(*packed);
        if self.chunk.len() == PAGE_ENTRIES_MAX {
            self.end_page()?;
        }
        Ok(())
    }

    /// Ends the part and gives the buffers back; the caller syncs it. All announced entries must have come.
    pub fn finish(mut self) -> Result<(SegmentSummary, PartBuffers)> {
        assert!(
            self.entries == self.plan.entries,
            "as many as were announced"
        );
        if !self.chunk.is_empty() {
            self.end_page()?;
        }
        self.flush_pages()?;
        for which in 0..self.filters.len() {
            while let Some(block) = self.filters[which].builder.finish() {
                self.add_block(which, block)?;
            }
            self.end_filter(which)?;
        }
        let mut tail = std::mem::take(&mut self.spare.tail);
        let summary = self.write_tail(&mut tail)?;
        let mut buffers = PartBuffers {
            chunk: self.chunk,
            pages: self.buffer,
            page_fences: self.page_fences,
            tail,
            ..self.spare
        };
        for filter in self.filters {
            buffers.pieces.push(filter.piece);
            buffers.sums.push(filter.sums);
        }
        Ok((summary, buffers))
    }

    fn end_page(&mut self) -> Result<()> {
        let mut page = [0; PAGE_BYTES];
        let number = self.page_fences.len() as u64;
        let seed = self.seeds.seed(Domain::IndexPage, number);
        self.chain.push(encode_page(&self.chunk, seed, &mut page));
        let last = self.chunk.last().map(packed_hash);
        let prefix_bits = self.plan.prefix_bits;
        self.page_fences
            .extend(last.map(|hash| fence_of(hash, prefix_bits)));
        self.chunk.clear();
        self.buffer.extend_from_slice(&page);
        match self.buffer.len() == PAGES_AT_ONCE * PAGE_BYTES {
            true => self.flush_pages(),
            false => Ok(()),
        }
    }

    fn flush_pages(&mut self) -> Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        self.write(&self.buffer, self.pages.offset + self.written)?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    fn add_block(&mut self, which: usize, block: Block) -> Result<()> {
        let filter = &mut self.filters[which];
        filter.piece.extend_from_slice(&block.to_bytes());
        match filter.piece.len() == PIECE_BYTES {
            true => self.end_piece(which),
            false => Ok(()),
        }
    }

    fn end_piece(&mut self, which: usize) -> Result<()> {
        let filter = &self.filters[which];
        let place = filter.span.offset + filter.written;
        let sum = checksum(self.seeds.seed(Domain::Filter, place), &filter.piece);
        self.write(&filter.piece, place)?;
        let filter = &mut self.filters[which];
        filter.sums.extend_from_slice(&sum.to_le_bytes());
        filter.chain.push(sum);
        filter.written += filter.piece.len() as u64;
        filter.piece.clear();
        Ok(())
    }

    fn end_filter(&mut self, which: usize) -> Result<()> {
        if !self.filters[which].piece.is_empty() {
            self.end_piece(which)?;
        }
        let filter = &self.filters[which];
        let place = filter.span.offset + filter.written;
        debug_assert_eq!(place + filter.sums.len() as u64, filter.span.end());
        self.write(&filter.sums, place)
    }

    fn layout(&self, fence_bytes: &[u8]) -> SegmentLayout {
        let nothing = Section {
            span: Span {
                offset: HEAD_BYTES as u64,
                bytes: 0,
            },
            items: 0,
            checksum: 0,
        };
        let filters = self.filters.iter().map(|filter| FilterSection {
            shape: filter.builder.shape(),
            section: Section {
                span: filter.span,
                items: filter.builder.shape().blocks,
                checksum: filter.chain.0,
            },
        });
        SegmentLayout {
            records: nothing,
            key_fences: nothing,
            pages: Section {
                span: self.pages,
                items: self.entries,
                checksum: self.chain.0,
            },
            filters: filters.collect(),
            page_fences: Section {
                span: Span {
                    offset: self.tail_offset,
                    bytes: fence_bytes.len() as u64,
                },
                items: self.page_fences.len() as u64,
                checksum: checksum(self.seeds.seed(Domain::PageFences, 0), fence_bytes),
            },
        }
    }

    /// Writes page fences and footer, which are encoded in `bytes`.
    fn write_tail(&self, bytes: &mut Vec<u8>) -> Result<SegmentSummary> {
        bytes.clear();
        bytes.reserve_exact(self.page_fences.len() * PAGE_FENCE_BYTES as usize + 512);
        for fence in &self.page_fences {
            bytes.extend_from_slice(&fence.to_le_bytes());
        }
        let counts = SegmentCounts {
            records: self.entries,
            tombstones: self.tombstones,
            min_sequence: self.plan.min_sequence,
            max_sequence: self.plan.max_sequence,
            key_bytes: 0,
            value_bytes: 0,
        };
        let footer = Footer {
            identity: self.plan.identity,
            counts,
            hash_bits: self.plan.hash_bits,
            prefix_bits: self.plan.prefix_bits,
            ordinal_bits: self.plan.ordinal_bits,
            key_fence_bytes: 0,
            layout: self.layout(bytes),
        };
        let footer_checksum = footer.encode(bytes);
        self.write(bytes, self.tail_offset)?;
        Ok(SegmentSummary {
            meta: SegmentMeta {
                number: self.name.number,
                identity: self.plan.identity,
                file_len: self.tail_offset + bytes.len() as u64,
                tail_offset: self.tail_offset,
                tail_len: bytes.len() as u64,
                footer_checksum,
                counts,
            },
            tail: Tail::new(&footer, &self.page_fences),
            filter: None,
        })
    }

    fn write(&self, bytes: &[u8], offset: u64) -> Result<()> {
        write_all_at(&*self.file, bytes, offset)
            .map_err(|cause| Error::io("fold", self.name, cause).with_offset(offset))
    }
}

/// The vector without its content, with room for so many.
fn emptied<T>(mut vector: Vec<T>, capacity: usize) -> Vec<T> {
    vector.clear();
    vector.reserve_exact(capacity);
    vector
}
