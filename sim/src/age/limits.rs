//! What an ageing store may take: one table. A limit is what is promised today; whoever makes the engine
//! better tightens it here.

use super::figures::{Class, Hour, Lookups};

/// One gate: a measured figure must not exceed the limit.
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    /// Its name, for `--limit NAME=VALUE` too.
    pub name: &'static str,
    /// The most that passes.
    pub most: f64,
    /// What is measured, and why this much.
    pub reason: &'static str,
}

/// All gates.
pub const LIMITS: [Limit; 14] = [
    Limit {
        name: "heap-peak",
        most: 1.0,
        reason: "the most live heap, as a part of write region, filter budget, scan memory, 1 MiB for \
                 buffers whatever the size, and 2 KiB a segment",
    },
    Limit {
        name: "heap-a-segment",
        most: 256.0,
        reason: "live heap a segment once all were touched, beside write region, filters, page fences and \
                 48 KiB of a store at rest, its folded runs among it",
    },
    Limit {
        name: "filter-beyond-budget",
        most: 0.0,
        reason: "filter bytes above the budget, at any look: the budget is a bound",
    },
    Limit {
        name: "descriptors-beyond-cap",
        most: 8.0,
        reason: "all descriptors less the cap for segments: lock, manifest, logs, what a flush writes",
    },
    Limit {
        name: "reads-a-sealed-hit",
        most: 2.1,
        reason: "reads without those for false candidates: an index page (none for keys in the window \
                 table) and a record, and the tail of \
                 a segment that was not touched since the opening",
    },
    Limit {
        name: "false-candidates",
        most: 1.0,
        reason: "segments looked into in vain, as a part of those without filter in memory and 0.75 % of \
                 the filters asked",
    },
    Limit {
        name: "reads-a-false-candidate",
        most: 1.1,
        reason: "of absent keys: one index page, and the tail of an untouched segment",
    },
    Limit {
        name: "space-amplification",
        most: 6.5,
        reason: "file bytes a byte that a reader can find, at the end: small records, and nothing is \
                 reclaimed yet",
    },
    Limit {
        name: "write-amplification",
        most: 8.5,
        reason: "bytes written a byte asked for: once to the log, once to a segment, with headers that \
                 are larger than these records, and index and filters once more for each level of folds",
    },
    Limit {
        name: "steps-growth",
        most: 1.5,
        reason: "job steps a write in the last quarter of the hours against the first: an entry is folded \
                 once for each level, and levels come with the age",
    },
    Limit {
        name: "calls-growth",
        most: 1.25,
        reason: "write and barrier calls a write, likewise",
    },
    Limit {
        name: "filter-loads",
        most: 1.0,
        reason: "filters loaded, as a part of the segments that openings found: none is loaded twice",
    },
    Limit {
        name: "opening-opens",
        most: 0.0,
        reason: "segment files opened by openings: an opening reads manifest and logs",
    },
    Limit {
        name: "left-over",
        most: 0.0,
        reason: "at the end: files nobody names, removals that wait, pins, bytes that are nobody's, \
                 descriptors, and heap by 16 KiB after the store is gone",
    },
];

/// A limit and what was measured.
#[derive(Clone, Copy, Debug)]
pub struct Gate {
    /// The limit.
    pub limit: Limit,
    /// The figure.
    pub measured: f64,
}

impl Gate {
    /// Whether it holds. A figure that is no number does not.
    pub fn holds(&self) -> bool {
        self.measured <= self.limit.most
    }
}

/// What the gates look at beside the hours.
#[derive(Clone, Copy, Debug, Default)]
pub struct Extremes {
    /// The most heap bytes, as a part of what is allowed.
    pub heap_part: f64,
    /// Heap bytes a segment, beside its filter and page fences.
    pub heap_a_segment: f64,
    /// The most filter bytes beyond the budget.
    pub filter_excess: f64,
    /// The most descriptors beyond the cap.
    pub descriptors_excess: f64,
    /// Segments that openings found, summed.
    pub found_segments: u64,
    /// Segment files that they opened.
    pub opening_opens: u64,
    /// See `left-over`.
    pub left_over: u64,
}

/// Part of the filters asked that may say "perhaps" of a key that is not there: 12 bits a key in blocks of
/// 64 bytes.
const FALSE_PART: f64 = 0.0075;

