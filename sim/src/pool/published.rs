//! What the field's report measured on the node: the figures that the laboratory's are set beside.
//!
//! They are inputs of comparisons, never of a replay.

use super::workload::Workload;

/// The profile of one workload, and the attempt that was rejected.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Published {
    /// Transactions of the profiled run.
    pub transactions: u64,
    /// How long it took.
    pub seconds: f64,
    /// MiB allocated for build slices.
    pub build_mib: f64,
    /// MiB allocated for merge slices.
    pub merge_mib: f64,
    /// GiB allocated in all.
    pub total_gib: f64,
    /// The candidate's change of the site, in per cent.
    pub candidate_site: f64,
    /// And of the total.
    pub candidate_total: f64,
    /// And of transactions a second.
    pub candidate_rate: f64,
    /// Spread of that rate between equal runs: coefficient of variation, in per cent.
    pub rate_cv: f64,
    /// Of another engine, unchanged, in the same place.
    pub other_rate_cv: f64,
}

/// Bytes of a build slice and of a merge slice, in MiB.
pub const SLICE_MIB: [f64; 2] = [704.0 / 1024.0, 1.375];

/// The figures of a workload.
pub const fn of(workload: Workload) -> Published {
    match workload {
        Workload::PlainSend => Published {
            transactions: 199_534,
            seconds: 340.53,
            build_mib: 7_902.33,
            merge_mib: 645.85,
            total_gib: 122.12,
            candidate_site: -11.59,
            candidate_total: 6.76,
            candidate_rate: -2.31,
            rate_cv: 2.01,
            other_rate_cv: 5.87,
        },
        Workload::SmallMultisend => Published {
            transactions: 239_166,
            seconds: 405.02,
            build_mib: 9_237.89,
            merge_mib: 844.28,
            total_gib: 145.72,
            candidate_site: -11.47,
            candidate_total: 2.72,
            candidate_rate: -0.80,
            rate_cv: 1.23,
            other_rate_cv: 7.35,
        },
    }
}

impl Published {
    /// Time from one collection to the next, if a heap of that size doubles before each: the runtime's
    /// default.
    pub fn collection_ms(&self, heap_bytes: u64) -> u64 {
        let allocated_bytes_per_ms = self.total_gib * 1_073_741_824.0 / (1000.0 * self.seconds);
        (heap_bytes as f64 / allocated_bytes_per_ms) as u64
    }

    /// Slices of the two callers.
    pub fn slices(&self) -> [f64; 2] {
        [self.build_mib / SLICE_MIB[0], self.merge_mib / SLICE_MIB[1]]
    }

    /// Shares of the two callers, in per cent.
    pub fn split(&self) -> [f64; 2] {
        let sum = self.build_mib + self.merge_mib;
        [self.build_mib, self.merge_mib].map(|mib| 100.0 * mib / sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_and_split_are_the_reports() {
        let near = |value: f64, expected: f64, by: f64| (value - expected).abs() <= by;
        let plain = of(Workload::PlainSend);
        assert!(near(plain.slices()[0], 11_494.0, 0.5) && near(plain.slices()[1], 470.0, 0.5));
        assert!(near(plain.split()[0], 92.44, 0.01) && near(plain.split()[1], 7.56, 0.01));
        let small = of(Workload::SmallMultisend);
        assert!(near(small.slices()[0], 13_437.0, 0.5) && near(small.slices()[1], 614.0, 0.5));
        assert!(near(small.split()[0], 91.63, 0.01) && near(small.split()[1], 8.37, 0.01));
    }
}
