//! Cursors: order, seeks, both directions, what they cost.

use proptest::prelude::*;

use super::*;

fn forward(cursor: &mut SegmentCursor, counts: &mut ReadCounts) -> Vec<Given> {
    let mut records = Vec::new();
    let mut more = cursor.seek_first(counts).unwrap();
    while more {
        records.push(given_of(&cursor.current().unwrap()));
        more = cursor.next(counts).unwrap();
    }
    assert_eq!(cursor.current(), None);
    records
}

fn backward(cursor: &mut SegmentCursor, counts: &mut ReadCounts) -> Vec<Given> {
    let mut records = Vec::new();
    let mut more = cursor.seek_last(counts).unwrap();
    while more {
        records.push(given_of(&cursor.current().unwrap()));
        more = cursor.prev(counts).unwrap();
    }
    records.reverse();
    records
}

#[test]
fn scans_read_about_once_a_buffer_both_ways() {
    let records = numbered(40_000, 60);
    let fixture = Build::default().open(&records);
    let mut counts = ReadCounts::default();
    fixture.segment.tail(&fixture.files, &mut counts).unwrap();
    let data_bytes = fixture.segment.known_tail().unwrap().places().records.bytes;
    let buffers = data_bytes / (64 << 10) + 1;
    for (name, scan) in [
        (
            "forward",
            forward as fn(&mut SegmentCursor, &mut ReadCounts) -> Vec<Given>,
        ),
        ("backward", backward),
    ] {
        let mut counts = ReadCounts::default();
        let mut cursor = fixture.cursor(64 << 10);
        assert_eq!(scan(&mut cursor, &mut counts), records);
        // Back, each piece of fences is read too, and its first window can be cut short by it.
        let most = buffers + buffers / 8 + 16 * u64::from(name == "backward");
        assert!(
            counts.reads <= most,
            "{name}: {} reads, {buffers} buffers",
            counts.reads
        );
        assert!(
            counts.bytes <= data_bytes + data_bytes / 8 + (64 << 10),
            "{name}"
        );
        let options = CursorOptions::default();
        assert!(
            cursor.held_bytes() <= SegmentCursor::memory_bytes(options),
            "{name}"
        );
    }
    // Turning around at the end costs no more than beginning there.
    let mut cursor = fixture.cursor(64 << 10);
    while cursor.next(&mut counts).unwrap() {}
    counts = ReadCounts::default();
    while cursor.prev(&mut counts).unwrap() {}
    assert!(
        counts.reads <= buffers + buffers / 8 + 16,
        "{} reads",
        counts.reads
    );
    let options = CursorOptions::default();
    assert!(cursor.held_bytes() <= SegmentCursor::memory_bytes(options));
}

#[test]
fn large_records_grow_the_window_and_let_go_of_it() {
    let mut records = numbered(100, 2000);
    records.insert(40, Given::new("key00000039x", 40, vec![3; 900_000]));
    records.insert(80, Given::new("key00000078x", 40, vec![4; 500_000]));
    let fixture = Build::default().open(&records);
    let mut counts = ReadCounts::default();
    let mut cursor = fixture.cursor(8 << 10);
    assert_eq!(forward(&mut cursor, &mut counts), records);
    let most = SegmentCursor::memory_bytes(CursorOptions {
        buffer_bytes: 8 << 10,
    });
    assert!(cursor.held_bytes() <= most, "{}", cursor.held_bytes());
    assert_eq!(backward(&mut cursor, &mut counts), records);
    let most = SegmentCursor::memory_bytes(CursorOptions {
        buffer_bytes: 8 << 10,
    });
    assert!(cursor.held_bytes() <= most, "{}", cursor.held_bytes());
    assert!(
        cursor
            .seek(KEYSPACE, b"key00000039x", Sequence::MAX, &mut counts)
            .unwrap()
    );
    assert_eq!(cursor.current().unwrap().value.len(), 900_000);
    assert!(cursor.prev(&mut counts).unwrap());
    assert_eq!(cursor.current().unwrap().key, b"key00000039");
}

