//! What `load --verify` does after the load: looks up every key of the input and as many absent
//! ones.
//!
//! Every record's value is compared with what the store returns. After some hundred hits, one key
//! is derived from each and looked up, too; it must be absent. Reads are counted around the two
//! groups, so that a hit and a miss have each its own figure.
//!
//! Memory is bounded, so no set of all keys is kept, and none is needed: were a key that the store
//! calls absent in the input, its own lookup would have found it missing. The two answers that need
//! a second look are kept as *suspects* and settled by another pass over the input:
//!
//! * another value than this record's: right if a later record of the input has the same key and
//!   the store's value (`superseded`), else wrong;
//! * a derived key that is present: no absent key if the input has it, or if the keyspace held
//!   records before the load; else wrong.

use std::collections::BTreeMap;
use std::hash::Hasher as _;
use std::io::Write as _;
use std::time::Instant;

use serde_json::{Map, Value, json};
use siphasher::sip::SipHasher13;

use crate::engine::{Counters, Keyspace, Result};
use crate::input::{Expected, Input, Namer, Sink, Spooled, Visit, total_bytes};
use crate::key::push_listed;
use crate::load::Loaded;
use crate::open::StoreArgs;
use crate::output::{Failure, Outcome, Status, progress, quotient, seconds, shown};

/// Derived keys are looked up in groups of so many, or of so many bytes.
const GROUP_KEYS: usize = 512;
const GROUP_BYTES: usize = 1 << 20;

/// Suspects are settled when they hold so many bytes.
const SUSPECT_BYTES: usize = 16 << 20;

/// How often another key is derived where one turned out present.
const DERIVATIONS_MAX: u64 = 4;

/// So many wrong or missing records are named; the rest is counted.
const NAMED_MAX: u64 = 5;

/// With so many bytes of their keys.
const NAMED_BYTES: usize = 64;

/// Everything that was loaded, to be read again.
pub struct Replay<'a> {
    /// The inputs.
    pub inputs: &'a [Input],
    /// For each the spool that stands for it, if it can't be read again.
    pub spools: &'a [Option<Spooled>],
    /// The keyspace that takes the place of names.
    pub forced: Option<&'a str>,
    /// The keyspaces, numbered as in the spools.
    pub loaded: &'a [Loaded],
}

impl Replay<'_> {
    /// Passes on every record, in the order of the load.
    fn run(&self, what: &'static str, visit: &mut Visit<'_>) -> Outcome<()> {
        let mut namer = Namer::new(self.forced);
        let bar = progress(what, total_bytes(self.inputs));
        for (input, spool) in self.inputs.iter().zip(self.spools) {
            match spool {
                Some(spool) => spool.replay(visit)?,
                None => {
                    let mut sink = Again {
                        loaded: self.loaded,
                        current: 0,
                        visit: &mut *visit,
                    };
                    input.read(&bar, &mut namer, &mut sink)?;
                }
            }
        }
        bar.finish_and_clear();
        Ok(())
    }
}

/// Turns text that is read again into visits.
struct Again<'a, 'b> {
    loaded: &'a [Loaded],
    current: usize,
    visit: &'a mut Visit<'b>,
}

impl Sink for Again<'_, '_> {
    fn database(&mut self, keyspace: &str) -> Outcome<()> {
        let same = |loaded: &Loaded| loaded.keyspace.name() == keyspace;
        self.current = self.loaded.iter().position(same).ok_or_else(changed)?;
        Ok(())
    }

    fn record(&mut self, key: &mut Vec<u8>, value: &mut Vec<u8>, _line: u64) -> Outcome<()> {
        (self.visit)(self.current, key, Expected::Bytes(value))
    }

    fn end(&mut self) -> Outcome<()> {
        Ok(())
    }
}

fn changed() -> Failure {
    Failure::new("the input changed between loading and verifying; load it again")
}

