//! Bytes: round trips, what older readers do with newer files, and a frozen image.

use proptest::prelude::*;

use super::super::change::{decode_changes, decode_state, encode_changes, encode_state};
use super::super::fields::{Malformed, SKIPPABLE, put_field};
use super::super::file::Binding;
use super::*;

#[test]
fn header_table() {
    let (whole, _) = image(0);
    let edited = |at: usize, value: u8, checksummed: bool| {
        let mut bytes = whole.clone();
        bytes[at] = value;
        if checksummed {
            let checksum = crc32c::crc32c_append(crc32c::crc32c(&bytes[..12]), &bytes[16..64]);
            bytes[12..16].copy_from_slice(&checksum.to_le_bytes());
        }
        read_bytes(&bytes)
    };
    expect_corruption(read_bytes(&[]), 0);
    expect_corruption(read_bytes(&[0; 4096]), 0);
    expect_corruption(read_bytes(&whole[..64]), 64);
    expect_corruption(edited(7, b'X', true), 0);
    // No release wrote it; the file may be of something that is to come.
    let version_zero = edited(8, 0, true).unwrap_err();
    let found = ErrorKind::UnsupportedVersion {
        found: 0,
        supported: 1,
    };
    assert_eq!(version_zero.kind(), &found);
    expect_corruption(edited(60, 1, false), 12);
    // Another store or incarnation than the frames were written for.
    expect_corruption(edited(32, 1, true), 64);
    expect_corruption(edited(48, 9, true), 64);
    assert!(is_newer(&edited(8, 2, false).unwrap_err()));
    assert!(is_newer(&edited(24, 1, true).unwrap_err()));
    assert_eq!(edited(16, 1, true).unwrap().edits, 3, "compatible feature");
}

/// A file whose only edit has this payload.
fn with_payload(payload: &[u8]) -> Result<ManifestRead> {
    let vfs = TestVfs::default();
    let writer = ManifestWriter::create(&vfs, &state(), 0).unwrap();
    let mut bytes = vfs.bytes(FileName::MANIFEST).unwrap();
    let binding = Binding::of(&state());
    binding
        .put_frame(&mut bytes, writer.used_bytes(), 6, |out| {
            out.extend_from_slice(payload)
        })
        .unwrap();
    read_bytes(&bytes)
}

fn field(tag: u16, body: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    put_field(&mut out, tag, |out| out.extend_from_slice(body));
    out
}

#[test]
fn unknown_fields_are_skipped_or_refused() {
    let at = state_end();
    let known = field(9, &7_u64.to_le_bytes());
    let skipped = [field(SKIPPABLE | 99, b"later"), known.clone()].concat();
    let read = with_payload(&skipped).unwrap();
    assert_eq!((read.edits, read.state.next_number), (1, 7));
    let refused = with_payload(&[known, field(99, b"later")].concat()).unwrap_err();
    assert!(is_newer(&refused));
    assert_eq!(
        (refused.file(), refused.offset()),
        (Some(FileName::MANIFEST), Some(at as u64))
    );
    // The same inside an entry.
    let inner = |tag| field(9, &[&7_u64.to_le_bytes()[..], &field(tag, b"x")].concat());
    assert_eq!(
        with_payload(&inner(SKIPPABLE)).unwrap().state.next_number,
        7
    );
    assert!(is_newer(&with_payload(&inner(3)).unwrap_err()));
}

fn state_end() -> usize {
    image(0).1[1]
}

#[test]
fn nonsense_with_a_right_checksum_is_corruption() {
    let mut entry = Vec::new();
    encode_changes(&[Change::AddKeyspace(keyspace(7, "seven"))], &mut entry);
    let name_at = entry.len() - 5;
    let mut not_utf8 = entry.clone();
    not_utf8[name_at] = 0xFF;
    let mut long_name = entry.clone();
    long_name[name_at - 2] = 6;
    let mut kind = entry.clone();
    kind[10] = 7;
    let mut base = Vec::new();
    encode_state(&state(), &mut base);
    let payloads = [
        vec![1],
        field(9, &[1, 2, 3]),
        field(9, &[0; 9]),
        field(9, &7_u64.to_le_bytes())[..13].to_vec(),
        not_utf8,
        long_name,
        kind,
        base,
    ];
    for payload in payloads {
        expect_corruption(with_payload(&payload), state_end());
    }
    assert_eq!(with_payload(&entry).unwrap().edits, 1);
}

#[test]
fn a_written_state_that_breaks_a_rule_is_refused() {
    let file_of = |binding: Binding, state: &ManifestState| {
        let mut bytes = binding.encode().to_vec();
        binding
            .put_frame(&mut bytes, 64, 5, |out| encode_state(state, out))
            .unwrap();
        read_bytes(&bytes)
    };
    let binding = Binding::of(&state());
    assert_eq!(file_of(binding, &state()).unwrap().state, state());
    let mut unsorted = state();
    unsorted.logs.swap(0, 1);
    expect_corruption(file_of(binding, &unsorted), 64);
    let mut later = binding;
    later.incarnation += 1;
    expect_corruption(file_of(later, &state()), 64);
}

