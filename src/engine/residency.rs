//! Which filters are in memory: the books. What is wanted is the planner's (`filter::planner`), the loading is
//! a job's (`filter_job`).
//!
//! A plan is made when the runs change, when the budget does, when a filter turns out not to be there, and
//! when enough lookups were counted. It leaves two lists to the job: what is freed, and after that what is
//! loaded, best first. A fresh segment's filter is kept from its build if the plan would load it and there is
//! room. A lookup never loads one. Answers do not depend on what is resident.
//!
//! Invariants:
//! * The bytes of all filters, that of a load in flight included, are at most the budget at every step: room
//!   is made before anything is taken, and a smaller budget frees before anything loads.
//! * `used_bytes` counts what the parts of the current version have, and the load in flight.
//! * A part that a fold replaced leaves the books and both lists in the fold's step; a load for it in flight is
//!   cancelled, and its memory counts until it is dropped.
//!
//! Weights: one lookup in 64, chosen by its hash, is counted at every part where it ended in vain, with a
//! filter or without (a "ghost"). Counts are halved when enough came for a new plan, not at every plan: a busy
//! writer changes the runs all the time. A new run takes over what the runs before it were asked.

use std::collections::BTreeMap;
use std::iter::Peekable;

use crate::engine::filter_pages::{LOADS_MAX, NextLoad};
use crate::engine::fold::filter_bits_of;
use crate::engine::plan_due::PlanDue;
use crate::engine::version::{Part, Run, Version, rounded};
use crate::env::PressureLevel;
use crate::filter::planner::{self, Choice, FALSE_PPM, Unit, choice_of};
use crate::filter::{FilterPolicy, ResidentFilter};
use crate::segment::Segment;
use crate::sync::Arc;
use crate::types::KeyspaceKind;

/// The alternative that is kept from the build of a segment, in bits a key.
pub(crate) const FILTER_BITS_RESIDENT: u16 = 12;

/// Lookups of a run that are taken for granted before any was counted.
const ARRIVALS_ASSUMED: u64 = 16;

/// Counted lookups for each part after which a new plan may differ.
const ARRIVALS_A_PART: u64 = 16;

/// Bounds of their sum. The lookup that completes it wakes the job, which is a system call: with the lower
/// bound one lookup in 4,096 does.
const ARRIVALS_A_PLAN: (u64, u64) = (64, 4096);

/// A filter that is being loaded.
#[derive(Clone, Copy, Debug)]
struct InFlight {
    /// The part's file.
    number: u64,
    choice: Choice,
    bytes: u64,
    /// Nobody wants it any more.
    cancelled: bool,
}

/// The books. Guarded by the engine's residency lock; which parts have a filter is said by the parts.
#[derive(Debug)]
pub(crate) struct Residency {
    policy: FilterPolicy,
    /// What the user allows.
    configured_bytes: u64,
    /// How much of it the level of memory pressure leaves.
    budget_bytes: u64,
    level: PressureLevel,
    /// Lookups for each one that is counted.
    sample: u64,
    used_bytes: u64,
    resident: usize,
    /// Alternatives that are damaged or not there, by the part's file: bit `choice`.
    given_up: BTreeMap<u64, u8>,
    /// Whether the plan may be out of date.
    stale: bool,
    /// Counted lookups at the last plan that halved the counts, and how many more make the next.
    counted: u64,
    counted_next: u64,
    /// The sum of both, for lookups.
    due: Arc<PlanDue>,
    /// Parts whose filter the plan does not want.
    frees: Vec<Part>,
    /// What the plan wants; the best is the last.
    loads: Vec<(Part, Choice)>,
    in_flight: Option<InFlight>,
    plans: u64,
}

