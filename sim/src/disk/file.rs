//! Calls on one open file.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use sealstone::env::{File, FileName, IoError, IoErrorKind, IoResult};
use sealstone::sync::Mutex;

use super::core::{Core, EINTR, EIO, EMFILE, ENOSPC, EROFS, os_error};
use super::inode::SyncFailure;
use super::state::State;
use crate::choices::SmallRandom;
use crate::faults::{Call, Fault};

/// What a short read leaves behind the bytes it returned: never zeros, never the file's bytes.
const RUBBISH: u8 = 0xC7;
/// How much of it: a window of which a file fills a part is long, and nobody looks that far.
const RUBBISH_BYTES_MAX: usize = 512;
/// The unit of a misdirected write.
const MISDIRECTION_BYTES: u64 = 512;

/// The plain error behind a fault.
pub fn error_of(fault: Fault) -> IoError {
    match fault {
        Fault::NoSpace => ENOSPC,
        Fault::NoDescriptor => EMFILE,
        Fault::Interrupted => EINTR,
        Fault::Denied | Fault::Sync(SyncFailure::ShutDown) => EROFS,
        _ => EIO,
    }
}

/// An open file. The position and everything else lives in the disk.
pub struct SimFile {
    pub core: Arc<Mutex<Core>>,
    pub id: u32,
    pub name: FileName,
    pub writable: bool,
    /// How many failed write-backs this description has been told of.
    pub errors_seen: AtomicU32,
}

impl fmt::Debug for SimFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimFile({})", self.name)
    }
}

impl Core {
    fn strike(&mut self, call: Call, file: FileName) -> Option<(Fault, u64)> {
        self.faults.strike(call, Some(file))
    }

    /// Fails the call if a rule says so and the fault is a plain error.
    pub fn check(&mut self, call: Call, file: Option<FileName>) -> IoResult<()> {
        match self.faults.strike(call, file) {
            Some((fault, _)) => Err(error_of(fault)),
            None => Ok(()),
        }
    }

    pub fn need_descriptor(&self) -> IoResult<()> {
        if self.descriptors < self.options.descriptors_max {
            Ok(())
        } else {
            Err(EMFILE)
        }
    }

    fn read(&mut self, file: &SimFile, buffer: &mut [u8], offset: u64) -> IoResult<usize> {
        self.observe(Call::Read)?;
        let mut wanted = buffer.len();
        match self.strike(Call::Read, file.name) {
            Some((Fault::Short, seed)) => {
                wanted = 1 + SmallRandom::new(seed).below(wanted.max(2) as u64 - 1) as usize;
            }
            Some((Fault::LatentError, _)) => {
                let sector = offset / MISDIRECTION_BYTES * MISDIRECTION_BYTES;
                let range = sector..sector + MISDIRECTION_BYTES;
                self.state.inode_mut(file.id).unreadable.push(range);
            }
            Some((fault, _)) => return Err(error_of(fault)),
            None => {}
        }
        let inode = self.state.inode(file.id);
        let end = offset + wanted.min(buffer.len()) as u64;
        let bad = inode
            .unreadable
            .iter()
            .filter(|bad| bad.start < end && offset < bad.end);
        let readable = bad.map(|bad| bad.start.saturating_sub(offset)).min();
        if readable == Some(0) && offset < inode.live.len() {
            return Err(EIO);
        }
        let wanted = readable.unwrap_or(u64::MAX).min(wanted as u64) as usize;
        let wanted = wanted.min(buffer.len());
        let count = inode.live.read(&mut buffer[..wanted], offset);
        let rubbish = buffer.len().min(count + RUBBISH_BYTES_MAX);
        buffer[count..rubbish].fill(RUBBISH);
        self.note(Call::Read, Some(file.name), [offset, count as u64, 0], &[]);
        Ok(count)
    }

