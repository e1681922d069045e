//! `--plot`: a bar an engine in a panel a figure, logarithmic, as an SVG file.

use std::fmt::Write;

use crate::row::Row;

/// A bar's place, and a panel's size, in pixels.
const BAR: f64 = 16.0;
const WIDTH: f64 = 230.0;
const NAMES: f64 = 150.0;
const VALUES: f64 = 64.0;
const TOP: f64 = 40.0;
const COLUMNS: usize = 2;

/// Colours that the colour-blind tell apart: sealstone's, and everyone else's.
const OWN: &str = "#0072b2";
const PEER: &str = "#999999";
const NOT_DURABLE: &str = "#e69f00";

const MIB: f64 = (1 << 20) as f64;

struct Panel {
    title: &'static str,
    value: fn(&Row) -> f64,
}

const PANELS: [Panel; 6] = [
    Panel {
        title: "hit, p50 ns",
        value: |row| row.hit_p50_ns,
    },
    Panel {
        title: "miss, p50 ns",
        value: |row| row.miss_p50_ns,
    },
    Panel {
        title: "load, durable records/s (more is better)",
        value: |row| row.load_records_per_second,
    },
    Panel {
        title: "disk after close, MiB",
        value: |row| row.disk_bytes / MIB,
    },
    Panel {
        title: "resident after lookups, MiB",
        value: |row| row.resident_bytes / MIB,
    },
    Panel {
        title: "open in a fresh process, ms",
        value: |row| row.open_ms,
    },
];

/// The picture of the rows. Empty without rows.
pub fn svg(rows: &[Row]) -> String {
    let mut text = String::new();
    // Nothing that writes into a string fails.
    let _ = draw(rows, &mut text);
    text
}

fn draw(rows: &[Row], svg: &mut String) -> std::fmt::Result {
    if rows.is_empty() {
        return Ok(());
    }
    let panel_width = NAMES + WIDTH + VALUES;
    let panel_height = TOP + BAR * rows.len() as f64 + 12.0;
    let width = panel_width * COLUMNS as f64 + 20.0;
    let height = panel_height * PANELS.len().div_ceil(COLUMNS) as f64 + 34.0;
    writeln!(
        svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>"
    )?;
    for (place, panel) in PANELS.iter().enumerate() {
        let left = panel_width * (place % COLUMNS) as f64;
        let top = panel_height * (place / COLUMNS) as f64;
        panel.draw(svg, rows, left, top)?;
    }
    let legend = [
        (OWN, "sealstone"),
        (PEER, "peer"),
        (NOT_DURABLE, "not durable per batch"),
    ];
    for (place, (colour, name)) in legend.into_iter().enumerate() {
        let (x, y) = (20.0 + 120.0 * place as f64, height - 22.0);
        writeln!(
            svg,
            "<rect x=\"{x}\" y=\"{y}\" width=\"12\" height=\"12\" fill=\"{colour}\"/>\
             <text x=\"{:.0}\" y=\"{:.0}\">{name}</text>",
            x + 18.0,
            y + 10.0
        )?;
    }
    writeln!(
        svg,
        "<text x=\"400\" y=\"{:.0}\">bars are logarithmic</text>",
        height - 12.0
    )?;
    writeln!(svg, "</svg>")
}

impl Panel {
    fn draw(&self, svg: &mut String, rows: &[Row], left: f64, top: f64) -> std::fmt::Result {
        let (low, high) = range(rows.iter().map(self.value));
        writeln!(
            svg,
            "<text x=\"{:.0}\" y=\"{:.0}\" font-weight=\"bold\">{}</text>",
            left + NAMES,
            top + TOP - 12.0,
            self.title
        )?;
        for (place, row) in rows.iter().enumerate() {
            let value = (self.value)(row);
            let share = (value.max(low) / low).log10() / (high / low).log10();
            let y = top + TOP + BAR * place as f64;
            let baseline = y + BAR - 5.0;
            writeln!(
                svg,
                "<text x=\"{:.0}\" y=\"{baseline:.0}\" text-anchor=\"end\">{}</text>\
                 <rect class=\"bar\" x=\"{:.0}\" y=\"{y:.0}\" width=\"{:.1}\" height=\"{:.0}\" fill=\"{}\"/>\
                 <text x=\"{:.1}\" y=\"{baseline:.0}\">{}</text>",
                left + NAMES - 6.0,
                row.engine,
                left + NAMES,
                WIDTH * share,
                BAR - 3.0,
                colour(row),
                left + NAMES + WIDTH * share + 5.0,
                number(value)
            )?;
        }
        Ok(())
    }
}

fn colour(row: &Row) -> &'static str {
    if row.engine.starts_with("sealstone") {
        OWN
    } else if row.durable {
        PEER
    } else {
        NOT_DURABLE
    }
}

/// From half of the least to the most, so that the least has a bar as well.
fn range(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let positive = values.filter(|value| *value > 0.0);
    let (low, high) = positive.fold((f64::MAX, f64::MIN), |(low, high), value| {
        (low.min(value), high.max(value))
    });
    if low > high {
        (1.0, 10.0)
    } else {
        (low / 2.0, high)
    }
}

fn number(value: f64) -> String {
    match value {
        value if value >= 1e5 => format!("{:.0}k", value / 1e3),
        value if value >= 100.0 => format!("{value:.0}"),
        value => format!("{value:.1}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_engine_has_a_bar_in_every_panel() {
        let row = |engine: &str, value: f64| Row {
            engine: engine.to_owned(),
            durable: engine != "parity-db",
            hit_p50_ns: value,
            open_ms: value,
            ..Row::default()
        };
        let rows = [
            row("sealstone", 10.0),
            row("redb", 1e6),
            row("parity-db", 7.0),
        ];
        let svg = svg(&rows);
        assert_eq!(svg.matches("class=\"bar\"").count(), 3 * PANELS.len());
        assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n"));
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        assert_eq!(super::svg(&[]), "");
    }

    #[test]
    fn ranges_leave_the_least_a_bar() {
        assert_eq!(range([4.0, 100.0].into_iter()), (2.0, 100.0));
        assert_eq!(range([0.0].into_iter()), (1.0, 10.0));
        assert_eq!(range([5.0].into_iter()), (2.5, 5.0));
        assert_eq!(
            (number(250_000.0), number(123.4), number(0.25)),
            ("250k".into(), "123".into(), "0.2".into())
        );
    }
}
