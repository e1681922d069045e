//! `sealstone stats`: what a store is made of, from its manifest and logs; no segment is read.

use serde_json::{Value, json};

use crate::engine::{BufferStats, CallerStats, KeptStats, PinInfo, ResidentFilters, Stats, Store};
use crate::open::{StoreArgs, kind_word};
use crate::output::{Outcome, Report, Status, figure_table, shown};

/// Shows what a store is made of
#[derive(clap::Args)]
#[command(after_help = "\
Memory, residency, opens and pins are those of this command's own read-only open, which keeps the
commits of the logs in memory, loads no filter and fills no window: the expected false reads of a
lookup that finds nothing are then its runs.

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
        "memory": memory(&stats),
        "residency": {
            "filters": stats.filters_resident,
            "filter_bytes": stats.filter_bytes,
            "fence_bytes": stats.fence_bytes,
            "budget_bytes": stats.filter_budget_bytes,
            "window": {
                "bytes": stats.window_bytes,
                "entries": stats.window_entries,
                "segments": stats.window_segments,
                "generations": range(stats.window_generations),
                "dropped": stats.window_dropped,
                "hits": stats.window_hits,
                "runs_skipped": stats.window_runs_skipped,
            },
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
            "mapped_bytes": sum.mapped_bytes,
        })
    };
    sums.map(object).collect()
}

/// A range of generations, the end not in it; nothing if it is empty.
fn range((lo, hi): (u64, u64)) -> Value {
    match lo < hi {
        true => json!([lo, hi]),
        false => Value::Null,
    }
}

/// The ledger of the write region, in bytes: all parts add up to the total. Beside it who asked for memory,
/// what was reused and kept, pressure, and copies.
fn memory(stats: &Stats) -> Value {
    let ledger = &stats.memory;
    let counters = &stats.memory_counters;
    json!({
        "total": ledger.total_bytes,
        "free": ledger.free_bytes,
        "open": ledger.open_bytes,
        "sealed": ledger.sealed_bytes,
        "flushing": ledger.flushing_bytes,
        "pinned": ledger.pinned_bytes,
        "retiring": ledger.retiring_bytes,
        "scratch": ledger.scratch_bytes,
        "reserved": ledger.reserved_bytes,
        "region": json!({
            "high_water": stats.memory_high_water_bytes,
            "limit": stats.pressure.region_limit_bytes,
            "floor": stats.pressure.region_floor_bytes,
            "pressure": format!("{:?}", stats.pressure.level).to_lowercase(),
        }),
        "callers": counters.callers.iter().map(caller).collect::<Vec<_>>(),
        "buffers": counters.buffers.iter().map(buffers).collect::<Vec<_>>(),
        "kept": counters.kept.iter().map(kept).collect::<Vec<_>>(),
        "pinned_by": counters.pinned_by.iter().map(pin).collect::<Vec<_>>(),
        "copies": json!({
            "accepted": counters.copies.accepted_bytes,
            "chunk": counters.copies.chunk_bytes,
            "log": counters.copies.log_bytes,
            "output": counters.copies.output_bytes,
        }),
    })
}

fn caller(stats: &CallerStats) -> Value {
    json!({
        "caller": stats.caller,
        "granted": stats.counts.granted,
        "granted_bytes": stats.counts.granted_bytes,
        "refused": stats.counts.refused,
        "refused_bytes": stats.counts.refused_bytes,
    })
}

fn buffers(stats: &BufferStats) -> Value {
    json!({
        "caller": stats.caller,
        "class": stats.class,
        "hits": stats.counts.hits,
        "misses": stats.counts.misses,
        "granted_bytes": stats.counts.granted_bytes,
    })
}

fn kept(stats: &KeptStats) -> Value {
    json!({
        "class": stats.class,
        "live_bytes": stats.counts.live_bytes,
        "live_bytes_max": stats.counts.live_bytes_max,
        "used_bytes": stats.counts.used_bytes,
        "kept_bytes": stats.counts.kept_bytes,
        "kept_bytes_max": stats.counts.kept_bytes_max,
        "dropped_for_room": stats.counts.dropped_for_room,
        "dropped_by_pressure": stats.counts.dropped_by_pressure,
        "regretted": stats.counts.regretted,
    })
}

fn pin(pin: &PinInfo) -> Value {
    json!({
        "creator": pin.creator,
        "age_ms": pin.age.as_millis() as u64,
        "sequence": pin.sequence,
        "bytes": pin.bytes,
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
