//! The buffers of a scan's cursors.

use crate::engine::Engine;
use crate::error::{Error, ErrorKind, Result};
use crate::memory::{Caller, Owner, Permit};

/// The smallest buffer with which a segment is scanned.
const CURSOR_BYTES_MIN: u64 = 4096;

/// Takes the buffers of `cursors` cursors, smaller ones where memory is short.
pub(super) fn cursor_memory(engine: &Engine, cursors: u64) -> Result<(Permit, u32)> {
    let wanted = u64::from(engine.settings.cursor_buffer_bytes);
    let least = CURSOR_BYTES_MIN.min(wanted);
    let share = engine.scan_region.ledger().free_bytes() / 2 / cursors.max(1);
    let each = wanted.min(share.max(least));
    let permit = engine
        .scan_region
        .try_acquire_for(Caller::Scan, each * cursors, Owner::Scratch);
    let permit = permit.map_err(|shortage| {
        let needed = least * cursors;
        let limit = engine.scan_region.total_bytes();
        let kind = match needed <= limit {
            true => ErrorKind::Busy {
                needed: shortage.needed,
                free: shortage.free,
                pinned_by: None,
            },
            // Not even alone: there is nothing to wait for.
            false => ErrorKind::TooLarge { needed, limit },
        };
        let detail = format!("{cursors} cursors do not fit the scan memory (scan_bytes)");
        Error::new(kind, "scan", detail)
    })?;
    Ok((permit, each as u32))
}
