//! Writes the golden stores of the current format version:
//!
//! ```sh
//! cargo run --example write-images -- corpus/images/v1
//! ```
//!
//! See `corpus/images/README.md`.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    missing_docs,
    dead_code,
    reason = "a tool beside the engine, with modules of the golden tests"
)]

#[path = "../tests/golden/damage.rs"]
mod damage;
#[path = "../tests/golden/images.rs"]
mod images;
#[path = "../tests/golden/report.rs"]
mod report;
#[path = "../tests/golden/script.rs"]
mod script;
#[path = "../tests/golden/tear.rs"]
mod tear;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match &arguments[..] {
        [flag, directory] if flag == "--expectations" => expect_all(Path::new(directory)),
        [directory] if !directory.starts_with('-') => write_all(Path::new(directory)),
        [flag, name, store] if flag == "--play" => {
            script::play(&images::script(name), Path::new(store));
            ExitCode::SUCCESS
        }
        _ => {
            eprintln!("usage: write-images [--expectations] DIRECTORY");
            ExitCode::from(2)
        }
    }
}

fn write_all(directory: &Path) -> ExitCode {
    let there: Vec<PathBuf> = images::NAMES
        .iter()
        .map(|name| directory.join(name))
        .filter(|path| path.exists())
        .collect();
    if let Some(path) = there.first() {
        eprintln!("{} exists: images are never overwritten", path.display());
        return ExitCode::from(2);
    }
    for name in images::NAMES {
        std::fs::create_dir_all(directory.join(name)).expect("a directory");
        play(name, &directory.join(name).join("store"));
    }
    expect_all(directory)
}

/// Writes what is expected of the images that are there.
fn expect_all(directory: &Path) -> ExitCode {
    for name in images::NAMES {
        expect(name, &directory.join(name));
    }
    std::fs::write(directory.join("damage.txt"), damage::table(directory)).expect("writes");
    ExitCode::SUCCESS
}

/// The dump comes from the script, the reports from the engine.
fn expect(name: &str, image: &Path) {
    let dump = report::dump(&script::model(&images::script(name)));
    std::fs::write(image.join("expect.dump"), dump).expect("writes");
    let opened = report::opened(&image.join("store"));
    std::fs::write(image.join("expect.txt"), opened).expect("writes");
}

/// Plays a script in a child: one of them kills its process.
fn play(name: &str, store: &Path) {
    let program = std::env::current_exe().expect("this program");
    let status = Command::new(program)
        .arg("--play")
        .arg(name)
        .arg(store)
        .status();
    let status = status.expect("starts");
    let killed = status.code().is_none();
    assert_eq!(killed, name == "after-process-kill", "{name}: {status}");
    assert!(killed || status.success(), "{name}: {status}");
}
