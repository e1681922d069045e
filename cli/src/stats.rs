//! `sealstone stats`: what a store is made of, from its manifest and logs; no segment is read.

use serde_json::{Value, json};

use crate::engine::{MemoryStats, ResidentFilters, Stats, Store};
use crate::open::{StoreArgs, kind_word};
use crate::output::{Outcome, Report, Status, figure_table, shown};

/// Shows what a store is made of
#[derive(clap::Args)]
#[command(after_help = "\
Memory, residency, opens and pins are those of this command's own read-only open, which keeps the
commits of the logs in memory and loads no filter: the expected false reads of a lookup that finds
nothing are then its runs.

Examples:
  sealstone stats --store chain
  sealstone stats --store chain --json stats.json")]
pub struct Args {
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    report: Report,
}

/// Runs the subcommand.
pub fn run(args: &Args) -> Outcome<Status> {
    args.report.check(&args.store.path, &[])?;
    let store = args.store.open_read_only()?;
    let row = row(&store);
    let mut lines = Vec::new();
    if let Value::Object(fields) = &row {
        for (name, value) in fields {
            lines.push((name.as_str(), plain(value)));
        }
    }
    args.report
        .finish("sealstone stats", &figure_table(&lines), vec![row.clone()])?;
    Ok(Status::Fine)
}

/// All figures of a store.
fn row(store: &Store) -> Value {
    let stats = store.stats();
    let keyspaces: Vec<_> = stats
        .keyspaces
        .iter()
        .map(|info| json!({ "name": info.name, "kind": kind_word(info.kind) }))
        .collect();
    json!({
        "sequence": stats.sequence,
        "keyspaces": keyspaces,
        "memory": memory(&stats.memory),
        "residency": {
            "filters": stats.filters_resident,
            "filter_bytes": stats.filter_bytes,
            "fence_bytes": stats.fence_bytes,
            "budget_bytes": stats.filter_budget_bytes,
            "by_bits": by_bits(&stats),
            "loads": stats.filter_loads,
            "frees": stats.filter_frees,
            "given_up": stats.filters_given_up,
            "ghosts": stats.filter_ghosts,
            "expected_false_reads": {
                "write_once": stats.expected_false_reads_write_once,
                "mutable": stats.expected_false_reads_mutable,
            },
        },
        "runs": stats.runs,
        "segments": stats.segments,
        "segment_records": stats.segment_records,
        "segment_bytes": stats.segment_bytes,
        "logs": stats.logs,
        "log_bytes": stats.log_bytes,
        "opens": stats.opens,
        "pinned": stats.pinned_bytes,
    })
}

/// The filters in memory by bits a key.
fn by_bits(stats: &Stats) -> Vec<Value> {
    let sums = stats.filters_by_bits.iter();
    let object = |sum: &ResidentFilters| {
        json!({
            "bits_per_key": sum.bits_per_key,
            "filters": sum.filters,
            "bytes": sum.bytes,
        })
    };
    sums.map(object).collect()
}

/// The ledger of the write region, in bytes; all but the total add up to it.
fn memory(memory: &MemoryStats) -> Value {
    json!({
        "total": memory.total_bytes,
        "free": memory.free_bytes,
        "open": memory.open_bytes,
        "sealed": memory.sealed_bytes,
        "flushing": memory.flushing_bytes,
        "pinned": memory.pinned_bytes,
        "retiring": memory.retiring_bytes,
        "scratch": memory.scratch_bytes,
        "reserved": memory.reserved_bytes,
    })
}

/// A figure as it stands in the table: objects and lists as `name value` pairs with commas.
fn plain(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => shown(text),
        Value::Array(items) => items.iter().map(plain).collect::<Vec<_>>().join("; "),
        Value::Object(fields) => {
            let pairs: Vec<_> = fields
                .iter()
                .map(|(name, value)| format!("{name} {}", plain(value)))
                .collect();
            pairs.join(", ")
        }
        other => other.to_string(),
    }
}
