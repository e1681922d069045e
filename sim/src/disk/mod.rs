//! A disk that lies as real disks lie, in memory.
//!
//! [`SimDisk`] is a `Vfs`. Behind it stands a [`state::State`] (what processes see, what the device
//! has, what is in between), a gate that numbers mutating calls and can kill the process at each
//! (`core`), and a fault plan. [`SimDisk::restart`] ends the life: it builds the next life's disk from
//! what a [`Crash`] leaves and makes every handle of the old one dead.
//!
//! The rules it obeys are tested one by one in `tests/rules.rs`. What it does not model: several
//! processes, network file systems, several devices, reordering inside one call.

pub mod content;
mod core;
pub mod crash;
mod damage;
mod file;
pub mod inode;
pub mod state;
mod vfs;

use std::collections::BTreeMap;
use std::sync::Arc;

use sealstone::env::FileName;
use sealstone::sync::Mutex;

pub use self::core::{AimedCrash, CrashPoint, OpenFile, Place, Recorded};
pub use crash::{Crash, Keep, Order, Survivors};
pub use inode::{Strength, SyncFailure};

use self::core::Core;
use crate::faults::{Call, FaultPlan, Rule};

/// What kind of disk it is; stays over restarts unless changed.
#[derive(Clone, Copy, Debug)]
pub struct DiskOptions {
    /// Decides every detail that no rule or survivors' seed decides.
    pub seed: u64,
    /// Room for file data, in bytes.
    pub capacity_bytes: u64,
    /// Descriptors the process may hold.
    pub descriptors_max: u64,
    /// How unkind it is where a failing call leaves a choice.
    pub strength: Strength,
    /// Listings come in an order that this seed decides, another one each time. `None`: sorted, as backends
    /// promise; who gets by without that promise does not hang on a backend that sorts as text.
    pub listing_seed: Option<u64>,
    /// The drive's cache lies: no sync makes anything durable. Only to show what breaks.
    pub sync_is_a_lie: bool,
}

impl Default for DiskOptions {
    fn default() -> Self {
        Self {
            seed: 0,
            capacity_bytes: 1 << 40,
            descriptors_max: 1024,
            strength: Strength::Honest,
            listing_seed: None,
            sync_is_a_lie: false,
        }
    }
}

/// What a process that dies by a simulated panic throws.
#[derive(Clone, Copy, Debug)]
pub struct SimulatedPanic;

/// A simulated disk in one life of the machine. Clones are the same disk.
#[derive(Clone, Debug)]
pub struct SimDisk {
    core: Arc<Mutex<Core>>,
}

impl SimDisk {
    /// An empty disk; the store's directory does not exist yet.
    pub fn new(options: DiskOptions) -> Self {
        Self::from_state(state::State::default(), options)
    }

    /// A disk in a state that was saved.
    pub fn from_state(state: state::State, options: DiskOptions) -> Self {
        Self {
            core: Arc::new(Mutex::new(Core::new(state, options))),
        }
    }

    /// Ends this life and starts the next one on what the crash leaves. Every call on the old
    /// handles says `Crashed` from now on. Can be called again, to try another crash.
    pub fn restart(&self, crash: &Crash) -> Self {
        self.core.lock().dead = true;
        self.imagine(crash)
    }

    /// What [`SimDisk::restart`] would return, while this life goes on.
    pub fn imagine(&self, crash: &Crash) -> Self {
        let core = self.core.lock();
        let next = Self::from_state(core.state.after(crash), core.options);
        let mut new = next.core.lock();
        new.faults.add_hits(core.faults.hits());
        new.digest = core.digest;
        new.violations.clone_from(&core.violations);
        new.trace = core.trace.as_ref().map(|_| Vec::new());
        drop(new);
        next
    }

    /// The state now; shares its bytes.
    pub fn state(&self) -> state::State {
        self.core.lock().state.clone()
    }

    /// The options.
    pub fn options(&self) -> DiskOptions {
        self.core.lock().options
    }

    /// Changes the options.
    pub fn set_options(&self, change: impl FnOnce(&mut DiskOptions)) {
        change(&mut self.core.lock().options);
    }

    /// The process dies there.
    pub fn crash_at(&self, point: Option<CrashPoint>) {
        self.core.lock().crash_at = point;
    }

