//! The end of a segment, in bounded steps: sort the entries, then write key fences, index pages, filters,
//! page fences and footer.
//!
//! A step works on about the asked number of bytes; what it leaves is resumed by the next. The one
//! exception is the tail, which is 4 bytes an index page and is encoded at once: it has to be read at
//! once, too.

use super::fences::FENCE_PIECE_BYTES;
use super::footer::Footer;
use super::identity::{Chain, Domain, checksum};
use super::layout::{FilterSection, PAGE_FENCE_BYTES, Section, SegmentLayout, Span};
use super::meta::SegmentMeta;
use super::reader::Tail;
use super::writer::SegmentWriter;
use crate::error::Result;
use crate::filter::{Block, FilterBuilder, FilterShape, PIECE_BYTES, ResidentFilter};
use crate::index::page::{PAGE_BYTES, PAGE_ENTRIES_MAX, encode_page};
use crate::index::{ENTRY_BYTES, fence_of, packed_hash};

/// Level-0 segments cover all hashes.
const PREFIX_BITS: u8 = 0;

/// What a finished segment is, to be named in the manifest, and what is worth keeping in memory.
#[derive(Debug)]
pub struct SegmentSummary {
    /// For the manifest.
    pub meta: SegmentMeta,
    /// The decoded tail: with it a fresh segment needs no first touch.
    pub tail: Tail,
    /// The alternative that the parameters asked to keep.
    pub filter: Option<ResidentFilter>,
}

/// How far finishing has come.
#[derive(Debug, Default)]
pub struct Finish {
    stage: Stage,
    layout: SegmentLayout,
    chain: Chain,
    filter: Option<FilterStage>,
    kept: Option<ResidentFilter>,
    pub(super) buffers: FinishBuffers,
}

/// What finishing needs room for, from segment to segment.
#[derive(Debug, Default)]
pub struct FinishBuffers {
    page_fences: Vec<u32>,
    /// A piece of the filter at hand.
    piece: Vec<u8>,
    /// Checksums of its pieces.
    sums: Vec<u8>,
    tail: Vec<u8>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    /// Records are still coming.
    #[default]
    Records,
    Sort,
    KeyFences {
        written: usize,
    },
    Pages {
        entries_done: usize,
    },
    Filter {
        which: usize,
    },
    Tail,
    Done,
}

/// A filter being built while the sorted entries stream by.
#[derive(Debug)]
struct FilterStage {
    builder: FilterBuilder,
    offset: u64,
    entries_done: usize,
    /// Blocks in it.
    blocks: usize,
    kept: Option<ResidentFilter>,
}

/// Memory that finishing takes beside scratch, page and page fences: the sorter's bucket bounds, a
/// filter piece and the checksums of the largest filter's pieces (at most 16 bits a key).
pub(super) const fn working_bytes(records: u64) -> u64 {
    let pieces = FilterShape::for_keys(records, 16, 0).pieces();
    8 * 4096 + (PIECE_BYTES as u64) + pieces * 8
}

impl Finish {
    /// At the beginning, in the memory of another one's buffers.
    pub(super) fn new(mut buffers: FinishBuffers) -> Self {
        buffers.page_fences.clear();
        buffers.piece.clear();
        buffers.sums.clear();
        buffers.tail.clear();
        Self {
            buffers,
            ..Self::default()
        }
    }

    /// Whether records may still come.
    pub fn not_begun(&self) -> bool {
        self.stage == Stage::Records
    }
}

impl SegmentWriter {
    /// Does the next piece of finishing, on about `quantum_bytes` bytes. `Some` once the file is
    /// whole; the caller syncs it. To be called until then, and not after.
    pub fn finish_step(&mut self, quantum_bytes: usize) -> Result<Option<SegmentSummary>> {
        self.alive()?;
        let result = match self.finish.stage {
            Stage::Records => self.end_records(),
            Stage::Sort => self.sort(quantum_bytes),
            Stage::KeyFences { written } => self.write_key_fences(written, quantum_bytes),
            Stage::Pages { entries_done } => self.write_pages(entries_done, quantum_bytes),
            Stage::Filter { which } => self.write_filter(which, quantum_bytes),
            Stage::Tail => {
                let result = self.write_tail();
                return self.guard(result).map(Some);
            }
            Stage::Done => panic!("a finished segment is not finished again"),
        };
        self.guard(result)?;
        Ok(None)
    }

