//! The demand trace: what a node asked of its slice pool, before any policy.
//!
//! ```text
//! sealstone-pool-trace 1
//! workload NAME
//! transactions N
//! blocks N
//! MS begin FLUSH DATABASE LEN[*COUNT]...   a flush begins: records in each of its units
//! MS build FLUSH                           it takes its build slices, unit after unit
//! MS merge FLUSH RECORDS                   it takes its merge slice, for at most so many
//! MS end FLUSH RECORDS BYTES               all its slices go back
//! MS get ID[*COUNT] DATABASE WANT USED     slices taken one by one, ID, ID + 1, ...
//! MS put ID[*COUNT]                        and given back
//! MS trim checkpoint|flush|pressure DATABASE
//! MS gc                                    one collection cycle
//! MS level normal|high|critical            as forced from outside
//! MS foreign BYTES                         heap of everybody else, from now on
//! ```
//!
//! One event a line, `#` begins a comment, numbers are decimal. MS is the time since the start and never
//! falls. How many slices `build` takes is the policy's business (a larger slice holds more records), so
//! the lines say what had to be held. A recording of single calls uses `get` and `put`. A reader refuses
//! versions that it does not know, flushes and ids that are not open, and everything it can't read.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

use super::workload::Database;

/// The first line, with the version.
const HEAD: &str = "sealstone-pool-trace 1";
/// The most units of a flush, and slices of a `get`: what a trace may make a replay allocate.
const COUNT_MAX: u64 = 1 << 20;

/// Why a pool is trimmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrimKind {
    /// A checkpoint ended.
    Checkpoint,
    /// A flush left the queue empty.
    Flush,
    /// Memory is short.
    Pressure,
}

/// How short memory is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// It is not.
    #[default]
    Normal,
    /// Some.
    High,
    /// Very.
    Critical,
}

/// What happens.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the head has each field")]
pub enum Event {
    Begin {
        flush: u32,
        database: Database,
        units: Vec<u32>,
    },
    Build {
        flush: u32,
    },
    Merge {
        flush: u32,
        records: u32,
    },
    End {
        flush: u32,
        records: u64,
        bytes: u64,
    },
    Get {
        id: u32,
        count: u32,
        database: Database,
        want: u32,
        used: u32,
    },
    Put {
        id: u32,
        count: u32,
    },
    Trim {
        kind: TrimKind,
        database: Database,
    },
    Gc,
    Level(Level),
    Foreign(u64),
}

/// A recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// Of what.
    pub workload: String,
    /// Transactions in it.
    pub transactions: u64,
    /// Blocks in it.
    pub blocks: u64,
    /// Time in milliseconds, and event.
    pub events: Vec<(u64, Event)>,
}

/// A line that can't be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceError {
    /// Its number, from 1.
    pub line: usize,
    /// What is wrong with it.
    pub what: String,
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "trace, line {}: {}", self.line, self.what)
    }
}

impl std::error::Error for TraceError {}

const KINDS: [(TrimKind, &str); 3] = [
    (TrimKind::Checkpoint, "checkpoint"),
    (TrimKind::Flush, "flush"),
    (TrimKind::Pressure, "pressure"),
];

const LEVELS: [(Level, &str); 3] = [
    (Level::Normal, "normal"),
    (Level::High, "high"),
    (Level::Critical, "critical"),
];

impl Level {
    /// The word for it.
    pub fn name(self) -> &'static str {
        LEVELS[self as usize].1
    }
}

impl Trace {
    /// The text of the trace.
    pub fn write(&self) -> String {
        let mut text = format!(
            "{HEAD}\nworkload {}\ntransactions {}\nblocks {}\n",
            self.workload, self.transactions, self.blocks
        );
        for (at_ms, event) in &self.events {
            let _ = writeln!(text, "{at_ms} {}", Line(event));
        }
        text
    }

