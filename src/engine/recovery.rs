//! Recovery: what the live logs hold becomes segments and one new log.
//!
//! Nothing that was merely read is trusted to be on disk (after a failed sync the page cache may show
//! bytes that the disk never got). Complete generations are written to new segments; the open one is
//! copied, frame by frame, into a new log; both are synced, and only the new manifest makes them the
//! store. Until then every old file stays as it was, so a crash here, or a hundred of them, changes
//! nothing.
//!
//! Logs are taken in the order of their sequences. A log without a seal frame ends the history: a
//! frame in any other log after that is `Corruption`, because a log is sealed and synced before the
//! next one takes frames. One generation is in memory at a time; where memory is smaller than a
//! generation it is split between commits, and the report says so.

use crate::engine::commit::Leader;
use crate::engine::flush::Output;
use crate::engine::version::Generation;
use crate::engine::{Engine, OpenGeneration};
use crate::env::{FileName, io};
use crate::error::{Error, Result};
use crate::flush::KindFlush;
use crate::log::{
    self, Frame, FrameToWrite, LOG_VERSION, LogExpectation, LogIdentity, LogReader, LogWriter,
    Tail, record,
};
use crate::manifest::{KeyspaceEntry, LogEntry, ManifestState};
use crate::memory::{Caller, Owner};
use crate::memtable::{BatchShape, Memtable, Op};
use crate::segment::SegmentWriter;
use crate::stats::Cut;
use crate::sync::Arc;
use crate::types::{KeyspaceKind, Sequence};

/// The new log that holds the open generation.
#[derive(Debug)]
pub(crate) struct RecoveredLog {
    pub number: u64,
    writer: LogWriter,
}

impl RecoveredLog {
    pub fn leader(self) -> Leader {
        let mut leader = Leader::new();
        leader.log = Some(self.writer);
        leader.log_number = self.number;
        leader
    }
}

/// What recovery leaves to the open.
#[derive(Debug, Default)]
pub(crate) struct Recovered {
    pub outputs: Vec<Output>,
    pub open: Option<OpenGeneration>,
    pub log: Option<RecoveredLog>,
    /// Read-only opens: all generations but the open one, newest first.
    pub sealed: Vec<Arc<Generation>>,
    pub through: Sequence,
    pub flushed_through: Sequence,
    pub next_generation: u64,
}

impl Recovered {
    /// Ends the open generation of a read-only open, which keeps it in memory.
    fn set_aside(&mut self) {
        if let Some(open) = self.open.take() {
            self.next_generation = open.handle.number + 1;
            self.sealed.insert(0, open.handle);
        }
    }
}

impl Engine {
    /// Replays the live logs.
    pub fn recover(&mut self, state: &ManifestState) -> Result<Recovered> {
        let mut recovered = Recovered {
            through: state.flushed_through,
            flushed_through: state.flushed_through,
            next_generation: state.next_generation,
            ..Recovered::default()
        };
        let mut logs: Vec<&LogEntry> = state.logs.iter().collect();
        let mut end = None;
        while let Some(place) = self.next_log(state, &logs, recovered.through + 1)? {
            let entry = logs.remove(place);
            let tail = self.recover_log(state, entry, &mut recovered)?;
            end = tail.map(|tail| (FileName::log(entry.number), offset_of(&tail)));
            if !is_sealed(tail.as_ref()) {
                break;
            }
        }
        let cuts = self.expect_no_frames(state, &logs, recovered.through + 1, end)?;
        self.report.cut.extend(cuts);
        if let Some(log) = &mut recovered.log {
            let name = FileName::log(log.number);
            log.writer
                .sync()
                .map_err(|cause| Error::io("recover", name, cause))?;
        }
        Ok(recovered)
    }

    /// Which of the logs goes on with sequence `expected`.
    pub(super) fn next_log(
        &self,
        state: &ManifestState,
        logs: &[&LogEntry],
        expected: Sequence,
    ) -> Result<Option<usize>> {
        for (place, entry) in logs.iter().enumerate() {
            if self.first_sequence(state, entry)? == Some(expected) {
                return Ok(Some(place));
            }
        }
        Ok(None)
    }