    /// The process dies at such a call.
    pub fn crash_on(&self, aimed: Option<AimedCrash>) {
        self.core.lock().crash_on = aimed;
    }

    /// Whether the process is dead.
    pub fn is_dead(&self) -> bool {
        self.core.lock().dead
    }

    /// Arms a fault.
    pub fn arm(&self, rule: Rule) {
        self.core.lock().faults.arm(rule);
    }

    /// Looks at or changes the fault plan.
    pub fn faults<T>(&self, with: impl FnOnce(&mut FaultPlan) -> T) -> T {
        with(&mut self.core.lock().faults)
    }

    /// From now on the state at every crash point is kept.
    pub fn start_recording(&self) {
        self.core.lock().recorder = Some(Vec::new());
    }

    /// Ends recording and returns the states in order.
    pub fn stop_recording(&self) -> Vec<Recorded> {
        self.core.lock().recorder.take().unwrap_or_default()
    }

    /// A number that recorded states carry from now on: how far the driver had come.
    pub fn set_mark(&self, mark: u64) {
        self.core.lock().mark = mark;
    }

    /// Keeps a line per call from now on.
    pub fn start_trace(&self) {
        self.core.lock().trace = Some(Vec::new());
    }

    /// The lines so far, which are forgotten here.
    pub fn take_trace(&self) -> Vec<String> {
        self.core
            .lock()
            .trace
            .as_mut()
            .map(std::mem::take)
            .unwrap_or_default()
    }

    /// Mutating calls so far in this life.
    pub fn mutations(&self) -> u64 {
        self.core.lock().mutations
    }

    /// Calls of a kind so far in this life.
    pub fn calls(&self, call: Call) -> u64 {
        self.core.lock().calls[call as usize]
    }

    /// Descriptors held now: open files and locks.
    pub fn descriptors(&self) -> u64 {
        self.core.lock().descriptors
    }

    /// Which files are open, and how often, under the names they were opened by.
    pub fn open_files(&self) -> BTreeMap<FileName, u32> {
        let mut files = BTreeMap::new();
        for open in &self.core.lock().open {
            *files.entry(open.name).or_default() += 1;
        }
        files
    }

    /// How many files there are, and the first of `names` that does not exist.
    pub fn look_up<'a>(
        &self,
        names: impl Iterator<Item = &'a FileName>,
    ) -> (usize, Option<&'a FileName>) {
        let core = self.core.lock();
        let live = core.state.names();
        let mut names = names;
        (live.len(), names.find(|name| !live.contains_key(name)))
    }

    /// Looks at the open files, in the order of their names, and at all descriptors.
    pub fn with_open_files<T>(&self, with: impl FnOnce(&[OpenFile], u64) -> T) -> T {
        let core = self.core.lock();
        with(&core.open, core.descriptors)
    }

    /// Whether there is a file of that name.
    pub fn exists(&self, name: FileName) -> bool {
        self.core.lock().state.find(name).is_some()
    }

    /// A digest of every call of this life and those before.
    pub fn digest(&self) -> u64 {
        self.core.lock().digest
    }

    /// What the process did that no store may do (cutting a mapped file, closing too often).
    pub fn violations(&self) -> Vec<String> {
        self.core.lock().violations.clone()
    }

    /// The bytes of every file as a process sees them.
    pub fn live_files(&self) -> BTreeMap<FileName, Vec<u8>> {
        let core = self.core.lock();
        let files = core.state.names().iter();
        files
            .map(|(name, id)| (*name, core.state.inode(*id).live.flat()))
            .collect()
    }

    /// A digest of the names and bytes of all files, as a process sees them and as the device has them.
    pub fn content_digest(&self) -> u64 {
        let mut digest = 0u64;
        for (name, bytes) in self.live_files().iter().chain(&self.durable_files()) {
            let crc = crc32c::crc32c_append(crc32c::crc32c(name.to_string().as_bytes()), bytes);
            digest = (digest ^ u64::from(crc))
                .wrapping_mul(0x9FB2_1C65_1E98_DF25)
                .rotate_left(29);
        }
        digest
    }

    /// The bytes of every file that are certain to survive.
    pub fn durable_files(&self) -> BTreeMap<FileName, Vec<u8>> {
        let core = self.core.lock();
        let files = core.state.durable_names().iter();
        files
            .map(|(name, id)| (*name, core.state.inode(*id).durable.flat()))
            .collect()
    }
}
