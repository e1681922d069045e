//! Which runs a state names: folded ones by their parts, and every other segment as a run by itself.
//!
//! A folded run is not listed; it follows from its parts, which are equal in kind, level and range of
//! generations. Its segments are those of its kind in that range.
//!
//! Rules, checked when a state is read and before an edit is written:
//! * a run's parts are numbered from 0 without a gap, and there is a power of two of them;
//! * runs of one kind do not overlap in generations, nor do segments of one kind;
//! * a run has segments, none of which reaches beyond its range, and as many entries as they have records.

use std::cmp::Reverse;

use super::state::ManifestState;
use super::validate::broken;
use crate::error::Result;
use crate::segment::PackedMeta;
use crate::segment::footer::PREFIX_BITS_MAX;
use crate::types::KeyspaceKind;

/// Segments by which the room for a list of them grows.
const MEMBERS_STEP: usize = 256;

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
    let mut runs = Vec::new();
    for_each(state, kind, |parts, segments| {
        let packed = |named: &Member<'_>| named.0.clone();
        match parts.first() {
            None => runs.extend(segments.iter().map(packed).map(NamedRun::Fresh)),
            Some(first) => runs.push(NamedRun::Folded {
                level: first.level(),
                parts: parts.iter().map(packed).collect(),
                segments: segments.iter().map(packed).collect(),
            }),
        }
    })?;
    Ok(runs)
}

/// Checks the rules for both kinds. Made at each edit that touches a run, so it takes little memory: 16 bytes a
/// segment while it lasts.
pub(super) fn check(state: &ManifestState) -> Result<()> {
    let mut kinds = KeyspaceKind::ALL.iter();
    kinds.try_for_each(|kind| for_each(state, *kind, |_, _| ()))
}

/// A file. What is asked of it is unpacked each time: a list of them is a word for each.
#[derive(Clone, Copy)]
struct Member<'a>(&'a PackedMeta);

impl Member<'_> {
    fn generation_lo(&self) -> u64 {
        self.0.generations().0
    }

    fn generation_hi(&self) -> u64 {
        self.0.generations().1
    }

    fn records(&self) -> u64 {
        self.0.records()
    }

    fn level(&self) -> u8 {
        self.0.role().level
    }

    fn part(&self) -> u16 {
        self.0.role().part
    }
}

/// Hands each folded run's parts and segments to `visit`, and the segments between two of them without
/// parts, all newest first.
fn for_each<'a>(
    state: &'a ManifestState,
    kind: KeyspaceKind,
    mut visit: impl FnMut(&[Member<'a>], &[Member<'a>]),
) -> Result<()> {
    // Every edit makes this list: in steps, so that the memory of the last one serves again.
    let room = state.segments.len().next_multiple_of(MEMBERS_STEP);
    let mut segments = Vec::with_capacity(room);
    let mut parts = Vec::new();
    for packed in &state.segments {
        let role = packed.role();
        if role.kind == kind {
            let list = match role.level {
                0 => &mut segments,
                _ => &mut parts,
            };
            list.push(Member(packed));
        }
    }
    segments.sort_unstable_by_key(|named| Reverse(named.generation_hi()));
    // The parts of one run side by side.
    parts.sort_by_cached_key(|named| (Reverse(named.generation_hi()), named.level(), named.part()));
    check_apart(&segments)?;
    let mut rest = segments.as_slice();
    for parts in parts.chunk_by(same_run) {
        let Some(run) = parts.first() else {
            continue;
        };
        let newer = rest.partition_point(|named| named.generation_lo() > run.generation_hi());
        let (fresh, other) = rest.split_at(newer);
        let inside = other.partition_point(|named| named.generation_hi() >= run.generation_lo());
        let (own, older) = other.split_at(inside);
        check_run(parts, own)?;
        visit(&[], fresh);
        visit(parts, own);
        rest = older;
    }
    visit(&[], rest);
    Ok(())
}

/// Segments, newest first, have no generation in common: a fold of some of them would cut another.
fn check_apart(segments: &[Member<'_>]) -> Result<()> {
    let mut neighbours = segments.iter().zip(segments.iter().skip(1));
    let common = neighbours.find(|(newer, older)| newer.generation_lo() <= older.generation_hi());
    match common {
        None => Ok(()),
        Some((newer, older)) => Err(broken(format!(
            "segments {} and {} hold the same generations",
            older.0.number(),
            newer.0.number()
        ))),
    }
}

fn same_run(a: &Member<'_>, b: &Member<'_>) -> bool {
    let run = |named: &Member<'_>| (named.0.generations(), named.level());
    run(a) == run(b)
}

fn check_run(parts: &[Member<'_>], segments: &[Member<'_>]) -> Result<()> {
    let Some(run) = parts.first() else {
        return Ok(());
    };
    let numbered = |(place, named): (usize, &Member<'_>)| usize::from(named.part()) == place;
    let records = |named: &[Member<'_>]| {
        let each = named.iter().map(Member::records);
        each.fold(0, u64::saturating_add)
    };
    let oldest = run.generation_lo();
    let inside = |named: &Member<'_>| {
        oldest <= named.generation_lo() && named.generation_hi() <= run.generation_hi()
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
    let number = run.0.number();
    Err(broken(format!("the run of part {number} {rule}")))
}
