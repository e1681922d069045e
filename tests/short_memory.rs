//! Memory that runs out at each place where a write takes some: the batch is refused whole, and goes through
//! once there is room.

mod support;

use sealstone::env::Env;
use sealstone::{Batch, Durability, ErrorKind, Keyspace, Options, Store};
use support::{Map, assert_books, assert_content, files, manual, mutable, open, refused};

fn options(write_region_bytes: u64) -> Options {
    manual()
        .write_region_bytes(write_region_bytes)
        .chunk_bytes(512)
        .block_records(4)
        .seal_records(16)
        .seal_bytes(4096)
        .batch_bytes_max(4096)
        .output_buffer_bytes(512)
        .queue_slots(24)
}

fn least() -> u64 {
    let error = refused(Store::open_with(Env::in_memory(), options(4096)));
    let ErrorKind::TooLarge { needed, .. } = error.kind() else {
        panic!("{error}");
    };
    *needed
}

/// The batches of a round: one that fits a chunk, one that takes several of its own, one of many records.
fn batches(map: &Keyspace, round: u32) -> Vec<(Batch<'static>, Map)> {
    let mut all = Vec::new();
    for (number, (records, bytes)) in [(1, 100), (1, 3000), (9, 20), (2, 700)].iter().enumerate() {
        let (mut batch, mut model) = (Batch::new(), Map::new());
        for record in 0..*records {
            let key = format!("key {number} {record} {}", round % 3).into_bytes();
            let value = vec![round as u8; *bytes];
            batch.put(map, key.clone(), value.clone());
            model.insert(key, value);
        }
        all.push((batch, model));
    }
    all
}

#[test]
fn a_write_fails_whole_wherever_memory_ends() {
    let least = least();
    let mut refusals = 0;
    // A byte count that grows by less than the smallest request meets each request of a write.
    for beyond in (0..6000u64).step_by(72) {
        let env = Env::in_memory();
        let store = open(&env, options(least + beyond));
        let map = mutable(&store, "map");
        let mut model = Map::new();
        for round in 0..8 {
            for place in 0..batches(&map, round).len() {
                let (batch, changes) = batches(&map, round).swap_remove(place);
                let before = (store.audit(), files(&env));
                if let Err(error) = store.try_write(batch, Durability::Buffered) {
                    assert!(matches!(error.kind(), ErrorKind::Busy { .. }), "{error}");
                    assert_eq!((store.audit(), files(&env)), before, "no effect");
                    refusals += 1;
                    store.drain().expect("drains");
                    let (again, _) = batches(&map, round).swap_remove(place);
                    let written = store.try_write(again, Durability::Buffered);
                    written.unwrap_or_else(|error| panic!("{beyond} {round}: {error}"));
                }
                model.extend(changes);
                assert_books(&store);
            }
        }
        assert_content(&map, &model);
    }
    println!("{refusals} refusals");
    assert!(refusals > 100, "{refusals}");
}
