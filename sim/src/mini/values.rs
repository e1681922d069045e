//! A miniature of a store with values apart from its index: an index log, and a file of values whose
//! space is used again.
//!
//! ```text
//! index:  frames; a key's value in a frame is its place: offset u64 | length u32 | sequence u64
//! values: records at multiples of 64: crc u32 | sequence u64 | bytes
//! ```
//! A record's checksum covers whose it is (keyspace, key, sequence), its bytes are durable before the
//! frame that names it is written, and space is used again only when the frame that gave it up is
//! durable. Open cuts the index before the first live place that holds no record of its own, and copies
//! what is left into new files.

use std::collections::BTreeMap;
use std::sync::Arc;

use sealstone::env::io::{read_up_to_at, uninterrupted, write_all_at};
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

const RECORD_HEAD_BYTES: u64 = 12;
const UNIT_BYTES: u64 = 64;

/// An error that other stores had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// None.
    None,
    /// A record's checksum does not say whose it is, index and values are synced side by side, and space
    /// is used again at once.
    RecordsOfNobody,
}

type Key = (usize, Vec<u8>);

#[derive(Clone, Copy)]
struct Place {
    offset: u64,
    length: u32,
    sequence: u64,
}

struct Inner {
    places: BTreeMap<Key, Place>,
    index: Arc<dyn File>,
    values: Arc<dyn File>,
    number: u64,
    sequence: u64,
    index_end: u64,
    values_end: u64,
    /// Space that nothing durable needs, by its size.
    free: Vec<(u64, u64)>,
    /// Space given up by frames that may not be durable.
    given_up: Vec<(u64, u64)>,
    poisoned: bool,
}

/// The engine.
pub struct Values {
    inner: Mutex<Inner>,
    bug: Bug,
    recovered: u64,
    _lock: Box<dyn LockGuard>,
}

fn room(length: u32) -> u64 {
    (RECORD_HEAD_BYTES + u64::from(length)).next_multiple_of(UNIT_BYTES)
}

fn record_crc(key: &Key, sequence: u64, bytes: &[u8], bug: Bug) -> u32 {
    let crc = crc32c::crc32c(bytes);
    if bug == Bug::RecordsOfNobody {
        return crc;
    }
    let crc = crc32c::crc32c_append(crc, &(key.0 as u64).to_le_bytes());
    let crc = crc32c::crc32c_append(crc, &key.1);
    crc32c::crc32c_append(crc, &sequence.to_le_bytes())
}

impl Place {
    fn encode(self) -> Vec<u8> {
        let mut bytes = self.offset.to_le_bytes().to_vec();
        bytes.extend(self.length.to_le_bytes());
        bytes.extend(self.sequence.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        Some(Self {
            offset: u64_at(bytes, 0)?,
            length: u32_at(bytes, 8)? as u32,
            sequence: u64_at(bytes, 12)?,
        })
    }

    /// The value of a record that is whole, in the bytes of the record's place.
    fn value(&self, record: &[u8], key: &Key, bug: Bug) -> Option<Vec<u8>> {
        let head = RECORD_HEAD_BYTES as usize;
        let bytes = record.get(head..head + self.length as usize)?;
        let crc = u32_at(record, 0)? as u32;
        let mine = bug == Bug::RecordsOfNobody || u64_at(record, 4)? == self.sequence;
        (mine && crc == record_crc(key, self.sequence, bytes, bug)).then(|| bytes.to_vec())
    }
}

impl Inner {
    fn create(env: &Env, number: u64, sequence: u64, table: &Table, bug: Bug) -> IoResult<Self> {
        let new = |name| uninterrupted(|| env.vfs.create_new(name));
        let mut inner = Self {
            places: BTreeMap::new(),
            index: new(FileName::log(number))?,
            values: new(FileName::segment(number))?,
            number,
            sequence,
            index_end: 0,
            values_end: 0,
            free: Vec::new(),
            given_up: Vec::new(),
            poisoned: false,
        };
        if sequence > 0 {
            inner.put(sequence, table, true, bug)?;
        }
        uninterrupted(|| inner.index.sync_data())?;
        uninterrupted(|| env.vfs.sync_dir())?;
        Ok(inner)
    }

    fn put(&mut self, sequence: u64, table: &Table, synced: bool, bug: Bug) -> IoResult<()> {
        let (mut frames, mut new) = (Table::new(), Vec::new());
        for (key, value) in table {
            let place = match value {
                None => None,
                Some(value) => Some(self.put_record(key, sequence, value, bug)?),
            };
            frames.insert(key.clone(), place.map(Place::encode));
            new.push((key.clone(), place));
        }
        let right = bug == Bug::None;
        if synced && right {
            uninterrupted(|| self.values.sync_data())?;
        }
        let bytes = frame(self.number, sequence, &frames);
        write_all_at(&*self.index, &bytes, self.index_end)?;
        self.index_end += bytes.len() as u64;
        if synced {
            uninterrupted(|| self.index.sync_data())?;
            if !right {
                uninterrupted(|| self.values.sync_data())?;
            }
        }
        for (key, place) in new {
            let old = match place {
                Some(place) => self.places.insert(key, place),
                None => self.places.remove(&key),
            };
            let old = old.map(|place| (place.offset, room(place.length)));
            match right {
                true => self.given_up.extend(old),
                false => self.free.extend(old),
            }
        }
        if synced {
            self.free.append(&mut self.given_up);
        }
        self.sequence = sequence;
        Ok(())
    }

