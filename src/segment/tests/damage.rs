//! Damaged, cut, swapped and newer files: the right answer or a typed error, never another answer.

use super::super::footer::{Footer, TRAILER_BYTES};
use super::super::identity::checksum;
use super::super::layout::SegmentLayout;
use super::*;
use crate::error::{Error, ErrorKind};

fn small() -> (Build, Vec<Given>) {
    let build = Build {
        hash_bits: 8,
        key_fence_bytes: 128,
        ..Build::default()
    };
    let mut records = numbered(30, 12);
    records.push(Given::new("key00000003", 2, "an older version"));
    records.push(Given::new([7; 40], 3, vec![1; 200]));
    sort(&mut records);
    (build, records)
}

/// What was wrong, of a kind that damage may have, with the place.
pub(super) fn is_typed(error: &Error, name: FileName) {
    let known = matches!(
        error.kind(),
        ErrorKind::Corruption | ErrorKind::UnsupportedVersion { .. }
    );
    assert!(known, "{error}");
    assert_eq!(error.file(), Some(name), "{error}");
    assert!(error.offset().is_some(), "{error}");
}

/// Every lookup, scan and filter of a damaged file is right or a typed error. Returns how many calls
/// failed.
fn check_all(fixture: &mut Fixture, records: &[Given]) -> u32 {
    let name = fixture.name();
    let mut failed = 0;
    let mut note = |error: Error| {
        is_typed(&error, name);
        failed += 1;
    };
    for record in records {
        match fixture.get_at(record.keyspace, &record.key, record.sequence) {
            Ok(found) => assert_eq!(found, Some((record.sequence, record.value.clone()))),
            Err(error) => note(error),
        }
    }
    for i in 0..10 {
        match fixture.get_at(KEYSPACE, format!("absent{i}").as_bytes(), 99) {
            Ok(found) => assert_eq!(found, None),
            Err(error) => note(error),
        }
    }
    let counts = &mut ReadCounts::default();
    let mut cursor = fixture.cursor(300);
    for (nth, record) in records.iter().enumerate() {
        match cursor.seek(record.keyspace, &record.key, record.sequence, counts) {
            Ok(found) => {
                assert!(found);
                assert_eq!(given_of(&cursor.current().unwrap()), *record);
                let step = match nth % 2 {
                    0 => (cursor.next(counts), records.get(nth + 1)),
                    _ => (cursor.prev(counts), records.get(nth - 1)),
                };
                match step {
                    (Ok(_), expected) => {
                        let current = cursor.current().map(|r| given_of(&r));
                        assert_eq!(current.as_ref(), expected);
                    }
                    (Err(error), _) => note(error),
                }
            }
            Err(error) => note(error),
        }
    }
    for ahead in [true, false] {
        let mut seen = Vec::new();
        let end = loop {
            let step = match (seen.is_empty(), ahead) {
                (true, true) => cursor.seek_first(counts),
                (true, false) => cursor.seek_last(counts),
                (false, true) => cursor.next(counts),
                (false, false) => cursor.prev(counts),
            };
            match step {
                Ok(true) => seen.push(given_of(&cursor.current().unwrap())),
                Ok(false) => break None,
                Err(error) => break Some(error),
            }
        };
        if !ahead {
            seen.reverse();
        }
        match end {
            None => assert_eq!(seen, records),
            Some(error) => {
                let right = if ahead {
                    records.starts_with(&seen)
                } else {
                    records.ends_with(&seen)
                };
                assert!(right, "wrong records before {error}");
                note(error);
            }
        }
    }
    match fixture.segment.load_filter(&fixture.files, 12, counts) {
        // A footer can name another alternative under a right checksum.
        Err(error) if *error.kind() == ErrorKind::Unsupported => {}
        Err(error) => note(error),
        Ok(filter) => {
            for record in records {
                let hash = fixture.segment.hasher().hash(record.keyspace, &record.key);
                assert!(filter.may_contain(hash));
            }
        }
    }
    failed
}

pub(super) fn reopened(build: &Build, meta: &SegmentMeta, bytes: Vec<u8>) -> Fixture {
    let disk = Disk::new();
    disk.put(FileName::segment(7), bytes);
    Fixture::new(disk, meta, build.hasher())
}

