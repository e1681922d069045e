//! Memory pressure: it takes what is elastic, never a floor, and changes nothing that is written.

mod support;

use std::time::Duration;

use sealstone::env::manual::ManualClock;
use sealstone::env::pressure::SetPressure;
use sealstone::env::{Env, FileKind, PressureLevel};
use sealstone::sync::Arc;
use sealstone::{Durability, ErrorKind, Keyspace, Options, Store};
use support::{
    Random, assert_books, files, flush, get, kind_of, manual, mutable, one_put, open, put,
};

use Durability::Buffered;
use PressureLevel::{Critical, High, Normal};

const MOST: usize = 16 << 10;

fn small() -> Options {
    manual()
        .write_region_bytes(2 << 20)
        .chunk_bytes(16 << 10)
        .block_records(16)
        .seal_records(32)
        .seal_bytes(MOST as u64)
        .batch_bytes_max(MOST as u64)
        .output_buffer_bytes(1024)
        .queue_slots(64)
        .family_seed([3; 16])
}

struct World {
    env: Env,
    pressure: Arc<SetPressure>,
    clock: Arc<ManualClock>,
    store: Store,
    map: Keyspace,
}

fn world(options: Options) -> World {
    let pressure = Arc::new(SetPressure::new());
    let clock = Arc::new(ManualClock::new());
    let env = Env {
        pressure: pressure.clone(),
        clock: clock.clone(),
        ..Env::in_memory()
    };
    let store = open(&env, options);
    let map = mutable(&store, "map");
    World {
        env,
        pressure,
        clock,
        store,
        map,
    }
}

/// Writes without a job until it is refused; says how many sealed bytes there are then.
fn fill(world: &World) -> u64 {
    for number in 0..10_000u32 {
        let key = number.to_be_bytes();
        if let Err(error) = world
            .store
            .try_write(one_put(&world.map, &key, &[7; 1000]), Buffered)
        {
            assert!(matches!(error.kind(), ErrorKind::Busy { .. }), "{error}");
            return world.store.audit().memory.sealed_bytes;
        }
        assert_books(&world.store);
    }
    panic!("the region is finite");
}

#[test]
fn levels_leave_all_half_or_none_of_what_is_elastic() {
    let mut sealed = Vec::new();
    for level in [Normal, High, Critical] {
        let world = world(small());
        world.store.set_pressure(Some(level));
        sealed.push(fill(&world));
        let stats = world.store.stats();
        let memory = &stats.memory;
        let held = memory.total_bytes - memory.free_bytes;
        assert!(held <= stats.pressure.region_limit_bytes, "{level:?}");
        assert!(stats.pressure.region_limit_bytes >= stats.pressure.region_floor_bytes);
        assert_eq!(stats.pressure.level, level);
    }
    assert!(sealed[0] > sealed[1] && sealed[1] > sealed[2], "{sealed:?}");
    assert!(sealed[2] > 0, "two generations always fit");
}

#[test]
fn the_largest_batch_comes_through_at_the_worst_level() {
    let mut random = Random(5);
    for round in 0..40 {
        let world = world(small());
        world.pressure.set(Critical);
        for number in 0..random.below(200) {
            let value = {
                let len = random.below(4000) as usize;
                random.bytes(len)
            };
            let key = number.to_be_bytes();
            let written = world
                .store
                .write(one_put(&world.map, &key, &value), Buffered);
            written.unwrap_or_else(|error| panic!("round {round}: {error}"));
        }
        let largest = vec![9; MOST - 40 - 16 - 8];
        let written = world
            .store
            .write(one_put(&world.map, b"largest", &largest), Buffered);
        written.unwrap_or_else(|error| panic!("round {round}: {error}"));
        assert_eq!(world.store.stats().pressure.level, Critical);
        assert_eq!(get(&world.map, "largest"), Some(largest));
    }
}

