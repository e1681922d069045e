//! Counts allocations: of each thread, what a lookup or a write asks of the allocator, and by site, what a
//! whole run does.
//!
//! A site is a label that the harness puts on its own thread while it does one thing ([`at`]). Threads without
//! a label are counted together under [`Site::Background`], as long as somebody wants that ([`watch_threads`]):
//! labelled threads touch nothing shared, so their counts are exact and cost as much as before.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// What a labelled thread is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Site {
    /// A thread that has no label.
    Background,
    /// Making input, counting, checking.
    Harness,
    /// Collecting operations into a batch: memory of the caller.
    Batch,
    /// Committing a batch of more operations than the store keeps lists for.
    WriteLarge,
    /// Committing another batch; where the store has no threads, also what a writer that waits does for it.
    Write,
    /// Looking keys up.
    Read,
    /// A checkpoint.
    Checkpoint,
    /// Asking which jobs there are to do.
    Schedule,
    /// `Job::Flush`: writing and installing segments.
    Flush,
    /// `Job::Retire`.
    Retire,
    /// `Job::LoadFilter`.
    LoadFilter,
    /// `Job::Fold`: merging and installing indexes.
    Fold,
    /// `Job::Unlink`.
    Unlink,
    /// Any other job.
    OtherJob,
}

/// How many there are.
const SITES: usize = 14;

impl Site {
    /// All, in the order of their numbers.
    pub const ALL: [Self; SITES] = [
        Self::Background,
        Self::Harness,
        Self::Batch,
        Self::WriteLarge,
        Self::Write,
        Self::Read,
        Self::Checkpoint,
        Self::Schedule,
        Self::Flush,
        Self::Retire,
        Self::LoadFilter,
        Self::Fold,
        Self::Unlink,
        Self::OtherJob,
    ];

    /// The name in figures.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Background => "background",
            Self::Harness => "harness",
            Self::Batch => "batch",
            Self::WriteLarge => "write_large",
            Self::Write => "write",
            Self::Read => "read",
            Self::Checkpoint => "checkpoint",
            Self::Schedule => "schedule",
            Self::Flush => "flush",
            Self::Retire => "retire",
            Self::LoadFilter => "load_filter",
            Self::Fold => "fold",
            Self::Unlink => "unlink",
            Self::OtherJob => "other_job",
        }
    }
}

/// Allocations and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// Calls.
    pub calls: u64,
    /// Bytes asked for, in all.
    pub bytes: u64,
}

/// Of each site.
pub type BySite = [Taken; SITES];

/// The system's allocator, counting.
#[derive(Debug)]
pub struct Counting;

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
    static BYTES: Cell<u64> = const { Cell::new(0) };
    static FREED: Cell<u64> = const { Cell::new(0) };
    static SITE: Cell<Site> = const { Cell::new(Site::Background) };
    static SITE_COUNTS: [Cell<u64>; SITES] = const { [const { Cell::new(0) }; SITES] };
    static SITE_BYTES: [Cell<u64>; SITES] = const { [const { Cell::new(0) }; SITES] };
}

/// Whether threads without a label are counted.
static WATCHED: AtomicBool = AtomicBool::new(false);
static OTHERS_COUNT: AtomicU64 = AtomicU64::new(0);
static OTHERS_BYTES: AtomicU64 = AtomicU64::new(0);
static OTHERS_FREED: AtomicU64 = AtomicU64::new(0);

fn count(bytes: usize) {
    let bytes = bytes as u64;
    // A thread that is being torn down allocates uncounted.
    let _ = COUNT.try_with(|count| count.set(count.get() + 1));
    let _ = BYTES.try_with(|sum| sum.set(sum.get() + bytes));
    let site = SITE.try_with(Cell::get).unwrap_or(Site::Background);
    if site != Site::Background {
        let add = |cell: &Cell<u64>, more| cell.set(cell.get() + more);
        let _ = SITE_COUNTS.try_with(|counts| add(&counts[site as usize], 1));
        let _ = SITE_BYTES.try_with(|sums| add(&sums[site as usize], bytes));
    } else if WATCHED.load(Ordering::Relaxed) {
        OTHERS_COUNT.fetch_add(1, Ordering::Relaxed);
        OTHERS_BYTES.fetch_add(bytes, Ordering::Relaxed);
    }
}

