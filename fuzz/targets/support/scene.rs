//! A small store with everything in it, what it held after each commit, and the laws that hold whatever
//! is done to its files:
//!
//! * no panic, no allocation that the bytes decide, and no error but a typed one that names its file;
//! * what verification finds sound opens, reads without an error, the same from both ends and key by
//!   key, takes a write, and is the same after a reopening;
//! * where only damage happened: what is read is right.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use sealstone::env::io::{read_exact_at, write_all_at};
use sealstone::env::{Env, FileKind, FileName, OpenMode};
use sealstone::{
    Batch, Durability, Error, ErrorKind, Keyspace, KeyspaceKind, KeyspaceOptions, Options, Store,
};

use super::Seen;
use super::allocations::bounded;

/// Bytes of the files of a directory.
pub type Files = BTreeMap<FileName, Vec<u8>>;

/// Records by keyspace.
pub type Content = BTreeMap<String, BTreeMap<Vec<u8>, Vec<u8>>>;

/// Most bytes of an allocation: regions have a quarter of this, and all files together less.
const ALLOCATION_BYTES_MAX: usize = 1 << 20;

/// Commits of the scene, and those after which a generation was flushed.
const COMMITS: u64 = 30;
const FLUSHES: [u64; 2] = [9, 18];

/// Commits that were synced.
const SYNCED: [u64; 2] = [22, 26];

/// A store after the death of its process.
#[derive(Debug)]
pub struct Scene {
    files: Files,
    options: Options,
    /// What it held after each commit, from none.
    history: Vec<Content>,
    /// The last commit in segments.
    flushed: u64,
}

impl Scene {
    /// With hashes that do not collide.
    pub fn wide() -> &'static Self {
        static SCENE: OnceLock<Scene> = OnceLock::new();
        SCENE.get_or_init(|| Self::written(46))
    }

    /// With hashes that do.
    pub fn narrow() -> &'static Self {
        static SCENE: OnceLock<Scene> = OnceLock::new();
        SCENE.get_or_init(|| Self::written(8))
    }

    /// The one that a target's flags ask for: bit 2 for hashes that collide.
    pub fn of(flags: u8) -> &'static Self {
        match flags & 4 {
            0 => Self::wide(),
            _ => Self::narrow(),
        }
    }

    fn written(hash_bits: u8) -> Self {
        let options = Options::tiny()
            .hash_bits(hash_bits)
            .filter_budget_bytes(64 << 10);
        let env = Env::in_memory();
        let store = Store::open_with(env.clone(), options.clone()).expect("opens");
        let once = store.keyspace("once", KeyspaceOptions::write_once());
        let map = store.keyspace("map", KeyspaceOptions::mutable());
        let (once, map) = (once.expect("a keyspace"), map.expect("a keyspace"));
        let empty = ["once", "map"].map(|name| (name.to_owned(), BTreeMap::new()));
        let mut history = vec![Content::from(empty)];
        for number in 1..=COMMITS {
            let mut content = history.last().expect("the first").clone();
            let durability = match SYNCED.contains(&number) {
                true => Durability::Synced,
                false => Durability::Buffered,
            };
            let batch = commit(number, &once, &map, &mut content);
            store.write(batch, durability).expect("writes");
            history.push(content);
            if FLUSHES.contains(&number) {
                store.seal().expect("seals");
                store.drain().expect("drains");
            }
        }
        let files = files(&env);
        Self {
            files,
            options,
            history,
            flushed: FLUSHES[1],
        }
    }

    /// The files as they were left.
    pub fn files(&self) -> &Files {
        &self.files
    }

    /// What it held at the end.
    pub fn last(&self) -> &Content {
        &self.history[COMMITS as usize]
    }

    /// The files of a kind.
    pub fn names(&self, kind: FileKind) -> Vec<FileName> {
        let names = self.files.keys().copied();
        names.filter(|name| name.kind == kind).collect()
    }

    /// One of the files of a kind.
    pub fn pick(&self, kind: FileKind, choice: u8) -> (FileName, Vec<u8>) {
        let names = self.names(kind);
        let name = names[usize::from(choice) % names.len()];
        (name, self.files[&name].clone())
    }

    /// The scene with other files in place of some.
    pub fn with(&self, changed: &[(FileName, &[u8])]) -> Env {
        let env = Env::in_memory();
        env.vfs.create_root().expect("creates");
        for (name, bytes) in &self.files {
            let other = changed.iter().find(|(changed, _)| changed == name);
            let file = env.vfs.create_new(*name).expect("creates");
            write_all_at(&*file, other.map_or(bytes, |(_, bytes)| bytes), 0).expect("writes");
        }
        env
    }

    /// Judges a store whose files were only damaged; `synced` says that so little is damaged that
    /// nothing durable may be lost without an error.
    pub fn judge_damaged(&self, env: &Env, read_only: bool, synced: bool, seen: &Seen) {
        bounded(ALLOCATION_BYTES_MAX, || {
            let Some(store) = self.open(env, read_only, seen) else {
                return;
            };
            let through = store.sequence();
            let least = if synced { SYNCED[1] } else { self.flushed };
            assert!((least..=COMMITS).contains(&through), "recovered {through}");
            let errors = right(&store, &self.history[through as usize]);
            seen.hit(if errors { "read in part" } else { "read right" });
            if !errors && !read_only {
                store.close().expect("closes");
            }
        });
    }

    /// Judges a store whose files say whatever an adversary wants, with right checksums.
    pub fn judge_forged(&self, env: &Env, read_only: bool, seen: &Seen) {
        bounded(ALLOCATION_BYTES_MAX, || {
            let closed = Store::verify_closed(env, &mut |_| ());
            let sound = match &closed {
                Ok(report) => report.is_clean(),
                Err(error) => {
                    assert_typed(error);
                    false
                }
            };
            let Some(store) = self.open(env, read_only, seen) else {
                assert!(!sound, "found sound, but does not open");
                return;
            };
            self.judge_open(env, store, read_only, seen);
        });
    }

    fn judge_open(&self, env: &Env, store: Store, read_only: bool, seen: &Seen) {
        if !read_only && let Err(error) = store.drain() {
            assert_typed(&error);
            seen.hit("jobs fail");
            walk(&store, self.last());
            return;
        }
        let report = store.verify(&mut |_| ());
        let report = report.unwrap_or_else(|error| panic!("verify: {error:?}"));
        if !report.is_clean() {
            seen.hit("opened, damage found");
            walk(&store, self.last());
            return;
        }
        seen.hit("opened, sound");
        let content = everything(&store, self.last());
        if read_only {
            return;
        }
        let content = written(&store, content);
        drop(store);
        let store = Store::open_with(env.clone(), self.options.clone()).expect("reopens");
        let again = everything(&store, self.last());
        assert_eq!(again, content, "after a reopening");
    }

    /// Opens for reading only.
    pub fn open_read_only(&self, env: &Env) -> Result<Store, Error> {
        Store::open_with(env.clone(), self.options.clone().read_only(true))
    }

    fn open(&self, env: &Env, read_only: bool, seen: &Seen) -> Option<Store> {
        let options = self.options.clone().read_only(read_only);
        match Store::open_with(env.clone(), options) {
            Ok(store) => {
                seen.hit("opened");
                Some(store)
            }
            Err(error) => {
                assert_typed(&error);
                seen.hit("refused");
                seen.hit(format!("refused: {}", error.detail()));
                None
            }
        }
    }
}

