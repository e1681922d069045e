//! Threads that step an engine's background work.
//!
//! Each thread reads the signal's count, steps, and waits with the count it read when there was
//! nothing to do; so an event between the step and the wait is never lost. A step that panics ends
//! its thread and nothing else: the work is told, and [`DriverHandle::join`] does not wait for it.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the real backend is where threads are made"
)]

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::env::{Clock, Driver, DriverHandle, IoResult, Step, Work};
use crate::sync::thread::{self, JoinHandle, ThreadId};
use crate::sync::{Arc, AtomicBool, Mutex, Ordering, Signal};

/// A [`Driver`] of plain threads named `sealstone-0`, `sealstone-1` and so on.
#[derive(Debug)]
pub struct ThreadDriver {
    clock: Arc<dyn Clock>,
}

impl ThreadDriver {
    /// A driver whose idle threads wait by `clock`.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock }
    }
}

impl Driver for ThreadDriver {
    fn start(&self, threads: usize, work: Arc<dyn Work>) -> IoResult<Box<dyn DriverHandle>> {
        let crew = Arc::new(Crew::default());
        for index in 0..threads {
            crew.members.lock().insert(index, Member::default());
            let place = Place {
                crew: Arc::clone(&crew),
                index,
            };
            let (clock, work_here) = (Arc::clone(&self.clock), Arc::clone(&work));
            let spawned = thread::Builder::new()
                .name(format!("sealstone-{index}"))
                .spawn(move || place.run(clock.as_ref(), work_here));
            match spawned {
                Ok(handle) => crew.handles.lock().push(handle),
                Err(error) => {
                    // All or none. The place of the failed one went with its closure.
                    crew.abandoned.store(true, Ordering::Release);
                    work.signal().raise();
                    crew.join();
                    return Err(error.into());
                }
            }
        }
        Ok(Box::new(CrewHandle(crew)))
    }
}

/// The threads of one [`Driver::start`].
#[derive(Debug, Default)]
struct Crew {
    /// Those that have not ended.
    members: Mutex<BTreeMap<usize, Member>>,
    handles: Mutex<Vec<JoinHandle<()>>>,
    /// Raised when a member ends or begins to wait for the others.
    changed: Signal,
    /// Set when not all could be started: the others stop.
    abandoned: AtomicBool,
}

#[derive(Debug, Default)]
struct Member {
    /// Known once it runs.
    id: Option<ThreadId>,
    /// It waits for the others itself, and so they must not wait for it.
    joining: bool,
}

/// A member's place; dropping it, also by a panic, is the member's end.
#[derive(Debug)]
struct Place {
    crew: Arc<Crew>,
    index: usize,
}

impl Place {
    fn run(self, clock: &dyn Clock, work: Arc<dyn Work>) {
        if let Some(member) = self.crew.members.lock().get_mut(&self.index) {
            member.id = Some(thread::current().id());
        }
        while !self.crew.abandoned.load(Ordering::Acquire) {
            let seen = work.signal().count();
            match catch_unwind(AssertUnwindSafe(|| work.step())) {
                Ok(Step::Worked) => {}
                Ok(Step::Idle(until)) => clock.wait(work.signal(), seen, until),
                Ok(Step::Stop) => break,
                Err(_) => {
                    work.panicked();
                    break;
                }
            }
        }
        // Before `self` and with it the place goes: who has joined finds the work released.
        drop(work);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.crew.members.lock().remove(&self.index);
        self.crew.changed.raise();
    }
}

impl Crew {
    fn join(&self) {
        let me = Some(thread::current().id());
        let inside = self.begin_join(me);
        loop {
            let seen = self.changed.count();
            let waits_for = |member: &Member| member.id != me && !(inside && member.joining);
            if !self.members.lock().values().any(waits_for) {
                break;
            }
            self.changed.block(seen, None);
        }
        // Those that have left their place end at once; the rest is this thread, or one that joins.
        let running: Vec<_> = self
            .members
            .lock()
            .values()
            .map(|member| member.id)
            .collect();
        let handles = std::mem::take(&mut *self.handles.lock());
        for handle in handles {
            if !running.contains(&Some(handle.thread().id())) {
                let _ = handle.join();
            }
        }
    }

