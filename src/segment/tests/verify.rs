//! Verification: what it lists, and that decoders survive any bytes.

use proptest::prelude::*;

use super::super::fences::decode_piece;
use super::super::footer::{Footer, HEAD_BYTES, decode_head};
use super::super::identity::{Chain, Domain, checksum};
use super::super::record;
use super::damage::{is_typed, layout_of, reopened, resealed};
use super::*;
use crate::index::page::PageView;

#[test]
fn verify_lists_each_damage_and_goes_on() {
    let build = Build::default();
    let records = numbered(2000, 50);
    let whole = build.open(&records);
    let meta = whole.segment.meta();
    let bytes = whole.disk.bytes(whole.name());
    let mut fixture = reopened(&build, &meta, bytes);
    fixture
        .segment
        .tail(&fixture.files, &mut fixture.counts)
        .unwrap();
    let layout = layout_of(&fixture);
    let place = |offset: u64| offset as usize;
    fixture.disk.edit(fixture.name(), |bytes| {
        bytes[HEAD_BYTES + 20_000] ^= 1;
        bytes[HEAD_BYTES + 90_000] ^= 1;
        bytes[place(layout.pages.span.offset) + 4096 + 100] ^= 1;
        bytes[place(layout.filters[1].section.span.offset) + 100] ^= 1;
        bytes[place(layout.page_fences.span.offset)] ^= 1;
    });
    let report = fixture.verify();
    let sections: Vec<_> = report.damage.iter().map(|d| d.section).collect();
    assert_eq!(
        sections,
        ["page fences", "records", "records", "index pages", "filter"]
    );
    for (damage, near) in report.damage[1..3].iter().zip([20_064_u64, 90_064]) {
        assert!(
            damage.offset <= near && near - damage.offset < 100,
            "{damage:?}"
        );
    }
    // Two blocks of about 50 records are passed over in part.
    assert!((1880..2000).contains(&report.records), "{}", report.records);
    assert_eq!(report.unlisted, 0);
}

#[test]
fn verify_finds_an_index_that_is_not_of_the_records() {
    // Two segments of the same shape; the second's index is put, under right checksums, on the first.
    let build = Build::default();
    let records = |sequence| -> Vec<Given> {
        let key = |i: u32| (i * 2 + u32::from(i == 7 && sequence == 2)).to_be_bytes();
        (0..50).map(|i| Given::new(key(i), 1, "value")).collect()
    };
    let (first, second) = (build.open(&records(1)), build.open(&records(2)));
    let bytes = second.disk.bytes(second.name());
    let mut mixed = first.disk.bytes(first.name());
    let (footer, ..) = Footer::decode(&bytes, bytes.len() as u64).unwrap();
    let from = footer.layout.pages.span.offset as usize;
    mixed[from..].copy_from_slice(&bytes[from..]);
    // Footer of the second, but the records section's checksum of the first.
    let (right, ..) = Footer::decode(&first.disk.bytes(first.name()), bytes.len() as u64).unwrap();
    let meta = resealed(&second.segment.meta(), &mut mixed, |f| {
        f[120 + 32..120 + 40].copy_from_slice(&right.layout.records.checksum.to_le_bytes());
    });
    let mut fixture = reopened(&build, &meta, mixed);
    let damage = fixture.verify().damage;
    assert!(
        damage.iter().any(|d| d.section == "index pages"),
        "{damage:?}"
    );
    // The reader finds it too: a record with another hash than its entry.
    let error = fixture
        .get_at(KEYSPACE, &15_u32.to_be_bytes(), 9)
        .unwrap_err();
    is_typed(&error, fixture.name());
}

#[test]
fn verify_finds_a_filter_that_is_not_of_the_entries() {
    let build = Build::default();
    let whole = build.open(&numbered(500, 4));
    let layout = layout_of(&whole);
    let mut bytes = whole.disk.bytes(whole.name());
    // The first filter, one piece, with a bit less, under right checksums.
    let span = layout.filters[0].section.span;
    let (from, sums) = (
        span.offset as usize,
        layout.filters[0].checksums().offset as usize,
    );
    let set = (from..sums).find(|at| bytes[*at] != 0).unwrap();
    bytes[set] &= bytes[set] - 1;
    let seed = IDENTITY.seeds().seed(Domain::Filter, span.offset);
    let sum = checksum(seed, &bytes[from..sums]);
    bytes[sums..sums + 8].copy_from_slice(&sum.to_le_bytes());
    let mut chain = Chain::default();
    chain.push(sum);
    let meta = resealed(&whole.segment.meta(), &mut bytes, |footer| {
        footer[120 + 3 * 40 + 32..120 + 4 * 40].copy_from_slice(&chain.0.to_le_bytes());
    });
    let damage = reopened(&build, &meta, bytes).verify().damage;
    let found: Vec<_> = damage.iter().map(|d| (d.section, d.offset)).collect();
    let block = (set - from) as u64 / 64 * 64;
    assert_eq!(found, [("filter", span.offset + block)]);
}

#[test]
fn verify_of_a_wrecked_file_ends_and_counts() {
    let build = Build {
        key_fence_bytes: 64,
        ..Build::default()
    };
    let records = numbered(6000, 8);
    let mut fixture = build.open(&records);
    let layout = layout_of(&fixture);
    fixture.disk.edit(fixture.name(), |bytes| {
        bytes[HEAD_BYTES..layout.records.span.end() as usize].fill(0xEE);
    });
    let mut last = 0;
    let mut progress = |bytes| {
        assert!(bytes >= last);
        last = bytes;
    };
    let report = fixture
        .segment
        .verify(&fixture.files, &mut progress)
        .unwrap();
    assert_eq!(report.records, 0);
    assert_eq!(report.damage.len(), super::super::verify::DAMAGE_MAX);
    assert!(report.unlisted > 500, "{}", report.unlisted);
    assert_eq!(report.bytes, last);
    fixture.get_at(KEYSPACE, b"key00000001", 9).unwrap_err();
}

proptest! {
    #[test]
    fn decoders_survive_any_bytes(
        bytes in proptest::collection::vec(any::<u8>(), 0..5000),
        file_bytes in any::<u64>(),
        number in 0..3_u64,
    ) {
        let seeds = IDENTITY.seeds();
        let mut fences = Vec::new();
        prop_assert!(decode_piece(&bytes, number, seeds, &mut fences).is_err());
        prop_assert!(PageView::check(&bytes, number).is_err());
        prop_assert!(Footer::decode(&bytes, file_bytes).is_err());
        if let Some(head) = bytes.first_chunk() {
            prop_assert!(decode_head(head).is_err());
        }
        if let Ok(layout) = record::decode(&bytes) {
            prop_assert!(record::verify(&bytes, &layout, 1, 64).is_err());
        }
    }

    #[test]
    fn fence_pieces_that_lie_are_refused_or_decoded(
        mut piece in proptest::collection::vec(0..60_u8, 16..600),
        count in 0..20_u16,
        used in 0..700_u16,
    ) {
        let seeds = IDENTITY.seeds();
        piece[8..10].copy_from_slice(&count.to_le_bytes());
        piece[10..12].copy_from_slice(&used.to_le_bytes());
        let sum = checksum(seeds.seed(Domain::KeyFences, 0), &piece[8..]);
        piece[..8].copy_from_slice(&sum.to_le_bytes());
        let mut fences = Vec::new();
        if decode_piece(&piece, 0, seeds, &mut fences).is_ok() {
            prop_assert_eq!(fences.len(), usize::from(count));
            for fence in &fences {
                prop_assert!(fence.separator(&piece).len() <= 255);
            }
        }
    }
}
