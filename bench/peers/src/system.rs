//! What the operating system counts for this process, and the store's files as it sees them.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

/// Reads and faults so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// read(2), pread(2) and the like; 0 where the system does not say.
    pub reads: u64,
    /// Bytes they returned.
    pub read_bytes: u64,
    /// Page faults served without the disk.
    pub minor_faults: u64,
    /// Page faults that waited for it.
    pub major_faults: u64,
}

impl Counts {
    /// Those of all threads. Reading them costs reads itself: [`Self::since`] takes them off.
    pub fn of_process() -> Self {
        let io = std::fs::read_to_string("/proc/self/io").unwrap_or_default();
        let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
        Self {
            reads: field(&io, "syscr:"),
            read_bytes: field(&io, "rchar:"),
            minor_faults: stat_field(&stat, 7),
            major_faults: stat_field(&stat, 9),
        }
    }

    /// What happened since `before`, less what counting itself does.
    pub fn since(before: Self) -> Self {
        let now = Self::of_process();
        // The same once more with nothing between.
        let own = Self::of_process();
        let between =
            |of: fn(&Self) -> u64| (of(&now) - of(&before)).saturating_sub(of(&own) - of(&now));
        Self {
            reads: between(|counts| counts.reads),
            read_bytes: between(|counts| counts.read_bytes),
            minor_faults: between(|counts| counts.minor_faults),
            major_faults: between(|counts| counts.major_faults),
        }
    }
}

/// Memory of the process now.
#[derive(Clone, Copy, Debug, Default)]
pub struct Memory {
    /// All that is resident, mapped files included.
    pub resident_bytes: u64,
    /// Of it what belongs to no file.
    pub anonymous_bytes: u64,
}

impl Memory {
    /// 0 where the system does not say.
    pub fn now() -> Self {
        let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        Self {
            resident_bytes: field(&text, "VmRSS:") << 10,
            anonymous_bytes: field(&text, "RssAnon:") << 10,
        }
    }
}

/// Bytes written on this process's behalf.
pub fn written_bytes() -> u64 {
    let io = std::fs::read_to_string("/proc/self/io").unwrap_or_default();
    // At the start of a line: another key ends in this one.
    field(&io, "write_bytes:")
}

/// The first number behind a key at a line's start.
fn field(text: &str, key: &str) -> u64 {
    text.lines()
        .find_map(|line| line.strip_prefix(key))
        .and_then(|rest| rest.split_whitespace().next()?.parse().ok())
        .unwrap_or(0)
}

/// A field of `stat` by its place behind the name in brackets, which may hold anything.
fn stat_field(stat: &str, place: usize) -> u64 {
    stat.rsplit_once(')')
        .and_then(|(_, fields)| fields.split_whitespace().nth(place)?.parse().ok())
        .unwrap_or(0)
}

/// All files in a directory and those in it.
pub fn files_below(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut directories = vec![directory.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(&directory)? {
            let entry = entry?;
            match entry.file_type()?.is_dir() {
                true => directories.push(entry.path()),
                false => files.push(entry.path()),
            }
        }
    }
    Ok(files)
}

/// How many files there are below a directory, and the bytes they take on the disk.
pub fn disk_use(directory: &Path) -> Result<(u64, u64)> {
    let files = files_below(directory)?;
    let mut bytes = 0;
    for file in &files {
        bytes += std::fs::metadata(file)?.blocks() * 512;
    }
    Ok((files.len() as u64, bytes))
}

/// Puts a file's pages on the disk and out of the system's cache.
pub fn evict(path: &Path) -> Result<()> {
    let file = File::open(path).with_context(|| format!("opening {}", path.display()))?;
    file.sync_all()?;
    // SAFETY: the descriptor is open; the call changes nothing but the cache.
    let failure = unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
    ensure!(failure == 0, "evicting {}: error {failure}", path.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    #[test]
    fn texts_are_read() {
        let io = "rchar: 3\nsyscr: 17\nwrite_bytes: 9\ncancelled_write_bytes: 4\n";
        assert_eq!((field(io, "syscr:"), field(io, "write_bytes:")), (17, 9));
        assert_eq!(field("", "syscr:"), 0);
        let stat = "12 (a ) b) S 1 2 3 4 5 6 77 8 99 10";
        assert_eq!((stat_field(stat, 7), stat_field(stat, 9)), (77, 99));
        assert_eq!(stat_field("", 7), 0);
    }

    #[test]
    fn files_are_found_at_any_depth_and_read_after_eviction() -> Result<()> {
        let directory = tempfile::tempdir()?;
        let below = directory.path().join("a/b");
        std::fs::create_dir_all(&below)?;
        std::fs::write(below.join("c"), vec![1; 10_000])?;
        std::fs::write(directory.path().join("d"), b"1")?;
        let (files, bytes) = disk_use(directory.path())?;
        assert_eq!(files, 2);
        for path in files_below(directory.path())? {
            evict(&path)?;
        }
        // Small files may lie in their inodes.
        assert!(bytes >= 10_000, "{bytes}");
        let mut byte = [0];
        File::open(below.join("c"))?.read_exact_at(&mut byte, 9_999)?;
        assert_eq!(byte, [1]);
        Ok(())
    }
}
