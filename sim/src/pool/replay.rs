//! A trace against a policy: who got what, when, and what it cost.
//!
//! A build takes, unit after unit, one slice after another until the unit's records are placed; a larger
//! slice than asked for holds more of them. A slice holds records of one unit only.
//!
//! Time is the trace's. A policy with pressure samples used memory (foreign heap, kept and held slices)
//! every 250 ms and trims for pressure at most every 2 s; a flush trims at most every 2 s.

use std::collections::BTreeMap;

use super::gopool::{CLASSES, ENTRY_BYTES, GoPool, Held};
use super::policy::{Kind, Policy};
use super::record::MERGE_RECORDS;
use super::rules::{Counters, Reason};
use super::sealstone;
use super::trace::{Event, Level, Trace, TrimKind};
use super::workload::Database;

/// Entries of a build slice, whatever the unit has.
pub const BUILD_ENTRIES: u64 = 8_192;
const SAMPLE_MS: u64 = 250;
const TRIM_MS: u64 = 2_000;
const HIGH_BYTES: u64 = 4 << 30;
const CRITICAL_BYTES: u64 = 8 << 30;
const STORES: usize = Database::ALL.len();

/// Who asks for slices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    /// A flush, for a unit's records.
    Build,
    /// A flush, for the merged records.
    Merge,
    /// A single call.
    Direct,
}

impl Caller {
    /// All.
    pub const ALL: [Self; 3] = [Self::Build, Self::Merge, Self::Direct];

    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Build => "build",
            Self::Merge => "merge",
            Self::Direct => "direct",
        }
    }
}

/// What a replay found.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// The pools' counters, added up.
    pub counters: Counters,
    /// Bytes that records needed.
    pub needed_bytes: u64,
    /// Fresh bytes by caller.
    pub fresh_by_caller: [u64; Caller::ALL.len()],
    /// Copied bytes: into build slices, into the merge slice, into the backend's list; for sealstone
    /// into chunks and into the output buffer.
    pub copied_bytes: [(&'static str, u64); 3],
    /// The most slices (sealstone: chunks) held at once.
    pub held_max: u64,
    /// The most bytes held of each database.
    pub held_bytes_max: [u64; STORES],
    /// The longest that a slice of each was held, in steps.
    pub hold_steps_max: [u64; STORES],
    /// The most bytes kept and held together.
    pub memory_bytes_max: u64,
    /// Time and level, at each change.
    pub levels: Vec<(u64, Level)>,
    /// When the trace ends.
    pub end_ms: u64,
    /// Calls of the pool, trims and collections.
    pub steps: u64,
}

impl Outcome {
    /// How long each level lasted.
    pub fn level_ms(&self) -> [u64; 3] {
        let mut lasted = [0; 3];
        let mut last = (0, Level::Normal);
        for &(at_ms, level) in self.levels.iter().chain([&(self.end_ms, Level::Normal)]) {
            lasted[last.1 as usize] += at_ms - last.0;
            last = (at_ms, level);
        }
        lasted
    }

    /// The limit that most misses with a limit are put down to, and how many of all misses.
    pub fn binding(&self) -> (&'static str, u64) {
        let misses = &self.counters.misses;
        let mut limits: BTreeMap<&str, u64> = BTreeMap::new();
        for reason in Reason::ALL {
            if reason != Reason::Cold {
                *limits.entry(reason.limit()).or_default() += misses[reason as usize];
            }
        }
        let most = limits.into_iter().max_by_key(|(_, count)| *count);
        most.filter(|(_, count)| *count > 0).unwrap_or(("none", 0))
    }

    /// Granted over needed bytes.
    pub fn granted_per_used(&self) -> f64 {
        self.counters.granted_bytes as f64 / self.needed_bytes.max(1) as f64
    }
}

struct Flight {
    database: Database,
    since: u64,
    units: Vec<u32>,
    slices: Vec<Held>,
}

struct Replay<'a> {
    policy: &'a Policy,
    pools: Vec<GoPool>,
    flights: BTreeMap<u32, Flight>,
    singles: BTreeMap<u32, (Database, u64, Held)>,
    held: u64,
    held_bytes: [u64; STORES],
    kept_bytes_max: u64,
    foreign_bytes: u64,
    sampled_ms: u64,
    pressure_trim_ms: Option<u64>,
    flush_trim_ms: Option<u64>,
    level: Level,
    /// For the first pass of an oracle: slices held, after each operation of each class.
    operations: Option<Vec<Vec<u32>>>,
    outcome: Outcome,
}

