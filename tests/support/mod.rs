//! What the tests over the public API share: small stores, their bytes, and a directory with a hook.

#![allow(dead_code, reason = "each test uses a part of it")]

pub mod hook;

use std::collections::BTreeMap;
use std::fmt::Debug;

use sealstone::env::io::{read_exact_at, write_all_at};
use sealstone::env::{Env, FileKind, FileName, OpenMode};
use sealstone::{
    Background, Batch, Durability, Error, ErrorKind, Job, Keyspace, KeyspaceOptions, Options,
    Result, Sequence, Store,
};

/// The content of a keyspace, as a test expects it.
pub type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// The bytes of a directory.
pub type Files = BTreeMap<FileName, Vec<u8>>;

/// Default sizes, stepped by the test.
pub fn manual() -> Options {
    Options::new().background(Background::Manual)
}

/// The same with small logs, for tests that open often.
pub fn compact() -> Options {
    manual().seal_bytes(64 << 10).batch_bytes_max(64 << 10)
}

/// Opens, or fails the test.
pub fn open(env: &Env, options: Options) -> Store {
    Store::open_with(env.clone(), options).expect("opens")
}

/// The `Mutable` keyspace of a name.
pub fn mutable(store: &Store, name: &str) -> Keyspace {
    let options = KeyspaceOptions::mutable();
    store.keyspace(name, options).expect("a keyspace")
}

/// The `WriteOnce` keyspace of a name.
pub fn write_once(store: &Store, name: &str) -> Keyspace {
    let options = KeyspaceOptions::write_once();
    store.keyspace(name, options).expect("a keyspace")
}

/// A batch of one put.
pub fn one_put<'a>(keyspace: &Keyspace, key: &'a [u8], value: &'a [u8]) -> Batch<'a> {
    let mut batch = Batch::new();
    batch.put(keyspace, key, value);
    batch
}

/// Puts without a sync.
pub fn put(keyspace: &Keyspace, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Sequence {
    keyspace
        .put(key.as_ref(), value.as_ref(), Durability::Buffered)
        .expect("puts")
}

/// The value as a vector.
pub fn get(keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Option<Vec<u8>> {
    keyspace
        .get(key)
        .expect("reads")
        .map(|value| value.to_vec())
}

/// Ends the open generation and runs all jobs.
pub fn flush(store: &Store) {
    store.seal().expect("seals");
    store.drain().expect("drains");
}

/// The error of a call that has to fail.
pub fn refused<T: Debug>(result: Result<T>) -> Error {
    result.expect_err("has to be refused")
}

/// The kind of that error.
pub fn kind_of<T: Debug>(result: Result<T>) -> ErrorKind {
    refused(result).kind().clone()
}

/// Everything in a keyspace, from the front.
pub fn content(keyspace: &Keyspace) -> Map {
    let items = keyspace.iter().expect("iterates");
    items.map(|item| item.expect("an item")).collect()
}

/// Compares a keyspace with what it should hold: scans both ways and each key.
pub fn assert_content(keyspace: &Keyspace, model: &Map) {
    let forward: Vec<_> = keyspace
        .iter()
        .expect("iterates")
        .map(|item| item.expect("an item"))
        .collect();
    let wanted: Vec<_> = model.iter().map(|(k, v)| (k.clone(), v.clone())).collect();
    assert_eq!(forward, wanted);
    let mut backward: Vec<_> = keyspace
        .iter()
        .expect("iterates")
        .rev()
        .map(|item| item.expect("an item"))
        .collect();
    backward.reverse();
    assert_eq!(backward, wanted);
    for (key, value) in model {
        assert_eq!(get(keyspace, key).as_ref(), Some(value), "{key:?}");
    }
}

/// Runs jobs of one kind until there is none.
pub fn run_all(store: &Store, job: Job) {
    while store.runnable().contains(&job) {
        store.run(job, 16).expect("runs");
    }
}

/// The parts of the write region add up.
pub fn assert_books(store: &Store) {
    let memory = store.audit().memory;
    let parts = memory.free_bytes
        + memory.open_bytes
        + memory.sealed_bytes
        + memory.flushing_bytes
        + memory.pinned_bytes
        + memory.retiring_bytes
        + memory.scratch_bytes
        + memory.reserved_bytes;
    assert_eq!(parts, memory.total_bytes, "{memory:?}");
}

/// The bytes of one file.
pub fn read_file(env: &Env, name: FileName) -> Vec<u8> {
    let file = env.vfs.open(name, OpenMode::Read).expect("opens");
    let mut bytes = vec![0; file.len().expect("a length") as usize];
    read_exact_at(&*file, &mut bytes, 0).expect("reads");
    bytes
}

/// Puts `bytes` in place of a file.
pub fn replace_file(env: &Env, name: FileName, bytes: &[u8]) {
    let _ = env.vfs.unlink(name);
    let file = env.vfs.create_new(name).expect("creates");
    write_all_at(&*file, bytes, 0).expect("writes");
}

/// Changes bytes of a file where they are.
pub fn patch_file(env: &Env, name: FileName, offset: u64, bytes: &[u8]) {
    let file = env.vfs.open(name, OpenMode::ReadWrite).expect("opens");
    write_all_at(&*file, bytes, offset).expect("writes");
}

/// All files and their bytes.
pub fn files(env: &Env) -> Files {
    let names = env.vfs.list().expect("lists").names;
    let read = |name: FileName| (name, read_file(env, name));
    names.into_iter().map(read).collect()
}

/// The names of one kind.
pub fn names_of(env: &Env, kind: FileKind) -> Vec<FileName> {
    let names = env.vfs.list().expect("lists").names;
    let wanted = |name: &FileName| name.kind == kind && !name.temporary;
    names.into_iter().filter(wanted).collect()
}

/// A machine in memory with these files: what the death of a process leaves of another.
pub fn machine(files: &Files) -> Env {
    let env = Env::in_memory();
    env.vfs.create_root().expect("creates");
    for (name, bytes) in files {
        replace_file(&env, *name, bytes);
    }
    env
}

/// The same disk after the death of the process, which writes nothing any more.
pub fn killed(env: &Env) -> Env {
    machine(&files(env))
}

/// Opens, asserts that it is refused and that every byte on disk is as before.
pub fn assert_refused(env: &Env, options: Options) -> Error {
    let before = files(env);
    let error = refused(Store::open_with(env.clone(), options));
    let after = files(env);
    assert_eq!(
        before.keys().collect::<Vec<_>>(),
        after.keys().collect::<Vec<_>>()
    );
    assert!(before == after, "bytes were changed by a refused open");
    error
}

/// Numbers that repeat in each run (Knuth's MMIX generator).
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    /// A number below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }

    /// That many bytes.
    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.below(256) as u8).collect()
    }
}
