//! What follows from the figures: root causes, gates on site and total, how many runs a rate needs.
//!
//! Counts are exact: any difference is one. Rates are not: two arms of n runs differ by chance by up to
//! 1.96 sqrt(2 / n) times the spread between equal runs, nineteen times out of twenty.

use super::gopool::{CLASSES, ENTRY_BYTES, entries_of};
use super::replay::Outcome;

/// A normal deviate that is passed on neither side in 95 of 100 cases, and one with 80 below it.
const TWO_SIDED_95: f64 = 1.96;
const ONE_SIDED_80: f64 = 0.84;

/// The difference that two arms of `runs` runs each reach by chance, in per cent, at this spread.
pub fn band(cv: f64, runs: u32) -> f64 {
    TWO_SIDED_95 * cv * (2.0 / f64::from(runs.max(1))).sqrt()
}

/// The spread between equal runs from which on one run each says nothing about this effect.
pub fn hidden_by(effect: f64) -> f64 {
    effect.abs() / band(1.0, 1)
}

/// Runs an arm so that a difference of `effect` per cent is outside the band; with `power`, so that it
/// is found four times out of five.
pub fn runs_needed(cv: f64, effect: f64, power: bool) -> u64 {
    let deviates = TWO_SIDED_95 + if power { ONE_SIDED_80 } else { 0.0 };
    (2.0 * (deviates * cv / effect).powi(2)).ceil() as u64
}

/// What a rate of one run each says.
pub fn rate_verdict(effect: f64, cv: f64, runs: u32) -> String {
    let band = band(cv, runs);
    let (verdict, within) = match effect.abs() > band {
        true if runs >= 2 => ("decided", "outside"),
        true => ("inconclusive", "outside, but of one run each,"),
        false => ("inconclusive", "inside"),
    };
    let needed = runs_needed(cv, effect.abs().max(0.01), false).max(2);
    format!(
        "{effect:+.2}% is {within} the band of +-{band:.1}%: {verdict}, needs {needed} runs an arm"
    )
}

/// Whether a change is worth a run of the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// Site and total fall.
    Accept,
    /// The site falls, the total rises: it only moved.
    Moved,
    /// Nothing changes.
    NoEffect,
    /// The site rises.
    Worse,
}

impl Gate {
    /// The words for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Accept => "pass",
            Self::Moved => "FAIL: the site falls and the total rises",
            Self::NoEffect => "no effect: not the binding limit",
            Self::Worse => "FAIL: the site rises",
        }
    }
}

/// Judges a change of the site and of the total, in per cent.
pub fn gate(site: f64, total: f64) -> Gate {
    if site.abs() < 0.05 {
        Gate::NoEffect
    } else if site > 0.0 {
        Gate::Worse
    } else if total > 0.0 {
        Gate::Moved
    } else {
        Gate::Accept
    }
}

/// Why a class is allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Slices that will be asked for again are dropped.
    PoolMiss,
    /// Requests are larger than the work.
    OversizeClass,
    /// What is copied into slices could be read where it is.
    DuplicateMaterialisation,
    /// The bytes have to be somewhere.
    RequiredCopy,
    /// Only the benchmark has it.
    BenchmarkShape,
}

impl Cause {
    /// All, in the order of their numbers.
    pub const ALL: [Self; 5] = [
        Self::PoolMiss,
        Self::OversizeClass,
        Self::DuplicateMaterialisation,
        Self::RequiredCopy,
        Self::BenchmarkShape,
    ];

    /// The words for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::PoolMiss => "pool miss or drop",
            Self::OversizeClass => "oversize class",
            Self::DuplicateMaterialisation => "duplicate materialisation",
            Self::RequiredCopy => "required copy",
            Self::BenchmarkShape => "benchmark shape",
        }
    }

    /// What to do about it, where `limit` is the one that binds.
    pub fn action(self, limit: &str) -> &'static str {
        match (self, limit) {
            (Self::PoolMiss, "trim") => {
                "take trims off the checkpoint's path, or give each owner a floor"
            }
            (Self::PoolMiss, "cap") => "raise the cap",
            (Self::PoolMiss, "budget") => "raise the budget, or give each class a share of its own",
            (Self::PoolMiss, _) => "keep large slices for large requests",
            (Self::OversizeClass, _) => "ask for what the unit holds",
            (Self::DuplicateMaterialisation, _) => "merge from the sources as they are",
            (Self::RequiredCopy, _) => "reserve it once: no pool can remove it",
            (Self::BenchmarkShape, _) => "change nothing: the node never reaches that limit",
        }
    }
}

/// The verdict on one class of a trace.
#[derive(Clone, Debug, PartialEq)]
pub struct ClassVerdict {
    /// Entries of its slices.
    pub class: u64,
    /// Fresh bytes of the base.
    pub fresh_bytes: u64,
    /// Of these, the share that goes when that cause is taken away, by cause. What is required is what
    /// even a pool that drops nothing allocates; of the benchmark's shape is what goes when the limit
    /// that binds in the benchmark is lifted here: little means that the benchmark shows something else.
    pub shares: [f64; Cause::ALL.len()],
    /// The cause: the one with the largest share; among equals what makes the others go as well.
    pub cause: Cause,
}

