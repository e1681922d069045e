//! Folds: when a level has enough runs, their indexes become one run of the next level.
//!
//! ```text
//! level 0   s s s s s s s s  ->  one run of level 1: one index over eight segments
//! level 1   R R R R R R R R  ->  one run of level 2: one index over sixty-four
//! ```
//! Records never move, and every entry is kept: equal hashes are not equal keys, an older version may be
//! read by a snapshot, and a tombstone hides what an older run has. What a fold reads are index pages; what
//! it writes are the parts of the new index, split by hash prefix. A lookup then tests one filter where it
//! tested eight.
//!
//! Steps, each bounded: gather the entries of a hash range from all inputs, sort them and append them to
//! the part at hand -> sync the part -> .. the other parts -> sync the directory -> one manifest edit ->
//! install. Always the oldest runs of a level are taken, whatever was installed meanwhile, so equal
//! commits give equal runs under any schedule.
//!
//! Crash argument: parts and their names are durable before the edit names them, and the edit that names
//! them drops the parts they replace; a crash before it leaves files that no manifest names. Parts that
//! were replaced are removed by a job once their last reader is gone.
//!
//! A damaged run is made again in the same way from the indexes that its segments have themselves. Until
//! then lookups ask those. What can't be folded because a segment's own index is damaged stays as it is.

use std::collections::BTreeSet;
use std::ops::Range;

use crate::engine::Engine;
pub(crate) use crate::engine::fold_job::FoldJob;
use crate::engine::fold_job::{Choice, Phase, overlaps};
use crate::engine::residency::arrivals_of;
use crate::engine::version::{Folded, Part, Run};
use crate::env::{FileName, io};
use crate::error::{Error, ErrorKind, Result};
use crate::index::{Entry, LOCATION_BITS, PackedEntry, UNIT_BYTES};
use crate::manifest::Change;
use crate::segment::writer::FILTER_BITS_DEFAULT;
use crate::segment::{
    PageKeeper, PartBuffers, PartPlan, PartWriter, ReadCounts, Segment, SegmentIdentity,
    SegmentSummary,
};
use crate::sync::Arc;
use crate::types::KeyHash;

/// From so many segments on a run is old: most of its keys are asked for seldom, and the smaller filters
/// pay.
const OLD_SEGMENTS: usize = 64;

/// Filter alternatives of younger runs, in bits a key.
const FILTER_BITS_YOUNG: [u16; 2] = FILTER_BITS_DEFAULT;

/// Of older ones.
const FILTER_BITS_OLD: [u16; 3] = [4, 8, 12];

/// Entries of one step, for each record of the quantum: an entry is a small part of a record's work.
const ENTRIES_PER_RECORD: usize = 8;

/// Entries of one step at least.
const STEP_ENTRIES_MIN: usize = 64;

/// Inputs that keep their last page between two steps.
const KEEPERS_MAX: usize = 64;

/// Of their pages, those whose memory is kept between two folds: the default number of inputs.
const KEEPERS_KEPT: usize = 8;

/// A run by its kind, level and oldest generation.
type RunKey = (u8, u8, u64);

/// What the fold lock guards.
#[derive(Debug, Default)]
pub(crate) struct FoldSlot {
    pub current: Option<FoldJob>,
    buffers: FoldBuffers,
}

/// The working memory of folds, which the first one takes and the store keeps: one size, however many
/// segments are folded.
#[derive(Debug, Default)]
struct FoldBuffers {
    /// Entries of a step.
    entries: Vec<PackedEntry>,
    /// The last page of each input.
    keepers: Vec<PageKeeper>,
    part: PartBuffers,
}

impl FoldBuffers {
    /// What is kept for the next fold: the run that is made anew from many segments has more inputs.
    fn trim(&mut self) {
        self.keepers.truncate(KEEPERS_KEPT);
        self.keepers.iter_mut().for_each(PageKeeper::forget);
    }
}

/// What folds leave to others; guarded by the maintenance lock.
#[derive(Debug, Default)]
pub(crate) struct FoldQueue {
    /// Whether the slot holds a job.
    pub folding: bool,
    /// Runs whose index is damaged.
    damaged: Vec<Run>,
    /// Runs that begin a set which can't be folded.
    given_up: BTreeSet<RunKey>,
    /// Damaged runs that can't be made again.
    hopeless: BTreeSet<RunKey>,
    /// Parts that were replaced and may have readers.
    pub leaving: Vec<Part>,
}

