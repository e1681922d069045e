//! Versions: what a reader sees, as immutable lists of shared handles.
//!
//! A version names the generations in memory (newest first) and, per kind, the runs of sealed segments
//! (newest first). It is copied at every change (O(runs)) and swapped in atomically; a reader that
//! holds one goes on reading exactly what it names.
//!
//! Invariants: every published commit is in exactly one generation or in the runs that came from it;
//! a generation leaves the list in the same swap in which its runs enter. A generation's handle leads
//! to its memtable or, once that has retired, to its runs: a version made before the flush stays right.

use std::slice;

use crate::manifest::NamedRun;
use crate::memtable::Memtable;
use crate::segment::{PackedMeta, Segment};
use crate::sync::{Arc, ArcSwapOption, AtomicU64, Guard, OnceLock, Ordering};
use crate::types::{HASH_BITS, Hasher, KeyHash, KeyspaceKind, Sequence};

/// One part of a run: the index over the entries whose hash starts with the part's prefix.
pub(crate) type Part = Arc<Segment>;

/// An immutable list of segments with one index in parts. Cheap to clone.
///
/// A store may have as many runs of level 0 as segments, so such a run is no more than the segment.
#[derive(Clone, Debug)]
pub(crate) enum Run {
    /// A fresh segment: one part, the index of its only segment.
    Fresh {
        /// Beside the segment, which has it packed: every lookup asks.
        kind: KeyspaceKind,
        segment: Arc<Segment>,
    },
    /// Several, folded.
    Folded(Arc<Folded>),
}

/// A run of a higher level.
#[derive(Debug)]
pub(crate) struct Folded {
    pub level: u8,
    pub kind: KeyspaceKind,
    /// By prefix: a power of two of them.
    pub parts: Vec<Part>,
    /// Newest first.
    pub segments: Vec<Arc<Segment>>,
    /// The oldest in it and the newest, beside the segments, which have theirs packed: every lookup asks.
    generations: (u64, u64),
    /// Whether every generation between has one segment, so that its place follows from its number.
    is_dense: bool,
}

impl Folded {
    /// A run of these parts and segments.
    pub fn new(
        level: u8,
        kind: KeyspaceKind,
        parts: Vec<Part>,
        segments: Vec<Arc<Segment>>,
    ) -> Self {
        let newest = segments.first().map_or(0, |it| it.generations().1);
        let oldest = segments.last().map_or(0, |it| it.generations().0);
        let mut each = (oldest..=newest).rev();
        let alone = |segment: &Arc<Segment>| {
            let generation = each.next();
            generation.is_some_and(|it| segment.generations() == (it, it))
        };
        let is_dense = segments.iter().all(alone) && each.next().is_none();
        Self {
            level,
            kind,
            parts,
            segments,
            generations: (oldest, newest),
            is_dense,
        }
    }
}

impl Run {
    /// The run that a fresh segment is by itself.
    pub fn of_segment(segment: Arc<Segment>) -> Self {
        let kind = segment.meta().identity.kind;
        Self::Fresh { kind, segment }
    }

    /// A run that the manifest names; nothing of its files was read.
    pub fn of_named(named: &NamedRun, kind: KeyspaceKind, hasher: &Arc<Hasher>) -> Self {
        let open = |meta: &PackedMeta| Arc::new(Segment::new(meta.clone(), hasher.clone()));
        match named {
            NamedRun::Fresh(meta) => Self::Fresh {
                kind,
                segment: open(meta),
            },
            NamedRun::Folded {
                level,
                parts,
                segments,
            } => {
                let parts = parts.iter().map(open).collect();
                let segments = segments.iter().map(open).collect();
                Self::Folded(Arc::new(Folded::new(*level, kind, parts, segments)))
            }
        }
    }

    /// Whether it is the same run, not only an equal one.
    pub fn is(&self, other: &Self) -> bool {
        match (self.parts().first(), other.parts().first()) {
            (Some(own), Some(other)) => Arc::ptr_eq(own, other),
            _ => false,
        }
    }

