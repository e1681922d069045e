//! `exhaust`: every crash of a stretch of a plan.
//!
//! What a crash leaves depends on the disk alone, so the stretch runs once on a recording disk. Then
//! each recorded state (before, inside and after each mutating call) is crashed in all the ways asked
//! for, and each time a new machine opens the store:
//!
//! ```text
//! state -> crash -> open: durable <= recovered <= issued, content = state[recovered]
//!             |       +-> loss of power -> open: the same again          (S5)
//!             |       +-> crash inside of this open -> open              (recovery)
//!             +-> the lines behind `then`, on a machine of their own
//! ```

use super::Wrong;
use super::machine::Machine;
use super::tree::Node;
use crate::disk::state::State;
use crate::disk::{Crash, DiskOptions, Keep, Recorded, SimDisk, Survivors};
use crate::env::SimEnv;
use crate::explore::{distinct, subset};
use crate::model::{Op, Violation};
use crate::script::Mark;

/// How much is tried.
struct Limits {
    /// Seeded torn subsets per crash point.
    subsets: u64,
    /// All subsets of pending things, where they are no more than this.
    things_max: u32,
    /// Every so many places of each recovery are crashed too; 0 is none.
    recovery: usize,
}

impl Machine {
    pub fn exhaust(&mut self, words: &[&str], node: &Node) -> Result<(), Wrong> {
        let limits = self.limits(words)?;
        if self.marks.is_some() {
            return Err("exhaust inside of exhaust".into());
        }
        self.marks = Some(Vec::new());
        self.mark();
        self.env.disk.start_recording();
        let ran = self.lines(&node.parts[0]).and_then(|()| {
            self.check_error().map_err(|wrong| match wrong {
                Wrong::Inner(failure) => failure,
                _ => super::PlanFailure::new(node.line, &node.text, "an error"),
            })
        });
        let mut states = self.env.disk.stop_recording();
        let marks = self.marks.take().unwrap_or_default();
        ran?;
        let last = states
            .last()
            .cloned()
            .ok_or("the stretch changes nothing on the disk")?;
        // The end: all that was acknowledged by now must be there.
        states.push(Recorded {
            mark: marks.len() as u64 - 1,
            state: self.env.disk.state(),
            ..last
        });
        let then = node.parts.get(1).map_or(&[][..], |lines| &lines[..]);
        for recorded in distinct(&states) {
            self.point(recorded, &marks, &limits, then)?;
        }
        self.report.expects += 1;
        Ok(())
    }

    fn limits(&self, mut words: &[&str]) -> Result<Limits, Wrong> {
        let mut limits = Limits {
            subsets: 2,
            things_max: 6,
            recovery: 0,
        };
        while let [word, rest @ ..] = words {
            words = match (*word, rest) {
                ("subsets", [count, rest @ ..]) => {
                    limits.subsets = self.size(count)?;
                    rest
                }
                ("bound", [count, rest @ ..]) => {
                    limits.things_max = self.size(count)?.min(16) as u32;
                    rest
                }
                ("recovery", [stride, rest @ ..]) => {
                    limits.recovery = self.size(stride)? as usize;
                    rest
                }
                (other, _) => return Err(format!("of exhaust: {other}?").into()),
            };
        }
        Ok(limits)
    }

    fn point(
        &mut self,
        recorded: &Recorded,
        marks: &[Mark],
        limits: &Limits,
        then: &[Node],
    ) -> Result<(), Wrong> {
        let mark = &marks[recorded.mark as usize];
        for crash in crashes(recorded, limits) {
            let state = recorded.state.after(&crash);
            let tried = self
                .try_open(&state, mark, limits)
                .and_then(|()| self.try_then(&state, mark, then));
            tried.map_err(|wrong| {
                let (call, number) = (recorded.call.name(), recorded.mutation);
                let place = format!("{:?}", recorded.place).to_lowercase();
                let at = format!("crash {place} {call} (change {number}), {crash:?}: ");
                match wrong {
                    Wrong::Text(text) => Wrong::Text(at + &text),
                    Wrong::Rule(violation) => {
                        Violation::new(violation.rule, at + &violation.what).into()
                    }
                    Wrong::Inner(mut failure) => {
                        failure.what = at + &failure.what;
                        failure.into()
                    }
                }
            })?;
            self.report.crashes += 1;
        }
        Ok(())
    }

