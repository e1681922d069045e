//! Point lookups: memtables, then runs, newest first.
//!
//! Cost: a key in memory no read; in a segment that the window table covers one read, of the record; in
//! another one read of an index page and one of the record; an absent key no read where the table covers
//! the run or its filter says no, else one page per run whose filter is absent or wrong.
//!
//! The version is loaded before the bound, so that whatever the bound admits is in a generation or run
//! that the version names (`visible` only grows, and a commit published after the version was loaded is
//! newer than this lookup). A snapshot brings both, made under the registry lock. See [`Reach`] for what
//! happens when a generation leaves memory meanwhile.

use crate::engine::Engine;
use crate::engine::counters::OwnStripe;
use crate::engine::explain::run_step;
use crate::engine::filter_set::Filters;
use crate::engine::fold::is_damage;
use crate::engine::read_buffers::ThreadBuffers;
use crate::engine::version::{Generation, Run, Version};
use crate::error::Result;
use crate::explain::Step;
use crate::memtable::{Found, ValueRef};
use crate::segment::{
    Filtered, Lookup, LookupBuffers, RECORD_BYTES_KEPT, ReadCounts, Segment, Wanted,
};
use crate::sync::Arc;
use crate::types::{KEY_BYTES_MAX, KeyHash, KeyspaceId, KeyspaceKind, RecordKind, Sequence};
use crate::value::Value;
use crate::window::{Probe, Slots};

/// Up to which commit a lookup looks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reach {
    memory: Sequence,
    runs: Sequence,
}

impl Reach {
    /// Everything submitted, published or not.
    pub const SUBMITTED: Self = Self {
        memory: Sequence::MAX,
        runs: Sequence::MAX,
    };

    /// The state at a registered bound, which keeps in memory what it needs.
    pub const fn at(bound: Sequence) -> Self {
        Self {
            memory: bound,
            runs: bound,
        }
    }

    /// The state now, `visible` being read after the version. Nothing keeps a generation in memory for
    /// it: when one retires meanwhile, its segment has only the newest version of a key, which may be
    /// newer than `visible` was. It is published, so it is as right an answer.
    pub const fn now(visible: Sequence) -> Self {
        Self {
            memory: visible,
            runs: Sequence::MAX,
        }
    }
}

/// What a lookup found: the newest record of the key that the bound admits.
pub(crate) struct Hit<'a> {
    pub kind: RecordKind,
    pub sequence: Sequence,
    value: HitValue<'a>,
}

enum HitValue<'a> {
    Memory(&'a ValueRef<'a>),
    /// The value lies in the buffer at this range.
    Read(&'a mut LookupBuffers, std::ops::Range<usize>),
}

impl<'a> Hit<'a> {
    pub fn memory(found: &'a Found<'a>) -> Self {
        Self {
            kind: found.kind,
            sequence: found.sequence,
            value: HitValue::Memory(&found.value),
        }
    }

    pub fn value_equals(&self, expected: &[u8]) -> bool {
        match &self.value {
            HitValue::Memory(value) => value.eq_bytes(expected),
            HitValue::Read(buffers, range) => buffers.value(range) == expected,
        }
    }

    pub fn copy_into(&self, out: &mut Vec<u8>) {
        out.clear();
        match &self.value {
            HitValue::Memory(value) => value.copy_to(out),
            HitValue::Read(buffers, range) => out.extend_from_slice(buffers.value(range)),
        }
    }

    pub fn value_len(&self) -> usize {
        match &self.value {
            HitValue::Memory(value) => value.len(),
            HitValue::Read(_, range) => range.len(),
        }
    }

    /// The value as a guard of its own. A large one that was read gives its buffer away instead of being
    /// copied.
    pub fn into_value(self) -> Value {
        match self.value {
            HitValue::Memory(value) => {
                let mut pieces = value.slices();
                match (pieces.next(), pieces.next()) {
                    (None, _) => Value::copied(&[]),
                    (Some(whole), None) => Value::copied(whole),
                    _ => {
                        let bytes = value.to_vec();
                        let range = 0..bytes.len();
                        Value::from_buffer(bytes, range)
                    }
                }
            }
            HitValue::Read(buffers, range)
                if range.len() < RECORD_BYTES_KEPT || buffers.is_mapped() =>
            {
                Value::copied(buffers.value(&range))
            }
            HitValue::Read(buffers, range) => Value::from_buffer(buffers.take_record(), range),
        }
    }
}

