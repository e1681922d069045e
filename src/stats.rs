//! What a store says of itself: the open report, statistics, and the exact audit.

use std::time::Duration;

use crate::engine::Engine;
use std::collections::BTreeMap;

use crate::engine::commit::Queued;
use crate::engine::residency::false_reads_ppm;
use crate::engine::version::{Run, Version};
use crate::engine::waiting::StallCause;
use crate::env::FileName;
use crate::error::PinInfo;
use crate::keyspace::KeyspaceInfo;
use crate::memory::Owner;
use crate::memory_stats::{MemoryCounters, PressureStats};
use crate::sync::{Arc, Ordering};
use crate::types::{KeyspaceKind, Sequence};
use crate::window::Window;

/// A tail that opening cut off: bytes that no acknowledged synced commit can have been in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The log.
    pub file: FileName,
    /// Where the cut was made.
    pub offset: u64,
    /// How many bytes that were not zero lie behind it.
    pub bytes: u64,
    /// What was wrong there.
    pub what: String,
}

/// What opening found and did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenReport {
    /// The store was created.
    pub created: bool,
    /// The last commit recovered.
    pub recovered_through: Sequence,
    /// Commits read from the live logs.
    pub replayed_commits: u64,
    /// Their records.
    pub replayed_records: u64,
    /// Torn tails of logs.
    pub cut: Vec<Cut>,
    /// Bytes of the manifest's torn tail.
    pub manifest_cut_bytes: u64,
    /// Bytes copied into the new log.
    pub rewritten_bytes: u64,
    /// Segments written from complete generations.
    pub flushed_segments: u64,
    /// Generations split because memory is smaller than they are: segment boundaries then differ from
    /// those of a store that was not reopened.
    pub split_generations: u64,
    /// Files that no manifest names any more; jobs remove them.
    pub dropped_files: u64,
}

/// Bytes of a memory region by owner; they add up to `total_bytes`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryStats {
    /// The region.
    pub total_bytes: u64,
    /// Owned by nobody.
    pub free_bytes: u64,
    /// The generation that takes commits.
    pub open_bytes: u64,
    /// Sealed generations that wait.
    pub sealed_bytes: u64,
    /// The generation being flushed.
    pub flushing_bytes: u64,
    /// Flushed ones that snapshots keep.
    pub pinned_bytes: u64,
    /// Given up, with a last reader still in them.
    pub retiring_bytes: u64,
    /// The flush's buffers.
    pub scratch_bytes: u64,
    /// Taken by batches on their way in.
    pub reserved_bytes: u64,
}

/// What `write` waited for. The counts by cause add up to [`Stats::stalls`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StallStats {
    /// Calls of `write` that did not go ahead at once.
    pub writes: u64,
    /// How long all of them together stood in the queue.
    pub time: Duration,
    /// Writers in the queue now.
    pub waiting: u64,
    /// Times that bytes of the write region were short and jobs could give some back.
    pub memory: u64,
    /// Times that snapshots or iterators kept what was missing.
    pub pins: u64,
    /// Times that every log waited for its flush.
    pub log_slot: u64,
    /// Times that the disk had no room for another log.
    pub spare_log: u64,
    /// Times that others had come first.
    pub turn: u64,
}

/// The filters in memory that have as many bits a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResidentFilters {
    /// Bits a key.
    pub bits_per_key: u16,
    /// Filters.
    pub filters: u64,
    /// Their bytes.
    pub bytes: u64,
    /// As many of these are in mappings of their own, where an allocator does not count them.
    pub mapped_bytes: u64,
}

