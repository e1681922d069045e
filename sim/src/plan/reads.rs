//! Steps that read, and the readers that a plan holds by name.

use std::collections::VecDeque;
use std::ops::{Bound, RangeBounds};

use sealstone::{Error, Iter};

use super::Wrong;
use super::machine::{Called, Machine};
use super::text::{self, show_bytes};
use crate::model::Violation;
use crate::subject::Item;

/// Which part of a keyspace, seen from where, in which direction.
#[derive(Default)]
pub struct Range {
    pub snapshot: Option<String>,
    pub prefix: Option<Vec<u8>>,
    pub from: Option<Bound<Vec<u8>>>,
    pub to: Option<Bound<Vec<u8>>>,
    pub reverse: bool,
}

impl Range {
    fn holds(&self, key: &[u8]) -> bool {
        let bound = |bound: &Option<Bound<Vec<u8>>>| bound.clone().unwrap_or(Bound::Unbounded);
        let bounds = (bound(&self.from), bound(&self.to));
        let prefix = self.prefix.as_deref();
        // A prefix stands for the whole range, as in the call.
        prefix.map_or_else(|| bounds.contains(&key.to_vec()), |p| key.starts_with(p))
    }

    /// Reads the words up to one that does not belong to a range; returns the rest.
    pub fn read<'w, 'a>(mut words: &'w [&'a str]) -> Result<(Self, &'w [&'a str]), Wrong> {
        let mut range = Self::default();
        loop {
            words = match words {
                ["in", name, rest @ ..] => {
                    range.snapshot = Some((*name).to_string());
                    rest
                }
                ["prefix", key, rest @ ..] => {
                    range.prefix = Some(text::bytes(key)?);
                    rest
                }
                ["from", key, rest @ ..] => {
                    range.from = Some(Bound::Included(text::bytes(key)?));
                    rest
                }
                ["after", key, rest @ ..] => {
                    range.from = Some(Bound::Excluded(text::bytes(key)?));
                    rest
                }
                ["to", key, rest @ ..] => {
                    range.to = Some(Bound::Excluded(text::bytes(key)?));
                    rest
                }
                ["through", key, rest @ ..] => {
                    range.to = Some(Bound::Included(text::bytes(key)?));
                    rest
                }
                ["reverse", rest @ ..] => {
                    range.reverse = true;
                    rest
                }
                rest => return Ok((range, rest)),
            };
        }
    }
}

impl Machine {
    pub fn read_step(
        &mut self,
        first: &str,
        rest: &[&str],
    ) -> Result<Option<Result<(), Error>>, Wrong> {
        let called = match (first, rest) {
            ("get", [keyspace, key]) => self.checked_get(keyspace, key, None)?,
            ("get", [keyspace, key, "in", name]) => self.checked_get(keyspace, key, Some(name))?,
            ("get-into", [keyspace, key]) => self.get_into(keyspace, key)?,
            ("contains", [keyspace, key]) => self.contains(keyspace, key)?,
            ("multi-get", places) => self.multi_get(places)?,
            ("scan", [keyspace, range @ ..]) => {
                let (range, rest) = Range::read(range)?;
                nothing_left(rest)?;
                self.checked_scan(keyspace, &range)?
            }
            ("snapshot", [name]) => self.snapshot(name)?,
            ("drop-snapshot", [name]) => {
                let dropped = self.snapshots.remove(*name);
                dropped.ok_or_else(|| format!("no snapshot {name}"))?;
                Ok(())
            }
            ("iterator", [name, keyspace, range @ ..]) => {
                let (range, rest) = Range::read(range)?;
                nothing_left(rest)?;
                let items = self.right_items(keyspace, &range)?;
                self.iterate(keyspace, &range)?.map(|iterator| {
                    self.iterators
                        .insert((*name).to_string(), (iterator, items));
                })
            }
            ("drop-iterator", [name]) => {
                let dropped = self.iterators.remove(*name);
                dropped.ok_or_else(|| format!("no iterator {name}"))?;
                Ok(())
            }
            ("next" | "back", [name, right @ ..]) => self.advance(name, first == "back", right)?,
            ("hold", [name, keyspace, key]) => match self.get(keyspace, key, None)? {
                Ok(Some(value)) => {
                    let copy = value.to_vec();
                    self.held.insert((*name).to_string(), (value, copy));
                    Ok(())
                }
                Ok(None) => return Err("there is no value to hold".into()),
                Err(error) => Err(error),
            },
            _ => return Ok(None),
        };
        Ok(Some(called))
    }

