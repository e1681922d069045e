//! What is explained of a lookup is what the lookup does: its answer, its reads, its bytes.

mod support;

use sealstone::env::counting::Counters;
use sealstone::env::{Env, FileKind};
use sealstone::explain::{Answer, Cost, Explanation, FilterAnswer, Step};
use sealstone::{Durability, ErrorKind, Fold, Keyspace, Options, ReadMode, Store};
use support::{Random, flush, get, manual, mutable, names_of, open, patch_file, put, write_once};

fn options() -> Options {
    manual()
        .write_region_bytes(16 << 20)
        .seal_records(4096)
        .batch_bytes_max(1 << 20)
        .fold(Fold::Runs(3))
        .window_bytes(0)
}

/// Rounds of keys, some above the size classes, some deleted; the last one stays in memory.
fn fill(store: &Store) -> Keyspace {
    let map = mutable(store, "map");
    let mut random = Random(1);
    for round in 0..6 {
        for i in 0..40 {
            let key = format!("key {}", random.below(150));
            let length = match i {
                0 => 100_000,
                _ => random.below(300),
            };
            match random.below(5) {
                0 => drop(map.delete(key.as_bytes(), Durability::Buffered)),
                _ => drop(put(&map, key, random.bytes(length as usize))),
            }
        }
        if round < 5 {
            flush(store);
        }
    }
    map
}

fn keys() -> impl Iterator<Item = String> {
    let absent = (0..30).map(|i| format!("absent {i}"));
    (0..150).map(|i| format!("key {i}")).chain(absent)
}

/// What `call` cost by the directory's counters and by the store's.
fn cost_of<T>(store: &Store, counters: &Counters, call: impl FnOnce() -> T) -> (T, Cost) {
    let (stats, counts) = (store.stats(), counters.snapshot());
    let answer = call();
    let (after, seen) = (store.stats(), (counters.snapshot() - counts).total());
    let cost = Cost {
        reads: seen.reads,
        read_bytes: seen.read_bytes,
        mapped_reads: seen.mapped_reads,
        mapped_bytes: seen.mapped_bytes,
        opens: seen.opens,
        first_touches: 0,
    };
    let counted = Cost {
        reads: after.reads - stats.reads,
        read_bytes: after.read_bytes - stats.read_bytes,
        mapped_reads: after.mapped_reads - stats.mapped_reads,
        mapped_bytes: after.mapped_bytes - stats.mapped_bytes,
        opens: after.opens - stats.opens,
        first_touches: 0,
    };
    assert_eq!(cost, counted, "the store counts what the directory saw");
    assert_eq!(after.lookups, stats.lookups + 1);
    (answer, cost)
}

/// Explains a key, and holds the explanation to what was counted and to its own steps.
fn explain(store: &Store, counters: &Counters, map: &Keyspace, key: &str) -> Explanation {
    let (explanation, cost) = cost_of(store, counters, || map.explain(key).expect("explains"));
    let first_touches = explanation.cost.first_touches;
    assert_eq!(
        explanation.cost,
        Cost {
            first_touches,
            ..cost
        },
        "{explanation}"
    );
    let sum = explanation
        .steps
        .iter()
        .fold(Cost::default(), |sum, step| sum + step.cost());
    assert_eq!(sum, explanation.cost, "{explanation}");
    explanation
}

/// Whether a lookup came to the same.
fn assert_answer(explanation: &Explanation, value: Option<&[u8]>) {
    match (&explanation.answer, value) {
        (Answer::Value { bytes, .. }, Some(value)) => assert_eq!(*bytes, value.len() as u64),
        (Answer::Absent | Answer::Deleted { .. }, None) => {}
        (answer, value) => panic!("{answer} where {value:?} was found"),
    }
    let hits = explanation.steps.iter().filter(|step| {
        matches!(
            step,
            Step::Memory { found: true, .. } | Step::Record { wanted: true, .. }
        )
    });
    let absent = matches!(explanation.answer, Answer::Absent);
    assert_eq!(hits.count(), usize::from(!absent), "{explanation}");
}

