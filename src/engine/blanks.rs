//! What opening a generation takes from the heap, kept from those that have ended: the head and the lists of a
//! memtable, a handle, a version.
//!
//! A write opens a generation under the commit lock. With these it takes nothing from the heap there, like all
//! other writes. A memtable that retires is emptied and kept if no reader has it any more, so is the version
//! that another one replaces; a flush makes what is missing afterwards, so that the next opening finds a set
//! whatever readers hold.
//!
//! Invariants:
//! * A blank has no other holder (`Arc::get_mut`), when it is kept and when it is used. So nobody meets a
//!   memtable, handle or version that changes.
//! * A blank holds no bytes of the write region, no segment and no run. What it takes beside the books are the
//!   two lists of a memtable, which an open generation's permit counts: [`Memtable::blank_bytes`], once for each
//!   sealed generation that may wait and once more, and [`LISTS_BYTES_MAX`] at most. The lists grow with the write
//!   region, 0.3 bytes a KiB by default; beyond 3.4 GiB of it none are kept, and an opening takes its own.

use crate::engine::Engine;
use crate::engine::registry::Registry;
use crate::engine::version::{Generation, Runs, Version};
use crate::memtable::Memtable;
use crate::sync::{Arc, Mutex};

/// Versions that are kept: one for an opening and one for an installation.
const VERSIONS_MAX: usize = 2;

/// The most memtables and handles that are kept, whatever the options say.
const GENERATIONS_MAX: usize = 16;

/// The most that lists of memtables may take.
const LISTS_BYTES_MAX: u64 = 1 << 20;

/// What is kept.
#[derive(Debug)]
pub(crate) struct Blanks {
    kept: Mutex<Kept>,
    no_runs: Arc<Runs>,
    memtables_max: usize,
    generations_max: usize,
}

#[derive(Debug, Default)]
struct Kept {
    memtables: Vec<Arc<Memtable>>,
    generations: Vec<Arc<Generation>>,
    versions: Vec<Arc<Version>>,
}

impl Blanks {
    /// Nothing yet, for a store in which so many sealed generations may wait, and whose memtables have lists
    /// of so many bytes.
    pub fn new(queue_slots: u32, blank_bytes: u64) -> Self {
        let generations_max = (queue_slots as usize + 1).min(GENERATIONS_MAX);
        let fits = usize::try_from(LISTS_BYTES_MAX / blank_bytes.max(1)).unwrap_or(usize::MAX);
        Self {
            kept: Mutex::new(Kept {
                memtables: Vec::with_capacity(generations_max),
                generations: Vec::with_capacity(generations_max),
                versions: Vec::with_capacity(VERSIONS_MAX),
            }),
            no_runs: Arc::default(),
            memtables_max: generations_max.min(fits),
            generations_max,
        }
    }

    fn lacks(&self) -> [bool; 3] {
        let kept = self.kept.lock();
        [
            kept.memtables.is_empty() && self.memtables_max > 0,
            kept.generations.is_empty(),
            kept.versions.is_empty(),
        ]
    }

    fn keep_memtable(&self, memtable: Arc<Memtable>) {
        let mut kept = self.kept.lock();
        if kept.memtables.len() < self.memtables_max {
            kept.memtables.push(memtable);
        }
    }

    fn keep_generation(&self, generation: Arc<Generation>) {
        let mut kept = self.kept.lock();
        if kept.generations.len() < self.generations_max {
            kept.generations.push(generation);
        }
    }

    fn keep_version(&self, version: Arc<Version>) {
        let mut kept = self.kept.lock();
        if kept.versions.len() < VERSIONS_MAX {
            kept.versions.push(version);
        }
    }
}

impl Engine {
    /// An empty memtable's head and lists.
    pub fn blank_memtable(&self) -> Arc<Memtable> {
        let kept = self.blanks.kept.lock().memtables.pop();
        kept.unwrap_or_else(|| Memtable::blank(&self.region, &self.memtable_options(0)))
    }

    /// A handle that says nothing yet.
    pub fn blank_generation(&self) -> Arc<Generation> {
        let kept = self.blanks.kept.lock().generations.pop();
        kept.unwrap_or_default()
    }

    /// A version that names nothing yet.
    pub fn blank_version(&self) -> Arc<Version> {
        let kept = self.blanks.kept.lock().versions.pop();
        kept.unwrap_or_else(|| Arc::new(Version::with_room(self.blanks.no_runs.clone())))
    }

    /// Keeps what a retired generation leaves, if no reader has it.
    pub fn keep_retired(&self, memtable: Option<Arc<Memtable>>, mut handle: Arc<Generation>) {
        if let Some(mut memtable) = memtable
            && let Some(alone) = Arc::get_mut(&mut memtable)
        {
            alone.clear();
            self.blanks.keep_memtable(memtable);
        }
        if let Some(alone) = Arc::get_mut(&mut handle) {
            *alone = Generation::default();
            self.blanks.keep_generation(handle);
        }
    }

    /// Swaps the version. The caller holds the registry lock, which orders all changes. The old one is kept if
    /// no reader has it.
    pub fn set_version(&self, _registry: &Registry, version: Arc<Version>) {
        let mut before = self.version.swap(version);
        if let Some(alone) = Arc::get_mut(&mut before) {
            alone.clear(self.blanks.no_runs.clone());
            self.blanks.keep_version(before);
        }
    }

    /// Makes what the next opening of a generation would not find. Not under the commit lock.
    pub fn fill_blanks(&self) {
        let [memtable, generation, version] = self.blanks.lacks();
        if memtable {
            self.blanks.keep_memtable(self.blank_memtable());
        }
        if generation {
            self.blanks.keep_generation(Arc::default());
        }
        if version {
            self.blanks.keep_version(self.blank_version());
        }
    }
}
