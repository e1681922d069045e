//! Appends frames to a log whose room was allocated ahead.
//!
//! Small frames of a group are gathered and leave in one write; long payload pieces are written from
//! where they are. The bytes on disk do not depend on how frames were grouped.
//!
//! Invariants:
//! * there is always room for the seal frame;
//! * a frame that does not fit the allocated room is refused as `NoSpace` before any effect;
//! * after a failed write or sync the file's state is unknown, so every later call repeats that error.

use crate::env::io::{uninterrupted, write_all_at};
use crate::env::{File, IoError, IoErrorKind, IoResult};
use crate::sync::Arc;
use crate::types::Sequence;

use super::frame::{
    FRAME_ALIGN, FRAME_HEADER_BYTES, FrameHeader, FrameKind, SEAL_FRAME_BYTES, Seal,
};
use super::header::{LOG_HEADER_BYTES, LogIdentity};

/// How much a writer gathers before it writes: what one system call moves at full speed.
pub const STAGING_BYTES: usize = 256 * 1024;

/// A commit to append: its header, and its payload in pieces.
#[derive(Clone, Copy, Debug)]
pub struct FrameToWrite<'a> {
    /// The header; length and checksum are those of the pieces together.
    pub header: FrameHeader,
    /// The payload.
    pub payload: &'a [&'a [u8]],
}

/// See the module.
#[derive(Debug)]
pub struct LogWriter {
    file: Arc<dyn File>,
    identity: LogIdentity,
    capacity: u64,
    staging_bytes: usize,
    offset: u64,
    counted: Seal,
    sealed: bool,
    failed: Option<IoError>,
    /// Bytes that went through the staging buffer.
    staged_bytes: u64,
}

impl LogWriter {
    /// Begins to write to a log made by [`create`](super::create), with the same room.
    pub fn new(file: Arc<dyn File>, identity: LogIdentity, capacity_bytes: u64) -> Self {
        Self {
            file,
            identity,
            capacity: capacity_bytes,
            staging_bytes: STAGING_BYTES,
            offset: LOG_HEADER_BYTES,
            counted: Seal::default(),
            sealed: false,
            failed: None,
            staged_bytes: 0,
        }
    }

    /// The same, gathering at most `staging_bytes`.
    #[must_use]
    pub fn with_staging_bytes(mut self, staging_bytes: usize) -> Self {
        self.staging_bytes = staging_bytes.max(FRAME_HEADER_BYTES);
        self
    }

    /// Where the next frame goes: the bytes used so far.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Bytes that were copied together so far; the rest was written from where it was.
    pub fn staged_bytes(&self) -> u64 {
        self.staged_bytes
    }

    /// Which log it is.
    pub fn identity(&self) -> &LogIdentity {
        &self.identity
    }

    /// Counts of the commits appended so far.
    pub fn counted(&self) -> &Seal {
        &self.counted
    }

    /// Bytes that frames can still take, the seal's room set aside.
    pub fn remaining(&self) -> u64 {
        let kept = if self.sealed { 0 } else { SEAL_FRAME_BYTES };
        self.capacity.saturating_sub(self.offset + kept)
    }

    /// Allocates room so that at least `frame_bytes` remain. `NoSpace` changes nothing.
    pub fn reserve(&mut self, frame_bytes: u64) -> IoResult<()> {
        self.alive()?;
        if frame_bytes <= self.remaining() {
            return Ok(());
        }
        let wanted = self
            .offset
            .saturating_add(SEAL_FRAME_BYTES)
            .saturating_add(frame_bytes);
        uninterrupted(|| self.file.allocate(wanted))?;
        self.capacity = wanted;
        Ok(())
    }

    /// Appends commits in the order of their sequences. `staging` is scratch of the caller's.
    ///
    /// Frames beyond the room are refused as `NoSpace` without effect. Any other error leaves the
    /// writer dead.
    pub fn append(&mut self, frames: &[FrameToWrite<'_>], staging: &mut Vec<u8>) -> IoResult<()> {
        let frames = frames
            .iter()
            .map(|frame| (frame.header, frame.payload.iter().copied()));
        self.append_frames(frames, staging)
    }

    /// The same with headers and payloads that come one by one, and are gone through several times.
    pub fn append_frames<'f, P>(
        &mut self,
        frames: impl Iterator<Item = (FrameHeader, P)> + Clone,
        staging: &mut Vec<u8>,
    ) -> IoResult<()>
    where
        P: Iterator<Item = &'f [u8]> + Clone,
    {
        self.alive()?;
        let lengths = frames.clone().map(|(header, _)| header.frame_len());
        let total: u64 = lengths.sum();
        if total > self.remaining() {
            return Err(IoError::new(IoErrorKind::NoSpace));
        }
        self.assert_valid(frames.clone());
        let headers = frames.clone();
        let counted = headers.fold(self.counted, |counted, (header, _)| {
            counted.counting(&header)
        });
        self.write(frames, total, staging)?;
        self.counted = counted;
        Ok(())
    }

