//! The field's pool of entry slices, as specified: size classes, leases, a weak tier, budget, trims.
//!
//! ```text
//! class    capacity 16 << k entries, k = 0..=16, 88 bytes an entry; above that nothing is pooled
//! leases   a stack for each class, at most `cap`; survive collections
//! weak     what leases have no room for; two collections empty it
//! get      leases, then weak, from the request's class up to the largest not above the reuse limit
//! put      cleared to full capacity; dropped over the budget; lease, else weak, else dropped
//! trim     leases down to `keep` a class, then the weak tier if more than `target` bytes are left
//! ```
//!
//! A miss has one reason. Dropped slices leave a *ghost*: a miss that a ghost would have served is put
//! down to what dropped it, and the drop is *regretted*. A ghost passes to a later rule that would have
//! dropped the slice too had it stayed, so a full bucket is not blamed for what the next trim takes.
//!
//! Invariants, asserted by the tests: the byte counter is within the budget of the level after each put;
//! leases of a class are within the cap; gets = hits + fresh; puts = leases + weak + drops; the reasons of
//! all misses add up to the misses.

use super::rules::{Counters, RANK_MAX, Reason, Rules};
use super::trace::{Level, TrimKind};
use super::workload::Database;

/// Bytes of an entry.
pub const ENTRY_BYTES: u64 = 88;
/// Size classes.
pub const CLASSES: usize = 17;
const CLASS_SHIFT_MIN: u32 = 4;
/// A slice is reused for requests of at least an eighth of it, and small ones up to this many entries.
const REUSE_FACTOR: u64 = 8;
const REUSE_ENTRIES: u64 = 4_096;

/// A slice that somebody holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// Its class; `None` above all classes.
    class: Option<u8>,
    /// Entries it holds.
    pub entries: u64,
    /// It was allocated for this.
    pub fresh: bool,
    stolen: bool,
}

impl Held {
    /// Its bytes.
    pub const fn bytes(&self) -> u64 {
        self.entries * ENTRY_BYTES
    }
}

#[derive(Clone, Copy, Debug)]
struct Ghost {
    culprit: Database,
    reason: Reason,
}

#[derive(Clone, Debug, Default)]
struct Class {
    leases: Vec<Database>,
    weak: [Vec<Database>; 2],
    ghosts: Vec<Ghost>,
    /// Ghosts that a trim can still take over.
    loose: u32,
    live: u32,
    /// Of them, held by requests of smaller classes.
    stolen: u32,
    operations: usize,
}

/// One pool.
#[derive(Clone, Debug)]
pub struct GoPool {
    rules: Rules,
    classes: [Class; CLASSES],
    level: Level,
    /// The pool's own counter, which learns of a collection late.
    counted_bytes: u64,
    retained_bytes: u64,
    owner_bytes: [u64; Database::ALL.len()],
    collections: u64,
    collections_seen: Option<u64>,
    /// For an oracle: how many slices of each class will be held at once, after each operation.
    future: Option<Vec<Vec<u32>>>,
    /// What was counted so far.
    pub counters: Counters,
}

/// The class of so many entries.
pub fn class_of(entries: u64) -> Option<usize> {
    let shift = entries.max(1).next_power_of_two().trailing_zeros();
    let class = shift.saturating_sub(CLASS_SHIFT_MIN) as usize;
    (class < CLASSES).then_some(class)
}

/// Entries of a class's slices.
pub const fn entries_of(class: usize) -> u64 {
    1 << (class as u32 + CLASS_SHIFT_MIN)
}

impl GoPool {
    /// An empty pool.
    pub fn new(rules: Rules) -> Self {
        Self {
            rules,
            classes: Default::default(),
            level: Level::Normal,
            counted_bytes: 0,
            retained_bytes: 0,
            owner_bytes: [0; Database::ALL.len()],
            collections: 0,
            collections_seen: None,
            future: None,
            counters: Counters::default(),
        }
    }

