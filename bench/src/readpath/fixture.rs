//! The stores that lookups are measured on: built once, used again by later runs where a directory is kept.
//!
//! Beside each store lies `fixture.json`: what was built and what building it took. It is written last, so
//! a directory without it is a build that was cut off, and goes.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result};
use sealstone::env::{Env, FileKind};
use serde::{Deserialize, Serialize};

use super::case::{Layout, Mode, Opening, Shape};
use super::sealed::{Reader, Sealed};
use crate::figures::{disk_use, ratio};
use crate::go;
use crate::keys::{KEY_BYTES, Source};

/// Records of a commit.
const BATCH_RECORDS: u64 = 100;

/// Filters while a store is built.
const BUILD_FILTER_BYTES: u64 = 16 << 20;

/// Counts up when a build comes to mean something else.
const VERSION: u32 = 1;

/// What was built.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Built {
    version: u32,
    /// The records.
    pub shape: Shape,
    /// Time until background work had nothing left.
    pub build_seconds: f64,
    /// Bytes on the disk.
    pub disk_bytes: u64,
    /// Files.
    pub files: u64,
    /// Everything ever written that is no record, by record: indexes, their filters and fences, and the
    /// copies that folds made of them.
    pub index_bytes_per_record: f64,
}

/// A store on the disk.
#[derive(Debug)]
pub struct Fixture {
    directory: PathBuf,
    /// What it took.
    pub built: Built,
    keep: bool,
}

impl Fixture {
    /// The store of this shape below `directory`, from an earlier run if there is one.
    pub fn prepare(directory: &Path, shape: &Shape, keep: bool) -> Result<Self> {
        let directory = directory.join(name(shape));
        let note = directory.join("fixture.json");
        let earlier = std::fs::read(&note).ok();
        let earlier = earlier.and_then(|text| serde_json::from_slice::<Built>(&text).ok());
        if let Some(built) = earlier
            && built.shape == *shape
            && built.version == VERSION
        {
            return Ok(Self {
                directory,
                built,
                keep,
            });
        }
        if directory.exists() {
            std::fs::remove_dir_all(&directory)
                .with_context(|| format!("removing {}", directory.display()))?;
        }
        std::fs::create_dir_all(&directory)?;
        // From here on an error takes the directory with it.
        let mut fixture = Self {
            directory,
            built: Built {
                version: VERSION,
                shape: shape.clone(),
                build_seconds: 0.0,
                disk_bytes: 0,
                files: 0,
                index_bytes_per_record: 0.0,
            },
            keep: false,
        };
        fixture.build()?;
        std::fs::write(&note, serde_json::to_string_pretty(&fixture.built)?)?;
        fixture.keep = keep;
        Ok(fixture)
    }

    /// Where the store is.
    pub fn store_directory(&self) -> PathBuf {
        self.directory.join("store")
    }

    /// The environment that it is opened in.
    pub fn env(&self) -> Result<Env> {
        Ok(Env::real(self.store_directory())?)
    }

    /// Says that the store is about to be changed, so that no later run takes it for what it was.
    pub fn spoil(&mut self) -> Result<()> {
        self.keep = false;
        let note = self.directory.join("fixture.json");
        std::fs::remove_file(&note).with_context(|| format!("removing {}", note.display()))
    }

    fn build(&mut self) -> Result<()> {
        let (env, counters) = self.env()?.counting();
        let shape = self.built.shape.clone();
        let source = Source::new(shape.seed, shape.value_bytes);
        let start = Instant::now();
        match shape.layout {
            Layout::Sealstone => build_sealed(env, &shape, &source)?,
            Layout::Go => {
                let bloom = (shape.bits_per_key, shape.k);
                go::build(&env, &source, shape.segments, shape.segment_records, bloom)?;
            }
        }
        self.built.build_seconds = start.elapsed().as_secs_f64();
        (self.built.files, self.built.disk_bytes) = disk_use(&self.store_directory())?;
        let written = counters.snapshot();
        let (segments, runs) = (written.of(FileKind::Segment), written.of(FileKind::Run));
        let records = shape.sealed_records();
        let index_bytes =
            segments.written_bytes + runs.written_bytes - records * stored_bytes(&shape);
        self.built.index_bytes_per_record = ratio(index_bytes as f64, records as f64);
        Ok(())
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        if !self.keep {
            let _ = std::fs::remove_dir_all(&self.directory);
        }
    }
}

/// Bytes of a record in its file: header, key, value, padding.
fn stored_bytes(shape: &Shape) -> u64 {
    let bytes = (KEY_BYTES + shape.value_bytes) as u64;
    match shape.layout {
        Layout::Sealstone => (24 + bytes).next_multiple_of(8),
        Layout::Go => 8 + bytes,
    }
}

fn build_sealed(env: Env, shape: &Shape, source: &Source) -> Result<()> {
    let opening = Opening {
        policy: None,
        budget_bytes: BUILD_FILTER_BYTES,
        window_bytes: None,
        mode: Mode::Pread,
        descriptors_max: None,
        cold_reads_ahead: false,
    };
    let sealed = Sealed::open(env, shape, &opening)?;
    let mut batches = Vec::new();
    for segment in 0..shape.segments {
        let first = segment * shape.segment_records;
        source.refill(&mut batches, first, shape.segment_records, BATCH_RECORDS);
        for batch in &batches {
            sealed.write(batch)?;
        }
    }
    let (first, count) = (shape.sealed_records(), shape.memtable_records);
    for batch in source.batches(first, count, BATCH_RECORDS) {
        sealed.write(&batch)?;
    }
    sealed.settle()?;
    Ok(sealed.store.close()?)
}

fn name(shape: &Shape) -> String {
    let Shape {
        segments,
        segment_records,
        value_bytes,
        seed,
        ..
    } = shape;
    let layout = match (shape.layout, shape.fold) {
        (Layout::Sealstone, true) => "sealstone".to_owned(),
        (Layout::Sealstone, false) => "sealstone-unfolded".to_owned(),
        (Layout::Go, _) => format!("go-{}-{}", shape.bits_per_key, shape.k),
    };
    format!("{layout}-{segments}x{segment_records}-{value_bytes}-{seed}")
}
