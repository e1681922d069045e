//! Steps that read, and the readers that a plan holds by name.

use std::ops::Bound;

use sealstone::{Error, Iter};

use super::Wrong;
use super::machine::{Called, Machine};
use super::text::{self, show_bytes};
use crate::model::Violation;

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
            ("get", [keyspace, key]) => self.get(keyspace, key, None)?.map(drop),
            ("get", [keyspace, key, "in", name]) => self.get(keyspace, key, Some(name))?.map(drop),
            ("scan", [keyspace, range @ ..]) => {
                let (range, rest) = Range::read(range)?;
                nothing_left(rest)?;
                self.scan(keyspace, &range)?.map(drop)
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
                self.iterate(keyspace, &range)?.map(|iterator| {
                    self.iterators.insert((*name).to_string(), iterator);
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
        let iterator = iterator.ok_or_else(|| format!("no iterator {name}"))?;
        let item = if back {
            iterator.next_back()
        } else {
            iterator.next()
        };
        let got = match item.transpose() {
            Ok(item) => item,
            Err(error) => return Ok(Err(error)),
        };
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
