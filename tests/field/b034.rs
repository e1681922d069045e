//! B034. Elsewhere the order of a listing was taken for the order of files, and an empty file of the highest
//! number stopped every write. (Equal bytes of equal runs: the plan of this number.)

use sealstone::env::{Env, FileKind, FileName};

use crate::support::{
    Map, assert_content, compact, files, flush, killed, machine, mutable, open, put,
};

#[test]
fn b034_numbers_of_files_decide_not_their_text() {
    let mut env = Env::in_memory();
    let mut model = Map::new();
    // A file of that number makes the next open go on above it.
    for last in [8_u64, 9, 98, 99, 999_998, 999_999] {
        let store = open(&env, compact());
        let map = mutable(&store, "map");
        store.drain().unwrap();
        drop((map, store));
        if files(&env).keys().all(|name| name.number < last) {
            env.vfs.create_new(FileName::segment(last)).unwrap();
        }
        let store = open(&env, compact());
        let map = mutable(&store, "map");
        for round in 0..3 {
            let value = format!("{last} {round}");
            put(&map, "newest", &value);
            put(&map, format!("at {last}"), &value);
            model.insert(b"newest".to_vec(), value.clone().into_bytes());
            model.insert(format!("at {last}").into_bytes(), value.into_bytes());
            if round < 2 {
                flush(&store);
            }
        }
        // The process dies with the last ones in the log.
        env = killed(&env);
        let store = open(&env, compact());
        assert_content(&mutable(&store, "map"), &model);
    }
    let highest = files(&env).keys().map(|name| name.number).max();
    assert!(highest > Some(1_000_000), "{highest:?}");
}

#[test]
fn b034_an_empty_file_of_the_highest_number_is_no_obstacle() {
    for make in [FileName::segment as fn(u64) -> FileName, FileName::log] {
        let env = Env::in_memory();
        let store = open(&env, compact());
        put(&mutable(&store, "map"), "a", "1");
        flush(&store);
        let mut image = files(&env);
        let highest = image.keys().map(|name| name.number).max().unwrap();
        image.insert(make(highest + 50), Vec::new());
        let env = machine(&image);
        let store = open(&env, compact());
        let map = mutable(&store, "map");
        put(&map, "b", "2");
        flush(&store);
        let model: Map = [("a", "1"), ("b", "2")]
            .map(|(k, v)| (k.into(), v.into()))
            .into();
        assert_content(&map, &model);
        for name in files(&env).keys().filter(|name| name.kind == FileKind::Log) {
            assert!(name.number > highest + 50, "{name}");
        }
        assert!(!files(&env).contains_key(&make(highest + 50)));
    }
}
