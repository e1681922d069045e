//! The manifest's file: header, frames, and reading them.
//!
//! ```text
//! offset  bytes  header field (little endian)
//!      0      8  magic "SEALMANI"
//!      8      4  version
//!     12      4  CRC-32C of the other 60 bytes
//!     16      8  compatible feature bits: ignored when unknown
//!     24      8  incompatible feature bits: refused when unknown
//!     32     16  store id
//!     48      8  incarnation of the open that wrote the file
//!     56      8  reserved: 0
//!
//! offset  bytes  frame field; frames start on multiples of 8, the first at 64 holds the state
//!      0      4  payload length without padding
//!      4      4  CRC-32C of length, edit number, store id, incarnation, file offset, padded payload
//!      8      8  edit number; of the state the last edit that it contains
//!     16      -  payload, zero bytes up to a multiple of 8
//! ```
//!
//! The incarnation is part of the checksum so that the blocks of a file that an earlier open began,
//! and that a crash took back, can't pass for edits of this one.

use std::ops::RangeInclusive;

use crate::env::window::{WINDOW_BYTES, Window};
use crate::env::{FileName, IoError, IoErrorKind, IoResult, OpenMode, Vfs, io};
use crate::error::{Error, ErrorKind, Result};

use super::change::{Edit, decode_changes, decode_state};
use super::fields::Malformed;
use super::state::ManifestState;

/// The newest version of the format, and the one written.
pub const MANIFEST_VERSION: u32 = 1;

/// Bytes of the file header; the state frame follows.
pub(super) const HEADER_BYTES: usize = 64;

/// Bytes before a frame's payload.
pub(super) const FRAME_HEADER_BYTES: usize = 16;

/// Frames start on multiples of this.
const ALIGN: usize = 8;

const MAGIC: [u8; 8] = *b"SEALMANI";
const OPERATION: &str = "read manifest";

/// What a manifest holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManifestRead {
    /// The state with every valid edit applied.
    pub state: ManifestState,
    /// Edits behind the state frame.
    pub edits: u64,
    /// Where the valid part ends.
    pub valid_bytes: u64,
    /// How much of a torn last edit is behind that; 0 if the end is clean.
    pub cut_bytes: u64,
}

/// What binds the frames of one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Binding {
    pub(super) store_id: u128,
    pub(super) incarnation: u64,
}

impl Binding {
    pub(super) fn of(state: &ManifestState) -> Self {
        Self {
            store_id: state.store_id,
            incarnation: state.incarnation,
        }
    }

    /// The checksum's beginning; the padded payload comes after it.
    fn seed(&self, header: &FrameHeader, offset: u64) -> u32 {
        let mut bytes = [0; 44];
        bytes[..4].copy_from_slice(&header.length.to_le_bytes());
        bytes[4..12].copy_from_slice(&header.number.to_le_bytes());
        bytes[12..28].copy_from_slice(&self.store_id.to_le_bytes());
        bytes[28..36].copy_from_slice(&self.incarnation.to_le_bytes());
        bytes[36..].copy_from_slice(&offset.to_le_bytes());
        crc32c::crc32c(&bytes)
    }

    /// The file header.
    pub(super) fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut header = [0; HEADER_BYTES];
        header[..8].copy_from_slice(&MAGIC);
        header[8..12].copy_from_slice(&MANIFEST_VERSION.to_le_bytes());
        header[32..48].copy_from_slice(&self.store_id.to_le_bytes());
        header[48..56].copy_from_slice(&self.incarnation.to_le_bytes());
        let checksum = header_checksum(&header);
        header[12..16].copy_from_slice(&checksum.to_le_bytes());
        header
    }

    fn decode(bytes: &[u8]) -> Result<Self> {
        let Some(header) = bytes.first_chunk::<HEADER_BYTES>() else {
            return Err(damaged(0, "the file is shorter than its header"));
        };
        if header[..8] != MAGIC {
            return Err(damaged(0, "not the magic number of a manifest"));
        }
        match u32_at(header, 8) {
            MANIFEST_VERSION => {}
            found => return Err(unsupported(found, String::new())),
        }
        if u32_at(header, 12) != header_checksum(header) {
            return Err(damaged(12, "the header's checksum does not match"));
        }
        if header[24..32] != [0; 8] {
            let detail = "an unknown incompatible feature is in use".to_owned();
            return Err(unsupported(MANIFEST_VERSION + 1, detail));
        }
        let low = u128::from(u64_at(header, 32));
        let high = u128::from(u64_at(header, 40));
        Ok(Self {
            store_id: (high << 64) | low,
            incarnation: u64_at(header, 48),
        })
    }

    /// Appends the frame that will stand at `offset`; `payload` appends its payload.
    pub(super) fn put_frame(
        &self,
        out: &mut Vec<u8>,
        offset: u64,
        number: u64,
        payload: impl FnOnce(&mut Vec<u8>),
    ) -> Result<()> {
        let start = out.len();
        out.extend_from_slice(&[0; FRAME_HEADER_BYTES]);
        let body = out.len();
        payload(out);
        let needed = (out.len() - body) as u64;
        let Ok(length) = u32::try_from(needed) else {
            let limit = u64::from(u32::MAX);
            let kind = ErrorKind::TooLarge { needed, limit };
            return Err(
                Error::new(kind, "write manifest", "one frame").with_file(FileName::MANIFEST)
            );
        };
        let header = FrameHeader { length, number };
        out.resize(out.len().next_multiple_of(ALIGN), 0);
        let checksum = crc32c::crc32c_append(self.seed(&header, offset), &out[body..]);
        out[start..start + 4].copy_from_slice(&header.length.to_le_bytes());
        out[start + 4..start + 8].copy_from_slice(&checksum.to_le_bytes());
        out[start + 8..body].copy_from_slice(&number.to_le_bytes());
        Ok(())
    }
}

