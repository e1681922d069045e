//! Failed writes, syncs and removals: which of them end the store's writing, and what goes on.
//!
//! Rule 2 of durability: after a failed log or manifest write or sync, or a failed sync of the directory,
//! nothing more is acknowledged, installed or removed. Everything else is tried again.

mod support;

use std::time::Duration;

use sealstone::env::counting::Counters;
use sealstone::env::manual::ManualClock;
use sealstone::env::{Env, FileKind, FileName, IoError, IoErrorKind};
use sealstone::sync::{Arc, Mutex};
use sealstone::{Batch, Durability, ErrorKind, Job, Keyspace, KeyspaceOptions, Store};
use support::hook::{BROKEN, Call, Hook, hooked};
use support::{
    Map, assert_books, assert_content, compact, files, flush, get, kind_of, mutable, names_of,
    one_put, open, put, refused, run_all, write_once,
};

use Durability::{Buffered, Synced};

struct World {
    env: Env,
    hook: Hook,
    counters: Arc<Counters>,
    clock: Arc<ManualClock>,
    store: Store,
    map: Keyspace,
}

/// A store with one segment, a sealed generation, an open one, and a log that is to be removed.
fn world() -> World {
    let clock = Arc::new(ManualClock::new());
    let env = Env {
        clock: clock.clone(),
        ..Env::in_memory()
    };
    let (env, counters) = env.counting();
    let (env, hook) = hooked(env);
    let store = open(&env, compact());
    let map = mutable(&store, "map");
    put(&map, "in a segment", "1");
    store.seal().expect("seals");
    // Its log waits to be removed.
    run_all(&store, Job::Flush);
    put(&map, "sealed", "2");
    store.seal().expect("seals");
    put(&map, "open", "3");
    World {
        env,
        hook,
        counters,
        clock,
        store,
        map,
    }
}

fn acknowledged() -> Map {
    [("in a segment", "1"), ("sealed", "2"), ("open", "3")]
        .map(|(key, value)| (key.into(), value.into()))
        .into()
}

/// Nothing that writes works, all that reads does, and nothing on disk changes.
fn assert_poisoned(world: &World, file: Option<FileName>) {
    let World { store, map, .. } = world;
    let before = world.counters.snapshot();
    let bytes = files(&world.env);
    let failures = [
        map.put("k", "v", Buffered).map(drop),
        map.put("k", "v", Synced).map(drop),
        map.delete("open", Buffered).map(drop),
        store.try_write(Batch::new(), Synced).map(drop),
        store.submit(one_put(map, b"k", b"v"), Buffered).map(drop),
        store.sync(),
        store.seal(),
        store
            .keyspace("another", KeyspaceOptions::mutable())
            .map(drop),
    ];
    for failure in failures {
        let error = refused(failure);
        assert_eq!(error.kind(), &ErrorKind::Poisoned, "{error}");
        assert_eq!(
            (error.cause(), error.file()),
            (Some(BROKEN), file),
            "{error}"
        );
        assert!(error.to_string().contains("reopen"), "{error}");
    }
    assert!(store.stats().poisoned && store.audit().poisoned);
    assert_content(map, &acknowledged());
    assert_eq!(get(map, "doomed"), None);
    let snapshot = store.snapshot().expect("a snapshot");
    assert!(snapshot.contains(map, "sealed").expect("reads"));
    let jobs = [Job::Flush, Job::Unlink, Job::SpareLog, Job::RollManifest];
    for job in jobs {
        assert!(!store.runnable().contains(&job), "{job:?}");
        // Also when somebody runs it all the same.
        let _ = store.run(job, 1000);
    }
    store.drain().expect("nothing is left to do");
    assert_books(store);
    let after = world.counters.snapshot() - before;
    let total = after.total();
    assert_eq!((total.creates, total.unlinks, total.renames), (0, 0, 0));
    assert_eq!((total.writes, after.barriers()), (0, 0));
    drop(snapshot);
    // It closes without writing, and does not say that all it shows is durable.
    let all_durable = store.durable_sequence() >= store.sequence();
    assert_eq!(store.close().is_ok(), all_durable);
    let mut left = files(&world.env);
    left.retain(|name, _| bytes.contains_key(name));
    assert_eq!(left, bytes);
}

/// The way out.
fn assert_recovers(world: World) {
    world.hook.clear();
    let store = world.store.reopen().expect("reopens");
    let map = mutable(&store, "map");
    let mut model = acknowledged();
    // Where only the sync failed, the frames may be there.
    for key in ["doomed", "doomed too"] {
        model.extend(get(&map, key).map(|value| (key.into(), value)));
    }
    assert_content(&map, &model);
    assert_eq!(
        put(&map, "life", "goes on"),
        store.open_report().recovered_through + 1
    );
    flush(&store);
    assert!(!store.stats().poisoned);
}

