//! A directory of the operating system.
//!
//! Every call goes through one descriptor of the directory, opened at the first use and kept: the
//! store stays itself when the directory is renamed or the process changes its own, and `sync_dir`
//! syncs the directory that the names were made in. Symbolic links are followed, both to the directory
//! and from names in it (a segment may be moved to another disk by hand).
//!
//! Crash argument: a name is durable after `sync_dir` (fsync of the directory). `create_root` makes
//! the directory's own name durable, by a sync of its parent, even when the directory is there
//! already: whoever made it may have died before that sync.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the real backend is where the system's files are opened"
)]

use std::fmt;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, Mode, OFlags};
use rustix::fs::{fstatvfs, fsync, linkat, open, openat, renameat, unlinkat};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::file::RealFile;
use super::lock;
use crate::env::{
    File, FileName, IoError, IoErrorKind, IoResult, Listing, LockGuard, LockMode, OpenMode, Vfs, io,
};
use crate::sync::{Arc, Mutex, StaticOnceLock};

/// The access rights of a new file, before the process's mask.
const FILE_MODE: Mode = Mode::from_raw_mode(0o666);

/// The kernel's default of vm.max_map_count, for where /proc does not say.
const MAX_MAP_COUNT_DEFAULT: u64 = 65_530;

/// A [`Vfs`] on a directory.
#[derive(Debug)]
pub struct RealVfs {
    path: PathBuf,
    directory: Mutex<Option<Arc<OwnedFd>>>,
}

impl RealVfs {
    /// The directory at `path`, which need not exist yet. A relative path is bound to the current
    /// directory of now.
    pub fn new(path: &Path) -> IoResult<Self> {
        Ok(Self {
            path: std::path::absolute(path)?,
            directory: Mutex::new(None),
        })
    }

    fn directory(&self) -> IoResult<Arc<OwnedFd>> {
        let mut directory = self.directory.lock();
        if let Some(descriptor) = &*directory {
            return Ok(Arc::clone(descriptor));
        }
        let opened = Arc::new(open_directory(&self.path)?);
        *directory = Some(Arc::clone(&opened));
        Ok(opened)
    }

    fn open_file(&self, name: FileName, flags: OFlags) -> IoResult<Arc<dyn File>> {
        let directory = self.directory()?;
        let flags = flags | OFlags::CLOEXEC;
        let descriptor = openat(&*directory, NameText::of(name).as_str(), flags, FILE_MODE)?;
        Ok(Arc::new(RealFile::new(descriptor.into())))
    }
}

/// A name as text, without the heap: files come and go with every flush.
#[derive(Default)]
struct NameText {
    bytes: [u8; 32],
    len: usize,
}

impl NameText {
    fn of(name: FileName) -> Self {
        let mut text = Self::default();
        // The longest name has 24 bytes.
        let written = fmt::Write::write_fmt(&mut text, format_args!("{name}"));
        debug_assert!(written.is_ok(), "{name} is too long");
        text
    }

    fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..self.len]).unwrap_or_default()
    }
}

impl fmt::Write for NameText {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let place = self.bytes.get_mut(self.len..self.len + text.len());
        place.ok_or(fmt::Error)?.copy_from_slice(text.as_bytes());
        self.len += text.len();
        Ok(())
    }
}

impl Vfs for RealVfs {
    fn create_root(&self) -> IoResult<()> {
        create_directories(&self.path)?;
        // The descriptor may be of a directory that was here before and has been removed.
        let opened = Arc::new(open_directory(&self.path)?);
        *self.directory.lock() = Some(opened);
        Ok(())
    }

    fn open(&self, name: FileName, mode: OpenMode) -> IoResult<Arc<dyn File>> {
        let flags = match mode {
            OpenMode::Read => OFlags::RDONLY,
            OpenMode::ReadWrite => OFlags::RDWR,
        };
        // Nobody wants to know when a segment was read last: a read need not look whether that is to be noted.
        #[cfg(target_os = "linux")]
        if mode == OpenMode::Read {
            match self.open_file(name, flags | OFlags::NOATIME) {
                // Files of another user.
                Err(error) if error.kind == IoErrorKind::PermissionDenied => {}
                opened => return opened,
            }
        }
        self.open_file(name, flags)
    }

    fn create_new(&self, name: FileName) -> IoResult<Arc<dyn File>> {
        self.open_file(name, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL)
    }

    fn rename(&self, from: FileName, to: FileName) -> IoResult<()> {
        let directory = self.directory()?;
        let (from, to) = (from.to_string(), to.to_string());
        Ok(renameat(&*directory, from, &*directory, to)?)
    }

    fn unlink(&self, name: FileName) -> IoResult<()> {
        let directory = self.directory()?;
        let text = NameText::of(name);
        Ok(unlinkat(&*directory, text.as_str(), AtFlags::empty())?)
    }

