//! The rules of the simulated disk, R1 to R28, one test each (names `r01_...`).
//!
//! What can be seen without a crash is a body over an `Env`, so that it holds for every backend that
//! [`worlds`] lists. What needs a crash tries many seeds: everything the rule allows must occur, and
//! nothing else.

mod calls;
mod data;
mod media;
mod names;
mod sync;

use std::collections::BTreeSet;
use std::sync::Arc;

use sealstone::env::io::{read_up_to_at, write_all_at};
use sealstone::env::{Env, File, FileName, OpenMode, Vfs};
use sealstone_sim::disk::{Crash, DiskOptions, SimDisk, Survivors};
use sealstone_sim::env::SimEnv;

/// Seeds per crash test: enough for every outcome of a rule to occur.
const SEEDS: u64 = 200;
const LOG: FileName = FileName::log(1);

/// A backend, with the directory that it may need.
struct World {
    env: Env,
    _directory: Option<tempfile::TempDir>,
}

/// The backends that crash-free rules are checked on: simulated, in memory, and real.
fn worlds() -> Vec<World> {
    let directory = tempfile::tempdir().unwrap();
    let real = Env::real(directory.path().join("store")).unwrap();
    let world = |env| World {
        env,
        _directory: None,
    };
    vec![
        world(SimEnv::new(DiskOptions::default()).env()),
        world(Env::in_memory()),
        World {
            env: real,
            _directory: Some(directory),
        },
    ]
}

fn disk() -> SimDisk {
    let disk = SimDisk::new(DiskOptions::default());
    disk.create_root().unwrap();
    disk
}

fn create(vfs: &dyn Vfs, name: FileName, bytes: &[u8]) -> Arc<dyn File> {
    let file = vfs.create_new(name).unwrap();
    write_all_at(&*file, bytes, 0).unwrap();
    file
}

/// A file whose bytes and name are durable.
fn durable(vfs: &dyn Vfs, name: FileName, bytes: &[u8]) -> Arc<dyn File> {
    let file = create(vfs, name, bytes);
    file.sync_data().unwrap();
    vfs.sync_dir().unwrap();
    file
}

/// All bytes behind a name.
fn read(vfs: &dyn Vfs, name: FileName) -> Option<Vec<u8>> {
    let file = vfs.open(name, OpenMode::Read).ok()?;
    let mut bytes = vec![0; file.len().unwrap() as usize];
    assert_eq!(read_up_to_at(&*file, &mut bytes, 0).unwrap(), bytes.len());
    Some(bytes)
}

fn power(seed: u64) -> Crash {
    Crash::Power(Survivors::seeded(seed))
}

const DROP_ALL: Crash = Crash::Power(Survivors::NOTHING);
const KEEP_ALL: Crash = Crash::Power(Survivors::EVERYTHING);

/// What a name holds after each of many crashes.
fn outcomes(disk: &SimDisk, name: FileName) -> BTreeSet<Option<Vec<u8>>> {
    outcomes_of(disk, power, |next| read(next, name))
}

fn outcomes_of<T: Ord>(
    disk: &SimDisk,
    crash: impl Fn(u64) -> Crash,
    look: impl Fn(&SimDisk) -> T,
) -> BTreeSet<T> {
    (0..SEEDS)
        .map(|seed| look(&disk.imagine(&crash(seed))))
        .collect()
}

/// `count` sectors of 512 bytes, each filled with `byte`.
fn sectors(byte: u8, count: usize) -> Vec<u8> {
    vec![byte; 512 * count]
}

/// The first byte of each sector, after a check that it fills the sector.
fn sector_bytes(bytes: &[u8]) -> Vec<u8> {
    let whole = |sector: &[u8]| {
        assert!(
            sector.iter().all(|byte| *byte == sector[0]),
            "a sector is torn"
        );
        sector[0]
    };
    bytes.chunks(512).map(whole).collect()
}