/// A commit of both keyspaces: new keys, keys again, deletions, values of many lengths.
fn commit(number: u64, once: &Keyspace, map: &Keyspace, content: &mut Content) -> Batch<'static> {
    let mut batch = Batch::new();
    let value = |length: u64| vec![number as u8; length as usize];
    let key = format!("once {number:03}").into_bytes();
    batch.put(once, key.clone(), value(number * 3));
    let records = content.entry("once".to_owned()).or_default();
    records.insert(key, value(number * 3));
    let key = format!("map {}", number * 5 % 11).into_bytes();
    let records = content.entry("map".to_owned()).or_default();
    if number % 6 == 5 {
        batch.delete(map, key.clone());
        records.remove(&key);
    } else {
        let length = if number == 7 { 700 } else { number % 40 };
        batch.put(map, key.clone(), value(length));
        records.insert(key, value(length));
    }
    batch
}

/// What an error may be where files are not what they should be.
fn assert_typed(error: &Error) {
    match error.kind() {
        ErrorKind::Corruption | ErrorKind::MissingFile | ErrorKind::UnsupportedVersion { .. } => {
            assert!(error.file().is_some(), "no file: {error}");
        }
        // No manifest; a commit larger than the memory; a manifest of a store with another seed.
        ErrorKind::NotAStore
        | ErrorKind::TooLarge { .. }
        | ErrorKind::IncompatibleOptions { .. } => {}
        _ => panic!("not an error of damage: {error:?}"),
    }
}

/// Compares what can be read with what is right; true if there were errors.
fn right(store: &Store, model: &Content) -> bool {
    let mut errors = 0;
    for info in store.keyspaces() {
        let Some(keyspace) = keyspace(store, &info.name, info.kind) else {
            errors += 1;
            continue;
        };
        let records = &model[&info.name];
        let mut wanted = records.iter();
        let scan = keyspace.iter().expect("iterates");
        let failed = scan.into_iter().find_map(|item| match item {
            Ok((key, value)) => {
                assert_eq!(Some((&key, &value)), wanted.next());
                None
            }
            Err(error) => Some(error),
        });
        match failed {
            Some(error) => {
                assert_typed(&error);
                errors += 1;
            }
            None => assert_eq!(wanted.next(), None, "a scan ends early"),
        }
        for key in keys(model) {
            match keyspace.get(key) {
                Ok(value) => assert_eq!(value.as_deref(), records.get(key).map(Vec::as_slice)),
                Err(error) => {
                    assert_typed(&error);
                    errors += 1;
                }
            }
        }
    }
    errors > 0
}

