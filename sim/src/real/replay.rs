//! A recorded log on the simulated disk: cut before, inside and after each call, with what a crash there
//! may leave, and opened each time.
//!
//! What the log says was answered is what must be there: everything acknowledged after the death of the
//! process, everything durable after a loss of power, and nothing but whole batches in order.

use std::collections::BTreeMap;
use std::sync::Arc;

use sealstone::env::{Env, File, FileKind, IoResult, OpenMode, Vfs};
use sealstone::{Durability, ErrorKind, Result, Store};

use super::kill::{Heard, Witness};
use super::record::{Entry, Recorder};
use super::work::{self, Piece};
use crate::choices::SmallRandom;
use crate::disk::{Crash, DiskOptions, Keep, Recorded, SimDisk, Survivors};
use crate::env::SimEnv;

/// Threads of a recorded run.
pub const THREADS: u64 = 2;
const SEED: u64 = 11;

/// What a replay came to.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReplayReport {
    /// Mutating calls in the log.
    pub calls: u64,
    /// Points at which it was cut.
    pub cuts: u64,
    /// Stores opened.
    pub opens: u64,
    /// Of them, those that had lost something acknowledged but not durable.
    pub shorter: u64,
    /// The most batches found.
    pub batches_most: u64,
}

/// Threads do `batches` pieces of work each on the store in `env`, which is reopened once in between.
///
/// # Errors
/// The store's.
pub fn record(env: &Env, batches: u64, recorder: &Recorder) -> Result<()> {
    let mut store = Store::open_with(recorder.around(env), work::options(true))?;
    for half in 0..2 {
        let keyspaces = work::keyspaces(&store)?;
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS)
                .map(|thread| {
                    let (store, keyspaces) = (&store, &keyspaces);
                    scope.spawn(move || {
                        let from = half * batches / 2;
                        (from + 1..=from + batches / 2).try_for_each(|counter| {
                            let piece = Piece {
                                life: 0,
                                thread,
                                counter,
                            };
                            write(store, keyspaces, piece, recorder)
                        })
                    })
                })
                .collect();
            threads
                .into_iter()
                .try_for_each(|thread| thread.join().expect("a writer panicked"))
        })?;
        store.seal()?;
        store.drain()?;
        if half == 0 {
            store = store.reopen()?;
        }
    }
    store.close()
}

