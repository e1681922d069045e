//! Openings of the store: how they begin and end, and what one holds at a moment.

use sealstone::env::FileKind;
use sealstone::{Keyspace, KeyspaceOptions, Store};

use super::keys::KEYSPACES;
use super::run::{Run, Step, Stop};
use super::weather::{self, Budget};
use super::world::Ending;
use crate::heap;

/// Heap bytes that an open store may take whatever its size: buffers of logs, manifest and lookups, and
/// the batches of the run.
const HEAP_FIXED_BYTES: u64 = 1 << 20;

/// Of them, what a store at rest takes.
const HEAP_AT_REST_BYTES: u64 = 48 << 10;

/// Heap bytes that a segment may take beside its filter, at the peak of a version's change.
const SEGMENT_HEAP_BYTES: u64 = 2048;

/// Lookups for each segment by which a new opening touches them all.
const TOUCHES: u64 = 20;

/// An open store.
#[derive(Debug)]
pub struct Opening {
    /// How many were before it.
    pub number: u64,
    pub store: Store,
    pub keyspaces: [Keyspace; 2],
    pub budget: Budget,
}

impl Run<'_> {
    /// Opens the store and returns what it recovered.
    pub fn open(&mut self) -> Step<u64> {
        let number = self.openings;
        let writes = self.settings.writes;
        let budget = weather::budget(number, self.written, writes);
        let options = weather::options(number, &budget, writes);
        let before = self.world.counts();
        let wrong = |error| Stop::Wrong(format!("opening {number}: {error}"));
        let store = Store::open_with(self.world.env().clone(), options).map_err(wrong)?;
        let opens = (self.world.counts() - before).of(FileKind::Segment).opens;
        let blocks = store.keyspace(KEYSPACES[0], KeyspaceOptions::write_once());
        let names = store.keyspace(KEYSPACES[1], KeyspaceOptions::mutable());
        let keyspaces = [blocks.map_err(wrong)?, names.map_err(wrong)?];
        let recovered = store.open_report().recovered_through;
        self.extremes.opening_opens += opens;
        self.extremes.found_segments += heap::apart(|| store.stats().segments);
        self.hour.openings += 1;
        self.restore_pressure();
        self.openings += 1;
        self.opening = Some(Opening {
            number,
            store,
            keyspaces,
            budget,
        });
        Ok(recovered)
    }

    /// Ends the opening as the schedule says, and begins the next, at once or when the process has died.
    pub fn end_opening(&mut self) -> Step {
        if self.ending.is_some() {
            return Ok(());
        }
        let ending = self.world.ending(weather::ending(self.opening()?.number));
        self.ending = Some(ending);
        match ending {
            Ending::PowerLossInside => {
                self.world.arm(&mut self.random);
                Ok(())
            }
            Ending::Close => {
                let closed = self.opening()?.store.close();
                closed.map_err(|error| self.stop("close", &error))?;
                self.restart()
            }
            Ending::Kill | Ending::PowerLoss => self.restart(),
        }
    }

    /// Begins the next opening after the last one ended.
    pub fn restart(&mut self) -> Step {
        let ending = self.ending.take().unwrap_or(Ending::Kill);
        let durable = self.opening()?.store.durable_sequence();
        let kept = match ending {
            Ending::Close | Ending::Kill => self.sequence,
            Ending::PowerLoss | Ending::PowerLossInside => durable,
        };
        match ending {
            Ending::Close => self.happened.closes += 1,
            Ending::Kill => self.happened.kills += 1,
            Ending::PowerLoss | Ending::PowerLossInside => self.happened.power_losses += 1,
        }
        if ending != Ending::Close {
            self.world.restart(ending, &mut self.random);
        }
        self.drop_view();
        self.opening = None;
        let recovered = self.open()?;
        if !(kept..=self.sequence).contains(&recovered) {
            let issued = self.sequence;
            return Err(Stop::Wrong(format!(
                "after {ending:?} {recovered} was recovered, not {kept} to {issued}"
            )));
        }
        self.happened.lost_changes += self.model.go_back(recovered);
        self.model.settle(recovered);
        self.sequence = recovered;
        Ok(())
    }

    /// Looks at sizes and keeps the extremes.
    pub fn measure(&mut self) -> Step {
        let opening = self.opening()?;
        let configured = opening.budget.total();
        let (stats, audit) = heap::apart(|| (opening.store.stats(), opening.store.audit()));
        let listed = audit.descriptors_open + audit.descriptors_other.len() as u64;
        let descriptors = match self.settings.directory {
            None => self.world.descriptors(),
            Some(_) => listed,
        };
        let memory = &stats.memory;
        let owned = memory.free_bytes
            + memory.open_bytes
            + memory.sealed_bytes
            + memory.flushing_bytes
            + memory.pinned_bytes
            + memory.retiring_bytes
            + memory.scratch_bytes
            + memory.reserved_bytes;
        if owned != memory.total_bytes {
            let total = memory.total_bytes;
            return Err(Stop::Wrong(format!("the ledger says {owned} of {total}")));
        }
        let peak = heap::take_peak_bytes() - self.heap_start;
        let allowed = configured + HEAP_FIXED_BYTES + SEGMENT_HEAP_BYTES * stats.segments;
        let extremes = &mut self.extremes;
        extremes.heap_part = extremes.heap_part.max(peak as f64 / allowed as f64);
        let filters = audit.filter_bytes.saturating_sub(audit.filter_budget_bytes) as f64;
        extremes.filter_excess = extremes.filter_excess.max(filters);
        let beyond = descriptors as f64 - audit.descriptors_max as f64;
        extremes.descriptors_excess = extremes.descriptors_excess.max(beyond);
        let hour = &mut self.hour;
        hour.heap_peak_bytes = hour.heap_peak_bytes.max(peak.max(0) as u64);
        hour.configured_bytes = configured;
        let used = memory.total_bytes - memory.free_bytes;
        hour.region_peak_bytes = hour.region_peak_bytes.max(used);
        hour.descriptors = (audit.descriptors_open, audit.descriptors_max);
        hour.filters = (stats.filter_bytes, stats.filter_budget_bytes);
        hour.filters_resident = stats.filters_resident;
        hour.fence_bytes = stats.fence_bytes;
        hour.segments = stats.segments;
        hour.segment_records = stats.segment_records;
        hour.runs = stats.runs;
        hour.file_bytes = stats.segment_bytes + stats.log_bytes;
        hour.live_bytes = self.model.live_bytes();
        hour.live_keys = self.model.live_keys(0) + self.model.live_keys(1);
        heap::apart(|| drop((stats, audit)));
        Ok(())
    }

    /// Opens once more with an empty generation, has all filters loaded and all segments touched, and says
    /// what a segment takes of the heap beside its filter and page fences. A new opening keeps no buffers for reuse.
    pub fn heap_a_segment(&mut self) -> Step<f64> {
        let sealed = self.opening()?.store.seal();
        sealed.map_err(|error| self.stop("seal", &error))?;
        self.settle_jobs()?;
        let closed = self.opening()?.store.close();
        closed.map_err(|error| self.stop("close", &error))?;
        self.ending = Some(Ending::Close);
        let found = self.extremes.found_segments;
        self.restart()?;
        // Its loads are in no hour.
        self.extremes.found_segments = found;
        self.settle_jobs()?;
        let segments = heap::apart(|| self.opening().map(|one| one.store.stats().segments))?;
        for draw in 0..TOUCHES * segments {
            let keyspace = draw as usize % 2;
            let id = self.random.below(self.model.ids(keyspace).max(1));
            self.check_key(keyspace, id)?;
        }
        let stats = heap::apart(|| self.opening().map(|opening| opening.store.stats()))?;
        let live = heap::live_bytes() - self.heap_start;
        let segments = stats.segments.max(1) as f64;
        // The flush's scratch is set aside, not allocated; what is mapped is not the heap's.
        let memory = &stats.memory;
        let region = match weather::chunks_are_mapped(&self.opening()?.budget) {
            true => 0,
            false => memory.total_bytes - memory.free_bytes - memory.scratch_bytes,
        };
        let mapped = stats.filters_by_bits.iter().map(|sum| sum.mapped_bytes);
        let filters = stats.filter_bytes - mapped.sum::<u64>();
        let listed = region + filters + stats.fence_bytes + HEAP_AT_REST_BYTES;
        heap::apart(|| drop(stats));
        if !heap::is_counting() {
            // A figure that nobody took passes no gate.
            return Ok(f64::NAN);
        }
        Ok((live as f64 - listed as f64) / segments)
    }

    /// Runs jobs until none is left.
    pub fn settle_jobs(&mut self) -> Step {
        while self.step()? {}
        Ok(())
    }
}
