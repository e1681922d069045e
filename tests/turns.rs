//! Writers that wait for memory: first come, first served, with nothing changed by a refusal.
//!
//! Waiting is made to happen on one thread: the clock runs what the test says each time that a write waits.

mod support;

use std::fmt;
use std::time::Duration;

use sealstone::env::manual::ManualClock;
use sealstone::env::{Clock, Driver, DriverHandle, Env, IoResult, Work};
use sealstone::sync::{Arc, Mutex, Signal};
use sealstone::{Background, Batch, Durability, ErrorKind, Keyspace, Options, Snapshot, Store};
use support::{assert_books, files, get, kind_of, manual, mutable, one_put, open, put, write_once};

use Durability::Buffered;

type Waiting = Box<dyn FnMut(u32) + Send>;

/// Time passes only where somebody waits, and something else may happen meanwhile.
#[derive(Default)]
struct Stage {
    clock: ManualClock,
    script: Mutex<Option<Waiting>>,
    waits: Mutex<u32>,
}

impl fmt::Debug for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Stage")
    }
}

impl Stage {
    fn set(&self, script: impl FnMut(u32) + Send + 'static) {
        *self.script.lock() = Some(Box::new(script));
        *self.waits.lock() = 0;
    }
}

impl Clock for Stage {
    fn monotonic(&self) -> Duration {
        self.clock.monotonic()
    }
    fn wall_ms(&self) -> u64 {
        self.clock.wall_ms()
    }
    fn wait(&self, signal: &Signal, seen: u64, until: Option<Duration>) {
        let script = self.script.lock().take();
        if let Some(mut script) = script {
            let count = {
                let mut waits = self.waits.lock();
                *waits += 1;
                *waits
            };
            script(count);
            self.script.lock().get_or_insert(script);
        }
        self.clock.wait(signal, seen, until);
    }
}

/// Threads that never come: every job is left to who waits.
#[derive(Debug)]
struct Nobody;

impl Driver for Nobody {
    fn start(&self, _: usize, _: Arc<dyn Work>) -> IoResult<Box<dyn DriverHandle>> {
        Ok(Box::new(Self))
    }
}

impl DriverHandle for Nobody {
    fn join(&self) {}
}

fn small() -> Options {
    manual()
        .background(Background::Threads(1))
        .write_region_bytes(256 << 10)
        .chunk_bytes(1024)
        .block_records(16)
        .seal_records(32)
        .seal_bytes(16 << 10)
        .batch_bytes_max(16 << 10)
        .output_buffer_bytes(1024)
        .pinned_generations_max(1)
        .queue_slots(64)
        .write_deadline(Duration::from_secs(60))
}

struct World {
    env: Env,
    stage: Arc<Stage>,
    store: Store,
    map: Keyspace,
}

fn world(options: Options) -> World {
    let stage = Arc::new(Stage::default());
    let env = Env {
        clock: stage.clone(),
        driver: Some(Arc::new(Nobody)),
        ..Env::in_memory()
    };
    let store = open(&env, options);
    let map = mutable(&store, "map");
    World {
        env,
        stage,
        store,
        map,
    }
}

/// Snapshots that each keep a generation, until a write is refused for it.
fn pin_all(world: &World) -> Vec<Snapshot> {
    let mut snapshots = Vec::new();
    for round in 0..100u8 {
        let written = world
            .store
            .try_write(one_put(&world.map, b"k", &[round]), Buffered);
        match written {
            Ok(_) => {}
            Err(error) => {
                let ErrorKind::Busy { pinned_by, .. } = error.kind() else {
                    panic!("{error}");
                };
                assert!(pinned_by.is_some(), "{error}");
                return snapshots;
            }
        }
        snapshots.push(world.store.snapshot_named("the audit").expect("a snapshot"));
        put(&world.map, "k", "later");
        world.store.seal().expect("seals");
        world.store.drain().expect("drains");
    }
    panic!("nothing keeps writers off");
}

