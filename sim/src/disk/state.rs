//! The whole disk at one moment: files, names, and the changes the device may lack.
//!
//! ```text
//! live names    -> inode <- durable names
//!     ^ pending name changes ^
//! ```
//! Names point to inodes, never to paths, so that renaming or unlinking an open file works as it
//! does on a disk. A state is a value: cloning shares everything, and a crash makes a new state from
//! an old one without touching it. That is what lets one run of a workload stand for a crash at each
//! of its calls.

use std::collections::BTreeMap;
use std::sync::Arc;

use sealstone::env::FileName;

use super::crash::{Crash, Keep, Order, Survivors};
use super::inode::Inode;
use crate::choices::SmallRandom;

/// The unit in which space is taken.
pub const BLOCK_BYTES: u64 = 4096;

/// A change of names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameChange {
    /// A new name for an inode.
    Create(FileName, u32),
    /// An inode's name changes.
    Rename(FileName, FileName, u32),
    /// A name goes.
    Unlink(FileName),
}

/// A name change with its place in the disk's history.
#[derive(Clone, Copy, Debug)]
pub struct PendingName {
    stamp: u64,
    change: NameChange,
}

type Names = BTreeMap<FileName, u32>;

/// A disk, frozen.
#[derive(Clone, Debug, Default)]
pub struct State {
    /// Whether the directory exists (its own name is durable as soon as it does).
    pub root: bool,
    /// The file system refuses changes after a failure.
    pub shut_down: bool,
    /// Space taken, in bytes.
    pub used_bytes: u64,
    inodes: BTreeMap<u32, Arc<Inode>>,
    next_inode: u32,
    live: Arc<Names>,
    durable: Arc<Names>,
    pending: Vec<PendingName>,
    stamp: u64,
}

impl State {
    /// Names as a process sees them.
    pub fn names(&self) -> &Names {
        &self.live
    }

    /// Names that are certain to survive.
    pub fn durable_names(&self) -> &Names {
        &self.durable
    }

    /// The inode behind a live name.
    pub fn find(&self, name: FileName) -> Option<u32> {
        self.live.get(&name).copied()
    }

    /// A file. A number that is not there means a fault of the simulator.
    pub fn inode(&self, id: u32) -> &Inode {
        &self.inodes[&id]
    }

    /// A file, to be changed.
    pub fn inode_mut(&mut self, id: u32) -> &mut Inode {
        Arc::make_mut(
            self.inodes
                .get_mut(&id)
                .expect("inodes outlive their handles"),
        )
    }

    /// All files.
    pub fn inodes(&self) -> impl Iterator<Item = (u32, &Inode)> {
        self.inodes.iter().map(|(id, inode)| (*id, &**inode))
    }

    /// Whether a crash could lose or keep anything.
    pub fn is_settled(&self) -> bool {
        let settled = |inode: &Inode| inode.pending.is_empty() && !inode.diverged;
        self.pending.is_empty() && self.inodes.values().all(|inode| settled(inode))
    }

    /// Whether what is certain to survive is one and the same in both.
    pub fn same_durable(&self, other: &Self) -> bool {
        self.root == other.root
            && (Arc::ptr_eq(&self.durable, &other.durable) || self.durable == other.durable)
            && self.durable.values().all(|id| {
                let both = (self.inodes.get(id), other.inodes.get(id));
                matches!(both, (Some(a), Some(b)) if a.durable.same_version(&b.durable))
            })
    }

    /// The stamp for the next change.
    pub fn next_stamp(&mut self) -> u64 {
        self.stamp += 1;
        self.stamp
    }

    /// Takes space up to `end` of a file, as far as `capacity_bytes` allows: returns how far it goes.
    pub fn reserve(&mut self, id: u32, end: u64, capacity_bytes: u64) -> u64 {
        let reserved = self.inode(id).reserved_bytes;
        let wanted = end.next_multiple_of(BLOCK_BYTES);
        if wanted <= reserved {
            return end;
        }
        let room = capacity_bytes.saturating_sub(self.used_bytes) / BLOCK_BYTES * BLOCK_BYTES;
        let granted = wanted.min(reserved.saturating_add(room));
        self.used_bytes += granted - reserved;
        self.inode_mut(id).reserved_bytes = granted;
        granted.min(end)
    }

