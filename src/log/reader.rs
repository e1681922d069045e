//! Reads a log frame by frame, and says how it ends.
//!
//! Invariants:
//! * a frame is handed out only if header, payload, place and sequence are as written;
//! * a length is believed only once its header's checksum held and the file is long enough for it;
//! * memory is one window and the payload at hand, which the caller can bound;
//! * what comes after the first damaged place is never handed out: it is cut and reported, or, if a
//!   mark says that the place had been durable, the log is refused.
//!
//! A valid header with a wrong sequence is never a tear: at one place of one log a frame is written
//! once, and a new log takes frames only after the one before it is durable to its seal. So that is
//! `Corruption` at once.

use std::fmt;

use crate::env::window::{WINDOW_BYTES, Window};
use crate::env::{File, FileName, OpenMode, Vfs, io};
use crate::error::{Error, ErrorKind, Result};
use crate::types::Sequence;

use super::frame::{self, FRAME_ALIGN, FRAME_HEADER_BYTES, FrameHeader, FrameKind, Place, Seal};
use super::header::{LOG_HEADER_BYTES, LOG_VERSION, LogIdentity, unsupported};
use super::scan;

const OPERATION: &str = "read log";

/// What the manifest and the logs before it say about a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogExpectation {
    /// The sequence of its first commit: one more than the last one before this log.
    pub first_sequence: Sequence,
    /// The manifest's mark for this log: commits up to here were durable in it. 0 if none.
    pub durable_through: Sequence,
    /// Payloads longer than this are verified, then refused with `TooLarge` unread.
    pub payload_bytes_max: u64,
}

/// A verified commit frame; its payload is in the caller's buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Its header.
    pub header: FrameHeader,
    /// Where the header lies in the file; [`read_payload`] takes it.
    pub offset: u64,
}

/// What is wrong with the first place that holds no valid frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// Zeros, but not to the end of the file.
    Hole,
    /// No header of this log and place.
    Header,
    /// A valid header, but the file ends inside the payload.
    Length,
    /// A valid header with another payload than it was written for.
    Payload,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Hole => "a hole of zeros",
            Self::Header => "a damaged frame header",
            Self::Length => "a frame beyond the end of the file",
            Self::Payload => "a damaged payload",
        })
    }
}

/// How a log ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tail {
    /// Only zeros follow the last frame.
    Clean {
        /// Where the next frame would stand.
        offset: u64,
    },
    /// The log was finished, and holds all that its seal counts.
    Sealed {
        /// The end of the seal frame.
        offset: u64,
        /// The counts.
        seal: Seal,
    },
    /// What follows the last valid frame was never durable as far as any mark tells; it does not
    /// count as written.
    Torn {
        /// Where the cut lies.
        offset: u64,
        /// What was found there.
        what: Damage,
        /// From the cut to the last byte that is not zero.
        bytes_cut: u64,
    },
}

/// See the module.
#[derive(Debug)]
pub struct LogReader {
    window: Window,
    identity: LogIdentity,
    expectation: LogExpectation,
    offset: u64,
    counted: Seal,
    highest_mark: Sequence,
    tail: Option<Tail>,
}

impl LogReader {
    /// Opens the log that the manifest calls `identity`. A bad header, or another log's, is
    /// `Corruption`: a log is synced before it is named.
    pub fn open(
        vfs: &dyn Vfs,
        identity: &LogIdentity,
        expectation: LogExpectation,
    ) -> Result<Self> {
        Self::with_window(vfs, identity, expectation, WINDOW_BYTES)
    }

    /// The same with a window of another size, for simulations.
    pub fn with_window(
        vfs: &dyn Vfs,
        identity: &LogIdentity,
        expectation: LogExpectation,
        window_bytes: usize,
    ) -> Result<Self> {
        let name = identity.name();
        let fail = |cause| Error::io("open log", name, cause);
        let file = io::uninterrupted(|| vfs.open(name, OpenMode::Read)).map_err(fail)?;
        let mut window = Window::new(file, window_bytes).map_err(fail)?;
        let head = window.at(0, LOG_HEADER_BYTES as usize).map_err(fail)?;
        let found = LogIdentity::decode(head, name)?;
        if found != *identity {
            let of = |log: &LogIdentity| {
                let LogIdentity {
                    store_id,
                    number,
                    incarnation,
                } = log;
                format!("log {number} of open {incarnation} of store {store_id:032x}")
            };
            let (named, is) = (of(identity), of(&found));
            let detail = format!("the manifest names {named}, the file is {is}");
            return Err(Error::corruption("open log", name, 16, detail));
        }
        Ok(Self {
            window,
            identity: found,
            expectation,
            offset: LOG_HEADER_BYTES,
            counted: Seal::default(),
            highest_mark: 0,
            tail: None,
        })
    }

