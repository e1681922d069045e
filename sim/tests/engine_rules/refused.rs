//! Rules 8 to 10: full disks, refused and aborted opens, rot; and that nothing is left open.

use sealstone::env::{Env, FileKind, FileName, OpenMode, io};
use sealstone::{Durability, ErrorKind, Job, KeyspaceOptions, Store};
use sealstone_sim::disk::{Crash, DiskOptions, SimDisk};
use sealstone_sim::env::SimEnv;
use sealstone_sim::faults::{Call, Fault, Rule};

use super::{Map, assert_prefix, content, losses, machine, map_of, model, open, options, put};

use Durability::{Buffered, Synced};

#[test]
fn rule_8_a_full_disk_leaves_a_store_that_resumes() {
    // Room ends after every number of bytes; then it comes back, after a crash and without one.
    let mut refusals = 0;
    for room in (20_000..120_000).step_by(3_777) {
        let env = SimEnv::new(DiskOptions {
            capacity_bytes: room,
            ..DiskOptions::default()
        });
        let Ok(store) = Store::open_with(env.env(), options()) else {
            continue;
        };
        let Ok(map) = store.keyspace("map", KeyspaceOptions::mutable()) else {
            continue;
        };
        let mut written = 0;
        for number in 1..=400 {
            let key = format!("key {}", number % 40);
            let value = format!("{number} ").repeat((number % 23) as usize);
            match map.put(key, value, Synced) {
                Ok(sequence) => written = sequence,
                Err(error) => {
                    let kind = error.kind();
                    let told = matches!(kind, ErrorKind::NoSpace | ErrorKind::Busy { .. });
                    assert!(told, "room for {room}: {error}");
                    refusals += 1;
                    break;
                }
            }
            let _ = store.drain();
        }
        assert!(!store.stats().poisoned, "room for {room}");
        assert_eq!(content(&store), model(written));
        env.disk
            .set_options(|options| options.capacity_bytes = 1 << 40);
        for crash in losses() {
            assert_prefix(
                env.disk.imagine(&crash),
                written,
                written,
                &format!("room for {room}, {crash:?}"),
            );
        }
        env.clock.advance(std::time::Duration::from_secs(1));
        for number in written + 1..=written + 30 {
            put(&map, number, Synced);
        }
        store.drain().expect("drains");
        assert_eq!(content(&store), model(written + 30));
        let names: Vec<_> = env.disk.live_files().into_keys().collect();
        assert_eq!(store.audit().files, names, "nothing is left over");
    }
    assert!(refusals > 5, "{refusals}");
}

#[test]
fn rule_9_a_refused_open_changes_nothing() {
    // Guards open.rs: `check_logs` comes before `remove_debris`.
    let env = machine();
    let store = open(&env);
    let map = map_of(&store);
    for number in 1..=40 {
        put(&map, number, Synced);
    }
    let next = env.restart(&Crash::Kill);
    let logs: Vec<_> = next
        .disk
        .live_files()
        .into_keys()
        .filter(|name| name.kind == FileKind::Log)
        .collect();
    for name in logs {
        let copy = SimEnv::on(next.disk.imagine(&Crash::Kill));
        let debris = copy.disk.clone();
        make_debris(&copy.env(), FileName::segment(900));
        assert!(copy.disk.flip(name, 8, 0x02), "another version");
        let (files, mutations) = (debris.live_files(), debris.mutations());
        let error = Store::open_with(copy.env(), options()).expect_err("refused");
        let kind = error.kind();
        assert!(
            matches!(kind, ErrorKind::UnsupportedVersion { .. }),
            "{error}"
        );
        assert_eq!(error.file(), Some(name));
        assert_eq!(debris.live_files(), files);
        assert_eq!(debris.mutations(), mutations, "not a single call");
    }
}

fn make_debris(env: &Env, name: FileName) {
    let file = env.vfs.create_new(name).expect("creates");
    io::write_all_at(&*file, &[7; 100], 0).expect("writes");
}

#[test]
fn rule_9_the_death_of_an_open_leaves_the_debris_of_one() {
    // Each attempt dies at its last rename, and the disk keeps everything that it had made.
    let mut env = machine();
    let store = open(&env);
    let map = map_of(&store);
    for number in 1..=30 {
        put(&map, number, Buffered);
    }
    env = env.restart(&Crash::Kill);
    let mut counts = Vec::new();
    for _ in 0..20 {
        env.disk.arm(Rule::once(Fault::Io, Call::Rename, 0));
        Store::open_with(env.env(), options()).expect_err("fails");
        counts.push(env.disk.live_files().len());
        env = env.restart(&Crash::Kill);
    }
    assert!(counts.iter().all(|count| *count == counts[0]), "{counts:?}");
    let store = open(&env);
    store.drain().expect("drains");
    assert_eq!(store.open_report().recovered_through, 30);
    let names: Vec<_> = env.disk.live_files().into_keys().collect();
    assert_eq!(store.audit().files, names);
}

#[test]
fn rule_10_rot_is_named_or_harmless() {
    // Bytes of every file are flipped, in turn; answers are right or an error names the file.
    let env = machine();
    let store = open(&env);
    let map = map_of(&store);
    for number in 1..=60 {
        put(&map, number, Synced);
    }
    store.close().expect("closes");
    let files = env.disk.live_files();
    let right = model(60);
    let (mut refused, mut harmless) = (0, 0);
    for (name, bytes) in files {
        for offset in (0..bytes.len() as u64).step_by(97) {
            let disk = env.disk.imagine(&Crash::Kill);
            assert!(disk.flip(name, offset, 0x20));
            match look(&disk, &right) {
                Ok(()) => harmless += 1,
                Err(error) => {
                    assert_eq!(error.file(), Some(name), "{error}");
                    assert!(error.offset().is_some(), "{error}");
                    refused += 1;
                }
            }
        }
    }
    assert!(refused > 50 && harmless > 50, "{refused} {harmless}");
}

/// Opens and reads everything.
fn look(disk: &SimDisk, right: &Map) -> sealstone::Result<()> {
    let store = Store::open_with(SimEnv::on(disk.clone()).env(), options())?;
    let map = store.keyspace("map", KeyspaceOptions::mutable())?;
    for (key, value) in right {
        let got = map.get(key)?;
        assert_eq!(got.as_deref(), Some(value.as_slice()), "a wrong answer");
    }
    let items: sealstone::Result<Map> = map.iter()?.collect();
    assert_eq!(&items?, right);
    Ok(())
}

#[test]
fn handles_leave_no_descriptor() {
    let env = machine();
    let store = open(&env);
    let map = map_of(&store);
    for number in 1..=40 {
        put(&map, number, Synced);
    }
    store.drain().expect("drains");
    assert_eq!(content(&store), model(40));
    while store.runnable().contains(&Job::Unlink) {
        store.run(Job::Unlink, 1).expect("runs");
    }
    let open_files = env.disk.descriptors();
    assert!(open_files > 4);
    drop((store, map));
    assert_eq!(env.disk.descriptors(), 0);
    assert!(env.disk.violations().is_empty());
    // The lock is free.
    let file = env.env().vfs.open(FileName::MANIFEST, OpenMode::Read);
    file.expect("opens");
    open(&env);
}
