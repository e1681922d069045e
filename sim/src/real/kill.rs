//! SIGKILL at random moments, again and again, and what must be there afterwards.
//!
//! A dead process takes nothing of the page cache with it: every acknowledged batch, synced or not, has
//! to be there, each thread's work up to one batch of its own and nothing behind it, in the order of
//! sequences across threads, and a verification has to find no damage.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use sealstone::Store;

use super::Scratch;
use super::child::{Orders, THREADS};
use super::work::{self, Content, Piece};
use crate::choices::SmallRandom;

/// Lives of one directory: its content must fit in memory here.
const LIVES_PER_STORE: u64 = 25;

/// What a loop came to.
#[derive(Clone, Copy, Debug, Default)]
pub struct KillReport {
    /// Processes killed.
    pub kills: u64,
    /// Of them, while they were opening the store.
    pub kills_in_open: u64,
    /// Batches whose acknowledgement arrived.
    pub acknowledged: u64,
    /// Batches found although no acknowledgement arrived.
    pub unheard: u64,
    /// Logs whose end was torn.
    pub torn: u64,
}

/// What is known of a store from outside.
#[derive(Debug, Default)]
pub struct Witness {
    seed: u64,
    /// The content as far as it was found.
    content: Content,
    /// How far each thread's work was found.
    counters: Vec<u64>,
}

/// What a child said.
#[derive(Clone, Debug, Default)]
pub struct Heard {
    /// It had opened the store, which held the commits up to this.
    pub opened: Option<u64>,
    /// Sequences by thread and counter.
    pub acknowledged: BTreeMap<(u64, u64), u64>,
}

impl Heard {
    /// Takes a line in; an unfinished one says nothing.
    pub fn line(&mut self, line: &str) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |text: &str| text.parse().unwrap_or(u64::MAX);
        match words[..] {
            ["O", recovered] => self.opened = Some(number(recovered)),
            ["A", thread, counter, sequence] => {
                let place = (number(thread), number(counter));
                self.acknowledged.insert(place, number(sequence));
            }
            _ => {}
        }
    }
}

impl Witness {
    /// Of an empty store.
    pub fn new(seed: u64, threads: u64) -> Self {
        Self {
            seed,
            content: Content::default(),
            counters: vec![0; threads as usize],
        }
    }

    /// How far each thread's work was found.
    pub fn counters(&self) -> &[u64] {
        &self.counters
    }

    /// Compares what a life has left with what it said.
    ///
    /// # Errors
    /// What is wrong.
    pub fn check(&mut self, found: &Content, life: u64, heard: &Heard) -> Result<(), String> {
        let mut newest_kept = 0;
        for (thread, counter) in self.counters.iter_mut().enumerate() {
            let thread = thread as u64;
            let now = counter_in(found, thread)?;
            if now < *counter {
                return Err(format!("thread {thread} fell from {counter} to {now}"));
            }
            for counter in *counter + 1..=now {
                let piece = Piece {
                    life,
                    thread,
                    counter,
                };
                work::apply(&mut self.content, &work::changes(self.seed, piece));
                let sequence = heard.acknowledged.get(&(thread, counter));
                newest_kept = newest_kept.max(sequence.copied().unwrap_or(0));
            }
            *counter = now;
        }
        for ((thread, counter), sequence) in &heard.acknowledged {
            let kept = self.counters.get(*thread as usize).copied().unwrap_or(0);
            if *counter > kept {
                return Err(format!(
                    "batch {counter} of thread {thread}, sequence {sequence}, was acknowledged and is \
                     gone; {kept} is the last there, and sequence {newest_kept} is"
                ));
            }
        }
        match work::difference(found, &self.content) {
            None => Ok(()),
            Some(difference) => Err(difference),
        }
    }
}

fn counter_in(content: &Content, thread: u64) -> Result<u64, String> {
    match content[0].get(&work::counter_key(thread)) {
        None => Ok(0),
        Some(bytes) => match bytes.as_slice().try_into() {
            Ok(bytes) => Ok(u64::from_le_bytes(bytes)),
            Err(_) => Err(format!("the counter of thread {thread} is no number")),
        },
    }
}

/// How a loop runs.
#[derive(Clone, Debug)]
pub struct KillOptions {
    /// The command with the child in it.
    pub command: PathBuf,
    /// How long.
    pub time: Duration,
    /// Decides what is written, and when about the kills come.
    pub seed: u64,
    /// The child lies about what is acknowledged.
    pub lies: bool,
}

/// Kills for as long as asked.
///
/// # Errors
/// The first thing that is wrong, with the life it was seen in.
pub fn run(options: &KillOptions) -> Result<KillReport, String> {
    let end = Instant::now() + options.time;
    let mut report = KillReport::default();
    let mut random = SmallRandom::new(options.seed);
    for store in 0.. {
        let seed = options.seed ^ store << 32;
        let scratch = Scratch::new().map_err(|error| error.to_string())?;
        let mut witness = Witness::new(seed, THREADS);
        for life in 0..LIVES_PER_STORE {
            if Instant::now() >= end {
                return Ok(report);
            }
            let orders = Orders {
                directory: scratch.path().display().to_string(),
                seed,
                life,
                counters: witness.counters.clone(),
                lies: options.lies,
            };
            let heard = live(&options.command, &orders, &mut random)?;
            report.kills += 1;
            report.kills_in_open += u64::from(heard.opened.is_none());
            report.acknowledged += heard.acknowledged.len() as u64;
            let before: u64 = witness.counters.iter().sum();
            examine(scratch.path(), &mut witness, life, &heard, &mut report)
                .map_err(|what| format!("seed {seed}, life {life}: {what}"))?;
            let after: u64 = witness.counters.iter().sum();
            report.unheard += after - before - heard.acknowledged.len() as u64;
        }
    }
    Ok(report)
}

