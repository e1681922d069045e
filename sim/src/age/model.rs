//! What an ageing store should hold, in two bytes a key: 200 MB for 100 million.
//!
//! State of a key: 0 = never written; else the number of its last version, with a bit on top if that
//! was deleted. Keys and values follow from the id (see `keys`), so nothing else is kept.
//!
//! Two short lists beside it: the changes whose commits are not known to be durable, so that a crash can
//! be followed back to any sequence; and, while a view is held, what its keys were before they changed.
//!
//! All of it is allocated apart: it is not the engine's memory.

use std::collections::{BTreeMap, VecDeque};

use super::keys::{GROUPS, KEY_BYTES, NAMES, Values};
use crate::heap::apart;

/// The bit of a state that says that the key is deleted.
const DELETED: u16 = 1 << 15;

/// The last version that a state can tell.
pub const VERSION_MAX: u16 = DELETED - 1;

/// The state of a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct State(u16);

impl State {
    /// The version that a reader finds.
    pub const fn live(self) -> Option<u16> {
        if self.0 == 0 || self.0 & DELETED != 0 {
            None
        } else {
            Some(self.0)
        }
    }

    /// Whether it was written and deleted.
    pub const fn is_deleted(self) -> bool {
        self.0 & DELETED != 0
    }

    /// The next version.
    pub const fn written(self) -> Self {
        Self((self.0 & VERSION_MAX) + 1)
    }

    /// The same version, deleted.
    pub const fn deleted(self) -> Self {
        Self(self.0 | DELETED)
    }

    /// Whether another version can be told.
    pub const fn has_next(self) -> bool {
        self.0 & VERSION_MAX < VERSION_MAX
    }
}

#[derive(Debug)]
struct Change {
    sequence: u64,
    keyspace: usize,
    id: u64,
    before: State,
}

#[derive(Debug)]
struct Held {
    counts: [u64; 2],
    before: BTreeMap<(usize, u64), State>,
}

/// See the module.
#[derive(Debug)]
pub struct Model {
    values: Values,
    states: [Vec<State>; 2],
    live_keys: [u64; 2],
    live_bytes: u64,
    changes: VecDeque<Change>,
    held: Option<Held>,
}

impl Model {
    /// Nothing written; room for that many keys, so that growing never copies.
    pub fn new(values: Values, keys_max: u64) -> Self {
        let room = || apart(|| Vec::with_capacity((keys_max / 2 + keys_max / 32) as usize));
        Self {
            values,
            states: [room(), room()],
            live_keys: [0; 2],
            live_bytes: 0,
            changes: VecDeque::new(),
            held: None,
        }
    }

    /// Ids given out in a keyspace.
    pub fn ids(&self, keyspace: usize) -> u64 {
        self.states[keyspace].len() as u64
    }

    /// Keys that have a value.
    pub fn live_keys(&self, keyspace: usize) -> u64 {
        self.live_keys[keyspace]
    }

    /// Their bytes, keys and values.
    pub fn live_bytes(&self) -> u64 {
        self.live_bytes
    }

    /// The state of an id.
    pub fn state(&self, keyspace: usize, id: u64) -> State {
        let states = &self.states[keyspace];
        states.get(id as usize).copied().unwrap_or_default()
    }

    /// A new id, never written.
    pub fn new_id(&mut self, keyspace: usize) -> u64 {
        let states = &mut self.states[keyspace];
        apart(|| states.push(State::default()));
        states.len() as u64 - 1
    }

    /// A commit with that sequence brings a key into a state.
    pub fn set(&mut self, keyspace: usize, id: u64, state: State, sequence: u64) {
        let before = self.replace(keyspace, id, state);
        apart(|| {
            self.changes.push_back(Change {
                sequence,
                keyspace,
                id,
                before,
            });
            if let Some(held) = &mut self.held
                && id < held.counts[keyspace]
            {
                held.before.entry((keyspace, id)).or_insert(before);
            }
        });
    }

    fn replace(&mut self, keyspace: usize, id: u64, state: State) -> State {
        let before = std::mem::replace(&mut self.states[keyspace][id as usize], state);
        let bytes = |state: State| {
            let version = state.live()?;
            Some((KEY_BYTES + self.values.length(keyspace, id, version)) as u64)
        };
        if let Some(bytes) = bytes(before) {
            self.live_keys[keyspace] -= 1;
            self.live_bytes -= bytes;
        }
        if let Some(bytes) = bytes(state) {
            self.live_keys[keyspace] += 1;
            self.live_bytes += bytes;
        }
        before
    }

