//! What can be wrong with the tree.

/// An error to plant. The first eight are errors that other stores had, the others break one rule each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// None.
    None,
    /// A log that is full is not synced before the next one takes synced commits.
    OldLogUnsynced,
    /// A new log is renamed into place, and its directory not synced, before it takes commits.
    NewLogUnnamed,
    /// When the sync of a manifest edit fails, the segment that it adds is removed.
    EditTakenBack,
    /// Open goes on with what it read, and numbers new files by the manifest alone, over what is there.
    NumbersReused,
    /// The slot of a value that a read handed out is given to a later read.
    SlicesRecycled,
    /// Files that a merge replaced are removed under the iterators that read them.
    CollectedUnderReaders,
    /// A merge leaves out an input that it can't open, and drops it all the same.
    InputSkipped,
    /// Lookups hash the last bytes of a key as signed, builders as unsigned.
    FilterSignExtends,
    /// S1: every seventh commit takes two sequences.
    SequencesSkipped,
    /// S3: an open that found commits in a log claims one more.
    CommitsInvented,
    /// S9: replaced files are neither removed nor remembered.
    FilesForgotten,
    /// S11: a flush leaves out the last key of its keyspace.
    FlushCutShort,
    /// S12: no filter is freed for a new one.
    FiltersKept,
    /// S13: a cursor's memory is not given back.
    CursorsLeak,
    /// S15: a flush gives memory back twice.
    MemoryReturnedTwice,
    /// S17: every third seal fails without a reason.
    ErrorsInvented,
    /// S18: a segment's checksum is not looked at.
    SegmentsBelieved,
    /// S19: a merge of one segment with itself is always due.
    MergesForEver,
    /// S20: a lookup reads a segment once for each of its keys.
    ReadsPerKey,
    /// S21: a byte of each log hangs on how many were ever made in this process.
    ProcessesCounted,
}
