//! Background jobs: what is runnable, and running a bounded quantum of one.
//!
//! `runnable` is pure in the engine's state and monotonic time (a failed job waits for its retry time);
//! the order of the list is fixed. Who steps the jobs is the driver's affair: threads (`worker`), the caller,
//! the simulator. A job in progress is not runnable a second time.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use crate::engine::Engine;
use crate::engine::fold::FoldQueue;
use crate::engine::states::QueuedGeneration;
use crate::env::{FileKind, FileName, IoErrorKind, io};
use crate::error::{Error, Result};
use crate::manifest::{Change, LogEntry};

/// Records per quantum when threads or a waiting writer run jobs.
pub(crate) const QUANTUM_DEFAULT: u32 = 1024;

/// A kind of background work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Job {
    /// Write, sync and publish what is queued.
    Commit,
    /// Write the oldest sealed generation to segments, or go on with it.
    Flush,
    /// Give back the memory of generations that no reader needs any more.
    Retire,
    /// Create a spare log that could not be allocated earlier.
    SpareLog,
    /// Remove a file that no manifest names.
    Unlink,
    /// Plan which filters are to be in memory, free one, or load one.
    LoadFilter,
    /// Fill the window table from the indexes of segments that were sealed before the opening.
    FillWindow,
    /// Write the manifest anew because it has grown.
    RollManifest,
    /// Make one index of the oldest runs of a level, or a damaged one again; or go on with it.
    Fold,
}

/// What a quantum did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Something, and there is more of it.
    Did,
    /// The unit of work came to its end.
    Finished,
    /// There was nothing to do.
    Nothing,
}

/// What the maintenance lock guards: queues and retry times, never held during I/O.
#[derive(Debug, Default)]
pub(crate) struct Maintenance {
    pub flush_queue: VecDeque<QueuedGeneration>,
    /// Whether the flush slot holds a job.
    pub flushing: bool,
    pub flush_retry_at: Option<Duration>,
    pub spare_retry_at: Option<Duration>,
    pub unlinks: VecDeque<FileName>,
    pub unlink_retry_at: Option<Duration>,
    pub filter_retry_at: Option<Duration>,
    pub window_retry_at: Option<Duration>,
    pub roll_wanted: bool,
    pub roll_retry_at: Option<Duration>,
    pub folds: FoldQueue,
    pub fold_retry_at: Option<Duration>,
    /// Jobs that a thread is at.
    busy: BTreeSet<Job>,
}

/// Marks a job as in progress until dropped.
struct Busy<'a> {
    engine: &'a Engine,
    job: Job,
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.engine.maintenance.lock().busy.remove(&self.job);
        self.engine.stepped.raise();
    }
}

impl Engine {
    /// All jobs that could run now, in the order in which a driver should take them.
    pub fn runnable(&self) -> Vec<Job> {
        self.jobs(self.has_queued()).0
    }

    /// The runnable jobs, and whether a thread is at one at the same moment.
    pub fn jobs(&self, commit: bool) -> (Vec<Job>, bool) {
        let mut jobs = Vec::new();
        // A read-only store has nothing to write, but filters to load like any other.
        if self.is_closed() {
            return (jobs, false);
        }
        let now = self.env.clock.monotonic();
        let poisoned = self.poison.get().is_some();
        if commit {
            jobs.push(Job::Commit);
        }
        let retire = self.can_retire();
        let spare = self.spare_wanted();
        let filter = self.filter_wanted();
        let window = self.window_fills();
        let fold = self.fold_wanted();
        let maintenance = self.maintenance.lock();
        let due = |at: Option<Duration>| at.is_none_or(|at| at <= now);
        let flush = maintenance.flushing || !maintenance.flush_queue.is_empty();
        if flush && !poisoned && due(maintenance.flush_retry_at) {
            jobs.push(Job::Flush);
        }
        if retire {
            jobs.push(Job::Retire);
        }
        if spare && !flush && !poisoned && due(maintenance.spare_retry_at) {
            jobs.push(Job::SpareLog);
        }
        let unlink = !maintenance.unlinks.is_empty() || maintenance.folds.has_released();
        if unlink && !poisoned && due(maintenance.unlink_retry_at) {
            jobs.push(Job::Unlink);
        }
        // A load that failed may wait, but not what pressure takes away.
        if filter && (due(maintenance.filter_retry_at) || self.filters_lag()) {
            jobs.push(Job::LoadFilter);
        }
        if window && due(maintenance.window_retry_at) {
            jobs.push(Job::FillWindow);
        }
        if maintenance.roll_wanted && !poisoned && due(maintenance.roll_retry_at) {
            jobs.push(Job::RollManifest);
        }
        if fold && !poisoned && due(maintenance.fold_retry_at) {
            jobs.push(Job::Fold);
        }
        jobs.retain(|job| !maintenance.busy.contains(job));
        (jobs, !maintenance.busy.is_empty())
    }

