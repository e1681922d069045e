//! B058. Elsewhere what was once large went back into a pool and stayed: memory was the maximum of history.
//! Here all memory is in one ledger that adds up at every moment, and a giant batch leaves it as it was.

use sealstone::env::Env;
use sealstone::{Batch, Durability, ErrorKind, Keyspace, Store};

use crate::support::{assert_books, flush, get, manual, mutable, open};

fn small_batches(store: &Store, map: &Keyspace) {
    for number in 0..1000 {
        let mut batch = Batch::new();
        for i in 0..100 {
            batch.put(map, format!("{number} {i}").into_bytes(), vec![1; 100]);
        }
        store.write(batch, Durability::Buffered).unwrap();
    }
    flush(store);
    assert_books(store);
}

#[test]
fn b058_one_giant_batch_does_not_stay_in_memory() {
    let options = manual()
        .memory_bytes(2 << 30)
        .seal_bytes(8 << 20)
        .seal_records(65_536)
        .batch_bytes_max(64 << 20)
        .batch_records_max(1 << 20);
    let store = open(&Env::in_memory(), options);
    let map = mutable(&store, "map");
    small_batches(&store, &map);
    let used = |store: &Store| {
        let memory = store.audit().memory;
        memory.total_bytes - memory.free_bytes - memory.scratch_bytes
    };
    let total = store.audit().memory.total_bytes;
    let before = used(&store);
    let mut batch = Batch::new();
    for i in 0..1_000_000_u32 {
        batch.put(&map, format!("giant {i}").into_bytes(), vec![2; 16]);
    }
    store.write(batch, Durability::Buffered).unwrap();
    assert!(used(&store) > 40_000_000, "{}", used(&store));
    assert_books(&store);
    flush(&store);
    assert_books(&store);
    assert!(used(&store) <= before, "{} {before}", used(&store));
    small_batches(&store, &map);
    assert!(
        used(&store) <= before + before / 10,
        "{} {before}",
        used(&store)
    );
    assert_eq!(store.audit().memory.total_bytes, total);
    assert_eq!(get(&map, "giant 999999"), Some(vec![2; 16]));
    assert_eq!(get(&map, "999 99"), Some(vec![1; 100]));
    // One that can never fit is refused and takes nothing.
    let mut batch = Batch::new();
    batch.put_with(&map, &b"giant"[..], 200 << 20, |_| Ok(()));
    let error = store.write(batch, Durability::Buffered).unwrap_err();
    assert!(
        matches!(error.kind(), ErrorKind::TooLarge { .. }),
        "{error}"
    );
    assert!(used(&store) <= before + before / 10);
}
