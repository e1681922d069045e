//! Writers that wait: first come, first served.
//!
//! A batch takes all of its memory and its log at once or nothing. If whoever asks at the right moment got
//! it, small batches would take each freed byte before a large one finds enough of them. So a `write` that
//! was refused joins a queue, and while anybody is in it only the first may take: everybody else is refused
//! with nothing changed, a `try_write` or `submit` for good, a `write` until the queue has come to it.
//!
//! Invariants:
//!
//! * Whether a batch may take is decided under the commit lock, together with the taking; memory for a
//!   large frame, taken before that lock, is given back if its turn has passed by then.
//! * A place ends when its write got in, failed or gave up, also by a panic; then the others are woken.
//! * Who waits reads the count of `progress` before it asks: nothing that happens in between is missed.
//!   Memory that comes back without a signal is found by asking again after `retry_delay`.
//!
//! No batch waits for ever while readers end: the first needs at most what one generation takes, and that
//! always comes free (see `sizes`), because what others hold is flushed without asking the queue.

use std::collections::VecDeque;
use std::time::Duration;

use crate::batch::Prepared;
use crate::engine::jobs::QUANTUM_DEFAULT;
use crate::engine::registry::Registry;
use crate::engine::scratch::Scratch;
use crate::engine::submit::Asked;
use crate::engine::ticket::TicketState;
use crate::engine::version::Generation;
use crate::engine::{CommitState, Engine};
use crate::error::{Error, ErrorKind, PinInfo, Result};
use crate::options::{Background, Durability};
use crate::sync::Arc;

/// What a refused write has to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StallCause {
    /// Bytes of the write region that jobs give back.
    Memory,
    /// Readers that keep older versions in memory.
    Pins,
    /// A log: all of them hold commits that are not flushed yet.
    LogSlot,
    /// Room on the disk for the next spare log.
    SpareLog,
    /// Others came first.
    Turn,
}

impl StallCause {
    pub const ALL: [Self; 5] = [
        Self::Memory,
        Self::Pins,
        Self::LogSlot,
        Self::SpareLog,
        Self::Turn,
    ];

    const fn text(self) -> &'static str {
        match self {
            Self::Memory => "nothing was changed",
            Self::Pins => "readers keep as many generations as may be kept; nothing was changed",
            Self::LogSlot => "every log waits for its flush; nothing was changed",
            Self::SpareLog => "there is no room for another log; nothing was changed",
            Self::Turn => "others wait for memory already; nothing was changed",
        }
    }
}

/// A refusal, and what may make it pass.
#[derive(Debug)]
pub(crate) struct Denied {
    pub error: Error,
    /// `None`: waiting does not help.
    pub cause: Option<StallCause>,
}

impl From<Error> for Denied {
    fn from(error: Error) -> Self {
        Self { error, cause: None }
    }
}

/// The writers that wait, by number, the first at the front. Guarded by the commit lock.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    waiting: VecDeque<u64>,
    next: u64,
}

impl Turns {
    /// Whether a batch may take memory now: nobody waits, or it is the first of them.
    pub fn allows(&self, place: Option<u64>) -> bool {
        match self.waiting.front() {
            None => true,
            first => first == place.as_ref(),
        }
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    fn join(&mut self) -> u64 {
        self.next += 1;
        self.waiting.push_back(self.next);
        self.next
    }

    /// Whether anybody is left.
    fn leave(&mut self, place: u64) -> bool {
        self.waiting.retain(|other| *other != place);
        !self.waiting.is_empty()
    }
}

/// A place in the queue, until dropped.
struct Place<'a> {
    engine: &'a Engine,
    number: u64,
    since: Duration,
}

impl<'a> Place<'a> {
    fn take(engine: &'a Engine) -> Self {
        engine.counters.stalled_writes.add(1);
        Self {
            engine,
            number: engine.commit.lock().turns.join(),
            since: engine.env.clock.monotonic(),
        }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let waited = self.engine.env.clock.monotonic().saturating_sub(self.since);
        let waited_ns = u64::try_from(waited.as_nanos()).unwrap_or(u64::MAX);
        self.engine.counters.stall_ns.add(waited_ns);
        if self.engine.commit.lock().turns.leave(self.number) {
            self.engine.progress.raise();
        }
    }
}

impl Engine {
    /// Submits a batch that is waited for: what is short now is waited for up to the deadline, helping with
    /// background jobs meanwhile.
    pub fn submit_waiting(
        &self,
        prepared: &Prepared<'_>,
        durability: Durability,
        scratch: &mut Scratch,
    ) -> Result<Arc<TicketState>> {
        let now = self.env.clock.monotonic();
        let deadline = now.saturating_add(self.settings.write_deadline);
        let mut place: Option<Place<'_>> = None;
        loop {
            let seen = self.progress.count();
            let asked = Asked {
                durability,
                attended: true,
                place: place.as_ref().map(|place| place.number),
            };
            match self.submit(prepared, asked, scratch) {
                Ok(ticket) => return Ok(ticket),
                Err(Denied { error, cause }) => {
                    let Some(cause) = cause else {
                        return Err(error);
                    };
                    self.counters.stalls.add(1);
                    self.counters.stalls_by_cause[cause as usize].add(1);
                    place.get_or_insert_with(|| Place::take(self));
                    self.make_room(error, seen, deadline)?;
                }
            }
        }
    }

