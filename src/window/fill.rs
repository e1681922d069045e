//! Filling the table from below: generations that were sealed before the store was opened, one after the
//! other, the newest first.
//!
//! The entries of the next older generation are stored while nobody trusts them; then `lo` falls to it. The
//! first generation that leaves for want of room ends this for good.

use super::Window;
use crate::index::{Entry, PackedEntry};
use crate::types::KeyspaceKind;

impl Window {
    /// The generation below which the next one to fill in is, if there may be one.
    pub fn fills_below(&self) -> Option<u64> {
        let writer = self.writer.lock();
        writer.fills.then_some(writer.lo)
    }

    /// No older generation is filled in any more. What of one was stored is forgotten.
    pub fn end_filling(&self) {
        let mut writer = self.writer.lock();
        writer.fills = false;
        while writer.floor < writer.lo {
            writer.floor += 1;
            let left = u64::from(writer.live.pop_front().unwrap_or(0));
            writer.live_sum -= left;
        }
    }

    /// Begins with a generation older than those covered, whose segments have so many records and tails
    /// from `tail_offset` on at most. False, and the end of filling, if it does not fit.
    pub fn begin_fill(&self, generation: u64, records: u64, tail_offset: u64) -> bool {
        let mut writer = self.writer.lock();
        let fits = writer.live_sum + records <= self.entries_max()
            && self.shape.fits(tail_offset)
            // One more: the generation that is being flushed.
            && writer.hi.saturating_add(1).saturating_sub(generation) < self.shape.generations_max();
        if !writer.fills || !fits || generation > writer.floor {
            writer.fills = false;
            return false;
        }
        while writer.floor > generation {
            writer.floor -= 1;
            writer.live.push_front(0);
        }
        true
    }

    /// Stores entries of the generation begun with. False once a newer one needed the room.
    pub fn fill(&self, generation: u64, kind: KeyspaceKind, entries: &[PackedEntry]) -> bool {
        let mut writer = self.writer.lock();
        if !writer.fills {
            return false;
        }
        for packed in entries {
            self.store(&mut writer, generation, kind, Entry::unpack(packed));
        }
        true
    }

    /// All entries of the generation were stored: it is covered from now on, if there is still room.
    pub fn publish_fill(&self, generation: u64) -> bool {
        let mut writer = self.writer.lock();
        if writer.fills {
            self.set_lo(&mut writer, generation);
        }
        writer.fills
    }
}