/// Starts a child, kills it some time later and returns what it said.
fn live(command: &Path, orders: &Orders, random: &mut SmallRandom) -> Result<Heard, String> {
    let text = |error: std::io::Error| error.to_string();
    let mut child = Command::new(command)
        .arg("kill-child")
        .args(orders.arguments())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(text)?;
    let out = child.stdout.take().ok_or("no pipe")?;
    let (opened, opening) = std::sync::mpsc::channel();
    let listener = std::thread::spawn(move || {
        let mut heard = Heard::default();
        let mut lines = BufReader::new(out);
        let mut line = String::new();
        while matches!(lines.read_line(&mut line), Ok(1..)) {
            if line.ends_with('\n') {
                heard.line(&line);
            }
            if line.starts_with('O') {
                let _ = opened.send(());
            }
            line.clear();
        }
        heard
    });
    if random.chance(3, 4) {
        // Fails only when the child has ended, which the listener then shows.
        let _ = opening.recv_timeout(Duration::from_secs(60));
    }
    let micros = match random.chance(1, 4) {
        true => random.below(2000),
        false => random.below(80_000),
    };
    std::thread::sleep(Duration::from_micros(micros));
    child.kill().map_err(text)?;
    let status = child.wait().map_err(text)?;
    if let Some(code) = status.code() {
        return Err(format!("the child ended by itself with {code}"));
    }
    listener.join().map_err(|_| "the listener panicked".into())
}

/// Opens what is left and compares; the store stays open or is closed as the life's number says.
fn examine(
    directory: &Path,
    witness: &mut Witness,
    life: u64,
    heard: &Heard,
    report: &mut KillReport,
) -> Result<(), String> {
    let text = |error: sealstone::Error| error.to_string();
    let store = Store::open(directory, work::options(false)).map_err(text)?;
    report.torn += store.open_report().cut.len() as u64;
    let keyspaces = work::keyspaces(&store).map_err(text)?;
    let recovered = store.open_report().recovered_through;
    if let Some(lost) = heard.acknowledged.values().find(|at| **at > recovered) {
        return Err(format!(
            "sequence {lost} was acknowledged, {recovered} recovered"
        ));
    }
    let found = work::content(&keyspaces).map_err(text)?;
    witness.check(&found, life, heard)?;
    let verified = store.verify(&mut |_| ()).map_err(text)?;
    if !verified.is_clean() {
        return Err(format!("{:?}", verified.damaged));
    }
    if life.is_multiple_of(2) {
        store.drain().map_err(text)?;
        store.close().map_err(text)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(thread: u64, counter: u64) -> Piece {
        Piece {
            life: 0,
            thread,
            counter,
        }
    }

    fn content_of(pieces: &[Piece]) -> Content {
        let mut content = Content::default();
        for piece in pieces {
            work::apply(&mut content, &work::changes(1, *piece));
        }
        content
    }

    fn verdict(content: &Content, heard: &[&str]) -> Result<(), String> {
        let mut said = Heard::default();
        heard.iter().for_each(|line| said.line(line));
        Witness::new(1, 2).check(content, 0, &said)
    }

    #[test]
    fn what_was_said_and_is_there_passes() {
        let content = content_of(&[piece(0, 1), piece(1, 1), piece(0, 2)]);
        verdict(&content, &["O 0", "A 0 1 1", "A 1 1 2"]).expect("more than heard is no loss");
        verdict(&Content::default(), &[]).expect("nothing said, nothing there");
    }

    #[test]
    fn losses_tears_and_foreign_values_are_reported() {
        let content = content_of(&[piece(0, 1), piece(1, 1)]);
        let lost = verdict(&content, &["A 0 1 1", "A 0 2 3"]).expect_err("a batch is lost");
        assert!(lost.contains("is gone"), "{lost}");
        let mut torn = content_of(&[piece(0, 1), piece(0, 2), piece(0, 3), piece(0, 4)]);
        let key = torn[0].keys().next().cloned().expect("some key");
        torn[0].remove(&key);
        verdict(&torn, &[]).expect_err("half of a batch");
        let mut foreign = content_of(&[piece(0, 1)]);
        foreign[1].insert(b"nobody's".to_vec(), vec![1]);
        verdict(&foreign, &[]).expect_err("nobody wrote that");
    }

    #[test]
    fn a_thread_never_falls_back() {
        let mut witness = Witness::new(1, 2);
        let content = content_of(&[piece(0, 1), piece(0, 2)]);
        witness.check(&content, 0, &Heard::default()).expect("fine");
        let fallen = content_of(&[piece(0, 1)]);
        let error = witness.check(&fallen, 1, &Heard::default());
        assert!(error.expect_err("fell").contains("fell"));
    }

    #[test]
    fn orders_come_through_as_arguments() {
        let orders = Orders {
            directory: "d".into(),
            seed: 5,
            life: 2,
            counters: vec![1, 0, 9],
            lies: true,
        };
        assert_eq!(Orders::parse(&orders.arguments()), Ok(orders));
        Orders::parse(&[]).expect_err("nothing");
    }
}
