//! A sealed segment as readers hold it: what the manifest says, the tail once it was read, and the
//! resident filter.
//!
//! First touch is one read: the tail, whose place the manifest knows. Before that the file's length is
//! compared with the manifest's (no read); after it the footer's checksum and identity are. So a file
//! that was swapped, cut or lengthened is found before anything in it is used. Damaged page fences are
//! rebuilt from the pages, each under its own checksum; a damaged footer is `Corruption`. A failed
//! first touch leaves nothing behind and is tried again by the next reader.
//!
//! Nothing else of a file is kept in memory: 4 bytes an index page, the lengths of two sections, and what
//! the manifest knows, packed. Who loads a filter reads the footer again.

use super::ReadCounts;
use super::files::{FileSlot, FileTable, OpenFile, Slotted};
use super::footer::{Footer, FooterFault, SEGMENT_VERSION};
use super::identity::{Chain, Domain, Seeds, checksum};
use super::layout::{Places, Span};
use super::meta::{PackedMeta, SegmentMeta};
use crate::env::FileName;
use crate::env::io::{read_exact_at, uninterrupted};
use crate::error::{Error, ErrorKind, Result};
use crate::filter::ResidentFilter;
use crate::index::page::{PAGE_BYTES, PageView};
use crate::index::{LocationSplit, fence_of};
use crate::sync::{Arc, ArcSwapOption, AtomicU64, OnceLock, Ordering};
use crate::types::{Hasher, KeyHash, Sequence};

const OPERATION: &str = "open segment";

/// Pages read at once when fences are rebuilt.
const REBUILD_PAGES: usize = 16;

/// What stays in memory of the tail.
#[derive(Debug, PartialEq, Eq)]
pub struct Tail {
    /// Bytes of records: all that reading one needs to know, so it is no further pointer away.
    records_bytes: u64,
    /// Bytes of key fences, low half first, the bits of prefix and ordinal; then the page fences. From these
    /// the places follow, because sections touch. One list: a segment more is one allocation less.
    words: Box<[u32]>,
}

impl Tail {
    const HEAD_WORDS: usize = 3;

    /// A tail from its parts. The footer's places were checked.
    pub(super) fn new(footer: &Footer, page_fences: &[u32]) -> Self {
        let places = footer.layout.places();
        let fences = places.key_fences.bytes;
        let mut words = Vec::with_capacity(Self::HEAD_WORDS + page_fences.len());
        words.extend([fences as u32, (fences >> 32) as u32]);
        words.push(u32::from(footer.prefix_bits) | u32::from(footer.ordinal_bits) << 8);
        words.extend_from_slice(page_fences);
        let tail = Self {
            records_bytes: places.records.bytes,
            words: words.into_boxed_slice(),
        };
        debug_assert_eq!(tail.places(), places);
        tail
    }

    fn parts(&self) -> (&[u32; Self::HEAD_WORDS], &[u32]) {
        self.words
            .split_first_chunk()
            .unwrap_or((&[0; Self::HEAD_WORDS], &[]))
    }

    /// Where the sections are.
    pub fn places(&self) -> Places {
        let ([fences_low, fences_high, _], pages) = self.parts();
        let fences = u64::from(*fences_low) | u64::from(*fences_high) << 32;
        Places::touching(self.records_bytes, fences, pages.len() as u64)
    }

    /// Where the records are.
    #[inline]
    pub const fn records(&self) -> Span {
        Places::records_of(self.records_bytes)
    }

    /// Leading hash bits that all keys of the segment share.
    pub fn prefix_bits(&self) -> u8 {
        self.parts().0[2] as u8
    }

    /// How locations in its entries part.
    pub fn split(&self) -> LocationSplit {
        LocationSplit {
            ordinal_bits: (self.parts().0[2] >> 8) as u8,
        }
    }

    /// The fence of each index page.
    pub fn page_fences(&self) -> &[u32] {
        self.parts().1
    }

    /// Its bytes in memory beside the value itself.
    fn heap_bytes(&self) -> usize {
        size_of_val(&*self.words)
    }
}

/// What a filter says of a hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filtered {
    /// Certainly not here.
    No,
    /// Perhaps here.
    Maybe,
    /// No filter is in memory: perhaps here.
    NotResident,
}

/// A sealed segment. There is one for every file of a store, so what is seldom needed is packed, made
/// when it is needed, or shared.
#[derive(Debug)]
pub struct Segment {
    meta: PackedMeta,
    seeds: Seeds,
    hasher: Arc<Hasher>,
    slot: FileSlot,
    tail: OnceLock<Tail>,
    filter: ArcSwapOption<ResidentFilter>,
    /// Sampled lookups that came here in vain, as residency weighs them.
    arrivals: AtomicU64,
}

