//! Which runs a state names: folded ones by their parts, and every other segment as a run by itself.
//!
//! A folded run is not listed; it follows from its parts, which are equal in kind, level and range of
//! generations. Its segments are those of its kind in that range.
//!
//! Rules, checked when a state is read and before an edit is written:
//! * a run's parts are numbered from 0 without a gap, and there is a power of two of them;
//! * runs of one kind do not overlap in generations, nor do segments of one kind;
//! * a run has segments, none of which reaches beyond its range, and as many entries as they have records.

use super::state::ManifestState;
use super::validate::broken;
use crate::error::Result;
use crate::segment::footer::PREFIX_BITS_MAX;
use crate::segment::{PackedMeta, SegmentMeta};
use crate::types::KeyspaceKind;

/// A run as the manifest names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NamedRun {
    /// A segment that is a run by itself.
    Fresh(PackedMeta),
    /// Several segments under one index.
    Folded {
        /// Above 0.
        level: u8,
        /// The parts of its index by prefix.
        parts: Vec<PackedMeta>,
        /// Newest first.
        segments: Vec<PackedMeta>,
    },
}

/// The runs of one kind, newest first.
///
/// # Errors
/// `Corruption` of the manifest, with the rule that is broken.
pub fn of(state: &ManifestState, kind: KeyspaceKind) -> Result<Vec<NamedRun>> {
    let of_kind = |packed: &PackedMeta| (packed.unpack(), packed.clone());
    let (mut parts, mut segments): (Vec<_>, Vec<_>) = state
        .segments
        .iter()
        .map(of_kind)
        .filter(|(meta, _)| meta.identity.kind == kind)
        .partition(|(meta, _)| meta.identity.level > 0);
    // Newest first; the parts of one run side by side.
    segments.sort_by_key(|(meta, _)| std::cmp::Reverse(meta.identity.generation_hi));
    parts.sort_by_key(|(meta, _)| {
        let identity = meta.identity;
        let newest = std::cmp::Reverse(identity.generation_hi);
        (newest, identity.level, identity.part)
    });
    check_apart(&segments)?;
    let mut segments = segments.into_iter().peekable();
    let mut runs = Vec::new();
    for parts in parts.chunk_by(|(a, _), (b, _)| same_run(a, b)) {
        let Some((first, _)) = parts.first() else {
            continue;
        };
        while let Some(newer) =
            segments.next_if(|(s, _)| s.identity.generation_lo > first.identity.generation_hi)
        {
            runs.push(NamedRun::Fresh(newer.1));
        }
        let mut own = Vec::new();
        while let Some(inside) =
            segments.next_if(|(s, _)| s.identity.generation_hi >= first.identity.generation_lo)
        {
            own.push(inside);
        }
        check_run(parts, &own)?;
        runs.push(NamedRun::Folded {
            level: first.identity.level,
            parts: parts.iter().map(|(_, packed)| packed.clone()).collect(),
            segments: own.into_iter().map(|(_, packed)| packed).collect(),
        });
    }
    runs.extend(segments.map(|(_, packed)| NamedRun::Fresh(packed)));
    Ok(runs)
}

/// Checks the rules for both kinds.
pub(super) fn check(state: &ManifestState) -> Result<()> {
    KeyspaceKind::ALL
        .iter()
        .try_for_each(|kind| of(state, *kind).map(drop))
}

type Named = (SegmentMeta, PackedMeta);

/// Segments, newest first, have no generation in common: a fold of some of them would cut another.
fn check_apart(segments: &[Named]) -> Result<()> {
    let mut neighbours = segments.iter().zip(segments.iter().skip(1));
    let common = neighbours.find(|((newer, _), (older, _))| {
        newer.identity.generation_lo <= older.identity.generation_hi
    });
    match common {
        None => Ok(()),
        Some(((newer, _), (older, _))) => Err(broken(format!(
            "segments {} and {} hold the same generations",
            older.number, newer.number
        ))),
    }
}

fn same_run(a: &SegmentMeta, b: &SegmentMeta) -> bool {
    let (a, b) = (a.identity, b.identity);
    (a.generation_lo, a.generation_hi, a.level) == (b.generation_lo, b.generation_hi, b.level)
}

fn check_run(parts: &[Named], segments: &[Named]) -> Result<()> {
    let numbered = |(place, (meta, _)): (usize, &Named)| usize::from(meta.identity.part) == place;
    let records = |named: &[Named]| {
        let each = named.iter().map(|(meta, _)| meta.counts.records);
        each.fold(0, u64::saturating_add)
    };
    let range = parts.first().map(|(meta, _)| meta.identity);
    let inside = |(meta, _): &Named| {
        range.is_some_and(|range| {
            range.generation_lo <= meta.identity.generation_lo
                && meta.identity.generation_hi <= range.generation_hi
        })
    };
    let rule = if !parts.iter().enumerate().all(numbered)
        || !parts.len().is_power_of_two()
        || parts.len() > 1 << PREFIX_BITS_MAX
    {
        "lacks a part, or has one twice"
    } else if segments.is_empty() || !segments.iter().all(inside) {
        "begins or ends inside a segment or another run"
    } else if records(parts) != records(segments) {
        "has not an entry for each record"
    } else {
        return Ok(());
    };
    let number = parts.first().map_or(0, |(meta, _)| meta.number);
    Err(broken(format!("the run of part {number} {rule}")))
}
