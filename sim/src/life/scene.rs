//! Scenes: orders of events that some bugs need and that chance alone hardly ever makes.
//!
//! ```text
//! barrier      the process dies between a change of the manifest and its barrier, so that the next one
//!              reads what only the page cache has; then power is lost somewhere in that next open
//! no-room      the manifest finds no room again and again, while there is room for all else
//! torn-header  the header of a new log goes out in two writes, and power is lost before its barrier
//! burst        large writes and nothing else, so that many generations wait while nobody flushes them, and
//!              memory holds far more than its floor when the store comes to rest
//! rot          aimed at records, at filters, or at what lies behind records; or a whole record stands where another was
//! long-view    a snapshot outlives the runs that it reads, see `long_view.rs`
//! ```
//! All draws come from a stream of their own ([`Purpose::Scene`]), of which zero is no scene: what the other
//! streams draw for a seed does not hang on them.

use std::collections::BTreeMap;
use std::ops::Range;

use sealstone::env::{FileKind, FileName};

use super::swarm::Kind;
use super::{Lived, Open, Run};
use crate::choices::Purpose;
use crate::disk::{AimedCrash, Crash, CrashPoint, Keep, Order, Place, Survivors};
use crate::faults::{Call, Fault, Rule};
use crate::subject::Subject;

/// Of so many lives, and openings that are tried again, four have a scene.
const LIVES_PER_SCENE: u32 = 32;

/// One run in so many has a burst at its end.
const BURSTS: u32 = 8;

/// Writes of a burst.
///
/// Each seals a generation of small ones; a scan of as many segments has to fit the scan memory.
const BURST_WRITES: u32 = 36;

/// Operations of each, all of them puts.
pub(super) const BURST_OPERATIONS: u32 = 8;

/// Bytes of values in a burst: few of them are more than a chunk of memory.
const BURST_VALUE_BYTES: usize = 850;

/// Headers of logs that go out in two writes.
const TORN_HEADERS: u32 = 8;

/// What is on the stage, and what has to come next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Scene {
    /// Nothing.
    #[default]
    None,
    /// The next end is the death of the process, right before the manifest's barrier.
    Barrier,
    /// The next open loses power, soon.
    SecondCrash,
    /// The next end is a loss of power that keeps parts.
    LossOfPower,
    /// Values are large.
    Burst,
}

/// Aimed damage.
pub(super) enum Rot {
    /// Bits of one byte.
    Flip {
        /// The file.
        name: FileName,
        /// The byte.
        offset: u64,
        /// The bits.
        mask: u8,
    },
    /// A record in the place of another.
    Foreign {
        /// The file.
        name: FileName,
        /// Where the record lies.
        from: u64,
        /// Where the other lay.
        to: u64,
        /// The length of both.
        length: u64,
    },
}

impl<S: Subject> Run<S> {
    /// Arms what the scene of the coming life needs, above what was drawn for it.
    pub(super) fn set_the_stage(&mut self) {
        if self.scene == Scene::SecondCrash {
            return self.crash_again();
        }
        self.scene = Scene::None;
        match self.choices.below(Purpose::Scene, LIVES_PER_SCENE) {
            29 => self.no_room_for_the_manifest(),
            28 | 30 => self.torn_headers(),
            31 => self.death_before_the_barrier(),
            _ => {}
        }
    }

    /// Before the end of the last life: large writes and no jobs, as long as memory and logs last.
    pub(super) fn burst(&mut self, open: &mut Open<S>) -> Lived<()> {
        if open.poisoned || !self.choices.chance(Purpose::Scene, 1, BURSTS) {
            return Ok(());
        }
        self.hit("scene-burst");
        self.scene = Scene::Burst;
        for _ in 0..BURST_WRITES {
            self.step_of(Kind::Write, open)?;
        }
        self.scene = Scene::None;
        Ok(())
    }

    /// Whether writes are those of a burst.
    pub(super) fn bursts(&self) -> bool {
        self.scene == Scene::Burst
    }

    /// The least bytes of a value.
    pub(super) fn value_bytes_min(&self) -> usize {
        match self.scene {
            Scene::Burst => BURST_VALUE_BYTES,
            _ => 0,
        }
    }

    /// The name of the manifest, or what an edit says, is visible and not durable.
    fn death_before_the_barrier(&mut self) {
        let barriers = [
            (Call::SyncData, Some(FileKind::Manifest)),
            (Call::SyncDir, None),
        ];
        let (call, file) = *self.choices.pick(Purpose::Scene, &barriers);
        self.scene = Scene::Barrier;
        self.hit("scene-barrier");
        self.aim(call, file, 6);
    }

    /// Power goes while the next open believes what it read.
    fn crash_again(&mut self) {
        self.scene = Scene::LossOfPower;
        let mutation = u64::from(self.choices.log_uniform(Purpose::Scene, 6)) - 1;
        let place = *self
            .choices
            .pick(Purpose::Scene, &[Place::After, Place::Before]);
        let point = CrashPoint {
            mutation,
            place,
            panic: false,
        };
        self.no_drawn_crash();
        self.plan_crash_point(&point);
        self.env.disk.crash_at(Some(point));
    }

    /// An edit that finds no room has to leave no trace.
    fn no_room_for_the_manifest(&mut self) {
        let after = u64::from(self.choices.below(Purpose::Scene, 4));
        let times = 2 << self.choices.below(Purpose::Scene, 6);
        self.hit("scene-no-room");
        self.arm_scene(Rule {
            file: Some(FileKind::Manifest),
            times,
            ..Rule::once(Fault::NoSpace, Call::Allocate, after)
        });
    }