/// All keys of all keyspaces: each is asked for in each.
fn keys(content: &Content) -> impl Iterator<Item = &Vec<u8>> {
    content.values().flat_map(BTreeMap::keys)
}

fn keyspace(store: &Store, name: &str, kind: KeyspaceKind) -> Option<Keyspace> {
    let options = match kind {
        KeyspaceKind::WriteOnce => KeyspaceOptions::write_once(),
        KeyspaceKind::Mutable => KeyspaceOptions::mutable(),
    };
    match store.keyspace(name, options) {
        Ok(keyspace) => Some(keyspace),
        Err(error) => {
            assert_typed(&error);
            None
        }
    }
}

/// Reads everything in each way; nothing is right or wrong but what an error is.
fn walk(store: &Store, asked: &Content) {
    for info in store.keyspaces() {
        let Some(keyspace) = keyspace(store, &info.name, info.kind) else {
            continue;
        };
        let forward = keyspace.iter().into_iter().flatten();
        let backward = keyspace.iter().into_iter().flat_map(Iterator::rev);
        let gets = keys(asked).map(|key| keyspace.get(key));
        let errors = forward.chain(backward).filter_map(Result::err);
        errors
            .chain(gets.filter_map(Result::err))
            .for_each(|error| assert_typed(&error));
    }
}

/// Reads everything in each way of a store that was found sound, and compares the ways.
fn everything(store: &Store, asked: &Content) -> Content {
    let mut content = Content::new();
    for info in store.keyspaces() {
        let keyspace = keyspace(store, &info.name, info.kind).expect("listed");
        content.insert(info.name, all_records(&keyspace, asked));
    }
    content
}

fn all_records(keyspace: &Keyspace, asked: &Content) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let sound =
        |item: Result<_, Error>| item.unwrap_or_else(|error| panic!("found sound, but: {error}"));
    let items = || keyspace.iter().expect("iterates");
    let forward: Vec<_> = items().map(sound).collect();
    let backward: Vec<_> = items().rev().map(sound).collect();
    assert!(
        forward.iter().eq(backward.iter().rev()),
        "the two directions"
    );
    assert!(forward.is_sorted_by(|(a, _), (b, _)| a < b), "out of order");
    let records: BTreeMap<_, _> = forward.into_iter().collect();
    for key in keys(asked).chain(records.keys()) {
        let value = keyspace.get(key);
        let value = value.unwrap_or_else(|error| panic!("found sound, but: {error}"));
        let wanted = records.get(key).map(Vec::as_slice);
        assert_eq!(value.as_deref(), wanted, "{key:?}");
    }
    records
}

/// Adds a record to each keyspace, through a flush, and closes; what is there afterwards.
fn written(store: &Store, mut content: Content) -> Content {
    for info in store.keyspaces() {
        let keyspace = keyspace(store, &info.name, info.kind).expect("listed");
        let records = content.entry(info.name).or_default();
        if records.contains_key(NEW_KEY) {
            continue;
        }
        let put = keyspace.put(NEW_KEY, b"value", Durability::Synced);
        put.expect("takes a write");
        records.insert(NEW_KEY.to_vec(), b"value".to_vec());
    }
    store.seal().expect("seals");
    store.drain().expect("flushes");
    store.close().expect("closes");
    content
}

/// A key that the scene does not have.
const NEW_KEY: &[u8] = b"one more";

fn files(env: &Env) -> Files {
    let names = env.vfs.list().expect("lists").names;
    let read = |name: FileName| {
        let file = env.vfs.open(name, OpenMode::Read).expect("opens");
        let mut bytes = vec![0; file.len().expect("a length") as usize];
        read_exact_at(&*file, &mut bytes, 0).expect("reads");
        (name, bytes)
    };
    names.into_iter().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_untouched_scene_is_sound_and_right() {
        for scene in [Scene::wide(), Scene::narrow()] {
            assert!(
                scene.names(FileKind::Log).len() >= 2,
                "a sealed log and an open one"
            );
            for read_only in [true, false] {
                let seen = Seen::default();
                scene.judge_damaged(&scene.with(&[]), read_only, true, &seen);
                scene.judge_forged(&scene.with(&[]), read_only, &seen);
                seen.assert_at_least(&[("read right", 1), ("opened, sound", 1)]);
            }
        }
    }

    /// What inputs in the corpus mean must not change from run to run.
    #[test]
    fn scenes_are_the_same_in_each_run() {
        assert!(Scene::written(46).files == Scene::wide().files);
    }
}