/// A frame's header without its checksum.
#[derive(Clone, Copy, Debug)]
struct FrameHeader {
    length: u32,
    number: u64,
}

impl FrameHeader {
    fn padded(&self) -> u64 {
        u64::from(self.length).next_multiple_of(ALIGN as u64)
    }

    fn frame_len(&self) -> u64 {
        FRAME_HEADER_BYTES as u64 + self.padded()
    }
}

/// Reads the manifest; `None` if the directory has none.
///
/// A torn last edit is cut and reported. Damage before a valid edit, in the state or in the header is
/// `Corruption`. Never takes more memory than the file is long, beyond the state itself.
pub fn read(vfs: &dyn Vfs) -> Result<Option<ManifestRead>> {
    read_with_window(vfs, WINDOW_BYTES)
}

/// The same with a window of another size, for simulations.
pub fn read_with_window(vfs: &dyn Vfs, window_bytes: usize) -> Result<Option<ManifestRead>> {
    let file = match io::uninterrupted(|| vfs.open(FileName::MANIFEST, OpenMode::Read)) {
        Err(error) if error.kind == IoErrorKind::NotFound => return Ok(None),
        result => result.map_err(fail)?,
    };
    let mut window = Window::new(file, window_bytes).map_err(fail)?;
    let binding = Binding::decode(window.at(0, HEADER_BYTES).map_err(fail)?)?;
    let mut reader = Reader {
        window,
        binding,
        offset: HEADER_BYTES as u64,
        payload: Vec::new(),
    };
    let mut state = reader.state()?;
    let first = state.edit_number;
    while reader.edit(&mut state)? {}
    let cut_bytes = reader.tail(state.edit_number)?;
    Ok(Some(ManifestRead {
        edits: state.edit_number - first,
        state,
        valid_bytes: reader.offset,
        cut_bytes,
    }))
}

struct Reader {
    window: Window,
    binding: Binding,
    offset: u64,
    payload: Vec<u8>,
}

impl Reader {
    /// The state frame, which was durable before the file had its name.
    fn state(&mut self) -> Result<ManifestState> {
        let offset = self.offset;
        let Some(number) = self.frame()? else {
            return Err(damaged(offset, "the state is damaged"));
        };
        let state = decode_state(&self.payload, self.binding.store_id, number)
            .map_err(|malformed| malformed_at(offset, malformed))?;
        state
            .check_whole()
            .map_err(|error| error.with_offset(offset))?;
        if state.incarnation != self.binding.incarnation {
            return Err(damaged(offset, "header and state differ in incarnation"));
        }
        Ok(state)
    }

    /// Applies the next edit; `false` where there is no valid frame.
    fn edit(&mut self, state: &mut ManifestState) -> Result<bool> {
        let offset = self.offset;
        let Some(number) = self.frame()? else {
            return Ok(false);
        };
        let changes =
            decode_changes(&self.payload).map_err(|malformed| malformed_at(offset, malformed))?;
        state
            .apply(&Edit { number, changes })
            .map_err(|error| error.with_offset(offset))?;
        Ok(true)
    }

