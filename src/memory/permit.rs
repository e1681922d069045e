//! The right to a number of bytes of the region.

use std::fmt;

use super::chunk::ChunkWriter;
use super::counts::Caller;
use super::ledger::Owner;
use super::region::Region;
use super::words::{Word, Words};

/// Bytes of a region, held for one owner. Dropping it makes them free.
///
/// Permits are neither cloned nor made up: every byte of one was taken from the free bytes, or from
/// another permit, once.
pub struct Permit {
    region: Region,
    bytes: u64,
    owner: Owner,
    caller: Caller,
}

impl Permit {
    /// A permit over bytes that the ledger already counts for `owner`.
    pub(super) fn new(region: Region, bytes: u64, owner: Owner, caller: Caller) -> Self {
        Self {
            region,
            bytes,
            owner,
            caller,
        }
    }

    /// Bytes held.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// For whom.
    pub const fn owner(&self) -> Owner {
        self.owner
    }

    /// Of which region.
    pub const fn region(&self) -> &Region {
        &self.region
    }

    /// Takes `bytes` out into a permit of the same owner; `None`, without effect, if it has fewer.
    pub fn split(&mut self, bytes: u64) -> Option<Self> {
        self.bytes = self.bytes.checked_sub(bytes)?;
        let region = self.region.clone();
        Some(Self::new(region, bytes, self.owner, self.caller))
    }

    /// Adds the other permit's bytes, which from now on count for this one's owner.
    ///
    /// Both must be of one region. If they are not, the other's bytes go back to its own region.
    pub fn absorb(&mut self, mut other: Self) {
        if !self.region.is_same(&other.region) {
            debug_assert!(false, "permits of two regions");
            return;
        }
        let bytes = std::mem::take(&mut other.bytes);
        self.region.hand_over(bytes, other.owner, self.owner);
        self.bytes += bytes;
    }

    /// Changes the owner, for all bytes at once.
    pub fn move_to(&mut self, owner: Owner) {
        self.region.hand_over(self.bytes, self.owner, owner);
        self.owner = owner;
    }

    /// Turns [`Region::chunk_bytes`] of this permit into an empty chunk; `None` if it has fewer. The
    /// second part holds the chunk's bytes and must live as long as the chunk.
    pub fn chunk(&mut self) -> Option<(ChunkWriter, Self)> {
        let part = self.split(u64::from(self.region.chunk_bytes()))?;
        Some((self.region.take_chunk(self.caller), part))
    }

    /// Turns bytes of this permit into `len` zeroed atomic words; `None` if it has too few. The
    /// second part holds their bytes and must live as long as they do.
    pub fn words<W: Word>(&mut self, len: usize) -> Option<(Words<W>, Self)> {
        let part = self.split(W::bytes_of(len))?;
        Some((self.region.take_words(len, self.caller), part))
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.region.give(self.bytes, self.owner);
        }
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Permit({} bytes, {})", self.bytes, self.owner.name())
    }
}
