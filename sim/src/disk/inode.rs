//! One file's two truths: the bytes a process sees and the bytes the device has.
//!
//! `live` is the page cache, `durable` the device; `pending` are the changes, oldest first, that the
//! device may have got in part. As long as no sync failed, `live` = `durable` + `pending`; then a
//! sync simply makes `durable` a copy of `live`. A sync that fails breaks this: the kernel marks the
//! pages clean, so what was lost is in nobody's queue any more (`diverged`). From then on a sync
//! writes only the pages that were touched again, whole, as a kernel does.

use std::ops::Range;
use std::sync::Arc;

use super::content::Content;
use super::crash::{self, Survivors};
use crate::choices::SmallRandom;

/// The unit in which a page cache writes back.
const CACHE_PAGE_BYTES: u64 = 4096;

/// How a sync fails. Linux has all four.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SyncFailure {
    /// The error is returned; pages are clean, the cache shows the new bytes, the device lacks some
    /// of them, and the next sync succeeds (ext4 ordered, xfs).
    KeepNewClean,
    /// The same loss, but this sync returns success and the next one the error (ext4 data=journal).
    LateReport,
    /// The error is returned and the cache goes back to what the device has (btrfs).
    RevertToOld,
    /// The error is returned and the file system goes read-only (remount-ro, shutdown).
    ShutDown,
}

/// How unkind the disk is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Strength {
    /// What ext4, xfs and btrfs are known to do.
    #[default]
    Honest,
    /// Whatever no standard forbids: no order without a sync, every operation split.
    Adversarial,
}

/// A change that the device may not have yet.
#[derive(Clone, Debug)]
pub enum Change {
    /// Bytes at an offset.
    Write {
        /// Where they start.
        offset: u64,
        /// What was written.
        bytes: Arc<[u8]>,
    },
    /// The length was set.
    Length(u64),
}

/// A change with its place in the disk's history.
#[derive(Clone, Debug)]
pub struct Pending {
    /// Orders the changes of all files and names.
    pub stamp: u64,
    /// What happened.
    pub change: Change,
}

/// A file, whatever its names.
#[derive(Clone, Debug, Default)]
pub struct Inode {
    /// What a process reads.
    pub live: Content,
    /// What the device holds for certain.
    pub durable: Content,
    /// What the device may hold in part, oldest first.
    pub pending: Vec<Pending>,
    /// Whether a failed sync lost changes.
    pub diverged: bool,
    /// Counts failed write-backs; a description that has seen fewer gets the error once.
    pub errors: u32,
    /// Whether anybody was told of the newest one.
    pub error_told: bool,
    /// Space taken on the device.
    pub reserved_bytes: u64,
    /// Ranges that can't be read until they are written again.
    pub unreadable: Vec<Range<u64>>,
    /// Whether the live directory has a name for it.
    pub named: bool,
}

impl Inode {
    /// Writes bytes that may be lost.
    pub fn write(&mut self, stamp: u64, bytes: &[u8], offset: u64) {
        if bytes.is_empty() {
            return;
        }
        self.live.write(bytes, offset);
        if !self.unreadable.is_empty() {
            let written = offset..offset + bytes.len() as u64;
            self.unreadable
                .retain(|bad| bad.end <= written.start || written.end <= bad.start);
        }
        let bytes = Arc::from(bytes);
        self.pending.push(Pending {
            stamp,
            change: Change::Write { offset, bytes },
        });
    }

    /// Sets a length that may be lost.
    pub fn set_len(&mut self, stamp: u64, length: u64) {
        if length != self.live.len() {
            self.live.set_len(length);
            self.pending.push(Pending {
                stamp,
                change: Change::Length(length),
            });
        }
    }

    /// A sync that works.
    pub fn sync(&mut self) {
        if self.diverged {
            self.write_back_touched_pages();
        } else if !self.durable.same_version(&self.live) {
            self.durable = self.live.clone();
        }
        self.pending.clear();
    }

    /// A sync that dies under way: the device has the first changes and may get the rest.
    pub fn sync_in_part(&mut self, random: &mut SmallRandom) {
        let count = random.below(self.pending.len() as u64 + 1) as usize;
        let rest = self.pending.split_off(count);
        for pending in self.pending.drain(..) {
            apply(&mut self.durable, &pending.change);
        }
        self.pending = rest;
        // The rest is no longer a plain difference if a failed sync lies behind, and need not be.
    }

    /// A sync that fails in one of its forms; whether the caller learns of it is the disk's affair.
    pub fn sync_failed(&mut self, form: SyncFailure, strength: Strength, random: &mut SmallRandom) {
        self.durable = crash::failed_write_back(self, strength, random);
        self.pending.clear();
        self.errors += 1;
        self.error_told = false;
        if form == SyncFailure::RevertToOld {
            self.live = self.durable.clone();
            self.diverged = false;
        } else {
            self.diverged = true;
        }
    }

    /// The file after a loss of power.
    pub fn after_power_loss(&self, id: u32, survivors: &Survivors, cut: Option<u64>) -> Self {
        let content = crash::survivors_of(self, id, survivors, cut);
        Self {
            live: content.clone(),
            durable: content,
            reserved_bytes: self.reserved_bytes,
            unreadable: self.unreadable.clone(),
            named: true,
            ..Self::default()
        }
    }

    fn write_back_touched_pages(&mut self) {
        let mut length_changed = false;
        for pending in &self.pending {
            match &pending.change {
                Change::Write { offset, bytes } => {
                    let start = offset / CACHE_PAGE_BYTES * CACHE_PAGE_BYTES;
                    let end = (offset + bytes.len() as u64).next_multiple_of(CACHE_PAGE_BYTES);
                    let durable_length = self.durable.len();
                    self.durable.copy_from(&self.live, start, end - start);
                    length_changed |= self.durable.len() != durable_length;
                }
                Change::Length(length) => {
                    self.durable.set_len(*length);
                    length_changed = true;
                }
            }
        }
        if length_changed {
            self.durable.set_len(self.live.len());
        }
    }
}

/// Applies a change completely.
pub fn apply(content: &mut Content, change: &Change) {
    match change {
        Change::Write { offset, bytes } => content.write(bytes, *offset),
        Change::Length(length) => content.set_len(*length),
    }
}
