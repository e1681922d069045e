//! Calls on the directory, and what they hand out: locks and mappings.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use sealstone::env::{
    File, FileName, IoError, IoErrorKind, IoResult, Listing, LockGuard, LockMode, Map, OpenMode,
    Vfs,
};
use sealstone::sync::Mutex;

use super::SimDisk;
use super::core::{Core, EINTR, EIO, ENOENT, OpenFile, os_error};
use super::file::{SimFile, error_of};
use super::state::State;
use crate::choices::SmallRandom;
use crate::faults::{Call, Fault};

/// Mappings that a process may hold: more than lives have files.
const MAPPING_LIMIT: u64 = 1024;

impl SimDisk {
    fn handle(&self, core: &mut Core, name: FileName, id: u32, writable: bool) -> Arc<dyn File> {
        core.descriptors += 1;
        let inode = core.state.inode(id);
        let untold = inode.errors > 0 && !inode.error_told;
        let file = Arc::new(SimFile {
            core: Arc::clone(&self.core),
            id,
            name,
            writable,
            errors_seen: AtomicU32::new(inode.errors - u32::from(untold)),
        });
        let place = core.open.partition_point(|open| open.name < name);
        core.open.insert(
            place,
            OpenFile {
                name,
                inode: id,
                address: Arc::as_ptr(&file) as usize,
            },
        );
        file
    }

    /// The names as the directory gives them: in no useful order.
    pub fn raw_listing(&self) -> Vec<FileName> {
        let core = self.core.lock();
        let mut names: Vec<FileName> = core.state.names().keys().copied().collect();
        let seed = core.options.listing_seed.unwrap_or(core.options.seed);
        let calls = core.calls[Call::List as usize];
        let mut random = SmallRandom::new(seed ^ calls.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        for end in (1..names.len()).rev() {
            names.swap(end, random.below(end as u64 + 1) as usize);
        }
        names
    }
}

impl Vfs for SimDisk {
    fn create_root(&self) -> IoResult<()> {
        let mut core = self.core.lock();
        if core.state.root {
            return core.observe(Call::CreateRoot);
        }
        let partial = |state: &mut State, random: &mut SmallRandom| {
            state.root = random.chance(1, 2);
        };
        core.mutate((Call::CreateRoot, None), partial, |core| {
            core.note(Call::CreateRoot, None, [0; 3], &[]);
            core.state.root = true;
            Ok(())
        })
    }

    fn open(&self, name: FileName, mode: OpenMode) -> IoResult<Arc<dyn File>> {
        let mut core = self.core.lock();
        core.observe(Call::Open)?;
        core.check(Call::Open, Some(name))?;
        core.need_descriptor()?;
        let id = core.state.find(name).ok_or(ENOENT)?;
        core.note(Call::Open, Some(name), [0; 3], &[]);
        Ok(self.handle(&mut core, name, id, mode == OpenMode::ReadWrite))
    }

    fn create_new(&self, name: FileName) -> IoResult<Arc<dyn File>> {
        let mut core = self.core.lock();
        let partial = |state: &mut State, _: &mut SmallRandom| {
            if state.root && state.find(name).is_none() {
                state.create(name);
            }
        };
        let id = core.mutate((Call::CreateNew, Some(name)), partial, |core| {
            core.note(Call::CreateNew, Some(name), [0; 3], &[]);
            core.check(Call::CreateNew, Some(name))?;
            core.need_descriptor()?;
            if !core.state.root {
                return Err(ENOENT);
            }
            match core.state.find(name) {
                Some(_) => Err(os_error(IoErrorKind::AlreadyExists, 17)),
                None => Ok(core.state.create(name)),
            }
        })?;
        Ok(self.handle(&mut core, name, id, true))
    }

    fn rename(&self, from: FileName, to: FileName) -> IoResult<()> {
        let mut core = self.core.lock();
        let partial = |state: &mut State, _: &mut SmallRandom| {
            if let Some(id) = state.find(from) {
                state.rename(from, to, id);
            }
        };
        core.mutate((Call::Rename, Some(from)), partial, |core| {
            core.note(
                Call::Rename,
                Some(from),
                [to.kind as u64, to.number, 0],
                &[],
            );
            core.check(Call::Rename, Some(from))?;
            let id = core.state.find(from).ok_or(ENOENT)?;
            if let Some(replaced) = core.state.rename(from, to, id) {
                core.drop_if_unnamed(replaced);
            }
            Ok(())
        })
    }

    fn unlink(&self, name: FileName) -> IoResult<()> {
        let mut core = self.core.lock();
        let partial = |state: &mut State, _: &mut SmallRandom| {
            state.unlink(name);
        };
        core.mutate((Call::Unlink, Some(name)), partial, |core| {
            core.note(Call::Unlink, Some(name), [0; 3], &[]);
            core.check(Call::Unlink, Some(name))?;
            let id = core.state.unlink(name).ok_or(ENOENT)?;
            core.drop_if_unnamed(id);
            Ok(())
        })
    }

    fn list(&self) -> IoResult<Listing> {
        {
            let mut core = self.core.lock();
            core.observe(Call::List)?;
            core.check(Call::List, None)?;
            core.need_descriptor()?;
            if !core.state.root {
                return Err(ENOENT);
            }
            core.note(Call::List, None, [0; 3], &[]);
        }
        let mut names = self.raw_listing();
        if self.options().listing_seed.is_none() {
            names.sort_unstable();
        }
        Ok(Listing { names, foreign: 0 })
    }

