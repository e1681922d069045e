//! sealstone itself as the subject of the runners, through its public face only.

use std::cell::Cell;
use std::ops::Range;

use sealstone::env::{Env, FileKind, FileName, PressureLevel};
use sealstone::segment::Footer;
use sealstone::segment::layout::FilterSection;
use sealstone::types::KeyspaceKind;
use sealstone::{
    Audit, Batch, Durability, Error, ErrorKind, FilterPolicy, Fold, Iter, Job, Keyspace,
    KeyspaceOptions, Options, ReadMode, Snapshot, Stats, Store, Ticket, Value,
};

use crate::choices::{Choices, Purpose};
use crate::disk::SimDisk;
use crate::model::Op;
use crate::plan;
use crate::subject::{Answer, Figures, Item, Stop, StopKind, Subject};

/// A store with its keyspaces.
pub struct SimStore {
    store: Store,
    keyspaces: Vec<Keyspace>,
    wide_hash: bool,
    /// Readers' bounds and scan memory in the last audit.
    readers: Cell<(usize, u64)>,
    /// Whether the newest file, at the last audit, was the index of a folded run.
    folded: Cell<bool>,
}

const KEYSPACES: [(&str, KeyspaceKind); 2] = [
    ("blocks", KeyspaceKind::WriteOnce),
    ("names", KeyspaceKind::Mutable),
];

fn durability(synced: bool) -> Durability {
    if synced {
        Durability::Synced
    } else {
        Durability::Buffered
    }
}

fn stop(error: Error) -> Stop {
    let kind = match error.kind() {
        ErrorKind::Conflict => StopKind::Conflict,
        ErrorKind::Busy { .. } | ErrorKind::TooLarge { .. } | ErrorKind::Refused => {
            StopKind::Refused
        }
        ErrorKind::Corruption
        | ErrorKind::MissingFile
        | ErrorKind::UnsupportedVersion { .. }
        | ErrorKind::NotAStore => StopKind::Damaged,
        ErrorKind::Poisoned => StopKind::Poisoned,
        ErrorKind::Closed => StopKind::Closed,
        _ => StopKind::Io,
    };
    Stop::new(kind, error)
}

/// The options with the least write region that a store takes with them, which says how much that is, and
/// something beyond it.
fn with_least_region(options: Options, beyond_bytes: u64) -> Options {
    let needed = |options: &Options| {
        let opened = Store::open_with(Env::in_memory(), options.clone());
        match opened.map_err(|error| error.kind().clone()) {
            Err(ErrorKind::TooLarge { needed, .. }) => Some(needed),
            _ => None,
        }
    };
    let Some(least) = needed(&options.clone().write_region_bytes(1 << 16)) else {
        return options;
    };
    let options = options.write_region_bytes(least + beyond_bytes);
    // With room for one more chunk the lists of chunks are longer, and take more than is there if only some
    // bytes of that room are.
    match (beyond_bytes > 0).then(|| needed(&options)).flatten() {
        Some(more) => options.write_region_bytes(more),
        None => options,
    }
}

fn collect(items: impl Iterator<Item = sealstone::Result<Item>>) -> Answer<Vec<Item>> {
    items.map(|item| item.map_err(stop)).collect()
}

impl SimStore {
    fn with_keyspaces(store: Store, options: &Options) -> Answer<Self> {
        let mut keyspaces = Vec::new();
        for (name, kind) in KEYSPACES {
            let options = match kind {
                KeyspaceKind::WriteOnce => KeyspaceOptions::write_once(),
                KeyspaceKind::Mutable => KeyspaceOptions::mutable(),
            };
            keyspaces.push(store.keyspace(name, options).map_err(stop)?);
        }
        let wide_hash = format!("{options:?}").contains("hash_bits: Some(46)");
        Ok(Self {
            store,
            keyspaces,
            wide_hash,
            readers: Cell::new((0, 0)),
            folded: Cell::new(false),
        })
    }

