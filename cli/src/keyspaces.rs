//! `sealstone keyspaces`: what keyspaces a store has.

use serde_json::json;

use crate::open::{StoreArgs, kind_word};
use crate::output::{Outcome, Report, Status, new_table, shown};

/// Lists the keyspaces of a store
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  sealstone keyspaces --store chain
  sealstone keyspaces --store chain --json -")]
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
    let mut table = new_table();
    table.set_header(["name", "kind", "id"]);
    let mut rows = Vec::new();
    for info in store.keyspaces() {
        let kind = kind_word(info.kind);
        table.add_row([
            shown(&info.name),
            kind.to_owned(),
            format!("{:08x}", info.id.0),
        ]);
        rows.push(json!({ "name": info.name, "kind": kind, "id": info.id.0 }));
    }
    args.report.finish("sealstone keyspaces", &table, rows)?;
    Ok(Status::Fine)
}
