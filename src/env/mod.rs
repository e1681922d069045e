//! The only door to the world: file system, clock, entropy, memory pressure, background threads.
//!
//! The traits are object safe and blocking, take `&self`, and are positional: a backend keeps no
//! cursor. [`real`] is the operating system, [`memory`] a plain in-memory file system for users' tests,
//! [`counting`] a wrapper that counts what the engine asked for. The simulator brings its own, and so
//! may a user: [`conformance`] checks what every backend has to do.
//!
//! Contract of every backend:
//! * transfers may be short or interrupted; [`io`] holds the one pair of loops that hides it;
//! * names are flat and typed ([`FileName`]); no path reaches the engine;
//! * data is durable only after `sync_data` of its file, a name only after `sync_dir`.

pub mod conformance;
pub mod counting;
pub mod io;
pub mod manual;
pub mod memory;
pub mod pressure;
pub mod real;
pub mod window;

use std::fmt;
use std::time::Duration;

use crate::sync::{Arc, Signal};

/// What went wrong in a backend, as far as the engine treats it differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum IoErrorKind {
    /// No file of that name.
    NotFound,
    /// `create_new` met an existing name.
    AlreadyExists,
    /// The disk or a quota is full (ENOSPC, EDQUOT).
    NoSpace,
    /// The process or system has no descriptor left (EMFILE, ENFILE).
    TooManyOpenFiles,
    /// Interrupted before anything was done, or after a part (EINTR): call again.
    Interrupted,
    /// No permission, or a read-only file system (EACCES, EPERM, EROFS).
    PermissionDenied,
    /// Another process holds the lock.
    WouldBlock,
    /// The file ended before the wanted bytes: made by the loops and by [`File::map`]; a read says
    /// how much it got instead.
    UnexpectedEof,
    /// A write stored no byte: made by the loops, never by a backend.
    WriteZero,
    /// The backend can't do this.
    Unsupported,
    /// The simulated process is dead; every later call says so too.
    Crashed,
    /// Anything else (EIO among it).
    Other,
}

/// An error of a backend call: its kind and the system's number (0 where there is none).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoError {
    /// What the engine distinguishes.
    pub kind: IoErrorKind,
    /// The operating system's error number, 0 if none.
    pub code: i32,
}

impl IoError {
    /// An error of `kind` without a system number.
    pub const fn new(kind: IoErrorKind) -> Self {
        Self { kind, code: 0 }
    }
}

impl fmt::Display for IoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self.kind {
            IoErrorKind::NotFound => "no such file",
            IoErrorKind::AlreadyExists => "the file exists already",
            IoErrorKind::NoSpace => "no space left on the device",
            IoErrorKind::TooManyOpenFiles => "too many open files",
            IoErrorKind::Interrupted => "interrupted",
            IoErrorKind::PermissionDenied => "permission denied",
            IoErrorKind::WouldBlock => "held by another process",
            IoErrorKind::UnexpectedEof => "the file ends too early",
            IoErrorKind::WriteZero => "the write stored nothing",
            IoErrorKind::Unsupported => "not supported here",
            IoErrorKind::Crashed => "the simulated process is dead",
            IoErrorKind::Other => "input/output error",
        };
        if self.code == 0 {
            f.write_str(text)
        } else {
            write!(f, "{text} (os error {})", self.code)
        }
    }
}

impl std::error::Error for IoError {}

/// The result of a backend call.
pub type IoResult<T> = Result<T, IoError>;

/// The kinds of file in a store's directory. The order is the order of listings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FileKind {
    /// The lock of the writing process; empty.
    Lock,
    /// The root of the store: what is part of it.
    Manifest,
    /// A write-ahead log.
    Log,
    /// A sealed segment.
    Segment,
    /// A merged index run (made by folds).
    Run,
}

