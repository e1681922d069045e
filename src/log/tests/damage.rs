//! Damaged places: torn, zeroed, flipped, stale.

use super::*;

#[test]
fn flip_of_every_byte() {
    for marks in MARKS {
        let commits = commits(&marks);
        let offsets = offsets(&commits);
        let whole = image(&commits);
        for manifest_mark in [0, 10, 12] {
            for at in 0..whole.len() {
                for bit in [0, 5, 7] {
                    let mut bytes = whole.clone();
                    bytes[at] ^= 1 << bit;
                    let (payloads, outcome) = read(&bytes, manifest_mark);
                    let index = offsets.partition_point(|start| *start <= at);
                    if index == 0 {
                        check_header_flip(at, &payloads, &outcome);
                        continue;
                    }
                    let index = index - 1;
                    assert_eq!(payloads, payloads_of(&commits[..index]));
                    if is_covered(&commits, index, manifest_mark) {
                        expect_corruption(&outcome, offsets[index]);
                    } else {
                        let (_, cut) = expect_torn(&outcome, offsets[index]);
                        let used = offsets[3].max(at + 1) - offsets[index];
                        assert_eq!(cut, used as u64, "flip at {at}");
                    }
                }
            }
        }
    }
}

fn check_header_flip(at: usize, payloads: &[Vec<u8>], outcome: &Result<Tail, Error>) {
    let error = outcome.as_ref().expect_err("a damaged header");
    assert!(payloads.is_empty());
    assert_eq!(error.file(), Some(IDENTITY.name()));
    match error.kind() {
        ErrorKind::Corruption => {}
        ErrorKind::UnsupportedVersion { .. } if (8..12).contains(&at) => {}
        other => panic!("flip at {at}: {other:?}"),
    }
}

#[test]
fn torn_at_every_byte_of_the_last_frame() {
    let commits = commits(&[9, 10, 11]);
    let offsets = offsets(&commits);
    let whole = image(&commits);
    for kept in offsets[2]..offsets[3] {
        for fill in [None, Some(0x00), Some(0xA5)] {
            let mut bytes = whole.clone();
            match fill {
                None => bytes.truncate(kept),
                Some(fill) => bytes[kept..offsets[3]].fill(fill),
            }
            let (payloads, outcome) = read(&bytes, 11);
            assert_eq!(payloads, payloads_of(&commits[..2]));
            if kept == offsets[2] && fill != Some(0xA5) {
                let offset = kept as u64;
                assert_eq!(outcome.unwrap(), Tail::Clean { offset });
            } else {
                let (_, cut) = expect_torn(&outcome, offsets[2]);
                assert!(cut > 0 && cut <= (offsets[3] - offsets[2]) as u64);
            }
            let (_, outcome) = read(&bytes, 12);
            expect_corruption(&outcome, offsets[2]);
        }
    }
}

#[test]
fn what_is_torn_is_named() {
    let commits = commits(&[9, 9, 9]);
    let offsets = offsets(&commits);
    let whole = image(&commits);
    let torn = |edit: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = whole.clone();
        edit(&mut bytes);
        expect_torn(&read(&bytes, 9).1, offsets[1])
    };
    let used = (offsets[3] - offsets[1]) as u64;
    let hole = torn(&|bytes| bytes[offsets[1]..offsets[2]].fill(0));
    assert_eq!(hole, (Damage::Hole, used));
    let header = torn(&|bytes| bytes[offsets[1] + 9] ^= 1);
    assert_eq!(header, (Damage::Header, used));
    let payload = torn(&|bytes| bytes[offsets[2] - 1] ^= 1);
    assert_eq!(payload, (Damage::Payload, used));
    let length = torn(&|bytes| bytes.truncate(offsets[1] + 45));
    assert_eq!(length, (Damage::Length, 45));
}

#[test]
fn holes_before_a_marked_frame_are_corruption() {
    for marks in MARKS {
        let commits = commits(&marks);
        let offsets = offsets(&commits);
        for index in 0..2 {
            for fill in [0x00, 0xFF, 0x5A] {
                // The hole may reach over the frame behind the damaged one, too.
                for end in offsets[index + 1]..=offsets[2] {
                    let mut bytes = image(&commits);
                    bytes[offsets[index]..end].fill(fill);
                    let (payloads, outcome) = read(&bytes, 9);
                    assert_eq!(payloads, payloads_of(&commits[..index]));
                    let survivors: Vec<_> =
                        (index + 1..3).filter(|at| offsets[*at] >= end).collect();
                    let sequence = FIRST + index as u64;
                    if survivors.iter().any(|at| commits[*at].1 >= sequence) {
                        expect_corruption(&outcome, offsets[index]);
                    } else {
                        expect_torn(&outcome, offsets[index]);
                    }
                }
            }
        }
    }
}

#[test]
fn a_mark_counts_although_its_own_payload_is_torn() {
    let commits = commits(&[9, 9, 10]);
    let offsets = offsets(&commits);
    let mut bytes = image(&commits);
    bytes[offsets[0] + 50] ^= 4;
    bytes[offsets[2] + 50] ^= 4;
    let (_, outcome) = read(&bytes, 0);
    expect_corruption(&outcome, offsets[0]);
}

#[test]
fn frames_of_other_places_and_logs_are_not_accepted() {
    let commits = commits(&[9, 9]);
    let end = *offsets(&commits).last().unwrap();
    let stale = (payload(5, 24), 11);
    let header = header_of(&stale, 12);
    let other = |edit: fn(&mut LogIdentity)| {
        let mut identity = IDENTITY;
        edit(&mut identity);
        identity
    };
    let cases = [
        (other(|identity| identity.incarnation -= 1), end),
        (other(|identity| identity.number += 1), end),
        (other(|identity| identity.store_id ^= 1 << 100), end),
        (IDENTITY, end + 8),
        (IDENTITY, 64),
    ];
    for (identity, made_for) in cases {
        // At the end it is no next frame; behind a damaged frame its mark counts for nothing.
        let mut bytes = image(&commits);
        bytes[end..end + 40].copy_from_slice(&header.encode(&identity, made_for as u64));
        bytes[end + 40..end + 64].copy_from_slice(&stale.0);
        let (payloads, outcome) = read(&bytes, 0);
        assert_eq!(payloads, payloads_of(&commits));
        assert_eq!(expect_torn(&outcome, end), (Damage::Header, 64));
        bytes[70] ^= 1;
        expect_torn(&read(&bytes, 0).1, 64);
    }
    // The same frame made for its place is accepted: the cases above fail for their reason alone.
    let mut bytes = image(&commits);
    bytes[end..end + 40].copy_from_slice(&header.encode(&IDENTITY, end as u64));
    bytes[end + 40..end + 64].copy_from_slice(&stale.0);
    assert_eq!(read(&bytes, 0).0.len(), 3);
}