#[test]
fn as_many_generations_as_the_option_says_are_kept_for_readers() {
    for most in [0, 1, 3] {
        let world = world(
            small()
                .pinned_generations_max(most)
                .write_region_bytes(4 << 20),
        );
        let snapshots = pin_all(&world);
        // One more lies where the generation that was sealed last always fits, and the last snapshot's
        // was sealed when the others were all.
        assert_eq!(world.store.audit().lingering.len() as u32, most + 2);
        let audit = world.store.audit();
        assert!(
            audit.memory.free_bytes > 2 << 20,
            "memory is not the reason"
        );
        let bytes = files(&world.env);
        world.stage.clock.advance(Duration::from_secs(90));
        let error = world
            .store
            .try_write(one_put(&world.map, b"k", b"v"), Buffered);
        let error = error.expect_err("refused");
        let ErrorKind::Busy {
            needed,
            free,
            pinned_by: Some(pin),
        } = error.kind()
        else {
            panic!("{error}");
        };
        assert!(needed > free, "{error}");
        assert_eq!((pin.creator.as_str(), pin.sequence), ("the audit", 1));
        assert_eq!(pin.age, Duration::from_secs(90));
        assert!(error.to_string().contains("the audit"), "{error}");
        assert_eq!((world.store.audit(), files(&world.env)), (audit, bytes));
        // The oldest one gone is room for one generation.
        drop(snapshots.into_iter().next());
        world.store.drain().expect("retires");
        world
            .store
            .try_write(one_put(&world.map, b"k", b"v"), Buffered)
            .expect("there is room");
    }
}

#[test]
fn a_write_that_waits_is_served_before_who_comes_later() {
    let world = world(small());
    let mut snapshots = pin_all(&world);
    let (store, map) = (world.store.clone(), world.map.clone());
    let refused = Arc::new(Mutex::new(0));
    let (counted, env) = (refused.clone(), world.env.clone());
    world.stage.set(move |wait| {
        let (audit, bytes) = (store.audit(), files(&env));
        for value in [&b"small"[..], &[7; 3000]] {
            let small = store.try_write(one_put(&map, b"small", value), Buffered);
            assert!(
                matches!(kind_of(small), ErrorKind::Busy { .. }),
                "it waits its turn"
            );
            *counted.lock() += 1;
        }
        assert_eq!((store.audit(), files(&env)), (audit, bytes), "no effect");
        assert_eq!(store.stats().stalled.waiting, 1);
        if wait == 3 {
            snapshots.clear();
        }
    });
    let large = vec![9; 15 << 10];
    world
        .store
        .write(one_put(&world.map, b"large", &large), Buffered)
        .expect("it gets in");
    assert!(*refused.lock() >= 4);
    assert_eq!(get(&world.map, "small"), None);
    assert_eq!(get(&world.map, "large"), Some(large));
    put(&world.map, "small", "now");
    let stalled = world.store.stats().stalled;
    assert_eq!((stalled.writes, stalled.waiting), (1, 0));
    assert!(
        stalled.pins >= 2 && stalled.time > Duration::ZERO,
        "{stalled:?}"
    );
    assert_books(&world.store);
}

/// What comes free is the first one's, also while it is not enough: whoever came later and took it would
/// keep a large batch out for ever.
#[test]
fn small_writes_can_not_starve_a_large_one() {
    let world = world(small());
    let mut snapshots = pin_all(&world);
    let (store, map) = (world.store.clone(), world.map.clone());
    world.stage.set(move |wait| {
        if wait == 3 {
            snapshots.remove(0);
        }
        for number in 0..50u32 {
            let key = number.to_be_bytes();
            let written = store.try_write(one_put(&map, &key, b"v"), Buffered);
            assert!(
                matches!(kind_of(written), ErrorKind::Busy { .. }),
                "nobody passes"
            );
        }
    });
    let large = vec![9; 15 << 10];
    world
        .store
        .write(one_put(&world.map, b"large", &large), Buffered)
        .expect("it gets in");
    assert_eq!(world.store.stats().commits, world.store.sequence());
    assert_eq!(get(&world.map, "large"), Some(large));
    world
        .store
        .try_write(one_put(&world.map, b"small", b"v"), Buffered)
        .expect("nobody waits any more");
}

