//! Damage from outside: rot, latent sector errors, displaced blocks, files cut or gone.
//!
//! It hits the medium and, because a cache page is sooner or later read again, what processes see
//! too. It is sticky: reading twice gives the same wrong bytes, and writing a range heals it.

use std::ops::Range;

use sealstone::env::FileName;

use super::SimDisk;
use super::content::Content;
use super::state::State;

impl SimDisk {
    /// Flips bits of one byte.
    pub fn flip(&self, name: FileName, offset: u64, mask: u8) -> bool {
        self.damage(name, |content| content.flip(offset, mask))
    }

    /// Puts other bytes in a place.
    pub fn overwrite(&self, name: FileName, offset: u64, bytes: &[u8]) -> bool {
        self.damage(name, |content| {
            let room = content.len().saturating_sub(offset).min(bytes.len() as u64) as usize;
            content.write(&bytes[..room], offset);
        })
    }

    /// Repeats the block at `from` at `to`: what a misdirected write or a misdirected read shows.
    pub fn displace(&self, name: FileName, from: u64, to: u64, length: u64) -> bool {
        self.damage(name, |content| {
            let room = content.len().saturating_sub(from.max(to)).min(length) as usize;
            let mut block = vec![0; room];
            content.read(&mut block, from);
            content.write(&block, to);
        })
    }

    /// Cuts or extends a file.
    pub fn resize(&self, name: FileName, length: u64) -> bool {
        self.damage(name, |content| content.set_len(length))
    }

    /// Makes a range unreadable until it is written.
    pub fn spoil(&self, name: FileName, range: Range<u64>) -> bool {
        self.with_file(name, |state, id| {
            state.inode_mut(id).unreadable.push(range.clone())
        })
    }

    /// Takes a file away.
    pub fn remove(&self, name: FileName) -> bool {
        self.with_file(name, |state, _| {
            state.unlink(name);
            state.sync_names();
        })
    }

    /// Puts a block of an earlier state of the disk back: what a stale read shows. False if the file
    /// was not there then.
    pub fn make_stale(&self, earlier: &State, name: FileName, range: Range<u64>) -> bool {
        let Some(id) = earlier.find(name) else {
            return false;
        };
        let old = earlier.inode(id).live.clone();
        self.damage(name, |content| {
            let end = range.end.min(content.len());
            content.copy_from(&old, range.start, end.saturating_sub(range.start));
        })
    }

    fn damage(&self, name: FileName, change: impl Fn(&mut Content)) -> bool {
        self.with_file(name, |state, id| {
            let inode = state.inode_mut(id);
            change(&mut inode.live);
            change(&mut inode.durable);
        })
    }

    fn with_file(&self, name: FileName, change: impl FnOnce(&mut State, u32)) -> bool {
        let mut core = self.core.lock();
        let Some(id) = core.state.find(name) else {
            return false;
        };
        change(&mut core.state, id);
        true
    }
}
