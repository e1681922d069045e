//! The steps of a life, each with its check.

use std::time::Duration;

use sealstone::env::PressureLevel;
use sealstone::types::KeyspaceKind;

use super::scene::BURST_OPERATIONS;
use super::{End, Kind, Lived, Open, Run};
use crate::choices::Purpose;
use crate::model::{Op, Verdict, Violation};
use crate::subject::{Answer, Stop, StopKind, Subject};

impl<S: Subject> Run<S> {
    pub(super) fn steps(&mut self, open: &mut Open<S>, count: u32) -> Lived<()> {
        for _ in 0..count {
            let kind = self.swarm.kind(&mut self.choices);
            self.step_of(kind, open)?;
        }
        Ok(())
    }

    /// One step, with the checks that follow each.
    pub(super) fn step_of(&mut self, kind: Kind, open: &mut Open<S>) -> Lived<()> {
        self.steps += 1;
        open.was_poisoned = open.poisoned;
        self.event(open)?;
        self.step(kind, open)?;
        self.after_step(open)
    }

    fn step(&mut self, kind: Kind, open: &mut Open<S>) -> Lived<()> {
        match kind {
            Kind::Get => self.get(open),
            Kind::Write => self.write(open),
            Kind::Submit => self.submit(open),
            Kind::Commit => {
                self.did(|| "commit".into());
                self.plan_line(|| "try commit".into());
                let answer = open.subject.commit_step();
                self.settled(open, answer).map(drop)
            }
            Kind::Failing => self.failing(open),
            Kind::Sync => self.sync(open),
            Kind::GetOther => self.get_other(open),
            Kind::Range => self.range(open),
            Kind::Reopen => self.reopen(open),
            Kind::MultiGet => self.multi_get(open),
            Kind::Scan => self.scan(open),
            Kind::Snapshot => self.snapshot(open),
            Kind::ViewGet | Kind::ViewScan => self.view(open, kind == Kind::ViewScan),
            Kind::DropView => {
                if !open.views.is_empty() {
                    let index = self
                        .choices
                        .below(Purpose::Workload, open.views.len() as u32);
                    let (_, _, id) = open.views.remove(index as usize);
                    self.plan_line(|| format!("drop-snapshot s{id}"));
                    self.did(|| "drop a snapshot".into());
                }
                Ok(())
            }
            Kind::Cursor => self.cursor(open),
            Kind::Advance => self.advance(open),
            Kind::DropCursor => {
                if let Some(walk) = open.walks.pop() {
                    self.plan_line(|| format!("drop-iterator i{}", walk.id));
                }
                Ok(())
            }
            Kind::Seal => {
                self.did(|| "seal".into());
                self.plan_line(|| "try seal".into());
                let answer = open.subject.seal();
                self.settled(open, answer).map(drop)
            }
            Kind::Job => self.job(open),
            Kind::Pressure => {
                let levels = [
                    PressureLevel::Normal,
                    PressureLevel::High,
                    PressureLevel::Critical,
                ];
                let level = *self.choices.pick(Purpose::Pressure, &levels);
                self.turn_pressure(level);
                Ok(())
            }
            Kind::Budget => {
                let sizes = [1 << 20, 0, 512, 4096, 64, 1 << 20];
                let bytes: u64 = *self.choices.pick(Purpose::Pressure, &sizes);
                self.did(|| format!("filter budget {bytes}"));
                self.plan_line(|| format!("filter-budget {bytes}"));
                match open.subject.set_filter_budget(bytes) {
                    Some(answer) => self.settled(open, answer).map(drop),
                    None => Ok(()),
                }
            }
            Kind::Clock => {
                let ms = u64::from(self.choices.below(Purpose::Pressure, 5000));
                self.env.clock.advance(Duration::from_millis(ms));
                self.env.clock.jump_wall(ms as i64 * 3 - 7000);
                self.plan_line(|| format!("clock {ms}"));
                Ok(())
            }
        }
    }

    pub(super) fn after_step(&mut self, open: &mut Open<S>) -> Lived<()> {
        if self.env.disk.is_dead() {
            return Err(End::Dead);
        }
        self.poll(open)?;
        let claimed = open.subject.claimed_durable();
        if claimed > self.model.issued {
            let what = format!("{claimed} is called durable, {} issued", self.model.issued);
            return Err(Violation::new("S1", what).into());
        }
        self.model.durable = self.model.durable.max(claimed);
        let readers = (open.views.len(), open.walks.len());
        let audited = open.subject.audit(&self.env.disk);
        let audited = audited.and_then(|newest| {
            open.subject.check_readers(readers)?;
            Ok(newest)
        });
        let newest = match audited {
            Ok(newest) => newest,
            Err((rule, what)) => return Err(Violation::new(rule, what).into()),
        };
        if self
            .held
            .iter()
            .any(|(held, copy)| held.as_ref() != &copy[..])
        {
            return Err(Violation::new("S10", "bytes that were handed out changed").into());
        }
        if newest == self.newest {
            return Ok(());
        }
        self.newest = newest;
        if open.subject.newest_is_folded() {
            self.hit("fold");
            return self.check_everything(open, false);
        }
        self.check_installed(open)
    }

