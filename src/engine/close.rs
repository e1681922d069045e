//! Closing: everything queued is published and on disk, the manifest says how far, the lock is free.
//!
//! The open generation stays in its log: nothing is flushed. Jobs stop at a quantum. A poisoned store
//! closes without writing anything; if it shows commits that are not known to be durable, it says so, as
//! Ok would promise that they are.

use crate::engine::Engine;
use crate::env::FileName;
use crate::error::{Error, Result};
use crate::manifest::Change;
use crate::sync::Ordering;

impl Engine {
    /// Closes for good; the second call does nothing. Afterwards every handle answers `Closed`.
    pub fn close(&self) -> Result<()> {
        if self.is_closed() {
            return Ok(());
        }
        self.commit.lock().closing = true;
        let result = match self.poison.get() {
            _ if self.settings.read_only => Ok(()),
            None => self.settle(),
            Some(_) if self.durable.load(Ordering::Acquire) >= self.visible() => Ok(()),
            Some(cause) => Err(cause.clone()),
        };
        self.shut();
        result
    }

    /// Publishes what is queued, syncs the log and marks it in the manifest.
    fn settle(&self) -> Result<()> {
        while self.commit_step()? {}
        let mut leader = self.leader.lock();
        if leader.dirty {
            let file = FileName::log(leader.log_number);
            if let Some(log) = &mut leader.log {
                log.sync()
                    .map_err(|cause| self.poison(&Error::io("close", file, cause)))?;
            }
            leader.dirty = false;
            self.durable.store(self.visible(), Ordering::Release);
        }
        let number = leader.log_number;
        drop(leader);
        if number == 0 {
            return Ok(());
        }
        let durable_through = self.durable.load(Ordering::Acquire);
        let mark = Change::MarkLog {
            number,
            durable_through,
        };
        // A flush in progress may have dropped the log already, or be about to: whether there is
        // something to mark is a question to the state that the edit goes to.
        self.edit_manifest_with(|state| match state.log(number) {
            Some(_) => vec![mark, Change::CleanClose],
            None => vec![Change::CleanClose],
        })
    }

    /// Ends all handles and frees the lock. Also what dropping the last handle does.
    pub fn shut(&self) {
        self.closed.store(true, Ordering::Release);
        let _gate = self.gate.write();
        let queue = {
            let mut commit = self.commit.lock();
            // Nothing enters the queue behind this.
            commit.closing = true;
            std::mem::take(&mut commit.queue)
        };
        let closed = Error::new(
            crate::error::ErrorKind::Closed,
            "commit",
            "the store was closed before the batch was written",
        );
        for queued in queue {
            queued.fail(&closed);
        }
        self.progress.raise();
        self.work.0.raise();
        *self.manifest.lock() = None;
        self.leader.lock().log = None;
        self.files.close_idle();
        *self.lock.lock() = None;
    }
}