/// Replays a trace; `foreign_bytes` is the heap of everybody else at its begin.
pub fn replay(trace: &Trace, policy: &Policy, foreign_bytes: u64) -> Outcome {
    let pools = match policy.kind {
        Kind::Sealstone => return sealstone::replay(trace, &sealstone::Sizes::default()),
        Kind::Shared => vec![GoPool::new(policy.rules)],
        Kind::PerStore => vec![GoPool::new(policy.rules); STORES],
        Kind::Oracle => {
            let mut first = Replay::new(policy, vec![GoPool::new(policy.rules)], foreign_bytes);
            first.operations = Some(vec![Vec::new(); CLASSES]);
            first.run(trace);
            let mut future = first.operations.unwrap_or_default();
            for held in &mut future {
                let mut most = 0;
                for held in held.iter_mut().rev() {
                    most = most.max(*held);
                    *held = most;
                }
            }
            vec![GoPool::oracle(policy.rules, future)]
        }
    };
    let mut replay = Replay::new(policy, pools, foreign_bytes);
    replay.run(trace);
    replay.finish()
}

impl<'a> Replay<'a> {
    fn new(policy: &'a Policy, pools: Vec<GoPool>, foreign_bytes: u64) -> Self {
        Self {
            policy,
            pools,
            flights: BTreeMap::new(),
            singles: BTreeMap::new(),
            held: 0,
            held_bytes: [0; STORES],
            kept_bytes_max: 0,
            foreign_bytes,
            sampled_ms: 0,
            pressure_trim_ms: None,
            flush_trim_ms: None,
            level: Level::Normal,
            operations: None,
            outcome: Outcome {
                copied_bytes: [("build", 0), ("merge", 0), ("backend", 0)],
                ..Outcome::default()
            },
        }
    }

    fn run(&mut self, trace: &Trace) {
        for (at_ms, event) in &trace.events {
            self.sample(*at_ms);
            self.step(*at_ms, event);
            self.outcome.end_ms = *at_ms;
        }
    }

    fn step(&mut self, at_ms: u64, event: &Event) {
        match event {
            Event::Begin {
                flush,
                database,
                units,
            } => {
                let flight = Flight {
                    database: *database,
                    since: self.outcome.steps,
                    units: units.clone(),
                    slices: Vec::new(),
                };
                self.flights.insert(*flush, flight);
            }
            Event::Build { flush } => self.build(*flush),
            Event::Merge { flush, records } => self.merge(*flush, *records),
            Event::End { flush, records, .. } => self.end(at_ms, *flush, *records),
            Event::Get {
                id,
                count,
                database,
                want,
                used,
            } => {
                for id in *id..*id + *count {
                    let held = self.get(*database, Caller::Direct, u64::from(*want));
                    self.outcome.needed_bytes += u64::from(*used) * ENTRY_BYTES;
                    let since = self.outcome.steps;
                    self.singles.insert(id, (*database, since, held));
                }
            }
            Event::Put { id, count } => {
                for id in *id..*id + *count {
                    if let Some((database, since, held)) = self.singles.remove(&id) {
                        self.put(database, since, held);
                    }
                }
            }
            Event::Trim { kind, database } => self.trim(*kind, *database),
            Event::Gc => {
                self.outcome.steps += 1;
                self.pools.iter_mut().for_each(GoPool::collect);
            }
            Event::Level(level) => {
                let rises = *level > self.level;
                self.set_level(at_ms, *level);
                if rises {
                    self.trim(TrimKind::Pressure, Database::Bench);
                }
            }
            Event::Foreign(bytes) => self.foreign_bytes = *bytes,
        }
    }

    fn build(&mut self, flush: u32) {
        let Some(mut flight) = self.flights.remove(&flush) else {
            return;
        };
        for &unit in &flight.units {
            let bytes = u64::from(unit) * ENTRY_BYTES;
            self.outcome.needed_bytes += bytes;
            if self.policy.streaming {
                continue;
            }
            self.outcome.copied_bytes[0].1 += bytes;
            let mut left = u64::from(unit);
            while left > 0 {
                let want = if self.policy.exact {
                    left.min(BUILD_ENTRIES)
                } else {
                    BUILD_ENTRIES
                };
                let held = self.get(flight.database, Caller::Build, want);
                left = left.saturating_sub(held.entries);
                flight.slices.push(held);
            }
        }
        self.flights.insert(flush, flight);
    }

    fn merge(&mut self, flush: u32, records: u32) {
        let Some(mut flight) = self.flights.remove(&flush) else {
            return;
        };
        let want = u64::from(records.min(MERGE_RECORDS));
        let held = self.get(flight.database, Caller::Merge, want);
        flight.slices.push(held);
        self.flights.insert(flush, flight);
    }

