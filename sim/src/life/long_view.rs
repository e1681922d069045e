//! A scene at the end of a run: a snapshot outlives the runs that it reads.
//!
//! ```text
//! rounds of (writes, seal, settle) until a run is a folded one -> snapshot
//!   -> rounds until a part that the snapshot reads is replaced -> what all but the snapshot forgot is gone
//!   -> lookups in the snapshot, of keys of all ages
//! ```
//! By chance hardly any part has a reader left when it is replaced: that takes a fold of what was folded, twice
//! as much work for jobs than most lives do, and somebody who looks afterwards. A part that went under its
//! reader is not missed in the answers, because segments answer by the indexes of their own; what tells is that a
//! lookup found an index gone (S8, see `check_cost`).
//!
//! It comes last, so that no stream of choices moves for what comes before it.

use std::collections::BTreeSet;

use super::swarm::Kind;
use super::{Lived, Open, Run};
use crate::choices::Purpose;
use crate::subject::Subject;

/// One run in so many has a long view at its end.
const LONG_VIEWS: u32 = 8;

/// Rounds until a run was folded, and again until that one was: enough where three make one.
const ROUNDS_MAX: u32 = 16;

/// Writes of a round, of which some change nothing.
const ROUND_WRITES: u32 = 2;

/// Keys looked up at the end.
const KEYS_LOOKED_AT: usize = 48;

impl<S: Subject> Run<S> {
    /// Holds a snapshot over folds, if that is drawn.
    pub(super) fn long_view(&mut self, open: &mut Open<S>) -> Lived<()> {
        if open.poisoned || !self.choices.chance(Purpose::Scene, 1, LONG_VIEWS) {
            return Ok(());
        }
        self.hit("scene-long-view");
        if !self.fold_until(open, |parts| !parts.is_empty())? {
            return Ok(());
        }
        let held = open.subject.folded_parts();
        self.snapshot(open)?;
        let replaced = self.fold_until(open, |parts| !held.is_subset(parts))?;
        if replaced && !open.views.is_empty() {
            self.hit("scene-long-view-replaced");
            self.look_far_back(open)?;
        }
        if let Some((_, _, id)) = open.views.pop() {
            self.plan_line(|| format!("drop-snapshot s{id}"));
        }
        self.drain(open)
    }

    /// Writes and folds until the parts of folded runs are as wanted; whether they are.
    fn fold_until(
        &mut self,
        open: &mut Open<S>,
        wanted: impl Fn(&BTreeSet<u64>) -> bool,
    ) -> Lived<bool> {
        for _ in 0..ROUNDS_MAX {
            if wanted(&open.subject.folded_parts()) {
                return Ok(true);
            }
            for _ in 0..ROUND_WRITES {
                self.step_of(Kind::Write, open)?;
            }
            self.step_of(Kind::Seal, open)?;
            self.drain(open)?;
        }
        Ok(wanted(&open.subject.folded_parts()))
    }

    /// Looks up keys in the one snapshot there is; each lookup has its price.
    fn look_far_back(&mut self, open: &mut Open<S>) -> Lived<()> {
        let count = self.model.known_keys().count();
        let keys: Vec<(usize, Vec<u8>)> = self
            .model
            .known_keys()
            .step_by(count.div_ceil(KEYS_LOOKED_AT).max(1))
            .map(|(keyspace, key)| (keyspace, key.to_vec()))
            .collect();
        for (keyspace, key) in keys {
            let before = open.subject.figures();
            self.get_in_view(open, 0, (keyspace, &key))?;
            let after = open.subject.figures();
            self.check_cost(&before, &after)?;
        }
        Ok(())
    }
}