    /// When the next waiting retry is due.
    pub fn next_due(&self) -> Option<Duration> {
        if self.poison.get().is_some() {
            return None;
        }
        let maintenance = self.maintenance.lock();
        let now = self.env.clock.monotonic();
        [
            maintenance.flush_retry_at,
            maintenance.spare_retry_at,
            maintenance.unlink_retry_at,
            maintenance.filter_retry_at,
            maintenance.window_retry_at,
            maintenance.roll_retry_at,
            maintenance.fold_retry_at,
        ]
        .into_iter()
        .flatten()
        .filter(|at| *at > now)
        .min()
    }

    /// Runs at most about `quantum` records' worth of a job.
    pub fn run(&self, job: Job, quantum: u32) -> Result<Progress> {
        let _gate = self.gate.read();
        self.check_open("maintenance")?;
        self.look_at_pressure();
        if !self.maintenance.lock().busy.insert(job) {
            return Ok(Progress::Nothing);
        }
        let busy = Busy { engine: self, job };
        let result = self.run_job(job, quantum);
        drop(busy);
        if !matches!(result, Ok(Progress::Did | Progress::Nothing)) {
            // What ended or failed may leave another job, or a time to try again, to the threads.
            self.work.0.raise();
        }
        result
    }

    fn run_job(&self, job: Job, quantum: u32) -> Result<Progress> {
        let reads = matches!(job, Job::LoadFilter | Job::FillWindow);
        let writes = !reads && !matches!(job, Job::Commit | Job::Retire);
        if let Some(cause) = self.poison.get().filter(|_| writes) {
            return Err(cause.clone());
        }
        match job {
            Job::Commit => Ok(if self.commit_step()? {
                Progress::Finished
            } else {
                Progress::Nothing
            }),
            Job::Flush => self.run_flush(quantum),
            Job::Retire => {
                let mut slot = self.flush.lock();
                let retired = self.retire_what_can(&mut slot);
                Ok(if retired {
                    Progress::Finished
                } else {
                    Progress::Nothing
                })
            }
            Job::SpareLog => self.run_spare(),
            Job::Unlink => self.run_unlink(),
            Job::LoadFilter => self.run_load_filter(quantum),
            Job::FillWindow => self.run_fill_window(quantum),
            Job::RollManifest => self.run_roll(),
            Job::Fold => self.run_fold(quantum),
        }
    }

    fn run_flush(&self, quantum: u32) -> Result<Progress> {
        {
            let mut maintenance = self.maintenance.lock();
            if !maintenance.flushing && maintenance.flush_queue.is_empty() {
                return Ok(Progress::Nothing);
            }
            maintenance.flush_retry_at = None;
        }
        Ok(if self.flush_step(quantum)? {
            Progress::Finished
        } else {
            Progress::Did
        })
    }

    fn run_fold(&self, quantum: u32) -> Result<Progress> {
        if !self.fold_wanted() {
            return Ok(Progress::Nothing);
        }
        self.maintenance.lock().fold_retry_at = None;
        Ok(match self.fold_step(quantum)? {
            true => Progress::Finished,
            false => Progress::Did,
        })
    }

    fn can_retire(&self) -> bool {
        let registry = self.registry.lock();
        registry
            .lingering
            .iter()
            .any(|handle| !self.must_linger(&registry, handle))
    }

    fn spare_wanted(&self) -> bool {
        let commit = self.commit.lock();
        commit.spares_missing > 0 && commit.spares.len() <= self.settings.queue_slots as usize
    }