    pub fn get(
        &self,
        keyspace: &str,
        key: &str,
        snapshot: Option<&str>,
    ) -> Result<Result<Option<sealstone::Value>, Error>, Wrong> {
        let (keyspace, key) = (self.keyspace(keyspace)?, text::bytes(key)?);
        Ok(match snapshot {
            None => keyspace.get(&key),
            Some(name) => {
                let snapshot = self.snapshots.get(name);
                let snapshot = snapshot.ok_or_else(|| format!("no snapshot {name}"))?;
                snapshot.get(keyspace, &key)
            }
        })
    }

    /// The sequence that a read sees, and the rule that it breaks if it is wrong.
    fn seen(&self, snapshot: Option<&str>) -> (u64, &'static str) {
        let snapshot = snapshot.and_then(|name| self.snapshots.get(name));
        match snapshot {
            _ if self.damaged => (snapshot.map_or(self.model.visible, |s| s.sequence()), "S18"),
            Some(snapshot) => (snapshot.sequence(), "S8"),
            None => (self.model.visible, "S7"),
        }
    }

    fn checked_get(&self, keyspace: &str, key: &str, snapshot: Option<&str>) -> Called {
        let value = match self.get(keyspace, key, snapshot)? {
            Ok(value) => value,
            Err(error) => return Ok(Err(error)),
        };
        let (at, rule) = self.seen(snapshot);
        let place = (self.keyspace_index(keyspace)?, &text::bytes(key)?[..]);
        self.model.check_get(rule, place, at, value.as_deref())?;
        Ok(Ok(()))
    }

    fn get_into(&self, keyspace: &str, key: &str) -> Called {
        let key = text::bytes(key)?;
        let mut value = b"left over".to_vec();
        let found = match self.keyspace(keyspace)?.get_into(&key, &mut value) {
            Ok(found) => found.then_some(&value[..]),
            Err(error) => return Ok(Err(error)),
        };
        let (at, rule) = self.seen(None);
        let place = (self.keyspace_index(keyspace)?, &key[..]);
        self.model.check_get(rule, place, at, found)?;
        Ok(Ok(()))
    }

    fn contains(&self, keyspace: &str, key: &str) -> Called {
        let key = text::bytes(key)?;
        let found = match self.keyspace(keyspace)?.contains(&key) {
            Ok(found) => found,
            Err(error) => return Ok(Err(error)),
        };
        let (at, rule) = self.seen(None);
        let index = self.keyspace_index(keyspace)?;
        match self.model.get(index, &key, at).is_some() == found {
            true => Ok(Ok(())),
            false => Err(Violation::new(rule, format!("contains says {found}")).into()),
        }
    }

    fn multi_get(&self, places: &[&str]) -> Called {
        let (pairs, rest) = places.as_chunks::<2>();
        nothing_left(rest)?;
        let mut keys = Vec::new();
        for [keyspace, key] in pairs {
            keys.push((*keyspace, text::bytes(key)?));
        }
        let mut asked = Vec::new();
        for (keyspace, key) in &keys {
            asked.push((self.keyspace(keyspace)?, &key[..]));
        }
        let values = match self.opened()?.store.multi_get(&asked) {
            Ok(values) => values,
            Err(error) => return Ok(Err(error)),
        };
        let (at, rule) = self.seen(None);
        for ((keyspace, key), value) in keys.iter().zip(values) {
            let place = (self.keyspace_index(keyspace)?, &key[..]);
            self.model.check_get(rule, place, at, value.as_deref())?;
        }
        Ok(Ok(()))
    }

    fn checked_scan(&self, keyspace: &str, range: &Range) -> Called {
        let items = match self.scan(keyspace, range)? {
            Ok(items) => items,
            Err(error) => return Ok(Err(error)),
        };
        let (at, rule) = self.seen(range.snapshot.as_deref());
        let index = (self.keyspace_index(keyspace)?, range.reverse);
        let part = |key: &[u8]| range.holds(key);
        self.model.check_part(rule, index, at, &part, &items)?;
        Ok(Ok(()))
    }

