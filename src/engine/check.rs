//! Looks through the live logs before an open changes anything.
//!
//! A refused open leaves the directory as it was. So damage, a newer format and a commit that memory is
//! too small for are found here, by reading the logs once more than recovery does; only then debris is
//! removed and files are written. What is left to fail behind this are the system's own errors.

use crate::engine::recovery::{check_named, decode_ops, is_sealed, offset_of};
use crate::engine::{Engine, sizes};
use crate::env::FileName;
use crate::error::{Error, ErrorKind, Result};
use crate::log::{Frame, record};
use crate::manifest::{LogEntry, ManifestState};
use crate::memtable::{BatchShape, Refusal};

impl Engine {
    /// Errors: those that recovery would meet in the logs, `TooLarge` among them.
    pub fn check_logs(&self, state: &ManifestState) -> Result<()> {
        self.walk_logs(state, |entry, frame, payload| {
            self.check_fits(state, entry, frame, payload)
        })
    }

    /// Shows every commit of the live logs to `each`, in order.
    fn walk_logs(
        &self,
        state: &ManifestState,
        mut each: impl FnMut(&LogEntry, &Frame, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let mut logs: Vec<&LogEntry> = state.logs.iter().collect();
        let mut through = state.flushed_through;
        let (mut payload, mut end) = (Vec::new(), None);
        while let Some(place) = self.next_log(state, &logs, through + 1)? {
            let entry = logs.remove(place);
            let mut reader = self.log_reader(state, entry, through + 1)?;
            while let Some(frame) = reader
                .next(&mut payload)
                .map_err(|error| self.sized(error))?
            {
                each(entry, &frame, &payload)?;
                through = frame.header.sequence;
            }
            let tail = reader.tail();
            end = tail.map(|tail| (FileName::log(entry.number), offset_of(tail)));
            if !is_sealed(tail) {
                break;
            }
        }
        self.expect_no_frames(state, &logs, through + 1, end)
            .map(|_| ())
    }

    /// Whether one commit can be brought into memory that has nothing else in it.
    fn check_fits(
        &self,
        state: &ManifestState,
        entry: &LogEntry,
        frame: &Frame,
        payload: &[u8],
    ) -> Result<()> {
        let name = FileName::log(entry.number);
        let ops = decode_ops(name, frame, payload, &self.hasher)?;
        check_named(&state.keyspaces, name, frame, &ops)?;
        let fits = match BatchShape::of(self.settings.chunk_bytes, &ops) {
            Ok(shape) => {
                let needed = sizes::commit_bytes(&self.settings, &self.region, &shape);
                needed + self.sizes.scratch_bytes <= self.settings.write_region_bytes
            }
            Err(_) => false,
        };
        match fits {
            true => Ok(()),
            false => Err(self.commit_too_large(entry, frame, payload)),
        }
    }

    /// The refusal of a commit that does not fit, with what it takes.
    pub fn commit_too_large(&self, entry: &LogEntry, frame: &Frame, payload: &[u8]) -> Error {
        let chunk_bytes = self.settings.chunk_bytes;
        let sequence = frame.header.sequence;
        let shape = decode_ops(FileName::log(entry.number), frame, payload, &self.hasher)
            .map(|ops| BatchShape::of(chunk_bytes, &ops));
        let (needed, limit, what) = match shape {
            Ok(Ok(shape)) => (
                sizes::region_for(&self.settings, |plan| plan.commit(&shape)),
                self.settings.write_region_bytes,
                "write_region_bytes",
            ),
            Ok(Err(Refusal::KeyTooLong { bytes, .. })) => (
                (bytes + record::RECORD_HEADER_BYTES) as u64,
                u64::from(chunk_bytes),
                "chunk_bytes, which holds the longest key",
            ),
            Ok(Err(_)) | Err(_) => (
                self.region_for_payload(u64::from(frame.header.payload_len)),
                self.settings.write_region_bytes,
                "write_region_bytes",
            ),
        };
        let detail = format!("commit {sequence} in the log needs more: {what}");
        Error::new(ErrorKind::TooLarge { needed, limit }, "recover", detail)
            .with_file(FileName::log(entry.number))
            .with_offset(frame.offset)
    }

    /// The refusal of a read-only open whose memory is smaller than the live logs, with what they take.
    pub fn logs_too_large(&self, state: &ManifestState) -> Error {
        let mut logs = sizes::Contents::of(state.logs.len());
        let counted = self.walk_logs(state, |_, frame, _| {
            logs.add(frame.header.records, frame.header.payload_len);
            Ok(())
        });
        if let Err(error) = counted {
            return error;
        }
        let kind = ErrorKind::TooLarge {
            needed: sizes::region_for(&self.settings, |plan| plan.contents(&logs)),
            limit: self.settings.write_region_bytes,
        };
        let detail = "a read-only open keeps the live logs in memory: write_region_bytes";
        Error::new(kind, "recover", detail)
    }

    /// A payload that the reader refused unread, with the region that would surely take it.
    fn sized(&self, error: Error) -> Error {
        let ErrorKind::TooLarge { needed, limit } = *error.kind() else {
            return error;
        };
        let needed = self.region_for_payload(needed);
        let detail = "a commit in the log needs more: write_region_bytes";
        let mut sized = Error::new(ErrorKind::TooLarge { needed, limit }, "recover", detail);
        if let (Some(file), Some(offset)) = (error.file(), error.offset()) {
            sized = sized.with_file(file).with_offset(offset);
        }
        sized
    }

    fn region_for_payload(&self, payload_bytes: u64) -> u64 {
        sizes::region_for(&self.settings, |plan| plan.payload(payload_bytes))
    }
}
