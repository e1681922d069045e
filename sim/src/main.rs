//! The `sealstone-sim` command.
//!
//! ```text
//! sealstone-sim sweep --seeds A..B [--strength honest|adversarial] [--jobs N] [--json FILE]
//!                     [--failures N]
//! sealstone-sim run --seed N [--strength honest|adversarial] [--trace]
//! sealstone-sim replay FILE|DIRECTORY...
//! sealstone-sim shrink --seed N [--strength S] [--plan FILE]
//! sealstone-sim digest --seed N [--strength S]
//! sealstone-sim exhaust [--rounds N] [--jobs N]
//! sealstone-sim plants [--only ID] [--check] [--seeds A..B] [--jobs N] [--json FILE]
//! sealstone-sim kill [--seconds N] [--seed N] [--lies]
//! sealstone-sim pool [--workload W] [--policy NAME|all] [--trace FILE] [--record FILE] [--json FILE]
//! sealstone-sim age [--writes N] [--reopenings N] [--seed N] [--seconds-max S] [--directory DIR]
//!                   [--limit NAME=VALUE] [--json FILE|-]
//! ```
//! It ends with 0 only if every rule held.

use std::process::ExitCode;

use sealstone_sim::command;
use sealstone_sim::heap::Counted;

/// A run makes and drops thousands of small stores: with the system's allocator one second in seven
/// goes there. Counted for `age`.
#[global_allocator]
static ALLOCATOR: Counted<mimalloc::MiMalloc> = Counted(mimalloc::MiMalloc);

#[allow(clippy::disallowed_methods, reason = "a command reads its arguments")]
fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match command::execute(&arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(message) => {
            eprintln!("sealstone-sim: {message}");
            ExitCode::from(2)
        }
    }
}
