//! What a store says of itself: the open report, statistics, and the exact audit.

use crate::engine::Engine;
use crate::engine::commit::Queued;
use crate::env::FileName;
use crate::error::PinInfo;
use crate::keyspace::KeyspaceInfo;
use crate::memory::Owner;
use crate::sync::Ordering;
use crate::types::{KeyspaceKind, Sequence};

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
    /// Filter bytes in memory.
    pub filter_bytes: u64,
    /// The most that filters may take.
    pub filter_budget_bytes: u64,
    /// Filters in memory.
    pub filters_resident: u64,
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
    /// Files removed.
    pub unlinks: u64,
    /// Removals that failed and are tried again.
    pub unlink_failures: u64,
    /// Filters loaded by jobs.
    pub filter_loads: u64,
    /// Filters freed for newer ones.
    pub filter_frees: u64,
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
    /// Filter bytes in memory.
    pub filter_bytes: u64,
    /// The most that filters may take.
    pub filter_budget_bytes: u64,
    /// The most segment files open at once.
    pub descriptors_max: u64,
    /// Whether the store takes no writes any more.
    pub poisoned: bool,
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
        let (filter_bytes, filter_budget_bytes, filters_resident) = {
            let residency = self.residency.lock();
            let count = residency.resident_count() as u64;
            (residency.used_bytes(), residency.budget_bytes(), count)
        };
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
            memory_high_water_bytes: ledger.total_bytes() - ledger.free_bytes_min(),
            filter_bytes,
            filter_budget_bytes,
            filters_resident,
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
            unlinks: counters.unlinks.get(),
            unlink_failures: counters.unlink_failures.get(),
            filter_loads: counters.filter_loads.get(),
            filter_frees: counters.filter_frees.get(),
            folds: counters.folds.get(),
            fold_bytes: counters.fold_bytes.get(),
            fold_reads: counters.fold_reads.get(),
            fold_syncs: counters.fold_syncs.get(),
            fold_retries: counters.fold_retries.get(),
            manifest_edits: counters.manifest_edits.get(),
            manifest_rolls: counters.manifest_rolls.get(),
            poisoned: self.poison.get().is_some(),
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
        let filter_budget_bytes = self.residency.lock().budget_bytes();
        // What is there, not what residency thinks is there.
        let filters = version.segments().filter_map(|segment| segment.filter());
        let filter_bytes = filters.map(|filter| filter.bytes() as u64).sum();
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
            filter_budget_bytes,
            descriptors_max: self.files.cap(),
            poisoned: self.poison.get().is_some(),
        }
    }
}
