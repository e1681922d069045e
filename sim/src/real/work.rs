//! Work that follows from numbers: what batch `counter` of a thread writes, so that nobody has to keep it.
//!
//! Each thread has keys of its own in `names` (mutable) and puts fresh ones into `blocks` (write once).
//! Every batch also sets the thread's counter key: what a store holds of a thread is the work up to its
//! counter, whole, or something is wrong.

use std::collections::BTreeMap;

use sealstone::{Background, Batch, Keyspace, KeyspaceOptions, Options, Result, Store};

use crate::choices::SmallRandom;

/// Keys of a thread that are written over and deleted.
const KEYS: u64 = 150;

/// The content of both keyspaces.
pub type Content = [BTreeMap<Vec<u8>, Vec<u8>>; 2];

/// One put or delete: the keyspace (0 is `names`, 1 is `blocks`), the key, the value.
pub type Change = (usize, Vec<u8>, Option<Vec<u8>>);

/// Which batch: of which life of which thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Piece {
    /// The process that did it.
    pub life: u64,
    /// The thread.
    pub thread: u64,
    /// Counts the thread's batches, from 1, through all lives.
    pub counter: u64,
}

/// A store small enough to seal, flush and rotate all the time, with a thread for it.
pub fn options(threaded: bool) -> Options {
    let options = Options::new()
        .write_region_bytes(2 << 20)
        .filter_budget_bytes(64 << 10)
        .scan_bytes(32 << 20)
        .chunk_bytes(4096)
        .block_records(32)
        .seal_records(256)
        .seal_bytes(64 << 10)
        .batch_bytes_max(64 << 10)
        .manifest_roll_bytes(4096)
        .family_seed([3; 16]);
    match threaded {
        true => options.background(Background::Threads(1)),
        false => options.background(Background::Manual),
    }
}

/// Both keyspaces, created where they are missing.
///
/// # Errors
/// The store's.
pub fn keyspaces(store: &Store) -> Result<[Keyspace; 2]> {
    Ok([
        store.keyspace("names", KeyspaceOptions::mutable())?,
        store.keyspace("blocks", KeyspaceOptions::write_once())?,
    ])
}

/// The key that holds a thread's counter.
pub fn counter_key(thread: u64) -> Vec<u8> {
    format!("counter-{thread}").into_bytes()
}

/// What a piece of work writes. No key twice.
pub fn changes(seed: u64, piece: Piece) -> Vec<Change> {
    let Piece {
        life,
        thread,
        counter,
    } = piece;
    let mixed = seed ^ life << 48 ^ thread << 40 ^ counter;
    let mut random = SmallRandom::new(mixed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let mut changes = BTreeMap::new();
    let counted = counter.to_le_bytes().to_vec();
    changes.insert((0, counter_key(thread)), Some(counted));
    for _ in 0..random.below(6) {
        let key = format!("{thread}/{:03}", random.below(KEYS)).into_bytes();
        let value = match random.chance(1, 5) {
            true => None,
            false => Some(value(&mut random, 400)),
        };
        changes.insert((0, key), value);
    }
    if random.chance(1, 3) {
        let key = format!("{thread}-{counter}-{life}").into_bytes();
        let most = if random.chance(1, 20) { 20_000 } else { 2000 };
        changes.insert((1, key), Some(value(&mut random, most)));
    }
    let flat = |((keyspace, key), value)| (keyspace, key, value);
    changes.into_iter().map(flat).collect()
}

fn value(random: &mut SmallRandom, most: u64) -> Vec<u8> {
    let mut value = vec![0; random.below(most) as usize];
    random.fill(&mut value);
    value
}

/// The changes as a batch.
pub fn batch<'a>(keyspaces: &[Keyspace; 2], changes: &'a [Change]) -> Batch<'a> {
    let mut batch = Batch::new();
    for (keyspace, key, value) in changes {
        match value {
            Some(value) => batch.put(&keyspaces[*keyspace], key, value),
            None => batch.delete(&keyspaces[*keyspace], key),
        };
    }
    batch
}

/// Does a piece of work to a content.
pub fn apply(content: &mut Content, changes: &[Change]) {
    for (keyspace, key, value) in changes {
        match value {
            Some(value) => drop(content[*keyspace].insert(key.clone(), value.clone())),
            None => drop(content[*keyspace].remove(key)),
        }
    }
}

/// Everything that a store holds.
///
/// # Errors
/// The store's.
pub fn content(keyspaces: &[Keyspace; 2]) -> Result<Content> {
    let mut content = Content::default();
    for (keyspace, content) in keyspaces.iter().zip(&mut content) {
        for item in keyspace.iter()? {
            let (key, value) = item?;
            content.insert(key.to_vec(), value.to_vec());
        }
    }
    Ok(content)
}

/// Where two contents differ first, in words.
pub fn difference(found: &Content, wanted: &Content) -> Option<String> {
    for (name, (found, wanted)) in ["names", "blocks"].iter().zip(found.iter().zip(wanted)) {
        for key in found.keys().chain(wanted.keys()) {
            let (found, wanted) = (found.get(key), wanted.get(key));
            if found != wanted {
                let len = |value: Option<&Vec<u8>>| value.map(Vec::len);
                return Some(format!(
                    "{name}: key {} has {:?} bytes, not {:?}, or others",
                    String::from_utf8_lossy(key),
                    len(found),
                    len(wanted)
                ));
            }
        }
    }
    None
}
