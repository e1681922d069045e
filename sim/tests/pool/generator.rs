//! The generator against the figures that the node's operators published.

use sealstone_sim::pool::application::TreeCounts;
use sealstone_sim::pool::chain::Chain;
use sealstone_sim::pool::workload::{Database, Parameters, Set, Sink, Workload};

use crate::within;

const STORES: usize = Database::ALL.len();

#[derive(Default)]
struct Totals {
    sets: [u64; STORES],
    bytes: [u64; STORES],
    /// Bytes of the write that is being filled.
    open_bytes: u64,
    /// Writes of the application: at the limit, others, synced.
    writes: [u64; 3],
    synced: [u64; STORES],
}

impl Sink for Totals {
    fn set(&mut self, set: &Set) {
        self.sets[set.database as usize] += 1;
        self.bytes[set.database as usize] += set.bytes();
        self.open_bytes += set.bytes();
    }

    fn write(&mut self, database: Database, synced: bool) {
        let bytes = std::mem::take(&mut self.open_bytes);
        self.synced[database as usize] += u64::from(synced);
        if database == Database::Application {
            // The rest of a large store is below the limit, but far above a small store's one set.
            let kind = match (synced, bytes) {
                (true, _) => 2,
                (false, 0..1000) => 1,
                (false, _) => 0,
            };
            self.writes[kind] += 1;
        }
    }
}

fn run(parameters: Parameters) -> (Totals, [TreeCounts; 2]) {
    let mut totals = Totals::default();
    let mut trees = [TreeCounts::default(); 2];
    let mut chain = Chain::new(parameters);
    while chain.block(&mut totals).is_some() {
        for (sum, last) in trees.iter_mut().zip(chain.application.counts) {
            sum.internal += last.internal;
            sum.leaves += last.leaves;
        }
    }
    (totals, trees)
}

/// The runs in which writes a block were counted: 866 blocks of 229.9, 1,040 of 230.05 transactions.
fn counted(workload: Workload, blocks: u64) -> Parameters {
    Parameters {
        transactions: 230 * blocks,
        blocks,
        ..Parameters::measured(workload)
    }
}

/// The runs of the other figures: 227.2 and 233.4 transactions a block.
fn measured(workload: Workload, blocks: u64) -> Parameters {
    let parameters = Parameters::measured(workload);
    Parameters {
        transactions: parameters.transactions * blocks / parameters.blocks,
        blocks,
        ..parameters
    }
}

#[test]
fn plain_send_is_the_nodes() {
    let blocks = 100;
    let (totals, trees) = run(counted(Workload::PlainSend, blocks));
    let per_block = |value: u64| value as f64 / blocks as f64;
    let application = Database::Application as usize;
    println!("{trees:?} over {blocks} blocks");
    within(
        per_block(totals.sets[application]),
        12_523.0,
        0.03,
        "application ops",
    );
    within(
        per_block(totals.bytes[application]),
        1.11e6,
        0.03,
        "application bytes",
    );
    within(
        per_block(trees[0].internal),
        7_205.0,
        0.02,
        "inner nodes of the bank",
    );
    within(
        per_block(trees[0].leaves),
        895.0,
        0.02,
        "leaves of the bank",
    );
    within(
        per_block(trees[1].internal),
        2_324.0,
        0.02,
        "inner nodes of acc",
    );
    within(per_block(trees[1].leaves), 460.0, 0.02, "leaves of acc");
}

#[test]
fn small_multisend_is_the_nodes() {
    let blocks = 100;
    let (totals, trees) = run(counted(Workload::SmallMultisend, blocks));
    let per_block = |value: u64| value as f64 / blocks as f64;
    let application = Database::Application as usize;
    println!("{trees:?} over {blocks} blocks");
    within(
        per_block(totals.sets[application]),
        9_117.0,
        0.09,
        "application ops",
    );
    within(
        per_block(totals.bytes[application]),
        0.82e6,
        0.09,
        "application bytes",
    );
    within(
        per_block(trees[0].internal),
        4_213.0,
        0.02,
        "inner nodes of the bank",
    );
    within(
        per_block(trees[0].leaves),
        468.0,
        0.02,
        "leaves of the bank",
    );
}

