//! The engine on real files, processes and threads: what no simulated disk can show.
//!
//! * [`kill`]: a child process writes and says what was acknowledged; it is killed at random moments, and
//!   what it left is opened and compared with the [`work`] it did.
//! * [`record`]: the mutating calls of a run on the real file system, to be cut at every point and opened
//!   on the simulated disk ([`replay`]).
//! * [`stress`]: threads write, read, scan and reopen and keep a [`history`], which is checked afterwards.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "real directories, processes, threads and time are what this is about"
)]

pub mod child;
pub mod history;
pub mod kill;
pub mod record;
pub mod replay;
pub mod stress;
pub mod work;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// A fresh directory, gone when dropped.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    /// A new directory where temporary files go.
    ///
    /// # Errors
    /// The system's.
    pub fn new() -> std::io::Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("sealstone-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path)?;
        Ok(Self(path))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
