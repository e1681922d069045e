//! Opening: lock, manifest, validation, recovery, and one atomic point.
//!
//! Everything that the old manifest names stays untouched until the new one, with the recovered logs
//! and segments and the next incarnation, has been renamed into place and the directory synced: that
//! rename is the moment of opening. A crash or failure before it leaves the store as it was, plus files
//! numbered at or above the manifest's next number, which the next open removes; so any number of
//! failed opens leaves the debris of one.
//!
//! After the rename the old logs are garbage, which jobs remove. A process that dies before they run, again
//! and again, must not fill the disk: an open that finds garbage removes it before it makes new files.
//! What was read may be in the page cache only, and an older manifest on the disk may still name what
//! this one dropped; so the manifest is written anew first.
//!
//! An open that is refused (lock, version, corruption, missing file) removes and writes nothing.

use std::collections::{BTreeSet, VecDeque};

use crate::engine::blanks::Blanks;
use crate::engine::commit::Leader;
use crate::engine::counters::Counters;
use crate::engine::filter_job::FilterSlot;
use crate::engine::filter_set::FilterSet;
use crate::engine::flush::FlushSlot;
use crate::engine::fold::FoldSlot;
use crate::engine::jobs::Maintenance;
use crate::engine::memtable_options;
use crate::engine::pressure::PressureState;
use crate::engine::recovery::Recovered;
use crate::engine::registry::Registry;
use crate::engine::residency::{FILTER_BITS_RESIDENT, Residency};
use crate::engine::scratch::ScratchPool;
use crate::engine::version::{Run, Runs, Version};
use crate::engine::worker::WorkSignal;
use crate::engine::{CommitState, Engine, Sizes, sizes};
use crate::env::{
    Env, FileKind, FileName, IoErrorKind, Listing, LockGuard, LockMode, OpenMode, io,
};
use crate::error::{Error, ErrorKind, Result};
use crate::log;
use crate::manifest::{self, LogEntry, ManifestState, ManifestWriter};
use crate::memory::{Owner, Region};
use crate::memtable::Memtable;
use crate::options::{ReadMode, Settings};
use crate::segment::{FileTable, PackedMeta, Segment, SegmentParameters};
use crate::stats::OpenReport;
use crate::sync::{
    Arc, ArcSwap, AtomicBool, AtomicU64, Mutex, OnceLock, Ordering, RwLock, Signal, StaticU64,
};
use crate::types::{HASH_BITS, Hasher, KeyspaceKind};
use crate::window::Window;

/// How far a file's number can be ahead of the manifest's next one. An opening that goes on adds to the
/// manifest with every few files that it makes, and one that fails makes few.
const NUMBERS_AHEAD_MAX: u64 = 1 << 32;

/// How many files may be mapped. Half of what the system allows is left to libraries, stacks and the
/// memory of filters.
fn mappings_max(env: &Env, settings: &Settings) -> u64 {
    match (settings.read_mode, u64::from(settings.mappings_max)) {
        (ReadMode::Pread, _) => 0,
        (ReadMode::Mmap, 0) => env.vfs.mapping_limit() / 2,
        (ReadMode::Mmap, most) => most.min(env.vfs.mapping_limit() / 2),
    }
}

/// Openings of this process so far: tells handles of one from those of another.
static OPENINGS: StaticU64 = StaticU64::new(1);

