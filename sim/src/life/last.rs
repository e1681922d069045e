//! The end of a run: no faults any more, and everything comes to rest and is right.

use std::time::Duration;

use sealstone::env::PressureLevel;

use super::reads::of_view;
use super::{Lived, Open, Run};
use crate::model::{Op, Violation};
use crate::subject::Subject;

/// Rounds of jobs after which a healthy store must have nothing left to do.
const DRAIN_ROUNDS_MAX: u32 = 10_000;

impl<S: Subject> Run<S> {
    /// With nothing left to do and nobody reading, the disk holds what the store is made of.
    fn check_files_at_rest(&mut self, open: &mut Open<S>) -> Lived<()> {
        if self.damaged {
            return Ok(());
        }
        match open.subject.at_rest(&self.env.disk) {
            Ok(()) => Ok(()),
            Err((rule, what)) => Err(Violation::new(rule, what).into()),
        }
    }

    /// The end of the last life: no faults, room enough. Everything must come to rest and be right.
    pub(super) fn last_words(&mut self, open: &mut Open<S>) -> Lived<()> {
        self.burst(open)?;
        self.read_views(open)?;
        for (_, _, id) in std::mem::take(&mut open.views) {
            self.plan_line(|| format!("drop-snapshot s{id}"));
        }
        for walk in std::mem::take(&mut open.walks) {
            self.plan_line(|| format!("drop-iterator i{}", walk.id));
        }
        self.plan_line(|| "pressure normal".into());
        self.env.pressure.set(PressureLevel::Normal);
        if open.poisoned && self.damaged {
            return Ok(());
        }
        self.drain(open)?;
        self.long_view(open)?;
        let ops = [Op::put(self.model.keyspaces() - 1, "last words", "x")];
        let expected = self.model.issue(&ops);
        self.plan_batch("batch", &ops, true, false);
        match open.subject.write(&ops, true) {
            Ok(got) => self.acknowledge(got, expected, true)?,
            Err(_) if self.damaged => self.model.retract_after(expected - 1),
            Err(stop) => {
                let what = format!("a healthy store refuses: {:?} {}", stop.kind, stop.text);
                return Err(Violation::new("S19", what).into());
            }
        }
        self.drain(open)?;
        self.after_step(open)?;
        self.check_everything(open, true)?;
        self.check_files_at_rest(open)
    }

    /// What snapshots see is still there at the end.
    fn read_views(&mut self, open: &mut Open<S>) -> Lived<()> {
        for index in 0..open.views.len() {
            let (view, at, id) = &open.views[index];
            let (at, id) = (*at, *id);
            for keyspace in 0..self.model.keyspaces() {
                let name = S::plan_keyspace(keyspace);
                self.plan_line(|| format!("try scan {name} in s{id}"));
            }
            let answers: Vec<_> = (0..self.model.keyspaces())
                .map(|keyspace| open.subject.view_scan(view, keyspace, false))
                .collect();
            for (keyspace, answer) in answers.into_iter().enumerate() {
                if let Some(items) = of_view(self.settled(open, answer))? {
                    let rule = self.read_rule("S8");
                    self.model.check_scan(rule, (keyspace, false), at, &items)?;
                }
            }
        }
        Ok(())
    }

    /// Runs jobs, with time between them, until none is left.
    pub(super) fn drain(&mut self, open: &mut Open<S>) -> Lived<()> {
        self.plan_line(|| "try settle".into());
        for _ in 0..DRAIN_ROUNDS_MAX {
            self.env.clock.advance(Duration::from_secs(1));
            if open.subject.jobs() == 0 {
                return self.after_step(open);
            }
            let answer = open.subject.run_job(0, 64);
            if self.settled(open, answer)?.is_none() && self.damaged {
                return Ok(());
            }
        }
        Err(Violation::new("S19", "background jobs never come to an end").into())
    }
}
