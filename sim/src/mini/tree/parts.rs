//! What the tree is made of on disk: manifest edits, segments; and how an open puts it together.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use sealstone::env::io::{uninterrupted, write_all_at};
use sealstone::env::{Env, File, FileKind, FileName, IoErrorKind, IoResult, OpenMode};

use super::super::frames::{
    Table, frame, put_manifest, read_all, remove_others, replay, stop, u32_at, u64_at,
};
use super::{Bug, Inner, MEMORY_BYTES, bytes_of, new_log};
use crate::subject::{Answer, Figures, Stop, StopKind};

/// A flushed table.
pub struct Segment {
    pub number: u64,
    /// The last commit in it.
    pub sequence: u64,
    /// The hashes of its keys.
    pub filter: BTreeSet<u16>,
    /// Whether lookups may ask the filter.
    pub resident: AtomicBool,
}

/// A hash in the manner of LevelDB's: words, and then what is left, byte by byte.
fn hash((keyspace, key): &(usize, Vec<u8>), signed: bool) -> u16 {
    let mix = |hash: u32, word: u32| {
        let hash = hash.wrapping_add(word).wrapping_mul(0xC6A4_A793);
        hash ^ (hash >> 16)
    };
    let (words, rest) = key.as_chunks::<4>();
    let mut sum = words.iter().fold(*keyspace as u32 + 1, |sum, word| {
        mix(sum, u32::from_le_bytes(*word))
    });
    for (byte, shift) in rest.iter().zip([0, 8, 16]) {
        let widened = match signed {
            true => i32::from(*byte as i8) as u32,
            false => u32::from(*byte),
        };
        sum = sum.wrapping_add(widened << shift);
    }
    (mix(sum, 0) >> 8) as u16
}

impl Segment {
    fn of(number: u64, sequence: u64, table: &Table) -> Self {
        Self {
            number,
            sequence,
            filter: table.keys().map(|key| hash(key, false)).collect(),
            resident: AtomicBool::new(false),
        }
    }

    /// Writes a table as a segment and makes it durable.
    pub fn write(env: &Env, number: u64, sequence: u64, table: &Table) -> IoResult<Self> {
        let file = uninterrupted(|| env.vfs.create_new(FileName::segment(number)))?;
        write_all_at(&*file, &frame(number, sequence, table), 0)?;
        uninterrupted(|| file.sync_data())?;
        uninterrupted(|| env.vfs.sync_dir())?;
        Ok(Self::of(number, sequence, table))
    }

    /// The same segment for a reader that nobody counts.
    pub fn apart(&self) -> Self {
        Self {
            number: self.number,
            sequence: self.sequence,
            filter: self.filter.clone(),
            resident: AtomicBool::new(false),
        }
    }

    /// Whether a lookup has to look into it.
    pub fn may_hold(&self, key: &(usize, Vec<u8>), bug: Bug) -> bool {
        let resident = self.resident.load(std::sync::atomic::Ordering::Relaxed);
        !resident
            || self
                .filter
                .contains(&hash(key, bug == Bug::FilterSignExtends))
    }

    /// Its table.
    pub fn read(&self, env: &Env, bug: Bug) -> Answer<Table> {
        read_segment(env, self.number, bug).map(|(table, _)| table)
    }
}

/// A segment's table and sequence.
fn read_segment(env: &Env, number: u64, bug: Bug) -> Answer<(Table, u64)> {
    let name = FileName::segment(number);
    let bytes = read_all(env, name).map_err(|error| match error.kind {
        IoErrorKind::NotFound => Stop::new(StopKind::Damaged, format!("there is no {name}")),
        IoErrorKind::TooManyOpenFiles => Stop::new(StopKind::Refused, error),
        _ => stop(error),
    })?;
    let (mut table, mut sequence) = (Table::new(), 0);
    let believed = bug == Bug::SegmentsBelieved;
    match replay(&bytes, 0, number, believed, &mut table, &mut sequence) {
        Some(_) => Ok((table, sequence)),
        None => Err(Stop::new(StopKind::Damaged, format!("{name} is damaged"))),
    }
}

/// What the manifest says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    pub next: u64,
    pub first_log: u64,
    pub segments: Vec<u64>,
}

impl Edit {
    pub fn encode(&self) -> Vec<u8> {
        let mut numbers = vec![self.next, self.first_log];
        numbers.extend(&self.segments);
        let mut rest = (numbers.len() as u32).to_le_bytes().to_vec();
        rest.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
        [&crc32c::crc32c(&rest).to_le_bytes()[..], &rest].concat()
    }

    fn decode(bytes: &[u8], at: usize) -> Option<(Self, usize)> {
        let count = u32_at(bytes, at + 4)?;
        let rest = bytes.get(at + 4..at.checked_add(8 + 8 * count)?)?;
        if count < 2 || u32_at(bytes, at)? != crc32c::crc32c(rest) as usize {
            return None;
        }
        let numbers: Vec<u64> = (0..count)
            .filter_map(|index| u64_at(rest, 4 + 8 * index))
            .collect();
        let edit = Self {
            next: numbers[0],
            first_log: numbers[1],
            segments: numbers[2..].to_vec(),
        };
        Some((edit, at + 8 + 8 * count))
    }

    /// The manifest's last whole edit and where the next one goes; `None` for a new store.
    pub fn last(env: &Env) -> Answer<Option<(Self, u64)>> {
        let bytes = match read_all(env, FileName::MANIFEST) {
            Err(error) if error.kind == IoErrorKind::NotFound => return Ok(None),
            result => result.map_err(stop)?,
        };
        let (mut last, mut at) = (None, 0);
        while let Some((edit, end)) = Self::decode(&bytes, at) {
            (last, at) = (Some(edit), end);
        }
        let damaged = || Stop::new(StopKind::Damaged, "the manifest holds no edit");
        last.map(|edit| Some((edit, at as u64))).ok_or_else(damaged)
    }
}

