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
use crate::error::{Error, ErrorKind, Result};
use crate::flush::KindFlush;
use crate::log::{
    self, Frame, FrameToWrite, LogExpectation, LogIdentity, LogReader, LogWriter, Tail, record,
};
use crate::manifest::{LogEntry, ManifestState};
use crate::memory::Owner;
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
        while let Some(place) = self.next_log(state, &logs, recovered.through + 1)? {
            let entry = logs.remove(place);
            let sealed = self.recover_log(state, entry, &mut recovered)?;
            if !sealed {
                break;
            }
        }
        self.expect_no_frames(state, &logs, recovered.through + 1)?;
        if self.is_full(recovered.open.as_ref()) && !self.settings.read_only {
            // The commit that reached the limit was the last one before the crash.
            self.flush_recovered(&mut recovered)?;
        }
        if let Some(log) = &mut recovered.log {
            let name = FileName::log(log.number);
            log.writer
                .sync()
                .map_err(|cause| Error::io("recover", name, cause))?;
        }
        Ok(recovered)
    }

    /// Which of the logs goes on with sequence `expected`.
    fn next_log(
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

    /// The logs that are left hold nothing; a cut first frame is reported.
    fn expect_no_frames(
        &mut self,
        state: &ManifestState,
        logs: &[&LogEntry],
        expected: Sequence,
    ) -> Result<()> {
        for entry in logs {
            if let Some(found) = self.first_sequence(state, entry)? {
                let detail = format!("it goes on at sequence {found}, {expected} is missing");
                let name = FileName::log(entry.number);
                return Err(Error::corruption(
                    "recover",
                    name,
                    log::LOG_HEADER_BYTES,
                    detail,
                ));
            }
            let mut reader = self.log_reader(state, entry, expected)?;
            let mut payload = Vec::new();
            while reader.next(&mut payload)?.is_some() {}
            self.report_tail(FileName::log(entry.number), reader.tail().copied());
        }
        Ok(())
    }

    /// The sequence of the first frame of a log, if its header is whole.
    fn first_sequence(&self, state: &ManifestState, entry: &LogEntry) -> Result<Option<Sequence>> {
        log::first_sequence(&*self.env.vfs, &log_identity(state, entry))
    }

    fn log_reader(
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

    /// Replays one log; true if its seal frame was there.
    fn recover_log(
        &mut self,
        state: &ManifestState,
        entry: &LogEntry,
        recovered: &mut Recovered,
    ) -> Result<bool> {
        let first = recovered.through + 1;
        let mut kept_from = first;
        let mut reader = self.log_reader(state, entry, first)?;
        let mut payload = Vec::new();
        while let Some(frame) = reader.next(&mut payload)? {
            if !self.replay(entry, &frame, &payload, recovered)? {
                // Memory is smaller than the generation: what is there becomes segments of its own.
                self.flush_recovered(recovered)?;
                kept_from = recovered.through + 1;
                self.report.split_generations += 1;
                if !self.replay(entry, &frame, &payload, recovered)? {
                    return Err(self.commit_too_large(entry, &frame));
                }
            }
            recovered.through = frame.header.sequence;
            self.report.replayed_commits += 1;
            self.report.replayed_records += u64::from(frame.header.records);
        }
        let tail = reader.tail().copied();
        let sealed = matches!(tail, Some(Tail::Sealed { .. }));
        self.report_tail(FileName::log(entry.number), tail);
        if self.settings.read_only {
            if sealed && let Some(open) = recovered.open.take() {
                recovered.next_generation = open.handle.number + 1;
                recovered.sealed.insert(0, open.handle);
            }
            return Ok(sealed);
        }
        if sealed {
            self.flush_recovered(recovered)?;
        } else if recovered.open.is_some() {
            self.rewrite(state, entry, first, kept_from, recovered)?;
        }
        Ok(sealed)
    }

    fn report_tail(&mut self, file: FileName, tail: Option<Tail>) {
        if let Some(Tail::Torn {
            offset,
            what,
            bytes_cut,
        }) = tail
        {
            let what = what.to_string();
            self.report.cut.push(Cut {
                file,
                offset,
                bytes: bytes_cut,
                what,
            });
        }
    }

    fn commit_too_large(&self, entry: &LogEntry, frame: &Frame) -> Error {
        let needed = u64::from(frame.header.payload_len) * 2 + self.sizes.scratch_bytes;
        let detail = format!(
            "commit {} in the log needs more memory",
            frame.header.sequence
        );
        let kind = ErrorKind::TooLarge {
            needed,
            limit: self.settings.write_region_bytes,
        };
        Error::new(kind, "recover", detail)
            .with_file(FileName::log(entry.number))
            .with_offset(frame.offset)
    }

    /// Appends and publishes one commit; false if memory is short.
    fn replay(
        &mut self,
        entry: &LogEntry,
        frame: &Frame,
        payload: &[u8],
        recovered: &mut Recovered,
    ) -> Result<bool> {
        let name = FileName::log(entry.number);
        let ops = decode_ops(name, frame, payload, &self.hasher)?;
        if recovered.open.is_none() {
            let Some(open) = self.recovery_generation(recovered) else {
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
        let Ok(mut permit) = self.region.try_acquire(needed, Owner::Open) else {
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

    fn recovery_generation(&self, recovered: &Recovered) -> Option<OpenGeneration> {
        let options = self.memtable_options(recovered.next_generation);
        let base = Memtable::base_bytes(&self.region, &options);
        let mut permit = self.region.try_acquire(base, Owner::Open).ok()?;
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

    /// Writes the open generation to segments and lets its memory go.
    fn flush_recovered(&mut self, recovered: &mut Recovered) -> Result<()> {
        let Some(open) = recovered.open.take() else {
            return Ok(());
        };
        if self.settings.read_only {
            let needed = self.sizes.generation_bytes * (recovered.sealed.len() as u64 + 2);
            let kind = ErrorKind::TooLarge {
                needed,
                limit: self.settings.write_region_bytes,
            };
            let detail = "a read-only open keeps the live logs in memory (write_region_bytes)";
            return Err(Error::new(kind, "recover", detail));
        }
        if let Some(log) = recovered.log.take() {
            // The copy was made for an open generation; the segments replace it.
            let name = FileName::log(log.number);
            drop(log);
            self.maintenance.lock().unlinks.push_back(name);
        }
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
            SegmentWriter::new(file.clone(), name, identity, parameters, Default::default())?;
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