#[test]
fn a_failed_log_write_or_sync() {
    // Guards commit.rs, `lead`: the error branch of `write_group`.
    for call in [Call::Write, Call::Sync] {
        for synced_only in [false, true] {
            let world = world();
            let World { store, map, .. } = &world;
            let log = *names_of(&world.env, FileKind::Log).last().expect("a log");
            let first = store.submit(one_put(map, b"doomed", b"x"), Buffered);
            let second = store.submit(one_put(map, b"doomed too", b"x"), Synced);
            let sync = synced_only.then(|| store.submit(Batch::new(), Synced));
            world
                .hook
                .fail_once(call, |name| name.kind == FileKind::Log);
            let error = refused(store.commit_step());
            assert_eq!(error.kind(), &ErrorKind::Poisoned);
            let file = error.file();
            assert!(file.is_some_and(|file| file.kind == FileKind::Log && file <= log));
            for ticket in [first, second] {
                let result = ticket.expect("submitted").try_result();
                assert_eq!(kind_of(result.expect("told")), ErrorKind::Poisoned);
            }
            drop(sync);
            assert_poisoned(&world, file);
            assert_recovers(world);
        }
    }
}

#[test]
fn what_is_queued_behind_a_failure_fails_too() {
    // Guards mod.rs, `poison`: it drains the queue.
    let world = world();
    let World { store, map, .. } = &world;
    let (inner, inner_map) = (store.clone(), map.clone());
    let late = Arc::new(Mutex::new(None));
    let (kept, mut armed) = (late.clone(), true);
    world.hook.set(move |call, name| {
        if !armed || call != Call::Write || name.kind != FileKind::Log {
            return Ok(());
        }
        armed = false;
        // Submitted while the leader writes, so it stands in the next group.
        let ticket = inner.submit(one_put(&inner_map, b"doomed", b"late"), Buffered);
        *kept.lock() = Some(ticket.expect("submits"));
        Err(BROKEN)
    });
    let failed = map.put("doomed", "x", Buffered);
    assert_eq!(kind_of(failed), ErrorKind::Poisoned);
    let late = late.lock().take().expect("submitted");
    let told = late.try_result().expect("without anybody leading");
    assert_eq!(kind_of(told), ErrorKind::Poisoned);
    assert!(!store.commit_step().expect("nothing is queued"));
}

#[test]
fn a_failed_manifest_write_or_sync() {
    // Guards flush.rs, `edit_manifest`: errors but `NoSpace` poison.
    for call in [Call::Write, Call::Sync] {
        let world = world();
        world
            .hook
            .fail_once(call, |name| name.kind == FileKind::Manifest);
        let error = refused(world.store.drain());
        assert_eq!(error.kind(), &ErrorKind::Poisoned, "{error}");
        assert_eq!(world.store.stats().segments, 1, "nothing was installed");
        assert_poisoned(&world, Some(FileName::MANIFEST));
        assert_recovers(world);

        // The same by a keyspace.
        let world = self::world();
        world
            .hook
            .fail_once(call, |name| name.kind == FileKind::Manifest);
        let options = KeyspaceOptions::write_once();
        let error = refused(world.store.keyspace("new", options));
        assert_eq!(error.kind(), &ErrorKind::Poisoned, "{error}");
        assert_eq!(world.store.keyspaces().len(), 1);
        assert_poisoned(&world, Some(FileName::MANIFEST));
        assert_recovers(world);
    }
}

#[test]
fn a_failed_directory_sync() {
    // Guards flush.rs, `sync_directory`.
    let world = world();
    world.hook.fail_once(Call::SyncDir, |_| true);
    let error = refused(world.store.drain());
    assert_eq!(error.kind(), &ErrorKind::Poisoned, "{error}");
    assert_poisoned(&world, None);
    assert_recovers(world);
}

#[test]
fn a_failed_directory_sync_for_a_spare_log() {
    // Guards flush.rs, `discard`: nothing is removed any more, not even what was just made.
    let world = world();
    let newest = *names_of(&world.env, FileKind::Log).last().expect("logs");
    world.hook.set(move |call, name| {
        if call == Call::Allocate && name > newest {
            return Err(IoError::new(IoErrorKind::NoSpace));
        }
        Ok(())
    });
    world.store.drain().expect("goes on without a spare");
    world.clock.advance(Duration::from_secs(1));
    assert!(world.store.runnable().contains(&Job::SpareLog));
    world.hook.fail_once(Call::SyncDir, |_| true);
    let error = refused(world.store.run(Job::SpareLog, 1));
    assert_eq!(error.kind(), &ErrorKind::Poisoned, "{error}");
    let made = names_of(&world.env, FileKind::Log);
    assert!(made.last() > Some(&newest), "it is left where it is");
    assert_poisoned(&world, None);
    assert_recovers(world);
}

