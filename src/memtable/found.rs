//! What readers get: values and entries that borrow the memtable.

use std::fmt;

use super::space::Slices;
use crate::types::{KeyspaceId, RecordKind, Sequence};

/// A value where it stands, in one or more pieces.
#[derive(Clone)]
pub struct ValueRef<'a> {
    slices: Slices<'a>,
}

impl<'a> ValueRef<'a> {
    pub(super) fn new(slices: Slices<'a>) -> Self {
        Self { slices }
    }

    /// Its length.
    pub fn len(&self) -> usize {
        self.slices.remaining() as usize
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Its pieces, in order; none is empty.
    pub fn slices(&self) -> Slices<'a> {
        self.slices.clone()
    }

    /// Appends it to `out`.
    pub fn copy_to(&self, out: &mut Vec<u8>) {
        out.reserve(self.len());
        self.slices().for_each(|piece| out.extend_from_slice(piece));
    }

    /// A copy.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.copy_to(&mut out);
        out
    }

    /// Whether it has exactly these bytes.
    pub fn eq_bytes(&self, bytes: &[u8]) -> bool {
        let mut rest = bytes;
        self.len() == bytes.len()
            && self
                .slices()
                .all(|piece| match rest.split_at_checked(piece.len()) {
                    Some((front, back)) => {
                        rest = back;
                        front == piece
                    }
                    None => false,
                })
    }
}

impl fmt::Debug for ValueRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ValueRef({} bytes)", self.len())
    }
}

/// A version of a key.
#[derive(Clone, Debug)]
pub struct Found<'a> {
    /// Value or tombstone.
    pub kind: RecordKind,
    /// The commit that wrote it.
    pub sequence: Sequence,
    /// The value; empty for a tombstone.
    pub value: ValueRef<'a>,
}

/// An entry under a cursor.
#[derive(Clone, Debug)]
pub struct EntryRef<'a> {
    /// The keyspace.
    pub keyspace: KeyspaceId,
    /// The key.
    pub key: &'a [u8],
    /// The commit that wrote it.
    pub sequence: Sequence,
    /// Value or tombstone.
    pub kind: RecordKind,
    /// The value; empty for a tombstone.
    pub value: ValueRef<'a>,
}