    /// Reads a trace and checks that it can be replayed.
    ///
    /// # Errors
    /// The first line that is wrong.
    pub fn read(text: &str) -> Result<Self, TraceError> {
        let mut trace = Self::default();
        let mut open = Open::default();
        let mut header = [HEAD, "workload ", "transactions ", "blocks "].iter();
        for (number, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default().trim();
            if line.is_empty() {
                continue;
            }
            let read = match header.next() {
                Some(expected) => trace.head_line(expected, line),
                None => event_line(line).and_then(|(at_ms, event)| {
                    let last_ms = trace.events.last().map_or(0, |(at_ms, _)| *at_ms);
                    if at_ms < last_ms {
                        return Err(format!("time falls from {last_ms} to {at_ms}"));
                    }
                    open.check(&event)?;
                    trace.events.push((at_ms, event));
                    Ok(())
                }),
            };
            read.map_err(|what| TraceError {
                line: number + 1,
                what,
            })?;
        }
        match header.next() {
            Some(expected) => Err(TraceError {
                line: text.lines().count(),
                what: format!("no line {expected}"),
            }),
            None => Ok(trace),
        }
    }

    fn head_line(&mut self, expected: &str, line: &str) -> Result<(), String> {
        let Some(rest) = line.strip_prefix(expected) else {
            return Err(format!("expected {expected}"));
        };
        match expected.trim() {
            "workload" => rest.clone_into(&mut self.workload),
            "transactions" => self.transactions = integer::<u64>(rest)?.max(1),
            "blocks" => self.blocks = integer::<u64>(rest)?.max(1),
            _ if rest.is_empty() => {}
            _ => return Err("not a version that this reader knows".into()),
        }
        Ok(())
    }
}

/// What is open while a trace is read.
#[derive(Default)]
struct Open {
    flushes: BTreeMap<u32, ()>,
    slices: BTreeMap<u32, ()>,
}

impl Open {
    fn check(&mut self, event: &Event) -> Result<(), String> {
        let known = match event {
            Event::Begin { flush, .. } => self.flushes.insert(*flush, ()).is_none(),
            Event::Build { flush } | Event::Merge { flush, .. } => self.flushes.contains_key(flush),
            Event::End { flush, .. } => self.flushes.remove(flush).is_some(),
            Event::Get { id, count, .. } => {
                (*id..id.saturating_add(*count)).all(|id| self.slices.insert(id, ()).is_none())
            }
            Event::Put { id, count } => {
                (*id..id.saturating_add(*count)).all(|id| self.slices.remove(&id).is_some())
            }
            _ => true,
        };
        known
            .then_some(())
            .ok_or_else(|| "a flush or slice that is open twice, or not open".into())
    }
}

struct Line<'a>(&'a Event);

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Event::Begin {
                flush,
                database,
                units,
            } => {
                write!(f, "begin {flush} {}", database.name())?;
                for same in units.chunk_by(|a, b| a == b) {
                    write!(f, " {}*{}", same[0], same.len())?;
                }
                Ok(())
            }
            Event::Build { flush } => write!(f, "build {flush}"),
            Event::Merge { flush, records } => write!(f, "merge {flush} {records}"),
            Event::End {
                flush,
                records,
                bytes,
            } => write!(f, "end {flush} {records} {bytes}"),
            Event::Get {
                id,
                count,
                database,
                want,
                used,
            } => write!(f, "get {id}*{count} {} {want} {used}", database.name()),
            Event::Put { id, count } => write!(f, "put {id}*{count}"),
            Event::Trim { kind, database } => {
                write!(f, "trim {} {}", KINDS[*kind as usize].1, database.name())
            }
            Event::Gc => write!(f, "gc"),
            Event::Level(level) => write!(f, "level {}", level.name()),
            Event::Foreign(bytes) => write!(f, "foreign {bytes}"),
        }
    }
}

fn integer<T: std::str::FromStr>(word: &str) -> Result<T, String> {
    word.parse().map_err(|_| format!("not a number: {word}"))
}

