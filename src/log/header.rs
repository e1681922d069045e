//! The head of a log file, and how one comes into being.
//!
//! ```text
//! offset  bytes  field (little endian)
//!      0      8  magic "SEALLOG1"
//!      8      4  version
//!     12      4  CRC-32C of the other 60 bytes
//!     16     16  store id
//!     32      8  file number
//!     40      8  incarnation
//!     48      8  compatible feature bits: ignored when unknown
//!     56      8  incompatible feature bits: refused when unknown
//! ```
//!
//! Magic and version are looked at before the checksum, since a newer version may have another head.
//! A log is synced before the manifest names it: a bad head of a named log is damage, never tearing.

use crate::env::io::{uninterrupted, write_all_at};
use crate::env::{File, FileName, IoResult, Vfs};
use crate::error::{Error, ErrorKind, Result};
use crate::sync::Arc;

/// Bytes of the file header; the first frame follows.
pub const LOG_HEADER_BYTES: u64 = 64;

/// The newest version of the format, and the one written.
pub const LOG_VERSION: u32 = 1;

/// No version reaches this number. A log that lost power before its barrier can have any bytes in
/// place of its version, and must not pass for one of a newer release.
const VERSION_END: u32 = 1 << 16;

const HEADER_LEN: usize = LOG_HEADER_BYTES as usize;
const MAGIC: [u8; 8] = *b"SEALLOG1";
const OPERATION: &str = "read log header";

/// Which log it is: of what store, under what number, begun by what open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogIdentity {
    /// The store.
    pub store_id: u128,
    /// The file's number.
    pub number: u64,
    /// Counts the opens of the store.
    pub incarnation: u64,
}

impl LogIdentity {
    /// The file's name.
    pub const fn name(&self) -> FileName {
        FileName::log(self.number)
    }

    /// What every frame checksum also covers, with the frame's place.
    pub(super) fn binding(&self, offset: u64) -> [u8; 40] {
        let mut bytes = [0; 40];
        bytes[..16].copy_from_slice(&self.store_id.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.number.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.incarnation.to_le_bytes());
        bytes[32..].copy_from_slice(&offset.to_le_bytes());
        bytes
    }

    /// The file header.
    pub(super) fn encode(&self) -> [u8; HEADER_LEN] {
        let mut header = [0; HEADER_LEN];
        header[..8].copy_from_slice(&MAGIC);
        header[8..12].copy_from_slice(&LOG_VERSION.to_le_bytes());
        header[16..48].copy_from_slice(&self.binding(0)[..32]);
        let checksum = checksum(&header);
        header[12..16].copy_from_slice(&checksum.to_le_bytes());
        header
    }

    /// Reads a file header, of which `bytes` is the file's start. `name` is for the error.
    pub(super) fn decode(bytes: &[u8], name: FileName) -> Result<Self> {
        let damaged = |offset, what: &str| Error::corruption(OPERATION, name, offset, what);
        let Some(header) = bytes.first_chunk::<HEADER_LEN>() else {
            return Err(damaged(0, "the file is shorter than its header"));
        };
        if header[..8] != MAGIC {
            return Err(damaged(0, "not the magic number of a log"));
        }
        match u32_at(header, 8) {
            LOG_VERSION => {}
            VERSION_END.. => return Err(damaged(8, "not the version of a log")),
            found => return Err(unsupported(found, "").with_file(name)),
        }
        if u32_at(header, 12) != checksum(header) {
            return Err(damaged(12, "the header's checksum does not match"));
        }
        if header[56..] != [0; 8] {
            let detail = "an unknown incompatible feature is in use";
            return Err(unsupported(LOG_VERSION + 1, detail).with_file(name));
        }
        Ok(Self {
            store_id: (u128::from(u64_at(header, 24)) << 64) | u128::from(u64_at(header, 16)),
            number: u64_at(header, 32),
            incarnation: u64_at(header, 40),
        })
    }
}

/// Creates the log's file, makes room for `capacity_bytes` (header included) and writes the header.
///
/// The caller syncs file and directory and has the manifest name it before any frame is written. On
/// failure the file is removed again as far as the backend allows; it was never named.
pub fn create(
    vfs: &dyn Vfs,
    identity: &LogIdentity,
    capacity_bytes: u64,
) -> IoResult<Arc<dyn File>> {
    let name = identity.name();
    let file = uninterrupted(|| vfs.create_new(name))?;
    let prepared = uninterrupted(|| file.allocate(capacity_bytes.max(LOG_HEADER_BYTES)))
        .and_then(|()| write_all_at(&*file, &identity.encode(), 0));
    match prepared {
        Ok(()) => Ok(file),
        Err(error) => {
            drop(file);
            // Best effort: an orphan numbered above everything named is removed by the next open.
            let _ = uninterrupted(|| vfs.unlink(name));
            Err(error)
        }
    }
}

/// The answer to something that only a newer release can have written.
pub(crate) fn unsupported(found: u32, detail: &str) -> Error {
    let kind = ErrorKind::UnsupportedVersion {
        found,
        supported: LOG_VERSION,
    };
    Error::new(kind, OPERATION, detail)
}

fn checksum(header: &[u8; HEADER_LEN]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&header[..12]), &header[16..])
}

/// The integer at a fixed place of a fixed-size header.
pub(super) fn u32_at<const N: usize>(bytes: &[u8; N], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// The integer at a fixed place of a fixed-size header.
pub(super) fn u64_at<const N: usize>(bytes: &[u8; N], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | (u64::from(u32_at(bytes, at + 4)) << 32)
}
