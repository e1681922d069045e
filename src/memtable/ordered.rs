//! The ordered index: a skip list (Pugh 1990) of nodes by (keyspace, key, newest version first).
//!
//! ```text
//! level 1   head ---------------> n7 ------------> none
//! level 0   head -> n3 -> n1 ---> n7 -> n2 ------> none
//! ```
//!
//! Nodes are refs that were published; they are never taken out, so readers need no protection and
//! a cursor can't lose its place. One thread at a time inserts: it fills the new node's own links first
//! and then lets the predecessors point to it, lowest level first, with `Release`. A reader that comes
//! down from a higher level finds every node of that level on the lower ones too.
//!
//! Publishing a commit does not insert it: that is the dearest part of a write, and only those who read
//! in order need it. Whoever does (a cursor that seeks, a flush) first inserts what was published since,
//! sorted, some hundred nodes at a time: neighbours in the batch are neighbours in the list, and the
//! search for one's place starts at the other's. The list that comes out is the same.
//!
//! Going backward is a search for the last node before the present one: links point forward only.
//!
//! The last predecessors are kept (the splice). They bracket the next node on some level if it is near,
//! and the search then starts there instead of at the top.

use std::cmp::Ordering as Order;

use super::Memtable;
use super::refs::{HEIGHT_MAX, digest, prefix};
use crate::sync::{AtomicU32, AtomicUsize, Mutex, Ordering};
use crate::types::{KeyspaceId, Sequence};

/// A place in the order: that of a version, whether it exists or not.
#[derive(Clone, Copy)]
pub(super) struct Target<'a> {
    full: Full<'a>,
    /// Sequence, from the memtable's first. Later ones come first.
    sequence_offset: u32,
    prefix: u64,
    digest: u8,
}

/// Keyspace and key of a target, needed only where prefixes tie.
#[derive(Clone, Copy)]
enum Full<'a> {
    Key(KeyspaceId, &'a [u8]),
    /// Those of this node's record, which most comparisons need not touch.
    Node(u32),
}

impl<'a> Target<'a> {
    pub(super) fn new(keyspace: KeyspaceId, key: &'a [u8], sequence_offset: u32) -> Self {
        Self {
            full: Full::Key(keyspace, key),
            sequence_offset,
            prefix: prefix(keyspace, key),
            digest: digest(keyspace),
        }
    }
}

/// Nodes sorted and inserted at a time: as many as make neighbours near, in 2 KiB of stack.
const SORTED_NODES: usize = 512;

/// Heads and the inserter's own state.
pub(super) struct Ordered {
    heads: [AtomicU32; HEIGHT_MAX],
    /// Levels that have nodes.
    height: AtomicUsize,
    /// Nodes from 1 to this one are in the list.
    done: AtomicU32,
    splice: Mutex<[u32; HEIGHT_MAX]>,
}

impl Ordered {
    pub(super) fn new() -> Self {
        Self {
            heads: std::array::from_fn(|_| AtomicU32::new(0)),
            height: AtomicUsize::new(0),
            done: AtomicU32::new(0),
            splice: Mutex::new([0; HEIGHT_MAX]),
        }
    }
}

impl Memtable {
    /// The node after `node` on a level; node 0 is the head, and the end.
    fn next(&self, node: u32, level: usize) -> u32 {
        let link = match node {
            0 => self.ordered.heads.get(level),
            _ => self.refs.link(node, level),
        };
        link.map_or(0, |link| link.load(Ordering::Acquire))
    }

    /// Compares a node's place with a target's.
    fn compare(&self, node: u32, target: &Target<'_>) -> Order {
        self.compare_key(node, target)
            .then_with(|| target.sequence_offset.cmp(&self.refs.sequence_offset(node)))
    }

    /// Compares (keyspace, key) of a node with a target's.
    pub(super) fn compare_key(&self, node: u32, target: &Target<'_>) -> Order {
        let front = self
            .refs
            .digest(node)
            .cmp(&target.digest)
            .then_with(|| self.refs.prefix(node).cmp(&target.prefix));
        if front != Order::Equal {
            return front;
        }
        let wanted = match target.full {
            Full::Key(keyspace, key) => Some((keyspace, key)),
            Full::Node(other) if other == node => return Order::Equal,
            Full::Node(other) => self.space.key(self.refs.location(other)),
        };
        let full = self.space.key(self.refs.location(node));
        debug_assert!(
            full.is_some() && wanted.is_some(),
            "a ref without its record"
        );
        full.cmp(&wanted)
    }

    /// From `node`, which is before the target, to the last node before it on a level. `beyond` is a
    /// node known not to be before it, which need not be compared again.
    fn walk_level(&self, from: u32, level: usize, beyond: &mut u32, target: &Target<'_>) -> u32 {
        let mut node = from;
        loop {
            let next = self.next(node, level);
            if next == 0 || next == *beyond {
                return node;
            }
            if self.compare(next, target) != Order::Less {
                *beyond = next;
                return node;
            }
            node = next;
        }
    }