    /// The logs that are left hold nothing; returns what was cut of their first frames. `end` is where
    /// the history ended: if a log goes on behind a gap, that place is damaged.
    pub(super) fn expect_no_frames(
        &self,
        state: &ManifestState,
        logs: &[&LogEntry],
        expected: Sequence,
        end: Option<(FileName, u64)>,
    ) -> Result<Vec<Cut>> {
        let mut cuts = Vec::new();
        for entry in logs {
            let name = FileName::log(entry.number);
            if let Some(found) = self.first_sequence(state, entry)? {
                let detail = format!("{name} goes on at commit {found}, {expected} is missing");
                let torn = || self.torn_start(state, logs, expected);
                let place = end.or_else(torn);
                let (file, offset) = place.unwrap_or((name, log::LOG_HEADER_BYTES));
                return Err(Error::corruption("recover", file, offset, detail));
            }
            let mut reader = self.log_reader(state, entry, expected)?;
            let mut payload = Vec::new();
            while reader.next(&mut payload)?.is_some() {}
            cuts.extend(cut_of(name, reader.tail().copied()));
        }
        Ok(cuts)
    }

    /// A log whose first frame is damaged, for the report of a gap that it may have made.
    fn torn_start(
        &self,
        state: &ManifestState,
        logs: &[&LogEntry],
        expected: Sequence,
    ) -> Option<(FileName, u64)> {
        logs.iter().find_map(|entry| {
            let mut reader = self.log_reader(state, entry, expected).ok()?;
            reader.next(&mut Vec::new()).ok()?;
            let torn = matches!(reader.tail(), Some(Tail::Torn { .. }));
            torn.then(|| (FileName::log(entry.number), log::LOG_HEADER_BYTES))
        })
    }

    /// The sequence of the first frame of a log, if its header is whole.
    fn first_sequence(&self, state: &ManifestState, entry: &LogEntry) -> Result<Option<Sequence>> {
        log::first_sequence(&*self.env.vfs, &log_identity(state, entry))
    }

    pub(super) fn log_reader(
        &self,
        state: &ManifestState,
        entry: &LogEntry,
        expected: Sequence,
    ) -> Result<LogReader> {
        let identity = log_identity(state, entry);
        let expectation = LogExpectation {
            first_sequence: expected,
            durable_through: entry.durable_through,
            payload_bytes_max: self.settings.write_region_bytes,
        };
        LogReader::open(&*self.env.vfs, &identity, expectation)
    }

    /// Replays one log; says how it ended.
    fn recover_log(
        &mut self,
        state: &ManifestState,
        entry: &LogEntry,
        recovered: &mut Recovered,
    ) -> Result<Option<Tail>> {
        let first = recovered.through + 1;
        let mut kept_from = first;
        let mut reader = self.log_reader(state, entry, first)?;
        let mut payload = Vec::new();
        while let Some(frame) = reader.next(&mut payload)? {
            if !self.replay(state, entry, &frame, &payload, recovered)? {
                // Memory is smaller than the generation: what is there becomes segments of its own.
                self.split(recovered)?;
                kept_from = recovered.through + 1;
                if !self.replay(state, entry, &frame, &payload, recovered)? {
                    return Err(match self.settings.read_only {
                        true => self.logs_too_large(state),
                        false => self.commit_too_large(entry, &frame, &payload),
                    });
                }
            }
            recovered.through = frame.header.sequence;
            self.report.replayed_commits += 1;
            self.report.replayed_records += u64::from(frame.header.records);
        }
        let tail = reader.tail().copied();
        let sealed = is_sealed(tail.as_ref());
        self.report
            .cut
            .extend(cut_of(FileName::log(entry.number), tail));
        if self.settings.read_only {
            if sealed {
                recovered.set_aside();
            }
            return Ok(tail);
        }
        // Full without a seal: the commit that reached the limit was the last one before the crash.
        if sealed || self.is_full(recovered.open.as_ref()) {
            self.flush_recovered(recovered)?;
        } else if recovered.open.is_some() {
            self.rewrite(state, entry, first, kept_from, recovered)?;
        }
        Ok(tail)
    }

