//! A lookup that is watched: the steps of `get`, and what each cost.

use crate::engine::Engine;
use crate::engine::read::Reach;
use crate::engine::read_buffers::ThreadBuffers;
use crate::engine::version::Run;
use crate::error::Result;
use crate::explain::{Answer, Explanation, FilterAnswer, Step};
use crate::segment::{Filtered, Segment};
use crate::types::{KEY_BYTES_MAX, KeyspaceId, RecordKind};

impl Engine {
    /// Looks a key up as [`Engine::get_with`] does, and says how. It counts as a lookup.
    pub fn explain(&self, keyspace: KeyspaceId, key: &[u8]) -> Result<Explanation> {
        self.check_open("explain")?;
        let version = self.version.load();
        let reach = Reach::now(self.visible());
        self.counters.of_lookups().add(|it| &it.lookups, 1);
        let hash = self.hash_ahead(keyspace, key);
        let mut buffers = ThreadBuffers::watched();
        let answer = match key.len() > KEY_BYTES_MAX {
            true => Ok(None),
            false => self.lookup_in(&version, keyspace, key, hash, reach, &mut buffers, |hit| {
                let sequence = hit.sequence;
                match hit.kind {
                    RecordKind::Tombstone => Answer::Deleted { sequence },
                    RecordKind::Value => Answer::Value {
                        sequence,
                        bytes: hit.value_len() as u64,
                    },
                }
            }),
        };
        let trace = buffers.take_trace();
        Ok(Explanation {
            hash: hash.0,
            steps: trace.steps,
            answer: match answer {
                Ok(answer) => answer.unwrap_or(Answer::Absent),
                Err(error) => Answer::Failed(error),
            },
            cost: trace.total,
        })
    }
}

/// The step in which a run's filter was asked.
#[cold]
pub(crate) fn run_step(run: &Run, part: &Segment, filtered: Filtered) -> Step {
    // The filter may have left meanwhile; what it said is kept.
    let bits_per_key = part
        .filter()
        .map_or(0, |filter| filter.shape().bits_per_key);
    Step::Run {
        level: run.level(),
        generations: run.generations(),
        segments: run.segments().len() as u64,
        parts: run.parts().len() as u64,
        part: part.name(),
        filter: match filtered {
            Filtered::NotResident => FilterAnswer::NotResident,
            Filtered::No => FilterAnswer::No { bits_per_key },
            Filtered::Maybe => FilterAnswer::Maybe { bits_per_key },
        },
    }
}
