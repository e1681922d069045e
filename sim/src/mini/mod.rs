//! A miniature engine: a log that is rewritten at every open. It exists to test the simulator.
//!
//! ```text
//! MANIFEST: crc32c u32 | log number u64
//! log:      frames: crc32c u32 | length u32 | sequence u64 | operations
//!           crc over (log number, everything after the crc)
//! ```
//! Open reads the log, writes the whole state as one frame into a new log, makes it durable, and then
//! switches the manifest by rename. A [`Plant`] breaks one of its rules; each must be caught.

use std::collections::BTreeMap;
use std::sync::Arc;

use sealstone::env::io::{read_up_to_at, uninterrupted, write_all_at};
use sealstone::env::{Env, File, FileKind, FileName, IoError, IoErrorKind, IoResult, LockGuard};
use sealstone::env::{LockMode, OpenMode};
use sealstone::sync::Mutex;
use sealstone::types::KeyspaceKind;

use crate::choices::Choices;
use crate::model::Op;
use crate::subject::{Answer, Item, Stop, StopKind, Subject};

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

type Table = BTreeMap<(usize, Vec<u8>), Option<Vec<u8>>>;

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

fn stop(error: IoError) -> Stop {
    Stop::new(
        if error.kind == IoErrorKind::NoSpace {
            StopKind::Refused
        } else {
            StopKind::Io
        },
        error,
    )
}

fn poison(error: IoError) -> Stop {
    Stop::new(StopKind::Poisoned, error)
}

fn frame(number: u64, sequence: u64, table: &Table) -> Vec<u8> {
    let mut body = Vec::new();
    for ((keyspace, key), value) in table {
        body.extend((*keyspace as u32).to_le_bytes());
        body.extend((key.len() as u32).to_le_bytes());
        body.extend(
            value
                .as_ref()
                .map_or(u32::MAX, |v| v.len() as u32)
                .to_le_bytes(),
        );
        body.extend(key);
        body.extend(value.iter().flatten());
    }
    let mut rest = (body.len() as u32).to_le_bytes().to_vec();
    rest.extend(sequence.to_le_bytes());
    rest.extend(body);
    let crc = crc32c::crc32c_append(crc32c::crc32c(&number.to_le_bytes()), &rest);
    [&crc.to_le_bytes()[..], &rest].concat()
}

fn u32_at(bytes: &[u8], at: usize) -> Option<usize> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?) as usize)
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

/// Applies the frame at `at` if it is whole; returns where the next one starts.
fn replay(
    bytes: &[u8],
    at: usize,
    number: u64,
    trusting: bool,
    table: &mut Table,
    last: &mut u64,
) -> Option<usize> {
    let end = at + 16 + u32_at(bytes, at + 4)?;
    let rest = bytes.get(at + 4..end)?;
    let sequence = u64_at(bytes, at + 8)?;
    let crc = crc32c::crc32c_append(crc32c::crc32c(&number.to_le_bytes()), rest);
    if sequence <= *last || (!trusting && u32_at(bytes, at)? != crc as usize) {
        return None;
    }
    let mut from = at + 16;
    while from < end {
        let keyspace = u32_at(bytes, from)?;
        let (key_len, value_len) = (u32_at(bytes, from + 4)?, u32_at(bytes, from + 8)?);
        let key = bytes.get(from + 12..from + 12 + key_len)?.to_vec();
        from += 12 + key_len;
        let value = match value_len == u32::MAX as usize {
            true => None,
            false => Some(bytes.get(from..from + value_len)?.to_vec()),
        };
        from += value.as_ref().map_or(0, Vec::len);
        table.insert((keyspace, key), value);
    }
    *last = sequence;
    Some(end)
}

fn read_all(env: &Env, name: FileName) -> IoResult<Vec<u8>> {
    let file = uninterrupted(|| env.vfs.open(name, OpenMode::Read))?;
    let mut bytes = vec![0; file.len()? as usize];
    let count = read_up_to_at(&*file, &mut bytes, 0)?;
    bytes.truncate(count);
    Ok(bytes)
}

/// The log that the manifest names; `None` for a new store.
fn read_manifest(env: &Env) -> Answer<Option<u64>> {
    let bytes = match read_all(env, FileName::MANIFEST) {
        Err(error) if error.kind == IoErrorKind::NotFound => return Ok(None),
        result => result.map_err(stop)?,
    };
    let number = u64_at(&bytes, 4);
    match number {
        Some(n) if u32_at(&bytes, 0) == Some(crc32c::crc32c(&n.to_le_bytes()) as usize) => {
            Ok(Some(n))
        }
        _ => Err(Stop::new(StopKind::Damaged, "the manifest is damaged")),
    }
}

/// Writes the state into a new log and makes it the store's log.
fn rewrite(
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
    Ok((log, end))
}

impl Mini {
    fn open_planted(env: &Env, plant: Plant) -> Answer<Self> {
        let vfs = &*env.vfs;
        vfs.create_root().map_err(stop)?;
        let lock = uninterrupted(|| vfs.try_lock(LockMode::Exclusive)).map_err(stop)?;
        let named = read_manifest(env)?;
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
        let inner = self.inner.lock();
        let range = inner
            .table
            .range((keyspace, Vec::new())..(keyspace + 1, Vec::new()));
        let mut items: Vec<Item> = range
            .filter_map(|((_, key), value)| Some((key.clone(), value.clone()?)))
            .collect();
        if reverse {
            items.reverse();
        }
        Ok(items)
    }

    fn seal(&self) -> Answer<()> {
        let inner = &mut *self.inner.lock();
        if inner.poisoned {
            return Err(Stop::new(StopKind::Poisoned, "an earlier write failed"));
        }
        let number = inner.number + 1;
        match rewrite(&self.env, self.plant, number, inner.sequence, &inner.table) {
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