impl Residency {
    /// Books of a store that has parts already, or none. They say in `due` when counted lookups make a plan due.
    pub fn new(
        (policy, budget_bytes): (FilterPolicy, u64),
        sample_bits: u8,
        has_parts: bool,
        due: Arc<PlanDue>,
    ) -> Self {
        let books = Self {
            policy,
            configured_bytes: budget_bytes,
            budget_bytes,
            level: PressureLevel::Normal,
            sample: 1 << sample_bits,
            used_bytes: 0,
            resident: 0,
            given_up: BTreeMap::new(),
            stale: has_parts,
            counted: 0,
            counted_next: ARRIVALS_A_PLAN.0,
            due,
            frees: Vec::new(),
            loads: Vec::new(),
            in_flight: None,
            plans: 0,
        };
        books.set_due();
        books
    }

    fn set_due(&self) {
        let plans = self.weighs() && !self.never_has_any();
        let due = self.counted.saturating_add(self.counted_next);
        self.due.set(plans.then_some(due));
    }

    /// Bytes of filters, that of a load in flight included.
    pub const fn used_bytes(&self) -> u64 {
        self.used_bytes
    }

    /// What the user allows.
    pub const fn configured_bytes(&self) -> u64 {
        self.configured_bytes
    }

    /// Whether the filters have yet to follow the level of memory pressure.
    pub fn lags(&self, level: PressureLevel) -> bool {
        self.level != level && self.configured_bytes > 0 && self.policy != FilterPolicy::None
    }

    /// Bytes that filters may take at a level.
    pub const fn target_bytes(&self, level: PressureLevel) -> u64 {
        match level {
            PressureLevel::Normal => self.configured_bytes,
            PressureLevel::High => self.configured_bytes / 2,
            PressureLevel::Critical => self.configured_bytes / 4,
        }
    }

    pub const fn resident_count(&self) -> usize {
        self.resident
    }

    /// Alternatives given up.
    pub fn given_up_count(&self) -> u64 {
        let masks = self.given_up.values();
        masks.map(|mask| u64::from(mask.count_ones())).sum()
    }

    /// Plans made.
    pub const fn plan_count(&self) -> u64 {
        self.plans
    }

    /// What the policy asks the budget to cover; nothing for one that takes what there is.
    pub fn needed_bytes(&self, version: &Version) -> Option<u64> {
        (self.policy == FilterPolicy::All).then(|| {
            let (_, units) = self.units(version);
            planner::bytes(&units, &planner::plan(self.policy, &units, u64::MAX))
        })
    }

    /// Whether there is something for the job, `counted` lookups having been counted.
    pub fn has_work(&self, counted: u64) -> bool {
        let work = !self.frees.is_empty() || !self.loads.is_empty() || self.in_flight.is_some();
        work || self.needs_plan(counted)
    }

    /// Whether a plan is due.
    pub fn needs_plan(&self, counted: u64) -> bool {
        let has_none = self.never_has_any() && self.used_bytes == 0;
        (self.stale || self.counts_are_due(counted)) && !has_none
    }

    /// Whether no plan would have a filter.
    fn never_has_any(&self) -> bool {
        self.budget_bytes == 0 || self.policy == FilterPolicy::None
    }

    /// Whether plans depend on what is counted.
    const fn weighs(&self) -> bool {
        matches!(self.policy, FilterPolicy::Planned | FilterPolicy::All)
    }

    fn counts_are_due(&self, counted: u64) -> bool {
        self.weighs() && counted - self.counted.min(counted) >= self.counted_next
    }

