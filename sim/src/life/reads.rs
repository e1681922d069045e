//! Steps that read: every answer is compared with the model's state of that moment.

use super::{End, Lived, Open, Run, Walk};
use crate::choices::Purpose;
use crate::model::Violation;
use crate::plan::text::show_bytes;
use crate::subject::{Figures, Subject};

/// Snapshots and iterators held at once.
const HELD_MAX: usize = 6;
/// Keys read one by one after an open that is not the last.
const KEYS_LOOKED_AT: usize = 16;

/// What a snapshot or an iterator reads stays: that it is damaged or gone without a fault is S8.
pub(super) fn of_view<T>(answer: Lived<T>) -> Lived<T> {
    answer.map_err(|end| match end {
        End::Broken(violation) if violation.rule == "S6" => {
            End::Broken(Violation::new("S8", violation.what))
        }
        end => end,
    })
}

impl<S: Subject> Run<S> {
    pub(super) fn get(&mut self, open: &mut Open<S>) -> Lived<()> {
        let (keyspace, key) = self.key();
        self.plan_get("get", keyspace, &key, None);
        // Counting costs more than reading.
        let counted = self.steps.is_multiple_of(4);
        let before = counted.then(|| open.subject.figures());
        let answer = open.subject.get(keyspace, &key);
        if let Some(before) = before {
            let after = open.subject.figures();
            self.check_cost(&before, &after)?;
            self.check_filters(&before, &after)?;
        }
        if let Some(value) = self.settled(open, answer)? {
            let rule = self.read_rule("S7");
            let at = self.model.visible;
            self.model
                .check_get(rule, (keyspace, &key), at, value.as_deref())?;
        }
        Ok(())
    }

