//! `WriteOnce` keyspaces: no-ops, conflicts, and what both rest on.

mod support;

use sealstone::env::{Env, FileKind};
use sealstone::{Batch, Durability, ErrorKind, Keyspace, Options, Store};
use support::hook::{Call, hooked};
use support::{
    assert_books, files, flush, get, kind_of, manual, mutable, one_put, open, put, write_once,
};

use Durability::{Buffered, Synced};

struct World {
    env: Env,
    store: Store,
    once: Keyspace,
    map: Keyspace,
}

fn world(options: Options) -> World {
    let env = Env::in_memory();
    let store = open(&env, options);
    let (once, map) = (write_once(&store, "once"), mutable(&store, "map"));
    World {
        env,
        store,
        once,
        map,
    }
}

impl World {
    /// Writes one batch.
    fn write(&self, fill: impl FnOnce(&mut Batch<'_>)) -> sealstone::Result<u64> {
        let mut batch = Batch::new();
        fill(&mut batch);
        self.store.write(batch, Buffered)
    }

    /// Asserts that a batch is a conflict and that nothing shows it was ever there.
    fn assert_conflict(&self, fill: impl FnOnce(&mut Batch<'_>)) {
        let (before, bytes) = (self.store.audit(), files(&self.env));
        assert_eq!(kind_of(self.write(fill)), ErrorKind::Conflict);
        let mut after = self.store.audit();
        // The look may have opened the file.
        after.descriptors_open = before.descriptors_open;
        assert_eq!(after, before);
        assert_eq!(files(&self.env), bytes);
        assert!(!self.store.commit_step().expect("nothing is queued"));
        assert_books(&self.store);
    }
}

/// Runs a check with the key in the open generation, in a sealed one, in a segment, after a reopen,
/// and replayed from the log.
fn wherever_it_is(check: impl Fn(&World)) {
    let fresh = || {
        let world = world(manual());
        put(&world.once, "k", "a");
        world
    };
    check(&fresh());
    let world = fresh();
    world.store.seal().expect("seals");
    check(&world);
    let world = fresh();
    flush(&world.store);
    check(&world);
    for flushed in [false, true] {
        let world = fresh();
        if flushed {
            flush(&world.store);
        }
        let store = world.store.reopen().expect("reopens");
        let (once, map) = (write_once(&store, "once"), mutable(&store, "map"));
        check(&World {
            store,
            once,
            map,
            ..world
        });
    }
}

#[test]
fn the_same_value_again_is_a_no_op() {
    wherever_it_is(|world| {
        let (before, bytes) = (world.store.audit(), files(&world.env));
        for durability in [Buffered, Synced] {
            let again = world.once.put("k", "a", durability).expect("a no-op");
            assert_eq!(again, 1, "the commit that it found");
        }
        let audit = world.store.audit();
        assert_eq!(
            (audit.issued, audit.memory),
            (before.issued, before.memory),
            "a no-op takes no sequence and no memory"
        );
        assert_eq!(files(&world.env), bytes, "nor a frame");
    });
}

#[test]
fn another_value_is_a_conflict_without_a_trace() {
    wherever_it_is(|world| {
        world.assert_conflict(|batch| {
            batch.put(&world.once, "k", "b");
        });
        world.assert_conflict(|batch| {
            batch
                .put(&world.map, "other", "value")
                .put(&world.once, "k", "");
        });
        world.assert_conflict(|batch| {
            batch
                .put(&world.once, "new", "value")
                .put(&world.once, "k", "aa");
        });
        assert_eq!(get(&world.map, "other"), None);
        assert_eq!(get(&world.once, "new"), None);
        assert_eq!(get(&world.once, "k"), Some(b"a".to_vec()));
    });
}

#[test]
fn delete_frees_the_key() {
    wherever_it_is(|world| {
        world.once.delete("k", Buffered).expect("deletes");
        assert_eq!(get(&world.once, "k"), None);
        assert_eq!(put(&world.once, "k", "b"), 3);
        assert_eq!(get(&world.once, "k"), Some(b"b".to_vec()));
        world.assert_conflict(|batch| {
            batch.put(&world.once, "k", "a");
        });
    });
}

#[test]
fn operations_on_one_key_apply_in_order() {
    wherever_it_is(|world| {
        // The first put asks for the value that is there, whatever comes behind it.
        world.assert_conflict(|batch| {
            batch
                .put(&world.once, "k", "x")
                .delete(&world.once, "k")
                .put(&world.once, "k", "b");
        });
        world.assert_conflict(|batch| {
            batch
                .delete(&world.once, "k")
                .put(&world.once, "k", "b")
                .put(&world.once, "k", "c");
        });
        world.assert_conflict(|batch| {
            batch.put(&world.once, "k", "x").delete(&world.once, "k");
        });
        let sequence = world.write(|batch| {
            batch
                .put(&world.once, "k", "a")
                .put(&world.once, "k", "a")
                .delete(&world.once, "k")
                .delete(&world.once, "k")
                .put(&world.once, "k", "b")
                .put(&world.once, "k", "b");
        });
        assert_eq!(sequence.expect("legal"), 2);
        assert_eq!(get(&world.once, "k"), Some(b"b".to_vec()));
        let sequence = world.write(|batch| {
            batch.put(&world.once, "k", "b").delete(&world.once, "k");
        });
        assert_eq!(sequence.expect("legal"), 3);
        assert_eq!(get(&world.once, "k"), None);
    });
}

#[test]
fn a_batch_may_disagree_with_itself() {
    let world = world(manual());
    world.assert_conflict(|batch| {
        batch.put(&world.once, "k", "a").put(&world.once, "k", "b");
    });
    let twice = world.write(|batch| {
        batch.put(&world.once, "k", "a").put(&world.once, "k", "a");
    });
    assert_eq!(twice.expect("one put"), 1);
    assert_eq!(world.store.stats().commit_records, 1);
}

#[test]
fn no_ops_are_in_no_frame() {
    let world = world(manual());
    put(&world.once, "k", "a");
    let before = world.store.stats().commit_records;
    let sequence = world.write(|batch| {
        batch
            .put(&world.once, "k", "a")
            .put(&world.once, "n", "new")
            .put(&world.map, "k", "a");
    });
    assert_eq!(sequence.expect("writes"), 2);
    assert_eq!(world.store.stats().commit_records - before, 2);
    // Mutable keyspaces have no no-ops.
    assert_eq!(put(&world.map, "k", "a"), 3);
}

#[test]
fn a_verdict_on_an_unpublished_commit_waits_for_it() {
    let world = world(manual());
    let submit = |value: &'static [u8]| {
        let batch = one_put(&world.once, b"k", value);
        world.store.submit(batch, Buffered).expect("submits")
    };
    let first = submit(b"a");
    let same = submit(b"a");
    let other = submit(b"b");
    for ticket in [&first, &same, &other] {
        assert!(ticket.try_result().is_none());
    }
    assert!(world.store.commit_step().expect("commits"));
    let result = |ticket: &sealstone::Ticket| ticket.try_result().expect("resolved");
    assert_eq!(result(&first).expect("committed"), 1);
    assert_eq!(result(&same).expect("a no-op"), 1);
    assert_eq!(kind_of(result(&other)), ErrorKind::Conflict);
    assert_eq!(world.store.audit().issued, 1);
}

#[test]
fn a_verdict_on_a_commit_that_fails_fails_with_it() {
    let (env, hook) = hooked(Env::in_memory());
    let store = open(&env, manual());
    let once = write_once(&store, "once");
    put(&once, "old", "a");
    let submit =
        |key: &'static [u8], value: &'static [u8]| store.submit(one_put(&once, key, value), Synced);
    let first = submit(b"k", b"a").expect("submits");
    let same = submit(b"k", b"a").expect("submits");
    let other = submit(b"k", b"b").expect("submits");
    // This one rests on what is published: it is known at once.
    assert_eq!(kind_of(submit(b"old", b"b")), ErrorKind::Conflict);
    hook.fail_once(Call::Write, |name| name.kind == FileKind::Log);
    store.commit_step().expect_err("the write fails");
    for ticket in [first, same, other] {
        assert_eq!(kind_of(ticket.wait()), ErrorKind::Poisoned);
    }
    assert_eq!(get(&once, "k"), None);
    assert_eq!(get(&once, "old"), Some(b"a".to_vec()));
}

/// Sizes with which the key `k` is soon in a segment.
fn small() -> Options {
    manual().seal_records(8).filter_budget_bytes(0)
}

/// While the first look reads a segment, `meanwhile` happens, at most `times` times.
fn submit_while(
    times: u32,
    value: &'static [u8],
    meanwhile: impl Fn(&Store, &Keyspace, u32) + Send + 'static,
) -> (Store, Keyspace, sealstone::Result<u64>) {
    let (env, hook) = hooked(Env::in_memory());
    let store = open(&env, small());
    let once = write_once(&store, "once");
    put(&once, "k", "a");
    once.delete("k", Buffered).expect("deletes");
    put(&once, "far", "away");
    flush(&store);
    let (inner_store, inner_once) = (store.clone(), once.clone());
    let mut count = 0;
    hook.set(move |call, name| {
        if call == Call::Read && name.kind == FileKind::Segment && count < times {
            count += 1;
            meanwhile(&inner_store, &inner_once, count);
        }
        Ok(())
    });
    let result = store.write(one_put(&once, b"k", value), Buffered);
    hook.clear();
    (store, once, result)
}

#[test]
fn the_second_look_sees_what_was_submitted_since() {
    // The other put stays in memory: the second look finds it and the first starts over.
    let (store, once, result) = submit_while(1, b"a", |_, once, _| {
        put(once, "k", "b");
    });
    assert_eq!(kind_of(result), ErrorKind::Conflict);
    assert_eq!(store.stats().submit_restarts, 1);
    assert_eq!(get(&once, "k"), Some(b"b".to_vec()));

    let (store, once, result) = submit_while(1, b"b", |_, once, _| {
        put(once, "k", "b");
    });
    assert_eq!(result.expect("a no-op"), 4);
    assert_eq!(store.sequence(), 4);
    assert_eq!(get(&once, "k"), Some(b"b".to_vec()));

    // What is submitted elsewhere does not disturb it.
    let (store, _, result) = submit_while(1, b"a", |_, once, _| {
        put(once, "another", "b");
    });
    assert_eq!(result.expect("writes"), 5);
    assert_eq!(store.stats().submit_restarts, 0);
}

#[test]
fn the_second_look_does_not_trust_what_has_left_memory() {
    // The other put is in a segment by then: no memory knows of it.
    let (store, once, result) = submit_while(1, b"a", |store, once, _| {
        put(once, "k", "b");
        flush(store);
    });
    assert_eq!(kind_of(result), ErrorKind::Conflict);
    assert_eq!(store.stats().submit_restarts, 1);
    assert_eq!(get(&once, "k"), Some(b"b".to_vec()));
}

#[test]
fn starting_over_ends() {
    // Every look meets a flush; from the third on retirement waits, so that memory can answer.
    let (store, once, result) = submit_while(u32::MAX, b"a", |store, once, count| {
        put(once, format!("other {count}"), "value");
        flush(store);
    });
    result.expect("writes");
    assert_eq!(store.stats().submit_restarts, 2);
    assert_eq!(get(&once, "k"), Some(b"a".to_vec()));
    store.drain().expect("drains");
    assert_eq!(
        store.audit().lingering,
        [0; 0],
        "retirement goes on afterwards"
    );
}
