//! The end of a run: everything is read once more, and nothing may be left over.

use super::keys::{BLOCKS, NAMES};
use super::run::{Run, Step, Stop};
use crate::heap;

/// Up to so many writes every key is also looked up, alone, and scans go backwards too.
const COMPLETE_WRITES_MAX: u64 = 2_000_000;

/// Heap bytes that count as one thing left over; less is a thread's buffers for lookups.
const HEAP_LEFT_BYTES: u64 = 16 << 10;

impl Run<'_> {
    /// Checks everything and closes the store.
    pub fn finish(&mut self) -> Step {
        self.drop_view();
        self.settle_jobs()?;
        self.check_scans()?;
        if self.settings.writes <= COMPLETE_WRITES_MAX {
            self.check_all_keys()?;
            self.check_backwards()?;
        }
        self.verify()?;
        self.extremes.heap_a_segment = self.heap_a_segment()?;
        self.extremes.left_over += self.left_in_store()?;
        let opening = self.opening.take();
        let Some(opening) = opening else {
            return Err(Stop::Wrong("no store is open".into()));
        };
        let closed = opening.store.close();
        closed.map_err(|error| self.stop("close", &error))?;
        drop(opening);
        self.extremes.left_over += self.world.descriptors();
        let heap_left = (heap::live_bytes() - self.heap_start).unsigned_abs();
        self.extremes.left_over += heap_left / HEAP_LEFT_BYTES;
        match self.world.violations().first() {
            None => Ok(()),
            Some(what) => Err(Stop::Wrong(what.clone())),
        }
    }

    /// Both keyspaces in order, as long as they should be.
    fn check_scans(&mut self) -> Step {
        let opening = self.opening()?;
        let iter = |keyspace: usize| {
            let iter = opening.keyspaces[keyspace].iter();
            iter.map_err(|error| self.stop("iter", &error))
        };
        let (mut blocks, mut names) = (iter(BLOCKS)?, iter(NAMES)?);
        let blocks = self.read_blocks(&mut blocks, &mut None, usize::MAX)?.0;
        let names = self.read_names(&mut names, &mut (0, 0), usize::MAX)?.0;
        self.happened.scanned += blocks + names;
        self.check_count(BLOCKS, blocks)?;
        self.check_count(NAMES, names)
    }

    fn check_count(&self, keyspace: usize, found: u64) -> Step {
        let expected = self.model.live_keys(keyspace);
        match found == expected {
            true => Ok(()),
            false => Err(Stop::Wrong(format!(
                "a scan of keyspace {keyspace} found {found} keys of {expected}"
            ))),
        }
    }

    fn check_all_keys(&self) -> Step {
        for keyspace in [BLOCKS, NAMES] {
            for id in 0..self.model.ids(keyspace) {
                self.check_key(keyspace, id)?;
            }
        }
        Ok(())
    }

    fn check_backwards(&self) -> Step {
        for keyspace in [BLOCKS, NAMES] {
            let iter = self.opening()?.keyspaces[keyspace].iter();
            let iter = iter.map_err(|error| self.stop("iter", &error))?;
            let mut last: Option<Vec<u8>> = None;
            let mut count = 0;
            for item in iter.rev() {
                let (key, _) = item.map_err(|error| self.stop("a scan backwards", &error))?;
                if last.is_some_and(|last| last <= key) {
                    return Err(Stop::Wrong(format!("a scan backwards gave {key:02x?}")));
                }
                last = Some(key);
                count += 1;
            }
            self.check_count(keyspace, count)?;
        }
        Ok(())
    }

    fn verify(&self) -> Step {
        let report = self.opening()?.store.verify(&mut |_| {});
        let report = report.map_err(|error| self.stop("verify", &error))?;
        match report.is_clean() && report.unlisted == 0 {
            true => Ok(()),
            false => Err(Stop::Wrong(format!("verification found {report:?}"))),
        }
    }

    /// What a store at rest should not have any more.
    fn left_in_store(&self) -> Step<u64> {
        let audit = self.opening()?.store.audit();
        let listing = self.world.env().vfs.list();
        let listing = listing.map_err(|error| Stop::Wrong(format!("list: {error}")))?;
        let unnamed = listing.names.iter().filter(|n| !audit.files.contains(n));
        let memory = &audit.memory;
        let bytes = memory.sealed_bytes
            + memory.flushing_bytes
            + memory.pinned_bytes
            + memory.retiring_bytes
            + memory.reserved_bytes
            + audit.scan_bytes;
        let lists = audit.unlinks.len() + audit.pins.len() + audit.lingering.len();
        Ok(unnamed.count() as u64 + lists as u64 + bytes)
    }
}
