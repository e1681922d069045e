//! sealstone itself as the subject of the runners, through its public face only.

mod checks;
mod options;

use std::cell::Cell;
use std::collections::BTreeSet;
use std::ops::Range;

use sealstone::env::{Env, PressureLevel};
use sealstone::segment::Footer;
use sealstone::segment::layout::FilterSection;
use sealstone::types::KeyspaceKind;
use sealstone::{
    Batch, Durability, Error, ErrorKind, FilterPolicy, Iter, Job, Keyspace, KeyspaceOptions,
    Options, Snapshot, Store, Ticket, Value,
};

use crate::choices::Choices;
use crate::disk::SimDisk;
use crate::model::Op;
use crate::plan;
use crate::subject::{Answer, Figures, Item, Stop, StopKind, Subject};

pub use checks::{check_at_rest, check_audit};
use checks::{check_pressure, check_trimmed};

/// A store with its keyspaces.
pub struct SimStore {
    store: Store,
    keyspaces: Vec<Keyspace>,
    wide_hash: bool,
    /// Readers' bounds and scan memory in the last audit.
    readers: Cell<(usize, u64)>,
    /// Whether the newest file, at the last audit, was the index of a folded run.
    folded: Cell<bool>,
}

const KEYSPACES: [(&str, KeyspaceKind); 2] = [
    ("blocks", KeyspaceKind::WriteOnce),
    ("names", KeyspaceKind::Mutable),
];

fn durability(synced: bool) -> Durability {
    if synced {
        Durability::Synced
    } else {
        Durability::Buffered
    }
}

fn stop(error: Error) -> Stop {
    let kind = match error.kind() {
        ErrorKind::Conflict => StopKind::Conflict,
        ErrorKind::Busy { .. } | ErrorKind::TooLarge { .. } | ErrorKind::Refused => {
            StopKind::Refused
        }
        ErrorKind::Corruption
        | ErrorKind::MissingFile
        | ErrorKind::UnsupportedVersion { .. }
        | ErrorKind::NotAStore => StopKind::Damaged,
        ErrorKind::Poisoned => StopKind::Poisoned,
        ErrorKind::Closed => StopKind::Closed,
        _ => StopKind::Io,
    };
    Stop::new(kind, error)
}

fn collect(items: impl Iterator<Item = sealstone::Result<Item>>) -> Answer<Vec<Item>> {
    items.map(|item| item.map_err(stop)).collect()
}

impl SimStore {
    fn with_keyspaces(store: Store, options: &Options) -> Answer<Self> {
        let mut keyspaces = Vec::new();
        for (name, kind) in KEYSPACES {
            let options = match kind {
                KeyspaceKind::WriteOnce => KeyspaceOptions::write_once(),
                KeyspaceKind::Mutable => KeyspaceOptions::mutable(),
            };
            keyspaces.push(store.keyspace(name, options).map_err(stop)?);
        }
        let wide_hash = format!("{options:?}").contains("hash_bits: Some(46)");
        Ok(Self {
            store,
            keyspaces,
            wide_hash,
            readers: Cell::new((0, 0)),
            folded: Cell::new(false),
        })
    }

    /// An error of a write: if it poisoned the store, nobody knows what reached the disk.
    fn write_stop(&self, error: Error) -> Stop {
        let poisoned = self.store.audit().poisoned;
        let stop = stop(error);
        if poisoned {
            Stop {
                kind: StopKind::Poisoned,
                ..stop
            }
        } else {
            stop
        }
    }

    fn batch<'a>(&'a self, ops: &'a [Op]) -> Batch<'a> {
        let mut batch = Batch::new();
        for op in ops {
            let keyspace = &self.keyspaces[op.keyspace];
            match &op.value {
                None => batch.delete(keyspace, &op.key),
                // Every third length goes through a closure.
                Some(value) if value.len() % 3 == 0 => {
                    batch.put_with(keyspace, &op.key, value.len(), move |out| {
                        out.copy_from_slice(value);
                        Ok(())
                    })
                }
                Some(value) => batch.put(keyspace, &op.key, value),
            };
        }
        batch
    }
}

/// Reads in vain a run, if each has a filter with twelve bits a key or more.
const FALSE_READS_A_RUN: f64 = 0.0043;

impl Subject for SimStore {
    const CLOSE_SYNCS: bool = true;
    const TELLS_DURABLE: bool = true;

    type Options = Options;
    type Ticket = Ticket;
    type View = Snapshot;
    type Cursor = Iter;
    type Held = Value;

    fn kinds() -> Vec<KeyspaceKind> {
        KEYSPACES.map(|(_, kind)| kind).to_vec()
    }

    fn options() -> Options {
        // Segments in few writes: the exhaustive run crashes each of them, in every recovery too.
        Options::tiny().output_buffer_bytes(4096)
    }

    fn without_filters(options: Options) -> Options {
        options.filter_policy(FilterPolicy::None)
    }

    fn draw_options(choices: &mut Choices, base: &Options, life: u32) -> Options {
        options::draw(choices, base, life)
    }