    /// The next commit, its payload in `payload`; `None` at the end, whose nature [`tail`](Self::tail)
    /// tells. After an I/O error the same frame can be asked for again.
    pub fn next(&mut self, payload: &mut Vec<u8>) -> Result<Option<Frame>> {
        payload.clear();
        if self.tail.is_some() {
            return Ok(None);
        }
        let offset = self.offset;
        let slot = self.window.at(offset, FRAME_HEADER_BYTES);
        let slot = slot.map_err(|cause| Error::io(OPERATION, self.identity.name(), cause))?;
        let header = match frame::decode(slot, &self.identity, offset) {
            Place::Frame(header) => header,
            Place::Zeros => return self.conclude(Damage::Hole, offset, offset),
            Place::Damaged => return self.conclude(Damage::Header, offset, offset),
            Place::Unknown => {
                let error = unsupported(LOG_VERSION + 1, "a frame of an unknown kind or form");
                return Err(error.with_file(self.identity.name()).with_offset(offset));
            }
        };
        self.check(&header)?;
        let end = offset + header.frame_len();
        if end > self.window.file_len() {
            return self.conclude(Damage::Length, end, self.window.file_len());
        }
        if !self.read(&header, payload)? {
            payload.clear();
            return self.conclude(Damage::Payload, end, end);
        }
        self.accept(header, payload)
    }

    /// How the log ends; `None` before [`next`](Self::next) returned `None`.
    pub fn tail(&self) -> Option<&Tail> {
        self.tail.as_ref()
    }

    /// Counts of the commits handed out so far.
    pub fn counted(&self) -> &Seal {
        &self.counted
    }

    /// The highest mark of the frames read so far. It may concern an earlier log: one that holds less
    /// is damaged.
    pub fn highest_mark(&self) -> Sequence {
        self.highest_mark
    }

    /// The sequence that the next commit must have.
    pub fn next_sequence(&self) -> Sequence {
        match self.counted.last {
            0 => self.expectation.first_sequence,
            last => last + 1,
        }
    }

    /// The file, for [`read_payload`].
    pub fn file(&self) -> &crate::sync::Arc<dyn File> {
        self.window.file()
    }

    /// What holds of every header that a writer makes.
    fn check(&self, header: &FrameHeader) -> Result<()> {
        let expected = match header.kind {
            FrameKind::Commit => self.next_sequence(),
            FrameKind::Seal => self.counted.last,
        };
        if header.sequence != expected {
            return Err(self.damage(format!(
                "a frame with sequence {} stands where {expected} belongs",
                header.sequence
            )));
        }
        if header.durable_through >= self.next_sequence() {
            return Err(self.damage("a frame that claims to be durable already"));
        }
        if !header.payload_len.is_multiple_of(FRAME_ALIGN as u32) {
            return Err(self.damage("a payload that is no multiple of 8 bytes"));
        }
        Ok(())
    }

    /// Reads and verifies the payload, which the file is long enough for. `false` if it is damaged.
    fn read(&mut self, header: &FrameHeader, payload: &mut Vec<u8>) -> Result<bool> {
        let name = self.identity.name();
        let start = self.offset + FRAME_HEADER_BYTES as u64;
        let limit = self.expectation.payload_bytes_max;
        let needed = u64::from(header.payload_len);
        if needed > limit {
            let checksum = self
                .window
                .checksum(0, start, needed)
                .map_err(|cause| Error::io(OPERATION, name, cause))?;
            if checksum != header.payload_crc {
                return Ok(false);
            }
            let kind = ErrorKind::TooLarge { needed, limit };
            let detail = "one commit needs more memory than there is to recover it";
            return Err(Error::new(kind, OPERATION, detail)
                .with_file(name)
                .with_offset(self.offset));
        }
        // Exactly, so that the buffer stays below the file's length too.
        payload.reserve_exact(header.payload_len as usize);
        payload.resize(header.payload_len as usize, 0);
        self.window
            .read_exact(payload, start)
            .map_err(|cause| Error::io(OPERATION, name, cause))?;
        Ok(crc32c::crc32c(payload) == header.payload_crc)
    }

