//! Verification as callers see it: the report, the progress, and the calls.

use crate::engine::verify::verify_closed;
use crate::env::{Env, FileName};
use crate::error::Result;
use crate::store::Store;

/// One place where stored bytes are not what was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The file.
    pub file: FileName,
    /// Where in it, in bytes; 0 if the file as a whole is meant.
    pub offset: u64,
    /// What is wrong there.
    pub what: String,
}

/// What a verification found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VerifyReport {
    /// Files read: the manifest, the logs, the segments.
    pub files: u64,
    /// Whole records in segments and logs, each version of a key and each deletion counted.
    pub records: u64,
    /// Bytes of the files as far as they are in use.
    pub bytes: u64,
    /// The damage, file by file.
    pub damaged: Vec<Damage>,
    /// Places of damage beyond the 10,000 that are listed, at most 1,000 of them of one file.
    pub unlisted: u64,
}

impl VerifyReport {
    /// Whether nothing is damaged.
    pub fn is_clean(&self) -> bool {
        self.damaged.is_empty()
    }
}

/// How far a verification has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VerifyProgress {
    /// Files done.
    pub files: u64,
    /// All files.
    pub files_total: u64,
    /// Bytes done.
    pub bytes: u64,
    /// Bytes of all files.
    pub bytes_total: u64,
}

impl Store {
    /// Reads everything that the store consists of and checks it: every checksum of manifest, logs and
    /// segments, records against index and index against records, filters against both. Damage is
    /// listed, and what lies behind it is checked all the same.
    ///
    /// Reads each file once, and the index of a segment once more for each stored filter; memory does
    /// not grow with the store. Works on a read-only store; on one that takes writes it checks what
    /// was visible when it began. `progress` is called now and then.
    ///
    /// Errors: `Closed`; `TooManyOpenFiles`, `Io` where the system refuses access. A sector that can't
    /// be read is damage, not an error.
    ///
    /// ```
    /// # use sealstone::{Durability, KeyspaceOptions, Options, Store, env::Env};
    /// # let store = Store::open_with(Env::in_memory(), Options::new())?;
    /// # let names = store.keyspace("names", KeyspaceOptions::mutable())?;
    /// names.put("a", "1", Durability::Synced)?;
    /// let report = store.verify(&mut |_progress| ())?;
    /// assert!(report.is_clean() && report.records == 1);
    /// # Ok::<(), sealstone::Error>(())
    /// ```
    pub fn verify(&self, progress: &mut dyn FnMut(VerifyProgress)) -> Result<VerifyReport> {
        self.inner.engine.verify(progress)
    }

    /// Checks a store that is not open: also one that damage keeps from opening, of which
    /// [`Store::open`] names the first place only. Takes the lock as a reader does; changes nothing.
    ///
    /// Errors: `NotAStore`, `Locked`, `UnsupportedVersion` of the manifest, and those of
    /// [`verify`](Self::verify).
    pub fn verify_closed(
        env: &Env,
        progress: &mut dyn FnMut(VerifyProgress),
    ) -> Result<VerifyReport> {
        verify_closed(env, progress)
    }
}
