//! The node's six databases as keyspaces of one store, and everything that is done to them, each thing under
//! its label and on the clock.
//!
//! ```text
//! application, blockstore, state, metadata     mutable: some of their keys are written again
//! tx_index, evidence                           write-once
//! ```
//!
//! Without threads of its own the store's jobs are run here after each write, until none is left, so that the
//! same blocks take the same memory whenever they are run.

use std::time::{Duration, Instant};

use anyhow::Result;
use hdrhistogram::Histogram;
use sealstone::env::Env;
use sealstone::{Background, Batch, Durability, Job, Keyspace, KeyspaceOptions, Options, Store};
use sealstone_sim::pool::workload::Database;

use super::block::{Block, Operation, Write};
use super::causes::Causes;
use super::{Checkpoints, Jobs};
use crate::allocations::{self, Site};
use crate::figures::new_small_histogram;

/// Records' worth of a job at a time, as the store's own threads take it.
const QUANTUM: u32 = 1024;

/// The store keeps the lists of a write for the next one up to so many operations (`engine/scratch.rs`).
const LISTS_KEPT: usize = 1024;

/// Transactions for each read that the node's cache does not answer: two a transaction, 95 of 100 cached.
const TRANSACTIONS_PER_READ: usize = 10;

/// What is measured while the node runs.
#[derive(Debug)]
pub struct Tally {
    /// Time in the store and in making batches for it.
    pub elapsed: Duration,
    /// Operations written.
    pub operations: u64,
    /// Reads.
    pub reads: u64,
    /// Checkpoints.
    pub checkpoints: u64,
    /// Writes that waited for their barrier.
    pub synced: Histogram<u64>,
    /// Writes that did not.
    pub buffered: Histogram<u64>,
    /// Why writes allocated.
    pub causes: Causes,
}

impl Tally {
    /// Nothing yet.
    pub fn new(store: &Store) -> Result<Self> {
        Ok(Self {
            elapsed: Duration::ZERO,
            operations: 0,
            reads: 0,
            checkpoints: 0,
            synced: new_small_histogram()?,
            buffered: new_small_histogram()?,
            causes: Causes::start(store),
        })
    }
}

/// The open store.
#[derive(Debug)]
pub struct Node {
    /// The store.
    pub store: Store,
    keyspaces: Vec<(Database, Keyspace)>,
    jobs: Jobs,
    checkpoints: Checkpoints,
    answer: Vec<u8>,
}

impl Node {
    /// Opens or creates it.
    pub fn open(
        env: Env,
        memory_bytes: Option<u64>,
        jobs: Jobs,
        checkpoints: Checkpoints,
    ) -> Result<Self> {
        let mut options = Options::new().family_seed([7; 16]).background(match jobs {
            Jobs::Stepped => Background::Manual,
            Jobs::Threads => Background::Threads(1),
        });
        if let Some(bytes) = memory_bytes {
            options = options.memory_bytes(bytes);
        }
        let store = Store::open_with(env, options)?;
        let databases = Database::ALL
            .into_iter()
            .filter(|one| *one != Database::Bench);
        let keyspaces = databases.map(|database| {
            let kind = match database {
                Database::TxIndex | Database::Evidence => KeyspaceOptions::write_once(),
                _ => KeyspaceOptions::mutable(),
            };
            Ok((database, store.keyspace(database.name(), kind)?))
        });
        Ok(Self {
            keyspaces: keyspaces.collect::<Result<_>>()?,
            store,
            jobs,
            checkpoints,
            answer: Vec::with_capacity(1 << 20),
        })
    }

    fn keyspace(&self, database: Database) -> &Keyspace {
        // In the order of the databases' numbers.
        &self.keyspaces[database as usize].1
    }

    /// What the node does with a block: some reads, its writes, the jobs that they leave.
    pub fn block(&mut self, block: &Block, transactions: u64, tally: &mut Tally) -> Result<()> {
        self.read(block, transactions as usize / TRANSACTIONS_PER_READ, tally)?;
        for (write, operations) in block.writes() {
            self.write(block, write, operations, tally)?;
            self.run_jobs(tally)?;
        }
        Ok(())
    }

