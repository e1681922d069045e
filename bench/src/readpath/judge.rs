//! The limits that the read path must show, and the table that says whether it does.
//!
//! They hold for the engine as it is opened by default: files warm and read, folds on, nobody writing.
//! The counts are those of a budget for all filters, but at 10,000 segments, where it is the report's 64 MiB.

use super::case::{Layout, policy_name};
use super::row::Row;
use crate::figures::ratio;

/// The budget of the limits at 10,000 segments.
const BUDGET_BYTES: u64 = 64 << 20;

/// Bits a key that a budget needs to count as one for all filters.
const BITS_PER_KEY_MIN: u64 = 12;

/// One limit held against one row.
#[derive(Clone, Debug, PartialEq)]
pub struct Check {
    /// Segments.
    pub segments: u64,
    /// The workload.
    pub workload: String,
    /// What is limited.
    pub what: String,
    /// What was measured.
    pub value: f64,
    /// The most that it may be.
    pub limit: f64,
}

impl Check {
    /// Whether the limit is kept.
    pub fn pass(&self) -> bool {
        self.value <= self.limit
    }
}

/// Whether the limits are meant for this row.
fn counts(row: &Row) -> bool {
    row.layout == name(Layout::Sealstone)
        && row.fold
        && !row.cold
        && row.while_writing == 0.0
        && row.policy == policy_name(super::sealed::DEFAULT_POLICY)
        && (row.budget_bytes * 8 >= BITS_PER_KEY_MIN * row.segments * row.segment_records
            || (row.segments == 10_000 && row.budget_bytes == BUDGET_BYTES))
}

fn name(layout: Layout) -> String {
    format!("{layout:?}").to_lowercase()
}

/// The most reads of a lookup.
fn reads_max(segments: u64, workload: &str) -> Option<f64> {
    Some(match (workload, segments) {
        ("HitInWindow", 10 | 100 | 1_000) => 1.01,
        ("HitDeep", 10 | 100 | 1_000) => 2.05,
        ("HitDeep", 10_000) => 2.3,
        ("Miss", 10 | 100 | 1_000) => 0.06,
        ("Miss", 511) => 0.08,
        ("Miss", 4_095) => 0.09,
        ("Miss", 10_000) => 0.9,
        _ => return None,
    })
}

/// How much less several threads of lookups may scale than as many threads of plain reads.
const SCALING_MIN: f64 = 0.9;

/// The most that a lookup may take, and in what words.
fn time_max(row: &Row) -> (f64, &'static str) {
    match (row.workload.as_str(), row.mode.as_str()) {
        ("HitInWindow", "mmap") => (0.7 * row.p_ns, "ns, 0.7 P"),
        ("HitDeep", "mmap") => (1.6 * row.p_ns, "ns, 1.6 P"),
        ("HitInWindow", _) => (1.4 * row.p_ns, "ns, 1.4 P"),
        ("HitDeep", _) => (3.1 * row.p_ns, "ns, 3.1 P"),
        _ => (2.0 * row.d_ns + row.f_ns, "ns, 2 D + F"),
    }
}

/// Holds the limits against all rows that they are meant for.
pub fn checks(rows: &[Row]) -> Vec<Check> {
    let mut checks = Vec::new();
    let rows: Vec<_> = rows.iter().filter(|row| counts(row)).collect();
    for row in &rows {
        let mut check = |what: &str, value, limit| {
            checks.push(Check {
                segments: row.segments,
                workload: row.workload.clone(),
                what: what.to_owned(),
                value,
                limit,
            });
        };
        if let Some(limit) = reads_max(row.segments, &row.workload) {
            check("reads", row.reads, limit);
        }
        let (limit, what) = time_max(row);
        check(what, row.lookup_ns, limit);
        check("ns, F", row.f_ns, 150.0);
        if row.threads > 1 {
            // Plain reads' scaling by that of lookups.
            let behind = ratio(row.plain_scaling, row.scaling);
            check("plain / own scaling", behind, 1.0 / SCALING_MIN);
        }
        for (segments, less, limit) in [(1_000, 10, 3.0), (10_000, 100, 2.0)] {
            let earlier = rows.iter().find(|other| {
                other.segments == less && other.workload == row.workload && other.mode == row.mode
            });
            if let Some(earlier) = earlier
                && row.segments == segments
            {
                let growth = ratio(row.lookup_ns, earlier.lookup_ns);
                check(&format!("times the cost at {less}"), growth, limit);
            }
        }
    }
    checks
}

