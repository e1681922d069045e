//! Plans: acceptance cases as text, run on the real engine on a simulated machine.
//!
//! A plan is a list of steps, one a line, with literal keys and values, aimed faults, crashes and
//! expectations; `sim/README.md` documents every word. [`run_plan`] carries it out:
//!
//! ```text
//! text -> tree of lines -> variables replaced, words -> step on the Machine -> audit of every rule
//! ```
//! Beside what a plan expects, the rules that hold for every run are checked: durable <= recovered <=
//! issued after each open, sequences in order, the audit after each step, handed-out bytes unchanged.
//! A step whose engine call fails ends the plan unless the next line expects the error.

mod exhaust;
mod expect;
mod machine;
mod measure;
mod options;
mod reads;
mod stores;
pub mod text;
mod tree;
mod world;
mod writes;

use std::fmt;

pub(crate) use options::options_of;
pub(crate) use writes::job_name;

use crate::model::Violation;

/// What a plan did.
#[derive(Clone, Debug, Default)]
pub struct PlanReport {
    /// Steps carried out.
    pub steps: u64,
    /// Expectations met.
    pub expects: u64,
    /// Stores opened on what crashes left, in `exhaust` blocks.
    pub crashes: u64,
}

/// Where and why a plan ended early.
#[derive(Clone, Debug)]
pub struct PlanFailure {
    /// The line, from 1.
    pub line: usize,
    /// Its text.
    pub text: String,
    /// The rule, if one of the rules that always hold was broken.
    pub rule: Option<&'static str>,
    /// What is wrong.
    pub what: String,
}

impl PlanFailure {
    fn new(line: usize, text: &str, what: impl Into<String>) -> Self {
        Self {
            line,
            text: text.trim().to_string(),
            rule: None,
            what: what.into(),
        }
    }
}

impl fmt::Display for PlanFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}\n    ", self.line, self.text)?;
        if let Some(rule) = self.rule {
            write!(f, "{rule}: ")?;
        }
        f.write_str(&self.what)
    }
}

/// Why a line was not carried out.
#[derive(Debug)]
enum Wrong {
    /// The line makes no sense, or its expectation is not met.
    Text(String),
    /// A rule that always holds was broken.
    Rule(Violation),
    /// A line inside of this one failed.
    Inner(PlanFailure),
}

impl From<String> for Wrong {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<&str> for Wrong {
    fn from(text: &str) -> Self {
        Self::Text(text.into())
    }
}

impl From<Violation> for Wrong {
    fn from(violation: Violation) -> Self {
        Self::Rule(violation)
    }
}

impl From<PlanFailure> for Wrong {
    fn from(failure: PlanFailure) -> Self {
        Self::Inner(failure)
    }
}

/// Runs the text of a plan.
///
/// # Errors
/// The first line that is wrong or whose expectation is not met; also a plan that expects nothing or
/// does nothing, because it could never fail.
pub fn run_plan(text: &str) -> Result<PlanReport, PlanFailure> {
    crate::life::silence_simulated_panics();
    let nodes = tree::parse(text)?;
    let mut machine = machine::Machine::new();
    machine.lines(&nodes)?;
    let report = machine.finish()?;
    if report.steps == 0 || report.expects == 0 {
        let what = "a plan without steps or without expectations proves nothing";
        return Err(PlanFailure::new(1, "", what));
    }
    Ok(report)
}
