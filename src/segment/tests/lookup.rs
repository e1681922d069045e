//! Point lookups: answers, versions, collisions, and what they cost.

use proptest::prelude::*;

use super::*;
use crate::error::ErrorKind;

const NEWEST: Sequence = Sequence::MAX;

#[test]
fn a_hit_costs_a_page_and_a_record_for_every_size() {
    let sizes = [
        0_usize,
        1,
        7,
        8,
        9,
        31,
        100,
        255,
        1000,
        4095,
        4096,
        5000,
        70_000,
        300_001,
        1 << 20,
    ];
    let mut records: Vec<Given> = (0..2000_u32)
        .map(|i| {
            let size = match i % 50 {
                0 => sizes[i as usize / 50 % sizes.len()],
                _ => (i * 37 % 700) as usize,
            };
            Given::new(i.to_be_bytes(), u64::from(i) + 1, vec![i as u8; size])
        })
        .collect();
    records.insert(0, Given::new("", 1, "empty key"));
    sort(&mut records);
    let mut fixture = Build::default().open(&records);
    for (nth, record) in records.iter().enumerate() {
        fixture.counts = ReadCounts::default();
        let found = fixture.get_at(KEYSPACE, &record.key, NEWEST).unwrap();
        assert_eq!(found, Some((record.sequence, record.value.clone())));
        let value_len = record.value.as_ref().map_or(0, Vec::len);
        let padded = super::super::record::padded_bytes(record.key.len(), value_len as u64);
        let first = u64::from(nth == 0);
        let tail = first * fixture.segment.meta().tail_len;
        assert_eq!(fixture.counts.reads, 2 + first, "{} bytes", value_len);
        assert!(fixture.counts.bytes <= tail + 4096 + padded + padded / 4);
        assert_eq!(fixture.counts.opens, first);
        assert_eq!(
            (fixture.counts.candidates, fixture.counts.false_candidates),
            (1, 0)
        );
    }
    assert!(fixture.verify().is_clean());
}

#[test]
fn a_record_above_the_classes_takes_one_read_more() {
    let records = [
        Given::new("big", 1, vec![5; 2_000_000]),
        Given::new("small", 2, "x"),
    ];
    let mut fixture = Build::default().open(&records);
    fixture.get_at(KEYSPACE, b"small", NEWEST).unwrap();
    fixture.counts = ReadCounts::default();
    let found = fixture.get_at(KEYSPACE, b"big", NEWEST).unwrap();
    assert_eq!(found, Some((1, Some(vec![5; 2_000_000]))));
    assert_eq!(fixture.counts.reads, 3);
    assert!(fixture.counts.bytes <= 4096 + 2_000_100);
}

#[test]
fn a_miss_costs_at_most_a_page() {
    let mut fixture = Build::default().open(&numbered(5000, 20));
    fixture.get_at(KEYSPACE, b"key00000000", NEWEST).unwrap();
    fixture.counts = ReadCounts::default();
    for i in 0..5000 {
        let key = format!("absent{i}");
        assert_eq!(
            fixture.get_at(KEYSPACE, key.as_bytes(), NEWEST).unwrap(),
            None
        );
    }
    assert_eq!(fixture.counts.reads, fixture.counts.candidates);
    assert_eq!(fixture.counts.candidates, fixture.counts.false_candidates);
    assert!(
        (4900..=5001).contains(&fixture.counts.reads),
        "{}",
        fixture.counts.reads
    );
}

#[test]
fn a_fresh_segment_needs_no_first_touch_and_old_bounds_no_read() {
    let disk = Disk::new();
    let build = Build::default();
    let records: Vec<Given> = (10..20_u64)
        .map(|i| Given::new([i as u8], i, "v"))
        .collect();
    let summary = build.write(&disk, 7, &records);
    let mut fixture = Fixture::new(disk, &summary.meta, build.hasher());
    fixture.segment = Arc::new(Segment::with_tail(
        summary.meta.pack(),
        Arc::new(build.hasher()),
        summary.tail,
    ));
    assert_eq!(fixture.get_at(KEYSPACE, &[10], 9).unwrap(), None);
    assert_eq!(fixture.counts, ReadCounts::default());
    assert!(fixture.get_at(KEYSPACE, &[10], 10).unwrap().is_some());
    assert_eq!(fixture.counts.reads, 2);
    // The tail as read is the tail as built.
    let read = Arc::new(Segment::new(
        fixture.segment.meta().pack(),
        Arc::new(build.hasher()),
    ));
    let tail = read.tail(&fixture.files, &mut fixture.counts).unwrap();
    assert_eq!(Some(tail), fixture.segment.known_tail());
}