    /// Makes the plan for a version and the lists that lead to it. The caller loaded the version under the
    /// residency lock.
    pub fn plan(&mut self, version: &Version, counted: u64) {
        let (parts, units) = self.units(version);
        let plan = planner::plan(self.policy, &units, self.budget_bytes);
        self.frees = Vec::new();
        let mut loads = Vec::new();
        let mut goes_on = false;
        for ((part, unit), wanted) in parts.iter().zip(&units).zip(plan) {
            let resident = resident_choice(part);
            let loading = self.in_flight.filter(|load| load.number == part.number());
            if wanted == resident {
                continue;
            } else if loading.is_some_and(|load| load.choice == wanted && !load.cancelled) {
                goes_on = true;
            } else if wanted == 0 {
                self.frees.push(part.clone());
            } else {
                let spared = unit.cost(resident).saturating_sub(unit.cost(wanted));
                let worth = spared / (unit.bytes(wanted) + 1);
                loads.push((worth, part.clone(), wanted));
            }
        }
        if let Some(load) = &mut self.in_flight {
            load.cancelled |= !goes_on;
        }
        // Stable: with equal worth the newest is loaded first.
        loads.reverse();
        loads.sort_by_key(|(worth, ..)| *worth);
        self.loads = loads.into_iter().map(|(_, part, to)| (part, to)).collect();
        if self.counts_are_due(counted) {
            parts.iter().for_each(|part| part.halve_arrivals());
            self.counted = counted;
        }
        let (least, most) = ARRIVALS_A_PLAN;
        self.counted_next = (ARRIVALS_A_PART * parts.len() as u64).clamp(least, most);
        self.set_due();
        self.stale = false;
        self.plans += 1;
    }

    /// Keeps the filter that a fresh segment of `version` has from its build, if the plan would load one and
    /// there is room; the lists then say what else changes. Returns how many were freed for it.
    pub fn admit(
        &mut self,
        version: &Version,
        segment: &Part,
        filter: Arc<ResidentFilter>,
        counted: u64,
    ) -> u64 {
        take_over_arrivals(version, segment);
        if self.keeps_more(filter.bytes() as u64) {
            self.keep(segment, filter);
            return 0;
        }
        self.plan(version, counted);
        let is_own = |(part, _): &(Part, Choice)| Arc::ptr_eq(part, segment);
        let Some(place) = self.loads.iter().position(is_own) else {
            return 0;
        };
        let bytes = filter.bytes() as u64;
        let mut freed = 0;
        while !self.has_room(bytes) && self.free_one() {
            freed += 1;
        }
        if self.has_room(bytes) {
            self.loads.remove(place);
            self.keep(segment, filter);
        }
        freed
    }

    /// Whether any plan would take a new filter of that size: all that the last one wants is there, and there is
    /// room. Spares a plan for each segment of a long load.
    fn keeps_more(&self, bytes: u64) -> bool {
        let by_room = !matches!(self.policy, FilterPolicy::WindowOnly | FilterPolicy::None);
        by_room && !self.stale && self.frees.is_empty() && !self.has_loads() && self.has_room(bytes)
    }

    fn keep(&mut self, part: &Part, filter: Arc<ResidentFilter>) {
        self.used_bytes += filter.bytes() as u64;
        self.resident += 1;
        part.set_filter(Some(filter));
    }

    /// Whether there is something to load or to go on loading.
    pub fn has_loads(&self) -> bool {
        !self.loads.is_empty() || self.in_flight.is_some()
    }

    fn has_room(&self, bytes: u64) -> bool {
        self.used_bytes.saturating_add(bytes) <= self.budget_bytes
    }

    /// Frees one filter that the plan does not want.
    pub fn free_one(&mut self) -> bool {
        let Some(part) = self.frees.pop() else {
            return false;
        };
        self.clear(&part);
        true
    }

    fn clear(&mut self, part: &Segment) -> bool {
        let Some(filter) = part.set_filter(None) else {
            return false;
        };
        self.used_bytes -= filter.bytes() as u64;
        self.resident -= 1;
        true
    }

    /// A part was left by a fold: its filter goes, and it is forgotten. Whether it had one.
    pub fn leave(&mut self, part: &Part) -> bool {
        let number = part.number();
        self.given_up.remove(&number);
        self.frees.retain(|other| !Arc::ptr_eq(other, part));
        self.loads.retain(|(other, _)| !Arc::ptr_eq(other, part));
        if let Some(load) = self.in_flight.as_mut().filter(|load| load.number == number) {
            load.cancelled = true;
        }
        self.stale = true;
        self.clear(part)
    }