    fn end(&mut self, at_ms: u64, flush: u32, records: u64) {
        let Some(flight) = self.flights.remove(&flush) else {
            return;
        };
        // Headers go into the merge slice, and from there into the backend's own list.
        self.outcome.copied_bytes[1].1 += records * ENTRY_BYTES;
        self.outcome.copied_bytes[2].1 += records * ENTRY_BYTES;
        for held in flight.slices {
            self.put(flight.database, flight.since, held);
        }
        let due = self
            .flush_trim_ms
            .is_none_or(|last| at_ms >= last + TRIM_MS);
        if self.policy.rules.flush_trim && due && self.flights.is_empty() {
            self.flush_trim_ms = Some(at_ms);
            self.trim(TrimKind::Flush, flight.database);
        }
    }

    fn pool(&mut self, database: Database) -> &mut GoPool {
        let number = match self.policy.kind {
            Kind::PerStore => database as usize,
            _ => 0,
        };
        &mut self.pools[number]
    }

    fn get(&mut self, database: Database, caller: Caller, want: u64) -> Held {
        let held = self.pool(database).get(database, want);
        if held.fresh {
            self.outcome.fresh_by_caller[caller as usize] += held.bytes();
        }
        self.held += 1;
        self.outcome.held_max = self.outcome.held_max.max(self.held);
        let bytes = &mut self.held_bytes[database as usize];
        *bytes += held.bytes();
        let most = &mut self.outcome.held_bytes_max[database as usize];
        *most = (*most).max(*bytes);
        self.count_step(database, held);
        held
    }

    fn put(&mut self, database: Database, since: u64, held: Held) {
        self.held -= 1;
        self.held_bytes[database as usize] -= held.bytes();
        let longest = &mut self.outcome.hold_steps_max[database as usize];
        *longest = (*longest).max(self.outcome.steps - since);
        self.pool(database).put(database, held);
        self.count_step(database, held);
    }

    fn count_step(&mut self, database: Database, held: Held) {
        self.outcome.steps += 1;
        let kept_bytes = self.kept_bytes();
        self.kept_bytes_max = self.kept_bytes_max.max(kept_bytes);
        let memory_bytes = kept_bytes + self.held_bytes.iter().sum::<u64>();
        self.outcome.memory_bytes_max = self.outcome.memory_bytes_max.max(memory_bytes);
        if let Some(class) = super::gopool::class_of(held.entries) {
            let live = self.pool(database).live(class);
            if let Some(operations) = &mut self.operations {
                operations[class].push(live);
            }
        }
    }

    fn kept_bytes(&self) -> u64 {
        self.pools.iter().map(GoPool::retained_bytes).sum()
    }

    fn trim(&mut self, kind: TrimKind, database: Database) {
        self.outcome.steps += 1;
        if kind == TrimKind::Pressure {
            self.pools
                .iter_mut()
                .for_each(|pool| pool.trim(kind, database));
        } else {
            self.pool(database).trim(kind, database);
        }
    }

    fn set_level(&mut self, at_ms: u64, level: Level) {
        if level != self.level {
            self.level = level;
            self.outcome.levels.push((at_ms, level));
            self.pools.iter_mut().for_each(|pool| pool.set_level(level));
        }
    }

    /// Looks at memory as often as it would have been looked at until now.
    fn sample(&mut self, now_ms: u64) {
        if !self.policy.rules.pressure {
            return;
        }
        while self.sampled_ms + SAMPLE_MS <= now_ms {
            self.sampled_ms += SAMPLE_MS;
            let held_bytes: u64 = self.held_bytes.iter().sum();
            let used_bytes = self.foreign_bytes + self.kept_bytes() + held_bytes;
            let level = match used_bytes {
                CRITICAL_BYTES.. => Level::Critical,
                HIGH_BYTES.. => Level::High,
                _ => Level::Normal,
            };
            self.set_level(self.sampled_ms, level);
            let since = self.pressure_trim_ms;
            let due = since.is_none_or(|last| self.sampled_ms >= last + TRIM_MS);
            if level > Level::Normal && due {
                self.pressure_trim_ms = Some(self.sampled_ms);
                self.trim(TrimKind::Pressure, Database::Bench);
            }
        }
    }

    fn finish(mut self) -> Outcome {
        for pool in &self.pools {
            debug_assert_eq!(pool.check(), Ok(()));
            self.outcome.counters.add(&pool.counters);
        }
        // Pools are not at their most at the same time.
        self.outcome.counters.retained_bytes_max = self.kept_bytes_max;
        self.outcome
    }
}
