//! How many barriers writes cost: syncs of files and of the directory, counted at the directory.

mod support;

use sealstone::env::counting::Counters;
use sealstone::env::{Env, FileKind};
use sealstone::sync::Arc;
use sealstone::{Batch, Durability, Job, Keyspace, Options, Store};
use support::{flush, get, manual, mutable, one_put, open, put, run_all, write_once};

struct World {
    counters: Arc<Counters>,
    store: Store,
    map: Keyspace,
    once: Keyspace,
}

fn world(options: Options) -> World {
    let (env, counters) = Env::in_memory().counting();
    let store = open(&env, options);
    let map = mutable(&store, "map");
    let once = write_once(&store, "once");
    World {
        counters,
        store,
        map,
        once,
    }
}

impl World {
    fn barriers(&self, act: impl FnOnce()) -> u64 {
        let before = self.counters.snapshot().barriers();
        act();
        self.counters.snapshot().barriers() - before
    }

    fn put_synced(&self, key: &str) -> u64 {
        self.barriers(|| {
            let written = self.map.put(key, "value", Durability::Synced);
            let sequence = written.expect("puts");
            assert_eq!(self.store.durable_sequence(), sequence);
        })
    }

    fn reopened(self, options: Options) -> Self {
        let store = self.store.reopen_with(options).expect("reopens");
        let (map, once) = (mutable(&store, "map"), write_once(&store, "once"));
        Self {
            store,
            map,
            once,
            ..self
        }
    }
}

#[test]
fn a_lone_synced_commit_costs_one() {
    let mut world = world(manual());
    assert_eq!(world.put_synced("right after open"), 1);
    assert_eq!(world.put_synced("the next"), 1);
    world.store.seal().expect("seals");
    assert_eq!(world.put_synced("right after a seal"), 1);
    world.store.drain().expect("drains");
    assert_eq!(world.put_synced("behind a flush"), 1);
    world = world.reopened(manual());
    assert_eq!(world.store.open_report().replayed_commits, 2);
    assert_eq!(world.put_synced("behind a recovered log"), 1);
    flush(&world.store);
    world = world.reopened(manual());
    assert_eq!(world.store.open_report().replayed_commits, 0);
    assert_eq!(world.put_synced("behind an open with an empty log"), 1);
    let large = vec![7; 1 << 20];
    let cost = world.barriers(|| {
        let written = world.map.put("large", &large, Durability::Synced);
        written.expect("puts");
    });
    assert_eq!(cost, 1);
}

#[test]
fn the_commit_that_reaches_the_limit_shares_its_sync_with_the_seal() {
    let world = world(manual().seal_records(3));
    assert_eq!(world.put_synced("a"), 1);
    assert_eq!(world.put_synced("b"), 1);
    assert_eq!(world.put_synced("c"), 1, "it ends the generation");
    assert_eq!(world.store.stats().seals, 1);
    assert_eq!(world.put_synced("d"), 1);
}

#[test]
fn a_buffered_commit_costs_none() {
    let world = world(manual());
    let cost = world.barriers(|| {
        for number in 0..10 {
            put(&world.map, format!("key {number}"), "value");
        }
    });
    assert_eq!(cost, 0);
    assert_eq!(world.store.sequence(), 10);
    assert_eq!(world.store.durable_sequence(), 0);
}

#[test]
fn a_group_costs_one() {
    let world = world(manual());
    let mut tickets = Vec::new();
    let values: Vec<_> = (0..20).map(|n| format!("key {n}").into_bytes()).collect();
    for (number, key) in values.iter().enumerate() {
        let durability = match number % 4 {
            0 => Durability::Synced,
            _ => Durability::Buffered,
        };
        let ticket = world
            .store
            .submit(one_put(&world.map, key, b"value"), durability)
            .expect("submits");
        assert!(ticket.try_result().is_none(), "nobody has led yet");
        tickets.push(ticket);
    }
    assert_eq!(get(&world.map, "key 3"), None, "not visible before");
    let cost = world.barriers(|| {
        assert!(world.store.commit_step().expect("commits"));
    });
    assert_eq!(cost, 1);
    for (number, ticket) in tickets.into_iter().enumerate() {
        let sequence = ticket.try_result().expect("resolved").expect("committed");
        assert_eq!(sequence, number as u64 + 1);
    }
    assert!(get(&world.map, "key 3").is_some());
    assert_eq!(world.store.durable_sequence(), 20);
    assert_eq!(world.barriers(|| drop(world.store.commit_step())), 0);
}

#[test]
fn a_group_without_a_wish_costs_none() {
    let world = world(manual());
    for key in [b"a", b"b"] {
        let batch = one_put(&world.map, key, b"value");
        let ticket = world.store.submit(batch, Durability::Buffered);
        // A dropped ticket commits all the same.
        drop(ticket.expect("submits"));
    }
    assert_eq!(world.store.runnable(), [Job::Commit]);
    assert_eq!(world.barriers(|| run_all(&world.store, Job::Commit)), 0);
    assert!(get(&world.map, "b").is_some());
}

#[test]
fn sync_costs_one_if_there_is_something() {
    let world = world(manual());
    let sync = || world.barriers(|| world.store.sync().expect("syncs"));
    assert_eq!(sync(), 0, "an empty store");
    put(&world.map, "a", "value");
    put(&world.map, "b", "value");
    assert_eq!(sync(), 1);
    assert_eq!(world.store.durable_sequence(), 2);
    assert_eq!(sync(), 0);
    world.put_synced("c");
    assert_eq!(sync(), 0, "the commit has synced already");
    put(&world.map, "d", "value");
    world.store.seal().expect("seals");
    assert_eq!(sync(), 0, "the seal has");
    let batch = one_put(&world.map, b"e", b"value");
    let ticket = world.store.submit(batch, Durability::Buffered);
    assert_eq!(sync(), 1, "it leads what is queued");
    assert!(ticket.expect("submits").try_result().is_some());
}