    /// Another budget or level; the lists are made anew. To be followed by [`Self::end_load`], if it says so,
    /// and [`Self::shed`].
    pub fn set_budget(
        &mut self,
        version: &Version,
        configured_bytes: u64,
        level: PressureLevel,
        counted: u64,
    ) -> bool {
        self.configured_bytes = configured_bytes;
        self.level = level;
        self.budget_bytes = self.target_bytes(level);
        self.plan(version, counted);
        self.is_cancelled()
    }

    /// Frees until the budget is kept. What the plan keeps fits.
    pub fn shed(&mut self, version: &Version) -> u64 {
        let mut freed = 0;
        while self.used_bytes > self.budget_bytes && self.free_one() {
            freed += 1;
        }
        // What is to be exchanged is of less worth than what stays.
        let mut waiting: Vec<_> = self.loads.iter().map(|(part, _)| part.clone()).collect();
        let loading = self.in_flight.map(|load| load.number);
        let parts = version.runs.iter().flatten().flat_map(Run::parts);
        waiting.extend(parts.filter(|part| Some(part.number()) == loading).cloned());
        for part in waiting {
            if self.used_bytes > self.budget_bytes {
                freed += u64::from(self.clear(&part));
            }
        }
        freed
    }

    /// Takes the best load out of the list and the room for it; the part's present filter goes where there is
    /// no other room. Returns how many were freed too.
    pub fn begin_load(&mut self) -> (Option<(Part, Choice, u64)>, u64) {
        let Some((part, choice)) = self.loads.pop() else {
            return (None, 0);
        };
        if self.loads.is_empty() {
            // With many segments the list was long.
            self.loads = Vec::new();
        }
        let unit = Unit {
            records: part.meta().counts.records,
            ..Unit::default()
        };
        let bytes = unit.bytes(choice);
        let mut freed = 0;
        if !self.has_room(bytes) {
            freed = u64::from(self.clear(&part));
        }
        if !self.has_room(bytes) {
            // Not by this plan, whose loads follow its frees; the next one sees to it.
            return (None, freed);
        }
        self.used_bytes += bytes;
        self.in_flight = Some(InFlight {
            number: part.number(),
            choice,
            bytes,
            cancelled: false,
        });
        (Some((part, choice, bytes)), freed)
    }

    /// The next loads, best first, as many as are reserved for at once.
    pub fn next_loads(&self) -> impl Iterator<Item = NextLoad> {
        let loads = self.loads.iter().rev().take(LOADS_MAX);
        loads.map(|(part, choice)| NextLoad::of(part, *choice))
    }

    /// Whether the load in flight is wanted no more.
    pub fn is_cancelled(&self) -> bool {
        self.in_flight.is_some_and(|load| load.cancelled)
    }

    /// The load in flight is over and its memory is given back, or goes on as what `set` makes resident.
    pub fn end_load(&mut self) {
        if let Some(load) = self.in_flight.take() {
            self.used_bytes -= load.bytes;
        }
    }

    /// Makes a loaded filter resident. Returns whether there was another.
    pub fn set(&mut self, part: &Part, filter: Arc<ResidentFilter>) -> bool {
        let had = self.clear(part);
        self.keep(part, filter);
        had
    }

    /// A load failed and is to be tried again.
    pub fn put_back(&mut self, part: Part, choice: Choice) {
        if !self.stale {
            self.loads.push((part, choice));
        }
    }

    /// An alternative is not there; without one, none of the part's is.
    pub fn give_up(&mut self, part: &Part, choice: Option<Choice>) {
        let mask = choice.map_or(!1, |choice| 1 << choice);
        *self.given_up.entry(part.number()).or_default() |= mask;
        self.stale = true;
    }

