//! Single behaviours; the model and the threads have files of their own.

use proptest::prelude::*;

use super::*;
use crate::log::record::{encode_header, encoded_len};
use crate::types::{Hasher, RecordKind};

pub(super) const CHUNK_BYTES: u32 = 256;

/// A region with one memtable, and what is needed to talk to it.
pub(super) struct Fixture {
    pub(super) region: Region,
    pub(super) hasher: Hasher,
    pub(super) memtable: Arc<Memtable>,
    pub(super) writer: MemtableWriter,
}

impl Fixture {
    pub(super) fn new(chunk_bytes: u32, options: MemtableOptions, hash_bits: u8) -> Self {
        let region = Region::new(64 << 20, chunk_bytes);
        let base_bytes = Memtable::base_bytes(&region, &options);
        let mut permit = region
            .try_acquire(base_bytes, Owner::Reserved)
            .expect("free");
        let (memtable, writer) = Memtable::create(&options, &mut permit).expect("valid");
        assert_eq!(permit.bytes(), 0);
        Self {
            region,
            hasher: Hasher::new([3; 16], hash_bits),
            memtable,
            writer,
        }
    }

    pub(super) fn tiny() -> Self {
        let options = MemtableOptions {
            block_records: 4,
            records_max: 5000,
            height_seed: 1,
        };
        Self::new(CHUNK_BYTES, options, 46)
    }

    pub(super) fn op<'a>(
        &self,
        keyspace: KeyspaceId,
        key: &'a [u8],
        value: Option<&'a [u8]>,
    ) -> Op<'a> {
        Op {
            keyspace,
            kind: match value {
                Some(_) => RecordKind::Value,
                None => RecordKind::Tombstone,
            },
            key,
            value: value.unwrap_or_default(),
            hash: self.hasher.hash(keyspace, key),
        }
    }

    /// Appends with a permit of exactly the cost announced, and checks what is left of it.
    pub(super) fn append(
        &mut self,
        sequence: Sequence,
        ops: &[Op<'_>],
        detached: bool,
    ) -> Appended {
        let shape = BatchShape::of(self.region.chunk_bytes(), ops).expect("fits");
        let cost = match detached {
            false => self.writer.cost_bytes(&shape).expect("fits"),
            // From a frame of its own on, only the upper bound for all states holds.
            true => self.cost_bytes_max(&shape),
        };
        assert!(cost <= self.cost_bytes_max(&shape));
        let mut permit = self
            .region
            .try_acquire(cost, Owner::Reserved)
            .expect("free");
        let before = self.memtable.memory_bytes();
        let appended = match detached {
            false => self.writer.append(sequence, ops, &mut permit),
            true => {
                let frame = Detached::encode(ops, &mut permit).expect("has the bytes");
                self.writer
                    .append_detached(sequence, frame, ops, &mut permit)
                    .map_err(|(refusal, _)| refusal)
            }
        };
        assert_eq!(before + cost, self.memtable.memory_bytes() + permit.bytes());
        drop(permit);
        self.check_ledger();
        appended.expect("has the bytes")
    }

    fn cost_bytes_max(&self, shape: &BatchShape) -> u64 {
        let options = MemtableOptions {
            block_records: self.memtable.block_records,
            records_max: self.memtable.records_max,
            height_seed: 0,
        };
        Memtable::cost_bytes_max(&self.region, &options, shape)
    }

    fn check_ledger(&self) {
        let ledger = self.region.ledger();
        assert!(ledger.is_exact());
        assert_eq!(
            ledger.owned_bytes(self.memtable.owner()),
            self.memtable.memory_bytes()
        );
        assert_eq!(
            ledger.free_bytes(),
            self.region.total_bytes() - self.memtable.memory_bytes()
        );
    }

    pub(super) fn get(
        &self,
        keyspace: KeyspaceId,
        key: &[u8],
        bound: Sequence,
    ) -> Option<(Sequence, Option<Vec<u8>>)> {
        let hash = self.hasher.hash(keyspace, key);
        let found = self.memtable.get(keyspace, key, hash, bound)?;
        Some((found.sequence, content(found.kind, &found.value)))
    }
}

