//! Which planted bug is on: at most one, named by the environment. Only copies of the engine have this
//! module (see `sim/src/plants`).

use std::sync::OnceLock;

static ON: OnceLock<u32> = OnceLock::new();

/// Whether this one is on.
#[inline]
pub fn is(id: u32) -> bool {
    let named = || std::env::var("SEALSTONE_PLANT").ok()?.parse().ok();
    *ON.get_or_init(|| named().unwrap_or(0)) == id
}
