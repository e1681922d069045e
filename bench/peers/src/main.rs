//! `sealstone-peers`: the same records, batches, keys and cache budget for sealstone and other engines.
//!
//! In each round every engine loads a new store and looks keys up in it, each step in a process of its own;
//! the order rotates from round to round. Figures are medians over the rounds, ratios medians of each
//! round's ratios. A wrong answer ends the run with an error.

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use clap::{Parser, Subcommand};

mod child;
mod engines;
#[allow(
    dead_code,
    reason = "shared with sealstone-bench, which uses all of it"
)]
#[path = "../../src/figures.rs"]
mod figures;
#[allow(
    dead_code,
    reason = "shared with sealstone-bench, which uses all of it"
)]
#[path = "../../src/keys.rs"]
mod keys;
mod measure;
mod plot;
mod row;
mod system;
mod table;
mod target;

use child::{Step, delegate};
use engines::{Kind, Spec};
use figures::Figures;
use row::Sample;

/// Compares sealstone with other engines.
#[derive(Debug, Parser)]
#[command(name = "sealstone-peers", args_conflicts_with_subcommands = true)]
struct Arguments {
    #[command(subcommand)]
    hidden: Option<Hidden>,

    /// How many segments' worth of records
    #[arg(long, default_value_t = 100)]
    segments: u64,

    /// Records, in place of segments
    #[arg(long, conflicts_with = "segments")]
    records: Option<u64>,

    /// Records of a sealstone segment
    #[arg(long, default_value_t = 12_500)]
    segment_records: u64,

    /// Bytes of a value
    #[arg(long, default_value_t = 200)]
    value_bytes: usize,

    /// Records of a commit
    #[arg(long, default_value_t = 12_500)]
    batch: u64,

    /// The cache budget of each engine, in MiB
    #[arg(long, default_value_t = 64)]
    cache_mib: u64,

    /// Rounds
    #[arg(long, default_value_t = 3)]
    rounds: usize,

    /// Keys of each kind looked up
    #[arg(long, default_value_t = 100_000)]
    lookups: u64,

    /// Keys looked up with cold caches
    #[arg(long, default_value_t = 1_000)]
    cold_lookups: u64,

    /// Only these engines
    #[arg(long, value_delimiter = ',')]
    only: Vec<Kind>,

    /// Where stores are made; a directory for each is removed after its round
    #[arg(long, default_value = "target/peers")]
    directory: PathBuf,

    /// Writes the figures as JSON, `-` to standard output
    #[arg(long)]
    json: Option<PathBuf>,

    /// Draws the figures
    #[arg(long)]
    plot: Option<PathBuf>,

    /// Shows the figures that an earlier run wrote, and measures nothing
    #[arg(long, conflicts_with = "json")]
    from: Option<PathBuf>,
}

/// What is read of an earlier run's figures.
#[derive(serde::Deserialize)]
struct Earlier {
    rows: Vec<row::Row>,
}

#[derive(Debug, Subcommand)]
enum Hidden {
    /// One task in a process of its own
    #[command(name = child::COMMAND, hide = true)]
    Child {
        /// What to do
        task: String,
    },
}

impl Arguments {
    fn kinds(&self) -> Vec<Kind> {
        let all = Kind::all().iter().copied();
        all.filter(|kind| self.only.is_empty() || self.only.contains(kind))
            .collect()
    }

    fn spec(&self) -> Result<Spec> {
        let records = self.records.unwrap_or(self.segments * self.segment_records);
        for (name, value) in [
            ("records", records),
            ("segment-records", self.segment_records),
            ("batch", self.batch),
            ("rounds", self.rounds as u64),
            ("lookups", self.lookups),
        ] {
            ensure!(value > 0, "--{name} is 0");
        }
        Ok(Spec {
            directory: self.directory.clone(),
            cache_bytes: self.cache_mib << 20,
            records,
            segment_records: self.segment_records,
            batch_records: self.batch,
            value_bytes: self.value_bytes,
        })
    }

