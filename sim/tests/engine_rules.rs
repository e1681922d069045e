//! The store's rules of durability on a disk that loses power, lies and fills up.
//!
//! Each test says which rule it is about and which place of the engine it guards: with that place
//! broken it fails. What needs no loss of power is tested with the library.

use std::collections::BTreeMap;

use sealstone::env::{Env, FileKind, FileName, OpenMode, io};
use sealstone::{
    Background, Batch, Durability, ErrorKind, Job, Keyspace, KeyspaceOptions, Options, Store,
};
use sealstone_sim::disk::{Crash, DiskOptions, SimDisk, Survivors, SyncFailure};
use sealstone_sim::env::SimEnv;
use sealstone_sim::faults::{Call, Fault, Rule};

use Durability::{Buffered, Synced};

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

const NOTHING_KEPT: Crash = Crash::Power(Survivors::NOTHING);

fn options() -> Options {
    Options::tiny().background(Background::Manual)
}

fn machine() -> SimEnv {
    SimEnv::new(DiskOptions::default())
}

fn open(env: &SimEnv) -> Store {
    Store::open_with(env.env(), options()).expect("opens")
}

fn map_of(store: &Store) -> Keyspace {
    let kind = KeyspaceOptions::mutable();
    store.keyspace("map", kind).expect("a keyspace")
}

fn content(store: &Store) -> Map {
    let items = map_of(store).iter().expect("iterates");
    items.map(|item| item.expect("an item")).collect()
}

fn put(map: &Keyspace, number: u64, durability: Durability) -> u64 {
    let key = format!("key {}", number % 40);
    let value = format!("{number} ").repeat((number % 23) as usize);
    map.put(key, value, durability).expect("puts")
}

/// What the first `commits` puts amount to.
fn model(commits: u64) -> Map {
    let one = |number: u64| {
        let key = format!("key {}", number % 40);
        let value = format!("{number} ").repeat((number % 23) as usize);
        (key.into_bytes(), value.into_bytes())
    };
    (1..=commits).map(one).collect()
}

/// Opens what a crash leaves and checks that it is the content of a prefix that is long enough.
fn assert_prefix(disk: SimDisk, durable: u64, issued: u64, what: &str) -> u64 {
    let store = Store::open_with(SimEnv::on(disk).env(), options())
        .unwrap_or_else(|error| panic!("{what}: {error}"));
    let through = store.open_report().recovered_through;
    assert!(
        (durable..=issued).contains(&through),
        "{what}: {durable} {through} {issued}"
    );
    assert_eq!(store.sequence(), through);
    assert_eq!(content(&store), model(through), "{what}: at {through}");
    through
}

/// Several ways to lose power.
fn losses() -> impl Iterator<Item = Crash> {
    let seeded = (0..6).map(|seed| Crash::Power(Survivors::seeded(seed)));
    seeded.chain([
        NOTHING_KEPT,
        Crash::Power(Survivors::EVERYTHING),
        Crash::Kill,
    ])
}

#[test]
fn rule_1_acknowledged_commits_survive_every_crash() {
    // Guards commit.rs, `write_group`: the sync before publication, and `Seal` wanting one.
    let env = machine();
    let store = open(&env);
    let map = map_of(&store);
    for number in 1..=220 {
        let durability = if number % 3 == 0 { Synced } else { Buffered };
        assert_eq!(put(&map, number, durability), number);
        if durability == Synced {
            assert_eq!(store.durable_sequence(), number);
        }
        if number % 37 == 0 {
            store.seal().expect("seals");
        }
        // One step of whatever is due, so that crashes fall into flushes too.
        if let Some(job) = store.runnable().first() {
            store.run(*job, 3).expect("runs");
        }
        let durable = store.durable_sequence();
        for crash in losses() {
            let what = format!("{crash:?} behind commit {number}");
            let through = assert_prefix(env.disk.imagine(&crash), durable, number, &what);
            if crash == Crash::Kill {
                assert_eq!(through, number, "the cache is still there");
            }
        }
    }
    assert!(store.stats().flushed_segments > 10);
}