#[test]
fn colliding_hashes_over_many_pages_are_all_tried() {
    for hash_bits in [1, 8] {
        let build = Build {
            hash_bits,
            ..Build::default()
        };
        let records = numbered(3000, 3);
        let mut fixture = build.open(&records);
        for record in records.iter().step_by(7) {
            let found = fixture.get_at(KEYSPACE, &record.key, NEWEST).unwrap();
            assert_eq!(found, Some((record.sequence, record.value.clone())));
        }
        for i in 0..20 {
            let key = format!("absent{i}");
            assert_eq!(
                fixture.get_at(KEYSPACE, key.as_bytes(), NEWEST).unwrap(),
                None
            );
        }
        assert!(fixture.verify().is_clean());
    }
}

#[test]
fn filters_say_no_only_to_absent_keys_and_load_as_built() {
    let build = Build {
        keep_filter_bits: Some(12),
        ..Build::default()
    };
    let disk = Disk::new();
    let records = numbered(13_000, 8);
    let summary = build.write(&disk, 7, &records);
    let mut fixture = Fixture::new(disk, &summary.meta, build.hasher());
    let hash = |key: &[u8]| build.hasher().hash(KEYSPACE, key);
    let segment = fixture.segment.clone();
    let counts = &mut fixture.counts;
    assert_eq!(
        segment.filter_may_contain(hash(b"x"), counts),
        Filtered::NotResident
    );
    for bits in [12, 16] {
        let filter = segment.load_filter(&fixture.files, bits, counts).unwrap();
        if bits == 12 {
            assert_eq!(Some(&filter), summary.filter.as_ref());
        }
        // Read with the filter, so that the first lookup is no first touch.
        assert!(segment.known_tail().is_some());
        segment.set_filter(Some(Arc::new(filter)));
        counts.filter_tests = 0;
        for record in &records {
            assert_eq!(
                segment.filter_may_contain(hash(&record.key), counts),
                Filtered::Maybe
            );
        }
        assert_eq!(counts.filter_tests, 13_000);
        let maybe = (0..20_000_u32)
            .map(|i| hash(&i.to_le_bytes()))
            .filter(|hash| segment.filter_may_contain(*hash, counts) == Filtered::Maybe)
            .count();
        assert!(
            maybe < if bits == 12 { 130 } else { 40 },
            "{bits} bits a key: {maybe}"
        );
    }
    let absent = segment.load_filter(&fixture.files, 4, counts).unwrap_err();
    assert_eq!(*absent.kind(), ErrorKind::Unsupported);
    let large = segment.begin_filter_load(&fixture.files, 12, 19_000, None, counts);
    assert_eq!(*large.unwrap_err().kind(), ErrorKind::Unsupported);
    assert!(segment.set_filter(None).is_some());
    assert!(segment.filter().is_none());
}

#[test]
fn short_and_interrupted_transfers_change_nothing() {
    let records = numbered(800, 30);
    let disk = Disk::new();
    disk.transfer_max(13);
    let build = Build::default();
    let summary = build.write(&disk, 7, &records);
    let plain = build.open(&records);
    assert_eq!(
        disk.bytes(FileName::segment(7)),
        plain.disk.bytes(plain.name())
    );
    let mut fixture = Fixture::new(disk, &summary.meta, build.hasher());
    for record in records.iter().step_by(5) {
        let found = fixture.get_at(KEYSPACE, &record.key, NEWEST).unwrap();
        assert_eq!(found, Some((record.sequence, record.value.clone())));
    }
}

/// A few keys of two keyspaces with many versions each.
fn versions() -> impl Strategy<Value = Vec<Given>> {
    let record = (0..2_u32, 0..12_u8, any::<bool>(), 0..40_usize);
    proptest::collection::vec(record, 0..500).prop_map(|raw| {
        let mut records: Vec<Given> = raw
            .into_iter()
            .enumerate()
            .map(|(i, (keyspace, key, tombstone, len))| Given {
                keyspace: KeyspaceId(keyspace),
                key: vec![key; usize::from(key)],
                sequence: i as u64 + 1,
                value: (!tombstone).then(|| vec![i as u8; len]),
            })
            .collect();
        sort(&mut records);
        records
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn the_newest_version_up_to_the_bound_is_found(
        records in versions(),
        hash_bits in prop_oneof![Just(2_u8), Just(8), Just(46)],
        bounds in proptest::collection::vec(0..600_u64, 8),
    ) {
        let build = Build { hash_bits, key_fence_bytes: 64, ..Build::default() };
        let mut fixture = build.open(&records);
        for bound in bounds.into_iter().chain([NEWEST]) {
            for keyspace in (0..3).map(KeyspaceId) {
                for key in (0..13_u8).map(|key| vec![key; usize::from(key)]) {
                    let expected = records
                        .iter()
                        .filter(|r| (r.keyspace, &r.key) == (keyspace, &key) && r.sequence <= bound)
                        .max_by_key(|r| r.sequence)
                        .map(|r| (r.sequence, r.value.clone()));
                    prop_assert_eq!(fixture.get_at(keyspace, &key, bound).unwrap(), expected);
                }
            }
        }
        let report = fixture.verify();
        prop_assert!(report.is_clean(), "{:?}", report.damage);
        prop_assert_eq!(report.records, records.len() as u64);
    }
}
