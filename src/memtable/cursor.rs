//! A place in the ordered index, and moving it.
//!
//! A cursor that seeks sees every entry published before, perhaps also later ones: who reads at a bound
//! skips entries with a later sequence. The first seek after a publishing does the work of ordering what
//! was published. A cursor stays valid while entries are added; one added behind it is not seen, one
//! added ahead of it is, once somebody has ordered it.

use std::ops::Deref;

use super::Memtable;
use super::found::EntryRef;
use super::ordered::Target;
use crate::sync::Arc;
use crate::types::{KeyspaceId, Sequence};

/// A cursor over a memtable that it borrows or owns a share of.
#[derive(Clone, Debug)]
pub struct Cursor<M> {
    memtable: M,
    /// The node it stands on; 0 = none.
    node: u32,
}

/// A cursor that borrows the memtable.
pub type MemCursor<'a> = Cursor<&'a Memtable>;

/// A cursor that keeps the memtable alive.
pub type OwnedMemCursor = Cursor<Arc<Memtable>>;

impl<M: Deref<Target = Memtable>> Cursor<M> {
    /// A cursor that stands nowhere.
    pub fn new(memtable: M) -> Self {
        Self { memtable, node: 0 }
    }

    /// A cursor where another one of this memtable stood.
    pub(super) fn at(memtable: M, node: u32) -> Self {
        Self { memtable, node }
    }

    /// Where it stands, to come back to with [`Memtable::cursor_at`]; 0 = nowhere.
    pub fn node(&self) -> u32 {
        self.node
    }

    /// The memtable.
    pub fn memtable(&self) -> &Memtable {
        &self.memtable
    }

    /// Whether it stands on an entry.
    pub fn is_valid(&self) -> bool {
        self.node != 0
    }

    /// To the first entry.
    pub fn seek_first(&mut self) {
        self.memtable.order(u32::MAX);
        self.node = self.memtable.after(0);
    }

    /// To the last entry.
    pub fn seek_last(&mut self) {
        self.memtable.order(u32::MAX);
        self.node = self.memtable.last();
    }

    /// To the first entry at or after (keyspace, key, sequence), where a key's later versions come
    /// first: `Sequence::MAX` is before all versions of the key.
    pub fn seek(&mut self, keyspace: KeyspaceId, key: &[u8], sequence: Sequence) {
        self.memtable.order(u32::MAX);
        self.node = match self.memtable.sequence_offset(sequence) {
            Some(offset) => self
                .memtable
                .first_from(&Target::new(keyspace, key, offset)),
            // Below all versions: behind the oldest one that the key can have here.
            None => {
                let oldest = Target::new(keyspace, key, 0);
                let node = self.memtable.first_from(&oldest);
                match node != 0 && self.memtable.compare_key(node, &oldest).is_eq() {
                    true => self.memtable.after(node),
                    false => node,
                }
            }
        };
    }

    /// To the last entry before (keyspace, key, sequence) in the same order.
    pub fn seek_before(&mut self, keyspace: KeyspaceId, key: &[u8], sequence: Sequence) {
        self.memtable.order(u32::MAX);
        self.node = match self.memtable.sequence_offset(sequence) {
            Some(offset) => self
                .memtable
                .last_before(&Target::new(keyspace, key, offset)),
            None => {
                let oldest = Target::new(keyspace, key, 0);
                let node = self.memtable.first_from(&oldest);
                match node != 0 && self.memtable.compare_key(node, &oldest).is_eq() {
                    true => node,
                    false => self.memtable.last_before(&oldest),
                }
            }
        };
    }

    /// To the next entry; from the last one to nowhere.
    pub fn next(&mut self) {
        if self.is_valid() {
            self.node = self.memtable.after(self.node);
        }
    }

    /// To the previous entry, by a search; from the first one to nowhere.
    pub fn prev(&mut self) {
        if self.is_valid() {
            let target = self.memtable.target_of(self.node);
            self.node = self.memtable.last_before(&target);
        }
    }

    /// The entry it stands on.
    pub fn entry(&self) -> Option<EntryRef<'_>> {
        match self.node {
            0 => None,
            node => self.memtable.entry(node),
        }
    }
}
