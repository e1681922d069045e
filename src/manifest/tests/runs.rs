//! Folded runs in the manifest: what follows from their parts, and which rules they keep.

use super::*;
use crate::manifest::runs;

/// A segment of one generation.
fn one(number: u64, generation: u64) -> SegmentMeta {
    let mut meta = segment(number);
    meta.identity.part = 0;
    meta.identity.generation_lo = generation;
    meta.identity.generation_hi = generation;
    meta
}

/// A part over these generations, with so many entries.
fn part(number: u64, part: u16, (lo, hi): (u64, u64), entries: u64) -> SegmentMeta {
    let mut meta = part_of_run(number, part);
    meta.identity.generation_lo = lo;
    meta.identity.generation_hi = hi;
    meta.counts.records = entries;
    meta
}

fn state_of(metas: impl IntoIterator<Item = SegmentMeta>) -> ManifestState {
    let mut state = ManifestState::new(1, FAMILY, [0; 16], 46);
    state.incarnation = 1;
    state.next_number = 100;
    state.flushed_through = 20;
    state.segments = metas.into_iter().map(|meta| meta.pack()).collect();
    state.segments.sort_by_key(|meta| meta.number());
    state
}

/// Generations 1 to 5, of which 2 to 4 are folded into two parts.
fn folded() -> Vec<SegmentMeta> {
    let mut metas: Vec<_> = (1..=5).map(|number| one(number, number)).collect();
    metas.push(part(10, 0, (2, 4), 50));
    metas.push(part(11, 1, (2, 4), 70));
    metas
}

#[test]
fn runs_follow_from_their_parts() {
    let state = state_of(folded());
    let numbers = |metas: &[crate::segment::PackedMeta]| -> Vec<u64> {
        metas
            .iter()
            .map(crate::segment::PackedMeta::number)
            .collect()
    };
    let named = runs::of(&state, KeyspaceKind::Mutable).expect("keeps the rules");
    let shape: Vec<_> = named
        .iter()
        .map(|run| match run {
            NamedRun::Fresh(meta) => (0, vec![meta.number()], Vec::new()),
            NamedRun::Folded {
                level,
                parts,
                segments,
            } => (*level, numbers(segments), numbers(parts)),
        })
        .collect();
    let expected = [
        (0, vec![5], vec![]),
        (1, vec![4, 3, 2], vec![10, 11]),
        (0, vec![1], vec![]),
    ];
    assert_eq!(shape, expected);
    let other = runs::of(&state, KeyspaceKind::WriteOnce).expect("keeps the rules");
    assert!(other.is_empty());
}

#[test]
fn broken_runs_are_refused() {
    type Break = fn(&mut Vec<SegmentMeta>);
    let breaks: [(&str, Break); 8] = [
        ("an entry for each record", |metas| metas.truncate(6)),
        ("lacks a part", |metas| metas[6].identity.part = 0),
        ("lacks a part", |metas| {
            metas[6].counts.records = 30;
            metas.push(part(12, 2, (2, 4), 40));
        }),
        ("an entry for each record", |metas| {
            metas[6].counts.records += 1
        }),
        ("inside a segment", |metas| {
            metas[3].identity.generation_hi = 5;
            metas[4].identity.generation_lo = 6;
            metas[4].identity.generation_hi = 6;
        }),
        // Generation 4 can be in one of them only.
        ("an entry for each record", |metas| {
            metas.push(part(12, 0, (4, 5), 80));
        }),
        ("inside a segment", |metas| {
            metas.drain(1..4);
        }),
        ("hold the same generations", |metas| {
            metas[0].identity.generation_hi = 2;
        }),
    ];
    for (rule, change) in breaks {
        let mut metas = folded();
        change(&mut metas);
        let error = runs::of(&state_of(metas), KeyspaceKind::Mutable).expect_err(rule);
        assert_eq!(error.kind(), &ErrorKind::Corruption);
        assert_eq!(error.file(), Some(FileName::MANIFEST));
        assert!(error.detail().contains(rule), "{rule}: {}", error.detail());
    }
}

#[test]
fn a_fold_is_one_edit_and_comes_back() {
    let mut state = state_of((1..=3).map(|number| one(number, number)));
    state.next_generation = 4;
    let edit = |number, changes| Edit { number, changes };
    let added = Change::AddSegment(part(10, 0, (1, 3), 120));
    state.apply(&edit(1, vec![added.clone()])).expect("folds");
    let before = state.clone();
    // The old part must go in the edit that names the new one.
    let again = part(11, 0, (1, 3), 120);
    let error = state.apply(&edit(2, vec![Change::AddSegment(again.clone())]));
    assert!(error.is_err());
    assert_eq!(state, before);
    let wrong = [
        Change::DropSegment { number: 10 },
        Change::DropPart { number: 3 },
    ];
    for change in wrong {
        assert!(state.apply(&edit(2, vec![change])).is_err());
        assert_eq!(state, before);
    }
    let changes = vec![Change::DropPart { number: 10 }, Change::AddSegment(again)];
    state.apply(&edit(2, changes)).expect("is made again");
    // Without the index all is still there.
    let dropped = vec![Change::DropPart { number: 11 }];
    state.apply(&edit(3, dropped)).expect("drops");
    let fresh = runs::of(&state, KeyspaceKind::Mutable).expect("keeps the rules");
    assert!(fresh.iter().all(|run| matches!(run, NamedRun::Fresh(_))));
}
