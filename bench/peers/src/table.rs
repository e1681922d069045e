//! The figures for people.

use comfy_table::presets::ASCII_MARKDOWN;
use comfy_table::{CellAlignment, Table};

use crate::row::Row;
use crate::target::Target;

const MIB: f64 = (1 << 20) as f64;

type Column = (&'static str, fn(&Row) -> String);

/// What loading left.
const LOADS: [Column; 13] = [
    ("engine", |row| row.engine.clone()),
    ("version", |row| row.version.clone()),
    ("durable", |row| yes(row.durable)),
    ("load rec/s", |row| {
        format!("{:.0}", row.load_records_per_second)
    }),
    ("of append", |row| format!("{:.2}", row.ratio_to_append)),
    ("settled rec/s", |row| {
        format!("{:.0}", row.settled_records_per_second)
    }),
    ("batch p50 ms", |row| format!("{:.1}", row.batch_p50_ms)),
    ("worst ms", |row| format!("{:.0}", row.batch_worst_ms)),
    ("written/user B", |row| {
        format!("{:.2}", row.written_per_user_byte)
    }),
    ("load peak MiB", |row| {
        format!("{:.0}", row.load_peak_resident_bytes / MIB)
    }),
    ("disk MiB", |row| format!("{:.0}", row.disk_bytes / MIB)),
    ("disk/user", |row| {
        format!("{:.2}", row.disk_bytes / row.user_bytes.max(1) as f64)
    }),
    ("files", |row| format!("{:.0}", row.files)),
];

/// What lookups took.
const LOOKUPS: [Column; 14] = [
    ("engine", |row| row.engine.clone()),
    ("open ms", |row| format!("{:.1}", row.open_ms)),
    ("cold ms", |row| format!("{:.1}", row.cold_open_ms)),
    ("hit p50 ns", |row| format!("{:.0}", row.hit_p50_ns)),
    ("hit p99", |row| format!("{:.0}", row.hit_p99_ns)),
    ("miss p50 ns", |row| format!("{:.0}", row.miss_p50_ns)),
    ("miss p99", |row| format!("{:.0}", row.miss_p99_ns)),
    ("reads/hit", |row| format!("{:.3}", row.os_reads_per_hit)),
    ("reads/miss", |row| format!("{:.3}", row.os_reads_per_miss)),
    ("faults/hit", |row| {
        format!("{:.3}", row.minor_faults_per_hit)
    }),
    ("RSS MiB", |row| format!("{:.0}", row.resident_bytes / MIB)),
    ("anon MiB", |row| {
        format!("{:.0}", row.anonymous_bytes / MIB)
    }),
    ("cold hit us", |row| {
        format!("{:.0}", row.cold_hit_p50_ns / 1e3)
    }),
    ("cold faults", |row| {
        format!("{:.2}", row.cold_major_faults_per_hit)
    }),
];

/// Each engine by sealstone, medians of the rounds' ratios.
const RATIOS: [Column; 9] = [
    ("engine", |row| row.engine.clone()),
    ("load time", |row| format!("{:.2}", row.load_ratio)),
    ("settled time", |row| format!("{:.2}", row.settled_ratio)),
    ("hit", |row| format!("{:.2}", row.hit_ratio)),
    ("hit / Mmap", |row| format!("{:.2}", row.hit_ratio_mmap)),
    ("miss", |row| format!("{:.2}", row.miss_ratio)),
    ("miss / Mmap", |row| format!("{:.2}", row.miss_ratio_mmap)),
    ("disk", |row| format!("{:.2}", row.disk_ratio)),
    ("resident", |row| format!("{:.2}", row.resident_ratio)),
];

fn yes(whether: bool) -> String {
    if whether { "yes" } else { "no" }.to_owned()
}

fn table(columns: &[Column], rows: &[Row]) -> Table {
    let mut table = Table::new();
    table.load_style(ASCII_MARKDOWN);
    table.set_header(columns.iter().map(|(name, _)| *name));
    for row in rows {
        table.add_row(columns.iter().map(|(_, of)| of(row)));
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// All tables of a run.
pub fn text(rows: &[Row], targets: &[Target]) -> String {
    let Some(first) = rows.first() else {
        return "nothing measured\n".to_owned();
    };
    let mut judged = Table::new();
    judged.load_style(ASCII_MARKDOWN);
    judged.set_header(["target", "measured", "limit", "against", "result"]);
    for target in targets {
        judged.add_row([
            target.target.clone(),
            format!("{:.3}", target.measured),
            target.limit.clone(),
            target.against.clone(),
            if target.pass { "pass" } else { "MISS" }.to_owned(),
        ]);
    }
    format!(
        "{} records ({} segments), {} B values, batches of {}, cache budget {:.0} MiB, medians of {} rounds\n\n\
         {}\n\n{}\n\nBy sealstone's (Pread unless said), medians of the rounds' ratios; above 1 sealstone is better:\n\n\
         {}\n\n{judged}\n",
        first.records,
        first.segments,
        first.value_bytes,
        first.batch_records,
        first.cache_bytes as f64 / MIB,
        first.rounds,
        table(&LOADS, rows),
        table(&LOOKUPS, rows),
        table(&RATIOS, rows),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_engine_has_a_line_in_every_table_and_targets_say_how_they_went() {
        let row = |engine: &str| Row {
            engine: engine.to_owned(),
            user_bytes: 2 << 20,
            disk_bytes: 3.0 * MIB,
            miss_ratio: 2.5,
            ..Row::default()
        };
        let rows = [row("sealstone"), row("redb")];
        let targets = crate::target::judge(&rows);
        let text = text(&rows, &targets);
        assert_eq!(
            text.matches("| redb ").count(),
            3 + targets
                .iter()
                .filter(|target| target.against == "redb")
                .count()
        );
        assert!(text.contains("1.50") && text.contains("pass") && text.contains("MISS"));
        assert_eq!(super::text(&[], &[]), "nothing measured\n");
    }
}
