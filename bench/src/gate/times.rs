//! Times against their own spread.

use super::GateRow;

/// The spread of a run's time where one run can't tell: that of the quieter engine in the field report.
const SPREAD_ASSUMED: f64 = 0.02;

/// Student's t, one-sided 95 %, by degrees of freedom from 1 on; beyond these as for the normal.
const T_95: [f64; 20] = [
    6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833, 1.812, 1.796, 1.782, 1.771,
    1.761, 1.753, 1.746, 1.740, 1.734, 1.729, 1.725,
];
const T_95_NORMAL: f64 = 1.645;

/// The normal's two-sided 95 %, for the band of a difference.
const BAND_95: f64 = 1.96;

/// Judges a time or a rate that may be worse by `loss` at most; `more` says that more is better.
pub fn judge(name: &str, base: &[f64], candidate: &[f64], more: bool, loss: f64) -> GateRow {
    let (before, after) = (Side::of(base), Side::of(candidate));
    let change = (after.mean - before.mean) / before.mean;
    let worse = if more { -change } else { change };
    let spread = match base.len().min(candidate.len()) {
        0 | 1 => SPREAD_ASSUMED,
        _ => before.spread().max(after.spread()),
    };
    let pass = match base.len().min(candidate.len()) {
        0 | 1 => None,
        _ => {
            let freedom = base.len() + candidate.len() - 2;
            let t = T_95.get(freedom - 1).copied().unwrap_or(T_95_NORMAL);
            let error = (before.error() + after.error()).sqrt() / before.mean;
            if worse + t * error <= loss {
                Some(true)
            } else if worse - t * error > loss {
                Some(false)
            } else {
                None
            }
        }
    };
    let runs_needed = pass.is_none().then(|| runs_needed(spread, loss));
    let note = match runs_needed {
        None => format!("worse by {:.2} %", worse * 100.0),
        Some(runs) => format!(
            "worse by {:.2} %, runs differ by {:.2} %{}: {runs} runs a side tell {:.0} %",
            worse * 100.0,
            spread * 100.0,
            match base.len().min(candidate.len()) {
                0 | 1 => " (assumed)",
                _ => "",
            },
            loss * 100.0
        ),
    };
    GateRow {
        gate: name.to_owned(),
        current: median(base),
        target: median(base) * if more { 1.0 - loss } else { 1.0 + loss },
        measured: median(candidate),
        pass,
        runs_needed,
        note,
    }
}

/// Runs a side until the band of a difference is as narrow as what is to be told.
fn runs_needed(spread: f64, effect: f64) -> u64 {
    (2.0 * (BAND_95 * spread / effect).powi(2)).ceil().max(2.0) as u64
}

/// The middle of the values, or of the two in the middle.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        n if n % 2 == 1 => sorted[n / 2],
        n => (sorted[n / 2 - 1] + sorted[n / 2]) / 2.0,
    }
}

struct Side {
    runs: f64,
    mean: f64,
    variance: f64,
}

impl Side {
    fn of(values: &[f64]) -> Self {
        let runs = values.len() as f64;
        let mean = values.iter().sum::<f64>() / runs;
        let squares = values.iter().map(|value| (value - mean).powi(2));
        Self {
            runs,
            mean,
            variance: squares.sum::<f64>() / (runs - 1.0).max(1.0),
        }
    }

    /// The square of the mean's standard error.
    fn error(&self) -> f64 {
        self.variance / self.runs
    }

    /// The standard deviation as a part of the mean.
    fn spread(&self) -> f64 {
        self.variance.sqrt() / self.mean
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_run_a_side_never_tells_and_says_how_many_would() {
        for after in [50.0, 100.0, 200.0] {
            let row = judge("rate", &[100.0], &[after], true, 0.02);
            assert_eq!((row.pass, row.runs_needed), (None, Some(8)));
            let row = judge("rate", &[100.0, 101.0], &[after], true, 0.02);
            assert_eq!(row.pass, None);
        }
    }

    #[test]
    fn what_the_spread_allows_is_told() {
        let base = [100.0, 100.4, 99.6, 100.1];
        let same = [100.2, 99.8, 100.0, 100.3];
        let slow = [95.0, 95.3, 94.9, 95.2];
        assert_eq!(judge("rate", &base, &same, true, 0.02).pass, Some(true));
        assert_eq!(judge("rate", &base, &slow, true, 0.02).pass, Some(false));
        // As a time, the smaller one is better.
        assert_eq!(judge("time", &base, &slow, false, 0.02).pass, Some(true));
        assert_eq!(judge("time", &slow, &base, false, 0.02).pass, Some(false));
        let noisy = [80.0, 120.0, 95.0, 105.0];
        let row = judge("rate", &base, &noisy, true, 0.02);
        assert_eq!(row.pass, None);
        assert!(row.runs_needed.is_some_and(|runs| runs > 500), "{row:?}");
    }

    #[test]
    fn medians() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0]), 2.5);
    }
}
