//! Edits, and the bytes of edits and states.
//!
//! ```text
//! edit payload  = a field per change
//! state payload = the base field, then an "add" field for each keyspace, log and segment
//!
//! tag  field          fixed part (little endian), after which fields of its own may follow
//!   1  base           family u128 | hash seed 16 bytes | hash bits u8 | clean close u8 |
//!                     incarnation u64 | next number u64 | flushed through u64 | next generation u64
//!   2  add keyspace   id u32 | kind u8 | name length u16 | name
//!   3  add log        number u64 | incarnation u64 | durable through u64 | first generation u64
//!   4  add segment    number u64 | family u128 | generations u64, u64 | kind u8 | level u8 |
//!                     part u16 | file length u64 | tail offset u64 | tail length u64 |
//!                     footer checksum u64 | records u64 | tombstones u64 | sequences u64, u64 |
//!                     key bytes u64 | value bytes u64
//!   5  drop log       number u64
//!   6  drop segment   number u64
//!   7  mark log       number u64 | durable through u64
//!   8  flushed through, 9 next number, 10 next generation: u64
//!  11  clean close    nothing
//! 0x800C  add run part   as 4, with a level above 0 and bytes of keys and values 0
//! 0x800D  drop run part  number u64
//! ```

use crate::segment::{SegmentCounts, SegmentIdentity, SegmentMeta};
use crate::types::{KeyspaceId, KeyspaceKind, Sequence};

use super::fields::{Bytes, Malformed, Taken, put_field, unknown};
use super::state::{KeyspaceEntry, LogEntry, ManifestState};

const BASE: u16 = 1;
const ADD_KEYSPACE: u16 = 2;
const ADD_LOG: u16 = 3;
const ADD_SEGMENT: u16 = 4;
const DROP_LOG: u16 = 5;
const DROP_SEGMENT: u16 = 6;
const MARK_LOG: u16 = 7;
const FLUSHED_THROUGH: u16 = 8;
const NEXT_NUMBER: u16 = 9;
const NEXT_GENERATION: u16 = 10;
const CLEAN_CLOSE: u16 = 11;
/// These two may be skipped: who does not know runs finds everything by the segments' own indexes.
const ADD_PART: u16 = 0x800C;
const DROP_PART: u16 = 0x800D;

/// One change of the state. The changes of an edit apply in order, so `NextNumber` comes before what
/// uses the number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Names a keyspace.
    AddKeyspace(KeyspaceEntry),
    /// Names a log, which is durable already.
    AddLog(LogEntry),
    /// Names a segment, or a part of a folded run's index, which is durable already.
    AddSegment(SegmentMeta),
    /// Forgets a log; it may be unlinked once the edit is durable.
    DropLog {
        /// The file's number.
        number: u64,
    },
    /// Forgets a segment; it may be unlinked once the edit is durable.
    DropSegment {
        /// The file's number.
        number: u64,
    },
    /// Forgets a part of a folded run's index; the same.
    DropPart {
        /// The file's number.
        number: u64,
    },
    /// Raises a log's mark.
    MarkLog {
        /// The file's number.
        number: u64,
        /// Commits up to this one are durable in it.
        durable_through: Sequence,
    },
    /// Raises what is in segments; in the same edit as the segments.
    FlushedThrough(Sequence),
    /// Raises the next free file number.
    NextNumber(u64),
    /// Raises the next generation.
    NextGeneration(u64),
    /// The store was closed in order. Holds until the next change.
    CleanClose,
}

/// Changes that become durable together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    /// One more than the edit before.
    pub number: u64,
    /// In the order in which they apply.
    pub changes: Vec<Change>,
}

/// Appends the payload of an edit.
pub(super) fn encode_changes(changes: &[Change], out: &mut Vec<u8>) {
    for change in changes {
        match change {
            Change::AddKeyspace(entry) => put_keyspace(out, entry),
            Change::AddLog(entry) => put_log(out, entry),
            Change::AddSegment(entry) => put_segment(out, entry),
            Change::DropLog { number } => put_numbers(out, DROP_LOG, &[*number]),
            Change::DropSegment { number } => put_numbers(out, DROP_SEGMENT, &[*number]),
            Change::DropPart { number } => put_numbers(out, DROP_PART, &[*number]),
            Change::MarkLog {
                number,
                durable_through,
            } => put_numbers(out, MARK_LOG, &[*number, *durable_through]),
            Change::FlushedThrough(to) => put_numbers(out, FLUSHED_THROUGH, &[*to]),
            Change::NextNumber(to) => put_numbers(out, NEXT_NUMBER, &[*to]),
            Change::NextGeneration(to) => put_numbers(out, NEXT_GENERATION, &[*to]),
            Change::CleanClose => put_numbers(out, CLEAN_CLOSE, &[]),
        }
    }
}