    /// The parts of a version, newest first, and what the planner wants to know of them.
    fn units(&self, version: &Version) -> (Vec<Part>, Vec<Unit>) {
        let count = version.runs.iter().flatten().map(|run| run.parts().len());
        let count = rounded(count.sum());
        let (mut parts, mut units) = (Vec::with_capacity(count), Vec::with_capacity(count));
        let [first, second] = version.runs.each_ref();
        let (mut first, mut second) = (of_kind(first).peekable(), of_kind(second).peekable());
        while let Some((run, newer_segments)) = newer_of(&mut first, &mut second) {
            for part in run.parts() {
                parts.push(part.clone());
                units.push(self.unit(run, part, newer_segments));
            }
        }
        (parts, units)
    }

    fn unit(&self, run: &Run, part: &Part, newer_segments: u32) -> Unit {
        let arrivals = part.arrivals();
        // A part is asked for the hashes of its prefix alone.
        let assumed = (ARRIVALS_ASSUMED << 8) / run.parts().len().max(1) as u64;
        let stored = filter_bits_of(run).iter().copied().filter_map(choice_of);
        let stored = stored.fold(0, |mask, choice| mask | 1 << choice);
        let loading = self.in_flight.filter(|load| load.number == part.number());
        let loading = loading.filter(|load| !load.cancelled);
        Unit {
            records: part.meta().counts.records,
            weight: arrivals.saturating_mul(1 << 8).saturating_add(assumed),
            arrivals: arrivals.saturating_mul(self.sample),
            newer_segments,
            stored: stored & !self.given_up.get(&part.number()).unwrap_or(&0),
            resident: loading.map_or_else(|| resident_choice(part), |load| load.choice),
        }
    }
}

/// The runs of a kind, newest first, with the segments that are newer.
fn of_kind(runs: &[Run]) -> impl Iterator<Item = (&Run, u32)> {
    let mut newer = 0;
    runs.iter().map(move |run| {
        let before = newer;
        newer += run.segments().len() as u32;
        (run, before)
    })
}

/// The newer head of two lists.
fn newer_of<'a, I: Iterator<Item = (&'a Run, u32)>, J: Iterator<Item = (&'a Run, u32)>>(
    first: &mut Peekable<I>,
    second: &mut Peekable<J>,
) -> Option<(&'a Run, u32)> {
    let newest = |head: Option<&(&'a Run, u32)>| head.map(|(run, _)| run.generations().1);
    match newest(first.peek()) > newest(second.peek()) {
        true => first.next(),
        false => second.next(),
    }
}

/// What a part has in memory.
fn resident_choice(part: &Segment) -> Choice {
    part.filter_bits().and_then(choice_of).unwrap_or(0)
}

/// Counted lookups of a run: each of them met one of its parts.
pub(crate) fn arrivals_of(run: &Run) -> u64 {
    run.parts().iter().map(|part| part.arrivals()).sum()
}

/// A fresh segment is asked what the newest run of its kind was asked.
fn take_over_arrivals(version: &Version, segment: &Part) {
    let kind = segment.meta().identity.kind;
    let runs = &version.runs[usize::from(kind.code())];
    let other = |run: &&Run| !run.parts().iter().any(|part| Arc::ptr_eq(part, segment));
    if let Some(run) = runs.iter().find(other) {
        segment.add_arrivals(arrivals_of(run));
    }
}

/// Reads in vain that a lookup of an absent key is expected to cost, by kind, in millionths: one for each run
/// without a filter, else as often as the filter is wrong.
pub(crate) fn false_reads_ppm(version: &Version) -> [u64; 2] {
    KeyspaceKind::ALL.map(|kind| {
        let runs = version.runs[usize::from(kind.code())].iter();
        let of_part = |part: &Part| match part.meta().counts.records {
            0 => 0,
            _ => FALSE_PPM[usize::from(resident_choice(part))],
        };
        let of_run = |run: &Run| {
            let parts = run.parts();
            parts.iter().map(of_part).sum::<u64>() / parts.len().max(1) as u64
        };
        runs.map(of_run).sum()
    })
}