    fn end_records(&mut self) -> Result<()> {
        self.finish.layout.records = self.records_section(self.output.offset());
        self.key_fences.finish();
        self.finish.stage = Stage::Sort;
        Ok(())
    }

    fn sort(&mut self, quantum_bytes: usize) -> Result<()> {
        if self.sorter.step(quantum_bytes / ENTRY_BYTES) {
            let (items, checksum) = self.key_fences.totals();
            let span = Span {
                offset: self.output.offset(),
                bytes: self.key_fences.bytes().len() as u64,
            };
            self.finish.layout.key_fences = Section {
                span,
                items,
                checksum,
            };
            self.finish.stage = Stage::KeyFences { written: 0 };
        }
        Ok(())
    }

    fn write_key_fences(&mut self, written: usize, quantum_bytes: usize) -> Result<()> {
        let left = &self.key_fences.bytes()[written..];
        let now = left.len().min(quantum_bytes.max(FENCE_PIECE_BYTES));
        self.output.write(&left[..now])?;
        let all = now == left.len();
        self.finish.stage = Stage::KeyFences {
            written: written + now,
        };
        if all {
            self.output.pad_to(PAGE_BYTES as u64)?;
            self.finish.layout.pages.span.offset = self.output.offset();
            self.finish.stage = Stage::Pages { entries_done: 0 };
        }
        Ok(())
    }

    fn write_pages(&mut self, entries_done: usize, quantum_bytes: usize) -> Result<()> {
        let mut page = [0; PAGE_BYTES];
        let pages = (quantum_bytes / PAGE_BYTES).max(1);
        let entries = &self.sorter.sorted()[entries_done..];
        let finish = &mut self.finish;
        let mut done = entries_done;
        for chunk in entries.chunks(PAGE_ENTRIES_MAX).take(pages) {
            let number = finish.buffers.page_fences.len() as u64;
            let seed = self.seeds.seed(Domain::IndexPage, number);
            finish.chain.push(encode_page(chunk, seed, &mut page));
            self.output.write(&page)?;
            let last = chunk.last().map(packed_hash);
            finish
                .buffers
                .page_fences
                .extend(last.map(|hash| fence_of(hash, PREFIX_BITS)));
            done += chunk.len();
        }
        finish.stage = Stage::Pages { entries_done: done };
        if done == self.sorter.len() {
            let pages = &mut finish.layout.pages;
            pages.span.bytes = self.output.offset() - pages.span.offset;
            pages.items = self.counts.records;
            pages.checksum = finish.chain.0;
            self.begin_filter(0);
        }
        Ok(())
    }

    fn begin_filter(&mut self, which: usize) {
        let Some(bits) = self.parameters.filter_bits.get(which).copied() else {
            self.finish.stage = Stage::Tail;
            return;
        };
        let shape = FilterShape::for_keys(self.counts.records, bits, PREFIX_BITS);
        let kept = self.parameters.keep_filter_bits == Some(bits);
        self.finish.chain = Chain::default();
        self.finish.filter = Some(FilterStage {
            builder: FilterBuilder::new(shape),
            offset: self.output.offset(),
            entries_done: 0,
            blocks: 0,
            kept: kept.then(|| ResidentFilter::empty(shape)),
        });
        let piece_bytes = PIECE_BYTES.min(shape.bytes() as usize);
        self.finish.buffers.piece.reserve_exact(piece_bytes);
        self.finish.stage = Stage::Filter { which };
    }

