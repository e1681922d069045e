//! What a lookup of one key does, step by step, with the cost of each step.
//!
//! [`Keyspace::explain`](crate::Keyspace::explain) makes the lookup that `get` makes, by the same code,
//! which keeps its steps as it goes. So it tells no other story than `get`, and its cost is one.

use std::fmt;

use crate::env::FileName;
use crate::error::Error;
use crate::segment::ReadCounts;
use crate::types::Sequence;

/// What steps of a lookup have cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Reads asked of the environment.
    pub reads: u64,
    /// Bytes of those reads.
    pub read_bytes: u64,
    /// Accesses to mappings in place of reads.
    pub mapped_reads: u64,
    /// Bytes of those accesses.
    pub mapped_bytes: u64,
    /// Files opened.
    pub opens: u64,
    /// Files touched for the first time: one of the reads, if all is well, is that of the file's tail.
    pub first_touches: u64,
}

impl Cost {
    fn of(counts: &ReadCounts) -> Self {
        Self {
            reads: counts.reads,
            read_bytes: counts.bytes,
            mapped_reads: counts.mapped_reads,
            mapped_bytes: counts.mapped_bytes,
            opens: counts.opens,
            first_touches: counts.first_touches,
        }
    }
}

impl std::ops::Add for Cost {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            reads: self.reads + other.reads,
            read_bytes: self.read_bytes + other.read_bytes,
            mapped_reads: self.mapped_reads + other.mapped_reads,
            mapped_bytes: self.mapped_bytes + other.mapped_bytes,
            opens: self.opens + other.opens,
            first_touches: self.first_touches + other.first_touches,
        }
    }
}

impl std::ops::Sub for Cost {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self {
            reads: self.reads - earlier.reads,
            read_bytes: self.read_bytes - earlier.read_bytes,
            mapped_reads: self.mapped_reads - earlier.mapped_reads,
            mapped_bytes: self.mapped_bytes - earlier.mapped_bytes,
            opens: self.opens - earlier.opens,
            first_touches: self.first_touches - earlier.first_touches,
        }
    }
}

impl fmt::Display for Cost {
    /// What there is of it, with commas; `no reads` for nothing.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::default() {
            return f.write_str("no reads");
        }
        let mut separator = "";
        let parts = [
            (self.reads, self.read_bytes, "read"),
            (self.mapped_reads, self.mapped_bytes, "mapped access"),
        ];
        for (count, bytes, what) in parts {
            if count > 0 {
                let plural = match (count, what) {
                    (1, _) => "",
                    (_, "read") => "s",
                    _ => "es",
                };
                write!(f, "{separator}{count} {what}{plural} of {bytes} bytes")?;
                separator = ", ";
            }
        }
        for (count, what) in [
            (self.opens, "opened"),
            (self.first_touches, "touched first"),
        ] {
            if count > 0 {
                let plural = if count == 1 { "" } else { "s" };
                write!(f, "{separator}{count} file{plural} {what}")?;
                separator = ", ";
            }
        }
        Ok(())
    }
}

/// What a run's filter said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilterAnswer {
    /// It is not in memory: the run's index is asked.
    NotResident,
    /// The key is not in the run.
    No {
        /// Bits a key of the filter.
        bits_per_key: u16,
    },
    /// It may be: the run's index is asked.
    Maybe {
        /// Bits a key of the filter.
        bits_per_key: u16,
    },
}

/// A step of a lookup. Those that follow a [`Run`](Self::Run) or [`Window`](Self::Window) belong to it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Step {
    /// A generation in memory was asked.
    Memory {
        /// Its number.
        generation: u64,
        /// Whether it has the key: then the lookup ends here.
        found: bool,
    },
    /// The window table was asked. Records that follow are those that it names.
    Window {
        /// The generations that it covers, from the first to before the second.
        generations: (u64, u64),
        /// Runs that need not be asked because all of their generations are covered.
        runs: u64,
    },
    /// A run was asked.
    Run {
        /// How often it was merged; 0 for a segment.
        level: u8,
        /// The oldest and the newest generation in it.
        generations: (u64, u64),
        /// Its segments.
        segments: u64,
        /// Parts of its index.
        parts: u64,
        /// The file of the part that may have the key.
        part: FileName,
        /// What the part's filter said.
        filter: FilterAnswer,
    },
    /// The part's index ends below the hash: it has no page to read.
    NoPage {
        /// The part's file.
        file: FileName,
        /// First touches.
        cost: Cost,
    },
    /// An index page was read.
    Page {
        /// The file of the index.
        file: FileName,
        /// The page, counted from 0.
        page: u64,
        /// Pages of the index.
        pages: u64,
        /// Entries of the page with the hash: so many records may be the key's.
        entries: u64,
        /// The page, and first touches.
        cost: Cost,
    },
    /// The record of an entry was read.
    Record {
        /// The segment's file.
        file: FileName,
        /// Where the record is in it, in bytes.
        offset: u64,
        /// The length that the entry's size class lets it read at once; none for a record above the
        /// classes, whose header is read first.
        size_class_bytes: Option<u64>,
        /// Whether it is a deletion.
        tombstone: bool,
        /// Whether it answers the lookup. Otherwise it is of another key with this hash.
        wanted: bool,
        /// The record, and first touches.
        cost: Cost,
    },
    /// The index of a folded run is damaged: the steps that follow ask its segments, one by one, by their
    /// own indexes.
    DamagedIndex {
        /// The damaged file.
        file: FileName,
        /// What was read of it.
        cost: Cost,
    },
    /// The lookup failed in the midst of a step.
    Rest {
        /// What was read for it.
        cost: Cost,
    },
}

