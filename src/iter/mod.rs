//! Iterators: one cursor per overlapping segment and generation, merged.
//!
//! A scan over S segments holds S cursors, whose buffers are taken by permit from the scan memory when
//! the first item is asked for; where memory is short each gets less, and below 4 KiB a cursor the
//! iterator fails with `Busy`. A generation in memory is not held: each step asks for it, and goes on in
//! the generation's segment once the memory has retired.
//!
//! Invariants: keys come in strictly ascending (from the back: descending) order; a key is decided by
//! its newest record within the bound; records newer than the bound are passed over; after an error
//! the iterator is at its end.

mod memory;
mod merge;

use std::ops::{Bound, RangeBounds};

use crate::error::Result;
use crate::snapshot::ReaderPin;
use crate::sync::Arc;
use crate::types::{KeyspaceId, RecordKind};

use self::merge::{Direction, From, Merge};

/// The records of a key range, as copies: `(key, value)` in key order, from either end.
///
/// It sees the store as it was when it was made. After an error it is at its end.
#[derive(Debug)]
pub struct Iter {
    pin: Arc<ReaderPin>,
    keyspace: KeyspaceId,
    lower: Bound<Vec<u8>>,
    upper: Bound<Vec<u8>>,
    front: Option<Merge>,
    back: Option<Merge>,
    front_key: Option<Vec<u8>>,
    back_key: Option<Vec<u8>>,
    ended: bool,
}

impl Iter {
    pub(crate) fn over<K: AsRef<[u8]>>(
        pin: Arc<ReaderPin>,
        keyspace: KeyspaceId,
        range: &impl RangeBounds<K>,
    ) -> Self {
        let own = |bound: Bound<&K>| bound.map(|key| key.as_ref().to_vec());
        Self::between(
            pin,
            keyspace,
            own(range.start_bound()),
            own(range.end_bound()),
        )
    }

    pub(crate) fn with_prefix(pin: Arc<ReaderPin>, keyspace: KeyspaceId, prefix: &[u8]) -> Self {
        let upper = match after_prefix(prefix) {
            Some(end) => Bound::Excluded(end),
            None => Bound::Unbounded,
        };
        Self::between(pin, keyspace, Bound::Included(prefix.to_vec()), upper)
    }

    fn between(
        pin: Arc<ReaderPin>,
        keyspace: KeyspaceId,
        lower: Bound<Vec<u8>>,
        upper: Bound<Vec<u8>>,
    ) -> Self {
        Self {
            pin,
            keyspace,
            lower,
            upper,
            front: None,
            back: None,
            front_key: None,
            back_key: None,
            ended: false,
        }
    }

    fn step(&mut self, direction: Direction) -> Option<Result<(Vec<u8>, Vec<u8>)>> {
        if self.ended {
            return None;
        }
        match self.advance(direction) {
            Ok(Some((key, value))) => {
                match direction {
                    Direction::Forward => set(&mut self.front_key, &key),
                    Direction::Backward => set(&mut self.back_key, &key),
                }
                Some(Ok((key, value)))
            }
            Ok(None) => {
                self.end();
                None
            }
            Err(error) => {
                self.end();
                Some(Err(error))
            }
        }
    }

    fn end(&mut self) {
        self.ended = true;
        self.front = None;
        self.back = None;
    }

    fn advance(&mut self, direction: Direction) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        self.pin.engine().check_open("scan")?;
        let mut merge = match direction {
            Direction::Forward => self.front.take(),
            Direction::Backward => self.back.take(),
        };
        let merge = match &mut merge {
            Some(merge) => merge,
            None => merge.insert(self.open(direction)?),
        };
        let item = loop {
            let Some(item) = merge.next(&self.pin)? else {
                break None;
            };
            if self.passed(direction, &item.key) {
                break None;
            }
            if item.kind == RecordKind::Value {
                break Some((item.key, item.value));
            }
        };
        let merge = std::mem::take(merge);
        match direction {
            Direction::Forward => self.front = Some(merge),
            Direction::Backward => self.back = Some(merge),
        }
        Ok(item)
    }

    /// Whether `key` lies beyond the range's far end, or where the other direction has been.
    fn passed(&self, direction: Direction, key: &[u8]) -> bool {
        match direction {
            Direction::Forward => {
                let beyond = match &self.upper {
                    Bound::Included(end) => key > end.as_slice(),
                    Bound::Excluded(end) => key >= end.as_slice(),
                    Bound::Unbounded => false,
                };
                beyond || self.back_key.as_deref().is_some_and(|back| key >= back)
            }
            Direction::Backward => {
                let beyond = match &self.lower {
                    Bound::Included(start) => key < start.as_slice(),
                    Bound::Excluded(start) => key <= start.as_slice(),
                    Bound::Unbounded => false,
                };
                beyond || self.front_key.as_deref().is_some_and(|front| key <= front)
            }
        }
    }

    fn open(&self, direction: Direction) -> Result<Merge> {
        let from = match direction {
            Direction::Forward => match &self.lower {
                Bound::Included(key) => From::At(key),
                Bound::Excluded(key) => From::Beyond(key),
                Bound::Unbounded => From::End,
            },
            Direction::Backward => match &self.upper {
                Bound::Included(key) => From::At(key),
                Bound::Excluded(key) => From::Beyond(key),
                Bound::Unbounded => From::End,
            },
        };
        Merge::open(&self.pin, self.keyspace, direction, from)
    }
}

impl Iterator for Iter {
    type Item = Result<(Vec<u8>, Vec<u8>)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.step(Direction::Forward)
    }
}

impl DoubleEndedIterator for Iter {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.step(Direction::Backward)
    }
}

impl std::iter::FusedIterator for Iter {}

fn set(slot: &mut Option<Vec<u8>>, key: &[u8]) {
    let slot = slot.get_or_insert_default();
    slot.clear();
    slot.extend_from_slice(key);
}

/// The smallest key above all that start with `prefix`; `None` if there is none.
fn after_prefix(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte != 0xFF)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefix_ends() {
        assert_eq!(after_prefix(b"ab"), Some(b"ac".to_vec()));
        assert_eq!(after_prefix(b"a\xff"), Some(b"b".to_vec()));
        assert_eq!(after_prefix(b"\xff\xff"), None);
        assert_eq!(after_prefix(b""), None);
    }
}