#[test]
fn index_and_blockstore_have_the_nodes_sets() {
    for (workload, expected, of_blocks) in [
        (Workload::PlainSend, 30.11, 233.0),
        (Workload::SmallMultisend, 37.02, 239.3),
    ] {
        let parameters = measured(workload, 50);
        let transactions = parameters.transactions as f64;
        let (totals, _) = run(parameters);
        let sets = totals.sets[Database::TxIndex as usize] as f64;
        within(sets / transactions, expected, 0.005, "sets a transaction");
        let sets = totals.sets[Database::Blockstore as usize] as f64;
        within(sets / 50.0, of_blocks, 0.03, "sets a block");
        assert_eq!(totals.synced[Database::TxIndex as usize], 2 * 50);
        assert_eq!(totals.synced[Database::Blockstore as usize], 2 * 50);
    }
}

#[test]
fn application_writes_are_cut_as_the_nodes_are() {
    for (workload, low, high) in [
        (Workload::PlainSend, 10.0, 14.0),
        (Workload::SmallMultisend, 6.0, 14.0),
    ] {
        let (totals, _) = run(measured(workload, 20));
        let [large, small, synced] = totals.writes.map(|writes| writes as f64 / 20.0);
        println!("{workload:?}: {large} large, {small} small, {synced} synced writes a block");
        assert!((low..=high).contains(&large), "{workload:?}: {large}");
        assert_eq!((small, synced), (15.0, 1.0));
    }
}

/// Transactions, accounts and wallets shrink together, or the trees are others.
#[test]
fn a_scaled_chain_keeps_its_shape() {
    let sets_per_transaction = |workload, transactions, accounts, wallets| {
        let blocks = 60;
        let (totals, _) = run(Parameters {
            blocks,
            transactions: transactions * blocks,
            accounts,
            wallets,
            ..Parameters::measured(workload)
        });
        // The 15 small stores and the commit are the same for every size.
        let sets = totals.sets[Database::Application as usize] - 16 * blocks;
        sets as f64 / (transactions * blocks) as f64
    };
    use Workload::{PlainSend, SmallMultisend};
    let cases = [
        (PlainSend, 230, 105_000, 5_000, 53.2),
        (SmallMultisend, 230, 105_000, 5_000, 36.5),
        (PlainSend, 23, 10_500, 500, 55.1),
        (SmallMultisend, 23, 10_500, 500, 40.0),
        (PlainSend, 23, 105_000, 5_000, 73.3),
        (SmallMultisend, 23, 105_000, 5_000, 51.1),
        (PlainSend, 2, 1_050, 50, 76.0),
        (SmallMultisend, 2, 1_050, 50, 76.0),
    ];
    for (workload, transactions, accounts, wallets, expected) in cases {
        let sets = sets_per_transaction(workload, transactions, accounts, wallets);
        println!("{workload:?} {transactions} {accounts} {wallets}: {sets:.1}");
        let what = format!("{workload:?}, {transactions} of {wallets} in {accounts}");
        within(sets, expected, 0.03, &what);
    }
    let scaled = Parameters::measured(PlainSend).scaled(23, 60);
    assert_eq!((scaled.accounts, scaled.wallets), (10_500, 500));
}

/// Equal parameters, equal writes; another seed, others.
#[test]
fn everything_follows_from_the_seed() {
    struct Digest(u32, Vec<u8>);
    impl Sink for Digest {
        fn set(&mut self, set: &Set) {
            self.1.clear();
            set.key.write(&mut self.1);
            self.0 = crc32c::crc32c_append(self.0, &self.1);
            self.0 = crc32c::crc32c_append(self.0, &set.value_bytes.to_le_bytes());
        }
        fn write(&mut self, _: Database, _: bool) {}
    }
    let digest = |seed| {
        let mut sink = Digest(0, Vec::new());
        let parameters = Parameters::measured(Workload::PlainSend).scaled(23, 5);
        let mut chain = Chain::new(Parameters { seed, ..parameters });
        while chain.block(&mut sink).is_some() {}
        sink.0
    };
    assert_eq!(digest(1), digest(1));
    assert_ne!(digest(1), digest(2));
}
