//! Histories of threads, and what must hold of one whatever the threads did.
//!
//! Keys come in groups. A batch writes all keys of its group with one tag (thread and counter), so each
//! observation names a batch. Times are ticks of one counter: what ended before another began is earlier.
//!
//! | rule | what |
//! |---|---|
//! | H1 | sequences are given once, and in the order of time |
//! | H2 | a read shows the newest batch acknowledged before it, or a later one that had begun |
//! | H3 | what a read showed, no later read takes back |
//! | H4 | a snapshot shows exactly the batches up to its bound, all keys of a group alike |
//! | H5 | a snapshot's bound covers what was acknowledged, and shown, before it was taken |
//! | H6 | the same snapshot shows the same again |
//! | H7 | durable never passes visible; neither goes back; both cover what was acknowledged |
//!
//! A batch whose outcome nobody learnt (the store was closed under it) may or may not be there: rules
//! that would need its sequence say nothing about it.

use std::collections::BTreeMap;

/// Which batch: thread and counter.
pub type Tag = (u32, u32);

/// When something began and ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// The tick before.
    pub began: u64,
    /// The tick after.
    pub ended: u64,
}

/// What a thread saw or did.
#[derive(Clone, Debug)]
pub enum What {
    /// It wrote a group.
    Write {
        /// The batch.
        tag: Tag,
        /// The group.
        group: usize,
        /// The sequence, unless nobody knows.
        sequence: Option<u64>,
        /// Whether it was to be durable when acknowledged.
        synced: bool,
    },
    /// It read one key of a group.
    Get {
        /// The group.
        group: usize,
        /// The batch that the value names.
        tag: Option<Tag>,
    },
    /// It took a snapshot and read everything, group by group and key by key.
    Snapshot {
        /// Its sequence.
        bound: u64,
        /// When it had been taken.
        taken: u64,
        /// The tags.
        groups: Vec<Vec<Option<Tag>>>,
    },
    /// It read the same snapshot again.
    Again {
        /// Whether everything was the same.
        same: bool,
    },
    /// It asked how far the store is: durable first.
    Progress {
        /// The durable sequence.
        durable: u64,
        /// The visible one, asked afterwards.
        visible: u64,
    },
}

/// An entry of a history.
#[derive(Clone, Debug)]
pub struct Event {
    /// When.
    pub span: Span,
    /// What.
    pub what: What,
}

/// A rule that does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// Its name.
    pub rule: &'static str,
    /// How it shows.
    pub how: String,
}

type Verdict = Result<(), Broken>;

fn broken<T>(rule: &'static str, how: String) -> Result<T, Broken> {
    Err(Broken { rule, how })
}

#[derive(Clone, Copy, Debug)]
struct Write {
    span: Span,
    sequence: Option<u64>,
    group: usize,
}

/// The writes of a history, looked up in different ways.
struct Writes {
    by_tag: BTreeMap<Tag, Write>,
    /// By group, in the order of sequences.
    by_group: BTreeMap<usize, BTreeMap<u64, Tag>>,
    /// By the tick at which they were acknowledged: the newest sequence so far, of all and by group.
    acknowledged: BTreeMap<u64, u64>,
    acknowledged_of: BTreeMap<usize, BTreeMap<u64, u64>>,
    /// The same of synced ones.
    synced: BTreeMap<u64, u64>,
}

/// The newest value noted before `tick`.
fn before(noted: &BTreeMap<u64, u64>, tick: u64) -> u64 {
    noted
        .range(..tick)
        .next_back()
        .map_or(0, |(_, newest)| *newest)
}

/// Notes values by tick and keeps the running maximum.
fn running(mut values: Vec<(u64, u64)>) -> BTreeMap<u64, u64> {
    values.sort_unstable();
    let mut newest = 0;
    let noted = values.into_iter().map(|(tick, value)| {
        newest = newest.max(value);
        (tick, newest)
    });
    noted.collect()
}

impl Writes {
    fn of(events: &[Event]) -> Result<Self, Broken> {
        let mut by_tag = BTreeMap::new();
        let mut by_group: BTreeMap<usize, BTreeMap<u64, Tag>> = BTreeMap::new();
        let mut by_sequence: BTreeMap<u64, Tag> = BTreeMap::new();
        let (mut all, mut synced_ones) = (Vec::new(), Vec::new());
        let mut of_groups: BTreeMap<usize, Vec<(u64, u64)>> = BTreeMap::new();
        for event in events {
            let What::Write {
                tag,
                group,
                sequence,
                synced,
            } = event.what
            else {
                continue;
            };
            let span = event.span;
            let write = Write {
                span,
                sequence,
                group,
            };
            by_tag.insert(tag, write);
            let Some(sequence) = sequence else { continue };
            if let Some(other) = by_sequence.insert(sequence, tag) {
                return broken("H1", format!("{tag:?} and {other:?} both have {sequence}"));
            }
            by_group.entry(group).or_default().insert(sequence, tag);
            all.push((span.ended, sequence));
            of_groups
                .entry(group)
                .or_default()
                .push((span.ended, sequence));
            if synced {
                synced_ones.push((span.ended, sequence));
            }
        }
        let writes = Self {
            by_tag,
            by_group,
            acknowledged: running(all),
            acknowledged_of: of_groups
                .into_iter()
                .map(|(group, values)| (group, running(values)))
                .collect(),
            synced: running(synced_ones),
        };
        for (tag, write) in &writes.by_tag {
            let earlier = before(&writes.acknowledged, write.span.began);
            if write.sequence.is_some_and(|sequence| sequence <= earlier) {
                let how = format!("{tag:?} has {:?} after {earlier}", write.sequence);
                return broken("H1", how);
            }
        }
        Ok(writes)
    }

