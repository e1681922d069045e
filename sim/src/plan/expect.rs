//! What a plan expects.

use sealstone::{Error, ErrorKind, Store};

use super::Wrong;
use super::machine::Machine;
use super::reads::{Range, nothing_left};
use super::text::{self, show_bytes};
use super::world::file_kind;
use super::writes::job_name;

impl Machine {
    pub fn expect(&mut self, words: &[&str]) -> Result<(), Wrong> {
        match words {
            ["dead"] => {
                self.error = None;
                return holds(self.env.disk.is_dead(), "the process is alive");
            }
            ["error", rest @ ..] => return self.expect_error(rest),
            _ => self.check_error()?,
        }
        if self.env.disk.is_dead() {
            return Err("the process is dead: crash first".into());
        }
        match words {
            ["ok"] => Ok(()),
            ["value", keyspace, key, rest @ ..] => {
                let (value, snapshot) = match rest {
                    [value] => (value, None),
                    [value, "in", name] => (value, Some(*name)),
                    _ => return Err("expect value KEYSPACE KEY VALUE [in SNAPSHOT]".into()),
                };
                let right = Some(text::bytes(value)?);
                self.expect_get(keyspace, key, snapshot, right)
            }
            ["absent", keyspace, key] => self.expect_get(keyspace, key, None, None),
            ["absent", keyspace, key, "in", name] => {
                self.expect_get(keyspace, key, Some(name), None)
            }
            ["scan", keyspace, rest @ ..] => self.expect_scan(keyspace, rest),
            ["model"] => self.expect_model(),
            ["held", name, value] => {
                let (held, _) = self.held.get(*name).ok_or("nothing is held by that name")?;
                let right = text::bytes(value)?;
                holds(
                    held[..] == right[..],
                    &format!("it is {}", show_bytes(held)),
                )
            }
            ["ticket", name, rest @ ..] => self.expect_ticket(name, rest),
            ["job", name] => {
                let jobs = self.opened()?.store.runnable();
                let found = jobs.iter().any(|job| job_name(*job) == *name);
                holds(found, &format!("runnable are {jobs:?}"))
            }
            ["image", name] => self.expect_image(name),
            ["verify", "clean"] => self.expect_verify(None),
            ["verify", "damaged", kind] => self.expect_verify(Some(kind)),
            ["disk", "settled"] => holds(
                self.env.disk.state().is_settled(),
                "a crash could lose something",
            ),
            measure => self.expect_number(measure),
        }
    }

    fn expect_number(&mut self, words: &[&str]) -> Result<(), Wrong> {
        let (left, rest) = self.measure(words)?;
        let (operator, right) = rest.split_first().ok_or("a comparison is missing")?;
        let (right, rest) = self.measure(right)?;
        nothing_left(rest)?;
        let held = match *operator {
            "=" => left == right,
            "!=" => left != right,
            "<" => left < right,
            "<=" => left <= right,
            ">" => left > right,
            ">=" => left >= right,
            other => return Err(format!("no comparison {other}").into()),
        };
        holds(held, &format!("{left} {operator} {right} does not hold"))
    }

    fn expect_error(&mut self, words: &[&str]) -> Result<(), Wrong> {
        let Some((_, error)) = self.error.take() else {
            return Err("the last step met no error".into());
        };
        let wrong = |what: String| Wrong::Text(format!("{what}; the error is {error:?}"));
        let (kinds, mut words) = words.split_first().ok_or("expect error KIND")?;
        let kind = kind_name(error.kind());
        check_kinds(kinds)?;
        if *kinds != "any" && !kinds.split('|').any(|wanted| wanted == kind) {
            return Err(wrong(format!("its kind is {kind}")));
        }
        while let [word, value, rest @ ..] = words {
            match *word {
                "on" => {
                    let wanted = file_kind(value)?;
                    if error.file().map(|file| file.kind) != Some(wanted) {
                        return Err(wrong("it is of another file".into()));
                    }
                }
                "at" => {
                    let wanted = self.size(value)?;
                    if error.offset() != Some(wanted) {
                        return Err(wrong(format!("its offset is not {wanted}")));
                    }
                }
                "during" => {
                    if error.operation() != *value {
                        return Err(wrong("it is of another operation".into()));
                    }
                }
                "says" => {
                    let wanted = String::from_utf8_lossy(&text::bytes(value)?).into_owned();
                    if !error.to_string().contains(&wanted) {
                        return Err(wrong(format!("it does not say {wanted:?}")));
                    }
                }
                other => return Err(format!("of an error: {other}?").into()),
            }
            words = rest;
        }
        nothing_left(words)
    }

