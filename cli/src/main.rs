//! The `sealstone` command: loads, reads, dumps and checks stores.
//!
//! One file per subcommand. Every one ends with 0 (fine), 1 (the answer is no: the key is absent,
//! damage or a wrong record was found) or 2 (could not, usage errors included), and says why on
//! standard error. Whoever reads standard output may go away early: that ends the command quietly.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a command reads arguments, files and the clock; the engine alone is held to its Env"
)]

mod check;
mod dump;
mod engine;
mod explain;
mod get;
mod input;
mod key;
mod keyspaces;
mod load;
mod open;
mod output;
mod scan;
mod stats;
mod verify;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use sealstone_cli::text;

use output::Failure;

/// Loads, reads, dumps and checks sealstone stores
#[derive(Parser)]
#[command(
    name = "sealstone",
    version,
    after_help = "Exit status: 0 fine; 1 absent, damaged or wrong; 2 could not.\n\
                  Examples: sealstone help SUBCOMMAND"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Load(load::Args),
    Get(get::Args),
    Explain(explain::Args),
    Scan(scan::Args),
    Dump(dump::Args),
    Keyspaces(keyspaces::Args),
    Stats(stats::Args),
    Verify(verify::Args),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Load(args) => load::run(&args),
        Command::Get(args) => get::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Scan(args) => scan::run(&args),
        Command::Dump(args) => dump::run(&args),
        Command::Keyspaces(args) => keyspaces::run(&args),
        Command::Stats(args) => stats::run(&args),
        Command::Verify(args) => verify::run(&args),
    };
    match result {
        Ok(status) => status.into(),
        Err(Failure::BrokenPipe) => ExitCode::SUCCESS,
        Err(Failure::Message(message)) => {
            // Standard error may be gone, too; the status still tells.
            let _ = std::io::Write::write_all(
                &mut std::io::stderr(),
                format!("sealstone: {message}\n").as_bytes(),
            );
            ExitCode::from(2)
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_arguments_are_consistent() {
        super::Cli::command().debug_assert();
    }
}