    /// Whether the caller is a member; if so the others learn that it waits.
    fn begin_join(&self, me: Option<ThreadId>) -> bool {
        let mut members = self.members.lock();
        let Some(member) = members.values_mut().find(|member| member.id == me) else {
            return false;
        };
        member.joining = true;
        drop(members);
        self.changed.raise();
        true
    }
}

#[derive(Debug)]
struct CrewHandle(Arc<Crew>);

impl DriverHandle for CrewHandle {
    fn join(&self) {
        self.0.join();
    }
}

#[cfg(test)]
mod tests {
    use super::super::clock::RealClock;
    use super::*;
    use crate::sync::{AtomicU32, OnceLock};

    type Act = Box<dyn Fn(u32) -> Step + Send + Sync>;

    /// Work made of a closure over the number of the call.
    struct Script {
        act: Act,
        calls: AtomicU32,
        panics: AtomicU32,
        signal: Signal,
    }

    impl Script {
        fn new(act: impl Fn(u32) -> Step + Send + Sync + 'static) -> Arc<Self> {
            Arc::new(Self {
                act: Box::new(act),
                calls: AtomicU32::new(0),
                panics: AtomicU32::new(0),
                signal: Signal::new(),
            })
        }
    }

    impl Work for Script {
        fn step(&self) -> Step {
            (self.act)(self.calls.fetch_add(1, Ordering::Relaxed))
        }
        fn signal(&self) -> &Signal {
            &self.signal
        }
        fn panicked(&self) {
            self.panics.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn driver() -> ThreadDriver {
        ThreadDriver::new(Arc::new(RealClock::new()))
    }

    #[test]
    fn threads_step_until_told_to_stop() {
        let work = Script::new(|call| {
            let name = thread::current().name().map(str::to_owned);
            assert!(name.is_some_and(|name| name.starts_with("sealstone-")));
            match call {
                0..50 => Step::Worked,
                _ => Step::Stop,
            }
        });
        let handle = driver().start(3, work.clone()).expect("starts");
        handle.join();
        assert_eq!(work.calls.load(Ordering::Relaxed), 53);
        assert_eq!(work.panics.load(Ordering::Relaxed), 0);
        // A second join finds nobody, and the threads hold the work no more.
        handle.join();
        assert_eq!(Arc::strong_count(&work), 1);
    }

    #[test]
    fn an_idle_thread_waits_for_the_signal() {
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let work = Script::new(move |_| match told.load(Ordering::Acquire) {
            true => Step::Stop,
            false => Step::Idle(None),
        });
        let handle = driver().start(2, work.clone()).expect("starts");
        while work.calls.load(Ordering::Relaxed) < 2 {
            thread::yield_now();
        }
        // Idle threads do not spin; a few steps more may be under way.
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert!(work.calls.load(Ordering::Relaxed) <= 2);
        stop.store(true, Ordering::Release);
        work.signal.raise();
        handle.join();
        assert_eq!(work.calls.load(Ordering::Relaxed), 4);
    }

    #[test]
    fn an_idle_thread_wakes_at_the_given_time() {
        let work = Script::new(|call| match call {
            0 => Step::Idle(Some(std::time::Duration::from_millis(1))),
            _ => Step::Stop,
        });
        driver().start(1, work.clone()).expect("starts").join();
        assert_eq!(work.calls.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn a_panic_ends_one_thread_and_the_work_is_told() {
        let work = Script::new(|call| match call {
            5 => panic!("planted"),
            0..40 => Step::Worked,
            _ => Step::Stop,
        });
        driver().start(2, work.clone()).expect("starts").join();
        assert_eq!(work.panics.load(Ordering::Relaxed), 1);
        assert!(work.calls.load(Ordering::Relaxed) > 40);
        assert_eq!(Arc::strong_count(&work), 1);
    }

    #[test]
    fn members_that_join_do_not_wait_for_each_other() {
        type Slot = Arc<OnceLock<Box<dyn DriverHandle>>>;
        let slot: Slot = Arc::default();
        let inner = Arc::clone(&slot);
        let work = Script::new(move |_| match inner.get() {
            None => Step::Worked,
            Some(handle) => {
                handle.join();
                Step::Stop
            }
        });
        let handle = driver().start(3, work.clone()).expect("starts");
        assert!(slot.set(handle).is_ok());
        slot.get().expect("just set").join();
        assert_eq!(Arc::strong_count(&work), 1);
    }
}