    /// An error of a write: if it poisoned the store, nobody knows what reached the disk.
    fn write_stop(&self, error: Error) -> Stop {
        let poisoned = self.store.audit().poisoned;
        let stop = stop(error);
        if poisoned {
            Stop {
                kind: StopKind::Poisoned,
                ..stop
            }
        } else {
            stop
        }
    }

    fn batch<'a>(&'a self, ops: &'a [Op]) -> Batch<'a> {
        let mut batch = Batch::new();
        for op in ops {
            let keyspace = &self.keyspaces[op.keyspace];
            match &op.value {
                None => batch.delete(keyspace, &op.key),
                // Every third length goes through a closure.
                Some(value) if value.len() % 3 == 0 => {
                    batch.put_with(keyspace, &op.key, value.len(), move |out| {
                        out.copy_from_slice(value);
                        Ok(())
                    })
                }
                Some(value) => batch.put(keyspace, &op.key, value),
            };
        }
        batch
    }
}

/// Reads in vain a run, if each has a filter with twelve bits a key or more.
const FALSE_READS_A_RUN: f64 = 0.0043;

/// Which filters are wanted. `All` is refused where the budget may be too small for them.
fn draw_policy(choices: &mut Choices, budget_bytes: u64) -> FilterPolicy {
    let policy = *choices.pick(
        Purpose::Swarm,
        &[
            FilterPolicy::Planned,
            FilterPolicy::NewestFirst,
            FilterPolicy::Planned,
            FilterPolicy::All,
            FilterPolicy::WindowOnly,
            FilterPolicy::Planned,
            FilterPolicy::None,
        ],
    );
    match policy {
        FilterPolicy::All if budget_bytes < 1 << 20 => FilterPolicy::Planned,
        policy => policy,
    }
}

impl Subject for SimStore {
    const CLOSE_SYNCS: bool = true;
    const TELLS_DURABLE: bool = true;

    type Options = Options;
    type Ticket = Ticket;
    type View = Snapshot;
    type Cursor = Iter;
    type Held = Value;

    fn kinds() -> Vec<KeyspaceKind> {
        KEYSPACES.map(|(_, kind)| kind).to_vec()
    }

    fn options() -> Options {
        // Segments in few writes: the exhaustive run crashes each of them, in every recovery too.
        Options::tiny().output_buffer_bytes(4096)
    }

    fn without_filters(options: Options) -> Options {
        options.filter_policy(FilterPolicy::None)
    }

