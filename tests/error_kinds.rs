//! Every kind of error, produced through the public API: it says what was done, to which file where one
//! is concerned, and what to do about it.
//!
//! The kinds are taken from the source of the enumeration: one that no case here produces fails the test.

mod support;

use std::collections::BTreeSet;

use sealstone::env::{Env, FileKind, FileName, IoError, IoErrorKind};
use sealstone::{Batch, Durability, Error, ErrorKind, KeyspaceOptions, Store};
use support::hook::{BROKEN, Call, Hook, hooked};
use support::{
    compact, flush, manual, mutable, names_of, one_put, open, patch_file, put, refused, write_once,
};

use Durability::{Buffered, Synced};

const SOURCE: &str = include_str!("../src/error.rs");

/// What an error of a case concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Of {
    /// The store or the call as a whole.
    NoFile,
    /// A file of this kind.
    File(FileKind),
}

/// The variant's name, how the error is produced, what it concerns.
type Case = (&'static str, fn() -> Error, Of);

const CASES: [Case; 18] = [
    ("Io", io, Of::File(FileKind::Segment)),
    ("NoSpace", no_space, Of::File(FileKind::Log)),
    (
        "TooManyOpenFiles",
        too_many_open_files,
        Of::File(FileKind::Segment),
    ),
    ("Corruption", corruption, Of::File(FileKind::Segment)),
    ("MissingFile", missing_file, Of::File(FileKind::Segment)),
    (
        "UnsupportedVersion",
        unsupported_version,
        Of::File(FileKind::Manifest),
    ),
    ("Locked", locked, Of::File(FileKind::Lock)),
    ("NotAStore", not_a_store, Of::NoFile),
    ("InvalidArgument", invalid_argument, Of::NoFile),
    (
        "IncompatibleOptions",
        incompatible_options,
        Of::File(FileKind::Manifest),
    ),
    ("Conflict", conflict, Of::NoFile),
    ("Busy", busy, Of::NoFile),
    ("Busy", busy_by_a_pin, Of::NoFile),
    ("TooLarge", too_large, Of::NoFile),
    ("Poisoned", poisoned, Of::File(FileKind::Log)),
    ("Closed", closed, Of::NoFile),
    ("Refused", refused_by_a_closure, Of::NoFile),
    ("Unsupported", unsupported, Of::NoFile),
];

/// The variants of the enumeration, by its source.
fn variants() -> BTreeSet<&'static str> {
    let (_, body) = SOURCE.split_once("pub enum ErrorKind {").expect("is there");
    let (body, _) = body.split_once("\n}\n").expect("it ends");
    let own = body.lines().filter_map(|line| line.strip_prefix("    "));
    own.filter(|line| line.starts_with(|first: char| first.is_ascii_uppercase()))
        .filter_map(|line| line.split(|c: char| !c.is_ascii_alphanumeric()).next())
        .collect()
}

fn variant(kind: &ErrorKind) -> String {
    let text = format!("{kind:?}");
    let name = text.split(|c: char| !c.is_ascii_alphanumeric()).next();
    name.unwrap_or_default().to_owned()
}

#[test]
fn every_kind_has_a_case() {
    let cases: BTreeSet<_> = CASES.iter().map(|(name, ..)| *name).collect();
    let variants = variants();
    assert_eq!(variants, cases);
    assert!(variants.len() >= 16, "{variants:?}");
}

#[test]
fn every_case_says_what_where_and_what_to_do() {
    for (name, produce, of) in CASES {
        let error = produce();
        assert_eq!(variant(error.kind()), name, "{error}");
        let text = error.to_string();
        assert!(!error.operation().is_empty(), "{name}");
        assert!(text.contains(error.operation()), "{text}");
        assert!(error.remedy().len() > 10, "{name}: {}", error.remedy());
        assert!(text.ends_with(error.remedy()), "{text}");
        let found = error.file().map_or(Of::NoFile, |file| Of::File(file.kind));
        assert_eq!(found, of, "{text}");
        if let Some(file) = error.file() {
            assert!(text.contains(&file.to_string()), "{text}");
        }
        // A clone is the same error.
        assert_eq!(error.clone().to_string(), text);
    }
}

#[test]
fn remedies_tell_the_kinds_apart() {
    let remedies: BTreeSet<_> = CASES
        .iter()
        .map(|(_, produce, _)| produce().remedy())
        .collect();
    assert_eq!(remedies.len(), CASES.len(), "{remedies:?}");
}

/// A store with one segment, not yet touched, behind a hook; and the segment's name.
fn sealed() -> (Env, Hook, Store, FileName) {
    let (env, hook) = hooked(Env::in_memory());
    let store = open(&env, compact());
    put(&mutable(&store, "map"), "key", "value");
    flush(&store);
    store.close().expect("closes");
    drop(store);
    let segment = names_of(&env, FileKind::Segment)[0];
    let store = open(&env, compact());
    (env, hook, store, segment)
}

fn lookup_of(store: &Store) -> Error {
    refused(mutable(store, "map").get("key"))
}

