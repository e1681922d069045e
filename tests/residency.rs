//! Which filters are in memory: budgets hold, answers do not depend on them, reads in vain are as expected.

mod support;

use sealstone::env::{Env, FileKind, PressureLevel};
use sealstone::segment::Footer;
use sealstone::{Batch, Durability, ErrorKind, FilterPolicy, Fold, Job, Keyspace, Options, Store};
use support::{
    Map, Random, assert_content, flush, get, kind_of, manual, mutable, names_of, open, patch_file,
    read_file, write_once,
};

const POLICIES: [FilterPolicy; 5] = [
    FilterPolicy::Planned,
    FilterPolicy::NewestFirst,
    FilterPolicy::WindowOnly,
    FilterPolicy::All,
    FilterPolicy::None,
];

/// The policy, and a store of small segments.
fn options(policy: FilterPolicy) -> Options {
    manual()
        .family_seed([9; 16])
        .write_region_bytes(16 << 20)
        .seal_records(4096)
        .seal_bytes(1 << 20)
        .batch_records_max(4096)
        .fold(Fold::Runs(3))
        .run_part_records(700)
        .window_bytes(0)
        .filter_policy(policy)
}

/// Runs jobs one by one; the budget holds after each, and the books are exact.
fn drain_watched(store: &Store) {
    while let Some(job) = store.runnable().first() {
        store.run(*job, 64).expect("runs");
        assert_books(store);
    }
}

fn assert_books(store: &Store) {
    let audit = store.audit();
    assert!(
        audit.filter_bytes <= audit.filter_budget_bytes,
        "{} of {}",
        audit.filter_bytes,
        audit.filter_budget_bytes
    );
    assert_eq!(audit.filter_bytes, audit.filter_counted_bytes);
    let stats = store.stats();
    let by_bits = &stats.filters_by_bits;
    let filters: u64 = by_bits.iter().map(|sum| sum.filters).sum();
    assert_eq!(filters, stats.filters_resident);
}

fn add_segment(store: &Store, map: &Keyspace, number: u64, model: &mut Map) {
    let mut random = Random(number);
    let mut batch = Batch::new();
    for record in 0..100 {
        let key = match random.below(4) {
            0 => format!("key {}", random.below(60)).into_bytes(),
            _ => format!("key {number} {record}").into_bytes(),
        };
        let value = random.bytes(20);
        match random.below(8) {
            0 => {
                batch.delete(map, key.clone());
                model.remove(&key);
            }
            _ => {
                batch.put(map, key.clone(), value.clone());
                model.insert(key, value);
            }
        }
    }
    store.write(batch, Durability::Buffered).expect("writes");
    store.seal().expect("seals");
}

/// Damages the first piece of every stored filter of a file but its last.
fn damage_filters(env: &Env, kind: FileKind) -> u64 {
    let mut damaged = 0;
    for name in names_of(env, kind) {
        let bytes = read_file(env, name);
        let (footer, ..) = Footer::decode(&bytes, bytes.len() as u64).expect("a footer");
        let filters = footer.layout.filters.iter();
        for filter in filters.take(1).filter(|filter| filter.shape.blocks > 0) {
            let place = filter.section.span.offset;
            patch_file(env, name, place, &[bytes[place as usize] ^ 1]);
            damaged += 1;
        }
    }
    damaged
}

/// The same commits under every policy, with budgets that jump, folds, damaged filters and openings between
/// them: the answers are those of the model.
#[test]
fn answers_do_not_depend_on_filters() {
    for policy in POLICIES {
        let env = Env::in_memory();
        let mut store = open(&env, options(policy));
        let mut map = mutable(&store, "map");
        let mut model = Map::new();
        let mut random = Random(1);
        for number in 0..40 {
            add_segment(&store, &map, number, &mut model);
            drain_watched(&store);
            let budget = [0, 150, 600, 4_000, 30_000, 1 << 20][random.below(6) as usize];
            store.set_filter_budget(budget).expect("sets the budget");
            assert_books(&store);
            for absent in 0..40 {
                assert_eq!(get(&map, format!("absent {number} {absent}")), None);
            }
            if number % 4 == 0 {
                drain_watched(&store);
                assert_content(&map, &model);
            }
            if number % 8 == 7 {
                drop((map, store));
                let kind = [FileKind::Segment, FileKind::Run][random.below(2) as usize];
                damage_filters(&env, kind);
                store = open(&env, options(policy));
                map = mutable(&store, "map");
                store.drain().expect("loads");
                assert_content(&map, &model);
            }
        }
        assert_content(&map, &model);
    }
}

