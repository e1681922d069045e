//! Memory pressure as the system tells it: limits of the control group, and stall times.
//!
//! ```text
//! control groups v2   memory.max, memory.high, memory.current, memory.stat, memory.pressure, of the
//!                     process's group and of each one above it
//! control groups v1   memory.limit_in_bytes, memory.usage_in_bytes, memory.stat, of its memory group
//! system              /proc/pressure/memory
//! ```
//!
//! What counts as used is what can't be dropped without asking anybody: usage less the inactive part of
//! the page cache, or a store that reads its files would be under pressure all the time.
//!
//! Files are read at most four times a second, whoever asks; in between the last answer stands. Whatever
//! is missing, unreadable or without a limit says nothing, and nothing at all means `Normal`.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the real backend is where the system's files are read"
)]

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::env::{Clock, Pressure, PressureLevel};
use crate::sync::{Arc, AtomicU8, AtomicU64, Mutex, Ordering};

/// How long an answer stands.
const SAMPLE: Duration = Duration::from_millis(250);

/// Used per cent of a limit from which on memory is short.
const HIGH_PERCENT: u64 = 85;

/// And from which on only floors may remain.
const CRITICAL_PERCENT: u64 = 95;

/// Per cent of the last ten seconds in which some task waited for memory: a machine that swaps or reclaims
/// all the time.
const STALLED_HIGH_PERCENT: u64 = 10;

/// And in which all of them did.
const STALLED_CRITICAL_PERCENT: u64 = 10;

/// Groups above the process's own that are looked at.
const GROUPS_MAX: usize = 32;

/// [`Pressure`] of the process's control group and of the system.
#[derive(Debug)]
pub struct RealPressure {
    clock: Arc<dyn Clock>,
    sources: Sources,
    /// When to look again, in nanoseconds of the clock.
    next_ns: AtomicU64,
    level: AtomicU8,
    /// Held by who looks; the others take the last answer.
    looking: Mutex<()>,
}

impl RealPressure {
    /// The pressure on this process. Finds its control group once; reads nothing of it yet.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self::under(Path::new("/"), clock)
    }

    /// The same with another root directory.
    fn under(root: &Path, clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            sources: Sources::find(root),
            next_ns: AtomicU64::new(0),
            level: AtomicU8::new(0),
            looking: Mutex::new(()),
        }
    }
}

impl Pressure for RealPressure {
    fn level(&self) -> PressureLevel {
        let now = u64::try_from(self.clock.monotonic().as_nanos()).unwrap_or(u64::MAX);
        if now >= self.next_ns.load(Ordering::Relaxed)
            && let Some(_looking) = self.looking.try_lock()
        {
            let level = self.sources.level();
            self.level.store(level as u8, Ordering::Relaxed);
            let next = now.saturating_add(SAMPLE.as_nanos() as u64);
            self.next_ns.store(next, Ordering::Relaxed);
        }
        match self.level.load(Ordering::Relaxed) {
            0 => PressureLevel::Normal,
            1 => PressureLevel::High,
            _ => PressureLevel::Critical,
        }
    }
}

/// Where pressure is told. Paths are made once, and files read into a buffer on the stack: whoever asks may
/// be a writer, which takes nothing from the heap.
#[derive(Debug)]
struct Sources {
    groups: Vec<Group>,
    /// Stall times.
    stalls: Vec<PathBuf>,
}

/// The files of a control group.
#[derive(Debug)]
struct Group {
    usage: PathBuf,
    limits: Vec<PathBuf>,
    stat: PathBuf,
    /// The line of `stat` for what the page cache can drop.
    inactive: &'static str,
}

/// How a version of control groups names them.
struct Names {
    usage: &'static str,
    limits: &'static [&'static str],
    inactive: &'static str,
}

const V2: Names = Names {
    usage: "memory.current",
    limits: &["memory.max", "memory.high"],
    inactive: "inactive_file",
};

const V1: Names = Names {
    usage: "memory.usage_in_bytes",
    limits: &["memory.limit_in_bytes"],
    inactive: "total_inactive_file",
};

/// The start of a file, as text. What is wanted stands in the first lines of each.
struct Text {
    bytes: [u8; 4096],
    len: usize,
}

impl Text {
    /// What can be read of it; nothing of a file that is not there.
    fn of(path: &Path) -> Self {
        let mut text = Self {
            bytes: [0; 4096],
            len: 0,
        };
        if let Ok(mut file) = File::open(path) {
            while let Ok(count @ 1..) = file.read(&mut text.bytes[text.len..]) {
                text.len += count;
            }
        }
        text
    }

