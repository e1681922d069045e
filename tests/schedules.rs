//! A thousand schedules of memory pressure over one stream of commits: the segments are the same, no memory
//! is taken that would not have been, and writers do not wait much more.

mod support;

use std::time::Duration;

use sealstone::env::manual::ManualClock;
use sealstone::env::pressure::SetPressure;
use sealstone::env::{Env, FileKind, PressureLevel};
use sealstone::sync::Arc;
use sealstone::{Durability, ErrorKind, FilterPolicy, Job, Options, Store};
use support::{Random, files, flush, manual, mutable, one_put, open, refused};

const SCHEDULES: u64 = 1000;
const WRITES: u32 = 100;
/// Writes of a run that outruns the jobs.
const OUTRUN_WRITES: u32 = 1000;
/// The quantum in which a writer that waits runs a job itself.
const HELP: u32 = 1024;

fn options(write_region_bytes: u64, chunk_bytes: u32) -> Options {
    manual()
        .write_region_bytes(write_region_bytes)
        .chunk_bytes(chunk_bytes)
        .block_records(16)
        .seal_records(16)
        .seal_bytes(8 << 10)
        .batch_bytes_max(8 << 10)
        .output_buffer_bytes(1024)
        .manifest_roll_bytes(64 << 10)
        .queue_slots(16)
        .family_seed([3; 16])
}

/// The least region, with which nothing is elastic: a smaller one is refused with this number.
fn floor(chunk_bytes: u32) -> u64 {
    let error = refused(Store::open_with(
        Env::in_memory(),
        options(4096, chunk_bytes),
    ));
    let ErrorKind::TooLarge { needed, .. } = error.kind() else {
        panic!("{error}");
    };
    *needed
}

/// What a run came to.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Run {
    segments: Vec<Vec<u8>>,
    /// Bytes of buffers that were made anew.
    fresh_bytes: u64,
    /// Rounds in which a write waited or helped.
    stalls: u64,
    /// Writes, and jobs that were run, by writes that waited or otherwise.
    steps: u64,
    levels: u64,
}

/// A machine whose pressure and clock a test sets.
fn machine() -> (Env, Arc<SetPressure>, Arc<ManualClock>) {
    let pressure = Arc::new(SetPressure::new());
    let clock = Arc::new(ManualClock::new());
    let env = Env {
        pressure: pressure.clone(),
        clock: clock.clone(),
        ..Env::in_memory()
    };
    (env, pressure, clock)
}

/// Writes the same commits, with jobs and, if wanted, events of pressure between any two steps.
fn run(options: Options, jobs: u64, events: Option<u64>) -> Run {
    let (env, pressure, clock) = machine();
    let store = open(&env, options);
    let map = mutable(&store, "map");
    let mut turns = Random(jobs);
    let mut weather = events.map(Random);
    let mut steps = 0;
    for number in 0..WRITES {
        if let Some(random) = &mut weather {
            event(random, &store, &pressure, &clock);
        }
        let key = (number % 50).to_be_bytes();
        let value = vec![number as u8; (number as usize * 37) % 1500];
        let written = store.write(one_put(&map, &key, &value), Durability::Buffered);
        written.expect("writes");
        for _ in 0..turns.below(4) {
            if let Some(random) = &mut weather {
                event(random, &store, &pressure, &clock);
            }
            // Filters follow the level by steps of their own, which are in nobody's place.
            let _ = store.run(Job::LoadFilter, 4).expect("runs");
            let jobs = store.runnable();
            if let Some(job) = jobs.iter().find(|job| **job != Job::LoadFilter) {
                let quantum = 1 + turns.below(16) as u32;
                store.run(*job, quantum).expect("runs");
                steps += 1;
            }
        }
    }
    store.set_pressure(Some(PressureLevel::Normal));
    flush(&store);
    let stats = store.stats();
    let buffers = &stats.memory_counters.buffers;
    let mut segments: Vec<_> = files(&env)
        .into_iter()
        .filter(|(name, _)| name.kind == FileKind::Segment)
        .map(|(_, bytes)| bytes)
        .collect();
    segments.sort();
    Run {
        segments,
        fresh_bytes: buffers
            .iter()
            .map(|one| {
                let each = one.counts.granted_bytes / (one.counts.hits + one.counts.misses);
                one.counts.misses * each
            })
            .sum(),
        stalls: stats.stalls,
        steps: steps + u64::from(WRITES) + stats.stalls,
        levels: stats.pressure.changes,
    }
}

/// A change of level, one that is taken back before anybody looked, time that passes, a purge of everything
/// that is kept, or a user who takes the elastic part and gives it back.
fn event(random: &mut Random, store: &Store, pressure: &SetPressure, clock: &ManualClock) {
    use PressureLevel::{Critical, High, Normal};
    match random.below(12) {
        0 => pressure.set(Critical),
        1 => pressure.set(High),
        2 => pressure.set(Normal),
        3 => {
            pressure.set(Critical);
            pressure.set(Normal);
        }
        4 | 5 => clock.advance(Duration::from_millis(random.below(2500))),
        6 => store.set_pressure(Some([Normal, High, Critical][random.below(3) as usize])),
        7 => store.set_pressure(None),
        8 => {
            store.set_pressure(Some(Critical));
            let _ = store.run(Job::Retire, 1);
            store.set_pressure(None);
        }
        _ => {}
    }
}