/// A damaged filter is given up, and another alternative of the part takes its place.
#[test]
fn another_alternative_stands_in_for_a_damaged_one() {
    let env = Env::in_memory();
    let options = options(FilterPolicy::NewestFirst);
    let store = open(&env, options.clone());
    let map = mutable(&store, "map");
    let mut model = Map::new();
    for number in 0..2 {
        add_segment(&store, &map, number, &mut model);
        store.drain().expect("flushes");
    }
    let bits = |store: &Store| -> Vec<u16> {
        let sums = store.stats().filters_by_bits;
        sums.iter().map(|sum| sum.bits_per_key).collect()
    };
    assert_eq!(bits(&store), [12]);
    drop((map, store));
    assert_eq!(damage_filters(&env, FileKind::Segment), 2);
    let store = open(&env, options);
    drain_watched(&store);
    assert_eq!(bits(&store), [16]);
    assert_eq!(store.stats().filters_given_up, 2);
    assert_eq!(store.stats().filters_resident, 2);
    assert_content(&mutable(&store, "map"), &model);
}

#[test]
fn a_budget_for_less_than_all_is_refused_for_all() {
    let env = Env::in_memory();
    let store = open(&env, options(FilterPolicy::Planned));
    let map = mutable(&store, "map");
    let mut model = Map::new();
    for number in 0..8 {
        add_segment(&store, &map, number, &mut model);
        store.drain().expect("flushes");
    }
    let runs = store.stats().runs;
    drop((map, store));
    let all = options(FilterPolicy::All);
    let refused = Store::open_with(env.clone(), all.clone().filter_budget_bytes(100));
    let ErrorKind::TooLarge { needed, limit } = kind_of(refused) else {
        panic!("too large");
    };
    assert_eq!(limit, 100);
    let store = open(&env, all.clone().filter_budget_bytes(needed));
    drain_watched(&store);
    assert!(store.stats().filters_resident >= runs);
    assert_eq!(store.stats().filter_bytes, needed);
    // Later it does what it can.
    store.set_filter_budget(needed / 2).expect("sets");
    assert_books(&store);
    drain_watched(&store);
    assert!(store.stats().filter_bytes > 0);
    let refused = Store::open_with(env, all.filter_budget_bytes(needed - 1));
    assert!(matches!(kind_of(refused), ErrorKind::Locked));
}

/// Pressure leaves filters a half or a quarter of the budget from the next step of their job on, though a
/// load that failed waits for its next try; what they had comes back with the level.
#[test]
fn filters_follow_memory_pressure() {
    let env = Env::in_memory();
    let options = options(FilterPolicy::Planned).fold(Fold::Off);
    let store = open(&env, options.clone());
    let map = mutable(&store, "map");
    let mut model = Map::new();
    for number in 0..30 {
        add_segment(&store, &map, number, &mut model);
    }
    drain_watched(&store);
    let needed = store.stats().filter_bytes;
    store.set_filter_budget(needed).expect("sets");
    let all = store.stats().filters_resident;
    for (level, part) in [
        (PressureLevel::High, 2),
        (PressureLevel::Critical, 4),
        (PressureLevel::Normal, 1),
        (PressureLevel::Critical, 4),
    ] {
        store.set_pressure(Some(level));
        assert!(store.runnable().contains(&Job::LoadFilter), "{level:?}");
        store.run(Job::LoadFilter, 1).expect("runs");
        let stats = store.stats();
        assert_eq!(stats.pressure.filter_target_bytes, needed / part);
        assert!(stats.filter_bytes <= needed / part, "{level:?}");
        assert_eq!(
            stats.filter_budget_bytes, needed,
            "what the user said stays"
        );
        drain_watched(&store);
        assert!(store.stats().filter_bytes <= needed / part);
        assert!(store.stats().filter_bytes > needed / part / 2, "{level:?}");
        assert_content(&map, &model);
    }
    // Another budget keeps the level.
    store.set_filter_budget(2 * needed).expect("sets");
    drain_watched(&store);
    assert!(store.stats().filter_bytes <= needed / 2);
    store.set_pressure(None);
    drain_watched(&store);
    assert_eq!(store.stats().filters_resident, all);
}

