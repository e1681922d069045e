//! The job that carries out the plan of filters: plan, free, load, each step bounded.
//!
//! A step makes a plan if one is due (a few milliseconds with 10,000 segments); then it frees some filters; if
//! there was none, it begins a load with two reads or goes on with it, piece by piece. Frees come before loads. The memory of a load is in the books from before it is taken to after it
//! is given back.

use crate::engine::Engine;
use crate::engine::filter_pages::ReservedPages;
use crate::engine::jobs::Progress;
use crate::engine::residency::Residency;
use crate::engine::version::Part;
use crate::env::PressureLevel;
use crate::error::{Error, ErrorKind, Result};
use crate::filter::planner::{Choice, bits_of};
use crate::segment::{FilterLoad, ReadCounts};
use crate::sync::Arc;
use crate::types::KeyHash;

/// Filters freed in a step.
const FREES_A_STEP: u64 = 64;

/// Records of a quantum for each piece of 16 KiB that a step reads.
const RECORDS_A_PIECE: u32 = 16;

/// Pieces of a step at most.
const PIECES_MAX: u32 = 64;

/// What the lock of filter loads guards, which is held during their reads.
#[derive(Debug, Default)]
pub(crate) struct FilterSlot {
    loading: Option<Loading>,
    /// For the loads after it.
    reserved: ReservedPages,
}

/// A load in progress.
#[derive(Debug)]
struct Loading {
    part: Part,
    choice: Choice,
    load: FilterLoad,
}

impl FilterSlot {
    /// Memory of the load in progress, in bytes.
    pub fn bytes(&self) -> u64 {
        let loading = self.loading.as_ref();
        loading.map_or(0, |loading| loading.load.bytes())
    }
}

impl Engine {
    /// Whether the job has something to do.
    pub fn filter_wanted(&self) -> bool {
        self.filters_lag() || self.residency.lock().has_work(self.counters.sampled.get())
    }

    /// Whether the filters have yet to follow the level of memory pressure.
    pub fn filters_lag(&self) -> bool {
        self.residency.lock().lags(self.pressure.level())
    }

    /// Another budget, kept when this returns. Waits for a step of a load in progress.
    pub fn set_filter_budget(&self, bytes: u64) -> Result<()> {
        self.check_open("set filter budget")?;
        let mut slot = self.filters.lock();
        let mut residency = self.residency.lock();
        let level = self.pressure.level();
        self.keep_budget(&mut slot, &mut residency, bytes, level);
        drop(residency);
        self.work.0.raise();
        Ok(())
    }

    /// From now on filters take no more than what a level leaves of the budget.
    fn keep_budget(
        &self,
        slot: &mut FilterSlot,
        residency: &mut Residency,
        bytes: u64,
        level: PressureLevel,
    ) {
        let version = self.version.load();
        if residency.set_budget(&version, bytes, level, self.counters.sampled.get()) {
            slot.loading = None;
            residency.end_load();
        }
        slot.reserved.clear();
        self.counters.filter_frees.add(residency.shed(&version));
        self.publish_filters(residency);
    }

    /// Counts a lookup that is one of the sampled, and how many runs without filter it met in vain. Wakes the
    /// job when a plan has become due, and no more often: to a lookup that is twenty times what it takes else.
    pub fn count_sampled(&self, ghosts: u64) {
        if ghosts > 0 {
            self.counters.filter_ghosts.add(ghosts);
        }
        self.counters.sampled.add(1);
        if self.plan_due.is_reached(self.counters.sampled.get()) {
            self.work.0.raise();
        }
    }

    /// Whether a lookup with this hash is counted where it ends in vain.
    #[inline]
    pub fn is_sampled(&self, hash: KeyHash) -> bool {
        // The top bits say which part of a run is asked; all parts are to be sampled alike.
        let mixed = hash.0.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 58;
        mixed >> (6 - u32::from(self.settings.filter_sample_bits)) == 0
    }

