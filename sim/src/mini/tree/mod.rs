//! A miniature LSM tree: logs, flushed segments, merges, filters, snapshots, iterators.
//!
//! ```text
//! MANIFEST: edits, each a frame: crc u32 | count u32 | next number, first log, segments (oldest first)
//! log:      frames of commits; live logs are those in the directory from the first log on
//! segment:  one frame: the newest value or delete of each key that a generation held
//! ```
//! A seal syncs the log and goes on in a new one; jobs write the sealed table as a segment, add it by an
//! edit, merge segments, remove what no edit names. Open copies the logs' state into a new log and writes
//! a new manifest, because what it read may be in the cache only. [`Bug`] breaks one of these rules.

mod bug;
mod jobs;
mod parts;
mod view;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sealstone::Audit;
use sealstone::env::io::{uninterrupted, write_all_at};
use sealstone::env::{Env, File, FileKind, FileName, IoResult, LockGuard, LockMode};
use sealstone::sync::Mutex;
use sealstone::types::KeyspaceKind;

pub use self::bug::Bug;
pub use self::view::{Cursor, Held, View};

use self::jobs::Built;
use self::parts::{Edit, Segment};
use self::view::Slots;
use super::frames::{
    Table, frame, items_of, poison, poisoned, stop, table_of, without_temporaries,
};
use crate::choices::Choices;
use crate::disk::SimDisk;
use crate::model::Op;
use crate::store::{check_at_rest, check_audit};
use crate::subject::{Answer, Figures, Item, Stop, StopKind, Subject};

/// What the tree's ledger has to give.
const MEMORY_BYTES: u64 = 1 << 30;
/// What filters may take.
const FILTER_BUDGET_BYTES: u64 = 256;

/// Logs ever made in this process, by any tree.
static LOGS_EVER: AtomicU64 = AtomicU64::new(0);

struct Sealed {
    table: Table,
    /// The last commit in it.
    sequence: u64,
    /// The log behind it.
    follower: u64,
}

struct Inner {
    /// What was written since the last seal.
    table: Table,
    /// What waits for its flush.
    sealed: Option<Sealed>,
    /// Oldest first.
    segments: Vec<Arc<Segment>>,
    /// Replaced, perhaps still read.
    retired: Vec<Arc<Segment>>,
    /// To be removed.
    unlinks: Vec<FileName>,
    built: Option<Built>,
    log: Arc<dyn File>,
    log_number: u64,
    log_end: u64,
    /// Live logs before that one.
    old_logs: Vec<u64>,
    manifest: Arc<dyn File>,
    manifest_end: u64,
    first_log: u64,
    next: u64,
    sequence: u64,
    seals: u64,
    free_bytes: u64,
    cursor_bytes: u64,
    cursors: usize,
    poisoned: bool,
    slots: Slots,
    reads: Figures,
}

/// The engine.
pub struct Tree {
    inner: Arc<Mutex<Inner>>,
    env: Env,
    bug: Bug,
    recovered: u64,
    _lock: Box<dyn LockGuard>,
}

fn bytes_of(table: &Table) -> u64 {
    let bytes = |((_, key), value): (&(usize, Vec<u8>), &Option<Vec<u8>>)| {
        key.len() + value.as_ref().map_or(0, Vec::len) + 16
    };
    table.iter().map(bytes).sum::<usize>() as u64
}

/// A log, renamed into place when it is there.
fn new_log(env: &Env, number: u64, bug: Bug) -> IoResult<Arc<dyn File>> {
    let name = FileName::log(number);
    let made = FileName {
        temporary: true,
        ..name
    };
    let log = uninterrupted(|| env.vfs.create_new(made))?;
    if bug == Bug::ProcessesCounted {
        let count = LOGS_EVER.fetch_add(1, Ordering::Relaxed) as u8;
        // Behind everything that is ever read.
        write_all_at(&*log, &[count], 1 << 20)?;
        uninterrupted(|| log.set_len(0))?;
    }
    uninterrupted(|| log.sync_data())?;
    env.vfs.rename(made, name)?;
    if bug != Bug::NewLogUnnamed {
        uninterrupted(|| env.vfs.sync_dir())?;
    }
    Ok(log)
}

impl Inner {
    /// Frees the oldest filters until the budget is kept.
    fn keep_budget(&mut self, bug: Bug) {
        let mut used = 0;
        for segment in self.segments.iter().rev() {
            let bytes = segment.filter.len() as u64 * 2;
            let fits = used + bytes <= FILTER_BUDGET_BYTES || bug == Bug::FiltersKept;
            segment.resident.store(fits, Ordering::Relaxed);
            used += if fits { bytes } else { 0 };
        }
    }

    fn check(&self) -> Answer<()> {
        match self.poisoned {
            true => Err(poisoned()),
            false => Ok(()),
        }
    }

    /// Runs a change of which nobody knows how far it came if it fails.
    fn guarded<T>(&mut self, change: impl FnOnce(&mut Self) -> IoResult<T>) -> Answer<T> {
        change(self).map_err(|error| {
            self.poisoned = true;
            poison(error)
        })
    }

