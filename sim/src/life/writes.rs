//! Steps that write: batches, what becomes of them, and what the model has to know of it.

use sealstone::types::KeyspaceKind;

use super::scene::BURST_OPERATIONS;
use super::{Lived, Open, Run};
use crate::choices::Purpose;
use crate::model::{Op, Verdict, Violation};
use crate::subject::{Stop, StopKind, Subject};

impl<S: Subject> Run<S> {
    pub(super) fn key(&mut self) -> (usize, Vec<u8>) {
        let keyspace = self
            .choices
            .below(Purpose::Workload, self.model.keyspaces() as u32);
        let number = self.choices.below(Purpose::Workload, self.swarm.keys);
        let key = match self.swarm.key_shape {
            0 => format!("{number:03}"),
            1 => format!(
                "{}{number:06}",
                "a-long-prefix-that-all-keys-share/".repeat(2)
            ),
            2 if number == 0 => String::new(),
            2 => format!("{number:x}-{}", "x".repeat((number * 7 % 61) as usize)),
            _ => return (keyspace as usize, binary_key(number)),
        };
        (keyspace as usize, key.into_bytes())
    }

    fn value(&mut self, keyspace: usize, key: &[u8]) -> Vec<u8> {
        let bits = self
            .choices
            .below(Purpose::Workload, self.swarm.value_bits + 1);
        let length = self.choices.below(Purpose::Workload, 1 << bits) as usize;
        let length = length.max(self.value_bytes_min());
        // A write-once key mostly gets the same value again, as a replayed block would.
        let once = self.model.kind(keyspace) == KeyspaceKind::WriteOnce;
        let mut value = if once && !self.choices.chance(Purpose::Workload, 1, 8) {
            let current = self.model.get(keyspace, key, self.model.issued);
            if let Some(current) = current {
                return current.to_vec();
            }
            key.to_vec()
        } else {
            self.values += 1;
            self.values.to_string().into_bytes()
        };
        value.resize(length, b'~');
        value
    }

    fn batch(&mut self) -> Vec<Op> {
        let drawn = 1 + self.choices.below(Purpose::Workload, self.swarm.batch_max);
        let bursts = self.bursts();
        let count = if bursts { BURST_OPERATIONS } else { drawn };
        (0..count)
            .map(|_| {
                let (keyspace, key) = self.key();
                if self.choices.chance(Purpose::Workload, 1, 5) && !bursts {
                    Op::delete(keyspace, key)
                } else {
                    let value = self.value(keyspace, &key);
                    Op::put(keyspace, key, value)
                }
            })
            .collect()
    }

    pub(super) fn synced(&mut self) -> bool {
        self.choices.below(Purpose::Workload, 4) < self.swarm.synced_quarters
    }

    pub(super) fn write(&mut self, open: &mut Open<S>) -> Lived<()> {
        let (ops, synced) = (self.batch(), self.synced());
        let verdict = self.model.verdict(&ops);
        self.did(|| {
            let count = ops.len();
            format!("write {count} ops, synced {synced}: {verdict:?}")
        });
        self.plan_batch("batch", &ops, synced, false);
        let issued = self.model.issued;
        if open.poisoned {
            return match open.subject.write(&ops, synced) {
                Ok(_) => Err(Violation::new("S16", "a write after the store was poisoned").into()),
                Err(stop) => self.settled::<()>(open, Err(stop)).map(drop),
            };
        }
        if verdict == Verdict::Commit {
            self.model.issue(&ops);
        }
        let before = (open.subject.stalls(), self.env.disk.mutations());
        let answer = open.subject.write(&ops, synced);
        if open.subject.stalls() != before.0 {
            self.note_stall(self.env.disk.mutations() - before.1);
        }
        match (verdict, answer) {
            (Verdict::Commit, Ok(got)) => {
                self.acknowledge(got, issued + 1, synced)?;
                self.hit("write");
                Ok(())
            }
            (Verdict::Commit, Err(stop)) => self.not_written(open, &stop, issued),
            (Verdict::NoOp, answer) => {
                self.hit("no-op");
                match self.settled(open, answer)? {
                    Some(got) if !self.damaged => self.matched(&ops, got, synced),
                    _ => Ok(()),
                }
            }
            (Verdict::Conflict, Ok(_)) => {
                Err(Violation::new("S7", "a conflicting batch was accepted").into())
            }
            (Verdict::Conflict, Err(stop)) if stop.kind == StopKind::Conflict => {
                self.hit("conflict");
                Ok(())
            }
            (Verdict::Conflict, Err(stop)) => self.settled::<()>(open, Err(stop)).map(drop),
        }
    }

