//! Checks everything in a segment file and lists the damage, in bounded memory.
//!
//! * head and footer, the footer against the manifest; zeros where padding must be;
//! * every record: checksum, order, kind, padding; the totals and the chained checksum of the footer;
//! * every key fence against the records: the fences are derived again and compared;
//! * every index page, the order of all entries, every page fence;
//! * entries against records both ways: what the records say the entries must be is summed up (two
//!   64-bit hashes, added, so order does not matter) and compared with the sum over the pages;
//! * every filter block: the filters are derived again from the entries.
//!
//! The parts of a folded run's index are checked in the same way, against the own indexes of its segments.
//!
//! After a damaged record the next key fence says where to go on. Entries that point into what was
//! skipped are left out of the comparison. Damage is listed, not returned as an error: errors are those
//! of reading, a missing file, and a newer format.

use std::cmp::Ordering;

use super::ReadCounts;
use super::fences::{Fence, Separator, decode_piece};
use super::files::FileTable;
use super::footer::{Footer, HEAD_BYTES, SegmentCounts, decode_head};
use super::gather::PageKeeper;
use super::identity::{Chain, checksum};
use super::layout::Span;
use super::reader::Segment;
use super::record::RecordLayout;
use super::window::{RecordWindow, Source};
use crate::error::{Error, ErrorKind, Result};
use crate::index::{Entry, LOCATION_BITS, LocationSplit, UNIT_BYTES, size_class_of};
use crate::sync::Arc;
use crate::types::{HASH_BITS, KeyspaceId, RecordKind, Sequence};

pub(super) const OPERATION: &str = "verify";

/// Most damages listed for a file; the rest is counted.
pub const DAMAGE_MAX: usize = 1000;

/// Bytes read at once.
pub(super) const BUFFER_BYTES: usize = 64 * 1024;

/// One damage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The part of the file.
    pub section: &'static str,
    /// Where, in bytes from the file's start.
    pub offset: u64,
    /// What is wrong.
    pub what: String,
}

/// What a verification found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VerifyReport {
    /// Records that are whole.
    pub records: u64,
    /// Bytes read.
    pub bytes: u64,
    /// The damage, at most [`DAMAGE_MAX`].
    pub damage: Vec<Damage>,
    /// Damages beyond that.
    pub unlisted: u64,
}

impl VerifyReport {
    /// Whether nothing is wrong.
    pub fn is_clean(&self) -> bool {
        self.damage.is_empty()
    }

    pub(super) fn add(&mut self, section: &'static str, offset: u64, what: impl Into<String>) {
        if self.damage.len() == DAMAGE_MAX {
            self.unlisted += 1;
            return;
        }
        self.damage.push(Damage {
            section,
            offset,
            what: what.into(),
        });
    }

    /// Lists a `Corruption`; gives any other error back.
    pub(super) fn absorb(&mut self, section: &'static str, error: Error) -> Result<()> {
        match error.kind() {
            ErrorKind::Corruption => {
                let what = match error.detail() {
                    "" => error.to_string(),
                    detail => detail.to_string(),
                };
                self.add(section, error.offset().unwrap_or(0), what);
                Ok(())
            }
            _ => Err(error),
        }
    }

    fn has(&self, section: &'static str) -> bool {
        self.unlisted > 0 || self.damage.iter().any(|damage| damage.section == section)
    }
}

/// Sums up entries so that two sets can be compared in any order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct EntrySum {
    count: u64,
    sums: [u64; 2],
}

impl EntrySum {
    pub(super) fn add(&mut self, entry: Entry) {
        let packed = entry.pack();
        self.count += 1;
        for (seed, sum) in self.sums.iter_mut().enumerate() {
            *sum = sum.wrapping_add(checksum(seed as u64, &packed));
        }
    }
}

/// What the records pass leaves for the index pass.
#[derive(Debug, Default)]
pub(super) struct Derived {
    pub(super) entries: EntrySum,
    /// Stretches of the records section that could not be read as records, ascending.
    skipped: Vec<Span>,
    /// Damage elsewhere hides which entries there must be.
    pub(super) unknown: bool,
}

impl Derived {
    /// Whether the record at `offset` was passed over.
    pub(super) fn is_skipped(&self, offset: u64) -> bool {
        let after = self.skipped.partition_point(|span| span.offset <= offset);
        let before = after
            .checked_sub(1)
            .and_then(|index| self.skipped.get(index));
        before.is_some_and(|span| offset < span.end())
    }
}

