//! Events of memory: what happens to it from outside, between any two steps or within one.
//!
//! ```text
//! purge      the limit falls to the floor until nothing is kept for reuse beyond it, and comes back
//! flapping   the level is another one at each look
//! filters    the budget of filters falls to nothing, and comes back
//! spike      one look of those to come, which may be in the middle of a step, finds the level critical: what
//!            asks for memory after it meets the floor, until the level has been gone for its time
//! ```
//! All draws come from a stream of their own ([`Purpose::Event`]), of which zero is no event. Where pressure has
//! to stay normal, the same looks are taken without it, so that jobs come to the same point.

use sealstone::env::PressureLevel;

use super::{Lived, Open, Run};
use crate::choices::Purpose;
use crate::model::Violation;
use crate::subject::Subject;

/// Of so many steps, four have an event before them.
const STEPS_PER_EVENT: u32 = 160;

/// Looks of a purge: each lets some buffers go, and the regions of runs are small.
const PURGE_LOOKS: u32 = 32;

/// Looks at a level that flaps.
const FLAPPING_LOOKS: u32 = 6;

/// A spike comes within so many looks.
const SPIKE_LOOKS_MAX: u32 = 12;

impl<S: Subject> Run<S> {
    /// What happens to memory now, if anything does.
    pub(super) fn event(&mut self, open: &mut Open<S>) -> Lived<()> {
        let event = self.choices.below(Purpose::Event, STEPS_PER_EVENT);
        if open.poisoned {
            return Ok(());
        }
        match event {
            156 => self.purge(open),
            157 => self.flapping(open),
            158 => self.filters_away(open),
            159 => self.spike(),
            _ => Ok(()),
        }
    }

    fn purge(&mut self, open: &mut Open<S>) -> Lived<()> {
        self.hit("event-purge");
        self.set_pressure(open, Some(PressureLevel::Critical));
        for _ in 0..PURGE_LOOKS {
            self.look(open)?;
        }
        if let (false, Err((rule, what))) = (open.poisoned, open.subject.check_trimmed()) {
            return Err(Violation::new(rule, what).into());
        }
        self.set_pressure(open, None);
        Ok(())
    }

    fn flapping(&mut self, open: &mut Open<S>) -> Lived<()> {
        let levels = [
            PressureLevel::Normal,
            PressureLevel::High,
            PressureLevel::Critical,
        ];
        self.hit("event-flapping");
        let before = self.env.pressure.get();
        for _ in 0..FLAPPING_LOOKS {
            let level = *self.choices.pick(Purpose::Event, &levels);
            self.turn_pressure(level);
            self.look(open)?;
        }
        self.turn_pressure(before);
        Ok(())
    }

    fn filters_away(&mut self, open: &mut Open<S>) -> Lived<()> {
        let back = *self.choices.pick(Purpose::Event, &[1 << 20, 4096]);
        self.hit("event-filters");
        for bytes in [0, back] {
            self.did(|| format!("filter budget {bytes}"));
            self.plan_line(|| format!("try filter-budget {bytes}"));
            if let Some(answer) = open.subject.set_filter_budget(bytes) {
                self.settled(open, answer)?;
            }
        }
        Ok(())
    }

    fn spike(&mut self) -> Lived<()> {
        let look = 1 + self.choices.below(Purpose::Event, SPIKE_LOOKS_MAX);
        self.hit("event-spike");
        if !self.still {
            self.did(|| format!("spike at look {look}"));
            self.plan_line(|| format!("spike {look}"));
            self.env.pressure.spike(look);
        }
        Ok(())
    }

    fn look(&mut self, open: &mut Open<S>) -> Lived<()> {
        self.plan_line(|| "try look".into());
        let answer = open.subject.look_at_pressure();
        self.settled(open, answer).map(drop)
    }

    /// What the user says, in place of the machine.
    fn set_pressure(&mut self, open: &Open<S>, level: Option<PressureLevel>) {
        if self.still {
            return;
        }
        let name = || level.map_or("none".into(), |level| format!("{level:?}").to_lowercase());
        self.did(|| format!("set pressure {}", name()));
        self.plan_line(|| format!("set-pressure {}", name()));
        open.subject.set_pressure(level);
    }

    /// What the machine says.
    pub(super) fn turn_pressure(&mut self, level: PressureLevel) {
        self.did(|| format!("pressure {level:?}"));
        self.plan_line(|| format!("pressure {level:?}").to_lowercase());
        if !self.still {
            self.env.pressure.set(level);
        }
    }
}
