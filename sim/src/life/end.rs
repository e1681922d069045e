//! How lives end: closed, killed, without power; and what rots meanwhile.

use std::collections::VecDeque;

use super::{End, Open, Run};
use crate::choices::Purpose;
use crate::disk::{Crash, Keep, Order, Survivors};
use crate::model::Violation;
use crate::subject::Subject;

impl<S: Subject> Run<S> {
    /// The life ends between two steps.
    pub(super) fn end_by_choice(&mut self, open: Open<S>) -> Result<bool, Violation> {
        if self.choices.chance(Purpose::Crash, 1, 3) {
            let Open {
                walks,
                views,
                tickets,
                subject,
                poisoned,
                ..
            } = open;
            drop((walks, views));
            let closed = self.guarded(|run| match subject.close() {
                Ok(()) => Ok(()),
                Err(_) if run.env.disk.is_dead() => Err(End::Dead),
                Err(stop) if poisoned || run.excused(&stop) => Err(End::Dead),
                Err(stop) => Err(Violation::new("S17", format!("close: {}", stop.text)).into()),
            });
            if closed.is_ok() && !poisoned {
                self.settle_tickets(&subject, tickets)?;
            }
            drop(subject);
            match closed {
                Ok(()) => {
                    self.did("closed".into());
                    self.hit("end-close");
                    let held = self.env.disk.descriptors();
                    if held != 0 {
                        let what = format!("{held} descriptors open after close");
                        return Err(Violation::new("S14", what));
                    }
                    if !self.env.disk.state().shut_down {
                        self.env = self.env.restart(&Crash::Kill);
                        return Ok(true);
                    }
                }
                Err(End::Broken(violation)) => return Err(violation),
                Err(End::Dead | End::Given) => {}
            }
        } else {
            drop(open);
        }
        self.crash();
        Ok(true)
    }

    /// What was queued at a clean close is committed by it.
    fn settle_tickets(
        &mut self,
        subject: &S,
        tickets: VecDeque<(S::Ticket, u64, bool)>,
    ) -> Result<(), Violation> {
        for (ticket, expected, synced) in tickets {
            match subject.poll(&ticket) {
                Some(Ok(got)) if got == expected => self.model.acknowledge(got, synced),
                Some(Ok(got)) => {
                    let what = format!("commit {expected} was called {got}");
                    return Err(Violation::new("S1", what));
                }
                Some(Err(_)) | None => {}
            }
        }
        Ok(())
    }

    /// Kills the process or cuts the power, and builds the next life's disk.
    pub(super) fn crash(&mut self) {
        self.crashes += 1;
        let c = &mut self.choices;
        let survivors = Survivors {
            keep: match c.below(Purpose::Crash, 6) {
                0 => Keep::Nothing,
                1 => Keep::Everything,
                _ => Keep::Seeded(c.subseed(Purpose::Crash)),
            },
            order: *c.pick(
                Purpose::Crash,
                &[Order::AnySubset, Order::PrefixPerFile, Order::PrefixGlobal],
            ),
            sector_bytes: *c.pick(Purpose::Crash, &[512, 4096]),
            garbage: c.chance(Purpose::Crash, 1, 3),
            strength: self.swarm.strength,
        };
        // A file system that shut down comes back with the machine only.
        let kill = c.chance(Purpose::Crash, 1, 3) && !self.env.disk.state().shut_down;
        let crash = if kill {
            Crash::Kill
        } else {
            Crash::Power(survivors)
        };
        self.hit(if kill { "end-kill" } else { "end-power" });
        self.did(format!("{crash:?}"));
        self.take_disk_trace();
        self.note_damage();
        self.env = self.env.restart(&crash);
        if self.swarm.rot && self.choices.chance(Purpose::Fault, 1, 2) {
            self.rot();
        }
    }

    /// Bits flip in a file, one or many.
    fn rot(&mut self) {
        let names: Vec<_> = self.env.disk.live_files().into_iter().collect();
        let files: Vec<_> = names
            .into_iter()
            .filter(|(_, bytes)| !bytes.is_empty())
            .collect();
        if files.is_empty() {
            return;
        }
        let (name, bytes) = self.choices.pick(Purpose::Fault, &files).clone();
        let offset = u64::from(self.choices.below(Purpose::Fault, bytes.len() as u32));
        let bits = self.choices.below(Purpose::Fault, 3);
        match bits {
            0 => self
                .env
                .disk
                .flip(name, offset, 1 << self.choices.below(Purpose::Fault, 8)),
            1 => self.env.disk.overwrite(name, offset, &[0xA5; 64]),
            _ => self.env.disk.displace(name, offset / 512 * 512, 0, 512),
        };
        self.damaged = true;
        self.hit("rot");
        self.did(format!("rot {bits} in {name} at {offset}"));
    }
}
