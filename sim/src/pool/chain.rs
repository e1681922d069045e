//! A node's writes block by block: application, transaction index, blockstore, state.
//!
//! ```text
//! tx_index     28 or 35 attributes, one height and one hash for each transaction in one synced write,
//!              25 sets of the block in another
//! blockstore   a hash for each transaction in one synced write, the block's keys and parts in another
//! state        the response to the block, set twice, synced; three small sets
//! ```
//!
//! Attributes come in the order in which the chain's events list them. Sizes of the responses, of the
//! block and of what the index keeps of a transaction are estimates of the specification.

use super::application::Application;
use super::workload::{Database, Key, Parameters, Set, Sink, Workload};
use crate::choices::SmallRandom;

/// An address in text.
const ADDRESS: u16 = 45;
/// `7500stake`.
const FEE: u16 = 9;
/// An index or a height of one digit.
const DIGIT: u16 = 1;
/// A part of a block.
const PART_BYTES: u32 = 64 << 10;
/// Sets of the index that belong to the block, not to a transaction.
const BLOCK_EVENTS: u16 = 25;
/// The consensus engine's record of what the application answered.
const RESPONSE_BYTES: u32 = 300_000;

/// The attributes that every transaction has: name, length of the value.
const COMMON: [(&str, u16); 16] = [
    ("coin_spent.spender", ADDRESS),
    ("coin_spent.amount", FEE),
    ("coin_received.receiver", ADDRESS),
    ("coin_received.amount", FEE),
    ("transfer.recipient", ADDRESS),
    ("transfer.sender", ADDRESS),
    ("transfer.amount", FEE),
    ("message.sender", ADDRESS),
    ("tx.fee", FEE),
    ("tx.fee_payer", ADDRESS),
    ("tx.acc_seq", ADDRESS + 3),
    ("tx.signature", 88),
    ("message.action", 28),
    ("message.sender", ADDRESS),
    ("message.module", 4),
    ("message.msg_index", DIGIT),
];

/// What a transfer adds: `10stake`.
const PLAIN: [(&str, u16); 12] = [
    ("coin_spent.spender", ADDRESS),
    ("coin_spent.amount", 7),
    ("coin_spent.msg_index", DIGIT),
    ("coin_received.receiver", ADDRESS),
    ("coin_received.amount", 7),
    ("coin_received.msg_index", DIGIT),
    ("transfer.recipient", ADDRESS),
    ("transfer.sender", ADDRESS),
    ("transfer.amount", 7),
    ("transfer.msg_index", DIGIT),
    ("message.sender", ADDRESS),
    ("message.msg_index", DIGIT),
];

/// What a transfer to several adds once: `1000000stake`.
const SMALL: [(&str, u16); 5] = [
    ("coin_spent.spender", ADDRESS),
    ("coin_spent.amount", 12),
    ("coin_spent.msg_index", DIGIT),
    ("message.sender", ADDRESS),
    ("message.msg_index", DIGIT),
];

/// And for each receiver: `500000stake`.
const RECEIVER: [(&str, u16); 7] = [
    ("coin_received.receiver", ADDRESS),
    ("coin_received.amount", 11),
    ("coin_received.msg_index", DIGIT),
    ("transfer.recipient", ADDRESS),
    ("transfer.sender", ADDRESS),
    ("transfer.amount", 11),
    ("transfer.msg_index", DIGIT),
];

/// All attributes of one transaction.
fn attributes(workload: Workload) -> impl Iterator<Item = (&'static str, u16)> {
    let rest: [&[_]; 3] = match workload {
        Workload::PlainSend => [&PLAIN, &[], &[]],
        Workload::SmallMultisend => [&SMALL, &RECEIVER, &RECEIVER],
    };
    COMMON
        .into_iter()
        .chain(rest.into_iter().flatten().copied())
}

/// The generator of a whole node.
#[derive(Debug)]
pub struct Chain {
    parameters: Parameters,
    /// The part that needs a state of its own.
    pub application: Application,
    random: SmallRandom,
    height: u64,
    transactions: u64,
}

impl Chain {
    /// The node before its first block.
    pub fn new(parameters: Parameters) -> Self {
        Self {
            application: Application::new(&parameters),
            random: SmallRandom::new(!parameters.seed),
            parameters,
            height: 0,
            transactions: 0,
        }
    }