    /// The last node before a target; 0 = none.
    pub(super) fn last_before(&self, target: &Target<'_>) -> u32 {
        let mut node = 0;
        let mut beyond = 0;
        for level in (0..self.ordered.height.load(Ordering::Acquire)).rev() {
            node = self.walk_level(node, level, &mut beyond, target);
        }
        node
    }

    /// The first node at or after a target; 0 = none.
    pub(super) fn first_from(&self, target: &Target<'_>) -> u32 {
        // The node found may have got a successor before the target since; go on until none.
        let mut node = self.last_before(target);
        loop {
            node = self.next(node, 0);
            if node == 0 || self.compare(node, target) != Order::Less {
                return node;
            }
        }
    }

    /// The node after `node`, or the first for 0; 0 = none.
    pub(super) fn after(&self, node: u32) -> u32 {
        self.next(node, 0)
    }

    /// The last node; 0 = none.
    pub(super) fn last(&self) -> u32 {
        let mut node = 0;
        for level in (0..self.ordered.height.load(Ordering::Acquire)).rev() {
            loop {
                match self.next(node, level) {
                    0 => break,
                    next => node = next,
                }
            }
        }
        node
    }

    /// The place of a node.
    pub(super) fn target_of(&self, node: u32) -> Target<'_> {
        Target {
            full: Full::Node(node),
            sequence_offset: self.refs.sequence_offset(node),
            prefix: self.refs.prefix(node),
            digest: self.refs.digest(node),
        }
    }

    /// A target's sequence part: bounds below the memtable's first have none.
    pub(super) fn sequence_offset(&self, sequence: Sequence) -> Option<u32> {
        let offset = sequence.checked_sub(self.first_sequence())?;
        Some(u32::try_from(offset).unwrap_or(u32::MAX))
    }

    /// Puts up to `records_max` of the published records into the order; true once all of them are.
    pub fn order(&self, records_max: u32) -> bool {
        let published = self.published_records();
        if self.ordered.done.load(Ordering::Acquire) >= published {
            return true;
        }
        let mut splice = self.ordered.splice.lock();
        let done = self.ordered.done.load(Ordering::Acquire);
        let end = published.min(done.saturating_add(records_max));
        let mut first = done + 1;
        while first <= end {
            let last = end.min(first.saturating_add(SORTED_NODES as u32 - 1));
            self.insert_sorted(&mut splice, first, last);
            self.ordered.done.store(last, Ordering::Release);
            first = last + 1;
        }
        end >= published
    }

    fn insert_sorted(&self, splice: &mut [u32; HEIGHT_MAX], first: u32, last: u32) {
        let mut nodes = [0; SORTED_NODES];
        let count = (last - first) as usize + 1;
        for (place, node) in nodes.iter_mut().zip(first..=last) {
            *place = node;
        }
        let nodes = &mut nodes[..count];
        // Also the newer version first, as in the list: then each one comes behind the one before.
        nodes.sort_unstable_by(|a, b| self.compare(*a, &self.target_of(*b)));
        for node in nodes {
            self.insert_one(splice, *node);
        }
    }

    fn insert_one(&self, splice: &mut [u32; HEIGHT_MAX], node: u32) {
        let target = self.target_of(node);
        self.move_splice(splice, &target);
        let height = self.refs.height(node).min(HEIGHT_MAX);
        for (level, before) in splice.iter().enumerate().take(height) {
            let next = self.next(*before, level);
            if let Some(link) = self.refs.link(node, level) {
                link.store(next, Ordering::Relaxed);
            }
        }
        for (level, before) in splice.iter_mut().enumerate().take(height) {
            let link = match *before {
                0 => self.ordered.heads.get(level),
                before => self.refs.link(before, level),
            };
            if let Some(link) = link {
                link.store(node, Ordering::Release);
            }
            *before = node;
        }
        self.ordered.height.fetch_max(height, Ordering::Release);
    }

    /// Makes the splice the last node before the target on every level.
    ///
    /// If it brackets the target on one level it does on all higher ones too: predecessors only move
    /// back with the level, successors only forward. So only the levels below need a search.
    fn move_splice(&self, splice: &mut [u32; HEIGHT_MAX], target: &Target<'_>) {
        let brackets = |level: usize, before: u32| {
            let next = self.next(before, level);
            (before == 0 || self.compare(before, target) == Order::Less)
                && (next == 0 || self.compare(next, target) != Order::Less)
        };
        let height = self.ordered.height.load(Ordering::Acquire);
        let near = (0..height).find(|&level| brackets(level, splice[level]));
        let (top, mut node) = match near {
            Some(level) => (level, splice[level]),
            None => (height, 0),
        };
        let mut beyond = 0;
        for level in (0..top).rev() {
            node = self.walk_level(node, level, &mut beyond, target);
            splice[level] = node;
        }
    }
}
