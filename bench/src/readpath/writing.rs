//! A writer beside the lookups: `--while-writing`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};

use super::sealed::Reader;
use crate::figures::ratio;
use crate::keys::Source;

/// Records of a commit.
const BATCH_RECORDS: u64 = 100;

/// Runs `act` while a thread commits batches at `rate` a second, from record `first` on; returns the
/// rate that it reached.
pub fn beside(
    reader: &dyn Reader,
    source: &Source,
    first: u64,
    rate: f64,
    act: impl FnOnce() -> Result<()>,
) -> Result<f64> {
    let stop = AtomicBool::new(false);
    let interval = Duration::from_secs_f64(1.0 / rate);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| -> Result<f64> {
            let mut batches = Vec::new();
            let start = Instant::now();
            let mut commits = 0;
            while !stop.load(Ordering::Relaxed) {
                let number = first + u64::from(commits) * BATCH_RECORDS;
                source.refill(&mut batches, number, BATCH_RECORDS, BATCH_RECORDS);
                reader.write(&batches[0])?;
                commits += 1;
                // A late commit is not waited for: the next ones make up for it.
                let due = start + interval * commits;
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
            }
            Ok(ratio(f64::from(commits), start.elapsed().as_secs_f64()))
        });
        let acted = act();
        stop.store(true, Ordering::Relaxed);
        let rate = writer.join().map_err(|_| anyhow!("the writer panicked"))?;
        acted?;
        rate
    })
}