    /// A pool that keeps exactly what will be asked for again.
    pub fn oracle(rules: Rules, future: Vec<Vec<u32>>) -> Self {
        Self {
            future: Some(future),
            ..Self::new(rules)
        }
    }

    /// Bytes kept in both tiers.
    pub const fn retained_bytes(&self) -> u64 {
        self.retained_bytes
    }

    /// Slices of a class held now.
    pub const fn live(&self, class: usize) -> u32 {
        self.classes[class].live
    }

    /// Takes a slice for `want` entries.
    pub fn get(&mut self, owner: Database, want: u64) -> Held {
        self.counters.gets += 1;
        let Some(class) = class_of(want) else {
            return self.allocate(None, want, Reason::Oversize);
        };
        let top = self.top(class, want);
        let found = (class..=top)
            .find_map(|class| Some((class, self.classes[class].leases.pop()?, true)))
            .or_else(|| {
                (class..=top).find_map(|class| {
                    let [young, old] = &mut self.classes[class].weak;
                    Some((class, young.pop().or_else(|| old.pop())?, false))
                })
            });
        let Some((found, last_owner, lease)) = found else {
            let reason = self.reason(owner, class, top);
            return self.allocate(Some(class), entries_of(class), reason);
        };
        let bytes = entries_of(found) * ENTRY_BYTES;
        self.counted_bytes = self.counted_bytes.saturating_sub(bytes);
        self.release(last_owner, bytes);
        if lease {
            self.counters.lease_hits += 1;
        } else {
            self.counters.weak_hits += 1;
        }
        let stolen = found > class;
        self.classes[found].stolen += u32::from(stolen);
        self.hand_out(Some(found), entries_of(found), false, stolen)
    }

    /// The largest class that serves a request.
    fn top(&self, class: usize, want: u64) -> usize {
        if !self.rules.stealing {
            return class;
        }
        let limit = match self.level {
            Level::Normal => (REUSE_FACTOR * want).max(REUSE_ENTRIES),
            Level::High => 2 * want,
            Level::Critical => want,
        };
        let limit = limit.max(entries_of(class));
        let mut top = class;
        while top + 1 < CLASSES && entries_of(top + 1) <= limit {
            top += 1;
        }
        top
    }

    /// Why there is nothing for a request of these classes.
    fn reason(&mut self, owner: Database, class: usize, top: usize) -> Reason {
        let ghost = (class..=top).find_map(|class| {
            let ghost = self.classes[class].ghosts.pop()?;
            self.classes[class].loose -= u32::from(ghost.reason.rank() < RANK_MAX);
            Some(ghost)
        });
        // Its ghost is used up all the same: had nothing been dropped, nothing were allocated here.
        if self.classes[class].stolen > 0 {
            return Reason::Stolen;
        }
        let Some(ghost) = ghost else {
            return Reason::Cold;
        };
        self.counters.regretted[owner as usize][ghost.culprit as usize] += 1;
        ghost.reason
    }

    fn allocate(&mut self, class: Option<usize>, entries: u64, reason: Reason) -> Held {
        self.counters.misses[reason as usize] += 1;
        self.counters.fresh[class.unwrap_or(CLASSES)] += 1;
        self.counters.fresh_bytes += entries * ENTRY_BYTES;
        self.learn_of_collections();
        self.hand_out(class, entries, true, false)
    }

    /// A miss is when the pool looks whether a collection emptied the weak tier.
    fn learn_of_collections(&mut self) {
        let seen = self.collections_seen.replace(self.collections);
        if seen.is_some_and(|seen| seen != self.collections) {
            self.counted_bytes = self.lease_bytes();
        }
    }

    fn lease_bytes(&self) -> u64 {
        (0..CLASSES)
            .map(|class| self.classes[class].leases.len() as u64 * entries_of(class) * ENTRY_BYTES)
            .sum()
    }

