//! What the comparison must show, judged by the rows of one run.

use serde::Serialize;

use crate::row::Row;

/// One thing to show.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Target {
    /// What.
    pub target: String,
    /// What was measured.
    pub measured: f64,
    /// What it is measured against, with its sense.
    pub limit: String,
    /// The row that came closest.
    pub against: String,
    /// Whether it holds.
    pub pass: bool,
}

/// The lowest value of the rows that `is_meant`, and whose it is.
fn lowest(
    rows: &[Row],
    is_meant: impl Fn(&Row) -> bool,
    of: fn(&Row) -> f64,
) -> Option<(f64, &str)> {
    rows.iter()
        .filter(|row| is_meant(row))
        .map(|row| (of(row), row.engine.as_str()))
        .min_by(|(one, _), (other, _)| one.total_cmp(other))
}

/// A ratio that must be at least `least` for every row that is meant: the closest one decides.
fn at_least(
    rows: &[Row],
    target: &str,
    least: f64,
    is_meant: impl Fn(&Row) -> bool,
    of: fn(&Row) -> f64,
) -> Option<Target> {
    let (measured, against) = lowest(rows, is_meant, of)?;
    Some(Target {
        target: target.to_owned(),
        measured,
        limit: format!(">= {least}"),
        against: against.to_owned(),
        pass: measured >= least,
    })
}

fn is_peer(row: &Row) -> bool {
    !row.engine.starts_with("sealstone")
}

/// All targets that these rows can say something about.
pub fn judge(rows: &[Row]) -> Vec<Target> {
    let named = |names: &'static [&str]| {
        move |row: &Row| names.iter().any(|name| row.engine.starts_with(name))
    };
    let own = rows.iter().find(|row| row.engine == "sealstone");
    let mapped = rows.iter().find(|row| row.engine == "sealstone-mmap");
    let durable = |row: &Row| is_peer(row) && row.durable;
    let reads = own.is_some();
    let maps = mapped.is_some();
    let when = |known: bool, target: Option<Target>| if known { target } else { None };
    let disk = own.map(|own| {
        let measured = own.disk_bytes / own.user_bytes.max(1) as f64;
        Target {
            target: "disk after close by user bytes".to_owned(),
            measured,
            limit: "<= 1.3".to_owned(),
            against: "user bytes".to_owned(),
            pass: measured <= 1.3,
        }
    });
    // A peer counts with the smaller of its two sizes: some clean up when they are opened again.
    let smallest = lowest(rows, durable, |row| {
        row.disk_bytes.min(row.reopened_disk_bytes)
    });
    let disk_of_peer = own.zip(smallest).map(|(own, (bytes, against))| Target {
        target: "disk after close by the smallest durable peer's".to_owned(),
        measured: own.disk_bytes / bytes.max(1.0),
        limit: "<= 0.8".to_owned(),
        against: against.to_owned(),
        pass: own.disk_bytes <= 0.8 * bytes,
    });
    [
        when(
            reads,
            at_least(
                rows,
                "miss p50: every peer's by Pread's",
                1.0,
                is_peer,
                |row| row.miss_ratio,
            ),
        ),
        when(
            maps,
            at_least(
                rows,
                "miss p50: every peer's by Mmap's",
                1.0,
                is_peer,
                |row| row.miss_ratio_mmap,
            ),
        ),
        when(
            maps,
            at_least(
                rows,
                "hit p50: LMDB's and ParityDB's by Mmap's",
                1.0,
                named(&["lmdb", "parity-db"]),
                |row| row.hit_ratio_mmap,
            ),
        ),
        when(
            reads,
            at_least(
                rows,
                "hit p50: fjall's and redb's by Pread's",
                1.0,
                named(&["fjall", "redb"]),
                |row| row.hit_ratio,
            ),
        ),
        when(
            reads,
            at_least(
                rows,
                "durable load by the best durable peer's",
                3.0,
                durable,
                |row| row.load_ratio,
            ),
        ),
        when(
            reads,
            at_least(rows, "the same, settled and closed", 3.0, durable, |row| {
                row.settled_ratio
            }),
        ),
        disk,
        disk_of_peer,
    ]
    .into_iter()
    .flatten()
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(engine: &str, ratio: f64, disk_bytes: f64) -> Row {
        Row {
            engine: engine.to_owned(),
            durable: engine != "parity-db",
            user_bytes: 100,
            load_ratio: ratio,
            settled_ratio: ratio,
            hit_ratio: ratio,
            hit_ratio_mmap: ratio,
            miss_ratio: ratio,
            miss_ratio_mmap: ratio,
            disk_bytes,
            reopened_disk_bytes: disk_bytes + 1.0,
            ..Row::default()
        }
    }

    fn pass(rows: &[Row]) -> Vec<bool> {
        judge(rows).iter().map(|target| target.pass).collect()
    }

    #[test]
    fn the_closest_peer_decides() {
        let mut rows = vec![
            row("sealstone", 1.0, 120.0),
            row("sealstone-mmap", 1.0, 120.0),
            row("lmdb", 4.0, 200.0),
            row("fjall-default", 5.0, 190.0),
            // Faster to load and smaller than all, but not durable.
            row("parity-db", 2.0, 90.0),
        ];
        assert_eq!(pass(&rows), [true; 8]);
        let judged = judge(&rows);
        assert_eq!(
            (judged[0].measured, judged[0].against.as_str()),
            (2.0, "parity-db")
        );
        assert_eq!(
            (judged[4].measured, judged[4].against.as_str()),
            (4.0, "lmdb")
        );
        assert_eq!(
            (judged[6].measured, judged[7].against.as_str()),
            (1.2, "fjall-default")
        );

        rows.push(row("redb", 0.9, 140.0));
        let expected = [false, false, true, false, false, false, true, false];
        assert_eq!(pass(&rows), expected);
        rows[0].disk_bytes = 131.0;
        assert!(!judge(&rows)[6].pass);
    }

    #[test]
    fn what_was_not_measured_is_not_judged() {
        assert_eq!(judge(&[]), []);
        assert_eq!(judge(&[row("redb", 2.0, 1.0)]), []);
        let only_own = judge(&[row("sealstone", 1.0, 120.0)]);
        assert_eq!(only_own.len(), 1);
    }
}
