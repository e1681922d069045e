//! `sealstone-bench chain`: a chain node's writes on a real store and a real disk, and what they cost in
//! memory, by site.
//!
//! The blocks are the laboratory's (`sealstone_sim::pool`): state trees, attribute index, blockstore and state
//! of the field report, tested against its totals. Its six databases are keyspaces of one store; its checkpoints
//! come after the blocks where the report saw them. What a node does between its writes is left out, so
//! the rate is the store's, not a node's.
//!
//! A run has a warm-up, which is not counted, and ends with nothing in memory on both sides of what is. With
//! stepped jobs (the default) everything happens on one thread: allocations and copies are then the same in
//! each run of the same command on any machine, which is what `sealstone-bench gate` asks of counts.

mod block;
mod causes;
mod node;
mod row;
#[cfg(test)]
mod tests;
mod verify;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use clap::{Args, ValueEnum};
use sealstone::Stats;
use sealstone::env::Env;
use sealstone_sim::pool::chain::Chain;
use sealstone_sim::pool::record::checkpoints;
use sealstone_sim::pool::workload::{Parameters, Workload};

use self::block::Block;
use self::node::{Node, Tally};
use self::row::ChainRow;
use self::verify::Recent;
use crate::allocations::{self, BySite, Site};
use crate::figures::{
    microseconds, peak_resident_bytes, process_minor_faults, ratio, reset_peak_resident,
};
use crate::load::prepare;
use crate::workplace::Workplace;

/// What a checkpoint of a database is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Checkpoints {
    /// Everything written so far is made durable: the log is where it is recovered from.
    Sync,
    /// The open generation is ended as well, so that all is written to segments.
    Seal,
}

/// Who runs the store's jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Jobs {
    /// The one thread of the run, after each write: counts are exact.
    Stepped,
    /// A thread of the store, as by default: rates are those of an application.
    Threads,
}

/// What is run; one row for each workload.
#[derive(Debug, Args)]
#[command(
    args_override_self = true,
    after_help = "\
Examples:
  sealstone-bench chain --workload plain-send --blocks 200 --json a.json
  sealstone-bench chain --directory target/chain --workload plain-send,small-multisend --blocks 1024
  sealstone-bench chain --directory target/chain --blocks 100 --jobs threads --checkpoint seal
  sealstone-bench gate --base a.json --candidate b.json --workload plain-send --site batch

A block of the report's size has 230 transactions, about 20,000 operations and 3 MB; on disk it takes about 4 MB.
Compare runs of the same arguments only, from directories of the same length: sizes of paths are counted, too."
)]
pub struct ChainArguments {
    /// A directory to work in; made if missing, and emptied of what the run made. Without it one of its own in
    /// the current directory, which goes afterwards.
    #[arg(long)]
    directory: Option<PathBuf>,
    /// What the transactions do: plain-send, small-multisend.
    #[arg(long, value_delimiter = ',', default_value = "plain-send", value_parser = workload_named)]
    workload: Vec<Workload>,
    /// Blocks that are measured.
    #[arg(long, default_value_t = 200)]
    blocks: u64,
    /// Blocks before them, until buffers are as many as they will be.
    #[arg(long, default_value_t = 32)]
    warmup_blocks: u64,
    /// Tenths of the report's size: 10 is 230 transactions a block, 105,000 accounts and 5,000 wallets; fewer
    /// than 1 would change the shape of the trees.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=100))]
    scale: u64,
    /// Ends a workload after the block that takes it past this time.
    #[arg(long, default_value_t = 300.0)]
    seconds: f64,
    /// What a checkpoint does.
    #[arg(long, value_enum, default_value = "sync")]
    checkpoint: Checkpoints,
    /// Who runs the store's jobs.
    #[arg(long, value_enum, default_value = "stepped")]
    jobs: Jobs,
    /// All memory of the store; its default if not given.
    #[arg(long)]
    memory_bytes: Option<u64>,
    /// Writes the figures to this file, or to standard output for `-`.
    #[arg(long)]
    pub json: Option<PathBuf>,
}

fn workload_named(name: &str) -> Result<Workload, String> {
    let names = Workload::ALL.map(Workload::name).join(", ");
    Workload::named(name).ok_or_else(|| format!("not one of {names}"))
}

impl ChainArguments {
    /// One run for each workload, each in a directory of its own that goes after.
    pub fn measure(&self) -> Result<Vec<ChainRow>> {
        let mut rows = Vec::new();
        let place = Workplace::of(self.directory.as_deref())?;
        for workload in &self.workload {
            let directory = place.path().join(workload.name());
            prepare(&directory)?;
            let row = run(self, *workload, &directory);
            std::fs::remove_dir_all(&directory)?;
            let row = row?;
            eprintln!("{}", row.summary());
            rows.push(row);
        }
        Ok(rows)
    }

    fn parameters(&self, workload: Workload) -> Result<Parameters> {
        let blocks = self.blocks.checked_add(self.warmup_blocks);
        let blocks = blocks.filter(|_| self.blocks > 0);
        let blocks = blocks.ok_or_else(|| anyhow!("at least one block is needed"))?;
        Ok(Parameters::measured(workload).tenths(self.scale, blocks))
    }
}

/// Everything that is counted from outside, at one moment.
struct Moment {
    sites: BySite,
    faults: u64,
    stats: Stats,
}

impl Moment {
    fn now(node: &Node) -> Self {
        let stats = node.store.stats();
        Self {
            sites: allocations::by_site(),
            faults: process_minor_faults(),
            stats,
        }
    }
}

/// A run under way: the generator, the node that it writes to, and who checks it.
struct Run {
    node: Node,
    chain: Chain,
    block: Block,
    recent: Recent,
    blocks: u64,
    deadline: Instant,
}

