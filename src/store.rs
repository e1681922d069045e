//! The store's public handle.

use std::path::Path;

use crate::batch::Batch;
use crate::engine::Engine;
use crate::engine::jobs::{self, Job, Progress};
use crate::engine::submit::Asked;
use crate::engine::ticket::{Ticket, TicketState};
use crate::engine::worker::EngineWork;
use crate::env::{DriverHandle, Env, PressureLevel};
use crate::error::{Error, Result};
use crate::keyspace::{Keyspace, KeyspaceInfo};
use crate::options::{Background, Durability, KeyspaceOptions, Options};
use crate::snapshot::{ReaderPin, Snapshot};
use crate::stats::{Audit, OpenReport, Stats};
use crate::sync::{Arc, Mutex, Ordering};
use crate::types::Sequence;
use crate::value::Value;

/// An open store: a directory of keyspaces with one writing process. Cheap to clone; all handles share
/// one opening and may be used from any thread.
///
/// The store ends when it is closed or its last handle (keyspaces, snapshots and tickets among them) is
/// dropped. Dropping writes nothing: what was acknowledged is where its durability put it.
#[derive(Clone, Debug)]
pub struct Store {
    pub(crate) inner: Arc<Inner>,
}

/// What is done about a batch that finds no room.
#[derive(Clone, Copy, Debug)]
enum How {
    /// It is refused.
    Now { attended: bool },
    /// It waits.
    Wait,
}

/// One opening: the engine and the threads that work for it.
pub(crate) struct Inner {
    pub engine: Arc<Engine>,
    options: Options,
    driver: Mutex<Option<Box<dyn DriverHandle>>>,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "store in {}", self.engine.env.vfs.describe())
    }
}

impl Inner {
    fn stop_driver(&self) {
        self.engine.work.0.raise();
        let driver = self.driver.lock().take();
        if let Some(driver) = driver {
            driver.join();
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.engine.shut();
        self.stop_driver();
    }
}

impl Store {
    /// Opens the store in a directory, creating both if `create` is set (it is by default).
    ///
    /// Reads the manifest and the live logs; segment files are opened when first touched. Recovered
    /// commits are written again before it returns. See [`Store::open_report`].
    ///
    /// Errors: `Locked`, `NotAStore`, `UnsupportedVersion`, `Corruption`, `MissingFile` (nothing on disk
    /// was changed), `NoSpace`, `TooLarge` (memory below what the options or the logs need), `Io`.
    ///
    /// ```
    /// use sealstone::{Durability, KeyspaceOptions, Options, Store};
    /// # let directory = tempfile::tempdir()?;
    /// let store = Store::open(directory.path().join("blocks"), Options::new())?;
    /// let blocks = store.keyspace("blocks", KeyspaceOptions::write_once())?;
    /// blocks.put(b"hash", b"block", Durability::Synced)?;
    /// assert_eq!(blocks.get(b"hash")?.as_deref(), Some(&b"block"[..]));
    /// store.close()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Self> {
        let env = Env::real(path.as_ref()).map_err(|cause| Error::io_dir("open", cause))?;
        Self::open_with(env, options)
    }

    /// Opens a store behind any environment. See [`Store::open`].
    pub fn open_with(env: Env, options: Options) -> Result<Self> {
        let settings = options.resolve(env.driver.is_some())?;
        let background = settings.background;
        let driver = match (background, &env.driver) {
            (Background::Manual, _) => None,
            (Background::Threads(threads), Some(driver)) => Some((threads, driver.clone())),
            (Background::Threads(_), None) => {
                let detail = "this environment has no threads: use Background::Manual";
                return Err(Error::invalid("open", detail));
            }
        };
        let engine = Engine::open(env, settings)?;
        let inner = Arc::new(Inner {
            engine,
            options,
            driver: Mutex::new(None),
        });
        if let Some((threads, driver)) = driver {
            let work = Arc::new(EngineWork::new(&inner.engine));
            let handle = driver
                .start(threads, work)
                .map_err(|cause| Error::io_dir("open", cause))?;
            *inner.driver.lock() = Some(handle);
        }
        Ok(Self { inner })
    }

    fn engine(&self) -> &Arc<Engine> {
        &self.inner.engine
    }

    /// What opening found and did.
    pub fn open_report(&self) -> OpenReport {
        self.engine().report.clone()
    }

