//! `sealstone verify`: reads everything a store consists of and checks it.

use std::time::Instant;

use serde_json::{Value, json};

use crate::engine::{Error, ErrorKind, VerifyReport};
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

/// A place of damage as it is reported.
struct Place {
    file: String,
    offset: u64,
    what: String,
}

/// Runs the subcommand.
pub fn run(args: &Args) -> Outcome<Status> {
    let start = Instant::now();
    let (report, refusal) = match read_all(args) {
        Ok(report) => (report, None),
        // A store that can't be opened for damage is a damaged store, not a failed command.
        Err(error) if is_damage(&error) => (VerifyReport::default(), Some(error)),
        Err(error) => return Err(args.store.failure(&error)),
    };
    let mut places: Vec<_> = report
        .damaged
        .iter()
        .map(|damage| Place {
            file: damage.file.to_string(),
            offset: damage.offset,
            what: damage.what.clone(),
        })
        .collect();
    places.extend(refusal.map(|error| {
        Place {
            file: error
                .file()
                .map_or_else(String::new, |file| file.to_string()),
            offset: error.offset().unwrap_or(0),
            what: error.to_string(),
        }
    }));
    let row = json!({
        "files": report.files,
        "records": report.records,
        "bytes": report.bytes,
        "damaged": places.iter().map(Place::figures).collect::<Vec<_>>(),
        "seconds": seconds(start.elapsed()),
    });
    args.report
        .finish("sealstone verify", &table(&row, &places), vec![row.clone()])?;
    Ok(if places.is_empty() {
        Status::Fine
    } else {
        Status::Negative
    })
}

fn is_damage(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Corruption | ErrorKind::MissingFile)
}

fn read_all(args: &Args) -> Result<VerifyReport, Error> {
    let store = args.store.try_open_read_only()?;
    let bar = progress("verify", 0);
    let report = store.verify(&mut |seen| {
        bar.set_length(seen.bytes_total);
        bar.set_position(seen.bytes);
    });
    bar.finish_and_clear();
    report
}

impl Place {
    fn figures(&self) -> Value {
        json!({ "file": self.file, "offset": self.offset, "what": self.what })
    }
}

fn table(row: &Value, places: &[Place]) -> comfy_table::Table {
    let mut table = new_table();
    for name in ["files", "records", "bytes", "seconds"] {
        table.add_row([name.to_owned(), row[name].to_string()]);
    }
    table.add_row(["damaged".to_owned(), places.len().to_string()]);
    for place in places {
        let at = format!("{} at byte {}", place.file, place.offset);
        table.add_row([String::new(), at, shown(&place.what)]);
    }
    table
}