/// A record's value, `None` for a tombstone.
pub(super) fn content(kind: RecordKind, value: &ValueRef<'_>) -> Option<Vec<u8>> {
    match kind {
        RecordKind::Value => Some(value.to_vec()),
        RecordKind::Tombstone => {
            assert!(value.is_empty());
            None
        }
    }
}

/// The payload of a frame, encoded the plain way.
fn encoded(ops: &[Op<'_>]) -> Vec<u8> {
    let mut out = Vec::new();
    for op in ops {
        let start = out.len();
        let (key_len, value_len) = (op.key.len() as u16, op.value.len() as u32);
        out.extend(encode_header(op.kind, op.keyspace, key_len, value_len));
        out.extend(op.key);
        out.extend(op.value);
        out.resize(start + encoded_len(op.key.len(), op.value.len()), 0);
    }
    out
}

const ONCE: KeyspaceId = KeyspaceId(5);
const MUTABLE: KeyspaceId = KeyspaceId(0x8000_0001);

#[test]
fn versions_within_bounds() {
    let mut fixture = Fixture::tiny();
    let put = fixture.op(ONCE, b"k", Some(b"one"));
    fixture.append(10, &[put], false);
    let delete = fixture.op(ONCE, b"k", None);
    fixture.append(12, &[delete], false);
    assert_eq!(fixture.get(ONCE, b"k", 9), None);
    let one = Some((10, Some(b"one".to_vec())));
    assert_eq!(fixture.get(ONCE, b"k", 10), one);
    assert_eq!(fixture.get(ONCE, b"k", 11), one);
    assert_eq!(fixture.get(ONCE, b"k", 12), Some((12, None)));
    assert_eq!(fixture.get(MUTABLE, b"k", u64::MAX), None);
    assert_eq!(fixture.get(ONCE, b"k\0", u64::MAX), None);
    let counts = fixture.memtable.counts(KeyspaceKind::WriteOnce);
    assert_eq!(
        (counts.values, counts.tombstones, counts.shadowed),
        (1, 1, 1)
    );
    assert_eq!(fixture.memtable.shadowed(KeyspaceKind::Mutable), 0);
    assert_eq!(fixture.memtable.first_sequence(), 10);
    assert_eq!(fixture.memtable.last_sequence(), 12);
    assert_eq!(fixture.memtable.records(), 2);
}

#[test]
fn large_values_and_longest_keys_cross_chunks() {
    let mut fixture = Fixture::tiny();
    let key = vec![b'x'; CHUNK_BYTES as usize - 16];
    let value: Vec<u8> = (0..3000u32).map(|n| n as u8).collect();
    for (sequence, detached) in [(1, false), (2, true), (3, false), (4, false)] {
        let small = sequence.to_string();
        let ops = [
            fixture.op(MUTABLE, small.as_bytes(), Some(b"small")),
            fixture.op(MUTABLE, &key, Some(&value[sequence as usize..])),
            fixture.op(ONCE, &key, Some(b"")),
        ];
        let appended = fixture.append(sequence, &ops, detached);
        let mut pieces = Vec::new();
        fixture.memtable.payload_slices(&appended, &mut pieces);
        assert!(pieces.iter().all(|piece| !piece.is_empty()));
        assert_eq!(pieces.concat(), encoded(&ops));
        assert_eq!(appended.payload_len, encoded(&ops).len() as u64);
        fixture.memtable.publish(&appended);
    }
    for sequence in 1..=4u64 {
        let expected = Some((sequence, Some(value[sequence as usize..].to_vec())));
        assert_eq!(fixture.get(MUTABLE, &key, sequence), expected);
    }
    let hash = fixture.hasher.hash(MUTABLE, &key);
    let found = fixture.memtable.get(MUTABLE, &key, hash, 4).expect("there");
    assert!(found.value.eq_bytes(&value[4..]));
    assert!(!found.value.eq_bytes(&value[3..]));
    let mut other = value[4..].to_vec();
    other[2990] ^= 1;
    assert!(!found.value.eq_bytes(&other));
}

#[test]
fn refusals_change_nothing() {
    let options = MemtableOptions {
        block_records: 4,
        records_max: 6,
        height_seed: 1,
    };
    let mut fixture = Fixture::new(CHUNK_BYTES, options, 46);
    let mut permit = fixture
        .region
        .try_acquire(1 << 20, Owner::Reserved)
        .expect("free");
    let good = fixture.op(MUTABLE, b"k", Some(b"v"));
    fixture
        .writer
        .append(5, &[good], &mut permit)
        .expect("fits");
    let before = (permit.bytes(), fixture.memtable.memory_bytes());

    let long = vec![0; CHUNK_BYTES as usize - 15];
    let long = fixture.op(MUTABLE, &long, Some(b""));
    let mut valued = fixture.op(MUTABLE, b"t", None);
    valued.value = b"v";
    let keys: Vec<_> = (0..6u8).map(|n| [n]).collect();
    let many: Vec<_> = keys
        .iter()
        .map(|key| fixture.op(MUTABLE, key, None))
        .collect();
    let foreign = fixture.op(KeyspaceId(1 << 30), b"k", None);
    let refusals: [(Sequence, &[Op<'_>], Refusal); 6] = [
        (
            6,
            &[good, long],
            Refusal::KeyTooLong {
                bytes: 241,
                limit: 240,
            },
        ),
        (6, &[valued], Refusal::InvalidOp),
        (6, &[foreign], Refusal::InvalidOp),
        (
            6,
            &many,
            Refusal::TooManyRecords {
                needed: 7,
                limit: 6,
            },
        ),
        (
            5,
            &[good],
            Refusal::SequenceOrder {
                sequence: 5,
                last: 5,
            },
        ),
        (
            5 + (1 << 32),
            &[good],
            Refusal::SequenceOrder {
                sequence: 5 + (1 << 32),
                last: 5,
            },
        ),
    ];
    for (sequence, ops, refusal) in refusals {
        let refused = fixture.writer.append(sequence, ops, &mut permit);
        assert_eq!(refused, Err(refusal));
        if let Ok(frame) = Detached::encode(ops, &mut permit) {
            let refused = fixture
                .writer
                .append_detached(sequence, frame, ops, &mut permit);
            let (found, frame) = refused.expect_err("refused this way too");
            assert_eq!(found, refusal);
            permit.absorb(frame.into_permit());
        }
    }
    let value = vec![1; 1000];
    let large = fixture.op(MUTABLE, b"l", Some(&value));
    let mut small = permit.split(1000).expect("has them");
    let refused = fixture.writer.append(6, &[large], &mut small);
    assert!(matches!(
        refused,
        Err(Refusal::PermitTooSmall { given: 1000, .. })
    ));
    assert!(Detached::encode(&[large], &mut small).is_err());
    permit.absorb(small);
    let frame = Detached::encode(&[large], &mut permit).expect("fits");
    let refused = fixture
        .writer
        .append_detached(6, frame, &[good], &mut permit);
    let (refusal, frame) = refused.expect_err("other operations");
    assert_eq!(refusal, Refusal::OtherOps);
    permit.absorb(frame.into_permit());

    assert_eq!((permit.bytes(), fixture.memtable.memory_bytes()), before);
    assert_eq!(fixture.memtable.records(), 1);
    assert_eq!(fixture.writer.last_sequence(), 5);
    assert_eq!(fixture.get(MUTABLE, b"l", u64::MAX), None);
}

#[test]
fn create_refuses_and_region_limits_chunks() {
    let mut options = MemtableOptions {
        block_records: 4,
        records_max: 0,
        height_seed: 1,
    };
    let region = Region::new(64 << 10, CHUNK_BYTES);
    let mut permit = region.try_acquire(64 << 10, Owner::Open).expect("free");
    let refused = Memtable::create(&options, &mut permit).map(|_| ());
    assert_eq!(refused, Err(Refusal::InvalidOptions));
    options.records_max = 1 << 20;
    let refused = Memtable::create(&options, &mut permit).map(|_| ());
    assert!(matches!(refused, Err(Refusal::PermitTooSmall { .. })));
    assert_eq!(permit.bytes(), 64 << 10);
    options.records_max = 10;
    let (_memtable, writer) = Memtable::create(&options, &mut permit).expect("fits");
    let mut shape = BatchShape::new(CHUNK_BYTES);
    shape.add(1, 70_000).expect("fits a record");
    let refused = writer.cost_bytes(&shape);
    assert!(matches!(
        refused,
        Err(Refusal::TooManyChunks { limit: 256, .. })
    ));
}

#[test]
fn bytes_move_as_a_whole_and_come_back_with_the_last_handle() {
    let mut fixture = Fixture::tiny();
    let value = vec![7; 900];
    let op = fixture.op(MUTABLE, b"k", Some(&value));
    for (sequence, detached) in [(1, false), (2, true)] {
        let appended = fixture.append(sequence, &[op], detached);
        fixture.memtable.publish(&appended);
    }
    let Fixture {
        region,
        memtable,
        writer,
        ..
    } = fixture;
    assert!(Arc::ptr_eq(&writer.seal(), &memtable));
    let bytes = memtable.memory_bytes();
    for owner in [Owner::Sealed, Owner::Flushing, Owner::Retiring] {
        memtable.move_to(owner);
        assert_eq!(region.ledger().owned_bytes(owner), bytes);
        assert_eq!(region.ledger().free_bytes(), region.total_bytes() - bytes);
    }
    let mut cursor = memtable.owned_cursor();
    drop(memtable);
    cursor.seek_first();
    let entry = cursor.entry().expect("two published, the newer first");
    assert_eq!((entry.key, entry.sequence), (&b"k"[..], 2));
    assert!(entry.value.eq_bytes(&value));
    assert_eq!(region.ledger().owned_bytes(Owner::Retiring), bytes);
    drop(cursor);
    assert_eq!(region.ledger().free_bytes(), region.total_bytes());
    assert!(region.pooled_bytes() >= 8 * u64::from(CHUNK_BYTES));
}

#[test]
fn old_version_of_a_hot_key_is_found_by_the_order() {
    let mut fixture = Fixture::tiny();
    for sequence in 1..=2000u64 {
        let value = sequence.to_le_bytes();
        let op = fixture.op(MUTABLE, b"hot", Some(&value));
        let appended = fixture.append(sequence, &[op], false);
        // The last ones stay unpublished: a bound among them can't use the order.
        if sequence <= 1900 {
            fixture.memtable.publish(&appended);
        }
    }
    for bound in [1, 2, 700, 1899, 1900, 1901, 1950, 1999, 2000, u64::MAX] {
        let sequence = bound.min(2000);
        let expected = Some((sequence, Some(sequence.to_le_bytes().to_vec())));
        assert_eq!(fixture.get(MUTABLE, b"hot", bound), expected);
    }
    assert_eq!(fixture.memtable.shadowed(KeyspaceKind::Mutable), 1999);
    assert_eq!(fixture.memtable.published_records(), 1900);
}

#[test]
fn room_behind_a_large_frame_is_used() {
    let mut fixture = Fixture::tiny();
    // 120 bytes are left behind the first small frame, 64 behind the first large one, 208 behind
    // the second.
    let value = [1; 424];
    let ops = [
        fixture.op(MUTABLE, b"small", Some(&value[..115])),
        fixture.op(MUTABLE, b"less", Some(&value)),
        fixture.op(MUTABLE, b"more", Some(&value[..284])),
    ];
    let mut chunks = Vec::new();
    for (sequence, op) in (1..).zip(ops) {
        fixture.append(sequence, &[op], sequence > 1);
        let mut shape = BatchShape::new(CHUNK_BYTES);
        shape.add(0, 104).expect("fits");
        let fits_120 = fixture.writer.cost_bytes(&shape) == Ok(0);
        shape.add(0, 72).expect("fits");
        let fits_208 = fixture.writer.cost_bytes(&shape).expect("fits") < 256;
        chunks.push((fits_120, fits_208));
    }
    assert_eq!(chunks, [(true, false), (true, false), (true, true)]);
}

#[test]
fn the_order_is_made_in_bounded_steps_and_by_whoever_seeks() {
    let mut fixture = Fixture::tiny();
    for sequence in 1..=1000u64 {
        // Not in the order of keys, and one key in ten a second time.
        let key = (sequence * 7919 % 900).to_be_bytes();
        let op = fixture.op(MUTABLE, &key, Some(&key));
        let appended = fixture.append(sequence, &[op], false);
        fixture.memtable.publish(&appended);
    }
    let memtable = &fixture.memtable;
    let mut standing = memtable.cursor();
    assert!(!memtable.order(10));
    standing.seek_first();
    let collect = || {
        let mut cursor = memtable.cursor();
        cursor.seek_first();
        let mut all = Vec::new();
        while let Some(entry) = cursor.entry() {
            all.push((entry.key.to_vec(), std::cmp::Reverse(entry.sequence)));
            cursor.next();
        }
        all
    };
    let all = collect();
    assert_eq!(all.len(), 1000);
    assert!(all.is_sorted());
    assert!(memtable.order(0), "the seek has ordered everything");
    assert_eq!(standing.entry().map(|entry| entry.key), Some(&[0; 8][..]));
}

#[test]
fn few_hash_bits_keep_walks_short() {
    for hash_bits in [1, 8, 46] {
        let mut fixture = Fixture::new(4096, OPTIONS_4096, hash_bits);
        for number in 0..4096u64 {
            let key = format!("user/{number:08}");
            let op = fixture.op(ONCE, key.as_bytes(), Some(b"v"));
            fixture.append(number + 1, &[op], false);
        }
        let mut looked_at = 0;
        for number in 0..4096u64 {
            let key = format!("none/{number:08}");
            let hash = fixture.hasher.hash(ONCE, key.as_bytes());
            let mixed = mix(hash, ONCE, key.as_bytes());
            let walked = fixture.memtable.probe.walk(mixed, |_| {
                looked_at += 1;
                false
            });
            assert!(matches!(walked, Some(Walk::Empty { .. })));
            assert_eq!(fixture.get(ONCE, key.as_bytes(), u64::MAX), None);
        }
        // 19 bits of fingerprint: next to nothing but the slots is touched for an absent key.
        assert!(looked_at < 10, "{looked_at} refs with {hash_bits} bits");
    }
}

const OPTIONS_4096: MemtableOptions = MemtableOptions {
    block_records: 512,
    records_max: 4096,
    height_seed: 1,
};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// `Fixture::append` checks that the announced cost suffices and that the rest stays.
    #[test]
    fn announced_cost_is_enough(
        only_large in any::<bool>(),
        chunk_units in 8..80u32,
        block_bits in 2..10u32,
        commits in prop::collection::vec(
            (prop::collection::vec((0..1000usize, 0..900usize), 0..12), any::<bool>()),
            1..40,
        ),
    ) {
        let options = MemtableOptions {
            block_records: 1 << block_bits,
            records_max: 600,
            height_seed: 1,
        };
        let mut fixture = Fixture::new(8 * chunk_units, options, 8);
        let longest = 8 * chunk_units as usize - 16;
        let mut sequence = 0;
        let (mut payload_bytes, mut key_bytes) = (0, 0);
        for (lengths, detached) in commits {
            sequence += 1;
            let records: Vec<_> = lengths
                .iter()
                .enumerate()
                .map(|(number, (key, value))| {
                    let mut bytes = vec![number as u8; (key % longest).max(1)];
                    bytes[0] = number as u8;
                    (bytes, vec![9; *value])
                })
                .collect();
            let mut ops: Vec<_> = records
                .iter()
                .map(|(key, value)| fixture.op(MUTABLE, key, Some(value)))
                .collect();
            ops.truncate(fixture.writer.records_left() as usize);
            let shape = BatchShape::of(8 * chunk_units, &ops).expect("fits");
            let detached = detached && (shape.is_large() || !only_large);
            payload_bytes += shape.payload_bytes();
            key_bytes = ops.iter().map(|op| op.key.len()).max().unwrap_or(0).max(key_bytes);
            let appended = fixture.append(sequence, &ops, detached);
            if only_large {
                let (region, memtable) = (&fixture.region, &fixture.memtable);
                let most = Memtable::bytes_max(region, &options, payload_bytes, key_bytes);
                prop_assert!(memtable.memory_bytes() <= most);
            }
            let mut pieces = Vec::new();
            fixture.memtable.payload_slices(&appended, &mut pieces);
            prop_assert_eq!(pieces.concat(), encoded(&ops));
        }
    }
}

#[test]
fn a_cleared_memtable_is_a_new_one_in_the_same_lists() {
    let mut fixture = Fixture::tiny();
    let keys: Vec<[u8; 2]> = (0..300u16).map(u16::to_be_bytes).collect();
    let id = KeyspaceId(1);
    for (sequence, key) in (1..).zip(&keys) {
        let op = fixture.op(id, key, Some(&[7; 40]));
        let appended = fixture.append(sequence, &[op], sequence % 7 == 0);
        fixture.memtable.publish(&appended);
    }
    let Fixture {
        region,
        hasher,
        mut memtable,
        writer,
    } = fixture;
    drop(writer);
    let address = Arc::as_ptr(&memtable);
    Arc::get_mut(&mut memtable).expect("alone").clear();
    let books = region.ledger();
    assert_eq!(books.free_bytes(), books.total_bytes(), "{books:?}");
    let get = |memtable: &Memtable, key: &[u8]| {
        let hash = hasher.hash(id, key);
        memtable.get(id, key, hash, Sequence::MAX).is_some()
    };
    assert!(!get(&memtable, &keys[3]), "a blank one has nothing");
    let options = MemtableOptions {
        block_records: 4,
        records_max: 5000,
        height_seed: 2,
    };
    let base_bytes = Memtable::base_bytes(&region, &options);
    let mut permit = region
        .try_acquire(base_bytes, Owner::Reserved)
        .expect("free");
    let (memtable, writer) = Memtable::create_in(memtable, &options, &mut permit).expect("valid");
    assert_eq!(Arc::as_ptr(&memtable), address);
    assert_eq!(
        (
            memtable.records(),
            memtable.published_sequence(),
            memtable.first_sequence()
        ),
        (0, 0, 0)
    );
    let mut fixture = Fixture {
        region,
        hasher,
        memtable,
        writer,
    };
    let op = fixture.op(id, &keys[5], Some(b"new"));
    let appended = fixture.append(900, &[op], false);
    fixture.memtable.publish(&appended);
    assert!(get(&fixture.memtable, &keys[5]) && !get(&fixture.memtable, &keys[3]));
    assert_eq!(fixture.memtable.published_records(), 1);
    // One that somebody else has is not used, nor one of another size.
    let held = fixture.memtable.clone();
    let other = MemtableOptions {
        records_max: 17,
        ..options
    };
    for (blank, options) in [
        (held, options),
        (Memtable::blank(&fixture.region, &options), other),
    ] {
        let address = Arc::as_ptr(&blank);
        let base_bytes = Memtable::base_bytes(&fixture.region, &options);
        let mut permit = fixture
            .region
            .try_acquire(base_bytes, Owner::Reserved)
            .expect("free");
        let (made, _) = Memtable::create_in(blank, &options, &mut permit).expect("valid");
        assert!(Arc::as_ptr(&made) != address && made.records() == 0);
    }
}
