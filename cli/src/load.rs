//! `sealstone load`: dump text into a store, batch by batch.
//!
//! A batch is submitted once it is complete and its input was well-formed so far, and the last one
//! of a database once `DATA=END` was read: what a malformed line belongs to is never loaded in
//! part. Batches are buffered; one sync at the end, also after a failure, makes them durable.

use std::path::PathBuf;
use std::time::Instant;

use serde_json::{Map, Value, json};

use crate::check::{self, Replay};
use crate::engine::{Batch, Counts, Durability, Keyspace, KeyspaceOptions, Result, Store};
use crate::input::{self, Backslashes, Input, Namer, Sink, Spool, Spooled};
use crate::open::{StoreArgs, options_of};
use crate::output::{Failure, Outcome, Report, Status, figure_table, progress, quotient, seconds};

/// A batch is submitted before it has more bytes of keys and values than this, whatever --batch says,
/// to bound memory. A larger record makes a batch alone.
const BATCH_BYTES: usize = 1 << 20;

/// Nor does it have more records: half of what the store takes by default.
const BATCH_RECORDS: usize = 16_384;

/// Loads dump text of LMDB or Berkeley DB
#[derive(clap::Args)]
#[command(after_help = "\
Reads what mdb_dump and db_dump write, in both forms (bytevalue, print), any number of databases
one after the other. Each goes to the keyspace of its name, one without a name to main. What has
no place in a keyspace is refused: several values for one key (duplicates, dupsort), record
numbers in place of keys (type recno or queue), dumps without keys (keys=0).

A malformed line ends the load. Its batch is not loaded at all; the message says how many records
were loaded before. Loaded records are durable when the command ends.

With --verify the store is sealed and opened again, so that lookups go to sealed segments; then
every key of the input is looked up and its value compared, and as many keys that are not in the
input are looked up, too. Files are read a second time for it; of standard input the keys and
hashes of the values are kept in a temporary file.

Exit status: 0 loaded; 1 a record was found wrong or missing; 2 could not.

Examples:
  sealstone load --store chain transactions.dump outputs.dump
  mdb_dump -a lmdb-directory | sealstone load --store chain --write-once --verify
  db_dump chain.db | sealstone load --store chain --keyspace old --json figures.json")]
pub struct Args {
    #[command(flatten)]
    store: StoreArgs,
    /// Load into this keyspace, whatever name the input gives
    #[arg(long, value_name = "NAME")]
    keyspace: Option<String>,
    /// Make new keyspaces write-once: a key keeps its first value, another one is refused
    #[arg(long)]
    write_once: bool,
    /// Records that become visible together: at most 16,384, and 1 MiB of them
    #[arg(long, value_name = "N", default_value_t = 1000,
          value_parser = clap::value_parser!(u32).range(1..))]
    batch: u32,
    /// How backslashes stand in print form with LMDB's header
    #[arg(long, value_name = "HOW", value_enum, default_value_t)]
    backslashes: Backslashes,
    /// Read every key back, and as many absent ones
    #[arg(long)]
    verify: bool,
    #[command(flatten)]
    report: Report,
    /// Dump files; - or none for standard input
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
}

/// A keyspace that was loaded into.
pub struct Loaded {
    /// Its handle.
    pub keyspace: Keyspace,
    /// Whether it held nothing before.
    pub was_empty: bool,
}

/// Runs the subcommand.
pub fn run(args: &Args) -> Outcome<Status> {
    args.report.check(&args.store.path, &args.files)?;
    let inputs = Input::from_arguments(&args.files, args.backslashes)?;
    let (store, counters) = args.store.open_or_create()?;
    let opened = counters.snapshot();
    let mut loader = Loader::new(args, &store);
    let start = Instant::now();
    let loaded = loader.load(&inputs).and_then(|spools| {
        store.sync().map_err(|e| args.store.failure(&e))?;
        Ok(spools)
    });
    let spools = match loaded {
        Ok(spools) => spools,
        Err(failure) => return Err(loader.give_up(failure)),
    };
    let mut row = loader.figures(seconds(start.elapsed()));
    let loaded = loader.loaded;

    let (store, status) = if args.verify {
        let failure = |error| args.store.failure(&error);
        store.seal().and_then(|()| store.drain()).map_err(failure)?;
        count_files(&store, counters.snapshot() - opened, &mut row);
        let store = opened_again(&store).map_err(failure)?;
        let replay = Replay {
            inputs: &inputs,
            spools: &spools,
            forced: args.keyspace.as_deref(),
            loaded: &reopened(args, &store, &loaded)?,
        };
        let status = check::run(&args.store, &counters, &replay, &mut row)?;
        (store, status)
    } else {
        count_files(&store, counters.snapshot() - opened, &mut row);
        (store, Status::Fine)
    };
    store.close().map_err(|e| args.store.failure(&e))?;
    report(args, row)?;
    Ok(status)
}

/// Opens the store again, with its filters loaded: what is verified is what another process would find.
fn opened_again(store: &Store) -> Result<Store> {
    let store = store.reopen()?;
    store.drain()?;
    Ok(store)
}

/// What the load, without the opening of the store, left behind and cost.
fn count_files(store: &Store, asked: Counts, row: &mut Map<String, Value>) {
    row.insert("segments".to_owned(), json!(store.stats().segments));
    row.insert("barriers".to_owned(), json!(asked.barriers()));
}

/// The same keyspaces by handles of the store that was opened again.
fn reopened(args: &Args, store: &Store, loaded: &[Loaded]) -> Outcome<Vec<Loaded>> {
    let again = |loaded: &Loaded| {
        Ok(Loaded {
            keyspace: args.store.keyspace(store, loaded.keyspace.name())?,
            was_empty: loaded.was_empty,
        })
    };
    loaded.iter().map(again).collect()
}