/// Reads the payload of an edit. Changes of newer releases that may be skipped are left out.
pub(super) fn decode_changes(payload: &[u8]) -> Taken<Vec<Change>> {
    let mut bytes = Bytes(payload);
    let mut changes = Vec::new();
    while let Some((tag, body)) = bytes.field()? {
        changes.extend(decode_change(tag, body)?);
    }
    Ok(changes)
}

/// Appends the payload of a whole state. Its edit number stands in the frame, its store id in the
/// file's header.
pub(super) fn encode_state(state: &ManifestState, out: &mut Vec<u8>) {
    put_field(out, BASE, |out| {
        out.extend_from_slice(&state.family_id.to_le_bytes());
        out.extend_from_slice(&state.hash_seed);
        out.push(state.hash_bits);
        out.push(u8::from(state.clean_close));
        for number in [
            state.incarnation,
            state.next_number,
            state.flushed_through,
            state.next_generation,
        ] {
            out.extend_from_slice(&number.to_le_bytes());
        }
    });
    state
        .keyspaces
        .iter()
        .for_each(|entry| put_keyspace(out, entry));
    state.logs.iter().for_each(|entry| put_log(out, entry));
    state
        .segments
        .iter()
        .for_each(|entry| put_segment(out, &entry.unpack(state.family_id)));
}

/// Reads the payload of a whole state, whose rules are still to be checked.
pub(super) fn decode_state(
    payload: &[u8],
    store_id: u128,
    edit_number: u64,
) -> Taken<ManifestState> {
    let mut bytes = Bytes(payload);
    let Some((BASE, base)) = bytes.field()? else {
        return Err(Malformed::Damaged(
            "a state that does not start with its base",
        ));
    };
    let mut state = decode_base(base, store_id, edit_number)?;
    while let Some((tag, body)) = bytes.field()? {
        match decode_change(tag, body)? {
            None => {}
            Some(Change::AddKeyspace(entry)) => state.keyspaces.push(entry),
            Some(Change::AddLog(entry)) => state.logs.push(entry),
            // The packed form says nothing of the family.
            Some(Change::AddSegment(entry)) if entry.identity.family_id != state.family_id => {
                return Err(Malformed::Damaged("a segment of another family"));
            }
            Some(Change::AddSegment(entry)) => state.segments.push(entry.pack()),
            Some(_) => return Err(Malformed::Damaged("a state that holds an edit")),
        }
    }
    Ok(state)
}

fn decode_base(mut base: Bytes<'_>, store_id: u128, edit_number: u64) -> Taken<ManifestState> {
    let mut state = ManifestState::new(store_id, base.u128()?, base.array()?, base.u8()?);
    state.clean_close = match base.u8()? {
        0 => false,
        1 => true,
        _ => return Err(Malformed::Damaged("clean close is neither 0 nor 1")),
    };
    state.incarnation = base.u64()?;
    state.next_number = base.u64()?;
    state.flushed_through = base.u64()?;
    state.next_generation = base.u64()?;
    state.edit_number = edit_number;
    base.finish()?;
    Ok(state)
}

fn put_numbers(out: &mut Vec<u8>, tag: u16, numbers: &[u64]) {
    put_field(out, tag, |out| {
        for number in numbers {
            out.extend_from_slice(&number.to_le_bytes());
        }
    });
}

fn put_keyspace(out: &mut Vec<u8>, entry: &KeyspaceEntry) {
    debug_assert!(entry.name.len() <= usize::from(u16::MAX));
    put_field(out, ADD_KEYSPACE, |out| {
        out.extend_from_slice(&entry.id.0.to_le_bytes());
        out.push(entry.kind.code());
        out.extend_from_slice(&(entry.name.len() as u16).to_le_bytes());
        out.extend_from_slice(entry.name.as_bytes());
    });
}

fn put_log(out: &mut Vec<u8>, entry: &LogEntry) {
    let numbers = [
        entry.number,
        entry.incarnation,
        entry.durable_through,
        entry.first_generation,
    ];
    put_numbers(out, ADD_LOG, &numbers);
}