/// Counters since the opening, and sizes now.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Stats {
    /// The last visible commit.
    pub sequence: Sequence,
    /// The last commit known to be on stable storage.
    pub durable_sequence: Sequence,
    /// All keyspaces.
    pub keyspaces: Vec<KeyspaceInfo>,
    /// The write region.
    pub memory: MemoryStats,
    /// The most of the write region that was owned at once since the opening.
    pub memory_high_water_bytes: u64,
    /// Who took how much of it, what was reused, kept and let go, and copies.
    pub memory_counters: MemoryCounters,
    /// Memory pressure.
    pub pressure: PressureStats,
    /// Filter bytes in memory.
    pub filter_bytes: u64,
    /// The most that filters may take.
    pub filter_budget_bytes: u64,
    /// Filters in memory.
    pub filters_resident: u64,
    /// Bytes of the window table: all that it may come to, not only what it has touched.
    pub window_bytes: u64,
    /// Entries in it.
    pub window_entries: u64,
    /// The generations that it covers, from the first to before the second.
    pub window_generations: (u64, u64),
    /// Their segments.
    pub window_segments: u64,
    /// Entries that its full buckets have dropped.
    pub window_dropped: u64,
    /// Keys that lookups found by it, each with one read.
    pub window_hits: u64,
    /// Records that it named and that were of another key, or newer than a snapshot.
    pub window_false_candidates: u64,
    /// Runs that lookups did not ask because it covers them.
    pub window_runs_skipped: u64,
    /// Reads of the jobs that fill it after an opening.
    pub window_reads: u64,
    /// The same by bits a key.
    pub filters_by_bits: Vec<ResidentFilters>,
    /// Stored filters that are damaged or not there, and are not tried again.
    pub filters_given_up: u64,
    /// Reads in vain that a lookup of a key that is not there is expected to cost in `WriteOnce` keyspaces, by
    /// the filters in memory: to be compared with `false_candidates` for each such lookup.
    pub expected_false_reads_write_once: f64,
    /// The same in `Mutable` keyspaces.
    pub expected_false_reads_mutable: f64,
    /// Bytes of page fences in memory: 4 for each index page of a segment that was written or touched.
    pub fence_bytes: u64,
    /// Runs that a lookup may have to ask.
    pub runs: u64,
    /// Sealed segments.
    pub segments: u64,
    /// Their records.
    pub segment_records: u64,
    /// Their file bytes.
    pub segment_bytes: u64,
    /// Log files that the manifest names.
    pub logs: u64,
    /// Their file bytes.
    pub log_bytes: u64,
    /// Snapshots and iterators alive.
    pub pins: u64,
    /// Bytes that pins keep in the write region.
    pub pinned_bytes: u64,
    /// The oldest pin.
    pub oldest_pin: Option<PinInfo>,
    /// Point lookups.
    pub lookups: u64,
    /// Reads of lookups.
    pub reads: u64,
    /// Bytes of those reads.
    pub read_bytes: u64,
    /// Accesses of lookups to mappings in place of reads: no call of the system, and not among `reads`.
    pub mapped_reads: u64,
    /// Bytes of those accesses.
    pub mapped_bytes: u64,
    /// Runs that a lookup had to look into.
    pub candidates: u64,
    /// Those that did not have the key.
    pub false_candidates: u64,
    /// Lookups that found the index of a run damaged or gone and asked its segments instead. A job makes it
    /// again; if that is not the end of it, `verify` says which file is damaged.
    pub damaged_indexes: u64,
    /// Filters asked.
    pub filter_tests: u64,
    /// Reads of scans.
    pub scan_reads: u64,
    /// Bytes of those reads.
    pub scan_bytes: u64,
    /// Segment files opened.
    pub opens: u64,
    /// Segment files open now.
    pub open_files: u64,
    /// Those among them that are mapped.
    pub mappings: u64,
    /// Commits published.
    pub commits: u64,
    /// Their records.
    pub commit_records: u64,
    /// Groups that they were written in.
    pub groups: u64,
    /// Log syncs.
    pub log_syncs: u64,
    /// Segment and spare-log syncs of flushes.
    pub flush_syncs: u64,
    /// Those of them that only the end of a generation asked for.
    pub seal_syncs: u64,
    /// Generations sealed.
    pub seals: u64,
    /// Segments written by flushes.
    pub flushed_segments: u64,
    /// Flushes that were started over.
    pub flush_retries: u64,
    /// Submits whose `WriteOnce` check was started over.
    pub submit_restarts: u64,
    /// Batches refused for want of memory.
    pub busy: u64,
    /// Times that `write` had to wait or help.
    pub stalls: u64,
    /// Why, and for how long.
    pub stalled: StallStats,
    /// Files removed.
    pub unlinks: u64,
    /// Removals that failed and are tried again.
    pub unlink_failures: u64,
    /// Filters loaded by jobs.
    pub filter_loads: u64,
    /// Filters freed: for better ones, for a smaller budget, with a run that was folded.
    pub filter_frees: u64,
    /// Plans made of which filters are to be in memory.
    pub filter_plans: u64,
    /// Looks into runs without a filter that found nothing, as far as they were counted: those of one lookup
    /// in 64.
    pub filter_ghosts: u64,
    /// Runs folded into others, or made again because they were damaged.
    pub folds: u64,
    /// Bytes that folds have written.
    pub fold_bytes: u64,
    /// Reads that folds have made.
    pub fold_reads: u64,
    /// Barriers of folds beside those of the manifest.
    pub fold_syncs: u64,
    /// Folds that were started over after a failure.
    pub fold_retries: u64,
    /// Manifest edits.
    pub manifest_edits: u64,
    /// Manifests written anew.
    pub manifest_rolls: u64,
    /// Whether the store takes no writes any more.
    pub poisoned: bool,
}

