//! Plan files: finding them, running them, saying how they went.

use std::path::{Path, PathBuf};

use crate::command::timed;
use crate::plan::run_plan;

/// How a plan file's name ends.
const EXTENSION: &str = "plan";

/// All plan files in a directory and below, or the file itself, in order of their names.
///
/// # Errors
/// What can't be read.
#[allow(
    clippy::disallowed_methods,
    reason = "plans are files of the project, not of a store"
)]
pub fn find(path: &Path) -> Result<Vec<PathBuf>, String> {
    let wrong = |error: std::io::Error| format!("{}: {error}", path.display());
    if !std::fs::metadata(path).map_err(wrong)?.is_dir() {
        return Ok(vec![path.to_path_buf()]);
    }
    let mut found = Vec::new();
    for entry in std::fs::read_dir(path).map_err(wrong)? {
        let path = entry.map_err(wrong)?.path();
        if path.is_dir() {
            found.extend(find(&path)?);
        } else if path.extension().is_some_and(|ext| ext == EXTENSION) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// Runs one plan file; the line says how it went.
///
/// # Errors
/// The failure, with the file and how to repeat it.
#[allow(
    clippy::disallowed_methods,
    reason = "plans are files of the project, not of a store"
)]
pub fn run_file(path: &Path) -> Result<String, String> {
    let shown = path.display();
    let text = std::fs::read_to_string(path).map_err(|error| format!("{shown}: {error}"))?;
    let (result, took) = timed(|| run_plan(&text));
    match result {
        Ok(report) => Ok(format!(
            "{} steps, {} expectations, {} crashes, {:.2} s",
            report.steps,
            report.expects,
            report.crashes,
            took.as_secs_f64()
        )),
        Err(failure) => Err(format!("{shown}: {failure}\nsealstone-sim replay {shown}")),
    }
}

/// Runs the plan files and directories named; true if all held.
pub(crate) fn replay(paths: &[String]) -> Result<bool, String> {
    if paths.is_empty() {
        return Err("replay FILE|DIRECTORY...".into());
    }
    let (mut count, mut failed) = (0, 0);
    for path in paths {
        for file in find(Path::new(path))? {
            count += 1;
            print!("{}: ", file.display());
            match run_file(&file) {
                Ok(line) => println!("{line}"),
                Err(failure) => {
                    failed += 1;
                    println!("FAILED\n{failure}");
                }
            }
        }
    }
    println!("{count} plans, {failed} failed");
    Ok(count > 0 && failed == 0)
}
