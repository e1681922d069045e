//! Counts the allocations of each thread: what a lookup or a write asks of the allocator.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator, counting.
#[derive(Debug)]
pub struct Counting;

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
    static BYTES: Cell<u64> = const { Cell::new(0) };
}

fn count(bytes: usize) {
    // A thread that is being torn down allocates uncounted.
    let _ = COUNT.try_with(|count| count.set(count.get() + 1));
    let _ = BYTES.try_with(|sum| sum.set(sum.get() + bytes as u64));
}

// SAFETY: every call goes to the system's allocator as it came; counting touches plain thread-locals
// that need no memory of their own.
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
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        count(bytes);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.realloc(pointer, layout, bytes) }
    }
}

/// Allocations of this thread so far, and their bytes.
pub fn of_thread() -> (u64, u64) {
    (COUNT.get(), BYTES.get())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocations_are_counted() {
        let (count, bytes) = of_thread();
        drop(std::hint::black_box(Vec::<u8>::with_capacity(1000)));
        let after = of_thread();
        assert_eq!(after.0, count + 1);
        assert_eq!(after.1, bytes + 1000);
    }
}