fn put_segment(out: &mut Vec<u8>, entry: &SegmentMeta) {
    let identity = &entry.identity;
    let tag = match identity.level {
        0 => ADD_SEGMENT,
        _ => ADD_PART,
    };
    put_field(out, tag, |out| {
        out.extend_from_slice(&entry.number.to_le_bytes());
        out.extend_from_slice(&identity.family_id.to_le_bytes());
        out.extend_from_slice(&identity.generation_lo.to_le_bytes());
        out.extend_from_slice(&identity.generation_hi.to_le_bytes());
        out.push(identity.kind.code());
        out.push(identity.level);
        out.extend_from_slice(&identity.part.to_le_bytes());
        for number in [
            entry.file_len,
            entry.tail_offset,
            entry.tail_len,
            entry.footer_checksum,
            entry.counts.records,
            entry.counts.tombstones,
            entry.counts.min_sequence,
            entry.counts.max_sequence,
            entry.counts.key_bytes,
            entry.counts.value_bytes,
        ] {
            out.extend_from_slice(&number.to_le_bytes());
        }
    });
}

fn decode_change(tag: u16, mut body: Bytes<'_>) -> Taken<Option<Change>> {
    let change = match tag {
        ADD_KEYSPACE => Change::AddKeyspace(decode_keyspace(&mut body)?),
        ADD_LOG => Change::AddLog(LogEntry {
            number: body.u64()?,
            incarnation: body.u64()?,
            durable_through: body.u64()?,
            first_generation: body.u64()?,
        }),
        ADD_SEGMENT | ADD_PART => {
            let entry = decode_segment(&mut body)?;
            if (tag == ADD_PART) != (entry.identity.level > 0) {
                return Err(Malformed::Damaged(
                    "a segment with a level, or a part without",
                ));
            }
            Change::AddSegment(entry)
        }
        DROP_LOG => Change::DropLog {
            number: body.u64()?,
        },
        DROP_SEGMENT => Change::DropSegment {
            number: body.u64()?,
        },
        DROP_PART => Change::DropPart {
            number: body.u64()?,
        },
        MARK_LOG => Change::MarkLog {
            number: body.u64()?,
            durable_through: body.u64()?,
        },
        FLUSHED_THROUGH => Change::FlushedThrough(body.u64()?),
        NEXT_NUMBER => Change::NextNumber(body.u64()?),
        NEXT_GENERATION => Change::NextGeneration(body.u64()?),
        CLEAN_CLOSE => Change::CleanClose,
        BASE => return Err(Malformed::Damaged("a base field where none belongs")),
        tag => {
            unknown(tag)?;
            return Ok(None);
        }
    };
    body.finish()?;
    Ok(Some(change))
}

fn decode_kind(body: &mut Bytes<'_>) -> Taken<KeyspaceKind> {
    KeyspaceKind::from_code(body.u8()?).ok_or(Malformed::Damaged("an unknown kind of keyspace"))
}

fn decode_keyspace(body: &mut Bytes<'_>) -> Taken<KeyspaceEntry> {
    let id = KeyspaceId(body.u32()?);
    let kind = decode_kind(body)?;
    let length = body.u16()?;
    let name = std::str::from_utf8(body.take(usize::from(length))?)
        .map_err(|_| Malformed::Damaged("a keyspace's name is not UTF-8"))?;
    Ok(KeyspaceEntry {
        id,
        kind,
        name: name.to_owned(),
    })
}

fn decode_segment(body: &mut Bytes<'_>) -> Taken<SegmentMeta> {
    Ok(SegmentMeta {
        number: body.u64()?,
        identity: SegmentIdentity {
            family_id: body.u128()?,
            generation_lo: body.u64()?,
            generation_hi: body.u64()?,
            kind: decode_kind(body)?,
            level: body.u8()?,
            part: body.u16()?,
        },
        file_len: body.u64()?,
        tail_offset: body.u64()?,
        tail_len: body.u64()?,
        footer_checksum: body.u64()?,
        counts: SegmentCounts {
            records: body.u64()?,
            tombstones: body.u64()?,
            min_sequence: body.u64()?,
            max_sequence: body.u64()?,
            key_bytes: body.u64()?,
            value_bytes: body.u64()?,
        },
    })
}
