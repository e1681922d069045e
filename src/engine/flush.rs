//! The flush of one sealed generation: segments, barriers, one manifest edit, installation.
//!
//! Steps, each bounded: write a segment per kind -> sync it -> create the next spare log and sync it ->
//! sync the directory -> one manifest edit, synced -> install. With the sync of the old log at its seal
//! that is five barriers a seal, six when there are records of both kinds.
//!
//! Crash argument: the segment and the spare, with their names, are durable before the edit names them;
//! the old log is unlinked, by a job, only after the edit that drops it is durable. A crash in between
//! leaves files numbered at or above the manifest's next number, which the next open removes.
//!
//! A failed segment write or sync removes its output and is tried again later under a new number; a
//! failed directory sync or manifest write poisons the store.

use std::time::Duration;

use crate::engine::states::{FlushedGeneration, FlushingGeneration, QueuedGeneration, Sealed};
use crate::engine::version::Run;
use crate::engine::{Engine, SpareLog};
use crate::env::{File, FileName, IoErrorKind, io};
use crate::error::{Error, ErrorKind, Result};
use crate::filter::ResidentFilter;
use crate::flush::KindFlush;
use crate::log;
use crate::manifest::{Change, LogEntry, ManifestState};
use crate::options::Settings;
use crate::segment::{
    PackedMeta, Segment, SegmentIdentity, SegmentMeta, SegmentScratch, SegmentSummary,
    SegmentWriter, Tail,
};
use crate::sync::{Arc, Ordering};
use crate::types::KeyspaceKind;

/// What the flush lock guards.
#[derive(Debug, Default)]
pub(crate) struct FlushSlot {
    pub current: Option<FlushJob>,
    /// The segment writer's buffers between two segments.
    pub scratch: Option<SegmentScratch>,
    /// Installed generations whose memory lingers, oldest first.
    pub flushed: Vec<FlushedGeneration>,
}

/// A segment that is whole.
#[derive(Debug)]
pub(crate) struct Output {
    pub meta: SegmentMeta,
    pub filter: Option<ResidentFilter>,
    pub tail: Tail,
}

impl Output {
    pub fn of(summary: SegmentSummary) -> Self {
        let SegmentSummary { meta, tail, filter } = summary;
        Self { meta, filter, tail }
    }
}

#[derive(Debug)]
enum Phase {
    /// Begins with the kind of this code, or goes on to the spare log.
    Begin(usize),
    Write {
        kind: usize,
        number: u64,
        file: Arc<dyn File>,
        merge: Box<KindFlush>,
    },
    /// Entries of the finished segment go to the window table.
    Window {
        kind: usize,
        file: Arc<dyn File>,
        output: Box<Output>,
        done: usize,
    },
    Sync {
        kind: usize,
        file: Arc<dyn File>,
        output: Box<Output>,
    },
    Spare,
    SyncSpare(SpareLog),
    SyncDirectory,
    Edit,
}

/// The flush in progress.
#[derive(Debug)]
pub(crate) struct FlushJob {
    generation: FlushingGeneration,
    phase: Phase,
    outputs: Vec<Output>,
    spare: Option<SpareLog>,
    /// There was no room for the spare: the job of that name owes it.
    spare_missing: bool,
    /// Entries that the window table took.
    window_entries: u64,
}

impl FlushJob {
    fn new(queued: QueuedGeneration) -> Self {
        Self {
            generation: queued.start(),
            phase: Phase::Begin(0),
            outputs: Vec::with_capacity(KeyspaceKind::ALL.len()),
            spare: None,
            spare_missing: false,
            window_entries: 0,
        }
    }
}

impl FlushJob {
    /// The files that it has open.
    pub fn descriptors(&self, names: &mut Vec<FileName>) {
        match &self.phase {
            Phase::Write { number, .. } => names.push(FileName::segment(*number)),
            Phase::Window { output, .. } | Phase::Sync { output, .. } => {
                names.push(FileName::segment(output.meta.number))
            }
            Phase::SyncSpare(spare) => names.push(FileName::log(spare.number)),
            Phase::Begin(_) | Phase::Spare | Phase::SyncDirectory | Phase::Edit => {}
        }
        names.extend(self.spare.iter().map(|spare| FileName::log(spare.number)));
    }
}