/// `N` or `N*COUNT`.
fn repeated(word: &str) -> Result<(u32, u32), String> {
    let (number, count) = word.split_once('*').unwrap_or((word, "1"));
    let count: u32 = integer(count)?;
    if count == 0 || u64::from(count) > COUNT_MAX {
        return Err(format!("{word}: not 1 to {COUNT_MAX}"));
    }
    Ok((integer(number)?, count))
}

fn event_line(line: &str) -> Result<(u64, Event), String> {
    let mut words = line.split_whitespace();
    let mut word = || words.next().ok_or("the line ends too early");
    let at_ms = integer(word()?)?;
    let database = |name: &str| Database::named(name).ok_or(format!("no database {name}"));
    let event = match word()? {
        "begin" => {
            let (flush, database) = (integer(word()?)?, database(word()?)?);
            let mut units = Vec::new();
            for same in words.by_ref() {
                let (len, count) = repeated(same)?;
                if units.len() as u64 + u64::from(count) > COUNT_MAX {
                    return Err(format!("more than {COUNT_MAX} units"));
                }
                units.extend(std::iter::repeat_n(len, count as usize));
            }
            Event::Begin {
                flush,
                database,
                units,
            }
        }
        "build" => Event::Build {
            flush: integer(word()?)?,
        },
        "merge" => Event::Merge {
            flush: integer(word()?)?,
            records: integer(word()?)?,
        },
        "end" => Event::End {
            flush: integer(word()?)?,
            records: integer(word()?)?,
            bytes: integer(word()?)?,
        },
        "get" => {
            let (id, count) = repeated(word()?)?;
            Event::Get {
                id,
                count,
                database: database(word()?)?,
                want: integer(word()?)?,
                used: integer(word()?)?,
            }
        }
        "put" => {
            let (id, count) = repeated(word()?)?;
            Event::Put { id, count }
        }
        "trim" => {
            let name = word()?;
            let kind = KINDS.iter().find(|kind| kind.1 == name);
            Event::Trim {
                kind: kind.ok_or(format!("no trim {name}"))?.0,
                database: database(word()?)?,
            }
        }
        "gc" => Event::Gc,
        "level" => {
            let name = word()?;
            let level = LEVELS.iter().find(|level| level.1 == name);
            Event::Level(level.ok_or(format!("no level {name}"))?.0)
        }
        "foreign" => Event::Foreign(integer(word()?)?),
        other => return Err(format!("no event {other}")),
    };
    match words.next() {
        Some(more) => Err(format!("too much: {more}")),
        None => Ok((at_ms, event)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "sealstone-pool-trace 1\nworkload plain-send\ntransactions 9\nblocks 2\n\
        3 begin 1 blockstore 29*15 28*1\n3 build 1\n3 merge 1 463\n4 get 7*2 bench 8192 8192\n\
        5 end 1 463 99000\n5 put 7*2\n6 trim checkpoint blockstore\n6 gc\n7 level high\n\
        7 foreign 4294967296\n";

    #[test]
    fn text_and_trace_are_the_same() {
        let trace = Trace::read(TEXT).unwrap();
        assert_eq!(trace.events.len(), 10);
        assert_eq!(trace.write(), TEXT);
    }

    #[test]
    fn wrong_lines_are_named() {
        let cases = [
            ("trace 1", "trace 2", 1),
            ("blocks 2\n", "", 4),
            ("3 build 1", "3 build 2", 6),
            ("5 end", "2 end", 9),
            ("5 put 7*2", "5 put 7*3", 10),
            ("29*15", "29*0", 5),
            ("6 gc", "6 gc 1", 12),
            ("bench", "bank", 8),
            ("level high", "level low", 13),
            ("4 get 7*2", "4 get 7*2000000000", 8),
        ];
        for (from, to, line) in cases {
            let error = Trace::read(&TEXT.replacen(from, to, 1)).unwrap_err();
            assert_eq!(error.line, line, "{from} -> {to}: {error}");
        }
    }
}
