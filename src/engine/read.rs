//! Point lookups: memtables, then runs, newest first.
//!
//! Cost: a key in memory no read; in a sealed run one read of an index page and one of the record; an
//! absent key no read where filters say no, else one page per run whose filter is absent or wrong.
//!
//! The version is loaded before the bound, so that whatever the bound admits is in a generation or run
//! that the version names (`visible` only grows, and a commit published after the version was loaded is
//! newer than this lookup). A snapshot brings both, made under the registry lock. See [`Reach`] for what
//! happens when a generation leaves memory meanwhile.

use crate::engine::Engine;
use crate::engine::version::{Run, Version};
use crate::error::Result;
use crate::memtable::{Found, ValueRef};
use crate::segment::{Filtered, Lookup, LookupBuffers, ReadCounts};
use crate::sync::Arc;
use crate::types::{KEY_BYTES_MAX, KeyHash, KeyspaceId, RecordKind, Sequence};
use crate::value::Value;

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
    None,
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
            HitValue::None => expected.is_empty(),
            HitValue::Memory(value) => value.eq_bytes(expected),
            HitValue::Read(buffers, range) => buffers.value(range) == expected,
        }
    }

    pub fn copy_into(&self, out: &mut Vec<u8>) {
        out.clear();
        match &self.value {
            HitValue::None => {}
            HitValue::Memory(value) => value.copy_to(out),
            HitValue::Read(buffers, range) => out.extend_from_slice(buffers.value(range)),
        }
    }

    /// The value as a guard of its own; a value that was read gives its buffer away.
    pub fn into_value(self) -> Value {
        match self.value {
            HitValue::None => Value::from_vec(Vec::new()),
            HitValue::Memory(value) => {
                let mut bytes = Vec::with_capacity(value.len());
                value.copy_to(&mut bytes);
                Value::from_vec(bytes)
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
        let mut buffers = None;
        for generation in &version.generations {
            if generation.after_sequence >= reach.memory {
                continue;
            }
            match generation.memory().as_ref() {
                Some(memory) => {
                    if let Some(found) = memory.get(keyspace, key, hash, reach.memory) {
                        return Ok(Some(on_hit(Hit::memory(&found))));
                    }
                }
                None => {
                    let runs = generation.runs();
                    if let Some(found) =
                        self.lookup_runs(runs, keyspace, key, hash, reach.runs, &mut buffers)?
                    {
                        return Ok(Some(on_hit(found.hit(&mut buffers))));
                    }
                }
            }
        }
        let kind = self.keyspace_kind(keyspace);
        let runs = &version.runs[usize::from(kind.code())];
        let found = self.lookup_runs(runs, keyspace, key, hash, reach.runs, &mut buffers)?;
        Ok(found.map(|found| on_hit(found.hit(&mut buffers))))
    }

    fn lookup_runs(
        &self,
        runs: &[Arc<Run>],
        keyspace: KeyspaceId,
        key: &[u8],
        hash: KeyHash,
        bound: Sequence,
        buffers: &mut Option<LookupBuffers>,
    ) -> Result<Option<ReadHit>> {
        let mut counts = ReadCounts::default();
        let mut result = Ok(None);
        for run in runs
            .iter()
            .filter(|run| run.kind == self.keyspace_kind(keyspace))
        {
            let segment = &run.part(hash).index;
            if segment.meta().counts.min_sequence > bound {
                continue;
            }
            if segment.filter_may_contain(hash, &mut counts) == Filtered::No {
                continue;
            }
            let out = buffers.get_or_insert_with(LookupBuffers::default);
            match segment.lookup(&self.files, hash, keyspace, key, bound, out, &mut counts) {
                Ok(Lookup::Absent) => {}
                Ok(Lookup::Tombstone { sequence }) => {
                    let (kind, value) = (RecordKind::Tombstone, 0..0);
                    result = Ok(Some(ReadHit {
                        kind,
                        sequence,
                        value,
                    }));
                    break;
                }
                Ok(Lookup::Value { sequence, value }) => {
                    result = Ok(Some(ReadHit {
                        kind: RecordKind::Value,
                        sequence,
                        value,
                    }));
                    break;
                }
                Err(error) => {
                    result = Err(error);
                    break;
                }
            }
        }
        self.counters.add_lookup(&counts);
        result
    }

    /// One key at the current state.
    pub fn get_with<T>(
        &self,
        keyspace: KeyspaceId,
        key: &[u8],
        on_hit: impl FnOnce(Hit<'_>) -> T,
    ) -> Result<Option<T>> {
        self.check_open("get")?;
        let version = self.version.load();
        let reach = Reach::now(self.visible());
        self.get_at(&version, reach, keyspace, key, on_hit)
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
        self.counters.lookups.add(1);
        // Not `key_bytes_max`: with other options longer keys may have been written.
        if key.len() > KEY_BYTES_MAX {
            return Ok(None);
        }
        let hash = self.hasher.hash(keyspace, key);
        let live = |hit: Hit<'_>| (hit.kind == RecordKind::Value).then(|| on_hit(hit));
        Ok(self
            .lookup(version, keyspace, key, hash, reach, live)?
            .flatten())
    }
}

/// A hit in a segment: where the value lies in the record buffer.
struct ReadHit {
    kind: RecordKind,
    sequence: Sequence,
    value: std::ops::Range<usize>,
}

impl ReadHit {
    fn hit(self, buffers: &mut Option<LookupBuffers>) -> Hit<'_> {
        let value = match buffers {
            Some(buffers) => HitValue::Read(buffers, self.value),
            None => HitValue::None,
        };
        Hit {
            kind: self.kind,
            sequence: self.sequence,
            value,
        }
    }
}