#[test]
fn who_gives_up_leaves_the_queue() {
    let world = world(small().write_deadline(Duration::from_secs(5)));
    let snapshots = pin_all(&world);
    let before = files(&world.env);
    let start = world.stage.monotonic();
    let late = world.store.write(one_put(&world.map, b"k", b"v"), Buffered);
    assert!(matches!(kind_of(late), ErrorKind::Busy { .. }));
    assert_eq!(world.stage.monotonic() - start, Duration::from_secs(5));
    assert_eq!(files(&world.env), before);
    assert_eq!(world.store.stats().stalled.waiting, 0);
    drop(snapshots);
    world.store.drain().expect("retires");
    world
        .store
        .try_write(one_put(&world.map, b"k", b"v"), Buffered)
        .expect("nobody is in the way");
}

#[test]
fn each_stall_has_its_cause() {
    // A log: there are two, and a full one waits for its flush.
    let logs = world(small().queue_slots(1).write_region_bytes(4 << 20));
    for number in 0..400u32 {
        let key = number.to_be_bytes();
        logs.store
            .write(one_put(&logs.map, &key, &[7; 900]), Buffered)
            .expect("helps itself");
    }
    let stalled = logs.store.stats().stalled;
    assert!(stalled.log_slot > 10 && stalled.memory == 0, "{stalled:?}");
    // Memory: there are logs enough.
    let memory = world(small());
    for number in 0..400u32 {
        let key = number.to_be_bytes();
        memory
            .store
            .write(one_put(&memory.map, &key, &[7; 900]), Buffered)
            .expect("helps itself");
    }
    let stats = memory.store.stats();
    let stalled = stats.stalled;
    assert!(stalled.memory > 10 && stalled.log_slot == 0, "{stalled:?}");
    let sum = stalled.memory + stalled.pins + stalled.log_slot + stalled.spare_log + stalled.turn;
    assert_eq!(sum, stats.stalls);
}

#[test]
fn what_never_fits_is_not_waited_for() {
    let world = world(small());
    let start = world.stage.monotonic();
    let huge = vec![0; 17 << 10];
    let kind = kind_of(
        world
            .store
            .write(one_put(&world.map, b"k", &huge), Buffered),
    );
    let ErrorKind::TooLarge { needed, limit } = kind else {
        panic!("{kind:?}");
    };
    assert!(needed > limit && limit == 16 << 10);
    assert_eq!(world.stage.monotonic(), start);
    assert_eq!(world.store.stats().stalls, 0);
}

/// An iterator over write-once keys keeps no memory, however long it lives.
#[test]
fn an_iterator_of_an_hour_stalls_nobody() {
    let world = world(small().pinned_generations_max(0));
    let once = write_once(&world.store, "once");
    for number in 0..100u32 {
        put(&once, number.to_be_bytes(), [1; 100]);
    }
    let mut iterator = once.iter().expect("iterates");
    iterator.next().expect("one").expect("an item");
    for minute in 0..60u32 {
        world.stage.clock.advance(Duration::from_secs(60));
        for number in 0..100u32 {
            let mut batch = Batch::new();
            batch.put(
                &once,
                (1000 + minute * 100 + number).to_be_bytes(),
                [2; 100],
            );
            // Overwriting what it can't see keeps nothing either.
            batch.put(&world.map, b"counter", number.to_be_bytes());
            world
                .store
                .try_write(batch, Buffered)
                .expect("never refused");
            world.store.drain().expect("drains");
        }
        assert_eq!(world.store.audit().memory.pinned_bytes, 0);
    }
    let stats = world.store.stats();
    assert_eq!((stats.stalls, stats.busy), (0, 0));
    assert!(stats.flushed_segments > 100);
    let rest: Vec<_> = iterator.map(|item| item.expect("an item")).collect();
    assert_eq!(rest.len(), 99, "it sees what there was");
}
