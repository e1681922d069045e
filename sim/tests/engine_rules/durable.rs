//! Rules 1 to 6: what survives, what a failed sync ends, what reaches the disk before what.

use sealstone::env::{FileKind, FileName};
use sealstone::{Batch, Durability, ErrorKind, KeyspaceOptions, Store};
use sealstone_sim::disk::{Crash, Survivors, SyncFailure};
use sealstone_sim::env::SimEnv;
use sealstone_sim::faults::{Call, Fault, Rule};

use super::{
    NOTHING_KEPT, assert_prefix, content, losses, machine, map_of, model, open, options, put,
};

use Durability::{Buffered, Synced};

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
            let name = entry.name();
            let length = durable.get(&name).map(|bytes| bytes.len() as u64);
            assert_eq!(
                length,
                Some(entry.unpack(read.state.family_id).file_len),
                "{what}: {name}"
            );
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
