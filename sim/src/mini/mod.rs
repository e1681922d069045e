//! Miniature engines. They exist to test the simulator: each has errors that can be planted, and each
//! error must be reported under its rule; without one, everything must hold.
//!
//! | module | engine |
//! |---|---|
//! | here | a log that is rewritten at every open |
//! | [`tree`] | logs, flushed segments, merges, filters, snapshots: what an LSM tree has |
//! | [`paged`] | one file with a head that says where everything is |
//! | [`values`] | an index log beside a file of values whose space is used again |
//!
//! The one here:
//!
//! ```text
//! MANIFEST: crc32c u32 | log number u64
//! log:      frames: crc32c u32 | length u32 | sequence u64 | operations
//!           crc over (log number, everything after the crc)
//! ```
//! Open reads the log, writes the whole state as one frame into a new log, makes it durable, and then
//! switches the manifest by rename. A [`Plant`] breaks one of its rules; each must be caught.

mod frames;
pub mod paged;
pub mod tree;
pub mod values;

use std::sync::Arc;

use sealstone::env::io::{uninterrupted, write_all_at};
use sealstone::env::{
    Env, File, FileKind, FileName, IoErrorKind, IoResult, LockGuard, LockMode, OpenMode,
};
use sealstone::sync::Mutex;
use sealstone::types::KeyspaceKind;

use crate::choices::Choices;
use crate::model::Op;
use crate::subject::{Answer, Item, Stop, StopKind, Subject};

use self::frames::{Table, frame, items_of, poison, read_all, read_named, replay, stop};

/// A deliberate error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plant {
    /// None: the engine is right.
    None,
    /// Every third synced write is acknowledged without a sync.
    AckBeforeSync,
    /// The new log's name is not made durable before the manifest names it.
    NoSyncDirAfterCreate,
    /// A frame's checksum is not looked at.
    TornTailAccepted,
    /// Open goes on with the log it read instead of rewriting it.
    RecoveryTrustsRead,
    /// The old log is removed before the manifest's new name is durable.
    UnlinkBeforeSyncDir,
    /// The manifest is renamed before its bytes are durable.
    RenameBeforeSync,
    /// A failed sync is tried again and the second answer believed.
    SyncRetried,
    /// Writes go on after a failure.
    NotPoisoned,
    /// A short write is taken for a whole one.
    ShortWriteIgnored,
    /// Deletes are forgotten when the log is rewritten.
    DeletesResurrect,
    /// Every rotation leaks the old log's descriptor.
    LeaksDescriptors,
}

impl Plant {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::AckBeforeSync,
        Self::NoSyncDirAfterCreate,
        Self::TornTailAccepted,
        Self::RecoveryTrustsRead,
        Self::UnlinkBeforeSyncDir,
        Self::RenameBeforeSync,
        Self::SyncRetried,
        Self::NotPoisoned,
        Self::ShortWriteIgnored,
        Self::DeletesResurrect,
        Self::LeaksDescriptors,
    ];
}

struct Inner {
    table: Table,
    sequence: u64,
    number: u64,
    log: Arc<dyn File>,
    leaked: Vec<Arc<dyn File>>,
    end: u64,
    writes: u64,
    poisoned: bool,
}

/// The engine.
pub struct Mini {
    inner: Mutex<Inner>,
    env: Env,
    plant: Plant,
    recovered: u64,
    _lock: Box<dyn LockGuard>,
}

/// Writes the state into a new log and makes it the store's log.
fn rewrite(
    env: &Env,
    plant: Plant,
    number: u64,
    sequence: u64,
    table: &Table,
) -> IoResult<(Arc<dyn File>, u64)> {
    let prepared = prepare(env, plant, number, sequence, table)?;
    make_current(env, plant, number)?;
    Ok(prepared)
}

