//! The same demand under other people's events, seeded: how much does a policy's result hang on luck.
//!
//! ```text
//! collections     one or two at once, between any two events        (weak tiers)
//! levels          forced for a while, also flapping                 (budgets, reuse, trims)
//! foreign trims   a checkpoint of a database that wrote nothing     (shared pools)
//! foreign heap    steps up and down between 0 and 8 GiB             (policies that look at it)
//! overlap         flushes at the same time take turns instead       (who holds what at once)
//! ```
//!
//! What is written, and which flush ends before which, stays as it was. A shrinking budget and failing
//! allocations are not among the events: the field's pool has no answer to them to replay.

use std::collections::BTreeMap;

use super::trace::{Event, Level, Trace, TrimKind};
use super::workload::Database;
use crate::choices::SmallRandom;

/// The trace with events drawn from a seed in it.
pub fn disturb(trace: &Trace, seed: u64) -> Trace {
    let mut random = SmallRandom::new(seed);
    // Each schedule has its own mixture, so that some are calm and some are wild.
    let mut weights = [(); 5].map(|()| random.below(4));
    weights[0] *= 2;
    let mut disturbed = Trace {
        events: Vec::with_capacity(trace.events.len() * 5 / 4),
        ..trace.clone()
    };
    let owners = owners(trace);
    let moments = trace.events.chunk_by(|(a, _), (b, _)| a == b);
    for moment in moments {
        let mut moment = moment.to_vec();
        if random.chance(weights[4], 4) {
            take_turns(&mut moment, &owners);
        }
        for (at_ms, event) in moment {
            disturbed.events.push((at_ms, event));
            for (kind, weight) in weights[..4].iter().enumerate() {
                if random.chance(*weight, 64) {
                    let events = draw(kind, &mut random);
                    disturbed
                        .events
                        .extend(events.into_iter().map(|event| (at_ms, event)));
                }
            }
        }
    }
    disturbed
}

/// The trace with a collection every so often.
pub fn with_collections(trace: &Trace, every_ms: u64) -> Trace {
    let mut collected = Trace {
        events: Vec::with_capacity(trace.events.len() * 2),
        ..trace.clone()
    };
    let mut due_ms = every_ms;
    for (at_ms, event) in &trace.events {
        while due_ms <= *at_ms {
            collected.events.push((due_ms, Event::Gc));
            due_ms += every_ms.max(1);
        }
        collected.events.push((*at_ms, event.clone()));
    }
    collected
}

fn draw(kind: usize, random: &mut SmallRandom) -> Vec<Event> {
    match kind {
        0 => vec![Event::Gc; 1 + random.below(2) as usize],
        1 => {
            let level = match random.below(3) {
                0 => Level::High,
                1 => Level::Critical,
                _ => return vec![Event::Level(Level::High), Event::Level(Level::Normal)],
            };
            // Levels end: a later draw of this kind is as likely to be the way back.
            vec![Event::Level(level), Event::Level(Level::Normal)]
        }
        2 => vec![Event::Trim {
            kind: TrimKind::Checkpoint,
            database: Database::Metadata,
        }],
        _ => vec![Event::Foreign(random.below(9) << 30)],
    }
}

/// Whose each flush is.
fn owners(trace: &Trace) -> BTreeMap<u32, Database> {
    let begin = |(_, event): &(u64, Event)| match event {
        Event::Begin {
            flush, database, ..
        } => Some((*flush, *database)),
        _ => None,
    };
    trace.events.iter().filter_map(begin).collect()
}

/// Orders the events of one moment by database, in the order in which the databases' flushes end.
fn take_turns(moment: &mut [(u64, Event)], owners: &BTreeMap<u32, Database>) {
    let owner = |event: &Event| match event {
        Event::Begin { flush, .. }
        | Event::Build { flush }
        | Event::Merge { flush, .. }
        | Event::End { flush, .. } => owners.get(flush).copied(),
        Event::Trim { database, .. } => Some(*database),
        _ => None,
    };
    let ended: Vec<Database> = moment
        .iter()
        .filter(|(_, event)| matches!(event, Event::End { .. }))
        .filter_map(|(_, event)| owner(event))
        .collect();
    moment.sort_by_key(|(_, event)| {
        let owner = owner(event);
        let place = ended.iter().position(|one| Some(*one) == owner);
        place.unwrap_or(ended.len())
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::record::{FlushDemand, Overlap, trace};
    use crate::pool::workload::{Parameters, Workload};

    fn small() -> Trace {
        let parameters = Parameters::measured(Workload::PlainSend);
        let demand = |height, database, records| FlushDemand {
            database,
            height,
            records,
            bytes: records * 100,
        };
        let flushes: Vec<FlushDemand> = (1..9)
            .flat_map(|pair| {
                [
                    demand(2 * pair, Database::Blockstore, 463),
                    demand(2 * pair, Database::TxIndex, 13_621),
                ]
            })
            .collect();
        trace(&parameters, &flushes, |_| Overlap::Overlapped)
    }

    /// Whatever a schedule does, the demand is the same, and it reads back as a trace.
    #[test]
    fn demand_stays() {
        let base = small();
        let ends = |trace: &Trace| -> Vec<Event> {
            let events = trace.events.iter().map(|(_, event)| event.clone());
            events.filter(|e| matches!(e, Event::End { .. })).collect()
        };
        let mut turns = 0;
        for seed in 0..50 {
            let disturbed = disturb(&base, seed);
            assert_eq!(ends(&disturbed), ends(&base), "seed {seed}");
            assert_eq!(Trace::read(&disturbed.write()).as_ref(), Ok(&disturbed));
            let position = |wanted: fn(&Event) -> bool| {
                disturbed.events.iter().position(|(_, event)| wanted(event))
            };
            let end = position(|event| matches!(event, Event::End { flush: 1, .. }));
            let begin = position(|event| matches!(event, Event::Begin { flush: 2, .. }));
            turns += usize::from(end < begin);
        }
        assert!((5..45).contains(&turns), "{turns} of 50 take turns");
    }
}