    fn list(&self) -> IoResult<Listing> {
        let mut listing = Listing::default();
        for entry in Dir::read_from(&*self.directory()?)? {
            let entry = entry?;
            match entry.file_name().to_bytes() {
                b"." | b".." => {}
                name => match std::str::from_utf8(name).ok().and_then(FileName::parse) {
                    Some(name) => listing.names.push(name),
                    None => listing.foreign += 1,
                },
            }
        }
        listing.names.sort_unstable();
        // A directory that changes while it is read may give a name twice.
        listing.names.dedup();
        Ok(listing)
    }

    fn sync_dir(&self) -> IoResult<()> {
        Ok(fsync(&*self.directory()?)?)
    }

    fn try_lock(&self, mode: LockMode) -> IoResult<Box<dyn LockGuard>> {
        lock::try_lock(&*self.directory()?, mode)
    }

    fn free_space(&self) -> IoResult<u64> {
        let stat = fstatvfs(&*self.directory()?)?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }

    fn descriptor_limit(&self) -> u64 {
        static RAISED: StaticOnceLock<()> = StaticOnceLock::new();
        RAISED.get_or_init(raise_descriptor_limit);
        getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
    }

    fn mapping_limit(&self) -> u64 {
        let stored = std::fs::read_to_string("/proc/sys/vm/max_map_count").ok();
        let stored = stored.and_then(|text| text.trim().parse().ok());
        stored.unwrap_or(MAX_MAP_COUNT_DEFAULT)
    }

    fn link_or_copy_to(&self, name: FileName, target: &dyn Vfs) -> IoResult<()> {
        if let Some(real) = target.as_any().downcast_ref::<Self>() {
            let (from, to) = (self.directory()?, real.directory()?);
            let text = name.to_string();
            // Followed, so that a segment behind a symbolic link is itself linked, or copied.
            match linkat(&*from, &text, &*to, &text, AtFlags::SYMLINK_FOLLOW) {
                Ok(()) => return Ok(()),
                // Another file system, one without links, the file's last link, or links that the
                // system forbids to this user.
                Err(Errno::XDEV | Errno::OPNOTSUPP | Errno::MLINK | Errno::PERM) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        io::copy_file(self, name, target)
    }

    fn describe(&self) -> String {
        self.path.display().to_string()
    }

    fn as_any(&self) -> &dyn std::any::Any {
        self
    }
}

fn open_directory(path: &Path) -> IoResult<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(open(path, flags, Mode::empty())?)
}

/// Creates the directory and those above it, and makes each new name durable.
fn create_directories(path: &Path) -> IoResult<()> {
    let created = match std::fs::create_dir(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            // NotFound without a parent is no path at all (or a dangling link, said below).
            let parent = path.parent().ok_or(IoError::new(IoErrorKind::NotFound))?;
            create_directories(parent)?;
            std::fs::create_dir(path)
        }
        result => result,
    };
    let existed = match created {
        Ok(()) => false,
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => true,
        Err(error) => return Err(error.into()),
    };
    // The name to make durable is the directory's own, not that of a link to it.
    let canonical = std::fs::canonicalize(path)?;
    let synced = sync_directory(canonical.parent().unwrap_or(&canonical));
    match synced {
        // A parent that may not be read can't be synced; it can't be helped, and a directory that
        // exists in such a place was made for us by somebody else.
        Err(error) if existed && error.kind == IoErrorKind::PermissionDenied => Ok(()),
        result => result,
    }
}

fn sync_directory(path: &Path) -> IoResult<()> {
    Ok(fsync(open_directory(path)?)?)
}

/// The soft limit is what it is (often 1,024) for the sake of programs that use select(2); one that
/// holds thousands of segments wants the hard one.
fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        let raised = Rlimit {
            current: limit.maximum,
            maximum: limit.maximum,
        };
        // Refused by some sandboxes: then the soft limit counts.
        let _ = setrlimit(Resource::Nofile, raised);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_says_how_many_mappings_there_may_be() {
        let vfs = RealVfs::new(Path::new("/")).expect("a directory");
        assert!(vfs.mapping_limit() >= 1000, "{}", vfs.mapping_limit());
    }

    #[test]
    fn the_soft_limit_becomes_the_hard_one() {
        let limit = getrlimit(Resource::Nofile);
        let hard = limit.maximum.unwrap_or(1 << 20);
        let lowered = Rlimit {
            current: Some(hard / 2),
            maximum: limit.maximum,
        };
        setrlimit(Resource::Nofile, lowered).expect("the soft limit may be lowered");
        raise_descriptor_limit();
        assert_eq!(getrlimit(Resource::Nofile).current, limit.maximum);
    }
}
