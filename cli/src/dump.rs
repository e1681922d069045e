//! `sealstone dump`: keyspaces as the text that LMDB's and Berkeley DB's loaders take.

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::engine::{Keyspace, Store};
use crate::open::{MAIN, StoreArgs};
use crate::output::{Failure, Outcome, Status, check_target, on_stdout, stdout, write_whole};
use crate::text::writer::{Heading, Writer};
use crate::text::{Dialect, Form};

/// What LMDB is told to reserve at least, in bytes: its own default of 1 MiB is soon full.
const MAP_BYTES_MIN: u64 = 64 << 20;

/// LMDB's pages are half full at worst and small records take several times their bytes.
const MAP_GROWTH: u64 = 4;

/// Writes keyspaces as portable dump text
#[derive(clap::Args)]
#[command(after_help = "\
Without --keyspace all keyspaces are written one after the other, each under its name; a single
keyspace called main is written as the unnamed database. LMDB takes keys of 1 to 511 bytes only.
An output that was cut short lacks its last line, DATA=END.

Examples:
  sealstone dump --store chain --output chain.dump
  sealstone dump --store chain | mdb_load lmdb-directory
  sealstone dump --store chain --print --for berkeley | db_load chain.db")]
pub struct Args {
    #[command(flatten)]
    store: StoreArgs,
    /// Only this keyspace
    #[arg(long, value_name = "NAME")]
    keyspace: Option<String>,
    /// Printable bytes as they are, others escaped, in place of hex digits
    #[arg(long)]
    print: bool,
    /// Whose loader the header is written for: LMDB's needs a line that Berkeley DB's refuses
    #[arg(long = "for", value_name = "LOADER", value_enum, default_value_t)]
    dialect: Dialect,
    /// Write to FILE, replacing it, not to standard output
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Runs the subcommand.
pub fn run(args: &Args) -> Outcome<Status> {
    if let Some(path) = &args.output {
        check_target(path, &args.store.path, &[])?;
    }
    let store = args.store.open_read_only()?;
    let keyspaces = keyspaces(args, &store)?;
    match &args.output {
        None => {
            write(args, &keyspaces, stdout(), &on_stdout)?;
        }
        Some(path) => {
            let failure = |error: io::Error| Failure::io(path.display(), &error);
            // An older dump stays until this one is whole.
            write_whole(path, |file| {
                let buffered = BufWriter::with_capacity(1 << 18, file);
                let written = write(args, &keyspaces, buffered, &failure)?;
                match written.get_ref().sync_all() {
                    // Pipes and devices can't be synced.
                    Err(error) if error.kind() != io::ErrorKind::InvalidInput => {
                        Err(failure(error))
                    }
                    _ => Ok(()),
                }
            })?;
        }
    }
    Ok(Status::Fine)
}

fn keyspaces(args: &Args, store: &Store) -> Outcome<Vec<Keyspace>> {
    let names: Vec<String> = match &args.keyspace {
        Some(name) => vec![name.clone()],
        None => store
            .keyspaces()
            .into_iter()
            .map(|info| info.name)
            .collect(),
    };
    if names.is_empty() {
        let path = args.store.path.display();
        return Err(Failure::new(format!(
            "{path}: the store has no keyspace to dump; load something first"
        )));
    }
    names
        .iter()
        .map(|name| args.store.keyspace(store, name))
        .collect()
}

fn write<W: Write>(
    args: &Args,
    keyspaces: &[Keyspace],
    output: W,
    failure: &dyn Fn(io::Error) -> Failure,
) -> Outcome<W> {
    let alone = keyspaces.len() == 1;
    let map_bytes = map_bytes(&args.store.path);
    let mut writer = Writer::new(output);
    for keyspace in keyspaces {
        let name = keyspace.name();
        let heading = Heading {
            form: if args.print {
                Form::Print
            } else {
                Form::Bytevalue
            },
            dialect: args.dialect,
            database: (!alone || name != MAIN).then_some(name),
            map_bytes,
        };
        writer.begin(&heading).map_err(failure)?;
        for record in keyspace.iter().map_err(|e| args.store.failure(&e))? {
            let (key, value) = record.map_err(|e| args.store.failure(&e))?;
            writer.record(&key, &value).map_err(failure)?;
        }
        writer.end().map_err(failure)?;
    }
    writer.finish().map_err(failure)
}

/// Address space enough for everything in the store: LMDB must know before the first record.
fn map_bytes(store: &Path) -> u64 {
    let files = std::fs::read_dir(store).into_iter().flatten().flatten();
    let bytes: u64 = files
        .filter_map(|entry| Some(entry.metadata().ok()?.len()))
        .sum();
    let wanted = bytes.saturating_mul(MAP_GROWTH).max(MAP_BYTES_MIN);
    wanted.checked_next_power_of_two().unwrap_or(wanted)
}
