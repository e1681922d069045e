//! Sizes that follow from the options, and the least write region that they fit in.
//!
//! Two generations, the pinned ones and the flush's scratch always fit, each at its worst: so a write
//! that waits for a flush gets its memory, whatever was written before. Options for which that does not
//! hold are refused before the disk is touched.

use crate::engine::Sizes;
use crate::error::{Error, ErrorKind, Result};
use crate::log::{FRAME_HEADER_BYTES, LOG_HEADER_BYTES, SEAL_FRAME_BYTES, record};
use crate::memory::Region;
use crate::memtable::{BatchShape, Memtable, MemtableOptions};
use crate::options::{Settings, WRITE_REGION_BYTES_MAX};
use crate::segment::SegmentScratch;

/// The largest frame that its length field can describe.
const FRAME_BYTES_MAX: u64 = 1 << 31;

/// Frame bytes that a generation holds at least.
const GENERATION_BYTES_MIN: u64 = 1024;

/// What generations and the flush take of a region of some size.
pub(crate) struct Plan<'a> {
    settings: &'a Settings,
    region: Region,
    options: MemtableOptions,
}

impl<'a> Plan<'a> {
    fn new(settings: &'a Settings) -> Self {
        Self {
            settings,
            region: Region::new(settings.write_region_bytes, settings.chunk_bytes),
            options: options_for(settings, 0),
        }
    }

    /// A generation with that many frame bytes, at its worst.
    fn generation(&self, frame_bytes: u64) -> u64 {
        let key_bytes_max = self.settings.key_bytes_max;
        Memtable::bytes_max(&self.region, &self.options, frame_bytes, key_bytes_max)
    }

    fn scratch(&self, frame_bytes: u64) -> u64 {
        let records = u64::from(self.settings.records_max());
        let data_bytes = self.segment(frame_bytes);
        let output_bytes = self.settings.output_buffer_bytes as usize;
        let fence_bytes = self.settings.key_fence_bytes;
        SegmentScratch::bytes_needed(records, data_bytes, fence_bytes, output_bytes)
    }

    /// The most bytes of records in a segment: a record takes more there than in a frame, for header
    /// and padding.
    fn segment(&self, frame_bytes: u64) -> u64 {
        frame_bytes + u64::from(self.settings.records_max()) * 40
    }

    fn total(&self, frame_bytes: u64) -> u64 {
        let generations = 2 + u64::from(self.settings.pinned_generations_max);
        generations * self.generation(frame_bytes) + self.scratch(frame_bytes)
    }

    fn fits(&self, frame_bytes: u64) -> bool {
        self.total(frame_bytes) <= self.settings.write_region_bytes
    }

    /// The least that has to fit.
    fn least(&self) -> u64 {
        let sealed = self.settings.seal_bytes.unwrap_or(0);
        let batch = self.settings.batch_bytes_max.unwrap_or(0);
        sealed.max(batch).max(GENERATION_BYTES_MIN)
    }

    /// What one commit takes that is recovered alone, beside the flush.
    pub fn commit(&self, shape: &BatchShape) -> u64 {
        commit_bytes(self.settings, &self.region, shape) + self.flush_bytes()
    }

    /// The most that one with a payload of that length can take.
    pub fn payload(&self, bytes: u64) -> u64 {
        let records = bytes / record::RECORD_HEADER_BYTES as u64;
        let options = options_for(self.settings, u32::try_from(records).unwrap_or(u32::MAX));
        let key_bytes_max = self.settings.key_bytes_max;
        Memtable::bytes_max(&self.region, &options, bytes, key_bytes_max) + self.flush_bytes()
    }

    /// The most that logs take in memory, however they fall into generations: each new one, begun for
    /// want of room for a record, leaves a part of the last one unused.
    pub fn contents(&self, logs: &Contents) -> u64 {
        let options = options_for(self.settings, logs.records_of_one);
        let key_bytes_max = self.settings.key_bytes_max;
        let most = |bytes| Memtable::bytes_max(&self.region, &options, bytes, key_bytes_max);
        let generations = logs.logs + 1 + 2 * logs.records / u64::from(self.options.records_max);
        generations * most(0) + most(logs.payload_bytes) + self.flush_bytes()
    }