/// One run, as the audit lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunAudit {
    /// The kind of its records.
    pub kind: KeyspaceKind,
    /// How often it was merged.
    pub level: u8,
    /// The generations it covers.
    pub generations: (u64, u64),
    /// Its segments' file numbers, newest first.
    pub segments: Vec<u64>,
    /// The file numbers of its index, by hash prefix; at level 0 that of its segment.
    pub parts: Vec<u64>,
    /// Its entries.
    pub records: u64,
}

/// Everything that a store holds, exactly.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Audit {
    /// The last sequence given out.
    pub issued: Sequence,
    /// The last published.
    pub visible: Sequence,
    /// The last known to be durable.
    pub durable: Sequence,
    /// Runs, newest first, `WriteOnce` before `Mutable`.
    pub runs: Vec<RunAudit>,
    /// The files that exist as far as the store knows, sorted: named by the manifest, or waiting to be
    /// removed. A flush in progress has one or two more.
    pub files: Vec<FileName>,
    /// Those of `files` that are waiting to be removed.
    pub unlinks: Vec<FileName>,
    /// Descriptors of segment files that are open for reading.
    pub descriptors_open: u64,
    /// All other descriptors, sorted: logs, the manifest, the lock, what a flush is writing.
    pub descriptors_other: Vec<FileName>,
    /// Generations in memory, newest first.
    pub generations: Vec<u64>,
    /// Installed generations whose memory lingers, oldest first.
    pub lingering: Vec<u64>,
    /// The write region.
    pub memory: MemoryStats,
    /// The scan memory in use.
    pub scan_bytes: u64,
    /// Bounds of live snapshots and iterators, in the order of their creation.
    pub pins: Vec<Sequence>,
    /// Filter bytes in memory, that of a load in progress included.
    pub filter_bytes: u64,
    /// Filter bytes as residency counts them.
    pub filter_counted_bytes: u64,
    /// The most that filters may take.
    pub filter_budget_bytes: u64,
    /// The most segment files open at once.
    pub descriptors_max: u64,
    /// Whether the store takes no writes any more.
    pub poisoned: bool,
}

/// The filters that the parts of a version have, by bits a key.
fn filters_by_bits(version: &Version) -> Vec<ResidentFilters> {
    let mut by_bits: BTreeMap<u16, ResidentFilters> = BTreeMap::new();
    let parts = version.runs.iter().flatten().flat_map(Run::parts);
    for filter in parts.filter_map(|part| part.filter()) {
        let bits_per_key = filter.shape().bits_per_key;
        let sum = by_bits.entry(bits_per_key).or_default();
        sum.bits_per_key = bits_per_key;
        sum.filters += 1;
        sum.bytes += filter.bytes() as u64;
        sum.mapped_bytes += filter.mapped_bytes() as u64;
    }
    by_bits.into_values().collect()
}