#[test]
fn both_ends_turn_around() {
    let records = numbered(3, 10);
    let fixture = Build::default().open(&records);
    let mut counts = ReadCounts::default();
    let mut cursor = fixture.cursor(4096);
    assert!(!cursor.prev(&mut counts).unwrap());
    for record in &records {
        assert!(cursor.next(&mut counts).unwrap());
        assert_eq!(given_of(&cursor.current().unwrap()), *record);
    }
    assert!(!cursor.next(&mut counts).unwrap());
    assert!(!cursor.next(&mut counts).unwrap());
    for record in records.iter().rev() {
        assert!(cursor.prev(&mut counts).unwrap());
        assert_eq!(given_of(&cursor.current().unwrap()), *record);
    }
    assert!(!cursor.prev(&mut counts).unwrap());
    assert!(!cursor.prev(&mut counts).unwrap());
    assert!(cursor.next(&mut counts).unwrap());
    assert_eq!(given_of(&cursor.current().unwrap()), records[0]);
    assert!(!cursor.seek(KeyspaceId(2), b"", 0, &mut counts).unwrap());
    assert!(cursor.prev(&mut counts).unwrap());
    assert_eq!(given_of(&cursor.current().unwrap()), records[2]);
    assert!(
        !cursor
            .seek_before(KeyspaceId(0), b"zz", &mut counts)
            .unwrap()
    );
    assert!(cursor.next(&mut counts).unwrap());
    assert_eq!(given_of(&cursor.current().unwrap()), records[0]);
}

#[test]
fn an_empty_segment_has_no_record() {
    let mut fixture = Build::default().open(&[]);
    let mut counts = ReadCounts::default();
    let mut cursor = fixture.cursor(4096);
    assert!(!cursor.seek_first(&mut counts).unwrap());
    assert!(!cursor.seek_last(&mut counts).unwrap());
    assert!(!cursor.seek(KEYSPACE, b"a", 9, &mut counts).unwrap());
    assert!(!cursor.seek_before(KEYSPACE, b"a", &mut counts).unwrap());
    assert_eq!(fixture.get_at(KEYSPACE, b"a", 9).unwrap(), None);
    assert!(fixture.verify().is_clean());
}

#[test]
fn long_shared_prefixes_are_searched_not_scanned() {
    // 36-byte keys that differ in the last four only, as outputs of one transaction do.
    let key = |i: u32| [&[0xAB; 32][..], &i.to_be_bytes()].concat();
    let records: Vec<Given> = (0..20_000)
        .map(|i| Given::new(key(i), 1, vec![0; 60]))
        .collect();
    let fixture = Build::default().open(&records);
    let mut counts = ReadCounts::default();
    let mut cursor = fixture.cursor(16 << 10);
    cursor.seek_first(&mut counts).unwrap();
    for i in (0..20_000).step_by(501) {
        let mut counts = ReadCounts::default();
        assert!(
            cursor
                .seek(KEYSPACE, &key(i), Sequence::MAX, &mut counts)
                .unwrap()
        );
        assert_eq!(cursor.current().unwrap().key, key(i));
        // 590 blocks: ten of them asked at most, six pieces of fences, and a window or two.
        assert!(counts.reads <= 17, "{} reads", counts.reads);
        assert!(counts.bytes <= 80_000, "{} bytes", counts.bytes);
    }
}

/// Keys that stress separators: empty, shared prefixes around and beyond 32 bytes, neighbours.
fn hard_key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        Just(Vec::new()),
        proptest::collection::vec(0..3_u8, 0..6),
        (
            24..40_usize,
            0..3_u8,
            proptest::collection::vec(0..3_u8, 0..4)
        )
            .prop_map(|(len, byte, end)| [vec![byte; len], end].concat()),
        proptest::collection::vec(any::<u8>(), 0..50),
    ]
}