#[test]
fn rule_1_a_no_op_is_as_durable_as_what_it_matched() {
    // Guards submit.rs, `barrier`: a `Synced` no-op waits for the sync.
    let env = machine();
    let store = open(&env);
    let once = store
        .keyspace("once", KeyspaceOptions::write_once())
        .expect("a keyspace");
    once.put("k", "value", Buffered).expect("puts");
    once.put("k", "value", Synced).expect("a no-op");
    let disk = env.disk.imagine(&NOTHING_KEPT);
    let store = Store::open_with(SimEnv::on(disk).env(), options()).expect("opens");
    let once = store
        .keyspace("once", KeyspaceOptions::write_once())
        .expect("a keyspace");
    assert_eq!(
        once.get("k").expect("reads").as_deref(),
        Some(&b"value"[..])
    );
}

#[test]
fn rule_1_close_and_sync_make_all_durable() {
    // Guards close.rs, `settle`, and commit.rs, `wants_sync` of a barrier.
    for close in [true, false] {
        let env = machine();
        let store = open(&env);
        let map = map_of(&store);
        for number in 1..=50 {
            put(&map, number, Buffered);
        }
        match close {
            true => store.close().expect("closes"),
            false => store.sync().expect("syncs"),
        }
        assert_prefix(env.disk.imagine(&NOTHING_KEPT), 50, 50, "lost");
    }
}

const SYNC_FAILURES: [SyncFailure; 4] = [
    SyncFailure::KeepNewClean,
    SyncFailure::LateReport,
    SyncFailure::RevertToOld,
    SyncFailure::ShutDown,
];

#[test]
fn rule_2_a_failed_sync_is_the_last_word() {
    // Guards commit.rs, `lead`, and flush.rs, `edit_manifest`: a second sync that returns Ok means
    // nothing, because the pages may be clean and lost.
    let mut tried = 0;
    for failure in SYNC_FAILURES {
        for kind in [FileKind::Log, FileKind::Manifest] {
            for after in 0..4 {
                tried += u32::from(fail_a_sync(failure, kind, after));
            }
        }
    }
    assert!(tried > 20, "{tried}");
}

/// Arms one failed sync and works until it strikes; then crashes in several ways.
fn fail_a_sync(failure: SyncFailure, kind: FileKind, after: u64) -> bool {
    let env = machine();
    let store = open(&env);
    let map = map_of(&store);
    let rule = Rule::once(Fault::Sync(failure), Call::SyncData, after);
    env.disk.arm(rule.on(kind));
    let (mut issued, mut poisoned) = (0, None);
    for number in 1..=100 {
        let key = format!("key {}", number % 40);
        let value = format!("{number} ").repeat((number % 23) as usize);
        let durability = if number % 2 == 0 { Synced } else { Buffered };
        issued = number;
        let failed = map
            .put(key, value, durability)
            .err()
            .or(store.drain().err());
        if let Some(error) = failed {
            poisoned = Some(error);
            break;
        }
    }
    // Spare logs are made anew after a failed sync; only logs with frames poison.
    let Some(error) = poisoned.filter(|_| store.stats().poisoned) else {
        return false;
    };
    assert_eq!(error.kind(), &ErrorKind::Poisoned, "{error}");
    let durable = store.durable_sequence();
    let before = env.disk.live_files();
    for _ in 0..3 {
        assert_eq!(
            map.put("k", "v", Synced).expect_err("poisoned").kind(),
            &ErrorKind::Poisoned
        );
        assert_eq!(
            store.sync().expect_err("poisoned").kind(),
            &ErrorKind::Poisoned
        );
        let _ = store.drain();
    }
    assert_eq!(
        env.disk.live_files(),
        before,
        "nothing is written or removed"
    );
    assert_eq!(content(&store), model(store.sequence()), "reads go on");
    assert_eq!(store.durable_sequence(), durable);
    // A file system that has shut itself down comes back with the machine, not with a process.
    let shut = failure == SyncFailure::ShutDown;
    for crash in losses().filter(|crash| !shut || *crash != Crash::Kill) {
        let what = format!("{failure:?} {kind:?} {after} {crash:?}");
        let next = env.disk.imagine(&crash);
        let through = assert_prefix(next.clone(), durable, issued, &what);
        // What the reopened store said is durable is, whatever the cache had shown it.
        assert_prefix(next.imagine(&NOTHING_KEPT), through, through, &what);
    }
    if !shut {
        let again = store.reopen().expect("reopens");
        let through = again.open_report().recovered_through;
        assert!((durable..=issued).contains(&through));
        assert_eq!(content(&again), model(through));
        assert_prefix(
            env.disk.imagine(&NOTHING_KEPT),
            through,
            through,
            "reopened",
        );
    }
    true
}