    /// Does something that may let a refused write pass, or gives its error back.
    fn make_room(&self, error: Error, seen: u64, deadline: Duration) -> Result<()> {
        if self.env.clock.monotonic() >= deadline {
            return Err(error);
        }
        let helped = self.commit_step()? || self.run_first(QUANTUM_DEFAULT).unwrap_or(true);
        if helped {
            return Ok(());
        }
        let threads = !matches!(self.settings.background, Background::Manual);
        if !threads || *error.kind() == ErrorKind::NoSpace {
            return Err(error);
        }
        // Memory also comes back without a signal: a leader or reader is the last to hold a retired
        // generation. So nobody sleeps longer than a failed job.
        let until = self.retry_time().min(deadline);
        let until = self.next_due().map_or(until, |due| due.min(until));
        self.env.clock.wait(&self.progress, seen, Some(until));
        Ok(())
    }

    /// Refuses a batch whose turn it is not.
    pub fn check_turn(
        &self,
        commit: &CommitState,
        place: Option<u64>,
        needed: u64,
    ) -> std::result::Result<(), Denied> {
        match commit.turns.allows(place) {
            true => Ok(()),
            false => Err(self.denied(StallCause::Turn, needed, 0, None)),
        }
    }

    /// Memory is short; names the pin that stands in the way if one does.
    pub fn short_of_memory(&self, needed: u64, free: u64) -> Denied {
        let pin = self.blocking_pin();
        let cause = match pin {
            Some(_) => StallCause::Pins,
            None => StallCause::Memory,
        };
        Denied {
            error: self.busy(StallCause::Memory, needed, free, pin),
            cause: Some(cause),
        }
    }

    /// Every log waits for its flush. A pin is named here, too: what it keeps is memory that the flush of
    /// another generation would have given back.
    pub fn no_log(&self, needed: u64) -> Denied {
        self.denied(StallCause::LogSlot, needed, 0, self.blocking_pin())
    }

    /// What is missing is not memory.
    fn denied(
        &self,
        cause: StallCause,
        needed: u64,
        free: u64,
        pinned_by: Option<PinInfo>,
    ) -> Denied {
        Denied {
            error: self.busy(cause, needed, free, pinned_by),
            cause: Some(cause),
        }
    }

    fn busy(&self, cause: StallCause, needed: u64, free: u64, pinned_by: Option<PinInfo>) -> Error {
        self.counters.busy.add(1);
        let kind = ErrorKind::Busy {
            needed,
            free,
            pinned_by,
        };
        Error::new(kind, "submit", cause.text())
    }

    /// Refuses to open another generation while readers keep more of the sealed ones than the pinned ones
    /// and the one that was sealed last: that many always fit beside the open one, whatever is in them.
    ///
    /// Generations that wait for their flush count as well. A snapshot of the open one can still be taken
    /// at any time, and makes it one more when it is sealed.
    pub fn check_pins(&self, commit: &CommitState, needed: u64) -> std::result::Result<(), Denied> {
        let open = commit.open.as_ref().map(|open| &open.handle);
        let most = self.settings.pinned_generations_max as usize + 1;
        match self.pinned_generations(open) {
            (count, Some(oldest)) if count > most => {
                Err(self.denied(StallCause::Pins, needed, 0, Some(oldest)))
            }
            _ => Ok(()),
        }
    }

    /// How many sealed generations readers keep in memory or will, and the pin of the oldest.
    pub fn pinned_generations(&self, open: Option<&Arc<Generation>>) -> (usize, Option<PinInfo>) {
        let registry = self.registry.lock();
        if registry.pins().next().is_none() {
            return (0, None);
        }
        let version = self.version.load();
        let sealed = version.generations.iter().rev();
        let all = registry.lingering.iter().chain(sealed);
        let mut count = 0;
        let mut oldest = None;
        for generation in all.filter(|one| open.is_none_or(|open| !Arc::ptr_eq(open, one))) {
            let memory = generation.memory();
            let Some(memory) = memory.as_ref() else {
                continue;
            };
            if let Some(pin) = registry.pin_of(generation, memory) {
                count += 1;
                let now = self.env.clock.monotonic();
                oldest =
                    oldest.or_else(|| Some(Registry::describe(pin, now, memory.memory_bytes())));
            }
        }
        (count, oldest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_one_takes_and_the_others_wait() {
        let mut turns = Turns::default();
        assert!(turns.allows(None), "nobody waits");
        let (first, second) = (turns.join(), turns.join());
        assert!(!turns.allows(None));
        assert!(turns.allows(Some(first)));
        assert!(!turns.allows(Some(second)));
        assert!(turns.leave(first));
        assert!(turns.allows(Some(second)));
        let third = turns.join();
        assert!(turns.leave(second), "the third one");
        assert!(!turns.leave(third));
        assert_eq!(turns.len(), 0);
        assert!(turns.allows(None));
    }

    #[test]
    fn who_gives_up_in_the_middle_holds_nobody_up() {
        let mut turns = Turns::default();
        let places: Vec<u64> = (0..3).map(|_| turns.join()).collect();
        assert!(turns.leave(places[1]));
        assert!(turns.leave(places[0]));
        assert!(turns.allows(Some(places[2])));
    }
}
