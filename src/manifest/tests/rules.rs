//! The rules of a state: what edits may not do, and that a refused one changes nothing.

use proptest::prelude::*;

use super::*;

fn try_apply(state: &ManifestState, changes: Vec<Change>) -> Result<ManifestState> {
    let mut next = state.clone();
    let number = state.edit_number + 1;
    let result = next.apply(&Edit { number, changes });
    if result.is_err() {
        assert_eq!(&next, state, "a refused edit changed the state");
    }
    result.map(|()| next)
}

#[test]
fn broken_rules_are_corruption() {
    let base = states()[2].clone();
    let with_segment = |edit: fn(&mut SegmentMeta)| {
        let mut entry = segment(5);
        edit(&mut entry);
        vec![Change::NextNumber(6), Change::AddSegment(entry)]
    };
    let mut other_kind = keyspace(9, "nine");
    other_kind.kind = KeyspaceKind::WriteOnce;
    let mut later_log = log(5);
    later_log.incarnation = 2;
    let cases = [
        ("number not handed out", vec![Change::AddLog(log(5))]),
        (
            "number handed out too late",
            vec![Change::AddSegment(segment(5)), Change::NextNumber(6)],
        ),
        ("log named twice", vec![Change::AddLog(log(4))]),
        ("number of a segment", vec![Change::AddLog(log(3))]),
        ("number of a log", vec![Change::AddSegment(segment(2))]),
        (
            "later incarnation",
            vec![Change::NextNumber(6), Change::AddLog(later_log)],
        ),
        ("dropped, not named", vec![Change::DropLog { number: 1 }]),
        ("a segment is no log", vec![Change::DropLog { number: 3 }]),
        (
            "a log is no segment",
            vec![Change::DropSegment { number: 2 }],
        ),
        (
            "dropped twice",
            vec![Change::DropLog { number: 2 }, Change::DropLog { number: 2 }],
        ),
        (
            "marked, not named",
            vec![Change::MarkLog {
                number: 1,
                durable_through: 9,
            }],
        ),
        (
            "mark falls",
            vec![
                Change::MarkLog {
                    number: 2,
                    durable_through: 9,
                },
                Change::MarkLog {
                    number: 2,
                    durable_through: 8,
                },
            ],
        ),
        ("flushed falls", vec![Change::FlushedThrough(19)]),
        ("next number falls", vec![Change::NextNumber(4)]),
        ("next generation falls", vec![Change::NextGeneration(2)]),
        (
            "keyspace name twice",
            vec![Change::AddKeyspace(keyspace(9, "b"))],
        ),
        (
            "keyspace id twice",
            vec![Change::AddKeyspace(keyspace(1, "nine"))],
        ),
        (
            "keyspace without name",
            vec![Change::AddKeyspace(keyspace(9, ""))],
        ),
        (
            "long name",
            vec![Change::AddKeyspace(keyspace(9, &"n".repeat(256)))],
        ),
        ("kind of another id", vec![Change::AddKeyspace(other_kind)]),
        (
            "family",
            with_segment(|entry| entry.identity.family_id ^= 1),
        ),
        (
            "generations",
            with_segment(|entry| entry.identity.generation_lo = 3),
        ),
        (
            "sequences",
            with_segment(|entry| entry.counts.min_sequence = 21),
        ),
        (
            "tombstones",
            with_segment(|entry| entry.counts.tombstones = 41),
        ),
        ("tail", with_segment(|entry| entry.tail_len = 1001)),
        (
            "tail, far",
            with_segment(|entry| entry.tail_offset = u64::MAX),
        ),
        (
            "not flushed",
            with_segment(|entry| entry.counts.max_sequence = 21),
        ),
        (
            "a generation to come",
            with_segment(|entry| entry.identity.generation_hi = 3),
        ),
    ];
    for (what, changes) in cases {
        let error = try_apply(&base, changes).expect_err(what);
        assert_eq!(error.kind(), &ErrorKind::Corruption, "{what}");
        assert_eq!(error.file(), Some(FileName::MANIFEST), "{what}");
    }
    try_apply(&base, with_segment(|_| {})).unwrap();
}

#[test]
fn edits_are_numbered_without_a_gap() {
    let mut state = state();
    for number in [4, 5, 7] {
        let changes = Vec::new();
        assert!(state.apply(&Edit { number, changes }).is_err());
    }
    let changes = vec![Change::CleanClose];
    state.apply(&Edit { number: 6, changes }).unwrap();
    assert!(state.clean_close);
    state
        .apply(&Edit {
            number: 7,
            changes: Vec::new(),
        })
        .unwrap();
    assert_eq!((state.edit_number, state.clean_close), (7, false));
}

#[test]
fn a_state_that_breaks_a_rule_is_not_written() {
    let edits: [fn(&mut ManifestState); 10] = [
        |state| state.hash_bits = 47,
        |state| state.hash_bits = 0,
        |state| state.logs.swap(0, 1),
        |state| state.logs.push(log(2)),
        |state| state.next_number = 2,
        |state| state.incarnation = 0,
        |state| state.segments.push(segment(2).pack()),
        |state| state.keyspaces.push(keyspace(1, "default")),
        |state| state.keyspaces[0].name.clear(),
        |state| {
            state.next_number = 4;
            state.segments.push(segment(3).pack());
        },
    ];
    for (at, edit) in edits.iter().enumerate() {
        let mut state = state();
        edit(&mut state);
        let vfs = TestVfs::default();
        let error = ManifestWriter::create(&vfs, &state, 0).expect_err("a broken rule");
        assert_eq!(error.kind(), &ErrorKind::Corruption, "case {at}");
        assert!(vfs.take_calls().is_empty());
    }
}