    /// The sequence of what was seen; `None` if nobody knows it.
    fn sequence_of(
        &self,
        group: usize,
        tag: Option<Tag>,
        ended: u64,
    ) -> Result<Option<u64>, Broken> {
        let Some(tag) = tag else { return Ok(Some(0)) };
        match self.by_tag.get(&tag) {
            Some(write) if write.group == group && write.span.began < ended => Ok(write.sequence),
            _ => broken(
                "H2",
                format!("group {group} shows {tag:?}, which nobody wrote yet"),
            ),
        }
    }
}

/// Checks a whole history.
///
/// # Errors
/// The first rule that does not hold.
pub fn check(events: &[Event]) -> Verdict {
    let writes = Writes::of(events)?;
    check_reads(events, &writes)?;
    check_snapshots(events, &writes)?;
    check_progress(events, &writes)
}

fn check_reads(events: &[Event], writes: &Writes) -> Verdict {
    // By group: what reads had shown, by the tick at which they ended.
    let mut shown: BTreeMap<usize, Vec<(u64, u64)>> = BTreeMap::new();
    let mut reads = Vec::new();
    for event in events {
        let What::Get { group, tag } = event.what else {
            continue;
        };
        let Some(sequence) = writes.sequence_of(group, tag, event.span.ended)? else {
            continue;
        };
        shown
            .entry(group)
            .or_default()
            .push((event.span.ended, sequence));
        reads.push((group, event.span, sequence));
    }
    let shown: BTreeMap<usize, BTreeMap<u64, u64>> = shown
        .into_iter()
        .map(|(group, values)| (group, running(values)))
        .collect();
    for (group, span, sequence) in reads {
        let acknowledged = writes
            .acknowledged_of
            .get(&group)
            .map_or(0, |noted| before(noted, span.began));
        if sequence < acknowledged {
            return broken(
                "H2",
                format!("group {group} shows {sequence} after {acknowledged} at {span:?}"),
            );
        }
        let earlier = shown
            .get(&group)
            .map_or(0, |noted| before(noted, span.began));
        if sequence < earlier {
            return broken(
                "H3",
                format!("group {group} shows {sequence}, showed {earlier} at {span:?}"),
            );
        }
    }
    Ok(())
}

fn check_snapshots(events: &[Event], writes: &Writes) -> Verdict {
    let mut shown = Vec::new();
    for event in events {
        if let What::Get { group, tag } = event.what {
            let sequence = writes.sequence_of(group, tag, event.span.ended)?;
            shown.push((event.span.ended, sequence.unwrap_or(0)));
        }
    }
    let shown = running(shown);
    for event in events {
        match &event.what {
            What::Again { same: false } => {
                return broken("H6", format!("a snapshot has changed by {:?}", event.span));
            }
            What::Snapshot {
                bound,
                taken,
                groups,
            } => {
                let began = event.span.began;
                let covered = before(&writes.acknowledged, began).max(before(&shown, began));
                if *bound < covered {
                    let how = format!("a snapshot at {bound} after {covered}, {:?}", event.span);
                    return broken("H5", how);
                }
                check_snapshot(*bound, *taken, groups, writes)?;
            }
            _ => {}
        }
    }
    Ok(())
}

fn check_snapshot(bound: u64, taken: u64, groups: &[Vec<Option<Tag>>], writes: &Writes) -> Verdict {
    for (group, tags) in groups.iter().enumerate() {
        let first = tags.first().copied().flatten();
        if tags.iter().any(|tag| *tag != first) {
            return broken("H4", format!("group {group} at {bound} is torn: {tags:?}"));
        }
        let Some(sequence) = writes.sequence_of(group, first, taken)? else {
            continue;
        };
        let newest = writes
            .by_group
            .get(&group)
            .and_then(|of_group| of_group.range(..=bound).next_back());
        if newest.map_or(0, |(newest, _)| *newest) != sequence {
            let how = format!("group {group} at {bound} shows {sequence}, not {newest:?}");
            return broken("H4", how);
        }
    }
    Ok(())
}

fn check_progress(events: &[Event], writes: &Writes) -> Verdict {
    let observed = |pick: fn(u64, u64) -> u64| {
        let values = events.iter().filter_map(|event| match event.what {
            What::Progress { durable, visible } => Some((event.span.ended, pick(durable, visible))),
            _ => None,
        });
        running(values.collect())
    };
    let (durables, visibles) = (
        observed(|durable, _| durable),
        observed(|_, visible| visible),
    );
    for event in events {
        let What::Progress { durable, visible } = event.what else {
            continue;
        };
        let began = event.span.began;
        let durable_least = before(&writes.synced, began).max(before(&durables, began));
        let visible_least = before(&writes.acknowledged, began).max(before(&visibles, began));
        if durable > visible || durable < durable_least || visible < visible_least {
            return broken(
                "H7",
                format!(
                    "durable {durable} (at least {durable_least}), visible {visible} (at least \
                     {visible_least}) at {:?}",
                    event.span
                ),
            );
        }
    }
    Ok(())
}