impl FoldQueue {
    /// Takes out the parts that have no reader any more.
    pub fn take_released(&mut self) -> Vec<FileName> {
        let mut released = Vec::new();
        self.leaving.retain(|part| {
            // Whoever could make another handle holds one himself.
            let last = Arc::strong_count(part) == 1;
            released.extend(last.then(|| part.name()));
            !last
        });
        released
    }

    /// Whether there are such parts.
    pub fn has_released(&self) -> bool {
        self.leaving.iter().any(|part| Arc::strong_count(part) == 1)
    }
}

impl Engine {
    /// Whether there is a fold to begin or to go on with.
    pub fn fold_wanted(&self) -> bool {
        if self.settings.read_only {
            return false;
        }
        let maintenance = self.maintenance.lock();
        maintenance.folds.folding || self.choose_fold(&maintenance.folds).is_some()
    }

    /// Damaged runs first; then the oldest runs of the lowest level that has enough.
    fn choose_fold(&self, queue: &FoldQueue) -> Option<Choice> {
        if let Some(run) = queue.damaged.first() {
            let segments = run.segments().iter().cloned();
            return Some(Choice {
                level: run.level(),
                inputs: segments.map(Run::of_segment).collect(),
                replaced: vec![run.clone()],
            });
        }
        let runs_max = self.settings.fold_runs?;
        let version = self.version.load();
        version.runs.iter().find_map(|runs| {
            let mut end = runs.len();
            let mut lowest = None;
            // From the oldest on, level by level.
            while let Some(last) = end.checked_sub(1).and_then(|last| runs.get(last)) {
                let level = last.level();
                let same = runs[..end].iter().rev();
                let count = same.take_while(|run| run.level() == level).count();
                let first = end.saturating_sub(runs_max as usize);
                if count >= runs_max as usize && !queue.given_up.contains(&key_of(last)) {
                    lowest = Some((level, first..end));
                }
                end -= count;
            }
            let (level, range) = lowest?;
            let inputs = runs.get(range)?.to_vec();
            Some(Choice {
                replaced: inputs.clone(),
                level: level.checked_add(1)?,
                inputs,
            })
        })
    }

