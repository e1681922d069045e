//! Iterators against a map of all versions, over every mixture of generations in memory, sealed ones and
//! segments, while background work goes on.

use std::collections::BTreeMap;

use crate::env::Env;
use crate::{Batch, Durability, Iter, Keyspace, KeyspaceOptions, Options, Snapshot, Store};

type Content = BTreeMap<Vec<u8>, Vec<u8>>;

/// A small generator of choices: the same in every run.
struct Choices(u64);

impl Choices {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) % limit
    }
}

struct Run {
    choices: Choices,
    store: Store,
    records: Keyspace,
    now: Content,
    written: u64,
    snapshots: Vec<(Snapshot, Content)>,
}

impl Run {
    fn new(seed: u64) -> Self {
        let options = Options::tiny()
            .write_region_bytes(512 << 10)
            .pinned_generations_max(4)
            .scan_bytes(1 << 20);
        let store = Store::open_with(Env::in_memory(), options).expect("opens");
        let other = store.keyspace("other", KeyspaceOptions::mutable());
        let records = store.keyspace("records", KeyspaceOptions::mutable());
        let behind = store.keyspace("behind", KeyspaceOptions::mutable());
        for neighbour in [other, behind] {
            let neighbour = neighbour.expect("creates");
            for key in [&b""[..], b"k", b"zz"] {
                neighbour.put(key, "x", Durability::Buffered).expect("puts");
            }
        }
        Self {
            choices: Choices(seed),
            store,
            records: records.expect("creates"),
            now: Content::new(),
            written: 0,
            snapshots: Vec::new(),
        }
    }

    /// Few keys, so that versions pile up; some share their first 8 bytes, one is empty.
    fn key(&mut self) -> Vec<u8> {
        match self.choices.below(4) {
            0 => Vec::new(),
            1 => format!("k{}", self.choices.below(6)).into_bytes(),
            2 => format!("the same front {}", self.choices.below(12)).into_bytes(),
            _ => vec![self.choices.below(256) as u8],
        }
    }

    fn write(&mut self) {
        let mut batch = Batch::new();
        let mut next = self.now.clone();
        for _ in 0..=self.choices.below(4) {
            let key = self.key();
            match self.choices.below(4) {
                0 => {
                    next.remove(&key);
                    batch.delete(&self.records, key);
                }
                _ => {
                    self.written += 1;
                    let value = self.written.to_string().into_bytes();
                    next.insert(key.clone(), value.clone());
                    batch.put(&self.records, key, value);
                }
            }
        }
        match self.store.write(batch, Durability::Buffered) {
            Ok(_) => self.now = next,
            // Snapshots keep the memory.
            Err(_) => self.snapshots.clear(),
        }
    }

    fn step(&mut self) {
        match self.choices.below(20) {
            0..12 => self.write(),
            12 => self.store.seal().expect("seals"),
            13..16 => self.work(),
            16 if self.snapshots.len() < 3 => {
                let snapshot = self.store.snapshot().expect("takes");
                self.snapshots.push((snapshot, self.now.clone()));
            }
            17 if !self.snapshots.is_empty() => {
                let place = self.choices.below(self.snapshots.len() as u64);
                drop(self.snapshots.remove(place as usize));
            }
            _ => self.scan(),
        }
    }

    fn work(&mut self) {
        if let Some(job) = self.store.runnable().first() {
            self.store.run(*job, 3).expect("runs");
        }
    }

    /// Scans a range of a snapshot, or of now, from both ends in turn, with work in between.
    fn scan(&mut self) {
        let (low, high) = (self.key(), self.key());
        let (low, high) = (low.clone().min(high.clone()), low.max(high));
        let chosen = self.choices.below(self.snapshots.len() as u64 + 1) as usize;
        let (items, content): (Iter, Content) = match self.snapshots.get(chosen) {
            Some((snapshot, content)) => (
                snapshot
                    .range(&self.records, low.clone()..high.clone())
                    .expect("opens"),
                content.clone(),
            ),
            None => (
                self.records
                    .range(low.clone()..high.clone())
                    .expect("opens"),
                self.now.clone(),
            ),
        };
        let mut expected = content
            .range(low..high)
            .map(|(k, v)| (k.clone(), v.clone()));
        let mut items = items;
        let forward = self.choices.below(3);
        loop {
            let (item, wanted) = match self.choices.below(2) < forward {
                true => (items.next(), expected.next()),
                false => (items.next_back(), expected.next_back()),
            };
            let ended = wanted.is_none();
            assert_eq!(item.map(|item| item.expect("reads")), wanted);
            if ended {
                break;
            }
            match self.choices.below(4) {
                0 => self.work(),
                1 => self.write(),
                _ => {}
            }
        }
    }
}

#[test]
fn iterators_agree_with_a_map_of_versions() {
    for seed in 0..60 {
        let mut run = Run::new(seed);
        for _ in 0..400 {
            run.step();
        }
        assert!(run.written > 100, "seed {seed} wrote nothing");
    }
}

#[test]
fn an_iterator_goes_on_when_its_generation_leaves_memory() {
    let mut run = Run::new(7);
    let keys: Vec<_> = (0..40u8).map(|number| vec![number, 1]).collect();
    for key in &keys {
        let written = run.records.put(key, key, Durability::Buffered);
        written.expect("puts");
    }
    let forward = run.records.iter().expect("opens");
    let backward = run.records.iter().expect("opens").rev();
    let directions: [Box<dyn Iterator<Item = _>>; 2] = [Box::new(forward), Box::new(backward)];
    for mut items in directions {
        let first: Vec<_> = items.by_ref().take(10).collect();
        run.store.seal().expect("seals");
        run.store.drain().expect("drains");
        assert_eq!(first.len() + items.count(), keys.len());
        run.written += 1;
        let again = run.records.put([9, 9, 9], "x", Durability::Buffered);
        again.expect("puts");
    }
}