impl Engine {
    fn memory_stats(&self) -> MemoryStats {
        let ledger = self.region.ledger();
        MemoryStats {
            total_bytes: ledger.total_bytes(),
            free_bytes: ledger.free_bytes(),
            open_bytes: ledger.owned_bytes(Owner::Open),
            sealed_bytes: ledger.owned_bytes(Owner::Sealed),
            flushing_bytes: ledger.owned_bytes(Owner::Flushing),
            pinned_bytes: ledger.owned_bytes(Owner::Pinned),
            retiring_bytes: ledger.owned_bytes(Owner::Retiring),
            scratch_bytes: ledger.owned_bytes(Owner::Scratch),
            reserved_bytes: ledger.owned_bytes(Owner::Reserved),
        }
    }

    /// The pin that keeps the oldest lingering generation in memory.
    pub(crate) fn blocking_pin(&self) -> Option<PinInfo> {
        let registry = self.registry.lock();
        registry.lingering.iter().find_map(|generation| {
            let memory = generation.memory();
            let memory = memory.as_ref()?;
            let pin = registry.pin_of(generation, memory)?;
            let now = self.env.clock.monotonic();
            Some(crate::engine::registry::Registry::describe(
                pin,
                now,
                memory.memory_bytes(),
            ))
        })
    }

    fn stall_stats(&self) -> StallStats {
        let counters = &self.counters;
        let by = |cause: StallCause| counters.stalls_by_cause[cause as usize].get();
        StallStats {
            writes: counters.stalled_writes.get(),
            time: Duration::from_nanos(counters.stall_ns.get()),
            waiting: self.commit.lock().turns.len() as u64,
            memory: by(StallCause::Memory),
            pins: by(StallCause::Pins),
            log_slot: by(StallCause::LogSlot),
            spare_log: by(StallCause::SpareLog),
            turn: by(StallCause::Turn),
        }
    }