    /// What an iterator over this must yield, from the front.
    fn right_items(&self, keyspace: &str, range: &Range) -> Result<VecDeque<Item>, Wrong> {
        let (at, _) = self.seen(range.snapshot.as_deref());
        let items = self.model.scan(self.keyspace_index(keyspace)?, at);
        Ok(items
            .filter(|(key, _)| range.holds(key))
            .map(|(key, value)| (key.to_vec(), value.to_vec()))
            .collect())
    }

    fn snapshot(&mut self, name: &str) -> Called {
        match self.opened()?.store.snapshot() {
            Ok(snapshot) if snapshot.sequence() != self.model.visible && !self.damaged => {
                let (at, right) = (snapshot.sequence(), self.model.visible);
                let what = format!("a snapshot at {at}, visible is {right}");
                Err(Violation::new("S8", what).into())
            }
            Ok(snapshot) => {
                self.snapshots.insert(name.to_string(), snapshot);
                Ok(Ok(()))
            }
            Err(error) => Ok(Err(error)),
        }
    }

    fn iterate(&self, keyspace: &str, range: &Range) -> Result<Result<Iter, Error>, Wrong> {
        let keyspace = self.keyspace(keyspace)?;
        let bounds = (
            range.from.clone().unwrap_or(Bound::Unbounded),
            range.to.clone().unwrap_or(Bound::Unbounded),
        );
        let snapshot = match &range.snapshot {
            None => None,
            Some(name) => {
                let snapshot = self.snapshots.get(name);
                Some(snapshot.ok_or_else(|| format!("no snapshot {name}"))?)
            }
        };
        Ok(match (snapshot, &range.prefix) {
            (None, None) => keyspace.range(bounds),
            (None, Some(prefix)) => keyspace.prefix(prefix),
            (Some(snapshot), None) => snapshot.range(keyspace, bounds),
            (Some(snapshot), Some(prefix)) => snapshot.prefix(keyspace, prefix),
        })
    }

    /// All items of a range.
    #[allow(
        clippy::type_complexity,
        reason = "a plan's own error around the engine's"
    )]
    pub fn scan(
        &self,
        keyspace: &str,
        range: &Range,
    ) -> Result<Result<Vec<(Vec<u8>, Vec<u8>)>, Error>, Wrong> {
        let iterator = match self.iterate(keyspace, range)? {
            Ok(iterator) => iterator,
            Err(error) => return Ok(Err(error)),
        };
        Ok(match range.reverse {
            true => iterator.rev().collect(),
            false => iterator.collect(),
        })
    }

    fn advance(&mut self, name: &str, back: bool, right: &[&str]) -> Called {
        let iterator = self.iterators.get_mut(name);
        let (iterator, items) = iterator.ok_or_else(|| format!("no iterator {name}"))?;
        let item = if back {
            iterator.next_back()
        } else {
            iterator.next()
        };
        let got = match item.transpose() {
            Ok(item) => item,
            Err(error) => return Ok(Err(error)),
        };
        let known = if back {
            items.pop_back()
        } else {
            items.pop_front()
        };
        if got != known {
            let rule = if self.damaged { "S18" } else { "S8" };
            let key = |item: &Option<Item>| {
                let key = item.as_ref().map(|(key, _)| show_bytes(key));
                key.unwrap_or("the end".into())
            };
            let what = format!("got {}, right is {}", key(&got), key(&known));
            return Err(Violation::new(rule, what).into());
        }
        let right = match right {
            [] => return Ok(Ok(())),
            ["end"] => None,
            [key, value] => Some((text::bytes(key)?, text::bytes(value)?)),
            _ => return Err("next NAME, next NAME KEY VALUE, or next NAME end".into()),
        };
        self.report.expects += 1;
        if got == right {
            return Ok(Ok(()));
        }
        let show = |item: Option<(Vec<u8>, Vec<u8>)>| {
            item.map_or("the end".into(), |(key, value)| {
                format!("{} = {}", show_bytes(&key), show_bytes(&value))
            })
        };
        Err(format!("got {}, right is {}", show(got), show(right)).into())
    }
}

pub fn nothing_left(rest: &[&str]) -> Result<(), Wrong> {
    match rest {
        [] => Ok(()),
        [word, ..] => Err(format!("what is {word}?").into()),
    }
}
