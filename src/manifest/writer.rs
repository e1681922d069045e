//! Writes the manifest: anew as a whole, then edit by edit.
//!
//! ```text
//! create, roll:  temporary: allocate, write, sync -> rename -> sync directory     2 barriers
//! append:        (allocate) -> write -> sync                                      1 barrier
//! ```
//!
//! Room is allocated ahead, so `NoSpace` comes only from calls that have no effect yet: state and file
//! are as before and the writer goes on. After any other failure the file's state is unknown: the
//! writer is dead and answers `Poisoned` with the cause; its state stays that of the durable edits.

use crate::env::io::{uninterrupted, write_all_at};
use crate::env::{File, FileName, IoError, IoErrorKind, IoResult, Vfs};
use crate::error::{Error, ErrorKind, Result};
use crate::sync::Arc;

use super::change::{Change, encode_changes, encode_state};
use super::file::{Binding, HEADER_BYTES};
use super::state::ManifestState;

const CREATE: &str = "write manifest";
const APPEND: &str = "append to manifest";
const TEMPORARY: FileName = FileName::MANIFEST_TEMPORARY;

/// See the module.
#[derive(Debug)]
pub struct ManifestWriter {
    state: ManifestState,
    written: Written,
    reserve_bytes: u64,
    buffer: Vec<u8>,
    failed: Option<Error>,
}

/// The file in force.
#[derive(Debug)]
struct Written {
    file: Arc<dyn File>,
    /// Where the state frame ends.
    base_end: u64,
    /// Where the next frame goes.
    offset: u64,
    /// Writes below this can't run out of space.
    allocated: u64,
}

impl ManifestWriter {
    /// Makes `state` the store's manifest, atomically: the end of every open for writing. Keeps
    /// `reserve_bytes` allocated ahead of the edits.
    ///
    /// After `NoSpace` the old manifest is in force and no temporary is left; after any other error
    /// either manifest may be in force.
    pub fn create(vfs: &dyn Vfs, state: &ManifestState, reserve_bytes: u64) -> Result<Self> {
        let mut buffer = Vec::new();
        let written = write_anew(vfs, state, reserve_bytes, &mut buffer).map_err(Failure::error)?;
        Ok(Self {
            state: state.clone(),
            written,
            reserve_bytes,
            buffer: Vec::new(),
            failed: None,
        })
    }

    /// What the durable edits amount to.
    pub fn state(&self) -> &ManifestState {
        &self.state
    }

    /// Why the writer is dead, if it is.
    pub fn failure(&self) -> Option<&Error> {
        self.failed.as_ref()
    }

    /// The file's bytes in use.
    pub fn used_bytes(&self) -> u64 {
        self.written.offset
    }

    /// Appends an edit and makes it durable: one write, one barrier.
    ///
    /// An edit that breaks a rule of the state, and `NoSpace`, change nothing.
    pub fn append(&mut self, changes: &[Change]) -> Result<()> {
        self.alive()?;
        let number = self.state.edit_number.saturating_add(1);
        let undo = self.state.apply_changes(number, changes)?;
        let result = self.write_edit(number, changes);
        if let Err(error) = &result {
            self.state.revert(undo);
            if !matches!(
                error.kind(),
                ErrorKind::NoSpace | ErrorKind::TooLarge { .. }
            ) {
                self.failed = Some(error.clone());
            }
        }
        result
    }

    /// Whether the edits take more than `limit_bytes`, and more than the state that a roll writes.
    pub fn wants_roll(&self, limit_bytes: u64) -> bool {
        let state_bytes = self.written.base_end - HEADER_BYTES as u64;
        let edit_bytes = self.written.offset - self.written.base_end;
        edit_bytes > limit_bytes.max(state_bytes)
    }

    /// Writes the state as a new file in place of this one. An error that leaves
    /// [`failure`](Self::failure) empty has changed nothing: the old file goes on.
    pub fn roll(&mut self, vfs: &dyn Vfs) -> Result<()> {
        self.alive()?;
        match write_anew(vfs, &self.state, self.reserve_bytes, &mut self.buffer) {
            Ok(written) => {
                self.written = written;
                self.buffer = Vec::new();
                Ok(())
            }
            Err(failure) => {
                if let Failure::Unknown(error) = &failure {
                    self.failed = Some(error.clone());
                }
                Err(failure.error())
            }
        }
    }

    fn alive(&self) -> Result<()> {
        self.failed
            .as_ref()
            .map_or(Ok(()), |error| Err(error.poison()))
    }

