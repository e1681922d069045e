//! `--plot`: cost against the number of segments, or, for one number of segments and several budgets, against
//! the filter bits a key that were in memory; both axes logarithmic, as an SVG file.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::row::Row;

/// A panel's inner size and margins, in pixels.
const WIDTH: f64 = 300.0;
const HEIGHT: f64 = 260.0;
const LEFT: f64 = 62.0;
const TOP: f64 = 34.0;
const GAP: f64 = 74.0;
const BOTTOM: f64 = 52.0;
const LEGEND_LINE: f64 = 18.0;

/// Colours that the colour-blind tell apart.
const COLOURS: [&str; 8] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#999999",
];

/// Dashes of the workloads.
const DASHES: [(&str, &str); 3] = [("HitInWindow", "2 3"), ("HitDeep", "7 3"), ("Miss", "none")];

/// Reads below this are drawn there: a logarithm has no zero.
const READS_MIN: f64 = 0.001;

/// The least filter bits a key that are told from none, for the same reason.
const BITS_MIN: f64 = 0.1;

/// What costs are drawn against.
#[derive(Clone, Copy)]
struct Axis {
    title: &'static str,
    value: fn(&Row) -> f64,
    least: f64,
    /// Whether budgets are points of a line, not lines of their own.
    joins_budgets: bool,
}

const SEGMENTS: Axis = Axis {
    title: "segments",
    value: |row| row.segments as f64,
    least: 1.0,
    joins_budgets: false,
};

const FILTER_BITS: Axis = Axis {
    title: "filter bits a key in memory (left edge: none)",
    value: filter_bits,
    least: BITS_MIN,
    joins_budgets: true,
};

impl Axis {
    /// Segments, unless nothing but the budget tells the rows apart.
    fn of(rows: &[Row]) -> Self {
        let is_alike = |a: &Row, b: &Row| {
            (&a.layout, &a.policy, &a.mode) == (&b.layout, &b.policy, &b.mode)
                && (a.segments, a.k, a.fold) == (b.segments, b.k, b.fold)
        };
        let mut pairs = rows.windows(2);
        let alike = pairs.clone().all(|two| is_alike(&two[0], &two[1]));
        match alike && pairs.any(|two| two[0].budget_bytes != two[1].budget_bytes) {
            true => FILTER_BITS,
            false => SEGMENTS,
        }
    }

    fn series(&self, row: &Row) -> String {
        match self.joins_budgets {
            true => format!("{}, {} segments, {}", row.layout, row.segments, row.mode),
            false => row.series(),
        }
    }
}

fn filter_bits(row: &Row) -> f64 {
    let records = row.segments * row.segment_records;
    crate::figures::ratio(8.0 * row.filter_bytes as f64, records as f64)
}

struct Panel<'a> {
    title: &'a str,
    axis: Axis,
    value: fn(&Row) -> f64,
    left: f64,
    low: f64,
    high: f64,
    range: (f64, f64),
}

impl Panel<'_> {
    fn x(&self, value: f64) -> f64 {
        let (low, high) = self.range;
        self.left + WIDTH * (value.max(low) / low).log10() / (high / low).log10()
    }

    fn y(&self, value: f64) -> f64 {
        let share = (value.max(self.low) / self.low).log10() / (self.high / self.low).log10();
        TOP + HEIGHT * (1.0 - share)
    }

    fn frame(&self, svg: &mut String) -> std::fmt::Result {
        let (left, bottom) = (self.left, TOP + HEIGHT);
        writeln!(
            svg,
            "<text x=\"{left}\" y=\"{:.0}\" font-weight=\"bold\">{}</text>",
            TOP - 14.0,
            self.title
        )?;
        writeln!(
            svg,
            "<rect x=\"{left}\" y=\"{TOP}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"none\" stroke=\"#444\"/>"
        )?;
        for value in decades(self.low, self.high) {
            let y = self.y(value);
            writeln!(
                svg,
                "<line x1=\"{left}\" x2=\"{:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"#ddd\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                left + WIDTH,
                left - 6.0,
                y + 4.0,
                number(value)
            )?;
        }
        for value in decades(self.range.0, self.range.1) {
            let x = self.x(value);
            writeln!(
                svg,
                "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP}\" y2=\"{bottom}\" stroke=\"#ddd\"/>\
                 <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                bottom + 16.0,
                number(value)
            )?;
        }
        writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            left + WIDTH / 2.0,
            bottom + 34.0,
            self.axis.title
        )
    }

    fn line(&self, svg: &mut String, rows: &[&Row], colour: &str, dash: &str) -> std::fmt::Result {
        let place = |row: &&Row| (self.x((self.axis.value)(row)), self.y((self.value)(row)));
        let points: Vec<_> = rows.iter().map(place).collect();
        let text: Vec<_> = points
            .iter()
            .map(|(x, y)| format!("{x:.1},{y:.1}"))
            .collect();
        writeln!(
            svg,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.8\" stroke-dasharray=\"{dash}\"/>",
            text.join(" ")
        )?;
        for (x, y) in points {
            writeln!(
                svg,
                "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2.6\" fill=\"{colour}\"/>"
            )?;
        }
        Ok(())
    }
}

/// The powers of ten in a range.
fn decades(low: f64, high: f64) -> impl Iterator<Item = f64> {
    let first = low.log10().ceil() as i32;
    let last = (high.log10() + 1e-9).floor() as i32;
    (first..=last).map(|power| 10_f64.powi(power))
}

fn number(value: f64) -> String {
    match value {
        value if value >= 1e6 => format!("{:.0}M", value / 1e6),
        value if value >= 1e4 => format!("{:.0}k", value / 1e3),
        value => format!("{value}"),
    }
}