#[test]
fn rule_3_recovered_means_durable() {
    // Guards recovery.rs, `rewrite` and `write_segment`, and `recover`: the sync of the new log.
    for (seal_at, commits) in [(0, 9), (5, 9), (9, 9), (3, 40)] {
        let env = machine();
        let store = open(&env);
        let map = map_of(&store);
        for number in 1..=commits {
            put(&map, number, Buffered);
            if number == seal_at {
                store.seal().expect("seals");
            }
        }
        // The process dies; the cache has everything, the disk may have nothing of the last log.
        let next = env.restart(&Crash::Kill);
        let store = open(&next);
        assert_eq!(store.open_report().recovered_through, commits);
        assert_prefix(next.disk.imagine(&NOTHING_KEPT), commits, commits, "lost");
    }
}

#[test]
fn rule_3_recovery_does_not_trust_clean_pages() {
    // The frames' sync failed and left the pages clean: a sync of that file would do nothing. Guards
    // recovery.rs, `rewrite`: the copy into a new log.
    let env = machine();
    let store = open(&env);
    let map = map_of(&store);
    for number in 1..=4 {
        put(&map, number, Buffered);
    }
    let rule = Rule::once(Fault::Sync(SyncFailure::KeepNewClean), Call::SyncData, 0);
    env.disk.arm(rule.on(FileKind::Log));
    store.sync().expect_err("fails");
    let next = env.restart(&Crash::Kill);
    let store = open(&next);
    assert_eq!(store.open_report().recovered_through, 4, "they can be read");
    assert_prefix(next.disk.imagine(&NOTHING_KEPT), 4, 4, "and then lost");
    assert_prefix(
        env.disk.imagine(&NOTHING_KEPT),
        0,
        4,
        "without the open they were gone",
    );
}

#[test]
fn rule_5_a_log_is_synced_before_the_next_takes_frames() {
    // Guards commit.rs, `Queued::Seal` in `wants_sync`: else commits of the new log may survive while
    // those before them do not.
    let env = machine();
    let store = open(&env);
    let map = map_of(&store);
    for number in 1..=6 {
        put(&map, number, Buffered);
        store.seal().expect("seals");
        assert_eq!(store.durable_sequence(), number, "a seal syncs");
        let batch = Batch::new();
        store.write(batch, Buffered).expect("nothing");
        assert_prefix(env.disk.imagine(&NOTHING_KEPT), number, number, "sealed");
        if number % 2 == 0 {
            store.drain().expect("drains");
        }
    }
}

#[test]
fn rule_6_what_the_manifest_names_is_durable() {
    // Guards flush.rs: the phases `Sync`, `SyncSpare` and `SyncDirectory` before `Edit`.
    let env = machine();
    let store = open(&env);
    let map = map_of(&store);
    let check = |what: &str| {
        let disk = env.disk.imagine(&NOTHING_KEPT);
        let read = sealstone::manifest::read(&disk)
            .expect("reads")
            .expect("one");
        let durable = env.disk.durable_files();
        for entry in &read.state.segments {
            let name = FileName::segment(entry.number);
            let length = durable.get(&name).map(|bytes| bytes.len() as u64);
            assert_eq!(length, Some(entry.file_len), "{what}: {name}");
        }
        for entry in &read.state.logs {
            let name = FileName::log(entry.number);
            let header = durable.get(&name).map(|bytes| bytes[..8] != [0; 8]);
            assert_eq!(header, Some(true), "{what}: {name}");
        }
    };
    for number in 1..=80 {
        put(&map, number, Buffered);
        if number % 9 == 0 {
            store.seal().expect("seals");
        }
        while let Some(job) = store.runnable().first() {
            store.run(*job, 1).expect("runs");
            check(&format!("{job:?} behind commit {number}"));
        }
    }
}

#[test]
fn rule_6_nothing_is_removed_before_the_edit_that_drops_it() {
    // Guards flush.rs, `install`: the removal is queued behind the edit. The adversary keeps removals
    // and loses everything else.
    let env = machine();
    let store = open(&env);
    let map = map_of(&store);
    for number in 1..=60 {
        put(&map, number, Synced);
        if number % 10 == 0 {
            store.seal().expect("seals");
            store.drain().expect("drains");
        }
        for seed in 100..110 {
            let crash = Crash::Power(Survivors::seeded(seed));
            assert_prefix(env.disk.imagine(&crash), number, number, "removed");
        }
    }
    assert!(store.stats().unlinks >= 6);
}

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
