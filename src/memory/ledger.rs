//! The region's books: how many bytes each owner holds, and what is free.

/// What a permit's bytes are held for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Owner {
    /// Taken for a batch that is not yet in a memtable.
    Reserved,
    /// The generation that takes commits.
    Open,
    /// A generation that takes no more commits and waits for its flush.
    Sealed,
    /// The generation being flushed.
    Flushing,
    /// A flushed generation kept for readers that need its shadowed versions.
    Pinned,
    /// A generation out of every new version, until its last reader leaves.
    Retiring,
    /// Buffers of a flush.
    Scratch,
}

impl Owner {
    /// All owners, in the order of their numbers.
    pub const ALL: [Self; 7] = [
        Self::Reserved,
        Self::Open,
        Self::Sealed,
        Self::Flushing,
        Self::Pinned,
        Self::Retiring,
        Self::Scratch,
    ];

    /// The word for it in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Reserved => "reserved",
            Self::Open => "open",
            Self::Sealed => "sealed",
            Self::Flushing => "flushing",
            Self::Pinned => "pinned",
            Self::Retiring => "retiring",
            Self::Scratch => "scratch",
        }
    }
}

/// A statement of the books at one moment.
///
/// The free bytes are counted, not derived, so that [`Ledger::is_exact`] can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ledger {
    total_bytes: u64,
    free_bytes: u64,
    free_bytes_min: u64,
    owned_bytes: [u64; Owner::ALL.len()],
}

impl Ledger {
    /// Books in which everything is free.
    pub(super) const fn new(total_bytes: u64) -> Self {
        Self {
            total_bytes,
            free_bytes: total_bytes,
            free_bytes_min: total_bytes,
            owned_bytes: [0; Owner::ALL.len()],
        }
    }

    /// The size of the region.
    pub const fn total_bytes(&self) -> u64 {
        self.total_bytes
    }

    /// Bytes that nobody holds.
    pub const fn free_bytes(&self) -> u64 {
        self.free_bytes
    }

    /// The fewest free bytes there ever were.
    pub const fn free_bytes_min(&self) -> u64 {
        self.free_bytes_min
    }

    /// Bytes held by an owner.
    pub const fn owned_bytes(&self, owner: Owner) -> u64 {
        self.owned_bytes[owner as usize]
    }

    /// Whether free and owned bytes add up to the total.
    pub fn is_exact(&self) -> bool {
        self.free_bytes + self.owned_bytes.iter().sum::<u64>() == self.total_bytes
    }

    /// Takes from free; false, without effect, if there is not enough.
    pub(super) fn take(&mut self, bytes: u64, owner: Owner) -> bool {
        let Some(free_bytes) = self.free_bytes.checked_sub(bytes) else {
            return false;
        };
        self.free_bytes = free_bytes;
        self.free_bytes_min = self.free_bytes_min.min(free_bytes);
        self.owned_bytes[owner as usize] += bytes;
        debug_assert!(self.is_exact());
        true
    }

    /// Gives back to free.
    pub(super) fn give(&mut self, bytes: u64, owner: Owner) {
        debug_assert!(self.owned_bytes(owner) >= bytes);
        self.owned_bytes[owner as usize] -= bytes;
        self.free_bytes += bytes;
        debug_assert!(self.is_exact());
    }

    /// Changes the owner of bytes.
    pub(super) fn hand_over(&mut self, bytes: u64, from: Owner, to: Owner) {
        debug_assert!(self.owned_bytes(from) >= bytes);
        self.owned_bytes[from as usize] -= bytes;
        self.owned_bytes[to as usize] += bytes;
        debug_assert!(self.is_exact());
    }
}
