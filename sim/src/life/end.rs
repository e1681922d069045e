//! How lives end: closed, killed, without power; and what rots meanwhile.

use std::collections::VecDeque;

use sealstone::env::FileName;

use super::scene::Rot;
use super::{End, Open, Run};
use crate::choices::Purpose;
use crate::disk::{Crash, DiskOptions, Keep, Order, SimDisk, Survivors};
use crate::env::SimEnv;
use crate::model::Violation;
use crate::subject::{StopKind, Subject};

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
            self.plan_line(|| "try close".into());
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
                    self.did(|| "closed".into());
                    self.hit("end-close");
                    let held = self.env.disk.descriptors();
                    if held != 0 {
                        let what = format!("{held} descriptors open after close");
                        return Err(Violation::new("S14", what));
                    }
                    // All that was visible is durable now: what comes next may be a loss of power.
                    if !poisoned && S::CLOSE_SYNCS {
                        self.model.durable = self.model.visible;
                    }
                    let shut_down = self.env.disk.state().shut_down;
                    if !shut_down && self.choices.chance(Purpose::Crash, 1, 2) {
                        self.plan_crash(&Crash::Kill);
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
        let crash = self.end_of_scene(crash);
        let kill = matches!(crash, Crash::Kill);
        self.hit(if kill { "end-kill" } else { "end-power" });
        self.did(|| format!("{crash:?}"));
        self.plan_crash(&crash);
        self.take_disk_trace();
        self.note_damage();
        self.env = self.env.restart(&crash);
        if self.swarm.rot {
            if self.choices.chance(Purpose::Fault, 1, 2) {
                self.rot();
            }
        } else if self.rots_now() {
            let files = self.env.disk.live_files();
            if let Some(rot) = self.aimed_rot(&files) {
                self.rot_at(&rot);
            }
        }
    }

    /// Bits flip in a file, one or many.
    fn rot(&mut self) {
        let names = self.env.disk.live_files();
        if let Some(rot) = self.aimed_rot(&names) {
            return self.rot_at(&rot);
        }
        let files: Vec<_> = names
            .into_iter()
            .filter_map(|(name, bytes)| {
                let last = bytes.iter().rposition(|byte| *byte != 0)?;
                Some((name, last as u64 + 1))
            })
            .collect();
        if files.is_empty() {
            return;
        }
        // What was allocated ahead and never written is not worth it.
        let (name, used) = *self.choices.pick(Purpose::Fault, &files);
        let offset = u64::from(self.choices.below(Purpose::Fault, used as u32));
        let bits = *self.choices.pick(Purpose::Fault, &[0, 0, 0, 0, 1, 2, 3, 3]);
        let place = self.plan_place(name);
        match bits {
            0 => {
                let mask = 1 << self.choices.below(Purpose::Fault, 8);
                self.plan_line(|| format!("flip {place} {offset} {mask}"));
                self.env.disk.flip(name, offset, mask)
            }
            1 => {
                self.plan_line(|| format!("overwrite {place} {offset} repeat:64:hex:a5"));
                self.env.disk.overwrite(name, offset, &[0xA5; 64])
            }
            2 => {
                let from = offset / 512 * 512;
                self.plan_line(|| format!("displace {place} {from} 0 512"));
                self.env.disk.displace(name, from, 0, 512)
            }
            _ => {
                // Whole records where others were, if records are small and of one length.
                let unit = *self.choices.pick(Purpose::Fault, &[32, 64, 512]);
                let from = offset / unit * unit;
                let back = 1 + u64::from(self.choices.below(Purpose::Fault, 4));
                let to = from.saturating_sub(back * unit);
                self.plan_line(|| format!("displace {place} {from} {to} {unit}"));
                self.env.disk.displace(name, from, to, unit)
            }
        };
        self.rotted(name, bits == 0, || {
            format!("rot {bits} in {name} at {offset}")
        });
    }

    /// Does what a scene aimed.
    fn rot_at(&mut self, rot: &Rot) {
        self.hit("scene-rot");
        match *rot {
            Rot::Flip { name, offset, mask } => {
                let place = self.plan_place(name);
                self.plan_line(|| format!("flip {place} {offset} {mask}"));
                self.env.disk.flip(name, offset, mask);
                self.rotted(name, true, || format!("rot: a bit of {name} at {offset}"));
            }
            Rot::Foreign {
                name,
                from,
                to,
                length,
            } => {
                let place = self.plan_place(name);
                self.plan_line(|| format!("displace {place} {from} {to} {length}"));
                self.env.disk.displace(name, from, to, length);
                self.rotted(name, false, || {
                    format!("rot: the record at {from} of {name} stands at {to} too")
                });
            }
        }
    }

    fn rotted(&mut self, name: FileName, one_bit: bool, what: impl FnOnce() -> String) {
        self.rotten.push((name.kind, one_bit));
        self.damaged = true;
        self.hit("rot");
        self.did(what);
    }

    /// How a plan names a file.
    fn plan_place(&self, name: FileName) -> String {
        let kind = format!("{:?}", name.kind).to_lowercase();
        let state = self.env.disk.state();
        let same = |other: &&FileName| other.kind == name.kind && !other.temporary;
        let index = state.names().keys().filter(same).position(|n| *n == name);
        format!("{kind}:{}", index.unwrap_or(0))
    }

    /// A reader opens what the last life left, on a copy: it finds what a writer may find, and changes
    /// nothing.
    pub(super) fn look_without_writing(&mut self) -> Result<(), Violation> {
        // Also after a clean close: what the medium silently lost is damage.
        self.note_damage();
        if !self.choices.chance(Purpose::Workload, 1, 6) || self.model.issued == 0 || self.damaged {
            return Ok(());
        }
        let disk = SimDisk::from_state(self.env.disk.state(), DiskOptions::default());
        let env = SimEnv::on(disk);
        let Some(opened) = S::open_reading(&env.env(), &self.options) else {
            return Ok(());
        };
        let subject = match opened {
            Ok(subject) => subject,
            // A reader keeps the live logs in memory.
            Err(stop) if stop.kind == StopKind::Refused => return Ok(()),
            Err(stop) => {
                self.plan_line(|| "option read_only true".into());
                self.plan_line(|| "try open".into());
                return Err(Violation::new(
                    "S6",
                    format!("a reader's open: {}", stop.text),
                ));
            }
        };
        self.hit("read-only");
        let mut model = self.model.clone();
        model.recover(subject.recovered())?;
        for keyspace in 0..model.keyspaces() {
            let items = match subject.scan(keyspace, false) {
                Ok(items) => items,
                // More cursors than fit.
                Err(stop) if stop.kind == StopKind::Refused => continue,
                Err(stop) => {
                    return Err(Violation::new("S17", format!("a reader: {}", stop.text)));
                }
            };
            model.check_scan("S7", (keyspace, false), model.visible, &items)?;
        }
        drop(subject);
        if env.disk.mutations() != 0 {
            return Err(Violation::new("S6", "a reader changed the disk"));
        }
        Ok(())
    }
}