    pub(crate) fn stats(&self) -> Stats {
        let version = self.version.load();
        let counters = &self.counters;
        let memory = self.memory_stats();
        let ledger = self.region.ledger();
        // Each lock is let go before the next: a temporary in the literal below would be held to its end.
        let oldest_pin = self.blocking_pin();
        let pins = self.registry.lock().pins().count() as u64;
        let keyspaces = self
            .keyspaces
            .lock()
            .values()
            .map(KeyspaceInfo::of)
            .collect();
        let (filters, filter_bytes) = {
            let residency = self.residency.lock();
            let filters = Stats {
                filter_budget_bytes: residency.configured_bytes(),
                filters_resident: residency.resident_count() as u64,
                filters_given_up: residency.given_up_count(),
                filter_plans: residency.plan_count(),
                ..Stats::default()
            };
            (filters, residency.used_bytes())
        };
        let window = self
            .window
            .as_ref()
            .map_or_else(Default::default, Window::stats);
        let false_reads = false_reads_ppm(&version).map(|ppm| ppm as f64 / 1e6);
        let (logs, log_bytes) = if self.settings.read_only {
            self.stored_logs
        } else {
            let commit = self.commit.lock();
            let logs = (commit.spares.len() + version.generations.len()) as u64;
            (logs, logs * self.sizes.log_bytes)
        };
        Stats {
            sequence: self.visible(),
            durable_sequence: self.durable.load(Ordering::Acquire),
            keyspaces,
            pins,
            pinned_bytes: memory.pinned_bytes,
            memory,
            memory_counters: self.memory_counters(),
            pressure: self.pressure_stats(),
            memory_high_water_bytes: ledger.total_bytes() - ledger.free_bytes_min(),
            filter_bytes,
            window_bytes: window.bytes,
            window_entries: window.entries,
            window_generations: window.generations,
            window_segments: version
                .segments()
                .filter(|segment| {
                    let (oldest, newest) = segment.generations();
                    let (lo, hi) = window.generations;
                    oldest >= lo && newest < hi
                })
                .count() as u64,
            window_dropped: window.dropped,
            window_hits: counters.lookup_sum(|stripe| &stripe.window_hits),
            window_false_candidates: counters.lookup_sum(|stripe| &stripe.window_false_candidates),
            window_runs_skipped: counters.lookup_sum(|stripe| &stripe.window_runs_skipped),
            window_reads: counters.window_reads.get(),
            filters_by_bits: filters_by_bits(&version),
            expected_false_reads_write_once: false_reads[0],
            expected_false_reads_mutable: false_reads[1],
            fence_bytes: version
                .segments()
                .chain(version.folded_parts())
                .filter_map(|segment| segment.known_tail())
                .map(|tail| size_of_val(tail.page_fences()) as u64)
                .sum(),
            runs: version.runs.iter().map(|runs| runs.len() as u64).sum(),
            segments: version.segments().count() as u64,
            segment_records: version
                .segments()
                .map(|segment| segment.meta().counts.records)
                .sum(),
            segment_bytes: version
                .segments()
                .map(|segment| segment.meta().file_len)
                .sum(),
            logs,
            log_bytes,
            oldest_pin,
            lookups: counters.lookup_sum(|stripe| &stripe.lookups),
            reads: counters.lookup_sum(|stripe| &stripe.reads),
            read_bytes: counters.lookup_sum(|stripe| &stripe.read_bytes),
            mapped_reads: counters.lookup_sum(|stripe| &stripe.mapped_reads),
            mapped_bytes: counters.lookup_sum(|stripe| &stripe.mapped_bytes),
            candidates: counters.lookup_sum(|stripe| &stripe.candidates),
            false_candidates: counters.lookup_sum(|stripe| &stripe.false_candidates),
            damaged_indexes: counters.damaged_indexes.get(),
            filter_tests: counters.lookup_sum(|stripe| &stripe.filter_tests),
            scan_reads: counters.scan_reads.get(),
            scan_bytes: counters.scan_bytes.get(),
            opens: self.files.opens(),
            open_files: self.files.open_count(),
            mappings: self.files.mapping_count(),
            commits: counters.commits.get(),
            commit_records: counters.commit_records.get(),
            groups: counters.groups.get(),
            log_syncs: counters.log_syncs.get(),
            flush_syncs: counters.flush_syncs.get(),
            seal_syncs: counters.seal_syncs.get(),
            seals: counters.seals.get(),
            flushed_segments: counters.flushed_segments.get(),
            flush_retries: counters.flush_retries.get(),
            submit_restarts: counters.submit_restarts.get(),
            busy: counters.busy.get(),
            stalls: counters.stalls.get(),
            stalled: self.stall_stats(),
            unlinks: counters.unlinks.get(),
            unlink_failures: counters.unlink_failures.get(),
            filter_loads: counters.filter_loads.get(),
            filter_frees: counters.filter_frees.get(),
            filter_ghosts: counters.filter_ghosts.get(),
            folds: counters.folds.get(),
            fold_bytes: counters.fold_bytes.get(),
            fold_reads: counters.fold_reads.get(),
            fold_syncs: counters.fold_syncs.get(),
            fold_retries: counters.fold_retries.get(),
            manifest_edits: counters.manifest_edits.get(),
            manifest_rolls: counters.manifest_rolls.get(),
            poisoned: self.poison.get().is_some(),
            ..filters
        }
    }

    /// Descriptors beside those of the file table. Takes each lock alone.
    fn other_descriptors(&self) -> Vec<FileName> {
        let mut names = Vec::new();
        {
            let leader = self.leader.lock();
            names.extend(
                leader
                    .log
                    .is_some()
                    .then(|| FileName::log(leader.log_number)),
            );
        }
        names.extend(self.manifest.lock().is_some().then_some(FileName::MANIFEST));
        names.extend(self.lock.lock().is_some().then_some(FileName::LOCK));
        if let Some(job) = &self.flush.lock().current {
            job.descriptors(&mut names);
        }
        if let Some(job) = &self.fold.lock().current {
            job.descriptors(&mut names);
        }
        let commit = self.commit.lock();
        names.extend(
            commit
                .spares
                .iter()
                .map(|spare| FileName::log(spare.number)),
        );
        let queued = commit.queue.iter().filter_map(|queued| match queued {
            Queued::Rotate(spare) => Some(FileName::log(spare.number)),
            _ => None,
        });
        names.extend(queued);
        names.sort();
        names
    }