    fn as_str(&self) -> &str {
        let bytes = &self.bytes[..self.len];
        match std::str::from_utf8(bytes) {
            Ok(text) => text,
            Err(error) => std::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default(),
        }
    }

    fn number(&self) -> Option<u64> {
        self.as_str().trim().parse().ok()
    }
}

impl Sources {
    fn find(root: &Path) -> Self {
        let mut sources = Self {
            groups: Vec::new(),
            stalls: vec![root.join("proc/pressure/memory")],
        };
        let own = Text::of(&root.join("proc/self/cgroup"));
        let mounts = root.join("sys/fs/cgroup");
        for line in own.as_str().lines() {
            // number:controllers:path; version 2 has no controllers.
            let mut parts = line.splitn(3, ':');
            let (Some(_), Some(controllers), Some(path)) =
                (parts.next(), parts.next(), parts.next())
            else {
                continue;
            };
            let (mount, names) = match controllers {
                "" => (mounts.clone(), &V2),
                _ if controllers.split(',').any(|name| name == "memory") => {
                    (mounts.join("memory"), &V1)
                }
                _ => continue,
            };
            sources.add(&mount, path, names);
        }
        sources
    }

    /// Adds a group and those above it. In a container the path may be the host's, which is not there: the
    /// mount itself is the group then.
    fn add(&mut self, mount: &Path, path: &str, names: &Names) {
        let own = mount.join(path.trim_start_matches('/'));
        for group in own.ancestors().take(GROUPS_MAX) {
            if !group.starts_with(mount) {
                break;
            }
            if group.join(names.usage).is_file() {
                self.groups.push(Group {
                    usage: group.join(names.usage),
                    limits: names.limits.iter().map(|name| group.join(name)).collect(),
                    stat: group.join("memory.stat"),
                    inactive: names.inactive,
                });
                self.stalls.push(group.join("memory.pressure"));
            }
        }
    }

    /// The worst of what all of them say.
    fn level(&self) -> PressureLevel {
        let groups = self.groups.iter().map(Group::level);
        let stalls = self.stalls.iter().map(|file| stall_level(file));
        groups.chain(stalls).max().unwrap_or_default()
    }
}

impl Group {
    fn level(&self) -> PressureLevel {
        // "max", and v1's largest number, mean that there is none.
        let limits = self
            .limits
            .iter()
            .filter_map(|file| Text::of(file).number());
        let Some(limit) = limits.filter(|limit| *limit < 1 << 60).min() else {
            return PressureLevel::Normal;
        };
        let Some(usage) = Text::of(&self.usage).number() else {
            return PressureLevel::Normal;
        };
        let stat = Text::of(&self.stat);
        let used = usage.saturating_sub(field(stat.as_str(), self.inactive).unwrap_or(0));
        match used.saturating_mul(100) / limit.max(1) {
            percent if percent >= CRITICAL_PERCENT => PressureLevel::Critical,
            percent if percent >= HIGH_PERCENT => PressureLevel::High,
            _ => PressureLevel::Normal,
        }
    }
}

/// The number behind a name that begins a line.
fn field(text: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.split_once(' '));
    let (_, number) = lines.find(|(field, _)| *field == name)?;
    number.trim().parse().ok()
}

