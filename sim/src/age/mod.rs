//! Ageing: one store that lives long, on a simulated disk or in a real directory.
//!
//! A day of virtual hours; in each as many writes, under another weather: jobs that run steadily, eagerly,
//! late or in bursts, and memory pressure. A fifth of the writes overwrite, a twentieth delete, the rest
//! brings new keys, half of them write-once. The store is reopened on the way: closed, killed, or after a
//! loss of power between calls or inside one; with other budgets and descriptor caps. Snapshots and
//! iterators are held over seals.
//!
//! Checked all along against a model of two bytes a key ([`model`]): sampled hits, misses and deleted keys,
//! views, what crashes left. At the end everything: each key in order, none missing, none too many.
//!
//! Printed by the hour: reads, space, memory, descriptors, steps of jobs. [`limits`] says what they may be.
//!
//! * `keys`, `model`: what is written and what must be there; `world`, `apart`: the machine;
//! * `weather`: the schedule; `run`, `writes`, `reads`, `opening`, `finish`: the run;
//! * `figures`, `limits`, `command`: what is shown, what is allowed, and the command.

pub mod apart;
pub mod command;
pub mod figures;
mod finish;
pub mod keys;
pub mod limits;
pub mod model;
mod opening;
mod reads;
mod run;
pub mod weather;
pub mod world;
mod writes;

use std::path::PathBuf;

use figures::Hour;
use limits::{Gate, LIMITS, Limit};

/// What is run.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Operations written.
    pub writes: u64,
    /// How often the store is opened again on the way.
    pub reopenings: u64,
    /// Everything follows from it.
    pub seed: u64,
    /// A real directory, which must be empty or missing; else a simulated disk.
    pub directory: Option<PathBuf>,
    /// The simulated disk makes nothing durable: only to show that a run notices.
    pub sync_is_a_lie: bool,
    /// The table of gates.
    pub limits: Vec<Limit>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            writes: 200_000,
            reopenings: 10,
            seed: 1,
            directory: None,
            sync_is_a_lie: false,
            limits: LIMITS.to_vec(),
        }
    }
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Hours that came to their end.
    pub hours: Vec<Hour>,
    /// Every gate.
    pub gates: Vec<Gate>,
    /// How often each thing happened: that the run is not empty.
    pub happened: Vec<(&'static str, u64)>,
}

impl Report {
    /// The gates that were missed.
    pub fn missed(&self) -> Vec<&Gate> {
        self.gates.iter().filter(|gate| !gate.holds()).collect()
    }
}

/// Where a run tells what it does, and is told to come to its end.
pub trait Watch {
    /// An hour ended.
    fn hour(&mut self, number: usize, hour: &Hour);
    /// Whether the run should end now, with everything checked.
    fn is_over(&mut self) -> bool;
}

/// Nobody watches: the run is as long as its settings say.
#[derive(Debug)]
pub struct Unwatched;

impl Watch for Unwatched {
    fn hour(&mut self, _: usize, _: &Hour) {}
    fn is_over(&mut self) -> bool {
        false
    }
}

/// Runs it.
///
/// # Errors
/// The first answer of the store that was wrong, and where in the run. Gates are in the report instead.
pub fn run(settings: &Settings, watch: &mut dyn Watch) -> Result<Report, String> {
    run::Run::new(settings)?.run(watch)
}
