//! The registry of readers' bounds: which snapshots and iterators read at which sequence.
//!
//! A sealed generation whose records shadow older versions of the same key must stay in memory while
//! a registered bound lies inside it (its segment keeps the newest version only). The retire decision
//! and the registration take the same lock, so neither can miss the other.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::engine::version::Generation;
use crate::error::PinInfo;
use crate::memtable::Memtable;
use crate::sync::Arc;
use crate::types::{KeyspaceKind, Sequence};

/// One registered reader.
#[derive(Clone, Debug)]
pub(crate) struct Pin {
    pub bound: Sequence,
    /// Which kinds it reads, by code.
    pub kinds: [bool; 2],
    pub since: Duration,
    pub creator: &'static str,
}

/// All registered readers. Guarded by the engine's registry lock.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    pins: BTreeMap<u64, Pin>,
    next_id: u64,
    /// Generations whose runs are installed and whose memory is still there, oldest first.
    pub lingering: Vec<Arc<Generation>>,
    /// Submits that hold retirement off because their check started over twice.
    pub holds: u32,
}

impl Registry {
    pub fn register(&mut self, pin: Pin) -> u64 {
        self.next_id += 1;
        self.pins.insert(self.next_id, pin);
        self.next_id
    }

    pub fn release(&mut self, id: u64) {
        self.pins.remove(&id);
    }

    pub fn pins(&self) -> impl Iterator<Item = &Pin> {
        self.pins.values()
    }

    /// The oldest reader that needs a version which only the generation's memory has.
    pub fn pin_of(&self, generation: &Generation, memory: &Memtable) -> Option<&Pin> {
        let inside = |pin: &&Pin| {
            generation.after_sequence < pin.bound && pin.bound < generation.last_sequence()
        };
        let needs = |pin: &&Pin| {
            KeyspaceKind::ALL
                .iter()
                .any(|kind| pin.kinds[usize::from(kind.code())] && memory.shadowed(*kind) > 0)
        };
        self.pins.values().filter(inside).find(needs)
    }

    /// The pin as an error or a report shows it.
    pub fn describe(pin: &Pin, now: Duration, bytes: u64) -> PinInfo {
        PinInfo {
            creator: pin.creator.to_string(),
            age: now.saturating_sub(pin.since),
            sequence: pin.bound,
            bytes,
        }
    }
}