impl Engine {
    /// The leader hands a generation over: all its commits are published and its log is synced.
    pub fn queue_for_flush(&self, sealed: Sealed) {
        self.counters.seals.add(1);
        self.maintenance
            .lock()
            .flush_queue
            .push_back(sealed.queue());
    }

    /// Runs one bounded step of the flush; true when a generation was installed by it.
    pub fn flush_step(&self, quantum: u32) -> Result<bool> {
        let mut slot = self.flush.lock();
        if slot.current.is_none() {
            let Some(next) = self.maintenance.lock().flush_queue.pop_front() else {
                return Ok(false);
            };
            slot.current = Some(FlushJob::new(next));
            self.maintenance.lock().flushing = true;
        }
        let Some(mut job) = slot.current.take() else {
            return Ok(false);
        };
        let phase = std::mem::replace(&mut job.phase, Phase::Begin(0));
        match self.flush_phase(&mut slot.scratch, &mut job, phase, quantum) {
            Ok(Some(phase)) => {
                job.phase = phase;
                slot.current = Some(job);
                Ok(false)
            }
            Ok(None) => {
                let flushed = self.install(job);
                slot.flushed.push(flushed);
                self.maintenance.lock().flushing = false;
                self.retire_what_can(&mut slot);
                // Also without a retirement: there is a spare log again.
                self.progress.raise();
                Ok(true)
            }
            Err(error) => {
                self.flush_failed(&mut job);
                slot.current = Some(job);
                Err(error)
            }
        }
    }

    fn flush_phase(
        &self,
        scratch: &mut Option<SegmentScratch>,
        job: &mut FlushJob,
        phase: Phase,
        quantum: u32,
    ) -> Result<Option<Phase>> {
        Ok(Some(match phase {
            Phase::Begin(code) => match KeyspaceKind::from_code(code as u8) {
                None => Phase::Spare,
                Some(kind) if job.generation.memory().counts(kind).records() == 0 => {
                    Phase::Begin(code + 1)
                }
                Some(kind) => self.flush_begin(scratch, job, kind)?,
            },
            Phase::Write {
                kind,
                number,
                file,
                mut merge,
            } => {
                let step = merge.step(quantum);
                match step {
                    Ok(None) => Phase::Write {
                        kind,
                        number,
                        file,
                        merge,
                    },
                    Ok(Some(summary)) => {
                        self.counters.output_copied_bytes.add(merge.copied_bytes());
                        *scratch = Some(merge.into_scratch());
                        Phase::Window {
                            kind,
                            file,
                            output: Box::new(Output::of(summary)),
                            done: 0,
                        }
                    }
                    Err(error) => {
                        *scratch = Some(merge.into_scratch());
                        self.discard(FileName::segment(number));
                        return Err(error);
                    }
                }
            }
            Phase::Window {
                kind,
                file,
                output,
                done,
            } => {
                let entries = scratch.as_ref().map_or(&[][..], SegmentScratch::entries);
                let taken = self.feed_window(&output.meta, entries, done, quantum);
                job.window_entries += taken as u64;
                match taken {
                    0 => Phase::Sync { kind, file, output },
                    _ => Phase::Window {
                        kind,
                        file,
                        output,
                        done: done + taken,
                    },
                }
            }
            Phase::Sync { kind, file, output } => {
                let name = FileName::segment(output.meta.number);
                if let Err(cause) = io::uninterrupted(|| file.sync_data()) {
                    self.discard(name);
                    return Err(Error::io("flush", name, cause));
                }
                self.counters.flush_syncs.add(1);
                job.outputs.push(*output);
                Phase::Begin(kind + 1)
            }
            Phase::Spare => self.flush_spare(job)?,
            Phase::SyncSpare(spare) => {
                let name = FileName::log(spare.number);
                if let Err(cause) = io::uninterrupted(|| spare.file.sync_data()) {
                    self.discard(name);
                    return Err(Error::io("flush", name, cause));
                }
                self.counters.flush_syncs.add(1);
                job.spare = Some(spare);
                Phase::SyncDirectory
            }
            Phase::SyncDirectory => {
                self.sync_directory("flush")?;
                Phase::Edit
            }
            Phase::Edit => {
                self.flush_edit(job)?;
                return Ok(None);
            }
        }))
    }