    /// Passes an answer on, or says why there is none: dead, excused (`None`), or a violation.
    pub(super) fn settled<T>(&mut self, open: &mut Open<S>, answer: Answer<T>) -> Lived<Option<T>> {
        let stop = match answer {
            Ok(value) => return Ok(Some(value)),
            Err(stop) => stop,
        };
        self.did(|| format!("  -> {:?} {}", stop.kind, stop.text));
        if self.env.disk.is_dead() {
            return Err(End::Dead);
        }
        if stop.kind == StopKind::Poisoned {
            if !open.poisoned && self.must_go_on() {
                let what = format!("poisoned for want of room at most: {}", stop.text);
                return Err(Violation::new("S17", what).into());
            }
            open.poisoned = true;
        }
        self.mix(stop.kind as u64);
        if open.poisoned || self.excused(&stop) {
            return Ok(None);
        }
        Err(unexplained(&stop).into())
    }

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

    fn synced(&mut self) -> bool {
        self.choices.below(Purpose::Workload, 4) < self.swarm.synced_quarters
    }

    fn write(&mut self, open: &mut Open<S>) -> Lived<()> {
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

    fn submit(&mut self, open: &mut Open<S>) -> Lived<()> {
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
    fn poll(&mut self, open: &mut Open<S>) -> Lived<()> {
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

    fn failing(&mut self, open: &mut Open<S>) -> Lived<()> {
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

    fn sync(&mut self, open: &mut Open<S>) -> Lived<()> {
        self.did(|| "sync".into());
        self.plan_line(|| "try sync".into());
        let answer = open.subject.sync();
        if self.settled(open, answer)?.is_some() {
            self.poll(open)?;
            if open.poisoned {
                return Err(Violation::new("S16", "a sync after the store was poisoned").into());
            }
            self.model.durable = self.model.visible;
        }
        Ok(())
    }

    fn job(&mut self, open: &mut Open<S>) -> Lived<()> {
        let count = open.subject.jobs();
        if count == 0 {
            return Ok(());
        }
        let index = self.choices.below(Purpose::Schedule, count as u32) as usize;
        let quantum = self.choices.log_uniform(Purpose::Schedule, 7);
        self.did(|| format!("job {index} of {count}, quantum {quantum}"));
        self.plan_line(|| format!("try job {} {quantum}", open.subject.plan_job(index)));
        let answer = open.subject.run_job(index, quantum);
        self.settled(open, answer)?;
        self.hit("job");
        Ok(())
    }

    /// Closes the store and opens it with other options. What was queued is committed by that, or refused.
    fn reopen(&mut self, open: &mut Open<S>) -> Lived<()> {
        for (_, _, id) in std::mem::take(&mut open.views) {
            self.plan_line(|| format!("drop-snapshot s{id}"));
        }
        for walk in std::mem::take(&mut open.walks) {
            self.plan_line(|| format!("drop-iterator i{}", walk.id));
        }
        self.draw_options(2);
        self.plan_lines(|run| S::plan_options(&run.options));
        self.did(|| "reopen".into());
        self.plan_line(|| "try reopen".into());
        let Some(answer) = open.subject.reopen(&self.options) else {
            return Ok(());
        };
        if self.env.disk.is_dead() {
            return Err(End::Dead);
        }
        let poisoned = open.poisoned;
        // Unsettled tickets were resolved by the close.
        open.was_poisoned = poisoned;
        if !poisoned {
            self.poll(open)?;
        }
        open.tickets.clear();
        self.note_damage();
        let subject = match answer {
            Ok(subject) => subject,
            Err(stop) if self.damaged || self.excused(&stop) => {
                self.did(|| format!("  -> {:?} {}", stop.kind, stop.text));
                // The process gives up and ends.
                return Err(End::Dead);
            }
            Err(stop) => {
                let what = format!("reopen fails without reason: {:?} {}", stop.kind, stop.text);
                return Err(Violation::new("S6", what).into());
            }
        };
        open.subject = subject;
        (open.poisoned, open.was_poisoned) = (false, false);
        self.recover(open.subject.recovered())?;
        self.hit("reopen");
        Ok(())
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

fn unexplained(stop: &Stop) -> Violation {
    let rule = if stop.kind == StopKind::Damaged {
        "S6"
    } else {
        "S17"
    };
    Violation::new(
        rule,
        format!("an error without a fault: {:?} {}", stop.kind, stop.text),
    )
}
