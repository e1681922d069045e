//! A model of the driver: its threads park when idle and wake for work, and joining ends.
//!
//! It was seen to fail under these changes of `driver`: the count is read after the step; the place is
//! left (and the joiner woken) before the member is removed; no raise when a place is left.

use super::driver::ThreadDriver;
use crate::env::{Driver, Step, Work};
use crate::sync::loom_tests::{Parking, explore};
use crate::sync::{Arc, AtomicU32, Mutex, Ordering, Signal};

/// Tasks to take, then the word to stop.
#[derive(Default)]
struct Tasks {
    waiting: Mutex<(u32, bool)>,
    done: AtomicU32,
    idle: AtomicU32,
    signal: Signal,
}

impl Work for Tasks {
    fn step(&self) -> Step {
        let mut waiting = self.waiting.lock();
        match *waiting {
            (0, true) => Step::Stop,
            (0, false) => {
                self.idle.fetch_add(1, Ordering::Relaxed);
                Step::Idle(None)
            }
            _ => {
                waiting.0 -= 1;
                drop(waiting);
                self.done.fetch_add(1, Ordering::Relaxed);
                Step::Worked
            }
        }
    }
    fn signal(&self) -> &Signal {
        &self.signal
    }
}

#[test]
fn loom_parked_threads_wake_for_work_and_for_the_end() {
    explore("driver", 2, 2, |seen| {
        let work = Arc::new(Tasks::default());
        let driver = ThreadDriver::new(Arc::new(Parking));
        let handle = driver.start(2, work.clone()).expect("starts");
        work.waiting.lock().0 = 2;
        work.signal.raise();
        work.waiting.lock().1 = true;
        work.signal.raise();
        handle.join();
        assert_eq!(work.done.load(Ordering::Relaxed), 2);
        assert_eq!(Arc::strong_count(&work), 1);
        seen.saw(usize::from(work.idle.load(Ordering::Relaxed) > 0));
    });
}
