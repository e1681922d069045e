//! `sealstone scan`: the records of a range, in key order, one a line.

use std::io::Write;
use std::ops::Bound;

use crate::engine::{Iter, Keyspace, Result};
use crate::key::{Key, push_listed};
use crate::open::{MAIN, StoreArgs};
use crate::output::{Outcome, Status, on_stdout, stdout};

/// Lists the records of a range in key order
#[derive(clap::Args)]
#[command(after_help = "\
A line is a key, a tab and a value, each as text: (printable ASCII) or hex:, as get takes them.

Examples:
  sealstone scan --store chain --limit 10
  sealstone scan --store chain --from text:b --to text:c
  sealstone scan --store chain --keyspace outputs --prefix hex:000f64 --reverse --keys-only")]
pub struct Args {
    #[command(flatten)]
    store: StoreArgs,
    /// The keyspace to list
    #[arg(long, value_name = "NAME", default_value = MAIN)]
    keyspace: String,
    /// The first key, as text:WORD or hex:00FF
    #[arg(long, value_name = "KEY")]
    from: Option<Key>,
    /// The key to stop before
    #[arg(long, value_name = "KEY")]
    to: Option<Key>,
    /// Only keys that begin with this
    #[arg(long, value_name = "KEY", conflicts_with_all = ["from", "to"])]
    prefix: Option<Key>,
    /// Last key first
    #[arg(long)]
    reverse: bool,
    /// Stop after N records
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    /// Leave the values out
    #[arg(long)]
    keys_only: bool,
    /// Print everything as hex:
    #[arg(long)]
    hex: bool,
}

/// Runs the subcommand.
pub fn run(args: &Args) -> Outcome<Status> {
    let store = args.store.open_read_only()?;
    let keyspace = args.store.keyspace(&store, &args.keyspace)?;
    let Some(mut records) = range(args, &keyspace)
        .transpose()
        .map_err(|e| args.store.failure(&e))?
    else {
        return Ok(Status::Fine);
    };
    let mut out = stdout();
    let mut line = Vec::new();
    for _ in 0..args.limit.unwrap_or(u64::MAX) {
        let next = if args.reverse {
            records.next_back()
        } else {
            records.next()
        };
        let Some(record) = next else { break };
        let (key, value) = record.map_err(|e| args.store.failure(&e))?;
        line.clear();
        push_listed(&key, args.hex, &mut line);
        if !args.keys_only {
            line.push(b'\t');
            push_listed(&value, args.hex, &mut line);
        }
        line.push(b'\n');
        out.write_all(&line).map_err(on_stdout)?;
    }
    out.flush().map_err(on_stdout)?;
    Ok(Status::Fine)
}

/// The records asked for; `None` where no key can be between the ends.
fn range(args: &Args, keyspace: &Keyspace) -> Option<Result<Iter>> {
    if let Some(prefix) = &args.prefix {
        return Some(keyspace.prefix(&prefix.0));
    }
    let from = args.from.as_ref().map(|key| key.0.as_slice());
    let to = args.to.as_ref().map(|key| key.0.as_slice());
    if let (Some(from), Some(to)) = (from, to)
        && from >= to
    {
        return None;
    }
    let bounds = (
        from.map_or(Bound::Unbounded, Bound::Included),
        to.map_or(Bound::Unbounded, Bound::Excluded),
    );
    Some(keyspace.range::<&[u8]>(bounds))
}
