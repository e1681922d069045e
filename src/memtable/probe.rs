//! The hash probe: from a key to its newest version, published or not.
//!
//! ```text
//! slot (u32)  =  fingerprint << node_bits | node of the newest version        0 = empty
//! ```
//!
//! Open addressing with linear steps in a table at most half full. A key has one slot; a new version
//! replaces the node in it and links to the old one, so a key written often makes no long walk. The
//! bits that the node does not need hold a fingerprint: an absent key is most often told from the
//! slots alone, without touching a ref.
//!
//! Position and fingerprint come from the store's keyed hash mixed with parts of the key itself. The
//! keyed hash makes them unpredictable; the key parts keep walks short when a store keeps few hash
//! bits, as simulations do.
//!
//! One writer stores slots with `Release`; readers load with `Acquire` and see the ref, its links to
//! older versions and the record's bytes. Slots are never emptied, so a walk ends at the first empty
//! one: a key is missed only if its slot was filled after the walk passed.

use super::refs::scramble;
use crate::memory::{Region, Words};
use crate::sync::{AtomicU32, Ordering};
use crate::types::{KeyHash, KeyspaceId};

/// The most records that a table is made for.
pub(super) const RECORDS_MAX: u32 = 1 << 28;

pub(super) struct Probe {
    slots: Words<AtomicU32>,
    node_bits: u32,
}

/// Where a walk ended.
#[derive(Clone, Copy, Debug)]
pub(super) enum Walk {
    /// At this slot, which holds the key, whose newest version is `newest`.
    Held { slot: usize, newest: u32 },
    /// At this empty slot.
    Empty { slot: usize },
}

impl Probe {
    /// A table of zeroed slots, as many as [`Probe::slots_of`] says for `records_max`.
    pub(super) fn new(slots: Words<AtomicU32>, records_max: u32) -> Self {
        Self {
            slots,
            node_bits: u32::BITS - records_max.leading_zeros(),
        }
    }

    /// No table: every walk ends in nothing.
    pub(super) fn none(region: &Region) -> Self {
        Self::new(Words::none(region), 1)
    }

    /// Slots of a table for `records_max` records: a power of two, at least twice as many.
    pub(super) fn slots_of(records_max: u32) -> usize {
        (2 * records_max as usize).next_power_of_two()
    }

    /// Walks from a key's position to a slot whose ref `is_key` accepts, or to an empty one.
    ///
    /// `None` only in a full table, which its size makes impossible.
    pub(super) fn walk(&self, mixed: u64, mut is_key: impl FnMut(u32) -> bool) -> Option<Walk> {
        let mask = self.slots.len().wrapping_sub(1);
        let first = (mixed >> 32) as usize;
        for step in 0..self.slots.len() {
            let slot = (first + step) & mask;
            let value = self.slots[slot].load(Ordering::Acquire);
            if value == 0 {
                return Some(Walk::Empty { slot });
            }
            let newest = value & ((1 << self.node_bits) - 1);
            if value - newest == self.fingerprint(mixed) && is_key(newest) {
                return Some(Walk::Held { slot, newest });
            }
        }
        None
    }

    /// Makes a node the newest version of the key with these mixed bits.
    pub(super) fn set(&self, slot: usize, mixed: u64, node: u32) {
        if let Some(entry) = self.slots.get(slot) {
            entry.store(self.fingerprint(mixed) | node, Ordering::Release);
        }
    }

    fn fingerprint(&self, mixed: u64) -> u32 {
        (mixed as u32) << self.node_bits
    }
}

/// The bits that position and fingerprint are taken from.
pub(super) fn mix(hash: KeyHash, keyspace: KeyspaceId, key: &[u8]) -> u64 {
    const ODD: u64 = 0xD6E8_FEB8_6659_FD93;
    let first = key
        .first_chunk::<8>()
        .map(|bytes| u64::from_le_bytes(*bytes));
    let last = key
        .last_chunk::<8>()
        .map(|bytes| u64::from_le_bytes(*bytes));
    let (first, last) = match (first, last) {
        (Some(first), Some(last)) => (first, last),
        _ => (super::refs::key_prefix(key), 0),
    };
    let id = u64::from(keyspace.0) << 32 | key.len() as u64;
    let parts = (first.wrapping_mul(ODD) ^ last.rotate_left(23)).wrapping_mul(ODD) ^ id;
    scramble(hash.0.wrapping_add(parts))
}
