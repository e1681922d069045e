//! Models of [`Signal`], and what all models share.
//!
//! Each model was seen to fail under a change of the code that it is about:
//! * `loom_no_raise_is_lost`: `raise` wakes before it counts; `raise` without `notify_all`; `block` waits
//!   before it compares the count.

use std::sync::atomic::{AtomicU64, Ordering as StdOrdering};
use std::time::Duration;

use super::{Arc, AtomicBool, Ordering, Signal};
use crate::env::Clock;

/// A clock that blocks, while time stands still.
#[derive(Debug)]
pub(crate) struct Parking;

impl Clock for Parking {
    fn monotonic(&self) -> Duration {
        Duration::ZERO
    }
    fn wall_ms(&self) -> u64 {
        0
    }
    fn wait(&self, signal: &Signal, seen: u64, until: Option<Duration>) {
        signal.block(seen, until);
    }
}

/// What the executions of a model came to, over all of them.
pub(crate) struct Outcomes {
    counts: Vec<AtomicU64>,
}

impl Outcomes {
    /// One execution came to this.
    pub fn saw(&self, outcome: usize) {
        self.counts[outcome].fetch_add(1, StdOrdering::Relaxed);
    }
}

/// Words of a thread's stack: loom's own, 4,096, are less than what opening a store takes in a build without
/// optimizations.
const STACK_WORDS: usize = 0x8000;

/// A thread of a model, with room for the engine.
pub(crate) fn spawn<T: Send + 'static>(
    act: impl FnOnce() -> T + Send + 'static,
) -> loom::thread::JoinHandle<T> {
    let builder = loom::thread::Builder::new().stack_size(STACK_WORDS);
    builder.spawn(act).expect("a thread")
}

/// Explores all interleavings with at most `preemptions` switches that no thread asked for. Each of the
/// `outcomes` must come up: a model in which nothing meets shows nothing.
pub(crate) fn explore(
    name: &str,
    preemptions: usize,
    outcomes: usize,
    model: impl Fn(&Outcomes) + Send + Sync + 'static,
) {
    let seen = std::sync::Arc::new(Outcomes {
        counts: (0..outcomes).map(|_| AtomicU64::new(0)).collect(),
    });
    let executions = std::sync::Arc::new(AtomicU64::new(0));
    let (seen_there, executions_there) = (seen.clone(), executions.clone());
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 100_000;
    // The first thread only waits for the model's.
    builder.max_threads = 5;
    let model = std::sync::Arc::new(model);
    builder.check(move || {
        executions_there.fetch_add(1, StdOrdering::Relaxed);
        let (model, seen) = (model.clone(), seen_there.clone());
        spawn(move || model(&seen)).join().expect("holds");
    });
    let counts: Vec<u64> = seen
        .counts
        .iter()
        .map(|count| count.load(StdOrdering::Relaxed))
        .collect();
    println!("{name}: {executions:?} executions, outcomes {counts:?}");
    assert!(counts.iter().all(|count| *count > 0), "{name}: {counts:?}");
}

#[test]
fn loom_no_raise_is_lost() {
    explore("signal", 3, 2, |seen| {
        let signal = Arc::new(Signal::new());
        let ready = Arc::new(AtomicBool::new(false));
        let waiters: Vec<_> = (0..2)
            .map(|_| {
                let (signal, ready) = (signal.clone(), ready.clone());
                loom::thread::spawn(move || {
                    let mut waits = 0;
                    loop {
                        let count = signal.count();
                        if ready.load(Ordering::Relaxed) {
                            return waits;
                        }
                        waits += 1;
                        signal.block(count, None);
                    }
                })
            })
            .collect();
        ready.store(true, Ordering::Relaxed);
        signal.raise();
        let waits: u32 = waiters.into_iter().map(|w| w.join().expect("ends")).sum();
        assert_eq!(signal.count(), 1);
        seen.saw(usize::from(waits > 0));
    });
}