    fn draw_options(choices: &mut Choices, base: &Options, life: u32) -> Options {
        let c = choices;
        let mut options = base.clone();
        if life == 1 {
            options = options.hash_bits(*c.pick(Purpose::Swarm, &[46, 8, 20, 46, 12]));
        }
        let filters_bytes = *c.pick(Purpose::Swarm, &[1 << 20, 4096, 1 << 20, 512, 0]);
        options = options
            .filter_budget_bytes(filters_bytes)
            .filter_policy(draw_policy(c, filters_bytes))
            .filter_sample_bits(*c.pick(Purpose::Swarm, &[0, 6, 2]))
            .write_region_bytes(1 << 20)
            .seal_bytes(*c.pick(Purpose::Swarm, &[4096, 24576, 12288]))
            .seal_records(4 + c.below(Purpose::Swarm, 120))
            .batch_records_max(16)
            .queue_slots(1 + c.below(Purpose::Swarm, 3))
            .pinned_generations_max(c.below(Purpose::Swarm, 4))
            .descriptors_max(*c.pick(Purpose::Swarm, &[0, 16, 4, 2, 0, 16]))
            .block_records(*c.pick(Purpose::Swarm, &[8, 2, 64]));
        let output_buffer_bytes = *c.pick(Purpose::Swarm, &[512, 256, 4096]);
        options = options
            .output_buffer_bytes(output_buffer_bytes)
            // No draw of its own, which would shift all that are behind it.
            .cold_reads_ahead(output_buffer_bytes == 256)
            .cursor_buffer_bytes(*c.pick(Purpose::Swarm, &[512, 256, 4096]))
            .key_fence_bytes(*c.pick(Purpose::Swarm, &[128, 64, 1024]))
            .manifest_roll_bytes(*c.pick(Purpose::Swarm, &[2048, 256, 8192]))
            .fold(*c.pick(
                Purpose::Swarm,
                &[Fold::Runs(3), Fold::Runs(2), Fold::Runs(8), Fold::Off],
            ))
            .fold_bytes(*c.pick(Purpose::Swarm, &[1024, 768, 65_536]))
            .run_part_records(*c.pick(Purpose::Swarm, &[64, 16, 1024, 1 << 20]))
            .window_bytes(*c.pick(Purpose::Swarm, &[1024, 0, 128, 8192, 512, 65_536]))
            .read_mode(*c.pick(Purpose::Swarm, &[ReadMode::Pread, ReadMode::Mmap]))
            .mappings_max(*c.pick(Purpose::Swarm, &[0, 2]));
        let least = c.chance(Purpose::Swarm, 1, 4);
        if c.chance(Purpose::Scene, 1, 16) {
            // Memory that runs out before the logs do, anywhere in a generation.
            let beyond_bytes = c.below(Purpose::Scene, 1 << 14);
            return with_least_region(options.queue_slots(24), beyond_bytes.into());
        }
        if c.chance(Purpose::Scene, 1, 8) {
            // Many small generations may wait, and together take far more than the floor of memory.
            options = options
                .queue_slots(64)
                .pinned_generations_max(0)
                .seal_bytes(4096);
        }
        match least {
            true => with_least_region(options, 0),
            false => options,
        }
    }

    fn open(env: &Env, options: &Options) -> Answer<Self> {
        let store = Store::open_with(env.clone(), options.clone()).map_err(stop)?;
        Self::with_keyspaces(store, options)
    }

    fn reopen(&self, options: &Options) -> Option<Answer<Self>> {
        let store = self.store.reopen_with(options.clone()).map_err(stop);
        Some(store.and_then(|store| Self::with_keyspaces(store, options)))
    }

    fn open_reading(env: &Env, options: &Options) -> Option<Answer<Self>> {
        let options = options.clone().read_only(true);
        let store = Store::open_with(env.clone(), options.clone()).map_err(stop);
        Some(store.and_then(|store| Self::with_keyspaces(store, &options)))
    }

    fn figures(&self) -> Figures {
        let stats = self.store.stats();
        Figures {
            reads: stats.reads,
            candidates: stats.candidates + stats.window_hits + stats.window_false_candidates,
            opens: stats.opens,
            wide_hash: self.wide_hash,
            filter_tests: stats.filter_tests,
            false_candidates: stats.false_candidates,
            damaged_indexes: stats.damaged_indexes,
            all_filters: stats.expected_false_reads_write_once + stats.expected_false_reads_mutable
                <= FALSE_READS_A_RUN * stats.runs as f64,
        }
    }

    fn plan_options(options: &Options) -> Vec<String> {
        plan::options_of(options)
    }

    fn plan_keyspace(keyspace: usize) -> String {
        KEYSPACES[keyspace].0.to_string()
    }

    fn plan_job(&self, index: usize) -> String {
        let jobs = self.store.runnable();
        jobs.get(index)
            .map_or("none", |job| plan::job_name(*job))
            .to_string()
    }

    fn get_into(&self, keyspace: usize, key: &[u8]) -> Answer<Option<Vec<u8>>> {
        let mut value = b"left over".to_vec();
        let found = self.keyspaces[keyspace].get_into(key, &mut value);
        Ok(found.map_err(stop)?.then_some(value))
    }

    fn contains(&self, keyspace: usize, key: &[u8]) -> Answer<bool> {
        self.keyspaces[keyspace].contains(key).map_err(stop)
    }

