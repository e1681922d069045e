//! The window table's part in the engine: the flush feeds it, a job fills it after an opening.
//!
//! A flush stores the entries of a segment while the sorted index is still at hand, and publishes the
//! generation before it swaps the version: so the table's range reaches beyond every run of every version,
//! and a lookup that loaded its version first never meets a run that is newer. An opening begins with an
//! empty range behind its newest segment; the job goes down from there.

use crate::engine::Engine;
use crate::engine::fold::is_damage;
use crate::engine::jobs::Progress;
use crate::engine::version::Run;
use crate::error::Result;
use crate::index::PackedEntry;
use crate::index::page::PAGE_ENTRIES_MAX;
use crate::segment::{PageKeeper, ReadCounts, Segment, SegmentMeta};
use crate::sync::Arc;
use crate::window::Window;

/// Entries of one step, for each record of the quantum: an entry is a small part of a record's work.
const ENTRIES_PER_RECORD: usize = 8;

/// Entries of one step at least.
const STEP_ENTRIES_MIN: usize = 64;

/// A generation that is being filled in.
#[derive(Debug)]
pub(crate) struct FillJob {
    generation: u64,
    /// One of each kind at most.
    segments: Vec<Arc<Segment>>,
    /// The segment and the index page that come next.
    at: (usize, u64),
    keeper: PageKeeper,
}

impl Engine {
    /// Begins with an empty range behind all segments.
    pub fn start_window(&mut self) {
        let version = self.version.load_full();
        let newest = |runs: &Vec<Run>| runs.first().map(|run| run.generations().1);
        let sealed = version.runs.iter().filter_map(newest).max();
        let next = self.commit.get_mut().next_generation;
        let in_memory = version.generations.last();
        let next = in_memory.map_or(next, |generation| generation.number);
        if let Some(window) = &mut self.window {
            window.start(sealed.map_or(next, |sealed| next.max(sealed.saturating_add(1))));
        }
        *self.fill.get_mut() = self.next_fill();
    }

    /// Gives entries of a finished segment to the table, from the one at `done` on; says how many. None
    /// once it has all of them, or if they do not fit.
    pub fn feed_window(
        &self,
        meta: &SegmentMeta,
        entries: &[PackedEntry],
        done: usize,
        quantum: u32,
    ) -> usize {
        let Some(window) = &self.window else {
            return 0;
        };
        let generation = meta.identity.generation_hi;
        if done == 0 && !window.reserve(generation, meta.counts.records, meta.tail_offset) {
            return 0;
        }
        let left = entries.get(done..).unwrap_or(&[]);
        let most = (quantum as usize).saturating_mul(ENTRIES_PER_RECORD);
        let now = left.len().min(most.max(STEP_ENTRIES_MIN));
        window.insert(generation, meta.identity.kind, &left[..now]);
        now
    }

    /// The generation is about to be installed; the table has all of its entries, or not.
    pub fn publish_window(&self, generation: u64, complete: bool) {
        if let Some(window) = &self.window {
            window.publish(generation, complete);
        }
    }

    /// Whether there is a generation to fill in.
    pub fn window_fills(&self) -> bool {
        let fills = |window: &Window| window.fills_below().is_some();
        self.window.as_ref().is_some_and(fills)
    }

    /// The newest generation below those covered, begun with; none, for good, if there is none or it does
    /// not fit.
    fn next_fill(&self) -> Option<FillJob> {
        let window = self.window.as_ref()?;
        let below = window.fills_below()?;
        let version = self.version.load();
        let newest_below = |runs: &Vec<Run>| {
            let newer = runs.partition_point(|run| run.generations().0 >= below);
            let segments = runs.get(newer)?.segments();
            let newer = segments.partition_point(|segment| segment.generations().1 >= below);
            segments.get(newer).cloned()
        };
        let mut segments: Vec<_> = version.runs.iter().filter_map(newest_below).collect();
        let generation = segments.iter().map(|segment| segment.generations().1).max();
        let Some(generation) = generation else {
            window.end_filling();
            return None;
        };
        segments.retain(|segment| segment.generations().1 == generation);
        let metas = segments.iter().map(|segment| segment.meta());
        let (records, tail_offset) = metas.fold((0, 0), |(records, tail_offset), meta| {
            (
                records + meta.counts.records,
                meta.tail_offset.max(tail_offset),
            )
        });
        // A slot names one generation.
        let alone = |segment: &Arc<Segment>| segment.generations() == (generation, generation);
        if !segments.iter().all(alone) {
            window.end_filling();
            return None;
        }
        let begun = window.begin_fill(generation, records, tail_offset);
        begun.then(|| FillJob {
            generation,
            segments,
            at: (0, 0),
            keeper: PageKeeper::default(),
        })
    }

    /// Reads some index pages of the generation at hand into the table. A damaged index ends the filling
    /// and is nobody's error: lookups go by the runs there, as they do below the table.
    pub fn fill_window(&self, quantum: u32) -> Result<Progress> {
        let (Some(window), mut slot) = (&self.window, self.fill.lock()) else {
            return Ok(Progress::Nothing);
        };
        let Some(job) = slot.as_mut().filter(|_| self.window_fills()) else {
            window.end_filling();
            *slot = None;
            return Ok(Progress::Nothing);
        };
        let mut counts = ReadCounts::default();
        let filled = self.fill_pages(window, job, quantum, &mut counts);
        self.counters.window_reads.add(counts.reads);
        match filled {
            Ok(false) => return Ok(Progress::Did),
            Ok(true) => *slot = self.next_fill(),
            Err(error) if is_damage(&error) => {
                window.end_filling();
                *slot = None;
            }
            Err(error) => return Err(error),
        }
        Ok(Progress::Finished)
    }

    /// True once the generation is covered, or can't be any more.
    fn fill_pages(
        &self,
        window: &Window,
        job: &mut FillJob,
        quantum: u32,
        counts: &mut ReadCounts,
    ) -> Result<bool> {
        let entries = (quantum as usize).saturating_mul(ENTRIES_PER_RECORD);
        for _ in 0..(entries / PAGE_ENTRIES_MAX).max(1) {
            let Some(segment) = job.segments.get(job.at.0) else {
                window.publish_fill(job.generation);
                return Ok(true);
            };
            let kind = segment.meta().identity.kind;
            let mut goes_on = true;
            let take = |entries: &[PackedEntry]| {
                goes_on = window.fill(job.generation, kind, entries);
            };
            let (files, keeper) = (&self.files, &mut job.keeper);
            job.at = match segment.page_entries(files, job.at.1, keeper, counts, take)? {
                true => (job.at.0, job.at.1 + 1),
                false => (job.at.0 + 1, 0),
            };
            if !goes_on {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