    /// Gives space past `length` of a file back.
    pub fn release_past(&mut self, id: u32, length: u64) {
        let reserved = self.inode(id).reserved_bytes;
        let kept = length.next_multiple_of(BLOCK_BYTES).min(reserved);
        if kept < reserved {
            self.used_bytes -= reserved - kept;
            self.inode_mut(id).reserved_bytes = kept;
        }
    }

    /// A new empty file of that name.
    pub fn create(&mut self, name: FileName) -> u32 {
        let id = self.next_inode;
        self.next_inode += 1;
        self.inodes.insert(
            id,
            Arc::new(Inode {
                named: true,
                ..Inode::default()
            }),
        );
        self.change(NameChange::Create(name, id));
        id
    }

    /// Renames, replacing `to`. Returns the inode that lost its name.
    pub fn rename(&mut self, from: FileName, to: FileName, id: u32) -> Option<u32> {
        let replaced = self.find(to).filter(|replaced| *replaced != id);
        if let Some(replaced) = replaced {
            self.inode_mut(replaced).named = false;
        }
        self.change(NameChange::Rename(from, to, id));
        replaced
    }

    /// Removes a name. Returns the inode that lost it.
    pub fn unlink(&mut self, name: FileName) -> Option<u32> {
        let id = self.find(name)?;
        self.inode_mut(id).named = false;
        self.change(NameChange::Unlink(name));
        Some(id)
    }

    fn change(&mut self, change: NameChange) {
        apply(Arc::make_mut(&mut self.live), change);
        let stamp = self.next_stamp();
        self.pending.push(PendingName { stamp, change });
    }

    /// Makes all names durable.
    pub fn sync_names(&mut self) {
        self.durable = Arc::clone(&self.live);
        self.pending.clear();
    }

    /// Makes the first name changes durable.
    pub fn sync_names_in_part(&mut self, random: &mut SmallRandom) {
        let count = random.below(self.pending.len() as u64 + 1) as usize;
        let durable = Arc::make_mut(&mut self.durable);
        for pending in self.pending.drain(..count) {
            apply(durable, pending.change);
        }
    }

    /// The space of a file without name or handle is free at once, whatever a crash brings back.
    pub fn free_space_of(&mut self, id: u32) {
        if self.inodes.contains_key(&id) {
            self.release_past(id, 0);
        }
    }

    /// Forgets a file that neither a name nor a crash can lead to. The caller knows of no handle.
    pub fn forget(&mut self, id: u32) {
        let names = |pending: &PendingName| match pending.change {
            NameChange::Create(_, inode) | NameChange::Rename(_, _, inode) => inode == id,
            NameChange::Unlink(_) => false,
        };
        let gone = self.inodes.get(&id).is_some_and(|inode| !inode.named);
        if gone
            && !self.pending.iter().any(names)
            && !self.durable.values().any(|inode| *inode == id)
        {
            self.inodes.remove(&id);
        }
    }

    /// How many things a crash may lose or keep: name changes, then files with changed bytes.
    pub fn pending_things(&self) -> u32 {
        let files = self.inodes.values().filter(|i| !i.pending.is_empty());
        (self.pending.len() + files.count()) as u32
    }

    /// Whether a mask keeps the pending bytes of a file.
    fn mask_keeps(&self, mask: u64, id: u32) -> bool {
        let before = self.inodes.range(..id);
        let before = before
            .filter(|(_, inode)| !inode.pending.is_empty())
            .count();
        let bit = self.pending.len() + before;
        bit < 64 && mask >> bit & 1 == 1
    }