    fn put_record(&mut self, key: &Key, sequence: u64, value: &[u8], bug: Bug) -> IoResult<Place> {
        let length = value.len() as u32;
        let size = room(length);
        let offset = match self.free.iter().position(|(_, room)| *room == size) {
            Some(at) => self.free.swap_remove(at).0,
            None => {
                self.values_end += size;
                self.values_end - size
            }
        };
        let crc = record_crc(key, sequence, value, bug).to_le_bytes();
        let record = [&crc[..], &sequence.to_le_bytes(), value].concat();
        write_all_at(&*self.values, &record, offset)?;
        Ok(Place {
            offset,
            length,
            sequence,
        })
    }
}

/// The newest state all of whose places hold a record that is whole.
fn load(env: &Env, number: u64, bug: Bug) -> Answer<(Table, u64)> {
    let index = read_all(env, FileName::log(number)).map_err(stop)?;
    let values = read_all(env, FileName::segment(number)).map_err(stop)?;
    let mut cut = u64::MAX;
    loop {
        let (mut places, mut sequence, mut at) = (Table::new(), 0, 0);
        loop {
            let (mut next, mut last) = (Table::new(), sequence);
            match replay(&index, at, number, false, &mut next, &mut last) {
                Some(end) if last < cut => (at, sequence) = (end, last),
                _ => break,
            }
            places.extend(next);
        }
        let mut table = Table::new();
        let mut bad: Option<u64> = None;
        for (key, place) in places {
            let Some(place) = place.as_deref().and_then(Place::decode) else {
                continue;
            };
            let record = values.get(place.offset as usize..).unwrap_or_default();
            match place.value(record, &key, bug) {
                Some(value) => drop(table.insert(key, Some(value))),
                None => bad = Some(bad.map_or(place.sequence, |b| b.min(place.sequence))),
            }
        }
        match bad {
            Some(bad) => cut = bad,
            None => return Ok((table, sequence)),
        }
    }
}

impl Subject for Values {
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
        let (table, sequence) = match named {
            Some(number) => load(env, number, *bug)?,
            None => (Table::new(), 0),
        };
        let number = 1 + highest.unwrap_or(0);
        let inner = Inner::create(env, number, sequence, &table, *bug).map_err(stop)?;
        name_number(env, number).map_err(stop)?;
        remove_others(env, &names, number)?;
        Ok(Self {
            inner: Mutex::new(inner),
            bug: *bug,
            recovered: sequence,
            _lock: lock,
        })
    }

    fn recovered(&self) -> u64 {
        self.recovered
    }

    fn write(&self, ops: &[Op], synced: bool) -> Answer<u64> {
        let mut inner = self.inner.lock();
        if inner.poisoned {
            return Err(poisoned());
        }
        let sequence = inner.sequence + 1;
        if let Err(error) = inner.put(sequence, &table_of(ops), synced, self.bug) {
            inner.poisoned = true;
            return Err(poison(error));
        }
        Ok(sequence)
    }

    fn sync(&self) -> Answer<()> {
        let mut inner = self.inner.lock();
        if inner.poisoned {
            return Err(poisoned());
        }
        let values = uninterrupted(|| inner.values.sync_data());
        let both = values.and_then(|()| uninterrupted(|| inner.index.sync_data()));
        if both.is_err() {
            inner.poisoned = true;
        } else {
            let given_up = std::mem::take(&mut inner.given_up);
            inner.free.extend(given_up);
        }
        both.map_err(poison)
    }

    fn get(&self, keyspace: usize, key: &[u8]) -> Answer<Option<Vec<u8>>> {
        let inner = self.inner.lock();
        let key = (keyspace, key.to_vec());
        let Some(place) = inner.places.get(&key) else {
            return Ok(None);
        };
        let mut record = vec![0; room(place.length) as usize];
        let count = read_up_to_at(&*inner.values, &mut record, place.offset).map_err(stop)?;
        let value = place.value(&record[..count], &key, self.bug);
        value
            .map(Some)
            .ok_or_else(|| Stop::new(StopKind::Damaged, "a record is not what was written"))
    }

    fn scan(&self, keyspace: usize, reverse: bool) -> Answer<Vec<Item>> {
        let inner = self.inner.lock();
        let keys: Vec<Key> = inner.places.keys().cloned().collect();
        drop(inner);
        let mut table = Table::new();
        for key in keys.into_iter().filter(|key| key.0 == keyspace) {
            let value = self.get(keyspace, &key.1)?;
            table.insert(key, value);
        }
        Ok(items_of(&table, keyspace, reverse))
    }

    fn audit(&self, disk: &SimDisk) -> Result<u64, (&'static str, String)> {
        // Two files and the lock.
        match disk.descriptors() {
            3 => Ok(0),
            held => Err(("S14", format!("{held} descriptors are open, not 3"))),
        }
    }
}