    /// Ends the log with its seal frame; there is always room. Nothing may be appended after it.
    pub fn seal(&mut self, durable_through: Sequence, staging: &mut Vec<u8>) -> IoResult<()> {
        self.alive()?;
        debug_assert!(!self.sealed, "a log is sealed once");
        let (header, payload) = self.counted.encode(durable_through);
        let frame = (header, std::iter::once(&payload[..]));
        self.write(std::iter::once(frame), SEAL_FRAME_BYTES, staging)?;
        self.sealed = true;
        Ok(())
    }

    /// Makes what was appended durable: one barrier.
    pub fn sync(&mut self) -> IoResult<()> {
        self.alive()?;
        let result = uninterrupted(|| self.file.sync_data());
        self.failed = result.err();
        result
    }

    /// Why the writer is dead, if it is: tells a full disk met by a write, which is final, from
    /// `NoSpace` that had no effect.
    pub fn failure(&self) -> Option<IoError> {
        self.failed
    }

    fn alive(&self) -> IoResult<()> {
        self.failed.map_or(Ok(()), Err)
    }

    fn write<'f, P: Iterator<Item = &'f [u8]>>(
        &mut self,
        mut frames: impl Iterator<Item = (FrameHeader, P)>,
        total: u64,
        staging: &mut Vec<u8>,
    ) -> IoResult<()> {
        staging.clear();
        let limit = self.staging_bytes;
        staging.reserve_exact(usize::try_from(total).map_or(limit, |total| total.min(limit)));
        let mut gather = Gather {
            file: &*self.file,
            staging,
            limit,
            written: self.offset,
            staged_bytes: 0,
        };
        let mut offset = self.offset;
        let result = frames
            .try_for_each(|(header, mut payload)| {
                gather.push(&header.encode(&self.identity, offset))?;
                offset += header.frame_len();
                payload.try_for_each(|piece| gather.push(piece))
            })
            .and_then(|()| gather.flush());
        self.staged_bytes += gather.staged_bytes;
        staging.clear();
        self.failed = result.err();
        result?;
        self.offset = offset;
        Ok(())
    }

    /// Checks what a reader will demand, before it is on disk.
    fn assert_valid<'f, P: Iterator<Item = &'f [u8]>>(
        &self,
        frames: impl Iterator<Item = (FrameHeader, P)>,
    ) {
        if !cfg!(debug_assertions) {
            return;
        }
        debug_assert!(!self.sealed, "nothing follows a seal");
        let mut last = self.counted.last;
        for (header, payload) in frames {
            let (length, checksum) = payload.fold((0, 0), |(length, checksum), piece| {
                (length + piece.len(), crc32c::crc32c_append(checksum, piece))
            });
            debug_assert_eq!(header.kind, FrameKind::Commit);
            debug_assert!(
                last == 0 || header.sequence == last + 1,
                "a gap in sequences"
            );
            debug_assert!(
                header.durable_through < header.sequence,
                "durable unwritten"
            );
            debug_assert_eq!(header.payload_len as usize, length);
            debug_assert!(length.is_multiple_of(FRAME_ALIGN));
            debug_assert_eq!(header.payload_crc, checksum);
            last = header.sequence;
        }
    }
}

/// Collects bytes and writes them in the order they came.
struct Gather<'a> {
    file: &'a dyn File,
    staging: &'a mut Vec<u8>,
    limit: usize,
    written: u64,
    staged_bytes: u64,
}

impl Gather<'_> {
    fn push(&mut self, bytes: &[u8]) -> IoResult<()> {
        if self.staging.len() + bytes.len() <= self.limit {
            self.stage(bytes);
            return Ok(());
        }
        self.flush()?;
        // Copying pays only for what can share a write with its neighbours.
        if bytes.len() > self.limit / 2 {
            write_all_at(self.file, bytes, self.written)?;
            self.written += bytes.len() as u64;
        } else {
            self.stage(bytes);
        }
        Ok(())
    }

    fn stage(&mut self, bytes: &[u8]) {
        self.staging.extend_from_slice(bytes);
        self.staged_bytes += bytes.len() as u64;
    }

    fn flush(&mut self) -> IoResult<()> {
        if !self.staging.is_empty() {
            write_all_at(self.file, self.staging, self.written)?;
            self.written += self.staging.len() as u64;
            self.staging.clear();
        }
        Ok(())
    }
}