impl Segment {
    /// A segment that the manifest names; its file is opened when first needed.
    pub fn new(meta: PackedMeta, hasher: Arc<Hasher>) -> Self {
        Self {
            seeds: meta.unpack(hasher.family_id()).identity.seeds(),
            hasher,
            slot: FileSlot::default(),
            tail: OnceLock::new(),
            filter: ArcSwapOption::empty(),
            arrivals: AtomicU64::new(0),
            meta,
        }
    }

    /// A segment that was just written, whose tail need not be read.
    pub fn with_tail(meta: PackedMeta, hasher: Arc<Hasher>, tail: Tail) -> Self {
        let segment = Self::new(meta, hasher);
        // A new cell is empty, so this can't fail.
        let _ = segment.tail.set(tail);
        segment
    }

    /// What the manifest knows of it.
    pub fn meta(&self) -> SegmentMeta {
        self.meta.unpack(self.hasher.family_id())
    }

    /// The file's number.
    pub fn number(&self) -> u64 {
        self.meta.number()
    }

    /// Its first generation and its last.
    pub fn generations(&self) -> (u64, u64) {
        self.meta.generations()
    }

    /// Whether every record is newer than `bound`.
    #[inline]
    pub fn is_newer_than(&self, bound: Sequence) -> bool {
        // Most lookups have no bound and need not look.
        bound != Sequence::MAX && self.meta.min_sequence() > bound
    }

    /// The file's name.
    pub fn name(&self) -> FileName {
        self.meta.name()
    }

    /// The store's hasher.
    pub fn hasher(&self) -> &Hasher {
        &self.hasher
    }

    /// The tail, if it was read.
    pub fn known_tail(&self) -> Option<&Tail> {
        self.tail.get()
    }

    /// The tail, read at first touch: one read, if all is well.
    #[inline]
    pub fn tail(self: &Arc<Self>, files: &FileTable, counts: &mut ReadCounts) -> Result<&Tail> {
        if let Some(tail) = self.tail.get() {
            return Ok(tail);
        }
        counts.first_touches += 1;
        let tail = self.read_tail(files, counts)?;
        // Two readers may have read the same tail; either copy serves.
        Ok(self.tail.get_or_init(|| tail))
    }

    /// Memory of the segment without its filter and what an open file takes: a fixed part, what the
    /// manifest knows of it, and 4 bytes an index page and 12 more once the tail was read.
    pub fn resident_bytes(&self) -> usize {
        // Two counts in front of each shared value.
        let shared = 2 * 2 * size_of::<usize>();
        let tail = self.tail.get().map_or(0, Tail::heap_bytes);
        size_of::<Self>() + self.meta.bytes() + shared + tail
    }

    /// Tests the resident filter, if there is one.
    #[inline]
    pub fn filter_may_contain(&self, hash: KeyHash, counts: &mut ReadCounts) -> Filtered {
        match &*self.filter.load() {
            None => Filtered::NotResident,
            Some(filter) => {
                counts.filter_tests += 1;
                match filter.may_contain(hash) {
                    true => Filtered::Maybe,
                    false => Filtered::No,
                }
            }
        }
    }

    /// Sampled lookups that came here in vain.
    pub fn arrivals(&self) -> u64 {
        self.arrivals.load(Ordering::Relaxed)
    }

    /// Counts some.
    pub fn add_arrivals(&self, count: u64) {
        self.arrivals.fetch_add(count, Ordering::Relaxed);
    }

    /// Forgets half of them: what is older counts for less.
    pub fn halve_arrivals(&self) {
        let now = self.arrivals();
        // Others add meanwhile; nobody else takes away.
        self.arrivals.fetch_sub(now - now / 2, Ordering::Relaxed);
    }

    /// Makes a filter resident, or none; returns the one before.
    pub fn set_filter(&self, filter: Option<Arc<ResidentFilter>>) -> Option<Arc<ResidentFilter>> {
        self.filter.swap(filter)
    }

    /// Whether a filter is resident.
    pub fn has_filter(&self) -> bool {
        self.filter.load().is_some()
    }

    /// Bits a key of the resident filter, if there is one.
    pub fn filter_bits(&self) -> Option<u16> {
        let filter = self.filter.load();
        filter.as_ref().map(|filter| filter.shape().bits_per_key)
    }

    /// The resident filter.
    pub fn filter(&self) -> Option<Arc<ResidentFilter>> {
        self.filter.load_full()
    }

