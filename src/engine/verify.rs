//! Verification of a whole store: the manifest, then the logs, then the segments and the indexes over them.
//!
//! * Every file is checked for itself: damage in one is listed and the next one is read.
//! * Memory: one log window, one commit, one segment's buffers, and the list of damage, which is cut at
//!   [`DAMAGE_MAX`].
//! * A *stored* verification goes by the manifest on disk and expects that nobody writes: the lock is
//!   held, by a read-only store or for the purpose. It accepts and refuses what an open would, torn
//!   tails among the accepted, since they hold nothing that was promised.
//! * A *live* verification runs beside a writer and goes by what the store has in memory. Files that it
//!   reads may be growing: the manifest is read under its lock, and logs up to the last commit that was
//!   visible at the start, which is whole in its file by then. A log that a flush replaces by segments
//!   meanwhile is passed over; those segments are for the next verification.

use crate::engine::Engine;
use crate::engine::open::{check_unnamed_logs, list, take_lock};
use crate::engine::recovery::{check_named, decode_ops, log_identity};
use crate::engine::version::{Generation, Run};
use crate::env::{Env, FileName, IoErrorKind, LockMode, OpenMode, io};
use crate::error::{Error, ErrorKind, Result};
use crate::log::{self, LOG_HEADER_BYTES, LogExpectation, LogIdentity, LogReader, Tail};
use crate::manifest::{self, KeyspaceEntry, LogEntry, ManifestState};
use crate::segment::{self, FileTable, Segment};
use crate::sync::Arc;
use crate::types::{HASH_BITS, Hasher, KeyspaceKind, Sequence};
use crate::verify::{Damage, VerifyProgress, VerifyReport};

const OPERATION: &str = "verify";

/// Most damages listed; the rest is counted.
const DAMAGE_MAX: usize = 10_000;

/// A log and what it must hold.
struct LogPlan {
    identity: LogIdentity,
    /// The sequence of its first commit.
    first: Sequence,
    /// The manifest's mark for it.
    durable_through: Sequence,
    /// Live: the last commit to read. Stored: none, the log is read to its end.
    through: Option<Sequence>,
}

/// How far a log was found to be whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LogEnd {
    /// Sealed after the commit before this one.
    Sealed(Sequence),
    /// It ends, or was left, before this commit, without a seal.
    Unsealed(Sequence),
    /// Damage hides it.
    Unknown,
}

/// A verification under way.
struct Verification<'a> {
    env: &'a Env,
    hasher: Arc<Hasher>,
    /// Those that the manifest names, by id.
    keyspaces: Vec<KeyspaceEntry>,
    report: VerifyReport,
    progress: &'a mut dyn FnMut(VerifyProgress),
    seen: VerifyProgress,
    /// Bytes of the files that are done.
    done_bytes: u64,
}

/// Verifies a store that is not open.
pub(crate) fn verify_closed(
    env: &Env,
    progress: &mut dyn FnMut(VerifyProgress),
) -> Result<VerifyReport> {
    let mut verification = Verification::new(env, progress);
    let _lock = match take_lock(env, false, LockMode::Shared) {
        Ok(lock) => lock,
        // There are files of a store, but no manifest that says which.
        Err(error) if error.file() == Some(FileName::MANIFEST) => {
            verification.absorb(FileName::MANIFEST, &error)?;
            return Ok(verification.report);
        }
        Err(error) => return Err(error),
    };
    let descriptors_max = env.vfs.descriptor_limit() / 4 * 3;
    let files = FileTable::new(env.vfs.clone(), descriptors_max);
    verification.stored(&files)?;
    Ok(verification.report)
}

impl Engine {
    /// Verifies the open store.
    pub fn verify(&self, progress: &mut dyn FnMut(VerifyProgress)) -> Result<VerifyReport> {
        self.check_open(OPERATION)?;
        let mut verification = Verification::new(&self.env, progress);
        if self.settings.read_only {
            verification.stored(&self.files)?;
        } else {
            self.verify_live(&mut verification)?;
        }
        Ok(verification.report)
    }