/// The reads in vain that the stats expect are those that absent keys cost, with any budget; planned ones are
/// no more than newest first.
#[test]
fn reads_in_vain_are_as_expected() {
    const LOOKUPS: u64 = 20_000;
    let env = Env::in_memory();
    let options = |policy| options(policy).run_part_records(1 << 20);
    let store = open(&env, options(FilterPolicy::Planned));
    let once = write_once(&store, "once");
    for segment in 0..26_u64 {
        let mut batch = Batch::new();
        for record in 0..2_000_u64 {
            batch.put(&once, (segment << 32 | record).to_le_bytes(), b"value");
        }
        store.write(batch, Durability::Buffered).expect("writes");
        flush(&store);
    }
    drop((once, store));
    // Twelve bits a key, in whole pages where they are counted so.
    let options_all = options(FilterPolicy::All).filter_budget_bytes(0);
    let ErrorKind::TooLarge {
        needed: all_bytes, ..
    } = kind_of(Store::open_with(env.clone(), options_all))
    else {
        panic!("too large");
    };
    assert!((78_000..84_000).contains(&all_bytes), "{all_bytes}");
    for share in [0, 10, 40, 70, 100] {
        let budget = all_bytes * share / 100;
        let cost = |policy| {
            let store = open(&env, options(policy).filter_budget_bytes(budget));
            let once = write_once(&store, "once");
            store.drain().expect("loads");
            let before = store.stats();
            for key in 0..LOOKUPS {
                let key = (key << 20 | 0xF_FFFF) * 3;
                assert_eq!(get(&once, key.to_be_bytes()), None);
            }
            let after = store.stats();
            let wrong = after.false_candidates - before.false_candidates;
            let measured = wrong as f64 / LOOKUPS as f64;
            let expected = before.expected_false_reads_write_once;
            let slack = 0.01 + 0.15 * expected;
            assert!(
                (measured - expected).abs() < slack,
                "{share} %, {policy:?}: {measured} measured, {expected} expected"
            );
            assert_eq!(before.expected_false_reads_mutable, 0.0);
            let counted = after.filter_ghosts as f64 * 64.0 / LOOKUPS as f64;
            let unfiltered = (after.runs - after.filters_resident) as f64;
            assert!(
                (counted - unfiltered).abs() <= 0.3 * unfiltered,
                "{counted}"
            );
            (measured, after.runs)
        };
        let (planned, runs) = cost(FilterPolicy::Planned);
        let (simple, _) = cost(FilterPolicy::NewestFirst);
        println!(
            "{share} % of 12 bits a key, {runs} runs: {planned} planned, {simple} newest first"
        );
        assert!(planned <= simple + 0.01, "{planned}, {simple}");
        assert!(planned <= runs as f64);
        if share == 100 {
            assert!(planned <= 0.06, "{planned} reads in vain a miss");
        }
    }
}

/// Where lookups come in vain decides: the kind that is asked has filters, the other none.
#[test]
fn filters_follow_the_lookups() {
    let env = Env::in_memory();
    let options = options(FilterPolicy::Planned)
        .fold(Fold::Off)
        .filter_sample_bits(0);
    let store = open(&env, options.clone());
    let (map, once) = (mutable(&store, "map"), write_once(&store, "once"));
    for segment in 0..6_u64 {
        for keyspace in [&map, &once] {
            let mut batch = Batch::new();
            for record in 0..2_000_u64 {
                batch.put(keyspace, (segment << 32 | record).to_le_bytes(), b"value");
            }
            store.write(batch, Durability::Buffered).expect("writes");
        }
        flush(&store);
    }
    let filter_bytes = (2_000_u64 * 12).div_ceil(512) * 64;
    store.set_filter_budget(6 * filter_bytes).expect("sets");
    let expected = |store: &Store| {
        let stats = store.stats();
        (
            stats.expected_false_reads_write_once,
            stats.expected_false_reads_mutable,
        )
    };
    for (asked, mutable) in [(&map, true), (&once, false)] {
        for round in 0..12_u64 {
            for key in 0..600_u64 {
                let absent = 1 << 50 | round << 16 | key;
                assert_eq!(get(asked, absent.to_le_bytes()), None);
            }
            drain_watched(&store);
        }
        let (once, map) = expected(&store);
        let (own, other) = if mutable { (map, once) } else { (once, map) };
        assert!(own < 0.1 && other > 5.0, "{own} own, {other} other");
    }
    // Nothing moves any more.
    let loads = store.stats().filter_loads;
    for key in 0..3_000_u64 {
        get(&once, (1 << 51 | key).to_le_bytes());
    }
    drain_watched(&store);
    assert_eq!(store.stats().filter_loads, loads);
}

