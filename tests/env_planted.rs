//! The conformance suite must be able to fail: each of these backends has one fault, and the suite
//! has to name the rule that it breaks.

use std::sync::Arc;

use sealstone::env::conformance::check;
use sealstone::env::memory::MemoryVfs;
use sealstone::env::{
    Env, File, FileName, IoResult, Listing, LockGuard, LockMode, Map, OpenMode, Vfs,
};

/// What is wrong with a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    /// `create_new` takes an existing file.
    CreateReplaces,
    /// `rename` removes the old name only.
    RenameLoses,
    /// An unlinked file loses its content.
    UnlinkEmpties,
    /// `list` is not sorted.
    ListReversed,
    /// Writes go one byte too far.
    WriteShifts,
    /// The last new byte is not zero.
    SetLenDirty,
    /// `allocate` does not grow.
    AllocateNothing,
    /// Reading handles take writes.
    ReadersWrite,
    /// Any number of writers.
    LockAdmits,
    /// A map may be longer than its file.
    MapPads,
    /// A copy is cut.
    CopyCuts,
}

#[derive(Debug)]
struct FaultyVfs {
    inner: MemoryVfs,
    fault: Fault,
}

impl FaultyVfs {
    fn has(&self, fault: Fault) -> bool {
        self.fault == fault
    }

    fn wrap(&self, inner: Arc<dyn File>) -> Arc<dyn File> {
        let fault = self.fault;
        Arc::new(FaultyFile { inner, fault })
    }
}

#[derive(Debug)]
struct Admitted;

impl LockGuard for Admitted {}

impl Vfs for FaultyVfs {
    fn create_root(&self) -> IoResult<()> {
        self.inner.create_root()
    }
    fn open(&self, name: FileName, mode: OpenMode) -> IoResult<Arc<dyn File>> {
        let mode = match self.has(Fault::ReadersWrite) {
            true => OpenMode::ReadWrite,
            false => mode,
        };
        Ok(self.wrap(self.inner.open(name, mode)?))
    }
    fn create_new(&self, name: FileName) -> IoResult<Arc<dyn File>> {
        if self.has(Fault::CreateReplaces) {
            let _ = self.inner.unlink(name);
        }
        Ok(self.wrap(self.inner.create_new(name)?))
    }
    fn rename(&self, from: FileName, to: FileName) -> IoResult<()> {
        match self.has(Fault::RenameLoses) {
            true => self.inner.unlink(from),
            false => self.inner.rename(from, to),
        }
    }
    fn unlink(&self, name: FileName) -> IoResult<()> {
        if self.has(Fault::UnlinkEmpties) {
            self.inner.open(name, OpenMode::ReadWrite)?.set_len(0)?;
        }
        self.inner.unlink(name)
    }
    fn list(&self) -> IoResult<Listing> {
        let mut listing = self.inner.list()?;
        if self.has(Fault::ListReversed) {
            listing.names.reverse();
        }
        Ok(listing)
    }
    fn sync_dir(&self) -> IoResult<()> {
        self.inner.sync_dir()
    }
    fn try_lock(&self, mode: LockMode) -> IoResult<Box<dyn LockGuard>> {
        match self.has(Fault::LockAdmits) {
            true => Ok(Box::new(Admitted)),
            false => self.inner.try_lock(mode),
        }
    }
    fn free_space(&self) -> IoResult<u64> {
        self.inner.free_space()
    }
    fn descriptor_limit(&self) -> u64 {
        self.inner.descriptor_limit()
    }
    fn link_or_copy_to(&self, name: FileName, target: &dyn Vfs) -> IoResult<()> {
        self.inner.link_or_copy_to(name, target)?;
        match self.has(Fault::CopyCuts) {
            true => target.open(name, OpenMode::ReadWrite)?.set_len(256 * 1024),
            false => Ok(()),
        }
    }
    fn describe(&self) -> String {
        format!("(memory with {:?})", self.fault)
    }
    fn as_any(&self) -> &dyn std::any::Any {
        self
    }
}

#[derive(Debug)]
struct FaultyFile {
    inner: Arc<dyn File>,
    fault: Fault,
}

#[derive(Debug)]
struct Padded(Vec<u8>);

impl Map for Padded {
    fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl File for FaultyFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> IoResult<usize> {
        self.inner.read_at(buffer, offset)
    }
    fn write_at(&self, buffer: &[u8], offset: u64) -> IoResult<usize> {
        let shift = u64::from(self.fault == Fault::WriteShifts && offset > 0);
        self.inner.write_at(buffer, offset + shift)
    }
    fn sync_data(&self) -> IoResult<()> {
        self.inner.sync_data()
    }
    fn set_len(&self, length: u64) -> IoResult<()> {
        if self.fault == Fault::SetLenDirty && length > self.inner.len()? {
            self.inner.write_at(b"x", length - 1)?;
        }
        self.inner.set_len(length)
    }
    fn allocate(&self, length: u64) -> IoResult<()> {
        match self.fault {
            Fault::AllocateNothing => Ok(()),
            _ => self.inner.allocate(length),
        }
    }
    fn len(&self) -> IoResult<u64> {
        self.inner.len()
    }
    fn map(&self, length: u64) -> IoResult<Arc<dyn Map>> {
        if self.fault != Fault::MapPads {
            return self.inner.map(length);
        }
        let mut bytes = vec![0; usize::try_from(length).expect("small")];
        self.inner.read_at(&mut bytes, 0)?;
        Ok(Arc::new(Padded(bytes)))
    }
}

fn run(fault: Fault) -> Result<(), String> {
    let env = || Env {
        vfs: Arc::new(FaultyVfs {
            inner: MemoryVfs::new(),
            fault,
        }),
        ..Env::in_memory()
    };
    check(&env(), &env())
}

#[test]
fn every_planted_fault_is_named() {
    assert_eq!(run(Fault::None), Ok(()));
    for (fault, rule) in [
        (Fault::CreateReplaces, "names"),
        (Fault::RenameLoses, "replace"),
        (Fault::UnlinkEmpties, "unlink"),
        (Fault::ListReversed, "listing"),
        (Fault::WriteShifts, "transfers"),
        (Fault::SetLenDirty, "lengths"),
        (Fault::AllocateNothing, "allocate"),
        (Fault::ReadersWrite, "modes"),
        (Fault::LockAdmits, "locks"),
        (Fault::MapPads, "map"),
        (Fault::CopyCuts, "links"),
    ] {
        let violation = run(fault).expect_err("the suite lets a fault through");
        assert!(
            violation.starts_with(&format!("{rule}: ")),
            "{fault:?} was reported as {violation:?}"
        );
    }
}