    fn audit(&self) -> Audit {
        let sealed = self.sealed.as_ref().map_or(0, |s| bytes_of(&s.table));
        let open = bytes_of(&self.table);
        let mut audit = Audit {
            issued: self.sequence,
            visible: self.sequence,
            filter_budget_bytes: FILTER_BUDGET_BYTES,
            unlinks: self.unlinks.clone(),
            descriptors_other: vec![
                FileName::LOCK,
                FileName::MANIFEST,
                FileName::log(self.log_number),
            ],
            scan_bytes: self.cursor_bytes,
            poisoned: self.poisoned,
            ..Audit::default()
        };
        audit.memory.total_bytes = MEMORY_BYTES;
        audit.memory.open_bytes = open;
        audit.memory.sealed_bytes = sealed;
        audit.memory.free_bytes = self.free_bytes;
        let segments = self.segments.iter().chain(&self.retired);
        audit.files = segments.map(|s| FileName::segment(s.number)).collect();
        audit.files.extend([FileName::LOCK, FileName::MANIFEST]);
        audit.files.extend(&self.unlinks);
        let resident = |s: &&Arc<Segment>| s.resident.load(Ordering::Relaxed);
        let filters = self.segments.iter().filter(resident);
        audit.filter_bytes = filters.map(|s| s.filter.len() as u64 * 2).sum();
        audit.filter_counted_bytes = audit.filter_bytes;
        audit.pins = vec![self.sequence; self.cursors];
        audit
    }
}

impl Tree {
    /// The books, with the live logs as the directory has them.
    fn books(&self, disk: &SimDisk) -> Audit {
        let inner = self.inner.lock();
        let mut audit = inner.audit();
        let state = disk.state();
        let live = |name: &&FileName| {
            name.kind == FileKind::Log && !name.temporary && name.number >= inner.first_log
        };
        audit.files.extend(state.names().keys().filter(live));
        audit
    }

    /// Ends the log and goes on in a new one.
    fn rotate(&self, inner: &mut Inner) -> IoResult<()> {
        if self.bug != Bug::OldLogUnsynced {
            uninterrupted(|| inner.log.sync_data())?;
        }
        let number = inner.next;
        inner.next += 1;
        inner.log = new_log(&self.env, number, self.bug)?;
        inner.old_logs.push(inner.log_number);
        if self.bug == Bug::NumbersReused {
            // That the number is taken need not be durable: the log's name may well be.
            inner.put_numbers()?;
        }
        (inner.log_number, inner.log_end) = (number, 0);
        Ok(())
    }

    fn append(
        &self,
        inner: &mut Inner,
        sequence: u64,
        table: &Table,
        synced: bool,
    ) -> IoResult<()> {
        let bytes = frame(inner.log_number, sequence, table);
        write_all_at(&*inner.log, &bytes, inner.log_end)?;
        inner.log_end += bytes.len() as u64;
        match synced {
            true => uninterrupted(|| inner.log.sync_data()),
            false => Ok(()),
        }
    }

    fn open_with(env: &Env, bug: Bug) -> Answer<Self> {
        env.vfs.create_root().map_err(stop)?;
        let lock = uninterrupted(|| env.vfs.try_lock(LockMode::Exclusive)).map_err(stop)?;
        let named = Edit::last(env)?;
        let names = without_temporaries(env)?;
        let (inner, recovered) = match named {
            Some((edit, end)) if bug == Bug::NumbersReused => {
                parts::continue_with(env, edit, end, &names)?
            }
            named => parts::start_anew(env, named.map(|(edit, _)| edit), &names, bug)?,
        };
        let mut inner = inner;
        inner.keep_budget(bug);
        Ok(Self {
            inner: Arc::new(Mutex::new(inner)),
            env: env.clone(),
            bug,
            recovered,
            _lock: lock,
        })
    }

    fn view_now(&self) -> View {
        let inner = self.inner.lock();
        let mut memory = inner
            .sealed
            .as_ref()
            .map_or(Table::new(), |s| s.table.clone());
        memory.extend(inner.table.clone());
        // Readers that nobody counts see their files go.
        let counted = self.bug != Bug::CollectedUnderReaders;
        View::new(&self.env, inner.sequence, memory, &inner.segments, counted)
    }
}

impl Subject for Tree {
    type Options = Bug;
    type Ticket = ();
    type View = View;
    type Held = Held;
    type Cursor = Cursor;

    fn kinds() -> Vec<KeyspaceKind> {
        vec![KeyspaceKind::Mutable; 2]
    }

    fn options() -> Bug {
        Bug::None
    }

    fn draw_options(_choices: &mut Choices, base: &Bug, _life: u32) -> Bug {
        *base
    }

    fn open(env: &Env, bug: &Bug) -> Answer<Self> {
        Self::open_with(env, *bug)
    }