    /// The segments that its entries count by ordinal; none where they need no ordinal.
    #[inline]
    pub fn ordinals(&self) -> &[Arc<Segment>] {
        match self {
            Self::Fresh { .. } => &[],
            Self::Folded(run) => &run.segments,
        }
    }

    /// The oldest and the newest generation in it.
    pub fn generations(&self) -> (u64, u64) {
        match self {
            Self::Fresh { segment, .. } => segment.generations(),
            Self::Folded(run) => run.generations,
        }
    }

    pub fn level(&self) -> u8 {
        match self {
            Self::Fresh { segment, .. } => segment.meta().identity.level,
            Self::Folded(run) => run.level,
        }
    }

    pub fn kind(&self) -> KeyspaceKind {
        match self {
            Self::Fresh { kind, .. } => *kind,
            Self::Folded(run) => run.kind,
        }
    }

    /// By prefix; a power of two of them.
    pub fn parts(&self) -> &[Part] {
        match self {
            Self::Fresh { segment, .. } => slice::from_ref(segment),
            Self::Folded(run) => &run.parts,
        }
    }

    /// Newest first.
    pub fn segments(&self) -> &[Arc<Segment>] {
        match self {
            Self::Fresh { segment, .. } => slice::from_ref(segment),
            Self::Folded(run) => &run.segments,
        }
    }

    /// The segment of just this generation, if the run has one.
    #[inline]
    pub fn segment_of(&self, generation: u64) -> Option<&Arc<Segment>> {
        let segments = self.segments();
        if let Self::Folded(run) = self
            && run.is_dense
        {
            // Without a look at any segment.
            let place = run.generations.1.checked_sub(generation)?;
            return segments.get(usize::try_from(place).ok()?);
        }
        let newer = segments.partition_point(|segment| segment.generations().1 > generation);
        let is_it = |segment: &&Arc<Segment>| segment.generations() == (generation, generation);
        segments.get(newer).filter(is_it)
    }

    /// The part that holds entries with this hash.
    #[inline]
    pub fn part(&self, hash: KeyHash) -> &Part {
        match self {
            Self::Fresh { segment, .. } => segment,
            Self::Folded(_) => {
                let parts = self.parts();
                let prefix_bits = parts.len().ilog2();
                let place = (hash.0 >> (HASH_BITS - prefix_bits)) as usize;
                &parts[place.min(parts.len() - 1)]
            }
        }
    }
}

/// Runs of both kinds, indexed by the kind's code.
pub(crate) type Runs = [Vec<Run>; 2];

/// Everything between two seals, as readers see it.
#[derive(Debug)]
pub(crate) struct Generation {
    /// Counts seals; part of the identity of the segments that come from it.
    pub number: u64,
    /// The log that holds its frames.
    pub log_number: u64,
    /// The sequence before its first commit.
    pub after_sequence: Sequence,
    last_sequence: AtomicU64,
    memory: ArcSwapOption<Memtable>,
    installed: OnceLock<Vec<Run>>,
}

impl Default for Generation {
    fn default() -> Self {
        Self {
            number: 0,
            log_number: 0,
            after_sequence: 0,
            last_sequence: AtomicU64::new(0),
            memory: ArcSwapOption::empty(),
            installed: OnceLock::new(),
        }
    }
}

impl Generation {
    pub fn new(number: u64, log_number: u64, after: Sequence, memory: Arc<Memtable>) -> Self {
        Self {
            number,
            log_number,
            after_sequence: after,
            last_sequence: AtomicU64::new(after),
            memory: ArcSwapOption::new(Some(memory)),
            installed: OnceLock::new(),
        }
    }

    /// The memtable, unless it has retired.
    pub fn memory(&self) -> Guard<Option<Arc<Memtable>>> {
        self.memory.load()
    }

    /// The newest commit appended to it, published or not.
    pub fn last_sequence(&self) -> Sequence {
        self.last_sequence.load(Ordering::Acquire)
    }

    pub fn set_last_sequence(&self, sequence: Sequence) {
        self.last_sequence.store(sequence, Ordering::Release);
    }