impl Engine {
    /// Opens or creates the store behind `env`.
    pub fn open(env: Env, settings: Settings) -> Result<Arc<Self>> {
        let sizes = sizes::of(&settings)?;
        let mode = if settings.read_only {
            LockMode::Shared
        } else {
            LockMode::Exclusive
        };
        let lock = take_lock(&env, settings.create, mode)?;
        let mut listing = list(&env)?;
        let (state, created, cut_bytes) = match manifest::read(&*env.vfs)? {
            Some(read) => (read.state, false, read.cut_bytes),
            None => (fresh_state(&env, &settings, &listing)?, true, 0),
        };
        check_fixed(&settings, &state)?;
        leave_out_foreign(&mut listing, state.next_number);
        validate(&env, &state, &listing)?;
        let mut engine = Self::idle(env, settings, sizes, &state, lock)?;
        engine.check_filter_budget()?;
        engine.report.created = created;
        engine.report.manifest_cut_bytes = cut_bytes;
        if engine.settings.read_only {
            engine.open_read_only(&state)?;
        } else {
            engine.open_for_writing(state, &listing)?;
        }
        Ok(Arc::new(engine))
    }

    /// Refuses a policy that the budget does not cover.
    fn check_filter_budget(&self) -> Result<()> {
        let residency = self.residency.lock();
        let limit = residency.configured_bytes();
        match residency.needed_bytes(&self.version.load()) {
            Some(needed) if needed > limit => {
                let detail = "filter_budget_bytes: filter_policy All needs room for every filter";
                Err(Error::new(
                    ErrorKind::TooLarge { needed, limit },
                    "open",
                    detail,
                ))
            }
            _ => Ok(()),
        }
    }

    /// The engine of `state` with nothing in memory yet.
    fn idle(
        env: Env,
        settings: Settings,
        sizes: Sizes,
        state: &ManifestState,
        lock: Box<dyn LockGuard>,
    ) -> Result<Self> {
        let hasher = Arc::new(state.hasher());
        let version = version_of(state, &hasher)?;
        let region = Region::new(settings.write_region_bytes, settings.chunk_bytes);
        let scratch = region.try_acquire(sizes.scratch_bytes, Owner::Scratch).ok();
        let memtables = memtable_options(&settings, &hasher, 0);
        let blank_bytes = Memtable::blank_bytes(&region, &memtables);
        let limit = match settings.descriptors_max {
            0 => env.vfs.descriptor_limit() / 4 * 3,
            most => u64::from(most),
        };
        let parameters = SegmentParameters {
            key_fence_bytes: settings.key_fence_bytes,
            keep_filter_bits: Some(FILTER_BITS_RESIDENT),
            ..SegmentParameters::new(*hasher)
        };
        let incarnation = if settings.read_only {
            state.incarnation
        } else {
            state.incarnation + 1
        };
        let plan_due = Arc::default();
        Ok(Self {
            hasher: hasher.clone(),
            family_id: state.family_id,
            store_id: state.store_id,
            incarnation,
            token: OPENINGS.fetch_add(1, Ordering::Relaxed),
            parameters,
            scan_region: Region::new(settings.scan_bytes, settings.chunk_bytes),
            files: Arc::new(
                FileTable::new(env.vfs.clone(), limit).with_mappings(mappings_max(&env, &settings)),
            ),
            leader: Mutex::new(Leader::new()),
            manifest: Mutex::new(None),
            flush: Mutex::new(FlushSlot::default()),
            fold: Mutex::new(FoldSlot::default()),
            commit: Mutex::new(CommitState {
                open: None,
                queue: VecDeque::new(),
                spares: VecDeque::new(),
                spare_failure: None,
                spares_missing: 0,
                next_generation: state.next_generation,
                issued: state.flushed_through,
                closing: false,
                turns: Default::default(),
                accepted: Default::default(),
            }),
            registry: Mutex::new(Registry::default()),
            window: Window::new(settings.window_bytes, sizes.segment_bytes),
            fill: Mutex::new(None),
            filters: Mutex::new(FilterSlot::default()),
            residency: Mutex::new(Residency::new(
                (settings.filter_policy, settings.filter_budget_bytes),
                settings.filter_sample_bits,
                version.runs.iter().any(|runs| !runs.is_empty()),
                Arc::clone(&plan_due),
            )),
            plan_due,
            maintenance: Mutex::new(Maintenance::default()),
            keyspaces: Mutex::new(
                state
                    .keyspaces
                    .iter()
                    .map(|entry| (entry.name.clone(), entry.clone()))
                    .collect(),
            ),
            version: ArcSwap::from_pointee(version),
            filter_set: ArcSwap::from_pointee(FilterSet::default()),
            issued: AtomicU64::new(state.flushed_through),
            visible: AtomicU64::new(state.flushed_through),
            durable: AtomicU64::new(state.flushed_through),
            retired_through: AtomicU64::new(state.flushed_through),
            next_number: AtomicU64::new(state.next_number),
            poison: OnceLock::new(),
            closed: AtomicBool::new(false),
            progress: Signal::new(),
            stepped: Signal::new(),
            work: Arc::new(WorkSignal::default()),
            pressure: PressureState::default(),
            scratch: ScratchPool::new(settings.write_region_bytes),
            blanks: Blanks::new(settings.queue_slots, blank_bytes),
            counters: Counters::default(),
            lock: Mutex::new(Some(lock)),
            gate: RwLock::new(()),
            creating: Mutex::new(()),
            report: OpenReport::default(),
            stored_logs: (0, 0),
            _scratch: scratch,
            region,
            sizes,
            settings,
            env,
        })
    }

