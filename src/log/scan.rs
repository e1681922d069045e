//! Looks behind a damaged place for frames that were written later.
//!
//! Their headers alone decide: each carries how far the history was durable when it was written, and
//! its checksum binds it to this file and place, so payload bytes or leftovers never pass for one.
//! Memory is the window, whatever the file's length.

use crate::env::window::{WINDOW_BYTES, Window};
use crate::env::{FileName, IoResult, OpenMode, Vfs, io};
use crate::error::{Error, ErrorKind, Result};
use crate::types::Sequence;

use super::frame::{self, FRAME_ALIGN, FRAME_HEADER_BYTES, Place};
use super::header::{LOG_HEADER_BYTES, LogIdentity};

/// What lies behind a place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Later {
    /// The end of the last byte that is not zero, or of the last frame; 0 if there is none.
    pub(super) used_end: u64,
    /// Valid frame headers.
    pub(super) headers: u64,
    /// The highest mark among them.
    pub(super) mark: Sequence,
    /// Where the header with that mark lies.
    pub(super) mark_offset: u64,
}

/// Searches from `from` (a place where a frame could start) to the end of the file.
pub(super) fn scan(window: &mut Window, identity: &LogIdentity, from: u64) -> IoResult<Later> {
    let file_len = window.file_len();
    let mut later = Later::default();
    let mut offset = from;
    while offset < file_len {
        let bytes = window.at(offset, FRAME_HEADER_BYTES)?;
        offset += later.walk(bytes, offset, identity);
    }
    later.used_end = later.used_end.min(file_len);
    Ok(later)
}

impl Later {
    /// Looks at the slots of `bytes`, which lie at `base` and are fewer than a header only at the end
    /// of the file. Returns how far it came, beyond `bytes` if a frame reaches there.
    fn walk(&mut self, bytes: &[u8], base: u64, identity: &LogIdentity) -> u64 {
        let mut position = 0;
        while let Some(slot) = bytes.get(position..position + FRAME_HEADER_BYTES) {
            let word = slot
                .first_chunk()
                .map_or(0, |word| u64::from_le_bytes(*word));
            let offset = base + position as u64;
            // A header's first word holds its kind, so zeros need no checksum.
            if word != 0 {
                self.used_end = offset + FRAME_ALIGN as u64 - u64::from(word.leading_zeros() / 8);
                if let Place::Frame(header) = frame::decode(slot, identity, offset) {
                    self.headers += 1;
                    if header.durable_through > self.mark {
                        self.mark = header.durable_through;
                        self.mark_offset = offset;
                    }
                    self.used_end = offset + header.frame_len();
                    let length = header.frame_len().next_multiple_of(FRAME_ALIGN as u64);
                    return position as u64 + length;
                }
            }
            position += FRAME_ALIGN;
        }
        if position > 0 {
            return position as u64;
        }
        if let Some(last) = bytes.iter().rposition(|byte| *byte != 0) {
            self.used_end = base + last as u64 + 1;
        }
        bytes.len() as u64
    }
}

/// Reads who any log says it is, and whether a frame of it is there.
///
/// `None` if it has no readable header, or one of an unknown version with nothing behind it: the debris
/// of a creation that a crash cut short. An open asks
/// this about logs that the manifest does not name: frames are only ever written to named logs, so
/// one in a log numbered above every named one proves that the manifest lost an edit.
pub fn probe(vfs: &dyn Vfs, name: FileName) -> Result<Option<(LogIdentity, bool)>> {
    let fail = |cause| Error::io("probe log", name, cause);
    let file = io::uninterrupted(|| vfs.open(name, OpenMode::Read)).map_err(fail)?;
    let mut window = Window::new(file, WINDOW_BYTES).map_err(fail)?;
    let head = window.at(0, LOG_HEADER_BYTES as usize).map_err(fail)?;
    match LogIdentity::decode(head, name) {
        Ok(identity) => {
            let later = scan(&mut window, &identity, LOG_HEADER_BYTES).map_err(fail)?;
            Ok(Some((identity, later.headers > 0)))
        }
        Err(error) if *error.kind() == ErrorKind::Corruption => Ok(None),
        // A torn header can say any version. A log of a newer release holds something behind it.
        Err(_) if is_zero_from(&mut window, LOG_HEADER_BYTES).map_err(fail)? => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether nothing but zeros lies at `from` and behind.
fn is_zero_from(window: &mut Window, from: u64) -> IoResult<bool> {
    let mut offset = from;
    loop {
        let bytes = window.at(offset, 1)?;
        if bytes.is_empty() {
            return Ok(true);
        }
        if bytes.iter().any(|byte| *byte != 0) {
            return Ok(false);
        }
        offset += bytes.len() as u64;
    }
}

/// The sequence of the first frame of a log, if its header is whole; its payload is not looked at.
/// `None` for a log without frames, or with a damaged first one: reading it tells which.
pub fn first_sequence(vfs: &dyn Vfs, identity: &LogIdentity) -> Result<Option<Sequence>> {
    let name = identity.name();
    let fail = |cause| Error::io("read log", name, cause);
    let file = io::uninterrupted(|| vfs.open(name, OpenMode::Read)).map_err(fail)?;
    let mut window = Window::new(file, FRAME_HEADER_BYTES).map_err(fail)?;
    let slot = window
        .at(LOG_HEADER_BYTES, FRAME_HEADER_BYTES)
        .map_err(fail)?;
    match frame::decode(slot, identity, LOG_HEADER_BYTES) {
        Place::Frame(header) => Ok(Some(header.sequence)),
        Place::Zeros | Place::Damaged | Place::Unknown => Ok(None),
    }
}
