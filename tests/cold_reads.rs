//! `cold_reads_ahead`: the system is told of all the reads of a lookup before the first of them, and nothing
//! else changes.

mod support;

use sealstone::env::Env;
use sealstone::sync::{Arc, Mutex};
use sealstone::{FilterPolicy, Fold, Options, Store};
use support::hook::{Call, Hook, hooked};
use support::{flush, get, manual, mutable, open, put};

const SEGMENTS: u8 = 6;

fn options() -> Options {
    manual()
        .filter_policy(FilterPolicy::None)
        .window_bytes(0)
        .fold(Fold::Off)
}

/// A store of segments that no filter spares a lookup: a key in each, and one in all.
fn written() -> Env {
    let env = Env::in_memory();
    let store = open(&env, options());
    let map = mutable(&store, "map");
    for segment in 0..SEGMENTS {
        put(&map, [segment], [segment]);
        // Pages hold what lies beside the absent key, too: else no page is looked at.
        put(&map, [200, segment], "beside");
        put(&map, "in all", [segment]);
        flush(&store);
    }
    store.close().expect("closes");
    env
}

/// The reads, and words of reads, that a call leads to.
fn calls(hook: &Hook, run: impl FnOnce()) -> Vec<Call> {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let kept = seen.clone();
    hook.set(move |call, _| {
        kept.lock().push(call);
        Ok(())
    });
    run();
    hook.clear();
    seen.lock().clone()
}

/// What a store reads for an absent key, for a key that is in the oldest segment, and for many at once.
fn observed(env: &Env, options: Options) -> [Vec<Call>; 3] {
    let (env, hook) = hooked(env.clone());
    let store = open(&env, options);
    let map = mutable(&store, "map");
    // Files are opened and their tails read.
    assert_eq!(get(&map, "absent"), None);
    for segment in 0..SEGMENTS {
        assert_eq!(get(&map, [segment]), Some(vec![segment]));
    }
    let absent = calls(&hook, || assert_eq!(get(&map, "absent"), None));
    let oldest = calls(&hook, || assert_eq!(get(&map, [0]), Some(vec![0])));
    let many = calls(&hook, || assert_many(&store));
    [absent, oldest, many]
}

fn assert_many(store: &Store) {
    let map = mutable(store, "map");
    let keys: Vec<[u8; 1]> = (0..SEGMENTS).map(|segment| [segment]).collect();
    let asked: Vec<_> = keys.iter().map(|key| (&map, &key[..])).collect();
    let values = store.multi_get(&asked).expect("reads");
    for (key, value) in keys.iter().zip(values) {
        assert_eq!(value.as_deref(), Some(&key[..]));
    }
}

fn count(calls: &[Call], wanted: Call) -> usize {
    calls.iter().filter(|call| **call == wanted).count()
}

#[test]
fn all_pages_are_asked_for_before_the_first_is_read() {
    let env = written();
    let plain = observed(&env, options());
    let ahead = observed(&env, options().cold_reads_ahead(true));
    for (plain, ahead) in plain.iter().zip(&ahead) {
        assert_eq!(count(plain, Call::WillNeed), 0);
        assert_eq!(count(plain, Call::Read), count(ahead, Call::Read));
    }
    let [absent, oldest, many] = &ahead;
    let pages = count(absent, Call::Read);
    assert!(pages > 1, "{absent:?}");
    assert_eq!(absent[..pages], vec![Call::WillNeed; pages]);
    assert_eq!(absent[pages..], vec![Call::Read; pages]);
    // Its record is one more read; nobody could know of it before.
    let asked = count(oldest, Call::WillNeed);
    assert_eq!(oldest[..asked], vec![Call::WillNeed; asked]);
    assert_eq!(count(oldest, Call::Read), asked + 1);
    // Of many keys the reads of each round are asked for, too.
    let first = many.iter().position(|call| *call == Call::Read);
    assert!(
        first.is_some_and(|first| first >= SEGMENTS.into()),
        "{many:?}"
    );
}

#[test]
fn a_single_candidate_is_not_asked_for() {
    let env = Env::in_memory();
    let store = open(&env, options());
    let map = mutable(&store, "map");
    put(&map, "key", "value");
    flush(&store);
    store.close().expect("closes");
    let (env, hook) = hooked(env);
    let store = open(&env, options().cold_reads_ahead(true));
    let map = mutable(&store, "map");
    get(&map, "key");
    let seen = calls(&hook, || assert!(get(&map, "key").is_some()));
    assert_eq!(seen, [Call::Read, Call::Read]);
}
