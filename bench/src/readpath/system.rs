//! What the operating system counts, for the measuring thread alone: a writer's or a fold's reads are not
//! a lookup's.

use crate::figures::minor_faults_in;

/// Counts so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SystemCounts {
    /// read(2), pread(2) and the like; 0 where the system does not say.
    pub reads: u64,
    /// Page faults served without the disk.
    pub minor_faults: u64,
}

impl SystemCounts {
    /// Those of this thread. Reading them costs reads itself: [`Self::since`] takes them off.
    pub fn of_thread() -> Self {
        let io = std::fs::read_to_string("/proc/thread-self/io").unwrap_or_default();
        let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap_or_default();
        Self {
            reads: reads(&io).unwrap_or(0),
            minor_faults: minor_faults_in(&stat).unwrap_or(0),
        }
    }

    /// What happened since `before`, less what counting itself does.
    pub fn since(before: Self) -> Self {
        let now = Self::of_thread();
        // The same once more with nothing between.
        let own = Self::of_thread();
        let between = |now: u64, before: u64, own: u64| (now - before).saturating_sub(own - now);
        Self {
            reads: between(now.reads, before.reads, own.reads),
            minor_faults: between(now.minor_faults, before.minor_faults, own.minor_faults),
        }
    }
}

fn reads(text: &str) -> Option<u64> {
    text.lines()
        .find_map(|line| line.strip_prefix("syscr:"))?
        .trim()
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    #[test]
    fn reads_are_counted_and_the_own_ones_are_not() {
        let mut file = tempfile::tempfile().expect("a file");
        std::io::Write::write_all(&mut file, b"some bytes").expect("writes");
        let before = SystemCounts::of_thread();
        for _ in 0..100 {
            file.read_at(&mut [0; 4], 2).expect("reads");
        }
        let counted = SystemCounts::since(before).reads;
        // A kernel without accounting says 0.
        assert!(counted == 100 || before.reads == 0, "{counted}");
        let nothing = SystemCounts::since(SystemCounts::of_thread());
        assert_eq!(nothing.reads, 0);
    }

    #[test]
    fn texts_are_read() {
        assert_eq!(reads("rchar: 3\nsyscr: 17\nsyscw: 4\n"), Some(17));
        assert_eq!(
            minor_faults_in("12 (a ) b) S 1 2 3 4 5 6 77 8 9 10"),
            Some(77)
        );
        assert_eq!((reads(""), minor_faults_in("")), (None, None));
    }
}