#[test]
fn every_flipped_byte_is_harmless_or_found() {
    let (build, records) = small();
    let whole = build.open(&records);
    let meta = whole.segment.meta();
    let bytes = whole.disk.bytes(whole.name());
    assert!(whole.verify().is_clean());
    for at in 0..bytes.len() {
        // In the zeros of the last page, where every byte is alike, a few will do.
        if at % 37 != 0
            && bytes[at.saturating_sub(64)..at]
                .iter()
                .all(|byte| *byte == 0)
        {
            continue;
        }
        let mut bad = bytes.clone();
        bad[at] ^= [1, 0x80, 0xFF][at % 3];
        let mut fixture = reopened(&build, &meta, bad);
        check_all(&mut fixture, &records);
        match fixture.segment.verify(&fixture.files, &mut |_| {}) {
            Ok(report) => assert!(!report.is_clean(), "byte {at} is not verified"),
            Err(error) => is_typed(&error, fixture.name()),
        }
    }
}

#[test]
fn every_cut_is_found_at_first_touch() {
    let (build, records) = small();
    let whole = build.open(&records);
    let meta = whole.segment.meta();
    let bytes = whole.disk.bytes(whole.name());
    for len in (0..bytes.len()).filter(|len| len % 23 == 0 || *len + 700 > bytes.len()) {
        let mut fixture = reopened(&build, &meta, bytes[..len].to_vec());
        let error = fixture.get_at(KEYSPACE, b"key00000001", 99).unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::Corruption);
        is_typed(&error, fixture.name());
        assert_eq!(fixture.counts.reads, 0, "the length comes first");
        assert!(!fixture.verify().is_clean());
        // A manifest that agrees with the cut: then the content has to tell.
        let mut agreed = meta.clone();
        agreed.file_len = len as u64;
        agreed.tail_len = agreed.file_len.saturating_sub(agreed.tail_offset);
        let mut fixture = reopened(&build, &agreed, bytes[..len].to_vec());
        is_typed(
            &fixture.get_at(KEYSPACE, b"key00000001", 99).unwrap_err(),
            fixture.name(),
        );
    }
    let mut longer = bytes.clone();
    longer.push(0);
    let mut fixture = reopened(&build, &meta, longer);
    is_typed(
        &fixture.get_at(KEYSPACE, b"key00000001", 99).unwrap_err(),
        fixture.name(),
    );
}

#[test]
fn a_cut_under_an_open_reader_is_found() {
    let (build, records) = small();
    let mut fixture = build.open(&records);
    fixture.get_at(KEYSPACE, b"key00000001", 99).unwrap();
    let counts = &mut ReadCounts::default();
    let mut cursor = fixture.cursor(64);
    cursor.seek_first(counts).unwrap();
    fixture
        .disk
        .edit(fixture.name(), |bytes| bytes.truncate(100));
    let error = fixture.get_at(KEYSPACE, b"key00000001", 99).unwrap_err();
    is_typed(&error, fixture.name());
    // A failed cursor has no place: it never looks as if it were at an end.
    let error = cursor.next(counts).unwrap_err();
    is_typed(&error, fixture.name());
    assert_eq!(cursor.current(), None);
    let error = cursor.next(counts).unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::InvalidArgument);
}

#[test]
fn a_manifest_with_wild_places_is_refused_without_allocating() {
    let (build, records) = small();
    let whole = build.open(&records);
    let bytes = whole.disk.bytes(whole.name());
    let meta = whole.segment.meta();
    for (tail_offset, tail_len) in [
        (u64::MAX, meta.tail_len),
        (meta.tail_offset, u64::MAX),
        (u64::MAX, u64::MAX),
        (0, meta.file_len),
        (meta.file_len, 0),
        (meta.tail_offset + 4, meta.tail_len - 4),
    ] {
        let wild = SegmentMeta {
            tail_offset,
            tail_len,
            ..meta.clone()
        };
        let mut fixture = reopened(&build, &wild, bytes.clone());
        is_typed(
            &fixture.get_at(KEYSPACE, b"key00000001", 99).unwrap_err(),
            fixture.name(),
        );
    }
}

