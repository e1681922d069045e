//! The steps of a life, each with its check.

use std::time::Duration;

use sealstone::env::PressureLevel;

use super::{End, Kind, Lived, Open, Run};
use crate::choices::Purpose;
use crate::model::Violation;
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
