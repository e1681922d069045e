//! The filters of the newest runs side by side, as lookups test them.
//!
//! Each part of a run has its filter behind a pointer of its own, which may change at any time. Pinning one
//! after the other takes locked instructions, across which the processor overlaps nothing, so that a miss
//! waits for one cache line after the other. A *filter set* is an immutable copy of those pointers: one pin a
//! lookup, then all lines are asked for at once, and then tested. Measured with 1,000 segments in
//! `docs/performance.md`.
//!
//! Invariants:
//! * A set is made and published under the residency lock, in the same hold in which a filter came or went or
//!   after the runs changed. So a filter that was freed is in no set but those that lookups still hold, and
//!   they let go of it before they read anything.
//! * A set names the runs that it was made of by the stamp of their version. A lookup in another version (a
//!   snapshot's, or in the moment between a change of the runs and the next set) asks each part by itself.
//! * It has the newest [`RUNS_MAX`] runs of a kind; older ones, which only a store without folds has, are asked
//!   by themselves. So what it takes does not grow with the number of segments.
//! * What it answers is what the parts' own filters answer: which of them are asked changes no result.

use crate::engine::Engine;
use crate::engine::counters::OwnStripe;
use crate::engine::residency::Residency;
use crate::engine::version::{Run, Version, rounded};
use crate::filter::simd::{self, BlockTests};
use crate::filter::{ResidentFilter, block::remix};
use crate::segment::Filtered;
use crate::sync::{Arc, Guard};
use crate::types::{HASH_BITS, KeyHash, KeyspaceKind};
use crate::window::Probe;

/// Runs of a kind in a set: a bit each in the answers. Folds keep 10,000 segments in about 20.
pub(crate) const RUNS_MAX: usize = u64::BITS as usize;

/// The filters of both kinds.
#[derive(Debug)]
pub(crate) struct FilterSet {
    runs_stamp: u64,
    lanes: [Lane; 2],
}

impl Default for FilterSet {
    fn default() -> Self {
        Self {
            // No version has that one.
            runs_stamp: u64::MAX,
            lanes: Default::default(),
        }
    }
}

/// The filters of the newest runs of a kind, newest first.
#[derive(Debug, Default)]
pub(crate) struct Lane {
    runs: Vec<Slots>,
    /// Part after part; none where it is not resident.
    filters: Vec<Option<Arc<ResidentFilter>>>,
}

/// Where the filters of a run are, and which generations it has.
#[derive(Clone, Copy, Debug)]
struct Slots {
    first: u32,
    prefix_bits: u32,
    generations: (u64, u64),
}

impl FilterSet {
    /// The set of a version as its parts are now.
    pub fn of(version: &Version) -> Self {
        Self {
            runs_stamp: version.runs_stamp,
            lanes: version.runs.each_ref().map(|runs| Lane::of(runs)),
        }
    }

    /// Whether it is of the runs of this version.
    #[inline]
    pub fn is_of(&self, version: &Version) -> bool {
        self.runs_stamp == version.runs_stamp
    }

    /// The filters of a kind.
    #[inline]
    pub fn lane(&self, kind: KeyspaceKind) -> &Lane {
        &self.lanes[usize::from(kind.code())]
    }

    /// All filters in it.
    pub fn filters(&self) -> impl Iterator<Item = &Arc<ResidentFilter>> {
        self.lanes
            .iter()
            .flat_map(|lane| lane.filters.iter().flatten())
    }
}

impl Lane {
    fn of(runs: &[Run]) -> Self {
        let runs = runs.get(..RUNS_MAX).unwrap_or(runs);
        let parts = runs.iter().map(|run| run.parts().len()).sum();
        let mut lane = Self {
            runs: Vec::with_capacity(rounded(runs.len())),
            filters: Vec::with_capacity(rounded(parts)),
        };
        for run in runs {
            lane.runs.push(Slots {
                first: lane.filters.len() as u32,
                prefix_bits: run.parts().len().ilog2(),
                generations: run.generations(),
            });
            lane.filters
                .extend(run.parts().iter().map(|part| part.filter()));
        }
        lane
    }

