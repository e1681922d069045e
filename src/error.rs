//! Errors: few kinds that callers treat differently, each with operation, file, offset and remedy.

use std::fmt;
use std::time::Duration;

use crate::env::{FileName, IoError, IoErrorKind};
use crate::sync::Arc;

/// The result of an engine call.
pub type Result<T> = std::result::Result<T, Error>;

/// Who holds memory that a refused write needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PinInfo {
    /// The snapshot's or iterator's creator label, as given or `snapshot` / `iterator`.
    pub creator: String,
    /// How long it has been held.
    pub age: Duration,
    /// The sequence it reads at.
    pub sequence: u64,
    /// Bytes of the write region that it keeps.
    pub bytes: u64,
}

/// What kind of failure it is: what a caller does next depends on nothing else.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The system refused a read, write or other call. Reads may be tried again.
    Io,
    /// The disk or quota is full. Nothing was changed; the store resumes when room returns.
    NoSpace,
    /// No file descriptor could be had, even after closing idle ones.
    TooManyOpenFiles,
    /// Stored bytes are not what was written.
    Corruption,
    /// A file that the manifest names is not there.
    MissingFile,
    /// Of a format version that this build does not read: a newer one, or 0, which none ever had.
    UnsupportedVersion {
        /// What the file says.
        found: u32,
        /// The newest this build reads; the oldest is 1.
        supported: u32,
    },
    /// Another process, or another handle of this one, has the store open.
    Locked,
    /// The directory holds no store.
    NotAStore,
    /// A name, option, key, value or call that can't be accepted as it is.
    InvalidArgument,
    /// An option that is fixed at creation was asked for with another value than what exists has.
    IncompatibleOptions {
        /// The option.
        name: &'static str,
        /// What exists has this.
        stored: String,
        /// The options say this.
        asked: String,
    },
    /// A `WriteOnce` key exists with another value. Nothing of the batch was applied.
    Conflict,
    /// Memory is short now; nothing was changed. Try again, or let `write` wait.
    Busy {
        /// Bytes of the write region that the batch needs.
        needed: u64,
        /// Bytes that it could have now: none where memory is not what is missing, but a log, its turn, or
        /// a place beside the generations that readers keep.
        free: u64,
        /// The snapshot or iterator that stands in the way, if one does.
        pinned_by: Option<PinInfo>,
    },
    /// It can never fit.
    TooLarge {
        /// What it takes.
        needed: u64,
        /// What there is.
        limit: u64,
    },
    /// An earlier log or manifest write failed; this handle takes no writes any more.
    Poisoned,
    /// The store, or what this handle was made from, is closed.
    Closed,
    /// A closure of the caller failed or panicked; nothing of the batch was applied.
    Refused,
    /// Not possible in this mode: a write to a read-only store, an ability the backend lacks.
    Unsupported,
}

/// An error: its kind, where it happened, and what to do. Cheap to clone.
#[derive(Clone, thiserror::Error)]
#[error("{inner}")]
pub struct Error {
    inner: Arc<Inner>,
}

#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    operation: &'static str,
    file: Option<FileName>,
    offset: Option<u64>,
    detail: String,
    cause: Option<IoError>,
}

impl Error {
    /// An error of `kind` met during `operation`, with a sentence of detail.
    pub fn new(kind: ErrorKind, operation: &'static str, detail: impl Into<String>) -> Self {
        let detail = detail.into();
        Self {
            inner: Arc::new(Inner {
                kind,
                operation,
                file: None,
                offset: None,
                detail,
                cause: None,
            }),
        }
    }

    /// An error of a backend call on `file`.
    pub fn io(operation: &'static str, file: FileName, cause: IoError) -> Self {
        let kind = match cause.kind {
            IoErrorKind::NoSpace => ErrorKind::NoSpace,
            IoErrorKind::TooManyOpenFiles => ErrorKind::TooManyOpenFiles,
            IoErrorKind::NotFound => ErrorKind::MissingFile,
            IoErrorKind::WouldBlock => ErrorKind::Locked,
            IoErrorKind::UnexpectedEof => ErrorKind::Corruption,
            IoErrorKind::Unsupported => ErrorKind::Unsupported,
            _ => ErrorKind::Io,
        };
        Self::new(kind, operation, String::new())
            .with_file(file)
            .with_cause(cause)
    }

    /// An error of a backend call that concerns the directory itself.
    pub fn io_dir(operation: &'static str, cause: IoError) -> Self {
        let mut error = Self::io(operation, FileName::MANIFEST, cause);
        error.edit().file = None;
        error
    }

    /// Damage in `file` at `offset`.
    pub fn corruption(
        operation: &'static str,
        file: FileName,
        offset: u64,
        detail: impl Into<String>,
    ) -> Self {
        Self::new(ErrorKind::Corruption, operation, detail)
            .with_file(file)
            .with_offset(offset)
    }

    /// A value the caller gave that can't be accepted.
    pub fn invalid(operation: &'static str, detail: impl Into<String>) -> Self {
        Self::new(ErrorKind::InvalidArgument, operation, detail)
    }

    /// The same with the file.
    #[must_use]
    pub fn with_file(mut self, file: FileName) -> Self {
        self.edit().file = Some(file);
        self
    }

    /// The same with the offset in the file, in bytes.
    #[must_use]
    pub fn with_offset(mut self, offset: u64) -> Self {
        self.edit().offset = Some(offset);
        self
    }

    /// The same with the backend's error.
    #[must_use]
    pub fn with_cause(mut self, cause: IoError) -> Self {
        self.edit().cause = Some(cause);
        self
    }

    /// This error as what a poisoned store answers from now on.
    #[must_use]
    pub fn poison(&self) -> Self {
        let mut error = self.clone();
        let inner = error.edit();
        inner.kind = ErrorKind::Poisoned;
        error
    }

