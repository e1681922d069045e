//! What a pool is told and what it tells: rules, reasons, counters.

use super::gopool::CLASSES;
use super::workload::Database;

/// The rank of rules that no other comes after.
pub(super) const RANK_MAX: u8 = 2;

/// Why a get missed, or a put dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// There never were so many at once.
    Cold,
    /// Dropped by a checkpoint's trim.
    TrimCheckpoint,
    /// Dropped by a flush's trim.
    TrimFlush,
    /// Dropped for memory pressure.
    TrimPressure,
    /// In the weak tier, as its bucket was full, when a collection came.
    GcPurge,
    /// Its bucket was full.
    Cap,
    /// The byte budget was used up.
    Budget,
    /// A smaller request holds it.
    Stolen,
    /// Too large for any class.
    Oversize,
}

impl Reason {
    /// All, in the order of their numbers.
    pub const ALL: [Self; 9] = [
        Self::Cold,
        Self::TrimCheckpoint,
        Self::TrimFlush,
        Self::TrimPressure,
        Self::GcPurge,
        Self::Cap,
        Self::Budget,
        Self::Stolen,
        Self::Oversize,
    ];

    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cold => "cold",
            Self::TrimCheckpoint => "trim.checkpoint",
            Self::TrimFlush => "trim.flush",
            Self::TrimPressure => "trim.pressure",
            Self::GcPurge => "gc",
            Self::Cap => "cap",
            Self::Budget => "budget",
            Self::Stolen => "stolen",
            Self::Oversize => "oversize",
        }
    }

    /// The limit that bound. The weak tier holds only what a full bucket sent there.
    pub const fn limit(self) -> &'static str {
        match self {
            Self::Cold => "none",
            Self::TrimCheckpoint | Self::TrimFlush | Self::TrimPressure => "trim",
            Self::GcPurge | Self::Cap => "cap",
            Self::Budget => "budget",
            Self::Stolen => "stealing",
            Self::Oversize => "class",
        }
    }

    /// Rules that would drop a slice later than this one did.
    pub(super) const fn rank(self) -> u8 {
        match self {
            Self::TrimFlush => 1,
            Self::TrimCheckpoint | Self::TrimPressure => RANK_MAX,
            _ => 0,
        }
    }
}

/// What can be turned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Leases kept for each class.
    pub cap: u32,
    /// Leases kept by a checkpoint's trim; `None` = there is no such trim.
    pub checkpoint_keep: Option<u32>,
    /// Whether a flush trims to 16, at most every 2 s.
    pub flush_trim: bool,
    /// Whether larger slices serve smaller requests.
    pub stealing: bool,
    /// Whether there is a weak tier.
    pub weak: bool,
    /// Bytes of both tiers together.
    pub budget_bytes: u64,
    /// Whether used memory decides a level.
    pub pressure: bool,
}

/// What was counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Slices asked for.
    pub gets: u64,
    /// Served by a lease.
    pub lease_hits: u64,
    /// Served by the weak tier.
    pub weak_hits: u64,
    /// Allocated, by class; the last place is for larger ones.
    pub fresh: [u64; CLASSES + 1],
    /// Their bytes.
    pub fresh_bytes: u64,
    /// Misses by reason.
    pub misses: [u64; Reason::ALL.len()],
    /// Slices given back.
    pub puts: u64,
    /// Kept as leases.
    pub to_lease: u64,
    /// Kept in the weak tier.
    pub to_weak: u64,
    /// Dropped by a put, trim or collection, by reason.
    pub drops: [u64; Reason::ALL.len()],
    /// Bytes of slices handed out.
    pub granted_bytes: u64,
    /// Bytes cleared by puts.
    pub cleared_bytes: u64,
    /// The most bytes kept.
    pub retained_bytes_max: u64,
    /// Drops by owner and culprit.
    pub evicted: [[u64; Database::ALL.len()]; Database::ALL.len()],
    /// Regretted drops by who missed them and culprit.
    pub regretted: [[u64; Database::ALL.len()]; Database::ALL.len()],
    /// The most bytes kept of each owner.
    pub owner_bytes_max: [u64; Database::ALL.len()],
}

impl Counters {
    /// Slices allocated.
    pub fn fresh_total(&self) -> u64 {
        self.fresh.iter().sum()
    }

    /// Drops that a later get would have hit.
    pub fn regretted_total(&self) -> u64 {
        self.regretted.iter().flatten().sum()
    }

    /// Adds another pool's counters; what is a maximum over time is added up, too.
    pub fn add(&mut self, other: &Self) {
        let sums = [
            (&mut self.gets, other.gets),
            (&mut self.lease_hits, other.lease_hits),
            (&mut self.weak_hits, other.weak_hits),
            (&mut self.fresh_bytes, other.fresh_bytes),
            (&mut self.puts, other.puts),
            (&mut self.to_lease, other.to_lease),
            (&mut self.to_weak, other.to_weak),
            (&mut self.granted_bytes, other.granted_bytes),
            (&mut self.cleared_bytes, other.cleared_bytes),
            (&mut self.retained_bytes_max, other.retained_bytes_max),
        ];
        for (sum, more) in sums {
            *sum += more;
        }
        add_all(&mut self.fresh, &other.fresh);
        add_all(&mut self.misses, &other.misses);
        add_all(&mut self.drops, &other.drops);
        add_all(&mut self.owner_bytes_max, &other.owner_bytes_max);
        for (row, more) in self.evicted.iter_mut().zip(&other.evicted) {
            add_all(row, more);
        }
        for (row, more) in self.regretted.iter_mut().zip(&other.regretted) {
            add_all(row, more);
        }
    }
}

fn add_all(sums: &mut [u64], more: &[u64]) {
    for (sum, more) in sums.iter_mut().zip(more) {
        *sum += more;
    }
}
