//! Demand before any policy: who asks for slices of which class, and how much of each is used.
//!
//! Requests are the nominal ones: a build slice is asked for with 8,192 entries whatever its unit has, and
//! what is handed out is the request's class. That alone shows two things that no policy changes:
//! granted bytes against used ones, and how many slices are held at once against a cap.

use std::collections::BTreeMap;

use super::gopool::{class_of, entries_of};
use super::record::MERGE_RECORDS;
use super::replay::{BUILD_ENTRIES, Caller};
use super::trace::{Event, Trace};
use super::workload::Database;

/// The requests of one database, caller and class.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Who.
    pub database: Database,
    /// For what.
    pub caller: Caller,
    /// Entries of a slice; of an oversize one what it was asked for.
    pub class: u64,
    /// Requests.
    pub gets: u64,
    /// Entries used of a slice: half of the slices have at most so many.
    pub used_p50: u32,
    /// Nine of ten.
    pub used_p90: u32,
    /// All.
    pub used_max: u32,
    /// Granted over used entries.
    pub granted_per_used: f64,
    /// Slices held at once.
    pub held_max: u64,
    /// Gets and puts of others while one was held.
    pub hold_steps_max: u64,
}

/// All demand of a trace.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Demand {
    /// By database, caller and class.
    pub rows: Vec<Row>,
    /// Slices held at once by all.
    pub held_max: u64,
    /// Bytes used.
    pub used_entries: u64,
    /// Gets, puts, trims and the other lines, one by one.
    pub events: u64,
}

type Id = (Database, u8, u64);

#[derive(Default)]
struct Tally {
    used: BTreeMap<u32, u64>,
    held: u64,
    held_max: u64,
    hold_steps_max: u64,
}

struct Flight {
    database: Database,
    units: Vec<u32>,
    held: Vec<(Id, u64)>,
}

#[derive(Default)]
struct Count {
    tallies: BTreeMap<Id, Tally>,
    /// What each flush or single slice holds: of which row, how many, since which step.
    flights: BTreeMap<(bool, u32), Flight>,
    held: u64,
    demand: Demand,
}

/// Works it out.
pub fn of(trace: &Trace) -> Demand {
    let mut count = Count::default();
    for (_, event) in &trace.events {
        count.step(event);
    }
    count.finish()
}

impl Count {
    fn step(&mut self, event: &Event) {
        match event {
            Event::Begin {
                flush,
                database,
                units,
            } => {
                self.demand.events += 1;
                let flight = Flight {
                    database: *database,
                    units: units.clone(),
                    held: Vec::new(),
                };
                self.flights.insert((true, *flush), flight);
            }
            Event::Build { flush } => {
                let Some(mut flight) = self.flights.remove(&(true, *flush)) else {
                    return;
                };
                for &unit in &flight.units {
                    let mut left = u64::from(unit);
                    while left > 0 {
                        let used = left.min(BUILD_ENTRIES);
                        let get = self.get(flight.database, Caller::Build, BUILD_ENTRIES, used);
                        flight.held.push(get);
                        left -= used;
                    }
                }
                self.flights.insert((true, *flush), flight);
            }
            Event::Merge { flush, records } => {
                let Some(mut flight) = self.flights.remove(&(true, *flush)) else {
                    return;
                };
                let want = u64::from(*records.min(&MERGE_RECORDS));
                let get = self.get(flight.database, Caller::Merge, want, want);
                flight.held.push(get);
                self.flights.insert((true, *flush), flight);
            }
            Event::End { flush, .. } => {
                self.demand.events += 1;
                self.put(true, *flush);
            }
            Event::Get {
                id,
                count,
                database,
                want,
                used,
            } => {
                for id in *id..*id + *count {
                    let (want, used) = (u64::from(*want), u64::from(*used));
                    let held = self.get(*database, Caller::Direct, want, used);
                    let flight = Flight {
                        database: *database,
                        units: Vec::new(),
                        held: vec![held],
                    };
                    self.flights.insert((false, id), flight);
                }
            }
            Event::Put { id, count } => (*id..*id + *count).for_each(|id| self.put(false, id)),
            _ => self.demand.events += 1,
        }
    }

    fn get(&mut self, database: Database, caller: Caller, want: u64, used: u64) -> (Id, u64) {
        let class = class_of(want).map_or(want, entries_of);
        let id = (database, caller as u8, class);
        let tally = self.tallies.entry(id).or_default();
        *tally.used.entry(used as u32).or_default() += 1;
        tally.held += 1;
        tally.held_max = tally.held_max.max(tally.held);
        self.held += 1;
        self.demand.held_max = self.demand.held_max.max(self.held);
        self.demand.events += 1;
        (id, self.demand.events)
    }

    fn put(&mut self, flush: bool, number: u32) {
        for (id, since) in self
            .flights
            .remove(&(flush, number))
            .map_or_else(Vec::new, |flight| flight.held)
        {
            self.demand.events += 1;
            self.held -= 1;
            if let Some(tally) = self.tallies.get_mut(&id) {
                tally.held -= 1;
                tally.hold_steps_max = tally.hold_steps_max.max(self.demand.events - since);
            }
        }
    }

    fn finish(mut self) -> Demand {
        for ((database, caller, class), tally) in self.tallies {
            let gets: u64 = tally.used.values().sum();
            let used: u64 = tally
                .used
                .iter()
                .map(|(used, n)| u64::from(*used) * n)
                .sum();
            let at = |per_mille: u64| {
                let mut seen = 0;
                let mut entries = tally.used.iter().map(|(used, n)| {
                    seen += n;
                    (*used, seen)
                });
                entries
                    .find(|(_, seen)| *seen * 1000 >= gets * per_mille)
                    .map_or(0, |(used, _)| used)
            };
            if caller != Caller::Merge as u8 {
                self.demand.used_entries += used;
            }
            self.demand.rows.push(Row {
                database,
                caller: Caller::ALL[usize::from(caller)],
                class,
                gets,
                used_p50: at(500),
                used_p90: at(900),
                used_max: at(1000),
                granted_per_used: (gets * class) as f64 / used.max(1) as f64,
                held_max: tally.held_max,
                hold_steps_max: tally.hold_steps_max,
            });
        }
        self.demand
    }
}