    /// The keyspace of that name, created (with one barrier) if it does not exist. A name has 1 to 255
    /// bytes. `IncompatibleOptions` if it exists with another kind.
    pub fn keyspace(&self, name: &str, options: KeyspaceOptions) -> Result<Keyspace> {
        let entry = self.engine().keyspace(name, options.kind)?;
        Ok(Keyspace::new(self.inner.clone(), entry))
    }

    /// All keyspaces, by name.
    pub fn keyspaces(&self) -> Vec<KeyspaceInfo> {
        let keyspaces = self.engine().keyspaces.lock();
        keyspaces.values().map(KeyspaceInfo::of).collect()
    }

    /// Checks the batch, takes everything that it needs, and queues it; the ticket resolves when a
    /// [`commit_step`](Self::commit_step) has written it. A refused batch has no effect.
    ///
    /// Errors: `Busy` (memory is short now, or others wait for it), `TooLarge` (never fits), `Conflict`, `Refused`, `NoSpace`,
    /// `Poisoned`, `Closed`. Cost: one read or two per checked `WriteOnce` key that is not in memory.
    pub fn submit(&self, batch: Batch<'_>, durability: Durability) -> Result<Ticket> {
        let state = self.enter(batch, durability, How::Now { attended: false })?;
        self.ticket(state)
    }

    /// Prepares and submits a batch, with lists that the next one uses again.
    fn enter(
        &self,
        batch: Batch<'_>,
        durability: Durability,
        how: How,
    ) -> Result<Arc<TicketState>> {
        let engine = self.engine();
        let mut scratch = engine.scratch.take();
        let prepared = engine.prepare(batch, &mut scratch)?;
        let state = match how {
            How::Now { attended } => {
                let asked = Asked {
                    durability,
                    attended,
                    place: None,
                };
                let submitted = engine.submit(&prepared, asked, &mut scratch);
                submitted.map_err(|denied| denied.error)
            }
            How::Wait => engine.submit_waiting(&prepared, durability, &mut scratch),
        };
        scratch.keep(prepared);
        engine.scratch.give(scratch);
        state
    }

    /// Enters a batch and waits for its commit.
    fn commit(&self, batch: Batch<'_>, durability: Durability, how: How) -> Result<Sequence> {
        let state = self.enter(batch, durability, how)?;
        let outcome = self.engine().wait_for(&state);
        self.engine().scratch.give_ticket(state);
        outcome
    }

    fn ticket(&self, state: Arc<TicketState>) -> Result<Ticket> {
        if let Some(Err(error)) = state.outcome() {
            return Err(error.clone());
        }
        Ok(Ticket {
            inner: self.inner.clone(),
            state,
        })
    }

    /// Writes one group of queued batches, syncs once if one of them asks for it, and publishes them in
    /// order; false if nothing is queued.
    pub fn commit_step(&self) -> Result<bool> {
        self.engine().check_open("commit")?;
        self.engine().commit_step()
    }

    /// Writes a batch and returns its sequence once it is visible, and on stable storage if `Synced`.
    /// Waits up to `write_deadline` for memory, helping with background jobs meanwhile. Who waits is served
    /// first come, first served: a large batch is not starved by small ones.
    ///
    /// Errors: as [`submit`](Self::submit); `Busy` only after the deadline, or when no job that could
    /// make room is left to run.
    pub fn write(&self, batch: Batch<'_>, durability: Durability) -> Result<Sequence> {
        self.commit(batch, durability, How::Wait)
    }

    /// As [`write`](Self::write), but `Busy` at once when memory is short or others wait for it.
    pub fn try_write(&self, batch: Batch<'_>, durability: Durability) -> Result<Sequence> {
        self.commit(batch, durability, How::Now { attended: true })
    }

    /// Returns once everything submitted so far is on stable storage: at most one barrier.
    pub fn sync(&self) -> Result<()> {
        let state = self.engine().submit_barrier(Durability::Synced)?;
        self.ticket(state)?.wait().map(|_| ())
    }

    /// Ends the open generation, so that jobs write it to segments. Nothing happens if it is empty.
    pub fn seal(&self) -> Result<()> {
        let state = self.engine().submit_seal()?;
        self.ticket(state)?.wait().map(|_| ())
    }