    fn write_edit(&mut self, number: u64, changes: &[Change]) -> Result<()> {
        let written = &mut self.written;
        self.buffer.clear();
        Binding::of(&self.state).put_frame(&mut self.buffer, written.offset, number, |out| {
            encode_changes(changes, out);
        })?;
        let end = written.offset + self.buffer.len() as u64;
        if end > written.allocated {
            written.allocated = allocate(&*written.file, end, self.reserve_bytes)
                .map_err(|cause| Error::io(APPEND, FileName::MANIFEST, cause))?;
        }
        write_all_at(&*written.file, &self.buffer, written.offset)
            .and_then(|()| uninterrupted(|| written.file.sync_data()))
            .map_err(|cause| {
                final_error(APPEND, FileName::MANIFEST, cause).with_offset(written.offset)
            })?;
        written.offset = end;
        Ok(())
    }
}

/// Makes room up to `end` and, if it can be had, `reserve` beyond. Returns how far it reaches.
fn allocate(file: &dyn File, end: u64, reserve: u64) -> IoResult<u64> {
    let ahead = end.saturating_add(reserve);
    match uninterrupted(|| file.allocate(ahead)) {
        Err(error) if error.kind == IoErrorKind::NoSpace && ahead > end => {
            uninterrupted(|| file.allocate(end)).map(|()| end)
        }
        result => result.map(|()| ahead),
    }
}

/// An error after which nothing is known: never `NoSpace`, which promises that nothing happened.
fn final_error(operation: &'static str, name: FileName, cause: IoError) -> Error {
    let error = Error::io(operation, name, cause);
    if cause.kind == IoErrorKind::NoSpace {
        error.poison()
    } else {
        error
    }
}

/// Why a new file is not in force.
enum Failure {
    /// The old one is, as before.
    NoEffect(Error),
    /// That can't be said, or the disk can't be trusted any more.
    Unknown(Error),
}

impl Failure {
    fn error(self) -> Error {
        match self {
            Self::NoEffect(error) | Self::Unknown(error) => error,
        }
    }
}

fn write_anew(
    vfs: &dyn Vfs,
    state: &ManifestState,
    reserve_bytes: u64,
    buffer: &mut Vec<u8>,
) -> std::result::Result<Written, Failure> {
    encode_file(state, buffer).map_err(Failure::NoEffect)?;
    let base_end = buffer.len() as u64;
    let no_effect = |cause| Failure::NoEffect(Error::io(CREATE, TEMPORARY, cause));
    let unknown = |name| move |cause| Failure::Unknown(final_error(CREATE, name, cause));
    // Full disks are met before anything happened, and the room is given back.
    let before_effect = |cause: IoError| {
        if cause.kind != IoErrorKind::NoSpace {
            return unknown(TEMPORARY)(cause);
        }
        let _ = uninterrupted(|| vfs.unlink(TEMPORARY));
        no_effect(cause)
    };
    let file = create_temporary(vfs).map_err(no_effect)?;
    let allocated = allocate(&*file, base_end, reserve_bytes).map_err(before_effect)?;
    write_all_at(&*file, buffer, 0)
        .and_then(|()| uninterrupted(|| file.sync_data()))
        .map_err(unknown(TEMPORARY))?;
    uninterrupted(|| vfs.rename(TEMPORARY, FileName::MANIFEST)).map_err(before_effect)?;
    uninterrupted(|| vfs.sync_dir()).map_err(unknown(FileName::MANIFEST))?;
    Ok(Written {
        file,
        base_end,
        offset: base_end,
        allocated,
    })
}

/// Header and state frame, once the state is one that a reader takes.
fn encode_file(state: &ManifestState, buffer: &mut Vec<u8>) -> Result<()> {
    state.check_whole()?;
    let binding = Binding::of(state);
    buffer.clear();
    buffer.extend_from_slice(&binding.encode());
    binding.put_frame(buffer, HEADER_BYTES as u64, state.edit_number, |out| {
        encode_state(state, out);
    })
}

/// Creates the temporary, in place of one that an earlier attempt left.
fn create_temporary(vfs: &dyn Vfs) -> IoResult<Arc<dyn File>> {
    let create = || uninterrupted(|| vfs.create_new(TEMPORARY));
    match create() {
        Err(error) if error.kind == IoErrorKind::AlreadyExists => {
            uninterrupted(|| vfs.unlink(TEMPORARY))?;
            create()
        }
        result => result,
    }
}
