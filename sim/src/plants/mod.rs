//! Planted bugs: whether the sweep catches what it should.
//!
//! `sim/plants/` holds one patch of the engine for each bug (see [`patch`]). All of them go into one copy
//! of the sources, guarded by a switch, and the copy's own `sealstone-sim` sweeps seeds with one switch on
//! until a rule does not hold. A plant that no seed catches is a hole in the model, the faults or the
//! schedule. With no switch on the copy must be as right as the original, and a plan that was born from a
//! bug must fail again while that bug is in.

pub mod patch;
pub mod tree;

use std::fmt::Write as _;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::disk::Strength;
use crate::workers::spawn_all;
use patch::Plant;

/// Seeds within which a plant must be caught.
pub const SEEDS_MAX: u64 = 20_000;
/// Seeds that the copy must pass with nothing on.
const SEEDS_CLEAN: u64 = 2000;
/// How long a sweep may take before it counts as hanging.
const SWEEP_SECONDS_MAX: u64 = 1800;
/// The switch's name in the environment.
const SWITCH: &str = "SEALSTONE_PLANT";

/// What to do.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    /// Only this one.
    pub only: Option<u32>,
    /// Build only.
    pub check: bool,
    /// The seeds instead of the first [`SEEDS_MAX`].
    pub seeds: Option<Range<u64>>,
    /// Sweeps at a time.
    pub jobs: usize,
}

/// How a plant fared.
#[derive(Clone, Debug)]
pub struct Row {
    plant: Plant,
    /// Seeds run until one failed, and the rule.
    caught: Option<(u64, String)>,
    /// Whether its plan failed, if it has one.
    plan_failed: Option<bool>,
}

/// Plants and their copy.
struct Garden {
    root: PathBuf,
    program: PathBuf,
    output: PathBuf,
}

/// Runs the command from the project's root; the rows, and whether all is well.
///
/// # Errors
/// A patch that does not fit, or a copy that does not build.
pub fn run(root: &Path, asked: &Asked) -> Result<(Vec<Row>, bool), String> {
    let plants = tree::plants(root)?;
    let copy = root.join("target/plants/tree");
    tree::write(&copy, &tree::planted(root, &plants)?)?;
    let root = absolute(root)?;
    let target = root.join("target/plants/build");
    if asked.check {
        tree::cargo(&copy, &target, &["check"])?;
        println!("{} plants apply and compile", plants.len());
        return Ok((Vec::new(), true));
    }
    tree::cargo(&copy, &target, &["build", "--release"])?;
    let garden = Garden {
        program: target.join("release/sealstone-sim"),
        output: root.join("target/plants"),
        root,
    };
    let wanted = |plant: &Plant| asked.only.is_none_or(|only| only == plant.id);
    let wanted: Vec<Plant> = plants.into_iter().filter(wanted).collect();
    if wanted.is_empty() {
        return Err("no such plant".into());
    }
    let taken = AtomicUsize::new(0);
    let next = || wanted.get(taken.fetch_add(1, Ordering::Relaxed));
    let parts: Vec<Result<_, String>> = spawn_all(asked.jobs, |worker| {
        let mut rows = Vec::new();
        let clean = worker > 0 || asked.only.is_some() || garden.is_clean()?;
        while let Some(plant) = next() {
            let row = garden.raise(plant.clone(), asked)?;
            println!("{}", row.line());
            rows.push(row);
        }
        Ok((rows, clean))
    });
    let (mut rows, mut all_clean) = (Vec::new(), true);
    for part in parts {
        let (part, clean): (Vec<Row>, bool) = part?;
        rows.extend(part);
        all_clean &= clean;
    }
    rows.sort_by_key(|row: &Row| row.plant.id);
    let all_caught = rows.iter().all(Row::is_well);
    Ok((rows, all_caught && all_clean))
}

impl Garden {
    /// Sweeps with nothing on.
    fn is_clean(&self) -> Result<bool, String> {
        let seeds = format!("0..{SEEDS_CLEAN}");
        let mut child = self.start(0, &["sweep", "--seeds", &seeds])?;
        let clean = wait(&mut child)? == Some(0);
        let word = if clean { "pass" } else { "FAIL" };
        println!("no plant: {SEEDS_CLEAN} seeds {word}");
        Ok(clean)
    }

