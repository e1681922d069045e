//! The owned guard that a lookup returns.

use std::fmt;
use std::ops::{Deref, Range};

use crate::sync::Arc;

/// The bytes of a value: a copy that belongs to the caller. Cheap to clone, free of the store: it stays
/// valid whatever happens to the store, its snapshots or its files.
#[derive(Clone)]
pub struct Value(Bytes);

#[derive(Clone)]
enum Bytes {
    /// Just the value: one allocation.
    Own(Arc<[u8]>),
    /// A large value in the buffer that it was read into.
    In(Arc<Vec<u8>>, Range<usize>),
}

impl Value {
    pub(crate) fn copied(bytes: &[u8]) -> Self {
        Self(Bytes::Own(Arc::from(bytes)))
    }

    /// A part of a buffer that was read; `range` is clipped to it.
    pub(crate) fn from_buffer(buffer: Vec<u8>, range: Range<usize>) -> Self {
        let end = range.end.min(buffer.len());
        let range = range.start.min(end)..end;
        Self(Bytes::In(Arc::new(buffer), range))
    }

    /// The bytes as a vector of their own.
    pub fn to_vec(&self) -> Vec<u8> {
        self.as_ref().to_vec()
    }
}

impl Deref for Value {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Bytes::Own(bytes) => bytes,
            Bytes::In(buffer, range) => buffer.get(range.clone()).unwrap_or_default(),
        }
    }
}

impl AsRef<[u8]> for Value {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Value {}

impl PartialEq<[u8]> for Value {
    fn eq(&self, other: &[u8]) -> bool {
        **self == *other
    }
}

impl PartialEq<&[u8]> for Value {
    fn eq(&self, other: &&[u8]) -> bool {
        **self == **other
    }
}

impl<const N: usize> PartialEq<&[u8; N]> for Value {
    fn eq(&self, other: &&[u8; N]) -> bool {
        **self == other[..]
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Value({} bytes)", self.len())
    }
}
