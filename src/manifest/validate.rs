//! Applies edits: all of an edit or nothing, and only what keeps the state's rules.
//!
//! The same code runs before an edit is written and after it is read, so that nothing is written that
//! a later open would refuse. A broken rule is `Corruption` of the manifest. Each change leaves a
//! note that takes it back, for edits that fail half-way or can't be made durable.

use std::collections::BTreeSet;

use crate::env::FileName;
use crate::error::{Error, ErrorKind, Result};
use crate::types::{HASH_BITS, KeyspaceId, Sequence};

use super::change::{Change, Edit};
use super::runs;
use super::state::{KeyspaceEntry, LogEntry, ManifestState};
use crate::index::ENTRY_BYTES;
use crate::segment::{PackedMeta, SegmentMeta};

/// The longest name of a keyspace, in bytes.
const NAME_BYTES_MAX: usize = 255;

/// Above all that a store can count to: what is taken from a manifest can be added to.
const COUNT_MAX: u64 = 1 << 62;

/// The shortest record of a segment, and more than the longest segment: sums over all segments of what
/// the manifest says of each fit 64 bits.
const RECORD_BYTES_MIN: u64 = 32;
const FILE_BYTES_MAX: u64 = 1 << 48;

/// Places for segments that are made at least when the list is full.
const SEGMENTS_RESERVED: usize = 64;

/// How an applied edit is taken back.
#[derive(Debug)]
pub(super) struct Undo {
    scalars: Scalars,
    steps: Vec<Step>,
}

/// The single values that changes touch.
#[derive(Clone, Copy, Debug)]
struct Scalars {
    edit_number: u64,
    next_number: u64,
    next_generation: u64,
    flushed_through: Sequence,
    clean_close: bool,
}

#[derive(Debug)]
enum Step {
    RemoveSegment(u64),
    InsertSegment(PackedMeta),
    RemoveLog(u64),
    InsertLog(LogEntry),
    MarkLog(u64, Sequence),
    RemoveKeyspace(KeyspaceId),
}

impl ManifestState {
    /// Applies the next edit, or leaves the state as it is and says which rule it breaks.
    pub fn apply(&mut self, edit: &Edit) -> Result<()> {
        self.apply_changes(edit.number, &edit.changes).map(drop)
    }

    /// The same, with the way back.
    pub(super) fn apply_changes(&mut self, number: u64, changes: &[Change]) -> Result<Undo> {
        if Some(number) != self.edit_number.checked_add(1) {
            let last = self.edit_number;
            return Err(broken(format!("edit {number} follows edit {last}")));
        }
        let mut undo = Undo {
            scalars: self.scalars(),
            steps: Vec::with_capacity(changes.len()),
        };
        self.edit_number = number;
        self.clean_close = false;
        let result = changes
            .iter()
            .try_for_each(|change| self.apply_one(change, &mut undo.steps))
            .and_then(|()| self.check_added(changes));
        match result {
            Ok(()) => Ok(undo),
            Err(error) => {
                self.revert(undo);
                Err(error)
            }
        }
    }

    /// Takes an edit back, the last one first.
    pub(super) fn revert(&mut self, undo: Undo) {
        for step in undo.steps.into_iter().rev() {
            match step {
                Step::RemoveSegment(number) => {
                    self.segments.retain(|entry| entry.number() != number);
                }
                Step::RemoveLog(number) => self.logs.retain(|entry| entry.number != number),
                Step::RemoveKeyspace(id) => self.keyspaces.retain(|entry| entry.id != id),
                Step::InsertSegment(entry) => {
                    if let Err(at) = self.segment_place(entry.number()) {
                        self.segments.insert(at, entry);
                    }
                }
                Step::InsertLog(entry) => {
                    if let Err(at) = self.log_place(entry.number) {
                        self.logs.insert(at, entry);
                    }
                }
                Step::MarkLog(number, mark) => {
                    let place = self.log_place(number).ok();
                    if let Some(log) = place.and_then(|at| self.logs.get_mut(at)) {
                        log.durable_through = mark;
                    }
                }
            }
        }
        let scalars = undo.scalars;
        self.edit_number = scalars.edit_number;
        self.next_number = scalars.next_number;
        self.next_generation = scalars.next_generation;
        self.flushed_through = scalars.flushed_through;
        self.clean_close = scalars.clean_close;
    }

    fn scalars(&self) -> Scalars {
        Scalars {
            edit_number: self.edit_number,
            next_number: self.next_number,
            next_generation: self.next_generation,
            flushed_through: self.flushed_through,
            clean_close: self.clean_close,
        }
    }