    pub(crate) fn audit(&self) -> Audit {
        let version = self.version.load_full();
        let mut files = Vec::new();
        let unlinks: Vec<_> = {
            let maintenance = self.maintenance.lock();
            let leaving = maintenance.folds.leaving.iter();
            files.extend(leaving.map(|part| part.name()));
            maintenance.unlinks.iter().copied().collect()
        };
        files.extend_from_slice(&unlinks);
        if let Some(job) = &self.fold.lock().current {
            job.files(&mut files);
        }
        let issued;
        {
            let commit = self.commit.lock();
            issued = commit.issued;
            files.extend(
                commit
                    .spares
                    .iter()
                    .map(|spare| FileName::log(spare.number)),
            );
        }
        files.extend(
            version
                .generations
                .iter()
                .map(|g| FileName::log(g.log_number)),
        );
        files.extend(
            version
                .segments()
                .chain(version.folded_parts())
                .map(|segment| segment.name()),
        );
        files.extend([FileName::MANIFEST, FileName::LOCK]);
        files.sort();
        files.dedup();
        let runs = version.runs.iter().flatten().map(|run| RunAudit {
            kind: run.kind(),
            level: run.level(),
            generations: (
                run.segments()
                    .iter()
                    .map(|s| s.meta().identity.generation_lo)
                    .min()
                    .unwrap_or(0),
                run.segments()
                    .iter()
                    .map(|s| s.meta().identity.generation_hi)
                    .max()
                    .unwrap_or(0),
            ),
            segments: run
                .segments()
                .iter()
                .map(|segment| segment.number())
                .collect(),
            parts: run.parts().iter().map(|part| part.number()).collect(),
            records: run
                .segments()
                .iter()
                .map(|segment| segment.meta().counts.records)
                .sum(),
        });
        let (pins, lingering) = {
            let registry = self.registry.lock();
            (
                registry.pins().map(|pin| pin.bound).collect(),
                registry
                    .lingering
                    .iter()
                    .map(|generation| generation.number)
                    .collect(),
            )
        };
        let loading_bytes = self.filters.lock().bytes();
        let (filter_counted_bytes, filter_budget_bytes) = {
            let residency = self.residency.lock();
            (residency.used_bytes(), residency.configured_bytes())
        };
        // What is there, not what residency thinks is there.
        let parts = version.segments().chain(version.folded_parts());
        let mut filters: Vec<_> = parts.filter_map(|part| part.filter()).collect();
        for filter in self.filter_set.load().filters() {
            if !filters.iter().any(|other| Arc::ptr_eq(other, filter)) {
                filters.push(filter.clone());
            }
        }
        let filter_bytes = filters
            .iter()
            .map(|filter| filter.bytes() as u64)
            .sum::<u64>();
        let filter_bytes = filter_bytes + loading_bytes;
        Audit {
            issued,
            visible: self.visible(),
            durable: self.durable.load(Ordering::Acquire),
            runs: runs.collect(),
            files,
            unlinks,
            descriptors_open: self.files.open_count(),
            descriptors_other: self.other_descriptors(),
            generations: version.generations.iter().map(|g| g.number).collect(),
            lingering,
            memory: self.memory_stats(),
            scan_bytes: self.scan_region.total_bytes() - self.scan_region.ledger().free_bytes(),
            pins,
            filter_bytes,
            filter_counted_bytes,
            filter_budget_bytes,
            descriptors_max: self.files.cap(),
            poisoned: self.poison.get().is_some(),
        }
    }
}