/// Measures everything; `limits` may be the table with other numbers.
pub fn gates(limits: &[Limit], hours: &[Hour], extremes: &Extremes) -> Vec<Gate> {
    let mut total = Hour::default();
    hours.iter().for_each(|hour| total.add_counts(hour));
    let measure = |name: &str| match name {
        "heap-peak" => extremes.heap_part,
        "heap-a-segment" => extremes.heap_a_segment,
        "filter-beyond-budget" => extremes.filter_excess,
        "descriptors-beyond-cap" => extremes.descriptors_excess,
        "reads-a-sealed-hit" => sealed_hit_reads(total.class(Class::Hit)),
        "false-candidates" => false_part(&total),
        "reads-a-false-candidate" => {
            let miss = total.class(Class::Miss);
            let reads = miss.reads.saturating_sub(miss.window_false_candidates);
            part(reads as f64, miss.false_candidates as f64)
        }
        "space-amplification" => hours.last().map_or(f64::NAN, Hour::space_amplification),
        "write-amplification" => total.write_amplification(),
        "steps-growth" => growth(hours, Hour::steps_per_thousand),
        "calls-growth" => growth(hours, Hour::disk_calls_per_thousand),
        "filter-loads" => part(
            total.steps_of(sealstone::Job::LoadFilter) as f64,
            extremes.found_segments as f64,
        ),
        "opening-opens" => extremes.opening_opens as f64,
        "left-over" => extremes.left_over as f64,
        _ => f64::NAN,
    };
    let gate = |limit: &Limit| Gate {
        limit: *limit,
        measured: measure(limit.name),
    };
    limits.iter().map(gate).collect()
}

/// A part of a whole that may be empty: then any part is too much.
fn part(part: f64, whole: f64) -> f64 {
    if part == 0.0 { 0.0 } else { part / whole }
}

fn sealed_hit_reads(hits: &Lookups) -> f64 {
    let wrong = hits.false_candidates + hits.window_false_candidates;
    let reads = hits.reads.saturating_sub(wrong);
    reads as f64 / hits.sealed_hits() as f64
}

fn false_part(total: &Hour) -> f64 {
    let mut all = Lookups::default();
    total.lookups.iter().for_each(|class| all.add(class));
    let allowed = FALSE_PART * all.filter_tests as f64 + all.unfiltered as f64;
    part(all.false_candidates as f64, allowed)
}

/// The last quarter against the first: as many hours of each weather are in both.
fn growth(hours: &[Hour], figure: impl Fn(&Hour) -> f64) -> f64 {
    let quarter = hours.len() / 4;
    let mean = |hours: &[Hour]| {
        let mut sum = Hour::default();
        hours.iter().for_each(|hour| sum.add_counts(hour));
        figure(&sum)
    };
    if quarter == 0 {
        return f64::NAN;
    }
    mean(&hours[hours.len() - quarter..]) / mean(&hours[..quarter])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hour(steps: u64) -> Hour {
        let mut hour = Hour {
            writes: 1000,
            user_bytes: 100,
            file_bytes: 100,
            live_bytes: 100,
            disk_calls: 10,
            ..Hour::default()
        };
        hour.steps.insert(sealstone::Job::Flush, steps);
        hour.lookups[Class::Hit as usize] = Lookups {
            lookups: 10,
            reads: 20,
            candidates: 10,
            ..Lookups::default()
        };
        hour
    }

    fn failed(hours: &[Hour], extremes: &Extremes) -> Vec<&'static str> {
        let gates = gates(&LIMITS, hours, extremes);
        let failed = gates.iter().filter(|gate| !gate.holds());
        failed.map(|gate| gate.limit.name).collect()
    }

    #[test]
    fn each_gate_notices_what_it_is_for() {
        let hours = vec![hour(10); 8];
        let fine = Extremes::default();
        assert_eq!(failed(&hours, &fine), [""; 0]);
        assert_eq!(failed(&hours[..3], &fine), ["steps-growth", "calls-growth"]);

        let mut grown = hours.clone();
        grown[6..].iter_mut().for_each(|last| *last = hour(16));
        assert_eq!(failed(&grown, &fine), ["steps-growth"]);

        let mut slow = hours.clone();
        slow[3].lookups[Class::Hit as usize].reads += 20;
        assert_eq!(failed(&slow, &fine), ["reads-a-sealed-hit"]);

        let mut blind = hours.clone();
        blind[3].lookups[Class::Miss as usize] = Lookups {
            lookups: 10,
            reads: 12,
            candidates: 10,
            false_candidates: 10,
            filter_tests: 1000,
            unfiltered: 2,
            ..Lookups::default()
        };
        let expected = ["false-candidates", "reads-a-false-candidate"];
        assert_eq!(failed(&blind, &fine), expected);

        let bad = Extremes {
            heap_part: 1.1,
            heap_a_segment: f64::NAN,
            filter_excess: 1.0,
            descriptors_excess: 9.0,
            found_segments: 0,
            opening_opens: 1,
            left_over: 1,
        };
        let expected = [
            "heap-peak",
            "heap-a-segment",
            "filter-beyond-budget",
            "descriptors-beyond-cap",
            "opening-opens",
            "left-over",
        ];
        assert_eq!(failed(&hours, &bad), expected);
    }
}