    fn expect_get(
        &mut self,
        keyspace: &str,
        key: &str,
        snapshot: Option<&str>,
        right: Option<Vec<u8>>,
    ) -> Result<(), Wrong> {
        let got = self.get(keyspace, key, snapshot)?.map_err(unexpected)?;
        let show = |value: Option<&[u8]>| value.map_or("absent".into(), show_bytes);
        if got.as_deref() == right.as_deref() {
            return Ok(());
        }
        let (got, right) = (show(got.as_deref()), show(right.as_deref()));
        Err(format!("it is {got}, right is {right}").into())
    }

    fn expect_scan(&mut self, keyspace: &str, words: &[&str]) -> Result<(), Wrong> {
        let (range, rest) = Range::read(words)?;
        let (colon, rest) = rest
            .split_first()
            .ok_or("expect scan KEYSPACE [RANGE] : K=V ...")?;
        if *colon != ":" {
            return Err("expect scan KEYSPACE [RANGE] : K=V ...".into());
        }
        let mut right = Vec::new();
        for word in rest {
            let (key, value) = word.split_once('=').ok_or("an item is KEY=VALUE")?;
            right.push((text::bytes(key)?, text::bytes(value)?));
        }
        let got = self.scan(keyspace, &range)?.map_err(unexpected)?;
        if got == right {
            return Ok(());
        }
        let items: Vec<String> = got
            .iter()
            .take(20)
            .map(|(key, value)| format!("{}={}", show_bytes(key), show_bytes(value)))
            .collect();
        Err(format!("{} items: {}", got.len(), items.join(" ")).into())
    }

    /// Everything is as the steps so far make it, by scans both ways and by every known key.
    pub fn expect_model(&mut self) -> Result<(), Wrong> {
        let at = self.model.visible;
        let declared = self.declared.clone();
        for (index, (name, _)) in declared.iter().enumerate() {
            for reverse in [false, true] {
                let range = Range {
                    reverse,
                    ..Range::default()
                };
                let items = self.scan(name, &range)?.map_err(unexpected)?;
                self.model.check_scan("S7", (index, reverse), at, &items)?;
            }
        }
        for (index, key) in self.model.known_keys() {
            let keyspace = self.keyspace(&declared[index].0)?;
            let value = keyspace.get(key).map_err(unexpected)?;
            let found = keyspace.contains(key).map_err(unexpected)?;
            holds(found == value.is_some(), "contains and get differ")?;
            self.model
                .check_get("S7", (index, key), at, value.as_deref())?;
        }
        Ok(())
    }

    fn expect_ticket(&mut self, name: &str, words: &[&str]) -> Result<(), Wrong> {
        self.poll()?;
        let queued = self.tickets.get(name).ok_or("no ticket of that name")?;
        match (words, queued.ticket.try_result()) {
            (["pending"], None) | (["ok"], Some(Ok(_))) => Ok(()),
            (["ok", sequence], Some(Ok(got))) => {
                holds(self.size(sequence)? == got, &format!("it is commit {got}"))
            }
            (["error", kinds], Some(Err(error))) => {
                let kind = kind_name(error.kind());
                check_kinds(kinds)?;
                let right = kinds.split('|').any(|wanted| wanted == kind);
                holds(right, &format!("the error is {error:?}"))
            }
            (_, outcome) => Err(format!("it came to {outcome:?}").into()),
        }
    }

