//! Steps that read: every answer is compared with the model's state of that moment.

use super::{Lived, Open, Run, Walk};
use crate::choices::Purpose;
use crate::model::Violation;
use crate::subject::Subject;

/// Snapshots and iterators held at once.
const HELD_MAX: usize = 6;

impl<S: Subject> Run<S> {
    pub(super) fn get(&mut self, open: &mut Open<S>) -> Lived<()> {
        let (keyspace, key) = self.key();
        let answer = open.subject.get(keyspace, &key);
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
        self.did("snapshot".into());
        if let Some(view) = self.settled(open, answer)? {
            let at = S::view_sequence(&view);
            if at != self.model.visible {
                let what = format!("snapshot at {at}, visible is {}", self.model.visible);
                return Err(Violation::new("S8", what).into());
            }
            open.views.push((view, at));
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
        let (view, at) = &open.views[index];
        let (at, rule) = (*at, self.read_rule("S8"));
        if whole {
            let answer = open.subject.view_scan(view, keyspace, false);
            if let Some(items) = self.settled(open, answer)? {
                self.model.check_scan(rule, (keyspace, false), at, &items)?;
            }
        } else {
            let answer = open.subject.view_get(view, keyspace, &key);
            if let Some(value) = self.settled(open, answer)? {
                self.model
                    .check_get(rule, (keyspace, &key), at, value.as_deref())?;
            }
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
        if let Some(cursor) = self.settled(open, answer)? {
            let items = self.model.scan(keyspace, self.model.visible);
            let items = items
                .map(|(key, value)| (key.to_vec(), value.to_vec()))
                .collect();
            open.walks.push(Walk { cursor, items });
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
                return self.settled::<()>(open, Err(stop)).map(drop);
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

    /// Everything is read and compared, as far as no fault is in the way.
    pub(super) fn check_everything(&mut self, open: &mut Open<S>) -> Lived<()> {
        let at = self.model.visible;
        for keyspace in 0..self.model.keyspaces() {
            for reverse in [false, true] {
                let answer = open.subject.scan(keyspace, reverse);
                if let Some(items) = self.settled(open, answer)? {
                    let rule = self.read_rule("S7");
                    self.model
                        .check_scan(rule, (keyspace, reverse), at, &items)?;
                }
            }
        }
        let keys: Vec<(usize, Vec<u8>)> = self
            .model
            .known_keys()
            .map(|(keyspace, key)| (keyspace, key.to_vec()))
            .collect();
        for (keyspace, key) in keys {
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