    fn flush_begin(
        &self,
        scratch: &mut Option<SegmentScratch>,
        job: &FlushJob,
        kind: KeyspaceKind,
    ) -> Result<Phase> {
        let number = self.take_number();
        let name = FileName::segment(number);
        let create = || io::uninterrupted(|| self.env.vfs.create_new(name));
        let file = self
            .files
            .spare_one_for(create)
            .map_err(|cause| Error::io("flush", name, cause))?;
        let generation = job.generation.handle();
        let identity = self.segment_identity(generation.number, kind);
        let scratch = scratch.take().unwrap_or_else(|| self.new_scratch());
        let parameters = self.parameters.clone();
        let writer = SegmentWriter::new(file.clone(), name, identity, parameters, scratch)
            .inspect_err(|_| self.discard(name))?;
        let merge = Box::new(KindFlush::new(
            job.generation.memory().clone(),
            kind,
            writer,
        ));
        Ok(Phase::Write {
            kind: usize::from(kind.code()),
            number,
            file,
            merge,
        })
    }

    /// The buffers that the scratch permit stands for.
    pub fn new_scratch(&self) -> SegmentScratch {
        let Settings {
            seal_records,
            batch_records_max,
            key_fence_bytes,
            output_buffer_bytes,
            ..
        } = self.settings;
        SegmentScratch::new(
            u64::from(seal_records.max(batch_records_max)),
            self.sizes.segment_bytes,
            key_fence_bytes,
            output_buffer_bytes as usize,
        )
    }

    /// Who the segment of one generation and kind is, in every replica.
    pub fn segment_identity(&self, generation: u64, kind: KeyspaceKind) -> SegmentIdentity {
        SegmentIdentity {
            family_id: self.family_id,
            generation_lo: generation,
            generation_hi: generation,
            kind,
            level: 0,
            part: 0,
        }
    }

    /// Creates the spare log that replaces the one whose frames the segments now hold. Without room for
    /// it the flush goes on: writers are refused only once no spare is left.
    fn flush_spare(&self, job: &mut FlushJob) -> Result<Phase> {
        job.spare_missing = false;
        if self.commit.lock().spares.len() > self.settings.queue_slots as usize {
            return Ok(Phase::SyncDirectory);
        }
        match self.create_spare() {
            Ok(spare) => Ok(Phase::SyncSpare(spare)),
            Err(error) if *error.kind() == ErrorKind::NoSpace => {
                self.spare_failed(&error);
                job.spare_missing = true;
                Ok(Phase::SyncDirectory)
            }
            Err(error) => Err(error),
        }
    }

    /// A log file with a header and its space allocated, neither synced nor named.
    pub fn create_spare(&self) -> Result<SpareLog> {
        let number = self.take_number();
        let identity = self.log_identity(number);
        let create = || log::create(&*self.env.vfs, &identity, self.sizes.log_bytes);
        match self.files.spare_one_for(create) {
            Ok(file) => Ok(SpareLog { number, file }),
            Err(cause) => {
                self.discard(FileName::log(number));
                Err(Error::io("rotate", FileName::log(number), cause))
            }
        }
    }

    pub fn spare_failed(&self, error: &Error) {
        self.commit.lock().spare_failure = Some(error.clone());
        self.maintenance.lock().spare_retry_at = Some(self.retry_time());
    }

