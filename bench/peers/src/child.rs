//! Each measurement is a process of its own: the program starts itself with a hidden command and a task,
//! and reads what it measured from the child's standard output. So memory, faults, reads and opened files
//! are one engine's alone, and an open is one in a fresh process.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::engines::{Kind, Spec};
use crate::measure;

/// The hidden command.
pub const COMMAND: &str = "child";

/// What a child does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Step {
    /// Loads a new store.
    Load,
    /// Appends the same batches to a file, whatever the engine.
    Append,
    /// Opens it and looks that many keys of each kind up.
    Look(u64),
    /// The same after its files were evicted from memory, each key once.
    LookCold(u64),
}

/// A child's task.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Task {
    /// The engine.
    pub kind: Kind,
    /// What to do with it.
    pub step: Step,
    /// What all engines get alike.
    pub spec: Spec,
}

/// In the child: does the task and prints what it measured.
pub fn run(task: &str) -> Result<()> {
    let Task { kind, step, spec } = serde_json::from_str(task)?;
    let measured = match step {
        Step::Load => serde_json::to_string(&measure::load(kind, &spec)?)?,
        Step::Append => serde_json::to_string(&measure::append(&spec)?)?,
        Step::Look(lookups) => serde_json::to_string(&measure::look(kind, &spec, lookups)?)?,
        Step::LookCold(lookups) => {
            serde_json::to_string(&measure::look_cold(kind, &spec, lookups)?)?
        }
    };
    println!("{measured}");
    Ok(())
}

/// In the parent: has a child do it.
pub fn delegate<T: DeserializeOwned>(kind: Kind, step: Step, spec: &Spec) -> Result<T> {
    let spec = spec.clone();
    let task = serde_json::to_string(&Task { kind, step, spec })?;
    let output = Command::new(std::env::current_exe()?)
        .args([COMMAND, &task])
        .stderr(Stdio::inherit())
        .output()?;
    let name = kind.name();
    ensure!(
        output.status.success(),
        "{name} failed at {step:?}: {}",
        output.status
    );
    let text = String::from_utf8(output.stdout)?;
    // Last: an engine may have something to say, too.
    let line = text.lines().last().unwrap_or_default();
    serde_json::from_str(line).with_context(|| format!("{name} at {step:?} said {text:?}"))
}
