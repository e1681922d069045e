//! What must hold of a store's books: in any audit, at rest, and under pressure.

use sealstone::env::{FileKind, FileName, PressureLevel};
use sealstone::{Audit, Job, Stats, Store};

use crate::disk::SimDisk;

/// Compares the books of the only store that is open on a disk with that disk.
///
/// # Errors
/// The first rule that does not hold, with what is wrong.
pub fn check_audit(audit: &Audit, disk: &SimDisk) -> Result<(), (&'static str, String)> {
    let (issued, visible, durable) = (audit.issued, audit.visible, audit.durable);
    if !(visible <= issued && durable <= issued) {
        let what = format!("issued {issued}, visible {visible}, durable {durable}");
        return Err(("S1", what));
    }
    let memory = &audit.memory;
    let owned = memory.free_bytes
        + memory.open_bytes
        + memory.sealed_bytes
        + memory.flushing_bytes
        + memory.pinned_bytes
        + memory.retiring_bytes
        + memory.scratch_bytes
        + memory.reserved_bytes;
    if owned != memory.total_bytes {
        return Err((
            "S15",
            format!("the ledger says {owned} of {}", memory.total_bytes),
        ));
    }
    if audit.filter_bytes > audit.filter_budget_bytes {
        let what = format!(
            "{} of {} filter bytes",
            audit.filter_bytes, audit.filter_budget_bytes
        );
        return Err(("S12", what));
    }
    if audit.filter_bytes != audit.filter_counted_bytes {
        let what = format!(
            "{} filter bytes are there, {} are counted",
            audit.filter_bytes, audit.filter_counted_bytes
        );
        return Err(("S12", what));
    }
    check_given_back(audit)?;
    check_descriptors(audit, disk)?;
    check_files(audit, disk)
}

/// With nothing left to do and nobody reading, the disk holds the files of the books and no other, and
/// memory only what the open generation takes.
///
/// # Errors
/// The first rule that does not hold, with what is too much.
pub fn check_at_rest(audit: &Audit, disk: &SimDisk) -> Result<(), (&'static str, String)> {
    let state = disk.state();
    let unknown: Vec<_> = state
        .names()
        .keys()
        .filter(|name| !audit.files.contains(name))
        .collect();
    if !unknown.is_empty() || !audit.unlinks.is_empty() {
        let waiting = &audit.unlinks;
        let what = format!("{unknown:?} are of no use, {waiting:?} should be gone");
        return Err(("S9", what));
    }
    let memory = &audit.memory;
    let under_way = memory.sealed_bytes + memory.flushing_bytes;
    let kept = under_way + memory.pinned_bytes + memory.retiring_bytes;
    if kept != 0 || !audit.lingering.is_empty() {
        let lingering = &audit.lingering;
        let what = format!("{kept} bytes are kept for nobody, generations {lingering:?} linger");
        return Err(("S13", what));
    }
    Ok(())
}

/// Looks at the pressure after which nothing may be kept beyond its limit.
const LOOKS_MAX: u32 = 256;

/// Under the worst memory pressure the floor stays, and what is kept for reuse beyond it goes within few
/// steps. What the environment said counts again afterwards.
pub(super) fn check_pressure(store: &Store) -> Result<(), (&'static str, String)> {
    let (live, kept) = buffers(&store.stats());
    let total = store.stats().memory.total_bytes;
    if live + kept > total {
        let what = format!("{live} bytes of buffers and {kept} kept, of {total}");
        return Err(("S13", what));
    }
    store.set_pressure(Some(PressureLevel::Critical));
    for _ in 0..LOOKS_MAX {
        // Any job takes a look; there is nothing to do for this one.
        let _ = store.run(Job::Retire, 1);
    }
    // One step, and filters have followed.
    let _ = store.run(Job::LoadFilter, 1);
    let stats = store.stats();
    store.set_pressure(None);
    if stats.filter_bytes > stats.pressure.filter_target_bytes {
        let (bytes, target) = (stats.filter_bytes, stats.pressure.filter_target_bytes);
        let what = format!("{bytes} bytes of filters at critical, where {target} are left");
        return Err(("S13", what));
    }
    check_trimmed(&stats)?;
    let limit = stats.pressure.region_limit_bytes;
    if limit < stats.pressure.region_floor_bytes {
        let floor = stats.pressure.region_floor_bytes;
        return Err((
            "S19",
            format!("a limit of {limit} bytes is below the floor of {floor}"),
        ));
    }
    Ok(())
}

