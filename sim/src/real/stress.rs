//! Threads on one store in a real directory: they write, read, scan, seal, sync and reopen it under each
//! other, and keep a history.

use std::sync::RwLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use sealstone::{
    Batch, Durability, Error, ErrorKind, Keyspace, KeyspaceOptions, Result, Snapshot, Store,
};

use super::Scratch;
use super::history::{Event, Span, Tag, What};
use super::work;
use crate::choices::SmallRandom;

const GROUPS: usize = 12;
const KEYS: usize = 4;
/// The first thread reopens the store after so many of its steps.
const STEPS_PER_OPENING: u64 = 150;
/// Events after which a run ends, whatever its time: the check holds them all in memory.
const EVENTS_MAX: u64 = 2_000_000;

/// How a run goes.
#[derive(Clone, Copy, Debug)]
pub struct StressOptions {
    /// Threads.
    pub threads: u32,
    /// How long.
    pub time: Duration,
    /// Decides what each thread does next, not when.
    pub seed: u64,
}

/// What the threads share.
struct Shared {
    /// The opening in use, and how many there were.
    open: RwLock<(u64, Store, Keyspace)>,
    ticks: AtomicU64,
    end: Instant,
}

impl Shared {
    fn tick(&self) -> u64 {
        self.ticks.fetch_add(1, Ordering::SeqCst)
    }

    fn handles(&self) -> (u64, Store, Keyspace) {
        self.open.read().expect("no panic").clone()
    }

    /// Closes the store under everybody and opens it again. For one thread.
    fn reopen(&self) -> Result<()> {
        let (number, store, _) = self.handles();
        let store = store.reopen()?;
        let records = store.keyspace("records", KeyspaceOptions::mutable())?;
        *self.open.write().expect("no panic") = (number + 1, store, records);
        Ok(())
    }
}

/// Runs the threads and returns what they saw, in no order, and how often the store was opened.
///
/// # Errors
/// What no thread should have got.
pub fn run(options: &StressOptions) -> std::result::Result<(Vec<Event>, u64), String> {
    let scratch = Scratch::new().map_err(|error| error.to_string())?;
    let text = |error: Error| error.to_string();
    // Each thread may hold a snapshot in a generation of its own.
    let sizes = work::options(true)
        .descriptors_max(4)
        .write_region_bytes(4 << 20)
        .pinned_generations_max(options.threads);
    let store = Store::open(scratch.path(), sizes).map_err(text)?;
    let records = store
        .keyspace("records", KeyspaceOptions::mutable())
        .map_err(text)?;
    let shared = Shared {
        open: RwLock::new((1, store, records)),
        ticks: AtomicU64::new(1),
        end: Instant::now() + options.time,
    };
    let histories = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..options.threads)
            .map(|thread| {
                let shared = &shared;
                let random = SmallRandom::new(options.seed ^ u64::from(thread) << 40);
                scope.spawn(move || {
                    let mut worker = Worker {
                        shared,
                        thread,
                        counter: 0,
                        steps: 0,
                        random,
                        events: Vec::new(),
                        kept: None,
                    };
                    worker.work().map(|()| worker.events)
                })
            })
            .collect();
        let joined = threads.into_iter().map(|thread| thread.join());
        joined.collect::<Vec<_>>()
    });
    let mut events = Vec::new();
    for history in histories {
        let history = history.map_err(|_| "a thread panicked".to_string())?;
        events.extend(history.map_err(text)?);
    }
    let (opens, store, _) = shared.handles();
    let verified = store.verify(&mut |_| ()).map_err(text)?;
    store.close().map_err(text)?;
    match verified.is_clean() {
        true => Ok((events, opens)),
        false => Err(format!("{:?}", verified.damaged)),
    }
}

/// A snapshot that is held, and what it showed.
struct Kept {
    snapshot: Snapshot,
    records: Keyspace,
    groups: Vec<Vec<Option<Tag>>>,
}

struct Worker<'a> {
    shared: &'a Shared,
    thread: u32,
    counter: u32,
    steps: u64,
    random: SmallRandom,
    events: Vec<Event>,
    kept: Option<Kept>,
}

