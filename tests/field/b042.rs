//! B042. Elsewhere only the low bits of a length were stored with all the bytes behind it. Here a length fits
//! and comes back byte for byte, or is refused before anything is written.

use sealstone::env::Env;
use sealstone::{Batch, Durability, ErrorKind, Options};

use crate::allocations::largest_during;
use crate::support::{
    Map, Random, assert_content, files, flush, get, killed, manual, mutable, open,
};

const KEY_BYTES_MAX: usize = 65_535;

fn options() -> Options {
    manual()
        .memory_bytes(128 << 20)
        .seal_bytes(2 << 20)
        .batch_bytes_max(2 << 20)
        .seal_records(64)
}

#[test]
fn b042_lengths_fit_or_are_refused() {
    let env = Env::in_memory();
    let store = open(&env, options());
    let map = mutable(&store, "map");
    let mut model = Map::new();
    let mut random = Random(7);
    let keys = [
        1, 100, 1_000, 65_534, 65_535, 65_536, 65_537, 100_000, 1_000_000,
    ];
    for key_len in keys {
        for (which, value_len) in [0, 3, 1_000, 1_000_000].into_iter().enumerate() {
            let mut key = random.bytes(key_len);
            key[0] = which as u8;
            let value = random.bytes(value_len);
            let mut batch = Batch::new();
            if which % 2 == 0 {
                batch.put(&map, &key[..], &value[..]);
            } else {
                batch.put(&map, key.clone(), value.clone());
            }
            let before = (store.sequence(), store.audit().memory.open_bytes);
            let result = store.write(batch, Durability::Buffered);
            if key_len <= KEY_BYTES_MAX {
                result.unwrap();
                model.insert(key, value);
                continue;
            }
            let kind = result.unwrap_err().kind().clone();
            let ErrorKind::TooLarge { needed, limit } = kind else {
                panic!("{kind:?}");
            };
            assert_eq!((needed, limit), (key_len as u64, KEY_BYTES_MAX as u64));
            assert_eq!(before, (store.sequence(), store.audit().memory.open_bytes));
            // Nothing under the length modulo 2^16.
            let short = &key[..key_len % 65_536];
            assert_eq!(get(&map, short), model.get(short).cloned());
            map.put([9], "works on", Durability::Buffered).unwrap();
            model.insert(vec![9], b"works on".to_vec());
        }
    }
    assert_content(&map, &model);
    flush(&store);
    assert_content(&map, &model);
    let store = open(&killed(&env), options());
    assert_content(&mutable(&store, "map"), &model);
}

#[test]
fn b042_giant_values_are_refused_untouched() {
    let env = Env::in_memory();
    let store = open(&env, options());
    let map = mutable(&store, "map");
    let lengths = [
        (1 << 31) - 1,
        1 << 31,
        (1_usize << 32) - 1,
        1 << 32,
        (1 << 32) + 5,
    ];
    let before = files(&env);
    for length in lengths.into_iter().chain([4_300_000_000, usize::MAX]) {
        let mut batch = Batch::new();
        batch.put(&map, &b"beside"[..], &b"1"[..]);
        batch.put_with(&map, &b"giant"[..], length, |_| panic!("must not be asked"));
        let (result, largest) = largest_during(|| store.write(batch, Durability::Buffered));
        let error = result.unwrap_err();
        assert!(
            matches!(error.kind(), ErrorKind::TooLarge { .. }),
            "{error}"
        );
        assert!(largest < 1 << 20, "{largest}");
        assert!(files(&env) == before);
        assert_eq!((get(&map, "giant"), get(&map, "beside")), (None, None));
    }
    // The limit itself is taken, one byte more is not.
    let fits = |length: usize| {
        let mut batch = Batch::new();
        batch.put_with(&map, &b"limit"[..], length, |out| {
            out.fill(7);
            Ok(())
        });
        store.write(batch, Durability::Buffered).is_ok()
    };
    let most = (0..2 << 20)
        .rev()
        .step_by(8)
        .find(|length| fits(*length))
        .unwrap();
    assert!(most > (2 << 20) - 100, "{most}");
    assert!(!fits(most + 8));
    assert_eq!(get(&map, "limit"), Some(vec![7; most]));
}
