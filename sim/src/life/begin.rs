//! How lives begin: what may go wrong is armed, and the store is opened, through failures and crashes.

use std::collections::VecDeque;

use sealstone::env::FileKind;

use super::{End, Lived, Open, Run};
use crate::choices::Purpose;
use crate::disk::{AimedCrash, CrashPoint, Place};
use crate::faults::{Call, Fault, Rule};
use crate::model::Violation;
use crate::subject::Subject;

/// Opens of a life that may fail or crash before it is given clean air.
const TROUBLED_OPENS_MAX: u32 = 3;

/// Calls that a crash is aimed at. A log's first write is its header.
const RARE_CALLS: [(Call, Option<FileKind>); 5] = [
    (Call::SyncDir, None),
    (Call::Rename, None),
    (Call::Unlink, None),
    (Call::CreateNew, None),
    (Call::Write, Some(FileKind::Log)),
];

impl<S: Subject> Run<S> {
    /// Opens, through failures and crashes, at last in clean air.
    pub(super) fn open_at_last(&mut self) -> Lived<Open<S>> {
        for attempt in 0..=TROUBLED_OPENS_MAX {
            let calm = self.clean || attempt == TROUBLED_OPENS_MAX;
            self.prepare(calm);
            if !calm {
                self.set_the_stage();
            }
            match self.guarded(|run| run.open_once(calm)) {
                Ok(open) => return Ok(open),
                Err(End::Dead) => self.crash(),
                Err(end) => return Err(end),
            }
        }
        Err(End::Dead)
    }

    /// Arms what may go wrong in the coming life.
    fn prepare(&mut self, calm: bool) {
        let disk = self.env.disk.clone();
        disk.faults(|plan| plan.disarm());
        disk.crash_at(None);
        disk.crash_on(None);
        self.plan_line(|| "fault off".into());
        self.struck_before = self.struck();
        self.struck_hard_before = self.struck_hard();
        self.touched_again = 0;
        let limits = match calm {
            true => crate::disk::DiskOptions::default(),
            false => self.swarm.disk(0),
        };
        disk.set_options(|options| {
            options.capacity_bytes = limits.capacity_bytes;
            options.descriptors_max = limits.descriptors_max;
        });
        self.plan_limits(calm);
        if calm {
            return;
        }
        self.arm_faults();
        self.arm_crash();
    }

    /// The faults that are on, each once, or as long as something is short.
    fn arm_faults(&mut self) {
        for (fault, gap) in self.swarm.faults.clone() {
            let after = u64::from(self.choices.below(Purpose::Fault, 2 * gap));
            // Zero is the simplest choice, and no fault is simpler than one.
            if after > 0 {
                let seed = self.choices.subseed(Purpose::Fault);
                let (times, every) = match fault {
                    _ if fault.is_masked() => (50, after / 4),
                    // What is short stays short for a while.
                    Fault::NoSpace | Fault::NoDescriptor => (1 << (after % 4), 0),
                    _ => (1, 0),
                };
                let after = after - 1;
                let rule = Rule {
                    fault,
                    call: None,
                    file: None,
                    after,
                    every,
                    times,
                    seed,
                };
                self.plan_rule(&rule);
                self.env.disk.arm(rule);
            }
        }
    }

    /// A crash inside a call, in some lives.
    fn arm_crash(&mut self) {
        if self.choices.below(Purpose::Crash, 8) < self.swarm.crash_eighths {
            let bits = self.choices.below(Purpose::Crash, 8);
            let mutation = u64::from(self.choices.below(Purpose::Crash, 4 << bits));
            let place = *self.choices.pick(
                Purpose::Crash,
                &[Place::Before, Place::Inside, Place::After],
            );
            let panic = self.choices.chance(Purpose::Crash, 1, 8);
            if self.choices.chance(Purpose::Crash, 1, 4) {
                // What is rare among the calls is what order hangs on.
                let (call, file) = *self.choices.pick(Purpose::Crash, &RARE_CALLS);
                let after = u64::from(self.choices.below(Purpose::Crash, 1 << (bits / 2)));
                let aimed = AimedCrash {
                    call,
                    file,
                    after,
                    place,
                    panic,
                };
                self.plan_aimed_crash(&aimed);
                self.env.disk.crash_on(Some(aimed));
                return;
            }
            let point = CrashPoint {
                mutation,
                place,
                panic,
            };
            self.plan_crash_point(&point);
            self.env.disk.crash_at(Some(point));
        }
    }

    fn open_once(&mut self, calm: bool) -> Lived<Open<S>> {
        self.did(|| {
            let faults = if calm { "no" } else { "some" };
            format!("open, {faults} faults armed")
        });
        self.plan_line(|| "try open".into());
        let opened = S::open(&self.env.env(), &self.options);
        self.note_damage();
        let subject = match opened {
            Ok(subject) => subject,
            Err(stop) if self.env.disk.is_dead() => {
                self.did(|| format!("open: {}", stop.text));
                return Err(End::Dead);
            }
            Err(stop) if self.damaged => {
                self.did(|| format!("open: {}", stop.text));
                return if calm {
                    Err(End::Given)
                } else {
                    Err(End::Dead)
                };
            }
            Err(stop) if !calm && self.excused(&stop) => {
                // The process gives up and ends.
                self.did(|| format!("open: {}", stop.text));
                return Err(End::Dead);
            }
            Err(stop) => {
                let what = format!("open fails without reason: {:?} {}", stop.kind, stop.text);
                return Err(Violation::new("S6", what).into());
            }
        };
        let recovered = subject.recovered();
        self.did(|| format!("opened, recovered through {recovered}"));
        self.recover(recovered)?;
        self.mix(recovered);
        let mut open = Open {
            walks: Vec::new(),
            views: Vec::new(),
            tickets: VecDeque::new(),
            poisoned: false,
            was_poisoned: false,
            subject,
        };
        self.check_everything(&mut open, (calm && self.clean) || self.damaged)?;
        Ok(open)
    }

    /// Takes over what an open says it recovered.
    pub(super) fn recover(&mut self, recovered: u64) -> Result<(), Violation> {
        if self.damaged {
            self.check_loss(recovered)?;
            self.model.durable = 0;
        }
        self.rotten.clear();
        // Of a damaged store, what nobody wrote is the damage not seen.
        self.model.recover(recovered).map_err(|found| {
            let rule = self.read_rule(found.rule);
            Violation::new(rule, found.what)
        })
    }

    /// Damage may have taken durable commits, but not where it could be seen: a frame behind the damaged
    /// one says that it was durable, and what is in segments has no frames to lose.
    fn check_loss(&self, recovered: u64) -> Result<(), Violation> {
        if self.lost || !S::TELLS_DURABLE {
            return Ok(());
        }
        let least = match self.rotten[..] {
            [(FileKind::Log, true)] => self.model.told_durable(recovered),
            [(FileKind::Log, false)] | [_, _, ..] => return Ok(()),
            [] | [_] => self.model.durable,
        };
        if recovered < least {
            let what = format!("durable through {least}, recovered {recovered}, without an error");
            return Err(Violation::new("S18", what));
        }
        Ok(())
    }
}
