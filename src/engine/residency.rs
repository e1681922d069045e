//! Which filters are in memory: newest first, under one byte budget.
//!
//! One rule for now: a fresh segment's filter is kept from its build if it fits after the oldest ones
//! were freed; after an open, jobs load the newest segments' filters until the budget is reached. A
//! lookup never loads one. Answers do not depend on what is resident.
//!
//! Invariant: the bytes of all resident filters are at most the budget at every step; room is made
//! before anything is set.

use std::collections::BTreeSet;
use std::iter::Peekable;

use crate::engine::Engine;
use crate::engine::version::{Run, Version};
use crate::error::{ErrorKind, Result};
use crate::filter::{FilterShape, ResidentFilter};
use crate::segment::{FilterLoad, ReadCounts, Segment};
use crate::sync::Arc;

/// The stored alternative that is kept in memory, in bits a key.
pub(crate) const FILTER_BITS_RESIDENT: u16 = 12;

/// What a filter of that many records takes in memory.
fn filter_bytes(records: u64) -> u64 {
    FilterShape::for_keys(records, FILTER_BITS_RESIDENT, 0).resident_bytes()
}

/// The order of residency: generation, then kind; the largest is the newest.
type Age = (u64, u8, u64);

fn age(segment: &Segment) -> Age {
    let identity = segment.meta().identity;
    (
        identity.generation_hi,
        identity.kind.code(),
        segment.meta().number,
    )
}

/// The resident filters. Guarded by the engine's residency lock; which segments have one is said by
/// the segments themselves.
#[derive(Debug, Default)]
pub(crate) struct Residency {
    budget_bytes: u64,
    used_bytes: u64,
    resident: usize,
    /// Segments whose stored filter is damaged or larger than the budget: not tried again.
    given_up: BTreeSet<Age>,
    /// How things stood when nothing was wanted: the question comes with every step of every job.
    content: Option<Standing>,
}

/// What the answer to "which filter next" depends on, as numbers that change with it.
type Standing = (usize, usize, usize, u64);

impl Residency {
    pub fn new(budget_bytes: u64) -> Self {
        Self {
            budget_bytes,
            ..Self::default()
        }
    }

    pub const fn used_bytes(&self) -> u64 {
        self.used_bytes
    }

    pub const fn budget_bytes(&self) -> u64 {
        self.budget_bytes
    }

    pub fn resident_count(&self) -> usize {
        self.resident
    }

    /// Sets the filter of a segment of `version`, freeing older ones for it; false if it has no place.
    /// Returns how many were freed beside.
    pub fn admit(
        &mut self,
        version: &Version,
        segment: &Segment,
        filter: Arc<ResidentFilter>,
    ) -> (bool, u64) {
        let bytes = filter.bytes() as u64;
        let missing = (self.used_bytes + bytes).saturating_sub(self.budget_bytes);
        let (victims, room) = older_filters(version, &age(segment), missing);
        if room < missing {
            if bytes > self.budget_bytes {
                self.give_up(segment);
            }
            return (false, 0);
        }
        for victim in &victims {
            victim.set_filter(None);
        }
        self.resident = self.resident + 1 - victims.len();
        self.used_bytes = self.used_bytes + bytes - room;
        segment.set_filter(Some(filter));
        (true, victims.len() as u64)
    }

    /// Frees the filter of a part that is left by a fold, and forgets it.
    pub fn free(&mut self, part: &Segment) {
        self.given_up.remove(&age(part));
        if let Some(filter) = part.set_filter(None) {
            self.used_bytes -= filter.bytes() as u64;
            self.resident -= 1;
        }
    }

    fn give_up(&mut self, segment: &Segment) {
        self.given_up.insert(age(segment));
    }

    /// The newest segment without a filter that could still have one, if the newest-first rule lets it
    /// load: the first gap ends the search when the budget does.
    pub fn wanted(&mut self, version: &Version) -> Option<Arc<Segment>> {
        let runs = version.runs.iter().map(Vec::len).sum();
        let standing = (runs, self.resident, self.given_up.len(), self.used_bytes);
        if self.used_bytes >= self.budget_bytes || self.content == Some(standing) {
            return None;
        }
        let wanted = self.newest_missing(version);
        self.content = wanted.is_none().then_some(standing);
        wanted
    }

    fn newest_missing(&self, version: &Version) -> Option<Arc<Segment>> {
        let missing = |segment: &Arc<Segment>| {
            !segment.has_filter() && !self.given_up.contains(&age(segment))
        };
        let newest = |runs: &Vec<Run>| {
            let mut segments = runs.iter().flat_map(Run::parts);
            segments.find(|segment| missing(segment)).cloned()
        };
        let segments = version.runs.iter().filter_map(newest);
        let segment = segments.max_by_key(|segment| age(segment))?;
        let bytes = filter_bytes(segment.meta().counts.records);
        (self.used_bytes + bytes <= self.budget_bytes).then_some(segment)
    }
}

/// The oldest segments with a filter, all older than `own`, whose filters have at least `bytes`; and how
/// many these are. All there are if that is too few.
fn older_filters(version: &Version, own: &Age, bytes: u64) -> (Vec<Arc<Segment>>, u64) {
    let (mut victims, mut room) = (Vec::new(), 0);
    let mut kinds = version
        .runs
        .each_ref()
        .map(|runs| oldest_filters_first(runs));
    while room < bytes {
        let heads = kinds.iter_mut().filter_map(|segments| {
            let age = age(segments.peek()?);
            Some((age, segments))
        });
        let Some((oldest, segments)) = heads.min_by_key(|(age, _)| *age) else {
            break;
        };
        if oldest >= *own {
            break;
        }
        let Some(victim) = segments.next() else {
            break;
        };
        room += victim.filter().map_or(0, |filter| filter.bytes() as u64);
        victims.push(victim.clone());
    }
    (victims, room)
}

fn oldest_filters_first(runs: &[Run]) -> Peekable<impl Iterator<Item = &Arc<Segment>>> {
    let segments = runs.iter().rev().flat_map(|run| run.parts().iter().rev());
    segments.filter(|segment| segment.has_filter()).peekable()
}

impl Engine {
    /// Whether a filter load is runnable.
    pub fn filter_wanted(&self) -> Option<Arc<Segment>> {
        let version = self.version.load();
        self.residency.lock().wanted(&version)
    }

    /// Loads the newest missing filter. A damaged one counts as absent and is not tried again.
    pub fn load_filter(&self, segment: &Arc<Segment>) -> Result<()> {
        let mut counts = ReadCounts::default();
        let loaded = segment.load_filter(&self.files, FILTER_BITS_RESIDENT, &mut counts);
        self.counters.filter_reads.add(counts.reads);
        let filter = match loaded {
            Ok(FilterLoad::Loaded(filter)) => filter,
            Ok(FilterLoad::Absent(_)) => {
                self.residency.lock().give_up(segment);
                return Ok(());
            }
            Err(error) => {
                if matches!(error.kind(), ErrorKind::Corruption | ErrorKind::MissingFile) {
                    self.residency.lock().give_up(segment);
                }
                return Err(error);
            }
        };
        let version = self.version.load();
        let mut residency = self.residency.lock();
        let (admitted, freed) = residency.admit(&version, segment, Arc::new(filter));
        if !admitted {
            residency.give_up(segment);
        }
        self.counters.filter_loads.add(u64::from(admitted));
        self.counters.filter_frees.add(freed);
        Ok(())
    }
}
