//! The engines, each behind the same two traits: what loads and what looks up.
//!
//! Lookups copy the value into the caller's buffer in every engine, so that none is measured without
//! touching its value.

use std::path::PathBuf;

use anyhow::Result;
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::keys::Batch;

#[cfg(feature = "commonware")]
mod commonware;
mod fjall;
mod lmdb;
mod parity;
mod redb;
#[cfg(feature = "rocksdb")]
mod rocks;
mod sealstone;

/// What is measured: an engine with the settings of one row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// sealstone, reading by calls.
    Sealstone,
    /// The same store read through mappings.
    SealstoneMmap,
    /// fjall with all filters and indexes pinned outside its cache.
    Fjall,
    /// fjall with its own choice of what is pinned.
    FjallDefault,
    /// redb.
    Redb,
    /// LMDB through heed.
    Lmdb,
    /// ParityDB, which is not durable when a commit returns.
    ParityDb,
    /// commonware-storage's prunable archive: an index of all keys in memory.
    #[cfg(feature = "commonware")]
    CommonwarePrunable,
    /// commonware-storage's immutable archive: a hash table on disk.
    #[cfg(feature = "commonware")]
    CommonwareImmutable,
    /// RocksDB with filters and indexes outside the cache.
    #[cfg(feature = "rocksdb")]
    Rocksdb,
    /// RocksDB with filters and indexes inside the cache.
    #[cfg(feature = "rocksdb")]
    RocksdbCached,
}

/// What all engines get alike.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Spec {
    /// The engine's own directory.
    pub directory: PathBuf,
    /// The cache budget.
    pub cache_bytes: u64,
    /// Records that are loaded.
    pub records: u64,
    /// Records of a sealstone segment.
    pub segment_records: u64,
    /// Records of a commit.
    pub batch_records: u64,
    /// Bytes of a value.
    pub value_bytes: usize,
}

impl Spec {
    /// Bytes of all keys and values.
    pub fn user_bytes(&self) -> u64 {
        self.records * (crate::keys::KEY_BYTES + self.value_bytes) as u64
    }
}

/// An engine open for loading.
pub trait Writer {
    /// Commits a batch; returns when it is durable, where the engine can say so.
    fn write(&mut self, batch: &Batch) -> Result<()>;

    /// Lets background work end and brings files into the shape they are meant to be read in.
    fn settle(&mut self) -> Result<()>;

    /// Closes it; what was written is durable then in every engine.
    fn close(self: Box<Self>) -> Result<()>;
}

/// An engine open for lookups.
pub trait Reader {
    /// Copies the value of a key into `out` in place of its content; false if the key is absent.
    fn get(&self, key: &[u8], out: &mut Vec<u8>) -> Result<bool>;
}

/// What an engine needs around it.
pub enum Place {
    /// Nothing.
    Plain,
    /// The context of its runtime.
    #[cfg(feature = "commonware")]
    Commonware(Box<commonware::Context>),
}

