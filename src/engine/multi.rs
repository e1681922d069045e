//! Several keys of one version at once.
//!
//! Keys go in the order of their hashes, so of their index pages, and in groups. All lookups of a group are made
//! as far as memory goes; what they then want to read is read together, file by file and from front to back, and
//! they go on (`segment::ahead`). Answers, errors and counts are those of one lookup after the other.

use crate::engine::Engine;
use crate::engine::read::Reach;
use crate::engine::read_buffers::ThreadBuffers;
use crate::engine::version::Version;
use crate::error::Result;
use crate::segment::ReadCounts;
use crate::types::{KEY_BYTES_MAX, KeyHash, KeyspaceId, RecordKind};
use crate::value::Value;

/// Keys whose reads are made together.
const GROUP: usize = 64;

/// A key that is asked for, and its place in the question.
#[derive(Clone, Copy)]
struct Asked<'a> {
    place: usize,
    keyspace: KeyspaceId,
    key: &'a [u8],
    hash: KeyHash,
}

type Answers = [Result<Option<Value>>];

impl Engine {
    /// The values of keys in a version, in the order asked. The error is that of the first key that has one.
    pub fn multi_get_at(
        &self,
        version: &Version,
        reach: Reach,
        keys: &[(KeyspaceId, &[u8])],
    ) -> Result<Vec<Option<Value>>> {
        let own = self.counters.of_lookups();
        own.add(|it| &it.lookups, keys.len() as u64);
        let mut answers: Vec<Result<Option<Value>>> = Vec::new();
        answers.resize_with(keys.len(), || Ok(None));
        let mut asked: Vec<_> = keys
            .iter()
            .enumerate()
            // Not `key_bytes_max`: with other options longer keys may have been written.
            .filter(|(_, (_, key))| key.len() <= KEY_BYTES_MAX)
            .map(|(place, (keyspace, key))| Asked {
                place,
                keyspace: *keyspace,
                key,
                hash: self.hash_ahead(*keyspace, key),
            })
            .collect();
        asked.sort_by_key(|asked| (self.keyspace_kind(asked.keyspace).code(), asked.hash));
        for group in asked.chunks(GROUP) {
            self.get_group(version, reach, group, &mut answers);
        }
        answers.into_iter().collect()
    }

    fn get_group(
        &self,
        version: &Version,
        reach: Reach,
        group: &[Asked<'_>],
        answers: &mut Answers,
    ) {
        let mut buffers = ThreadBuffers::default();
        // A lookup that is counted where it ends in vain is made once.
        let together = |asked: &&Asked<'_>| !self.is_sampled(asked.hash);
        let mut waiting: Vec<_> = group.iter().filter(together).collect();
        for asked in group.iter().filter(|asked| !together(asked)) {
            answers[asked.place] = self.get_asked(version, reach, asked, &mut buffers);
        }
        buffers.set_ahead();
        while !waiting.is_empty() {
            waiting.retain(|asked| {
                buffers.begin(asked.place);
                let answer = self.get_asked(version, reach, asked, &mut buffers);
                let waits = answer.is_ok() && buffers.waits();
                if !waits {
                    answers[asked.place] = answer;
                }
                waits
            });
            let mut counts = ReadCounts::default();
            buffers.read_ahead(&self.files, self.settings.cold_reads_ahead, &mut counts);
            self.counters.of_lookups().add_lookup(&counts);
        }
    }

    fn get_asked(
        &self,
        version: &Version,
        reach: Reach,
        asked: &Asked<'_>,
        buffers: &mut ThreadBuffers,
    ) -> Result<Option<Value>> {
        let Asked {
            keyspace,
            key,
            hash,
            ..
        } = *asked;
        let found = self.lookup_in(version, keyspace, key, hash, reach, buffers, |hit| {
            (hit.kind == RecordKind::Value).then(|| hit.into_value())
        });
        found.map(Option::flatten)
    }
}
