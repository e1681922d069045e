//! `sealstone stats`: what a store is made of, from its manifest and logs; no record is read.

use serde_json::{Value, json};

use crate::engine::Store;
use crate::open::{StoreArgs, kind_word};
use crate::output::{Outcome, Report, Status, figure_table, seconds, shown};

/// Shows what a store is made of
#[derive(clap::Args)]
#[command(after_help = "\
Counts of reads, opens and the like are those of this command's own open.

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
    let audit = store.audit();
    let pinned: Vec<_> = audit
        .pins
        .iter()
        .map(|pin| {
            json!({
                "creator": pin.creator,
                "sequence": pin.sequence,
                "age_seconds": seconds(pin.age),
                "bytes": pin.bytes,
            })
        })
        .collect();
    let keyspaces: Vec<_> = store
        .keyspaces()
        .into_iter()
        .map(|info| json!({ "name": info.name, "kind": kind_word(info.kind) }))
        .collect();
    json!({
        "sequence": store.sequence(),
        "keyspaces": keyspaces,
        "memory": audit.ledger,
        "residency": audit.residency_bytes,
        "pinned": pinned,
        "segments": stats.segments,
        "runs": stats.runs,
        "log_bytes": stats.log_bytes,
        "reads": stats.reads,
        "read_bytes": stats.read_bytes,
        "opens": stats.opens,
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
