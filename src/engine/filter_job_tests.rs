//! How often lookups wake the job that plans filters.

use crate::env::Env;
use crate::{Background, Batch, Durability, FilterPolicy, KeyspaceOptions, Options, Store};

/// A store of three segments, every lookup counted, that nobody but the test works at.
fn store(policy: FilterPolicy) -> (Store, crate::Keyspace) {
    let options = Options::new()
        .background(Background::Manual)
        .filter_policy(policy)
        .filter_sample_bits(0)
        .window_bytes(0);
    let store = Store::open_with(Env::in_memory(), options).expect("opens");
    let records = store.keyspace("records", KeyspaceOptions::mutable());
    let records = records.expect("creates");
    for segment in 0..3_u64 {
        let mut batch = Batch::new();
        for record in 0..100_u64 {
            batch.put(&records, (segment << 32 | record).to_le_bytes(), b"value");
        }
        store.write(batch, Durability::Buffered).expect("writes");
        store.seal().expect("seals");
        store.drain().expect("drains");
    }
    (store, records)
}

/// Looks absent keys up and returns how often that woke the jobs.
fn wakes(store: &Store, records: &crate::Keyspace, lookups: u64) -> u64 {
    let signal = &store.inner.engine.work.0;
    let before = signal.count();
    for key in 0..lookups {
        let absent = (1 << 50 | key).to_le_bytes();
        assert!(records.get(absent).expect("looks up").is_none());
    }
    signal.count() - before
}

#[test]
fn a_plan_is_asked_for_once_however_many_lookups_pass() {
    let (store, records) = store(FilterPolicy::Planned);
    let engine = &store.inner.engine;
    let plans = || engine.residency.lock().plan_count();
    let mut woken = 0;
    for round in 0..20 {
        let before = plans();
        let due = engine
            .residency
            .lock()
            .needs_plan(engine.counters.sampled.get());
        assert!(!due, "round {round}");
        // Three parts: 64 of these lookups make the plan due, and the others find it asked for.
        let now = wakes(&store, &records, 1_000);
        assert_eq!(now, 1, "round {round}");
        woken += now;
        store.drain().expect("drains");
        assert_eq!(plans(), before + 1, "round {round}");
    }
    assert_eq!(woken, 20);
    // As often as a driver that follows each plan: one lookup in 64.
    let mut woken = 0;
    for _ in 0..640 {
        let now = wakes(&store, &records, 1);
        woken += now;
        if now > 0 {
            store.drain().expect("drains");
        }
    }
    assert_eq!(woken, 10);
}

#[test]
fn lookups_wake_nobody_where_counts_plan_nothing() {
    for policy in [
        FilterPolicy::None,
        FilterPolicy::NewestFirst,
        FilterPolicy::WindowOnly,
    ] {
        let (store, records) = store(policy);
        assert_eq!(wakes(&store, &records, 5_000), 0, "{policy:?}");
    }
    let (store, records) = store(FilterPolicy::Planned);
    store.set_filter_budget(0).expect("sets");
    store.drain().expect("drains");
    assert_eq!(wakes(&store, &records, 5_000), 0);
    store.set_filter_budget(1 << 20).expect("sets");
    store.drain().expect("drains");
    assert_eq!(wakes(&store, &records, 5_000), 1);
}
