//! The engine as the work of a driver's threads: which job the next step is for.
//!
//! The first runnable one, with one exception: a writer who keeps the flush busy would keep all other jobs
//! from their turn. Folds would never be made, the runs of every level would pile up, and with them filters
//! and reads of a lookup; replaced files would stay. So a flush's step is followed by up to
//! [`OTHER_STEPS`] of other jobs. A step of a flush writes about a thousand records; one of a fold moves six
//! thousand entries of a few bytes in a fifth of the time. Each record is moved once a level, so a step of a
//! fold for each of a flush would keep pace on average; more of them let a large fold be over before the
//! next small ones pile up behind it.

use crate::engine::Engine;
use crate::engine::jobs::{Job, QUANTUM_DEFAULT};
use crate::env::{Step, Work};
use crate::error::{Error, ErrorKind};
use crate::sync::{Arc, AtomicU32, Ordering, Signal, Weak};

/// Steps that other jobs may make after one of a flush.
const OTHER_STEPS: u32 = 4;

/// The engine as a driver's work. Holds it weakly, so that dropped handles end the threads.
pub(crate) struct EngineWork {
    engine: Weak<Engine>,
    signal: Arc<WorkSignal>,
    turns: Turns,
}

/// The signal that outlives the engine, so that a driver can wait on it.
#[derive(Debug, Default)]
pub(crate) struct WorkSignal(pub Signal);

/// Whose turn it is between flush and other jobs. Threads that race for a turn make one step more or less.
#[derive(Debug, Default)]
struct Turns {
    /// Steps that others may still make before the flush goes on.
    other_steps: AtomicU32,
}

impl Turns {
    /// The job to step, of all that are runnable.
    fn choose(&self, jobs: &[Job]) -> Option<Job> {
        let first = *jobs.first()?;
        if first != Job::Flush {
            return Some(first);
        }
        let steps = self.other_steps.load(Ordering::Relaxed);
        let other = jobs.get(1).filter(|_| steps > 0);
        let left = other.map_or(OTHER_STEPS, |_| steps - 1);
        self.other_steps.store(left, Ordering::Relaxed);
        Some(*other.unwrap_or(&first))
    }
}

impl EngineWork {
    pub fn new(engine: &Arc<Engine>) -> Self {
        Self {
            engine: Arc::downgrade(engine),
            signal: engine.work.clone(),
            turns: Turns::default(),
        }
    }
}

impl Work for EngineWork {
    fn step(&self) -> Step {
        let Some(engine) = self.engine.upgrade() else {
            return Step::Stop;
        };
        if engine.is_closed() {
            return Step::Stop;
        }
        // Who waits for a commit leads it: a thread that took it over would only add two switches to
        // it, and leave its flush.
        let (jobs, _) = engine.jobs(engine.has_unattended());
        match self.turns.choose(&jobs) {
            Some(job) => {
                // A failure is in the retry times or has poisoned the store.
                let _ = engine.run(job, QUANTUM_DEFAULT);
                Step::Worked
            }
            None => Step::Idle(engine.next_due()),
        }
    }

    fn signal(&self) -> &Signal {
        &self.signal.0
    }

    fn panicked(&self) {
        // Nobody knows what was half done: no write may build on it.
        if let Some(engine) = self.engine.upgrade() {
            let detail = "a background job panicked; this is a defect of sealstone";
            engine.poison(&Error::new(ErrorKind::Io, "maintenance", detail));
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// The jobs chosen one after the other while the same ones are runnable.
    fn chosen(jobs: &[Job], steps: usize) -> Vec<Job> {
        let turns = Turns::default();
        (0..steps).filter_map(|_| turns.choose(jobs)).collect()
    }

    #[test]
    fn a_fold_gets_its_turns_beside_a_flush_that_never_ends() {
        let chosen = chosen(&[Job::Flush, Job::Fold], 100);
        let folds = chosen.iter().filter(|job| **job == Job::Fold).count();
        assert_eq!(folds, 80);
        assert_eq!(
            chosen[..6],
            [[Job::Flush].as_slice(), &[Job::Fold; 4], &[Job::Flush]].concat()
        );
    }

    #[test]
    fn others_go_by_the_order_of_the_list() {
        let all = [Job::Flush, Job::LoadFilter, Job::Fold];
        assert_eq!(chosen(&all, 2), [Job::Flush, Job::LoadFilter]);
        assert_eq!(
            chosen(&[Job::Commit, Job::Flush, Job::Fold], 2),
            [Job::Commit; 2]
        );
        assert_eq!(
            chosen(&[Job::LoadFilter, Job::Fold], 2),
            [Job::LoadFilter; 2]
        );
        assert_eq!(chosen(&[Job::Flush], 3), [Job::Flush; 3]);
        assert_eq!(chosen(&[Job::Fold], 2), [Job::Fold; 2]);
        assert_eq!(chosen(&[], 1), []);
    }
}
