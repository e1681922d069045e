//! Loads a stored filter in bounded steps: the tail and the checksums first, then pieces, each under its own
//! checksum. Damage anywhere means that this filter is not there; others of the same file may be.

use super::identity::{Domain, checksum};
use super::layout::FilterSection;
use super::reader::{Segment, Tail, decode_fences};
use super::{FileTable, OpenFile, ReadCounts};
use crate::error::{Error, ErrorKind, Result};
use crate::filter::{BLOCK_BYTES, Block, FilterPages, PIECE_BLOCKS, PIECE_BYTES, ResidentFilter};
use crate::sync::Arc;

const OPERATION: &str = "load filter";

/// A filter that is being loaded. Its memory is taken at the beginning.
#[derive(Debug)]
pub struct FilterLoad {
    section: FilterSection,
    sums: Vec<u8>,
    pieces_read: usize,
    filter: ResidentFilter,
}

impl FilterLoad {
    /// The memory of the filter, in bytes.
    pub fn bytes(&self) -> u64 {
        self.filter.bytes() as u64
    }

    /// The filter, once every piece was read.
    pub fn finish(self) -> Option<ResidentFilter> {
        self.is_whole().then_some(self.filter)
    }

    fn is_whole(&self) -> bool {
        self.pieces_read as u64 == self.section.shape.pieces()
    }
}

impl Segment {
    /// Begins to load the stored filter with this many bits a key, which may take `bytes_max` bytes of memory:
    /// two reads. A whole tail is kept: the first lookup need not read it again. Errors: `Unsupported` for what
    /// is not stored or larger, `Corruption`, and those of reading. Takes `pages` for it, if they fit.
    pub fn begin_filter_load(
        self: &Arc<Self>,
        files: &FileTable,
        bits_per_key: u16,
        bytes_max: u64,
        pages: Option<FilterPages>,
        counts: &mut ReadCounts,
    ) -> Result<FilterLoad> {
        let file = self.file(files, counts)?;
        let (footer, fences) = self.read_footer(&file, OPERATION, counts)?;
        if self.fences_intact(&footer, &fences) {
            self.keep_tail(|| Tail::new(&footer, &decode_fences(&fences)));
        }
        let stored = footer.layout.filters.iter();
        let mut stored = stored.filter(|filter| filter.shape.bits_per_key == bits_per_key);
        let section = stored.next().copied();
        let Some(section) = section.filter(|s| s.shape.resident_bytes() <= bytes_max) else {
            let detail = format!("no such filter with {bits_per_key} bits a key is stored");
            let error = Error::new(ErrorKind::Unsupported, OPERATION, detail);
            return Err(error.with_file(self.name()));
        };
        let span = section.checksums();
        let mut sums = vec![0; span.bytes as usize];
        self.read(&file, OPERATION, span.offset, &mut sums, counts)?;
        Ok(FilterLoad {
            filter: ResidentFilter::empty_in(section.shape, pages),
            pieces_read: 0,
            section,
            sums,
        })
    }

    /// Reads at most so many pieces of [`PIECE_BYTES`]; true once all were read.
    pub fn filter_load_step(
        self: &Arc<Self>,
        files: &FileTable,
        load: &mut FilterLoad,
        pieces_max: usize,
        counts: &mut ReadCounts,
    ) -> Result<bool> {
        let file = self.file(files, counts)?;
        for _ in 0..pieces_max {
            if load.is_whole() {
                break;
            }
            self.read_piece(&file, load, counts)?;
        }
        Ok(load.is_whole())
    }

    /// Never part of another function: the piece would lie on the stack of all that it does.
    #[inline(never)]
    fn read_piece(
        &self,
        file: &OpenFile,
        load: &mut FilterLoad,
        counts: &mut ReadCounts,
    ) -> Result<()> {
        let filled = load.pieces_read * PIECE_BLOCKS;
        let blocks = load.section.shape.blocks as usize;
        let mut piece = [0; PIECE_BYTES];
        let piece = &mut piece[..(blocks - filled).min(PIECE_BLOCKS) * BLOCK_BYTES];
        let offset = load.section.section.span.offset + (filled * BLOCK_BYTES) as u64;
        self.read(file, OPERATION, offset, piece, counts)?;
        let sum = checksum(self.seeds().seed(Domain::Filter, offset), piece).to_le_bytes();
        if load.sums.as_chunks::<8>().0.get(load.pieces_read) != Some(&sum) {
            return Err(self.damage(OPERATION, offset, "filter piece checksum"));
        }
        let blocks = piece.as_chunks().0.iter().map(Block::from_bytes);
        load.filter.fill(filled, blocks);
        load.pieces_read += 1;
        Ok(())
    }

    /// All steps at once.
    #[cfg(test)]
    pub fn load_filter(
        self: &Arc<Self>,
        files: &FileTable,
        bits_per_key: u16,
        counts: &mut ReadCounts,
    ) -> Result<ResidentFilter> {
        let mut load = self.begin_filter_load(files, bits_per_key, u64::MAX, None, counts)?;
        while !self.filter_load_step(files, &mut load, 1, counts)? {}
        Ok(load.finish().expect("all pieces were read"))
    }
}