    /// The generation of the newest record in a run.
    pub fn newest_generation(&self) -> Option<u64> {
        self.runs.first().map(|slots| slots.generations.1)
    }

    /// How many runs have no generation below `lo`: the newest of them. Nothing if some run may be behind
    /// those that the set has.
    #[inline]
    pub fn covered(&self, lo: u64) -> Option<usize> {
        let covered = self
            .runs
            .iter()
            .take_while(|slots| slots.generations.0 >= lo);
        let covered = covered.count();
        (covered < RUNS_MAX).then_some(covered)
    }

    /// The newest run that reaches down to a generation.
    #[inline]
    pub fn run_of(&self, generation: u64) -> usize {
        let newer = self
            .runs
            .iter()
            .take_while(|slots| slots.generations.0 > generation);
        newer.count()
    }

    #[inline]
    fn filter(&self, slots: &Slots, hash: KeyHash) -> Option<&ResidentFilter> {
        let part = hash.0 >> (HASH_BITS - slots.prefix_bits);
        self.filters
            .get(slots.first as usize + part as usize)?
            .as_deref()
    }

    /// Asks for the lines of a hash in the filters of the runs from `from` on. Costs no wait.
    #[inline]
    pub fn prefetch(&self, from: usize, hash: KeyHash) {
        for slots in self.runs.get(from..).unwrap_or(&[]) {
            if let Some(filter) = self.filter(slots, hash) {
                filter.prefetch(hash);
            }
        }
    }

    /// Tests the filters of the runs from `from` on.
    #[inline]
    pub fn test(&self, from: usize, hash: KeyHash) -> Answers {
        simd::run(LaneTest(self, from, hash))
    }
}

/// The test of a hash in the filters of a lane from a run on.
struct LaneTest<'a>(&'a Lane, usize, KeyHash);

impl BlockTests for LaneTest<'_> {
    type Answers = Answers;

    #[inline(always)]
    fn run(self) -> Answers {
        let Self(lane, from, hash) = self;
        let remixed = remix(hash);
        let mut answers = Answers {
            known: lane.runs.len().min(RUNS_MAX),
            ..Answers::default()
        };
        // Without a branch on what a test says: the processor goes on to the next line meanwhile.
        for (place, slots) in lane.runs.iter().enumerate().skip(from) {
            if let Some(filter) = lane.filter(slots, hash) {
                answers.resident |= 1 << place;
                answers.maybe |= u64::from(filter.may_contain_remixed(hash, remixed)) << place;
            }
        }
        answers
    }
}

/// What the filters of a lane said, a bit for each run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Answers {
    known: usize,
    resident: u64,
    maybe: u64,
}

impl Answers {
    /// Whether the filters of all `runs` from `from` on said no.
    #[inline]
    pub const fn are_all_no(&self, from: usize, runs: usize) -> bool {
        let tested = runs.saturating_sub(from) as u32;
        runs <= self.known && self.maybe == 0 && self.resident.count_ones() == tested
    }

    /// What the filter of a run said; nothing if the set has no such run.
    #[inline]
    pub fn of(&self, run: usize) -> Option<Filtered> {
        if run >= self.known {
            return None;
        }
        Some(match (self.resident >> run & 1, self.maybe >> run & 1) {
            (0, _) => Filtered::NotResident,
            (_, 0) => Filtered::No,
            _ => Filtered::Maybe,
        })
    }
}

/// Runs of a kind, newest first, and their filters side by side.
pub(crate) struct Filters<'a> {
    pub runs: &'a [Run],
    /// Those of a whole version; a generation's own runs have no set.
    version: Option<(&'a Version, KeyspaceKind)>,
    /// The set, if it is of this version; never held during a read.
    pub pinned: Option<Guard<Arc<FilterSet>>>,
    /// A lower end of the window table's range and how many runs the set says it covers, if that was asked.
    known_cover: Option<(u64, usize)>,
}

