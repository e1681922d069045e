//! Reads of several lookups that are made together.
//!
//! A lookup that finds its bytes here goes on with them. One that does not says what it wants and stops; when
//! all lookups of the group have stopped or ended, what is wanted is read, file by file and from front to back,
//! and each lookup is made again. It comes to the same reads as before, because a version does not change, and
//! one further. So a lookup is written once, for one key and for many.
//!
//! Memory: what one group keeps is at most [`BYTES_MAX`] and a read more; beyond that, and from a lookup's fifth
//! read on, reads are made at once. Files are not held between a lookup and the reads: only one at a time is
//! pinned, so a group takes no more descriptors than a single lookup.

use super::ReadCounts;
use super::files::FileTable;
use super::lookup::OPERATION;
use super::reader::Segment;
use crate::env::io::read_many_exact_at;
use crate::env::{FileName, IoResult, ReadRequest};
use crate::error::{Error, Result};
use crate::sync::Arc;

/// Bytes that are kept for a group of lookups.
pub const BYTES_MAX: usize = 1 << 20;

/// Reads that are kept for a lookup: page and record of a false candidate, and of the right one.
const READS_MAX: usize = 4;

/// What the reads of a group of lookups have given so far, and what is wanted next.
#[derive(Debug, Default)]
pub struct ReadAhead {
    /// The lookup that is being made.
    owner: usize,
    waits: bool,
    /// The lookup has made a read at once: it goes on so, or it would make that one again.
    at_once: bool,
    reads: Vec<Ahead>,
    bytes: usize,
}

#[derive(Debug)]
struct Ahead {
    owner: usize,
    segment: Arc<Segment>,
    /// Its file's name.
    name: FileName,
    offset: u64,
    bytes: Vec<u8>,
    /// Nothing until it was read.
    result: Option<Result<()>>,
}

/// What becomes of a read that a lookup asks for.
#[derive(Debug, PartialEq, Eq)]
pub enum Asked {
    /// It was made before; the bytes are in the buffer.
    Done,
    /// It is to be made at once.
    Now,
    /// It will be made with others: the lookup stops.
    Later,
}

impl ReadAhead {
    /// The next lookup begins, or begins again.
    pub fn begin(&mut self, owner: usize) {
        self.owner = owner;
        self.waits = false;
        self.at_once = false;
    }

    /// Whether the lookup that was begun last has stopped for a read.
    pub const fn waits(&self) -> bool {
        self.waits
    }

    /// Fills the buffer with what was read for this lookup at this place, or notes that it is wanted. Errors:
    /// that of the read.
    pub fn ask(&mut self, segment: &Arc<Segment>, offset: u64, buffer: &mut [u8]) -> Result<Asked> {
        let mut own = 0;
        for read in self.reads.iter().filter(|read| read.owner == self.owner) {
            let same = read.offset == offset && Arc::ptr_eq(&read.segment, segment);
            if same && read.bytes.len() == buffer.len() {
                buffer.copy_from_slice(&read.bytes);
                return match &read.result {
                    Some(result) => result.clone().map(|()| Asked::Done),
                    None => Ok(Asked::Now),
                };
            }
            own += 1;
        }
        self.at_once |= own >= READS_MAX || self.bytes + buffer.len() > BYTES_MAX;
        if self.at_once {
            return Ok(Asked::Now);
        }
        self.waits = true;
        self.bytes += buffer.len();
        self.reads.push(Ahead {
            owner: self.owner,
            segment: segment.clone(),
            name: segment.name(),
            offset,
            bytes: vec![0; buffer.len()],
            result: None,
        });
        Ok(Asked::Later)
    }

    /// Makes the reads that are wanted, those of a file in one call, counted. What fails is kept for the lookup
    /// that wants it. If they are asked for before, the system is told of all of them first.
    pub fn read(&mut self, files: &FileTable, is_asked_before: bool, counts: &mut ReadCounts) {
        let place = |read: &Ahead| (read.result.is_some(), read.name, read.offset);
        self.reads.sort_by_key(place);
        let wanted = self.reads.partition_point(|read| read.result.is_none());
        let wanted = &mut self.reads[..wanted];
        if is_asked_before && wanted.len() > 1 {
            let ask = |read: &Ahead| read.segment.ask_for(read.offset, read.bytes.len());
            wanted.iter().for_each(ask);
        }
        for group in wanted.chunk_by_mut(|one, next| one.name == next.name) {
            read_group(group, files, counts);
        }
    }
}

fn read_group(group: &mut [Ahead], files: &FileTable, counts: &mut ReadCounts) {
    let Some(first) = group.first() else {
        return;
    };
    let name = first.name;
    let file = match files.open(&first.segment, counts) {
        Ok(file) => file,
        Err(error) => {
            for read in group {
                read.result = Some(Err(error.clone()));
            }
            return;
        }
    };
    let requests = group.iter_mut().map(|read| ReadRequest {
        offset: read.offset,
        buffer: &mut read.bytes,
        result: Ok(0),
    });
    let mut requests: Vec<_> = requests.collect();
    read_many_exact_at(file.file(), &mut requests);
    let results: Vec<IoResult<usize>> = requests.into_iter().map(|read| read.result).collect();
    for (read, result) in group.iter_mut().zip(results) {
        counts.reads += 1;
        counts.bytes += read.bytes.len() as u64;
        read.result = Some(match result {
            Ok(_) => Ok(()),
            Err(cause) => Err(Error::io(OPERATION, name, cause).with_offset(read.offset)),
        });
    }
}