fn uncount(bytes: usize) {
    let bytes = bytes as u64;
    let site = SITE.try_with(Cell::get).unwrap_or(Site::Background);
    if site != Site::Background {
        let _ = FREED.try_with(|sum| sum.set(sum.get() + bytes));
    } else if WATCHED.load(Ordering::Relaxed) {
        OTHERS_FREED.fetch_add(bytes, Ordering::Relaxed);
    }
}

// SAFETY: every call goes to the system's allocator as it came; counting touches plain thread-locals
// and atomics that need no memory of their own.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        uncount(layout.size());
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        uncount(layout.size());
        count(bytes);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.realloc(pointer, layout, bytes) }
    }
}

/// Allocations of this thread so far, and their bytes.
pub fn of_thread() -> (u64, u64) {
    (COUNT.get(), BYTES.get())
}

/// Labels this thread until the label is dropped; then the one before counts again.
#[must_use]
pub fn at(site: Site) -> Label {
    Label {
        before: SITE.replace(site),
    }
}

/// A label on a thread.
#[derive(Debug)]
pub struct Label {
    before: Site,
}

impl Drop for Label {
    fn drop(&mut self) {
        SITE.set(self.before);
    }
}

/// From here on threads without a label are counted, too.
pub fn watch_threads() {
    WATCHED.store(true, Ordering::Relaxed);
}

/// What this thread has taken under each label, and what all threads without one have.
pub fn by_site() -> BySite {
    let mut all = BySite::default();
    for (site, taken) in all.iter_mut().enumerate() {
        taken.calls = SITE_COUNTS.with(|counts| counts[site].get());
        taken.bytes = SITE_BYTES.with(|sums| sums[site].get());
    }
    all[Site::Background as usize] = Taken {
        calls: OTHERS_COUNT.load(Ordering::Relaxed),
        bytes: OTHERS_BYTES.load(Ordering::Relaxed),
    };
    all
}

/// Bytes that this thread has taken under labels and not given back under one; with `threads` also those of
/// all threads without a label.
pub fn live_bytes(threads: bool) -> u64 {
    let labelled: u64 = SITE_BYTES.with(|sums| sums.iter().map(Cell::get).sum());
    let live = labelled.wrapping_sub(FREED.get());
    if !threads {
        return live;
    }
    // What is freed here may have been taken there, or before anybody counted.
    let others = OTHERS_BYTES.load(Ordering::Relaxed);
    live.wrapping_add(others)
        .wrapping_sub(OTHERS_FREED.load(Ordering::Relaxed))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thousand() {
        drop(std::hint::black_box(Vec::<u8>::with_capacity(1000)));
    }

    #[test]
    fn allocations_are_counted() {
        let (count, bytes) = of_thread();
        thousand();
        let after = of_thread();
        assert_eq!(after.0, count + 1);
        assert_eq!(after.1, bytes + 1000);
    }

    #[test]
    fn allocations_have_the_label_of_their_moment() {
        let before = by_site();
        let outer = at(Site::Harness);
        thousand();
        {
            let _inner = at(Site::Flush);
            thousand();
            thousand();
        }
        thousand();
        drop(outer);
        thousand();
        let after = by_site();
        let taken = |site: Site| after[site as usize].bytes - before[site as usize].bytes;
        assert_eq!(taken(Site::Harness), 2000);
        assert_eq!(taken(Site::Flush), 2000);
        assert_eq!(taken(Site::Write), 0);
    }

    #[test]
    fn what_was_given_back_does_not_live() {
        let _label = at(Site::Harness);
        let before = live_bytes(false);
        let kept = std::hint::black_box(Vec::<u8>::with_capacity(5000));
        thousand();
        assert_eq!(live_bytes(false).wrapping_sub(before), 5000);
        drop(kept);
        assert_eq!(live_bytes(false), before);
    }

    #[test]
    fn sites_have_their_numbers_and_names() {
        let mut names: Vec<_> = Site::ALL.map(Site::name).to_vec();
        for (number, site) in Site::ALL.into_iter().enumerate() {
            assert_eq!(site as usize, number);
        }
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), SITES);
    }
}