/// Checks a store against what was loaded into it, and adds the figures to `row`. `counters` count what
/// the store asks of its directory.
pub fn run(
    args: &StoreArgs,
    counters: &Counters,
    replay: &Replay<'_>,
    row: &mut Map<String, Value>,
) -> Outcome<Status> {
    let start = Instant::now();
    let mut checker = Checker::new(args, counters, replay);
    replay.run("verify", &mut |keyspace, key, expected| {
        checker.visit(keyspace, key, expected)
    })?;
    checker.look_up_absent()?;
    checker.settle()?;
    let tally = checker.tally;
    if Some(tally.visited) != row.get("records").and_then(Value::as_u64) {
        return Err(changed());
    }
    tally.figures(row);
    row.insert("verify_seconds".to_owned(), json!(seconds(start.elapsed())));
    let right = tally.wrong == 0 && tally.missing == 0;
    Ok(if right {
        Status::Fine
    } else {
        Status::Negative
    })
}

/// The counts so far.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    visited: u64,
    hits: u64,
    wrong: u64,
    missing: u64,
    superseded: u64,
    misses: u64,
    hit_reads: u64,
    miss_lookups: u64,
    miss_reads: u64,
}

impl Tally {
    fn figures(&self, row: &mut Map<String, Value>) {
        let per = |reads: u64, lookups: u64| quotient(reads as f64, lookups as f64, 1e4);
        for (name, figure) in [
            ("hits_verified", json!(self.hits)),
            ("misses_verified", json!(self.misses)),
            ("wrong", json!(self.wrong)),
            ("missing", json!(self.missing)),
            ("superseded", json!(self.superseded)),
            ("reads_per_hit", json!(per(self.hit_reads, self.visited))),
            (
                "reads_per_miss",
                json!(per(self.miss_reads, self.miss_lookups)),
            ),
        ] {
            row.insert(name.to_owned(), figure);
        }
    }
}

/// An answer that another pass must settle.
#[derive(Default)]
struct Suspect {
    /// Records whose value the store did not return.
    mismatches: u64,
    /// Whether the key was derived, and found present.
    derived: bool,
    /// Whether the input has the key.
    in_input: bool,
    /// Whether the store has the value of the last record with this key.
    last_is_right: bool,
}

struct Checker<'a> {
    args: &'a StoreArgs,
    counters: &'a Counters,
    replay: &'a Replay<'a>,
    tally: Tally,
    /// Keys to derive absent ones from.
    group: Vec<(usize, Vec<u8>)>,
    group_bytes: usize,
    suspects: BTreeMap<(usize, Vec<u8>), Suspect>,
    suspect_bytes: usize,
    /// The reads that the store had asked for when the counts were last brought up to date.
    reads_before: u64,
    value: Vec<u8>,
}

impl<'a> Checker<'a> {
    fn new(args: &'a StoreArgs, counters: &'a Counters, replay: &'a Replay<'a>) -> Self {
        Self {
            args,
            counters,
            replay,
            tally: Tally::default(),
            group: Vec::new(),
            group_bytes: 0,
            suspects: BTreeMap::new(),
            suspect_bytes: 0,
            reads_before: counters.snapshot().total().reads,
            value: Vec::new(),
        }
    }

    /// Checks one record of the input.
    fn visit(&mut self, index: usize, key: &[u8], expected: Expected<'_>) -> Outcome<()> {
        self.tally.visited += 1;
        if !self.get(index, key)? {
            self.tally.missing += 1;
            self.name("missing", self.tally.missing, index, key);
        } else if expected.is(&self.value) {
            self.tally.hits += 1;
        } else {
            self.suspect(index, key).mismatches += 1;
        }
        self.group_bytes += key.len();
        self.group.push((index, key.to_vec()));
        if self.group.len() >= GROUP_KEYS || self.group_bytes >= GROUP_BYTES {
            self.look_up_absent()?;
        }
        if self.suspect_bytes >= SUSPECT_BYTES {
            self.look_up_absent()?;
            self.settle()?;
        }
        Ok(())
    }

