//! What each damage of the file must become, known exactly beforehand.

use proptest::prelude::*;

use super::super::file::Binding;
use super::*;

#[test]
fn reads_back_every_edit() {
    let (bytes, offsets) = image(500);
    let read = read_bytes(&bytes).unwrap();
    let whole = ManifestRead {
        state: states()[3].clone(),
        edits: 3,
        valid_bytes: offsets[4] as u64,
        cut_bytes: 0,
    };
    assert_eq!(read, whole);
    assert!(bytes.len() > offsets[4]);
    assert_eq!(super::read(&TestVfs::default()).unwrap(), None);
}

#[test]
fn flip_of_every_bit() {
    let (whole, offsets) = image(100);
    let states = states();
    for at in 0..whole.len() {
        for bit in 0..8 {
            let mut bytes = whole.clone();
            bytes[at] ^= 1 << bit;
            let result = read_bytes(&bytes);
            // 0 the header, 1 the state, 2 to 4 the edits, 5 what is allocated ahead.
            match offsets.partition_point(|start| *start <= at) {
                0 => {
                    let error = result.expect_err("a damaged header");
                    let newer = is_newer(&error) && (8..12).contains(&at);
                    assert!(newer || error.kind() == &ErrorKind::Corruption, "{error}");
                    assert_eq!(error.file(), Some(FileName::MANIFEST));
                }
                frame @ 1..=3 => expect_corruption(result, offsets[frame - 1]),
                4 => {
                    let read = result.unwrap();
                    assert_eq!((&read.state, read.edits), (&states[2], 2));
                    assert!(read.cut_bytes > 0 && read.valid_bytes == offsets[3] as u64);
                }
                _ => {
                    let read = result.unwrap();
                    assert_eq!((&read.state, read.edits), (&states[3], 3));
                    assert_eq!(read.cut_bytes as usize, at + 1 - offsets[4]);
                }
            }
        }
    }
}

#[test]
fn every_truncation() {
    let (whole, offsets) = image(100);
    let states = states();
    for length in 0..whole.len() {
        let result = read_bytes(&whole[..length]);
        if length < 64 {
            expect_corruption(result, 0);
            continue;
        }
        let frames = offsets.partition_point(|end| *end <= length) - 1;
        if frames == 0 {
            expect_corruption(result, 64);
            continue;
        }
        let read = result.unwrap();
        assert_eq!(read.state, states[frames - 1], "cut to {length}");
        assert_eq!(read.valid_bytes as usize, offsets[frames]);
        let tail = &whole[offsets[frames]..length];
        let used = tail
            .iter()
            .rposition(|byte| *byte != 0)
            .map_or(0, |at| at + 1);
        assert_eq!(read.cut_bytes as usize, used);
    }
}

#[test]
fn a_torn_last_edit_is_cut() {
    let (whole, offsets) = image(100);
    for fill in [0x00, 0xC3] {
        for from in offsets[3]..offsets[4] {
            for to in [offsets[4], from + 1, offsets[4].min(from + 8)] {
                let mut bytes = whole.clone();
                bytes[from..to].fill(fill);
                let read = read_bytes(&bytes).unwrap();
                if bytes == whole {
                    assert_eq!(read.edits, 3);
                } else {
                    assert_eq!((read.state, read.edits), (states()[2].clone(), 2));
                    assert_eq!(
                        read.cut_bytes == 0,
                        bytes[offsets[3]..offsets[4]].iter().all(|b| *b == 0)
                    );
                }
            }
        }
    }
}

#[test]
fn a_hole_before_a_valid_edit_is_corruption() {
    let (whole, offsets) = image(100);
    for fill in [0x00, 0xFF, 0x5A] {
        for frame in [1, 2] {
            for end in offsets[frame] + 1..=offsets[3] {
                let mut bytes = whole.clone();
                bytes[offsets[frame]..end].fill(fill);
                expect_corruption(read_bytes(&bytes), offsets[frame]);
            }
        }
    }
}

#[test]
fn frames_of_other_files_are_not_edits() {
    let (whole, offsets) = image(400);
    let end = offsets[4];
    let put = |edit: fn(&mut Binding), at: u64, number: u64| {
        let mut binding = Binding::of(&state());
        edit(&mut binding);
        let mut frame = Vec::new();
        binding.put_frame(&mut frame, at, number, |_| {}).unwrap();
        let mut bytes = whole.clone();
        bytes[end..end + frame.len()].copy_from_slice(&frame);
        read_bytes(&bytes)
    };
    let here = end as u64;
    let others = [
        put(|binding| binding.incarnation -= 1, here, 9),
        put(|binding| binding.store_id ^= 1 << 90, here, 9),
        put(|_| {}, here + 8, 9),
    ];
    for read in others {
        let read = read.unwrap();
        assert_eq!((read.edits, &read.state), (3, &states()[3]));
        assert!(read.cut_bytes > 0);
    }
    assert_eq!(put(|_| {}, here, 9).unwrap().edits, 4);
    expect_corruption(put(|_| {}, here, 10), end);
    expect_corruption(put(|_| {}, here, 8), end);
}

#[test]
fn lengths_are_not_believed() {
    let (whole, offsets) = image(100);
    for length in [u32::MAX, u32::MAX - 7, 1 << 31, 1000, 101] {
        for frame in [0, 3] {
            let mut bytes = whole.clone();
            let at = offsets[frame];
            bytes[at..at + 4].copy_from_slice(&length.to_le_bytes());
            match (frame, read_bytes(&bytes)) {
                (0, result) => expect_corruption(result, at),
                (_, result) => assert_eq!(result.unwrap().edits, 2),
            }
        }
    }
}

#[test]
fn a_failed_read_is_neither_a_tear_nor_damage() {
    let (bytes, _) = image(100);
    let vfs = TestVfs::default();
    vfs.put(FileName::MANIFEST, bytes);
    for reads in 0.. {
        vfs.fail_read_after(Some(reads));
        let result = file::read_with_window(&vfs, 64);
        if vfs.fail_read_after(None) {
            assert_eq!(result.unwrap().unwrap().edits, 3);
            assert!(reads >= 5, "{reads} reads, each met once");
            break;
        }
        assert_eq!(result.unwrap_err().kind(), &ErrorKind::Io);
    }
}

proptest! {
    #[test]
    fn any_damage_gives_a_known_state_or_an_error(
        edits in prop::collection::vec((0_usize..700, any::<u8>(), 1_usize..80), 1..4),
        length in 0_usize..900,
        window_bytes in 64_usize..400,
    ) {
        let (mut bytes, _) = image(100);
        for (at, value, count) in edits {
            let end = bytes.len().min(at + count);
            if at < end {
                bytes[at..end].fill(value);
            }
        }
        bytes.truncate(length);
        let vfs = TestVfs::default();
        vfs.put(FileName::MANIFEST, bytes);
        match file::read_with_window(&vfs, window_bytes) {
            Ok(read) => {
                let read = read.unwrap();
                prop_assert_eq!(&read.state, &states()[read.edits as usize]);
            }
            Err(error) => {
                let corruption = error.kind() == &ErrorKind::Corruption;
                prop_assert!(corruption || is_newer(&error), "{}", error);
            }
        }
    }
}
