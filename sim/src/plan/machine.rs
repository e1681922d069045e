//! The machine that a plan drives: a simulated computer, the stores open on it, the model, and what
//! the plan holds by name.

use std::any::Any;
use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use sealstone::env::FileName;
use sealstone::types::KeyspaceKind;
use sealstone::{Error, Iter, Job, Keyspace, Options, Sequence, Snapshot, Store, Ticket, Value};

use super::text::{self, Variables};
use super::tree::Node;
use super::{PlanFailure, PlanReport, Wrong};
use crate::disk::{DiskOptions, SimulatedPanic};
use crate::env::SimEnv;
use crate::model::{Model, Violation};
use crate::script::Mark;
use crate::store::check_audit;
use crate::subject::Item;

/// Rounds of one `for`, at most.
const ROUNDS_MAX: i128 = 10_000_000;

/// How a loop is written.
const FOR: &str = "for NAME A..B, or for NAME in A B C";

/// An open store and its keyspaces.
pub struct Opened {
    pub store: Store,
    pub keyspaces: BTreeMap<String, Keyspace>,
    pub closed: bool,
    pub read_only: bool,
}

/// A commit under way.
pub struct Queued {
    pub ticket: Ticket,
    /// The sequence that it must get, if it commits.
    pub expected: Option<Sequence>,
    pub synced: bool,
    pub done: bool,
}

/// See the module head.
pub struct Machine {
    pub env: SimEnv,
    pub options: Options,
    pub declared: Vec<(String, KeyspaceKind)>,
    pub model: Model,
    pub stores: BTreeMap<String, Opened>,
    pub current: String,
    pub snapshots: BTreeMap<String, Snapshot>,
    /// Iterators with what they must still yield.
    pub iterators: BTreeMap<String, (Iter, VecDeque<Item>)>,
    pub tickets: BTreeMap<String, Queued>,
    pub held: BTreeMap<String, (Value, Vec<u8>)>,
    pub images: BTreeMap<String, BTreeMap<FileName, Vec<u8>>>,
    pub variables: Variables,
    /// The error of the last step, until a line expects it.
    pub error: Option<(PlanFailure, Error)>,
    /// The bytes on the disk are not what was written: durability can't be judged any more.
    pub damaged: bool,
    /// What `exhaust` must know about each moment.
    pub marks: Option<Vec<Mark>>,
    pub report: PlanReport,
}

/// What an engine call of a step came to.
pub type Called = Result<Result<(), Error>, Wrong>;

impl Machine {
    pub fn new() -> Self {
        Self::on(SimEnv::new(DiskOptions::default()))
    }

    pub fn on(env: SimEnv) -> Self {
        Self {
            env,
            options: Options::tiny(),
            declared: Vec::new(),
            model: Model::new(&[]),
            stores: BTreeMap::new(),
            current: "main".into(),
            snapshots: BTreeMap::new(),
            iterators: BTreeMap::new(),
            tickets: BTreeMap::new(),
            held: BTreeMap::new(),
            images: BTreeMap::new(),
            variables: Variables::new(),
            error: None,
            damaged: false,
            marks: None,
            report: PlanReport::default(),
        }
    }

    /// The same plan on another machine: what it declared and knows, nothing that is open.
    pub fn fork(&self, env: SimEnv) -> Self {
        Self {
            options: self.options.clone(),
            declared: self.declared.clone(),
            model: self.model.clone(),
            images: self.images.clone(),
            variables: self.variables.clone(),
            damaged: self.damaged,
            ..Self::on(env)
        }
    }

    pub fn lines(&mut self, nodes: &[Node]) -> Result<(), PlanFailure> {
        for node in nodes {
            self.node(node).map_err(|wrong| {
                let failure = |what| PlanFailure::new(node.line, &node.text, what);
                match wrong {
                    Wrong::Inner(failure) => failure,
                    Wrong::Text(what) => failure(what),
                    Wrong::Rule(violation) => PlanFailure {
                        rule: Some(violation.rule),
                        ..failure(violation.what)
                    },
                }
            })?;
        }
        Ok(())
    }

    /// The end of the plan: nothing may be left unsaid.
    pub fn finish(mut self) -> Result<PlanReport, PlanFailure> {
        self.check_error().map_err(|wrong| match wrong {
            Wrong::Inner(failure) => failure,
            _ => PlanFailure::new(0, "", "an error was not expected"),
        })?;
        match self.env.disk.violations().first() {
            Some(what) => Err(PlanFailure {
                rule: Some("S9"),
                ..PlanFailure::new(0, "the end", what.clone())
            }),
            None => Ok(self.report),
        }
    }