    fn write(&mut self, file: &SimFile, bytes: &[u8], offset: u64) -> IoResult<usize> {
        if !file.writable {
            return Err(os_error(IoErrorKind::Other, 9));
        }
        let partial = |state: &mut State, random: &mut SmallRandom| {
            let count = random.below(bytes.len() as u64 + 1) as usize;
            let stamp = state.next_stamp();
            state
                .inode_mut(file.id)
                .write(stamp, &bytes[..count], offset);
        };
        self.mutate((Call::Write, Some(file.name)), partial, |core| {
            let result = core.write_now(file, bytes, offset);
            let code = result.map_or(u64::MAX, |count| count as u64);
            core.note(
                Call::Write,
                Some(file.name),
                [offset, bytes.len() as u64, code],
                bytes,
            );
            result
        })
    }

    fn write_now(&mut self, file: &SimFile, bytes: &[u8], offset: u64) -> IoResult<usize> {
        if self.maps.contains_key(&file.id) {
            self.violations
                .push(format!("write to mapped {}", file.name));
        }
        let mut count = bytes.len();
        let mut failure = None;
        if let Some((fault, seed)) = self.strike(Call::Write, file.name) {
            let mut random = SmallRandom::new(seed);
            match fault {
                Fault::LostWrite => return Ok(count),
                Fault::Zero => return Ok(0),
                Fault::MisdirectedWrite => {
                    self.misdirect(file.id, bytes, offset, &mut random);
                    return Ok(count);
                }
                Fault::Short => count = 1 + random.below(count.max(2) as u64 - 1) as usize,
                _ => {
                    count = random.below(count as u64 + 1) as usize;
                    failure = Some(error_of(fault));
                }
            }
            count = count.min(bytes.len());
        }
        let end = offset + count as u64;
        let granted = self
            .state
            .reserve(file.id, end, self.options.capacity_bytes);
        let stored = granted.saturating_sub(offset).min(count as u64) as usize;
        let stamp = self.state.next_stamp();
        self.state
            .inode_mut(file.id)
            .write(stamp, &bytes[..stored], offset);
        match failure {
            Some(error) => Err(error),
            None if stored == 0 && !bytes.is_empty() => Err(ENOSPC),
            None => Ok(stored),
        }
    }

    /// Right data in a wrong place, old data in the right one. Within the file's blocks, so that the
    /// length does not tell.
    fn misdirect(&mut self, id: u32, bytes: &[u8], offset: u64, random: &mut SmallRandom) {
        let inode = self.state.inode_mut(id);
        let end = offset + bytes.len() as u64;
        for content in [&mut inode.live, &mut inode.durable] {
            if content.len() < end {
                content.set_len(end);
            }
        }
        let blocks = inode.live.len() / MISDIRECTION_BYTES + 1;
        let place = random.below(blocks) * MISDIRECTION_BYTES + offset % MISDIRECTION_BYTES;
        let room = inode
            .live
            .len()
            .saturating_sub(place)
            .min(bytes.len() as u64) as usize;
        inode.live.write(&bytes[..room], place);
        inode.durable.write(&bytes[..room], place);
    }

    fn sync_data(&mut self, file: &SimFile) -> IoResult<()> {
        let partial = |state: &mut State, random: &mut SmallRandom| {
            state.inode_mut(file.id).sync_in_part(random);
        };
        self.mutate((Call::SyncData, Some(file.name)), partial, |core| {
            let result = core.sync_now(file);
            let code = u64::from(result.is_err());
            core.note(Call::SyncData, Some(file.name), [code, 0, 0], &[]);
            result
        })
    }

    fn sync_now(&mut self, file: &SimFile) -> IoResult<()> {
        if let Some((fault, seed)) = self.strike(Call::SyncData, file.name) {
            let form = match fault {
                Fault::Interrupted => return Err(EINTR),
                Fault::Sync(form) => form,
                // Delayed allocation: the pages have no place to go.
                _ => SyncFailure::KeepNewClean,
            };
            let strength = self.options.strength;
            let inode = self.state.inode_mut(file.id);
            let seen = file.errors_seen.load(Ordering::Relaxed);
            inode.sync_failed(form, strength, &mut SmallRandom::new(seed));
            self.state.shut_down |= form == SyncFailure::ShutDown;
            if form != SyncFailure::LateReport {
                return self.tell(file, error_of(fault));
            }
            // The error waits for the next sync, but an older one may be due now.
            return match self.state.inode(file.id).errors > seen + 1 {
                true => self.tell(file, EIO),
                false => Ok(()),
            };
        }
        if !self.options.sync_is_a_lie {
            self.state.inode_mut(file.id).sync();
        }
        match self.state.inode(file.id).errors > file.errors_seen.load(Ordering::Relaxed) {
            true => self.tell(file, EIO),
            false => Ok(()),
        }
    }

