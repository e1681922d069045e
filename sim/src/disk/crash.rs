//! What is left after a loss of power.
//!
//! The device has the durable bytes and, of the pending changes, a part. A write is split at sector
//! boundaries; its effect on the length is a part of its own. What may go missing:
//!
//! * honest: a sector holds the state after some number of the writes that touched it (the cache page
//!   went out at some moment); lengths change in order. Sectors are independent of each other, of the
//!   length, and of other files.
//! * adversarial: each part on its own, also within one sector; a truncation may lose its length or
//!   its zeros alone.
//!
//! Where the length survived and the data did not, grown space holds zeros or, if asked, garbage.
//! [`Order`] can demand more: that a file's changes, or the whole disk's, survive as a prefix.

use std::collections::BTreeMap;

use super::content::Content;
use super::inode::{Change, Inode, Strength, apply};
use crate::choices::SmallRandom;

/// How a life ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// Power is lost: the cache is gone.
    Power(Survivors),
    /// The process dies: the cache stays, and stays as volatile as it was.
    Kill,
}

/// How much of what is pending survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// Nothing.
    Nothing,
    /// All.
    Everything,
    /// What this seed says.
    Seeded(u64),
    /// Of the pending things in the order of [`super::state::State::pending_things`], those whose bit
    /// is set; a file's changes all or none.
    Mask(u64),
}

/// What orders the survivors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Nothing does.
    AnySubset,
    /// Of each file, and of the directory, the first changes survive.
    PrefixPerFile,
    /// The first changes of the whole disk survive.
    PrefixGlobal,
}

/// The choice of survivors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Survivors {
    /// How much.
    pub keep: Keep,
    /// In what order.
    pub order: Order,
    /// The unit of a torn write, in bytes: 512 or 4,096.
    pub sector_bytes: u32,
    /// Whether grown space without its data holds garbage instead of zeros.
    pub garbage: bool,
    /// How unkind.
    pub strength: Strength,
}

impl Survivors {
    /// Nothing of what is pending.
    pub const NOTHING: Self = Self::plain(Keep::Nothing);
    /// All of what is pending.
    pub const EVERYTHING: Self = Self::plain(Keep::Everything);

    /// Any subset of 512-byte sectors, with garbage every other time.
    pub const fn seeded(seed: u64) -> Self {
        let mut survivors = Self::plain(Keep::Seeded(seed));
        survivors.garbage = seed % 2 == 1;
        survivors
    }

    const fn plain(keep: Keep) -> Self {
        Self {
            keep,
            order: Order::AnySubset,
            sector_bytes: 512,
            garbage: false,
            strength: Strength::Honest,
        }
    }

    /// The generator for one file (or the directory, under its own id).
    pub(super) fn random(&self, id: u64) -> SmallRandom {
        let seed = match self.keep {
            Keep::Seeded(seed) => seed,
            _ => 0,
        };
        SmallRandom::new(seed ^ (id + 1).wrapping_mul(0xD6E8_FEB8_6659_FD93))
    }
}

/// How willing a file is to keep what is pending: all-or-nothing and everything between are each
/// common, or two files would hardly ever disagree completely.
#[derive(Clone, Copy)]
struct Bias(u64);

impl Bias {
    fn draw(random: &mut SmallRandom) -> Self {
        Self(random.below(5))
    }

    fn keeps(self, random: &mut SmallRandom) -> bool {
        random.chance(self.0, 4)
    }

    /// How many of `total` ordered changes are kept.
    fn count(self, random: &mut SmallRandom, total: u64) -> u64 {
        match self.0 {
            0 => 0,
            4 => total,
            _ if random.chance(1, 2) => random.below(total + 1),
            _ if self.keeps(random) => total,
            _ => 0,
        }
    }
}

/// The bytes of a file after a loss of power. `cut` is the stamp before which everything survives,
/// under [`Order::PrefixGlobal`].
pub fn survivors_of(inode: &Inode, id: u32, survivors: &Survivors, cut: Option<u64>) -> Content {
    match survivors.keep {
        Keep::Nothing => return inode.durable.clone(),
        Keep::Everything => {
            let mut inode = inode.clone();
            inode.sync();
            return inode.durable;
        }
        Keep::Mask(_) => return inode.durable.clone(),
        Keep::Seeded(_) if inode.pending.is_empty() => return inode.durable.clone(),
        Keep::Seeded(_) => {}
    }
    let mut random = survivors.random(u64::from(id));
    match (survivors.order, cut) {
        (Order::PrefixGlobal, Some(cut)) => {
            let count = inode.pending.partition_point(|pending| pending.stamp < cut);
            let torn = inode.pending.get(count).is_some_and(|p| p.stamp == cut);
            prefix(inode, count, torn, survivors, &mut random)
        }
        (Order::AnySubset, _) => subset(inode, survivors, &mut random),
        _ => {
            let count = random.below(inode.pending.len() as u64 + 1) as usize;
            prefix(inode, count, true, survivors, &mut random)
        }
    }
}

