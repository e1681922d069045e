//! Tickets: the outcome of a submitted batch, known later.

use crate::engine::Engine;
use crate::error::Result;
use crate::store::Inner;
use crate::sync::{Arc, AtomicBool, OnceLock, Ordering, Signal};
use crate::types::Sequence;

/// The shared cell in which the leader leaves the outcome.
#[derive(Debug, Default)]
pub(crate) struct TicketState {
    outcome: OnceLock<Result<Sequence>>,
    /// Raised with the outcome, and when its owner may lead.
    changed: Signal,
    /// Whether somebody waits for it, or is about to, and will lead the queue where nobody does.
    /// Changes under the commit lock.
    attended: AtomicBool,
}

impl TicketState {
    pub fn new() -> Arc<Self> {
        Arc::new(Self::default())
    }

    /// A ticket whose owner is going to wait for it.
    pub fn attended() -> Arc<Self> {
        let state = Self::default();
        state.attend();
        Arc::new(state)
    }

    pub fn resolved(outcome: Result<Sequence>) -> Arc<Self> {
        let state = Self::new();
        state.resolve(outcome);
        state
    }

    /// Sets the outcome and wakes who waits for it; the first one stands.
    pub fn resolve(&self, outcome: Result<Sequence>) {
        let _ = self.outcome.set(outcome);
        self.changed.raise();
    }

    /// Makes it a new ticket. Nobody else has it.
    pub fn reset(&mut self) {
        self.outcome = OnceLock::new();
        self.attended = AtomicBool::new(false);
    }

    pub fn outcome(&self) -> Option<&Result<Sequence>> {
        self.outcome.get()
    }

    pub fn attend(&self) {
        self.attended.store(true, Ordering::Relaxed);
    }

    pub fn is_attended(&self) -> bool {
        self.attended.load(Ordering::Relaxed)
    }

    /// Wakes its owner to lead the queue.
    pub fn call_to_lead(&self) {
        self.changed.raise();
    }
}

/// A submitted batch. Dropping it does not take the batch back: it commits all the same.
#[derive(Clone, Debug)]
pub struct Ticket {
    pub(crate) inner: Arc<Inner>,
    pub(crate) state: Arc<TicketState>,
}

impl Ticket {
    /// The outcome, if it is known: the sequence of the commit, or why there is none.
    pub fn try_result(&self) -> Option<Result<Sequence>> {
        self.state.outcome().cloned()
    }

    /// Waits for the outcome, leading the commit queue while nobody else does.
    pub fn wait(self) -> Result<Sequence> {
        self.inner.engine.wait_for(&self.state)
    }
}

impl Engine {
    /// Waits for a ticket's outcome, leading the commit queue while nobody else does.
    pub fn wait_for(&self, state: &TicketState) -> Result<Sequence> {
        if !state.is_attended() {
            // A leader looks for an attended ticket under this lock, after it let the leader lock go:
            // it sees this one, or the leader lock is found free below.
            let _commit = self.commit.lock();
            state.attend();
        }
        loop {
            let seen = state.changed.count();
            if let Some(outcome) = state.outcome() {
                return outcome.clone();
            }
            match self.try_commit_step() {
                // Failures of the group reach this ticket through its own outcome.
                Some(Ok(true) | Err(_)) => {}
                Some(Ok(false)) | None => {
                    if let Some(outcome) = state.outcome() {
                        return outcome.clone();
                    }
                    // Nobody leaves a ticket behind: closing waits for the leader, then fails the rest.
                    self.env.clock.wait(&state.changed, seen, None);
                }
            }
        }
    }
}