    pub fn retry_time(&self) -> Duration {
        let now = self.env.clock.monotonic();
        now.saturating_add(self.settings.retry_delay)
    }

    /// Makes names durable; a failure poisons.
    pub fn sync_directory(&self, operation: &'static str) -> Result<()> {
        io::uninterrupted(|| self.env.vfs.sync_dir()).map_err(|cause| {
            let error = Error::io_dir(operation, cause);
            self.poison(&error)
        })
    }

    fn flush_edit(&self, job: &mut FlushJob) -> Result<()> {
        let generation = job.generation.handle();
        // These two, the spare log and its number, the dropped log, and a segment or two.
        let mut changes = Vec::with_capacity(5 + job.outputs.len());
        changes.push(Change::NextGeneration(generation.number + 1));
        changes.push(Change::FlushedThrough(generation.last_sequence()));
        changes.extend(
            job.outputs
                .iter()
                .map(|output| Change::AddSegment(output.meta.clone())),
        );
        if let Some(spare) = &job.spare {
            changes.push(Change::AddLog(LogEntry::spare(
                spare.number,
                self.incarnation,
            )));
        }
        changes.push(Change::DropLog {
            number: generation.log_number,
        });
        self.edit_manifest_with(|_| changes)
    }

    /// One synced edit; rolls the manifest when it has grown. A failed write or sync poisons; `NoSpace`
    /// from allocation has no effect and does not.
    pub fn edit_manifest(&self, changes: &[Change]) -> Result<()> {
        self.edit_manifest_with(|_| changes.to_vec())
    }

    /// The same with changes that depend on the state they are made to. Where files are named, the edit
    /// also says which number is free now.
    pub fn edit_manifest_with(
        &self,
        changes: impl FnOnce(&ManifestState) -> Vec<Change>,
    ) -> Result<()> {
        if let Some(cause) = self.poison.get() {
            return Err(cause.clone());
        }
        let mut manifest = self.manifest.lock();
        let Some(writer) = manifest.as_mut() else {
            return Err(Error::new(
                ErrorKind::Closed,
                "manifest",
                "the store is closed",
            ));
        };
        let mut changes = changes(writer.state());
        let names = |change: &Change| matches!(change, Change::AddLog(_) | Change::AddSegment(_));
        if changes.iter().any(names) {
            // Asked under the lock: between two edits on their way an older number must not come second.
            let next = self.next_number.load(Ordering::Relaxed);
            changes.insert(0, Change::NextNumber(next));
        }
        match writer.append(&changes) {
            Ok(()) => {
                self.counters.manifest_edits.add(1);
                if writer.wants_roll(self.settings.manifest_roll_bytes) {
                    self.maintenance.lock().roll_wanted = true;
                    self.work.0.raise();
                }
            }
            Err(error) if *error.kind() == ErrorKind::NoSpace && writer.failure().is_none() => {
                return Err(error);
            }
            Err(error) => return Err(self.poison(&error)),
        }
        Ok(())
    }

    /// Puts the runs in the version in place of the generation. The edit is durable.
    fn install(&self, job: FlushJob) -> FlushedGeneration {
        let FlushJob {
            generation,
            outputs,
            spare,
            spare_missing,
            window_entries,
            ..
        } = job;
        let records = outputs.iter().map(|output| output.meta.counts.records);
        // Before anybody finds the runs: the table covers all runs of every version.
        self.publish_window(
            generation.handle().number,
            records.sum::<u64>() == window_entries,
        );
        let mut segments = Vec::with_capacity(outputs.len());
        for output in outputs {
            let meta = self.named_meta(&output.meta);
            let hasher = self.hasher.clone();
            let segment = Arc::new(Segment::with_tail(meta, hasher, output.tail));
            self.open_ahead(&segment, output.meta.identity.kind);
            segments.push((segment, output.filter));
            self.counters.flushed_segments.add(1);
        }
        let handle = generation.handle().clone();
        handle.install(
            segments
                .iter()
                .map(|(s, _)| Run::of_segment(s.clone()))
                .collect(),
        );
        if let Some(spare) = spare {
            let mut commit = self.commit.lock();
            commit.spares.push_back(spare);
            commit.spare_failure = None;
        }
        if spare_missing {
            self.commit.lock().spares_missing += 1;
        }
        {
            let mut registry = self.registry.lock();
            let version = self.version.load().with_installed(&handle);
            self.set_version(&registry, Arc::new(version));
            registry.lingering.push(handle.clone());
        }
        {
            let mut residency = self.residency.lock();
            for (segment, filter) in segments {
                if let Some(filter) = filter {
                    let (version, counted) = (self.version.load(), self.counters.sampled.get());
                    let freed = residency.admit(&version, &segment, Arc::new(filter), counted);
                    self.counters.filter_frees.add(freed);
                }
            }
            self.publish_filters(&residency);
        }
        self.maintenance
            .lock()
            .unlinks
            .push_back(FileName::log(handle.log_number));
        self.fill_blanks();
        generation.flushed()
    }