    /// What it was made from.
    pub const fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    /// Writes the next block and says its height; `None` after the last one.
    pub fn block(&mut self, sink: &mut impl Sink) -> Option<u64> {
        if self.height == self.parameters.blocks {
            return None;
        }
        self.height += 1;
        let count = self.parameters.transactions_at(self.height);
        self.blockstore(count, sink);
        self.state(sink);
        self.application.block(self.height, count, sink);
        self.tx_index(count, sink);
        self.transactions += count;
        Some(self.height)
    }

    fn tx_index(&mut self, count: u64, sink: &mut impl Sink) {
        let put = |key, value_bytes, sink: &mut _| {
            Sink::set(
                sink,
                &Set {
                    database: Database::TxIndex,
                    key,
                    value_bytes,
                    slot: None,
                },
            );
        };
        let height = self.height as u32;
        let result_bytes = match self.parameters.workload {
            Workload::PlainSend => 1_700,
            Workload::SmallMultisend => 2_300,
        };
        for index in 0..count {
            let id = self.transactions + index;
            let attribute = |name, value_bytes, sequence| Key::Attribute {
                name,
                value: id << 8 | u64::from(sequence),
                value_bytes,
                height,
                index: index as u16,
                sequence,
            };
            for (sequence, (name, value_bytes)) in (0..).zip(attributes(self.parameters.workload)) {
                put(attribute(name, value_bytes, sequence), 32, sink);
            }
            put(attribute("tx.height", 3, 99), 32, sink);
            let hash = Key::Named {
                prefix: "",
                id,
                bytes: 32,
            };
            put(hash, result_bytes, sink);
        }
        sink.write(Database::TxIndex, true);
        for sequence in 0..BLOCK_EVENTS {
            let key = Key::Attribute {
                name: "block_event.value",
                value: u64::from(sequence),
                value_bytes: 12,
                height,
                index: sequence,
                sequence: 0,
            };
            put(key, 8, sink);
        }
        sink.write(Database::TxIndex, true);
    }

    fn blockstore(&mut self, count: u64, sink: &mut impl Sink) {
        let put = |prefix, id, bytes, value_bytes, slot, sink: &mut _| {
            let key = Key::Named { prefix, id, bytes };
            Sink::set(
                sink,
                &Set {
                    database: Database::Blockstore,
                    key,
                    value_bytes,
                    slot,
                },
            );
        };
        let block_bytes = 72_000 + self.random.below(16_001) as u32;
        let mut left = block_bytes;
        let mut part = 0;
        while left > 0 {
            let bytes = left.min(PART_BYTES);
            put("P:", self.height << 8 | part, 8, bytes, None, sink);
            left -= bytes;
            part += 1;
        }
        put("H:", self.height, 8, 400, None, sink);
        put("BH:", self.height, 64, 8, None, sink);
        put("C:", self.height, 8, 300, None, sink);
        put("SC:", self.height, 8, 300, None, sink);
        put("blockStore", 0, 0, 16, Some(0), sink);
        sink.write(Database::Blockstore, true);
        for index in 0..count {
            put("TH:", self.transactions + index, 64, 12, None, sink);
        }
        sink.write(Database::Blockstore, true);
    }

    fn state(&mut self, sink: &mut impl Sink) {
        let height = self.height;
        let put = |prefix, id, value_bytes, slot, sink: &mut _| {
            let key = Key::Named {
                prefix,
                id,
                bytes: 8,
            };
            Sink::set(
                sink,
                &Set {
                    database: Database::State,
                    key,
                    value_bytes,
                    slot,
                },
            );
        };
        // The second set of the pair is of the same key.
        let slot = Some(height as u32);
        put("abciResponsesKey:", height, RESPONSE_BYTES, slot, sink);
        put("abciResponsesKey:", height, RESPONSE_BYTES, slot, sink);
        sink.write(Database::State, true);
        put("validatorsKey:", height, 100, None, sink);
        put("consensusParamsKey:", height, 60, None, sink);
        put("stateKey", 0, 1_000, Some(0), sink);
        sink.write(Database::State, false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attribute_keys_have_the_specified_lengths() {
        for (workload, count) in [(Workload::PlainSend, 28), (Workload::SmallMultisend, 35)] {
            let lengths: Vec<usize> = attributes(workload)
                .map(|(name, value_bytes)| name.len() + usize::from(value_bytes) + 19)
                .collect();
            assert_eq!(lengths.len(), count);
            assert_eq!(lengths.iter().min(), Some(&34));
            assert_eq!(lengths.iter().max(), Some(&119));
            let mean = lengths.iter().sum::<usize>() as f64 / count as f64;
            assert!((58.0..68.0).contains(&mean), "mean {mean}");
        }
    }
}
