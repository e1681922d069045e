//! B050. Elsewhere a read behind the new end of a mapped file killed the process. Here a file that another
//! process cuts while it is in use is damage of that file. (Cut before the open: the plan of this number.)
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "what another process does to a real file"
)]

use std::fs::OpenOptions;

use sealstone::{Background, Durability, ErrorKind, Options, Store};

use crate::support::{flush, get, mutable, put};

#[test]
fn b050_a_file_shrinks_while_it_is_in_use() {
    let directory = tempfile::tempdir().unwrap();
    let options = Options::new()
        .background(Background::Manual)
        .seal_bytes(64 << 10)
        .batch_bytes_max(64 << 10);
    let store = Store::open(directory.path(), options).unwrap();
    let map = mutable(&store, "map");
    for part in 0..2 {
        for i in 0..20 {
            put(&map, format!("{part} {i}"), "odd");
        }
        flush(&store);
    }
    let segments = store.audit().runs;
    let oldest = segments.last().unwrap().segments[0];
    assert_eq!(get(&map, "0 1"), Some(b"odd".to_vec()));
    let path = directory.path().join(format!("{oldest:016x}.seg"));
    // The tail, the index, all of it.
    for length in [8192, 4096, 100, 0] {
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        file.set_len(length).unwrap();
        for i in 0..20 {
            match map.get(format!("0 {i}")) {
                Ok(value) => assert_eq!(value.as_deref(), Some(&b"odd"[..])),
                Err(error) => {
                    let damage = matches!(error.kind(), ErrorKind::Corruption | ErrorKind::Io);
                    assert!(damage, "{error}");
                }
            }
            assert_eq!(get(&map, format!("1 {i}")), Some(b"odd".to_vec()));
        }
    }
    assert_eq!(*map.get("0 1").unwrap_err().kind(), ErrorKind::Corruption);
    assert!(map.iter().unwrap().any(|item| item.is_err()));
    map.put("2", "works on", Durability::Synced).unwrap();
}
