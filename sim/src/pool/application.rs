//! The application's writes: two state trees, fast nodes, small stores, the commit.
//!
//! ```text
//! tree over 2N leaves, halved recursively; touched = union of the paths from the root to dirty leaves
//! emitted for each store: fast nodes (dirty leaves, in order), then touched nodes (children first,
//! numbered parents first); a write is cut when its keys and values reach 100,000 bytes
//! ```
//!
//! In the bank the dirty leaves are balance and denomination index of every sender and receiver, the
//! fee collector and one account more; in acc they are the senders' accounts and account numbers.

use super::workload::{Database, Key, Parameters, Set, Sink, Workload};
use crate::choices::SmallRandom;

/// A write is cut when it has that many bytes.
const WRITE_BYTES: u64 = 100_000;
/// Stores of the application that change by one set a block.
const SMALL_STORES: u32 = 15;
/// Accounts beside senders and receivers whose balance changes in each block.
const MODULE_ACCOUNTS: usize = 2;
/// The commit's record.
const COMMIT_BYTES: u32 = 1_500;

/// How the nodes of a tree look.
struct Layout {
    node_prefix: &'static str,
    fast_prefix: &'static str,
    internal_bytes: u32,
    /// Leaves below and from `accounts` on: (value of the node, key behind the fast prefix, value of
    /// the fast node).
    low: (u32, u16, u32),
    high: (u32, u16, u32),
    /// The first slot of its fast keys.
    slots_from: u32,
}

const BANK: Layout = Layout {
    node_prefix: "s/k:bank/s",
    fast_prefix: "s/k:bank/f",
    internal_bytes: 74,
    low: (43, 27, 15),
    high: (33, 28, 4),
    slots_from: 0,
};

const fn acc(accounts: u32) -> Layout {
    Layout {
        node_prefix: "s/k:acc/s",
        fast_prefix: "s/k:acc/f",
        internal_bytes: 68,
        low: (198, 21, 176),
        high: (33, 9, 23),
        slots_from: 2 * accounts,
    }
}

/// Nodes of a block, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TreeCounts {
    /// Inner nodes.
    pub internal: u64,
    /// Leaves, which have a fast node each.
    pub leaves: u64,
}

/// The application's generator.
#[derive(Debug)]
pub struct Application {
    accounts: u32,
    workload: Workload,
    /// Rank of each wallet's account among all addresses.
    positions: Vec<u32>,
    modules: [u32; MODULE_ACCOUNTS],
    cursor: u64,
    random: SmallRandom,
    bank_dirty: Vec<u32>,
    acc_dirty: Vec<u32>,
    unwritten_bytes: u64,
    /// Bank and acc, of the last block.
    pub counts: [TreeCounts; 2],
}

impl Application {
    /// The generator before the first block.
    pub fn new(parameters: &Parameters) -> Self {
        let mut random = SmallRandom::new(parameters.seed);
        let (accounts, wallets) = (parameters.accounts, parameters.wallets);
        let mut ranks: Vec<u32> = (0..accounts).collect();
        let drawn = (wallets as usize + MODULE_ACCOUNTS).min(ranks.len());
        for place in 0..drawn {
            let other = place + random.below((ranks.len() - place) as u64) as usize;
            ranks.swap(place, other);
        }
        let modules = [ranks[drawn - 2], ranks[drawn - 1]];
        ranks.truncate(wallets as usize);
        Self {
            accounts,
            workload: parameters.workload,
            positions: ranks,
            modules,
            cursor: 0,
            random,
            bank_dirty: Vec::new(),
            acc_dirty: Vec::new(),
            unwritten_bytes: 0,
            counts: Default::default(),
        }
    }

    /// How many slots its overwritten keys have.
    pub const fn slots(accounts: u32) -> u32 {
        4 * accounts + SMALL_STORES + 1
    }

    /// Writes the block with that many transactions.
    pub fn block(&mut self, height: u64, transactions: u64, sink: &mut impl Sink) {
        self.mark(transactions);
        let bank = std::mem::take(&mut self.bank_dirty);
        self.counts[0] = self.store(&BANK, height, &bank, sink);
        self.bank_dirty = bank;
        let acc_dirty = std::mem::take(&mut self.acc_dirty);
        let layout = acc(self.accounts);
        self.counts[1] = self.store(&layout, height, &acc_dirty, sink);
        self.acc_dirty = acc_dirty;
        for store in 0..SMALL_STORES {
            let key = Key::Named {
                prefix: "s/k:small",
                id: u64::from(store) << 48 | height,
                bytes: 13,
            };
            self.set(key, 40, None, sink);
            self.cut(sink, false);
        }
        let key = Key::Named {
            prefix: "s/",
            id: height,
            bytes: 8,
        };
        self.set(key, COMMIT_BYTES, None, sink);
        self.cut(sink, true);
    }

