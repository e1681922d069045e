//! `sealstone verify`: reads everything a store consists of and checks it.

use std::time::Instant;

use serde_json::{Value, json};

use crate::engine::{Error, Store, VerifyReport};
use crate::open::StoreArgs;
use crate::output::{Outcome, Report, Status, new_table, progress, seconds, shown};

/// Reads a whole store and lists all damage
#[derive(clap::Args)]
#[command(after_help = "\
Works read-only: nothing on disk changes, and nothing is repaired.
Exit status: 0 undamaged; 1 damaged; 2 could not.

Examples:
  sealstone verify --store chain
  sealstone verify --store chain --json - | jq '.rows[0].damaged'")]
pub struct Args {
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    report: Report,
}

/// Runs the subcommand.
pub fn run(args: &Args) -> Outcome<Status> {
    args.report.check(&args.store.path, &[])?;
    let start = Instant::now();
    let report = read_all(args).map_err(|error| args.store.failure(&error))?;
    let places: Vec<_> = report
        .damaged
        .iter()
        .map(|damage| {
            json!({
                "file": damage.file.to_string(),
                "offset": damage.offset,
                "what": damage.what,
            })
        })
        .collect();
    let row = json!({
        "files": report.files,
        "records": report.records,
        "bytes": report.bytes,
        "damaged": places,
        "unlisted": report.unlisted,
        "seconds": seconds(start.elapsed()),
    });
    args.report
        .finish("sealstone verify", &table(&row, &report), vec![row.clone()])?;
    Ok(if report.is_clean() {
        Status::Fine
    } else {
        Status::Negative
    })
}

/// Reads the store without opening it: damage that keeps it from opening is damage, not a failure.
fn read_all(args: &Args) -> Result<VerifyReport, Error> {
    let bar = progress("verify", 0);
    let report = Store::verify_closed(&args.store.env()?, &mut |seen| {
        bar.set_length(seen.bytes_total);
        bar.set_position(seen.bytes);
    });
    bar.finish_and_clear();
    report
}

fn table(row: &Value, report: &VerifyReport) -> comfy_table::Table {
    let mut table = new_table();
    for name in ["files", "records", "bytes", "seconds"] {
        table.add_row([name.to_owned(), row[name].to_string()]);
    }
    let damages = report.damaged.len() as u64 + report.unlisted;
    table.add_row(["damaged".to_owned(), damages.to_string()]);
    for damage in &report.damaged {
        let at = format!("{} at byte {}", damage.file, damage.offset);
        table.add_row([String::new(), at, shown(&damage.what)]);
    }
    table
}