    /// What kind it is.
    pub fn kind(&self) -> &ErrorKind {
        &self.inner.kind
    }

    /// What the engine was doing.
    pub fn operation(&self) -> &'static str {
        self.inner.operation
    }

    /// The file it concerns.
    pub fn file(&self) -> Option<FileName> {
        self.inner.file
    }

    /// The offset in that file, in bytes.
    pub fn offset(&self) -> Option<u64> {
        self.inner.offset
    }

    /// The sentence of detail; may be empty.
    pub fn detail(&self) -> &str {
        &self.inner.detail
    }

    /// The backend's error behind it.
    pub fn cause(&self) -> Option<IoError> {
        self.inner.cause
    }

    /// What to do about it.
    pub fn remedy(&self) -> &'static str {
        self.inner.remedy()
    }

    fn edit(&mut self) -> &mut Inner {
        Arc::make_mut(&mut self.inner)
    }
}

impl Inner {
    fn remedy(&self) -> &'static str {
        match &self.kind {
            ErrorKind::Io => match self.cause {
                Some(cause) if cause.kind == IoErrorKind::PermissionDenied => {
                    "check who may read and write the directory and its files"
                }
                // ENOTDIR, EISDIR, ELOOP.
                Some(cause) if matches!(cause.code, 20 | 21 | 40) => {
                    "check the path and what lies there"
                }
                _ => "check the device and the system's log, then try again",
            },
            ErrorKind::NoSpace => "free disk space; the store goes on by itself",
            ErrorKind::TooManyOpenFiles => "raise the descriptor limit or lower descriptors_max",
            ErrorKind::Corruption => {
                "restore the file from a copy; `sealstone verify` lists all damage"
            }
            ErrorKind::MissingFile => "put the file back from a copy; the store was not changed",
            ErrorKind::UnsupportedVersion { found: 0, .. } => {
                "no release wrote this version: restore the file from a copy"
            }
            ErrorKind::UnsupportedVersion { .. } => "open it with a newer release",
            ErrorKind::Locked => "close the other process or handle that has the store open",
            ErrorKind::NotAStore => "check the path, or create a store there",
            ErrorKind::InvalidArgument => "correct the argument",
            ErrorKind::IncompatibleOptions { .. } => {
                "leave it out or ask for the stored value; another one needs a new store or keyspace"
            }
            ErrorKind::Conflict => "delete the key first, or use a Mutable keyspace",
            ErrorKind::Busy {
                pinned_by: Some(_), ..
            } => "drop that snapshot or iterator, or raise memory_bytes",
            ErrorKind::Busy { .. } => "try again once the flush has caught up",
            ErrorKind::TooLarge { .. } => "split it, or raise the limit named here",
            ErrorKind::Poisoned => "call reopen(); acknowledged commits are safe",
            ErrorKind::Closed => "open the store again and take new handles",
            ErrorKind::Refused => "correct the closure",
            ErrorKind::Unsupported => "use a mode or backend that has this ability",
        }
    }
}

impl fmt::Display for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            ErrorKind::Io => f.write_str("input/output failed")?,
            ErrorKind::NoSpace => f.write_str("no space on the disk")?,
            ErrorKind::TooManyOpenFiles => f.write_str("too many open files")?,
            ErrorKind::Corruption => f.write_str("corruption")?,
            ErrorKind::MissingFile => f.write_str("missing file")?,
            ErrorKind::UnsupportedVersion {
                found: 0,
                supported,
            } => write!(
                f,
                "format version 0 is none of 1 to {supported}, those known here"
            )?,
            ErrorKind::UnsupportedVersion { found, supported } => {
                write!(
                    f,
                    "format version {found} is newer than {supported}, the newest known here"
                )?;
            }
            ErrorKind::Locked => f.write_str("the store is locked")?,
            ErrorKind::NotAStore => f.write_str("not a store")?,
            ErrorKind::InvalidArgument => f.write_str("invalid argument")?,
            ErrorKind::IncompatibleOptions {
                name,
                stored,
                asked,
            } => write!(
                f,
                "incompatible options: {name} is fixed at creation as {stored}, asked for was {asked}"
            )?,
            ErrorKind::Conflict => f.write_str("conflict: the key exists with another value")?,
            ErrorKind::Busy {
                needed,
                free,
                pinned_by,
            } => {
                write!(
                    f,
                    "busy: needs {needed} bytes of the write region, {free} free"
                )?;
                if let Some(pin) = pinned_by {
                    write!(
                        f,
                        "; {} at sequence {}, {:.1} s old, keeps {} bytes",
                        pin.creator,
                        pin.sequence,
                        pin.age.as_secs_f64(),
                        pin.bytes
                    )?;
                }
            }
            ErrorKind::TooLarge { needed, limit } => {
                write!(f, "too large: {needed}, the limit is {limit}")?;
            }
            ErrorKind::Poisoned => f.write_str("poisoned by an earlier failure")?,
            ErrorKind::Closed => f.write_str("closed")?,
            ErrorKind::Refused => f.write_str("a closure of the batch failed")?,
            ErrorKind::Unsupported => f.write_str("not supported")?,
        }
        write!(f, " ({}", self.operation)?;
        if let Some(file) = self.file {
            write!(f, ", {file}")?;
        }
        if let Some(offset) = self.offset {
            write!(f, " at byte {offset}")?;
        }
        f.write_str(")")?;
        if !self.detail.is_empty() {
            write!(f, ": {}", self.detail)?;
        }
        if let Some(cause) = &self.cause {
            write!(f, ": {cause}")?;
        }
        write!(f, "; {}", self.remedy())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.inner.kind, self.inner)
    }
}
