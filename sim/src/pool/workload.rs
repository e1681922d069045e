//! What a chain's node writes: the two workloads, their parameters, and the form of one set.
//!
//! A set is a key, a value's length, and the database that it goes to. Keys can be spelled out as bytes
//! (unique where the chain's are unique, overwritten where the chain overwrites them), so the same
//! generator feeds the laboratory, which needs lengths alone, and a real store.
//!
//! Everything follows from the parameters; no clock, no map with an order of its own.

use std::io::Write;

use crate::choices::SmallRandom;

/// A database of the node; also who a slice of the pool belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Database {
    /// The application's state trees.
    Application,
    /// Blocks and the transactions' hashes.
    Blockstore,
    /// What the consensus engine keeps of each height.
    State,
    /// The index over attributes of transactions.
    TxIndex,
    /// Evidence of misbehaviour: written never, checkpointed all the same.
    Evidence,
    /// Metadata: as evidence.
    Metadata,
    /// No database: the micro-benchmark.
    Bench,
}

impl Database {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 7] = [
        Self::Application,
        Self::Blockstore,
        Self::State,
        Self::TxIndex,
        Self::Evidence,
        Self::Metadata,
        Self::Bench,
    ];

    /// The word for it in traces and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Application => "application",
            Self::Blockstore => "blockstore",
            Self::State => "state",
            Self::TxIndex => "tx_index",
            Self::Evidence => "evidence",
            Self::Metadata => "metadata",
            Self::Bench => "bench",
        }
    }

    /// The database of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.name() == name)
    }
}

/// What the transactions do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// One sender, one receiver, both any wallet.
    PlainSend,
    /// One sender, the same first two wallets as receivers.
    SmallMultisend,
}

impl Workload {
    /// Both.
    pub const ALL: [Self; 2] = [Self::PlainSend, Self::SmallMultisend];

    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::PlainSend => "plain-send",
            Self::SmallMultisend => "small-multisend",
        }
    }

    /// The workload of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.name() == name)
    }
}

/// The size of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// What the transactions do.
    pub workload: Workload,
    /// Decides accounts, receivers and lengths that vary.
    pub seed: u64,
    /// Blocks.
    pub blocks: u64,
    /// Transactions of all blocks together, spread as evenly as whole numbers go.
    pub transactions: u64,
    /// Accounts.
    pub accounts: u32,
    /// Those of them that send.
    pub wallets: u32,
    /// Time from block to block.
    pub block_ms: u64,
}

impl Parameters {
    /// The window that the field's report measured: its blocks, transactions and accounts.
    pub const fn measured(workload: Workload) -> Self {
        let (blocks, transactions, block_ms) = match workload {
            Workload::PlainSend => (878, 199_498, 397),
            Workload::SmallMultisend => (1024, 238_998, 396),
        };
        Self {
            workload,
            seed: 1,
            blocks,
            transactions,
            accounts: 105_000,
            wallets: 5_000,
            block_ms,
        }
    }

    /// A tenth of the measured size for each step of `scale`: 23 transactions a block, 10,500 accounts, 500
    /// wallets, the smallest that keeps the shape.
    pub const fn tenths(self, scale: u64, blocks: u64) -> Self {
        self.scaled(23 * scale, blocks)
    }

    /// Fewer transactions a block, accounts and wallets, together: the shape of the trees stays.
    /// `transactions_per_block` is what 230 becomes.
    pub const fn scaled(mut self, transactions_per_block: u64, blocks: u64) -> Self {
        self.accounts = (self.accounts as u64 * transactions_per_block / 230) as u32;
        self.wallets = (self.wallets as u64 * transactions_per_block / 230) as u32;
        self.blocks = blocks;
        self.transactions = transactions_per_block * blocks;
        self
    }

    /// How many transactions the block at `height` has; heights start with 1.
    pub const fn transactions_at(&self, height: u64) -> u64 {
        self.transactions * height / self.blocks - self.transactions * (height - 1) / self.blocks
    }
}

/// A key, as what it is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// A node of a state tree: version and number, 12 bytes, behind a prefix.
    Node {
        /// The tree's prefix.
        prefix: &'static str,
        /// The version.
        height: u64,
        /// The number within the version.
        nonce: u32,
    },
    /// A name with `bytes` bytes behind it that follow from `id`.
    Named {
        /// The name.
        prefix: &'static str,
        /// What makes it unique.
        id: u64,
        /// Bytes behind the name.
        bytes: u16,
    },
    /// An attribute of an event: `name/value/height/index$es$sequence`.
    Attribute {
        /// `type.attribute`.
        name: &'static str,
        /// What the value follows from.
        value: u64,
        /// Length of the value.
        value_bytes: u16,
        /// The block.
        height: u32,
        /// The transaction in its block.
        index: u16,
        /// The event in its transaction.
        sequence: u8,
    },
}

