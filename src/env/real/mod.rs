//! The operating system (Linux): real files, clocks, random numbers and threads.
//!
//! This folder alone touches the system; the rest of the engine is pure over [`Env`].

mod clock;
mod driver;
mod errors;
mod file;
mod lock;
#[cfg(all(test, loom))]
mod loom_tests;
mod pressure;
mod vfs;

use std::path::Path;

pub use clock::{RealClock, RealEntropy};
pub use driver::ThreadDriver;
pub use file::RealFile;
pub use pressure::RealPressure;
pub use vfs::RealVfs;

use super::{Clock, Env, IoResult};
use crate::sync::Arc;

impl Env {
    /// The operating system, with the directory at `path`. Nothing is created or opened yet.
    ///
    /// # Errors
    /// An empty path, or a relative one when the current directory is gone.
    pub fn real(path: impl AsRef<Path>) -> IoResult<Self> {
        let clock: Arc<dyn Clock> = Arc::new(RealClock::new());
        Ok(Self {
            vfs: Arc::new(RealVfs::new(path.as_ref())?),
            clock: Arc::clone(&clock),
            entropy: Arc::new(RealEntropy),
            pressure: Arc::new(RealPressure::new(Arc::clone(&clock))),
            driver: Some(Arc::new(ThreadDriver::new(clock))),
        })
    }
}