    fn write_filter(&mut self, which: usize, quantum_bytes: usize) -> Result<()> {
        let Some(mut filter) = self.finish.filter.take() else {
            self.finish.stage = Stage::Tail;
            return Ok(());
        };
        let from = filter.entries_done;
        let to = self
            .sorter
            .len()
            .min(from + (quantum_bytes / ENTRY_BYTES).max(1));
        for index in from..to {
            let hash = packed_hash(&self.sorter.sorted()[index]);
            while let Some(block) = filter.builder.push(hash) {
                self.add_block(&mut filter, block)?;
            }
        }
        filter.entries_done = to;
        if to < self.sorter.len() {
            self.finish.filter = Some(filter);
            return Ok(());
        }
        while let Some(block) = filter.builder.finish() {
            self.add_block(&mut filter, block)?;
        }
        self.end_filter(filter)?;
        self.begin_filter(which + 1);
        Ok(())
    }

    fn add_block(&mut self, filter: &mut FilterStage, block: Block) -> Result<()> {
        let piece = &mut self.finish.buffers.piece;
        piece.extend_from_slice(&block.to_bytes());
        if let Some(kept) = &mut filter.kept {
            kept.fill(filter.blocks, std::iter::once(block));
        }
        filter.blocks += 1;
        match piece.len() == PIECE_BYTES {
            true => self.end_piece(),
            false => Ok(()),
        }
    }

    fn end_piece(&mut self) -> Result<()> {
        // A piece is seeded by its place in the file, so that alternatives can't be confused.
        let place = self.output.offset();
        let FinishBuffers { piece, sums, .. } = &mut self.finish.buffers;
        let sum = checksum(self.seeds.seed(Domain::Filter, place), piece);
        sums.extend_from_slice(&sum.to_le_bytes());
        self.finish.chain.push(sum);
        self.output.write(piece)?;
        piece.clear();
        Ok(())
    }

    fn end_filter(&mut self, filter: FilterStage) -> Result<()> {
        if !self.finish.buffers.piece.is_empty() {
            self.end_piece()?;
        }
        self.output.write(&self.finish.buffers.sums)?;
        self.finish.buffers.sums.clear();
        let shape = filter.builder.shape();
        let span = Span {
            offset: filter.offset,
            bytes: self.output.offset() - filter.offset,
        };
        let section = Section {
            span,
            items: shape.blocks,
            checksum: self.finish.chain.0,
        };
        self.finish
            .layout
            .filters
            .push(FilterSection { shape, section });
        debug_assert_eq!(filter.blocks as u64, shape.blocks);
        self.finish.kept = filter.kept.or(self.finish.kept.take());
        Ok(())
    }

    fn write_tail(&mut self) -> Result<SegmentSummary> {
        let tail_offset = self.output.offset();
        let FinishBuffers {
            page_fences: fences,
            tail: bytes,
            ..
        } = &mut self.finish.buffers;
        bytes.reserve_exact(fences.len() * PAGE_FENCE_BYTES as usize + 512);
        for fence in fences.iter() {
            bytes.extend_from_slice(&fence.to_le_bytes());
        }
        let mut layout = std::mem::take(&mut self.finish.layout);
        layout.page_fences = Section {
            span: Span {
                offset: tail_offset,
                bytes: bytes.len() as u64,
            },
            items: fences.len() as u64,
            checksum: checksum(self.seeds.seed(Domain::PageFences, 0), bytes),
        };
        let footer = Footer {
            identity: self.identity,
            counts: self.counts,
            hash_bits: self.parameters.hasher.hash_bits(),
            prefix_bits: PREFIX_BITS,
            ordinal_bits: 0,
            key_fence_bytes: self.parameters.key_fence_bytes,
            layout,
        };
        let footer_checksum = footer.encode(bytes);
        self.output.write(bytes)?;
        self.output.flush()?;
        self.finish.stage = Stage::Done;
        Ok(SegmentSummary {
            meta: SegmentMeta {
                number: self.output.name().number,
                identity: self.identity,
                file_len: self.output.offset(),
                tail_offset,
                tail_len: bytes.len() as u64,
                footer_checksum,
                counts: self.counts,
            },
            tail: Tail::new(&footer, fences),
            filter: self.finish.kept.take(),
        })
    }
}