    /// The disk as the next life finds it.
    pub fn after(&self, crash: &Crash) -> Self {
        match crash {
            Crash::Kill => self.after_kill(),
            Crash::Power(survivors) => self.after_power_loss(survivors),
        }
    }

    fn after_kill(&self) -> Self {
        let mut state = self.clone();
        let unnamed: Vec<u32> = self
            .inodes()
            .filter(|(_, inode)| !inode.named)
            .map(|(id, _)| id)
            .collect();
        for id in unnamed {
            state.free_space_of(id);
            state.forget(id);
        }
        state
    }

    fn after_power_loss(&self, survivors: &Survivors) -> Self {
        let mut random = survivors.random(u64::MAX - 1);
        let cut = (survivors.order == Order::PrefixGlobal).then(|| self.draw_cut(&mut random));
        let names = self.surviving_names(survivors, cut, &mut random);
        let mut inodes = BTreeMap::new();
        let mut used_bytes = 0;
        for id in names.values() {
            let mut survivors = *survivors;
            if let Keep::Mask(mask) = survivors.keep {
                survivors.keep = match self.mask_keeps(mask, *id) {
                    true => Keep::Everything,
                    false => Keep::Nothing,
                };
            }
            let mut inode = self.inode(*id).after_power_loss(*id, &survivors, cut);
            let blocks = inode.live.len().next_multiple_of(BLOCK_BYTES);
            // A sparse file takes less than its length says.
            inode.reserved_bytes = inode.reserved_bytes.min(blocks);
            used_bytes += inode.reserved_bytes;
            inodes.insert(*id, Arc::new(inode));
        }
        let names = Arc::new(names);
        Self {
            root: self.root,
            shut_down: false,
            used_bytes,
            inodes,
            next_inode: self.next_inode,
            live: Arc::clone(&names),
            durable: names,
            pending: Vec::new(),
            stamp: self.stamp,
        }
    }

    /// A stamp of something pending, or one past all.
    fn draw_cut(&self, random: &mut SmallRandom) -> u64 {
        let of_names = self.pending.iter().map(|pending| pending.stamp);
        let of_files = self
            .inodes
            .values()
            .flat_map(|inode| inode.pending.iter().map(|p| p.stamp));
        let stamps: Vec<u64> = of_names.chain(of_files).collect();
        let chosen = random.below(stamps.len() as u64 + 1) as usize;
        stamps.get(chosen).copied().unwrap_or(u64::MAX)
    }

    fn surviving_names(
        &self,
        survivors: &Survivors,
        cut: Option<u64>,
        random: &mut SmallRandom,
    ) -> Names {
        let mut names = Names::clone(&self.durable);
        let bias = random.below(5);
        let length = match (survivors.keep, survivors.order) {
            (Keep::Seeded(_), Order::PrefixPerFile) => {
                random.below(self.pending.len() as u64 + 1) as usize
            }
            _ => self.pending.len(),
        };
        for (bit, pending) in self.pending[..length].iter().enumerate() {
            let kept = match (survivors.keep, survivors.order) {
                (Keep::Nothing, _) => false,
                (Keep::Mask(mask), _) => bit < 64 && mask >> bit & 1 == 1,
                (Keep::Everything, _) | (Keep::Seeded(_), Order::PrefixPerFile) => true,
                (Keep::Seeded(_), Order::PrefixGlobal) => cut.is_none_or(|cut| pending.stamp < cut),
                (Keep::Seeded(_), Order::AnySubset) => random.chance(bias, 4),
            };
            if kept {
                apply(&mut names, pending.change);
            }
        }
        names
    }
}

/// A rename that survives without the creation before it still gives the file its new name.
fn apply(names: &mut Names, change: NameChange) {
    match change {
        NameChange::Create(name, id) => {
            names.insert(name, id);
        }
        NameChange::Rename(from, to, id) => {
            if names.get(&from) == Some(&id) {
                names.remove(&from);
            }
            names.insert(to, id);
        }
        NameChange::Unlink(name) => {
            names.remove(&name);
        }
    }
}