#[test]
fn a_failed_seal_write_or_sync() {
    for call in [Call::Write, Call::Sync] {
        let world = world();
        world
            .hook
            .fail_once(call, |name| name.kind == FileKind::Log);
        let error = refused(world.store.seal());
        assert_eq!(error.kind(), &ErrorKind::Poisoned, "{error}");
        assert_eq!(
            world.store.stats().seals,
            2,
            "it is not handed to the flush"
        );
        let file = error.file();
        assert_poisoned(&world, file);
        assert_recovers(world);
    }
}

#[test]
fn a_failed_segment_is_written_again_under_another_number() {
    // Guards flush.rs, `flush_failed` and the `discard` of its phases.
    for call in [Call::Create, Call::Write, Call::Sync] {
        let world = world();
        let World { store, map, .. } = &world;
        let once = write_once(store, "once");
        put(&once, "k", "4");
        let before = names_of(&world.env, FileKind::Segment);
        world
            .hook
            .fail_once(call, |name| name.kind == FileKind::Segment);
        let error = refused(store.drain());
        assert_eq!(error.kind(), &ErrorKind::Io, "{error}");
        let failed = error.file().expect("named");
        assert_eq!(names_of(&world.env, FileKind::Segment), before);
        assert_eq!(store.stats().flush_retries, 1);
        assert!(!store.stats().poisoned);
        assert!(!store.runnable().contains(&Job::Flush), "not at once");
        // Writing goes on meanwhile.
        map.put("more", "5", Synced).expect("writes");
        world.clock.advance(Duration::from_secs(1));
        assert_eq!(store.runnable()[0], Job::Flush);
        flush(store);
        let after = names_of(&world.env, FileKind::Segment);
        assert!(after.len() > before.len() && !after.contains(&failed));
        assert_eq!(get(map, "sealed"), Some(b"2".to_vec()));
        assert_eq!(get(&once, "k"), Some(b"4".to_vec()));
        assert_books(store);
    }
}

#[test]
fn a_failed_spare_log_is_made_again() {
    for call in [Call::Create, Call::Allocate, Call::Write, Call::Sync] {
        let world = world();
        let World { store, map, .. } = &world;
        let newest = *names_of(&world.env, FileKind::Log).last().expect("logs");
        world.hook.fail_once(call, move |name| {
            name.kind == FileKind::Log && name > newest
        });
        let error = refused(store.drain());
        assert_eq!(error.kind(), &ErrorKind::Io, "{call:?}: {error}");
        assert!(!store.stats().poisoned);
        world.clock.advance(Duration::from_secs(1));
        store.drain().expect("drains");
        for round in 0..5 {
            put(map, "k", format!("{round}"));
            flush(store);
        }
        let audit = store.audit();
        let listed = world.env.vfs.list().expect("lists").names;
        assert_eq!(audit.files, listed, "no file is left over");
    }
}

#[test]
fn a_failed_removal_is_tried_again() {
    let world = world();
    world.hook.fail_once(Call::Unlink, |_| true);
    let error = refused(world.store.drain());
    assert_eq!(error.operation(), "unlink");
    let audit = world.store.audit();
    assert_eq!(audit.unlinks.len(), 2);
    assert_eq!(world.store.stats().unlink_failures, 1);
    assert_eq!(audit.files, world.env.vfs.list().expect("lists").names);
    world.clock.advance(Duration::from_secs(1));
    world.store.drain().expect("drains");
    let audit = world.store.audit();
    assert_eq!(audit.unlinks, []);
    assert_eq!(audit.files, world.env.vfs.list().expect("lists").names);
}

#[test]
fn a_failed_read_is_told_and_passes() {
    let world = world();
    let World { store, map, .. } = &world;
    world
        .hook
        .fail_once(Call::Read, |name| name.kind == FileKind::Segment);
    let error = refused(map.get("in a segment"));
    assert_eq!(error.kind(), &ErrorKind::Io);
    assert!(
        error.file().is_some() && error.offset().is_some(),
        "{error}"
    );
    assert_eq!(get(map, "in a segment"), Some(b"1".to_vec()));
    assert!(!store.stats().poisoned);
}

#[test]
fn a_failed_close_has_acknowledged_nothing_new() {
    let world = world();
    world
        .hook
        .fail_once(Call::Sync, |name| name.kind == FileKind::Log);
    let error = refused(world.store.close());
    assert_eq!(error.kind(), &ErrorKind::Poisoned, "{error}");
    assert_eq!(kind_of(world.map.get("open")), ErrorKind::Closed);
    let store = open(&world.env, compact());
    assert_content(&mutable(&store, "map"), &acknowledged());
}
