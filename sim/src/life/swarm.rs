//! What a run is made of: which operations, faults and sizes, drawn before anything happens.
//!
//! Every feature is off in half of the runs (Groce and others, "Swarm testing", 2012): a run with
//! few features reaches corners that a run with all of them never does. Rates are log-uniform.

use std::fmt;

use crate::choices::{Choices, Purpose};
use crate::disk::{DiskOptions, Strength};
use crate::faults::Fault;

/// The kinds of step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Read a key.
    Get,
    /// Write a batch and wait.
    Write,
    /// Queue a batch.
    Submit,
    /// Commit what is queued.
    Commit,
    /// Write a batch whose closure fails.
    Failing,
    /// Make everything durable.
    Sync,
    /// Read a key in another way: into a buffer, whether it is there, to keep.
    GetOther,
    /// Read a part of a keyspace.
    Range,
    /// Close and open again with other options.
    Reopen,
    /// Read several keys.
    MultiGet,
    /// Read a keyspace.
    Scan,
    /// Take a snapshot.
    Snapshot,
    /// Read from a snapshot.
    ViewGet,
    /// Read all of a snapshot.
    ViewScan,
    /// Drop a snapshot.
    DropView,
    /// Start an iterator.
    Cursor,
    /// Move an iterator.
    Advance,
    /// Drop an iterator.
    DropCursor,
    /// End the open generation.
    Seal,
    /// Run a quantum of a background job.
    Job,
    /// Turn the pressure dial.
    Pressure,
    /// Move or disturb the clock.
    Clock,
    /// Change the budget of filters.
    Budget,
}

impl Kind {
    /// All of them; the simplest first.
    pub const ALL: [Self; 23] = [
        Self::Get,
        Self::Write,
        Self::Submit,
        Self::Commit,
        Self::Failing,
        Self::Sync,
        Self::MultiGet,
        Self::Scan,
        Self::Snapshot,
        Self::ViewGet,
        Self::ViewScan,
        Self::DropView,
        Self::Cursor,
        Self::Advance,
        Self::DropCursor,
        Self::Seal,
        Self::Job,
        Self::Pressure,
        Self::Clock,
        Self::GetOther,
        Self::Range,
        Self::Reopen,
        Self::Budget,
    ];

    /// How often it comes where it is on, relative to the others.
    fn weight(self) -> u32 {
        match self {
            Self::Write | Self::Job => 24,
            Self::Get => 16,
            Self::Submit | Self::Commit | Self::Advance => 8,
            Self::ViewGet | Self::MultiGet | Self::GetOther | Self::Range => 4,
            Self::Scan | Self::ViewScan | Self::Seal => 2,
            Self::Budget
            | Self::Sync
            | Self::Snapshot
            | Self::Cursor
            | Self::DropView
            | Self::DropCursor => 3,
            Self::Failing | Self::Pressure | Self::Clock | Self::Reopen => 1,
        }
    }

    /// Nothing happens without these.
    fn is_needed(self) -> bool {
        matches!(self, Self::Write | Self::Get | Self::Job | Self::Commit)
    }
}

/// The features of a run.
#[derive(Clone, Debug)]
pub struct Swarm {
    /// How unkind the disk is.
    pub strength: Strength,
    /// Kinds of step with weights; those that are off are missing.
    pub kinds: Vec<(Kind, u32)>,
    /// Faults that are on, with the mean number of calls between two.
    pub faults: Vec<(Fault, u32)>,
    /// Lives.
    pub lives: u32,
    /// Most steps of a life.
    pub steps_max: u32,
    /// Size of the key space.
    pub keys: u32,
    /// 0: short keys, 1: a long shared prefix, 2: lengths of all magnitudes, 3: bytes of all values.
    pub key_shape: u32,
    /// Values have up to `2^value_bits` bytes.
    pub value_bits: u32,
    /// Most operations of a batch.
    pub batch_max: u32,
    /// Of 4 writes, so many are synced.
    pub synced_quarters: u32,
    /// Of 8 lives, so many have a crash point inside a call.
    pub crash_eighths: u32,
    /// Whether files rot between lives.
    pub rot: bool,
    /// Room on the disk, if it is short.
    pub capacity_bytes: Option<u64>,
    /// Descriptors, if they are short.
    pub descriptors: Option<u64>,
    /// What permutes listings, if something does.
    pub listing_seed: Option<u64>,
}