    fn expect_image(&self, name: &str) -> Result<(), Wrong> {
        let image = self.images.get(name).ok_or("no image of that name")?;
        let now = self.env.disk.live_files();
        for file in image.keys().chain(now.keys()) {
            let (old, new) = (image.get(file), now.get(file));
            if old != new {
                let length = |bytes: Option<&Vec<u8>>| {
                    bytes.map_or("absent".into(), |b| b.len().to_string())
                };
                let at = old.zip(new).and_then(|(old, new)| {
                    let differs = old.iter().zip(new).position(|(a, b)| a != b);
                    differs.map(|at| format!(", first at byte {at}"))
                });
                let (old, new) = (length(old), length(new));
                let at = at.unwrap_or_default();
                return Err(format!("{file} differs: {old} bytes then, {new} now{at}").into());
            }
        }
        Ok(())
    }

    fn expect_verify(&mut self, damaged: Option<&str>) -> Result<(), Wrong> {
        let report = match self.stores.get(&self.current) {
            Some(opened) if !opened.closed => opened.store.verify(&mut |_| ()),
            _ => Store::verify_closed(&self.env.env(), &mut |_| ()),
        };
        let report = report.map_err(unexpected)?;
        let first = report.damaged.first();
        match damaged {
            None => holds(report.is_clean(), &format!("damage: {first:?}")),
            Some(kind) => {
                let kind = file_kind(kind)?;
                let found = report.damaged.iter().any(|damage| damage.file.kind == kind);
                holds(found, &format!("not found; damage: {first:?}"))
            }
        }
    }
}

fn holds(right: bool, what: &str) -> Result<(), Wrong> {
    if right { Ok(()) } else { Err(what.into()) }
}

fn unexpected(error: Error) -> Wrong {
    Wrong::Text(format!("not expected: {error:?}"))
}

/// The rule that an error breaks which no line of a plan expects, as in runs by seed.
pub fn rule_of(step: &str, kind: &ErrorKind) -> &'static str {
    match (step, kind) {
        ("open" | "reopen", _) => "S6",
        (
            _,
            ErrorKind::Corruption
            | ErrorKind::MissingFile
            | ErrorKind::UnsupportedVersion { .. }
            | ErrorKind::NotAStore,
        ) => "S6",
        _ => "S17",
    }
}

/// The kinds of error that plans know.
const KINDS: [&str; 17] = [
    "Io",
    "NoSpace",
    "TooManyOpenFiles",
    "Corruption",
    "MissingFile",
    "UnsupportedVersion",
    "Locked",
    "NotAStore",
    "InvalidArgument",
    "IncompatibleOptions",
    "Conflict",
    "Busy",
    "TooLarge",
    "Poisoned",
    "Closed",
    "Refused",
    "Unsupported",
];

/// Refuses words that name no kind of error: beside a right one they would never be noticed.
fn check_kinds(kinds: &str) -> Result<(), Wrong> {
    let unknown = |word: &&str| *word != "any" && !KINDS.contains(word);
    match kinds.split('|').find(unknown) {
        Some(word) => Err(format!("no kind of error: {word}").into()),
        None => Ok(()),
    }
}

/// The name of an error's kind in plans.
fn kind_name(kind: &ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Io => "Io",
        ErrorKind::NoSpace => "NoSpace",
        ErrorKind::TooManyOpenFiles => "TooManyOpenFiles",
        ErrorKind::Corruption => "Corruption",
        ErrorKind::MissingFile => "MissingFile",
        ErrorKind::UnsupportedVersion { .. } => "UnsupportedVersion",
        ErrorKind::Locked => "Locked",
        ErrorKind::NotAStore => "NotAStore",
        ErrorKind::InvalidArgument => "InvalidArgument",
        ErrorKind::IncompatibleOptions { .. } => "IncompatibleOptions",
        ErrorKind::Conflict => "Conflict",
        ErrorKind::Busy { .. } => "Busy",
        ErrorKind::TooLarge { .. } => "TooLarge",
        ErrorKind::Poisoned => "Poisoned",
        ErrorKind::Closed => "Closed",
        ErrorKind::Refused => "Refused",
        ErrorKind::Unsupported => "Unsupported",
        _ => "unknown",
    }
}
