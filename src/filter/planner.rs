//! Which alternative of which part's filter is worth its memory: a pure function of what is stored, what is
//! resident, how often each part was asked in vain, and the budget.
//!
//! A part without a filter costs a read for each lookup that reaches it in vain; one with a filter only where
//! the filter is wrong. So a step from one alternative to a larger one spares `weight * fall of the rate` reads
//! for its bytes. Steps are taken by what they spare a byte, over the concave hull of each part's alternatives
//! (a small step before which a better large one lies is no step). With fractions of steps that would be the
//! best there is; whole steps lose at most the one that does not fit, and what is left goes to smaller ones.
//!
//! Invariants:
//! * The chosen alternatives take at most the budget, as [`FilterShape::resident_bytes`] counts them.
//! * Integers alone, ties by the order of the parts: equal input, equal plan, on every machine.
//! * Hysteresis: what is resident is dropped or made smaller only for what spares a quarter more a byte, and
//!   only if all such exchanges together spare a sixteenth of the reads in vain; it is exchanged for a larger
//!   alternative only once the arrivals say that this saves the reads that loading costs.
//!
//! The unit is a whole part: see "Residency" in `docs/design.md`.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use super::{FilterPolicy, FilterShape};

/// The alternatives that segments and runs may store, in bits a key.
pub const ALTERNATIVES: [u16; 4] = [4, 8, 12, 16];

/// How often each of them is wrong, in millionths: that of its block filter, whose blocks hold a Poisson number
/// of keys (`filter::resident` measures it). The first is no filter.
pub const FALSE_PPM: [u64; 5] = [1_000_000, 147_863, 23_121, 4_222, 909];

/// What spares this much more a byte takes the place of what is resident, as a fraction ..
const HYSTERESIS: (u64, u64) = (5, 4);

/// .. if all exchanges together leave less than this part of the reads in vain, as a fraction.
const GAIN_MIN: (u128, u128) = (16, 15);

/// Reads of a load beside its pieces: the tail and the checksums.
const LOAD_READS: u64 = 2;

/// The largest weight that is told apart from larger ones.
const WEIGHT_MAX: u64 = 1 << 38;

/// An alternative as a place in [`FALSE_PPM`]; 0 is none.
pub type Choice = u8;

/// The choice that stands for this many bits a key; none for a number that no alternative has.
pub fn choice_of(bits_per_key: u16) -> Option<Choice> {
    let place = ALTERNATIVES.iter().position(|bits| *bits == bits_per_key)?;
    u8::try_from(place + 1).ok()
}

/// The bits a key of a choice; 0 for none.
pub fn bits_of(choice: Choice) -> u16 {
    match usize::from(choice).checked_sub(1) {
        None => 0,
        Some(place) => ALTERNATIVES.get(place).copied().unwrap_or(0),
    }
}

/// A part of a run, as the planner sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unit {
    /// Its keys.
    pub records: u64,
    /// How often lookups come to it in vain, against other parts.
    pub weight: u64,
    /// Lookups that came in vain lately: what an exchange has to save its reads in.
    pub arrivals: u64,
    /// Newer segments of its kind, without those of its run.
    pub newer_segments: u32,
    /// What is stored: bit `choice`.
    pub stored: u8,
    /// What is resident.
    pub resident: Choice,
}

impl Unit {
    /// Whether an alternative is stored and not given up.
    pub const fn has(&self, choice: Choice) -> bool {
        choice > 0 && self.stored >> choice & 1 == 1
    }

    /// The largest alternative, or what is resident.
    fn most(&self) -> Choice {
        let stored = (1..FALSE_PPM.len() as Choice)
            .rev()
            .find(|choice| self.has(*choice));
        stored.unwrap_or(0).max(self.resident)
    }

    /// What a choice takes in memory, in bytes.
    pub fn bytes(&self, choice: Choice) -> u64 {
        shape(self.records, choice).resident_bytes()
    }