/// A verification under way.
pub(super) struct Verifier<'a> {
    pub(super) segment: &'a Arc<Segment>,
    pub(super) files: &'a FileTable,
    pub(super) footer: Footer,
    pub(super) report: VerifyReport,
    pub(super) counts: ReadCounts,
    progress: &'a mut dyn FnMut(u64),
}

impl Segment {
    /// Checks the whole file as it is on disk, whatever is in memory. `progress` is called now and
    /// then with the bytes read so far. Reads everything once, the index once more for each filter.
    pub fn verify(
        self: &Arc<Self>,
        files: &FileTable,
        progress: &mut dyn FnMut(u64),
    ) -> Result<VerifyReport> {
        self.verify_with(files, progress, |verifier| verifier.records())
    }

    /// The same for a part of a folded run's index: its entries must be those that the own indexes of the
    /// run's segments, newest first, have in its range of hashes. Reads those, too.
    pub fn verify_part(
        self: &Arc<Self>,
        files: &FileTable,
        segments: &[Arc<Segment>],
        progress: &mut dyn FnMut(u64),
    ) -> Result<VerifyReport> {
        self.verify_with(files, progress, |verifier| verifier.entries_of(segments))
    }

    fn verify_with(
        self: &Arc<Self>,
        files: &FileTable,
        progress: &mut dyn FnMut(u64),
        derive: impl FnOnce(&mut Verifier<'_>) -> Result<Derived>,
    ) -> Result<VerifyReport> {
        let mut counts = ReadCounts::default();
        let mut report = VerifyReport::default();
        let file = self.file(files, &mut counts)?;
        let (footer, fences) = match self.read_footer(&file, OPERATION, &mut counts) {
            Ok(tail) => tail,
            Err(error) => {
                report.absorb("footer", error)?;
                report.bytes = counts.bytes;
                return Ok(report);
            }
        };
        drop(file);
        let fences_intact = self.fences_intact(&footer, &fences);
        let mut verifier = Verifier {
            segment: self,
            files,
            footer,
            report,
            counts,
            progress,
        };
        if !fences_intact {
            verifier
                .report
                .add("page fences", self.meta().tail_offset, "checksum");
        }
        verifier.head()?;
        let derived = derive(&mut verifier)?;
        verifier.padding()?;
        verifier.index(&derived, fences_intact.then_some(&fences))?;
        verifier.report.bytes = verifier.counts.bytes;
        Ok(verifier.report)
    }
}

impl Verifier<'_> {
    pub(super) fn read(&mut self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let file = self.segment.file(self.files, &mut self.counts)?;
        self.segment
            .read(&file, OPERATION, offset, buffer, &mut self.counts)?;
        (self.progress)(self.counts.bytes);
        Ok(())
    }

    fn head(&mut self) -> Result<()> {
        let mut head = [0; HEAD_BYTES];
        self.read(0, &mut head)?;
        match decode_head(&head) {
            Ok(identity) if identity == self.segment.meta().identity => Ok(()),
            Ok(_) => {
                self.report.add("head", 0, "identity");
                Ok(())
            }
            Err(fault) => self
                .report
                .absorb("head", self.segment.fault(OPERATION, 0, fault)),
        }
    }

    /// Zeros between the key fences and the first page.
    fn padding(&mut self) -> Result<()> {
        let layout = &self.footer.layout;
        let from = layout.key_fences.span.end();
        let mut bytes = vec![0; (layout.pages.span.offset - from) as usize];
        self.read(from, &mut bytes)?;
        if let Some(at) = bytes.iter().position(|byte| *byte != 0) {
            self.report.add("padding", from + at as u64, "not zero");
        }
        Ok(())
    }

    fn records(&mut self) -> Result<Derived> {
        let mut pass = RecordsPass::new();
        let records = self.footer.layout.records.span;
        let mut fences = FenceStream::default();
        let mut at = records.offset;
        while at < records.end() {
            let source = Source {
                segment: self.segment,
                files: self.files,
                records,
                operation: OPERATION,
            };
            let read = pass
                .window
                .record(&source, at, BUFFER_BYTES, &mut self.counts);
            match read {
                Ok(record) => {
                    self.fence_of(&mut fences, &mut pass, at, &record)?;
                    let faults = pass.take(at, &record, self.segment);
                    faults
                        .into_iter()
                        .for_each(|what| self.report.add("records", at, what));
                    at += record.padded_bytes;
                }
                Err(error) => {
                    self.report.absorb("records", error)?;
                    let next = self.resume_after(&mut fences, at)?;
                    pass.skip(at, next);
                    at = next;
                }
            }
            (self.progress)(self.counts.bytes);
        }
        self.report.records = pass.counts.records;
        self.end_of_records(&mut fences, &pass)?;
        Ok(pass.derived)
    }