fn stall_level(file: &Path) -> PressureLevel {
    let text = Text::of(file);
    let share = |kind: &str| {
        let mut lines = text.as_str().lines();
        let line = lines.find(|line| line.starts_with(kind))?;
        let average = line
            .split(' ')
            .find_map(|part| part.strip_prefix("avg10="))?;
        average.split('.').next()?.parse::<u64>().ok()
    };
    if share("full").is_some_and(|percent| percent >= STALLED_CRITICAL_PERCENT) {
        PressureLevel::Critical
    } else if share("some").is_some_and(|percent| percent >= STALLED_HIGH_PERCENT) {
        PressureLevel::High
    } else {
        PressureLevel::Normal
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::env::manual::ManualClock;
    use PressureLevel::{Critical, High, Normal};

    /// A root directory with those files.
    fn root(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("a directory");
        for (name, text) in files {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().expect("a parent")).expect("made");
            fs::write(path, text).expect("written");
        }
        root
    }

    fn level(files: &[(&str, &str)]) -> PressureLevel {
        Sources::find(root(files).path()).level()
    }

    fn version_2(current: &str, max: &str, high: &str, stat: &str) -> PressureLevel {
        level_of_group(
            "a/b",
            &[
                ("memory.current", current),
                ("memory.max", max),
                ("memory.high", high),
                ("memory.stat", stat),
            ],
        )
    }

    fn level_of_group(group: &str, files: &[(&str, &str)]) -> PressureLevel {
        let named: Vec<(String, &str)> = files
            .iter()
            .map(|(name, text)| (format!("sys/fs/cgroup/{group}/{name}"), *text))
            .collect();
        let mut all: Vec<(&str, &str)> = named
            .iter()
            .map(|(name, text)| (name.as_str(), *text))
            .collect();
        all.push(("proc/self/cgroup", "0::/a/b\n"));
        level(&all)
    }

    #[test]
    fn limits_of_version_2() {
        let calm = "anon 1\ninactive_file 0\n";
        assert_eq!(version_2("84", "100\n", "max\n", calm), Normal);
        assert_eq!(version_2("85", "100\n", "max\n", calm), High);
        assert_eq!(version_2("95", "100\n", "max\n", calm), Critical);
        assert_eq!(
            version_2("80", "100\n", "90\n", calm),
            High,
            "the lower limit"
        );
        assert_eq!(version_2("99", "max\n", "max\n", calm), Normal);
        // What the page cache can drop is not used.
        assert_eq!(
            version_2("99", "100\n", "max\n", "inactive_file 40\n"),
            Normal
        );
        // A limit further up counts, too.
        let above = [("memory.current", "96"), ("memory.max", "100")];
        assert_eq!(level_of_group("a", &above), Critical);
        assert_eq!(
            level_of_group("", &above),
            Critical,
            "the root of a container"
        );
        assert_eq!(level_of_group("elsewhere", &above), Normal);
    }

    #[test]
    fn limits_of_version_1() {
        let files = |usage: &'static str, limit: &'static str| {
            level(&[
                ("proc/self/cgroup", "7:cpu:/x\n5:memory,hugetlb:/x\n"),
                ("sys/fs/cgroup/memory/x/memory.usage_in_bytes", usage),
                ("sys/fs/cgroup/memory/x/memory.limit_in_bytes", limit),
                (
                    "sys/fs/cgroup/memory/x/memory.stat",
                    "total_inactive_file 5\n",
                ),
            ])
        };
        assert_eq!(files("89", "100"), Normal);
        assert_eq!(files("90", "100"), High);
        assert_eq!(files("100", "100"), Critical);
        assert_eq!(files("100", "9223372036854771712"), Normal, "no limit");
    }

    #[test]
    fn stall_times() {
        let files = |text: &'static str| level(&[("proc/pressure/memory", text)]);
        let quiet = "some avg10=9.99 avg60=50.00 avg300=0.00 total=1\n\
                     full avg10=0.00 avg60=0.00 avg300=0.00 total=0\n";
        assert_eq!(files(quiet), Normal);
        assert_eq!(
            files("some avg10=10.00 avg60=0.00\nfull avg10=9.00\n"),
            High
        );
        assert_eq!(files("some avg10=60.00\nfull avg10=12.50\n"), Critical);
    }

    #[test]
    fn nothing_and_nonsense_say_nothing() {
        assert_eq!(level(&[]), Normal);
        assert_eq!(version_2("many", "100", "max", ""), Normal);
        assert_eq!(version_2("100", "", "", ""), Normal);
        assert_eq!(
            level(&[("proc/pressure/memory", "some avg10=x\n\u{fffd}")]),
            Normal
        );
        assert_eq!(level(&[("proc/self/cgroup", "::::\nx\n0:\n")]), Normal);
    }

    #[test]
    fn files_are_read_four_times_a_second() {
        let files = root(&[("proc/pressure/memory", "some avg10=50.00\n")]);
        let clock = Arc::new(ManualClock::new());
        let pressure = RealPressure::under(files.path(), clock.clone());
        assert_eq!(pressure.level(), High);
        fs::write(files.path().join("proc/pressure/memory"), "").expect("written");
        clock.advance(Duration::from_millis(249));
        assert_eq!(pressure.level(), High, "the last answer");
        clock.advance(Duration::from_millis(1));
        assert_eq!(pressure.level(), Normal);
    }

    #[test]
    fn this_machine_says_something() {
        let clock = Arc::new(ManualClock::new());
        let level = RealPressure::new(clock).level();
        assert!([Normal, High, Critical].contains(&level));
    }
}
