//! Random commits against a sorted map of all versions.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::collections::VecDeque;

use proptest::prelude::*;

use super::tests::{CHUNK_BYTES, Fixture, content};
use super::*;
use crate::types::RecordKind;

/// Keys that share prefixes, tie in their first 8 bytes, or differ in trailing zeros.
const KEYS: [&[u8]; 12] = [
    b"",
    b"\0",
    b"\0\0",
    b"a",
    b"a\0",
    b"aaaaaaaa",
    b"aaaaaaaa\0",
    b"aaaaaaaab",
    b"aaaaaaaabbbbbbbbbbbbbbbbbbbbbbbbb",
    b"aaaaaaab",
    b"\xff\xff\xff\xff\xff\xff\xff\xff",
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff",
];

/// Both kinds, and counters on both sides of what a digest tells apart.
const KEYSPACES: [KeyspaceId; 6] = [
    KeyspaceId(0),
    KeyspaceId(127),
    KeyspaceId(128),
    KeyspaceId(900),
    KeyspaceId(0x8000_0000),
    KeyspaceId(0x8000_0200),
];

type Place = (KeyspaceId, Vec<u8>, Reverse<Sequence>);
type Versions = BTreeMap<Place, Option<Vec<u8>>>;

#[derive(Clone, Debug)]
enum Step {
    /// Keys by (keyspace, key), with a value length or a tombstone; encoded apart or not.
    Commit(BTreeMap<(usize, usize), Option<usize>>, bool),
    /// Sequences skipped: other generations' or refused ones.
    Skip(u64),
    Publish,
    /// Walks from a place, forward or backward.
    Walk(usize, usize, u64, bool),
    /// Looks all keys up at a bound.
    Look(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let key = (0..KEYSPACES.len(), 0..KEYS.len());
    let value = prop::option::weighted(
        0.8,
        prop_oneof![
            8 => 0..40usize,
            1 => 200..900usize
        ],
    );
    let commit = prop::collection::btree_map(key, value, 1..8);
    prop_oneof![
        6 => (commit, prop::bool::weighted(0.3)).prop_map(|(keys, apart)| Step::Commit(keys, apart)),
        1 => (1..5u64).prop_map(Step::Skip),
        4 => Just(Step::Publish),
        2 => (0..KEYSPACES.len(), 0..KEYS.len(), any::<u64>(), any::<bool>())
            .prop_map(|(keyspace, key, sequence, forward)| {
                Step::Walk(keyspace, key, sequence, forward)
            }),
        1 => any::<u64>().prop_map(Step::Look),
    ]
}

struct Run {
    fixture: Fixture,
    sequence: Sequence,
    /// All versions, and those that were published.
    all: Versions,
    published: Versions,
    waiting: VecDeque<(Appended, Versions)>,
}

impl Run {
    fn apply(&mut self, step: Step) {
        match step {
            Step::Commit(keys, apart) => self.commit(&keys, apart),
            Step::Skip(count) => self.sequence += count,
            Step::Publish => {
                if let Some((appended, versions)) = self.waiting.pop_front() {
                    self.fixture.memtable.publish(&appended);
                    self.published.extend(versions);
                }
            }
            Step::Walk(keyspace, key, sequence, forward) => {
                let bound = self.bound(sequence);
                self.walk(KEYSPACES[keyspace], KEYS[key], bound, forward);
            }
            Step::Look(sequence) => self.look(self.bound(sequence)),
        }
    }

    fn bound(&self, random: u64) -> Sequence {
        match random % 8 {
            0 => Sequence::MAX,
            _ => random % (self.sequence + 2),
        }
    }

    fn commit(&mut self, keys: &BTreeMap<(usize, usize), Option<usize>>, apart: bool) {
        self.sequence += 1;
        let sequence = self.sequence;
        let versions: Versions = keys
            .iter()
            .map(|(&(keyspace, key), value_len)| {
                let place = (KEYSPACES[keyspace], KEYS[key].to_vec(), Reverse(sequence));
                let value = value_len.map(|len| vec![(sequence + key as u64) as u8; len]);
                (place, value)
            })
            .collect();
        let ops: Vec<_> = versions
            .iter()
            .map(|((keyspace, key, _), value)| self.fixture.op(*keyspace, key, value.as_deref()))
            .collect();
        let appended = self.fixture.append(sequence, &ops, apart);
        drop(ops);
        self.all.extend(versions.clone());
        self.waiting.push_back((appended, versions));
    }

