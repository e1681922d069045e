//! The one form of all figures: an object with the tool, its commit, the machine, the arguments and
//! flat rows; and the small helpers that rows are made with.

use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use hdrhistogram::Histogram;
use serde::Serialize;

/// Digits of a histogram's values.
const HISTOGRAM_DIGITS: u8 = 3;

/// The same where memory is measured: such a histogram takes at most 40 KiB.
const HISTOGRAM_DIGITS_SMALL: u8 = 2;

/// The longest time that a histogram tells from longer ones: an hour.
const HISTOGRAM_NS_MAX: u64 = 3_600_000_000_000;

/// What a tool measured.
#[derive(Debug, Serialize)]
pub struct Figures<R> {
    /// The command that measured.
    pub tool: String,
    /// The commit it was built from, as far as known.
    pub commit: String,
    /// The processor and how many cores it shows.
    pub machine: String,
    /// The command line behind the program's name.
    pub arguments: Vec<String>,
    /// One flat object for each measurement.
    pub rows: Vec<R>,
    /// What a judging tool says of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verdict: Option<&'static str>,
}

impl<R: Serialize> Figures<R> {
    /// The rows of this process's command `subcommand`.
    pub fn new(subcommand: &str, rows: Vec<R>) -> Self {
        Self {
            tool: format!("sealstone-bench {subcommand}"),
            commit: commit(),
            machine: machine(),
            arguments: std::env::args().skip(1).collect(),
            rows,
            verdict: None,
        }
    }

    /// Writes them as JSON to a file, or to standard output for `-`.
    pub fn write(&self, target: &Path) -> Result<()> {
        let mut text = serde_json::to_string_pretty(self)?;
        text.push('\n');
        if target == Path::new("-") {
            std::io::stdout().write_all(text.as_bytes())?;
        } else {
            std::fs::write(target, text)
                .with_context(|| format!("writing {}", target.display()))?;
        }
        Ok(())
    }
}

/// The commit of the working copy that the tool is run in; `unknown` elsewhere.
fn commit() -> String {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        output.status.success().then(|| text.trim().to_owned())
    };
    match git(&["rev-parse", "HEAD"]) {
        None => "unknown".to_owned(),
        Some(id) => match git(&["status", "--porcelain", "--untracked-files=no"]) {
            Some(changes) if changes.is_empty() => id,
            _ => format!("{id}-modified"),
        },
    }
}

fn machine() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(':'))
        .map_or("unknown processor", |(_, model)| model.trim());
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    format!("{model}, {cores} cores")
}

/// An empty histogram of nanoseconds. Its size is fixed, whatever is measured for how long.
pub fn new_histogram() -> Result<Histogram<u64>> {
    let ns_max = HISTOGRAM_NS_MAX;
    Ok(Histogram::new_with_max(ns_max, HISTOGRAM_DIGITS)?)
}

/// A small one, for what runs while memory is measured.
pub fn new_small_histogram() -> Result<Histogram<u64>> {
    let ns_max = HISTOGRAM_NS_MAX;
    Ok(Histogram::new_with_max(ns_max, HISTOGRAM_DIGITS_SMALL)?)
}

/// Nanoseconds in microseconds.
pub fn microseconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e3
}

/// `part / whole`, and 0 where there is no whole.
pub fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

/// How many files a directory holds, and the bytes they take on the disk.
pub fn disk_use(directory: &Path) -> Result<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    let (mut files, mut bytes) = (0, 0);
    for entry in std::fs::read_dir(directory)? {
        files += 1;
        bytes += entry?.metadata()?.blocks() * 512;
    }
    Ok((files, bytes))
}

/// Starts a new measurement of [`peak_resident_bytes`]. False where the system can't: then the peak
/// is that of the whole process.
pub fn reset_peak_resident() -> bool {
    std::fs::write("/proc/self/clear_refs", "5").is_ok()
}