    fn verify_live(&self, verification: &mut Verification<'_>) -> Result<()> {
        verification.hasher = self.hasher.clone();
        // In this order: whatever the bound admits, the version names.
        let version = self.version.load_full();
        let bound = self.visible();
        verification.keyspaces = self.keyspaces.lock().values().cloned().collect();
        verification.keyspaces.sort_by_key(|entry| entry.id);
        let holds = |generation: &&Arc<Generation>| generation.after_sequence < bound;
        let generations: Vec<_> = version.generations.iter().rev().filter(holds).collect();
        let names = generations
            .iter()
            .map(|generation| FileName::log(generation.log_number));
        let runs: Vec<_> = version
            .runs
            .iter()
            .flat_map(|runs| runs.iter().rev())
            .collect();
        let names: Vec<_> = std::iter::once(FileName::MANIFEST).chain(names).collect();
        verification.begin(&names, runs.iter().copied());
        let logs = self.verify_live_manifest(verification)?;
        for generation in generations {
            self.check_open(OPERATION)?;
            self.verify_live_log(verification, generation, &logs, bound)?;
        }
        for run in runs {
            verification.run(run, &self.files, &|| self.check_open(OPERATION))?;
        }
        Ok(())
    }

    /// Reads the manifest while no edit can be under way; returns the logs that it names.
    fn verify_live_manifest(&self, verification: &mut Verification<'_>) -> Result<Vec<LogEntry>> {
        let manifest = self.manifest.lock();
        let read = manifest::read(&*self.env.vfs);
        let Some(writer) = manifest.as_ref() else {
            return Err(Error::new(ErrorKind::Closed, OPERATION, ""));
        };
        let logs = writer.state().logs.clone();
        match read {
            Ok(Some(read)) => {
                // After a failed write the file may hold more than the store goes by.
                if writer.failure().is_none() && read.state != *writer.state() {
                    let what = "it holds another state than the one that was written";
                    verification.damage(FileName::MANIFEST, read.valid_bytes, what.to_owned());
                }
                verification.end_named(FileName::MANIFEST, read.valid_bytes);
            }
            Ok(None) => verification.missing(FileName::MANIFEST),
            Err(error) => {
                verification.absorb(FileName::MANIFEST, &error)?;
                verification.end_named(FileName::MANIFEST, 0);
            }
        }
        Ok(logs)
    }

    fn verify_live_log(
        &self,
        verification: &mut Verification<'_>,
        generation: &Generation,
        logs: &[LogEntry],
        bound: Sequence,
    ) -> Result<()> {
        let named = logs.iter().find(|log| log.number == generation.log_number);
        let through = bound.min(generation.last_sequence());
        let plan = LogPlan {
            identity: self.log_identity(generation.log_number),
            first: generation.after_sequence + 1,
            durable_through: named.map_or(0, |log| log.durable_through),
            through: Some(through),
        };
        let name = plan.identity.name();
        match verification.read_log(&plan) {
            Ok(LogEnd::Sealed(next) | LogEnd::Unsealed(next)) if next <= through => {
                let what = format!("commits {next} to {through} are not in it any more");
                verification.damage(name, LOG_HEADER_BYTES, what);
            }
            Ok(_) => {}
            Err(_) if generation.is_installed() => {}
            Err(error) => verification.absorb(name, &error)?,
        }
        verification.end_named(name, 0);
        Ok(())
    }
}

impl<'a> Verification<'a> {
    fn new(env: &'a Env, progress: &'a mut dyn FnMut(VerifyProgress)) -> Self {
        Self {
            env,
            hasher: Arc::new(Hasher::new([0; 16], HASH_BITS as u8)),
            keyspaces: Vec::new(),
            report: VerifyReport::default(),
            progress,
            seen: VerifyProgress::default(),
            done_bytes: 0,
        }
    }

    /// Goes by the manifest on disk.
    fn stored(&mut self, files: &FileTable) -> Result<()> {
        let read = match manifest::read(&*self.env.vfs) {
            Ok(Some(read)) => read,
            Ok(None) => {
                self.missing(FileName::MANIFEST);
                return Ok(());
            }
            // Without it nothing is known of the other files.
            Err(error) if matches!(error.kind(), ErrorKind::UnsupportedVersion { .. }) => {
                return Err(error);
            }
            Err(error) => {
                self.absorb(FileName::MANIFEST, &error)?;
                self.end_named(FileName::MANIFEST, 0);
                return Ok(());
            }
        };
        let state = read.state;
        self.hasher = Arc::new(state.hasher());
        let logs = state.logs.iter().map(|log| FileName::log(log.number));
        let names: Vec<_> = std::iter::once(FileName::MANIFEST).chain(logs).collect();
        let mut runs = Vec::new();
        for kind in KeyspaceKind::ALL {
            let named = manifest::runs::of(&state, kind)?;
            let open = |run| Run::of_named(run, kind, &self.hasher);
            runs.extend(named.iter().rev().map(open));
        }
        self.begin(&names, runs.iter());
        let listing = list(self.env)?;
        if let Err(error) = check_unnamed_logs(self.env, &state, &listing) {
            self.absorb(FileName::MANIFEST, &error)?;
        }
        self.end_named(FileName::MANIFEST, read.valid_bytes);
        self.keyspaces.clone_from(&state.keyspaces);
        self.stored_logs(&state)?;
        for run in &runs {
            self.run(run, files, &|| Ok(()))?;
        }
        Ok(())
    }

