//! An open file of the operating system, and its mapping.
//!
//! Reads and writes are pread(2) and pwrite(2): no cursor, so threads share a descriptor freely.
//!
//! This module holds the backend's only unsafe block, in [`File::map`] of [`RealFile`]. A mapping is
//! sound as a `&[u8]` as long as nobody changes or truncates the file below it. Only sealed files are
//! mapped, and the engine never writes to, truncates or reuses a sealed file: it only unlinks it, and
//! an unlinked file lives on below its mapping. Another process that alters a store's files breaks
//! the store's contract anyway. A file that is shorter than the caller says is refused before it is
//! mapped. What stays is the price of mapping as such: where the device fails to deliver a page, or
//! somebody else cuts the file below its mapping, the process gets SIGBUS instead of an error; whoever
//! wants errors reads by pread, which is the default.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the real backend is where the system's files are opened"
)]

use std::num::NonZeroU64;
use std::os::unix::fs::FileExt;

use memmap2::{Mmap, MmapOptions};
use rustix::fs::{FallocateFlags, fadvise, fallocate};
use rustix::io::Errno;

use crate::env::{Advice, File, IoError, IoErrorKind, IoResult, Map, io};
use crate::sync::Arc;

/// The zeros written at once where space can't be allocated otherwise.
const ZERO_BYTES: usize = 64 * 1024;

/// A file of a real directory.
#[derive(Debug)]
pub struct RealFile {
    file: std::fs::File,
}

impl RealFile {
    pub(super) fn new(file: std::fs::File) -> Self {
        Self { file }
    }

    /// Grows the file by writing: the last resort where the file system can't allocate (FAT, many
    /// network and FUSE systems). Slower, but later writes below `length` find their blocks in place
    /// as far as the file system rewrites in place at all.
    fn write_zeros(&self, from: u64, length: u64) -> IoResult<()> {
        let zeros = [0; ZERO_BYTES];
        let mut offset = from;
        while offset < length {
            let count = usize::try_from(length - offset).map_or(ZERO_BYTES, |n| n.min(ZERO_BYTES));
            io::write_all_at(self, &zeros[..count], offset)?;
            offset += count as u64;
        }
        Ok(())
    }
}

impl File for RealFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> IoResult<usize> {
        // The bare call: the C library's takes 50 instructions more, for threads that are cancelled.
        Ok(rustix::io::pread(&self.file, buffer, offset)?)
    }

    fn write_at(&self, buffer: &[u8], offset: u64) -> IoResult<usize> {
        Ok(self.file.write_at(buffer, offset)?)
    }

    fn advise(&self, advice: Advice, offset: u64, length: u64) {
        let advice = match advice {
            Advice::Normal => rustix::fs::Advice::Normal,
            Advice::Random => rustix::fs::Advice::Random,
            Advice::Sequential => rustix::fs::Advice::Sequential,
            Advice::WillNeed => rustix::fs::Advice::WillNeed,
            Advice::DontNeed => rustix::fs::Advice::DontNeed,
        };
        // To the system a length of 0 means "to the end"; to us it means nothing.
        if let Some(length) = NonZeroU64::new(length) {
            let _ = fadvise(&self.file, offset, Some(length), advice);
        }
    }

    fn sync_data(&self) -> IoResult<()> {
        Ok(self.file.sync_data()?)
    }

    fn set_len(&self, length: u64) -> IoResult<()> {
        Ok(self.file.set_len(length)?)
    }

    fn allocate(&self, length: u64) -> IoResult<()> {
        if length == 0 {
            return Ok(());
        }
        let before = self.len()?;
        let allocated = match fallocate(&self.file, FallocateFlags::empty(), 0, length) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => self.write_zeros(before, length),
            result => result.map_err(IoError::from),
        };
        if allocated.is_err() && self.len()? > before {
            // A disk that filled up half-way has left a part of the new length behind. Taking it
            // back also gives its blocks back.
            self.file.set_len(before)?;
        }
        allocated
    }

    fn len(&self) -> IoResult<u64> {
        Ok(self.file.metadata()?.len())
    }

    #[allow(unsafe_code, reason = "see the module's head")]
    fn map(&self, length: u64) -> IoResult<Arc<dyn Map>> {
        // Beyond the end of the file a mapping is SIGBUS, so the length is checked first.
        if self.len()? < length {
            return Err(IoError::new(IoErrorKind::UnexpectedEof));
        }
        if length == 0 {
            return Ok(Arc::new(RealMap(None)));
        }
        let length = usize::try_from(length).map_err(|_| IoError::new(IoErrorKind::Unsupported))?;
        // SAFETY: the file is sealed (the contract of `File::map`): its bytes never change, and it
        // is never truncated, while the mapping lives. See the module's head.
        let map = unsafe { MmapOptions::new().len(length).map(&self.file) }?;
        // Mappings serve lookups, which find their pages by hash: what lies beside is not wanted next.
        let _ = map.advise(memmap2::Advice::Random);
        Ok(Arc::new(RealMap(Some(map))))
    }
}

/// A mapping; `None` is the empty one, which the system refuses to make.
#[derive(Debug)]
struct RealMap(Option<Mmap>);

impl Map for RealMap {
    fn bytes(&self) -> &[u8] {
        self.0.as_deref().unwrap_or(&[])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn temporary() -> RealFile {
        RealFile::new(tempfile::tempfile().expect("a temporary file"))
    }

    #[test]
    fn zeros_are_written_where_nothing_can_be_allocated() {
        let file = temporary();
        io::write_all_at(&file, b"kept", 0).expect("writes");
        let length = 2 * ZERO_BYTES as u64 + 5;
        file.write_zeros(4, length).expect("grows");
        assert_eq!(file.len(), Ok(length));
        let mut all = vec![1; length as usize];
        io::read_exact_at(&file, &mut all, 0).expect("reads");
        assert_eq!(all[..4], *b"kept");
        assert!(all[4..].iter().all(|byte| *byte == 0));
    }

    #[test]
    fn a_refused_allocation_leaves_the_length() {
        let file = temporary();
        io::write_all_at(&file, b"kept", 0).expect("writes");
        // More than any disk has, below the largest offset.
        let error = file.allocate(1 << 60).expect_err("refused");
        assert_ne!(error.code, 0, "{error}");
        assert_eq!(file.len(), Ok(4));
    }

    #[test]
    fn maps_end_within_the_file() {
        let file = temporary();
        io::write_all_at(&file, b"sealed", 0).expect("writes");
        let eof = IoError::new(IoErrorKind::UnexpectedEof);
        assert_eq!(file.map(7).expect_err("too long"), eof);
        assert_eq!(file.map(6).expect("maps").bytes(), b"sealed");
        assert_eq!(file.map(0).expect("maps").bytes(), b"");
    }
}