#[test]
fn a_state_payload_is_only_a_state() {
    let decode = |payload: &[u8]| decode_state(payload, state().store_id, 5);
    let mut payload = Vec::new();
    encode_state(&state(), &mut payload);
    assert_eq!(decode(&payload).unwrap(), state());
    for cut in 0..payload.len() {
        // Where a field ends the rest is missing, which only the frame's checksum can tell.
        match decode(&payload[..cut]) {
            Ok(shorter) => assert_ne!(shorter, state()),
            Err(malformed) => assert!(matches!(malformed, Malformed::Damaged(_))),
        }
    }
    payload.extend(field(5, &1_u64.to_le_bytes()));
    assert!(decode(&payload).is_err());
}

#[test]
fn the_format_is_frozen() {
    let (bytes, _) = image(0);
    assert_eq!(
        (bytes.len(), crc32c::crc32c(&bytes)),
        (FROZEN_LEN, FROZEN_CHECKSUM)
    );
}

/// Of the sample file; another value is another format, and needs another version.
const FROZEN_LEN: usize = 568;
const FROZEN_CHECKSUM: u32 = 1_626_186_461;

fn any_segment() -> impl Strategy<Value = SegmentMeta> {
    let identity = (
        any::<u128>(),
        any::<[u64; 2]>(),
        any::<bool>(),
        any::<u8>(),
        any::<u16>(),
    );
    (any::<[u64; 11]>(), identity).prop_map(|(numbers, identity)| SegmentMeta {
        number: numbers[0],
        identity: SegmentIdentity {
            family_id: identity.0,
            generation_lo: identity.1[0],
            generation_hi: identity.1[1],
            kind: KeyspaceKind::ALL[usize::from(identity.2)],
            level: identity.3,
            part: identity.4,
        },
        file_len: numbers[1],
        tail_offset: numbers[2],
        tail_len: numbers[3],
        footer_checksum: numbers[4],
        counts: SegmentCounts {
            records: numbers[5],
            tombstones: numbers[6],
            min_sequence: numbers[7],
            max_sequence: numbers[8],
            key_bytes: numbers[9],
            value_bytes: numbers[10],
        },
    })
}

fn any_log() -> impl Strategy<Value = LogEntry> {
    any::<[u64; 4]>().prop_map(|numbers| LogEntry {
        number: numbers[0],
        incarnation: numbers[1],
        durable_through: numbers[2],
        first_generation: numbers[3],
    })
}

fn any_keyspace() -> impl Strategy<Value = KeyspaceEntry> {
    (any::<u32>(), any::<bool>(), "[a-z\u{e4}\u{20ac}]{0,40}").prop_map(|(id, kind, name)| {
        KeyspaceEntry {
            id: KeyspaceId(id),
            kind: KeyspaceKind::ALL[usize::from(kind)],
            name,
        }
    })
}

fn any_change() -> impl Strategy<Value = Change> {
    let mark = |(number, durable_through)| Change::MarkLog {
        number,
        durable_through,
    };
    prop_oneof![
        any_keyspace().prop_map(Change::AddKeyspace),
        any_log().prop_map(Change::AddLog),
        any_segment().prop_map(Change::AddSegment),
        any::<u64>().prop_map(|number| Change::DropLog { number }),
        any::<u64>().prop_map(|number| Change::DropSegment { number }),
        any::<u64>().prop_map(|number| Change::DropPart { number }),
        any::<(u64, u64)>().prop_map(mark),
        any::<u64>().prop_map(Change::FlushedThrough),
        any::<u64>().prop_map(Change::NextNumber),
        any::<u64>().prop_map(Change::NextGeneration),
        Just(Change::CleanClose),
    ]
}

proptest! {
    #[test]
    fn edits_round_trip(changes in prop::collection::vec(any_change(), 0..12)) {
        let mut payload = Vec::new();
        encode_changes(&changes, &mut payload);
        prop_assert_eq!(decode_changes(&payload).unwrap(), changes);
    }

    #[test]
    fn states_round_trip(
        ids in any::<(u128, u128, [u8; 16], u8, bool)>(),
        numbers in any::<[u64; 5]>(),
        keyspaces in prop::collection::vec(any_keyspace(), 0..6),
        logs in prop::collection::vec(any_log(), 0..6),
        segments in prop::collection::vec(any_segment(), 0..6),
    ) {
        let state = ManifestState {
            store_id: ids.0,
            family_id: ids.1,
            hash_seed: ids.2,
            hash_bits: ids.3,
            clean_close: ids.4,
            incarnation: numbers[0],
            next_number: numbers[1],
            edit_number: numbers[2],
            flushed_through: numbers[3],
            next_generation: numbers[4],
            keyspaces,
            logs,
            segments: segments.iter().map(SegmentMeta::pack).collect(),
        };
        let mut payload = Vec::new();
        encode_state(&state, &mut payload);
        prop_assert_eq!(decode_state(&payload, ids.0, numbers[2]).unwrap(), state);
    }

    #[test]
    fn any_bytes_decode_or_fail(payload in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = decode_changes(&payload);
        let _ = decode_state(&payload, 1, 1);
    }
}
