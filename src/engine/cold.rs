//! Cold reads of several runs at once: [`Options::cold_reads_ahead`](crate::Options::cold_reads_ahead).
//!
//! A lookup whose runs have no filters in memory reads an index page of each, one after the other, and where
//! the disk delivers them every one is a wait. With this option the system is told of all those pages before
//! the first is read (POSIX_FADV_WILLNEED), and the disk works on them at the same time: the lookup waits for
//! one of them, not for their sum. It is a hint: no answer, no count and no error depends on it, and there is
//! no thread and no second form of the lookup.
//!
//! Cost: a system call a page, half as long as reading one from the system's cache, for pages that a hit in a
//! newer run makes needless as well. So it is for disks that are slow, and off by default.

use crate::engine::Engine;
use crate::engine::filter_set::Answers;
use crate::engine::version::Run;
use crate::segment::{Filtered, ReadCounts, Wanted};

impl Engine {
    /// Asks for the pages of all runs from `from` on that may have the key, if there is more than one.
    pub fn ask_ahead(&self, runs: &[Run], from: usize, answers: &Answers, wanted: &Wanted<'_>) {
        let kind = self.keyspace_kind(wanted.keyspace);
        let candidates = || {
            let runs = runs.iter().enumerate().skip(from);
            runs.filter_map(|(place, run)| {
                let part = run.part(wanted.hash);
                let is_asked = run.kind() == kind && !part.is_newer_than(wanted.bound);
                // What is not counted here will be counted by the lookup.
                let filtered = || part.filter_may_contain(wanted.hash, &mut ReadCounts::default());
                let may = || answers.of(place).unwrap_or_else(filtered) != Filtered::No;
                (is_asked && may()).then_some(part)
            })
        };
        if candidates().nth(1).is_some() {
            candidates().for_each(|part| part.ask_for_page(wanted.hash));
        }
    }
}
