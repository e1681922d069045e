//! sealstone's row: no schedule changes it, and a real store takes what the model says.

use std::collections::BTreeMap;

use sealstone::{Background, Batch, Durability, Keyspace, KeyspaceOptions, Options, Store};
use sealstone_sim::disk::DiskOptions;
use sealstone_sim::env::SimEnv;
use sealstone_sim::pool::chain::Chain;
use sealstone_sim::pool::replay::replay as run;
use sealstone_sim::pool::report::generate;
use sealstone_sim::pool::schedule::disturb;
use sealstone_sim::pool::sealstone::Sizes;
use sealstone_sim::pool::workload::{Database, Parameters, Set, Sink, Workload};

use crate::{PLAIN, policy};

/// Fresh bytes over 1,000 seeded schedules: most - fewest = 0. The field's pool is not so.
#[test]
fn a_thousand_schedules_change_nothing() {
    // A tenth of the run has all that flushes and generations do.
    let mut trace = PLAIN[0].clone();
    trace.events.truncate(trace.events.len() / 10);
    let fresh = |seed, name| {
        run(&disturb(&trace, seed), policy(name), 0)
            .counters
            .fresh_bytes
    };
    let range = |name, seeds| {
        let all: Vec<u64> = (0..seeds).map(|seed| fresh(seed, name)).collect();
        (all.iter().min().copied(), all.iter().max().copied())
    };
    let (fewest, most) = range("sealstone", 1_000);
    assert!(fewest > Some(0));
    assert_eq!(fewest, most);
    let (fewest, most) = range("as-built", 100);
    assert!(fewest < most, "{fewest:?} {most:?}");
}

/// Commits every write of the chain to a store and adds up what its generations took.
struct Writer {
    store: Store,
    keyspaces: Vec<Keyspace>,
    sets: BTreeMap<Vec<u8>, usize>,
    /// What the records of the open generation need.
    needed_bytes: u64,
    granted_bytes: u64,
    used_bytes: u64,
    generations: u64,
    total_bytes: u64,
}

impl Writer {
    fn new() -> Self {
        let env = SimEnv::new(DiskOptions::default());
        let options = Options::new()
            .family_seed([3; 16])
            .background(Background::Manual);
        let store = Store::open_with(env.env(), options).unwrap();
        let keyspaces = Database::ALL
            .iter()
            .map(|one| {
                store
                    .keyspace(one.name(), KeyspaceOptions::mutable())
                    .unwrap()
            })
            .collect();
        Self {
            store,
            keyspaces,
            sets: BTreeMap::new(),
            needed_bytes: 0,
            granted_bytes: 0,
            used_bytes: 0,
            generations: 0,
            total_bytes: 0,
        }
    }
}

impl Sink for Writer {
    fn set(&mut self, set: &Set) {
        let mut key = Vec::new();
        set.key.write(&mut key);
        // A key that is set twice in a batch is one record.
        self.sets.insert(key, set.value_bytes as usize);
    }

    fn write(&mut self, database: Database, _synced: bool) {
        static VALUE: [u8; 300_000] = [7; 300_000];
        let keyspace = &self.keyspaces[database as usize];
        let mut batch = Batch::new();
        let mut needed_bytes = 0;
        for (key, value_bytes) in &self.sets {
            batch.put(keyspace, key, &VALUE[..*value_bytes]);
            // A record in a chunk, its reference with links, two slots of the probe table.
            needed_bytes += (16 + key.len() + value_bytes).next_multiple_of(8) as u64 + 30 + 8;
        }
        self.store.write(batch, Durability::Buffered).unwrap();
        self.sets.clear();
        let memory = self.store.stats().memory;
        let sum = memory.free_bytes
            + memory.open_bytes
            + memory.sealed_bytes
            + memory.flushing_bytes
            + memory.pinned_bytes
            + memory.retiring_bytes
            + memory.scratch_bytes
            + memory.reserved_bytes;
        assert_eq!(sum, memory.total_bytes);
        self.total_bytes = memory.total_bytes;
        if memory.sealed_bytes == 0 {
            self.needed_bytes += needed_bytes;
            return;
        }
        // The generation was sealed before this batch if there is an open one, else behind it.
        let open = memory.open_bytes > 0;
        self.granted_bytes += memory.sealed_bytes;
        self.used_bytes += self.needed_bytes + if open { 0 } else { needed_bytes };
        self.needed_bytes = if open { needed_bytes } else { 0 };
        self.generations += 1;
        self.store.drain().unwrap();
    }
}

/// The model against a store on a simulated disk: the same chain, default options.
#[test]
fn a_store_takes_what_the_model_says() {
    for workload in Workload::ALL {
        let parameters = Parameters::measured(workload);
        let parameters = Parameters {
            blocks: 12,
            transactions: parameters.transactions * 12 / parameters.blocks,
            ..parameters
        };
        let mut writer = Writer::new();
        let mut chain = Chain::new(parameters);
        while chain.block(&mut writer).is_some() {}
        let measured = writer.granted_bytes as f64 / writer.used_bytes as f64;
        let trace = generate(workload);
        let modelled = run(&trace[0], policy("sealstone"), 0).granted_per_used();
        println!(
            "{workload:?}: store {measured:.4} over {} generations, model {modelled:.4}",
            writer.generations
        );
        assert!(writer.generations >= 5);
        assert!((1.0..=1.10).contains(&measured), "{measured}");
        assert!((measured - modelled).abs() < 0.03, "{measured} {modelled}");
        assert_eq!(writer.total_bytes, Sizes::default().region_bytes);
    }
}