    fn node(&mut self, node: &Node) -> Result<(), Wrong> {
        let line = text::substitute(&node.text, &self.variables)?;
        let words = text::words(&line)?;
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let Some((first, rest)) = words.split_first() else {
            return Ok(());
        };
        match *first {
            "for" => return self.repeat(rest, &node.parts[0]),
            "expect" => {
                self.report.expects += 1;
                return self.expect(rest);
            }
            _ => self.check_error()?,
        }
        let (first, rest, tried) = match (*first, rest.split_first()) {
            ("try", Some((first, rest))) => (*first, rest, true),
            _ => (*first, rest, false),
        };
        if self.env.disk.is_dead() && !["crash", "reset", "let"].contains(&first) {
            return Ok(());
        }
        self.report.steps += 1;
        let called = self.guarded(|machine| machine.step(first, rest, node))?;
        if let Err(error) = called
            && !tried
            && !self.env.disk.is_dead()
        {
            let what = format!("not expected: {error:?}");
            let mut failure = PlanFailure::new(node.line, &line, what);
            failure.rule = Some(super::expect::rule_of(first, error.kind()));
            self.error = Some((failure, error));
        }
        self.after_step()
    }

    /// A panic that the plan asked for is death; any other is the engine's fault.
    fn guarded(&mut self, work: impl FnOnce(&mut Self) -> Called) -> Called {
        match catch_unwind(AssertUnwindSafe(|| work(self))) {
            Ok(called) => called,
            Err(panic) if panic.is::<SimulatedPanic>() => Ok(Ok(())),
            Err(panic) => match panic_text(&*panic) {
                Some(text) => {
                    Err(Violation::new("panic", format!("the engine panicked: {text}")).into())
                }
                None => resume_unwind(panic),
            },
        }
    }

    fn repeat(&mut self, words: &[&str], lines: &[Node]) -> Result<(), Wrong> {
        let (name, values) = words.split_first().ok_or(FOR)?;
        let values = self.values(values)?;
        for value in values {
            self.variables.insert((*name).to_string(), value);
            self.lines(lines)?;
        }
        Ok(())
    }

    /// The values of a `for`.
    pub fn values(&self, words: &[&str]) -> Result<Vec<i128>, Wrong> {
        match words {
            [range] => {
                let (from, to) = range.split_once("..").ok_or(FOR)?;
                let (from, to) = (self.number(from)?, self.number(to)?);
                if to - from > ROUNDS_MAX {
                    return Err("too many rounds".into());
                }
                Ok((from..to).collect())
            }
            ["in", list @ ..] => list.iter().map(|word| self.number(word)).collect(),
            _ => Err(FOR.into()),
        }
    }

    /// An error that no line expected ends the plan.
    pub fn check_error(&mut self) -> Result<(), Wrong> {
        match self.error.take() {
            Some((failure, _)) => Err(failure.into()),
            None => Ok(()),
        }
    }

    pub fn number(&self, text: &str) -> Result<i128, Wrong> {
        Ok(text::number(text, &self.variables)?)
    }

    /// A number that is not negative.
    pub fn size(&self, text: &str) -> Result<u64, Wrong> {
        let value = self.number(text)?;
        u64::try_from(value).map_err(|_| Wrong::Text(format!("{text} is {value}")))
    }

    pub fn opened(&self) -> Result<&Opened, Wrong> {
        let name = &self.current;
        self.stores
            .get(name)
            .ok_or_else(|| Wrong::Text(format!("no store {name} is open")))
    }

    pub fn keyspace(&self, name: &str) -> Result<&Keyspace, Wrong> {
        self.opened()?
            .keyspaces
            .get(name)
            .ok_or_else(|| Wrong::Text(format!("no keyspace {name}")))
    }

    /// The keyspace's place in the model.
    pub fn keyspace_index(&self, name: &str) -> Result<usize, Wrong> {
        self.declared
            .iter()
            .position(|(declared, _)| declared == name)
            .ok_or_else(|| Wrong::Text(format!("no keyspace {name}")))
    }

    fn step(&mut self, first: &str, rest: &[&str], node: &Node) -> Called {
        if let Some(called) = self.life_step(first, rest)? {
            return Ok(called);
        }
        if let Some(called) = self.write_step(first, rest, node)? {
            return Ok(called);
        }
        if let Some(called) = self.read_step(first, rest)? {
            return Ok(called);
        }
        if self.world_step(first, rest)? {
            return Ok(Ok(()));
        }
        if first == "exhaust" {
            return self.exhaust(rest, node).map(Ok);
        }
        Err(format!("no step {first}").into())
    }