    fn recovered(&self) -> u64 {
        self.recovered
    }

    fn write(&self, ops: &[Op], synced: bool) -> Answer<u64> {
        let inner = &mut *self.inner.lock();
        inner.check()?;
        let skipped = self.bug == Bug::SequencesSkipped && inner.sequence % 7 == 6;
        let sequence = inner.sequence + 1 + u64::from(skipped);
        let table = table_of(ops);
        inner.guarded(|inner| self.append(inner, sequence, &table, synced))?;
        inner.sequence = sequence;
        let before = bytes_of(&inner.table);
        inner.table.extend(table);
        inner.free_bytes = inner.free_bytes + before - bytes_of(&inner.table);
        Ok(sequence)
    }

    fn sync(&self) -> Answer<()> {
        let inner = &mut *self.inner.lock();
        inner.check()?;
        inner.guarded(|inner| uninterrupted(|| inner.log.sync_data()))
    }

    fn get(&self, keyspace: usize, key: &[u8]) -> Answer<Option<Vec<u8>>> {
        let inner = &mut *self.inner.lock();
        let place = (keyspace, key.to_vec());
        let sealed = inner.sealed.as_ref().map(|sealed| &sealed.table);
        let memory = std::iter::once(&inner.table).chain(sealed);
        if let Some(found) = memory.into_iter().find_map(|table| table.get(&place)) {
            return Ok(found.clone());
        }
        for segment in inner.segments.iter().rev() {
            if !segment.may_hold(&place, self.bug) {
                continue;
            }
            let table = segment.read(&self.env, self.bug)?;
            let again = match self.bug {
                Bug::ReadsPerKey => table.len() as u64,
                _ => 0,
            };
            inner.reads.reads += 1 + again;
            inner.reads.candidates += 1;
            if let Some(found) = table.get(&place) {
                return Ok(found.clone());
            }
        }
        Ok(None)
    }

    fn scan(&self, keyspace: usize, reverse: bool) -> Answer<Vec<Item>> {
        let table = self.view_now().read(self.bug)?;
        Ok(items_of(&table, keyspace, reverse))
    }

    fn hold(&self, keyspace: usize, key: &[u8]) -> Option<Answer<Option<Held>>> {
        let value = self.get(keyspace, key);
        let recycled = self.bug == Bug::SlicesRecycled;
        Some(value.map(|value| {
            let slots = &mut self.inner.lock().slots;
            value.map(|value| slots.hand_out(value, recycled))
        }))
    }

    fn snapshot(&self) -> Option<Answer<View>> {
        Some(Ok(self.view_now()))
    }

    fn view_sequence(view: &View) -> u64 {
        view.sequence
    }

    fn view_get(&self, view: &View, keyspace: usize, key: &[u8]) -> Answer<Option<Vec<u8>>> {
        let table = view.read(self.bug)?;
        Ok(table.get(&(keyspace, key.to_vec())).cloned().flatten())
    }

    fn view_scan(&self, view: &View, keyspace: usize, reverse: bool) -> Answer<Vec<Item>> {
        Ok(items_of(&view.read(self.bug)?, keyspace, reverse))
    }

    fn cursor(&self, keyspace: usize) -> Option<Answer<Cursor>> {
        let view = self.view_now();
        Some(Ok(Cursor::new(view, keyspace, &self.inner, self.bug)))
    }

    fn advance(cursor: &mut Cursor, back: bool) -> Option<Answer<Item>> {
        cursor.advance(back).transpose()
    }

    fn seal(&self) -> Answer<()> {
        let inner = &mut *self.inner.lock();
        inner.check()?;
        inner.seals += 1;
        if self.bug == Bug::ErrorsInvented && inner.seals.is_multiple_of(3) {
            return Err(Stop::new(StopKind::Io, "the weather is bad"));
        }
        if inner.sealed.is_some() || inner.table.is_empty() {
            return Ok(());
        }
        inner.guarded(|inner| self.rotate(inner))?;
        inner.sealed = Some(Sealed {
            table: std::mem::take(&mut inner.table),
            sequence: inner.sequence,
            follower: inner.log_number,
        });
        Ok(())
    }

    fn jobs(&self) -> usize {
        usize::from(self.next_job(&self.inner.lock()).is_some())
    }

    fn run_job(&self, _index: usize, _quantum: u32) -> Answer<()> {
        self.run_next()
    }

    fn figures(&self) -> Figures {
        Figures {
            wide_hash: true,
            ..self.inner.lock().reads
        }
    }

    fn at_rest(&self, disk: &SimDisk) -> Result<(), (&'static str, String)> {
        check_at_rest(&self.books(disk), disk)
    }

    fn audit(&self, disk: &SimDisk) -> Result<u64, (&'static str, String)> {
        check_audit(&self.books(disk), disk)?;
        let inner = self.inner.lock();
        let numbers: BTreeSet<u64> = inner.segments.iter().map(|s| s.number).collect();
        Ok(numbers.last().copied().unwrap_or(0))
    }
}