    /// Every key, at one bound, unpublished versions included.
    fn look(&self, bound: Sequence) {
        for keyspace in KEYSPACES {
            for key in KEYS {
                let from = (keyspace, key.to_vec(), Reverse(bound));
                let expected = self
                    .all
                    .range(from..)
                    .next()
                    .filter(|((id, found, _), _)| *id == keyspace && found == key)
                    .map(|((_, _, sequence), value)| (sequence.0, value.clone()));
                assert_eq!(self.fixture.get(keyspace, key, bound), expected);
            }
        }
    }

    /// A few steps of a cursor from a place, published versions only.
    fn walk(&self, keyspace: KeyspaceId, key: &[u8], bound: Sequence, forward: bool) {
        let mut cursor = self.fixture.memtable.owned_cursor();
        let from = (keyspace, key.to_vec(), Reverse(bound));
        let expected: Vec<_> = match forward {
            true => self.published.range(from..).take(10).collect(),
            false => self.published.range(..from).rev().take(10).collect(),
        };
        match forward {
            true => cursor.seek(keyspace, key, bound),
            false => cursor.seek_before(keyspace, key, bound),
        }
        for (place, value) in &expected {
            check_entry(&cursor.entry().expect("one more"), place, value.as_ref());
            match forward {
                true => cursor.next(),
                false => cursor.prev(),
            }
        }
        assert_eq!(
            cursor.is_valid(),
            expected.len() == 10 && cursor.entry().is_some()
        );
    }

    /// All of it, both ways, and the counts.
    fn check(&self) {
        for bound in (0..=self.sequence + 1).chain([Sequence::MAX]) {
            self.look(bound);
        }
        let mut cursor = self.fixture.memtable.cursor();
        cursor.seek_first();
        for (place, value) in &self.published {
            check_entry(&cursor.entry().expect("one more"), place, value.as_ref());
            cursor.next();
        }
        assert!(!cursor.is_valid() && cursor.entry().is_none());
        cursor.seek_last();
        for (place, value) in self.published.iter().rev() {
            check_entry(&cursor.entry().expect("one more"), place, value.as_ref());
            cursor.prev();
        }
        assert!(!cursor.is_valid());
        self.check_counts();
    }

    fn check_counts(&self) {
        let memtable = &self.fixture.memtable;
        let mut expected = [KindCounts::default(); 2];
        let mut last = None;
        for ((keyspace, key, _), value) in &self.all {
            let counts = &mut expected[keyspace.kind().expect("valid") as usize];
            match value {
                Some(_) => counts.values += 1,
                None => counts.tombstones += 1,
            }
            if last == Some((keyspace, key)) {
                counts.shadowed += 1;
            }
            last = Some((keyspace, key));
        }
        assert_eq!(
            KeyspaceKind::ALL.map(|kind| memtable.counts(kind)),
            expected
        );
        assert_eq!(memtable.records() as usize, self.all.len());
        assert_eq!(memtable.published_records() as usize, self.published.len());
        let sequences = self.all.keys().map(|(_, _, sequence)| sequence.0);
        assert_eq!(
            memtable.first_sequence(),
            sequences.clone().min().unwrap_or(0)
        );
        assert_eq!(memtable.last_sequence(), sequences.max().unwrap_or(0));
    }
}

fn check_entry(entry: &EntryRef<'_>, place: &Place, value: Option<&Vec<u8>>) {
    let found = (entry.keyspace, entry.key.to_vec(), Reverse(entry.sequence));
    assert_eq!(&found, place);
    assert_eq!(entry.kind == RecordKind::Value, value.is_some());
    assert_eq!(content(entry.kind, &entry.value).as_ref(), value);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn agrees_with_a_sorted_map(
        steps in prop::collection::vec(step(), 1..80),
        block_bits in 2..6u32,
        height_seed in any::<u64>(),
        hash_bits in prop::sample::select(vec![1u8, 8, 46]),
    ) {
        let options = MemtableOptions {
            block_records: 1 << block_bits,
            records_max: 700,
            height_seed,
        };
        let mut run = Run {
            fixture: Fixture::new(CHUNK_BYTES, options, hash_bits),
            sequence: 6,
            all: Versions::new(),
            published: Versions::new(),
            waiting: VecDeque::new(),
        };
        for step in steps {
            run.apply(step);
        }
        run.check();
        while !run.waiting.is_empty() {
            run.apply(Step::Publish);
        }
        run.check();
    }
}