    /// Looks up one absent key for each key of the group.
    fn look_up_absent(&mut self) -> Outcome<()> {
        self.tally.hit_reads += self.reads_since();
        for (index, key) in std::mem::take(&mut self.group) {
            for derivation in 0..DERIVATIONS_MAX {
                let absent = absent_key(&key, derivation);
                self.tally.miss_lookups += 1;
                if !self.get(index, &absent)? {
                    self.tally.misses += 1;
                    break;
                }
                self.suspect(index, &absent).derived = true;
            }
        }
        self.group_bytes = 0;
        self.tally.miss_reads += self.reads_since();
        Ok(())
    }

    /// Settles all suspects by another pass over the input.
    fn settle(&mut self) -> Outcome<()> {
        if self.suspects.is_empty() {
            return Ok(());
        }
        let mut suspects = std::mem::take(&mut self.suspects);
        self.suspect_bytes = 0;
        self.replay.run("settle", &mut |index, key, expected| {
            // The lookup by an owned key costs less than the reading around it.
            if let Some(suspect) = suspects.get_mut(&(index, key.to_vec())) {
                suspect.in_input = true;
                suspect.last_is_right = self.get(index, key)? && expected.is(&self.value);
            }
            Ok(())
        })?;
        for ((index, key), suspect) in suspects {
            if suspect.last_is_right {
                self.tally.superseded += suspect.mismatches;
            } else if suspect.mismatches > 0 {
                self.tally.wrong += suspect.mismatches;
                self.name("wrong", self.tally.wrong, index, &key);
            }
            let from_before = !self.replay.loaded[index].was_empty;
            if suspect.derived && !suspect.in_input && !from_before {
                self.tally.wrong += 1;
                self.name("never loaded but present", self.tally.wrong, index, &key);
            }
        }
        self.reads_since();
        Ok(())
    }

    fn suspect(&mut self, index: usize, key: &[u8]) -> &mut Suspect {
        self.suspect_bytes += key.len() + size_of::<Suspect>();
        self.suspects.entry((index, key.to_vec())).or_default()
    }

    fn get(&mut self, index: usize, key: &[u8]) -> Outcome<bool> {
        let keyspace: &Keyspace = &self.replay.loaded[index].keyspace;
        self.value.clear();
        let found: Result<bool> = keyspace.get_into(key, &mut self.value);
        found.map_err(|e| self.args.failure(&e))
    }

    /// Reads since the last call.
    fn reads_since(&mut self) -> u64 {
        let reads = self.counters.snapshot().total().reads;
        reads - std::mem::replace(&mut self.reads_before, reads)
    }

    /// Names a record on standard error, if it is one of the first.
    fn name(&self, what: &str, count: u64, index: usize, key: &[u8]) {
        if count > NAMED_MAX {
            return;
        }
        let keyspace = shown(self.replay.loaded[index].keyspace.name());
        let mut line = format!("sealstone: {what}: keyspace {keyspace}, key ").into_bytes();
        push_listed(key.get(..NAMED_BYTES).unwrap_or(key), false, &mut line);
        let rest = key.len().saturating_sub(NAMED_BYTES);
        if rest > 0 {
            line.extend(format!(" and {rest} bytes more").bytes());
        }
        line.push(b'\n');
        // The count and the exit status tell it, too.
        let _ = std::io::stderr().write_all(&line);
    }
}

/// A key near `key` that the input will hardly have: its last 8 bytes, or 8 more behind a short
/// one, are a hash of it. The rest stays, so that the two share their place in key order.
fn absent_key(key: &[u8], derivation: u64) -> Vec<u8> {
    let mut hasher = SipHasher13::new_with_keys(derivation, 0x6162_7365_6e74);
    hasher.write(key);
    let kept = if key.len() < 12 {
        key
    } else {
        &key[..key.len() - 8]
    };
    [kept, &hasher.finish().to_be_bytes()].concat()
}

#[cfg(test)]
#[path = "check_tests.rs"]
mod tests;
