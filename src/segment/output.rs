//! Sequential output through one buffer.

use crate::env::io::write_all_at;
use crate::env::{File, FileName};
use crate::error::{Error, Result};
use crate::sync::Arc;

/// Writes a file from front to back. Large pieces go past the buffer.
#[derive(Debug)]
pub struct Output {
    file: Arc<dyn File>,
    name: FileName,
    buffer: Vec<u8>,
    capacity: usize,
    /// Bytes written to the file.
    written: u64,
    /// Bytes that went through the buffer.
    copied: u64,
}

impl Output {
    /// An output into `file`, from offset 0, in the memory of `buffer`, whose capacity is used.
    pub fn new(file: Arc<dyn File>, name: FileName, mut buffer: Vec<u8>) -> Self {
        buffer.clear();
        let capacity = buffer.capacity();
        Self {
            file,
            name,
            buffer,
            capacity,
            written: 0,
            copied: 0,
        }
    }

    /// Where the next byte goes.
    pub const fn offset(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    /// Bytes that went through the buffer.
    pub const fn copied(&self) -> u64 {
        self.copied
    }

    /// The file's name.
    pub const fn name(&self) -> FileName {
        self.name
    }

    /// Appends bytes.
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        if self.buffer.len() + bytes.len() > self.capacity {
            self.flush()?;
        }
        if bytes.len() >= self.capacity {
            return self.write_through(bytes);
        }
        self.buffer.extend_from_slice(bytes);
        self.copied += bytes.len() as u64;
        Ok(())
    }

    /// Appends zeros up to the next multiple of `align`.
    pub fn pad_to(&mut self, align: u64) -> Result<()> {
        const ZEROS: [u8; 512] = [0; 512];
        let mut missing = (self.offset().next_multiple_of(align) - self.offset()) as usize;
        while missing > 0 {
            let count = missing.min(ZEROS.len());
            self.write(&ZEROS[..count])?;
            missing -= count;
        }
        Ok(())
    }

    /// Writes what is buffered.
    pub fn flush(&mut self) -> Result<()> {
        let buffer = std::mem::take(&mut self.buffer);
        let result = match buffer.is_empty() {
            true => Ok(()),
            false => self.write_through(&buffer),
        };
        self.buffer = buffer;
        self.buffer.clear();
        result
    }

    /// Gives the buffer back.
    pub fn into_buffer(self) -> Vec<u8> {
        self.buffer
    }

    fn write_through(&mut self, bytes: &[u8]) -> Result<()> {
        write_all_at(&*self.file, bytes, self.written)
            .map_err(|cause| Error::io("flush", self.name, cause).with_offset(self.written))?;
        self.written += bytes.len() as u64;
        Ok(())
    }
}
