//! Open sealed files, under a cap on descriptors.
//!
//! Each segment has a [`FileSlot`]; the file in it is opened when first needed, or before
//! ([`FileTable::open_ahead`]), and stays open until the cap, or the system, asks for its descriptor. Whoever reads holds a guard of the slot, or an `Arc` of
//! the file: that is the pin. A pinned file is never closed.
//!
//! An open file costs a lookup no lock: the slot's pointer is loaded under a guard. To see whether somebody
//! has it pinned, a sweep takes the pointer out, which turns guards into counts, and puts it back if it is not
//! alone. A reader that comes in between finds the slot empty and waits for its lock.
//!
//! Least recently used is approximated by second chance (Corbato 1968): a use sets a mark in the
//! open file, a sweep closes the first unpinned file whose mark is clear and clears those it passes. A
//! strict list would put one write shared by all readers on every lookup.
//!
//! A table that was given mappings maps a file when it opens it ([`FileTable::with_mappings`]). The
//! mapping goes with the file: one slot and one sweep for both. Only the record that a lookup shows keeps its
//! mapping alone, without the descriptor, to the end of the lookup: so mapped lookups pin no more files than
//! others do. The descriptor is kept beside it,
//! because only lookups read through the mapping. Scans, filter loads, folds and verification read a file
//! from front to back in large pieces: a call for each piece costs them little, faults for each page more,
//! and they get errors where a mapping gets SIGBUS.
//!
//! Invariants:
//! * `open_count` counts exactly the descriptors that exist: up before an open, down when it failed or
//!   when the last holder lets go.
//! * It exceeds the cap only while every open file is pinned, by at most the number of readers. A
//!   reader that can't wait gets its descriptor then, and it is closed by the next open.
//! * At most `mapping_cap` mappings exist, and `mapping_count` counts them; for a moment also a file that
//!   then finds no room, or can't be mapped, and is opened without.
//! * A slot's pointer is changed under its lock only.
//! * Locks: a slot, then the table. A sweep holds the table and only tries slots; a slot whose lock is
//!   held counts as pinned. So no two threads wait for each other.
//! * The table names the owners of slots weakly: one that is gone has closed its file.

use std::collections::BTreeMap;
use std::ops::Bound;

use crate::env::io::uninterrupted;
use crate::env::{File, FileName, IoErrorKind, IoResult, Map, OpenMode, Vfs};
use crate::error::{Error, Result};
use crate::segment::ReadCounts;
use crate::sync::{Arc, ArcSwapOption, AtomicBool, AtomicU64, Guard, Mutex, Ordering, Weak};

/// An open file. Dropping the last holder closes it.
#[derive(Debug)]
pub struct OpenFile {
    mapping: Option<Arc<Mapping>>,
    file: Arc<dyn File>,
    /// Somebody read it since a sweep came by.
    used: AtomicBool,
    /// Behind `file`, so that the descriptor is gone before it is no longer counted.
    _counted: Counted,
}

impl OpenFile {
    /// The file.
    pub fn file(&self) -> &dyn File {
        &*self.file
    }

    /// Its mapping, of the length that the manifest says, if it has one.
    #[inline]
    pub fn mapping(&self) -> Option<&Arc<Mapping>> {
        self.mapping.as_ref()
    }
}

/// The mapping of a file. Dropping the last holder unmaps it; its descriptor may be gone before.
#[derive(Debug)]
pub struct Mapping {
    map: Arc<dyn Map>,
    /// Behind `map`, as above.
    _counted: Counted,
}

impl Mapping {
    /// The mapped bytes.
    #[inline]
    pub fn map(&self) -> &dyn Map {
        &*self.map
    }
}