    /// Weighted reads in vain, in millionths. An empty part costs no read anyway.
    pub fn cost(&self, choice: Choice) -> u64 {
        let weight = self.weight.min(WEIGHT_MAX);
        let rate = FALSE_PPM.get(usize::from(choice)).copied().unwrap_or(0);
        if self.records == 0 { 0 } else { weight * rate }
    }

    /// Whether an exchange of what is resident for a larger alternative saves the reads that it costs.
    fn pays(&self, to: Choice) -> bool {
        let rate = |choice: Choice| FALSE_PPM.get(usize::from(choice)).copied().unwrap_or(0);
        let spared = rate(self.resident).saturating_sub(rate(to));
        let reads = LOAD_READS + shape(self.records, to).pieces();
        self.arrivals.saturating_mul(spared) / 1_000_000 >= reads
    }

    /// The next step of the hull above `from` that takes at most `room` bytes more.
    fn next(&self, from: Choice, room: u64) -> Option<Step> {
        let mut best: Option<Step> = None;
        for to in from + 1..FALSE_PPM.len() as Choice {
            let more = self.bytes(to).saturating_sub(self.bytes(from));
            let spared = self.cost(from) - self.cost(to);
            if !self.has(to) || spared == 0 || more > room {
                continue;
            }
            if self.resident > 0 && to > self.resident && !self.pays(to) {
                continue;
            }
            let step = Step {
                spared,
                bytes: more,
                unit: 0,
                to,
            };
            // With as much a byte the larger one: its bytes are counted in whole pages.
            let better = |best: &Step| step.by_byte(best) != Ordering::Less;
            if best.as_ref().is_none_or(better) {
                best = Some(step);
            }
        }
        best
    }
}

/// The shape of a part's filter. What all its hashes share is no matter of size.
pub fn shape(records: u64, choice: Choice) -> FilterShape {
    FilterShape::for_keys(records, bits_of(choice), 0)
}

/// A step from one alternative to a larger one.
#[derive(Clone, Copy, Debug)]
struct Step {
    spared: u64,
    bytes: u64,
    unit: u32,
    to: Choice,
}

impl Step {
    /// Compares what two steps spare a byte; a step without bytes is the best.
    fn by_byte(&self, other: &Self) -> Ordering {
        let own = u128::from(self.spared) * u128::from(other.bytes);
        let others = u128::from(other.spared) * u128::from(self.bytes);
        own.cmp(&others)
    }
}

impl Ord for Step {
    fn cmp(&self, other: &Self) -> Ordering {
        // Both without bytes: by what they spare. Then the earlier part.
        let even = self.spared.cmp(&other.spared);
        let even = if self.bytes + other.bytes == 0 {
            even
        } else {
            Ordering::Equal
        };
        let order = self.by_byte(other).then(even);
        order
            .then(other.unit.cmp(&self.unit))
            .then(other.to.cmp(&self.to))
    }
}