fn report(args: &Args, row: Map<String, Value>) -> Outcome<()> {
    let lines: Vec<_> = row
        .iter()
        .map(|(name, value)| (name.as_str(), value.to_string()))
        .collect();
    let table = figure_table(&lines);
    args.report
        .finish("sealstone load", &table, vec![Value::Object(row.clone())])
}

/// Puts records into the store.
struct Loader<'a> {
    args: &'a Args,
    store: &'a Store,
    loaded: Vec<Loaded>,
    /// Which of these the database at hand goes to.
    current: usize,
    batch: Batch<'static>,
    /// Keys and values in it, in bytes.
    batch_bytes: usize,
    /// The lines it was read from.
    lines: (u64, u64),
    /// What it is read from.
    input: &'a str,
    spool: Option<Spool>,
    /// Records and their bytes in batches that the store accepted.
    records: u64,
    bytes: u64,
}

impl<'a> Loader<'a> {
    fn new(args: &'a Args, store: &'a Store) -> Self {
        Self {
            args,
            store,
            loaded: Vec::new(),
            current: 0,
            batch: Batch::new(),
            batch_bytes: 0,
            lines: (0, 0),
            input: "",
            spool: None,
            records: 0,
            bytes: 0,
        }
    }

    /// Loads all inputs; for --verify, gives a spool for each that can't be read again.
    fn load(&mut self, inputs: &'a [Input]) -> Outcome<Vec<Option<Spooled>>> {
        let mut namer = Namer::new(self.args.keyspace.as_deref());
        let bar = progress("load", input::total_bytes(inputs));
        let mut spools = Vec::new();
        for input in inputs {
            self.input = &input.name;
            if self.args.verify && input.regular_bytes.is_none() {
                self.spool = Some(Spool::new()?);
            }
            input.read(&bar, &mut namer, self)?;
            spools.push(self.spool.take().map(Spool::finish).transpose()?);
        }
        bar.finish_and_clear();
        Ok(spools)
    }

    fn submit(&mut self) -> Outcome<()> {
        if self.batch.is_empty() {
            return Ok(());
        }
        let batch = std::mem::take(&mut self.batch);
        let records = batch.len() as u64;
        self.store
            .write(batch, Durability::Buffered)
            .map_err(|error| {
                let (first, last) = self.lines;
                Failure::new(format!("{}: lines {first} to {last}: {error}", self.input))
            })?;
        self.records += records;
        self.bytes += self.batch_bytes as u64;
        self.batch_bytes = 0;
        Ok(())
    }

    /// Makes durable what was loaded before the failure, and says how much that is.
    fn give_up(&self, failure: Failure) -> Failure {
        let Failure::Message(message) = failure else {
            return failure;
        };
        let records = self.records;
        let kept = match self.store.sync().and_then(|()| self.store.close()) {
            Ok(()) => String::new(),
            Err(error) => format!("; they may not be durable: {error}"),
        };
        Failure::new(format!(
            "{message}\nsealstone: {records} records were loaded before this, in whole batches{kept}"
        ))
    }

    fn figures(&self, seconds: f64) -> Map<String, Value> {
        let mut row = Map::new();
        row.insert("records".to_owned(), json!(self.records));
        row.insert("bytes".to_owned(), json!(self.bytes));
        row.insert("seconds".to_owned(), json!(seconds));
        let rate = quotient(self.records as f64, seconds, 1.0);
        row.insert("records_per_second".to_owned(), json!(rate));
        row
    }

    /// The place of a keyspace in `loaded`, opened or created at its first use.
    fn find(&mut self, name: &str) -> Outcome<usize> {
        let known = |loaded: &Loaded| loaded.keyspace.name() == name;
        if let Some(index) = self.loaded.iter().position(known) {
            return Ok(index);
        }
        let existing = self
            .store
            .keyspaces()
            .into_iter()
            .find(|info| info.name == name);
        let options = match existing {
            _ if self.args.write_once => KeyspaceOptions::write_once(),
            Some(info) => options_of(info.kind),
            None => KeyspaceOptions::mutable(),
        };
        let failure = |error| self.args.store.failure(&error);
        let keyspace = self.store.keyspace(name, options).map_err(failure)?;
        let was_empty = keyspace.iter().map_err(failure)?.next().is_none();
        self.loaded.push(Loaded {
            keyspace,
            was_empty,
        });
        Ok(self.loaded.len() - 1)
    }
}

impl Sink for Loader<'_> {
    fn database(&mut self, keyspace: &str) -> Outcome<()> {
        self.current = self.find(keyspace)?;
        Ok(())
    }

    fn record(&mut self, key: &mut Vec<u8>, value: &mut Vec<u8>, line: u64) -> Outcome<()> {
        if let Some(spool) = &mut self.spool {
            spool.push(self.current, key, value)?;
        }
        if self.batch_bytes + key.len() + value.len() > BATCH_BYTES {
            self.submit()?;
        }
        if self.batch.is_empty() {
            self.lines.0 = line.saturating_sub(1);
        }
        self.lines.1 = line;
        self.batch_bytes += key.len() + value.len();
        let keyspace = &self.loaded[self.current].keyspace;
        self.batch
            .put(keyspace, std::mem::take(key), std::mem::take(value));
        if self.batch.len() >= BATCH_RECORDS.min(self.args.batch as usize) {
            self.submit()?;
        }
        Ok(())
    }

    fn end(&mut self) -> Outcome<()> {
        self.submit()
    }
}