    /// The runs that came from it, once installed.
    pub fn runs(&self) -> &[Run] {
        self.installed.get().map_or(&[], Vec::as_slice)
    }

    /// Names its runs. Once, before `retire`.
    pub fn install(&self, runs: Vec<Run>) {
        let first = self.installed.set(runs).is_ok();
        debug_assert!(first, "a generation is installed once");
    }

    pub fn is_installed(&self) -> bool {
        self.installed.get().is_some()
    }

    /// Gives the memtable up; readers that hold it finish first.
    pub fn retire(&self) -> Option<Arc<Memtable>> {
        debug_assert!(self.is_installed());
        self.memory.swap(None)
    }
}

/// Runs by which the room of lists of them grows.
const RUNS_STEP: usize = 32;

/// The room that a list of so many runs, or of something for each, is made with. Each version has its own and
/// each may have another length: lists that are just long enough are of a new size again and again, and an
/// allocator keeps some of each size.
pub(crate) fn rounded(runs: usize) -> usize {
    runs.next_multiple_of(RUNS_STEP)
}

/// What a reader sees.
#[derive(Debug, Default)]
pub(crate) struct Version {
    /// Newest first.
    pub generations: Vec<Arc<Generation>>,
    /// Shared by the versions between two changes of them.
    pub runs: Arc<Runs>,
    /// Counts changes of the runs: versions with the same one have the same.
    pub runs_stamp: u64,
}

/// Generations that a version made with room has room for.
const GENERATIONS_ROOM: usize = 8;

impl Version {
    /// An empty one with room for what most versions name, and these runs: none.
    pub fn with_room(no_runs: Arc<Runs>) -> Self {
        Self {
            generations: Vec::with_capacity(GENERATIONS_ROOM),
            runs: no_runs,
            runs_stamp: 0,
        }
    }

    /// Empties it; its room stays.
    pub fn clear(&mut self, no_runs: Arc<Runs>) {
        self.generations.clear();
        self.runs = no_runs;
    }

    /// This version with a new open generation, in the memory of `blank`.
    pub fn with_generation(&self, generation: Arc<Generation>, mut blank: Arc<Self>) -> Arc<Self> {
        let own = generation.clone();
        let fill = |next: &mut Self| {
            next.generations.push(own);
            next.generations.extend_from_slice(&self.generations);
            next.runs = self.runs.clone();
            next.runs_stamp = self.runs_stamp;
        };
        if let Some(next) = Arc::get_mut(&mut blank) {
            fill(next);
            return blank;
        }
        let mut next = Self::with_room(self.runs.clone());
        fill(&mut next);
        Arc::new(next)
    }

    /// This version with the oldest generation replaced by its runs.
    pub fn with_installed(&self, generation: &Arc<Generation>) -> Self {
        let mut generations = Vec::with_capacity(GENERATIONS_ROOM.max(self.generations.len()));
        let others = self.generations.iter();
        generations.extend(
            others
                .filter(|other| !Arc::ptr_eq(other, generation))
                .cloned(),
        );
        let runs = KeyspaceKind::ALL.map(|kind| {
            let new = generation.runs().iter().rev();
            let new = new.filter(|run| run.kind() == kind);
            let old = &self.runs[usize::from(kind.code())];
            let mut all = Vec::with_capacity(rounded(new.clone().count() + old.len()));
            all.extend(new.cloned());
            all.extend_from_slice(old);
            all
        });
        Self {
            generations,
            runs: Arc::new(runs),
            runs_stamp: self.runs_stamp + 1,
        }
    }

    /// This version with the runs `old`, which lie side by side, replaced by `new`. Nothing if one of them
    /// is not in it.
    pub fn with_folded(&self, old: &[Run], new: Run) -> Option<Self> {
        let mut all = self.runs.each_ref().map(|runs| {
            let mut copy = Vec::with_capacity(rounded(runs.len()));
            copy.extend_from_slice(runs);
            copy
        });
        let runs = &mut all[usize::from(new.kind().code())];
        let place = runs
            .iter()
            .position(|run| old.first().is_some_and(|old| run.is(old)))?;
        let replaced = runs.get(place..place + old.len())?;
        if !replaced.iter().zip(old).all(|(run, old)| run.is(old)) {
            return None;
        }
        runs.splice(place..place + old.len(), [new]);
        let mut generations = Vec::with_capacity(GENERATIONS_ROOM.max(self.generations.len()));
        generations.extend_from_slice(&self.generations);
        Some(Self {
            generations,
            runs: Arc::new(all),
            runs_stamp: self.runs_stamp + 1,
        })
    }

