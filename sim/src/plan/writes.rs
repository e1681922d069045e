//! Steps that write: batches, commits, seals, background jobs.

use std::time::Duration;

use sealstone::{Batch, Durability, Error, Job};

use super::machine::{Called, Machine, Queued};
use super::text;
use super::tree::Node;
use super::{PlanFailure, Wrong};
use crate::model::{Op, Verdict, Violation};

/// Rounds of jobs after which a drain gives up.
const DRAIN_ROUNDS_MAX: u32 = 1_000_000;

/// One operation of a batch, as the plan says it.
enum Part {
    Put(String, Vec<u8>, Vec<u8>),
    /// The value comes from a closure.
    Fill(String, Vec<u8>, Vec<u8>),
    /// The closure fails, or panics.
    Fails(String, Vec<u8>, bool),
    Delete(String, Vec<u8>),
}

impl Part {
    fn read(words: &[&str]) -> Result<Self, Wrong> {
        let name = |word: &str| String::from_utf8(text::bytes(word)?).map_err(|e| e.to_string());
        Ok(match words {
            ["put", keyspace, key, value] => {
                Self::Put(name(keyspace)?, text::bytes(key)?, text::bytes(value)?)
            }
            ["put-with", keyspace, key, value] => {
                Self::Fill(name(keyspace)?, text::bytes(key)?, text::bytes(value)?)
            }
            ["put-failing", keyspace, key] => {
                Self::Fails(name(keyspace)?, text::bytes(key)?, false)
            }
            ["put-panicking", keyspace, key] => {
                Self::Fails(name(keyspace)?, text::bytes(key)?, true)
            }
            ["delete", keyspace, key] => Self::Delete(name(keyspace)?, text::bytes(key)?),
            _ => {
                return Err("in a batch: put, put-with, put-failing, put-panicking, delete".into());
            }
        })
    }
}

/// Words behind a write.
#[derive(Default)]
struct How {
    buffered: bool,
    at_once: bool,
}

impl How {
    fn read(words: &[&str]) -> Result<Self, Wrong> {
        let mut how = Self::default();
        for word in words {
            match *word {
                "buffered" => how.buffered = true,
                "synced" => how.buffered = false,
                "at-once" => how.at_once = true,
                other => return Err(format!("no way to write: {other}").into()),
            }
        }
        Ok(how)
    }

    fn durability(&self) -> Durability {
        if self.buffered {
            Durability::Buffered
        } else {
            Durability::Synced
        }
    }
}

impl Machine {
    pub fn write_step(
        &mut self,
        first: &str,
        rest: &[&str],
        node: &Node,
    ) -> Result<Option<Result<(), Error>>, Wrong> {
        let called = match (first, rest) {
            ("put" | "put-with", [keyspace, key, value, how @ ..]) => {
                let part = Part::read(&[first, keyspace, key, value])?;
                self.write(&[part], &How::read(how)?)?
            }
            ("put-failing" | "put-panicking" | "delete", [keyspace, key, how @ ..]) => {
                let part = Part::read(&[first, keyspace, key])?;
                self.write(&[part], &How::read(how)?)?
            }
            ("batch", how) => {
                let parts = self.parts(&node.parts[0])?;
                self.write(&parts, &How::read(how)?)?
            }
            ("submit", [ticket, how @ ..]) => {
                let parts = self.parts(&node.parts[0])?;
                self.submit(ticket, &parts, &How::read(how)?)?
            }
            ("commit", []) => self.opened()?.store.commit_step().map(drop),
            ("sync", []) => {
                let result = self.opened()?.store.sync();
                if result.is_ok() {
                    self.poll()?;
                    self.model.durable = self.model.durable.max(self.model.visible);
                }
                result
            }
            ("seal", []) => self.opened()?.store.seal(),
            ("drain", []) => self.drain()?,
            ("settle", []) => self.settle()?,
            ("job", [name]) => self.job(name, 1024)?,
            ("job", [name, quantum]) => {
                let quantum = self.size(quantum)? as u32;
                self.job(name, quantum)?
            }
            ("jobs", [rounds]) => self.jobs(self.size(rounds)?, 1024)?,
            ("jobs", [rounds, quantum]) => {
                self.jobs(self.size(rounds)?, self.size(quantum)? as u32)?
            }
            _ => return Ok(None),
        };
        Ok(Some(called))
    }

