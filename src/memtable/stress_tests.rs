//! Real threads: one writer, one publisher, readers; every value tells what it must be.

#![allow(
    clippy::disallowed_methods,
    reason = "the threads are what is tested here"
)]

use std::collections::VecDeque;

use super::tests::Fixture;
use super::*;
use crate::sync::{AtomicBool, AtomicU64, Ordering};

const KEYSPACE: KeyspaceId = KeyspaceId(0x8000_0000);
const KEYS: u64 = 64;
const COMMITS: u64 = 12_000;

/// Commits on the way from the writer to the publisher, and how far each has come.
#[derive(Default)]
struct Shared {
    queue: Mutex<VecDeque<Appended>>,
    visible: AtomicU64,
    done: AtomicBool,
}

fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(1);
    refs::scramble(*state)
}

fn key(number: u64) -> [u8; 12] {
    let mut key = *b"key-00000000";
    key[4..].copy_from_slice(&(number * 0x0101_0101).to_be_bytes());
    key
}

/// A value that depends on key and sequence in every byte and in its length.
fn fill(number: u64, sequence: Sequence, value: &mut Vec<u8>) {
    value.clear();
    let len = 8 + (refs::scramble(number ^ sequence << 8) % 300) as usize;
    value.extend(sequence.to_le_bytes());
    value.resize(len, (number ^ sequence) as u8);
}

/// The keys that a commit writes: an arithmetic progression, so that a reader can tell.
fn keys_of(sequence: Sequence) -> impl Iterator<Item = u64> {
    let first = sequence % KEYS;
    (0..1 + sequence % 5).map(move |step| (first + step * 13) % KEYS)
}

fn write(fixture: &mut Fixture, shared: &Shared) {
    let mut values: Vec<_> = (0..5).map(|_| Vec::new()).collect();
    for sequence in 1..=COMMITS {
        let numbers: Vec<_> = keys_of(sequence).collect();
        let keys: Vec<_> = numbers.iter().map(|&number| key(number)).collect();
        for (number, value) in numbers.iter().zip(&mut values) {
            fill(*number, sequence, value);
        }
        let ops: Vec<_> = keys
            .iter()
            .zip(&values)
            .map(|(key, value)| fixture.op(KEYSPACE, key, Some(value)))
            .collect();
        let appended = fixture.append(sequence, &ops, sequence % 7 == 0);
        shared.queue.lock().push_back(appended);
    }
    shared.done.store(true, Ordering::Release);
}

fn publish(memtable: &Memtable, shared: &Shared) {
    loop {
        let done = shared.done.load(Ordering::Acquire);
        let next = shared.queue.lock().pop_front();
        match next {
            Some(appended) => {
                memtable.publish(&appended);
                shared.visible.store(appended.sequence, Ordering::Release);
            }
            None if done => return,
            None => std::thread::yield_now(),
        }
    }
}

fn check_value(number: u64, sequence: Sequence, value: &ValueRef<'_>, expected: &mut Vec<u8>) {
    fill(number, sequence, expected);
    assert!(value.eq_bytes(expected), "torn value of commit {sequence}");
}

/// The last commit up to a bound that wrote a key.
fn writer_of(number: u64, bound: Sequence) -> Option<Sequence> {
    (1..=bound)
        .rev()
        .find(|&sequence| keys_of(sequence).any(|written| written == number))
}

/// Point reads: exactly the newest version at the bound, and with no bound never an older one.
fn read_points(memtable: &Memtable, hasher: &crate::types::Hasher, shared: &Shared, seed: u64) {
    let mut state = seed;
    let mut expected = Vec::new();
    loop {
        let done = shared.done.load(Ordering::Acquire);
        let visible = shared.visible.load(Ordering::Acquire);
        let bound = match random(&mut state) % 2 {
            0 => visible,
            _ => random(&mut state) % (visible + 1),
        };
        let number = random(&mut state) % KEYS;
        let hash = hasher.hash(KEYSPACE, &key(number));
        let found = memtable.get(KEYSPACE, &key(number), hash, bound);
        let sequence = found.as_ref().map(|found| found.sequence);
        assert_eq!(
            sequence,
            writer_of(number, bound),
            "key {number} at {bound}"
        );
        if let Some(found) = found {
            check_value(number, found.sequence, &found.value, &mut expected);
        }
        let newest = memtable.get(KEYSPACE, &key(number), hash, Sequence::MAX);
        let newest_sequence = newest.as_ref().map(|found| found.sequence);
        assert!(newest_sequence >= sequence);
        if let Some(found) = newest {
            check_value(number, found.sequence, &found.value, &mut expected);
        }
        if done && visible == COMMITS {
            return;
        }
    }
}

/// Scans: strictly in order, both ways, with all versions within the bound and no torn one.
fn scan(memtable: &Arc<Memtable>, shared: &Shared, seed: u64) {
    let mut state = seed;
    let mut expected = Vec::new();
    loop {
        let done = shared.done.load(Ordering::Acquire);
        let visible = shared.visible.load(Ordering::Acquire);
        let number = random(&mut state) % KEYS;
        let mut cursor = memtable.owned_cursor();
        cursor.seek(KEYSPACE, &key(number), visible);
        let within = cursor
            .entry()
            .map(|entry| (entry.key.to_vec(), entry.sequence));
        if let Some(sequence) = writer_of(number, visible) {
            assert_eq!(within, Some((key(number).to_vec(), sequence)));
        }
        let mut last: Option<(Vec<u8>, Sequence)> = None;
        for _ in 0..200 {
            let Some(entry) = cursor.entry() else { break };
            if let Some((key, sequence)) = &last {
                let order = key.as_slice().cmp(entry.key);
                assert!(order.then(entry.sequence.cmp(sequence)).is_lt());
            }
            let bytes = entry.key.last_chunk().expect("a key of ours");
            let number = u64::from_be_bytes(*bytes) / 0x0101_0101;
            check_value(number, entry.sequence, &entry.value, &mut expected);
            last = Some((entry.key.to_vec(), entry.sequence));
            cursor.next();
        }
        cursor.seek_before(KEYSPACE, &key(number), Sequence::MAX);
        if let Some(entry) = cursor.entry() {
            assert!(entry.key < &key(number)[..]);
        }
        if done && visible == COMMITS {
            return;
        }
    }
}

#[test]
fn readers_never_see_a_torn_or_lost_commit() {
    let options = MemtableOptions {
        block_records: 64,
        records_max: 5 * COMMITS as u32,
        height_seed: 3,
    };
    let mut fixture = Fixture::new(1024, options, 46);
    let memtable = fixture.memtable.clone();
    let hasher = fixture.hasher;
    let shared = Shared::default();
    std::thread::scope(|scope| {
        scope.spawn(|| write(&mut fixture, &shared));
        scope.spawn(|| publish(&memtable, &shared));
        scope.spawn(|| read_points(&memtable, &hasher, &shared, 1));
        scope.spawn(|| read_points(&memtable, &hasher, &shared, 1 << 40));
        scope.spawn(|| scan(&memtable, &shared, 1 << 50));
    });
    let records = (1..=COMMITS)
        .map(|sequence| keys_of(sequence).count())
        .sum::<usize>();
    let mut cursor = memtable.cursor();
    cursor.seek_first();
    let mut seen = 0;
    while cursor.is_valid() {
        seen += 1;
        cursor.next();
    }
    assert_eq!(seen, records);
    assert_eq!(memtable.published_sequence(), COMMITS);
}