    /// The scratch that a store with this region sets aside.
    fn flush_bytes(&self) -> u64 {
        self.scratch(self.most())
    }

    /// Frame bytes of the largest generation.
    fn most(&self) -> u64 {
        let sealed = self.settings.seal_bytes.unwrap_or_else(|| self.largest());
        sealed.max(self.settings.batch_bytes_max.unwrap_or(0))
    }

    /// The most that fits.
    fn largest(&self) -> u64 {
        let mut largest = self.least();
        let mut step = self.settings.write_region_bytes.next_power_of_two();
        while step >= 8 {
            if self.fits(largest + step) {
                largest += step;
            }
            step /= 2;
        }
        largest
    }
}

fn options_for(settings: &Settings, records: u32) -> MemtableOptions {
    MemtableOptions {
        block_records: settings.block_records,
        records_max: settings.records_max().max(records),
        height_seed: 0,
    }
}

/// What one commit takes of a region in a memtable of its own.
pub(crate) fn commit_bytes(settings: &Settings, region: &Region, shape: &BatchShape) -> u64 {
    let options = options_for(settings, shape.records());
    Memtable::base_bytes(region, &options) + Memtable::cost_bytes_max(region, &options, shape)
}

/// The sizes, or `TooLarge` with the write region that they need.
pub(crate) fn of(settings: &Settings) -> Result<Sizes> {
    let plan = Plan::new(settings);
    if !plan.fits(plan.least()) {
        return Err(too_small(settings));
    }
    let seal_bytes = settings.seal_bytes.unwrap_or_else(|| plan.largest());
    let batch_bytes_max = settings
        .batch_bytes_max
        .unwrap_or(seal_bytes.max(GENERATION_BYTES_MIN))
        .min(FRAME_BYTES_MAX);
    let most = seal_bytes.max(batch_bytes_max);
    let frames = most + FRAME_HEADER_BYTES as u64;
    Ok(Sizes {
        seal_bytes,
        batch_bytes_max,
        log_bytes: (LOG_HEADER_BYTES + frames + SEAL_FRAME_BYTES).next_multiple_of(4096),
        scratch_bytes: plan.scratch(most),
        floor_bytes: plan.total(most).min(settings.write_region_bytes),
        segment_bytes: plan.segment(most),
    })
}

/// What live logs hold.
#[derive(Debug, Default)]
pub(crate) struct Contents {
    logs: u64,
    records: u64,
    payload_bytes: u64,
    /// The most records of one commit.
    records_of_one: u32,
}

impl Contents {
    /// Of that many logs, nothing counted yet.
    pub fn of(logs: usize) -> Self {
        Self {
            logs: logs as u64,
            ..Self::default()
        }
    }

    /// Counts a commit.
    pub fn add(&mut self, records: u32, payload_bytes: u32) {
        self.records += u64::from(records);
        self.payload_bytes += u64::from(payload_bytes);
        self.records_of_one = self.records_of_one.max(records);
    }
}

/// The refusal, with the least region that would do.
fn too_small(settings: &Settings) -> Error {
    let needed = region_for(settings, |plan| plan.total(plan.least()));
    let detail = format!(
        "write_region_bytes: two generations, {} pinned ones and the flush's scratch must fit",
        settings.pinned_generations_max
    );
    let kind = ErrorKind::TooLarge {
        needed,
        limit: settings.write_region_bytes,
    };
    Error::new(kind, "open", detail)
}

/// The least region, from today's on, that has what `needed` asks of it. A larger one needs larger lists
/// of chunks and, by default, takes more records, so it is asked again until it stands. It never falls.
pub(crate) fn region_for(settings: &Settings, needed: impl Fn(&Plan<'_>) -> u64) -> u64 {
    let mut region = settings.write_region_bytes;
    while region <= WRITE_REGION_BYTES_MAX {
        let Ok(settings) = settings.with_region(region) else {
            break;
        };
        let needed = needed(&Plan::new(&settings));
        if needed <= region {
            break;
        }
        region = needed;
    }
    region
}