impl Engine {
    /// Finds the newest record of a key within `reach` and hands it, tombstones included, to `on_hit`.
    pub fn lookup<T>(
        &self,
        version: &Version,
        keyspace: KeyspaceId,
        key: &[u8],
        hash: KeyHash,
        reach: Reach,
        on_hit: impl FnOnce(Hit<'_>) -> T,
    ) -> Result<Option<T>> {
        let mut buffers = ThreadBuffers::default();
        self.lookup_in(version, keyspace, key, hash, reach, &mut buffers, on_hit)
    }

    /// The same in these buffers.
    #[inline]
    #[expect(
        clippy::too_many_arguments,
        reason = "a lookup, and the buffers it is watched in"
    )]
    pub fn lookup_in<T>(
        &self,
        version: &Version,
        keyspace: KeyspaceId,
        key: &[u8],
        hash: KeyHash,
        reach: Reach,
        buffers: &mut ThreadBuffers,
        on_hit: impl FnOnce(Hit<'_>) -> T,
    ) -> Result<Option<T>> {
        let kind = self.keyspace_kind(keyspace);
        let wanted = Wanted {
            hash,
            keyspace,
            key,
            bound: reach.runs,
            known_from: u64::MAX,
        };
        let own = self.counters.of_lookups();
        let mut filters = self.filters_of(version, kind);
        self.prefetch_filters(&mut filters, hash, own);
        for generation in &version.generations {
            if generation.after_sequence >= reach.memory {
                continue;
            }
            match generation.memory().as_ref() {
                Some(memory) => {
                    let found = memory.get(keyspace, key, hash, reach.memory);
                    buffers.watch(&ReadCounts::default(), |_| Step::Memory {
                        generation: generation.number,
                        found: found.is_some(),
                    });
                    if let Some(found) = found {
                        return Ok(Some(on_hit(Hit::memory(&found))));
                    }
                }
                None => {
                    // It may read.
                    filters.pinned = None;
                    if let Some(found) = self.lookup_retired(generation, wanted, buffers)? {
                        return Ok(Some(on_hit(found.hit(buffers))));
                    }
                }
            }
        }
        // Asked only behind the memory. The version was loaded before.
        let mut slots = Slots::default();
        let window = self.window.as_ref();
        let probe = window.and_then(|it| it.probe(hash, kind, &mut slots));
        let found = self.lookup_runs(filters, probe.as_ref(), wanted, buffers, own)?;
        Ok(found.map(|found| on_hit(found.hit(buffers))))
    }

    /// Looks into the runs of a generation that has left memory since the version was made. It asks the
    /// window table for itself: one that is asked later knows no less of these runs.
    #[cold]
    fn lookup_retired(
        &self,
        generation: &Generation,
        wanted: Wanted<'_>,
        buffers: &mut ThreadBuffers,
    ) -> Result<Option<ReadHit>> {
        let kind = self.keyspace_kind(wanted.keyspace);
        let window = self.window.as_ref();
        let mut slots = Slots::default();
        let probe = window.and_then(|window| window.probe(wanted.hash, kind, &mut slots));
        let filters = Filters::by_themselves(generation.runs());
        let own = self.counters.of_lookups();
        self.lookup_runs(filters, probe.as_ref(), wanted, buffers, own)
    }

    fn lookup_runs(
        &self,
        runs: Filters<'_>,
        probe: Option<&Probe<'_>>,
        wanted: Wanted<'_>,
        buffers: &mut ThreadBuffers,
        own: OwnStripe<'_>,
    ) -> Result<Option<ReadHit>> {
        let mut counts = ReadCounts::default();
        let found = self.lookup_counted(runs, probe, wanted, buffers, &mut counts, own);
        if matches!(found, Ok(Lookup::Waits)) {
            counts = counts.of_reads();
        }
        own.learn_window_hit(counts.window_hits > 0);
        own.add_lookup(&counts);
        buffers.watch_end(&counts);
        found.map(ReadHit::of)
    }

    fn lookup_counted(
        &self,
        mut filters: Filters<'_>,
        probe: Option<&Probe<'_>>,
        mut wanted: Wanted<'_>,
        buffers: &mut ThreadBuffers,
        counts: &mut ReadCounts,
        own: OwnStripe<'_>,
    ) -> Result<Lookup> {
        let (runs, mut from) = (filters.runs, 0);
        if let Some(probe) = probe
            && let Some(covered) = filters.covered(probe)
        {
            buffers.watch(counts, |_| Step::Window {
                generations: (probe.lo, probe.hi),
                runs: covered as u64,
            });
            if probe.has_candidates() {
                let guess = filters.run_of(probe);
                filters.pinned = None;
                let among = (runs, guess);
                let found = self.lookup_window(among, probe, &wanted, buffers, counts)?;
                if found != Lookup::Absent {
                    return Ok(found);
                }
                filters = self.pinned_again(filters);
            }
            counts.window_runs_skipped += covered as u64;
            if covered == runs.len() {
                // Nor is a plan of filters made for a lookup that asks none.
                return Ok(Lookup::Absent);
            }
            wanted.known_from = probe.lo;
            from = covered;
        }
        if own.expects_window_hit() {
            // They were not asked for before.
            filters.prefetch(from, wanted.hash);
        }
        // All at once, and not pinned any more when something is read.
        let answers = filters.test(from, wanted.hash);
        drop(filters);
        let mut result = Lookup::Absent;
        let (sampled, mut ghosts) = (self.is_sampled(wanted.hash), 0);
        let passes_by = !sampled && !buffers.is_watched();
        if passes_by && answers.are_all_no(from, runs.len()) {
            counts.filter_tests += (runs.len() - from) as u64;
            return Ok(Lookup::Absent);
        }
        if self.settings.cold_reads_ahead {
            self.ask_ahead(runs, from, &answers, &wanted);
        }
        let kind = self.keyspace_kind(wanted.keyspace);
        for (place, run) in runs.iter().enumerate().skip(from) {
            let known = answers.of(place);
            if known == Some(Filtered::No) && passes_by {
                counts.filter_tests += 1;
                continue;
            }
            if run.kind() != kind {
                continue;
            }
            let part = run.part(wanted.hash);
            if part.is_newer_than(wanted.bound) {
                continue;
            }
            let filtered = match known {
                None => part.filter_may_contain(wanted.hash, counts),
                Some(known) => {
                    counts.filter_tests += u64::from(known != Filtered::NotResident);
                    known
                }
            };
            buffers.watch(counts, |_| run_step(run, part, filtered));
            if filtered != Filtered::No {
                let found = self.lookup_run(run, &wanted, buffers.get(), counts)?;
                if found != Lookup::Absent {
                    result = found;
                    break;
                }
            }
            if sampled {
                part.add_arrivals(1);
                ghosts += u64::from(filtered == Filtered::NotResident);
            }
        }
        if sampled {
            self.count_sampled(ghosts);
        }
        Ok(result)
    }

    /// Looks at the records that the window table names, newest first. Those of segments that the reader
    /// does not have in these runs are not for it. With the runs comes a guess where the first of them is.
    fn lookup_window(
        &self,
        (runs, guess): (&[Run], usize),
        probe: &Probe<'_>,
        wanted: &Wanted<'_>,
        buffers: &mut ThreadBuffers,
        counts: &mut ReadCounts,
    ) -> Result<Lookup> {
        let Some(window) = &self.window else {
            return Ok(Lookup::Absent);
        };
        let kind = self.keyspace_kind(wanted.keyspace);
        for (generation, entry) in probe.candidates() {
            let Some(segment) = segment_of((runs, guess), kind, generation) else {
                continue;
            };
            let is_alike = |hash| window.is_alike(probe, hash);
            let buffers = buffers.get();
            let found =
                segment.lookup_entry(&self.files, entry, is_alike, wanted, buffers, counts)?;
            if found != Lookup::Absent {
                return Ok(found);
            }
        }
        Ok(Lookup::Absent)
    }

    /// Looks into one run. Where the index of a folded one is damaged, its segments answer for it, each by
    /// its own index, and a job makes the index again.
    fn lookup_run(
        &self,
        run: &Run,
        wanted: &Wanted<'_>,
        buffers: &mut LookupBuffers,
        counts: &mut ReadCounts,
    ) -> Result<Lookup> {
        let part = run.part(wanted.hash);
        let mut wanted = *wanted;
        if !run.ordinals().is_empty() && run.generations().1 < wanted.known_from {
            // None of its segments is: spares a look at each one that a record is in.
            wanted.known_from = u64::MAX;
        }
        let wanted = &wanted;
        let found = part.lookup(&self.files, run.ordinals(), wanted, buffers, counts);
        match found {
            Err(error)
                if run.level() > 0 && is_damage(&error) && error.file() == Some(part.name()) =>
            {
                self.run_is_damaged(run);
                buffers.watch(counts, |cost| Step::DamagedIndex {
                    file: part.name(),
                    cost,
                });
            }
            found => return found,
        }
        for segment in run.segments() {
            if segment.generations().1 >= wanted.known_from {
                continue;
            }
            match segment.lookup(&self.files, &[], wanted, buffers, counts)? {
                Lookup::Absent => {}
                found => return Ok(found),
            }
        }
        Ok(Lookup::Absent)
    }

    /// The hash of a key that will be looked up. Asks for the window table's cache lines, which a lookup
    /// waits for longest: what it does until then goes on meanwhile.
    #[inline]
    pub fn hash_ahead(&self, keyspace: KeyspaceId, key: &[u8]) -> KeyHash {
        let hash = self.hasher.hash(keyspace, key);
        if let Some(window) = &self.window {
            window.prefetch(hash);
        }
        hash
    }

    /// One key at the current state.
    pub fn get_with<T>(
        &self,
        keyspace: KeyspaceId,
        key: &[u8],
        on_hit: impl FnOnce(Hit<'_>) -> T,
    ) -> Result<Option<T>> {
        self.check_open("get")?;
        let hash = self.hash_ahead(keyspace, key);
        let version = self.version.load();
        let reach = Reach::now(self.visible());
        self.get_hashed(&version, reach, (keyspace, key, hash), on_hit)
    }

    /// One key in a version; tombstones count as absent.
    pub fn get_at<T>(
        &self,
        version: &Version,
        reach: Reach,
        keyspace: KeyspaceId,
        key: &[u8],
        on_hit: impl FnOnce(Hit<'_>) -> T,
    ) -> Result<Option<T>> {
        let hash = self.hash_ahead(keyspace, key);
        self.get_hashed(version, reach, (keyspace, key, hash), on_hit)
    }

    fn get_hashed<T>(
        &self,
        version: &Version,
        reach: Reach,
        (keyspace, key, hash): (KeyspaceId, &[u8], KeyHash),
        on_hit: impl FnOnce(Hit<'_>) -> T,
    ) -> Result<Option<T>> {
        let own = self.counters.of_lookups();
        own.add(|it| &it.lookups, 1);
        // Not `key_bytes_max`: with other options longer keys may have been written.
        if key.len() > KEY_BYTES_MAX {
            return Ok(None);
        }
        let live = |hit: Hit<'_>| (hit.kind == RecordKind::Value).then(|| on_hit(hit));
        Ok(self
            .lookup(version, keyspace, key, hash, reach, live)?
            .flatten())
    }
}

/// The segment of a generation and kind, if one of these runs has it.
fn segment_of(
    (runs, guess): (&[Run], usize),
    kind: KeyspaceKind,
    generation: u64,
) -> Option<&Arc<Segment>> {
    let has = |run: &&Run| {
        let (oldest, newest) = run.generations();
        run.kind() == kind && (oldest..=newest).contains(&generation)
    };
    let find = || {
        let newer = runs.partition_point(|run| run.generations().0 > generation);
        runs.get(newer..)?.iter().find(|run| run.kind() == kind)
    };
    let run = runs.get(guess).filter(has).or_else(find)?;
    run.segment_of(generation)
}

/// A hit in a segment: where the value lies in the record buffer.
struct ReadHit {
    kind: RecordKind,
    sequence: Sequence,
    value: std::ops::Range<usize>,
}

impl ReadHit {
    fn of(found: Lookup) -> Option<Self> {
        let (kind, sequence, value) = match found {
            // Whoever has set reads ahead asks his buffers for what waits.
            Lookup::Absent | Lookup::Waits => return None,
            Lookup::Tombstone { sequence } => (RecordKind::Tombstone, sequence, 0..0),
            Lookup::Value { sequence, value } => (RecordKind::Value, sequence, value),
        };
        Some(Self {
            kind,
            sequence,
            value,
        })
    }

    fn hit(self, buffers: &mut ThreadBuffers) -> Hit<'_> {
        Hit {
            kind: self.kind,
            sequence: self.sequence,
            value: HitValue::Read(buffers.get(), self.value),
        }
    }
}
