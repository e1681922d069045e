//! The limits that loading is held against: the disk without an engine.
//!
//! Limit 1 appends the user's bytes to one file, batch by batch, with an fdatasync after each batch
//! (or group of batches, where several threads wait for one barrier); limit 2 appends as many bytes
//! as the engine wrote in all, with the same number of barriers. The file's space is allocated ahead,
//! as an engine's log does it; without that each barrier also writes the file's new length.

use std::time::{Duration, Instant};

use anyhow::Result;
use hdrhistogram::Histogram;
use sealstone::env::{Env, FileName, io};

use crate::figures::{microseconds, new_small_histogram};

/// The piece that limit 2 repeats.
const FILLER_BYTES: usize = 256 * 1024;

/// A directory for plain files.
#[derive(Debug)]
pub struct Plain {
    env: Env,
    filler: Vec<u8>,
    next_number: u64,
    /// Time spent appending and syncing.
    pub elapsed: Duration,
    /// Latency of one append with its barrier, in nanoseconds.
    pub latency: Histogram<u64>,
}

impl Plain {
    /// Appends in the directory of `env`, with a barrier after each group if `synced`.
    pub fn create(env: Env) -> Result<Self> {
        env.vfs.create_root()?;
        Ok(Self {
            env,
            // Not zeros: some disks and file systems make those cheaper.
            filler: (0..FILLER_BYTES as u64)
                .map(|i| (i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8)
                .collect(),
            next_number: 1,
            elapsed: Duration::ZERO,
            latency: new_small_histogram()?,
        })
    }

    /// Limit 1: appends the pieces, with a barrier after each `group` of them if `synced`, and one at
    /// the end in any case.
    pub fn append(
        &mut self,
        pieces: &[impl AsRef<[u8]>],
        group: usize,
        synced: bool,
    ) -> Result<()> {
        let length = pieces.iter().map(|piece| piece.as_ref().len() as u64).sum();
        self.in_file(length, |file, latency| {
            let mut offset = 0;
            for pieces in pieces.chunks(group.max(1)) {
                let start = Instant::now();
                for piece in pieces.iter().map(AsRef::as_ref) {
                    io::write_all_at(file, piece, offset)?;
                    offset += piece.len() as u64;
                }
                if synced {
                    io::uninterrupted(|| file.sync_data())?;
                }
                latency.record(start.elapsed().as_nanos() as u64)?;
            }
            Ok(())
        })
    }

    /// Limit 2: appends `total_bytes` in `groups` equal parts, with a barrier after each if `synced`.
    pub fn append_filler(&mut self, total_bytes: u64, groups: u64, synced: bool) -> Result<()> {
        let filler = std::mem::take(&mut self.filler);
        let done = self.in_file(total_bytes, |file, latency| {
            let mut offset = 0;
            for group in 1..=groups {
                let start = Instant::now();
                // Exact in the sum, whatever the remainder.
                let end = (u128::from(total_bytes) * u128::from(group) / u128::from(groups)) as u64;
                while offset < end {
                    let count = (end - offset).min(filler.len() as u64);
                    io::write_all_at(file, &filler[..count as usize], offset)?;
                    offset += count;
                }
                if synced {
                    io::uninterrupted(|| file.sync_data())?;
                }
                latency.record(start.elapsed().as_nanos() as u64)?;
            }
            Ok(())
        });
        self.filler = filler;
        done
    }

    /// The median of an append with its barrier.
    pub fn latency_p50_us(&self) -> f64 {
        microseconds(self.latency.value_at_quantile(0.5))
    }

    /// Runs `act` on a new file, timed up to its last barrier, and removes the file.
    fn in_file(
        &mut self,
        length: u64,
        act: impl FnOnce(&dyn sealstone::env::File, &mut Histogram<u64>) -> Result<()>,
    ) -> Result<()> {
        let vfs = &self.env.vfs;
        let name = FileName::log(self.next_number);
        self.next_number += 1;
        let file = vfs.create_new(name)?;
        file.allocate(length)?;
        io::uninterrupted(|| file.sync_data())?;
        let start = Instant::now();
        act(file.as_ref(), &mut self.latency)?;
        io::uninterrupted(|| file.sync_data())?;
        self.elapsed += start.elapsed();
        drop(file);
        Ok(vfs.unlink(name)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sealstone::env::FileKind;

    #[test]
    fn the_limits_write_what_they_say() {
        let (env, counters) = Env::in_memory().counting();
        let mut plain = Plain::create(env).expect("creates");
        let before = counters.snapshot();
        let pieces: Vec<&[u8]> = vec![&[1; 100], &[2; 50], &[3; 7]];
        plain.append(&pieces, 2, true).expect("appends");
        let log = (counters.snapshot() - before).of(FileKind::Log);
        // Two groups, and one barrier before and after the timed part each.
        assert_eq!((log.written_bytes, log.sync_data), (157, 4));
        assert_eq!((log.creates, log.unlinks), (1, 1));
        assert_eq!(plain.latency.len(), 2);

        let before = counters.snapshot();
        plain.append_filler(1_000_003, 10, false).expect("appends");
        let log = (counters.snapshot() - before).of(FileKind::Log);
        assert_eq!((log.written_bytes, log.sync_data), (1_000_003, 2));
        assert!(plain.elapsed > Duration::ZERO);
        assert_eq!(plain.latency.len(), 12);
    }
}