    /// The values of several keys, all from one version, in the order asked. See [`Snapshot::multi_get`].
    pub fn multi_get(&self, keys: &[(&Keyspace, &[u8])]) -> Result<Vec<Option<Value>>> {
        let pin = ReaderPin::register(&self.inner, None, "multi_get")?;
        Snapshot::new(pin).multi_get(keys)
    }

    /// A view of everything visible now.
    pub fn snapshot(&self) -> Result<Snapshot> {
        self.snapshot_named("snapshot")
    }

    /// The same with a name of the caller's, which [`Busy`](crate::ErrorKind::Busy) and [`Stats::oldest_pin`] show
    /// when the snapshot is what writers wait for.
    pub fn snapshot_named(&self, name: &'static str) -> Result<Snapshot> {
        let pin = ReaderPin::register(&self.inner, None, name)?;
        Ok(Snapshot::new(pin))
    }

    /// The last visible commit.
    pub fn sequence(&self) -> Sequence {
        self.engine().visible()
    }

    /// The last commit known to be on stable storage.
    pub fn durable_sequence(&self) -> Sequence {
        self.engine().durable.load(Ordering::Acquire)
    }

    /// The background jobs that could run now, most urgent first. Pure in the store's state and time.
    pub fn runnable(&self) -> Vec<Job> {
        self.engine().runnable()
    }

    /// Runs a bounded part of a job: about `quantum` records' worth. A failed job is tried again after
    /// `retry_delay`.
    pub fn run(&self, job: Job, quantum: u32) -> Result<Progress> {
        self.engine().run(job, quantum)
    }

    /// Runs jobs until none is runnable, and waits for those that other threads are at.
    pub fn drain(&self) -> Result<()> {
        self.engine().drain(jobs::QUANTUM_DEFAULT)
    }

    /// Says how short memory is in place of the environment, which has its say again after `None`.
    ///
    /// `High` and `Critical` leave the write region half or none of what it has beyond its floor, so writers
    /// wait for the flush earlier, and give memory kept for reuse back to the system, a part at each write
    /// or job. Filters may take half or a quarter of their budget, which the next step of their job sees to;
    /// lookups then read more. Every batch still comes through, and files do not change by it. Costs no read;
    /// filters that come back afterwards are read by jobs.
    ///
    /// ```
    /// use sealstone::env::PressureLevel;
    /// # let directory = tempfile::tempdir()?;
    /// # let store = sealstone::Store::open(directory.path(), sealstone::Options::new())?;
    /// store.set_pressure(Some(PressureLevel::Critical));
    /// assert_eq!(store.stats().pressure.level, PressureLevel::Critical);
    /// store.set_pressure(None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_pressure(&self, level: Option<PressureLevel>) {
        self.engine().set_pressure(level);
    }

    /// Sets the most that filters may take, in bytes, until the store is opened again. A smaller budget is
    /// kept when this returns: filters are freed before it does. What a larger one lets in is loaded by jobs.
    /// Cost: no read; a step of a filter's load in progress is waited for. Errors: `Closed`.
    ///
    /// ```
    /// use sealstone::{Options, Store};
    /// # let directory = tempfile::tempdir()?;
    /// let store = Store::open(directory.path().join("blocks"), Options::new())?;
    /// store.set_filter_budget(4 << 20)?;
    /// assert_eq!(store.stats().filter_budget_bytes, 4 << 20);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_filter_budget(&self, bytes: u64) -> Result<()> {
        self.engine().set_filter_budget(bytes)
    }

    /// Counters and sizes.
    pub fn stats(&self) -> Stats {
        self.engine().stats()
    }

    /// Everything that the store holds, exactly: for tests and simulations.
    pub fn audit(&self) -> Audit {
        self.engine().audit()
    }

    /// Publishes what is queued, makes it durable, stops background work and frees the lock. Every
    /// handle answers `Closed` from then on; values already handed out stay.
    pub fn close(&self) -> Result<()> {
        let result = self.engine().close();
        self.inner.stop_driver();
        result
    }

    /// Closes this opening and opens the store again: the way out of `Poisoned`. Old handles become
    /// `Closed`.
    pub fn reopen(&self) -> Result<Self> {
        self.reopen_with(self.inner.options.clone())
    }

    /// As [`reopen`](Self::reopen), with other options.
    pub fn reopen_with(&self, options: Options) -> Result<Self> {
        // What could not be settled is what recovery is for.
        let _ = self.close();
        Self::open_with(self.engine().env.clone(), options)
    }
}
