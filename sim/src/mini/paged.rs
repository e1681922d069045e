//! A miniature of a single-file store: a head with two slots that take turns, and states behind it.
//!
//! ```text
//! 0     .. 4096   head; slot s at 1024 (1 + s): crc u32 | commit u64 | layout u64 | root u64 | length u64
//! 4096  .. layout states, each a frame at a multiple of 512, never written over
//! ```
//! A commit grows the file, writes the state, makes both durable, and then writes the other slot. Open
//! takes the newest slot, and copies its state into a new file, because what it read may be in the cache
//! only. Every commit is synced.

use std::sync::Arc;

use sealstone::env::io::{uninterrupted, write_all_at};
use sealstone::env::{Env, File, FileName, IoResult, LockGuard, LockMode};
use sealstone::sync::Mutex;
use sealstone::types::KeyspaceKind;

use super::frames::{
    Table, frame, items_of, name_number, poison, poisoned, read_all, read_named, remove_others,
    replay, stop, table_of, u32_at, u64_at, without_temporaries,
};
use crate::choices::Choices;
use crate::disk::SimDisk;
use crate::model::Op;
use crate::subject::{Answer, Item, Stop, StopKind, Subject};

const HEAD_BYTES: u64 = 4096;
const SLOT_BYTES: u64 = 1024;
/// How far the two halves of a slot without a checksum are apart.
const HALF_BYTES: u64 = 512;

/// An error that other stores had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// None.
    None,
    /// The head names the larger file in the same sync that is to make the growth durable.
    GrowthBehindHead,
    /// Where the state lies stands in another sector than which commit it is, under no checksum.
    FieldsApart,
}

#[derive(Clone, Copy, Default)]
struct Slot {
    commit: u64,
    layout: u64,
    root: u64,
    length: u64,
}

struct Inner {
    table: Table,
    file: Arc<dyn File>,
    number: u64,
    slot: u64,
    now: Slot,
    poisoned: bool,
}

/// The engine.
pub struct Paged {
    inner: Mutex<Inner>,
    bug: Bug,
    recovered: u64,
    _lock: Box<dyn LockGuard>,
}

fn slot_at(slot: u64) -> u64 {
    SLOT_BYTES * (1 + slot)
}

impl Slot {
    fn write(&self, file: &dyn File, slot: u64, bug: Bug) -> IoResult<()> {
        let numbers = [self.commit, self.layout, self.root, self.length].map(u64::to_le_bytes);
        let body = numbers.concat();
        let crc = crc32c::crc32c(&body).to_le_bytes();
        if bug == Bug::FieldsApart {
            write_all_at(file, &[&crc[..], &body[..16]].concat(), slot_at(slot))?;
            return write_all_at(file, &body[16..], slot_at(slot) + HALF_BYTES);
        }
        write_all_at(file, &[&crc[..], &body].concat(), slot_at(slot))
    }

    fn read(bytes: &[u8], slot: u64, bug: Bug) -> Option<Self> {
        let at = slot_at(slot) as usize;
        let (second, apart) = match bug {
            Bug::FieldsApart => (at + HALF_BYTES as usize, true),
            _ => (at + 20, false),
        };
        let read = Self {
            commit: u64_at(bytes, at + 4)?,
            layout: u64_at(bytes, at + 12)?,
            root: u64_at(bytes, second)?,
            length: u64_at(bytes, second + 8)?,
        };
        let body = bytes.get(at + 4..at + 36)?;
        let right = u32_at(bytes, at) == Some(crc32c::crc32c(body) as usize);
        (right || apart).then_some(read)
    }
}

impl Inner {
    /// A new file with that state, made durable; no manifest names it yet.
    fn create(env: &Env, number: u64, commit: u64, table: Table, bug: Bug) -> IoResult<Self> {
        let file = uninterrupted(|| env.vfs.create_new(FileName::log(number)))?;
        let mut inner = Self {
            table: Table::new(),
            file,
            number,
            slot: 1,
            now: Slot {
                layout: HEAD_BYTES,
                ..Slot::default()
            },
            poisoned: false,
        };
        inner.commit(commit, table, bug)?;
        uninterrupted(|| env.vfs.sync_dir())?;
        Ok(inner)
    }