    /// What the entries of a part must be, by the own indexes of the run's segments.
    fn entries_of(&mut self, segments: &[Arc<Segment>]) -> Result<Derived> {
        let identity = self.footer.identity;
        let shift = HASH_BITS - u32::from(self.footer.prefix_bits);
        let part = u64::from(identity.part);
        let hashes = part << shift..(part + 1) << shift;
        let ordinal_bits = self.footer.ordinal_bits;
        let offset_bits = LocationSplit { ordinal_bits }.offset_bits();
        let mut derived = Derived::default();
        for (ordinal, segment) in (0..).zip(segments) {
            let mut keeper = PageKeeper::default();
            let sum = &mut derived.entries;
            let found = segment.gather(
                self.files,
                &hashes,
                &mut keeper,
                &mut self.counts,
                |entry| {
                    let location = ordinal << offset_bits | entry.location();
                    // A location that does not fit is in no part: the sums will differ.
                    if location >> LOCATION_BITS == 0 {
                        let (class, tombstone) = (entry.size_class(), entry.tombstone());
                        sum.add(Entry::new(entry.hash(), location, class, tombstone));
                    }
                    true
                },
            );
            match found {
                Ok(_) => {}
                // Listed for that segment.
                Err(error)
                    if matches!(error.kind(), ErrorKind::Corruption | ErrorKind::MissingFile) =>
                {
                    derived.unknown = true;
                }
                Err(error) => return Err(error),
            }
            (self.progress)(self.counts.bytes);
        }
        Ok(derived)
    }

    /// Compares a record with the fence that it should or should not have.
    fn fence_of(
        &mut self,
        fences: &mut FenceStream,
        pass: &mut RecordsPass,
        at: u64,
        record: &RecordLayout,
    ) -> Result<()> {
        let key = pass
            .window
            .from(at)
            .get(record.key.clone())
            .unwrap_or_default();
        let bytes = u64::from(self.footer.key_fence_bytes);
        let expected = match (&pass.last, pass.resumed) {
            (None, false) => Some(Separator::FIRST),
            // The record before was not readable: any separator may be right.
            (_, true) => None,
            (Some(_), _) if at - pass.block_start < bytes => {
                return Ok(());
            }
            (Some((keyspace, _)), _) => Some(Separator::between(
                (*keyspace, &pass.last_key),
                (record.keyspace, key),
            )),
        };
        pass.block_start = at;
        self.advance(fences)?;
        if fences.blind {
            return Ok(());
        }
        let right = match (fences.next(), expected) {
            (Some((offset, separator, inexact)), Some(expected)) => {
                offset == at && separator == expected.bytes() && inexact == expected.inexact
            }
            (Some((offset, ..)), None) => offset == at,
            (None, _) => false,
        };
        if !right {
            fences.blind = true;
            let what = format!("the block at {at} has another key fence than its records give");
            self.report.add(
                "key fences",
                self.footer.layout.key_fences.span.offset,
                what,
            );
        }
        fences.index += 1;
        Ok(())
    }

    /// The start of the next block behind a damaged record; the section's end if none is known.
    fn resume_after(&mut self, fences: &mut FenceStream, at: u64) -> Result<u64> {
        loop {
            self.advance(fences)?;
            let Some((offset, ..)) = fences.next() else {
                return Ok(self.footer.layout.records.span.end());
            };
            if offset > at {
                return Ok(offset);
            }
            fences.index += 1;
        }
    }

    /// Loads the next piece of fences if the last one is used up.
    fn advance(&mut self, fences: &mut FenceStream) -> Result<()> {
        while fences.index == fences.fences.len()
            && fences.pieces < self.footer.layout.places().fence_piece_count()
        {
            let span = self.footer.layout.places().fence_piece(fences.pieces);
            fences.bytes.resize(span.bytes as usize, 0);
            self.read(span.offset, &mut fences.bytes)?;
            fences.index = 0;
            let seeds = self.segment.seeds();
            match decode_piece(&fences.bytes, fences.pieces, seeds, &mut fences.fences) {
                Ok(sum) => fences.chain.push(sum),
                Err(what) => {
                    fences.blind = true;
                    fences.fences.clear();
                    self.report.add("key fences", span.offset, what);
                }
            }
            fences.total += fences.fences.len() as u64;
            fences.pieces += 1;
        }
        Ok(())
    }