/// What the live logs and the named segments hold.
struct Loaded {
    table: Table,
    segments: Vec<Arc<Segment>>,
    sequence: u64,
    /// Whether a log held a commit.
    replayed: bool,
}

fn load(env: &Env, edit: &Edit, names: &[FileName], bug: Bug) -> Answer<Loaded> {
    let mut loaded = Loaded {
        table: Table::new(),
        segments: Vec::new(),
        sequence: 0,
        replayed: false,
    };
    for number in &edit.segments {
        let (table, sequence) = read_segment(env, *number, bug)?;
        loaded.sequence = loaded.sequence.max(sequence);
        let segment = Segment::of(*number, sequence, &table);
        loaded.segments.push(Arc::new(segment));
    }
    let live = |name: &&FileName| name.kind == FileKind::Log && name.number >= edit.first_log;
    for name in names.iter().filter(live) {
        let bytes = read_all(env, *name).map_err(stop)?;
        let (mut at, mut last) = (0, 0);
        // A log that follows a seal begins with what the sealed one ended with.
        while let Some(end) = replay(&bytes, at, name.number, false, &mut loaded.table, &mut last) {
            at = end;
            loaded.replayed = true;
        }
        loaded.sequence = loaded.sequence.max(last);
    }
    Ok(loaded)
}

fn inner_of(loaded: Loaded, edit: &Edit, log: (Arc<dyn File>, u64, u64)) -> Inner {
    let (log, log_number, log_end) = log;
    let free_bytes = MEMORY_BYTES - bytes_of(&loaded.table);
    Inner {
        table: loaded.table,
        sealed: None,
        segments: loaded.segments,
        retired: Vec::new(),
        unlinks: Vec::new(),
        built: None,
        manifest: Arc::clone(&log),
        log,
        log_number,
        log_end,
        old_logs: Vec::new(),
        manifest_end: 0,
        first_log: edit.first_log,
        next: edit.next,
        sequence: loaded.sequence,
        seals: 0,
        free_bytes,
        cursor_bytes: 0,
        cursors: 0,
        poisoned: false,
        slots: super::Slots::default(),
        reads: Figures::default(),
    }
}

/// Copies what the logs hold into a new one and begins a new manifest.
pub fn start_anew(
    env: &Env,
    edit: Option<Edit>,
    names: &[FileName],
    bug: Bug,
) -> Answer<(Inner, u64)> {
    let old = edit.unwrap_or(Edit {
        next: 1,
        first_log: 1,
        segments: Vec::new(),
    });
    let mut loaded = load(env, &old, names, bug)?;
    if bug == Bug::CommitsInvented && loaded.replayed {
        loaded.sequence += 1;
    }
    let highest = names.iter().map(|name| name.number).max().unwrap_or(0);
    let number = old.next.max(highest + 1);
    let new = Edit {
        next: number + 1,
        first_log: number,
        segments: old.segments.clone(),
    };
    let started = || -> IoResult<_> {
        let log = new_log(env, number, bug)?;
        let state = frame(number, loaded.sequence, &loaded.table);
        let end = if loaded.sequence == 0 { 0 } else { state.len() };
        write_all_at(&*log, &state[..end], 0)?;
        uninterrupted(|| log.sync_data())?;
        let bytes = new.encode();
        let manifest = put_manifest(env, &bytes)?;
        Ok((log, end as u64, manifest, bytes.len() as u64))
    };
    let (log, end, manifest, manifest_end) = started().map_err(stop)?;
    let unnamed: Vec<FileName> = names
        .iter()
        .filter(|name| name.kind == FileKind::Log || !new.segments.contains(&name.number))
        .copied()
        .collect();
    remove_others(env, &unnamed, number)?;
    let recovered = loaded.sequence;
    let mut inner = inner_of(loaded, &new, (log, number, end));
    (inner.manifest, inner.manifest_end) = (manifest, manifest_end);
    Ok((inner, recovered))
}

/// Goes on with the files that are there, and with the number that the manifest says is next.
pub fn continue_with(
    env: &Env,
    edit: Edit,
    manifest_end: u64,
    names: &[FileName],
) -> Answer<(Inner, u64)> {
    let loaded = load(env, &edit, names, Bug::None)?;
    let gone = |name: &&FileName| match name.kind {
        FileKind::Log => name.number < edit.first_log,
        FileKind::Segment => !edit.segments.contains(&name.number),
        _ => false,
    };
    for name in names.iter().filter(gone) {
        env.vfs.unlink(*name).map_err(stop)?;
    }
    uninterrupted(|| env.vfs.sync_dir()).map_err(stop)?;
    let open = |name| uninterrupted(|| env.vfs.open(name, OpenMode::ReadWrite)).map_err(stop);
    let number = edit.next;
    let log = match names.contains(&FileName::log(number)) {
        true => {
            // That number was given out by an edit that is not there.
            let log = open(FileName::log(number))?;
            uninterrupted(|| log.set_len(0)).map_err(stop)?;
            log
        }
        false => new_log(env, number, Bug::None).map_err(stop)?,
    };
    let live = names
        .iter()
        .filter(|name| name.kind == FileKind::Log && name.number >= edit.first_log);
    let old_logs = live.map(|name| name.number).filter(|log| *log < number);
    let recovered = loaded.sequence;
    let mut inner = inner_of(loaded, &edit, (log, number, 0));
    inner.old_logs = old_logs.collect();
    inner.next = number + 1;
    inner.manifest = open(FileName::MANIFEST)?;
    inner.manifest_end = manifest_end;
    inner.put_numbers().map_err(stop)?;
    Ok((inner, recovered))
}
