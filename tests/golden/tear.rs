//! What a power cut does to files, done by hand: parts of what was written and not yet synced are lost.

use std::path::{Path, PathBuf};

/// Where the frames of a log start, by its own length fields.
pub fn log_frames(bytes: &[u8]) -> Vec<usize> {
    frames(bytes, 24, |payload| 40 + payload)
}

/// Where the frames of a manifest start.
pub fn manifest_frames(bytes: &[u8]) -> Vec<usize> {
    frames(bytes, 0, |payload| 16 + payload.next_multiple_of(8))
}

/// Frames follow the 64 bytes of the head; each has its payload's length at `length_at`.
fn frames(bytes: &[u8], length_at: usize, frame_len: fn(usize) -> usize) -> Vec<usize> {
    let mut starts = Vec::new();
    let mut at = 64;
    while bytes.get(at..at + 16).is_some_and(|head| head != [0; 16]) {
        let length = bytes[at + length_at..].first_chunk().expect("a header");
        starts.push(at);
        at += frame_len(u32::from_le_bytes(*length) as usize);
    }
    starts.push(at);
    starts
}

/// The files of a directory with this extension, in order.
pub fn files(directory: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).expect("a directory");
    let mut paths: Vec<PathBuf> = entries
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|found| found == extension))
        .collect();
    paths.sort();
    paths
}

/// Loses the second half of the frame before the last one; the last one is whole.
pub fn log(directory: &Path) {
    for path in files(directory, "log") {
        let mut bytes = std::fs::read(&path).expect("reads");
        if let [.., start, end, _] = log_frames(&bytes)[..] {
            bytes[start + (end - start) / 2..end].fill(0);
            std::fs::write(&path, bytes).expect("writes");
        }
    }
}

/// Loses the second half of the last edit.
pub fn manifest(directory: &Path) {
    let path = directory.join("MANIFEST");
    let mut bytes = std::fs::read(&path).expect("reads");
    let [.., start, end] = manifest_frames(&bytes)[..] else {
        panic!("a manifest without an edit");
    };
    bytes[start + (end - start) / 2..end].fill(0);
    std::fs::write(&path, bytes).expect("writes");
}
