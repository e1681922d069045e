//! B044. Elsewhere nonsense in options was a divisor or an overflow later on. Here each extreme is refused or
//! taken, with threads too. (Options that change between openings: the plan of this number.)

use std::time::Duration;

use sealstone::env::Env;
use sealstone::{Background, Durability, ErrorKind, Options, Store};

use crate::support::{compact, flush, get, mutable, open, put};

#[test]
fn b044_the_largest_numbers_are_refused_or_taken() {
    let refused: [fn(Options) -> Options; 9] = [
        |o| o.seal_bytes(u64::MAX),
        |o| o.batch_bytes_max(u64::MAX),
        |o| o.scan_bytes(u64::MAX),
        |o| o.seal_records(u32::MAX),
        |o| o.batch_records_max(u32::MAX),
        |o| o.chunk_bytes(u32::MAX),
        |o| o.block_records(u32::MAX),
        |o| o.write_region_bytes(u64::MAX),
        |o| o.background(Background::Threads(0)),
    ];
    for set in refused {
        let env = Env::in_memory();
        let error = Store::open_with(env.clone(), set(compact())).unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::InvalidArgument, "{error}");
        assert!(env.vfs.list().is_err(), "a refused open made files");
    }
    let taken = compact()
        .filter_budget_bytes(u64::MAX)
        .descriptors_max(u32::MAX)
        .write_deadline(Duration::MAX)
        .retry_delay(Duration::MAX);
    let store = open(&Env::in_memory(), taken);
    let map = mutable(&store, "map");
    put(&map, "a", "1");
    flush(&store);
    map.put("b", "2", Durability::Synced).unwrap();
    assert_eq!(get(&map, "a"), Some(b"1".to_vec()));
    assert_eq!(map.iter().unwrap().count(), 2);
}