fn incompatible_options() -> Error {
    let env = Env::in_memory();
    drop(open(&env, compact().hash_bits(20)));
    let error = refused(Store::open_with(env, compact().hash_bits(21)));
    let text = error.to_string();
    assert!(text.contains("20") && text.contains("21"), "{text}");
    error
}

fn io() -> Error {
    let (_env, hook, store, segment) = sealed();
    hook.fail_once(Call::Read, move |name| name == segment);
    lookup_of(&store)
}

fn no_space() -> Error {
    let (env, hook) = hooked(Env::in_memory());
    hook.set(|call, name| match (call, name.kind) {
        (Call::Allocate, FileKind::Log) => Err(IoError::new(IoErrorKind::NoSpace)),
        _ => Ok(()),
    });
    refused(Store::open_with(env, compact()))
}

fn too_many_open_files() -> Error {
    let (_env, hook, store, segment) = sealed();
    hook.set(move |call, name| match call {
        Call::Open if name == segment => Err(IoError::new(IoErrorKind::TooManyOpenFiles)),
        _ => Ok(()),
    });
    lookup_of(&store)
}

fn corruption() -> Error {
    let (env, _hook, store, segment) = sealed();
    let length = support::read_file(&env, segment).len() as u64;
    patch_file(&env, segment, length - 30, &[0x55; 8]);
    lookup_of(&store)
}

fn missing_file() -> Error {
    let (env, _hook, store, segment) = sealed();
    env.vfs.unlink(segment).expect("removes");
    lookup_of(&store)
}

fn unsupported_version() -> Error {
    let env = Env::in_memory();
    open(&env, compact()).close().expect("closes");
    patch_file(&env, FileName::MANIFEST, 8, &9_u32.to_le_bytes());
    refused(Store::open_with(env, compact()))
}

fn locked() -> Error {
    let env = Env::in_memory();
    let _store = open(&env, compact());
    refused(Store::open_with(env, compact()))
}

fn not_a_store() -> Error {
    refused(Store::open_with(Env::in_memory(), compact().create(false)))
}

fn invalid_argument() -> Error {
    let store = open(&Env::in_memory(), compact());
    refused(store.keyspace("", KeyspaceOptions::mutable()))
}

fn conflict() -> Error {
    let store = open(&Env::in_memory(), compact());
    let once = write_once(&store, "once");
    put(&once, "key", "value");
    refused(once.put("key", "another", Buffered))
}

/// Writes without running a job until a write is refused.
fn fill(store: &Store) -> Error {
    let map = mutable(store, "map");
    (0..100_000)
        .find_map(|number: u32| {
            let key = number.to_le_bytes();
            let batch = one_put(&map, &key, &[7; 100]);
            store.try_write(batch, Buffered).err()
        })
        .expect("memory is finite")
}

fn busy() -> Error {
    fill(&open(&Env::in_memory(), compact()))
}

/// Snapshots keep generations with versions that later ones hide, until nothing else fits.
fn busy_by_a_pin() -> Error {
    let store = open(&Env::in_memory(), compact().pinned_generations_max(0));
    let map = mutable(&store, "map");
    put(&map, "key", "old");
    let _older = store.snapshot().expect("a snapshot");
    put(&map, "key", "new");
    store.seal().expect("seals");
    // One generation may be kept whatever the option says: the second is in the way.
    put(&map, "key", "newer");
    let _newer = store.snapshot().expect("a snapshot");
    put(&map, "key", "newest");
    for number in 0..100_000_u32 {
        let key = number.to_le_bytes();
        let batch = one_put(&map, &key, &[7; 1000]);
        if let Err(error) = store.try_write(batch, Buffered) {
            match error.kind() {
                ErrorKind::Busy {
                    pinned_by: None, ..
                } => store.drain().expect("drains"),
                _ => return error,
            }
        }
    }
    panic!("the pin was never in the way");
}

fn too_large() -> Error {
    let store = open(&Env::in_memory(), compact());
    let map = mutable(&store, "map");
    refused(map.put("key", vec![0; 1 << 20], Buffered))
}

fn poisoned() -> Error {
    let (env, hook) = hooked(Env::in_memory());
    let store = open(&env, compact());
    let map = mutable(&store, "map");
    hook.fail_once(Call::Sync, |name| name.kind == FileKind::Log);
    let first = refused(map.put("key", "value", Synced));
    assert_eq!(first.cause(), Some(BROKEN), "{first}");
    refused(map.put("another", "value", Buffered))
}

fn closed() -> Error {
    let store = open(&Env::in_memory(), compact());
    let map = mutable(&store, "map");
    store.close().expect("closes");
    refused(map.put("key", "value", Buffered))
}

fn refused_by_a_closure() -> Error {
    let store = open(&Env::in_memory(), compact());
    let map = mutable(&store, "map");
    let mut batch = Batch::new();
    batch.put_with(&map, "key", 4, |_| Err("no such source".into()));
    refused(store.write(batch, Buffered))
}

fn unsupported() -> Error {
    let env = Env::in_memory();
    let store = open(&env, compact());
    mutable(&store, "map");
    store.close().expect("closes");
    drop(store);
    let store = open(&env, manual().read_only(true));
    refused(mutable(&store, "map").put("key", "value", Buffered))
}