impl PartialOrd for Step {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Step {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Step {}

/// What is to be resident: a choice for each part. `units` are newest first. Cost: a few comparisons a part and
/// the logarithm of their number; 32 bytes a part meanwhile.
pub fn plan(policy: FilterPolicy, units: &[Unit], budget_bytes: u64) -> Vec<Choice> {
    match policy {
        FilterPolicy::Planned => planned(units, budget_bytes),
        FilterPolicy::NewestFirst => newest_first(units, budget_bytes, u32::MAX),
        FilterPolicy::WindowOnly => newest_first(units, budget_bytes, super::WINDOW_SEGMENTS),
        FilterPolicy::All => {
            let all: Vec<_> = units.iter().map(fixed).collect();
            match bytes(units, &all) <= budget_bytes {
                true => all,
                false => planned(units, budget_bytes),
            }
        }
        FilterPolicy::None => vec![0; units.len()],
    }
}

/// Weighted reads in vain of a plan, in millionths.
pub fn cost(units: &[Unit], plan: &[Choice]) -> u128 {
    let each = units.iter().zip(plan);
    each.map(|(unit, choice)| u128::from(unit.cost(*choice)))
        .sum()
}

/// What a plan takes in memory, in bytes.
pub fn bytes(units: &[Unit], plan: &[Choice]) -> u64 {
    let each = units.iter().zip(plan);
    each.fold(0, |sum: u64, (unit, choice)| {
        sum.saturating_add(unit.bytes(*choice))
    })
}

fn planned(units: &[Unit], budget_bytes: u64) -> Vec<Choice> {
    let kept: Vec<_> = units.iter().map(|unit| unit.resident).collect();
    if kept.iter().all(|choice| *choice == 0) || bytes(units, &kept) > budget_bytes {
        return anew(units, budget_bytes);
    }
    let kept = greedy(units, budget_bytes, kept);
    let most: Vec<_> = units.iter().map(Unit::most).collect();
    if cost(units, &most) * GAIN_MIN.0 >= cost(units, &kept) * GAIN_MIN.1 {
        return kept;
    }
    let new = anew(units, budget_bytes);
    match cost(units, &new) * GAIN_MIN.0 < cost(units, &kept) * GAIN_MIN.1 {
        true => new,
        false => kept,
    }
}

/// The plan for memory that may be filled anew.
fn anew(units: &[Unit], budget_bytes: u64) -> Vec<Choice> {
    let greedy = greedy(units, budget_bytes, vec![0; units.len()]);
    // Whole steps can lose to anything by as much as one large step; not to the simplest rule.
    let simple = newest_first(units, budget_bytes, u32::MAX);
    match cost(units, &greedy) <= cost(units, &simple) {
        true => greedy,
        false => simple,
    }
}

/// Adds the best steps to a plan. What is resident counts for more than it spares.
fn greedy(units: &[Unit], budget_bytes: u64, mut plan: Vec<Choice>) -> Vec<Choice> {
    let mut room = budget_bytes.saturating_sub(bytes(units, &plan));
    let step_of = |place: usize, from: Choice, room: u64| {
        let unit = units.get(place)?;
        let mut step = unit.next(from, room)?;
        let (much, little) = HYSTERESIS;
        step.spared *= if step.to <= unit.resident {
            much
        } else {
            little
        };
        step.unit = place as u32;
        Some(step)
    };
    let most: Vec<_> = units.iter().map(Unit::most).collect();
    if bytes(units, &most) <= budget_bytes {
        // Nothing is short, so the order is no matter.
        for (place, choice) in plan.iter_mut().enumerate() {
            while let Some(step) = step_of(place, *choice, u64::MAX) {
                *choice = step.to;
            }
        }
        return plan;
    }
    let first = plan.iter().enumerate();
    let first = first.filter_map(|(place, from)| step_of(place, *from, u64::MAX));
    let mut steps: BinaryHeap<Step> = first.collect();
    while let Some(step) = steps.pop() {
        let place = step.unit as usize;
        let Some(choice) = plan.get_mut(place) else {
            continue;
        };
        let fits = step.bytes <= room;
        if fits {
            room -= step.bytes;
            *choice = step.to;
        }
        // Without room for this one there may be some for a smaller one of the same part.
        let most = if fits { u64::MAX } else { room };
        steps.extend(step_of(place, *choice, most));
    }
    plan
}

/// The alternative of the rules that do not plan: 12 bits a key, else the next smaller, else the smallest that
/// is stored.
fn fixed(unit: &Unit) -> Choice {
    let stored = |choice: &Choice| unit.has(*choice);
    let smaller = (1..=3).rev().find(stored);
    smaller.or((4..=4).find(stored)).unwrap_or(0)
}

/// The fixed alternative for all parts with fewer than `window` newer segments, up to the first without room.
fn newest_first(units: &[Unit], budget_bytes: u64, window: u32) -> Vec<Choice> {
    let mut plan = vec![0; units.len()];
    let mut room = budget_bytes;
    let inside = units.iter().zip(&mut plan);
    for (unit, choice) in inside.filter(|(unit, _)| unit.newer_segments < window) {
        let wanted = fixed(unit);
        let bytes = unit.bytes(wanted);
        if bytes > room {
            break;
        }
        room -= bytes;
        *choice = wanted;
    }
    plan
}

#[cfg(test)]
#[path = "planner_tests.rs"]
mod tests;