    /// All segments, oldest first by kind.
    pub fn segments(&self) -> impl Iterator<Item = &Arc<Segment>> {
        self.runs
            .iter()
            .flat_map(|runs| runs.iter().rev())
            .flat_map(|run| run.segments().iter().rev())
    }

    /// The parts of folded runs, which are files of their own.
    pub fn folded_parts(&self) -> impl Iterator<Item = &Part> {
        let folded = self.runs.iter().flatten().filter(|run| run.level() > 0);
        folded.flat_map(Run::parts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::identity::tests::IDENTITY;
    use crate::segment::{SegmentCounts, SegmentIdentity, SegmentMeta};

    fn segment(number: u64) -> Arc<Segment> {
        with_identity(number, IDENTITY)
    }

    fn of_generations((generation_lo, generation_hi): (u64, u64)) -> Arc<Segment> {
        let identity = SegmentIdentity {
            generation_lo,
            generation_hi,
            ..IDENTITY
        };
        with_identity(1, identity)
    }

    fn with_identity(number: u64, identity: SegmentIdentity) -> Arc<Segment> {
        let meta = SegmentMeta {
            number,
            identity,
            file_len: 0,
            tail_offset: 0,
            tail_len: 0,
            footer_checksum: 0,
            counts: SegmentCounts::default(),
        };
        Arc::new(Segment::new(
            meta.pack(),
            Arc::new(Hasher::new([0; 16], HASH_BITS as u8)),
        ))
    }

    #[test]
    fn a_hash_is_asked_of_the_part_with_its_prefix() {
        let parts = (0..4).map(segment).collect();
        let segments = vec![segment(9), segment(8)];
        let folded = Folded::new(1, KeyspaceKind::Mutable, parts, segments);
        let folded = Run::Folded(Arc::new(folded));
        for (hash, part) in [(0, 0), (1 << 44, 1), ((1 << 45) - 1, 1), ((1 << 46) - 1, 3)] {
            assert_eq!(folded.part(KeyHash(hash)).number(), part);
        }
        assert_eq!((folded.level(), folded.kind()), (1, KeyspaceKind::Mutable));
        let fresh = Run::of_segment(segment(7));
        for hash in [0, (1 << 46) - 1] {
            assert_eq!(fresh.part(KeyHash(hash)).number(), 7);
        }
        assert_eq!((fresh.level(), fresh.kind()), (0, KeyspaceKind::WriteOnce));
        assert_eq!((fresh.parts().len(), fresh.segments().len()), (1, 1));
    }

    #[test]
    fn a_generation_has_its_segment_with_gaps_and_without() {
        for (generations, is_dense) in [
            (&[(5, 5), (4, 4), (3, 3)][..], true),
            (&[(5, 5), (3, 3)], false),
            (&[(5, 5), (3, 4)], false),
            (&[(4, 4), (4, 4)], false),
            (&[], false),
        ] {
            let segments = generations.iter().map(|it| of_generations(*it)).collect();
            let folded = Folded::new(1, KeyspaceKind::Mutable, Vec::new(), segments);
            assert_eq!(folded.is_dense, is_dense, "{generations:?}");
            let run = Run::Folded(Arc::new(folded));
            for generation in 0..9 {
                let found = run.segment_of(generation).map(|it| it.generations());
                let alone = generations.contains(&(generation, generation));
                let wanted = alone.then_some((generation, generation));
                assert_eq!(found, wanted, "{generation} of {generations:?}");
            }
        }
        let fresh = Run::of_segment(of_generations((7, 7)));
        assert!(fresh.segment_of(7).is_some() && fresh.segment_of(6).is_none());
    }
}