    fn hold(&self, keyspace: usize, key: &[u8]) -> Option<Answer<Option<Value>>> {
        Some(self.keyspaces[keyspace].get(key).map_err(stop))
    }

    fn range(
        &self,
        keyspace: usize,
        (from, to): (&[u8], &[u8]),
        reverse: bool,
    ) -> Option<Answer<Vec<Item>>> {
        let iter = self.keyspaces[keyspace].range(from..to).map_err(stop);
        Some(iter.and_then(|iter| match reverse {
            true => collect(iter.rev()),
            false => collect(iter),
        }))
    }

    fn prefix(&self, keyspace: usize, prefix: &[u8]) -> Option<Answer<Vec<Item>>> {
        let iter = self.keyspaces[keyspace].prefix(prefix).map_err(stop);
        Some(iter.and_then(collect))
    }

    fn recovered(&self) -> u64 {
        self.store.open_report().recovered_through
    }

    fn claimed_durable(&self) -> u64 {
        self.store.durable_sequence()
    }

    fn write(&self, ops: &[Op], synced: bool) -> Answer<u64> {
        let result = self.store.write(self.batch(ops), durability(synced));
        result.map_err(|error| self.write_stop(error))
    }

    fn submit(&self, ops: &[Op], synced: bool) -> Option<Answer<Ticket>> {
        let result = self.store.submit(self.batch(ops), durability(synced));
        Some(result.map_err(|error| self.write_stop(error)))
    }

    fn poll(&self, ticket: &Ticket) -> Option<Answer<u64>> {
        Some(ticket.try_result()?.map_err(|error| self.write_stop(error)))
    }

    fn commit_step(&self) -> Answer<bool> {
        self.store
            .commit_step()
            .map_err(|error| self.write_stop(error))
    }

    fn write_failing(&self, ops: &[Op]) -> Option<Answer<u64>> {
        let mut batch = self.batch(ops);
        batch.put_with(&self.keyspaces[0], "never", 3, |_| {
            Err("refused on purpose".into())
        });
        Some(
            self.store
                .write(batch, Durability::Buffered)
                .map_err(|error| self.write_stop(error)),
        )
    }

    fn sync(&self) -> Answer<()> {
        self.store.sync().map_err(|error| self.write_stop(error))
    }

    fn get(&self, keyspace: usize, key: &[u8]) -> Answer<Option<Vec<u8>>> {
        let value = self.keyspaces[keyspace].get(key).map_err(stop)?;
        Ok(value.map(|value| value.to_vec()))
    }

    fn multi_get(&self, keys: &[(usize, Vec<u8>)]) -> Answer<Vec<Option<Vec<u8>>>> {
        let keys: Vec<(&Keyspace, &[u8])> = keys
            .iter()
            .map(|(keyspace, key)| (&self.keyspaces[*keyspace], &key[..]))
            .collect();
        let values = self.store.multi_get(&keys).map_err(stop)?;
        Ok(values
            .into_iter()
            .map(|value| value.map(|value| value.to_vec()))
            .collect())
    }

    fn scan(&self, keyspace: usize, reverse: bool) -> Answer<Vec<Item>> {
        let iter = self.keyspaces[keyspace].iter().map_err(stop)?;
        if reverse {
            collect(iter.rev())
        } else {
            collect(iter)
        }
    }

    fn snapshot(&self) -> Option<Answer<Snapshot>> {
        Some(self.store.snapshot().map_err(stop))
    }

    fn view_sequence(view: &Snapshot) -> u64 {
        view.sequence()
    }

    fn view_get(&self, view: &Snapshot, keyspace: usize, key: &[u8]) -> Answer<Option<Vec<u8>>> {
        let value = view.get(&self.keyspaces[keyspace], key).map_err(stop)?;
        Ok(value.map(|value| value.to_vec()))
    }

    fn view_scan(&self, view: &Snapshot, keyspace: usize, reverse: bool) -> Answer<Vec<Item>> {
        let iter = view.iter(&self.keyspaces[keyspace]).map_err(stop)?;
        if reverse {
            collect(iter.rev())
        } else {
            collect(iter)
        }
    }