/// The most memory the process had resident since the last reset; 0 where the system does not say.
pub fn peak_resident_bytes() -> u64 {
    std::fs::read_to_string("/proc/self/status")
        .ok()
        .and_then(|text| status_kib(&text, "VmHWM:"))
        .map_or(0, |kib| kib * 1_024)
}

/// The memory the process has resident now; 0 where the system does not say.
pub fn resident_bytes() -> u64 {
    std::fs::read_to_string("/proc/self/status")
        .ok()
        .and_then(|text| status_kib(&text, "VmRSS:"))
        .map_or(0, |kib| kib * 1_024)
}

/// The same to the page, at some milliseconds: since Linux 6.2 the other figures are counted in batches by
/// each processor and may be off by hundreds of KiB. 0 where the system does not say.
pub fn exact_resident_bytes() -> u64 {
    std::fs::read_to_string("/proc/self/smaps_rollup")
        .ok()
        .and_then(|text| status_kib(&text, "Rss:"))
        .map_or(0, |kib| kib * 1_024)
}

/// Processor time that this thread has used; 0 where the system does not say. On a machine with other
/// work it says more of the code than the clock does.
pub fn thread_processor_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanoseconds = text.split(' ').next().and_then(|word| word.parse().ok());
    Duration::from_nanos(nanoseconds.unwrap_or(0))
}

/// Page faults of the process that were served without the disk, so far: what getrusage(2) says. 0 where the
/// system does not say.
pub fn process_minor_faults() -> u64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    minor_faults_in(&text).unwrap_or(0)
}

/// The tenth field; the second is a name in brackets, which may hold anything.
pub fn minor_faults_in(stat: &str) -> Option<u64> {
    let fields = stat.rsplit_once(')')?.1;
    fields.split_whitespace().nth(7)?.parse().ok()
}

fn status_kib(text: &str, key: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_form_is_the_agreed_one() {
        let figures = Figures::new("load", vec![serde_json::json!({"segments": 10})]);
        let value = serde_json::to_value(&figures).expect("is JSON");
        let mut keys: Vec<_> = value.as_object().expect("an object").keys().collect();
        keys.sort_unstable();
        assert_eq!(keys, ["arguments", "commit", "machine", "rows", "tool"]);
        assert_eq!(value["tool"], "sealstone-bench load");
        assert_eq!(value["rows"][0]["segments"], 10);
        assert!(figures.machine.ends_with(" cores"));
    }

    #[test]
    fn figures_go_to_a_file() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("figures.json");
        Figures::new("load", vec![1]).write(&path).expect("writes");
        let text = std::fs::read_to_string(&path).expect("reads");
        let value: serde_json::Value = serde_json::from_str(&text).expect("is JSON");
        assert_eq!(value["rows"], serde_json::json!([1]));
        assert_eq!(disk_use(directory.path()).expect("reads").0, 1);
    }

    #[test]
    fn the_peak_follows_what_was_resident() {
        const BIG: usize = 64 << 20;
        // Every page is touched, or it is not resident.
        let block = std::hint::black_box(vec![1_u8; BIG]);
        let high = peak_resident_bytes();
        assert!(high >= BIG as u64);
        drop(block);
        if reset_peak_resident() {
            assert!(peak_resident_bytes() < high);
        }
        assert!(resident_bytes() > 0);
        let (exact, counted) = (exact_resident_bytes(), resident_bytes());
        assert!(
            exact == 0 || exact.abs_diff(counted) < 8 << 20,
            "{exact}, {counted}"
        );
        let text = "VmPeak:\t  9 kB\nVmHWM:\t    1234 kB\n";
        assert_eq!(status_kib(text, "VmHWM:"), Some(1234));
        assert_eq!(status_kib(text, "VmRSS:"), None);
    }

    #[test]
    fn ratios_of_nothing_are_zero() {
        assert_eq!(ratio(3.0, 2.0), 1.5);
        assert_eq!(ratio(3.0, 0.0), 0.0);
        assert_eq!(microseconds(1_500), 1.5);
    }
}