    fn open_read_only(&mut self, state: &ManifestState) -> Result<()> {
        let recovered = self.recover(state)?;
        for log in &state.logs {
            let name = FileName::log(log.number);
            let bytes = io::uninterrupted(|| self.env.vfs.open(name, OpenMode::Read)?.len())
                .map_err(|cause| Error::io("open", name, cause))?;
            self.stored_logs.0 += 1;
            self.stored_logs.1 += bytes;
        }
        self.report.recovered_through = recovered.through;
        self.enter(recovered, state)
    }

    fn open_for_writing(&mut self, mut state: ManifestState, listing: &Listing) -> Result<()> {
        self.check_logs(&state)?;
        let first_free_number = state.next_number;
        let named: BTreeSet<_> = named_files(&state).collect();
        let highest = listing
            .names
            .iter()
            .map(|name| name.number)
            .max()
            .unwrap_or(0);
        self.next_number.fetch_max(highest + 1, Ordering::Relaxed);
        self.remove_debris(&state, listing, &named)?;
        let left = self.remove_garbage(&state, listing, &named)?;
        let recovered = self.recover(&state)?;
        let spares = self.settings.queue_slots as usize + 1 + usize::from(recovered.log.is_none());
        for _ in 0..spares {
            let spare = self.create_spare()?;
            let name = FileName::log(spare.number);
            io::uninterrupted(|| spare.file.sync_data())
                .map_err(|cause| Error::io("open", name, cause))?;
            self.commit.lock().spares.push_back(spare);
        }
        io::uninterrupted(|| self.env.vfs.sync_dir())
            .map_err(|cause| Error::io_dir("open", cause))?;
        self.next_state(&mut state, &recovered);
        // There is no store yet that could be poisoned: the open fails with what the system said.
        let writer =
            ManifestWriter::create(&*self.env.vfs, &state, self.settings.manifest_roll_bytes)
                .map_err(|error| match (error.kind(), error.cause(), error.file()) {
                    (ErrorKind::Poisoned, Some(cause), Some(file)) => {
                        Error::io("open", file, cause)
                    }
                    _ => error,
                })?;
        *self.manifest.lock() = Some(writer);
        // From here on the old logs, and whatever else no manifest names, are only garbage.
        let named: BTreeSet<_> = named_files(&state).collect();
        let dropped = |name: &FileName| {
            is_numbered(name) && name.number < first_free_number && !named.contains(name)
        };
        let old: Vec<_> = left.into_iter().filter(dropped).collect();
        self.maintenance.lock().unlinks.extend(&old);
        self.report.dropped_files = old.len() as u64;
        self.report.recovered_through = recovered.through;
        self.enter(recovered, &state)
    }