    fn cursor(&self, keyspace: usize) -> Option<Answer<Iter>> {
        Some(self.keyspaces[keyspace].iter().map_err(stop))
    }

    fn advance(cursor: &mut Iter, back: bool) -> Option<Answer<Item>> {
        let item = if back {
            cursor.next_back()
        } else {
            cursor.next()
        };
        Some(item?.map_err(stop))
    }

    fn seal(&self) -> Answer<()> {
        self.store.seal().map_err(|error| self.write_stop(error))
    }

    fn jobs(&self) -> usize {
        self.store.runnable().len()
    }

    fn set_filter_budget(&self, bytes: u64) -> Option<Answer<()>> {
        Some(self.store.set_filter_budget(bytes).map_err(stop))
    }

    fn set_pressure(&self, level: Option<PressureLevel>) {
        self.store.set_pressure(level);
    }

    fn look_at_pressure(&self) -> Answer<()> {
        self.store
            .run(Job::Retire, 1)
            .map(drop)
            .map_err(|error| self.write_stop(error))
    }

    fn check_trimmed(&self) -> Result<(), (&'static str, String)> {
        check_trimmed(&self.store.stats())
    }

    fn run_job(&self, index: usize, quantum: u32) -> Answer<()> {
        let Some(job) = self.store.runnable().get(index).copied() else {
            return Ok(());
        };
        self.store
            .run(job, quantum)
            .map(drop)
            .map_err(|error| self.write_stop(error))
    }

    fn close(&self) -> Answer<()> {
        self.store.close().map_err(|error| self.write_stop(error))
    }

    fn stalls(&self) -> u64 {
        self.store.stats().stalls
    }

    fn at_rest(&self, disk: &SimDisk) -> Result<(), (&'static str, String)> {
        check_at_rest(&self.store.audit(), disk)?;
        check_pressure(&self.store)
    }

    fn check_readers(&self, (views, walks): (usize, usize)) -> Result<(), (&'static str, String)> {
        let (pins, scan_bytes) = self.readers.get();
        if pins != views + walks || (walks == 0 && scan_bytes > 0) {
            let what = format!(
                "{views} snapshots and {walks} iterators live, {pins} are registered, with {scan_bytes} \
                 bytes of scan memory"
            );
            return Err(("S15", what));
        }
        Ok(())
    }

    fn audit(&self, disk: &SimDisk) -> Result<u64, (&'static str, String)> {
        let audit = self.store.audit();
        check_audit(&audit, disk)?;
        self.readers.set((audit.pins.len(), audit.scan_bytes));
        let newest = |level_zero: bool| {
            let runs = audit
                .runs
                .iter()
                .filter(|run| (run.level == 0) == level_zero);
            runs.flat_map(|run| &run.parts).max().copied().unwrap_or(0)
        };
        let (fresh, folded) = (newest(true), newest(false));
        self.folded.set(folded > fresh);
        Ok(fresh.max(folded))
    }

    fn newest_is_folded(&self) -> bool {
        self.folded.get()
    }

    fn records(bytes: &[u8]) -> Vec<Range<u64>> {
        crate::records::find(bytes)
    }

    fn filters(bytes: &[u8]) -> Vec<Range<u64>> {
        let Ok((footer, ..)) = Footer::decode(bytes, bytes.len() as u64) else {
            return Vec::new();
        };
        let filters = footer.layout.filters.iter();
        let range = |filter: &FilterSection| {
            let offset = filter.section.span.offset;
            offset..offset + filter.shape.bytes()
        };
        filters.map(range).collect()
    }
}