    /// After damage, wrong content is the damage not seen.
    pub(super) fn read_rule(&self, rule: &'static str) -> &'static str {
        if self.damaged { "S18" } else { rule }
    }

    pub(super) fn multi_get(&mut self, open: &mut Open<S>) -> Lived<()> {
        let count = 1 + self.choices.below(Purpose::Workload, 8);
        let keys: Vec<(usize, Vec<u8>)> = (0..count).map(|_| self.key()).collect();
        self.plan_line(|| {
            let words = keys.iter().map(|(keyspace, key)| {
                format!(" {} {}", S::plan_keyspace(*keyspace), show_bytes(key))
            });
            format!("try multi-get{}", words.collect::<String>())
        });
        let answer = open.subject.multi_get(&keys);
        if let Some(values) = self.settled(open, answer)? {
            let (rule, at) = (self.read_rule("S7"), self.model.visible);
            for ((keyspace, key), value) in keys.iter().zip(&values) {
                self.model
                    .check_get(rule, (*keyspace, key), at, value.as_deref())?;
            }
        }
        Ok(())
    }

    pub(super) fn scan(&mut self, open: &mut Open<S>) -> Lived<()> {
        let keyspace =
            self.choices
                .below(Purpose::Workload, self.model.keyspaces() as u32) as usize;
        let reverse = self.choices.chance(Purpose::Workload, 1, 2);
        self.plan_scan(keyspace, if reverse { " reverse" } else { "" });
        let answer = open.subject.scan(keyspace, reverse);
        if let Some(items) = self.settled(open, answer)? {
            let (rule, at) = (self.read_rule("S7"), self.model.visible);
            self.model
                .check_scan(rule, (keyspace, reverse), at, &items)?;
            self.hit("scan");
        }
        Ok(())
    }

    pub(super) fn snapshot(&mut self, open: &mut Open<S>) -> Lived<()> {
        if open.views.len() >= HELD_MAX {
            return Ok(());
        }
        let Some(answer) = open.subject.snapshot() else {
            return Ok(());
        };
        self.did(|| "snapshot".into());
        self.names += 1;
        let id = self.names;
        self.plan_line(|| format!("try snapshot s{id}"));
        if let Some(view) = self.settled(open, answer)? {
            let at = S::view_sequence(&view);
            if at != self.model.visible {
                let what = format!("snapshot at {at}, visible is {}", self.model.visible);
                return Err(Violation::new("S8", what).into());
            }
            open.views.push((view, at, id));
            self.hit("snapshot");
        }
        Ok(())
    }

    pub(super) fn view(&mut self, open: &mut Open<S>, whole: bool) -> Lived<()> {
        if open.views.is_empty() {
            return Ok(());
        }
        let index = self
            .choices
            .below(Purpose::Workload, open.views.len() as u32) as usize;
        let (keyspace, key) = self.key();
        if !whole {
            return self.get_in_view(open, index, (keyspace, &key));
        }
        let (view, at, id) = &open.views[index];
        let (at, id, rule) = (*at, *id, self.read_rule("S8"));
        self.plan_scan(keyspace, &format!(" in s{id}"));
        let answer = open.subject.view_scan(view, keyspace, false);
        if let Some(items) = of_view(self.settled(open, answer))? {
            self.model.check_scan(rule, (keyspace, false), at, &items)?;
        }
        Ok(())
    }

    /// Reads a key in a snapshot.
    pub(super) fn get_in_view(
        &mut self,
        open: &mut Open<S>,
        index: usize,
        (keyspace, key): (usize, &[u8]),
    ) -> Lived<()> {
        let (view, at, id) = &open.views[index];
        let (at, id, rule) = (*at, *id, self.read_rule("S8"));
        self.plan_get("get", keyspace, key, Some(id));
        let answer = open.subject.view_get(view, keyspace, key);
        if let Some(value) = of_view(self.settled(open, answer))? {
            self.model
                .check_get(rule, (keyspace, key), at, value.as_deref())?;
        }
        Ok(())
    }

    pub(super) fn cursor(&mut self, open: &mut Open<S>) -> Lived<()> {
        let keyspace =
            self.choices
                .below(Purpose::Workload, self.model.keyspaces() as u32) as usize;
        if open.walks.len() >= HELD_MAX {
            return Ok(());
        }
        let Some(answer) = open.subject.cursor(keyspace) else {
            return Ok(());
        };
        self.names += 1;
        let id = self.names;
        self.plan_line(|| format!("try iterator i{id} {}", S::plan_keyspace(keyspace)));
        if let Some(cursor) = self.settled(open, answer)? {
            let items = self.model.scan(keyspace, self.model.visible);
            let items = items
                .map(|(key, value)| (key.to_vec(), value.to_vec()))
                .collect();
            open.walks.push(Walk { cursor, id, items });
            self.hit("iterator");
        }
        Ok(())
    }

    pub(super) fn advance(&mut self, open: &mut Open<S>) -> Lived<()> {
        if open.walks.is_empty() {
            return Ok(());
        }
        let index = self
            .choices
            .below(Purpose::Workload, open.walks.len() as u32) as usize;
        let back = self.choices.chance(Purpose::Workload, 1, 3);
        let walk = &mut open.walks[index];
        let id = walk.id;
        self.plan_line(|| format!("try {} i{id}", if back { "back" } else { "next" }));
        let got = S::advance(&mut walk.cursor, back);
        let right = if back {
            walk.items.pop_back()
        } else {
            walk.items.pop_front()
        };
        let got = match got.transpose() {
            Ok(item) => item,
            Err(stop) => {
                open.walks.remove(index);
                return of_view(self.settled::<()>(open, Err(stop))).map(drop);
            }
        };
        if got != right {
            let show = |item: &Option<(Vec<u8>, Vec<u8>)>| {
                item.as_ref()
                    .map_or("the end".into(), |(key, _)| crate::model::show(key))
            };
            let what = format!(
                "iterator, back {back}: got {}, right is {}",
                show(&got),
                show(&right)
            );
            return Err(Violation::new(self.read_rule("S8"), what).into());
        }
        Ok(())
    }

    fn plan_get(&mut self, way: &str, keyspace: usize, key: &[u8], view: Option<u64>) {
        self.plan_line(|| {
            let view = view.map_or(String::new(), |id| format!(" in s{id}"));
            let keyspace = S::plan_keyspace(keyspace);
            format!("try {way} {keyspace} {}{view}", show_bytes(key))
        });
    }

    fn plan_scan(&mut self, keyspace: usize, range: &str) {
        self.plan_line(|| format!("try scan {}{range}", S::plan_keyspace(keyspace)));
    }

    /// A lookup reads a page and a record of each run it looks into; one page more where equal hash
    /// prefixes go on, and what the first touch of a file takes. A touch that a fault of this life cut short
    /// has opened the file already when its tail is read again: once for each fault.
    pub(super) fn check_cost(&mut self, before: &Figures, after: &Figures) -> Lived<()> {
        let reads = after.reads - before.reads;
        let candidates = after.candidates - before.candidates;
        let opens = after.opens - before.opens;
        // Counted since the store was opened, so those in older views are among them.
        if after.damaged_indexes > 0 && !self.damaged {
            let what = "a lookup found the index of a run damaged or gone, and nothing was damaged";
            return Err(Violation::new("S8", what).into());
        }
        if !after.wide_hash || self.damaged {
            return Ok(());
        }
        self.touched_again += reads.saturating_sub(3 * candidates + 3 * opens);
        if self.touched_again > self.struck_hard() - self.struck_hard_before {
            let what = format!("{reads} reads for {candidates} candidates and {opens} opens");
            return Err(Violation::new("S20", what).into());
        }
        Ok(())
    }

    /// Where all filters are there, few of their answers are wrong: with 12 bits a key about one in two
    /// hundred.
    fn check_filters(&mut self, before: &Figures, after: &Figures) -> Lived<()> {
        if !before.all_filters || !after.wide_hash || self.damaged {
            return Ok(());
        }
        let (tests, wrong) = &mut self.filtered;
        *tests += after.filter_tests - before.filter_tests;
        *wrong += after.false_candidates - before.false_candidates;
        if *wrong > 8 + *tests / 10 {
            let what = format!("filters were wrong {wrong} of {tests} times");
            return Err(Violation::new("S20", what).into());
        }
        Ok(())
    }

    pub(super) fn get_other(&mut self, open: &mut Open<S>) -> Lived<()> {
        let (keyspace, key) = self.key();
        let at = self.model.visible;
        let rule = self.read_rule("S7");
        match self.choices.below(Purpose::Workload, 3) {
            0 => {
                self.plan_get("get-into", keyspace, &key, None);
                let answer = open.subject.get_into(keyspace, &key);
                if let Some(value) = self.settled(open, answer)? {
                    let place = (keyspace, &key[..]);
                    self.model.check_get(rule, place, at, value.as_deref())?;
                }
                self.hit("get-into");
            }
            1 => {
                self.plan_get("contains", keyspace, &key, None);
                let answer = open.subject.contains(keyspace, &key);
                if let Some(found) = self.settled(open, answer)?
                    && found != self.model.get(keyspace, &key, at).is_some()
                {
                    let what = format!("contains says {found} of {}", crate::model::show(&key));
                    return Err(Violation::new(rule, what).into());
                }
                self.hit("contains");
            }
            _ => self.hold(open, keyspace, &key)?,
        }
        Ok(())
    }

    fn hold(&mut self, open: &mut Open<S>, keyspace: usize, key: &[u8]) -> Lived<()> {
        let Some(answer) = open.subject.hold(keyspace, key) else {
            return Ok(());
        };
        self.plan_get("get", keyspace, key, None);
        if let Some(Some(value)) = self.settled(open, answer)? {
            let (rule, at) = (self.read_rule("S7"), self.model.visible);
            let bytes = value.as_ref();
            self.model
                .check_get(rule, (keyspace, key), at, Some(bytes))?;
            let copy = bytes.to_vec();
            self.held.push_back((value, copy));
            if self.held.len() > HELD_MAX {
                self.held.pop_front();
            }
            self.hit("hold");
        }
        Ok(())
    }

    pub(super) fn range(&mut self, open: &mut Open<S>) -> Lived<()> {
        let (keyspace, mut from) = self.key();
        let (rule, at) = (self.read_rule("S7"), self.model.visible);
        if self.choices.chance(Purpose::Workload, 1, 3) {
            from.truncate(from.len().min(2));
            let prefix = from;
            self.plan_scan(keyspace, &format!(" prefix {}", show_bytes(&prefix)));
            let Some(answer) = open.subject.prefix(keyspace, &prefix) else {
                return Ok(());
            };
            if let Some(items) = self.settled(open, answer)? {
                let right = |key: &[u8]| key.starts_with(&prefix);
                self.model
                    .check_part(rule, (keyspace, false), at, &right, &items)?;
                self.hit("prefix");
            }
            return Ok(());
        }
        let (_, mut to) = self.key();
        if to < from {
            std::mem::swap(&mut from, &mut to);
        }
        let reverse = self.choices.chance(Purpose::Workload, 1, 2);
        let words = if reverse { " reverse" } else { "" };
        let (low, high) = (show_bytes(&from), show_bytes(&to));
        self.plan_scan(keyspace, &format!(" from {low} to {high}{words}"));
        let Some(answer) = open.subject.range(keyspace, (&from, &to), reverse) else {
            return Ok(());
        };
        if let Some(items) = self.settled(open, answer)? {
            let right = |key: &[u8]| *key >= from[..] && *key < to[..];
            self.model
                .check_part(rule, (keyspace, reverse), at, &right, &items)?;
            self.hit("range");
        }
        Ok(())
    }

    /// Segments that were installed since the last step hold what the generation held.
    pub(super) fn check_installed(&mut self, open: &mut Open<S>) -> Lived<()> {
        self.hit("install");
        let (rule, at) = (self.read_rule("S11"), self.model.visible);
        // The keyspaces take turns.
        let keyspace = self.newest as usize % self.model.keyspaces();
        self.plan_scan(keyspace, "");
        let answer = open.subject.scan(keyspace, false);
        if let Some(items) = self.settled(open, answer)? {
            self.model.check_scan(rule, (keyspace, false), at, &items)?;
        }
        for index in 0..open.views.len() {
            self.check_view_of_later(open, index)?;
        }
        Ok(())
    }

    /// A snapshot does not see what was written since, now that it may lie in a segment.
    fn check_view_of_later(&mut self, open: &mut Open<S>, index: usize) -> Lived<()> {
        let (_, at, _) = open.views[index];
        let later: Vec<_> = self.model.changed_since(at).take(KEYS_LOOKED_AT).collect();
        for (keyspace, key) in later {
            self.get_in_view(open, index, (keyspace, &key))?;
        }
        Ok(())
    }

    /// Everything is read and compared, as far as no fault is in the way; of the keys some, if not all
    /// are asked for.
    pub(super) fn check_everything(&mut self, open: &mut Open<S>, all: bool) -> Lived<()> {
        let at = self.model.visible;
        for keyspace in 0..self.model.keyspaces() {
            let turn = !all && self.steps % 2 == 1;
            let ways: &[bool] = if all { &[false, true] } else { &[turn] };
            for reverse in ways.iter().copied() {
                self.plan_scan(keyspace, if reverse { " reverse" } else { "" });
                let answer = open.subject.scan(keyspace, reverse);
                if let Some(items) = self.settled(open, answer)? {
                    let rule = self.read_rule("S7");
                    self.model
                        .check_scan(rule, (keyspace, reverse), at, &items)?;
                }
            }
        }
        let count = self.model.known_keys().count();
        let stride = if all {
            1
        } else {
            count.div_ceil(KEYS_LOOKED_AT).max(1)
        };
        let keys: Vec<(usize, Vec<u8>)> = self
            .model
            .known_keys()
            .skip(self.steps as usize % stride)
            .step_by(stride)
            .map(|(keyspace, key)| (keyspace, key.to_vec()))
            .collect();
        for (keyspace, key) in keys {
            self.plan_get("get", keyspace, &key, None);
            let answer = open.subject.get(keyspace, &key);
            if let Some(value) = self.settled(open, answer)? {
                let rule = self.read_rule("S7");
                self.model
                    .check_get(rule, (keyspace, &key), at, value.as_deref())?;
            }
        }
        Ok(())
    }
}
