//! The machine that a store ages on: a simulated disk that can lose power, or a real directory; virtual
//! time and pressure in both. Everything asked of the directory is counted; its memory is not.

use std::path::Path;
use std::sync::Arc;

use sealstone::env::counting::{Counters, CountingVfs, Counts};
use sealstone::env::{Clock, Env, Pressure, Vfs};

use super::apart::ApartVfs;
use crate::choices::SmallRandom;
use crate::disk::{Crash, CrashPoint, DiskOptions, Place, Survivors};
use crate::env::{SimClock, SimEnv, SimPressure};
use crate::heap::apart;

/// How an opening ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Closed in order.
    Close,
    /// The process dies; what it wrote stays with the system. On a real directory: dropped unclosed.
    Kill,
    /// Power is lost between two calls.
    PowerLoss,
    /// Power is lost inside a call of the disk.
    PowerLossInside,
}

/// See the module.
#[derive(Debug)]
pub struct World {
    sim: Option<SimEnv>,
    env: Env,
    clock: Arc<SimClock>,
    pressure: Arc<SimPressure>,
    counters: Arc<Counters>,
}

impl World {
    /// An empty simulated disk, whose syncs may be lies.
    pub fn simulated(seed: u64, sync_is_a_lie: bool) -> Self {
        apart(|| {
            let sim = SimEnv::new(DiskOptions {
                seed,
                sync_is_a_lie,
                ..DiskOptions::default()
            });
            let counters = Arc::default();
            Self {
                env: counted(sim.env(), &counters),
                clock: Arc::clone(&sim.clock),
                pressure: Arc::clone(&sim.pressure),
                sim: Some(sim),
                counters,
            }
        })
    }

    /// A real directory.
    ///
    /// # Errors
    /// A path that can't be used.
    pub fn real(path: &Path) -> Result<Self, String> {
        apart(|| {
            let real = Env::real(path).map_err(|error| format!("{}: {error}", path.display()))?;
            let clock = Arc::<SimClock>::default();
            let pressure = Arc::<SimPressure>::default();
            let counters = Arc::default();
            let env = Env {
                clock: Arc::clone(&clock) as Arc<dyn Clock>,
                pressure: Arc::clone(&pressure) as Arc<dyn Pressure>,
                driver: None,
                ..real
            };
            Ok(Self {
                sim: None,
                env: counted(env, &counters),
                clock,
                pressure,
                counters,
            })
        })
    }

    /// What a store is given.
    pub fn env(&self) -> &Env {
        &self.env
    }

    /// Time.
    pub fn clock(&self) -> &SimClock {
        &self.clock
    }

    /// The dial.
    pub fn pressure(&self) -> &SimPressure {
        &self.pressure
    }

    /// What was asked of the directory so far, over all lives.
    pub fn counts(&self) -> Counts {
        self.counters.snapshot()
    }

    /// Whether the process is dead.
    pub fn is_dead(&self) -> bool {
        self.sim.as_ref().is_some_and(|sim| sim.disk.is_dead())
    }

    /// What this machine makes of an ending: a real directory knows no loss of power.
    pub fn ending(&self, wanted: Ending) -> Ending {
        match wanted {
            Ending::PowerLoss | Ending::PowerLossInside if self.sim.is_none() => Ending::Kill,
            wanted => wanted,
        }
    }

    /// The process will die in one of the next mutating calls.
    pub fn arm(&self, random: &mut SmallRandom) {
        let Some(sim) = &self.sim else { return };
        let places = [Place::Before, Place::Inside, Place::After];
        sim.disk.crash_at(Some(CrashPoint {
            mutation: sim.disk.mutations() + random.below(60),
            place: places[random.below(3) as usize],
            panic: false,
        }));
    }

    /// It will not.
    pub fn disarm(&self) {
        if let Some(sim) = &self.sim {
            sim.disk.crash_at(None);
        }
    }

    /// The machine after the process died, or was killed just now. The store must be dropped after it.
    pub fn restart(&mut self, ending: Ending, random: &mut SmallRandom) {
        let Some(sim) = &mut self.sim else { return };
        let crash = match ending {
            Ending::PowerLoss | Ending::PowerLossInside => {
                Crash::Power(Survivors::seeded(random.draw()))
            }
            Ending::Close | Ending::Kill => Crash::Kill,
        };
        apart(|| {
            let next = sim.restart(&crash);
            self.env = counted(next.env(), &self.counters);
            self.pressure = Arc::clone(&next.pressure);
            *sim = next;
        });
    }

    /// Descriptors held now; none is known of a real directory.
    pub fn descriptors(&self) -> u64 {
        self.sim.as_ref().map_or(0, |sim| sim.disk.descriptors())
    }

    /// What no store may do, if it was done.
    pub fn violations(&self) -> Vec<String> {
        let sim = self.sim.as_ref();
        sim.map(|sim| sim.disk.violations()).unwrap_or_default()
    }
}

fn counted(env: Env, counters: &Arc<Counters>) -> Env {
    let disk: Arc<dyn Vfs> = Arc::new(ApartVfs::new(env.vfs));
    Env {
        vfs: Arc::new(CountingVfs::new(disk, Arc::clone(counters))),
        ..env
    }
}