    /// Everything through `durable` will survive.
    pub fn settle(&mut self, durable: u64) {
        apart(|| {
            while self
                .changes
                .front()
                .is_some_and(|change| change.sequence <= durable)
            {
                self.changes.pop_front();
            }
        });
    }

    /// Takes back what came after `recovered`; returns how many changes that were.
    pub fn go_back(&mut self, recovered: u64) -> u64 {
        let mut undone = 0;
        while let Some(change) = self.changes.pop_back() {
            if change.sequence <= recovered {
                self.changes.push_back(change);
                break;
            }
            self.replace(change.keyspace, change.id, change.before);
            undone += 1;
        }
        undone
    }

    /// Keeps the states of now until [`release`](Self::release).
    pub fn hold(&mut self) {
        apart(|| {
            self.held = Some(Held {
                counts: [self.ids(0), self.ids(1)],
                before: BTreeMap::new(),
            });
        });
    }

    /// Ends it.
    pub fn release(&mut self) {
        apart(|| self.held = None);
    }

    /// The state of an id when the view was taken.
    pub fn held_state(&self, keyspace: usize, id: u64) -> State {
        match &self.held {
            Some(held) if id >= held.counts[keyspace] => State::default(),
            Some(held) => match held.before.get(&(keyspace, id)) {
                Some(before) => *before,
                None => self.state(keyspace, id),
            },
            None => self.state(keyspace, id),
        }
    }

    /// The first name in key order, at or after a place, that had a value when the view was taken; now,
    /// if none is held. A place is a group and an id of that group.
    pub fn next_name(&self, (group, id): (u64, u64)) -> Option<(u64, u16)> {
        let ids = self.ids(NAMES);
        let (mut group, mut id) = (group, id);
        while group < GROUPS {
            while id < ids {
                if let Some(version) = self.held_state(NAMES, id).live() {
                    return Some((id, version));
                }
                id += GROUPS;
            }
            group += 1;
            id = group;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn live(model: &Model, id: u64) -> Option<u16> {
        model.state(NAMES, id).live()
    }

    #[test]
    fn it_goes_back_to_any_sequence_that_is_not_settled() {
        let mut model = Model::new(Values::new(3), 100);
        for sequence in 1..=10 {
            let id = model.new_id(NAMES);
            model.set(NAMES, id, State::default().written(), sequence);
            model.set(NAMES, 0, model.state(NAMES, 0).written(), sequence);
        }
        model.set(NAMES, 3, model.state(NAMES, 3).deleted(), 11);
        let bytes = model.live_bytes();
        assert_eq!((live(&model, 0), model.live_keys(NAMES)), (Some(11), 9));
        model.settle(4);
        assert_eq!(model.go_back(6), 9);
        assert_eq!((live(&model, 0), live(&model, 3)), (Some(7), Some(1)));
        assert_eq!((live(&model, 6), model.live_keys(NAMES)), (None, 6));
        assert!(model.live_bytes() < bytes);
        assert_eq!(model.go_back(0), 4, "the first four are settled");
    }

    #[test]
    fn a_view_keeps_what_was() {
        let mut model = Model::new(Values::new(3), 100);
        for id in 0..40 {
            model.new_id(NAMES);
            model.set(NAMES, id, State::default().written(), id + 1);
        }
        model.hold();
        model.set(NAMES, 17, model.state(NAMES, 17).deleted(), 50);
        model.set(NAMES, 17, model.state(NAMES, 17).written(), 51);
        let new = model.new_id(NAMES);
        model.set(NAMES, new, State::default().written(), 52);
        assert_eq!(model.held_state(NAMES, 17).live(), Some(1));
        assert_eq!(model.held_state(NAMES, new).live(), None);
        assert_eq!(live(&model, 17), Some(2));
        let order = |from| model.next_name(from).map(|(id, _)| id);
        assert_eq!(order((1, 1)), Some(1));
        assert_eq!(order((1, 17)), Some(17));
        assert_eq!(order((1, 49)), Some(2), "the next group");
        assert_eq!(order((8, 40)), Some(9), "not what came later");
        assert_eq!(order((15, 47)), None);
        model.release();
        assert_eq!(model.next_name((8, 40)), Some((40, 1)));
    }
}