    /// Keeps a tail that was read on the way, if there is none.
    pub(super) fn keep_tail(&self, tail: impl FnOnce() -> Tail) {
        self.tail.get_or_init(tail);
    }

    fn read_tail(self: &Arc<Self>, files: &FileTable, counts: &mut ReadCounts) -> Result<Tail> {
        let file = self.file(files, counts)?;
        let (footer, fences) = self.read_footer(&file, OPERATION, counts)?;
        let page_fences = match self.fences_intact(&footer, &fences) {
            true => decode_fences(&fences),
            false => self.rebuild_fences(&file, &footer, counts)?,
        };
        Ok(Tail::new(&footer, &page_fences))
    }

    /// Reads the tail: the footer, checked against the manifest, and the page fences, unchecked.
    pub(super) fn read_footer(
        &self,
        file: &OpenFile,
        operation: &'static str,
        counts: &mut ReadCounts,
    ) -> Result<(Footer, Vec<u8>)> {
        self.check_length(file, operation)?;
        let meta = self.meta();
        let mut bytes = vec![0; meta.tail_len as usize];
        self.read(file, operation, meta.tail_offset, &mut bytes, counts)?;
        let (footer, footer_len, sum) = Footer::decode(&bytes, meta.file_len)
            .map_err(|fault| self.fault(operation, meta.tail_offset, fault))?;
        let footer_offset = meta.file_len - footer_len as u64;
        if let Some(what) = self.footer_fault(&footer, sum) {
            return Err(self.damage(operation, footer_offset, what));
        }
        bytes.truncate(bytes.len() - footer_len);
        Ok((footer, bytes))
    }

    /// Whether page fences as read are what was written.
    pub(super) fn fences_intact(&self, footer: &Footer, fences: &[u8]) -> bool {
        let seed = self.seeds.seed(Domain::PageFences, 0);
        checksum(seed, fences) == footer.layout.page_fences.checksum
    }

    /// Compares the file's length and the tail's place before anything is read or allocated.
    fn check_length(&self, file: &OpenFile, operation: &'static str) -> Result<()> {
        let meta = self.meta();
        let length = uninterrupted(|| file.file().len());
        let length = length.map_err(|cause| Error::io(operation, self.name(), cause))?;
        if length != meta.file_len {
            let detail = format!("{length} bytes long, the manifest says {}", meta.file_len);
            let at = length.min(meta.file_len);
            return Err(Error::corruption(operation, self.name(), at, detail));
        }
        if meta.tail_offset.checked_add(meta.tail_len) != Some(meta.file_len) {
            return Err(self.damage(operation, meta.tail_offset, "tail place in the manifest"));
        }
        Ok(())
    }