    /// Reads all logs that the manifest names, and checks that one goes on where the other ends.
    fn stored_logs(&mut self, state: &ManifestState) -> Result<()> {
        let mut begun = Vec::new();
        let mut empty = Vec::new();
        for entry in &state.logs {
            let identity = log_identity(state, entry);
            match log::first_sequence(&*self.env.vfs, &identity) {
                Ok(Some(first)) => begun.push((first, entry)),
                Ok(None) => empty.push(entry),
                Err(error) => {
                    self.absorb(identity.name(), &error)?;
                    self.end_named(identity.name(), 0);
                }
            }
        }
        begun.sort_by_key(|(first, entry)| (*first, entry.number));
        let mut next = state.flushed_through + 1;
        let mut end = LogEnd::Sealed(next);
        for (first, entry) in begun {
            self.check_succession(FileName::log(entry.number), end, first);
            end = self.stored_log(state, entry, first)?;
            if let LogEnd::Sealed(after) | LogEnd::Unsealed(after) = end {
                next = after;
            }
        }
        for entry in empty {
            self.stored_log(state, entry, next)?;
        }
        Ok(())
    }

    /// What recovery would refuse: a gap, or commits behind a log that was not finished.
    fn check_succession(&mut self, name: FileName, end: LogEnd, first: Sequence) {
        let what = match end {
            LogEnd::Sealed(next) if next != first => {
                format!("it goes on at sequence {first}, {next} is missing")
            }
            LogEnd::Unsealed(next) => {
                format!("it goes on at sequence {first}, the log up to {next} has no seal")
            }
            _ => return,
        };
        self.damage(name, LOG_HEADER_BYTES, what);
    }

    fn stored_log(
        &mut self,
        state: &ManifestState,
        entry: &LogEntry,
        first: Sequence,
    ) -> Result<LogEnd> {
        let plan = LogPlan {
            identity: log_identity(state, entry),
            first,
            durable_through: entry.durable_through,
            through: None,
        };
        let name = plan.identity.name();
        let end = match self.read_log(&plan) {
            Ok(end) => end,
            Err(error) => {
                self.absorb(name, &error)?;
                LogEnd::Unknown
            }
        };
        self.end_named(name, 0);
        Ok(end)
    }

    /// Reads one log; its first damage is the error, behind which nothing counts as written.
    fn read_log(&mut self, plan: &LogPlan) -> Result<LogEnd> {
        let expectation = LogExpectation {
            first_sequence: plan.first,
            durable_through: plan.durable_through,
            // One commit had to fit the memory of whoever wrote it.
            payload_bytes_max: u64::MAX,
        };
        let name = plan.identity.name();
        let mut reader = LogReader::open(&*self.env.vfs, &plan.identity, expectation)?;
        let mut payload = Vec::new();
        let mut used_bytes = LOG_HEADER_BYTES;
        let end = loop {
            let next = reader.next_sequence();
            if plan.through.is_some_and(|through| next > through) {
                break LogEnd::Unsealed(next);
            }
            let Some(frame) = reader.next(&mut payload)? else {
                break match reader.tail() {
                    Some(Tail::Sealed { .. }) => LogEnd::Sealed(next),
                    _ => LogEnd::Unsealed(next),
                };
            };
            let ops = decode_ops(name, &frame, &payload, &self.hasher).and_then(|ops| {
                check_named(&self.keyspaces, name, &frame, &ops)?;
                Ok(ops.len() as u64)
            });
            match ops {
                Ok(records) => self.report.records += records,
                Err(error) => self.absorb(name, &error)?,
            }
            used_bytes = frame.offset + frame.header.frame_len();
            self.at(used_bytes);
        };
        self.report.bytes += used_bytes;
        Ok(end)
    }