    fn hand_out(&mut self, class: Option<usize>, entries: u64, fresh: bool, stolen: bool) -> Held {
        self.counters.granted_bytes += entries * ENTRY_BYTES;
        if let Some(class) = class {
            self.classes[class].live += 1;
            self.classes[class].operations += 1;
        }
        Held {
            class: class.map(|class| class as u8),
            entries,
            fresh,
            stolen,
        }
    }

    /// Gives a slice back.
    pub fn put(&mut self, owner: Database, held: Held) {
        self.counters.puts += 1;
        self.counters.cleared_bytes += held.bytes();
        let Some(class) = held.class.map(usize::from) else {
            self.counters.drops[Reason::Oversize as usize] += 1;
            return;
        };
        let slices = &mut self.classes[class];
        slices.live -= 1;
        slices.stolen -= u32::from(held.stolen);
        let operation = slices.operations;
        slices.operations += 1;
        if let Some(future) = &self.future {
            let wanted = future[class].get(operation).copied().unwrap_or(0);
            if slices.live + slices.leases.len() as u32 >= wanted {
                return self.lose(class, owner, owner, Reason::Budget);
            }
        }
        if self.counted_bytes + held.bytes() > self.budget_bytes() {
            return self.lose(class, owner, owner, Reason::Budget);
        }
        if self.classes[class].leases.len() < self.room() as usize {
            self.classes[class].leases.push(owner);
            self.counters.to_lease += 1;
        } else if self.rules.weak {
            self.classes[class].weak[0].push(owner);
            self.counters.to_weak += 1;
        } else {
            return self.lose(class, owner, owner, Reason::Cap);
        }
        self.counted_bytes += held.bytes();
        self.retained_bytes += held.bytes();
        self.counters.retained_bytes_max =
            self.counters.retained_bytes_max.max(self.retained_bytes);
        let owned = &mut self.owner_bytes[owner as usize];
        *owned += held.bytes();
        let most = &mut self.counters.owner_bytes_max[owner as usize];
        *most = (*most).max(*owned);
    }

    const fn budget_bytes(&self) -> u64 {
        match self.level {
            Level::Normal => self.rules.budget_bytes,
            Level::High => self.rules.budget_bytes / 2,
            Level::Critical => 0,
        }
    }

    /// Leases of a class at this level.
    fn room(&self) -> u32 {
        match self.level {
            Level::Normal => self.rules.cap,
            Level::High => (self.rules.cap / 8).max(2),
            Level::Critical => 0,
        }
    }

    /// Bytes of a kept slice are kept no more.
    fn release(&mut self, owner: Database, bytes: u64) {
        self.retained_bytes -= bytes;
        self.owner_bytes[owner as usize] -= bytes;
    }

    /// A slice is dropped.
    fn lose(&mut self, class: usize, owner: Database, culprit: Database, reason: Reason) {
        self.counters.drops[reason as usize] += 1;
        self.counters.evicted[owner as usize][culprit as usize] += 1;
        self.classes[class].loose += u32::from(reason.rank() < RANK_MAX);
        self.classes[class].ghosts.push(Ghost { culprit, reason });
    }

    /// What a checkpoint or flush of `culprit`, or memory pressure, takes away.
    pub fn trim(&mut self, kind: TrimKind, culprit: Database) {
        let (reason, keep, target_bytes) = match kind {
            TrimKind::Checkpoint => {
                let Some(keep) = self.rules.checkpoint_keep else {
                    return;
                };
                (Reason::TrimCheckpoint, keep, 32 << 20)
            }
            TrimKind::Flush => (Reason::TrimFlush, 16, 64 << 20),
            TrimKind::Pressure => (Reason::TrimPressure, self.room(), self.budget_bytes()),
        };
        for class in 0..CLASSES {
            let bytes = entries_of(class) * ENTRY_BYTES;
            while self.classes[class].leases.len() > keep as usize {
                let Some(owner) = self.classes[class].leases.pop() else {
                    break;
                };
                self.release(owner, bytes);
                self.counted_bytes = self.counted_bytes.saturating_sub(bytes);
                self.lose(class, owner, culprit, reason);
            }
            self.pass_on(class, keep, culprit, reason);
        }
        if self.retained_bytes > target_bytes {
            self.empty_weak(0..2, culprit, reason);
            self.counted_bytes = self.lease_bytes();
        }
    }