    /// Removes temporaries and the files of an open that did not come to its end.
    fn remove_debris(
        &self,
        state: &ManifestState,
        listing: &Listing,
        named: &BTreeSet<FileName>,
    ) -> Result<()> {
        for name in &listing.names {
            let debris = name.temporary
                || (is_numbered(name) && name.number >= state.next_number && !named.contains(name));
            if !debris {
                continue;
            }
            match io::uninterrupted(|| self.env.vfs.unlink(*name)) {
                Ok(()) => {}
                Err(cause) if cause.kind == IoErrorKind::NotFound => {}
                Err(cause) => return Err(Error::io("open", *name, cause)),
            }
        }
        Ok(())
    }

    /// Removes what earlier openings dropped and did not come to remove; what is left of the listing. Where
    /// there is no room to write the manifest anew, or a file can't be removed, jobs have to do it.
    fn remove_garbage(
        &self,
        state: &ManifestState,
        listing: &Listing,
        named: &BTreeSet<FileName>,
    ) -> Result<Vec<FileName>> {
        let is_garbage = |name: &FileName| {
            is_numbered(name) && name.number < state.next_number && !named.contains(name)
        };
        let mut left: Vec<_> = listing.names.clone();
        left.retain(|name| !name.temporary);
        if !left.iter().any(is_garbage) {
            return Ok(left);
        }
        match ManifestWriter::create(&*self.env.vfs, state, self.settings.manifest_roll_bytes) {
            Ok(_) => {}
            Err(error) if *error.kind() == ErrorKind::NoSpace => return Ok(left),
            Err(error) => return Err(error),
        }
        left.retain(|name| {
            let removed = is_garbage(name)
                && match io::uninterrupted(|| self.env.vfs.unlink(*name)) {
                    Ok(()) => true,
                    Err(cause) => cause.kind == IoErrorKind::NotFound,
                };
            !removed
        });
        Ok(left)
    }

    /// The state that the new manifest begins with.
    fn next_state(&self, state: &mut ManifestState, recovered: &Recovered) {
        state.incarnation = self.incarnation;
        state.clean_close = false;
        state.flushed_through = recovered.flushed_through;
        state.next_generation = recovered.next_generation;
        state
            .segments
            .extend(recovered.outputs.iter().map(|output| output.meta.pack()));
        state.logs.clear();
        if let Some(log) = &recovered.log {
            let mut entry = LogEntry::spare(log.number, self.incarnation);
            entry.durable_through = recovered.through;
            state.logs.push(entry);
        }
        for spare in &self.commit.lock().spares {
            state
                .logs
                .push(LogEntry::spare(spare.number, self.incarnation));
        }
        state.logs.sort_by_key(|log| log.number);
        state.segments.sort_by_key(PackedMeta::number);
        state.next_number = self.next_number.load(Ordering::Relaxed);
    }

    /// Makes what was recovered the current state.
    fn enter(&mut self, recovered: Recovered, state: &ManifestState) -> Result<()> {
        let mut version = version_of(state, &self.hasher)?;
        if self.settings.read_only {
            version.generations = recovered.sealed;
        }
        for output in recovered.outputs {
            // Named in the new state too, but here with what its build left in memory.
            let number = output.meta.number;
            let named = state.segment(number).cloned();
            let meta = named.unwrap_or_else(|| output.meta.pack());
            let hasher = self.hasher.clone();
            let segment = Arc::new(Segment::with_tail(meta, hasher, output.tail));
            let kind = output.meta.identity.kind.code();
            let runs = &mut Arc::make_mut(&mut version.runs)[usize::from(kind)];
            let same = |run: &Run| run.segments().iter().any(|other| other.number() == number);
            if let Some(place) = runs.iter().position(same) {
                runs[place] = Run::of_segment(segment.clone());
            }
            if let Some(filter) = output.filter {
                let residency = self.residency.get_mut();
                residency.admit(&version, &segment, Arc::new(filter), 0);
            }
        }
        {
            let commit = self.commit.get_mut();
            commit.issued = recovered.through;
            commit.next_generation = recovered.next_generation;
            if let Some(open) = recovered.open {
                commit.next_generation = open.handle.number + 1;
                version.generations.insert(0, open.handle.clone());
                commit.open = Some(open);
            }
        }
        if let Some(log) = recovered.log {
            *self.leader.get_mut() = log.leader();
        }
        self.version.store(Arc::new(version));
        self.publish_filters(&self.residency.lock());
        self.start_window();
        for counter in [&self.issued, &self.visible, &self.durable] {
            counter.store(recovered.through, Ordering::Release);
        }
        self.retired_through
            .store(recovered.flushed_through, Ordering::Release);
        Ok(())
    }
}

