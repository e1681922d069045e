//! What errors have a reason, and what a store must survive.

use super::Run;
use crate::faults::{Call, Fault};
use crate::subject::{Stop, StopKind, Subject};

impl<S: Subject> Run<S> {
    /// Faults so far that no loop can hide.
    pub(super) fn struck(&self) -> u64 {
        self.env.disk.faults(|plan| {
            let open = plan
                .hits()
                .iter()
                .filter(|((fault, _), _)| !fault.is_masked());
            open.map(|(_, count)| count).sum()
        })
    }

    /// Of these, all but a lack of room that comes before any effect: after that one a store goes on.
    pub(super) fn struck_hard(&self) -> u64 {
        let gentle: u64 = self.env.disk.faults(|plan| {
            let calls = [Call::Allocate, Call::CreateNew];
            let counts = calls.map(|call| plan.hits().get(&(Fault::NoSpace, call)).copied());
            counts.into_iter().flatten().sum()
        });
        self.struck() - gentle
    }

    /// Whether nothing that happened in this life is a reason to take no more writes.
    pub(super) fn must_go_on(&mut self) -> bool {
        self.note_damage();
        let short = self.swarm.capacity_bytes.is_some() || self.swarm.descriptors.is_some();
        !self.damaged && !short && self.struck_hard() == self.struck_hard_before
    }

    pub(super) fn note_damage(&mut self) {
        self.lost |= self.env.disk.faults(|plan| {
            plan.hits()
                .keys()
                .any(|(fault, _): &(Fault, _)| fault.damages())
        });
        self.damaged |= self.lost;
    }

    /// Whether an error has a reason: a fault struck in this life, or something is short.
    pub(super) fn excused(&mut self, stop: &Stop) -> bool {
        self.note_damage();
        let short = self.swarm.capacity_bytes.is_some() || self.swarm.descriptors.is_some();
        stop.kind == StopKind::Refused
            || self.damaged
            || (short && !self.clean)
            || self.struck() > self.struck_before
    }
}