fn any_small_change() -> impl Strategy<Value = Change> {
    prop_oneof![
        (0_u32..4, "[ab]{0,2}").prop_map(|(id, name)| Change::AddKeyspace(keyspace(id, &name))),
        (1_u64..8).prop_map(|number| Change::AddLog(log(number))),
        (1_u64..8).prop_map(|number| Change::AddSegment(segment(number))),
        (1_u64..8).prop_map(|number| Change::DropLog { number }),
        (1_u64..8).prop_map(|number| Change::DropSegment { number }),
        (1_u64..8).prop_map(|number| Change::DropPart { number }),
        (1_u64..8, 0_u16..3)
            .prop_map(|(number, part)| Change::AddSegment(part_of_run(number, part))),
        (1_u64..8, 0_u64..9).prop_map(|(number, durable_through)| Change::MarkLog {
            number,
            durable_through
        }),
        (15_u64..25).prop_map(Change::FlushedThrough),
        (3_u64..9).prop_map(Change::NextNumber),
        (1_u64..5).prop_map(Change::NextGeneration),
        Just(Change::CleanClose),
    ]
}

proptest! {
    /// Whatever is tried, the state keeps its rules, a refused edit changes nothing, and what the file
    /// holds is the state in memory, rolled or not.
    #[test]
    fn file_and_memory_agree(
        edits in prop::collection::vec(prop::collection::vec(any_small_change(), 0..4), 0..12),
        limit_bytes in 0_u64..400,
        reserve_bytes in 0_u64..300,
    ) {
        let vfs = TestVfs::default();
        let mut writer = ManifestWriter::create(&vfs, &state(), reserve_bytes).unwrap();
        for changes in edits {
            let before = writer.state().clone();
            let expected = try_apply(&before, changes.clone());
            prop_assert_eq!(writer.append(&changes).is_ok(), expected.is_ok());
            prop_assert_eq!(writer.state(), &expected.unwrap_or(before));
            if writer.wants_roll(limit_bytes) {
                writer.roll(&vfs).unwrap();
                prop_assert!(!writer.wants_roll(0));
            }
            prop_assert_eq!(writer.state(), &read_state(&vfs));
        }
    }
}

#[test]
fn counts_that_can_not_be_added_to_are_corruption() {
    let base = states()[2].clone();
    for change in [
        Change::NextNumber(u64::MAX),
        Change::NextGeneration(u64::MAX),
        Change::FlushedThrough(u64::MAX),
    ] {
        let refused = try_apply(&base, vec![change.clone()]).expect_err("too large");
        assert_eq!(refused.kind(), &ErrorKind::Corruption, "{change:?}");
    }
    let large: [fn(&mut ManifestState); 5] = [
        |state| state.incarnation = u64::MAX,
        |state| state.next_number = u64::MAX,
        |state| state.edit_number = u64::MAX,
        |state| state.flushed_through = u64::MAX,
        |state| state.next_generation = u64::MAX,
    ];
    base.check_whole().expect("holds");
    for enlarge in large {
        let mut state = base.clone();
        enlarge(&mut state);
        let refused = state.check_whole().expect_err("too large");
        assert_eq!(refused.kind(), &ErrorKind::Corruption);
    }
}

#[test]
fn segments_that_their_files_can_not_hold_are_corruption() {
    let base = states()[2].clone();
    let entry = segment(base.next_number);
    let insert = |entry: SegmentMeta| {
        let changes = vec![
            Change::NextNumber(entry.number + 1),
            Change::FlushedThrough(base.flushed_through.max(entry.counts.max_sequence)),
            Change::AddSegment(entry),
        ];
        try_apply(&base, changes).map(drop)
    };
    insert(entry.clone()).expect("holds");
    let wrong: [fn(&mut SegmentMeta); 6] = [
        |entry| entry.counts.records = entry.file_len / 32 + 1,
        |entry| entry.counts.records = u64::MAX,
        |entry| entry.counts.key_bytes = entry.file_len + 1,
        |entry| (entry.counts.key_bytes, entry.counts.value_bytes) = (u64::MAX, 2),
        |entry| entry.file_len = (1 << 48) + 1,
        |entry| entry.identity.generation_hi = u64::MAX,
    ];
    for change in wrong {
        let mut entry = entry.clone();
        change(&mut entry);
        let refused = insert(entry.clone()).expect_err("can't be held");
        assert_eq!(refused.kind(), &ErrorKind::Corruption, "{entry:?}");
    }
    for (durable_through, first_generation) in [(u64::MAX, 0), (0, u64::MAX)] {
        let log = LogEntry {
            durable_through,
            first_generation,
            ..LogEntry::spare(base.next_number, base.incarnation)
        };
        let changes = vec![Change::NextNumber(log.number + 1), Change::AddLog(log)];
        let refused = try_apply(&base, changes).expect_err("nothing counts to it");
        assert_eq!(refused.kind(), &ErrorKind::Corruption, "{log:?}");
    }
}