    /// The frame at the offset: its number, its payload in the buffer. `None`, and no step forward,
    /// if none is there.
    fn frame(&mut self) -> Result<Option<u64>> {
        self.payload.clear();
        let Some((header, checksum)) = self.header(self.offset).map_err(fail)? else {
            return Ok(None);
        };
        // The file has this many bytes, whether or not they were meant: memory stays below its length.
        let padded = header.padded() as usize;
        self.payload.reserve_exact(padded);
        self.payload.resize(padded, 0);
        self.window
            .read_exact(&mut self.payload, self.offset + FRAME_HEADER_BYTES as u64)
            .map_err(fail)?;
        let seed = self.binding.seed(&header, self.offset);
        if crc32c::crc32c_append(seed, &self.payload) != checksum {
            return Ok(None);
        }
        self.payload.truncate(header.length as usize);
        self.offset += header.frame_len();
        Ok(Some(header.number))
    }

    /// What may be the header of a frame at `offset` that the file is long enough for, and its
    /// checksum.
    fn header(&mut self, offset: u64) -> IoResult<Option<(FrameHeader, u32)>> {
        let left = self.window.file_len().saturating_sub(offset);
        let bytes = self.window.at(offset, FRAME_HEADER_BYTES)?;
        let Some(slot) = bytes.first_chunk::<FRAME_HEADER_BYTES>() else {
            return Ok(None);
        };
        let header = FrameHeader {
            length: u32_at(slot, 0),
            number: u64_at(slot, 8),
        };
        let possible = *slot != [0; FRAME_HEADER_BYTES] && header.frame_len() <= left;
        Ok(possible.then_some((header, u32_at(slot, 4))))
    }

    /// Whether a whole valid frame lies at `offset`, of an edit in `numbers`: which one.
    fn later(&mut self, offset: u64, numbers: &RangeInclusive<u64>) -> IoResult<Option<u64>> {
        let Some((header, checksum)) = self.header(offset)? else {
            return Ok(None);
        };
        if !numbers.contains(&header.number) {
            return Ok(None);
        }
        let seed = self.binding.seed(&header, offset);
        let body = offset + FRAME_HEADER_BYTES as u64;
        let found = self.window.checksum(seed, body, header.padded())?;
        Ok((found == checksum).then_some(header.number))
    }

    /// Decides what the first place without a frame means: bytes to cut, or damage.
    fn tail(&mut self, last: u64) -> Result<u64> {
        let file_len = self.window.file_len();
        // No file holds more edits than this; it spares the checksums of most other bytes.
        let next = last.saturating_add(1);
        let numbers = next..=next.saturating_add(file_len / FRAME_HEADER_BYTES as u64);
        let mut used_end = self.offset;
        let mut offset = self.offset;
        while offset < file_len {
            let bytes = self.window.at(offset, ALIGN).map_err(fail)?;
            let word = &bytes[..bytes.len().min(ALIGN)];
            let step = word.len() as u64;
            let used = word.iter().rposition(|byte| *byte != 0);
            if let Some(at) = used {
                used_end = offset + at as u64 + 1;
                if let Some(number) = self.later(offset, &numbers).map_err(fail)? {
                    let detail = format!(
                        "edit {next} is damaged, edit {number} at byte {offset} behind it is not"
                    );
                    return Err(damaged(self.offset, detail));
                }
            }
            offset += step;
        }
        Ok(used_end - self.offset)
    }
}

fn fail(cause: IoError) -> Error {
    Error::io(OPERATION, FileName::MANIFEST, cause)
}

fn damaged(offset: u64, detail: impl Into<String>) -> Error {
    Error::corruption(OPERATION, FileName::MANIFEST, offset, detail)
}

fn unsupported(found: u32, detail: String) -> Error {
    let kind = ErrorKind::UnsupportedVersion {
        found,
        supported: MANIFEST_VERSION,
    };
    Error::new(kind, OPERATION, detail).with_file(FileName::MANIFEST)
}

fn malformed_at(offset: u64, malformed: Malformed) -> Error {
    match malformed {
        Malformed::Damaged(what) => damaged(offset, what),
        Malformed::Unknown(tag) => {
            let detail = format!("a field with the unknown tag {tag}");
            unsupported(MANIFEST_VERSION + 1, detail).with_offset(offset)
        }
    }
}

fn header_checksum(header: &[u8; HEADER_BYTES]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&header[..12]), &header[16..])
}

fn u32_at<const N: usize>(bytes: &[u8; N], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn u64_at<const N: usize>(bytes: &[u8; N], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | (u64::from(u32_at(bytes, at + 4)) << 32)
}