    /// Decides who sends and receives, and which leaves that changes.
    fn mark(&mut self, transactions: u64) {
        let wallets = self.positions.len() as u64;
        let half = self.accounts;
        self.bank_dirty.clear();
        self.acc_dirty.clear();
        for _ in 0..transactions {
            let sender = self.cursor % wallets;
            self.cursor += 1;
            let position = self.positions[sender as usize];
            self.acc_dirty.push(position);
            let number = half - wallets as u32 + sender as u32;
            self.acc_dirty.push(half + number);
            self.bank_dirty.push(position);
            match self.workload {
                Workload::PlainSend => {
                    let other = (sender + 1 + self.random.below(wallets - 1)) % wallets;
                    self.bank_dirty.push(self.positions[other as usize]);
                }
                Workload::SmallMultisend => {
                    self.bank_dirty.extend_from_slice(&self.positions[..2]);
                }
            }
        }
        self.bank_dirty.extend_from_slice(&self.modules);
        let balances = self.bank_dirty.len();
        for place in 0..balances {
            self.bank_dirty.push(half + self.bank_dirty[place]);
        }
        for dirty in [&mut self.bank_dirty, &mut self.acc_dirty] {
            dirty.sort_unstable();
            dirty.dedup();
        }
    }

    fn store(
        &mut self,
        layout: &Layout,
        height: u64,
        dirty: &[u32],
        sink: &mut impl Sink,
    ) -> TreeCounts {
        for &leaf in dirty {
            let (_, key_bytes, value_bytes) = self.leaf(layout, leaf);
            let key = Key::Named {
                prefix: layout.fast_prefix,
                id: u64::from(leaf),
                bytes: key_bytes,
            };
            self.set(key, value_bytes, Some(layout.slots_from + leaf), sink);
        }
        let mut walk = Walk {
            layout,
            height,
            nonce: 0,
            counts: TreeCounts::default(),
        };
        walk.node(self, 0, 2 * self.accounts, dirty, sink);
        self.cut(sink, false);
        walk.counts
    }

    const fn leaf(&self, layout: &Layout, leaf: u32) -> (u32, u16, u32) {
        if leaf < self.accounts {
            layout.low
        } else {
            layout.high
        }
    }

    fn set(&mut self, key: Key, value_bytes: u32, slot: Option<u32>, sink: &mut impl Sink) {
        let set = Set {
            database: Database::Application,
            key,
            value_bytes,
            slot,
        };
        sink.set(&set);
        self.unwritten_bytes += set.bytes();
        if self.unwritten_bytes >= WRITE_BYTES {
            self.cut(sink, false);
        }
    }

    fn cut(&mut self, sink: &mut impl Sink, synced: bool) {
        if self.unwritten_bytes > 0 {
            sink.write(Database::Application, synced);
            self.unwritten_bytes = 0;
        }
    }
}

struct Walk<'a> {
    layout: &'a Layout,
    height: u64,
    nonce: u32,
    counts: TreeCounts,
}

impl Walk<'_> {
    /// Everything dirty below the node over `len` leaves from `first` on: children first.
    fn node(
        &mut self,
        application: &mut Application,
        first: u32,
        len: u32,
        dirty: &[u32],
        sink: &mut impl Sink,
    ) {
        let Some(&leaf) = dirty.first() else {
            return;
        };
        let nonce = self.nonce;
        self.nonce += 1;
        let value_bytes = if len == 1 {
            self.counts.leaves += 1;
            application.leaf(self.layout, leaf).0
        } else {
            let left = len / 2;
            let middle = dirty.partition_point(|&leaf| leaf < first + left);
            let (low, high) = dirty.split_at(middle);
            self.node(application, first, left, low, sink);
            self.node(application, first + left, len - left, high, sink);
            self.counts.internal += 1;
            self.layout.internal_bytes
        };
        let key = Key::Node {
            prefix: self.layout.node_prefix,
            height: self.height,
            nonce,
        };
        application.set(key, value_bytes, None, sink);
    }
}