fn is_numbered(name: &FileName) -> bool {
    matches!(name.kind, FileKind::Log | FileKind::Segment | FileKind::Run)
}

/// A file with a number that this store can't have come to is not of it, whatever it is called: it
/// stays, and no number follows from it.
fn leave_out_foreign(listing: &mut Listing, next_number: u64) {
    let limit = next_number.saturating_add(NUMBERS_AHEAD_MAX);
    let all = listing.names.len();
    listing
        .names
        .retain(|name| !is_numbered(name) || name.number < limit);
    listing.foreign += (all - listing.names.len()) as u64;
}

/// The files that a manifest names.
pub(crate) fn named_files(state: &ManifestState) -> impl Iterator<Item = FileName> + '_ {
    let logs = state.logs.iter().map(|log| FileName::log(log.number));
    logs.chain(state.segments.iter().map(PackedMeta::name))
}

fn version_of(state: &ManifestState, hasher: &Arc<Hasher>) -> Result<Version> {
    let mut all = Runs::default();
    for kind in KeyspaceKind::ALL {
        let named = manifest::runs::of(state, kind)?;
        let runs = &mut all[usize::from(kind.code())];
        runs.reserve_exact(named.len());
        runs.extend(named.iter().map(|run| Run::of_named(run, kind, hasher)));
    }
    Ok(Version {
        runs: Arc::new(all),
        ..Version::default()
    })
}

pub(super) fn list(env: &Env) -> Result<Listing> {
    let mut listing = io::uninterrupted(|| env.vfs.list()).map_err(|cause| match cause.kind {
        IoErrorKind::NotFound => {
            Error::new(ErrorKind::NotAStore, "open", env.vfs.describe()).with_cause(cause)
        }
        _ => Error::io_dir("open", cause),
    })?;
    // Backends sort. What is removed first must not hang on one that forgot to.
    listing.names.sort_unstable();
    Ok(listing)
}

/// Takes the lock. A directory that is no store and is not to become one is left as it is.
pub(super) fn take_lock(env: &Env, create: bool, mode: LockMode) -> Result<Box<dyn LockGuard>> {
    if create {
        io::uninterrupted(|| env.vfs.create_root())
            .map_err(|cause| Error::io_dir("create", cause))?;
    } else {
        let listing = list(env)?;
        if !listing.names.contains(&FileName::MANIFEST) {
            return Err(no_manifest(env, holds_records(env, &listing)?));
        }
    }
    io::uninterrupted(|| env.vfs.try_lock(mode))
        .map_err(|cause| Error::io("open", FileName::LOCK, cause))
}

fn no_manifest(env: &Env, holds_records: bool) -> Error {
    if holds_records {
        let detail = format!(
            "{} holds files of a store but no manifest",
            env.vfs.describe()
        );
        return Error::new(ErrorKind::MissingFile, "open", detail).with_file(FileName::MANIFEST);
    }
    Error::new(ErrorKind::NotAStore, "open", env.vfs.describe())
}

