//! Laws of whole stores, on drawn content: every range is the one of a sorted map, and how commits are
//! cut into generations, merged and reopened changes nothing that is read.

mod support;

use std::ops::Bound;

use proptest::prelude::*;
use sealstone::env::Env;
use sealstone::{Durability, Options, Store};
use support::{Map, content, flush, get, mutable, open};

/// What happens to a key; `None` deletes it.
type Change = (Vec<u8>, Option<Vec<u8>>);

/// Keys of few letters: neighbours, prefixes and versions of each other.
fn any_key() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(prop::sample::select(vec![0, b'a', b'b', 255]), 0..4)
}

fn any_changes() -> impl Strategy<Value = Vec<Change>> {
    let value = prop::option::weighted(0.8, prop::collection::vec(any::<u8>(), 0..30));
    prop::collection::vec((any_key(), value), 1..60)
}

fn any_bound() -> impl Strategy<Value = Bound<Vec<u8>>> {
    (0..3, any_key()).prop_map(|(kind, key)| match kind {
        0 => Bound::Unbounded,
        1 => Bound::Included(key),
        _ => Bound::Excluded(key),
    })
}

/// Writes the changes; after those whose number is in `seals` a generation ends.
fn written(changes: &[Change], seals: &[usize]) -> (Store, Map) {
    let store = open(&Env::in_memory(), Options::tiny());
    let map = mutable(&store, "map");
    let mut model = Map::new();
    for (number, (key, value)) in changes.iter().enumerate() {
        let done = match value {
            Some(value) => {
                model.insert(key.clone(), value.clone());
                map.put(key, value, Durability::Buffered)
            }
            None => {
                model.remove(key);
                map.delete(key, Durability::Buffered)
            }
        };
        done.expect("writes");
        if seals.contains(&number) {
            flush(&store);
        }
    }
    (store, model)
}

/// Whether a sorted map can be asked for the range at all.
fn in_order(from: &Bound<Vec<u8>>, to: &Bound<Vec<u8>>) -> bool {
    use Bound::{Excluded, Included};
    match (from, to) {
        (Included(from), Included(to)) => from <= to,
        (Excluded(from), Excluded(to)) => from < to,
        (Included(from) | Excluded(from), Included(to) | Excluded(to)) => from <= to,
        _ => true,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn ranges_are_those_of_a_sorted_map(
        changes in any_changes(),
        seals in prop::collection::vec(0..60_usize, 0..4),
        ranges in prop::collection::vec((any_bound(), any_bound(), any::<u32>()), 12),
        prefix in any_key(),
    ) {
        let (store, model) = written(&changes, &seals);
        let map = mutable(&store, "map");
        for (from, to, ends) in ranges {
            let mut items = map.range((from.clone(), to.clone())).expect("iterates");
            let mut wanted: Vec<_> = match in_order(&from, &to) {
                true => model.range((from, to)).map(|(k, v)| (k.clone(), v.clone())).collect(),
                false => Vec::new(),
            };
            // From both ends, as drawn.
            for turn in 0.. {
                let front = ends >> (turn % 32) & 1 == 0;
                let right = match (wanted.is_empty(), front) {
                    (true, _) => None,
                    (_, true) => Some(wanted.remove(0)),
                    (_, false) => wanted.pop(),
                };
                let item = if front { items.next() } else { items.next_back() };
                let item = item.map(|item| item.expect("an item"));
                prop_assert_eq!(&item, &right);
                if item.is_none() {
                    break;
                }
            }
        }
        let found: Map = map.prefix(&prefix).expect("iterates").map(|item| item.expect("an item")).collect();
        let wanted: Map = model.into_iter().filter(|(key, _)| key.starts_with(&prefix)).collect();
        prop_assert_eq!(found, wanted);
    }

    #[test]
    fn where_generations_end_changes_nothing(
        changes in any_changes(),
        seals in prop::collection::vec(0..60_usize, 0..6),
    ) {
        let (whole, model) = written(&changes, &[]);
        let (parts, _) = written(&changes, &seals);
        let flushed = written(&changes, &[changes.len() - 1]).0;
        for store in [whole, parts, flushed] {
            let store = store.reopen().expect("reopens");
            let map = mutable(&store, "map");
            prop_assert_eq!(&content(&map), &model);
            for (key, _) in &changes {
                prop_assert_eq!(get(&map, key), model.get(key).cloned());
            }
        }
    }
}