#[test]
fn kept_chunks_go_back_within_few_steps() {
    let world = world(small());
    fill(&world);
    world.store.drain().expect("drains");
    let kept = |world: &World| -> u64 {
        let kept = world.store.stats().memory_counters.kept;
        kept.iter().map(|one| one.counts.kept_bytes).sum()
    };
    let before = kept(&world);
    world.pressure.set(Critical);
    assert_eq!(kept(&world), before, "nobody has looked yet");
    let mut looks = 0;
    while world.store.stats().pressure.region_limit_bytes < kept(&world) + held(&world)
        || looks == 0
    {
        put(&world.map, "k", "v");
        looks += 1;
        assert!(looks < 100);
    }
    let stats = world.store.stats();
    assert!(kept(&world) < before / 2, "{} of {before}", kept(&world));
    assert!(kept(&world) + held(&world) <= stats.pressure.region_limit_bytes);
    let dropped: u64 = stats
        .memory_counters
        .kept
        .iter()
        .map(|one| one.counts.dropped_by_pressure)
        .sum();
    assert!(
        dropped <= 16 * looks,
        "a part at a look: {dropped} in {looks}"
    );
    // Needed again, they were let go too early: each is regretted once.
    world.store.set_pressure(Some(Normal));
    fill(&world);
    let counters = world.store.stats().memory_counters;
    let chunks = counters
        .kept
        .iter()
        .find(|one| one.class == "chunk")
        .expect("there");
    assert!(chunks.counts.regretted > 0);
    assert!(chunks.counts.regretted <= chunks.counts.dropped_by_pressure);
}

/// Bytes of buffers in use.
fn held(world: &World) -> u64 {
    let kept = world.store.stats().memory_counters.kept;
    kept.iter().map(|one| one.counts.live_bytes).sum()
}

#[test]
fn it_falls_a_second_a_level_and_what_a_user_says_counts_at_once() {
    let world = world(small());
    let level = |world: &World| {
        put(&world.map, "k", "v");
        world.store.stats().pressure.level
    };
    world.pressure.set(Critical);
    assert_eq!(level(&world), Critical);
    world.pressure.set(Normal);
    assert_eq!(level(&world), Critical);
    world.clock.advance(Duration::from_secs(1));
    assert_eq!(level(&world), High);
    world.clock.advance(Duration::from_secs(1));
    assert_eq!(level(&world), Normal);
    world.store.set_pressure(Some(High));
    assert_eq!(world.store.stats().pressure.level, High);
    world.pressure.set(Critical);
    assert_eq!(level(&world), High, "the user knows better");
    world.store.set_pressure(None);
    assert_eq!(world.store.stats().pressure.level, Critical);
    assert_eq!(world.store.stats().pressure.changes, 5);
}

/// The segments of a store, and nothing else of it.
fn segments(env: &Env) -> Vec<Vec<u8>> {
    let files = files(env).into_iter();
    files
        .filter(|(name, _)| name.kind == FileKind::Segment)
        .map(|(_, bytes)| bytes)
        .collect()
}

#[test]
fn what_is_written_does_not_depend_on_it() {
    let mut wanted = None;
    for schedule in 0..8u64 {
        let world = world(small());
        let mut random = Random(schedule);
        for number in 0..600u32 {
            if schedule > 0 && random.below(4) == 0 {
                let level = [Normal, High, Critical][random.below(3) as usize];
                world.pressure.set(level);
                world
                    .clock
                    .advance(Duration::from_millis(random.below(1500)));
            }
            let key = (number % 90).to_be_bytes();
            let value = vec![number as u8; (number % 700) as usize];
            world
                .store
                .write(one_put(&world.map, &key, &value), Buffered)
                .expect("writes");
        }
        flush(&world.store);
        let segments = segments(&world.env);
        assert!(segments.len() > 10);
        assert!(
            wanted.get_or_insert(segments.clone()) == &segments,
            "schedule {schedule}"
        );
    }
}

#[test]
fn a_refusal_under_pressure_changes_nothing() {
    let world = world(small());
    world.pressure.set(Critical);
    fill(&world);
    let before = (world.store.audit(), files(&world.env));
    let again = world
        .store
        .try_write(one_put(&world.map, b"k", &[7; 9000]), Buffered);
    let ErrorKind::Busy { needed, free, .. } = kind_of(again) else {
        panic!("busy");
    };
    assert!(needed > free);
    assert_eq!((world.store.audit(), files(&world.env)), before);
}