#[test]
fn another_segment_under_the_name_is_found() {
    let (build, records) = small();
    let whole = build.open(&records);
    let meta = whole.segment.meta();
    // Same length, same places, other content.
    let mut others = records.clone();
    if let Some(value) = &mut others[4].value {
        value.iter_mut().for_each(|byte| *byte ^= 1);
    }
    let other = build.open(&others);
    assert_eq!(other.segment.meta().file_len, meta.file_len);
    let mut fixture = reopened(&build, &meta, other.disk.bytes(other.name()));
    let error = fixture.get_at(KEYSPACE, b"key00000001", 99).unwrap_err();
    is_typed(&error, fixture.name());
    assert!(error.to_string().contains("manifest"), "{error}");
    assert!(!fixture.verify().is_clean());
}

#[test]
fn pages_and_records_of_another_place_or_file_are_found() {
    let build = Build::default();
    let records: Vec<Given> = (0..800_u32)
        .map(|i| Given::new(i.to_be_bytes(), 1, "same"))
        .collect();
    let whole = build.open(&records);
    let meta = whole.segment.meta();
    let bytes = whole.disk.bytes(whole.name());
    let mut fixture = reopened(&build, &meta, bytes.clone());
    fixture
        .segment
        .tail(&fixture.files, &mut ReadCounts::default())
        .unwrap();
    let pages = fixture.segment.known_tail().unwrap().places().pages.offset as usize;
    fixture.disk.edit(fixture.name(), |b| {
        b.copy_within(pages..pages + 4096, pages + 4096)
    });
    let failed = check_keys(&mut fixture, &records);
    assert!((200..500).contains(&failed), "{failed}");
    // One record over its neighbour, which has the same length.
    let mut fixture = reopened(&build, &meta, bytes.clone());
    fixture
        .disk
        .edit(fixture.name(), |b| b.copy_within(64..96, 96));
    assert_eq!(check_keys(&mut fixture, &records), 1);
    // The same records in a file of another generation: nothing of it may pass here.
    let mut other = meta.clone();
    other.identity.generation_hi += 1;
    let mut fixture = reopened(&build, &other, bytes);
    assert_eq!(check_keys(&mut fixture, &records), 800);
}

fn check_keys(fixture: &mut Fixture, records: &[Given]) -> u32 {
    let mut failed = 0;
    for record in records {
        match fixture.get_at(record.keyspace, &record.key, Sequence::MAX) {
            Ok(found) => assert_eq!(found, Some((record.sequence, record.value.clone()))),
            Err(error) => {
                is_typed(&error, fixture.name());
                failed += 1;
            }
        }
    }
    failed
}

#[test]
fn damaged_page_fences_are_rebuilt_at_first_touch() {
    let build = Build::default();
    let records = numbered(7000, 4);
    let whole = build.open(&records);
    let meta = whole.segment.meta();
    let bytes = whole.disk.bytes(whole.name());
    for at in [0, 13, 4 * 20 + 3] {
        let mut bad = bytes.clone();
        bad[meta.tail_offset as usize + at] ^= 0x55;
        let mut fixture = reopened(&build, &meta, bad.clone());
        assert_eq!(check_keys(&mut fixture, &records), 0);
        // The tail, 21 pages in two reads, then two reads a key.
        assert_eq!(fixture.counts.reads, 1 + 2 + 2 * 7000);
        let damage = fixture.verify().damage;
        assert!(
            damage.iter().all(|d| d.section == "page fences"),
            "{damage:?}"
        );
        // With a page damaged too there is nothing to rebuild from.
        bad[meta.tail_offset as usize - 40_000] ^= 1;
        let pages = whole_pages(&fixture);
        bad[pages + 4096 * 3 + 50] ^= 1;
        let mut fixture = reopened(&build, &meta, bad);
        let error = fixture.get_at(KEYSPACE, b"key00000001", 99).unwrap_err();
        is_typed(&error, fixture.name());
        assert_eq!(error.offset(), Some(pages as u64 + 4096 * 3));
    }
}

fn whole_pages(fixture: &Fixture) -> usize {
    fixture.segment.known_tail().unwrap().places().pages.offset as usize
}