    fn apply_one(&mut self, change: &Change, undo: &mut Vec<Step>) -> Result<()> {
        self.clean_close = false;
        match change {
            Change::AddKeyspace(entry) => {
                self.insert_keyspace(entry.clone())?;
                undo.push(Step::RemoveKeyspace(entry.id));
            }
            Change::AddLog(entry) => {
                self.insert_log(*entry)?;
                undo.push(Step::RemoveLog(entry.number));
            }
            Change::AddSegment(entry) => {
                self.insert_segment(entry)?;
                undo.push(Step::RemoveSegment(entry.number));
            }
            Change::DropLog { number } => match self.log_place(*number) {
                Ok(at) => undo.push(Step::InsertLog(self.logs.remove(at))),
                Err(_) => return Err(broken(format!("log {number} is dropped but not named"))),
            },
            Change::DropSegment { number } => undo.push(self.remove_segment(*number, false)?),
            Change::DropPart { number } => undo.push(self.remove_segment(*number, true)?),
            Change::MarkLog {
                number,
                durable_through,
            } => {
                let place = self.log_place(*number).ok();
                let Some(log) = place.and_then(|at| self.logs.get_mut(at)) else {
                    return Err(broken(format!("log {number} is marked but not named")));
                };
                undo.push(Step::MarkLog(*number, log.durable_through));
                raise(&mut log.durable_through, *durable_through, "a log's mark")?;
            }
            Change::FlushedThrough(to) => {
                raise(&mut self.flushed_through, *to, "flushed_through")?;
            }
            Change::NextNumber(to) => raise(&mut self.next_number, *to, "next_number")?,
            Change::NextGeneration(to) => {
                raise(&mut self.next_generation, *to, "next_generation")?;
            }
            Change::CleanClose => self.clean_close = true,
        }
        Ok(())
    }

    /// Rules that hold only after a whole edit: a segment without its `FlushedThrough` would have its
    /// commits replayed a second time, one without its `NextGeneration` another of the same generation.
    fn check_added(&self, changes: &[Change]) -> Result<()> {
        changes.iter().try_for_each(|change| match change {
            Change::AddSegment(entry) => self.check_flushed(entry),
            _ => Ok(()),
        })?;
        let touches_runs = changes.iter().any(|change| match change {
            Change::AddSegment(entry) => entry.identity.level > 0,
            Change::DropSegment { .. } | Change::DropPart { .. } => true,
            _ => false,
        });
        match touches_runs {
            true => runs::check(self),
            false => Ok(()),
        }
    }

    /// Every rule of a state, for one that was read or is about to be written as a whole.
    pub(super) fn check_whole(&self) -> Result<()> {
        if !(1..=HASH_BITS).contains(&u32::from(self.hash_bits)) {
            return Err(broken(format!("{} hash bits", self.hash_bits)));
        }
        let counts = [
            ("incarnation", self.incarnation),
            ("next_number", self.next_number),
            ("edit_number", self.edit_number),
            ("flushed_through", self.flushed_through),
            ("next_generation", self.next_generation),
        ];
        for (what, count) in counts {
            check_count(count, what)?;
        }
        let sorted = self.keyspaces.is_sorted_by(|a, b| a.id < b.id)
            && self.logs.is_sorted_by(|a, b| a.number < b.number)
            && self.segments.is_sorted_by(|a, b| a.number() < b.number());
        if !sorted {
            return Err(broken("a list that is unsorted or names something twice"));
        }
        let mut names = BTreeSet::new();
        for entry in &self.keyspaces {
            check_keyspace(entry)?;
            if !names.insert(entry.name.as_str()) {
                return Err(broken("two keyspaces have one name"));
            }
        }
        for entry in &self.logs {
            self.check_log(entry)?;
            if self.segment(entry.number).is_some() {
                return Err(broken(format!("file {} is named twice", entry.number)));
            }
        }
        self.segments.iter().try_for_each(|entry| {
            let entry = entry.unpack(self.family_id);
            self.check_segment(&entry)?;
            self.check_flushed(&entry)
        })?;
        runs::check(self)
    }

    fn check_flushed(&self, entry: &SegmentMeta) -> Result<()> {
        if entry.counts.max_sequence > self.flushed_through {
            return Err(broken(format!(
                "segment {} holds commit {}, flushed is {}",
                entry.number, entry.counts.max_sequence, self.flushed_through
            )));
        }
        if entry.identity.generation_hi >= self.next_generation {
            // The next flush would make another segment of it.
            return Err(broken(format!(
                "segment {} holds generation {}, {} comes next",
                entry.number, entry.identity.generation_hi, self.next_generation
            )));
        }
        Ok(())
    }

    fn insert_keyspace(&mut self, entry: KeyspaceEntry) -> Result<()> {
        check_keyspace(&entry)?;
        if self.keyspace(&entry.name).is_some() {
            return Err(broken("two keyspaces have one name"));
        }
        match self.keyspace_place(entry.id) {
            Ok(_) => Err(broken("two keyspaces have one id")),
            Err(at) => {
                self.keyspaces.insert(at, entry);
                Ok(())
            }
        }
    }

