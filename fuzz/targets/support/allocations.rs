//! The largest allocation of each thread: bytes from a disk must not decide how much memory is asked for.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator, watched.
#[derive(Debug)]
struct Watching;

#[global_allocator]
static WATCHING: Watching = Watching;

thread_local! {
    static LARGEST: Cell<usize> = const { Cell::new(0) };
}

fn watch(bytes: usize) {
    // A thread that is being torn down allocates unwatched.
    let _ = LARGEST.try_with(|largest| largest.set(largest.get().max(bytes)));
}

// SAFETY: every call goes to the system's allocator as it came; watching touches a plain thread-local
// that needs no memory of its own.
unsafe impl GlobalAlloc for Watching {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        watch(layout.size());
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        watch(layout.size());
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        watch(bytes);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.realloc(pointer, layout, bytes) }
    }
}

/// Runs `work` and fails if it asked for more than `most` bytes at once.
pub fn bounded<T>(most: usize, work: impl FnOnce() -> T) -> T {
    LARGEST.set(0);
    let result = work();
    let largest = LARGEST.get();
    assert!(
        largest <= most,
        "an allocation of {largest} bytes, more than {most}"
    );
    result
}