/// Notes in each row what it missed.
pub fn mark(rows: &mut [Row]) {
    let checks = checks(rows);
    for row in rows.iter_mut().filter(|row| counts(row)) {
        let missed: Vec<_> = checks
            .iter()
            .filter(|check| !check.pass())
            .filter(|check| check.segments == row.segments && check.workload == row.workload)
            .map(|check| check.what.as_str())
            .collect();
        row.missed = missed.join("; ");
    }
}

/// All rows and all limits, for people.
pub fn table(rows: &[Row]) -> String {
    let mut text = format!(
        "{:>8} {:<12} {:>9} {:>9} {:>10} {:>10} {:>10} {:>6} {:>6} {:>6}  {}\n",
        "segments",
        "workload",
        "reads",
        "os reads",
        "ns",
        "p99 ns",
        "p999 ns",
        "/P",
        "/D",
        "/F",
        "of"
    );
    for row in rows {
        let by = |limit: f64| ratio(row.lookup_ns, limit);
        text += &format!(
            "{:>8} {:<12} {:>9.3} {:>9.3} {:>10.0} {:>10} {:>10} {:>6.2} {:>6.1} {:>6.1}  {}\n",
            row.segments,
            row.workload,
            row.reads,
            row.os_reads,
            row.lookup_ns,
            row.p99_ns,
            row.p999_ns,
            by(row.p_ns),
            by(row.d_ns),
            by(row.f_ns),
            row.series(),
        );
    }
    let checks = checks(rows);
    if !checks.is_empty() {
        text += &format!(
            "\n{:>8} {:<12} {:<22} {:>9} {:>9}\n",
            "segments", "workload", "must show", "measured", "limit"
        );
    }
    for check in checks {
        text += &format!(
            "{:>8} {:<12} {:<22} {:>9.3} {:>9.3}  {}\n",
            check.segments,
            check.workload,
            check.what,
            check.value,
            check.limit,
            if check.pass() { "pass" } else { "FAIL" }
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(segments: u64, workload: &str, reads: f64, lookup_ns: f64) -> Row {
        Row {
            segments,
            segment_records: 12_500,
            layout: "sealstone".to_owned(),
            policy: policy_name(super::super::sealed::DEFAULT_POLICY),
            fold: true,
            mode: "pread".to_owned(),
            budget_bytes: BUDGET_BYTES,
            workload: workload.to_owned(),
            reads,
            lookup_ns,
            p_ns: 800.0,
            d_ns: 100.0,
            f_ns: 100.0,
            ..Row::default()
        }
    }

    #[test]
    fn limits_are_kept_or_missed() {
        let mut rows = vec![
            row(10, "HitInWindow", 1.0, 1_121.0),
            row(1_000, "HitInWindow", 1.02, 1_119.0),
            row(10, "Miss", 0.06, 100.0),
            row(1_000, "Miss", 0.03, 301.0),
            row(10_000, "HitDeep", 2.29, 2_479.0),
        ];
        mark(&mut rows);
        let missed: Vec<_> = rows.iter().map(|row| row.missed.as_str()).collect();
        assert_eq!(
            missed,
            [
                "ns, 1.4 P",
                "reads",
                "",
                "ns, 2 D + F; times the cost at 10",
                ""
            ]
        );
        let text = table(&rows);
        assert_eq!(text.matches("FAIL").count(), 4, "{text}");
    }

    #[test]
    fn mapped_files_and_threads_have_limits_of_their_own() {
        let mut mapped = row(1_000, "HitInWindow", 0.0, 561.0);
        mapped.mode = "mmap".to_owned();
        let mut threads = row(1_000, "Miss", 0.03, 300.0);
        (threads.threads, threads.scaling, threads.plain_scaling) = (4, 1.7, 1.9);
        let mut rows = vec![mapped, threads];
        mark(&mut rows);
        assert_eq!(rows[0].missed, "ns, 0.7 P");
        assert_eq!(rows[1].missed, "plain / own scaling");
        rows[1].scaling = 1.72;
        assert!(checks(&rows[1..]).iter().all(Check::pass));
    }

    #[test]
    fn other_rows_have_no_limits() {
        for change in [
            (|row| row.fold = false) as fn(&mut Row),
            |row| row.cold = true,
            |row| row.while_writing = 1.0,
            |row| row.layout = "go".to_owned(),
            |row| row.budget_bytes = 1 << 20,
        ] {
            let mut row = row(1_000, "Miss", 9.0, 9e9);
            change(&mut row);
            assert_eq!(checks(&[row]), []);
        }
    }
}
