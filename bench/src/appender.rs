//! A stand-in for an engine in the tests of the harness: one log, no index.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Result;
use sealstone::env::{Env, File, FileName, OpenMode, io};

use crate::keys::Batch;
use crate::target::{Direction, Facts, Scanned, Target};

/// Appends each batch, syncs it, and takes two barriers of its own every ten commits.
pub struct Appender {
    env: Env,
    file: Arc<dyn File>,
    end: AtomicU64,
    commits: AtomicU64,
}

/// Commits between two "seals".
const SEAL_COMMITS: u64 = 10;

/// Opens or creates the one file.
pub fn open(env: Env) -> Result<Box<dyn Target>> {
    env.vfs.create_root()?;
    let name = FileName::segment(1);
    let file = match env.vfs.create_new(name) {
        Ok(file) => file,
        Err(_) => env.vfs.open(name, OpenMode::ReadWrite)?,
    };
    let mut head = [0; 8];
    io::read_up_to_at(file.as_ref(), &mut head, 0)?;
    Ok(Box::new(Appender {
        end: AtomicU64::new(file.len()?),
        env,
        file,
        commits: AtomicU64::new(0),
    }))
}

impl Target for Appender {
    fn write_batch(&self, batch: &Batch) -> Result<()> {
        let length = batch.bytes().len() as u64;
        let offset = self.end.fetch_add(length, Ordering::Relaxed);
        io::write_all_at(self.file.as_ref(), batch.bytes(), offset)?;
        self.file.sync_data()?;
        if (self.commits.fetch_add(1, Ordering::Relaxed) + 1).is_multiple_of(SEAL_COMMITS) {
            self.file.sync_data()?;
            self.env.vfs.sync_dir()?;
        }
        Ok(())
    }
    fn settle(&self) -> Result<()> {
        Ok(())
    }
    fn scan(&self, _: Direction, entries_max: u64) -> Result<Scanned> {
        io::read_exact_at(self.file.as_ref(), &mut [0; 8], 0)?;
        Ok(Scanned {
            entries: entries_max,
            cursors: 1,
        })
    }
    fn facts(&self) -> Facts {
        let commits = self.commits.load(Ordering::Relaxed);
        Facts {
            seals: commits / SEAL_COMMITS,
            commit_barriers: Some(commits),
            fold_barriers: 0,
            filter_bytes: 0,
            write_region_bytes: 0,
            fence_bytes: 0,
            stalls: 3,
            busy: 4,
        }
    }
    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}