/// The typed name of a file: the engine knows no paths.
///
/// On disk: `LOCK`, `MANIFEST`, and `0000000000000001.log` / `.seg` / `.run` (number as 16 lower-case
/// hex digits); a temporary has `.tmp` behind that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileName {
    /// What it holds.
    pub kind: FileKind,
    /// Its number, never reused; 0 for `Lock` and `Manifest`.
    pub number: u64,
    /// Whether it is a temporary, which any open may remove.
    pub temporary: bool,
}

impl FileName {
    /// The one manifest.
    pub const MANIFEST: Self = Self {
        kind: FileKind::Manifest,
        number: 0,
        temporary: false,
    };
    /// The manifest while it is being written anew.
    pub const MANIFEST_TEMPORARY: Self = Self {
        kind: FileKind::Manifest,
        number: 0,
        temporary: true,
    };
    /// The lock file.
    pub const LOCK: Self = Self {
        kind: FileKind::Lock,
        number: 0,
        temporary: false,
    };

    /// The log with `number`.
    pub const fn log(number: u64) -> Self {
        Self {
            kind: FileKind::Log,
            number,
            temporary: false,
        }
    }

    /// The segment with `number`.
    pub const fn segment(number: u64) -> Self {
        Self {
            kind: FileKind::Segment,
            number,
            temporary: false,
        }
    }

    /// The index of a folded run, or a part of it, with `number`.
    pub const fn run(number: u64) -> Self {
        Self {
            kind: FileKind::Run,
            number,
            temporary: false,
        }
    }

    /// Reads a name as it stands on disk; `None` for a foreign one.
    pub fn parse(text: &str) -> Option<Self> {
        let (stem, temporary) = match text.strip_suffix(".tmp") {
            Some(stem) => (stem, true),
            None => (text, false),
        };
        let (kind, number) = match stem {
            "LOCK" => (FileKind::Lock, 0),
            "MANIFEST" => (FileKind::Manifest, 0),
            _ => {
                let (digits, extension) = stem.split_once('.')?;
                let kind = match extension {
                    "log" => FileKind::Log,
                    "seg" => FileKind::Segment,
                    "run" => FileKind::Run,
                    _ => return None,
                };
                let plain = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
                if digits.len() != 16 || !digits.bytes().all(plain) {
                    return None;
                }
                (kind, u64::from_str_radix(digits, 16).ok()?)
            }
        };
        Some(Self {
            kind,
            number,
            temporary,
        })
    }
}

impl fmt::Display for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            FileKind::Lock => f.write_str("LOCK")?,
            FileKind::Manifest => f.write_str("MANIFEST")?,
            FileKind::Log => write!(f, "{:016x}.log", self.number)?,
            FileKind::Segment => write!(f, "{:016x}.seg", self.number)?,
            FileKind::Run => write!(f, "{:016x}.run", self.number)?,
        }
        if self.temporary {
            f.write_str(".tmp")
        } else {
            Ok(())
        }
    }
}

/// What a directory holds: our names in order, and how many foreign ones were passed over.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// Our files, sorted, each once.
    pub names: Vec<FileName>,
    /// Names that are not ours; they are never touched.
    pub foreign: u64,
}

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// For reading.
    Read,
    /// For reading and writing.
    ReadWrite,
}

/// How a store is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockMode {
    /// One writer.
    Exclusive,
    /// Any number of readers, no writer.
    Shared,
}

/// How a file is going to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// No expectation.
    Normal,
    /// At random: no read-ahead.
    Random,
    /// From front to back.
    Sequential,
    /// Soon: the system may begin to read it, and does not wait for it.
    WillNeed,
    /// Not soon again.
    DontNeed,
}

/// One wanted piece of [`File::read_many`].
#[derive(Debug)]
pub struct ReadRequest<'a> {
    /// Where it starts.
    pub offset: u64,
    /// Where it goes; may be filled in part.
    pub buffer: &'a mut [u8],
    /// How many bytes came, or why none did.
    pub result: IoResult<usize>,
}

