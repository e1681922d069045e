//! The limits that lookups are held against, measured in the same run: P, a plain read of a record, and
//! D(n), a cache line of an array as large as the filters of n keys.

use std::hint::black_box;
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use memmap2::MmapMut;
use rand_pcg::Pcg64;
use rand_pcg::rand_core::Rng;

use super::clock::Samples;

/// Files that P reads from, evenly over the store's.
const FILES_MAX: usize = 512;

/// Bits a key of the filters that D stands for.
const BITS_PER_KEY: u64 = 12;

/// Bytes of a cache line.
const LINE_BYTES: usize = 64;

/// P: reads of `record_bytes` anywhere in the store's record files.
#[derive(Debug)]
pub struct PlainReads {
    files: Vec<(std::fs::File, u64)>,
    record_bytes: usize,
    generator: Pcg64,
}

impl PlainReads {
    /// Reads from the record files of a directory, the newest `files_max` of them.
    pub fn open(directory: &Path, record_bytes: usize, files_max: Option<u64>) -> Result<Self> {
        let mut paths = Vec::new();
        for entry in std::fs::read_dir(directory)? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "seg") {
                paths.push(path);
            }
        }
        // Names are numbers of one length, so this is from the oldest to the newest.
        paths.sort_unstable();
        let newest = files_max.map_or(paths.len(), |max| max as usize);
        paths.drain(..paths.len().saturating_sub(newest));
        let every = paths.len().div_ceil(FILES_MAX).max(1);
        let mut files = Vec::new();
        for path in paths.iter().step_by(every) {
            let file =
                std::fs::File::open(path).with_context(|| format!("opening {}", path.display()))?;
            let length = file.metadata()?.len();
            ensure!(length > record_bytes as u64, "a file smaller than a record");
            files.push((file, length));
        }
        ensure!(!files.is_empty(), "no record files");
        Ok(Self {
            files,
            record_bytes,
            generator: Pcg64::new(1, 2),
        })
    }

    /// Places of `count` reads: file and offset.
    pub fn places(&mut self, count: usize) -> Vec<(u32, u64)> {
        let mut pick = |range: u64| self.generator.next_u64() % range.max(1);
        (0..count)
            .map(|_| {
                let file = pick(self.files.len() as u64) as u32;
                let range = self.files[file as usize].1 - self.record_bytes as u64;
                (file, pick(range / 8) * 8)
            })
            .collect()
    }

    /// Reads at the places.
    pub fn measure(&self, places: &[(u32, u64)], samples: &mut Samples) -> Result<()> {
        let mut buffer = vec![0; self.record_bytes];
        samples.measure(places.len(), |place| {
            let (file, offset) = places[place];
            self.files[file as usize]
                .0
                .read_exact_at(&mut buffer, offset)?;
            black_box(&buffer);
            Ok(())
        })
    }
}

/// D(n): a chain of cache lines, each of which says where the next one is.
#[derive(Debug)]
pub struct Chain {
    lines: MmapMut,
    at: usize,
}

impl Chain {
    /// A random circle through an array of the size of `keys` filters, huge pages wished for.
    pub fn new(keys: u64) -> Result<Self> {
        let count = ((keys * BITS_PER_KEY / 8) as usize / LINE_BYTES).max(2);
        let mut lines = MmapMut::map_anon(count * LINE_BYTES)?;
        #[cfg(target_os = "linux")]
        {
            // A wish: small pages serve, too, and are slower.
            let _ = lines.advise(memmap2::Advice::HugePage);
        }
        // Sattolo's shuffle: one circle through all.
        let mut next: Vec<u32> = (0..u32::try_from(count)?).collect();
        let mut generator = Pcg64::new(3, 4);
        for place in (1..count).rev() {
            next.swap(place, (generator.next_u64() % place as u64) as usize);
        }
        for (line, next) in lines.chunks_exact_mut(LINE_BYTES).zip(&next) {
            line[..4].copy_from_slice(&next.to_le_bytes());
        }
        Ok(Self { lines, at: 0 })
    }

    /// Follows the chain for `count` lines.
    pub fn measure(&mut self, count: usize, samples: &mut Samples) -> Result<()> {
        samples.measure_unfenced(count, |_| {
            let start = self.at * LINE_BYTES;
            let mut word = [0; 4];
            word.copy_from_slice(&self.lines[start..start + 4]);
            self.at = u32::from_le_bytes(word) as usize;
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chain_visits_every_line() {
        let mut chain = Chain::new(1_000).expect("allocates");
        let lines = chain.lines.len() / LINE_BYTES;
        assert_eq!(lines, 1_500 / 64);
        let mut seen = vec![false; lines];
        for _ in 0..lines {
            chain.measure(1, &mut Samples::default()).expect("measures");
            seen[chain.at] = true;
        }
        assert!(seen.iter().all(|seen| *seen));
    }

    #[test]
    fn plain_reads_stay_within_the_newest_files() {
        let directory = tempfile::tempdir().expect("a directory");
        for (name, bytes) in [("1.seg", 1_000), ("2.seg", 300), ("3.run", 5)] {
            std::fs::write(directory.path().join(name), vec![7; bytes]).expect("writes");
        }
        let mut plain = PlainReads::open(directory.path(), 240, Some(1)).expect("opens");
        let places = plain.places(100);
        assert!(
            places
                .iter()
                .all(|(file, offset)| *file == 0 && *offset < 60)
        );
        let mut samples = Samples::default();
        plain.measure(&places, &mut samples).expect("reads");
        assert!(samples.median_ns() > 0.0);
        assert!(PlainReads::open(directory.path(), 5_000, None).is_err());
    }
}
