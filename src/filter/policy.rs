//! Which filters a store wants in memory.

/// Which filters are in memory, within the budget (`Options::filter_budget_bytes`). Answers never depend on
/// it, only how many reads they cost: where a run has no filter in memory, a lookup that reaches it reads a
/// page of its index.
///
/// ```
/// use sealstone::{FilterPolicy, Options};
/// let options = Options::new().filter_policy(FilterPolicy::NewestFirst);
/// # let _ = options;
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FilterPolicy {
    /// For each part of a run the stored alternative, or none, that spares most reads for its bytes, weighted
    /// by how often lookups came there in vain. What to use: under a small budget old and large runs keep
    /// thin filters instead of none.
    #[default]
    Planned,
    /// Twelve bits a key, newest first, until the first that has no room. For lookups that ask almost only for
    /// new keys, and to compare with.
    NewestFirst,
    /// Twelve bits a key for the runs of the newest 40 segments of a kind, and none for older ones. For
    /// lookups of new keys that are known to exist, and to compare with stores that work so.
    WindowOnly,
    /// Twelve bits a key for all. For measurements without a shortage: an open with less budget than the
    /// store's filters take is refused (`TooLarge`, with the budget needed). A store that outgrows the budget
    /// later, or whose budget is made smaller, goes on as `Planned`.
    All,
    /// None. For measurements of what an index costs without filters.
    None,
}

/// How many newest segments of a kind [`FilterPolicy::WindowOnly`] has filters for: a folded run that has one
/// of them counts as a whole.
pub const WINDOW_SEGMENTS: u32 = 40;
