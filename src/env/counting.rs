//! A wrapper that counts what the engine asks of its [`Env`]: the unit of every figure on reads and
//! barriers, equal on any disk.
//!
//! A call counts when it is made, whether it succeeds or not; bytes count when they were moved. Each
//! request of `read_many` is one read. A copy made by `link_or_copy_to` is one link here: its reads
//! happen below the wrapper (its writes count where the target is wrapped).

use super::{
    Advice, Env, File, FileKind, FileName, IoResult, Listing, LockGuard, LockMode, Map, OpenMode,
    ReadRequest, Vfs,
};
use crate::sync::{Arc, AtomicU64, Ordering};

/// The number of [`FileKind`]s.
const KINDS: usize = FileKind::Run as usize + 1;

/// Defines the counters of one file kind and their plain form from one list of names.
macro_rules! kind_counters {
    ($($(#[$doc:meta])* $name:ident,)+) => {
        #[derive(Debug, Default)]
        struct KindCounters { $($name: AtomicU64,)+ }

        /// What was asked of the files of one kind.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct KindCounts { $($(#[$doc])* pub $name: u64,)+ }

        impl KindCounters {
            fn snapshot(&self) -> KindCounts {
                KindCounts { $($name: self.$name.load(Ordering::Relaxed),)+ }
            }
        }

        impl std::ops::Sub for KindCounts {
            type Output = Self;
            fn sub(self, earlier: Self) -> Self {
                Self { $($name: self.$name.wrapping_sub(earlier.$name),)+ }
            }
        }

        impl std::ops::Add for KindCounts {
            type Output = Self;
            fn add(self, other: Self) -> Self {
                Self { $($name: self.$name.wrapping_add(other.$name),)+ }
            }
        }
    };
}

kind_counters! {
    /// Opened existing files.
    opens,
    /// Created files.
    creates,
    /// Reads.
    reads,
    /// Bytes that reads gave.
    read_bytes,
    /// Writes.
    writes,
    /// Bytes that writes took.
    written_bytes,
    /// Barriers on files.
    sync_data,
    /// Renames, by the kind of the new name.
    renames,
    /// Removed names.
    unlinks,
    /// Allocations of space ahead.
    allocates,
    /// Lengths set.
    set_lens,
    /// Lengths asked for.
    lens,
    /// Mappings made.
    maps,
    /// Accesses to mappings: no call of the system, so they are no reads.
    mapped_reads,
    /// Bytes of those accesses.
    mapped_bytes,
    /// Links (or copies) into another directory.
    links,
}

/// The counters behind a [`CountingVfs`].
#[derive(Debug, Default)]
pub struct Counters {
    kinds: [KindCounters; KINDS],
    sync_dir: AtomicU64,
    list: AtomicU64,
}

impl Counters {
    /// What was asked so far. Subtract an earlier one to see what happened between.
    pub fn snapshot(&self) -> Counts {
        Counts {
            kinds: std::array::from_fn(|kind| self.kinds[kind].snapshot()),
            sync_dir: self.sync_dir.load(Ordering::Relaxed),
            list: self.list.load(Ordering::Relaxed),
        }
    }

    fn of(&self, name: FileName) -> &KindCounters {
        &self.kinds[name.kind as usize]
    }
}

/// Counts at a moment, or the difference of two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    kinds: [KindCounts; KINDS],
    /// Barriers on the directory.
    pub sync_dir: u64,
    /// Listings of the directory.
    pub list: u64,
}

impl Counts {
    /// The files of one kind, temporaries among them.
    pub fn of(&self, kind: FileKind) -> KindCounts {
        self.kinds[kind as usize]
    }

    /// All kinds together.
    pub fn total(&self) -> KindCounts {
        self.kinds
            .iter()
            .fold(KindCounts::default(), |sum, kind| sum + *kind)
    }

    /// Barriers of both sorts.
    pub fn barriers(&self) -> u64 {
        self.total().sync_data + self.sync_dir
    }
}

impl std::ops::Sub for Counts {
    type Output = Self;
    fn sub(self, earlier: Self) -> Self {
        Self {
            kinds: std::array::from_fn(|kind| self.kinds[kind] - earlier.kinds[kind]),
            sync_dir: self.sync_dir.wrapping_sub(earlier.sync_dir),
            list: self.list.wrapping_sub(earlier.list),
        }
    }
}

impl Env {
    /// The same environment with everything that is asked of its directory counted.
    pub fn counting(self) -> (Self, Arc<Counters>) {
        let counters = Arc::new(Counters::default());
        let vfs = CountingVfs::new(self.vfs, Arc::clone(&counters));
        let env = Self {
            vfs: Arc::new(vfs),
            ..self
        };
        (env, counters)
    }
}

/// One more of `counter`. The counters are independent, so no order among them is promised.
fn count(counter: &AtomicU64) {
    add(counter, 1);
}

fn add(counter: &AtomicU64, amount: u64) {
    counter.fetch_add(amount, Ordering::Relaxed);
}

/// A [`Vfs`] that counts and passes on.
#[derive(Debug)]
pub struct CountingVfs {
    inner: Arc<dyn Vfs>,
    counters: Arc<Counters>,
}

impl CountingVfs {
    /// Counts what is asked of `inner` in `counters`.
    pub fn new(inner: Arc<dyn Vfs>, counters: Arc<Counters>) -> Self {
        Self { inner, counters }
    }

    fn wrap(&self, inner: Arc<dyn File>, name: FileName) -> Arc<dyn File> {
        Arc::new(CountingFile {
            inner,
            name,
            counters: Arc::clone(&self.counters),
        })
    }
}

impl Vfs for CountingVfs {
    fn create_root(&self) -> IoResult<()> {
        self.inner.create_root()
    }

    fn open(&self, name: FileName, mode: OpenMode) -> IoResult<Arc<dyn File>> {
        count(&self.counters.of(name).opens);
        Ok(self.wrap(self.inner.open(name, mode)?, name))
    }

    fn create_new(&self, name: FileName) -> IoResult<Arc<dyn File>> {
        count(&self.counters.of(name).creates);
        Ok(self.wrap(self.inner.create_new(name)?, name))
    }

    fn rename(&self, from: FileName, to: FileName) -> IoResult<()> {
        count(&self.counters.of(to).renames);
        self.inner.rename(from, to)
    }

    fn unlink(&self, name: FileName) -> IoResult<()> {
        count(&self.counters.of(name).unlinks);
        self.inner.unlink(name)
    }

    fn list(&self) -> IoResult<Listing> {
        count(&self.counters.list);
        self.inner.list()
    }

    fn sync_dir(&self) -> IoResult<()> {
        count(&self.counters.sync_dir);
        self.inner.sync_dir()
    }

    fn try_lock(&self, mode: LockMode) -> IoResult<Box<dyn LockGuard>> {
        self.inner.try_lock(mode)
    }

    fn free_space(&self) -> IoResult<u64> {
        self.inner.free_space()
    }

    fn descriptor_limit(&self) -> u64 {
        self.inner.descriptor_limit()
    }

    fn mapping_limit(&self) -> u64 {
        self.inner.mapping_limit()
    }

    fn link_or_copy_to(&self, name: FileName, target: &dyn Vfs) -> IoResult<()> {
        count(&self.counters.of(name).links);
        self.inner.link_or_copy_to(name, target)
    }

    fn describe(&self) -> String {
        self.inner.describe()
    }

    fn as_any(&self) -> &dyn std::any::Any {
        self.inner.as_any()
    }
}

#[derive(Debug)]
struct CountingFile {
    inner: Arc<dyn File>,
    name: FileName,
    counters: Arc<Counters>,
}

impl CountingFile {
    fn counters(&self) -> &KindCounters {
        self.counters.of(self.name)
    }
}

impl File for CountingFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> IoResult<usize> {
        count(&self.counters().reads);
        let read = self.inner.read_at(buffer, offset)?;
        add(&self.counters().read_bytes, read as u64);
        Ok(read)
    }

    fn write_at(&self, buffer: &[u8], offset: u64) -> IoResult<usize> {
        count(&self.counters().writes);
        let written = self.inner.write_at(buffer, offset)?;
        add(&self.counters().written_bytes, written as u64);
        Ok(written)
    }

    fn read_many(&self, requests: &mut [ReadRequest<'_>]) {
        add(&self.counters().reads, requests.len() as u64);
        self.inner.read_many(requests);
        let read = requests.iter().filter_map(|request| request.result.ok());
        add(&self.counters().read_bytes, read.sum::<usize>() as u64);
    }

    fn advise(&self, advice: Advice, offset: u64, length: u64) {
        self.inner.advise(advice, offset, length);
    }

    fn sync_data(&self) -> IoResult<()> {
        count(&self.counters().sync_data);
        self.inner.sync_data()
    }

    fn set_len(&self, length: u64) -> IoResult<()> {
        count(&self.counters().set_lens);
        self.inner.set_len(length)
    }

    fn allocate(&self, length: u64) -> IoResult<()> {
        count(&self.counters().allocates);
        self.inner.allocate(length)
    }

    fn len(&self) -> IoResult<u64> {
        count(&self.counters().lens);
        self.inner.len()
    }

    fn map(&self, length: u64) -> IoResult<Arc<dyn Map>> {
        count(&self.counters().maps);
        Ok(Arc::new(CountingMap {
            inner: self.inner.map(length)?,
            name: self.name,
            counters: Arc::clone(&self.counters),
        }))
    }
}

#[derive(Debug)]
struct CountingMap {
    inner: Arc<dyn Map>,
    name: FileName,
    counters: Arc<Counters>,
}

impl Map for CountingMap {
    fn bytes(&self) -> &[u8] {
        self.inner.bytes()
    }

    fn access(&self, offset: u64, length: usize) -> Option<&[u8]> {
        let counters = self.counters.of(self.name);
        count(&counters.mapped_reads);
        let bytes = self.inner.access(offset, length)?;
        add(&counters.mapped_bytes, bytes.len() as u64);
        Some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::{IoError, IoErrorKind};

    #[test]
    fn each_call_counts_once_with_its_kind() {
        let (env, counters) = Env::in_memory().counting();
        let vfs = &env.vfs;
        vfs.create_root().expect("creates");
        let before = counters.snapshot();
        let temporary = FileName::MANIFEST_TEMPORARY;
        let file = vfs.create_new(temporary).expect("creates");
        file.allocate(100).expect("allocates");
        file.write_at(&[7; 30], 0).expect("writes");
        file.set_len(40).expect("sets the length");
        file.sync_data().expect("syncs");
        vfs.rename(temporary, FileName::MANIFEST).expect("renames");
        vfs.sync_dir().expect("syncs");
        vfs.list().expect("lists");
        let middle = counters.snapshot();
        let file = vfs.open(FileName::MANIFEST, OpenMode::Read).expect("opens");
        file.read_at(&mut [0; 50], 10).expect("reads");
        let mut requests = [0, 39, 40].map(|offset| ReadRequest {
            offset,
            buffer: Box::leak(Box::new([0; 4])),
            result: Ok(0),
        });
        file.read_many(&mut requests);
        assert_eq!(file.len(), Ok(40));
        let map = file.map(40).expect("maps");
        assert_eq!(map.access(10, 30).map(<[u8]>::len), Some(30));
        assert_eq!(map.access(10, 31), None);
        assert_eq!(map.bytes().len(), 40);
        vfs.unlink(FileName::MANIFEST).expect("removes");
        let after = counters.snapshot();

        let written = KindCounts {
            creates: 1,
            writes: 1,
            written_bytes: 30,
            sync_data: 1,
            renames: 1,
            allocates: 1,
            set_lens: 1,
            ..KindCounts::default()
        };
        let first = middle - before;
        assert_eq!(first.of(FileKind::Manifest), written);
        assert_eq!((first.sync_dir, first.list, first.barriers()), (1, 1, 2));
        let read = KindCounts {
            opens: 1,
            reads: 4,
            read_bytes: 30 + 4 + 1,
            unlinks: 1,
            lens: 1,
            maps: 1,
            mapped_reads: 2,
            mapped_bytes: 30,
            ..KindCounts::default()
        };
        let second = after - middle;
        assert_eq!(second.of(FileKind::Manifest), read);
        assert_eq!(second.total(), read);
        assert_eq!(second.barriers(), 0);
    }

    #[test]
    fn a_failed_call_counts_and_moves_no_bytes() {
        let (env, counters) = Env::in_memory().counting();
        env.vfs.create_root().expect("creates");
        let missing = env.vfs.open(FileName::segment(1), OpenMode::Read);
        assert_eq!(missing.map(drop), Err(IoError::new(IoErrorKind::NotFound)));
        let file = env.vfs.create_new(FileName::log(1)).expect("creates");
        drop(file);
        let file = env
            .vfs
            .open(FileName::log(1), OpenMode::Read)
            .expect("opens");
        file.write_at(b"refused", 0).expect_err("read only");
        let counts = counters.snapshot();
        assert_eq!(counts.of(FileKind::Segment).opens, 1);
        let log = counts.of(FileKind::Log);
        assert_eq!((log.writes, log.written_bytes), (1, 0));
        assert_eq!(counts.total().opens, 2);
    }

    #[test]
    fn a_link_counts_here_and_a_copy_there() {
        let (source, source_counters) = Env::in_memory().counting();
        let (target, target_counters) = Env::in_memory().counting();
        source.vfs.create_root().expect("creates");
        target.vfs.create_root().expect("creates");
        let name = FileName::segment(3);
        let file = source.vfs.create_new(name).expect("creates");
        file.write_at(b"sealed", 0).expect("writes");
        source
            .vfs
            .link_or_copy_to(name, target.vfs.as_ref())
            .expect("copies");
        let here = source_counters.snapshot().total();
        assert_eq!((here.links, here.reads), (1, 0));
        let there = target_counters.snapshot().total();
        assert_eq!(
            (there.creates, there.written_bytes, there.sync_data),
            (1, 6, 1)
        );
    }
}