#[test]
fn an_explained_lookup_costs_what_get_costs() {
    let directory = tempfile::tempdir().expect("a directory");
    for (case, filters) in [0, 1 << 20].into_iter().enumerate() {
        for hash_bits in [46, 8] {
            let path = directory.path().join(format!("{case} {hash_bits}"));
            let real = Env::real(path).expect("an environment");
            for (env, modes) in [
                (Env::in_memory(), &[ReadMode::Pread][..]),
                (real, &[ReadMode::Pread, ReadMode::Mmap]),
            ] {
                let (env, counters) = env.counting();
                let options = options().hash_bits(hash_bits).filter_budget_bytes(filters);
                let store = open(&env, options.clone());
                fill(&store);
                store.close().expect("closes");
                for mode in modes {
                    let options = options.clone().read_mode(*mode);
                    assert_same(&env, &counters, options, hash_bits);
                }
            }
        }
    }
}

/// Two openings, one that gets each key and one that explains it: also first touches cost the same.
fn assert_same(env: &Env, counters: &Counters, options: Options, hash_bits: u8) {
    let mut got = Vec::new();
    let store = open(env, options.clone());
    store.drain().expect("drains");
    let map = mutable(&store, "map");
    for key in keys() {
        got.push(cost_of(&store, counters, || get(&map, &key)));
    }
    store.close().expect("closes");
    let store = open(env, options);
    store.drain().expect("drains");
    let map = mutable(&store, "map");
    let (mut touches, mut collisions) = (0, 0);
    for (key, (value, cost)) in keys().zip(got) {
        let explanation = explain(&store, counters, &map, &key);
        let first_touches = explanation.cost.first_touches;
        assert_eq!(
            explanation.cost,
            Cost {
                first_touches,
                ..cost
            },
            "{key}: {explanation}"
        );
        assert_answer(&explanation, value.as_deref());
        touches += first_touches;
        let others = |step: &&Step| matches!(step, Step::Record { wanted: false, .. });
        collisions += explanation.steps.iter().filter(others).count();
        let again = explain(&store, counters, &map, &key);
        assert_answer(&again, value.as_deref());
        assert_eq!(again.cost.first_touches, 0);
    }
    assert!(touches > 0);
    assert_eq!(
        collisions > 0,
        hash_bits == 8,
        "{collisions} records of other keys"
    );
    store.close().expect("closes");
}

#[test]
fn what_the_window_table_names_is_a_step() {
    let (env, counters) = Env::in_memory().counting();
    let store = open(&env, options().window_bytes(1 << 20));
    let blocks = write_once(&store, "blocks");
    put(&blocks, "old", "value");
    flush(&store);
    put(&blocks, "new", "value");
    flush(&store);
    let found = explain(&store, &counters, &blocks, "old");
    let [window, record] = &found.steps[..] else {
        panic!("{found}");
    };
    assert!(
        matches!(
            window,
            Step::Window {
                generations: (1, 3),
                runs: 2
            }
        ),
        "{window:?}"
    );
    assert!(
        matches!(record, Step::Record { wanted: true, .. }),
        "{record}"
    );
    assert_eq!(found.cost.reads, 1, "{found}");
    let absent = explain(&store, &counters, &blocks, "other");
    assert_eq!((absent.steps.len(), absent.cost), (1, Cost::default()));
    store.close().expect("closes");
}