    /// What is left of a header that was never durable can look like anything.
    fn torn_headers(&mut self) {
        let rule = Rule::once(Fault::Short, Call::Write, 0).on(FileKind::Log);
        let seed = self.choices.subseed(Purpose::Scene);
        self.hit("scene-torn-header");
        self.arm_scene(Rule {
            seed,
            times: TORN_HEADERS,
            ..rule
        });
        self.scene = Scene::LossOfPower;
        self.aim(Call::SyncData, Some(FileKind::Log), 4);
    }

    fn arm_scene(&mut self, rule: Rule) {
        self.plan_rule(&rule);
        self.env.disk.arm(rule);
    }

    /// What was drawn for this life does not strike.
    fn no_drawn_crash(&mut self) {
        self.plan_line(|| "crash-at never".into());
        self.env.disk.crash_at(None);
        self.env.disk.crash_on(None);
    }

    /// The process dies before one of the first `bound` such calls.
    fn aim(&mut self, call: Call, file: Option<FileKind>, bound: u32) {
        let aimed = AimedCrash {
            call,
            file,
            after: u64::from(self.choices.below(Purpose::Scene, bound)),
            place: Place::Before,
            panic: false,
        };
        self.no_drawn_crash();
        self.plan_aimed_crash(&aimed);
        self.env.disk.crash_on(Some(aimed));
    }

    /// How the life ends instead of the `drawn` way.
    pub(super) fn end_of_scene(&mut self, drawn: Crash) -> Crash {
        let shut_down = self.env.disk.state().shut_down;
        match std::mem::take(&mut self.scene) {
            Scene::Barrier if !shut_down => {
                self.scene = Scene::SecondCrash;
                Crash::Kill
            }
            Scene::LossOfPower => Crash::Power(Survivors {
                keep: Keep::Seeded(self.choices.subseed(Purpose::Scene)),
                order: Order::AnySubset,
                sector_bytes: 512,
                garbage: true,
                strength: self.swarm.strength,
            }),
            _ => drawn,
        }
    }

    /// Whether a run whose files do not rot has a scene in which one does.
    pub(super) fn rots_now(&mut self) -> bool {
        !self.damaged && self.choices.chance(Purpose::Scene, 1, 32)
    }

    /// Rot that is aimed at the parts of a segment, or at the index of a run: chance mostly meets what nobody
    /// reads. None, if none is drawn or there is no such file.
    pub(super) fn aimed_rot(&mut self, files: &BTreeMap<FileName, Vec<u8>>) -> Option<Rot> {
        let way = self.choices.below(Purpose::Scene, 8);
        match way {
            0 => return None,
            1 => return self.rotten_index(files),
            _ => {}
        }
        let is_segment = |(name, _): &(&FileName, &Vec<u8>)| name.kind == FileKind::Segment;
        let segments: Vec<_> = files.iter().filter(is_segment).collect();
        if segments.is_empty() {
            return None;
        }
        let (name, bytes) = *self.choices.pick(Purpose::Scene, &segments);
        let records = S::records(bytes);
        let (first, last) = (records.first()?.start, records.last()?.end);
        match way {
            2 => self.flipped(*name, bytes, first..last),
            3 => {
                // Few bytes, of which the next life loads those of one alternative.
                let filters = S::filters(bytes);
                let filter = self.choices.below(Purpose::Scene, filters.len() as u32);
                let range = filters.get(filter as usize)?.clone();
                self.flipped(*name, bytes, range)
            }
            4..=6 => self.flipped(*name, bytes, last..bytes.len() as u64),
            _ => self.foreign_record(*name, &records),
        }
    }

    /// A bit in the first index page of a run: its segments must answer for it.
    fn rotten_index(&mut self, files: &BTreeMap<FileName, Vec<u8>>) -> Option<Rot> {
        let is_run = |(name, _): &(&FileName, &Vec<u8>)| name.kind == FileKind::Run;
        let runs: Vec<_> = files.iter().filter(is_run).collect();
        if runs.is_empty() {
            return None;
        }
        let (name, bytes) = *self.choices.pick(Purpose::Scene, &runs);
        self.flipped(*name, bytes, 4096..8192)
    }

    /// A bit of a byte that is not zero: zeros are mostly what lies between things.
    fn flipped(&mut self, name: FileName, bytes: &[u8], range: Range<u64>) -> Option<Rot> {
        let used = |at: &u64| bytes.get(*at as usize).is_some_and(|byte| *byte != 0);
        let places: Vec<u64> = range.filter(used).collect();
        let mask = 1 << self.choices.below(Purpose::Scene, 8);
        let place = self.choices.below(Purpose::Scene, places.len() as u32);
        let offset = *places.get(place as usize)?;
        Some(Rot::Flip { name, offset, mask })
    }

    /// What no checksum over the bytes alone sees.
    fn foreign_record(&mut self, name: FileName, records: &[Range<u64>]) -> Option<Rot> {
        let record = self.choices.pick(Purpose::Scene, records).clone();
        let (from, length) = (record.start, record.end - record.start);
        let alike = |other: &&Range<u64>| other.end - other.start == length && other.start != from;
        let others: Vec<_> = records.iter().filter(alike).collect();
        let other = self.choices.below(Purpose::Scene, others.len() as u32);
        let to = others.get(other as usize)?.start;
        Some(Rot::Foreign {
            name,
            from,
            to,
            length,
        })
    }
}