    fn insert_log(&mut self, entry: LogEntry) -> Result<()> {
        self.check_log(&entry)?;
        match (self.log_place(entry.number), self.segment(entry.number)) {
            (Err(at), None) => {
                self.logs.insert(at, entry);
                Ok(())
            }
            _ => Err(broken(format!("file {} is named twice", entry.number))),
        }
    }

    fn remove_segment(&mut self, number: u64, part: bool) -> Result<Step> {
        let place = self.segment_place(number).ok();
        let named = |place: &usize| {
            let level = self.segments.get(*place).map(|entry| entry.role().level);
            level.is_some_and(|level| (level > 0) == part)
        };
        match place.filter(named) {
            Some(at) => Ok(Step::InsertSegment(self.segments.remove(at))),
            None => Err(broken(format!("segment {number} is dropped but not named"))),
        }
    }

    fn insert_segment(&mut self, entry: &SegmentMeta) -> Result<()> {
        self.check_segment(entry)?;
        match (self.segment_place(entry.number), self.log(entry.number)) {
            (Err(at), None) => {
                if self.segments.len() == self.segments.capacity() {
                    // Doubling would leave half a long list empty.
                    let more = self.segments.len() / 16;
                    self.segments.reserve_exact(more + SEGMENTS_RESERVED);
                }
                self.segments.insert(at, entry.pack());
                Ok(())
            }
            _ => Err(broken(format!("file {} is named twice", entry.number))),
        }
    }

    fn check_log(&self, entry: &LogEntry) -> Result<()> {
        self.check_number(entry.number)?;
        if entry.incarnation > self.incarnation {
            let number = entry.number;
            return Err(broken(format!("log {number} is of a later incarnation")));
        }
        check_count(entry.durable_through, "durable_through")?;
        check_count(entry.first_generation, "first_generation")
    }

    fn check_segment(&self, entry: &SegmentMeta) -> Result<()> {
        self.check_number(entry.number)?;
        let identity = &entry.identity;
        let tail_end = entry.tail_offset.checked_add(entry.tail_len);
        let rule = if identity.family_id != self.family_id {
            "is of another family"
        } else if identity.generation_lo > identity.generation_hi {
            "ends before its first generation"
        } else if entry.counts.min_sequence > entry.counts.max_sequence {
            "ends before its first sequence"
        } else if entry.counts.tombstones > entry.counts.records {
            "has more tombstones than records"
        } else if tail_end.is_none_or(|end| end > entry.file_len) {
            "has its tail outside its file"
        } else if entry.file_len > FILE_BYTES_MAX {
            "is longer than a segment can be"
        } else if !fits(entry) {
            "holds more than its file can"
        } else {
            return check_count(identity.generation_hi, "generation_hi");
        };
        Err(broken(format!("segment {} {rule}", entry.number)))
    }

    /// Only a number that was handed out can name a file.
    fn check_number(&self, number: u64) -> Result<()> {
        if number >= self.next_number {
            let next = self.next_number;
            return Err(broken(format!("file {number} is named, {next} comes next")));
        }
        Ok(())
    }
}

/// Whether the file is long enough for what it is said to hold.
fn fits(entry: &SegmentMeta) -> bool {
    let counts = &entry.counts;
    let bytes = counts.key_bytes.checked_add(counts.value_bytes);
    let least = match entry.identity.level {
        0 => RECORD_BYTES_MIN,
        // A part of a run has an index entry for each.
        _ => ENTRY_BYTES as u64,
    };
    counts.records <= entry.file_len / least && bytes.is_some_and(|bytes| bytes <= entry.file_len)
}

fn check_keyspace(entry: &KeyspaceEntry) -> Result<()> {
    if entry.id.kind() != Some(entry.kind) {
        return Err(broken("a keyspace's id is of another kind"));
    }
    if !(1..=NAME_BYTES_MAX).contains(&entry.name.len()) {
        return Err(broken("a keyspace's name has 1 to 255 bytes"));
    }
    Ok(())
}

/// Sets a value that never falls.
fn raise(value: &mut u64, to: u64, what: &str) -> Result<()> {
    if to < *value {
        return Err(broken(format!("{what} falls from {value} to {to}")));
    }
    check_count(to, what)?;
    *value = to;
    Ok(())
}

fn check_count(count: u64, what: &str) -> Result<()> {
    match count <= COUNT_MAX {
        true => Ok(()),
        false => Err(broken(format!(
            "{what} is {count}, which nothing counts to"
        ))),
    }
}

pub(super) fn broken(detail: impl Into<String>) -> Error {
    Error::new(ErrorKind::Corruption, "apply manifest edit", detail).with_file(FileName::MANIFEST)
}