impl Kind {
    /// All that this build has, in the order of the table.
    pub fn all() -> &'static [Self] {
        Self::value_variants()
    }

    /// The name in tables and figures, and on the command line.
    pub fn name(self) -> String {
        self.to_possible_value()
            .map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// The row whose load made the store that this one reads.
    pub fn loaded_as(self) -> Self {
        match self {
            Self::SealstoneMmap => Self::Sealstone,
            other => other,
        }
    }

    /// Whether a commit that returned is on stable storage.
    pub fn is_durable(self) -> bool {
        self != Self::ParityDb
    }

    /// The crate that it comes from.
    pub fn package(self) -> &'static str {
        match self {
            Self::Sealstone | Self::SealstoneMmap => "sealstone",
            Self::Fjall | Self::FjallDefault => "fjall",
            Self::Redb => "redb",
            Self::Lmdb => "heed",
            Self::ParityDb => "parity-db",
            #[cfg(feature = "commonware")]
            Self::CommonwarePrunable | Self::CommonwareImmutable => "commonware-storage",
            #[cfg(feature = "rocksdb")]
            Self::Rocksdb | Self::RocksdbCached => "rocksdb",
        }
    }

    /// The version in the lock file that this was built with.
    pub fn version(self) -> String {
        locked_version(include_str!("../../Cargo.lock"), self.package()).to_owned()
    }

    /// Runs `body` in what the engine needs around it.
    #[cfg_attr(not(feature = "commonware"), allow(unused_variables))]
    pub fn within<T>(self, spec: &Spec, body: impl FnOnce(Place) -> Result<T>) -> Result<T> {
        match self {
            #[cfg(feature = "commonware")]
            Self::CommonwarePrunable | Self::CommonwareImmutable => commonware::within(spec, body),
            _ => body(Place::Plain),
        }
    }

    /// Creates the store and opens it for loading.
    #[cfg_attr(not(feature = "commonware"), allow(unused_variables))]
    pub fn create(self, spec: &Spec, place: Place) -> Result<Box<dyn Writer>> {
        Ok(match self {
            Self::Sealstone | Self::SealstoneMmap => Box::new(sealstone::create(spec)?),
            Self::Fjall => Box::new(fjall::create(spec, fjall::Pinned::All)?),
            Self::FjallDefault => Box::new(fjall::create(spec, fjall::Pinned::Default)?),
            Self::Redb => Box::new(redb::create(spec)?),
            Self::Lmdb => Box::new(lmdb::create(spec)?),
            Self::ParityDb => Box::new(parity::create(spec)?),
            #[cfg(feature = "commonware")]
            Self::CommonwarePrunable => Box::new(commonware::prunable(spec, place)?),
            #[cfg(feature = "commonware")]
            Self::CommonwareImmutable => Box::new(commonware::immutable(spec, place)?),
            #[cfg(feature = "rocksdb")]
            Self::Rocksdb => Box::new(rocks::create(spec, rocks::Index::Outside)?),
            #[cfg(feature = "rocksdb")]
            Self::RocksdbCached => Box::new(rocks::create(spec, rocks::Index::Cached)?),
        })
    }

    /// Opens a loaded store for lookups.
    #[cfg_attr(not(feature = "commonware"), allow(unused_variables))]
    pub fn open(self, spec: &Spec, place: Place) -> Result<Box<dyn Reader>> {
        use ::sealstone::ReadMode;
        Ok(match self {
            Self::Sealstone => Box::new(sealstone::open(spec, ReadMode::Pread)?),
            Self::SealstoneMmap => Box::new(sealstone::open(spec, ReadMode::Mmap)?),
            Self::Fjall => Box::new(fjall::create(spec, fjall::Pinned::All)?),
            Self::FjallDefault => Box::new(fjall::create(spec, fjall::Pinned::Default)?),
            Self::Redb => Box::new(redb::open(spec)?),
            Self::Lmdb => Box::new(lmdb::open(spec)?),
            Self::ParityDb => Box::new(parity::create(spec)?),
            #[cfg(feature = "commonware")]
            Self::CommonwarePrunable => Box::new(commonware::prunable(spec, place)?),
            #[cfg(feature = "commonware")]
            Self::CommonwareImmutable => Box::new(commonware::immutable(spec, place)?),
            #[cfg(feature = "rocksdb")]
            Self::Rocksdb => Box::new(rocks::create(spec, rocks::Index::Outside)?),
            #[cfg(feature = "rocksdb")]
            Self::RocksdbCached => Box::new(rocks::create(spec, rocks::Index::Cached)?),
        })
    }
}

/// The records of a batch by key: trees fill their pages better, and faster, in order.
fn by_key(batch: &Batch) -> Vec<(&[u8], &[u8])> {
    let mut records: Vec<_> = batch.records().collect();
    records.sort_unstable_by_key(|(key, _)| *key);
    records
}

/// Replaces the content of a buffer.
fn copy(value: &[u8], out: &mut Vec<u8>) {
    out.clear();
    out.extend_from_slice(value);
}

fn locked_version<'a>(lock: &'a str, package: &str) -> &'a str {
    let entry = format!("name = \"{package}\"\nversion = \"");
    lock.split_once(&entry)
        .and_then(|(_, rest)| rest.split_once('"'))
        .map_or("unknown", |(version, _)| version)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::Source;

    #[test]
    fn versions_are_those_of_the_lock_file() {
        let lock = "[[package]]\nname = \"redb-derive\"\nversion = \"1.0.0\"\n\n\
                    [[package]]\nname = \"redb\"\nversion = \"4.6.0\"\nsource = \"x\"\n";
        assert_eq!(locked_version(lock, "redb"), "4.6.0");
        assert_eq!(locked_version(lock, "heed"), "unknown");
        assert!(Kind::all().iter().all(|kind| kind.version() != "unknown"));
    }

    #[test]
    fn every_engine_answers_rightly_after_it_was_closed() -> Result<()> {
        let source = Source::new(3, 40);
        for &kind in Kind::all() {
            let directory = tempfile::tempdir()?;
            let spec = Spec {
                directory: directory.path().to_owned(),
                cache_bytes: 16 << 20,
                records: 500,
                segment_records: 100,
                batch_records: 50,
                value_bytes: 40,
            };
            kind.within(&spec, |place| {
                let mut writer = kind.create(&spec, place)?;
                for batch in source.batches(0, 500, 50) {
                    writer.write(&batch)?;
                }
                writer.settle()?;
                writer.close()
            })?;
            kind.within(&spec, |place| {
                let reader = kind.open(&spec, place)?;
                let mut out = vec![1, 2, 3];
                for (key, value) in source.batches(0, 500, 500)[0].records() {
                    assert!(reader.get(key, &mut out)?, "{kind:?}");
                    assert_eq!(out, value, "{kind:?}");
                }
                for (key, _) in source.batches(500, 500, 500)[0].records() {
                    assert!(!reader.get(key, &mut out)?, "{kind:?}");
                }
                Ok(())
            })?;
        }
        Ok(())
    }
}
