//! The field's micro-benchmark: hot slices, two collections a round.
//!
//! Each round takes 192 build slices, gives them back and collects twice. The budget is exactly what
//! the slices have, and no checkpoint ever trims. So a cap below 192 sends the rest to the weak tier, where
//! the two collections find it: the benchmark measures its own collections.

use super::gopool::{ENTRY_BYTES, class_of, entries_of};
use super::policy::{BASE, Policy};
use super::replay::BUILD_ENTRIES;
use super::rules::Rules;
use super::trace::{Event, Trace};
use super::workload::Database;

/// Slices that are hot.
pub const HOT_SLICES: u32 = 192;

/// So many rounds.
pub fn trace(rounds: u32) -> Trace {
    let mut trace = Trace {
        workload: "micro-benchmark".into(),
        transactions: u64::from(rounds),
        blocks: u64::from(rounds),
        events: Vec::new(),
    };
    for round in 0..rounds {
        let at_ms = u64::from(round);
        let (id, count) = (round * HOT_SLICES, HOT_SLICES);
        trace.events.extend([
            (
                at_ms,
                Event::Get {
                    id,
                    count,
                    database: Database::Bench,
                    want: BUILD_ENTRIES as u32,
                    used: BUILD_ENTRIES as u32,
                },
            ),
            (at_ms, Event::Put { id, count }),
            (at_ms, Event::Gc),
            (at_ms, Event::Gc),
        ]);
    }
    trace
}

/// The pool as the benchmark set it up.
pub fn policy(cap: u32) -> Policy {
    let slice_bytes = class_of(BUILD_ENTRIES).map_or(0, entries_of) * ENTRY_BYTES;
    Policy {
        name: if cap == BASE.rules.cap {
            "bench-cap128"
        } else {
            "bench"
        },
        what: "the micro-benchmark's pool",
        rules: Rules {
            cap,
            checkpoint_keep: None,
            weak: true,
            budget_bytes: u64::from(HOT_SLICES) * slice_bytes,
            ..BASE.rules
        },
        ..BASE
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::replay::replay;

    /// The published 46.1 MB an operation is 64 slices: what the cap keeps out of 192.
    #[test]
    fn the_published_bytes_come_out() {
        let fresh = |cap, rounds| replay(&trace(rounds), &policy(cap), 0).counters.fresh_bytes;
        assert_eq!(fresh(128, 9) - fresh(128, 8), 46_137_344);
        assert_eq!(fresh(512, 9) - fresh(512, 8), 0);
    }

    #[test]
    fn the_cap_binds() {
        let outcome = replay(&trace(10), &policy(128), 0);
        assert_eq!(outcome.binding(), ("cap", 9 * 64));
        assert_eq!(replay(&trace(10), &policy(512), 0).binding(), ("none", 0));
    }
}
