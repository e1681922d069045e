//! Threads on one store in a real directory, and the check of what they saw.
//!
//! A few seconds; `SEALSTONE_STRESS_SECONDS` says how many. `docs/testing.md` has the command that runs
//! it under AddressSanitizer.

#![allow(
    clippy::disallowed_methods,
    reason = "the length of the run is the caller's affair"
)]

use std::time::Duration;

use sealstone_sim::real::history::{Event, Span, Tag, What, check};
use sealstone_sim::real::stress::{self, StressOptions};

#[test]
fn threads_see_what_they_may_see() {
    let seconds = std::env::var("SEALSTONE_STRESS_SECONDS");
    let seconds = seconds.map_or(3, |text| text.parse().expect("a number of seconds"));
    let options = StressOptions {
        threads: 6,
        time: Duration::from_secs(seconds),
        seed: seconds,
    };
    let (events, opens) = stress::run(&options).unwrap_or_else(|what| panic!("{what}"));
    if let Err(broken) = check(&events) {
        panic!("{broken:?}");
    }
    let count = |wanted: fn(&What) -> bool| events.iter().filter(|e| wanted(&e.what)).count();
    let counts = [
        count(|what| matches!(what, What::Write { .. })),
        count(|what| matches!(what, What::Get { .. })),
        count(|what| matches!(what, What::Snapshot { .. })),
        count(|what| matches!(what, What::Again { .. })),
        count(|what| matches!(what, What::Progress { .. })),
    ];
    println!("{counts:?} writes, gets, snapshots, again, progress; {opens} openings");
    assert!(counts.iter().all(|count| *count >= 20), "{counts:?}");
    assert!(opens >= 2, "never reopened");
}

fn event(began: u64, ended: u64, what: What) -> Event {
    let span = Span { began, ended };
    Event { span, what }
}

fn write(began: u64, ended: u64, counter: u32, group: usize, sequence: u64) -> Event {
    let what = What::Write {
        tag: (0, counter),
        group,
        sequence: Some(sequence),
        synced: counter.is_multiple_of(2),
    };
    event(began, ended, what)
}

fn get(began: u64, ended: u64, group: usize, tag: Option<Tag>) -> Event {
    event(began, ended, What::Get { group, tag })
}

fn snapshot(began: u64, bound: u64, tags: [[Option<Tag>; 2]; 2]) -> Event {
    let what = What::Snapshot {
        bound,
        taken: began + 1,
        groups: tags.map(Vec::from).to_vec(),
    };
    event(began, began + 2, what)
}

fn progress(began: u64, durable: u64, visible: u64) -> Event {
    event(began, began + 1, What::Progress { durable, visible })
}

/// Three batches: the first two to group 0, the third to group 1, from tick 10 to 40.
fn writes() -> Vec<Event> {
    vec![
        write(10, 15, 1, 0, 1),
        write(20, 25, 2, 0, 2),
        write(30, 40, 3, 1, 3),
    ]
}

const FIRST: Option<Tag> = Some((0, 1));
const SECOND: Option<Tag> = Some((0, 2));
const THIRD: Option<Tag> = Some((0, 3));

fn rule(more: &[Event]) -> Option<&'static str> {
    let mut events = writes();
    events.extend_from_slice(more);
    check(&events).err().map(|broken| broken.rule)
}

#[test]
fn right_histories_pass() {
    let right = [
        get(1, 2, 0, None),
        get(16, 17, 0, FIRST),
        get(21, 22, 0, SECOND),
        get(31, 32, 1, THIRD),
        // Begun before the other read had ended.
        get(31, 33, 1, None),
        snapshot(34, 3, [[SECOND; 2], [THIRD; 2]]),
        event(60, 61, What::Again { same: true }),
        progress(5, 0, 0),
        progress(26, 2, 2),
        progress(50, 2, 3),
    ];
    assert_eq!(rule(&right), None);
    // Nobody knows whether it is there.
    let unknown = event(
        42,
        44,
        What::Write {
            tag: (1, 1),
            group: 0,
            sequence: None,
            synced: true,
        },
    );
    let seen = [unknown.clone(), get(45, 46, 0, Some((1, 1)))];
    assert_eq!(rule(&seen), None);
    assert_eq!(rule(&[unknown, get(45, 46, 0, SECOND)]), None);
}

#[test]
fn broken_histories_are_reported() {
    let broken: [(&str, &[Event]); 17] = [
        // One sequence twice; one that goes back in time.
        ("H1", &[write(50, 55, 4, 0, 3)]),
        ("H1", &[write(50, 55, 4, 0, 4), write(60, 65, 5, 1, 0)]),
        // Lost: never, older than acknowledged. Invented: unknown, of another group, not begun.
        ("H2", &[get(26, 27, 0, None)]),
        ("H2", &[get(26, 27, 0, FIRST)]),
        ("H2", &[get(26, 27, 0, Some((7, 7)))]),
        ("H2", &[get(50, 51, 0, THIRD)]),
        ("H2", &[get(17, 18, 0, SECOND)]),
        // Shown, then not.
        ("H3", &[get(31, 32, 1, THIRD), get(33, 34, 1, None)]),
        // Half a batch; one too old; one too new for the bound.
        ("H4", &[snapshot(50, 3, [[FIRST, SECOND], [THIRD; 2]])]),
        ("H4", &[snapshot(50, 3, [[FIRST; 2], [THIRD; 2]])]),
        ("H4", &[snapshot(34, 2, [[SECOND; 2], [THIRD; 2]])]),
        // Without what was acknowledged, or shown, before.
        ("H5", &[snapshot(50, 2, [[SECOND; 2], [None; 2]])]),
        (
            "H5",
            &[
                get(31, 32, 1, THIRD),
                snapshot(34, 2, [[SECOND; 2], [None; 2]]),
            ],
        ),
        ("H6", &[event(60, 61, What::Again { same: false })]),
        // Durable but not visible; acknowledged but not durable; back in time.
        ("H7", &[progress(50, 4, 3)]),
        ("H7", &[progress(50, 1, 3)]),
        ("H7", &[progress(26, 2, 3), progress(31, 2, 2)]),
    ];
    for (number, (wanted, events)) in broken.iter().enumerate() {
        assert_eq!(rule(events), Some(*wanted), "history {number}");
    }
}