/// Bytes of buffers in use, and of those kept for reuse.
fn buffers(stats: &Stats) -> (u64, u64) {
    let counters = &stats.memory_counters;
    let live = counters.kept.iter().map(|one| one.counts.live_bytes).sum();
    let kept = counters.kept.iter().map(|one| one.counts.kept_bytes).sum();
    (live, kept)
}

/// Nothing is kept for reuse beyond the limit.
pub(super) fn check_trimmed(stats: &Stats) -> Result<(), (&'static str, String)> {
    let limit = stats.pressure.region_limit_bytes;
    let (live, kept) = buffers(stats);
    if kept > 0 && live + kept > limit {
        let what = format!("{kept} bytes are kept beside {live} although {limit} is the limit");
        return Err(("S13", what));
    }
    Ok(())
}

/// What batches and cursors took is given back when they are gone. (A step is over: no batch is on its
/// way in, and what is queued belongs to the open generation.)
fn check_given_back(audit: &Audit) -> Result<(), (&'static str, String)> {
    let reserved = audit.memory.reserved_bytes;
    if reserved != 0 {
        return Err(("S13", format!("{reserved} bytes are reserved for no batch")));
    }
    if audit.pins.is_empty() && audit.scan_bytes != 0 {
        let what = format!("{} bytes of cursors, and no iterator", audit.scan_bytes);
        return Err(("S13", what));
    }
    Ok(())
}

/// Files beside those of the audit that a flush and a manifest roll may have under way: two segments, a
/// spare log, the manifest's temporary.
const UNDER_WAY_MAX: usize = 4;

/// What is in use exists; what nobody knows of is only what is being made.
fn check_files(audit: &Audit, disk: &SimDisk) -> Result<(), (&'static str, String)> {
    let used = audit
        .files
        .iter()
        .filter(|name| !audit.unlinks.contains(name));
    let (count, missing) = disk.look_up(used);
    if let Some(name) = missing {
        return Err(("S9", format!("{name} is in use and does not exist")));
    }
    if count > audit.files.len() + UNDER_WAY_MAX {
        let state = disk.state();
        let names = state.names();
        let unknown: Vec<_> = names.keys().filter(|n| !audit.files.contains(n)).collect();
        return Err(("S9", format!("nobody knows of {unknown:?}")));
    }
    Ok(())
}

/// Every descriptor is one that the store knows of: the lock, logs, the manifest, what a flush writes,
/// and as many segments as the table counts.
fn check_descriptors(audit: &Audit, disk: &SimDisk) -> Result<(), (&'static str, String)> {
    // Nobody reads between two steps, so none is pinned.
    if audit.descriptors_open > audit.descriptors_max.max(1) {
        let (open, most) = (audit.descriptors_open, audit.descriptors_max);
        return Err((
            "S14",
            format!("{open} segments are open, at most {most} may be"),
        ));
    }
    disk.with_open_files(|open, total| {
        let others = &audit.descriptors_other;
        let times = |wanted: &FileName| others.iter().filter(|name| *name == wanted).count() as u64;
        let mut table = 0;
        for same in open.chunk_by(|a, b| a.name == b.name) {
            let (name, count) = (same[0].name, same.len() as u64);
            // The manifest was opened as a temporary and renamed.
            let known = times(&FileName {
                temporary: false,
                ..name
            });
            let sealed = matches!(name.kind, FileKind::Segment | FileKind::Run);
            if sealed && count >= known {
                table += count - known;
            } else if count != known {
                let what = format!("{name} is open {count} times, the audit says {known}");
                return Err(("S14", what));
            }
        }
        let listed = audit.descriptors_open + others.len() as u64;
        if table == audit.descriptors_open && total == listed {
            return Ok(());
        }
        let segments = audit.descriptors_open;
        let what = format!(
            "{total} descriptors, the audit lists {segments} segments and {others:?}; open are \
             {open:?}"
        );
        Err(("S14", what))
    })
}