impl<'a> Filters<'a> {
    /// Runs whose filters are asked one by one.
    pub fn by_themselves(runs: &'a [Run]) -> Self {
        Self {
            runs,
            version: None,
            pinned: None,
            known_cover: None,
        }
    }

    #[inline]
    fn lane(&self) -> Option<&Lane> {
        let (_, kind) = self.version?;
        self.pinned.as_ref().map(|set| set.lane(kind))
    }

    /// How many of the runs the window table covers as a whole: the newest of them. Nothing if there are
    /// newer ones than it knew when it was asked.
    #[inline]
    pub fn covered(&self, probe: &Probe<'_>) -> Option<usize> {
        // The set has the bounds side by side.
        let known = self.known_cover.filter(|(lo, _)| *lo == probe.lo);
        if let Some(lane) = self.lane()
            && let Some(covered) = match known {
                Some((_, covered)) => Some(covered),
                None => lane.covered(probe.lo),
            }
        {
            return (lane.newest_generation()? < probe.hi).then_some(covered);
        }
        let newest = self.runs.first()?.generations().1;
        let older = |run: &Run| run.generations().0 >= probe.lo;
        (newest < probe.hi).then(|| self.runs.partition_point(older))
    }

    /// Where the run is that has the newest candidate's generation, as far as the set knows.
    #[inline]
    pub fn run_of(&self, probe: &Probe<'_>) -> usize {
        let newest = probe.candidates().next();
        let lane = self.lane().zip(newest);
        lane.map_or(0, |(lane, (generation, _))| lane.run_of(generation))
    }

    /// Asks for the lines of a hash in the filters of the runs from `from` on.
    #[inline]
    pub fn prefetch(&self, from: usize, hash: KeyHash) {
        if let Some(lane) = self.lane() {
            lane.prefetch(from, hash);
        }
    }

    #[inline]
    pub fn test(&self, from: usize, hash: KeyHash) -> Answers {
        self.lane()
            .map_or_else(Answers::default, |lane| lane.test(from, hash))
    }
}

impl Engine {
    /// The runs of a kind in a version, their filters pinned.
    #[inline]
    pub fn filters_of<'a>(&self, version: &'a Version, kind: KeyspaceKind) -> Filters<'a> {
        let set = self.filter_set.load();
        Filters {
            runs: &version.runs[usize::from(kind.code())],
            version: Some((version, kind)),
            pinned: set.is_of(version).then_some(set),
            known_cover: None,
        }
    }

    /// The same after reads.
    pub fn pinned_again<'a>(&self, filters: Filters<'a>) -> Filters<'a> {
        match filters.version {
            Some((version, kind)) => self.filters_of(version, kind),
            None => filters,
        }
    }

    /// Asks for the cache lines of the filters that a lookup will test unless memory answers it: those that
    /// the window table does not spare, and none if it is thought to be enough.
    #[inline]
    pub fn prefetch_filters(&self, filters: &mut Filters<'_>, hash: KeyHash, own: OwnStripe<'_>) {
        let lo = self
            .window
            .as_ref()
            .and_then(|window| window.covered_from());
        if lo.is_some() && own.expects_window_hit() {
            return;
        }
        if let Some(lane) = filters.lane() {
            let cover = lo.and_then(|lo| Some((lo, lane.covered(lo)?)));
            lane.prefetch(cover.map_or(0, |(_, covered)| covered), hash);
            filters.known_cover = cover;
        }
    }

    /// Publishes the filters of the current version as they are now. With the residency lock held.
    pub fn publish_filters(&self, _residency: &Residency) {
        let set = FilterSet::of(&self.version.load());
        self.filter_set.store(Arc::new(set));
    }
}