    fn measure(&self) -> Result<()> {
        if let Some(path) = &self.from {
            let text = std::fs::read_to_string(path)?;
            let earlier: Earlier = serde_json::from_str(&text)?;
            return self.show(&earlier.rows);
        }
        let kinds = self.kinds();
        let spec = self.spec()?;
        let mut samples: Vec<_> = kinds.iter().map(|&kind| (kind, Vec::new())).collect();
        for round in 0..self.rounds {
            for store in rotated(&stores(&kinds), round) {
                let load = self.round(store, &spec, &mut samples, round);
                // Whatever happened: stores are large.
                remove(&self.directory.join(store.name()))?;
                load?;
            }
        }
        let rows = row::rows(&samples, &spec);
        self.show(&rows)?;
        if let Some(path) = &self.json {
            let mut figures = Figures::new("", rows);
            figures.tool = "bench/peers".to_owned();
            figures.write(path)?;
        }
        Ok(())
    }

    /// The tables, and the drawing if it is wanted.
    fn show(&self, rows: &[row::Row]) -> Result<()> {
        print!("{}", table::text(rows, &target::judge(rows)));
        if let Some(path) = &self.plot {
            std::fs::write(path, plot::svg(rows))?;
        }
        Ok(())
    }

    /// Loads one store, and looks keys up in each way that is asked for.
    fn round(
        &self,
        store: Kind,
        spec: &Spec,
        samples: &mut [(Kind, Vec<Sample>)],
        round: usize,
    ) -> Result<()> {
        let spec = Spec {
            directory: self.directory.join(store.name()),
            ..spec.clone()
        };
        remove(&spec.directory)?;
        std::fs::create_dir_all(&spec.directory)?;
        let append: measure::Append = delegate(store, Step::Append, &spec)?;
        remove(&spec.directory)?;
        std::fs::create_dir_all(&spec.directory)?;
        let load: measure::Load = delegate(store, Step::Load, &spec)?;
        for (kind, samples) in samples {
            if kind.loaded_as() != store {
                continue;
            }
            let sample = Sample {
                load: load.clone(),
                append: append.clone(),
                // First, so that the other open is one of a store that was opened before: some tidy up then.
                cold: delegate(*kind, Step::LookCold(self.cold_lookups), &spec)?,
                look: delegate(*kind, Step::Look(self.lookups), &spec)?,
                reopened_disk_bytes: system::disk_use(&spec.directory)?.1,
            };
            eprintln!(
                "round {}, {}: {:.1} s to load, hit {} ns, miss {} ns",
                round + 1,
                kind.name(),
                sample.load.commit_seconds,
                sample.look.hit.p50_ns,
                sample.look.miss.p50_ns
            );
            samples.push(sample);
        }
        Ok(())
    }
}

/// The stores that the kinds read, each once.
fn stores(kinds: &[Kind]) -> Vec<Kind> {
    let mut stores: Vec<_> = kinds.iter().map(|kind| kind.loaded_as()).collect();
    stores.dedup();
    stores
}

/// The same from another one on.
fn rotated(stores: &[Kind], by: usize) -> Vec<Kind> {
    let mut stores = stores.to_vec();
    let by = by % stores.len().max(1);
    stores.rotate_left(by);
    stores
}

fn remove(directory: &Path) -> Result<()> {
    match std::fs::remove_dir_all(directory) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    match &arguments.hidden {
        Some(Hidden::Child { task }) => child::run(task),
        None => arguments.measure(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() -> Result<()> {
        use clap::CommandFactory;
        Arguments::command().debug_assert();
        let line = "sealstone-peers --segments 10 --only sealstone,redb,lmdb --batch 100";
        let arguments = Arguments::try_parse_from(line.split(' '))?;
        assert_eq!(arguments.kinds(), [Kind::Sealstone, Kind::Redb, Kind::Lmdb]);
        assert_eq!(arguments.spec()?.records, 125_000);
        let none = Arguments::try_parse_from(["sealstone-peers", "--records", "0"])?;
        assert!(none.spec().is_err());
        Ok(())
    }

    #[test]
    fn both_modes_share_a_store_and_the_order_rotates() {
        let kinds = [Kind::Sealstone, Kind::SealstoneMmap, Kind::Redb, Kind::Lmdb];
        let stores = stores(&kinds);
        assert_eq!(stores, [Kind::Sealstone, Kind::Redb, Kind::Lmdb]);
        assert_eq!(
            rotated(&stores, 4),
            [Kind::Redb, Kind::Lmdb, Kind::Sealstone]
        );
        assert_eq!(rotated(&[], 2), []);
        assert_eq!(super::stores(&[Kind::SealstoneMmap]), [Kind::Sealstone]);
    }
}
