//! What the miniatures share: frames, the manifest that names one number, answers.

use std::collections::BTreeMap;

use sealstone::env::io::{read_up_to_at, uninterrupted, write_all_at};
use sealstone::env::{Env, FileKind, FileName, IoError, IoErrorKind, IoResult, OpenMode};

use crate::model::Op;
use crate::subject::{Answer, Item, Stop, StopKind};

/// Keys with their values; `None` is a delete.
pub type Table = BTreeMap<(usize, Vec<u8>), Option<Vec<u8>>>;

/// What a batch leaves, its operations applied in order.
pub fn table_of(ops: &[Op]) -> Table {
    let places = ops
        .iter()
        .map(|op| ((op.keyspace, op.key.clone()), op.value.clone()));
    places.collect()
}

/// The keys of a keyspace that have a value.
pub fn items_of(table: &Table, keyspace: usize, reverse: bool) -> Vec<Item> {
    let range = table.range((keyspace, Vec::new())..(keyspace + 1, Vec::new()));
    let items = range.filter_map(|((_, key), value)| Some((key.clone(), value.clone()?)));
    match reverse {
        true => items.rev().collect(),
        false => items.collect(),
    }
}

/// The answer of a store that takes no writes any more.
pub fn poisoned() -> Stop {
    Stop::new(StopKind::Poisoned, "an earlier write failed")
}

/// Writes a manifest that names `number`, and makes that durable.
pub fn name_number(env: &Env, number: u64) -> IoResult<()> {
    let crc = crc32c::crc32c(&number.to_le_bytes()).to_le_bytes();
    put_manifest(env, &[&crc[..], &number.to_le_bytes()].concat()).map(drop)
}

/// Replaces the manifest by one of these bytes, durably; returns it, open.
pub fn put_manifest(env: &Env, bytes: &[u8]) -> IoResult<std::sync::Arc<dyn sealstone::env::File>> {
    let vfs = &*env.vfs;
    let manifest = uninterrupted(|| vfs.create_new(FileName::MANIFEST_TEMPORARY))?;
    write_all_at(&*manifest, bytes, 0)?;
    uninterrupted(|| manifest.sync_data())?;
    vfs.rename(FileName::MANIFEST_TEMPORARY, FileName::MANIFEST)?;
    uninterrupted(|| vfs.sync_dir())?;
    Ok(manifest)
}

/// Removes temporaries; returns the other files.
pub fn without_temporaries(env: &Env) -> Answer<Vec<FileName>> {
    let mut names = uninterrupted(|| env.vfs.list()).map_err(stop)?.names;
    for name in names.iter().filter(|name| name.temporary) {
        env.vfs.unlink(*name).map_err(stop)?;
    }
    names.retain(|name| !name.temporary);
    names.sort_unstable();
    Ok(names)
}

/// Removes logs and segments, except the one with that number.
pub fn remove_others(env: &Env, names: &[FileName], kept: u64) -> Answer<()> {
    for name in names {
        if matches!(name.kind, FileKind::Log | FileKind::Segment) && name.number != kept {
            env.vfs.unlink(*name).map_err(stop)?;
        }
    }
    uninterrupted(|| env.vfs.sync_dir()).map_err(stop)
}

/// A backend's error of a call that had no effect.
pub fn stop(error: IoError) -> Stop {
    Stop::new(
        if error.kind == IoErrorKind::NoSpace {
            StopKind::Refused
        } else {
            StopKind::Io
        },
        error,
    )
}

/// A backend's error of a write whose effect nobody knows.
pub fn poison(error: IoError) -> Stop {
    Stop::new(StopKind::Poisoned, error)
}

/// One commit, or a whole state, as a frame of the file with that number.
pub fn frame(number: u64, sequence: u64, table: &Table) -> Vec<u8> {
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

/// Four bytes as a number.
pub fn u32_at(bytes: &[u8], at: usize) -> Option<usize> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?) as usize)
}

/// Eight bytes as a number.
pub fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

/// Applies the frame at `at` if it is whole; returns where the next one starts.
pub fn replay(
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

/// The bytes of a file.
pub fn read_all(env: &Env, name: FileName) -> IoResult<Vec<u8>> {
    let file = uninterrupted(|| env.vfs.open(name, OpenMode::Read))?;
    let mut bytes = vec![0; file.len()? as usize];
    let count = read_up_to_at(&*file, &mut bytes, 0)?;
    bytes.truncate(count);
    Ok(bytes)
}

/// The number that the manifest names; `None` for a new store.
pub fn read_named(env: &Env) -> Answer<Option<u64>> {
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