    fn run_spare(&self) -> Result<Progress> {
        // A flush makes a spare of its own: one at a time, so that logs are used in the order of their
        // numbers.
        let slot = self.flush.lock();
        if slot.current.is_some() || !self.spare_wanted() {
            return Ok(Progress::Nothing);
        }
        self.maintenance.lock().spare_retry_at = None;
        let spare = match self.create_spare() {
            Ok(spare) => spare,
            Err(error) => {
                self.spare_failed(&error);
                return Err(error);
            }
        };
        let name = FileName::log(spare.number);
        let named = io::uninterrupted(|| spare.file.sync_data())
            .map_err(|cause| Error::io("rotate", name, cause))
            .and_then(|()| self.sync_directory("rotate"))
            .and_then(|()| {
                self.edit_manifest(&[Change::AddLog(LogEntry::spare(
                    spare.number,
                    self.incarnation,
                ))])
            });
        if let Err(error) = named {
            self.discard(name);
            self.spare_failed(&error);
            return Err(error);
        }
        let mut commit = self.commit.lock();
        commit.spares.push_back(spare);
        commit.spare_failure = None;
        commit.spares_missing = commit.spares_missing.saturating_sub(1);
        drop(commit);
        self.progress.raise();
        Ok(Progress::Finished)
    }

    fn run_unlink(&self) -> Result<Progress> {
        let name = {
            let mut maintenance = self.maintenance.lock();
            maintenance.unlink_retry_at = None;
            let released = maintenance.folds.take_released();
            maintenance.unlinks.extend(released);
            match maintenance.unlinks.pop_front() {
                Some(name) => name,
                None => return Ok(Progress::Nothing),
            }
        };
        if matches!(name.kind, FileKind::Segment | FileKind::Run) {
            self.files.invalidate(name);
        }
        match io::uninterrupted(|| self.env.vfs.unlink(name)) {
            Ok(()) => self.counters.unlinks.add(1),
            Err(cause) if cause.kind == IoErrorKind::NotFound => {}
            Err(cause) => {
                self.counters.unlink_failures.add(1);
                let retry_at = self.retry_time();
                let mut maintenance = self.maintenance.lock();
                maintenance.unlinks.push_back(name);
                maintenance.unlink_retry_at = Some(retry_at);
                return Err(Error::io("unlink", name, cause));
            }
        }
        Ok(Progress::Finished)
    }

    fn run_load_filter(&self, quantum: u32) -> Result<Progress> {
        self.maintenance.lock().filter_retry_at = None;
        self.filter_step(quantum).inspect_err(|_| {
            self.maintenance.lock().filter_retry_at = Some(self.retry_time());
        })
    }

    fn run_fill_window(&self, quantum: u32) -> Result<Progress> {
        self.maintenance.lock().window_retry_at = None;
        self.fill_window(quantum).inspect_err(|_| {
            self.maintenance.lock().window_retry_at = Some(self.retry_time());
        })
    }

    fn run_roll(&self) -> Result<Progress> {
        let mut manifest = self.manifest.lock();
        let Some(writer) = manifest
            .as_mut()
            .filter(|writer| writer.wants_roll(self.settings.manifest_roll_bytes))
        else {
            self.maintenance.lock().roll_wanted = false;
            return Ok(Progress::Nothing);
        };
        if let Err(error) = writer.roll(&*self.env.vfs) {
            if writer.failure().is_none() {
                self.maintenance.lock().roll_retry_at = Some(self.retry_time());
                return Err(error);
            }
            return Err(self.poison(&error));
        }
        self.counters.manifest_rolls.add(1);
        let mut maintenance = self.maintenance.lock();
        maintenance.roll_wanted = false;
        maintenance.roll_retry_at = None;
        Ok(Progress::Finished)
    }

    /// Runs the first runnable job; false if there is none. Errors leave their mark in retry times and
    /// poison, and are returned.
    pub fn run_first(&self, quantum: u32) -> Result<bool> {
        match self.runnable().first() {
            Some(job) => self.run(*job, quantum).map(|_| true),
            None => Ok(false),
        }
    }

    /// Runs jobs until none is runnable and no thread is at one.
    pub fn drain(&self, quantum: u32) -> Result<()> {
        loop {
            let seen = self.stepped.count();
            match self.jobs(self.has_queued()) {
                (jobs, busy) if jobs.is_empty() => match busy {
                    false => return Ok(()),
                    true => self.env.clock.wait(&self.stepped, seen, None),
                },
                (jobs, _) => {
                    if let Some(job) = jobs.first() {
                        self.run(*job, quantum)?;
                    }
                }
            }
        }
    }
}
