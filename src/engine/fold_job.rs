//! A fold in progress: which runs become one, how far it has come, and what it has made.
//!
//! The steps themselves are the engine's, in `fold`.

use std::ops::Range;

use crate::engine::version::{Part, Run};
use crate::env::{File, FileName};
use crate::index::{LOCATION_BITS, UNIT_BYTES};
use crate::segment::footer::PREFIX_BITS_MAX;
use crate::segment::{PartWriter, Segment, SegmentSummary};
use crate::sync::Arc;
use crate::types::{HASH_BITS, KeyspaceKind};

/// Runs that are to become one.
#[derive(Debug)]
pub(super) struct Choice {
    /// Runs of the version that the new one replaces, newest first.
    pub(super) replaced: Vec<Run>,
    /// Where its entries come from, newest first: these, or their segments one by one.
    pub(super) inputs: Vec<Run>,
    pub(super) level: u8,
}

/// A fold in progress.
#[derive(Debug)]
pub(crate) struct FoldJob {
    pub(super) choice: Choice,
    pub(super) kind: KeyspaceKind,
    /// Newest first; an entry's ordinal counts them.
    pub(super) segments: Vec<Arc<Segment>>,
    /// The ordinal of each input's newest segment.
    pub(super) bases: Vec<u64>,
    pub(super) prefix_bits: u8,
    pub(super) ordinal_bits: u8,
    /// Inputs whose file was not open before: nobody reads it when the fold has.
    pub(super) opened: Vec<Part>,
    pub(super) phase: Phase,
    pub(super) outputs: Vec<SegmentSummary>,
}

#[derive(Debug)]
pub(super) enum Phase {
    /// Begins the next part, or ends the fold.
    Begin,
    Write {
        writer: Box<PartWriter>,
        number: u64,
        file: Arc<dyn File>,
        /// The hashes that are to be gathered yet.
        hashes: Range<u64>,
        /// Entries that are to come yet.
        entries: u64,
    },
    Sync {
        file: Arc<dyn File>,
        output: Box<SegmentSummary>,
    },
    SyncDirectory,
    Edit,
}

impl FoldJob {
    /// The job for a choice; nothing if its locations do not fit an entry.
    pub(super) fn new(choice: Choice, part_records_max: u64, hash_bits: u8) -> Option<Self> {
        let kind = choice.inputs.first()?.kind();
        let mut segments = Vec::new();
        let mut bases = Vec::new();
        for input in &choice.inputs {
            bases.push(segments.len() as u64);
            segments.extend_from_slice(input.segments());
        }
        let metas = segments.iter().map(|segment| segment.meta());
        let (entries, units) = metas.fold((0, 0), |(entries, units), meta| {
            let end = meta.tail_offset / UNIT_BYTES;
            (entries + meta.counts.records, end.max(units))
        });
        let ordinal_bits = bits_of(segments.len() as u64 - 1);
        if ordinal_bits + bits_of(units) > LOCATION_BITS {
            return None;
        }
        let inputs = choice.inputs.iter().flat_map(Run::parts);
        let opened = inputs.filter(|part| !part.is_open()).cloned().collect();
        let parts = entries.div_ceil(part_records_max).next_power_of_two();
        let prefix_bits = parts.ilog2() as u8;
        Some(Self {
            kind,
            bases,
            prefix_bits: prefix_bits.min(PREFIX_BITS_MAX).min(hash_bits),
            ordinal_bits: ordinal_bits as u8,
            opened,
            phase: Phase::Begin,
            outputs: Vec::with_capacity(1 << prefix_bits),
            segments,
            choice,
        })
    }

    /// The files that it has open.
    pub fn descriptors(&self, names: &mut Vec<FileName>) {
        match &self.phase {
            Phase::Write { number, .. } => names.push(FileName::run(*number)),
            Phase::Sync { output, .. } => names.push(output.meta.name()),
            Phase::Begin | Phase::SyncDirectory | Phase::Edit => {}
        }
    }

    /// The files that it has made.
    pub fn files(&self, names: &mut Vec<FileName>) {
        self.descriptors(names);
        names.extend(self.outputs.iter().map(|output| output.meta.name()));
    }

    /// Its run's generations.
    pub(super) fn generations(&self) -> (u64, u64) {
        let oldest = self
            .choice
            .inputs
            .last()
            .map_or(0, |run| run.generations().0);
        let newest = self
            .choice
            .inputs
            .first()
            .map_or(0, |run| run.generations().1);
        (oldest, newest)
    }

    /// All hashes of the part with this number.
    pub(super) fn hashes_of(&self, part: u64) -> Range<u64> {
        let shift = HASH_BITS - u32::from(self.prefix_bits);
        part << shift..(part + 1) << shift
    }
}

/// The parts of a run that have hashes of a range, and all hashes of each. A run may be split into more
/// parts than the one that is made of it, or into fewer: the limit is an option.
pub(super) fn overlaps<'a>(
    run: &'a Run,
    hashes: &Range<u64>,
) -> impl Iterator<Item = (&'a Part, Range<u64>)> {
    let shift = HASH_BITS - run.parts().len().ilog2();
    let range = (hashes.start >> shift)..=(hashes.end.saturating_sub(1) >> shift);
    let numbered = (0_u64..).zip(run.parts());
    numbered
        .filter(move |(number, _)| range.contains(number))
        .map(move |(number, part)| (part, number << shift..(number + 1) << shift))
}

/// Bits that a number takes.
const fn bits_of(number: u64) -> u32 {
    u64::BITS - number.leading_zeros()
}