    /// Compares the totals with the footer's, where all could be read.
    fn end_of_records(&mut self, fences: &mut FenceStream, pass: &RecordsPass) -> Result<()> {
        let key_fences = self.footer.layout.key_fences;
        self.advance(fences)?;
        let left_over = fences.next().is_some() && !fences.blind;
        while fences.pieces < self.footer.layout.places().fence_piece_count() {
            fences.index = fences.fences.len();
            self.advance(fences)?;
        }
        if !self.report.has("key fences")
            && (left_over
                || fences.chain.0 != key_fences.checksum
                || fences.total != key_fences.items)
        {
            self.report.add(
                "key fences",
                key_fences.span.offset,
                "not those of the records",
            );
        }
        if !self.report.has("records")
            && (pass.counts != self.footer.counts
                || pass.chain.0 != self.footer.layout.records.checksum)
        {
            self.report.add(
                "records",
                HEAD_BYTES as u64,
                "not those that the footer counts",
            );
        }
        Ok(())
    }
}

/// Key fences, one after the other.
#[derive(Default)]
struct FenceStream {
    bytes: Vec<u8>,
    fences: Vec<Fence>,
    index: usize,
    pieces: u64,
    total: u64,
    chain: Chain,
    /// Fences can't be compared any more; those that are left still say where blocks start.
    blind: bool,
}

impl FenceStream {
    fn next(&self) -> Option<(u64, &[u8], bool)> {
        let fence = self.fences.get(self.index)?;
        Some((fence.offset, fence.separator(&self.bytes), fence.inexact))
    }
}

/// The walk over the records.
struct RecordsPass {
    window: RecordWindow,
    derived: Derived,
    counts: SegmentCounts,
    chain: Chain,
    block_start: u64,
    last: Option<(KeyspaceId, Sequence)>,
    last_key: Vec<u8>,
    resumed: bool,
}

impl RecordsPass {
    fn new() -> Self {
        Self {
            window: RecordWindow::new(BUFFER_BYTES),
            derived: Derived::default(),
            counts: SegmentCounts::default(),
            chain: Chain::default(),
            block_start: 0,
            last: None,
            last_key: Vec::new(),
            resumed: false,
        }
    }

    fn skip(&mut self, from: u64, to: u64) {
        match self.derived.skipped.last_mut() {
            Some(last) if last.end() == from => last.bytes = to - last.offset,
            _ => self.derived.skipped.push(Span {
                offset: from,
                bytes: to - from,
            }),
        }
        self.resumed = true;
    }

    /// Takes a record whose checksum is right; says what else is wrong with it.
    fn take(&mut self, at: u64, record: &RecordLayout, segment: &Segment) -> Vec<&'static str> {
        let mut faults = Vec::new();
        let bytes = self.window.from(at);
        let key = bytes.get(record.key.clone()).unwrap_or_default();
        let padding = bytes.get(record.value.end..record.padded_bytes as usize);
        if padding.is_none_or(|padding| padding.iter().any(|byte| *byte != 0)) {
            faults.push("padding is not zero");
        }
        if record.keyspace.kind() != Some(segment.meta().identity.kind) {
            faults.push("a record of another kind of keyspace");
        }
        if let Some((keyspace, sequence)) = self.last {
            let order = (keyspace, self.last_key.as_slice()).cmp(&(record.keyspace, key));
            if order == Ordering::Greater
                || (order == Ordering::Equal && sequence <= record.sequence)
            {
                faults.push("records are out of order");
            }
        }
        let counts = &mut self.counts;
        counts.min_sequence = match counts.records {
            0 => record.sequence,
            _ => counts.min_sequence.min(record.sequence),
        };
        counts.max_sequence = counts.max_sequence.max(record.sequence);
        counts.records += 1;
        counts.tombstones += u64::from(record.kind == RecordKind::Tombstone);
        counts.key_bytes += key.len() as u64;
        counts.value_bytes += record.value.len() as u64;
        self.chain.push(u64::from(record.crc));
        self.derived.entries.add(Entry::new(
            segment.hasher().hash(record.keyspace, key),
            at / UNIT_BYTES,
            size_class_of(record.padded_bytes),
            record.kind == RecordKind::Tombstone,
        ));
        self.last_key.clear();
        self.last_key.extend_from_slice(key);
        self.last = Some((record.keyspace, record.sequence));
        self.resumed = false;
        faults
    }
}