/// Writes the log and the manifest that would name it. Nothing of the store is touched.
fn prepare(
    env: &Env,
    plant: Plant,
    number: u64,
    sequence: u64,
    table: &Table,
) -> IoResult<(Arc<dyn File>, u64)> {
    let vfs = &*env.vfs;
    let log = uninterrupted(|| vfs.create_new(FileName::log(number)))?;
    let bytes = frame(number, sequence, table);
    let end = if sequence == 0 { 0 } else { bytes.len() as u64 };
    write_all_at(&*log, &bytes[..end as usize], 0)?;
    uninterrupted(|| log.sync_data())?;
    if plant != Plant::NoSyncDirAfterCreate {
        uninterrupted(|| vfs.sync_dir())?;
    }
    let manifest = uninterrupted(|| vfs.create_new(FileName::MANIFEST_TEMPORARY))?;
    let crc = crc32c::crc32c(&number.to_le_bytes()).to_le_bytes();
    write_all_at(&*manifest, &[&crc[..], &number.to_le_bytes()].concat(), 0)?;
    if plant != Plant::RenameBeforeSync {
        uninterrupted(|| manifest.sync_data())?;
    }
    Ok((log, end))
}

/// Takes back what a lack of room cut short.
fn unprepare(env: &Env, number: u64) -> IoResult<()> {
    for name in [FileName::log(number), FileName::MANIFEST_TEMPORARY] {
        match uninterrupted(|| env.vfs.unlink(name)) {
            Err(error) if error.kind != IoErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// Puts the prepared manifest in the place of the old one, and removes the old log.
fn make_current(env: &Env, plant: Plant, number: u64) -> IoResult<()> {
    let vfs = &*env.vfs;
    vfs.rename(FileName::MANIFEST_TEMPORARY, FileName::MANIFEST)?;
    if plant != Plant::UnlinkBeforeSyncDir {
        uninterrupted(|| vfs.sync_dir())?;
    }
    for name in uninterrupted(|| vfs.list())?.names {
        if name.kind == FileKind::Log && name.number != number {
            vfs.unlink(name)?;
        }
    }
    uninterrupted(|| vfs.sync_dir())?;
    Ok(())
}

impl Mini {
    fn open_planted(env: &Env, plant: Plant) -> Answer<Self> {
        let vfs = &*env.vfs;
        vfs.create_root().map_err(stop)?;
        let lock = uninterrupted(|| vfs.try_lock(LockMode::Exclusive)).map_err(stop)?;
        let named = read_named(env)?;
        let listing = uninterrupted(|| vfs.list()).map_err(stop)?;
        let (mut table, mut sequence, mut valid) = (Table::new(), 0, 0);
        let mut next = 1 + named.unwrap_or(0);
        for name in listing.names {
            if name.temporary {
                vfs.unlink(name).map_err(stop)?;
            } else if name.kind == FileKind::Log {
                next = next.max(name.number + 1);
            }
        }
        if let Some(number) = named {
            let bytes = read_all(env, FileName::log(number)).map_err(stop)?;
            let trusting = plant == Plant::TornTailAccepted;
            while let Some(end) = replay(&bytes, valid, number, trusting, &mut table, &mut sequence)
            {
                valid = end;
            }
        }
        if plant == Plant::DeletesResurrect && sequence > 20 {
            for value in table.values_mut().filter(|value| value.is_none()) {
                *value = Some(b"back".to_vec());
            }
        }
        let (number, (log, end)) = match named {
            Some(number) if plant == Plant::RecoveryTrustsRead => {
                let open = || vfs.open(FileName::log(number), OpenMode::ReadWrite);
                (number, (uninterrupted(open).map_err(stop)?, valid as u64))
            }
            _ => (
                next,
                rewrite(env, plant, next, sequence, &table).map_err(stop)?,
            ),
        };
        let inner = Inner {
            table,
            sequence,
            number,
            log,
            leaked: Vec::new(),
            end,
            writes: 0,
            poisoned: false,
        };
        Ok(Self {
            inner: Mutex::new(inner),
            env: env.clone(),
            plant,
            recovered: sequence,
            _lock: lock,
        })
    }

    fn append(&self, inner: &mut Inner, bytes: &[u8], synced: bool) -> IoResult<()> {
        if self.plant == Plant::ShortWriteIgnored {
            uninterrupted(|| inner.log.write_at(bytes, inner.end))?;
        } else {
            write_all_at(&*inner.log, bytes, inner.end)?;
        }
        inner.end += bytes.len() as u64;
        inner.writes += 1;
        if synced && !(self.plant == Plant::AckBeforeSync && inner.writes.is_multiple_of(3)) {
            let sync = || uninterrupted(|| inner.log.sync_data());
            let first = sync();
            return if self.plant == Plant::SyncRetried {
                first.or_else(|_| sync())
            } else {
                first
            };
        }
        Ok(())
    }
}

impl Subject for Mini {
    type Options = Plant;
    type Ticket = ();
    type View = ();
    type Held = Vec<u8>;
    type Cursor = ();

    fn kinds() -> Vec<KeyspaceKind> {
        vec![KeyspaceKind::Mutable; 2]
    }

    fn options() -> Plant {
        Plant::None
    }

    fn draw_options(_choices: &mut Choices, base: &Plant, _life: u32) -> Plant {
        *base
    }

    fn open(env: &Env, options: &Plant) -> Answer<Self> {
        Self::open_planted(env, *options)
    }

    fn recovered(&self) -> u64 {
        self.recovered
    }

    fn write(&self, ops: &[Op], synced: bool) -> Answer<u64> {
        let mut inner = self.inner.lock();
        if inner.poisoned {
            return Err(Stop::new(StopKind::Poisoned, "an earlier write failed"));
        }
        let places = ops
            .iter()
            .map(|op| ((op.keyspace, op.key.clone()), op.value.clone()));
        let table: Table = places.collect();
        let sequence = inner.sequence + 1;
        let bytes = frame(inner.number, sequence, &table);
        if let Err(error) = self.append(&mut inner, &bytes, synced) {
            inner.poisoned = self.plant != Plant::NotPoisoned;
            return Err(poison(error));
        }
        inner.sequence = sequence;
        inner.table.extend(table);
        Ok(sequence)
    }

    fn sync(&self) -> Answer<()> {
        let mut inner = self.inner.lock();
        if inner.poisoned {
            return Err(Stop::new(StopKind::Poisoned, "an earlier write failed"));
        }
        self.append(&mut inner, &[], true).map_err(|error| {
            inner.poisoned = self.plant != Plant::NotPoisoned;
            poison(error)
        })
    }

    fn get(&self, keyspace: usize, key: &[u8]) -> Answer<Option<Vec<u8>>> {
        Ok(self
            .inner
            .lock()
            .table
            .get(&(keyspace, key.to_vec()))
            .cloned()
            .flatten())
    }

    fn scan(&self, keyspace: usize, reverse: bool) -> Answer<Vec<Item>> {
        Ok(items_of(&self.inner.lock().table, keyspace, reverse))
    }

    fn seal(&self) -> Answer<()> {
        let inner = &mut *self.inner.lock();
        if inner.poisoned {
            return Err(Stop::new(StopKind::Poisoned, "an earlier write failed"));
        }
        let number = inner.number + 1;
        let prepared = prepare(&self.env, self.plant, number, inner.sequence, &inner.table);
        let made = match prepared {
            // Before any effect: the store goes on.
            Err(error) if error.kind == IoErrorKind::NoSpace => {
                match unprepare(&self.env, number) {
                    Ok(()) => return Err(stop(error)),
                    Err(error) => Err(error),
                }
            }
            Err(error) => Err(error),
            Ok(prepared) => make_current(&self.env, self.plant, number).map(|()| prepared),
        };
        match made {
            Ok((log, end)) => {
                let old = std::mem::replace(&mut inner.log, log);
                (inner.number, inner.end) = (number, end);
                if self.plant == Plant::LeaksDescriptors {
                    inner.leaked.push(old);
                }
                Ok(())
            }
            Err(error) => {
                inner.poisoned = true;
                Err(poison(error))
            }
        }
    }

    fn audit(&self, disk: &crate::disk::SimDisk) -> Result<u64, (&'static str, String)> {
        // One log and the lock.
        match disk.descriptors() {
            2 => Ok(0),
            held => Err((
                "S14",
                format!("{held} descriptors are open, 2 are accounted for"),
            )),
        }
    }
}