    /// Reads what transactions are about to change, before the block changes it.
    fn read(&mut self, block: &Block, reads: usize, tally: &mut Tally) -> Result<()> {
        let _label = allocations::at(Site::Read);
        let fast = |one: &&Operation| one.rewritten && one.database == Database::Application;
        let keys = block.operations().iter().filter(fast).count();
        let step = (keys / reads.max(1)).max(1);
        let start = Instant::now();
        let operations = block.operations().iter().filter(fast);
        for operation in operations.step_by(step).take(reads) {
            let keyspace = &self.keyspaces[operation.database as usize].1;
            keyspace.get_into(block.key(operation), &mut self.answer)?;
            tally.reads += 1;
        }
        tally.elapsed += start.elapsed();
        Ok(())
    }

    fn write(
        &self,
        block: &Block,
        write: Write,
        operations: &[Operation],
        tally: &mut Tally,
    ) -> Result<()> {
        let keyspace = self.keyspace(write.database);
        let start = Instant::now();
        let label = allocations::at(Site::Batch);
        let mut batch = Batch::with_capacity(operations.len());
        for operation in operations {
            batch.put(keyspace, block.key(operation), block.value(operation));
        }
        drop(label);
        let (durability, times) = match write.synced {
            true => (Durability::Synced, &mut tally.synced),
            false => (Durability::Buffered, &mut tally.buffered),
        };
        let commit = Instant::now();
        let large = operations.len() > LISTS_KEPT;
        let label = allocations::at(if large { Site::WriteLarge } else { Site::Write });
        let before = allocations::of_thread().0;
        self.store.write(batch, durability)?;
        let allocs = allocations::of_thread().0 - before;
        drop(label);
        times.record(commit.elapsed().as_nanos() as u64)?;
        tally.elapsed += start.elapsed();
        tally.operations += operations.len() as u64;
        tally.causes.note(allocs, large, &self.store);
        Ok(())
    }

    /// Makes everything written so far durable; or ends the generation, too.
    pub fn checkpoint(&self, tally: &mut Tally) -> Result<()> {
        let start = Instant::now();
        {
            let _label = allocations::at(Site::Checkpoint);
            match self.checkpoints {
                Checkpoints::Sync => self.store.sync()?,
                Checkpoints::Seal => {
                    self.store.sync()?;
                    self.store.seal()?;
                }
            }
        }
        tally.elapsed += start.elapsed();
        tally.checkpoints += 1;
        self.run_jobs(tally)
    }

    /// Until nothing is in memory and nothing left to do.
    pub fn settle(&self, tally: &mut Tally) -> Result<()> {
        let start = Instant::now();
        {
            let _label = allocations::at(Site::Checkpoint);
            self.store.seal()?;
            if self.jobs == Jobs::Threads {
                self.store.drain()?;
            }
        }
        tally.elapsed += start.elapsed();
        self.run_jobs(tally)
    }

    /// Runs all jobs, unless the store does.
    fn run_jobs(&self, tally: &mut Tally) -> Result<()> {
        if self.jobs == Jobs::Threads {
            return Ok(());
        }
        let start = Instant::now();
        loop {
            let label = allocations::at(Site::Schedule);
            let job = self.store.runnable().first().copied();
            drop(label);
            let Some(job) = job else { break };
            let _label = allocations::at(site_of(job));
            self.store.run(job, QUANTUM)?;
        }
        tally.elapsed += start.elapsed();
        Ok(())
    }

    /// Whether the store answers with the operation's value.
    pub fn has(&mut self, database: Database, key: &[u8], value: &[u8]) -> Result<bool> {
        let keyspace = &self.keyspaces[database as usize].1;
        let found = keyspace.get_into(key, &mut self.answer)?;
        Ok(found && self.answer == value)
    }

    /// Whether the bytes of all owners add up to the write region.
    pub fn ledger_is_exact(&self) -> bool {
        let memory = self.store.stats().memory;
        let owned = [
            memory.free_bytes,
            memory.open_bytes,
            memory.sealed_bytes,
            memory.flushing_bytes,
            memory.pinned_bytes,
            memory.retiring_bytes,
            memory.scratch_bytes,
            memory.reserved_bytes,
        ];
        owned.iter().sum::<u64>() == memory.total_bytes
    }
}

const fn site_of(job: Job) -> Site {
    match job {
        Job::Flush => Site::Flush,
        Job::Retire => Site::Retire,
        Job::LoadFilter => Site::LoadFilter,
        Job::Fold => Site::Fold,
        Job::Unlink => Site::Unlink,
        _ => Site::OtherJob,
    }
}