    fn machine_on(&self, state: &State, mark: &Mark) -> Self {
        let disk = SimDisk::from_state(state.clone(), DiskOptions::default());
        let mut machine = self.fork(SimEnv::on(disk));
        machine.model.issued = mark.issued;
        machine.model.durable = mark.durable;
        machine
    }

    fn open_and_check(&mut self) -> Result<(), Wrong> {
        self.reopen_all()?;
        self.expect_model()
    }

    /// Opens, without any error.
    fn reopen_all(&mut self) -> Result<(), Wrong> {
        match self.open("main")? {
            Ok(()) => Ok(()),
            Err(error) => Err(Violation::new("S6", format!("open: {error:?}")).into()),
        }
    }

    fn try_open(&self, state: &State, mark: &Mark, limits: &Limits) -> Result<(), Wrong> {
        let mut first = self.machine_on(state, mark);
        if limits.recovery > 0 {
            first.env.disk.start_recording();
        }
        first.open_and_check()?;
        let recoveries = first.env.disk.stop_recording();
        let exact = Mark {
            durable: first.model.durable,
            issued: first.model.issued,
        };
        let lost = first.env.disk.imagine(&Crash::Power(Survivors::NOTHING));
        let mut second = first.machine_on(&lost.state(), &exact);
        second.open_and_check().map_err(|wrong| match wrong {
            Wrong::Rule(violation) => {
                Violation::new("S5", format!("recovered, then lost: {violation}")).into()
            }
            other => other,
        })?;
        second.write_once_more()?;
        // Which places are tried turns with the state, so that neighbours cover what one leaves out.
        let start = first.env.disk.digest() as usize % limits.recovery.max(1);
        let places = distinct(&recoveries).into_iter().enumerate();
        for (turn, recovery) in places.skip(start).step_by(limits.recovery.max(1)) {
            let crash = match turn % 4 {
                0 | 2 => Crash::Power(Survivors::NOTHING),
                1 => Crash::Kill,
                _ => subset(turn as u64),
            };
            let mut third = self.machine_on(&recovery.state.after(&crash), mark);
            third.open_and_check()?;
        }
        Ok(())
    }

    /// Life goes on: a synced write on top stays.
    fn write_once_more(&mut self) -> Result<(), Wrong> {
        let Some((name, _)) = self.declared.last().cloned() else {
            return Ok(());
        };
        let key = "written after the crash";
        let index = self.declared.len() - 1;
        let sequence = self.model.issue(&[Op::put(index, key, "1")]);
        let written = self
            .keyspace(&name)?
            .put(key, "1", sealstone::Durability::Synced);
        match written {
            Ok(got) if got == sequence => {}
            other => {
                let what = format!("commit {sequence} came to {other:?}");
                return Err(Violation::new("S19", what).into());
            }
        }
        self.model.acknowledge(sequence, true);
        let lost = self.env.disk.imagine(&Crash::Power(Survivors::NOTHING));
        let exact = Mark {
            durable: sequence,
            issued: sequence,
        };
        self.machine_on(&lost.state(), &exact).open_and_check()
    }

    fn try_then(&mut self, state: &State, mark: &Mark, then: &[Node]) -> Result<(), Wrong> {
        if then.is_empty() {
            return Ok(());
        }
        let mut machine = self.machine_on(state, mark);
        machine.lines(then)?;
        machine.check_error()?;
        let report = machine.finish()?;
        self.report.steps += report.steps;
        self.report.expects += report.expects;
        Ok(())
    }
}

/// The crashes tried at one point.
fn crashes(recorded: &Recorded, limits: &Limits) -> Vec<Crash> {
    let mut crashes = vec![Crash::Power(Survivors::NOTHING)];
    if recorded.state.is_settled() {
        return crashes;
    }
    crashes.push(Crash::Kill);
    let things = recorded.state.pending_things();
    if things <= limits.things_max {
        for mask in 1..1u64 << things {
            let keep = Keep::Mask(mask);
            crashes.push(Crash::Power(Survivors {
                keep,
                ..Survivors::NOTHING
            }));
        }
    } else {
        crashes.push(Crash::Power(Survivors::EVERYTHING));
    }
    let point = recorded.mutation * 3 + recorded.place as u64;
    crashes.extend((0..limits.subsets).map(|turn| subset(point * 17 + turn)));
    crashes
}