    /// The lines of a batch, `for` among them.
    fn parts(&mut self, nodes: &[Node]) -> Result<Vec<Part>, Wrong> {
        let mut parts = Vec::new();
        for node in nodes {
            self.part(node, &mut parts).map_err(|wrong| match wrong {
                Wrong::Text(what) => PlanFailure::new(node.line, &node.text, what).into(),
                other => other,
            })?;
        }
        Ok(parts)
    }

    fn part(&mut self, node: &Node, parts: &mut Vec<Part>) -> Result<(), Wrong> {
        let line = text::substitute(&node.text, &self.variables)?;
        let words = text::words(&line)?;
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        if let ["for", name, values @ ..] = &words[..] {
            for value in self.values(values)? {
                self.variables.insert((*name).to_string(), value);
                parts.extend(self.parts(&node.parts[0])?);
            }
            return Ok(());
        }
        parts.push(Part::read(&words)?);
        Ok(())
    }

    fn batch<'a>(&self, parts: &'a [Part]) -> Result<Batch<'a>, Wrong> {
        let mut batch = Batch::new();
        for part in parts {
            match part {
                Part::Put(name, key, value) => batch.put(self.keyspace(name)?, key, value),
                Part::Fill(name, key, value) => {
                    batch.put_with(self.keyspace(name)?, key, value.len(), move |out| {
                        out.copy_from_slice(value);
                        Ok(())
                    })
                }
                Part::Fails(name, key, false) => {
                    batch.put_with(self.keyspace(name)?, key, 8, |_| Err("on purpose".into()))
                }
                Part::Fails(name, key, true) => {
                    batch.put_with(self.keyspace(name)?, key, 8, |_| {
                        std::panic::panic_any(crate::disk::SimulatedPanic)
                    })
                }
                Part::Delete(name, key) => batch.delete(self.keyspace(name)?, key),
            };
        }
        Ok(batch)
    }

    /// What the model makes of a batch; `None` if it must fail anyway.
    fn ops(&self, parts: &[Part]) -> Result<Option<Vec<Op>>, Wrong> {
        let mut ops = Vec::new();
        for part in parts {
            ops.push(match part {
                Part::Put(name, key, value) | Part::Fill(name, key, value) => {
                    Op::put(self.keyspace_index(name)?, &key[..], &value[..])
                }
                Part::Delete(name, key) => Op::delete(self.keyspace_index(name)?, &key[..]),
                Part::Fails(..) => return Ok(None),
            });
        }
        Ok(Some(ops))
    }

    fn verdict(&self, ops: Option<&[Op]>) -> Verdict {
        match ops {
            Some(ops) => self.model.verdict(ops),
            None => Verdict::Conflict,
        }
    }

    fn write(&mut self, parts: &[Part], how: &How) -> Called {
        let ops = self.ops(parts)?;
        let verdict = self.verdict(ops.as_deref());
        let issued = self.model.issued;
        let poisoned = self.is_poisoned()?;
        if verdict == Verdict::Commit
            && !poisoned
            && let Some(ops) = &ops
        {
            self.model.issue(ops);
            self.mark();
        }
        let store = self.opened()?.store.clone();
        let batch = self.batch(parts)?;
        let result = match how.at_once {
            true => store.try_write(batch, how.durability()),
            false => store.write(batch, how.durability()),
        };
        match result {
            Ok(_) if poisoned => {
                Err(Violation::new("S16", "a write after the store was poisoned").into())
            }
            Ok(_) if verdict == Verdict::NoOp => Ok(Ok(())),
            Ok(_) if verdict == Verdict::Conflict => {
                Err(Violation::new("S7", "a batch that must be refused was accepted").into())
            }
            Ok(got) if got == issued + 1 => {
                self.model.acknowledge(got, !how.buffered);
                Ok(Ok(()))
            }
            Ok(got) => {
                let what = format!("commit {} was called {got}", issued + 1);
                Err(Violation::new("S1", what).into())
            }
            Err(error) => {
                self.take_back(issued)?;
                Ok(Err(error))
            }
        }
    }

    /// A batch was refused: it left no trace, unless nobody knows.
    fn take_back(&mut self, issued: u64) -> Result<(), Wrong> {
        if !self.env.disk.is_dead() && !self.is_poisoned()? {
            self.model.retract_after(issued);
        }
        Ok(())
    }

    fn is_poisoned(&self) -> Result<bool, Wrong> {
        let opened = self.opened()?;
        Ok(!opened.closed && opened.store.stats().poisoned)
    }

    fn submit(&mut self, name: &str, parts: &[Part], how: &How) -> Called {
        let ops = self.ops(parts)?;
        let verdict = self.verdict(ops.as_deref());
        let issued = self.model.issued;
        let store = self.opened()?.store.clone();
        let expected = match (verdict, &ops) {
            (Verdict::Commit, Some(ops)) => Some(self.model.issue(ops)),
            _ => None,
        };
        self.mark();
        let batch = self.batch(parts)?;
        match store.submit(batch, how.durability()) {
            Ok(_) if verdict == Verdict::Conflict => {
                Err(Violation::new("S7", "a batch that must be refused was accepted").into())
            }
            Ok(ticket) => {
                let queued = Queued {
                    ticket,
                    expected,
                    synced: !how.buffered,
                    done: false,
                };
                self.tickets.insert(name.to_string(), queued);
                Ok(Ok(()))
            }
            Err(error) => {
                self.take_back(issued)?;
                Ok(Err(error))
            }
        }
    }

    /// Looks at what queued batches came to.
    pub fn poll(&mut self) -> Result<(), Wrong> {
        let mut due: Vec<&mut Queued> = self.tickets.values_mut().filter(|q| !q.done).collect();
        due.sort_by_key(|queued| queued.expected);
        for queued in due {
            let Some(result) = queued.ticket.try_result() else {
                continue;
            };
            queued.done = true;
            match (result, queued.expected) {
                (Ok(got), Some(expected)) if got == expected => {
                    self.model.acknowledge(got, queued.synced);
                }
                (Ok(got), Some(expected)) => {
                    let what = format!("commit {expected} was called {got}");
                    return Err(Violation::new("S1", what).into());
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn job(&mut self, name: &str, quantum: u32) -> Called {
        let store = self.opened()?.store.clone();
        let Some(job) = store
            .runnable()
            .into_iter()
            .find(|job| job_name(*job) == name)
        else {
            return Err(format!("the job {name} is not runnable").into());
        };
        Ok(store.run(job, quantum).map(drop))
    }

    /// Runs the most urgent job, again and again, until none is left.
    fn jobs(&mut self, rounds: u64, quantum: u32) -> Called {
        let store = self.opened()?.store.clone();
        for _ in 0..rounds {
            let Some(job) = store.runnable().first().copied() else {
                break;
            };
            if let Err(error) = store.run(job, quantum) {
                return Ok(Err(error));
            }
        }
        Ok(Ok(()))
    }

    /// All background work, a second between two steps, so that what failed is tried again.
    fn settle(&mut self) -> Called {
        let store = self.opened()?.store.clone();
        for _ in 0..DRAIN_ROUNDS_MAX {
            self.env.clock.advance(Duration::from_secs(1));
            let Some(job) = store.runnable().first().copied() else {
                return Ok(Ok(()));
            };
            if let Err(error) = store.run(job, 64) {
                return Ok(Err(error));
            }
        }
        Err(Violation::new("S19", "background jobs never come to an end").into())
    }

    /// All background work that is runnable now.
    fn drain(&mut self) -> Called {
        let store = self.opened()?.store.clone();
        for _ in 0..DRAIN_ROUNDS_MAX {
            match store.runnable().first().copied() {
                None => return Ok(Ok(())),
                Some(job) => {
                    if let Err(error) = store.run(job, 1024) {
                        return Ok(Err(error));
                    }
                }
            }
        }
        Err(Violation::new("S19", "background jobs never come to an end").into())
    }
}

/// The name of a job in plans.
pub fn job_name(job: Job) -> &'static str {
    match job {
        Job::Commit => "commit",
        Job::Flush => "flush",
        Job::Retire => "retire",
        Job::SpareLog => "spare-log",
        Job::Unlink => "unlink",
        Job::LoadFilter => "load-filter",
        Job::FillWindow => "fill-window",
        Job::RollManifest => "roll-manifest",
        Job::Fold => "fold",
        _ => "unknown",
    }
}
