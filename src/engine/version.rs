//! Versions: what a reader sees, as immutable lists of shared handles.
//!
//! A version names the generations in memory (newest first) and, per kind, the runs of sealed segments
//! (newest first). It is copied at every change (O(runs)) and swapped in atomically; a reader that
//! holds one goes on reading exactly what it names.
//!
//! Invariants: every published commit is in exactly one generation or in the runs that came from it;
//! a generation leaves the list in the same swap in which its runs enter. A generation's handle leads
//! to its memtable or, once that has retired, to its runs: a version made before the flush stays right.

use crate::memtable::Memtable;
use crate::segment::Segment;
use crate::sync::{Arc, ArcSwapOption, AtomicU64, Guard, OnceLock, Ordering};
use crate::types::{KeyHash, KeyspaceKind, Sequence};

/// One part of a run: the index over the entries whose hash starts with the part's prefix. A run of
/// level 0 has one part, the index of its only segment.
#[derive(Debug)]
pub(crate) struct Part {
    pub prefix_bits: u8,
    pub index: Arc<Segment>,
}

/// An immutable list of segments with one index in parts.
#[derive(Debug)]
pub(crate) struct Run {
    pub level: u8,
    pub kind: KeyspaceKind,
    /// By prefix; 2^prefix_bits of them.
    pub parts: Vec<Part>,
    /// Newest first.
    pub segments: Vec<Arc<Segment>>,
}

impl Run {
    /// The run that a fresh segment is by itself.
    pub fn of_segment(segment: Arc<Segment>) -> Self {
        Self {
            level: segment.meta().identity.level,
            kind: segment.meta().identity.kind,
            parts: vec![Part {
                prefix_bits: 0,
                index: segment.clone(),
            }],
            segments: vec![segment],
        }
    }

    /// The part that holds entries with this hash.
    pub fn part(&self, hash: KeyHash) -> &Part {
        let prefix_bits = self
            .parts
            .first()
            .map_or(0, |part| u32::from(part.prefix_bits));
        let place = (hash.0 >> (crate::types::HASH_BITS - prefix_bits)) as usize;
        &self.parts[place.min(self.parts.len() - 1)]
    }
}

/// Runs of both kinds, indexed by the kind's code.
pub(crate) type Runs = [Vec<Arc<Run>>; 2];

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
    installed: OnceLock<Vec<Arc<Run>>>,
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
    pub fn runs(&self) -> &[Arc<Run>] {
        self.installed.get().map_or(&[], Vec::as_slice)
    }

    /// Names its runs. Once, before `retire`.
    pub fn install(&self, runs: Vec<Arc<Run>>) {
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

/// What a reader sees.
#[derive(Clone, Debug, Default)]
pub(crate) struct Version {
    /// Newest first.
    pub generations: Vec<Arc<Generation>>,
    pub runs: Runs,
}

impl Version {
    /// This version with a new open generation.
    pub fn with_generation(&self, generation: Arc<Generation>) -> Self {
        let mut next = self.clone();
        next.generations.insert(0, generation);
        next
    }

    /// This version with the oldest generation replaced by its runs.
    pub fn with_installed(&self, generation: &Arc<Generation>) -> Self {
        let mut next = self.clone();
        next.generations
            .retain(|other| !Arc::ptr_eq(other, generation));
        for run in generation.runs() {
            next.runs[usize::from(run.kind.code())].insert(0, run.clone());
        }
        next
    }

    /// All segments, oldest first by kind.
    pub fn segments(&self) -> impl Iterator<Item = &Arc<Segment>> {
        self.runs
            .iter()
            .flat_map(|runs| runs.iter().rev())
            .flat_map(|run| run.segments.iter().rev())
    }

    /// The newest segments first, kinds merged by generation: the order in which filters load.
    pub fn segments_newest_first(&self) -> Vec<Arc<Segment>> {
        let mut segments: Vec<_> = self.segments().cloned().collect();
        segments.sort_by_key(|segment| {
            let identity = segment.meta().identity;
            (std::cmp::Reverse(identity.generation_hi), identity.kind)
        });
        segments
    }
}
