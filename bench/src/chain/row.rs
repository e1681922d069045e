//! The figures of one run.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::allocations::{BySite, Site, Taken};
use crate::figures::ratio;

/// One workload's figures, behind the warm-up. Per transaction: of all transactions of the blocks.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ChainRow {
    /// `plain-send` or `small-multisend`.
    pub workload: String,
    /// Blocks measured.
    pub blocks: u64,
    /// Blocks before them.
    pub warmup_blocks: u64,
    /// Whether all blocks were written before the time was up.
    pub complete: bool,
    /// Tenths of the report's size.
    pub scale: u64,
    /// What a checkpoint is: `sync` or `seal`.
    pub checkpoint: &'static str,
    /// Who runs the store's jobs: `stepped` or `threads`.
    pub jobs: &'static str,
    /// Transactions in the blocks.
    pub transactions: u64,
    /// Operations written.
    pub operations: u64,
    /// Writes that waited for their barrier.
    pub synced_commits: u64,
    /// Writes that did not.
    pub buffered_commits: u64,
    /// Checkpoints, those of databases without writes among them.
    pub checkpoints: u64,
    /// Bytes of the batches, as the log has them.
    pub payload_bytes: u64,
    /// Generations sealed.
    pub seals: u64,
    /// Indexes merged.
    pub folds: u64,
    /// Time in the store and in making batches for it; the generator's is not in it.
    pub seconds: f64,
    /// Transactions by that time.
    pub transactions_per_second: f64,
    /// Bytes asked of the allocator by a transaction, in all: the sum of the sites.
    pub alloc_bytes_per_tx: f64,
    /// By site.
    pub alloc_by_site: BTreeMap<&'static str, f64>,
    /// Calls of the allocator by site, by transaction.
    pub allocs_by_site: BTreeMap<&'static str, f64>,
    /// Allocations of commits, by operation: the sum of the next four.
    pub write_path_allocs_per_op: f64,
    /// Lists of batches that are larger than those that the store keeps lists for.
    pub write_allocs_large_per_op: f64,
    /// Beginnings of generations.
    pub write_allocs_generations_per_op: f64,
    /// Files that write-once checks opened.
    pub write_allocs_opens_per_op: f64,
    /// Everything else.
    pub write_allocs_rest_per_op: f64,
    /// Copies of a payload byte on its way to its segment: the sum of the next three.
    pub copies_per_payload_byte: f64,
    /// Into the write region.
    pub copies_chunk: f64,
    /// For the log, where small frames leave together.
    pub copies_log: f64,
    /// Into the flush's output buffer, with index, fences and filters.
    pub copies_output: f64,
    /// Page faults without the disk, of the whole process.
    pub minor_faults_per_tx: f64,
    /// The most memory of the process.
    pub peak_resident_bytes: u64,
    /// Heap that the settled store holds, what it keeps for reuse included.
    pub retained_bytes: u64,
    /// The most of the write region in use at once.
    pub write_region_peak_bytes: u64,
    /// The median commit that waited for its barrier.
    pub commit_p50_us: f64,
    /// 99 of 100 are not slower.
    pub commit_p99_us: f64,
    /// The same of commits that did not wait.
    pub buffered_p50_us: f64,
    /// Likewise.
    pub buffered_p99_us: f64,
    /// Reads of the node, by transaction.
    pub reads_per_tx: f64,
    /// Writes that had to wait for memory.
    pub stalls: u64,
    /// Values compared after the store had the batch and its bytes were overwritten.
    pub values_checked: u64,
    /// Values that were another or absent, and counts of the write region that did not add up.
    pub ownership_violations: u64,
}

impl ChainRow {
    /// Fills in what was allocated between two counts. Each number of a site is divided once, so their sum is
    /// the total up to rounding.
    pub fn allocations(&mut self, before: &BySite, after: &BySite) {
        let transactions = self.transactions as f64;
        let mut sum = Taken::default();
        for site in Site::ALL {
            if site == Site::Background && self.jobs != "threads" {
                continue;
            }
            let (from, to) = (before[site as usize], after[site as usize]);
            let taken = Taken {
                calls: to.calls - from.calls,
                bytes: to.bytes - from.bytes,
            };
            sum.bytes += taken.bytes;
            let each = |count: u64| ratio(count as f64, transactions);
            self.alloc_by_site.insert(site.name(), each(taken.bytes));
            self.allocs_by_site.insert(site.name(), each(taken.calls));
        }
        self.alloc_bytes_per_tx = ratio(sum.bytes as f64, transactions);
    }

    /// Some lines for people.
    pub fn summary(&self) -> String {
        let mut sites: Vec<_> = self.alloc_by_site.iter().collect();
        sites.sort_by(|a, b| b.1.total_cmp(a.1));
        let sites: Vec<_> = sites
            .into_iter()
            .filter(|(_, bytes)| **bytes > 0.0)
            .map(|(name, bytes)| format!("{name} {bytes:.1}"))
            .collect();
        format!(
            "{}: {} blocks, {} transactions, {:.0} a second ({} jobs, checkpoints {}{})\n  \
             allocated {:.1} bytes/tx: {}\n  \
             {:.5} allocations/op in commits: large batches {:.5}, generations {:.5}, opened files {:.5}, rest \
             {:.5}\n  \
             {:.3} copies/payload byte (chunk {:.3}, log {:.3}, output {:.3}), {:.3} minor faults/tx\n  \
             commit p50 {:.0} us p99 {:.0} us, buffered {:.0} and {:.0} us, {} stalls\n  \
             peak {} bytes resident, {} retained by the store; {} values checked, {} ownership violations",
            self.workload,
            self.blocks,
            self.transactions,
            self.transactions_per_second,
            self.jobs,
            self.checkpoint,
            if self.complete { "" } else { ", time was up" },
            self.alloc_bytes_per_tx,
            sites.join(", "),
            self.write_path_allocs_per_op,
            self.write_allocs_large_per_op,
            self.write_allocs_generations_per_op,
            self.write_allocs_opens_per_op,
            self.write_allocs_rest_per_op,
            self.copies_per_payload_byte,
            self.copies_chunk,
            self.copies_log,
            self.copies_output,
            self.minor_faults_per_tx,
            self.commit_p50_us,
            self.commit_p99_us,
            self.buffered_p50_us,
            self.buffered_p99_us,
            self.stalls,
            self.peak_resident_bytes,
            self.retained_bytes,
            self.values_checked,
            self.ownership_violations,
        )
    }
}