    /// Appends and publishes one commit; false if memory is short.
    fn replay(
        &mut self,
        state: &ManifestState,
        entry: &LogEntry,
        frame: &Frame,
        payload: &[u8],
        recovered: &mut Recovered,
    ) -> Result<bool> {
        let name = FileName::log(entry.number);
        let ops = decode_ops(name, frame, payload, &self.hasher)?;
        check_named(&state.keyspaces, name, frame, &ops)?;
        if recovered.open.is_none() {
            let Some(open) = self.recovery_generation(recovered, frame.header.records) else {
                return Ok(false);
            };
            recovered.open = Some(open);
        }
        let Some(open) = recovered.open.as_mut() else {
            return Ok(false);
        };
        let shape = BatchShape::of(self.settings.chunk_bytes, &ops);
        let Some(needed) = shape
            .ok()
            .and_then(|shape| open.writer.cost_bytes(&shape).ok())
        else {
            return Ok(false);
        };
        let Ok(mut permit) = self
            .region
            .try_acquire_for(Caller::Recovery, needed, Owner::Open)
        else {
            return Ok(false);
        };
        let sequence = frame.header.sequence;
        let Ok(appended) = open.writer.append(sequence, &ops, &mut permit) else {
            return Ok(false);
        };
        open.memory.publish(&appended);
        open.handle.set_last_sequence(sequence);
        open.records += ops.len() as u64;
        open.bytes += frame.header.frame_len();
        Ok(true)
    }

    /// A generation for what follows. Its first commit fits by its number of records, also if it was
    /// written with larger limits than today's.
    fn recovery_generation(&self, recovered: &Recovered, records: u32) -> Option<OpenGeneration> {
        let mut options = self.memtable_options(recovered.next_generation);
        options.records_max = options.records_max.max(records);
        let base = Memtable::base_bytes(&self.region, &options);
        let mut permit = self
            .region
            .try_acquire_for(Caller::Recovery, base, Owner::Open)
            .ok()?;
        let (memory, writer) = Memtable::create(&options, &mut permit).ok()?;
        let (number, after) = (recovered.next_generation, recovered.through);
        // The number of the log that it is going to be copied to, should it stay open.
        let log_number = self.take_number();
        let handle = Arc::new(Generation::new(number, log_number, after, memory.clone()));
        Some(OpenGeneration {
            handle,
            memory,
            writer,
            records: 0,
            bytes: 0,
        })
    }

    /// Makes room for a commit that the open generation has none for. A read-only open goes on with
    /// another generation in memory.
    fn split(&mut self, recovered: &mut Recovered) -> Result<()> {
        if self.settings.read_only {
            recovered.set_aside();
            return Ok(());
        }
        self.report.split_generations += 1;
        self.flush_recovered(recovered)
    }

    /// Writes the open generation to segments and lets its memory go.
    fn flush_recovered(&mut self, recovered: &mut Recovered) -> Result<()> {
        let Some(open) = recovered.open.take() else {
            return Ok(());
        };
        for kind in KeyspaceKind::ALL {
            if open.memory.counts(kind).records() > 0 {
                let output = self.write_segment(&open, kind)?;
                recovered.outputs.push(output);
                self.report.flushed_segments += 1;
            }
        }
        recovered.flushed_through = open.handle.last_sequence();
        recovered.next_generation = open.handle.number + 1;
        Ok(())
    }

    fn write_segment(&self, open: &OpenGeneration, kind: KeyspaceKind) -> Result<Output> {
        let number = self.take_number();
        let name = FileName::segment(number);
        let file = io::uninterrupted(|| self.env.vfs.create_new(name))
            .map_err(|cause| Error::io("recover", name, cause))?;
        let identity = self.segment_identity(open.handle.number, kind);
        let parameters = self.parameters.clone();
        let writer =
            SegmentWriter::new(file.clone(), name, identity, parameters, self.new_scratch())?;
        let mut merge = KindFlush::new(open.memory.clone(), kind, writer);
        let summary = loop {
            if let Some(summary) = merge.step(u32::MAX)? {
                break summary;
            }
        };
        io::uninterrupted(|| file.sync_data())
            .map_err(|cause| Error::io("recover", name, cause))?;
        Ok(Output::of(summary))
    }

