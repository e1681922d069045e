//! What the runners need of an engine, so that the same checks run on sealstone and on miniature
//! engines with planted errors.
//!
//! Abilities beyond open, write and read have defaults that do nothing, which a miniature keeps.

use std::collections::BTreeSet;
use std::ops::Range;

use sealstone::env::{Env, PressureLevel};
use sealstone::types::KeyspaceKind;

use crate::choices::Choices;
use crate::disk::SimDisk;
use crate::model::Op;

/// Why a call did not do what was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopKind {
    /// Refused without any effect; the next try may succeed.
    Refused,
    /// A write-once key has another value; without any effect.
    Conflict,
    /// A write may or may not have happened; the engine takes no more writes.
    Poisoned,
    /// Stored bytes are not what was written, or a file is missing.
    Damaged,
    /// The handle is closed.
    Closed,
    /// A call of the backend failed; of a write, before it had any effect.
    Io,
}

/// An error of a subject.
#[derive(Clone, Debug)]
pub struct Stop {
    /// What the runner distinguishes.
    pub kind: StopKind,
    /// The engine's own words.
    pub text: String,
}

impl Stop {
    /// An error of `kind`.
    pub fn new(kind: StopKind, text: impl std::fmt::Display) -> Self {
        Self {
            kind,
            text: text.to_string(),
        }
    }
}

/// The result of a subject's call.
pub type Answer<T> = Result<T, Stop>;

/// A key with its value.
pub type Item = (Vec<u8>, Vec<u8>);

/// What a subject counted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Figures {
    /// Reads of lookups.
    pub reads: u64,
    /// Runs that lookups looked into.
    pub candidates: u64,
    /// Files opened.
    pub opens: u64,
    /// Whether the hash is so wide that two keys never share it.
    pub wide_hash: bool,
    /// Tests of filters in lookups.
    pub filter_tests: u64,
    /// Runs that lookups looked into in vain.
    pub false_candidates: u64,
    /// Lookups that found a run's index damaged or gone.
    pub damaged_indexes: u64,
    /// Whether every run has its filter in memory.
    pub all_filters: bool,
}

/// An engine under test.
pub trait Subject: Sized {
    /// Whether a clean close makes everything visible durable.
    const CLOSE_SYNCS: bool = false;
    /// Whether its frames say how far the history was durable, so that rot can't cut it short unseen.
    const TELLS_DURABLE: bool = false;

    /// How it is opened.
    type Options: Clone + std::fmt::Debug + Send + Sync;
    /// A commit under way.
    type Ticket;
    /// A snapshot.
    type View;
    /// An iterator.
    type Cursor;
    /// Bytes that a read handed out.
    type Held: AsRef<[u8]>;

    /// The kinds of its keyspaces, which open creates.
    fn kinds() -> Vec<KeyspaceKind>;

    /// Options for scripted runs.
    fn options() -> Self::Options;

    /// The file numbers of the parts of folded runs that lookups use now.
    fn folded_parts(&self) -> BTreeSet<u64> {
        BTreeSet::new()
    }

    /// Whether what the last audit called the newest file is an index that was folded from others.
    fn newest_is_folded(&self) -> bool {
        false
    }

    /// Where the records of a sealed file lie, for rot that is aimed at them.
    fn records(_bytes: &[u8]) -> Vec<Range<u64>> {
        Vec::new()
    }

    /// Where the filters of a sealed file lie, for rot that is aimed at them.
    fn filters(_bytes: &[u8]) -> Vec<Range<u64>> {
        Vec::new()
    }

    /// Options drawn for a life: `base` are those of scripted runs, or, in a later life of a store,
    /// those it had before.
    fn draw_options(choices: &mut Choices, base: &Self::Options, life: u32) -> Self::Options;

    /// The options with no filter in memory.
    fn without_filters(options: Self::Options) -> Self::Options {
        options
    }

    /// Opens or creates the store and its keyspaces.
    fn open(env: &Env, options: &Self::Options) -> Answer<Self>;

    /// The last sequence that this open recovered.
    fn recovered(&self) -> u64;

    /// The last sequence that the engine itself calls durable.
    fn claimed_durable(&self) -> u64 {
        0
    }

    /// Writes a batch and waits for it.
    fn write(&self, ops: &[Op], synced: bool) -> Answer<u64>;

    /// Queues a batch. `None`: there is no queue.
    fn submit(&self, _ops: &[Op], _synced: bool) -> Option<Answer<Self::Ticket>> {
        None
    }

    /// How a queued batch ended, if it did.
    fn poll(&self, _ticket: &Self::Ticket) -> Option<Answer<u64>> {
        None
    }

    /// Commits one group; false if nothing was queued.
    fn commit_step(&self) -> Answer<bool> {
        Ok(false)
    }

    /// Writes a batch in which a closure of the caller fails. `None`: there are no closures.
    fn write_failing(&self, _ops: &[Op]) -> Option<Answer<u64>> {
        None
    }

    /// Makes everything visible durable.
    fn sync(&self) -> Answer<()>;

    /// Reads a key.
    fn get(&self, keyspace: usize, key: &[u8]) -> Answer<Option<Vec<u8>>>;

    /// Reads several keys of one version.
    fn multi_get(&self, keys: &[(usize, Vec<u8>)]) -> Answer<Vec<Option<Vec<u8>>>> {
        keys.iter()
            .map(|(keyspace, key)| self.get(*keyspace, key))
            .collect()
    }