    /// Sweeps with one plant on, and replays its plan.
    fn raise(&self, plant: Plant, asked: &Asked) -> Result<Row, String> {
        let seeds = asked.seeds.clone().unwrap_or(0..SEEDS_MAX);
        let range = format!("{}..{}", seeds.start, seeds.end);
        let file = self.output.join(format!("{:02}.json", plant.id));
        let json = file.to_string_lossy().into_owned();
        remove(&file);
        let strength = match plant.strength {
            Strength::Honest => "honest",
            Strength::Adversarial => "adversarial",
        };
        let line = [
            ["sweep", "--seeds", &range],
            ["--strength", strength, "--failures"],
            ["1", "--json", &json],
        ];
        let mut child = self.start(plant.id, &line.concat())?;
        let caught = match wait(&mut child)? {
            Some(0 | 1) => first_failure(&file)?.map(|(seed, rule)| (seed - seeds.start + 1, rule)),
            Some(code) => return Err(format!("plant {}: the sweep ended with {code}", plant.id)),
            None => Some((0, "hang or abort".into())),
        };
        let plan_failed = match &plant.plan {
            None => None,
            Some(plan) => {
                let plan = self.root.join(plan);
                let mut child = self.start(plant.id, &["replay", &plan.to_string_lossy()])?;
                Some(wait(&mut child)? != Some(0))
            }
        };
        Ok(Row {
            plant,
            caught,
            plan_failed,
        })
    }

    #[allow(clippy::disallowed_methods, reason = "a tool runs the planted copy")]
    fn start(&self, id: u32, arguments: &[&str]) -> Result<Child, String> {
        Command::new(&self.program)
            .args(arguments)
            .env(SWITCH, id.to_string())
            .current_dir(&self.root)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("{}: {error}", self.program.display()))
    }
}

/// How it ended; `None` if by a signal, ours after too long among them.
#[allow(clippy::disallowed_methods, reason = "a tool waits for its child")]
fn wait(child: &mut Child) -> Result<Option<i32>, String> {
    const POLL: Duration = Duration::from_millis(20);
    let polls = SWEEP_SECONDS_MAX * 1000 / POLL.as_millis() as u64;
    for _ in 0..polls {
        match child.try_wait() {
            Ok(None) => std::thread::sleep(POLL),
            Ok(Some(status)) => return Ok(status.code()),
            Err(error) => return Err(error.to_string()),
        }
    }
    let _ = child.kill();
    let _ = child.wait();
    Ok(None)
}

/// The first seed that failed in a sweep's figures, and the rule.
#[allow(clippy::disallowed_methods, reason = "a tool reads what it asked for")]
fn first_failure(file: &Path) -> Result<Option<(u64, String)>, String> {
    let wrong = |what: &str| format!("{}: {what}", file.display());
    let text = std::fs::read_to_string(file).map_err(|error| wrong(&error.to_string()))?;
    let field = |name: &str| {
        let (_, rest) = text.split_once(&format!("\"{name}\":"))?;
        rest.split([',', '}']).next()
    };
    let seed = field("first_failed_seed").ok_or_else(|| wrong("no first_failed_seed"))?;
    let rule = field("first_failed_rule").ok_or_else(|| wrong("no first_failed_rule"))?;
    Ok(seed
        .parse()
        .ok()
        .map(|seed| (seed, rule.trim_matches('"').into())))
}

#[allow(clippy::disallowed_methods, reason = "a tool removes its own output")]
fn remove(file: &Path) {
    let _ = std::fs::remove_file(file);
}

#[allow(clippy::disallowed_methods, reason = "a tool finds the project")]
fn absolute(root: &Path) -> Result<PathBuf, String> {
    std::fs::canonicalize(root).map_err(|error| format!("{}: {error}", root.display()))
}

impl Row {
    fn is_well(&self) -> bool {
        self.caught.is_some() && self.plan_failed != Some(false)
    }

    /// A line of the table.
    fn line(&self) -> String {
        let (seeds, rule) = match &self.caught {
            Some((seeds, rule)) => (seeds.to_string(), rule.as_str()),
            None => ("NOT CAUGHT".into(), "-"),
        };
        let plan = match self.plan_failed {
            None => "",
            Some(true) => "  its plan fails",
            Some(false) => "  ITS PLAN HOLDS",
        };
        let Plant { id, name, .. } = &self.plant;
        format!("{id:3}  {name:40} {seeds:>10}  {rule}{plan}")
    }

    /// The row as the figures have it.
    pub fn json(&self) -> String {
        let Plant { id, name, .. } = &self.plant;
        let (caught, seeds, rule) = match &self.caught {
            Some((seeds, rule)) => (true, seeds.to_string(), format!("\"{rule}\"")),
            None => (false, "null".into(), "null".into()),
        };
        let mut text = format!(
            "{{\"plant\":{id},\"name\":\"{name}\",\"caught\":{caught},\"seeds_to_catch\":{seeds},\
             \"rule\":{rule}"
        );
        if let Some(failed) = self.plan_failed {
            let _ = write!(text, ",\"plan_fails\":{failed}");
        }
        text + "}"
    }
}

/// The middle of what the caught ones took, and the most.
pub fn median_and_most(rows: &[Row]) -> (u64, u64) {
    let mut seeds: Vec<u64> = rows
        .iter()
        .filter_map(|row| Some(row.caught.as_ref()?.0))
        .collect();
    seeds.sort_unstable();
    let middle = seeds.get(seeds.len() / 2).copied().unwrap_or(0);
    (middle, seeds.last().copied().unwrap_or(0))
}