    fn open(env: &Env, options: &Options) -> Answer<Self> {
        let store = Store::open_with(env.clone(), options.clone()).map_err(stop)?;
        Self::with_keyspaces(store, options)
    }

    fn reopen(&self, options: &Options) -> Option<Answer<Self>> {
        let store = self.store.reopen_with(options.clone()).map_err(stop);
        Some(store.and_then(|store| Self::with_keyspaces(store, options)))
    }

    fn open_reading(env: &Env, options: &Options) -> Option<Answer<Self>> {
        let options = options.clone().read_only(true);
        let store = Store::open_with(env.clone(), options.clone()).map_err(stop);
        Some(store.and_then(|store| Self::with_keyspaces(store, &options)))
    }

    fn figures(&self) -> Figures {
        let stats = self.store.stats();
        Figures {
            reads: stats.reads,
            candidates: stats.candidates + stats.window_hits + stats.window_false_candidates,
            opens: stats.opens,
            wide_hash: self.wide_hash,
            filter_tests: stats.filter_tests,
            false_candidates: stats.false_candidates,
            damaged_indexes: stats.damaged_indexes,
            all_filters: stats.expected_false_reads_write_once + stats.expected_false_reads_mutable
                <= FALSE_READS_A_RUN * stats.runs as f64,
        }
    }

    fn plan_options(options: &Options) -> Vec<String> {
        plan::options_of(options)
    }

    fn plan_keyspace(keyspace: usize) -> String {
        KEYSPACES[keyspace].0.to_string()
    }

    fn plan_job(&self, index: usize) -> String {
        let jobs = self.store.runnable();
        jobs.get(index)
            .map_or("none", |job| plan::job_name(*job))
            .to_string()
    }

    fn get_into(&self, keyspace: usize, key: &[u8]) -> Answer<Option<Vec<u8>>> {
        let mut value = b"left over".to_vec();
        let found = self.keyspaces[keyspace].get_into(key, &mut value);
        Ok(found.map_err(stop)?.then_some(value))
    }

    fn contains(&self, keyspace: usize, key: &[u8]) -> Answer<bool> {
        self.keyspaces[keyspace].contains(key).map_err(stop)
    }

    fn hold(&self, keyspace: usize, key: &[u8]) -> Option<Answer<Option<Value>>> {
        Some(self.keyspaces[keyspace].get(key).map_err(stop))
    }

    fn range(
        &self,
        keyspace: usize,
        (from, to): (&[u8], &[u8]),
        reverse: bool,
    ) -> Option<Answer<Vec<Item>>> {
        let iter = self.keyspaces[keyspace].range(from..to).map_err(stop);
        Some(iter.and_then(|iter| match reverse {
            true => collect(iter.rev()),
            false => collect(iter),
        }))
    }

    fn prefix(&self, keyspace: usize, prefix: &[u8]) -> Option<Answer<Vec<Item>>> {
        let iter = self.keyspaces[keyspace].prefix(prefix).map_err(stop);
        Some(iter.and_then(collect))
    }

    fn recovered(&self) -> u64 {
        self.store.open_report().recovered_through
    }

    fn claimed_durable(&self) -> u64 {
        self.store.durable_sequence()
    }

    fn write(&self, ops: &[Op], synced: bool) -> Answer<u64> {
        let result = self.store.write(self.batch(ops), durability(synced));
        result.map_err(|error| self.write_stop(error))
    }

    fn submit(&self, ops: &[Op], synced: bool) -> Option<Answer<Ticket>> {
        let result = self.store.submit(self.batch(ops), durability(synced));
        Some(result.map_err(|error| self.write_stop(error)))
    }

    fn poll(&self, ticket: &Ticket) -> Option<Answer<u64>> {
        Some(ticket.try_result()?.map_err(|error| self.write_stop(error)))
    }

    fn commit_step(&self) -> Answer<bool> {
        self.store
            .commit_step()
            .map_err(|error| self.write_stop(error))
    }

    fn write_failing(&self, ops: &[Op]) -> Option<Answer<u64>> {
        let mut batch = self.batch(ops);
        batch.put_with(&self.keyspaces[0], "never", 3, |_| {
            Err("refused on purpose".into())
        });
        Some(
            self.store
                .write(batch, Durability::Buffered)
                .map_err(|error| self.write_stop(error)),
        )
    }

    fn sync(&self) -> Answer<()> {
        self.store.sync().map_err(|error| self.write_stop(error))
    }

    fn get(&self, keyspace: usize, key: &[u8]) -> Answer<Option<Vec<u8>>> {
        let value = self.keyspaces[keyspace].get(key).map_err(stop)?;
        Ok(value.map(|value| value.to_vec()))
    }

    fn multi_get(&self, keys: &[(usize, Vec<u8>)]) -> Answer<Vec<Option<Vec<u8>>>> {
        let keys: Vec<(&Keyspace, &[u8])> = keys
            .iter()
            .map(|(keyspace, key)| (&self.keyspaces[*keyspace], &key[..]))
            .collect();
        let values = self.store.multi_get(&keys).map_err(stop)?;
        Ok(values
            .into_iter()
            .map(|value| value.map(|value| value.to_vec()))
            .collect())
    }

