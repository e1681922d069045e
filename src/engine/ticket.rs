//! Tickets: the outcome of a submitted batch, known later.

use crate::error::Result;
use crate::store::Inner;
use crate::sync::{Arc, OnceLock};
use crate::types::Sequence;

/// The shared cell in which the leader leaves the outcome.
#[derive(Debug, Default)]
pub(crate) struct TicketState {
    outcome: OnceLock<Result<Sequence>>,
}

impl TicketState {
    pub fn new() -> Arc<Self> {
        Arc::new(Self::default())
    }

    pub fn resolved(outcome: Result<Sequence>) -> Arc<Self> {
        let state = Self::new();
        state.resolve(outcome);
        state
    }

    /// Sets the outcome; the first one stands.
    pub fn resolve(&self, outcome: Result<Sequence>) {
        let _ = self.outcome.set(outcome);
    }

    pub fn outcome(&self) -> Option<&Result<Sequence>> {
        self.outcome.get()
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
        loop {
            let seen = self.inner.engine.progress.count();
            if let Some(outcome) = self.state.outcome() {
                return outcome.clone();
            }
            match self.inner.engine.try_commit_step() {
                // Failures of the group reach this ticket through its own outcome.
                Some(Ok(true) | Err(_)) => {}
                Some(Ok(false)) | None => {
                    if let Some(outcome) = self.state.outcome() {
                        return outcome.clone();
                    }
                    // Nobody leaves a ticket behind: closing waits for the leader, then fails the rest.
                    self.inner.engine.wait_for_progress(seen);
                }
            }
        }
    }
}