    /// Copies the frames of the open generation into a new log; the caller syncs it.
    fn rewrite(
        &mut self,
        state: &ManifestState,
        entry: &LogEntry,
        first: Sequence,
        kept_from: Sequence,
        recovered: &mut Recovered,
    ) -> Result<()> {
        let Some(open) = &recovered.open else {
            return Ok(());
        };
        let number = open.handle.log_number;
        let name = FileName::log(number);
        let failed = |cause| Error::io("recover", name, cause);
        let identity = self.log_identity(number);
        let capacity = self.sizes.log_bytes.max(open.bytes + self.sizes.log_bytes);
        let file = log::create(&*self.env.vfs, &identity, capacity).map_err(failed)?;
        let mut log = RecoveredLog {
            number,
            writer: LogWriter::new(file, identity, capacity),
        };
        let mut reader = self.log_reader(state, entry, first)?;
        let (mut payload, mut staging) = (Vec::new(), Vec::new());
        let mut copied = kept_from - 1;
        while copied < recovered.through
            && let Some(frame) = reader.next(&mut payload)?
        {
            if frame.header.sequence < kept_from {
                continue;
            }
            let mut header = frame.header;
            header.durable_through = recovered.flushed_through;
            log.writer
                .append(
                    &[FrameToWrite {
                        header,
                        payload: &[&payload],
                    }],
                    &mut staging,
                )
                .map_err(failed)?;
            copied = frame.header.sequence;
            self.report.rewritten_bytes += frame.header.frame_len();
        }
        if copied != recovered.through {
            let detail = "the log shows other frames when it is read again";
            return Err(Error::corruption(
                "recover",
                FileName::log(entry.number),
                0,
                detail,
            ));
        }
        recovered.log = Some(log);
        Ok(())
    }
}

/// Which log a manifest means by an entry.
pub(super) fn log_identity(state: &ManifestState, entry: &LogEntry) -> LogIdentity {
    let LogEntry {
        number,
        incarnation,
        ..
    } = *entry;
    LogIdentity {
        store_id: state.store_id,
        number,
        incarnation,
    }
}

/// A keyspace is durably named before a handle to it exists: a record of one that is not among those
/// named (sorted by id) proves that the manifest lost an edit.
pub(super) fn check_named(
    keyspaces: &[KeyspaceEntry],
    log: FileName,
    frame: &Frame,
    ops: &[Op<'_>],
) -> Result<()> {
    let named = |id| {
        keyspaces
            .binary_search_by_key(&id, |named| named.id)
            .is_ok()
    };
    let Some(op) = ops.iter().find(|op| !named(op.keyspace)) else {
        return Ok(());
    };
    let detail = format!(
        "it does not name keyspace {:#x}, of which {log} holds a record at byte {}: it lost an edit",
        op.keyspace.0, frame.offset
    );
    Err(Error::corruption("recover", FileName::MANIFEST, 0, detail))
}

pub(super) fn is_sealed(tail: Option<&Tail>) -> bool {
    matches!(tail, Some(Tail::Sealed { .. }))
}

/// Where a log ends.
pub(super) fn offset_of(tail: &Tail) -> u64 {
    match tail {
        Tail::Clean { offset } | Tail::Sealed { offset, .. } | Tail::Torn { offset, .. } => *offset,
    }
}

/// What the report says of a torn tail.
fn cut_of(file: FileName, tail: Option<Tail>) -> Option<Cut> {
    match tail {
        Some(Tail::Torn {
            offset,
            what,
            bytes_cut,
        }) => Some(Cut {
            file,
            offset,
            bytes: bytes_cut,
            what: what.to_string(),
        }),
        _ => None,
    }
}

/// The operations of a commit frame whose checksum holds.
pub(super) fn decode_ops<'p>(
    log: FileName,
    frame: &Frame,
    payload: &'p [u8],
    hasher: &crate::types::Hasher,
) -> Result<Vec<Op<'p>>> {
    let bad = |what: &str| Error::corruption("recover", log, frame.offset, what.to_string());
    let mut ops = Vec::new();
    let mut rest = payload;
    while !rest.is_empty() {
        if record::is_newer(rest) {
            let error = log::unsupported(LOG_VERSION + 1, "a record of an unknown form");
            return Err(error.with_file(log).with_offset(frame.offset));
        }
        let layout =
            record::decode_header(rest).ok_or_else(|| bad("a record header is invalid"))?;
        let (Some(key), Some(value), Some(after)) = (
            rest.get(layout.key.clone()),
            rest.get(layout.value.clone()),
            rest.get(layout.total_len..),
        ) else {
            return Err(bad("a record reaches beyond its frame"));
        };
        let hash = hasher.hash(layout.keyspace, key);
        ops.push(Op {
            keyspace: layout.keyspace,
            kind: layout.kind,
            key,
            value,
            hash,
        });
        rest = after;
    }
    if ops.len() as u64 != u64::from(frame.header.records) {
        return Err(bad(
            "the frame has another number of records than its header says",
        ));
    }
    Ok(ops)
}