    fn scan(&self, keyspace: usize, reverse: bool) -> Answer<Vec<Item>> {
        let iter = self.keyspaces[keyspace].iter().map_err(stop)?;
        if reverse {
            collect(iter.rev())
        } else {
            collect(iter)
        }
    }

    fn snapshot(&self) -> Option<Answer<Snapshot>> {
        Some(self.store.snapshot().map_err(stop))
    }

    fn view_sequence(view: &Snapshot) -> u64 {
        view.sequence()
    }

    fn view_get(&self, view: &Snapshot, keyspace: usize, key: &[u8]) -> Answer<Option<Vec<u8>>> {
        let value = view.get(&self.keyspaces[keyspace], key).map_err(stop)?;
        Ok(value.map(|value| value.to_vec()))
    }

    fn view_scan(&self, view: &Snapshot, keyspace: usize, reverse: bool) -> Answer<Vec<Item>> {
        let iter = view.iter(&self.keyspaces[keyspace]).map_err(stop)?;
        if reverse {
            collect(iter.rev())
        } else {
            collect(iter)
        }
    }

    fn cursor(&self, keyspace: usize) -> Option<Answer<Iter>> {
        Some(self.keyspaces[keyspace].iter().map_err(stop))
    }

    fn advance(cursor: &mut Iter, back: bool) -> Option<Answer<Item>> {
        let item = if back {
            cursor.next_back()
        } else {
            cursor.next()
        };
        Some(item?.map_err(stop))
    }

    fn seal(&self) -> Answer<()> {
        self.store.seal().map_err(|error| self.write_stop(error))
    }

    fn jobs(&self) -> usize {
        self.store.runnable().len()
    }

    fn set_filter_budget(&self, bytes: u64) -> Option<Answer<()>> {
        Some(self.store.set_filter_budget(bytes).map_err(stop))
    }

    fn set_pressure(&self, level: Option<PressureLevel>) {
        self.store.set_pressure(level);
    }

    fn look_at_pressure(&self) -> Answer<()> {
        self.store
            .run(Job::Retire, 1)
            .map(drop)
            .map_err(|error| self.write_stop(error))
    }

    fn check_trimmed(&self) -> Result<(), (&'static str, String)> {
        check_trimmed(&self.store.stats())
    }

    fn run_job(&self, index: usize, quantum: u32) -> Answer<()> {
        let Some(job) = self.store.runnable().get(index).copied() else {
            return Ok(());
        };
        self.store
            .run(job, quantum)
            .map(drop)
            .map_err(|error| self.write_stop(error))
    }

    fn close(&self) -> Answer<()> {
        self.store.close().map_err(|error| self.write_stop(error))
    }

    fn stalls(&self) -> u64 {
        self.store.stats().stalls
    }

    fn at_rest(&self, disk: &SimDisk) -> Result<(), (&'static str, String)> {
        check_at_rest(&self.store.audit(), disk)?;
        check_pressure(&self.store)
    }

    fn check_readers(&self, (views, walks): (usize, usize)) -> Result<(), (&'static str, String)> {
        let (pins, scan_bytes) = self.readers.get();
        if pins != views + walks || (walks == 0 && scan_bytes > 0) {
            let what = format!(
                "{views} snapshots and {walks} iterators live, {pins} are registered, with {scan_bytes} \
                 bytes of scan memory"
            );
            return Err(("S15", what));
        }
        Ok(())
    }

    fn audit(&self, disk: &SimDisk) -> Result<u64, (&'static str, String)> {
        let audit = self.store.audit();
        check_audit(&audit, disk)?;
        self.readers.set((audit.pins.len(), audit.scan_bytes));
        let newest = |level_zero: bool| {
            let runs = audit
                .runs
                .iter()
                .filter(|run| (run.level == 0) == level_zero);
            runs.flat_map(|run| &run.parts).max().copied().unwrap_or(0)
        };
        let (fresh, folded) = (newest(true), newest(false));
        self.folded.set(folded > fresh);
        Ok(fresh.max(folded))
    }

    fn newest_is_folded(&self) -> bool {
        self.folded.get()
    }

    fn folded_parts(&self) -> BTreeSet<u64> {
        let audit = self.store.audit();
        let folded = audit.runs.iter().filter(|run| run.level > 0);
        folded.flat_map(|run| run.parts.iter().copied()).collect()
    }

    fn records(bytes: &[u8]) -> Vec<Range<u64>> {
        crate::records::find(bytes)
    }

    fn filters(bytes: &[u8]) -> Vec<Range<u64>> {
        let Ok((footer, ..)) = Footer::decode(bytes, bytes.len() as u64) else {
            return Vec::new();
        };
        let filters = footer.layout.filters.iter();
        let range = |filter: &FilterSection| {
            let offset = filter.section.span.offset;
            offset..offset + filter.shape.bytes()
        };
        filters.map(range).collect()
    }
}
