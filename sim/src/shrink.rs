//! Makes a failing run small, on the list of its choices.
//!
//! Zero is the simplest choice and a list that ends goes on in zeros, so a list gets simpler by cutting
//! its end, deleting a part, and making numbers smaller. A change stays if the run still breaks the same
//! rule. What a run drew is recorded anew each time, so lists lose what nobody reads. Ends at a fixed
//! point or after a number of runs.

use crate::choices::{Choices, Recording};
use crate::life::{RunLimits, RunReport, run};
use crate::subject::Subject;

/// Runs after which shrinking ends.
const RUNS_MAX: u32 = 6000;

/// A failing run, and how it was made smaller.
pub struct Shrunk {
    /// The choices.
    pub recording: Recording,
    /// What they come to.
    pub report: RunReport,
    /// Runs it took.
    pub runs: u32,
}

struct Shrinker<'a, S: Subject> {
    base: &'a S::Options,
    limits: RunLimits,
    rule: &'static str,
    best: Shrunk,
}

/// Makes a failing run smaller; `None` if it does not fail.
pub fn shrink<S: Subject>(
    recording: Recording,
    base: &S::Options,
    limits: &RunLimits,
) -> Option<Shrunk> {
    let report = run::<S>(Choices::recorded(recording), base, limits);
    let rule = report.failure.as_ref()?.violation.rule;
    let mut shrinker = Shrinker::<S> {
        base,
        limits: *limits,
        rule,
        best: Shrunk {
            recording: report.recording.clone(),
            report,
            runs: 1,
        },
    };
    while shrinker.round() && shrinker.best.runs < RUNS_MAX {}
    Some(shrinker.best)
}

impl<S: Subject> Shrinker<'_, S> {
    /// One pass over all lists; whether anything got smaller.
    fn round(&mut self) -> bool {
        let before = size(&self.best.recording);
        for list in 0..self.best.recording.lists.len() {
            self.cut_end(list);
            self.delete_parts(list);
            self.lower(list);
        }
        size(&self.best.recording) < before
    }

    fn length(&self, list: usize) -> usize {
        self.best.recording.lists[list].len()
    }

    /// Keeps the edited choices if they break the same rule and are smaller.
    fn accept(&mut self, edited: Recording) -> bool {
        if self.best.runs >= RUNS_MAX {
            return false;
        }
        self.best.runs += 1;
        let report = run::<S>(Choices::recorded(edited), self.base, &self.limits);
        let same = report
            .failure
            .as_ref()
            .is_some_and(|failure| failure.violation.rule == self.rule);
        let smaller = size(&report.recording) < size(&self.best.recording);
        if same && smaller {
            self.best.recording = report.recording.clone();
            self.best.report = report;
        }
        same && smaller
    }

    fn cut_end(&mut self, list: usize) {
        let mut cut = self.length(list);
        while cut > 0 {
            let mut edited = self.best.recording.clone();
            let left = edited.lists[list].len().saturating_sub(cut);
            // What is cut reads as zero.
            edited.lists[list].truncate(left);
            if !self.accept(edited) {
                cut /= 2;
            }
        }
    }

    fn delete_parts(&mut self, list: usize) {
        let mut part = self.length(list) / 2;
        while part > 0 {
            let mut at = 0;
            while at + part <= self.length(list) {
                let mut edited = self.best.recording.clone();
                edited.lists[list].drain(at..at + part);
                if !self.accept(edited) {
                    at += part;
                }
                if self.best.runs >= RUNS_MAX {
                    return;
                }
            }
            part /= 2;
        }
    }

    fn lower(&mut self, list: usize) {
        for at in 0..self.length(list) {
            for smaller in [|_: u32| 0, |value: u32| value / 2, |value: u32| value - 1] {
                let Some(value) = self.best.recording.lists[list].get(at).copied() else {
                    return;
                };
                if value == 0 {
                    break;
                }
                let mut edited = self.best.recording.clone();
                edited.lists[list][at] = smaller(value);
                self.accept(edited);
            }
        }
    }
}

/// Fewer choices are simpler, then smaller ones.
fn size(recording: &Recording) -> (usize, u64) {
    let choices = recording.lists.iter();
    let used = |list: &Vec<u32>| list.iter().filter(|value| **value != 0).count();
    let sum = recording
        .lists
        .iter()
        .flatten()
        .map(|v| u64::from(*v))
        .sum();
    (choices.map(|list| list.len() + 4 * used(list)).sum(), sum)
}
