//! The largest single allocation, so that a length that lies is noticed before memory is gone; and what a
//! thread keeps.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static LARGEST: Cell<usize> = const { Cell::new(0) };
    static KEPT: Cell<i64> = const { Cell::new(0) };
}

struct Watched;

// SAFETY: every call goes to the system's allocator as it is.
unsafe impl GlobalAlloc for Watched {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(0, layout.size());
        // SAFETY: the caller's promises are the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(0, layout.size());
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note(layout.size(), size);
        // SAFETY: as above.
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        note(layout.size(), 0);
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Watched = Watched;

fn note(freed: usize, taken: usize) {
    // A thread that is ending has no cells any more.
    let _ = LARGEST.try_with(|largest| largest.set(largest.get().max(taken)));
    let _ = KEPT.try_with(|kept| kept.set(kept.get() + taken as i64 - freed as i64));
}

/// Runs something; the bytes that this thread holds more than before.
pub fn kept_after<T>(work: impl FnOnce() -> T) -> (T, i64) {
    let before = KEPT.get();
    let result = work();
    (result, KEPT.get() - before)
}

/// Runs something; the largest allocation of this thread meanwhile.
pub fn largest_during<T>(work: impl FnOnce() -> T) -> (T, usize) {
    LARGEST.set(0);
    let result = work();
    (result, LARGEST.get())
}

#[test]
fn large_allocations_are_seen() {
    let ((), largest) = largest_during(|| drop(vec![1_u8; 3 << 20]));
    assert!((3 << 20..4 << 20).contains(&largest));
    let (kept, bytes) = kept_after(|| vec![1_u8; 1 << 20]);
    assert!((1 << 20..2 << 20).contains(&bytes));
    let ((), bytes) = kept_after(|| drop(kept));
    assert!(bytes <= -(1 << 20));
}