    /// Opens the file of a new write-once segment: checks read it inside of writes, which are to take nothing
    /// from the heap. Others wait for a reader.
    pub fn open_ahead(&self, segment: &Arc<Segment>, kind: KeyspaceKind) {
        if kind == KeyspaceKind::WriteOnce {
            self.files.open_ahead(segment);
        }
    }

    /// What the manifest says of a segment that it names, as the manifest holds it.
    pub fn named_meta(&self, meta: &SegmentMeta) -> PackedMeta {
        let manifest = self.manifest.lock();
        let state = manifest.as_ref().map(|writer| writer.state());
        let named = state.and_then(|state| state.segment(meta.number));
        named.cloned().unwrap_or_else(|| meta.pack())
    }

    /// Retires every installed generation that no pin needs, oldest first.
    pub fn retire_what_can(&self, slot: &mut FlushSlot) -> bool {
        let mut retired = false;
        let mut kept = Vec::new();
        for flushed in slot.flushed.drain(..) {
            let mut registry = self.registry.lock();
            if self.must_linger(&registry, flushed.handle()) {
                kept.push(flushed);
                continue;
            }
            let (memory, handle) = flushed.retire();
            registry
                .lingering
                .retain(|other| !Arc::ptr_eq(other, &handle));
            self.retired_through
                .fetch_max(handle.last_sequence(), Ordering::AcqRel);
            drop(registry);
            self.keep_retired(memory, handle);
            retired = true;
        }
        slot.flushed = kept;
        if retired {
            self.progress.raise();
        }
        retired
    }

    /// Whether a generation has to stay in memory although its runs are installed.
    pub fn must_linger(
        &self,
        registry: &crate::engine::registry::Registry,
        handle: &crate::engine::version::Generation,
    ) -> bool {
        match handle.memory().as_ref() {
            Some(memory) => registry.holds > 0 || registry.pin_of(handle, memory).is_some(),
            None => false,
        }
    }

    /// Removes an output that no manifest names, now or by a job.
    pub fn discard(&self, name: FileName) {
        if self.poison.get().is_some() {
            return;
        }
        match io::uninterrupted(|| self.env.vfs.unlink(name)) {
            Ok(()) => {}
            Err(cause) if cause.kind == IoErrorKind::NotFound => {}
            Err(_) => self.maintenance.lock().unlinks.push_back(name),
        }
    }

    /// Starts the generation over later: what was written is unnamed and goes.
    fn flush_failed(&self, job: &mut FlushJob) {
        self.counters.flush_retries.add(1);
        if self.poison.get().is_none() {
            for output in job.outputs.drain(..) {
                self.discard(FileName::segment(output.meta.number));
            }
            if let Some(spare) = job.spare.take() {
                self.discard(FileName::log(spare.number));
            }
        }
        job.phase = Phase::Begin(0);
        job.window_entries = 0;
        self.maintenance.lock().flush_retry_at = Some(self.retry_time());
    }
}
