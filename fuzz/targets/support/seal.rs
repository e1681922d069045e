//! Makes checksums right again after bytes were changed, by `docs/format.md` alone: what stands behind a
//! checksum is reached by almost no other way.
//!
//! Every function takes whatever bytes there are and seals what it finds; what has no place is left.

use crc32c::{crc32c, crc32c_append};

/// Bytes of the head of a file.
pub const HEAD_BYTES: usize = 64;

/// Bytes of the header of a frame in a log.
pub const LOG_FRAME_BYTES: usize = 40;

/// Bytes of the header of a frame in a manifest.
pub const MANIFEST_FRAME_BYTES: usize = 16;

/// The number at `at`; 0 past the end.
pub fn number<const N: usize>(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    if let Some(from) = bytes.get(at..).and_then(|bytes| bytes.get(..N)) {
        word[..N].copy_from_slice(from);
    }
    u64::from_le_bytes(word)
}

/// Writes over what is at `at`, as far as the bytes reach.
pub fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    if let Some(to) = bytes.get_mut(at..) {
        let count = to.len().min(value.len());
        to[..count].copy_from_slice(&value[..count]);
    }
}

/// The part from `at`, empty past the end.
fn part(bytes: &[u8], at: usize, count: usize) -> &[u8] {
    let from = bytes.get(at..).unwrap_or_default();
    &from[..from.len().min(count)]
}

/// Seals the first 64 bytes of any file.
pub fn head(bytes: &mut [u8]) {
    let sum = crc32c_append(crc32c(part(bytes, 0, 12)), part(bytes, 16, 48));
    put(bytes, 12, &sum.to_le_bytes());
}

/// The places of the frames of a log, and of each record in them.
pub fn log_places(bytes: &[u8]) -> Vec<usize> {
    let mut places = vec![0];
    let mut at = HEAD_BYTES;
    while let Some(length) = log_frame(bytes, at) {
        places.push(at);
        let (mut record, end) = (at + LOG_FRAME_BYTES, at + length);
        while record + 16 <= end && number::<1>(bytes, at + 4) == 1 {
            places.push(record);
            let body = number::<2>(bytes, record + 2)
                + number::<4>(bytes, record + 4)
                + number::<2>(bytes, record + 12);
            record += (16 + body as usize).next_multiple_of(8);
        }
        at = end;
    }
    places.push(at);
    places
}

/// The length of the frame at `at`, if one stands there that the file can hold.
fn log_frame(bytes: &[u8], at: usize) -> Option<usize> {
    let header = bytes.get(at..at + LOG_FRAME_BYTES)?;
    let length = LOG_FRAME_BYTES + number::<4>(header, 24) as usize;
    let is_there = header.iter().any(|byte| *byte != 0);
    (is_there && at + length <= bytes.len()).then(|| length.next_multiple_of(8))
}

/// Seals the head and each frame that stands behind the one before.
pub fn log(bytes: &mut [u8]) {
    head(bytes);
    let mut at = HEAD_BYTES;
    loop {
        let whole = log_frame(bytes, at);
        if whole.is_some() {
            let length = number::<4>(bytes, at + 24) as usize;
            let sum = crc32c(part(bytes, at + LOG_FRAME_BYTES, length));
            put(bytes, at + 32, &sum.to_le_bytes());
        }
        if part(bytes, at, LOG_FRAME_BYTES).len() == LOG_FRAME_BYTES
            && part(bytes, at, LOG_FRAME_BYTES)
                .iter()
                .any(|byte| *byte != 0)
        {
            log_frame_header(bytes, at);
        }
        match whole {
            Some(length) => at += length,
            None => return,
        }
    }
}

/// Seals the header of one frame: its payload may be too long for the file.
fn log_frame_header(bytes: &mut [u8], at: usize) {
    // Store id, number and incarnation, one behind the other in the head.
    let mut sum = crc32c(part(bytes, at + 4, 36));
    sum = crc32c_append(sum, part(bytes, 16, 32));
    sum = crc32c_append(sum, &(at as u64).to_le_bytes());
    put(bytes, at, &sum.to_le_bytes());
}

/// The places of the frames of a manifest, and of each field in them.
pub fn manifest_places(bytes: &[u8]) -> Vec<usize> {
    let mut places = vec![0];
    let mut at = HEAD_BYTES;
    while let Some(length) = manifest_frame(bytes, at) {
        places.push(at);
        let (mut field, end) = (at + MANIFEST_FRAME_BYTES, at + length);
        while field + 6 <= end && number::<2>(bytes, field) != 0 {
            places.push(field);
            field += 6 + number::<4>(bytes, field + 2) as usize;
        }
        at = end;
    }
    places.push(at);
    places
}

fn manifest_frame(bytes: &[u8], at: usize) -> Option<usize> {
    let header = bytes.get(at..at + MANIFEST_FRAME_BYTES)?;
    let length = MANIFEST_FRAME_BYTES + (number::<4>(header, 0) as usize).next_multiple_of(8);
    let is_there = header.iter().any(|byte| *byte != 0);
    (is_there && at + length <= bytes.len()).then_some(length)
}

/// Seals the head and each frame of a manifest.
pub fn manifest(bytes: &mut [u8]) {
    head(bytes);
    let mut at = HEAD_BYTES;
    while let Some(length) = manifest_frame(bytes, at) {
        let mut sum = crc32c(part(bytes, at, 4));
        sum = crc32c_append(sum, part(bytes, at + 8, 8));
        sum = crc32c_append(sum, part(bytes, 32, 24));
        sum = crc32c_append(sum, &(at as u64).to_le_bytes());
        sum = crc32c_append(
            sum,
            part(
                bytes,
                at + MANIFEST_FRAME_BYTES,
                length - MANIFEST_FRAME_BYTES,
            ),
        );
        put(bytes, at + 4, &sum.to_le_bytes());
        at += length;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::support::scene::Scene;
    use sealstone::env::FileKind;

    /// What the engine wrote is sealed already: the sums here are the engine's.
    #[test]
    fn sealing_changes_nothing_of_what_the_engine_wrote() {
        let scene = Scene::wide();
        for (name, bytes) in scene.files() {
            let mut sealed = bytes.clone();
            match name.kind {
                FileKind::Log => log(&mut sealed),
                FileKind::Manifest => manifest(&mut sealed),
                _ => continue,
            }
            assert!(sealed == *bytes, "{name:?}");
        }
    }
}