/// Compares the books of the only store that is open on a disk with that disk.
///
/// # Errors
/// The first rule that does not hold, with what is wrong.
pub fn check_audit(audit: &Audit, disk: &SimDisk) -> Result<(), (&'static str, String)> {
    let (issued, visible, durable) = (audit.issued, audit.visible, audit.durable);
    if !(visible <= issued && durable <= issued) {
        let what = format!("issued {issued}, visible {visible}, durable {durable}");
        return Err(("S1", what));
    }
    let memory = &audit.memory;
    let owned = memory.free_bytes
        + memory.open_bytes
        + memory.sealed_bytes
        + memory.flushing_bytes
        + memory.pinned_bytes
        + memory.retiring_bytes
        + memory.scratch_bytes
        + memory.reserved_bytes;
    if owned != memory.total_bytes {
        return Err((
            "S15",
            format!("the ledger says {owned} of {}", memory.total_bytes),
        ));
    }
    if audit.filter_bytes > audit.filter_budget_bytes {
        let what = format!(
            "{} of {} filter bytes",
            audit.filter_bytes, audit.filter_budget_bytes
        );
        return Err(("S12", what));
    }
    if audit.filter_bytes != audit.filter_counted_bytes {
        let what = format!(
            "{} filter bytes are there, {} are counted",
            audit.filter_bytes, audit.filter_counted_bytes
        );
        return Err(("S12", what));
    }
    check_given_back(audit)?;
    check_descriptors(audit, disk)?;
    check_files(audit, disk)
}

/// With nothing left to do and nobody reading, the disk holds the files of the books and no other, and
/// memory only what the open generation takes.
///
/// # Errors
/// The first rule that does not hold, with what is too much.
pub fn check_at_rest(audit: &Audit, disk: &SimDisk) -> Result<(), (&'static str, String)> {
    let state = disk.state();
    let unknown: Vec<_> = state
        .names()
        .keys()
        .filter(|name| !audit.files.contains(name))
        .collect();
    if !unknown.is_empty() || !audit.unlinks.is_empty() {
        let waiting = &audit.unlinks;
        let what = format!("{unknown:?} are of no use, {waiting:?} should be gone");
        return Err(("S9", what));
    }
    let memory = &audit.memory;
    let under_way = memory.sealed_bytes + memory.flushing_bytes;
    let kept = under_way + memory.pinned_bytes + memory.retiring_bytes;
    if kept != 0 || !audit.lingering.is_empty() {
        let lingering = &audit.lingering;
        let what = format!("{kept} bytes are kept for nobody, generations {lingering:?} linger");
        return Err(("S13", what));
    }
    Ok(())
}

/// Looks at the pressure after which nothing may be kept beyond its limit.
const LOOKS_MAX: u32 = 256;

/// Under the worst memory pressure the floor stays, and what is kept for reuse beyond it goes within few
/// steps. What the environment said counts again afterwards.
fn check_pressure(store: &Store) -> Result<(), (&'static str, String)> {
    let (live, kept) = buffers(&store.stats());
    let total = store.stats().memory.total_bytes;
    if live + kept > total {
        let what = format!("{live} bytes of buffers and {kept} kept, of {total}");
        return Err(("S13", what));
    }
    store.set_pressure(Some(PressureLevel::Critical));
    for _ in 0..LOOKS_MAX {
        // Any job takes a look; there is nothing to do for this one.
        let _ = store.run(Job::Retire, 1);
    }
    // One step, and filters have followed.
    let _ = store.run(Job::LoadFilter, 1);
    let stats = store.stats();
    store.set_pressure(None);
    if stats.filter_bytes > stats.pressure.filter_target_bytes {
        let (bytes, target) = (stats.filter_bytes, stats.pressure.filter_target_bytes);
        let what = format!("{bytes} bytes of filters at critical, where {target} are left");
        return Err(("S13", what));
    }
    check_trimmed(&stats)?;
    let limit = stats.pressure.region_limit_bytes;
    if limit < stats.pressure.region_floor_bytes {
        let floor = stats.pressure.region_floor_bytes;
        return Err((
            "S19",
            format!("a limit of {limit} bytes is below the floor of {floor}"),
        ));
    }
    Ok(())
}

