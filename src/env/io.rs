//! The one place that deals with short transfers and interruptions.
//!
//! A backend may move fewer bytes than asked, or none and say `Interrupted`. Everything above these
//! loops sees whole transfers or an error. Interruptions are not counted as failures (a storm of them
//! is legal); a write that stores no byte is tried [`ZERO_WRITES_MAX`] times and is then an error.

use super::{File, IoError, IoErrorKind, IoResult};

/// How often a write may store nothing before it counts as failed.
const ZERO_WRITES_MAX: u32 = 3;

/// Fills `buffer` from `offset`; `UnexpectedEof` if the file ends before.
pub fn read_exact_at(file: &dyn File, buffer: &mut [u8], offset: u64) -> IoResult<()> {
    match read_up_to_at(file, buffer, offset)? {
        read if read == buffer.len() => Ok(()),
        _ => Err(IoError::new(IoErrorKind::UnexpectedEof)),
    }
}

/// Fills as much of `buffer` as the file has from `offset` on; returns how much.
pub fn read_up_to_at(file: &dyn File, buffer: &mut [u8], offset: u64) -> IoResult<usize> {
    let mut done = 0;
    while done < buffer.len() {
        match file.read_at(&mut buffer[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(count) => done += count.min(buffer.len() - done),
            Err(error) if error.kind == IoErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

/// Writes all of `buffer` at `offset`.
pub fn write_all_at(file: &dyn File, buffer: &[u8], offset: u64) -> IoResult<()> {
    let mut done = 0;
    let mut zero_writes = 0;
    while done < buffer.len() {
        match file.write_at(&buffer[done..], offset + done as u64) {
            Ok(0) => {
                zero_writes += 1;
                if zero_writes == ZERO_WRITES_MAX {
                    return Err(IoError::new(IoErrorKind::WriteZero));
                }
            }
            Ok(count) => {
                done += count.min(buffer.len() - done);
                zero_writes = 0;
            }
            Err(error) if error.kind == IoErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Calls again while the call was interrupted. For open, sync, rename and the like.
pub fn uninterrupted<T>(mut call: impl FnMut() -> IoResult<T>) -> IoResult<T> {
    loop {
        match call() {
            Err(error) if error.kind == IoErrorKind::Interrupted => {}
            result => return result,
        }
    }
}
