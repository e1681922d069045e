//! A copy of the engine and the simulator with all plants in it, and building that.
//!
//! One copy has every plant; a switch in the environment says which is on. A file whose text did not
//! change is left as it is, so that building again is short. The copy lives under `target/plants/`, with
//! a target directory of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::patch::{self, Plant};

/// Where patches lie, from the project's root.
pub const PATCHES: &str = "sim/plants";
/// The file that the switch is in, there and in the copy.
const SWITCH: (&str, &str) = ("sim/plants/planted.rs", "src/planted.rs");
/// What is copied: files, and directories with all Rust sources below.
const COPIED: [&str; 6] = [
    "Cargo.toml",
    "Cargo.lock",
    "src",
    "sim/Cargo.toml",
    "sim/build.rs",
    "sim/src",
];

/// File texts by path from the project's root.
pub type Texts = BTreeMap<String, String>;

/// All plants in the order of their ids.
///
/// # Errors
/// A file that can't be read or is no patch.
pub fn plants(root: &Path) -> Result<Vec<Plant>, String> {
    let mut plants = Vec::new();
    for path in files_below(&root.join(PATCHES), "patch")? {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        plants.push(patch::parse(&name, &read(&path)?)?);
    }
    patch::check_ids(&plants)?;
    plants.sort_by_key(|plant| plant.id);
    Ok(plants)
}

/// The sources that plants go into.
///
/// # Errors
/// A file that can't be read.
pub fn sources(root: &Path) -> Result<Texts, String> {
    let mut texts = Texts::new();
    for part in COPIED {
        let path = root.join(part);
        let files = match path.is_dir() {
            true => files_below(&path, "rs")?,
            false => vec![path],
        };
        for file in files {
            let name = file.strip_prefix(root).unwrap_or(&file);
            let name: Vec<_> = name.iter().map(|part| part.to_string_lossy()).collect();
            texts.insert(name.join("/"), read(&file)?);
        }
    }
    Ok(texts)
}

/// Puts a plant into the sources.
///
/// # Errors
/// A file that is not there, or a hunk that does not fit.
pub fn apply(plant: &Plant, texts: &mut Texts) -> Result<(), String> {
    for file in &plant.files {
        let wrong = |what: String| format!("plant {} ({}): {what}", plant.id, plant.name);
        let text = texts
            .get_mut(&file.path)
            .ok_or_else(|| wrong(format!("{} does not exist", file.path)))?;
        *text = file.apply(text).map_err(wrong)?;
    }
    Ok(())
}

/// The copy's texts: all plants, the switch, and a workspace of engine and simulator.
///
/// # Errors
/// A plant that does not fit the sources alone, or together with those before it.
pub fn planted(root: &Path, plants: &[Plant]) -> Result<Texts, String> {
    let clean = sources(root)?;
    for plant in plants {
        apply(plant, &mut clean.clone())?;
    }
    let mut texts = clean;
    for plant in plants {
        apply(plant, &mut texts).map_err(|what| format!("with the others: {what}"))?;
    }
    let library = texts.get_mut("src/lib.rs").ok_or("no src/lib.rs")?;
    library.push_str("\npub mod planted;\n");
    texts.insert(SWITCH.1.into(), read(&root.join(SWITCH.0))?);
    let workspace = texts.get_mut("Cargo.toml").ok_or("no Cargo.toml")?;
    *workspace = with_members(workspace)?;
    Ok(texts)
}

/// The workspace's manifest without the members that are not copied.
fn with_members(manifest: &str) -> Result<String, String> {
    let mut lines = Vec::new();
    let mut found = false;
    for line in manifest.lines() {
        if line.starts_with("members = [") {
            if !line.ends_with(']') {
                return Err("Cargo.toml: members take more than a line".into());
            }
            found = true;
            lines.push("members = [\".\", \"sim\"]");
        } else if !line.starts_with("default-members") {
            lines.push(line);
        }
    }
    match found {
        true => Ok(lines.join("\n") + "\n"),
        false => Err("Cargo.toml: no members".into()),
    }
}

/// Makes the directory hold exactly these texts, touching only what differs.
///
/// # Errors
/// What can't be written.
#[allow(clippy::disallowed_methods, reason = "a tool copies sources")]
pub fn write(tree: &Path, texts: &Texts) -> Result<(), String> {
    let mut wanted = BTreeSet::new();
    for (name, text) in texts {
        let path = tree.join(name);
        let wrong = |error: std::io::Error| format!("{}: {error}", path.display());
        if fs::read_to_string(&path).ok().as_ref() != Some(text) {
            fs::create_dir_all(path.parent().unwrap_or(tree)).map_err(wrong)?;
            // Cargo rewrites its lock for the smaller workspace: that one stays.
            if name != "Cargo.lock" || !path.exists() {
                fs::write(&path, text).map_err(wrong)?;
            }
        }
        wanted.insert(path);
    }
    for path in files_below(tree, "rs")? {
        if !wanted.contains(&path) {
            fs::remove_file(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        }
    }
    Ok(())
}

/// Runs cargo on the copy; without whole-program optimisation, which would take most of the time.
///
/// # Errors
/// It does not build.
#[allow(clippy::disallowed_methods, reason = "a tool runs cargo")]
pub fn cargo(tree: &Path, target: &Path, arguments: &[&str]) -> Result<(), String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .args(arguments)
        .args(["--quiet", "--package", "sealstone-sim"])
        .current_dir(tree)
        .env("CARGO_TARGET_DIR", target)
        .env("CARGO_INCREMENTAL", "1")
        .env("CARGO_PROFILE_RELEASE_LTO", "off")
        .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16")
        .env("CARGO_PROFILE_RELEASE_DEBUG", "0")
        .status()
        .map_err(|error| format!("cargo: {error}"))?;
    match status.success() {
        true => Ok(()),
        false => Err(format!("the plants do not build in {}", tree.display())),
    }
}

#[allow(clippy::disallowed_methods, reason = "sources are no store")]
fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// The files with this ending in a directory and below, in order.
#[allow(clippy::disallowed_methods, reason = "sources are no store")]
fn files_below(directory: &Path, ending: &str) -> Result<Vec<PathBuf>, String> {
    let wrong = |error: std::io::Error| format!("{}: {error}", directory.display());
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).map_err(wrong)? {
        let path = entry.map_err(wrong)?.path();
        if path.is_dir() {
            found.extend(files_below(&path, ending)?);
        } else if path.extension().is_some_and(|other| other == ending) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}
