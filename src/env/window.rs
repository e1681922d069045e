//! A bounded buffer over a file that is read mostly from front to back.
//!
//! Logs and manifests are read through it at open: their frames are small, their files may be larger
//! than memory. The length is taken once; whatever a file claims about itself is compared with that
//! before anything is allocated, and the window itself is never larger than the file.

use super::io::read_exact_at;
use super::{File, IoError, IoErrorKind, IoResult};
use crate::sync::Arc;

/// The usual size of a window: large enough that a sequential read is limited by the disk.
pub const WINDOW_BYTES: usize = 64 * 1024;

/// The smallest window: every fixed header of the formats fits in it.
const WINDOW_BYTES_MIN: usize = 64;

/// See the module.
#[derive(Debug)]
pub struct Window {
    file: Arc<dyn File>,
    file_len: u64,
    size_bytes: usize,
    start: u64,
    bytes: Vec<u8>,
}

impl Window {
    /// A window of at most `size_bytes` over `file`, as long as it is now.
    pub fn new(file: Arc<dyn File>, size_bytes: usize) -> IoResult<Self> {
        let file_len = file.len()?;
        Ok(Self {
            file,
            file_len,
            size_bytes: size_bytes.max(WINDOW_BYTES_MIN),
            start: 0,
            bytes: Vec::new(),
        })
    }

    /// The file's length when the window was made.
    pub fn file_len(&self) -> u64 {
        self.file_len
    }

    /// The file behind it.
    pub fn file(&self) -> &Arc<dyn File> {
        &self.file
    }

    /// The bytes at `offset`: `wanted` or more where the file and the window's size allow it, fewer
    /// only because the file ends or the window is smaller. Empty at or behind the end.
    pub fn at(&mut self, offset: u64, wanted: usize) -> IoResult<&[u8]> {
        let left = self.file_len.saturating_sub(offset);
        let wanted = clip(left, wanted.min(self.size_bytes));
        if self.buffered(offset).len() < wanted {
            self.fill(offset, clip(left, self.size_bytes))?;
        }
        Ok(self.buffered(offset))
    }

    /// Fills `target` from `offset`, partly from the window where that is ahead already.
    pub fn read_exact(&mut self, target: &mut [u8], offset: u64) -> IoResult<()> {
        if target.len() <= self.size_bytes {
            let bytes = self.at(offset, target.len())?;
            if let Some(bytes) = bytes.get(..target.len()) {
                target.copy_from_slice(bytes);
                return Ok(());
            }
        }
        let ahead = self.buffered(offset);
        let taken = ahead.len().min(target.len());
        target[..taken].copy_from_slice(&ahead[..taken]);
        read_exact_at(&*self.file, &mut target[taken..], offset + taken as u64)
    }

    /// The CRC-32C of a part of the file, going on from `seed`, read through the window.
    pub fn checksum(&mut self, seed: u32, start: u64, length: u64) -> IoResult<u32> {
        let mut checksum = seed;
        let mut done = 0;
        while done < length {
            let bytes = self.at(start.saturating_add(done), 1)?;
            let bytes = &bytes[..clip(length - done, bytes.len())];
            if bytes.is_empty() {
                return Err(IoError::new(IoErrorKind::UnexpectedEof));
            }
            checksum = crc32c::crc32c_append(checksum, bytes);
            done += bytes.len() as u64;
        }
        Ok(checksum)
    }

    /// The part of the window from `offset` on.
    fn buffered(&self, offset: u64) -> &[u8] {
        offset
            .checked_sub(self.start)
            .and_then(|skip| usize::try_from(skip).ok())
            .and_then(|skip| self.bytes.get(skip..))
            .unwrap_or_default()
    }

    fn fill(&mut self, offset: u64, count: usize) -> IoResult<()> {
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.resize(count, 0);
        // Put back only after the read: a failed one leaves an empty window, not a wrong one.
        read_exact_at(&*self.file, &mut bytes, offset)?;
        self.start = offset;
        self.bytes = bytes;
        Ok(())
    }
}

/// The smaller of what is left and what is wanted.
fn clip(left: u64, wanted: usize) -> usize {
    usize::try_from(left).map_or(wanted, |left| left.min(wanted))
}