    fn sync_dir(&self) -> IoResult<()> {
        let mut core = self.core.lock();
        let partial = |state: &mut State, random: &mut SmallRandom| {
            state.sync_names_in_part(random);
        };
        core.mutate((Call::SyncDir, None), partial, |core| {
            core.note(Call::SyncDir, None, [0; 3], &[]);
            if !core.state.root {
                return Err(ENOENT);
            }
            match core.faults.strike(Call::SyncDir, None) {
                Some((Fault::Interrupted, _)) => return Err(EINTR),
                Some((fault, seed)) => {
                    core.state.sync_names_in_part(&mut SmallRandom::new(seed));
                    return Err(error_of(fault));
                }
                None => {}
            }
            if !core.options.sync_is_a_lie {
                core.state.sync_names();
                core.forget_unreachable();
            }
            Ok(())
        })
    }

    fn try_lock(&self, mode: LockMode) -> IoResult<Box<dyn LockGuard>> {
        let mut core = self.core.lock();
        if mode == LockMode::Exclusive && core.state.find(FileName::LOCK).is_none() {
            drop(core);
            drop(self.create_new(FileName::LOCK)?);
            core = self.core.lock();
        }
        core.observe(Call::Lock)?;
        core.check(Call::Lock, None)?;
        core.need_descriptor()?;
        let free = match mode {
            LockMode::Exclusive => !core.locked_exclusive && core.locked_shared == 0,
            LockMode::Shared => !core.locked_exclusive,
        };
        if !free {
            return Err(os_error(IoErrorKind::WouldBlock, 11));
        }
        match mode {
            LockMode::Exclusive => core.locked_exclusive = true,
            LockMode::Shared => core.locked_shared += 1,
        }
        core.descriptors += 1;
        Ok(Box::new(SimLock {
            core: Arc::clone(&self.core),
            mode,
        }))
    }

    fn free_space(&self) -> IoResult<u64> {
        let core = self.core.lock();
        if core.dead {
            return Err(IoError::new(IoErrorKind::Crashed));
        }
        Ok(core
            .options
            .capacity_bytes
            .saturating_sub(core.state.used_bytes))
    }

    fn descriptor_limit(&self) -> u64 {
        self.core.lock().options.descriptors_max
    }

    fn mapping_limit(&self) -> u64 {
        MAPPING_LIMIT
    }

    fn map(&self, file: &dyn File, length: u64) -> IoResult<Arc<dyn Map>> {
        let address = std::ptr::from_ref(file).cast::<()>() as usize;
        let mut core = self.core.lock();
        core.observe(Call::Map)?;
        let foreign = IoError::new(IoErrorKind::Unsupported);
        let open = core.open.iter().find(|open| open.address == address);
        let id = open.ok_or(foreign)?.inode;
        core.check(Call::Map, None)?;
        let inode = core.state.inode(id);
        // Touching past the end or on a bad sector is a fatal signal in a real process: the caller
        // has to know the length, and here it learns of the sector at once.
        if length > inode.live.len() || inode.unreadable.iter().any(|bad| bad.start < length) {
            return Err(EIO);
        }
        let mut bytes = vec![0; length as usize];
        inode.live.read(&mut bytes, 0);
        *core.maps.entry(id).or_default() += 1;
        Ok(Arc::new(SimMap {
            core: Arc::clone(&self.core),
            id,
            bytes,
        }))
    }

    fn link_or_copy_to(&self, name: FileName, target: &dyn Vfs) -> IoResult<()> {
        let bytes = {
            let mut core = self.core.lock();
            core.observe(Call::Open)?;
            let id = core.state.find(name).ok_or(ENOENT)?;
            core.state.inode(id).live.flat()
        };
        let copy = target.create_new(name)?;
        sealstone::env::io::write_all_at(&*copy, &bytes, 0)?;
        sealstone::env::io::uninterrupted(|| copy.sync_data())
    }

    fn describe(&self) -> String {
        "a simulated disk".to_string()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Core {
    /// After a directory sync no crash leads back to files without a name.
    fn forget_unreachable(&mut self) {
        let unnamed = self.state.inodes().filter(|(_, inode)| !inode.named);
        let gone: Vec<u32> = unnamed
            .map(|(id, _)| id)
            .filter(|id| !self.is_open(*id))
            .collect();
        for id in gone {
            self.state.forget(id);
        }
    }
}

#[derive(Debug)]
struct SimLock {
    core: Arc<Mutex<Core>>,
    mode: LockMode,
}

impl LockGuard for SimLock {}

impl Drop for SimLock {
    fn drop(&mut self) {
        let mut core = self.core.lock();
        core.descriptors -= 1;
        match self.mode {
            LockMode::Exclusive => core.locked_exclusive = false,
            LockMode::Shared => core.locked_shared -= 1,
        }
    }
}

/// A view of the cache when it was mapped. Sealed files do not change; that the file behind it is
/// left alone is checked, not simulated.
struct SimMap {
    core: Arc<Mutex<Core>>,
    id: u32,
    bytes: Vec<u8>,
}

impl fmt::Debug for SimMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimMap({} bytes)", self.bytes.len())
    }
}

impl Map for SimMap {
    fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for SimMap {
    fn drop(&mut self) {
        let mut core = self.core.lock();
        if let Some(count) = core.maps.get_mut(&self.id) {
            *count -= 1;
            if *count == 0 {
                core.maps.remove(&self.id);
            }
        }
    }
}