fn write(
    store: &Store,
    keyspaces: &[sealstone::Keyspace; 2],
    piece: Piece,
    recorder: &Recorder,
) -> Result<()> {
    let mut random = SmallRandom::new(piece.thread << 32 | piece.counter);
    let changes = work::changes(SEED, piece);
    let synced = random.chance(1, 5);
    let durability = match synced {
        true => Durability::Synced,
        false => Durability::Buffered,
    };
    let sequence = loop {
        match store.write(work::batch(keyspaces, &changes), durability) {
            Err(error) if matches!(error.kind(), ErrorKind::Busy { .. }) => {}
            result => break result?,
        }
    };
    recorder.note(Entry::Acknowledged {
        thread: piece.thread,
        counter: piece.counter,
        sequence,
    });
    if synced {
        recorder.note(Entry::Durable(sequence));
    }
    match random.below(12) {
        0 => store.seal(),
        1 => {
            store.sync()?;
            recorder.note(Entry::Durable(sequence));
            Ok(())
        }
        2 => {
            // What it says now is so from now on.
            recorder.note(Entry::Durable(store.durable_sequence()));
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Makes the calls of a log on a disk. The disk's mark is the number of entries before each call.
///
/// # Errors
/// The disk's: the log fits no disk that was empty.
pub fn make(entries: &[Entry], disk: &SimDisk) -> IoResult<()> {
    let mut files: BTreeMap<u64, Arc<dyn File>> = BTreeMap::new();
    let write_all = |file: &Arc<dyn File>, bytes: &[u8], offset| {
        sealstone::env::io::write_all_at(&**file, bytes, offset)
    };
    for (number, entry) in entries.iter().enumerate() {
        disk.set_mark(number as u64);
        match entry {
            Entry::CreateRoot => disk.create_root()?,
            Entry::Create(name, handle) => {
                files.insert(*handle, disk.create_new(*name)?);
            }
            Entry::Open(name, handle) => {
                files.insert(*handle, disk.open(*name, OpenMode::ReadWrite)?);
            }
            Entry::Close(handle) => drop(files.remove(handle)),
            Entry::Write(handle, offset, bytes) => write_all(&files[handle], bytes, *offset)?,
            Entry::Sync(handle) => files[handle].sync_data()?,
            Entry::SetLen(handle, length) => files[handle].set_len(*length)?,
            Entry::Allocate(handle, length) => files[handle].allocate(*length)?,
            Entry::Rename(from, to) => disk.rename(*from, *to)?,
            Entry::Unlink(name) => disk.unlink(*name)?,
            Entry::SyncDir => disk.sync_dir()?,
            Entry::Acknowledged { .. } | Entry::Durable(_) => {}
        }
    }
    disk.set_mark(entries.len() as u64);
    Ok(())
}

/// What was answered in the first entries of a log.
#[derive(Clone, Debug, Default)]
struct Answered {
    heard: Heard,
    newest: u64,
    durable: u64,
}

impl Answered {
    fn before(entries: &[Entry]) -> Self {
        let mut answered = Self::default();
        for entry in entries {
            match entry {
                Entry::Acknowledged {
                    thread,
                    counter,
                    sequence,
                } => {
                    let place = (*thread, *counter);
                    answered.heard.acknowledged.insert(place, *sequence);
                    answered.newest = answered.newest.max(*sequence);
                }
                Entry::Durable(sequence) => answered.durable = answered.durable.max(*sequence),
                _ => {}
            }
        }
        answered
    }

    /// Only what a loss of power must leave.
    fn durable(&self) -> Self {
        let mut durable = self.clone();
        let through = self.durable;
        durable.heard.acknowledged.retain(|_, at| *at <= through);
        durable.newest = through;
        durable
    }
}

/// Cuts a log at every point and opens what each crash leaves.
///
/// # Errors
/// The first rule that does not hold, with the cut.
pub fn replay(entries: &[Entry], seeds: u64) -> std::result::Result<ReplayReport, String> {
    let disk = SimDisk::new(DiskOptions::default());
    disk.start_recording();
    make(entries, &disk).map_err(|error| format!("the log does not fit: {error}"))?;
    let recorded = disk.stop_recording();
    let mut report = ReplayReport {
        calls: disk.mutations(),
        ..ReplayReport::default()
    };
    for (cut, point) in recorded.iter().enumerate() {
        report.cuts += 1;
        let answered = Answered::before(&entries[..point.mark as usize]);
        let mut crashes = vec![
            (Crash::Kill, answered.clone()),
            (Crash::Power(Survivors::NOTHING), answered.durable()),
        ];
        for seed in 0..seeds {
            let survivors = Survivors::seeded(seed + cut as u64 * seeds);
            crashes.push((Crash::Power(survivors), answered.durable()));
        }
        let pending = point.state.pending_things();
        if (1..=2).contains(&pending) {
            // Few enough to try each subset, beside none.
            for mask in 1..1 << pending {
                let mut survivors = Survivors::NOTHING;
                survivors.keep = Keep::Mask(mask);
                crashes.push((Crash::Power(survivors), answered.durable()));
            }
        }
        for (crash, needed) in crashes {
            open(point, &crash, &needed, &answered, &mut report).map_err(|what| {
                let Recorded { call, place, .. } = point;
                format!(
                    "cut {place:?} call {} ({call:?}), {crash:?}: {what}",
                    point.mutation
                )
            })?;
        }
    }
    Ok(report)
}

fn open(
    point: &Recorded,
    crash: &Crash,
    needed: &Answered,
    answered: &Answered,
    report: &mut ReplayReport,
) -> std::result::Result<(), String> {
    let text = |error: sealstone::Error| error.to_string();
    let disk = SimDisk::from_state(point.state.after(crash), DiskOptions::default());
    let store = Store::open_with(SimEnv::on(disk).env(), work::options(false)).map_err(text)?;
    report.opens += 1;
    let recovered = store.open_report().recovered_through;
    if recovered < needed.newest {
        return Err(format!("{recovered} recovered, {} needed", needed.newest));
    }
    report.shorter += u64::from(recovered < answered.newest);
    let keyspaces = work::keyspaces(&store).map_err(text)?;
    let found = work::content(&keyspaces).map_err(text)?;
    let mut witness = Witness::new(SEED, THREADS);
    witness.check(&found, 0, &needed.heard)?;
    let batches: u64 = witness.counters().iter().sum();
    report.batches_most = report.batches_most.max(batches);
    if batches != recovered {
        return Err(format!("{batches} batches, but {recovered} recovered"));
    }
    Ok(())
}

/// The log without the syncs of one kind of file: a plant that the replay has to notice.
pub fn without_syncs(entries: &[Entry], kind: FileKind) -> Vec<Entry> {
    let mut of_kind = std::collections::BTreeSet::new();
    let mut kept = Vec::new();
    for entry in entries {
        match entry {
            Entry::Create(name, handle) | Entry::Open(name, handle) if name.kind == kind => {
                of_kind.insert(*handle);
            }
            Entry::Sync(handle) if of_kind.contains(handle) => continue,
            _ => {}
        }
        kept.push(entry.clone());
    }
    kept
}