#[test]
fn a_seal_costs_five_or_six() {
    let world = world(manual());
    // A new store has a log more than it needs, so its first seal makes none.
    put(&world.map, "first", "value");
    assert_eq!(world.barriers(|| flush(&world.store)), 4);
    // Log, segment, spare log, directory, manifest edit.
    put(&world.map, "a", "value");
    assert_eq!(world.barriers(|| flush(&world.store)), 5);
    put(&world.once, "a", "value");
    put(&world.map, "b", "value");
    assert_eq!(
        world.barriers(|| flush(&world.store)),
        6,
        "a second segment"
    );
    assert_eq!(world.barriers(|| flush(&world.store)), 0, "an empty seal");
    world.put_synced("c");
    // The seal frame comes behind the synced commit and is synced itself.
    assert_eq!(world.barriers(|| flush(&world.store)), 5);
    assert_eq!(world.store.stats().manifest_rolls, 0);
}

/// Over many seals, rolls of the manifest apart (two barriers each), and folds (one for each part, one for the
/// directory, one for the edit).
fn sealing(both_kinds: bool) {
    let options = manual()
        .write_region_bytes(1 << 20)
        .chunk_bytes(4096)
        .seal_records(8)
        .seal_bytes(8192)
        .batch_bytes_max(4096)
        .output_buffer_bytes(4096)
        .manifest_roll_bytes(1024);
    let world = world(options);
    let before = world.counters.snapshot();
    let commits = 403;
    for number in 0..commits {
        let key = format!("key {number}");
        let mut batch = Batch::new();
        batch.put(&world.map, key.clone(), "value");
        if both_kinds {
            batch.put(&world.once, key, "value");
        }
        world
            .store
            .write(batch, Durability::Synced)
            .expect("writes");
        if number % 5 == 0 {
            world.store.drain().expect("drains");
        }
    }
    world.store.drain().expect("drains");
    let counts = world.counters.snapshot() - before;
    let stats = world.store.stats();
    assert!(stats.seals >= 50 && stats.manifest_rolls > 3, "{stats:?}");
    let (folds, parts) = (stats.folds, stats.fold_syncs);
    assert!(folds >= 6 && parts == folds, "{stats:?}");
    let rolls = 2 * stats.manifest_rolls + 2 * folds + parts;
    let per_seal = if both_kinds { 6 } else { 5 };
    assert!(
        counts.barriers() - rolls - commits <= per_seal * stats.seals,
        "{} barriers, {} seals",
        counts.barriers(),
        stats.seals
    );
    // Which they are. A commit that ends a generation shares its sync with the seal, so that logs cost
    // one more a seal, for the spare, and the first seal makes none.
    let segments = counts.of(FileKind::Segment).sync_data;
    let manifests = counts.of(FileKind::Manifest).sync_data;
    assert_eq!(segments, stats.seals * if both_kinds { 2 } else { 1 });
    assert_eq!(counts.of(FileKind::Run).sync_data, parts);
    assert_eq!(manifests, stats.seals + stats.manifest_rolls + folds);
    assert_eq!(counts.sync_dir, stats.seals + stats.manifest_rolls + folds);
    let logs = counts.of(FileKind::Log).sync_data;
    assert_eq!(logs, commits + stats.seals - 1);
}

#[test]
fn seals_of_one_kind_cost_at_most_five() {
    sealing(false);
}

#[test]
fn seals_of_both_kinds_cost_at_most_six() {
    sealing(true);
}

#[test]
fn a_synced_no_op_waits_for_what_it_rests_on() {
    let world = world(manual());
    let once = |key: &str| {
        world.barriers(|| {
            let again = world.once.put(key, "value", Durability::Synced);
            assert!(again.expect("a no-op") <= world.store.durable_sequence());
        })
    };
    put(&world.once, "a", "value");
    assert_eq!(once("a"), 1, "what it matched was not durable");
    assert_eq!(once("a"), 0, "now it is");
    put(&world.once, "b", "value");
    assert_eq!(once("a"), 0, "an older record does not wait for a newer");
    flush(&world.store);
    assert_eq!(once("b"), 0, "segments are durable");
    assert_eq!(world.store.sequence(), 2, "a no-op takes no sequence");
    let buffered = world.barriers(|| {
        put(&world.once, "c", "value");
        put(&world.once, "c", "value");
    });
    assert_eq!(buffered, 0);
}

#[test]
fn a_synced_no_op_may_lead_an_unsynced_commit() {
    let world = world(manual());
    let first = one_put(&world.once, b"k", b"value");
    let first = world.store.submit(first, Durability::Buffered);
    let first = first.expect("submits");
    let again = one_put(&world.once, b"k", b"value");
    let again = world.store.submit(again, Durability::Synced);
    let again = again.expect("submits");
    assert!(again.try_result().is_none());
    let cost = world.barriers(|| {
        world.store.commit_step().expect("commits");
    });
    assert_eq!(cost, 1);
    assert_eq!(first.wait().expect("committed"), 1);
    assert_eq!(again.wait().expect("a no-op"), 1);
}

#[test]
fn creating_a_keyspace_costs_one_and_opening_it_none() {
    let world = world(manual());
    let create = || drop(mutable(&world.store, "another"));
    assert_eq!(world.barriers(create), 1);
    assert_eq!(world.barriers(create), 0);
}