    /// Reads a run's segments, oldest first, then the parts of its index.
    fn run(&mut self, run: &Run, files: &FileTable, go_on: &dyn Fn() -> Result<()>) -> Result<()> {
        for segment in run.segments().iter().rev() {
            go_on()?;
            self.segment(segment, |at| segment.verify(files, at))?;
        }
        if run.level() > 0 {
            for part in run.parts() {
                go_on()?;
                self.segment(part, |at| part.verify_part(files, run.segments(), at))?;
            }
        }
        Ok(())
    }

    fn segment(
        &mut self,
        segment: &Segment,
        verify: impl FnOnce(&mut dyn FnMut(u64)) -> Result<segment::VerifyReport>,
    ) -> Result<()> {
        let file_len = segment.meta().file_len;
        let name = segment.name();
        let found = verify(&mut |bytes| self.at(bytes.min(file_len)));
        match found {
            Ok(found) => {
                self.report.records += found.records;
                self.report.unlisted += found.unlisted;
                for damage in found.damage {
                    let what = format!("{}: {}", damage.section, damage.what);
                    self.damage(name, damage.offset, what);
                }
                self.end_file(file_len, found.bytes.min(file_len));
            }
            Err(error) => {
                self.absorb(name, &error)?;
                self.end_file(file_len, 0);
            }
        }
        Ok(())
    }

    /// Lists what concerns stored bytes; gives back what concerns the system or the caller.
    fn absorb(&mut self, name: FileName, error: &Error) -> Result<()> {
        let listed = match error.kind() {
            ErrorKind::Corruption | ErrorKind::MissingFile => true,
            // One file of a newer format, in a store that is not: as likely a flipped bit.
            ErrorKind::UnsupportedVersion { .. } => true,
            // A bad sector. A file that may not be read, or a dead process, is another matter.
            ErrorKind::Io => error
                .cause()
                .is_some_and(|cause| cause.kind == IoErrorKind::Other),
            _ => false,
        };
        if !listed {
            return Err(error.clone());
        }
        let what = match (error.kind(), error.cause()) {
            (ErrorKind::Io, Some(cause)) => format!("{cause}; the rest was not checked"),
            (ErrorKind::UnsupportedVersion { .. }, _) => error.to_string(),
            (_, Some(cause)) if error.detail().is_empty() => cause.to_string(),
            _ => error.detail().to_owned(),
        };
        let name = error.file().unwrap_or(name);
        self.damage(name, error.offset().unwrap_or(0), what);
        Ok(())
    }

    fn missing(&mut self, name: FileName) {
        self.damage(name, 0, "the file is missing".to_owned());
        self.end_named(name, 0);
    }

    fn damage(&mut self, file: FileName, offset: u64, what: String) {
        if self.report.damaged.len() == DAMAGE_MAX {
            self.report.unlisted += 1;
            return;
        }
        self.report.damaged.push(Damage { file, offset, what });
    }

    /// Says what is going to be read.
    fn begin<'s>(&mut self, names: &[FileName], runs: impl Iterator<Item = &'s Run>) {
        self.seen.files_total = names.len() as u64;
        self.seen.bytes_total = names.iter().map(|name| self.file_len(*name)).sum();
        for run in runs {
            let folded = run.parts().iter().filter(|_| run.level() > 0);
            for file in run.segments().iter().chain(folded) {
                self.seen.files_total += 1;
                self.seen.bytes_total += file.meta().file_len;
            }
        }
        (self.progress)(self.seen);
    }

    /// For the progress alone: what can't be opened is found again, and reported, later.
    fn file_len(&self, name: FileName) -> u64 {
        io::uninterrupted(|| self.env.vfs.open(name, OpenMode::Read)?.len()).unwrap_or(0)
    }

    /// So far in the file at hand.
    fn at(&mut self, bytes: u64) {
        self.seen.bytes = self.done_bytes + bytes;
        (self.progress)(self.seen);
    }

    fn end_named(&mut self, name: FileName, used_bytes: u64) {
        self.end_file(self.file_len(name), used_bytes);
    }

    /// Counts a file as done, with the bytes of it that are in use.
    fn end_file(&mut self, file_len: u64, used_bytes: u64) {
        self.report.files += 1;
        self.report.bytes += used_bytes;
        self.seen.files += 1;
        self.done_bytes += file_len;
        self.at(0);
    }
}
