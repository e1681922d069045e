//! Reads on the way: sampled lookups by class, and views that are held over writes and seals.

use sealstone::{Error, ErrorKind, Iter, Snapshot};

use super::figures::{Class, Lookups};
use super::keys::{BLOCKS, GROUPS, KEYSPACES, NAMES, NEVER, id_of, key_of};
use super::model::State;
use super::run::{Run, Step, Stop};
use super::weather;

/// Lookups of each class in a round; deleted keys are rarer.
const ROUND: [usize; 3] = [16, 16, 4];

/// Ids drawn in a round to fill the classes.
const DRAWS: usize = 64;

/// Steps of each iterator at a look.
const STEPS: usize = 20;

/// A snapshot with an iterator in each keyspace, as far as they were read.
#[derive(Debug)]
pub struct View {
    snapshot: Snapshot,
    blocks: Iter,
    block: Option<Vec<u8>>,
    names: Iter,
    /// The group and the least id of the next name.
    name: (u64, u64),
    /// Ends then, in writes.
    until: u64,
}

fn is_busy(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Busy { .. })
}

fn wrong(keyspace: usize, id: u64, found: Option<&[u8]>, expected: State) -> Stop {
    let name = KEYSPACES[keyspace];
    let expected = expected.live();
    Stop::Wrong(format!(
        "{name} {id} should be version {expected:?}, found {found:02x?}"
    ))
}