/// An open file. Closed when dropped; closing is never relied on to make anything durable.
pub trait File: Send + Sync + fmt::Debug {
    /// Reads at `offset`; may be short (0 = end of file) or `Interrupted`. Engine code calls
    /// [`io::read_exact_at`].
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> IoResult<usize>;
    /// Writes at `offset`, growing the file; may be short or `Interrupted`. Engine code calls
    /// [`io::write_all_at`].
    fn write_at(&self, buffer: &[u8], offset: u64) -> IoResult<usize>;
    /// Several reads; each request may end short. The default is a loop.
    fn read_many(&self, requests: &mut [ReadRequest<'_>]) {
        for request in requests {
            request.result = self.read_at(request.buffer, request.offset);
        }
    }
    /// A hint; failing is of no consequence.
    fn advise(&self, _advice: Advice, _offset: u64, _length: u64) {}
    /// Makes data, and the length needed to read it, durable. One barrier.
    fn sync_data(&self) -> IoResult<()>;
    /// Sets the length; new bytes are zero.
    fn set_len(&self, length: u64) -> IoResult<()>;
    /// Makes sure that writes below `length` will not fail for want of space; grows the file to
    /// `length` with zeros. `NoSpace` leaves the content as it was.
    fn allocate(&self, length: u64) -> IoResult<()>;
    /// The length in bytes.
    fn len(&self) -> IoResult<u64>;
    /// Maps the first `length` bytes of a sealed file for reading; `UnexpectedEof` if it has fewer.
    fn map(&self, _length: u64) -> IoResult<Arc<dyn Map>> {
        Err(IoError::new(IoErrorKind::Unsupported))
    }
    /// Whether the file has no byte.
    fn is_empty(&self) -> IoResult<bool> {
        Ok(self.len()? == 0)
    }
}

/// A read-only view of a sealed file.
pub trait Map: Send + Sync + fmt::Debug {
    /// The mapped bytes.
    fn bytes(&self) -> &[u8];
    /// An access to `length` bytes at `offset`, which a wrapper may count; `None` if the mapping ends
    /// before them.
    fn access(&self, offset: u64, length: usize) -> Option<&[u8]> {
        part(self.bytes(), offset, length)
    }
}

/// So many bytes of a mapping from `offset` on, if it has them.
pub(crate) fn part(bytes: &[u8], offset: u64, length: usize) -> Option<&[u8]> {
    let start = usize::try_from(offset).ok()?;
    bytes.get(start..)?.get(..length)
}

/// Holds a store's lock until dropped.
pub trait LockGuard: Send + Sync + fmt::Debug {}

/// A flat directory.
pub trait Vfs: Send + Sync + fmt::Debug {
    /// Creates the directory if it is missing and makes its own name durable.
    fn create_root(&self) -> IoResult<()>;
    /// Opens an existing file.
    fn open(&self, name: FileName, mode: OpenMode) -> IoResult<Arc<dyn File>>;
    /// Creates a file that must not exist, for reading and writing.
    fn create_new(&self, name: FileName) -> IoResult<Arc<dyn File>>;
    /// Renames, replacing `to` atomically. Durable after `sync_dir`.
    fn rename(&self, from: FileName, to: FileName) -> IoResult<()>;
    /// Removes a name. Durable after `sync_dir`.
    fn unlink(&self, name: FileName) -> IoResult<()>;
    /// Our names, sorted. A missing directory is `NotFound`.
    fn list(&self) -> IoResult<Listing>;
    /// Makes all names so far durable. One barrier.
    fn sync_dir(&self) -> IoResult<()>;
    /// Takes the store's lock (creating the lock file for `Exclusive`); `WouldBlock` if it is held
    /// in a conflicting mode, by this process or another.
    fn try_lock(&self, mode: LockMode) -> IoResult<Box<dyn LockGuard>>;
    /// Bytes that can still be written.
    fn free_space(&self) -> IoResult<u64>;
    /// How many descriptors the process may hold (after raising the soft limit to the hard one).
    fn descriptor_limit(&self) -> u64;
    /// How many mappings the process may hold. 0, the default: sealed files are read by
    /// [`File::read_at`] only, whatever the options say.
    fn mapping_limit(&self) -> u64 {
        0
    }
    /// Maps the first `length` bytes of a sealed file for reading: [`File::map`], unless the backend
    /// has a reason to decide here.
    fn map(&self, file: &dyn File, length: u64) -> IoResult<Arc<dyn Map>> {
        file.map(length)
    }
    /// Makes `name` appear in `target` with the same bytes: a hard link where both are directories of
    /// one real file system, else a synced copy. `AlreadyExists` if `target` has it. The name is
    /// durable after `target.sync_dir()`.
    fn link_or_copy_to(&self, name: FileName, target: &dyn Vfs) -> IoResult<()>;
    /// Where the directory is, for people.
    fn describe(&self) -> String;
    /// For backends that recognise their own kind in `link_or_copy_to`. A wrapper answers with what
    /// it wraps.
    fn as_any(&self) -> &dyn std::any::Any;
}

/// Time.
pub trait Clock: Send + Sync + fmt::Debug {
    /// Time since some fixed point; never goes back.
    fn monotonic(&self) -> Duration;
    /// Milliseconds since 1970; may jump. For reports only.
    fn wall_ms(&self) -> u64;
    /// Returns at once if `signal`'s count differs from `seen`; otherwise when it is raised or
    /// monotonic time reaches `until`. A simulated clock advances to `until` instead.
    fn wait(&self, signal: &Signal, seen: u64, until: Option<Duration>);
}

/// Randomness, used only when a store is created.
pub trait Entropy: Send + Sync + fmt::Debug {
    /// Fills the buffer.
    fn fill(&self, buffer: &mut [u8]) -> IoResult<()>;
}

/// How short memory is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum PressureLevel {
    /// Nothing to do.
    #[default]
    Normal,
    /// Elastic memory shrinks.
    High,
    /// Only floors remain.
    Critical,
}