    /// Runs one bounded step; true when a run was installed by it.
    pub fn fold_step(&self, quantum: u32) -> Result<bool> {
        let mut slot = self.fold.lock();
        let slot = &mut *slot;
        if slot.current.is_none() {
            slot.current = self.begin_fold();
        }
        let Some(mut job) = slot.current.take() else {
            return Ok(false);
        };
        let phase = std::mem::replace(&mut job.phase, Phase::Begin);
        match self.fold_phase(&mut slot.buffers, &mut job, phase, quantum) {
            Ok(Some(phase)) => {
                job.phase = phase;
                slot.current = Some(job);
                Ok(false)
            }
            Ok(None) => {
                slot.buffers.trim();
                self.close_inputs(&job);
                self.install_fold(job);
                self.maintenance.lock().folds.folding = false;
                Ok(true)
            }
            // Damage costs a lookup nothing but reads: there is something to be done about it, or nothing.
            Err(error) if self.fold_failed(job, &error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn begin_fold(&self) -> Option<FoldJob> {
        let mut maintenance = self.maintenance.lock();
        let choice = self.choose_fold(&maintenance.folds)?;
        let oldest = choice.inputs.last().map(key_of);
        let damaged = choice.inputs.len() != choice.replaced.len();
        let part_records_max = u64::from(self.settings.run_part_records);
        let job = FoldJob::new(choice, part_records_max, self.hasher.hash_bits());
        if job.is_none() {
            // Not with locations of 43 bits: these runs stay side by side.
            match damaged {
                true => give_up_damaged(&mut maintenance.folds),
                false => maintenance.folds.given_up.extend(oldest),
            }
        }
        maintenance.folds.folding = job.is_some();
        job
    }

    fn fold_phase(
        &self,
        buffers: &mut FoldBuffers,
        job: &mut FoldJob,
        phase: Phase,
        quantum: u32,
    ) -> Result<Option<Phase>> {
        Ok(Some(match phase {
            Phase::Begin if job.outputs.len() == 1 << job.prefix_bits => Phase::SyncDirectory,
            Phase::Begin => self.begin_part(buffers, job)?,
            Phase::Write {
                writer,
                number,
                file,
                hashes,
                entries: left,
            } => {
                let name = FileName::run(number);
                let step = self.write_part(buffers, job, (writer, hashes, left), quantum);
                match step {
                    Ok(Step::Goes(writer, hashes, entries)) => Phase::Write {
                        writer,
                        number,
                        file,
                        hashes,
                        entries,
                    },
                    Ok(Step::Ended(output)) => Phase::Sync { file, output },
                    Err(error) => {
                        self.discard(name);
                        return Err(error);
                    }
                }
            }
            Phase::Sync { file, output } => {
                if let Err(cause) = io::uninterrupted(|| file.sync_data()) {
                    let name = output.meta.name();
                    self.discard(name);
                    return Err(Error::io("fold", name, cause));
                }
                self.counters.fold_syncs.add(1);
                self.counters.fold_bytes.add(output.meta.file_len);
                job.outputs.push(*output);
                Phase::Begin
            }
            Phase::SyncDirectory => {
                self.sync_directory("fold")?;
                Phase::Edit
            }
            Phase::Edit => {
                self.fold_edit(job)?;
                return Ok(None);
            }
        }))
    }

    fn begin_part(&self, buffers: &mut FoldBuffers, job: &mut FoldJob) -> Result<Phase> {
        let part = job.outputs.len() as u64;
        let hashes = job.hashes_of(part);
        let entries = self.count_entries(job, &hashes)?;
        let number = self.take_number();
        let name = FileName::run(number);
        let (generation_lo, generation_hi) = job.generations();
        let metas = || job.segments.iter().map(|segment| segment.meta().counts);
        let plan = PartPlan {
            identity: SegmentIdentity {
                family_id: self.family_id,
                generation_lo,
                generation_hi,
                kind: job.kind,
                level: job.choice.level,
                part: part as u16,
            },
            entries,
            min_sequence: metas().map(|counts| counts.min_sequence).min().unwrap_or(0),
            max_sequence: metas().map(|counts| counts.max_sequence).max().unwrap_or(0),
            hash_bits: self.hasher.hash_bits(),
            prefix_bits: job.prefix_bits,
            ordinal_bits: job.ordinal_bits,
            filter_bits: folded_filter_bits(job.segments.len()).to_vec(),
        };
        let create = || io::uninterrupted(|| self.env.vfs.create_new(name));
        let file = self
            .files
            .spare_one_for(create)
            .map_err(|cause| Error::io("fold", name, cause))?;
        let memory = std::mem::take(&mut buffers.part);
        let writer = PartWriter::new(file.clone(), name, plan, memory);
        let writer = writer.inspect_err(|_| self.discard(name))?;
        Ok(Phase::Write {
            writer: Box::new(writer),
            number,
            file,
            hashes,
            entries,
        })
    }

    /// How many entries the inputs have in a part.
    fn count_entries(&self, job: &mut FoldJob, hashes: &Range<u64>) -> Result<u64> {
        if job.prefix_bits == 0 {
            let records = job
                .segments
                .iter()
                .map(|segment| segment.meta().counts.records);
            return Ok(records.sum());
        }
        let mut counts = ReadCounts::default();
        let mut entries = 0;
        for (part, range) in job
            .choice
            .inputs
            .iter()
            .flat_map(|run| overlaps(run, hashes))
        {
            let mut keeper = PageKeeper::default();
            let mut rank = |hash| part.rank(&self.files, KeyHash(hash), &mut keeper, &mut counts);
            let from = match hashes.start > range.start {
                true => rank(hashes.start)?,
                false => 0,
            };
            let to = match hashes.end < range.end {
                true => rank(hashes.end)?,
                false => part.meta().counts.records,
            };
            entries += to.saturating_sub(from);
        }
        self.counters.fold_reads.add(counts.reads);
        Ok(entries)
    }

    fn write_part(
        &self,
        buffers: &mut FoldBuffers,
        job: &mut FoldJob,
        (mut writer, hashes, left): (Box<PartWriter>, Range<u64>, u64),
        quantum: u32,
    ) -> Result<Step> {
        if left == 0 {
            let (output, memory) = writer.finish()?;
            buffers.part = memory;
            return Ok(Step::Ended(Box::new(output)));
        }
        let most = (self.settings.fold_bytes / size_of::<PackedEntry>() as u64) as usize;
        let wanted = (quantum as usize).saturating_mul(ENTRIES_PER_RECORD);
        let step_max = wanted.clamp(STEP_ENTRIES_MIN, most.max(STEP_ENTRIES_MIN));
        let width = hashes.end - hashes.start;
        // Hashes spread evenly; three quarters of the room, so that seldom too many come.
        let share = u128::from(width) * (step_max as u128 * 3 / 4) / u128::from(left);
        let mut taken = u64::try_from(share).unwrap_or(width).clamp(1, width);
        loop {
            let slice = hashes.start..hashes.start + taken;
            if self.gather(buffers, job, &slice, step_max, taken == 1)? {
                break;
            }
            taken /= 2;
        }
        let buffer = &mut buffers.entries;
        buffer.sort_unstable_by_key(Entry::unpack);
        if buffer.len() as u64 > left {
            return Err(self.miscounted(job));
        }
        for packed in buffer.iter() {
            writer.push(packed)?;
        }
        let left = left - buffer.len() as u64;
        let rest = hashes.start + taken..hashes.end;
        if rest.is_empty() && left > 0 {
            return Err(self.miscounted(job));
        }
        Ok(Step::Goes(writer, rest, left))
    }

    /// Gathers the entries of a slice from all inputs, with their new locations. False if they are more
    /// than `most`, unless `all` are to be taken.
    fn gather(
        &self,
        buffers: &mut FoldBuffers,
        job: &mut FoldJob,
        slice: &Range<u64>,
        most: usize,
        all: bool,
    ) -> Result<bool> {
        let FoldBuffers {
            entries: buffer,
            keepers,
            ..
        } = buffers;
        buffer.clear();
        let mut counts = ReadCounts::default();
        keepers.resize_with(
            job.choice.inputs.len().min(KEEPERS_MAX),
            PageKeeper::default,
        );
        let offset_bits = LOCATION_BITS - u32::from(job.ordinal_bits);
        let mut fits = true;
        for (place, input) in job.choice.inputs.iter().enumerate() {
            let segments = input.segments().len() as u64;
            let base = job.bases.get(place).copied().unwrap_or(0);
            let mut passing = PageKeeper::default();
            let keeper = keepers.get_mut(place).unwrap_or(&mut passing);
            for (part, range) in overlaps(input, slice) {
                let hashes = slice.start.max(range.start)..slice.end.min(range.end);
                let split = part.tail(&self.files, &mut counts)?.split();
                let mut misplaced = false;
                fits &= part.gather(&self.files, &hashes, keeper, &mut counts, |entry| {
                    let ordinal = split.ordinal(entry.location());
                    let units = split.offset_bytes(entry.location()) / UNIT_BYTES;
                    misplaced = ordinal >= segments || units >> offset_bits != 0;
                    if misplaced || (!all && buffer.len() == most) {
                        return false;
                    }
                    let location = (base + ordinal) << offset_bits | units;
                    let (class, tombstone) = (entry.size_class(), entry.tombstone());
                    buffer.push(Entry::new(entry.hash(), location, class, tombstone).pack());
                    true
                })?;
                if misplaced {
                    let what = "an entry that points outside its run";
                    return Err(Error::corruption("fold", part.name(), 0, what));
                }
            }
            if !fits {
                break;
            }
        }
        self.counters.fold_reads.add(counts.reads);
        Ok(fits)
    }

    /// An input has more or fewer entries than its footer says.
    fn miscounted(&self, job: &FoldJob) -> Error {
        let part = job
            .choice
            .inputs
            .first()
            .and_then(|run| run.parts().first());
        let name = part.map_or(FileName::MANIFEST, |part| part.name());
        Error::corruption("fold", name, 0, "the entries are not as many as announced")
    }

    fn fold_edit(&self, job: &FoldJob) -> Result<()> {
        let replaced = job.choice.replaced.iter().filter(|run| run.level() > 0);
        let dropped = replaced.flat_map(Run::parts).map(|part| Change::DropPart {
            number: part.number(),
        });
        // These, and which number is free.
        let room = dropped.clone().count() + job.outputs.len() + 1;
        let mut changes = Vec::with_capacity(room);
        changes.extend(dropped);
        let outputs = job.outputs.iter();
        changes.extend(outputs.map(|output| Change::AddSegment(output.meta.clone())));
        self.edit_manifest_with(|_| changes)
    }

    /// Closes the files that only the fold read: with many segments they would take as much memory as
    /// what is known of them.
    fn close_inputs(&self, job: &FoldJob) {
        for part in &job.opened {
            part.close_file(&self.files);
        }
    }

    /// Puts the new run in the version in place of the old ones. The edit is durable.
    fn install_fold(&self, job: FoldJob) {
        let FoldJob {
            choice,
            kind,
            segments,
            outputs,
            ..
        } = job;
        let parts = outputs.into_iter().map(|output| {
            let meta = self.named_meta(&output.meta);
            let part = Segment::with_tail(meta, self.hasher.clone(), output.tail);
            let part = Arc::new(part);
            self.open_ahead(&part, kind);
            part
        });
        let run = Folded::new(choice.level, kind, parts.collect(), segments);
        let run = Run::Folded(Arc::new(run));
        // What one of the old runs was asked the new one will be.
        let arrivals = choice.replaced.iter().map(arrivals_of).max().unwrap_or(0);
        for part in run.parts() {
            part.add_arrivals(arrivals / run.parts().len() as u64);
        }
        {
            let registry = self.registry.lock();
            let version = self.version.load().with_folded(&choice.replaced, run);
            debug_assert!(version.is_some(), "only folds replace runs");
            if let Some(version) = version {
                self.set_version(&registry, Arc::new(version));
            }
        }
        {
            // Each part of an old run goes before anything is loaded for the new one.
            let mut residency = self.residency.lock();
            let old = choice.replaced.iter().flat_map(Run::parts);
            let freed = old.filter(|part| residency.leave(part)).count();
            self.counters.filter_frees.add(freed as u64);
            self.publish_filters(&residency);
        }
        self.counters.folds.add(1);
        let mut maintenance = self.maintenance.lock();
        let folds = &mut maintenance.folds;
        for run in choice.replaced.iter().filter(|run| run.level() > 0) {
            folds.damaged.retain(|damaged| !damaged.is(run));
            folds.leaving.extend_from_slice(run.parts());
        }
    }

    /// Removes what was written. A damaged input is mended first, or left alone if it can't be: then true;
    /// anything else is tried again later.
    fn fold_failed(&self, job: FoldJob, error: &Error) -> bool {
        self.counters.fold_retries.add(1);
        self.close_inputs(&job);
        if self.poison.get().is_none() {
            for output in &job.outputs {
                self.discard(output.meta.name());
            }
        }
        let retry_at = self.retry_time();
        let mut maintenance = self.maintenance.lock();
        maintenance.folds.folding = false;
        if !is_damage(error) {
            maintenance.fold_retry_at = Some(retry_at);
            return false;
        }
        let folds = &mut maintenance.folds;
        let inputs = &job.choice.inputs;
        let of_part = |run: &&Run| {
            run.parts()
                .iter()
                .any(|part| Some(part.name()) == error.file())
        };
        match inputs.iter().find(of_part) {
            Some(run) if run.level() > 0 && !folds.hopeless.contains(&key_of(run)) => {
                push_damaged(folds, run);
            }
            _ if job.choice.replaced.len() == inputs.len() => {
                folds.given_up.extend(inputs.last().map(key_of));
            }
            // The run can't be made again: its segments answer for it.
            _ => give_up_damaged(folds),
        }
        true
    }

    /// A lookup met damage in a run's index: a job is to make it again.
    pub fn run_is_damaged(&self, run: &Run) {
        self.counters.damaged_indexes.add(1);
        if self.settings.read_only {
            return;
        }
        let mut maintenance = self.maintenance.lock();
        push_damaged(&mut maintenance.folds, run);
        drop(maintenance);
        self.work.0.raise();
    }
}

/// What became of a part in a step.
enum Step {
    Goes(Box<PartWriter>, Range<u64>, u64),
    Ended(Box<SegmentSummary>),
}

/// The filter alternatives of a folded run of so many segments.
const fn folded_filter_bits(segments: usize) -> &'static [u16] {
    match segments < OLD_SEGMENTS {
        true => &FILTER_BITS_YOUNG,
        false => &FILTER_BITS_OLD,
    }
}

/// The filter alternatives that a run's parts have, in bits a key.
pub(crate) fn filter_bits_of(run: &Run) -> &'static [u16] {
    match run.level() {
        0 => &FILTER_BITS_DEFAULT,
        _ => folded_filter_bits(run.segments().len()),
    }
}

/// Whether stored bytes are not as they were written.
pub(crate) fn is_damage(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Corruption | ErrorKind::MissingFile)
}

fn give_up_damaged(folds: &mut FoldQueue) {
    if !folds.damaged.is_empty() {
        let run = folds.damaged.remove(0);
        folds.hopeless.insert(key_of(&run));
    }
}

fn push_damaged(folds: &mut FoldQueue, run: &Run) {
    let known = folds.damaged.iter().any(|damaged| damaged.is(run));
    if !known && !folds.hopeless.contains(&key_of(run)) {
        folds.damaged.push(run.clone());
    }
}

fn key_of(run: &Run) -> RunKey {
    (run.kind().code(), run.level(), run.generations().0)
}
