//! Counters: always on, relaxed, read by `stats()`.

use crate::engine::waiting::StallCause;
use crate::segment::ReadCounts;
use crate::sync::{AtomicU8, AtomicU64, Ordering, StaticU64};

/// A number that only grows.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Stripes of the lookup counters: all but the last belong to one thread each, as long as it lives.
const STRIPES: usize = 16;

/// The stripe of all threads that found no other.
const SHARED: usize = STRIPES - 1;

/// What lookups count. Each thread has its stripe, on cache lines of its own: one counter for all would
/// be what lookups of several threads wait for.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct LookupStripe {
    pub lookups: Counter,
    pub reads: Counter,
    pub read_bytes: Counter,
    pub mapped_reads: Counter,
    pub mapped_bytes: Counter,
    pub candidates: Counter,
    pub false_candidates: Counter,
    pub filter_tests: Counter,
    pub window_hits: Counter,
    pub window_false_candidates: Counter,
    pub window_runs_skipped: Counter,
    /// How much the last lookups looked like hits in the window table, up to [`WINDOW_HABIT_MAX`].
    window_habit: AtomicU8,
}

/// The strongest habit.
const WINDOW_HABIT_MAX: u8 = 15;

/// A thread's stripe of the lookup counters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnStripe<'a> {
    stripe: &'a LookupStripe,
    /// Nobody else counts in it.
    alone: bool,
}

impl OwnStripe<'_> {
    /// Adds to a counter of it. Whoever is alone needs no locked instruction: there are five counts to a hit,
    /// 5 to 8 ns each.
    #[inline]
    pub fn add(self, counter: impl Fn(&LookupStripe) -> &Counter, count: u64) {
        let Counter(number) = counter(self.stripe);
        match self.alone {
            true => number.store(
                number.load(Ordering::Relaxed).wrapping_add(count),
                Ordering::Relaxed,
            ),
            false => {
                number.fetch_add(count, Ordering::Relaxed);
            }
        }
    }

    /// Whether the next lookup is probably one that the window table answers: then it need not ask for
    /// filters' cache lines beforehand. A guess, which changes no answer and no count.
    #[inline]
    pub fn expects_window_hit(self) -> bool {
        self.stripe.window_habit.load(Ordering::Relaxed) > WINDOW_HABIT_MAX / 2
    }

    /// Learns from a lookup. Those that the table does not answer count twice: a wrong guess costs them
    /// more than a right one saves the others.
    #[inline]
    pub fn learn_window_hit(self, hit: bool) {
        let habit = self.stripe.window_habit.load(Ordering::Relaxed);
        let next = match hit {
            true => (habit + 1).min(WINDOW_HABIT_MAX),
            false => habit.saturating_sub(2),
        };
        if next != habit {
            self.stripe.window_habit.store(next, Ordering::Relaxed);
        }
    }
}

/// The stripes that threads have, a bit each.
static TAKEN: StaticU64 = StaticU64::new(1 << SHARED);

/// A thread's right to a stripe, given back when the thread ends.
struct Claim(usize);

impl Claim {
    fn new() -> Self {
        // What acquires the bit sees what its last owner counted.
        let take = |taken: u64| Some(taken | (taken + 1));
        let before = TAKEN.fetch_update(Ordering::Acquire, Ordering::Relaxed, take);
        let free = before.unwrap_or_else(|taken| taken).trailing_ones() as usize;
        Self(free.min(SHARED))
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if self.0 < SHARED {
            TAKEN.fetch_and(!(1 << self.0), Ordering::Release);
        }
    }
}

/// Which stripe a thread counts in, and whether alone. The threads of a model are one to the system.
#[inline]
fn stripe_of_thread() -> (usize, bool) {
    thread_local! {
        static OWN: Claim = Claim::new();
    }
    let own = OWN.try_with(|own| own.0).unwrap_or(SHARED);
    (own, own < SHARED && !cfg!(loom))
}