    /// Compares a footer with the manifest; says what differs.
    fn footer_fault(&self, footer: &Footer, sum: u64) -> Option<&'static str> {
        let meta = self.meta();
        if sum != meta.footer_checksum {
            Some("the footer is not the one that the manifest names")
        } else if footer.identity != meta.identity {
            Some("identity")
        } else if footer.counts != meta.counts {
            Some("record counts")
        } else if footer.hash_bits != self.hasher.hash_bits() {
            Some("hash bits")
        } else if footer.layout.page_fences.span.offset != meta.tail_offset {
            Some("tail place")
        } else {
            None
        }
    }

    /// Takes the fences from the pages themselves.
    fn rebuild_fences(
        &self,
        file: &OpenFile,
        footer: &Footer,
        counts: &mut ReadCounts,
    ) -> Result<Vec<u32>> {
        let places = footer.layout.places();
        let pages = places.page_count();
        let mut fences = Vec::with_capacity(pages as usize);
        let mut buffer = vec![0; REBUILD_PAGES.min(pages as usize) * PAGE_BYTES];
        let mut chain = Chain::default();
        while (fences.len() as u64) < pages {
            let first = fences.len() as u64;
            let now = (pages - first).min(REBUILD_PAGES as u64) as usize;
            let offset = places.page_offset(first);
            let bytes = &mut buffer[..now * PAGE_BYTES];
            self.read(file, OPERATION, offset, bytes, counts)?;
            for page in bytes.as_chunks::<PAGE_BYTES>().0 {
                let number = fences.len() as u64;
                let view = self.page(&places, number, page, OPERATION)?;
                chain.push(view.checksum());
                fences.push(fence_of(view.last_hash(), footer.prefix_bits));
            }
        }
        if chain.0 != footer.layout.pages.checksum {
            return Err(self.damage(OPERATION, places.pages.offset, "index pages"));
        }
        Ok(fences)
    }

    /// Checks a page that was read.
    pub(super) fn page<'a>(
        &self,
        places: &Places,
        number: u64,
        bytes: &'a [u8],
        operation: &'static str,
    ) -> Result<PageView<'a>> {
        let seed = self.seeds.seed(Domain::IndexPage, number);
        PageView::check(bytes, seed)
            .map_err(|what| self.damage(operation, places.page_offset(number), what))
    }

    /// Opens the file, or keeps it open. Who has it pins it.
    pub(super) fn file(
        self: &Arc<Self>,
        files: &FileTable,
        counts: &mut ReadCounts,
    ) -> Result<Arc<OpenFile>> {
        files.open(self, counts)
    }

    /// Does something with the file, opened if it is not: without a lock, and without a count that other
    /// readers of the file would wait for.
    #[inline]
    pub(super) fn with_file<T>(
        self: &Arc<Self>,
        files: &FileTable,
        counts: &mut ReadCounts,
        run: impl FnOnce(&OpenFile, &mut ReadCounts) -> Result<T>,
    ) -> Result<T> {
        let pinned = self.slot.used();
        let opened;
        let file: &OpenFile = match &*pinned {
            Some(file) => file,
            None => {
                opened = self.file(files, counts)?;
                &opened
            }
        };
        run(file, counts)
    }

    /// Whether its file is open.
    pub fn is_open(&self) -> bool {
        self.slot.is_open()
    }

    /// Closes the file once its readers are done; the next one opens it again.
    pub fn close_file(&self, files: &FileTable) {
        if self.is_open() {
            files.invalidate(self.name());
        }
    }

    /// One counted read.
    #[inline]
    pub(super) fn read(
        &self,
        file: &OpenFile,
        operation: &'static str,
        offset: u64,
        buffer: &mut [u8],
        counts: &mut ReadCounts,
    ) -> Result<()> {
        counts.reads += 1;
        counts.bytes += buffer.len() as u64;
        read_exact_at(file.file(), buffer, offset)
            .map_err(|cause| Error::io(operation, self.name(), cause).with_offset(offset))
    }

    /// So many bytes where they lie in the file's mapping, counted; `None` if it has none.
    #[inline]
    pub(super) fn mapped<'a>(
        &self,
        file: &'a OpenFile,
        operation: &'static str,
        offset: u64,
        length: usize,
        counts: &mut ReadCounts,
    ) -> Result<Option<&'a [u8]>> {
        let Some(mapping) = file.mapping() else {
            return Ok(None);
        };
        counts.mapped_reads += 1;
        counts.mapped_bytes += length as u64;
        let bytes = mapping.map().access(offset, length);
        let bytes = bytes.ok_or_else(|| self.damage(operation, offset, "the file ends before"))?;
        Ok(Some(bytes))
    }

    /// The checksum seeds.
    pub(super) const fn seeds(&self) -> Seeds {
        self.seeds
    }

    /// The initial CRC of records.
    #[inline]
    pub(super) fn record_base(&self) -> u32 {
        self.seeds.record_base()
    }

    /// The error for damage at `offset`.
    pub(super) fn damage(&self, operation: &'static str, offset: u64, what: &str) -> Error {
        Error::corruption(operation, self.name(), offset, what)
    }

    /// The error for a head or footer that can't be used.
    pub(super) fn fault(&self, operation: &'static str, offset: u64, fault: FooterFault) -> Error {
        match fault {
            FooterFault::Damaged(what) => self.damage(operation, offset, what),
            FooterFault::Newer(found, what) => newer(operation, self.name(), offset, found, what),
        }
    }
}

impl Slotted for Segment {
    fn slot(&self) -> &FileSlot {
        &self.slot
    }

    fn name(&self) -> FileName {
        self.meta.name()
    }

    fn file_bytes(&self) -> u64 {
        self.meta().file_len
    }
}

/// Page fences as they are stored.
pub(super) fn decode_fences(bytes: &[u8]) -> Vec<u32> {
    let fences = bytes.as_chunks().0.iter();
    fences.map(|fence| u32::from_le_bytes(*fence)).collect()
}

/// The error for a format newer than this build.
pub(super) fn newer(
    operation: &'static str,
    name: FileName,
    offset: u64,
    found: u32,
    what: &str,
) -> Error {
    let kind = ErrorKind::UnsupportedVersion {
        found,
        supported: SEGMENT_VERSION,
    };
    Error::new(kind, operation, what)
        .with_file(name)
        .with_offset(offset)
}