/// The memory pressure signal.
pub trait Pressure: Send + Sync + fmt::Debug {
    /// The level now.
    fn level(&self) -> PressureLevel;
}

/// What one call of [`Work::step`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Something; call again.
    Worked,
    /// Nothing to do now; wait for the signal, or until the given monotonic time.
    Idle(Option<Duration>),
    /// The store is closed: the thread ends.
    Stop,
}

/// Background work as the engine offers it to a driver.
pub trait Work: Send + Sync {
    /// Runs at most one bounded quantum.
    fn step(&self) -> Step;
    /// Raised whenever there may be something to do.
    fn signal(&self) -> &Signal;
    /// A call of `step` panicked; its thread is about to end. Those who wait for background work
    /// must not wait for ever, so an engine marks itself as failed here.
    fn panicked(&self) {}
}

/// Runs background work on threads. Only the real backend has one.
pub trait Driver: Send + Sync + fmt::Debug {
    /// Starts `threads` threads that step `work` until it says `Stop`.
    fn start(&self, threads: usize, work: Arc<dyn Work>) -> IoResult<Box<dyn DriverHandle>>;
}

/// The running threads of a [`Driver`].
pub trait DriverHandle: Send + Sync {
    /// Waits until every thread has ended. Called from one of them, it does not wait for itself.
    fn join(&self);
}

/// Everything a store needs from the world.
#[derive(Clone, Debug)]
pub struct Env {
    /// The directory.
    pub vfs: Arc<dyn Vfs>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Randomness.
    pub entropy: Arc<dyn Entropy>,
    /// Memory pressure.
    pub pressure: Arc<dyn Pressure>,
    /// Threads for `Background::Threads`; `None` where only `Background::Manual` works.
    pub driver: Option<Arc<dyn Driver>>,
}