impl Worker<'_> {
    fn work(&mut self) -> Result<()> {
        while Instant::now() < self.shared.end
            && self.shared.ticks.load(Ordering::Relaxed) < 2 * EVENTS_MAX
        {
            match self.step() {
                // Another thread reopens the store: the new handles come.
                Err(error) if *error.kind() == ErrorKind::Closed => {
                    self.kept = None;
                    std::thread::sleep(Duration::from_millis(1));
                }
                // A held snapshot is in the way, maybe another thread's.
                Err(error) if matches!(error.kind(), ErrorKind::Busy { .. }) => self.kept = None,
                result => result?,
            }
        }
        Ok(())
    }

    fn step(&mut self) -> Result<()> {
        self.steps += 1;
        if self.thread == 0 && self.steps.is_multiple_of(STEPS_PER_OPENING) {
            return self.shared.reopen();
        }
        let (_, store, records) = self.shared.handles();
        match self.random.below(1000) {
            0..400 => self.write(&store, &records),
            400..800 => self.get(&records),
            800..880 => self.snapshot(&store, &records),
            880..930 => self.again(),
            930..980 => {
                let began = self.shared.tick();
                let durable = store.durable_sequence();
                let visible = store.sequence();
                self.note(began, What::Progress { durable, visible });
                Ok(())
            }
            980..997 => store.sync(),
            _ => store.seal(),
        }
    }

    fn note(&mut self, began: u64, what: What) {
        let ended = self.shared.tick();
        let span = Span { began, ended };
        self.events.push(Event { span, what });
    }

    fn write(&mut self, store: &Store, records: &Keyspace) -> Result<()> {
        self.counter += 1;
        let tag = (self.thread, self.counter);
        let group = self.random.below(GROUPS as u64) as usize;
        let synced = self.random.chance(1, 10);
        let durability = match synced {
            true => Durability::Synced,
            false => Durability::Buffered,
        };
        let mut batch = Batch::new();
        for key in 0..KEYS {
            batch.put(records, name(group, key), value_of(tag));
        }
        let began = self.shared.tick();
        let result = store.write(batch, durability);
        let refused = matches!(&result, Err(error) if *error.kind() != ErrorKind::Closed);
        if !refused {
            let sequence = result.as_ref().ok().copied();
            let what = What::Write {
                tag,
                group,
                sequence,
                synced,
            };
            self.note(began, what);
        }
        result.map(|_| ())
    }

    fn get(&mut self, records: &Keyspace) -> Result<()> {
        let group = self.random.below(GROUPS as u64) as usize;
        let key = self.random.below(KEYS as u64) as usize;
        let began = self.shared.tick();
        let value = records.get(name(group, key))?;
        let tag = value.map(|value| tag_of(&value));
        self.note(began, What::Get { group, tag });
        Ok(())
    }

    fn snapshot(&mut self, store: &Store, records: &Keyspace) -> Result<()> {
        let began = self.shared.tick();
        let snapshot = store.snapshot()?;
        let taken = self.shared.tick();
        let groups = read_all(&snapshot, records, self.random.chance(1, 2))?;
        let what = What::Snapshot {
            bound: snapshot.sequence(),
            taken,
            groups: groups.clone(),
        };
        self.note(began, what);
        if self.kept.is_none() || self.random.chance(1, 3) {
            self.kept = Some(Kept {
                snapshot,
                records: records.clone(),
                groups,
            });
        }
        Ok(())
    }

    fn again(&mut self) -> Result<()> {
        let by_scan = self.random.chance(1, 2);
        let Some(kept) = &self.kept else {
            return Ok(());
        };
        let began = self.shared.tick();
        let groups = read_all(&kept.snapshot, &kept.records, by_scan)?;
        let same = groups == kept.groups;
        self.note(began, What::Again { same });
        Ok(())
    }
}

fn name(group: usize, key: usize) -> Vec<u8> {
    // Keys of a group lie far from each other.
    format!("{key}-{group:02}").into_bytes()
}

/// A value that names its batch in every byte, with a length of its own.
fn value_of(tag: Tag) -> Vec<u8> {
    let mut value = Vec::from(tag.0.to_le_bytes());
    value.extend(tag.1.to_le_bytes());
    let length = 8 + (tag.1.wrapping_mul(2_654_435_761) >> 20) as usize % 600;
    value.resize(length, (tag.0 * 31 + tag.1) as u8);
    value
}

/// The batch that a value names.
fn tag_of(value: &[u8]) -> Tag {
    let word = |at: usize| {
        let bytes = value
            .get(at..at + 4)
            .and_then(|bytes| bytes.try_into().ok());
        bytes.map(u32::from_le_bytes).expect("a value of ours")
    };
    let tag = (word(0), word(4));
    assert!(value == value_of(tag), "the value of {tag:?} is torn");
    tag
}

fn read_all(
    snapshot: &Snapshot,
    records: &Keyspace,
    by_scan: bool,
) -> Result<Vec<Vec<Option<Tag>>>> {
    let mut groups = vec![vec![None; KEYS]; GROUPS];
    if by_scan {
        for item in snapshot.iter(records)? {
            let (key, value) = item?;
            let place = std::str::from_utf8(&key)
                .ok()
                .and_then(|key| key.split_once('-'));
            let (key, group) = place.expect("a key of ours");
            let number = |text: &str| text.parse::<usize>().expect("a number");
            groups[number(group)][number(key)] = Some(tag_of(&value));
        }
        return Ok(groups);
    }
    for (group, tags) in groups.iter_mut().enumerate() {
        for (key, tag) in tags.iter_mut().enumerate() {
            let value = snapshot.get(records, name(group, key))?;
            *tag = value.map(|value| tag_of(&value));
        }
    }
    Ok(groups)
}
