//! `sealstone get`: one value to standard output.

use std::io::Write;

use crate::key::Key;
use crate::open::{MAIN, StoreArgs};
use crate::output::{Outcome, Status, on_stdout, stdout};
use crate::text::Form;
use crate::text::escape::encode;

/// Prints the value of a key
#[derive(clap::Args)]
#[command(after_help = "\
Exit status: 0 found; 1 the key is absent; 2 could not.

Examples:
  sealstone get --store chain text:tip
  sealstone get --store chain --keyspace outputs --hex hex:000f6423494a7b14")]
pub struct Args {
    #[command(flatten)]
    store: StoreArgs,
    /// The keyspace to look in
    #[arg(long, value_name = "NAME", default_value = MAIN)]
    keyspace: String,
    /// Print the value as hex digits and a line feed, not as it is
    #[arg(long)]
    hex: bool,
    /// The key, as text:WORD or hex:00FF
    key: Key,
}

/// Runs the subcommand.
pub fn run(args: &Args) -> Outcome<Status> {
    let store = args.store.open_read_only()?;
    let keyspace = args.store.keyspace(&store, &args.keyspace)?;
    let found = keyspace
        .get(&args.key.0)
        .map_err(|e| args.store.failure(&e))?;
    let Some(value) = found else {
        return Ok(Status::Negative);
    };
    let mut out = stdout();
    if args.hex {
        let mut text = Vec::new();
        encode(Form::Bytevalue, &value, &mut text);
        text.push(b'\n');
        out.write_all(&text).map_err(on_stdout)?;
    } else {
        out.write_all(&value).map_err(on_stdout)?;
    }
    out.flush().map_err(on_stdout)?;
    Ok(Status::Fine)
}