/// One descriptor, or one mapping, in the count.
#[derive(Debug)]
struct Counted(Arc<AtomicU64>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The place of a file that may be open, inside of what reads it.
#[derive(Debug)]
pub struct FileSlot {
    open: ArcSwapOption<OpenFile>,
    /// Held by whoever changes `open`.
    changes: Mutex<()>,
}

/// What has a slot.
pub trait Slotted: std::fmt::Debug + Send + Sync {
    /// The slot.
    fn slot(&self) -> &FileSlot;
    /// The file's name.
    fn name(&self) -> FileName;
    /// The file's length as the manifest says: so much is mapped.
    fn file_bytes(&self) -> u64;
}

impl Default for FileSlot {
    fn default() -> Self {
        Self {
            open: ArcSwapOption::empty(),
            changes: Mutex::new(()),
        }
    }
}

impl FileSlot {
    /// The file, if it is open. What is lent pins it.
    #[inline]
    pub fn used(&self) -> Guard<Option<Arc<OpenFile>>> {
        let open = self.open.load();
        if let Some(file) = &*open
            && !file.used.load(Ordering::Relaxed)
        {
            file.used.store(true, Ordering::Relaxed);
        }
        open
    }

    /// Whether the file is open.
    pub fn is_open(&self) -> bool {
        self.open.load().is_some()
    }

    /// Whether the file was read since this was asked last.
    fn was_used(&self) -> bool {
        let open = self.open.load();
        open.as_ref()
            .is_some_and(|file| file.used.swap(false, Ordering::Relaxed))
    }

    /// Empties the slot if nobody reads its file.
    fn close_unpinned(&self) -> Option<Arc<OpenFile>> {
        let _changes = self.changes.try_lock()?;
        let file = self.open.swap(None)?;
        // Nobody finds it any more, so a count of one stays one.
        if Arc::strong_count(&file) == 1 {
            return Some(file);
        }
        self.open.store(Some(file));
        None
    }

    /// Empties the slot.
    fn close(&self) {
        let _changes = self.changes.lock();
        drop(self.open.swap(None));
    }
}

#[derive(Debug, Default)]
struct Ring {
    owners: BTreeMap<FileName, Weak<dyn Slotted>>,
    /// The name last looked at by a sweep.
    hand: Option<FileName>,
}

/// Opens files and closes idle ones.
#[derive(Debug)]
pub struct FileTable {
    vfs: Arc<dyn Vfs>,
    cap: u64,
    count: Arc<AtomicU64>,
    opens: AtomicU64,
    mapping_cap: u64,
    mapping_count: Arc<AtomicU64>,
    ring: Mutex<Ring>,
}

impl FileTable {
    /// A table over `vfs` that keeps at most `cap` descriptors (at least one).
    pub fn new(vfs: Arc<dyn Vfs>, cap: u64) -> Self {
        Self {
            vfs,
            cap: cap.max(1),
            count: Arc::new(AtomicU64::new(0)),
            opens: AtomicU64::new(0),
            mapping_cap: 0,
            mapping_count: Arc::new(AtomicU64::new(0)),
            ring: Mutex::new(Ring::default()),
        }
    }

    /// The same table, with at most `cap` of its files mapped.
    #[must_use]
    pub fn with_mappings(self, cap: u64) -> Self {
        Self {
            mapping_cap: cap,
            ..self
        }
    }

    /// Mappings that exist now.
    pub fn mapping_count(&self) -> u64 {
        self.mapping_count.load(Ordering::Relaxed)
    }

    /// The cap.
    pub const fn cap(&self) -> u64 {
        self.cap
    }

    /// Descriptors that exist now.
    pub fn open_count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// How often a file was opened so far.
    pub fn opens(&self) -> u64 {
        self.opens.load(Ordering::Relaxed)
    }

    /// The file of a slot, opened if it is not. Holding the result keeps it open. `MissingFile` if it
    /// does not exist, `TooManyOpenFiles` if the system gives no descriptor even after an idle one was
    /// closed.
    pub fn open<S: Slotted + 'static>(
        &self,
        owner: &Arc<S>,
        counts: &mut ReadCounts,
    ) -> Result<Arc<OpenFile>> {
        let slot = owner.slot();
        if let Some(file) = &*slot.used() {
            return Ok(file.clone());
        }
        let _changes = slot.changes.lock();
        if let Some(file) = slot.open.load_full() {
            return Ok(file);
        }
        let counted = self.reserve();
        let file = self.spare_one_for(|| self.open_file(owner.name()));
        let file = file.map_err(|cause| Error::io("open segment", owner.name(), cause))?;
        counts.opens += 1;
        Ok(self.enter(owner, file, counted, true))
    }

    /// Opens a new segment's file before anybody reads it, so that who does takes nothing from the heap. No
    /// other file is closed for it, and it is the first that a sweep closes. If it can't be opened its
    /// first reader tries again, and gets the error.
    pub fn open_ahead<S: Slotted + 'static>(&self, owner: &Arc<S>) {
        let slot = owner.slot();
        let _changes = slot.changes.lock();
        if slot.is_open() {
            return;
        }
        let Some(counted) = self.reserve_free() else {
            return;
        };
        if let Ok(file) = self.open_file(owner.name()) {
            self.enter(owner, file, counted, false);
        }
    }

    /// Puts an open file into its slot, whose lock the caller has.
    fn enter<S: Slotted + 'static>(
        &self,
        owner: &Arc<S>,
        file: Arc<dyn File>,
        counted: Counted,
        used: bool,
    ) -> Arc<OpenFile> {
        let file = Arc::new(OpenFile {
            mapping: self.map(&*file, owner.file_bytes()),
            file,
            used: AtomicBool::new(used),
            _counted: counted,
        });
        let slot = owner.slot();
        slot.open.store(Some(file.clone()));
        let own: Arc<dyn Slotted> = owner.clone();
        let name = own.name();
        let before = self.ring.lock().owners.insert(name, Arc::downgrade(&own));
        let before = before.and_then(|before| before.upgrade());
        if let Some(before) = before.filter(|before| !std::ptr::eq(before.slot(), slot)) {
            // Two slots of one name: the table keeps the newer one's file.
            drop(before.slot().close_unpinned());
        }
        file
    }

    /// Runs a call that takes a descriptor of another kind. If the system has none left, an idle one is
    /// closed and the call made once more.
    pub fn spare_one_for<T>(&self, mut call: impl FnMut() -> IoResult<T>) -> IoResult<T> {
        match call() {
            Err(error) if error.kind == IoErrorKind::TooManyOpenFiles => {
                let closed = self.close_one(&mut self.ring.lock());
                if closed { call() } else { Err(error) }
            }
            result => result,
        }
    }

    /// Forgets a file whose name is gone: its descriptor is closed now, or when its last reader is
    /// done.
    pub fn invalidate(&self, name: FileName) {
        let owner = self.ring.lock().owners.remove(&name);
        if let Some(owner) = owner.and_then(|owner| owner.upgrade()) {
            owner.slot().close();
        }
    }

    /// Closes every idle file.
    pub fn close_idle(&self) {
        while self.close_one(&mut self.ring.lock()) {}
    }

    fn open_file(&self, name: FileName) -> IoResult<Arc<dyn File>> {
        let file = uninterrupted(|| self.vfs.open(name, OpenMode::Read))?;
        self.opens.fetch_add(1, Ordering::Relaxed);
        Ok(file)
    }

    /// Maps a file, if it may and can be. A file that is too short is not mapped: reading it by calls
    /// says what is wrong with it.
    fn map(&self, file: &dyn File, bytes: u64) -> Option<Arc<Mapping>> {
        if self.mapping_cap == 0 {
            return None;
        }
        let before = self.mapping_count.fetch_add(1, Ordering::Relaxed);
        let counted = Counted(self.mapping_count.clone());
        if before >= self.mapping_cap {
            return None;
        }
        let map = uninterrupted(|| self.vfs.map(file, bytes)).ok()?;
        let mapping = Mapping {
            map,
            _counted: counted,
        };
        (mapping.map().bytes().len() as u64 == bytes).then(|| Arc::new(mapping))
    }

    /// Counts one more descriptor, after closing idle ones while the cap is reached.
    fn reserve(&self) -> Counted {
        let mut ring = self.ring.lock();
        while self.open_count() >= self.cap && self.close_one(&mut ring) {}
        self.count.fetch_add(1, Ordering::Relaxed);
        Counted(self.count.clone())
    }

    /// Counts one more descriptor, unless the cap is reached.
    fn reserve_free(&self) -> Option<Counted> {
        // Counted up under this lock only.
        let _ring = self.ring.lock();
        if self.open_count() >= self.cap {
            return None;
        }
        self.count.fetch_add(1, Ordering::Relaxed);
        Some(Counted(self.count.clone()))
    }

    /// Closes one unpinned file, by second chance; `false` if all are pinned.
    fn close_one(&self, ring: &mut Ring) -> bool {
        // Two rounds: the first may only clear marks.
        for _ in 0..ring.owners.len() * 2 {
            let after = ring.hand.map_or(Bound::Unbounded, Bound::Excluded);
            let next = ring.owners.range((after, Bound::Unbounded)).next();
            let Some((name, owner)) = next.or_else(|| ring.owners.first_key_value()) else {
                return false;
            };
            let (name, owner) = (*name, owner.upgrade());
            ring.hand = Some(name);
            let Some(owner) = owner else {
                ring.owners.remove(&name);
                continue;
            };
            let slot = owner.slot();
            if slot.was_used() {
                continue;
            }
            if let Some(file) = slot.close_unpinned() {
                ring.owners.remove(&name);
                drop(file);
                return true;
            }
        }
        false
    }
}