    pub(super) fn acknowledge(
        &mut self,
        got: u64,
        expected: u64,
        synced: bool,
    ) -> Result<(), Violation> {
        if got != expected {
            return Err(Violation::new(
                "S1",
                format!("commit {expected} was called {got}"),
            ));
        }
        self.mix(got);
        self.model.acknowledge(got, synced);
        Ok(())
    }

    /// A batch that changed nothing is called by the newest commit that it matched: synced, that one is
    /// durable now.
    fn matched(&mut self, ops: &[Op], got: u64, synced: bool) -> Lived<()> {
        let newest = self.model.newest_of(ops);
        // Not always equal: a put of the same value beside others has a sequence in the model only.
        if got == 0 || got > newest {
            let what = format!("a no-op over commit {newest} at most was called {got}");
            return Err(Violation::new("S1", what).into());
        }
        self.model.acknowledge(got, synced);
        Ok(())
    }

    /// A write found no room at this step: it was refused, or ran jobs itself, which changed the disk so
    /// many times.
    fn note_stall(&mut self, mutations: u64) {
        for number in [self.steps, mutations] {
            self.stalled = (self.stalled ^ number).wrapping_mul(0x0100_0000_01B3);
        }
    }

    /// A batch that should have been committed was not: it left no trace, or nobody knows.
    fn not_written(&mut self, open: &mut Open<S>, stop: &Stop, issued: u64) -> Lived<()> {
        if !self.env.disk.is_dead() {
            match stop.kind {
                StopKind::Refused => {
                    self.model.retract_after(issued);
                    self.note_stall(0);
                    self.hit("refused");
                }
                StopKind::Conflict => {
                    return Err(Violation::new("S7", "a conflict where none is").into());
                }
                // Looking for an existing value failed: nothing was queued.
                StopKind::Damaged | StopKind::Closed | StopKind::Io => {
                    self.model.retract_after(issued);
                }
                StopKind::Poisoned => {}
            }
        }
        self.settled::<()>(open, Err(stop.clone())).map(drop)
    }

    pub(super) fn submit(&mut self, open: &mut Open<S>) -> Lived<()> {
        let (ops, synced) = (self.batch(), self.synced());
        if open.poisoned || self.model.verdict(&ops) != Verdict::Commit {
            return Ok(());
        }
        let issued = self.model.issued;
        self.did(|| format!("submit {} ops, synced {synced}", ops.len()));
        self.plan_batch(&format!("submit t{}", issued + 1), &ops, synced, false);
        match open.subject.submit(&ops, synced) {
            None => Ok(()),
            Some(Ok(ticket)) => {
                self.hit("submit");
                let expected = self.model.issue(&ops);
                open.tickets.push_back((ticket, expected, synced));
                Ok(())
            }
            Some(Err(stop)) => {
                self.model.issue(&ops);
                self.not_written(open, &stop, issued)
            }
        }
    }

    /// Tickets end in order; once one failed, all behind it do.
    pub(super) fn poll(&mut self, open: &mut Open<S>) -> Lived<()> {
        while let Some((ticket, expected, synced)) = open.tickets.front() {
            let (expected, synced) = (*expected, *synced);
            let Some(answer) = open.subject.poll(ticket) else {
                if expected <= self.model.visible {
                    let what = format!(
                        "ticket of {expected} is open, {} visible",
                        self.model.visible
                    );
                    return Err(Violation::new("S1", what).into());
                }
                return Ok(());
            };
            open.tickets.pop_front();
            match answer {
                Ok(_) if open.was_poisoned => {
                    return Err(Violation::new("S16", "an acknowledgement after poison").into());
                }
                Ok(got) => self.acknowledge(got, expected, synced)?,
                Err(stop) => {
                    self.settled::<()>(open, Err(stop))?;
                    (open.poisoned, open.was_poisoned) = (true, true);
                }
            }
        }
        Ok(())
    }

    pub(super) fn failing(&mut self, open: &mut Open<S>) -> Lived<()> {
        let ops = self.batch();
        self.plan_batch("batch", &ops, false, true);
        let answer = open.subject.write_failing(&ops);
        match answer {
            None => Ok(()),
            Some(Ok(_)) => Err(Violation::new("S17", "a failing closure was ignored").into()),
            Some(Err(stop)) => {
                self.hit("failing-closure");
                self.settled::<()>(open, Err(stop)).map(drop)
            }
        }
    }
}

/// Keys of one to eight bytes with the top bit set as often as not.
fn binary_key(number: u32) -> Vec<u8> {
    let mixed = u64::from(number + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mut key = mixed.to_be_bytes()[..4 + number as usize % 5].to_vec();
    // Short ones too, as long as they differ.
    if number < 200 {
        key = vec![number as u8 ^ 0xA5];
        key.resize(1 + number as usize % 3, 0xFF);
    }
    key
}
