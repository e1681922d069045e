//! Generations: when the open one is full, how the next one is opened and how one is sealed.
//!
//! All of this is done under the commit lock. What a new generation takes (memory, a spare log) is taken
//! before anything shows, and goes back if its first batch is refused after all; then it enters the queue,
//! behind the seal of the one before, and the version in which readers look for it. There is no crash
//! argument of its own: the log of a generation without frames says nothing.

use crate::engine::commit::Queued;
use crate::engine::states;
use crate::engine::submit::{Submitted, refused};
use crate::engine::ticket::TicketState;
use crate::engine::version::Generation;
use crate::engine::waiting::{Denied, StallCause};
use crate::engine::{CommitState, Engine, OpenGeneration, SpareLog};
use crate::error::{ErrorKind, Result};
use crate::memory::Owner;
use crate::memtable::{Memtable, MemtableWriter};
use crate::sync::Arc;

impl Engine {
    pub(super) fn fits(&self, open: &OpenGeneration, records: u64, bytes: u64) -> bool {
        open.records == 0
            || (open.records + records <= u64::from(self.settings.seal_records)
                && open.bytes + bytes <= self.sizes.seal_bytes)
    }

    pub fn is_full(&self, open: Option<&OpenGeneration>) -> bool {
        open.is_some_and(|open| {
            open.records >= u64::from(self.settings.seal_records)
                || open.bytes >= self.sizes.seal_bytes
        })
    }

    /// Ends the open generation behind everything queued so far.
    pub fn seal_open(&self, commit: &mut CommitState) {
        if let Some(open) = commit.open.take() {
            commit
                .queue
                .push_back(Queued::Seal(states::Sealed::new(open)));
        }
    }

    /// `seal()`: an empty generation stays open. The ticket resolves when the seal is in the log. The
    /// caller waits for it.
    pub fn submit_seal(&self) -> Result<Arc<TicketState>> {
        self.check_writable("seal")?;
        let mut commit = self.commit.lock();
        self.check_accepting(&commit)?;
        if commit.open.as_ref().is_some_and(|open| open.records > 0) {
            self.seal_open(&mut commit);
        }
        let needs = commit.issued;
        let ticket = TicketState::attended();
        commit.queue.push_back(Queued::Barrier {
            needs,
            outcome: Ok(needs),
            synced: false,
            ticket: ticket.clone(),
        });
        Ok(ticket)
    }

    /// Takes memory and a spare log for a generation that begins with a frame of so many bytes; nothing is
    /// visible yet.
    pub(super) fn prepare_generation(
        &self,
        commit: &mut CommitState,
        frame_bytes: u64,
    ) -> Submitted<Fresh> {
        let options = self.memtable_options(commit.next_generation);
        let base_bytes = Memtable::base_bytes(&self.region, &options);
        let needed = base_bytes + frame_bytes;
        self.check_pins(commit, needed)?;
        if commit.spares.is_empty() {
            return Err(match &commit.spare_failure {
                Some(error) => Denied {
                    error: error.clone(),
                    cause: (*error.kind() == ErrorKind::NoSpace).then_some(StallCause::SpareLog),
                },
                None => self.no_log(needed),
            });
        }
        let mut permit = self
            .region
            .try_acquire(base_bytes, Owner::Open)
            .map_err(|shortage| self.short_of_memory(shortage.needed, shortage.free))?;
        let (memory, writer) =
            Memtable::create_in(self.blank_memtable(), &options, &mut permit).map_err(refused)?;
        let Some(spare) = commit.spares.pop_front() else {
            return Err(self.no_log(needed));
        };
        Ok(Fresh {
            memory,
            writer,
            spare,
        })
    }

    pub(super) fn abandon_generation(&self, commit: &mut CommitState, fresh: Option<Fresh>) {
        if let Some(fresh) = fresh {
            commit.spares.push_front(fresh.spare);
        }
    }

    pub(super) fn enter_generation(&self, commit: &mut CommitState, fresh: Fresh) {
        self.seal_open(commit);
        let Fresh {
            memory,
            writer,
            spare,
        } = fresh;
        let new = Generation::new(
            commit.next_generation,
            spare.number,
            commit.issued,
            memory.clone(),
        );
        let mut handle = self.blank_generation();
        match Arc::get_mut(&mut handle) {
            Some(blank) => *blank = new,
            None => handle = Arc::new(new),
        }
        commit.next_generation += 1;
        commit.queue.push_back(Queued::Rotate(spare));
        commit.open = Some(OpenGeneration {
            handle: handle.clone(),
            memory,
            writer,
            records: 0,
            bytes: 0,
        });
        let registry = self.registry.lock();
        let blank = self.blank_version();
        let version = self.version.load().with_generation(handle, blank);
        self.set_version(&registry, version);
    }
}

/// The parts of a generation about to be opened.
pub(super) struct Fresh {
    memory: Arc<Memtable>,
    pub(super) writer: MemtableWriter,
    spare: SpareLog,
}
