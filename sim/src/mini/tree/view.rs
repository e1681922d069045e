//! Snapshots and iterators of the tree, and the values that reads hand out.

use std::ops::Bound;
use std::sync::{Arc, OnceLock};

use sealstone::env::Env;
use sealstone::sync::Mutex;

use super::super::frames::Table;
use super::parts::Segment;
use super::{Bug, Inner};
use crate::subject::{Answer, Item};

/// Values kept for the reads that come.
const SLOTS: usize = 3;
/// What a cursor takes of the scan memory.
const CURSOR_BYTES: u64 = 1024;

/// The tree at one moment; it keeps its files.
pub struct View {
    env: Env,
    pub(super) sequence: u64,
    memory: Table,
    segments: Vec<Arc<Segment>>,
}

impl View {
    /// A view of these parts. One that is not counted does not keep the files.
    pub(super) fn new(
        env: &Env,
        sequence: u64,
        memory: Table,
        segments: &[Arc<Segment>],
        counted: bool,
    ) -> Self {
        let kept = |segment: &Arc<Segment>| match counted {
            true => Arc::clone(segment),
            false => Arc::new(segment.apart()),
        };
        Self {
            env: env.clone(),
            sequence,
            memory,
            segments: segments.iter().map(kept).collect(),
        }
    }

    /// Everything that it shows, deletes too.
    pub(super) fn read(&self, bug: Bug) -> Answer<Table> {
        let mut table = Table::new();
        for segment in &self.segments {
            table.extend(segment.read(&self.env, bug)?);
        }
        table.extend(self.memory.clone());
        Ok(table)
    }
}

/// An iterator: it reads its files as it goes.
pub struct Cursor {
    view: View,
    keyspace: usize,
    front: Bound<Vec<u8>>,
    back: Bound<Vec<u8>>,
    inner: Arc<Mutex<Inner>>,
    bug: Bug,
}

impl Cursor {
    pub(super) fn new(view: View, keyspace: usize, inner: &Arc<Mutex<Inner>>, bug: Bug) -> Self {
        let mut books = inner.lock();
        books.cursors += 1;
        books.cursor_bytes += CURSOR_BYTES;
        drop(books);
        Self {
            view,
            keyspace,
            front: Bound::Unbounded,
            back: Bound::Unbounded,
            inner: Arc::clone(inner),
            bug,
        }
    }

    pub(super) fn advance(&mut self, back: bool) -> Answer<Option<Item>> {
        let table = self.view.read(self.bug)?;
        let above = |key: &Vec<u8>| match &self.front {
            Bound::Excluded(front) => key > front,
            _ => true,
        };
        let below = |key: &Vec<u8>| match &self.back {
            Bound::Excluded(back) => key < back,
            _ => true,
        };
        let items = table.into_iter().filter_map(|((keyspace, key), value)| {
            let inside = keyspace == self.keyspace && above(&key) && below(&key);
            inside.then_some((key, value?))
        });
        let mut items = items;
        let item = if back {
            items.next_back()
        } else {
            items.next()
        };
        drop(items);
        if let Some((key, _)) = &item {
            let bound = Bound::Excluded(key.clone());
            match back {
                true => self.back = bound,
                false => self.front = bound,
            }
        }
        Ok(item)
    }
}

impl Drop for Cursor {
    fn drop(&mut self) {
        let mut books = self.inner.lock();
        books.cursors -= 1;
        if self.bug != Bug::CursorsLeak {
            books.cursor_bytes -= CURSOR_BYTES;
        }
    }
}

/// A value in its slot. Where slots are recycled, whoever holds one sees what was put there last.
struct Slot {
    bytes: Vec<u8>,
    later: OnceLock<Arc<Slot>>,
}

/// The slots that values are handed out in, in turn.
#[derive(Default)]
pub struct Slots {
    newest: Vec<Arc<Slot>>,
    count: usize,
}

/// What a read handed out.
pub struct Held(Arc<Slot>);

impl Slots {
    pub(super) fn hand_out(&mut self, bytes: Vec<u8>, recycled: bool) -> Held {
        let slot = Arc::new(Slot {
            bytes,
            later: OnceLock::new(),
        });
        let turn = self.count % SLOTS;
        self.count += 1;
        match self.newest.get_mut(turn) {
            None => self.newest.push(Arc::clone(&slot)),
            Some(newest) => {
                if recycled {
                    let _ = newest.later.set(Arc::clone(&slot));
                }
                *newest = Arc::clone(&slot);
            }
        }
        Held(slot)
    }
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        let mut slot = &self.0;
        while let Some(later) = slot.later.get() {
            slot = later;
        }
        &slot.bytes
    }
}