fn hard_records() -> impl Strategy<Value = Vec<Given>> {
    let record = (
        0..4_u32,
        hard_key(),
        any::<bool>(),
        prop_oneof![0..30_usize, 0..3000_usize],
    );
    proptest::collection::vec(record, 0..150).prop_map(|raw| {
        let mut records: Vec<Given> = raw
            .into_iter()
            .enumerate()
            .map(|(i, (keyspace, key, tombstone, len))| Given {
                keyspace: KeyspaceId(keyspace * 0xFF),
                key,
                sequence: i as u64 + 1,
                value: (!tombstone).then(|| vec![i as u8; len]),
            })
            .collect();
        // Versions of one key, enough to fill blocks of their own.
        if let Some(first) = records.first().cloned() {
            records.extend((1000..1020).map(|sequence| Given {
                sequence,
                ..first.clone()
            }));
        }
        sort(&mut records);
        records
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn seeks_and_steps_are_those_of_a_sorted_list(
        records in hard_records(),
        targets in proptest::collection::vec((0..4_u32, hard_key(), 0..1100_u64), 20),
        moves in proptest::collection::vec(0..4_u8, 60),
        key_fence_bytes in prop_oneof![Just(1_u32), Just(64), Just(700)],
        buffer_bytes in prop_oneof![Just(32_usize), Just(500), Just(1 << 16)],
    ) {
        let build = Build { key_fence_bytes, ..Build::default() };
        let fixture = build.open(&records);
        let counts = &mut ReadCounts::default();
        let mut cursor = fixture.cursor(buffer_bytes);
        prop_assert_eq!(&forward(&mut cursor, counts), &records);
        prop_assert_eq!(&backward(&mut cursor, counts), &records);
        let own = records.iter().map(|r| (r.keyspace, r.key.clone(), r.sequence));
        let others = targets.into_iter().map(|(k, key, s)| (KeyspaceId(k * 0xFF), key, s));
        for (keyspace, key, sequence) in own.chain(others) {
            let before = |r: &Given| {
                (r.keyspace, &r.key, sequence) < (keyspace, &key, r.sequence)
            };
            // The place in the list, counted from 1; 0 is in front, len + 1 behind.
            let mut place = records.partition_point(before) + 1;
            let found = cursor.seek(keyspace, &key, sequence, counts).unwrap();
            prop_assert_eq!(found, place <= records.len());
            for step in moves.iter().take(5) {
                let stood = match step % 2 {
                    0 => { place = (place + 1).min(records.len() + 1); cursor.next(counts) }
                    _ => { place = place.saturating_sub(1); cursor.prev(counts) }
                }.unwrap();
                let expected = place.checked_sub(1).and_then(|i| records.get(i));
                prop_assert_eq!(stood, expected.is_some());
                prop_assert_eq!(cursor.current().map(|r| given_of(&r)), expected.cloned());
            }
            let place = records.partition_point(|r| (r.keyspace, &r.key) < (keyspace, &key));
            let found = cursor.seek_before(keyspace, &key, counts).unwrap();
            let expected = place.checked_sub(1).and_then(|i| records.get(i));
            prop_assert_eq!(found, expected.is_some());
            prop_assert_eq!(cursor.current().map(|r| given_of(&r)), expected.cloned());
        }
        let report = fixture.verify();
        prop_assert!(report.is_clean(), "{:?}", report.damage);
    }
}

/// Keys and values of a dump in `bytevalue` form.
fn dumped(text: &str) -> Vec<Given> {
    let bytes = |line: &str| -> Vec<u8> {
        let digits = line.trim().as_bytes().chunks(2);
        let byte = |pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
        digits.map(byte).collect()
    };
    let lines: Vec<&str> = text.lines().filter(|line| line.starts_with(' ')).collect();
    let pairs = lines.chunks_exact(2).zip(1..);
    pairs
        .map(|(pair, sequence)| Given::new(bytes(pair[0]), sequence, bytes(pair[1])))
        .collect()
}

#[test]
fn real_keys_with_shared_prefixes() {
    let mut records = dumped(include_str!("../../../corpus/data/bitcoin-outputs.dump"));
    assert_eq!(records.len(), 8150);
    sort(&mut records);
    let mut fixture = Build::default().open(&records);
    let counts = &mut ReadCounts::default();
    let mut cursor = fixture.cursor(64 << 10);
    assert_eq!(forward(&mut cursor, counts), records);
    assert_eq!(backward(&mut cursor, counts), records);
    let mut at = 0;
    while let Some(record) = records.get(at) {
        // All outputs of a transaction, by its id.
        let id = &record.key[..32];
        let outputs = records[at..]
            .iter()
            .take_while(|r| r.key.starts_with(id))
            .count();
        cursor.seek(KEYSPACE, id, Sequence::MAX, counts).unwrap();
        for expected in &records[at..at + outputs] {
            assert_eq!(given_of(&cursor.current().unwrap()), *expected);
            cursor.next(counts).unwrap();
        }
        cursor.seek_before(KEYSPACE, id, counts).unwrap();
        assert_eq!(
            cursor.current().map(|r| given_of(&r)),
            at.checked_sub(1).map(|i| records[i].clone())
        );
        at += outputs;
    }
    for record in &records {
        let found = fixture
            .get_at(KEYSPACE, &record.key, Sequence::MAX)
            .unwrap();
        assert_eq!(found, Some((record.sequence, record.value.clone())));
    }
    assert_eq!(fixture.counts.reads, 2 * 8150);
    let report = fixture.verify();
    assert!(report.is_clean(), "{:?}", report.damage);
}