/// The counterfactuals that a class is judged by.
pub struct Evidence<'a> {
    /// The base.
    pub base: &'a Outcome,
    /// A pool that keeps all that will be asked for again.
    pub oracle: &'a Outcome,
    /// With requests sized by the work.
    pub exact: &'a Outcome,
    /// Without build slices.
    pub streaming: &'a Outcome,
    /// With the limit lifted that binds in the micro-benchmark.
    pub bench_limit_lifted: &'a Outcome,
}

/// Shares so close that they are the same.
const TIE: f64 = 0.02;

/// A verdict for each class that allocates at least a thousandth of the bytes.
pub fn classes(evidence: &Evidence<'_>) -> Vec<ClassVerdict> {
    let bytes = |outcome: &Outcome, class: usize| {
        outcome.counters.fresh[class] * entries_of(class) * ENTRY_BYTES
    };
    let total = evidence.base.counters.fresh_bytes;
    let judged = (0..CLASSES).filter(|&class| bytes(evidence.base, class) * 1000 >= total.max(1));
    judged
        .map(|class| {
            let base = bytes(evidence.base, class);
            let gone = |other: &Outcome| {
                // Bytes that only went to another class are not gone.
                let others = other.counters.fresh_bytes - bytes(other, class);
                let moved = others.saturating_sub(total - base);
                let left = bytes(other, class) + moved;
                1.0 - left.min(base) as f64 / base as f64
            };
            let shares = [
                gone(evidence.oracle),
                gone(evidence.exact),
                gone(evidence.streaming),
                1.0 - gone(evidence.oracle),
                gone(evidence.bench_limit_lifted),
            ];
            ClassVerdict {
                class: entries_of(class),
                fresh_bytes: base,
                cause: largest(&shares),
                shares,
            }
        })
        .collect()
}

/// Among equal shares: what removes the copy removes the request and the miss with it.
fn largest(shares: &[f64; Cause::ALL.len()]) -> Cause {
    let most = shares[..Cause::RequiredCopy as usize]
        .iter()
        .copied()
        .fold(0.0, f64::max);
    let order = [
        Cause::DuplicateMaterialisation,
        Cause::OversizeClass,
        Cause::PoolMiss,
    ];
    let enough = most > shares[Cause::RequiredCopy as usize];
    let found = order
        .into_iter()
        .find(|cause| enough && shares[*cause as usize] >= most - TIE);
    found.unwrap_or(Cause::RequiredCopy)
}

/// What a gain in the benchmark is worth in the trace: the shape of the benchmark, if another limit binds
/// there than here; else whatever the trace's own verdict says.
pub fn benchmark(bench: &Outcome, trace: &Outcome) -> Option<Cause> {
    (bench.binding().0 != trace.binding().0).then_some(Cause::BenchmarkShape)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// At a spread of 2% one run each says nothing below 5.5%; 2% take eight runs, or sixteen.
    #[test]
    fn runs_follow_from_the_spread() {
        assert!((band(2.0, 1) - 5.54).abs() < 0.01);
        assert_eq!(runs_needed(2.01, 2.0, false), 8);
        assert_eq!(runs_needed(2.01, 2.0, true), 16);
        assert!((band(hidden_by(6.76), 1) - 6.76).abs() < 0.001);
        assert!(rate_verdict(-2.31, 2.01, 1).contains("inconclusive"));
        assert!(rate_verdict(-9.0, 2.01, 1).contains("inconclusive"));
        assert!(rate_verdict(-9.0, 2.01, 2).contains("decided"));
    }

    #[test]
    fn a_site_that_falls_while_the_total_rises_fails() {
        assert_eq!(gate(-11.59, 6.76), Gate::Moved);
        assert_eq!(gate(-11.59, -0.8), Gate::Accept);
        assert_eq!(gate(0.0, 3.0), Gate::NoEffect);
        assert_eq!(gate(4.0, -1.0), Gate::Worse);
    }

    #[test]
    fn the_cause_is_what_removes_most() {
        let cause = |shares| largest(&shares);
        assert_eq!(
            cause([0.99, 0.88, 0.995, 0.01, 0.0]),
            Cause::DuplicateMaterialisation
        );
        assert_eq!(cause([0.9, 0.2, 0.3, 0.1, 0.9]), Cause::PoolMiss);
        assert_eq!(cause([0.2, 0.8, 0.3, 0.1, 0.0]), Cause::OversizeClass);
        assert_eq!(cause([0.1, 0.1, 0.1, 0.9, 0.1]), Cause::RequiredCopy);
        assert_eq!(cause([0.0, 0.0, 0.0, 1.0, 0.0]), Cause::RequiredCopy);
    }
}