impl Run {
    /// Writes up to `count` blocks, with their checkpoints; says how many there was time for.
    fn blocks(&mut self, count: u64, tally: &mut Tally) -> Result<u64> {
        for done in 0..count {
            if Instant::now() >= self.deadline {
                return Ok(done);
            }
            self.block.clear();
            let Some(height) = self.chain.block(&mut self.block) else {
                return Ok(done);
            };
            let transactions = self.chain.parameters().transactions_at(height);
            self.node.block(&self.block, transactions, tally)?;
            for _ in checkpoints(self.blocks, height) {
                self.node.checkpoint(tally)?;
            }
            self.recent.check(&mut self.node, &mut self.block)?;
        }
        Ok(count)
    }
}

fn run(arguments: &ChainArguments, workload: Workload, directory: &Path) -> Result<ChainRow> {
    let parameters = arguments.parameters(workload)?;
    let threads = arguments.jobs == Jobs::Threads;
    if threads {
        allocations::watch_threads();
    }
    let _label = allocations::at(Site::Harness);
    let live_before = allocations::live_bytes(threads);
    let env = Env::real(directory)?;
    let mut run = Run {
        node: Node::open(
            env,
            arguments.memory_bytes,
            arguments.jobs,
            arguments.checkpoint,
        )?,
        chain: Chain::new(parameters.clone()),
        block: Block::new(parameters.seed),
        recent: Recent::default(),
        blocks: parameters.blocks,
        deadline: Instant::now() + Duration::from_secs_f64(arguments.seconds),
    };
    let mut tally = Tally::new(&run.node.store)?;
    let warmup_blocks = run.blocks(arguments.warmup_blocks, &mut tally)?;
    run.node.settle(&mut tally)?;

    let mut tally = Tally::new(&run.node.store)?;
    reset_peak_resident();
    let before = Moment::now(&run.node);
    let blocks = run.blocks(arguments.blocks, &mut tally)?;
    run.node.settle(&mut tally)?;
    let after = Moment::now(&run.node);
    let transactions = |blocks: u64| blocks * parameters.transactions / parameters.blocks;
    let mut row = ChainRow {
        workload: workload.name().to_owned(),
        blocks,
        warmup_blocks,
        complete: blocks == arguments.blocks,
        scale: arguments.scale,
        checkpoint: match arguments.checkpoint {
            Checkpoints::Sync => "sync",
            Checkpoints::Seal => "seal",
        },
        jobs: if threads { "threads" } else { "stepped" },
        transactions: transactions(blocks),
        peak_resident_bytes: peak_resident_bytes(),
        ..ChainRow::default()
    };
    of_tally(&mut row, &tally);
    of_moments(&mut row, &before, &after);

    let Run {
        mut node, recent, ..
    } = run;
    let mut checked = recent.outcome();
    drop((before, after, tally));
    // The store's, what the node keeps of its last answer, and this row's names.
    let live_after = allocations::live_bytes(threads);
    row.retained_bytes = live_after.wrapping_sub(live_before);
    checked.all(&mut node, &parameters, warmup_blocks + blocks)?;
    row.values_checked = checked.values;
    row.ownership_violations = checked.violations;
    node.store.close()?;
    Ok(row)
}

/// What the harness has counted and timed.
fn of_tally(row: &mut ChainRow, tally: &Tally) {
    row.operations = tally.operations;
    row.synced_commits = tally.synced.len();
    row.buffered_commits = tally.buffered.len();
    row.checkpoints = tally.checkpoints;
    row.seconds = tally.elapsed.as_secs_f64();
    row.transactions_per_second = ratio(row.transactions as f64, row.seconds);
    row.reads_per_tx = ratio(tally.reads as f64, row.transactions as f64);
    let each = |count: u64| ratio(count as f64, tally.operations as f64);
    row.write_path_allocs_per_op = each(tally.causes.all);
    row.write_allocs_large_per_op = each(tally.causes.large);
    row.write_allocs_generations_per_op = each(tally.causes.generations);
    row.write_allocs_opens_per_op = each(tally.causes.opens);
    row.write_allocs_rest_per_op = each(tally.causes.rest);
    let of = |times: &hdrhistogram::Histogram<u64>, q| microseconds(times.value_at_quantile(q));
    row.commit_p50_us = of(&tally.synced, 0.5);
    row.commit_p99_us = of(&tally.synced, 0.99);
    row.buffered_p50_us = of(&tally.buffered, 0.5);
    row.buffered_p99_us = of(&tally.buffered, 0.99);
}

/// What lies between two moments.
fn of_moments(row: &mut ChainRow, before: &Moment, after: &Moment) {
    row.allocations(&before.sites, &after.sites);
    let faults = after.faults.saturating_sub(before.faults);
    row.minor_faults_per_tx = ratio(faults as f64, row.transactions as f64);
    let (from, to) = (&before.stats, &after.stats);
    let (copied_from, copied_to) = (&from.memory_counters.copies, &to.memory_counters.copies);
    row.payload_bytes = copied_to.accepted_bytes - copied_from.accepted_bytes;
    let each = |to: u64, from: u64| ratio((to - from) as f64, row.payload_bytes as f64);
    row.copies_chunk = each(copied_to.chunk_bytes, copied_from.chunk_bytes);
    row.copies_log = each(copied_to.log_bytes, copied_from.log_bytes);
    row.copies_output = each(copied_to.output_bytes, copied_from.output_bytes);
    row.copies_per_payload_byte = row.copies_chunk + row.copies_log + row.copies_output;
    row.seals = to.seals - from.seals;
    row.folds = to.folds - from.folds;
    row.stalls = to.stalls - from.stalls;
    row.write_region_peak_bytes = to.memory_high_water_bytes;
}