/// What the engine counts.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    lookup_stripes: [LookupStripe; STRIPES],
    /// Lookups that asked segments in place of their run's index.
    pub damaged_indexes: Counter,
    pub scan_reads: Counter,
    pub scan_bytes: Counter,
    pub commits: Counter,
    pub commit_records: Counter,
    pub groups: Counter,
    pub log_copied_bytes: Counter,
    pub output_copied_bytes: Counter,
    pub log_syncs: Counter,
    pub seal_syncs: Counter,
    pub flush_syncs: Counter,
    pub seals: Counter,
    pub flushed_segments: Counter,
    pub flush_retries: Counter,
    pub submit_restarts: Counter,
    pub busy: Counter,
    pub stalls: Counter,
    pub stalls_by_cause: [Counter; StallCause::ALL.len()],
    pub stalled_writes: Counter,
    pub stall_ns: Counter,
    pub unlinks: Counter,
    pub unlink_failures: Counter,
    pub filter_reads: Counter,
    pub window_reads: Counter,
    pub filter_loads: Counter,
    /// Lookups that were counted at the parts where they ended in vain.
    pub sampled: Counter,
    /// Those parts of them that had no filter.
    pub filter_ghosts: Counter,
    pub filter_frees: Counter,
    pub folds: Counter,
    pub fold_bytes: Counter,
    pub fold_reads: Counter,
    pub fold_syncs: Counter,
    pub fold_retries: Counter,
    pub manifest_edits: Counter,
    pub manifest_rolls: Counter,
}

impl Counters {
    /// Adds what a step of a scan did.
    pub fn add_scan(&self, counts: &ReadCounts) {
        if counts.reads > 0 {
            self.scan_reads.add(counts.reads);
            self.scan_bytes.add(counts.bytes);
        }
    }

    /// The lookup counters of this thread.
    #[inline]
    pub fn of_lookups(&self) -> OwnStripe<'_> {
        let (own, alone) = stripe_of_thread();
        OwnStripe {
            stripe: &self.lookup_stripes[own],
            alone,
        }
    }

    /// A lookup counter over all threads.
    pub fn lookup_sum(&self, counter: impl Fn(&LookupStripe) -> &Counter) -> u64 {
        self.lookup_stripes
            .iter()
            .map(|stripe| counter(stripe).get())
            .sum()
    }
}

impl OwnStripe<'_> {
    /// Adds what one lookup did; nothing is written for a lookup that met no run.
    pub fn add_lookup(self, counts: &ReadCounts) {
        let own = self;
        if counts.filter_tests > 0 {
            own.add(|it| &it.filter_tests, counts.filter_tests);
        }
        if counts.window_runs_skipped > 0 {
            own.add(|it| &it.window_runs_skipped, counts.window_runs_skipped);
        }
        if counts.window_hits + counts.window_false_candidates > 0 {
            own.add(|it| &it.window_hits, counts.window_hits);
            let wrong = counts.window_false_candidates;
            own.add(|it| &it.window_false_candidates, wrong);
        }
        if counts.mapped_reads > 0 {
            own.add(|it| &it.mapped_reads, counts.mapped_reads);
            own.add(|it| &it.mapped_bytes, counts.mapped_bytes);
        }
        if counts.reads > 0 {
            own.add(|it| &it.reads, counts.reads);
            own.add(|it| &it.read_bytes, counts.bytes);
        }
        if counts.candidates > 0 {
            own.add(|it| &it.candidates, counts.candidates);
            own.add(|it| &it.false_candidates, counts.false_candidates);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    #[allow(clippy::disallowed_methods, reason = "a test of threads")]
    fn threads_lose_no_count_however_many_there_are() {
        let counters = Counters::default();
        for _ in 0..3 {
            // More than stripes, and as many again once they are gone.
            std::thread::scope(|scope| {
                for _ in 0..3 * STRIPES {
                    scope.spawn(|| {
                        for _ in 0..1000 {
                            counters.of_lookups().add(|it| &it.reads, 2);
                        }
                    });
                }
            });
        }
        let counted = counters.lookup_sum(|it| &it.reads);
        assert_eq!(counted, 3 * 3 * STRIPES as u64 * 2000);
    }

    #[test]
    fn a_habit_takes_eight_hits_and_is_lost_in_four_misses() {
        let counters = Counters::default();
        let own = counters.of_lookups();
        let mut took = 0;
        while !own.expects_window_hit() {
            own.learn_window_hit(true);
            took += 1;
        }
        assert_eq!(took, 8);
        (0..100).for_each(|_| own.learn_window_hit(true));
        (0..3).for_each(|_| own.learn_window_hit(false));
        assert!(own.expects_window_hit());
        own.learn_window_hit(false);
        assert!(!own.expects_window_hit());
    }
}
