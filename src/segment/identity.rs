//! What a segment is, wherever its file lies.

use crate::types::KeyspaceKind;

/// Names the content of a segment: the same in every store of a family that was fed the same commits.
/// File numbers and store ids are not part of it, so that replicas and checkpoints can share files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentIdentity {
    /// The family: stores that share hash seed and history.
    pub family_id: u128,
    /// The first generation it holds.
    pub generation_lo: u64,
    /// The last generation it holds.
    pub generation_hi: u64,
    /// The kind of its keyspaces.
    pub kind: KeyspaceKind,
    /// 0 as flushed; higher after compaction.
    pub level: u8,
    /// Which part of its level's output it is.
    pub part: u16,
}