/// The smallest range of whole decades that holds the values.
fn range(values: impl Iterator<Item = f64>, least: f64) -> (f64, f64) {
    let (low, high) = values.fold((f64::MAX, f64::MIN), |(low, high), value| {
        (low.min(value.max(least)), high.max(value.max(least)))
    });
    let low = 10_f64.powf(low.log10().floor());
    let high = 10_f64.powf(high.log10().ceil());
    (low, if high > low { high } else { low * 10.0 })
}

/// The picture of the rows: a colour a store, a dash a workload. Empty without rows.
pub fn svg(rows: &[Row]) -> String {
    let mut text = String::new();
    // Nothing that writes into a string fails.
    let _ = draw(rows, &mut text);
    text
}

fn draw(rows: &[Row], svg: &mut String) -> std::fmt::Result {
    let axis = Axis::of(rows);
    let mut series: BTreeMap<String, Vec<&Row>> = BTreeMap::new();
    for row in rows {
        // Budgets grow with the number of segments; a line is one way of choosing them.
        let name = axis.series(row);
        series.entry(name).or_default().push(row);
    }
    if series.is_empty() {
        return Ok(());
    }
    let values = range(rows.iter().map(axis.value), axis.least);
    let panels = [
        (
            "ns a lookup",
            (|row: &Row| row.lookup_ns) as fn(&Row) -> f64,
            1.0,
        ),
        ("reads a lookup", |row: &Row| row.reads, READS_MIN),
    ];
    let width = LEFT + 2.0 * WIDTH + GAP + 20.0;
    let legend = TOP + HEIGHT + BOTTOM;
    let height = legend + LEGEND_LINE * (series.len() + 2) as f64;
    writeln!(
        svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>"
    )?;
    for (place, (title, value, least)) in panels.into_iter().enumerate() {
        let (low, high) = range(rows.iter().map(value), least);
        let panel = Panel {
            title,
            axis,
            value,
            left: LEFT + place as f64 * (WIDTH + GAP),
            low,
            high,
            range: values,
        };
        panel.frame(svg)?;
        for (rows, colour) in series.values().zip(COLOURS.iter().cycle()) {
            for (workload, dash) in DASHES {
                let mut rows: Vec<_> = rows
                    .iter()
                    .copied()
                    .filter(|row| row.workload == workload)
                    .collect();
                rows.sort_by(|a, b| (axis.value)(a).total_cmp(&(axis.value)(b)));
                if !rows.is_empty() {
                    panel.line(svg, &rows, colour, dash)?;
                }
            }
        }
    }
    for (place, (name, colour)) in series.keys().zip(COLOURS.iter().cycle()).enumerate() {
        let y = legend + LEGEND_LINE * (place + 1) as f64;
        sample(svg, (LEFT, y), (colour, "none"), name)?;
    }
    for (place, (workload, dash)) in DASHES.into_iter().enumerate() {
        let x = LEFT + 150.0 * place as f64;
        sample(svg, (x, legend), ("#444", dash), workload)?;
    }
    writeln!(svg, "</svg>")
}

fn sample(
    svg: &mut String,
    (x, y): (f64, f64),
    (colour, dash): (&str, &str),
    name: &str,
) -> std::fmt::Result {
    writeln!(
        svg,
        "<line x1=\"{x}\" x2=\"{:.1}\" y1=\"{:.1}\" y2=\"{:.1}\" stroke=\"{colour}\" stroke-width=\"2\" \
         stroke-dasharray=\"{dash}\"/><text x=\"{:.1}\" y=\"{y}\">{name}</text>",
        x + 28.0,
        y - 4.0,
        y - 4.0,
        x + 34.0
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_series_and_workload_is_a_line_in_both_panels() {
        let mut rows = Vec::new();
        for layout in ["sealstone", "go"] {
            for segments in [10, 100, 1_000] {
                for (workload, _) in DASHES {
                    rows.push(Row {
                        layout: layout.to_owned(),
                        policy: "all".to_owned(),
                        mode: "pread".to_owned(),
                        workload: workload.to_owned(),
                        segments,
                        lookup_ns: 100.0 * segments as f64,
                        ..Row::default()
                    });
                }
            }
        }
        let svg = svg(&rows);
        assert_eq!(svg.matches("<polyline").count(), 2 * 3 * 2);
        assert_eq!(svg.matches("<circle").count(), 2 * 3 * 2 * 3);
        assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n"));
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        assert_eq!(super::svg(&[]), "");
    }

    #[test]
    fn budgets_of_one_store_are_points_of_a_line() {
        let mut rows = Vec::new();
        for filter_bytes in [0, 1_250, 12_500] {
            for (workload, _) in DASHES {
                rows.push(Row {
                    workload: workload.to_owned(),
                    segments: 10,
                    segment_records: 1_000,
                    budget_bytes: filter_bytes,
                    filter_bytes,
                    lookup_ns: 100.0,
                    ..Row::default()
                });
            }
        }
        let svg = svg(&rows);
        assert_eq!(svg.matches("<polyline").count(), 2 * 3);
        assert_eq!(svg.matches("<circle").count(), 2 * 3 * 3);
        assert!(svg.contains("filter bits a key") && !svg.contains("NaN"));
        assert!(!svg.contains("inf"), "{svg}");
    }

    #[test]
    fn ranges_are_whole_decades() {
        assert_eq!(range([12.0, 340.0].into_iter(), 1.0), (10.0, 1_000.0));
        assert_eq!(range([100.0].into_iter(), 1.0), (100.0, 1_000.0));
        assert_eq!(range([0.0, 2.0].into_iter(), 0.001), (0.001, 10.0));
        assert_eq!(decades(10.0, 1_000.0).count(), 3);
    }
}