impl Run<'_> {
    /// Whatever reading is due.
    pub fn look(&mut self) -> Step {
        let writes = self.settings.writes;
        if self.written >= self.next_sample {
            self.next_sample = self.written + (writes / 4000).max(100);
            self.sample()?;
            self.measure()?;
        }
        if self.written >= self.next_view {
            let every = weather::seal_records(writes) / 8;
            self.next_view = self.written + every;
            self.look_at_view(16 * every)?;
        }
        Ok(())
    }

    /// A round of lookups in each class.
    fn sample(&mut self) -> Step {
        let mut ids: [Vec<(usize, u64)>; 3] = Default::default();
        for draw in 0..DRAWS {
            let keyspace = draw % 2;
            let id = self.random.below(self.model.ids(keyspace).max(1));
            let state = self.model.state(keyspace, id);
            let class = match state.live() {
                Some(_) => Class::Hit,
                None if state.is_deleted() => Class::Deleted,
                None => Class::Miss,
            };
            ids[class as usize].push((keyspace, id));
            ids[Class::Miss as usize].push((keyspace, NEVER + self.random.below(NEVER)));
        }
        for (class, ids) in ids.iter().enumerate() {
            let ids = &ids[..ids.len().min(ROUND[class])];
            let store = self.opening()?.store.clone();
            let (result, spent) = Lookups::of(&store, || {
                let mut checked = ids
                    .iter()
                    .map(|(keyspace, id)| self.check_key(*keyspace, *id));
                checked.try_for_each(|step| step)
            });
            result?;
            self.hour.lookups[class].add(&spent);
        }
        Ok(())
    }

    /// A key has what the model says, now.
    pub fn check_key(&self, keyspace: usize, id: u64) -> Step {
        let mut found = Vec::with_capacity(32);
        let handle = &self.opening()?.keyspaces[keyspace];
        let there = handle.get_into(key_of(keyspace, id), &mut found);
        let there = there.map_err(|error| self.stop("a lookup", &error))?;
        let state = self.model.state(keyspace, id);
        self.check_value(keyspace, id, state, there.then_some(&found[..]))
    }

    /// A value is that of a state.
    pub fn check_value(
        &self,
        keyspace: usize,
        id: u64,
        state: State,
        found: Option<&[u8]>,
    ) -> Step {
        let mut expected = Vec::with_capacity(32);
        let right = match (state.live(), found) {
            (Some(version), Some(found)) => {
                self.values.fill(keyspace, id, version, &mut expected);
                expected == found
            }
            (None, None) => true,
            _ => false,
        };
        match right {
            true => Ok(()),
            false => Err(wrong(keyspace, id, found, state)),
        }
    }

    /// Takes a view, or reads on in the one that is held, and lets it go when its time has come.
    fn look_at_view(&mut self, longest: u64) -> Step {
        let Some(mut view) = self.view.take() else {
            return self.take_view(longest);
        };
        let looked = self.read_view(&mut view);
        let over = self.written >= view.until;
        self.view = Some(view);
        looked?;
        if over {
            self.drop_view();
        }
        Ok(())
    }

    fn take_view(&mut self, longest: u64) -> Step {
        let opening = self.opening()?;
        let snapshot = opening.store.snapshot();
        let snapshot = snapshot.map_err(|error| self.stop("snapshot", &error))?;
        let iter = |keyspace: usize| {
            let iter = snapshot.iter(&opening.keyspaces[keyspace]);
            iter.map_err(|error| self.stop("iter", &error))
        };
        let (blocks, names) = (iter(BLOCKS)?, iter(NAMES)?);
        let until = self.written + self.random.below(longest);
        self.model.hold();
        self.happened.views += 1;
        self.view = Some(View {
            snapshot,
            blocks,
            block: None,
            names,
            name: (0, 0),
            until,
        });
        Ok(())
    }

    /// Lets the view go; false if there was none.
    pub fn drop_view(&mut self) -> bool {
        self.model.release();
        self.view.take().is_some()
    }

    fn read_view(&mut self, view: &mut View) -> Step {
        for draw in 0..8 {
            let keyspace = draw % 2;
            let id = self.random.below(self.model.ids(keyspace).max(1));
            let handle = &self.opening()?.keyspaces[keyspace];
            let found = view.snapshot.get(handle, key_of(keyspace, id));
            let found = found.map_err(|error| self.stop("a snapshot's lookup", &error))?;
            let state = self.model.held_state(keyspace, id);
            self.check_value(keyspace, id, state, found.as_deref())?;
            self.happened.view_reads += 1;
        }
        let more = self.read_names(&mut view.names, &mut view.name, STEPS);
        let also = self.read_blocks(&mut view.blocks, &mut view.block, STEPS);
        self.happened.view_reads += more?.0 + also?.0;
        Ok(())
    }

    /// Reads on in order: exactly the names that the model has. Returns how many, and whether it ended.
    pub fn read_names(
        &self,
        names: &mut Iter,
        place: &mut (u64, u64),
        most: usize,
    ) -> Step<(u64, bool)> {
        for count in 0..most {
            let expected = self.model.next_name(*place);
            let item = match names.next().transpose() {
                Ok(item) => item,
                // Scan memory is short for a while; the iterator is at its end.
                Err(error) if is_busy(&error) => return Ok((count as u64, true)),
                Err(error) => return Err(self.stop("a scan of names", &error)),
            };
            match (expected, item) {
                (None, None) => return Ok((count as u64, true)),
                (Some((id, _)), Some((key, value))) if key == key_of(NAMES, id) => {
                    let state = self.model.held_state(NAMES, id);
                    self.check_value(NAMES, id, state, Some(&value))?;
                    *place = (id % GROUPS, id + GROUPS);
                }
                (expected, item) => {
                    return Err(Stop::Wrong(format!(
                        "a scan gave {item:02x?}, the next name is {expected:?}"
                    )));
                }
            }
        }
        Ok((most as u64, false))
    }

    /// Reads on in order: blocks that the model has, each above the one before. That none is missing
    /// only the count of a whole scan can say.
    pub fn read_blocks(
        &self,
        blocks: &mut Iter,
        last: &mut Option<Vec<u8>>,
        most: usize,
    ) -> Step<(u64, bool)> {
        for count in 0..most {
            let (key, value) = match blocks.next().transpose() {
                Ok(Some(item)) => item,
                Ok(None) => return Ok((count as u64, true)),
                Err(error) if is_busy(&error) => return Ok((count as u64, true)),
                Err(error) => return Err(self.stop("a scan of blocks", &error)),
            };
            let id = id_of(BLOCKS, &key);
            let Some(id) = id.filter(|_| last.as_ref().is_none_or(|last| *last < key)) else {
                return Err(Stop::Wrong(format!(
                    "a scan gave {key:02x?} after {last:02x?}"
                )));
            };
            let state = self.model.held_state(BLOCKS, id);
            self.check_value(BLOCKS, id, state, Some(&value))?;
            *last = Some(key);
        }
        Ok((most as u64, false))
    }
}
