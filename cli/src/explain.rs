//! `sealstone explain`: what the lookup of a key does, step by step, and what each step costs.

use serde_json::{Value, json};

use crate::engine::{Answer, Cost, Explanation, FilterAnswer, Step};
use crate::key::{Key, push_listed};
use crate::open::{MAIN, StoreArgs};
use crate::output::{Outcome, Report, Status, new_table};

/// Shows what the lookup of a key does, and what it costs
#[derive(clap::Args)]
#[command(after_help = "\
Filters are loaded first, as jobs do in a store that has been open for a while, and reading one also
touches its file. With --cold nothing is: the lookup is the first after an open.

Exit status: 0 found; 1 the key is absent; 2 could not, or the lookup fails.

Examples:
  sealstone explain --store chain text:tip
  sealstone explain --store chain --keyspace outputs --cold hex:000f6423494a7b14
  sealstone explain --store chain --json - text:tip")]
pub struct Args {
    #[command(flatten)]
    store: StoreArgs,
    /// The keyspace to look in
    #[arg(long, value_name = "NAME", default_value = MAIN)]
    keyspace: String,
    /// Load no filters first
    #[arg(long)]
    cold: bool,
    #[command(flatten)]
    report: Report,
    /// The key, as text:WORD or hex:00FF
    key: Key,
}

/// Runs the subcommand.
pub fn run(args: &Args) -> Outcome<Status> {
    args.report.check(&args.store.path, &[])?;
    let store = args.store.open_stepped()?;
    let keyspace = args.store.keyspace(&store, &args.keyspace)?;
    let failure = |error| args.store.failure(&error);
    if !args.cold {
        store.drain().map_err(failure)?;
    }
    let explanation = keyspace.explain(&args.key.0).map_err(failure)?;
    let table = table(&explanation);
    let row = row(args, &explanation);
    args.report.finish("sealstone explain", &table, vec![row])?;
    match explanation.answer {
        Answer::Value { .. } => Ok(Status::Fine),
        Answer::Failed(error) => Err(failure(error)),
        _ => Ok(Status::Negative),
    }
}

/// A line for each step: what was done, reads, their bytes, and what is beside.
fn table(explanation: &Explanation) -> comfy_table::Table {
    let mut table = new_table();
    table.add_row([format!("hash {:012x}", explanation.hash)]);
    for step in &explanation.steps {
        table.add_row([step.to_string(), cost_text(step.cost())]);
    }
    let answer = match &explanation.answer {
        // Standard error has the sentence.
        Answer::Failed(_) => "failed".to_owned(),
        answer => answer.to_string(),
    };
    table.add_row([answer, explanation.cost.to_string()]);
    table
}

fn cost_text(cost: Cost) -> String {
    match cost == Cost::default() {
        true => String::new(),
        false => cost.to_string(),
    }
}

/// The explanation as a figure row.
fn row(args: &Args, explanation: &Explanation) -> Value {
    let mut key = Vec::new();
    push_listed(&args.key.0, false, &mut key);
    let answer = match &explanation.answer {
        Answer::Absent => json!({ "answer": "absent" }),
        Answer::Deleted { sequence } => json!({ "answer": "deleted", "sequence": sequence }),
        Answer::Value { sequence, bytes } => {
            json!({ "answer": "value", "sequence": sequence, "bytes": bytes })
        }
        Answer::Failed(error) => json!({ "answer": "failed", "error": error.to_string() }),
    };
    json!({
        "keyspace": args.keyspace,
        "key": String::from_utf8_lossy(&key),
        "hash": format!("{:012x}", explanation.hash),
        "steps": explanation.steps.iter().map(step_figures).collect::<Vec<_>>(),
        "answer": answer,
        "cost": cost_figures(explanation.cost),
    })
}

fn step_figures(step: &Step) -> Value {
    let cost = cost_figures(step.cost());
    match step {
        Step::Memory { generation, found } => {
            json!({ "step": "memory", "generation": generation, "found": found })
        }
        Step::Window {
            generations: (lo, hi),
            runs,
        } => json!({
            "step": "window", "oldest_generation": lo, "newest_generation": hi.saturating_sub(1),
            "runs_skipped": runs,
        }),
        Step::Run {
            level,
            generations: (oldest, newest),
            segments,
            parts,
            part,
            filter,
        } => {
            let (filter, bits_per_key) = match filter {
                FilterAnswer::No { bits_per_key } => ("no", Some(bits_per_key)),
                FilterAnswer::Maybe { bits_per_key } => ("perhaps", Some(bits_per_key)),
                FilterAnswer::NotResident => ("not in memory", None),
            };
            json!({
                "step": "run", "level": level, "oldest_generation": oldest,
                "newest_generation": newest, "segments": segments, "parts": parts,
                "file": part.to_string(), "filter": filter, "filter_bits_per_key": bits_per_key,
            })
        }
        Step::NoPage { file, .. } => {
            json!({ "step": "no page", "file": file.to_string(), "cost": cost })
        }
        Step::Page {
            file,
            page,
            pages,
            entries,
            ..
        } => json!({
            "step": "page", "file": file.to_string(), "page": page, "pages": pages,
            "entries": entries, "cost": cost,
        }),
        Step::Record {
            file,
            offset,
            size_class_bytes,
            tombstone,
            wanted,
            ..
        } => json!({
            "step": "record", "file": file.to_string(), "offset": offset,
            "size_class_bytes": size_class_bytes, "tombstone": tombstone, "wanted": wanted,
            "cost": cost,
        }),
        Step::DamagedIndex { file, .. } => {
            json!({ "step": "damaged index", "file": file.to_string(), "cost": cost })
        }
        other => json!({ "step": other.to_string().trim_start(), "cost": cost }),
    }
}

fn cost_figures(cost: Cost) -> Value {
    json!({
        "reads": cost.reads,
        "read_bytes": cost.read_bytes,
        "mapped_reads": cost.mapped_reads,
        "mapped_bytes": cost.mapped_bytes,
        "opens": cost.opens,
        "first_touches": cost.first_touches,
    })
}