    /// Takes a verified frame as the log's next.
    fn accept(&mut self, header: FrameHeader, payload: &mut Vec<u8>) -> Result<Option<Frame>> {
        let offset = self.offset;
        match header.kind {
            FrameKind::Commit => {
                self.counted = self.counted.counting(&header);
                self.highest_mark = self.highest_mark.max(header.durable_through);
                self.offset = offset + header.frame_len();
                Ok(Some(Frame { header, offset }))
            }
            FrameKind::Seal => {
                if !self.counted.is(payload) {
                    return Err(self.damage("the seal counts other frames than the log holds"));
                }
                if let Some(error) = self.lost_to_manifest("after the seal") {
                    return Err(error);
                }
                payload.clear();
                self.highest_mark = self.highest_mark.max(header.durable_through);
                self.offset = offset + header.frame_len();
                self.tail = Some(Tail::Sealed {
                    offset: self.offset,
                    seal: self.counted,
                });
                Ok(None)
            }
        }
    }

    /// Decides what the first place without a valid frame means: the end, a tear, or damage.
    fn conclude(&mut self, what: Damage, scan_from: u64, used_end: u64) -> Result<Option<Frame>> {
        let later = scan::scan(&mut self.window, &self.identity, scan_from)
            .map_err(|cause| Error::io(OPERATION, self.identity.name(), cause))?;
        let expected = self.next_sequence();
        if later.headers > 0 && later.mark >= expected {
            return Err(self.damage(format!(
                "{what} where commit {expected} belongs; the frame at byte {} says that commits up \
                 to {} were durable",
                later.mark_offset, later.mark
            )));
        }
        if let Some(error) = self.lost_to_manifest(&what.to_string()) {
            return Err(error);
        }
        let offset = self.offset;
        let used_end = used_end.max(later.used_end);
        self.tail = Some(if what == Damage::Hole && used_end <= offset {
            Tail::Clean { offset }
        } else {
            Tail::Torn {
                offset,
                what,
                bytes_cut: used_end - offset,
            }
        });
        Ok(None)
    }

    /// The error if the manifest knows commits of this log as durable that are not here.
    fn lost_to_manifest(&self, found: &str) -> Option<Error> {
        let expected = self.next_sequence();
        let durable = self.expectation.durable_through;
        (durable >= expected).then(|| {
            self.damage(format!(
                "{found} where commit {expected} belongs; the manifest says that commits up to \
                 {durable} were durable"
            ))
        })
    }

    fn damage(&self, detail: impl Into<String>) -> Error {
        Error::corruption(OPERATION, self.identity.name(), self.offset, detail)
    }
}

/// Reads the payload of the commit frame at `offset` again, where a [`LogReader`] found it, and
/// verifies it again. Returns its header.
pub fn read_payload(
    file: &dyn File,
    identity: &LogIdentity,
    offset: u64,
    payload: &mut Vec<u8>,
) -> Result<FrameHeader> {
    const AGAIN: &str = "read log frame";
    let name: FileName = identity.name();
    let fail = |cause| Error::io(AGAIN, name, cause).with_offset(offset);
    let damaged = |what: &str| Error::corruption(AGAIN, name, offset, what);
    payload.clear();
    let file_len = file.len().map_err(fail)?;
    let mut slot = [0; FRAME_HEADER_BYTES];
    io::read_exact_at(file, &mut slot, offset).map_err(fail)?;
    let header = match frame::decode(&slot, identity, offset) {
        Place::Frame(header) if header.kind == FrameKind::Commit => header,
        _ => return Err(damaged("no commit frame is here any more")),
    };
    if header.frame_len() > file_len.saturating_sub(offset) {
        return Err(damaged("the file ends inside the frame"));
    }
    payload.reserve_exact(header.payload_len as usize);
    payload.resize(header.payload_len as usize, 0);
    io::read_exact_at(file, payload, offset + FRAME_HEADER_BYTES as u64).map_err(fail)?;
    if crc32c::crc32c(payload) != header.payload_crc {
        payload.clear();
        return Err(damaged("the payload's checksum does not match"));
    }
    Ok(header)
}