impl Step {
    /// What it has cost.
    pub fn cost(&self) -> Cost {
        match self {
            Self::Memory { .. } | Self::Window { .. } | Self::Run { .. } => Cost::default(),
            Self::NoPage { cost, .. }
            | Self::Page { cost, .. }
            | Self::Record { cost, .. }
            | Self::DamagedIndex { cost, .. }
            | Self::Rest { cost } => *cost,
        }
    }
}

impl fmt::Display for Step {
    /// One line without the cost; what belongs to a run is indented.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory { generation, found } => {
                let answer = if *found { "found" } else { "not there" };
                write!(f, "memory, generation {generation}: {answer}")
            }
            Self::Window {
                generations: (lo, hi),
                runs,
            } => {
                let plural = if *runs == 1 { "" } else { "s" };
                write!(
                    f,
                    "window table, generations {lo} to {}: {runs} run{plural} need not be asked",
                    hi.saturating_sub(1)
                )
            }
            Self::Run {
                level,
                generations: (oldest, newest),
                segments,
                parts,
                part,
                filter,
            } => {
                match level {
                    0 => write!(f, "segment {part}, generation {newest}: ")?,
                    _ => write!(
                        f,
                        "run of level {level}, {segments} segments, generations {oldest} to {newest}, \
                         part {part} of {parts}: "
                    )?,
                }
                match filter {
                    FilterAnswer::NotResident => f.write_str("no filter in memory"),
                    FilterAnswer::No { bits_per_key } => {
                        write!(f, "filter of {bits_per_key} bits a key says no")
                    }
                    FilterAnswer::Maybe { bits_per_key } => {
                        write!(f, "filter of {bits_per_key} bits a key says perhaps")
                    }
                }
            }
            Self::NoPage { file, .. } => write!(f, "  index of {file} ends below the hash"),
            Self::Page {
                file,
                page,
                pages,
                entries,
                ..
            } => write!(
                f,
                "  index page {page} of {pages} in {file}: entries with this hash: {entries}"
            ),
            Self::Record {
                file,
                offset,
                size_class_bytes,
                tombstone,
                wanted,
                ..
            } => {
                write!(f, "  record at byte {offset} of {file}, ")?;
                match size_class_bytes {
                    Some(bytes) => write!(f, "size class {bytes} bytes: ")?,
                    None => f.write_str("above the size classes: ")?,
                }
                let what = match (wanted, tombstone) {
                    (true, false) => "the value",
                    (true, true) => "the key was deleted",
                    (false, _) => "another key",
                };
                f.write_str(what)
            }
            Self::DamagedIndex { file, .. } => {
                write!(f, "  index {file} is damaged, its segments are asked")
            }
            Self::Rest { .. } => f.write_str("  what was read when it failed"),
        }
    }
}

/// What the lookup came to.
#[derive(Clone, Debug)]
pub enum Answer {
    /// The key was never written, as far as the store knows.
    Absent,
    /// It was deleted.
    Deleted {
        /// By this commit.
        sequence: Sequence,
    },
    /// It has a value.
    Value {
        /// By this commit.
        sequence: Sequence,
        /// The value's length.
        bytes: u64,
    },
    /// The lookup failed, as `get` does.
    Failed(Error),
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent => f.write_str("absent"),
            Self::Deleted { sequence } => write!(f, "deleted by commit {sequence}"),
            Self::Value { sequence, bytes } => {
                write!(f, "a value of {bytes} bytes, by commit {sequence}")
            }
            Self::Failed(error) => write!(f, "{error}"),
        }
    }
}

/// A lookup, explained. `Display` gives a line for each step.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Explanation {
    /// The key's hash: 46 bits, or the leading ones of them that the store keeps.
    pub hash: u64,
    /// What was done, in order.
    pub steps: Vec<Step>,
    /// What came of it.
    pub answer: Answer,
    /// What it cost: the sum over the steps, and what [`Stats`](crate::Stats) counts for the lookup.
    pub cost: Cost,
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "hash {:012x}", self.hash)?;
        for step in &self.steps {
            write!(f, "{step}")?;
            match step.cost() {
                cost if cost == Cost::default() => writeln!(f)?,
                cost => writeln!(f, "; {cost}")?,
            }
        }
        write!(f, "{}; {}", self.answer, self.cost)
    }
}

/// The steps of a lookup that is watched.
///
/// Whatever was counted since the last step is the cost of the next, so nothing is counted twice or lost.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    pub(crate) steps: Vec<Step>,
    /// The counts at the last step.
    seen: Cost,
    /// What was counted in counts that have ended.
    pub(crate) total: Cost,
}

impl Trace {
    /// What was counted since the last step.
    pub(crate) fn cost_since(&mut self, counts: &ReadCounts) -> Cost {
        let now = Cost::of(counts);
        let cost = now - self.seen;
        self.seen = now;
        cost
    }

    pub(crate) fn push(&mut self, step: Step) {
        self.steps.push(step);
    }

    /// Ends these counts; the next begin at 0.
    pub(crate) fn end(&mut self, counts: &ReadCounts) {
        let cost = self.cost_since(counts);
        if cost != Cost::default() {
            self.push(Step::Rest { cost });
        }
        self.total = self.total + Cost::of(counts);
        self.seen = Cost::default();
    }
}