/// Whether there is more than a creation that was cut off leaves behind: logs without a frame.
fn holds_records(env: &Env, listing: &Listing) -> Result<bool> {
    let numbered = |name: &&FileName| is_numbered(name) && !name.temporary;
    for name in listing.names.iter().filter(numbered) {
        let harmless = name.kind == FileKind::Log
            && log::probe(&*env.vfs, *name)?.is_none_or(|(_, has_frame)| !has_frame);
        if !harmless {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The state of a store that does not exist yet. What a creation that was cut off left behind is no
/// obstacle; anything else without a manifest is.
fn fresh_state(env: &Env, settings: &Settings, listing: &Listing) -> Result<ManifestState> {
    let holds_records = holds_records(env, listing)?;
    if holds_records || !settings.create {
        return Err(no_manifest(env, holds_records));
    }
    let mut store_id = [0; 16];
    let entropy = |buffer: &mut [u8]| {
        io::uninterrupted(|| env.entropy.fill(buffer))
            .map_err(|cause| Error::io_dir("create", cause))
    };
    entropy(&mut store_id)?;
    let mut family_seed = [0; 16];
    match settings.family_seed {
        Some(seed) => family_seed = seed,
        None => entropy(&mut family_seed)?,
    }
    Ok(ManifestState::new(
        u128::from_le_bytes(store_id),
        u128::from_le_bytes(family_seed),
        family_seed,
        settings.hash_bits.unwrap_or(HASH_BITS as u8),
    ))
}

/// What the options say of what creation fixed is what the store has. Options that say nothing fit every
/// store.
fn check_fixed(settings: &Settings, state: &ManifestState) -> Result<()> {
    let other = |name, stored: String, asked: String| {
        let kind = ErrorKind::IncompatibleOptions {
            name,
            stored,
            asked,
        };
        Err(Error::new(kind, "open", "").with_file(FileName::MANIFEST))
    };
    let hex = |seed: [u8; 16]| format!("{:032x}", u128::from_be_bytes(seed));
    match (settings.hash_bits, settings.family_seed) {
        (Some(bits), _) if bits != state.hash_bits => {
            other("hash_bits", state.hash_bits.to_string(), bits.to_string())
        }
        (_, Some(seed)) if seed != state.hash_seed => {
            other("family_seed", hex(state.hash_seed), hex(seed))
        }
        _ => Ok(()),
    }
}

/// Everything that the manifest names is there, and the listing holds no log that the manifest should
/// have named. Reads names only, and the heads of unnamed logs.
fn validate(env: &Env, state: &ManifestState, listing: &Listing) -> Result<()> {
    let present: BTreeSet<_> = listing.names.iter().copied().collect();
    if let Some(missing) = named_files(state).find(|name| !present.contains(name)) {
        let detail = "the manifest names it, the directory does not hold it";
        return Err(Error::new(ErrorKind::MissingFile, "open", detail).with_file(missing));
    }
    check_unnamed_logs(env, state, listing)
}

/// The listing holds no log with commits that the manifest should have named.
///
/// A log's number is taken behind the edit that the manifest's next number stands in, and the edit that
/// names the log moves that on. So an unnamed one at or above it, with a frame of this incarnation or an
/// earlier one, was named by an edit that is gone. One below was named and dropped: its removal waits, or
/// did not survive.
pub(super) fn check_unnamed_logs(
    env: &Env,
    state: &ManifestState,
    listing: &Listing,
) -> Result<()> {
    let unnamed = listing.names.iter().filter(|name| {
        name.kind == FileKind::Log && !name.temporary && name.number >= state.next_number
    });
    for name in unnamed {
        let Some((identity, has_frame)) = log::probe(&*env.vfs, *name)? else {
            continue;
        };
        let ours = identity.store_id == state.store_id && identity.incarnation <= state.incarnation;
        if ours && has_frame {
            let detail = format!("it does not name {name}, which holds commits: it lost an edit");
            return Err(Error::corruption("open", FileName::MANIFEST, 0, detail));
        }
    }
    Ok(())
}