    fn commit(&mut self, commit: u64, table: Table, bug: Bug) -> IoResult<()> {
        let bytes = frame(self.number, commit, &table);
        let root = self.now.layout;
        let next = Slot {
            commit,
            layout: root + (bytes.len() as u64).next_multiple_of(512),
            root,
            length: bytes.len() as u64,
        };
        uninterrupted(|| self.file.set_len(next.layout))?;
        write_all_at(&*self.file, &bytes, root)?;
        if bug != Bug::GrowthBehindHead {
            uninterrupted(|| self.file.sync_data())?;
        }
        next.write(&*self.file, 1 - self.slot, bug)?;
        uninterrupted(|| self.file.sync_data())?;
        self.slot = 1 - self.slot;
        (self.now, self.table) = (next, table);
        Ok(())
    }
}

/// The state that the newest slot names, with its commit.
fn load(env: &Env, number: u64, bug: Bug) -> Answer<(Table, u64)> {
    let bytes = read_all(env, FileName::log(number)).map_err(stop)?;
    let damaged = |what: &str| Stop::new(StopKind::Damaged, what);
    let slots = (0..2).filter_map(|slot| Slot::read(&bytes, slot, bug));
    let newest = slots.max_by_key(|slot| slot.commit);
    let newest = newest.ok_or_else(|| damaged("no slot is whole"))?;
    if newest.layout > bytes.len() as u64 {
        return Err(damaged("the file is shorter than its head says"));
    }
    let (mut table, mut commit) = (Table::new(), 0);
    if newest.commit > 0 {
        let root = newest.root as usize;
        let end = replay(&bytes, root, number, false, &mut table, &mut commit);
        if end != Some(root + newest.length as usize) || commit != newest.commit {
            return Err(damaged("the head names no state"));
        }
    }
    Ok((table, commit))
}

impl Subject for Paged {
    type Options = Bug;
    type Ticket = ();
    type View = ();
    type Held = Vec<u8>;
    type Cursor = ();

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
        env.vfs.create_root().map_err(stop)?;
        let lock = uninterrupted(|| env.vfs.try_lock(LockMode::Exclusive)).map_err(stop)?;
        let named = read_named(env)?;
        let names = without_temporaries(env)?;
        let highest = names.iter().map(|name| name.number).max();
        let (table, commit) = match named {
            Some(number) => load(env, number, *bug)?,
            None => (Table::new(), 0),
        };
        let number = 1 + highest.unwrap_or(0);
        let inner = Inner::create(env, number, commit, table, *bug).map_err(stop)?;
        name_number(env, number).map_err(stop)?;
        remove_others(env, &names, number)?;
        Ok(Self {
            inner: Mutex::new(inner),
            bug: *bug,
            recovered: commit,
            _lock: lock,
        })
    }

    fn recovered(&self) -> u64 {
        self.recovered
    }

    fn write(&self, ops: &[Op], _synced: bool) -> Answer<u64> {
        let mut inner = self.inner.lock();
        if inner.poisoned {
            return Err(poisoned());
        }
        let mut table = inner.table.clone();
        table.extend(table_of(ops));
        let commit = inner.now.commit + 1;
        if let Err(error) = inner.commit(commit, table, self.bug) {
            inner.poisoned = true;
            return Err(poison(error));
        }
        Ok(commit)
    }

    fn claimed_durable(&self) -> u64 {
        self.inner.lock().now.commit
    }

    fn sync(&self) -> Answer<()> {
        match self.inner.lock().poisoned {
            true => Err(poisoned()),
            false => Ok(()),
        }
    }

    fn get(&self, keyspace: usize, key: &[u8]) -> Answer<Option<Vec<u8>>> {
        let inner = self.inner.lock();
        Ok(inner
            .table
            .get(&(keyspace, key.to_vec()))
            .cloned()
            .flatten())
    }

    fn scan(&self, keyspace: usize, reverse: bool) -> Answer<Vec<Item>> {
        Ok(items_of(&self.inner.lock().table, keyspace, reverse))
    }

    fn audit(&self, disk: &SimDisk) -> Result<u64, (&'static str, String)> {
        // The file and the lock.
        match disk.descriptors() {
            2 => Ok(0),
            held => Err(("S14", format!("{held} descriptors are open, not 2"))),
        }
    }
}
