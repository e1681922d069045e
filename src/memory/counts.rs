//! What the region counts: who asked for memory, what came of it, and what became of buffers that came back.
//!
//! Requests are exact: a permit takes what the work needs, and a buffer has the size that was asked for. So
//! "granted" and "requested" differ only by refusals, and what can go to waste is the unused end of a chunk:
//! `used_bytes` against `granted_bytes`.
//!
//! Invariants, kept by the region under its lock:
//!
//! * hits + misses = buffers handed out; handed out - given back = live;
//! * given back = retained now + hits + drops, each drop with one reason;
//! * a drop is regretted if a later request of the same size found none kept: at most once a drop.

use std::collections::BTreeMap;

/// Who asks for memory of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Caller {
    /// Batches, and the generations that they open.
    Write,
    /// The flush's buffers, taken once at open.
    Flush,
    /// Opening a store: what the logs hold.
    Recovery,
    /// Cursors of iterators.
    Scan,
}

impl Caller {
    /// All callers, in the order of their numbers.
    pub const ALL: [Self; 4] = [Self::Write, Self::Flush, Self::Recovery, Self::Scan];

    /// The word for it in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::Flush => "flush",
            Self::Recovery => "recovery",
            Self::Scan => "scan",
        }
    }
}

/// What a buffer is: each class has one size, or few.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Payload chunks, all of one size.
    Chunk,
    /// Blocks of refs: 64-bit words.
    Refs,
    /// Links and probe tables: 32-bit words.
    Slots,
}

impl Class {
    /// All classes, in the order of their numbers.
    pub const ALL: [Self; 3] = [Self::Chunk, Self::Refs, Self::Slots];

    /// The word for it in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Chunk => "chunk",
            Self::Refs => "refs",
            Self::Slots => "slots",
        }
    }
}

/// Permits of one caller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PermitCounts {
    /// Requests that were granted.
    pub granted: u64,
    /// Their bytes.
    pub granted_bytes: u64,
    /// Requests that were refused, with nothing taken.
    pub refused: u64,
    /// Their bytes.
    pub refused_bytes: u64,
}

/// Buffers of one class, as one caller used them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BufferCounts {
    /// Requests that a kept buffer answered.
    pub hits: u64,
    /// Requests that took a new one.
    pub misses: u64,
    /// Bytes of all buffers handed out.
    pub granted_bytes: u64,
}

/// Buffers of one class: those in use, and those that came back. A buffer does not remember who took it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeptCounts {
    /// Bytes of buffers held now.
    pub live_bytes: u64,
    /// The most that were held at once.
    pub live_bytes_max: u64,
    /// Buffers that came back.
    pub returned: u64,
    /// Bytes used of those.
    pub used_bytes: u64,
    /// Kept now for the next request.
    pub kept: u64,
    /// Their bytes.
    pub kept_bytes: u64,
    /// The most bytes that were kept at once.
    pub kept_bytes_max: u64,
    /// Let go because a buffer of another size needed the room.
    pub dropped_for_room: u64,
    /// Let go under memory pressure.
    pub dropped_by_pressure: u64,
    /// Of those, how many a later request would have taken.
    pub regretted: u64,
}

/// All counts of a region.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RegionCounts {
    /// By caller.
    pub permits: [PermitCounts; Caller::ALL.len()],
    /// By caller and class.
    pub buffers: [[BufferCounts; Class::ALL.len()]; Caller::ALL.len()],
    /// By class.
    pub kept: [KeptCounts; Class::ALL.len()],
    /// Dropped buffers that nobody has missed yet, by class and bytes.
    missed: BTreeMap<(Class, u64), u64>,
}

/// Why a kept buffer is let go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DropReason {
    Room,
    Pressure,
}

impl RegionCounts {
    /// A request for a permit was answered.
    pub(super) fn asked(&mut self, caller: Caller, bytes: u64, granted: bool) {
        let counts = &mut self.permits[caller as usize];
        let (number, sum) = match granted {
            true => (&mut counts.granted, &mut counts.granted_bytes),
            false => (&mut counts.refused, &mut counts.refused_bytes),
        };
        *number += 1;
        *sum += bytes;
    }

    /// A buffer is handed out: a kept one, or one that has to be made.
    pub(super) fn taken(&mut self, caller: Caller, class: Class, bytes: u64, hit: bool) {
        let counts = &mut self.buffers[caller as usize][class as usize];
        match hit {
            true => counts.hits += 1,
            false => counts.misses += 1,
        }
        counts.granted_bytes += bytes;
        let kept = &mut self.kept[class as usize];
        kept.live_bytes += bytes;
        kept.live_bytes_max = kept.live_bytes_max.max(kept.live_bytes);
        if hit {
            kept.kept -= 1;
            kept.kept_bytes -= bytes;
        } else if let Some(missed) = self.missed.get_mut(&(class, bytes))
            && *missed > 0
        {
            *missed -= 1;
            kept.regretted += 1;
        }
    }

    /// A buffer came back, with so many of its bytes used.
    pub(super) fn returned(&mut self, class: Class, bytes: u64, used: u64) {
        let counts = &mut self.kept[class as usize];
        counts.returned += 1;
        counts.live_bytes -= bytes;
        counts.used_bytes += used;
    }

    /// It is kept.
    pub(super) fn kept(&mut self, class: Class, bytes: u64) {
        let kept = &mut self.kept[class as usize];
        kept.kept += 1;
        kept.kept_bytes += bytes;
        kept.kept_bytes_max = kept.kept_bytes_max.max(kept.kept_bytes);
    }

    /// It is not; `was_kept` until now, or never.
    pub(super) fn dropped(&mut self, class: Class, bytes: u64, reason: DropReason, was_kept: bool) {
        let kept = &mut self.kept[class as usize];
        if was_kept {
            kept.kept -= 1;
            kept.kept_bytes -= bytes;
        }
        match reason {
            DropReason::Room => kept.dropped_for_room += 1,
            DropReason::Pressure => kept.dropped_by_pressure += 1,
        }
        *self.missed.entry((class, bytes)).or_default() += 1;
    }

    /// Whether every buffer of a class is accounted for: handed out = live or given back, and given back =
    /// handed out again, kept or dropped.
    pub fn add_up(&self) -> bool {
        Class::ALL.into_iter().all(|class| {
            let kept = &self.kept[class as usize];
            let of = |count: fn(&BufferCounts) -> u64| {
                self.buffers
                    .iter()
                    .map(|classes| count(&classes[class as usize]))
                    .sum::<u64>()
            };
            let dropped = kept.dropped_for_room + kept.dropped_by_pressure;
            kept.returned == of(|counts| counts.hits) + kept.kept + dropped
                && kept.regretted <= dropped
        })
    }
}