    /// Does one bounded step.
    pub fn filter_step(&self, quantum: u32) -> Result<Progress> {
        let mut slot = self.filters.lock();
        if let Some(progress) = self.tend_filters(&mut slot) {
            return Ok(progress);
        }
        let mut pieces = (quantum / RECORDS_A_PIECE).min(PIECES_MAX) as usize;
        match slot.loading.is_some() {
            true => pieces = pieces.max(1),
            // With a small quantum the beginning is a step of its own.
            false => slot.loading = self.begin_filter(&mut slot.reserved)?,
        }
        let Some(mut loading) = slot.loading.take() else {
            return Ok(Progress::Did);
        };
        let mut counts = ReadCounts::default();
        let Loading { part, load, .. } = &mut loading;
        let whole = part.filter_load_step(&self.files, load, pieces, &mut counts);
        self.counters.filter_reads.add(counts.reads);
        match whole {
            Ok(false) => {
                slot.loading = Some(loading);
                Ok(Progress::Did)
            }
            Ok(true) => {
                self.end_filter(loading);
                Ok(Progress::Finished)
            }
            Err(error) => {
                let Loading { part, choice, load } = loading;
                drop(load);
                self.filter_failed(part, choice, error)
            }
        }
    }

    /// Whatever needs no read, if there is something: another level, a plan, frees, the end of a load that nobody wants.
    fn tend_filters(&self, slot: &mut FilterSlot) -> Option<Progress> {
        let counted = self.counters.sampled.get();
        let level = self.pressure.level();
        let mut residency = self.residency.lock();
        if residency.lags(level) {
            let bytes = residency.configured_bytes();
            self.keep_budget(slot, &mut residency, bytes, level);
            return Some(Progress::Did);
        }
        if !residency.has_work(counted) {
            return Some(Progress::Nothing);
        }
        if residency.needs_plan(counted) {
            residency.plan(&self.version.load(), counted);
        }
        let mut freed = 0;
        while freed < FREES_A_STEP && residency.free_one() {
            freed += 1;
        }
        self.counters.filter_frees.add(freed);
        if freed > 0 {
            self.publish_filters(&residency);
        }
        if residency.is_cancelled() {
            slot.loading = None;
            residency.end_load();
        }
        if !residency.has_loads() {
            slot.reserved.clear();
        }
        (freed > 0 || !residency.has_loads()).then_some(Progress::Did)
    }

    /// Begins the best load of the plan, if there is one.
    fn begin_filter(&self, reserved: &mut ReservedPages) -> Result<Option<Loading>> {
        let (begun, pages) = {
            let mut residency = self.residency.lock();
            let pages = reserved.take_next(|| residency.next_loads());
            let (begun, freed) = residency.begin_load();
            self.counters.filter_frees.add(freed);
            if freed > 0 {
                self.publish_filters(&residency);
            }
            (begun, pages)
        };
        let Some((part, choice, bytes)) = begun else {
            return Ok(None);
        };
        let mut counts = ReadCounts::default();
        let load = part.begin_filter_load(&self.files, bits_of(choice), bytes, pages, &mut counts);
        self.counters.filter_reads.add(counts.reads);
        match load {
            Ok(load) => Ok(Some(Loading { part, choice, load })),
            Err(error) => self.filter_failed(part, choice, error).map(|_| None),
        }
    }

    /// A whole filter becomes resident, unless its part was folded meanwhile.
    fn end_filter(&self, loading: Loading) {
        let Loading { part, load, .. } = loading;
        let mut residency = self.residency.lock();
        let wanted = !residency.is_cancelled();
        residency.end_load();
        if let Some(filter) = load.finish().filter(|_| wanted) {
            let had = residency.set(&part, Arc::new(filter));
            self.publish_filters(&residency);
            self.counters.filter_loads.add(1);
            self.counters.filter_frees.add(u64::from(had));
        }
    }

    /// A load ended early, its memory given back. Damage is no error: this alternative is not there, another
    /// one may be.
    fn filter_failed(&self, part: Part, choice: Choice, error: Error) -> Result<Progress> {
        let mut residency = self.residency.lock();
        let wanted = !residency.is_cancelled();
        residency.end_load();
        match error.kind() {
            ErrorKind::Corruption | ErrorKind::Unsupported => {
                residency.give_up(&part, Some(choice));
                return Ok(Progress::Did);
            }
            ErrorKind::MissingFile => residency.give_up(&part, None),
            _ if wanted => residency.put_back(part, choice),
            _ => {}
        }
        Err(error)
    }
}
