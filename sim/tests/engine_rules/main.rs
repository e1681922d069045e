//! The store's rules of durability on a disk that loses power, lies and fills up.
//!
//! Each test says which rule it is about and which place of the engine it guards: with that place
//! broken it fails. What needs no loss of power is tested with the library.

mod durable;
mod refused;

use std::collections::BTreeMap;

use sealstone::{Background, Durability, Keyspace, KeyspaceOptions, Options, Store};
use sealstone_sim::disk::{Crash, DiskOptions, SimDisk, Survivors};
use sealstone_sim::env::SimEnv;

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

const NOTHING_KEPT: Crash = Crash::Power(Survivors::NOTHING);

fn options() -> Options {
    Options::tiny().background(Background::Manual)
}

fn machine() -> SimEnv {
    SimEnv::new(DiskOptions::default())
}

fn open(env: &SimEnv) -> Store {
    Store::open_with(env.env(), options()).expect("opens")
}

fn map_of(store: &Store) -> Keyspace {
    let kind = KeyspaceOptions::mutable();
    store.keyspace("map", kind).expect("a keyspace")
}

fn content(store: &Store) -> Map {
    let items = map_of(store).iter().expect("iterates");
    items.map(|item| item.expect("an item")).collect()
}

fn put(map: &Keyspace, number: u64, durability: Durability) -> u64 {
    let key = format!("key {}", number % 40);
    let value = format!("{number} ").repeat((number % 23) as usize);
    map.put(key, value, durability).expect("puts")
}

/// What the first `commits` puts amount to.
fn model(commits: u64) -> Map {
    let one = |number: u64| {
        let key = format!("key {}", number % 40);
        let value = format!("{number} ").repeat((number % 23) as usize);
        (key.into_bytes(), value.into_bytes())
    };
    (1..=commits).map(one).collect()
}

/// Opens what a crash leaves and checks that it is the content of a prefix that is long enough.
fn assert_prefix(disk: SimDisk, durable: u64, issued: u64, what: &str) -> u64 {
    let store = Store::open_with(SimEnv::on(disk).env(), options())
        .unwrap_or_else(|error| panic!("{what}: {error}"));
    let through = store.open_report().recovered_through;
    assert!(
        (durable..=issued).contains(&through),
        "{what}: {durable} {through} {issued}"
    );
    assert_eq!(store.sequence(), through);
    assert_eq!(content(&store), model(through), "{what}: at {through}");
    through
}

/// Several ways to lose power.
fn losses() -> impl Iterator<Item = Crash> {
    let seeded = (0..6).map(|seed| Crash::Power(Survivors::seeded(seed)));
    seeded.chain([
        NOTHING_KEPT,
        Crash::Power(Survivors::EVERYTHING),
        Crash::Kill,
    ])
}