    /// This description learns of all failures so far.
    fn tell(&mut self, file: &SimFile, error: IoError) -> IoResult<()> {
        let inode = self.state.inode_mut(file.id);
        inode.error_told = true;
        file.errors_seen.store(inode.errors, Ordering::Relaxed);
        Err(error)
    }

    fn set_len(&mut self, file: &SimFile, length: u64) -> IoResult<()> {
        let partial = |state: &mut State, _: &mut SmallRandom| {
            let stamp = state.next_stamp();
            state.inode_mut(file.id).set_len(stamp, length);
        };
        self.mutate((Call::SetLen, Some(file.name)), partial, |core| {
            core.note(Call::SetLen, Some(file.name), [length, 0, 0], &[]);
            core.check(Call::SetLen, Some(file.name))?;
            let shrinks = length < core.state.inode(file.id).live.len();
            if shrinks && core.maps.contains_key(&file.id) {
                core.violations
                    .push(format!("{} cut while mapped", file.name));
            }
            let stamp = core.state.next_stamp();
            core.state.inode_mut(file.id).set_len(stamp, length);
            core.state.release_past(file.id, length);
            Ok(())
        })
    }

    fn allocate(&mut self, file: &SimFile, length: u64) -> IoResult<()> {
        let partial = |state: &mut State, random: &mut SmallRandom| {
            let old = state.inode(file.id).live.len();
            if old < length {
                let stamp = state.next_stamp();
                let reached = old + random.below(length - old + 1);
                state.inode_mut(file.id).set_len(stamp, reached);
            }
        };
        self.mutate((Call::Allocate, Some(file.name)), partial, |core| {
            core.note(Call::Allocate, Some(file.name), [length, 0, 0], &[]);
            core.check(Call::Allocate, Some(file.name))?;
            let before = core.state.inode(file.id).reserved_bytes;
            let granted = core
                .state
                .reserve(file.id, length, core.options.capacity_bytes);
            if granted < length {
                core.state.release_past(file.id, before);
                return Err(ENOSPC);
            }
            if core.state.inode(file.id).live.len() < length {
                let stamp = core.state.next_stamp();
                core.state.inode_mut(file.id).set_len(stamp, length);
            }
            Ok(())
        })
    }

    fn close(&mut self, id: u32, address: usize) {
        self.descriptors -= 1;
        if let Some(place) = self.open.iter().position(|open| open.address == address) {
            self.open.remove(place);
        }
        self.drop_if_unnamed(id);
    }

    pub fn drop_if_unnamed(&mut self, id: u32) {
        if !self.dead && !self.state.inode(id).named && !self.is_open(id) {
            self.state.free_space_of(id);
            self.state.forget(id);
        }
    }
}

impl Drop for SimFile {
    fn drop(&mut self) {
        let address = std::ptr::from_ref(&*self) as usize;
        self.core.lock().close(self.id, address);
    }
}

impl File for SimFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> IoResult<usize> {
        self.core.lock().read(self, buffer, offset)
    }

    fn write_at(&self, buffer: &[u8], offset: u64) -> IoResult<usize> {
        self.core.lock().write(self, buffer, offset)
    }

    fn sync_data(&self) -> IoResult<()> {
        self.core.lock().sync_data(self)
    }

    fn set_len(&self, length: u64) -> IoResult<()> {
        self.core.lock().set_len(self, length)
    }

    fn allocate(&self, length: u64) -> IoResult<()> {
        self.core.lock().allocate(self, length)
    }

    fn len(&self) -> IoResult<u64> {
        let mut core = self.core.lock();
        core.observe(Call::Len)?;
        core.check(Call::Len, Some(self.name))?;
        Ok(core.state.inode(self.id).live.len())
    }
}