    /// Ghosts that this trim would have dropped as well are its own from now on.
    fn pass_on(&mut self, class: usize, keep: u32, culprit: Database, reason: Reason) {
        let slices = &mut self.classes[class];
        if slices.loose == 0 {
            return;
        }
        let mut spared = (keep as usize).saturating_sub(slices.leases.len());
        for ghost in slices.ghosts.iter_mut().rev() {
            if ghost.reason.rank() < reason.rank() {
                if spared > 0 {
                    spared -= 1;
                } else {
                    (ghost.reason, ghost.culprit) = (reason, culprit);
                    slices.loose -= u32::from(reason.rank() == RANK_MAX);
                }
            }
        }
    }

    /// One collection: the weak tier's old half goes, its young half is old now.
    pub fn collect(&mut self) {
        self.collections += 1;
        self.empty_weak(1..2, Database::Bench, Reason::GcPurge);
        for class in &mut self.classes {
            let [young, old] = &mut class.weak;
            std::mem::swap(young, old);
        }
    }

    fn empty_weak(&mut self, halves: std::ops::Range<usize>, culprit: Database, reason: Reason) {
        for class in 0..CLASSES {
            for half in halves.clone() {
                for owner in std::mem::take(&mut self.classes[class].weak[half]) {
                    self.release(owner, entries_of(class) * ENTRY_BYTES);
                    // A collection has no culprit but who put it there.
                    let blamed = if reason == Reason::GcPurge {
                        owner
                    } else {
                        culprit
                    };
                    self.lose(class, owner, blamed, reason);
                }
            }
        }
    }

    /// Memory is at that level from now on; an oracle keeps what it will need all the same.
    pub fn set_level(&mut self, level: Level) {
        if self.future.is_none() {
            self.level = level;
        }
    }

    /// What the tests assert at any moment: books that balance.
    pub fn check(&self) -> Result<(), String> {
        let counted = &self.counters;
        let kept: u64 = (0..CLASSES)
            .map(|class| {
                let slices = &self.classes[class];
                let kept = slices.leases.len() + slices.weak.iter().map(Vec::len).sum::<usize>();
                kept as u64 * entries_of(class) * ENTRY_BYTES
            })
            .sum();
        let hits = counted.lease_hits + counted.weak_hits;
        let rules = [
            (
                "gets = hits + fresh",
                counted.gets == hits + counted.fresh_total(),
            ),
            (
                "misses have one reason",
                counted.misses.iter().sum::<u64>() == counted.fresh_total(),
            ),
            ("kept bytes are what is kept", kept == self.retained_bytes),
            (
                "kept bytes have one owner",
                self.owner_bytes.iter().sum::<u64>() == kept,
            ),
            (
                "leases within the cap",
                self.classes
                    .iter()
                    .all(|class| class.leases.len() <= self.rules.cap as usize),
            ),
            (
                "each slice is held, kept or dropped",
                counted.fresh_total()
                    == counted.drops.iter().sum::<u64>() + self.slices_alive() + self.oversize(),
            ),
        ];
        match rules.iter().find(|(_, holds)| !holds) {
            Some((rule, _)) => Err(format!("{rule}: {counted:?}")),
            None => Ok(()),
        }
    }

    fn slices_alive(&self) -> u64 {
        self.classes
            .iter()
            .map(|class| {
                let kept = class.leases.len() + class.weak.iter().map(Vec::len).sum::<usize>();
                u64::from(class.live) + kept as u64
            })
            .sum()
    }

    /// Slices above all classes that are held.
    fn oversize(&self) -> u64 {
        self.counters.fresh[CLASSES] - self.counters.drops[Reason::Oversize as usize]
    }
}
