//! Numbers that a plan can compare or keep.

use sealstone::{Audit, MemoryStats, OpenReport, Stats};

use super::Wrong;
use super::machine::Machine;
use super::reads::Range;
use super::world::{call_named, fault_named, file_kind};

macro_rules! fields {
    ($from:expr, $name:expr, $($field:ident),*) => {
        match $name {
            $(stringify!($field) => i128::from($from.$field),)*
            other => return Err(format!("no figure {other}").into()),
        }
    };
}

impl Machine {
    /// Reads the words of a measure, or an expression; returns its value and the rest.
    pub fn measure<'w, 'a>(&self, words: &'w [&'a str]) -> Result<(i128, &'w [&'a str]), Wrong> {
        let disk = &self.env.disk;
        Ok(match words {
            ["stats", name, rest @ ..] => (stats(&self.opened()?.store.stats(), name)?, rest),
            ["audit", name, rest @ ..] => (audit(&self.opened()?.store.audit(), name)?, rest),
            ["report", name, rest @ ..] => {
                (report(&self.opened()?.store.open_report(), name)?, rest)
            }
            ["recovered", rest @ ..] => {
                let report = self.opened()?.store.open_report();
                (report.recovered_through.into(), rest)
            }
            ["sequence", rest @ ..] => (self.opened()?.store.sequence().into(), rest),
            ["durable", rest @ ..] => (self.opened()?.store.durable_sequence().into(), rest),
            ["acknowledged", rest @ ..] => (self.model.durable.into(), rest),
            ["runnable", rest @ ..] => (self.opened()?.store.runnable().len() as i128, rest),
            ["keyspaces", rest @ ..] => (self.opened()?.store.keyspaces().len() as i128, rest),
            ["calls", call, rest @ ..] => (disk.calls(call_named(call)?).into(), rest),
            ["mutations", rest @ ..] => (disk.mutations().into(), rest),
            ["pending", rest @ ..] => (disk.state().pending_things().into(), rest),
            ["descriptors", rest @ ..] => (disk.descriptors().into(), rest),
            ["disk-bytes", rest @ ..] => (disk.state().used_bytes.into(), rest),
            ["hits", fault, rest @ ..] => {
                let fault = fault_named(fault)?;
                let count: u64 = disk.faults(|plan| {
                    let hits = plan.hits().iter().filter(|((f, _), _)| *f == fault);
                    hits.map(|(_, count)| count).sum()
                });
                (count.into(), rest)
            }
            ["files", kind, rest @ ..] => {
                let files = disk.live_files();
                let all = *kind == "all";
                let kind = if all { None } else { Some(file_kind(kind)?) };
                let count = files.keys().filter(|n| kind.is_none_or(|k| n.kind == k));
                (count.count() as i128, rest)
            }
            ["temporaries", rest @ ..] => {
                let files = disk.live_files();
                (files.keys().filter(|n| n.temporary).count() as i128, rest)
            }
            ["size", file, rest @ ..] => {
                let name = self.file(file)?;
                (self.content(name).len() as i128, rest)
            }
            ["image-digest", rest @ ..] => (disk.content_digest().into(), rest),
            ["trace-digest", rest @ ..] => (disk.digest().into(), rest),
            ["clock", rest @ ..] => {
                let now = sealstone::env::Clock::monotonic(&*self.env.clock);
                (now.as_millis() as i128, rest)
            }
            ["count", keyspace, range @ ..] => {
                let (range, rest) = Range::read(range)?;
                match self.scan(keyspace, &range)? {
                    Ok(items) => (items.len() as i128, rest),
                    Err(error) => return Err(format!("not expected: {error:?}").into()),
                }
            }
            [expression, rest @ ..] => (self.number(expression)?, rest),
            [] => return Err("a number is missing".into()),
        })
    }
}

fn memory(memory: &MemoryStats, name: &str) -> Result<i128, Wrong> {
    Ok(fields!(
        memory,
        name,
        total_bytes,
        free_bytes,
        open_bytes,
        sealed_bytes,
        flushing_bytes,
        pinned_bytes,
        retiring_bytes,
        scratch_bytes,
        reserved_bytes
    ))
}

fn stats(stats: &Stats, name: &str) -> Result<i128, Wrong> {
    if let Some(name) = name.strip_prefix("memory.") {
        return memory(&stats.memory, name);
    }
    Ok(fields!(
        stats,
        name,
        sequence,
        durable_sequence,
        filter_bytes,
        filter_budget_bytes,
        filters_resident,
        window_bytes,
        window_entries,
        window_segments,
        window_dropped,
        window_hits,
        window_false_candidates,
        window_runs_skipped,
        window_reads,
        filters_given_up,
        filter_plans,
        filter_ghosts,
        runs,
        segments,
        segment_records,
        segment_bytes,
        logs,
        log_bytes,
        pins,
        pinned_bytes,
        lookups,
        reads,
        read_bytes,
        candidates,
        false_candidates,
        filter_tests,
        scan_reads,
        scan_bytes,
        opens,
        open_files,
        commits,
        commit_records,
        groups,
        log_syncs,
        seals,
        flushed_segments,
        flush_retries,
        damaged_indexes,
        folds,
        submit_restarts,
        busy,
        stalls,
        unlinks,
        unlink_failures,
        filter_loads,
        filter_frees,
        manifest_edits,
        manifest_rolls,
        poisoned
    ))
}

fn audit(audit: &Audit, name: &str) -> Result<i128, Wrong> {
    if let Some(name) = name.strip_prefix("memory.") {
        return memory(&audit.memory, name);
    }
    Ok(match name {
        "runs" => audit.runs.len() as i128,
        "files" => audit.files.len() as i128,
        "unlinks" => audit.unlinks.len() as i128,
        "generations" => audit.generations.len() as i128,
        "lingering" => audit.lingering.len() as i128,
        "pins" => audit.pins.len() as i128,
        _ => fields!(
            audit,
            name,
            issued,
            visible,
            durable,
            descriptors_open,
            scan_bytes,
            filter_bytes,
            filter_counted_bytes,
            filter_budget_bytes,
            descriptors_max,
            poisoned
        ),
    })
}

fn report(report: &OpenReport, name: &str) -> Result<i128, Wrong> {
    Ok(match name {
        "cuts" => report.cut.len() as i128,
        "cut_bytes" => report.cut.iter().map(|cut| i128::from(cut.bytes)).sum(),
        _ => fields!(
            report,
            name,
            created,
            recovered_through,
            replayed_commits,
            replayed_records,
            manifest_cut_bytes,
            rewritten_bytes,
            flushed_segments,
            split_generations,
            dropped_files
        ),
    })
}