pub(super) fn layout_of(fixture: &Fixture) -> SegmentLayout {
    let bytes = fixture.disk.bytes(fixture.name());
    Footer::decode(&bytes, bytes.len() as u64).unwrap().0.layout
}

/// Gives the footer a new checksum after an edit, and the manifest too.
pub(super) fn resealed(
    meta: &SegmentMeta,
    bytes: &mut [u8],
    edit: impl FnOnce(&mut [u8]),
) -> SegmentMeta {
    let (_, footer_len, _) = Footer::decode(bytes, meta.file_len).unwrap();
    let start = bytes.len() - footer_len;
    let body_end = bytes.len() - TRAILER_BYTES - 8;
    edit(&mut bytes[start..]);
    let sum = checksum(0, &bytes[start..body_end]);
    bytes[body_end..body_end + 8].copy_from_slice(&sum.to_le_bytes());
    SegmentMeta {
        footer_checksum: sum,
        ..meta.clone()
    }
}

#[test]
fn newer_formats_are_called_newer() {
    let (build, records) = small();
    let whole = build.open(&records);
    let meta = whole.segment.meta();
    let bytes = whole.disk.bytes(whole.name());
    let newer = |meta: &SegmentMeta, bytes: Vec<u8>, version: u32| {
        let mut fixture = reopened(&build, meta, bytes);
        let error = fixture.get_at(KEYSPACE, b"key00000001", 99).unwrap_err();
        let expected = ErrorKind::UnsupportedVersion {
            found: version,
            supported: 1,
        };
        assert_eq!(*error.kind(), expected, "{error}");
        is_typed(&error, fixture.name());
        let error = fixture
            .segment
            .verify(&fixture.files, &mut |_| {})
            .unwrap_err();
        assert_eq!(*error.kind(), expected, "{error}");
    };
    // A newer version, whatever its checksums are.
    let mut bad = bytes.clone();
    let at = bad.len() - 12;
    bad[at] = 9;
    bad[at - 100] ^= 1;
    newer(&meta, bad, 9);
    // An incompatible feature, a section, a field of which this version knows nothing.
    for (at, value) in [(48, 1_u8), (55, 0x80), (120, 77), (108, 1)] {
        let mut bad = bytes.clone();
        let meta = resealed(&meta, &mut bad, |footer| footer[at] = value);
        newer(&meta, bad, 2);
    }
    // A compatible feature changes nothing; a filter by an unknown algorithm is not there.
    let mut good = bytes.clone();
    let meta = resealed(&meta, &mut good, |footer| {
        footer[40] = 1;
        footer[120 + 3 * 40 + 2] = 99;
    });
    let mut fixture = reopened(&build, &meta, good);
    assert_eq!(check_keys(&mut fixture, &records[..5]), 0);
    let load = fixture
        .segment
        .load_filter(&fixture.files, 12, &mut ReadCounts::default());
    assert_eq!(*load.unwrap_err().kind(), ErrorKind::Unsupported);
}

#[test]
fn footers_that_lie_are_refused() {
    let (build, records) = small();
    let whole = build.open(&records);
    let meta = whole.segment.meta();
    let bytes = whole.disk.bytes(whole.name());
    // Under a right checksum, every place and count set to something else.
    for at in (56..120).chain((0..6).flat_map(|s| 120 + s * 40..120 + s * 40 + 32)) {
        for value in [0xFF, 0x01, 0x00, 0x7F] {
            let mut bad = bytes.clone();
            let meta = resealed(&meta, &mut bad, |footer| footer[at] = value);
            let mut fixture = reopened(&build, &meta, bad);
            check_all(&mut fixture, &records);
        }
    }
}

#[test]
fn a_damaged_filter_is_absent() {
    let (build, records) = small();
    let mut fixture = build.open(&records);
    let place = layout_of(&fixture).filters[0].section.span.offset as usize;
    fixture
        .disk
        .edit(fixture.name(), |bytes| bytes[place + 5] ^= 1);
    let load = fixture
        .segment
        .load_filter(&fixture.files, 12, &mut fixture.counts);
    let error = load.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Corruption);
    is_typed(&error, fixture.name());
    assert_eq!(check_keys(&mut fixture, &records[..3]), 0);
}
