//! Live heap bytes, by thread: what a run really takes, whatever its own books say.
//!
//! [`Counted`] wraps an allocator and counts what each thread allocates and frees. What belongs to the
//! harness or to a disk in memory is allocated and freed inside [`apart`], which does not count; the rest
//! is the engine's. A binary that wants figures makes `Counted` its global allocator; [`is_counting`]
//! tells whether it did.
//!
//! Invariant: what is allocated inside `apart` is freed inside `apart`, on the same thread. What breaks
//! that shows as a figure that does not return to where it started.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;

/// An allocator that counts for another.
#[derive(Debug)]
pub struct Counted<A>(pub A);

struct Heap {
    live: Cell<i64>,
    peak: Cell<i64>,
    apart: Cell<u32>,
}

thread_local! {
    static HEAP: Heap = const {
        Heap { live: Cell::new(0), peak: Cell::new(0), apart: Cell::new(0) }
    };
}

fn count(bytes: i64) {
    // A thread that is being torn down allocates uncounted.
    let _ = HEAP.try_with(|heap| {
        if heap.apart.get() == 0 {
            let live = heap.live.get() + bytes;
            heap.live.set(live);
            if live > heap.peak.get() {
                heap.peak.set(live);
            }
        }
    });
}

// SAFETY: every call goes to the wrapped allocator as it came; counting touches plain thread-locals that
// need no memory of their own.
unsafe impl<A: GlobalAlloc> GlobalAlloc for Counted<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        // SAFETY: the caller's promise is passed on.
        unsafe { self.0.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        // SAFETY: the caller's promise is passed on.
        unsafe { self.0.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as i64));
        // SAFETY: the caller's promise is passed on.
        unsafe { self.0.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        count(bytes as i64 - layout.size() as i64);
        // SAFETY: the caller's promise is passed on.
        unsafe { self.0.realloc(pointer, layout, bytes) }
    }
}

/// Does something whose memory is not the engine's.
pub fn apart<T>(work: impl FnOnce() -> T) -> T {
    /// Ends it also when the work unwinds.
    struct Inside;
    impl Drop for Inside {
        fn drop(&mut self) {
            HEAP.with(|heap| heap.apart.set(heap.apart.get() - 1));
        }
    }
    HEAP.with(|heap| heap.apart.set(heap.apart.get() + 1));
    let _inside = Inside;
    work()
}

/// This thread's live bytes; only differences mean something.
pub fn live_bytes() -> i64 {
    HEAP.with(|heap| heap.live.get())
}

/// The most live bytes since the last call, which begins anew here.
pub fn take_peak_bytes() -> i64 {
    HEAP.with(|heap| heap.peak.replace(heap.live.get()))
}

/// Whether this process counts at all.
pub fn is_counting() -> bool {
    let before = live_bytes();
    let probe = std::hint::black_box(Box::new([0u8; 64]));
    let counted = live_bytes() > before;
    drop(probe);
    counted
}

#[cfg(test)]
mod tests {
    use std::alloc::System;

    use super::*;

    #[test]
    fn what_is_apart_is_not_counted() {
        let allocator = Counted(System);
        let layout = Layout::new::<[u64; 100]>();
        let before = live_bytes();
        take_peak_bytes();
        // SAFETY: the layout has bytes, and the pointer goes back with the layout it came from.
        let first = unsafe { allocator.alloc(layout) };
        assert_eq!(live_bytes() - before, 800);
        // SAFETY: as above.
        let second = apart(|| unsafe { allocator.alloc_zeroed(layout) });
        assert_eq!(live_bytes() - before, 800);
        // SAFETY: as above.
        apart(|| unsafe { allocator.dealloc(second, layout) });
        // SAFETY: as above.
        unsafe { allocator.dealloc(first, layout) };
        assert_eq!(live_bytes(), before);
        assert_eq!(take_peak_bytes() - before, 800);
        assert_eq!(take_peak_bytes(), before);
    }
}
