//! The descriptor pool: at most so many files open, the one unused for longest is closed first.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use anyhow::{Result, anyhow};
use sealstone::env::{Env, File, FileName, OpenMode, io};

/// Shards, so that threads seldom meet.
const SHARDS: usize = 64;

#[derive(Debug, Default)]
struct Shard {
    /// By name: when it was last asked for, and the file.
    open: BTreeMap<FileName, (u64, Arc<dyn File>)>,
    /// Names by that time.
    order: BTreeMap<u64, FileName>,
    time: u64,
}

/// Open files.
#[derive(Debug)]
pub struct Pool {
    env: Env,
    shards: Vec<Mutex<Shard>>,
    shard_files_max: usize,
    opens: AtomicU64,
}

impl Pool {
    /// A pool of at least one file a shard.
    pub fn new(env: Env, files_max: u64) -> Self {
        Self {
            env,
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            shard_files_max: (files_max as usize / SHARDS).max(1),
            opens: AtomicU64::new(0),
        }
    }

    /// The file, opened if it is not open.
    pub fn file(&self, name: FileName) -> Result<Arc<dyn File>> {
        let place = (name.number as usize * 2 + name.kind as usize) % SHARDS;
        let mut shard = self.shards[place]
            .lock()
            .map_err(|_| anyhow!("a thread panicked"))?;
        let shard = &mut *shard;
        shard.time += 1;
        let now = shard.time;
        if let Some((last, file)) = shard.open.get_mut(&name) {
            shard.order.remove(last);
            shard.order.insert(now, name);
            *last = now;
            return Ok(Arc::clone(file));
        }
        self.opens.fetch_add(1, Ordering::Relaxed);
        let file = io::uninterrupted(|| self.env.vfs.open(name, OpenMode::Read))?;
        if shard.open.len() >= self.shard_files_max
            && let Some((_, oldest)) = shard.order.pop_first()
        {
            shard.open.remove(&oldest);
        }
        shard.open.insert(name, (now, Arc::clone(&file)));
        shard.order.insert(now, name);
        Ok(file)
    }

    /// Files opened so far.
    pub fn opens(&self) -> u64 {
        self.opens.load(Ordering::Relaxed)
    }
}