    fn life_step(
        &mut self,
        first: &str,
        rest: &[&str],
    ) -> Result<Option<Result<(), Error>>, Wrong> {
        let called = match (first, rest) {
            ("option", [name, value]) => {
                self.options = super::options::set(self.options.clone(), name, value, self)?;
                Ok(())
            }
            ("options", ["tiny"]) => {
                self.options = Options::tiny();
                Ok(())
            }
            ("options", ["default"]) => {
                self.options = Options::new().background(sealstone::Background::Manual);
                Ok(())
            }
            ("keyspace", [name, kind]) => self.declare(name, kind)?,
            ("open", []) => self.open(&self.current.clone())?,
            ("open", ["as", name]) => self.open(name)?,
            ("use", [name]) => {
                self.current = (*name).to_string();
                Ok(())
            }
            ("close", []) => {
                let result = self.opened()?.store.close();
                self.poll()?;
                if result.is_ok() {
                    self.model.durable = self.model.durable.max(self.model.visible);
                }
                let name = self.current.clone();
                if let Some(opened) = self.stores.get_mut(&name) {
                    opened.closed = true;
                }
                result
            }
            ("drop", []) => {
                self.stores.remove(&self.current.clone());
                Ok(())
            }
            ("drop", ["all"]) => {
                self.let_go();
                Ok(())
            }
            ("reopen", []) => {
                let store = self.opened()?.store.clone();
                self.snapshots.clear();
                self.iterators.clear();
                let options = self.options.clone();
                let reopened = store.reopen_with(options);
                self.poll()?;
                match reopened {
                    Ok(store) => self.take_store(&self.current.clone(), store)?,
                    Err(error) => {
                        // The handle is closed all the same: its books are of no use any more.
                        if let Some(opened) = self.stores.get_mut(&self.current) {
                            opened.closed = true;
                        }
                        Err(error)
                    }
                }
            }
            ("filter-budget", [bytes]) => {
                let bytes = self.size(bytes)?;
                self.opened()?.store.set_filter_budget(bytes)
            }
            ("look", []) => self.opened()?.store.run(Job::Retire, 1).map(drop),
            ("set-pressure", ["none"]) => {
                self.opened()?.store.set_pressure(None);
                Ok(())
            }
            ("set-pressure", [level]) => {
                let level = super::world::level_named(level)?;
                self.opened()?.store.set_pressure(Some(level));
                Ok(())
            }
            ("crash", how) => {
                let crash = self.crash_form(how)?;
                self.crash(&crash);
                Ok(())
            }
            ("reset", []) => {
                self.let_go();
                let fresh = Self::new();
                self.env = fresh.env;
                self.model = fresh.model;
                self.declared.clear();
                self.damaged = false;
                Ok(())
            }
            _ => return Ok(None),
        };
        Ok(Some(called))
    }

    fn after_step(&mut self) -> Result<(), Wrong> {
        if self.env.disk.is_dead() {
            return Ok(());
        }
        self.poll()?;
        for (name, (value, copy)) in &self.held {
            if value[..] != copy[..] {
                let what = format!("the bytes held as {name} changed");
                return Err(Violation::new("S10", what).into());
            }
        }
        let open: Vec<&Opened> = self.stores.values().filter(|o| !o.closed).collect();
        if let [opened] = open[..]
            && !opened.read_only
        {
            let durable = opened.store.durable_sequence();
            if durable > self.model.issued {
                let what = format!("{durable} is durable, {} issued", self.model.issued);
                return Err(Violation::new("S1", what).into());
            }
            let audited = check_audit(&opened.store.audit(), &self.env.disk);
            self.model.durable = self.model.durable.max(durable);
            audited.map_err(|(rule, what)| Violation::new(rule, what))?;
        }
        self.mark();
        Ok(())
    }

    /// Notes for `exhaust` what may be lost from here on.
    pub fn mark(&mut self) {
        let Some(marks) = &mut self.marks else {
            return;
        };
        let now = Mark {
            durable: self.model.durable,
            issued: self.model.issued,
        };
        if marks.last() != Some(&now) {
            marks.push(now);
            self.env.disk.set_mark(marks.len() as u64 - 1);
        }
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> Option<String> {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_string()))
}