#[test]
fn a_thousand_schedules_write_the_same_segments() {
    let floors = [1024, 4096].map(|chunk_bytes| (chunk_bytes, floor(chunk_bytes)));
    let wanted = run(options(floors[0].1, floors[0].0), 0, None).segments;
    assert!(wanted.len() > 5, "{}", wanted.len());
    let mut changes = 0;
    for schedule in 0..SCHEDULES {
        let (chunk_bytes, floor) = floors[(schedule % 2) as usize];
        // At the floor, with half as much more, and with twice as much.
        let region_bytes = floor + floor * (schedule % 3) / 2;
        let run = run(options(region_bytes, chunk_bytes), schedule, Some(schedule));
        assert!(run.segments == wanted, "schedule {schedule}");
        changes += run.levels;
    }
    println!(
        "{SCHEDULES} schedules, {changes} changes of level, {} segments each",
        wanted.len()
    );
    assert!(changes > 10 * SCHEDULES, "{changes}");
}

#[test]
fn at_the_floor_pressure_costs_no_memory_and_no_time() {
    let floor = floor(1024);
    let mut differences = 0;
    for jobs in 0..10 {
        let calm = run(options(floor, 1024), jobs, None);
        for events in 0..SCHEDULES / 20 {
            let run = run(options(floor, 1024), jobs, Some(events));
            assert_eq!(run.fresh_bytes, calm.fresh_bytes, "max - min = 0");
            assert_eq!(run.stalls, calm.stalls);
            differences += u64::from(run.levels > 0);
        }
    }
    println!("{differences} schedules with changes of level at a floor of {floor} bytes");
    assert!(differences > SCHEDULES * 9 / 20);
}

/// At twice the floor nobody waits while nothing presses. With half of it gone writers run jobs themselves
/// that would have been run anyway: what is compared is all that was done until everything was written.
#[test]
fn with_twice_the_floor_all_takes_hardly_more_steps() {
    let region_bytes = 2 * floor(1024);
    let (mut stalls, mut worst, mut worst_of) = ((0, 0), 0.0f64, (0, 0));
    for schedule in 0..SCHEDULES / 4 {
        let calm = run(options(region_bytes, 1024), schedule, None);
        let pressed = run(options(region_bytes, 1024), schedule, Some(schedule));
        stalls = (stalls.0 + calm.stalls, stalls.1 + pressed.stalls);
        let ratio = pressed.steps as f64 / calm.steps as f64;
        if ratio > worst {
            (worst, worst_of) = (ratio, (calm.steps, pressed.steps));
        }
    }
    println!(
        "{} schedules: rounds in which writers waited or helped {stalls:?} without and with events; the worst \
         took {worst:.3} times the steps {worst_of:?}",
        SCHEDULES / 4
    );
    assert!(worst <= 1.5, "{worst}");
}

/// Writes by a caller who outruns the jobs: one runs now and then, too few for what is written. Says in how many
/// rounds he waited or helped, or, of `try_write`, how often he was refused and ran a job himself.
fn outrun(options: Options, waits: bool, jobs: u64, events: Option<u64>) -> u64 {
    let (env, pressure, clock) = machine();
    let store = open(&env, options);
    let map = mutable(&store, "map");
    let mut turns = Random(jobs);
    let mut weather = events.map(Random);
    let mut busy = 0;
    for number in 0..OUTRUN_WRITES {
        if let Some(random) = &mut weather {
            event(random, &store, &pressure, &clock);
        }
        let key = (number % 50).to_be_bytes();
        let value = vec![number as u8; (number as usize * 37) % 1500];
        let batch = || one_put(&map, &key, &value);
        if waits {
            let written = store.write(batch(), Durability::Buffered);
            written.expect("writes");
        } else {
            while let Err(refusal) = store.try_write(batch(), Durability::Buffered) {
                let is_busy = matches!(refusal.kind(), ErrorKind::Busy { .. });
                assert!(is_busy, "{refusal}");
                busy += 1;
                one_job(&store, HELP);
            }
        }
        if turns.below(8) == 0 {
            one_job(&store, 1 + turns.below(16) as u32);
        }
    }
    busy + store.stats().stalls
}

fn one_job(store: &Store, quantum: u32) {
    if let Some(job) = store.runnable().first() {
        store.run(*job, quantum).expect("runs");
    }
}

/// Who outruns the jobs waits with all memory, too: what is written then waits for what is flushed. With events
/// that take half of it he waits hardly more often, in the worst of a thousand schedules. The runs are long beside
/// the generations that the memory holds: with more of it, more is left to be flushed at the end.
#[test]
fn with_twice_the_floor_who_outruns_the_jobs_hardly_waits_more() {
    let region_bytes = 2 * floor(1024);
    // No filters: those follow the level by steps of their own.
    let options = || options(region_bytes, 1024).filter_policy(FilterPolicy::None);
    for waits in [true, false] {
        let calm: Vec<_> = (0..10)
            .map(|jobs| outrun(options(), waits, jobs, None))
            .collect();
        assert!(calm.iter().all(|rounds| *rounds > 500), "{calm:?}");
        let (mut worst, mut worst_of) = (0.0f64, (0, 0));
        for schedule in 0..SCHEDULES / 2 {
            let jobs = schedule % 10;
            let calm = calm[jobs as usize];
            let pressed = outrun(options(), waits, jobs, Some(schedule));
            let ratio = pressed as f64 / calm as f64;
            if ratio > worst {
                (worst, worst_of) = (ratio, (calm, pressed));
            }
        }
        let what = if waits { "rounds waited" } else { "times busy" };
        println!(
            "{} schedules: {what} without and with events: {worst_of:?} at worst, {worst:.3} times",
            SCHEDULES / 2
        );
        assert!(worst <= 1.5, "{worst}");
    }
}
