//! What a store says of its memory beside the ledger: who asked for how much, what was reused, kept, let go
//! and missed, what pressure did, and how often a byte was copied.

use crate::engine::Engine;
use crate::engine::registry::Registry;
use crate::env::PressureLevel;
use crate::error::PinInfo;
use crate::memory::{BufferCounts, Caller, Class, KeptCounts, PermitCounts, Region};
use crate::types::KeyspaceId;

/// What memory pressure did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PressureStats {
    /// The level that counts now.
    pub level: PressureLevel,
    /// How often it has changed since the opening.
    pub changes: u64,
    /// Bytes of the write region that may be held, and kept for reuse, at this level.
    pub region_limit_bytes: u64,
    /// What remains of them at the worst level.
    pub region_floor_bytes: u64,
    /// The most that filters take at this level, from the next step of their job on.
    pub filter_target_bytes: u64,
}

/// Requests of one caller, answered before they had an effect. What was granted was requested, to the byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CallerStats {
    /// `write`, `flush`, `recovery` or `scan`.
    pub caller: &'static str,
    /// The numbers.
    pub counts: PermitCounts,
}

/// Buffers of one size class, as one caller used them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BufferStats {
    /// `write` or `recovery`.
    pub caller: &'static str,
    /// `chunk`, `refs` or `slots`.
    pub class: &'static str,
    /// The numbers.
    pub counts: BufferCounts,
}

/// Buffers of one size class: in use, and those that came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeptStats {
    /// `chunk`, `refs` or `slots`.
    pub class: &'static str,
    /// The numbers.
    pub counts: KeptCounts,
}

/// What the batches of one keyspace took of the write region's chunks. Records of several keyspaces share a
/// chunk, so hits and misses are not a keyspace's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeyspaceMemory {
    /// The keyspace.
    pub keyspace: KeyspaceId,
    /// Records accepted since the opening.
    pub records: u64,
    /// Their bytes in chunks.
    pub bytes: u64,
    /// Batches with records of it that were refused for want of memory or a log.
    pub refused: u64,
}

/// How many bytes were copied where. Divided by `accepted_bytes` each is the number of copies of a byte.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CopyStats {
    /// Payload of the batches that got in.
    pub accepted_bytes: u64,
    /// Copied into chunks that have come back since: all of `accepted_bytes` once nothing is in memory.
    pub chunk_bytes: u64,
    /// Copied together with their headers so that small frames leave in one write; large ones are written
    /// from their chunks.
    pub log_bytes: u64,
    /// Copied into the flush's output buffer: records, and the index, fences and filters over them.
    pub output_bytes: u64,
}

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryCounters {
    /// Permits of the write region and, for `scan`, of the scan memory.
    pub callers: Vec<CallerStats>,
    /// Buffers of the write region. Callers that took none are left out.
    pub buffers: Vec<BufferStats>,
    /// Buffers in use and kept for reuse, by class.
    pub kept: Vec<KeptStats>,
    /// By keyspace, those that were written to.
    pub keyspaces: Vec<KeyspaceMemory>,
    /// The reader behind each sealed generation that stays in memory for one, oldest generation first.
    pub pinned_by: Vec<PinInfo>,
    /// Copies.
    pub copies: CopyStats,
}

/// Of one keyspace, under the commit lock.
#[derive(Debug, Default)]
pub(crate) struct Accepted(Vec<KeyspaceMemory>);

impl Accepted {
    /// Counts a record that got in.
    pub fn add(&mut self, keyspace: KeyspaceId, bytes: u64) {
        let counts = self.of(keyspace);
        counts.records += 1;
        counts.bytes += bytes;
    }

    /// Counts a batch that did not.
    pub fn refuse(&mut self, keyspace: KeyspaceId) {
        self.of(keyspace).refused += 1;
    }

    /// Stores have few keyspaces: a short list is quicker than a tree.
    fn of(&mut self, keyspace: KeyspaceId) -> &mut KeyspaceMemory {
        let found = self.0.iter().position(|one| one.keyspace == keyspace);
        let place = found.unwrap_or_else(|| {
            self.0.push(KeyspaceMemory {
                keyspace,
                ..KeyspaceMemory::default()
            });
            self.0.len() - 1
        });
        &mut self.0[place]
    }

    fn bytes(&self) -> u64 {
        self.0.iter().map(|one| one.bytes).sum()
    }
}

impl Engine {
    pub(crate) fn pressure_stats(&self) -> PressureStats {
        let level = self.pressure_level();
        PressureStats {
            level,
            changes: self.pressure_changes(),
            region_limit_bytes: self.region.limit_bytes(),
            region_floor_bytes: self.sizes.floor_bytes,
            filter_target_bytes: self.residency.lock().target_bytes(level),
        }
    }

    pub(crate) fn memory_counters(&self) -> MemoryCounters {
        let counts = self.region.counts();
        let (keyspaces, accepted_bytes) = {
            let commit = self.commit.lock();
            (commit.accepted.0.clone(), commit.accepted.bytes())
        };
        let scan = |region: &Region| region.counts().permits[Caller::Scan as usize];
        let callers = Caller::ALL.into_iter().map(|caller| CallerStats {
            caller: caller.name(),
            counts: match caller {
                Caller::Scan => scan(&self.scan_region),
                _ => counts.permits[caller as usize],
            },
        });
        let pairs = Caller::ALL
            .into_iter()
            .flat_map(|caller| Class::ALL.map(|class| (caller, class)));
        let buffers = pairs.map(|(caller, class)| BufferStats {
            caller: caller.name(),
            class: class.name(),
            counts: counts.buffers[caller as usize][class as usize],
        });
        MemoryCounters {
            callers: callers.collect(),
            buffers: buffers
                .filter(|one| one.counts != BufferCounts::default())
                .collect(),
            kept: Class::ALL
                .map(|class| KeptStats {
                    class: class.name(),
                    counts: counts.kept[class as usize],
                })
                .to_vec(),
            keyspaces,
            pinned_by: self.pinning(),
            copies: CopyStats {
                accepted_bytes,
                chunk_bytes: counts.kept[Class::Chunk as usize].used_bytes,
                log_bytes: self.counters.log_copied_bytes.get(),
                output_bytes: self.counters.output_copied_bytes.get(),
            },
        }
    }

    /// The readers that keep installed generations in memory, by generation.
    fn pinning(&self) -> Vec<PinInfo> {
        let registry = self.registry.lock();
        let now = self.env.clock.monotonic();
        let lingering = registry.lingering.iter();
        lingering
            .filter_map(|generation| {
                let memory = generation.memory();
                let memory = memory.as_ref()?;
                let pin = registry.pin_of(generation, memory)?;
                Some(Registry::describe(pin, now, memory.memory_bytes()))
            })
            .collect()
    }
}