/// A step of the job is bounded: a large filter comes piece by piece.
#[test]
fn a_large_filter_is_loaded_in_steps() {
    let env = Env::in_memory();
    let options = manual()
        .write_region_bytes(64 << 20)
        .seal_records(80_000)
        .batch_records_max(80_000);
    let store = open(&env, options.clone());
    let once = write_once(&store, "once");
    let mut batch = Batch::new();
    for record in 0..80_000_u64 {
        batch.put(&once, record.to_le_bytes(), b"v");
    }
    store.write(batch, Durability::Buffered).expect("writes");
    flush(&store);
    let stats = store.stats();
    drop((once, store));
    let store = open(&env, options);
    let mut steps = 0;
    while store.runnable().contains(&Job::LoadFilter) {
        store.run(Job::LoadFilter, 16).expect("runs");
        assert_books(&store);
        steps += 1;
    }
    // 120,000 bytes at 12 bits a key, a third more at 16; a piece of 16 KiB each.
    assert!((8..=11).contains(&steps), "{steps} steps");
    assert!(store.stats().filter_bytes > stats.filter_bytes);
    // The budget shrinks under a load in flight.
    store.set_filter_budget(0).expect("sets");
    store.set_filter_budget(1 << 20).expect("sets");
    for _ in 0..4 {
        store.run(Job::LoadFilter, 16).expect("runs");
    }
    assert!(store.audit().filter_bytes > 100_000);
    store.set_filter_budget(20_000).expect("sets");
    assert_eq!(store.audit().filter_bytes, 0);
    assert_books(&store);
    drain_watched(&store);
    assert_eq!(store.stats().filters_resident, 0, "none is so small");
    store.close().expect("closes");
    assert_eq!(kind_of(store.set_filter_budget(1)), ErrorKind::Closed);
}

/// What a plan, a step of a load and a change of the budget take with many segments, none of them folded.
#[test]
#[ignore = "a measurement: cargo test --release --test residency -- --ignored --nocapture"]
#[allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "it measures time"
)]
fn plans_of_many_segments_take() {
    use std::time::{Duration, Instant};
    const SEGMENTS: u64 = 10_000;
    let env = Env::in_memory();
    let options = options(FilterPolicy::Planned)
        .seal_records(64)
        .batch_records_max(64)
        .fold(Fold::Off);
    let store = open(&env, options.clone());
    let once = write_once(&store, "once");
    let (mut flushes, mut slowest) = (Duration::ZERO, Duration::ZERO);
    for segment in 0..SEGMENTS {
        let mut batch = Batch::new();
        for record in 0..64_u64 {
            batch.put(&once, (segment << 32 | record).to_le_bytes(), b"v");
        }
        store.write(batch, Durability::Buffered).expect("writes");
        let begun = Instant::now();
        store.drain().expect("flushes");
        flushes = begun.elapsed();
        slowest = slowest.max(flushes);
    }
    println!("{SEGMENTS} segments: the last flush {flushes:?}, the slowest {slowest:?}");
    drop((once, store));
    let store = open(&env, options);
    let step = || {
        let begun = Instant::now();
        store.run(Job::LoadFilter, 1024).expect("runs");
        begun.elapsed()
    };
    println!("the first plan {:?}", step());
    let (mut sum, mut most, mut steps) = (Duration::ZERO, Duration::ZERO, 0);
    while store.runnable().contains(&Job::LoadFilter) {
        let took = step();
        (sum, most, steps) = (sum + took, most.max(took), steps + 1);
    }
    let resident = store.stats().filters_resident;
    println!(
        "{resident} loads in {steps} steps: {:?} each, {most:?} the longest",
        sum / steps
    );
    for share in [2, 4] {
        let budget = store.stats().filter_bytes / share;
        let begun = Instant::now();
        store.set_filter_budget(budget).expect("sets");
        println!("a smaller budget {:?}", begun.elapsed());
        let next = step();
        println!("then a step {next:?}");
    }
    store.set_filter_budget(1 << 30).expect("sets");
    println!("with a larger budget a step {:?}", step());
}