impl Swarm {
    /// Draws one. `strength` overrides the drawn one.
    pub fn draw(choices: &mut Choices, strength: Option<Strength>) -> Self {
        let c = choices;
        let on = |c: &mut Choices| c.chance(Purpose::Swarm, 1, 2);
        let drawn = match c.chance(Purpose::Swarm, 15, 100) {
            true => Strength::Adversarial,
            false => Strength::Honest,
        };
        let mut kinds = Vec::new();
        for kind in Kind::ALL {
            if on(c) || kind.is_needed() {
                kinds.push((kind, kind.weight()));
            }
        }
        let mut faults = Vec::new();
        let damage = c.chance(Purpose::Swarm, 1, 16);
        let faulty = on(c);
        for fault in Fault::ALL {
            let rare = c.chance(Purpose::Swarm, 1, 3);
            let gap = c.log_uniform(Purpose::Swarm, 9);
            if rare && (if fault.damages() { damage } else { faulty }) {
                faults.push((fault, gap));
            }
        }
        Self {
            strength: strength.unwrap_or(drawn),
            kinds,
            faults,
            lives: 1 + c.below(Purpose::Swarm, 4),
            steps_max: 20 + c.below(Purpose::Swarm, 300),
            keys: *c.pick(Purpose::Swarm, &[4, 16, 64, 200, 5000, 1]),
            key_shape: c.below(Purpose::Swarm, 4),
            // Often so short that all records have one length.
            value_bits: match c.chance(Purpose::Swarm, 1, 6) {
                true => 1,
                false => 1 + c.below(Purpose::Swarm, 11),
            },
            batch_max: *c.pick(Purpose::Swarm, &[1, 2, 4, 12]),
            synced_quarters: c.below(Purpose::Swarm, 5),
            crash_eighths: c.below(Purpose::Swarm, 9),
            rot: c.chance(Purpose::Swarm, 1, 10),
            capacity_bytes: c
                .chance(Purpose::Swarm, 1, 8)
                .then(|| 4096 * (24 + u64::from(c.below(Purpose::Swarm, 200)))),
            descriptors: c
                .chance(Purpose::Swarm, 1, 8)
                .then(|| 7 + u64::from(c.below(Purpose::Swarm, 24))),
            listing_seed: c
                .chance(Purpose::Swarm, 1, 2)
                .then(|| u64::from(c.below(Purpose::Swarm, u32::MAX))),
        }
    }

    /// The disk of the run.
    pub fn disk(&self, seed: u64) -> DiskOptions {
        let plain = DiskOptions::default();
        DiskOptions {
            seed,
            strength: self.strength,
            capacity_bytes: self.capacity_bytes.unwrap_or(plain.capacity_bytes),
            descriptors_max: self.descriptors.unwrap_or(plain.descriptors_max),
            listing_seed: self.listing_seed,
            ..plain
        }
    }

    /// The kind of the next step.
    pub fn kind(&self, choices: &mut Choices) -> Kind {
        let total: u32 = self.kinds.iter().map(|(_, weight)| weight).sum();
        let mut at = choices.below(Purpose::Workload, total);
        for (kind, weight) in &self.kinds {
            if at < *weight {
                return *kind;
            }
            at -= weight;
        }
        Kind::Get
    }
}

impl fmt::Display for Swarm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} lives={} steps<={} keys={} shape={} values<2^{} batch<={} synced={}/4 crash={}/8",
            self.strength,
            self.lives,
            self.steps_max,
            self.keys,
            self.key_shape,
            self.value_bits,
            self.batch_max,
            self.synced_quarters,
            self.crash_eighths
        )?;
        if let Some(capacity) = self.capacity_bytes {
            write!(f, " capacity={capacity}")?;
        }
        if let Some(descriptors) = self.descriptors {
            write!(f, " descriptors={descriptors}")?;
        }
        if self.listing_seed.is_some() {
            write!(f, " listings-permuted")?;
        }
        if self.rot {
            write!(f, " rot")?;
        }
        for (fault, gap) in &self.faults {
            write!(f, " {}/{gap}", fault.name())?;
        }
        write!(f, " steps:")?;
        for (kind, _) in &self.kinds {
            write!(f, " {kind:?}")?;
        }
        Ok(())
    }
}