    /// Reads a key into a buffer that had other bytes.
    fn get_into(&self, keyspace: usize, key: &[u8]) -> Answer<Option<Vec<u8>>> {
        self.get(keyspace, key)
    }

    /// Whether a key has a value.
    fn contains(&self, keyspace: usize, key: &[u8]) -> Answer<bool> {
        Ok(self.get(keyspace, key)?.is_some())
    }

    /// Reads a key and keeps what was handed out. `None`: nothing can be kept.
    fn hold(&self, _keyspace: usize, _key: &[u8]) -> Option<Answer<Option<Self::Held>>> {
        None
    }

    /// Reads the keys from the first to before the second. `None`: it can't.
    fn range(
        &self,
        _keyspace: usize,
        _bounds: (&[u8], &[u8]),
        _reverse: bool,
    ) -> Option<Answer<Vec<Item>>> {
        None
    }

    /// Reads the keys with a prefix. `None`: it can't.
    fn prefix(&self, _keyspace: usize, _prefix: &[u8]) -> Option<Answer<Vec<Item>>> {
        None
    }

    /// Closes it and opens it again. `None`: it can't.
    fn reopen(&self, _options: &Self::Options) -> Option<Answer<Self>> {
        None
    }

    /// Opens what is there for reading only. `None`: it can't.
    fn open_reading(_env: &Env, _options: &Self::Options) -> Option<Answer<Self>> {
        None
    }

    /// What it counted so far.
    fn figures(&self) -> Figures {
        Figures::default()
    }

    /// Lines of a plan that set these options. Empty: plans don't know this engine.
    fn plan_options(_options: &Self::Options) -> Vec<String> {
        Vec::new()
    }

    /// A keyspace's name in plans.
    fn plan_keyspace(keyspace: usize) -> String {
        keyspace.to_string()
    }

    /// A runnable job's name in plans.
    fn plan_job(&self, index: usize) -> String {
        index.to_string()
    }

    /// Reads a keyspace.
    fn scan(&self, keyspace: usize, reverse: bool) -> Answer<Vec<Item>>;

    /// Takes a snapshot. `None`: there are none.
    fn snapshot(&self) -> Option<Answer<Self::View>> {
        None
    }

    /// The sequence a snapshot reads at.
    fn view_sequence(_view: &Self::View) -> u64 {
        0
    }

    /// Reads a key of a snapshot.
    fn view_get(
        &self,
        _view: &Self::View,
        _keyspace: usize,
        _key: &[u8],
    ) -> Answer<Option<Vec<u8>>> {
        Ok(None)
    }

    /// Reads a keyspace of a snapshot.
    fn view_scan(&self, _view: &Self::View, _keyspace: usize, _reverse: bool) -> Answer<Vec<Item>> {
        Ok(Vec::new())
    }

    /// Starts an iterator over the visible state. `None`: there are none.
    fn cursor(&self, _keyspace: usize) -> Option<Answer<Self::Cursor>> {
        None
    }

    /// The iterator's next item from either end.
    fn advance(_cursor: &mut Self::Cursor, _back: bool) -> Option<Answer<Item>> {
        None
    }

    /// Ends the open generation.
    fn seal(&self) -> Answer<()> {
        Ok(())
    }

    /// How many background jobs can run now.
    fn jobs(&self) -> usize {
        0
    }

    /// Runs a quantum of one of them.
    fn run_job(&self, _index: usize, _quantum: u32) -> Answer<()> {
        Ok(())
    }

    /// Changes the most that filters may take. `None`: there is no such limit.
    fn set_filter_budget(&self, _bytes: u64) -> Option<Answer<()>> {
        None
    }

    /// What the user says of memory pressure, in place of the machine; `None` gives it back.
    fn set_pressure(&self, _level: Option<PressureLevel>) {}

    /// One look at memory pressure, in a step that has little else to do.
    fn look_at_pressure(&self) -> Answer<()> {
        Ok(())
    }

    /// What is kept beyond the limit, once it had looks enough to go.
    fn check_trimmed(&self) -> Result<(), (&'static str, String)> {
        Ok(())
    }

    /// Closes the store.
    fn close(&self) -> Answer<()> {
        Ok(())
    }

    /// How often writes had to wait or help so far.
    fn stalls(&self) -> u64 {
        0
    }

    /// With nothing left to do and nobody reading: whether the disk holds exactly what the store is made
    /// of, and memory nothing that nobody needs.
    ///
    /// # Errors
    /// The rule that does not hold, with what is too much.
    fn at_rest(&self, _disk: &SimDisk) -> Result<(), (&'static str, String)> {
        Ok(())
    }

    /// Whether the books of the last [`audit`](Self::audit) know just so many snapshots and iterators.
    ///
    /// # Errors
    /// The rule that does not hold.
    fn check_readers(&self, _readers: (usize, usize)) -> Result<(), (&'static str, String)> {
        Ok(())
    }

    /// Checks the engine's own books against the disk's: rule and words of the first mismatch. Returns a
    /// number that changes whenever a flush installs a segment.
    ///
    /// # Errors
    /// The rule that does not hold.
    fn audit(&self, _disk: &SimDisk) -> Result<u64, (&'static str, String)> {
        Ok(0)
    }
}