/// Bytes of buffers in use, and of those kept for reuse.
fn buffers(stats: &Stats) -> (u64, u64) {
    let counters = &stats.memory_counters;
    let live = counters.kept.iter().map(|one| one.counts.live_bytes).sum();
    let kept = counters.kept.iter().map(|one| one.counts.kept_bytes).sum();
    (live, kept)
}

/// Nothing is kept for reuse beyond the limit.
fn check_trimmed(stats: &Stats) -> Result<(), (&'static str, String)> {
    let limit = stats.pressure.region_limit_bytes;
    let (live, kept) = buffers(stats);
    if kept > 0 && live + kept > limit {
        let what = format!("{kept} bytes are kept beside {live} although {limit} is the limit");
        return Err(("S13", what));
    }
    Ok(())
}

/// What batches and cursors took is given back when they are gone. (A step is over: no batch is on its
/// way in, and what is queued belongs to the open generation.)
fn check_given_back(audit: &Audit) -> Result<(), (&'static str, String)> {
    let reserved = audit.memory.reserved_bytes;
    if reserved != 0 {
        return Err(("S13", format!("{reserved} bytes are reserved for no batch")));
    }
    if audit.pins.is_empty() && audit.scan_bytes != 0 {
        let what = format!("{} bytes of cursors, and no iterator", audit.scan_bytes);
        return Err(("S13", what));
    }
    Ok(())
}

/// Files beside those of the audit that a flush and a manifest roll may have under way: two segments, a
/// spare log, the manifest's temporary.
const UNDER_WAY_MAX: usize = 4;

/// What is in use exists; what nobody knows of is only what is being made.
fn check_files(audit: &Audit, disk: &SimDisk) -> Result<(), (&'static str, String)> {
    let used = audit
        .files
        .iter()
        .filter(|name| !audit.unlinks.contains(name));
    let (count, missing) = disk.look_up(used);
    if let Some(name) = missing {
        return Err(("S9", format!("{name} is in use and does not exist")));
    }
    if count > audit.files.len() + UNDER_WAY_MAX {
        let state = disk.state();
        let names = state.names();
        let unknown: Vec<_> = names.keys().filter(|n| !audit.files.contains(n)).collect();
        return Err(("S9", format!("nobody knows of {unknown:?}")));
    }
    Ok(())
}

/// Every descriptor is one that the store knows of: the lock, logs, the manifest, what a flush writes,
/// and as many segments as the table counts.
fn check_descriptors(audit: &Audit, disk: &SimDisk) -> Result<(), (&'static str, String)> {
    // Nobody reads between two steps, so none is pinned.
    if audit.descriptors_open > audit.descriptors_max.max(1) {
        let (open, most) = (audit.descriptors_open, audit.descriptors_max);
        return Err((
            "S14",
            format!("{open} segments are open, at most {most} may be"),
        ));
    }
    disk.with_open_files(|open, total| {
        let others = &audit.descriptors_other;
        let times = |wanted: &FileName| others.iter().filter(|name| *name == wanted).count() as u64;
        let mut table = 0;
        for same in open.chunk_by(|a, b| a.name == b.name) {
            let (name, count) = (same[0].name, same.len() as u64);
            // The manifest was opened as a temporary and renamed.
            let known = times(&FileName {
                temporary: false,
                ..name
            });
            let sealed = matches!(name.kind, FileKind::Segment | FileKind::Run);
            if sealed && count >= known {
                table += count - known;
            } else if count != known {
                let what = format!("{name} is open {count} times, the audit says {known}");
                return Err(("S14", what));
            }
        }
        let listed = audit.descriptors_open + others.len() as u64;
        if table == audit.descriptors_open && total == listed {
            return Ok(());
        }
        let segments = audit.descriptors_open;
        let what = format!(
            "{total} descriptors, the audit lists {segments} segments and {others:?}; open are \
             {open:?}"
        );
        Err(("S14", what))
    })
}