#[test]
fn steps_name_what_was_asked() {
    let (env, counters) = Env::in_memory().counting();
    let store = open(&env, options().filter_budget_bytes(1 << 20).fold(Fold::Off));
    let blocks = write_once(&store, "blocks");
    put(&blocks, "old", "value");
    flush(&store);
    put(&blocks, "new", vec![1; 50_000]);
    flush(&store);
    put(&blocks, "memory", "value");
    let names = names_of(&env, FileKind::Segment);

    let found = explain(&store, &counters, &blocks, "memory");
    assert!(
        matches!(found.steps[..], [Step::Memory { found: true, .. }]),
        "{found}"
    );
    assert_eq!(found.cost, Cost::default());

    let found = explain(&store, &counters, &blocks, "old");
    let [memory, newer, older, page, record] = &found.steps[..] else {
        panic!("{found}");
    };
    assert!(matches!(memory, Step::Memory { found: false, .. }));
    assert!(
        matches!(newer, Step::Run { part, filter: FilterAnswer::No { bits_per_key: 12 }, .. }
            if *part == names[1]),
        "{newer}"
    );
    assert!(
        matches!(older, Step::Run { part, level: 0, segments: 1, parts: 1,
            filter: FilterAnswer::Maybe { bits_per_key: 12 }, .. } if *part == names[0]),
        "{older}"
    );
    assert!(
        matches!(page, Step::Page { file, page: 0, pages: 1, entries: 1, .. } if *file == names[0]),
        "{page}"
    );
    assert_eq!((page.cost().reads, page.cost().read_bytes), (1, 4096));
    assert!(
        matches!(record, Step::Record { file, offset: 64, size_class_bytes: Some(_),
            tombstone: false, wanted: true, .. } if *file == names[0]),
        "{record}"
    );
    assert_eq!(record.cost().reads, 1);
    assert_eq!(found.cost.reads, 2);
    let text = found.to_string();
    for word in [
        "hash ",
        "generation",
        "12 bits a key says no",
        "index page 0 of 1",
        "2 reads",
    ] {
        assert!(text.contains(word), "{word:?} in {text}");
    }

    let absent = explain(&store, &counters, &blocks, "absent");
    assert!(matches!(absent.answer, Answer::Absent));
    assert_eq!(
        (absent.steps.len(), absent.cost),
        (3, Cost::default()),
        "{absent}"
    );
    let endless = blocks.explain(vec![7; 1 << 20]).expect("explains");
    assert!(matches!(endless.answer, Answer::Absent) && endless.steps.is_empty());
    store.close().expect("closes");
    assert_eq!(support::kind_of(blocks.explain("old")), ErrorKind::Closed);
}

#[test]
fn damage_is_explained() {
    let (env, counters) = Env::in_memory().counting();
    let options = options().filter_budget_bytes(0);
    let store = open(&env, options.clone());
    let map = mutable(&store, "map");
    for number in 0..4 {
        put(&map, format!("key {number}"), "value");
        flush(&store);
    }
    store.close().expect("closes");
    // The index of the folded run: its segments answer.
    let run = names_of(&env, FileKind::Run)[0];
    patch_file(&env, run, 4096 + 100, &[1, 2, 3]);
    let store = open(&env, options.clone());
    let map = mutable(&store, "map");
    let found = explain(&store, &counters, &map, "key 0");
    assert!(matches!(found.answer, Answer::Value { .. }), "{found}");
    let names_it = |step: &Step| matches!(step, Step::DamagedIndex { file, .. } if *file == run);
    assert_eq!(
        found.steps.iter().filter(|step| names_it(step)).count(),
        1,
        "{found}"
    );
    drop((map, store));
    // A record: the lookup fails, and says so.
    let segment = names_of(&env, FileKind::Segment)[3];
    patch_file(&env, segment, 64 + 25, &[9]);
    let store = open(&env, options);
    let map = mutable(&store, "map");
    let failed = explain(&store, &counters, &map, "key 3");
    let Answer::Failed(error) = &failed.answer else {
        panic!("{failed}");
    };
    assert_eq!(
        (error.kind(), error.file()),
        (&ErrorKind::Corruption, Some(segment))
    );
    assert!(
        matches!(failed.steps.last(), Some(Step::Rest { cost }) if cost.reads == 1),
        "{failed}"
    );
}