/// What an attribute's key has behind its name and value.
const ATTRIBUTE_TAIL_BYTES: usize = 19;

impl Key {
    /// Its length.
    pub const fn bytes(&self) -> usize {
        match self {
            Self::Node { prefix, .. } => prefix.len() + 12,
            Self::Named { prefix, bytes, .. } => prefix.len() + *bytes as usize,
            Self::Attribute {
                name, value_bytes, ..
            } => name.len() + *value_bytes as usize + ATTRIBUTE_TAIL_BYTES,
        }
    }

    /// Spells it out at the end of `out`.
    pub fn write(&self, out: &mut Vec<u8>) {
        match *self {
            Self::Node {
                prefix,
                height,
                nonce,
            } => {
                out.extend_from_slice(prefix.as_bytes());
                out.extend_from_slice(&height.to_be_bytes());
                out.extend_from_slice(&nonce.to_be_bytes());
            }
            Self::Named { prefix, id, bytes } => {
                out.extend_from_slice(prefix.as_bytes());
                spread(id, bytes, out);
            }
            Self::Attribute {
                name,
                value,
                value_bytes,
                height,
                index,
                sequence,
            } => {
                out.extend_from_slice(name.as_bytes());
                out.push(b'/');
                letters(value, value_bytes, out);
                let tail = format_args!("/{height:06}/{index:04}$es${sequence:02}");
                let written = out.write_fmt(tail);
                debug_assert!(written.is_ok(), "a vector takes everything");
            }
        }
    }
}

/// `bytes` bytes that differ for different ids, if there is room for that: scattered ones, so that
/// neighbours are not neighbours, with the id itself at the end.
fn spread(id: u64, bytes: u16, out: &mut Vec<u8>) {
    let bytes = usize::from(bytes);
    let tail = id.to_be_bytes();
    let tail = &tail[tail.len().saturating_sub(bytes)..];
    let mut random = SmallRandom::new(id);
    let end = out.len() + bytes;
    while out.len() + tail.len() < end {
        out.push(random.draw() as u8);
    }
    out.extend_from_slice(tail);
}

/// Lower-case letters that follow from `value`.
fn letters(value: u64, bytes: u16, out: &mut Vec<u8>) {
    let mut random = SmallRandom::new(value);
    out.extend((0..bytes).map(|_| b'a' + random.below(26) as u8));
}

/// One set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Set {
    /// Where it goes.
    pub database: Database,
    /// The key.
    pub key: Key,
    /// Length of the value.
    pub value_bytes: u32,
    /// A small number for a key that is written again later, unique in its database; `None` for a key
    /// that is written once.
    pub slot: Option<u32>,
}

impl Set {
    /// Bytes of key and value.
    pub const fn bytes(&self) -> u64 {
        self.key.bytes() as u64 + self.value_bytes as u64
    }
}

/// Who takes what the generator makes.
pub trait Sink {
    /// One set.
    fn set(&mut self, set: &Set);

    /// The sets since the last call, all of one database, are one write.
    fn write(&mut self, database: Database, synced: bool);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_the_length_they_say() {
        let keys = [
            Key::Node {
                prefix: "s/k:bank/s",
                height: 7,
                nonce: 9,
            },
            Key::Named {
                prefix: "blockStore",
                id: 3,
                bytes: 0,
            },
            Key::Named {
                prefix: "f",
                id: 3,
                bytes: 27,
            },
            Key::Attribute {
                name: "tx.fee",
                value: 1,
                value_bytes: 9,
                height: 878,
                index: 229,
                sequence: 27,
            },
        ];
        for key in keys {
            let mut out = Vec::new();
            key.write(&mut out);
            assert_eq!(out.len(), key.bytes(), "{key:?}");
        }
    }

    #[test]
    fn blocks_share_out_all_transactions() {
        for workload in Workload::ALL {
            let parameters = Parameters::measured(workload);
            let counts: Vec<u64> = (1..=parameters.blocks)
                .map(|height| parameters.transactions_at(height))
                .collect();
            assert_eq!(counts.iter().sum::<u64>(), parameters.transactions);
            let spread = counts.iter().max().unwrap() - counts.iter().min().unwrap();
            assert_eq!(spread, 1, "{workload:?}");
        }
    }
}
