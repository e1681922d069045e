//! The tree's background work, in steps: write a segment, install it, merge, remove.

use std::sync::Arc;

use sealstone::env::io::{uninterrupted, write_all_at};
use sealstone::env::{FileName, IoErrorKind, IoResult};

use super::super::frames::{Table, poison, stop};
use super::parts::{Edit, Segment};
use super::{Bug, Inner, Tree, bytes_of};
use crate::subject::{Answer, StopKind};

/// Segments from which on a merge is due.
const MERGE_SEGMENTS: usize = 3;

/// A segment that is on disk and in no edit.
pub(super) enum Built {
    /// The sealed table's.
    Flush(Arc<Segment>),
    /// That of the oldest so many segments.
    Merge(Arc<Segment>, usize),
}

pub(super) enum Job {
    Install,
    Flush,
    Merge,
    Remove,
}

impl Inner {
    fn edit(&self, segments: Vec<u64>, first_log: u64) -> Edit {
        Edit {
            next: self.next,
            first_log,
            segments,
        }
    }

    /// Appends an edit.
    pub fn put_edit(&mut self, edit: &Edit) -> IoResult<()> {
        let bytes = edit.encode();
        write_all_at(&*self.manifest, &bytes, self.manifest_end)?;
        self.manifest_end += bytes.len() as u64;
        Ok(())
    }

    /// Appends what the tree is made of now.
    pub fn put_numbers(&mut self) -> IoResult<()> {
        let segments = self.segments.iter().map(|segment| segment.number).collect();
        let edit = self.edit(segments, self.first_log);
        self.put_edit(&edit)
    }
}

impl Tree {
    pub(super) fn next_job(&self, inner: &Inner) -> Option<Job> {
        let merge_from = match self.bug {
            Bug::MergesForEver => 1,
            _ => MERGE_SEGMENTS,
        };
        let unread = |segment: &Arc<Segment>| Arc::strong_count(segment) == 1;
        if inner.poisoned {
            None
        } else if inner.built.is_some() {
            Some(Job::Install)
        } else if inner.sealed.is_some() {
            Some(Job::Flush)
        } else if inner.segments.len() >= merge_from {
            Some(Job::Merge)
        } else if !inner.unlinks.is_empty() || inner.retired.iter().any(unread) {
            Some(Job::Remove)
        } else {
            None
        }
    }

    pub(super) fn run_next(&self) -> Answer<()> {
        let inner = &mut *self.inner.lock();
        match self.next_job(inner) {
            Some(Job::Install) => self.install(inner),
            Some(Job::Flush) => self.flush(inner),
            Some(Job::Merge) => self.merge(inner),
            Some(Job::Remove) => self.remove(inner),
            None => Ok(()),
        }
    }

    /// A new segment; what a failure leaves of it is removed later.
    fn build(&self, inner: &mut Inner, sequence: u64, table: &Table) -> Answer<Arc<Segment>> {
        let number = inner.next;
        inner.next += 1;
        match Segment::write(&self.env, number, sequence, table) {
            Ok(segment) => Ok(Arc::new(segment)),
            Err(error) => {
                inner.unlinks.push(FileName::segment(number));
                Err(stop(error))
            }
        }
    }

    fn flush(&self, inner: &mut Inner) -> Answer<()> {
        let Some(sealed) = &inner.sealed else {
            return Ok(());
        };
        let (mut table, sequence) = (sealed.table.clone(), sealed.sequence);
        if self.bug == Bug::FlushCutShort {
            // Of the keyspace whose turn it is to be looked at.
            let keyspace = inner.next as usize % 2;
            let last = table.keys().rfind(|key| key.0 == keyspace);
            if let Some(last) = last.cloned() {
                table.remove(&last);
            }
        }
        let segment = self.build(inner, sequence, &table)?;
        inner.built = Some(Built::Flush(segment));
        Ok(())
    }

    fn merge(&self, inner: &mut Inner) -> Answer<()> {
        let (mut table, mut sequence) = (Table::new(), 0);
        for segment in &inner.segments {
            match segment.read(&self.env, self.bug) {
                Ok(input) => table.extend(input),
                Err(error) if error.kind == StopKind::Refused && self.bug == Bug::InputSkipped => {}
                Err(error) => return Err(error),
            }
            sequence = sequence.max(segment.sequence);
        }
        // Nothing older holds what a delete hides.
        table.retain(|_, value| value.is_some());
        let count = inner.segments.len();
        let segment = self.build(inner, sequence, &table)?;
        inner.built = Some(Built::Merge(segment, count));
        Ok(())
    }

    /// Adds what was built by an edit. If that fails, nobody knows what the manifest says.
    fn install(&self, inner: &mut Inner) -> Answer<()> {
        let (segment, replaced) = match &inner.built {
            Some(Built::Flush(segment)) => (Arc::clone(segment), 0),
            Some(Built::Merge(segment, count)) => (Arc::clone(segment), *count),
            None => return Ok(()),
        };
        let flushed = replaced == 0;
        let mut segments = inner.segments[replaced..].to_vec();
        let place = if flushed { segments.len() } else { 0 };
        segments.insert(place, Arc::clone(&segment));
        let sealed = inner.sealed.as_ref().filter(|_| flushed);
        let first_log = sealed.map_or(inner.first_log, |sealed| sealed.follower);
        let numbers = segments.iter().map(|segment| segment.number).collect();
        let edit = inner.edit(numbers, first_log);
        let written = inner.put_edit(&edit);
        let synced = written.and_then(|()| uninterrupted(|| inner.manifest.sync_data()));
        if let Err(error) = synced {
            inner.poisoned = true;
            if self.bug == Bug::EditTakenBack {
                // "It failed, so the segment is in no manifest."
                let _ = self.env.vfs.unlink(FileName::segment(segment.number));
            }
            return Err(poison(error));
        }
        inner.built = None;
        if flushed {
            self.retire_logs(inner, first_log);
        } else if self.bug != Bug::FilesForgotten {
            let inputs = inner.segments[..replaced].to_vec();
            inner.retired.extend(inputs);
        }
        inner.segments = segments;
        inner.keep_budget(self.bug);
        Ok(())
    }

    fn retire_logs(&self, inner: &mut Inner, first_log: u64) {
        if let Some(sealed) = inner.sealed.take() {
            let times = 1 + u64::from(self.bug == Bug::MemoryReturnedTwice);
            inner.free_bytes += times * bytes_of(&sealed.table);
        }
        inner.first_log = first_log;
        let (gone, kept) = inner.old_logs.iter().partition(|log| **log < first_log);
        inner.old_logs = kept;
        let gone: Vec<u64> = gone;
        inner.unlinks.extend(gone.into_iter().map(FileName::log));
    }

    fn remove(&self, inner: &mut Inner) -> Answer<()> {
        while let Some(name) = inner.unlinks.last() {
            match self.env.vfs.unlink(*name) {
                Err(error) if error.kind != IoErrorKind::NotFound => return Err(stop(error)),
                _ => inner.unlinks.pop(),
            };
        }
        while let Some(at) = inner.retired.iter().position(|s| Arc::strong_count(s) == 1) {
            let name = FileName::segment(inner.retired[at].number);
            self.env.vfs.unlink(name).map_err(stop)?;
            inner.retired.remove(at);
        }
        Ok(())
    }
}