/// The device's bytes after a write-back that failed: lengths are metadata and, on an honest disk,
/// go out on their own.
pub fn failed_write_back(inode: &Inode, strength: Strength, random: &mut SmallRandom) -> Content {
    let survivors = Survivors {
        keep: Keep::Seeded(0),
        order: Order::AnySubset,
        sector_bytes: 4096,
        garbage: false,
        strength,
    };
    let mut parts = Parts::choose(inode, &survivors, random);
    if strength == Strength::Honest {
        parts.lengths_kept = u64::MAX;
    }
    parts.build(inode, &survivors, random)
}

/// The first `count` changes, and a part of the next if `torn`.
fn prefix(
    inode: &Inode,
    count: usize,
    torn: bool,
    survivors: &Survivors,
    random: &mut SmallRandom,
) -> Content {
    let mut base = inode.clone();
    let rest = base.pending.split_off(count);
    for pending in base.pending.drain(..) {
        apply(&mut base.durable, &pending.change);
    }
    if !torn {
        return base.durable;
    }
    base.pending.extend(rest.into_iter().next());
    subset(&base, survivors, random)
}

fn subset(inode: &Inode, survivors: &Survivors, random: &mut SmallRandom) -> Content {
    Parts::choose(inode, survivors, random).build(inode, survivors, random)
}

/// The sectors of a write: number and the range of the write's bytes in it.
fn sectors(
    offset: u64,
    length: usize,
    sector_bytes: u32,
) -> impl Iterator<Item = (u64, std::ops::Range<usize>)> {
    let unit = u64::from(sector_bytes);
    let end = offset + length as u64;
    (offset / unit..end.div_ceil(unit)).map(move |sector| {
        let start = (sector * unit).max(offset) - offset;
        let stop = ((sector + 1) * unit).min(end) - offset;
        (sector, start as usize..stop as usize)
    })
}

/// Which parts of the pending changes survive.
struct Parts {
    bias: Bias,
    /// Honest: per sector, how many of the writes that touched it.
    sectors_kept: BTreeMap<u64, u64>,
    /// Honest: how many of the changes of the length.
    lengths_kept: u64,
}

impl Parts {
    fn choose(inode: &Inode, survivors: &Survivors, random: &mut SmallRandom) -> Self {
        let bias = Bias::draw(random);
        let mut parts = Self {
            bias,
            sectors_kept: BTreeMap::new(),
            lengths_kept: 0,
        };
        if survivors.strength == Strength::Adversarial {
            return parts;
        }
        let (mut lengths, mut length) = (0, inode.durable.len());
        for pending in &inode.pending {
            match &pending.change {
                Change::Write { offset, bytes } => {
                    for (sector, _) in sectors(*offset, bytes.len(), survivors.sector_bytes) {
                        *parts.sectors_kept.entry(sector).or_default() += 1;
                    }
                    let end = offset + bytes.len() as u64;
                    lengths += u64::from(end > length);
                    length = length.max(end);
                }
                Change::Length(new) => {
                    lengths += 1;
                    length = *new;
                }
            }
        }
        for count in parts.sectors_kept.values_mut() {
            *count = bias.count(random, *count);
        }
        parts.lengths_kept = bias.count(random, lengths);
        parts
    }

    fn build(mut self, inode: &Inode, survivors: &Survivors, random: &mut SmallRandom) -> Content {
        let old_length = inode.durable.len();
        // The device's blocks, whatever the length says; cut to the length at the end.
        let mut blocks = inode.durable.clone();
        let (mut length, mut issued_length) = (old_length, old_length);
        for pending in &inode.pending {
            match &pending.change {
                Change::Write { offset, bytes } => {
                    for (sector, range) in sectors(*offset, bytes.len(), survivors.sector_bytes) {
                        let at = offset + range.start as u64;
                        if self.keeps_sector(sector, survivors, random) {
                            blocks.write(&bytes[range], at);
                        } else if survivors.garbage && at >= old_length && blocks.len() <= at {
                            let mut rubbish = vec![0; range.len()];
                            random.fill(&mut rubbish);
                            blocks.write(&rubbish, at);
                        }
                    }
                    let end = offset + bytes.len() as u64;
                    if end > issued_length {
                        issued_length = end;
                        if self.keeps_length(survivors, random) {
                            length = length.max(end);
                        }
                    }
                }
                Change::Length(new) => {
                    issued_length = *new;
                    let kept = self.keeps_length(survivors, random);
                    let split = survivors.strength == Strength::Adversarial;
                    let zeros = if split { self.bias.keeps(random) } else { kept };
                    if zeros && *new < blocks.len() {
                        blocks.set_len(*new);
                    }
                    if kept {
                        length = *new;
                    }
                }
            }
        }
        blocks.set_len(length);
        blocks
    }

    fn keeps_sector(
        &mut self,
        sector: u64,
        survivors: &Survivors,
        random: &mut SmallRandom,
    ) -> bool {
        if survivors.strength == Strength::Adversarial {
            return self.bias.keeps(random);
        }
        match self.sectors_kept.get_mut(&sector) {
            Some(left) if *left > 0 => {
                *left -= 1;
                true
            }
            _ => false,
        }
    }

    fn keeps_length(&mut self, survivors: &Survivors, random: &mut SmallRandom) -> bool {
        if survivors.strength == Strength::Adversarial {
            return self.bias.keeps(random);
        }
        let kept = self.lengths_kept > 0;
        self.lengths_kept = self.lengths_kept.saturating_sub(1);
        kept
    }
}
