//! The scripted workload of the exhaustive run, and the driver that walks it.
//!
//! Fixed on purpose: two keyspaces, buffered and synced batches, overwrites and deletes, seals,
//! background jobs stepped with small quanta between commits, snapshots held across them, clean
//! reopens. Enough to make every kind of mutating call many times.

use sealstone::types::KeyspaceKind;

use crate::env::SimEnv;
use crate::model::{Model, Op, Verdict, Violation};
use crate::subject::{Answer, Stop, StopKind, Subject};

/// One step of a script.
#[derive(Clone, Debug)]
pub enum Step {
    /// Write a batch.
    Write(Vec<Op>, bool),
    /// Submit these batches, then commit them as they group.
    Group(Vec<(Vec<Op>, bool)>),
    /// Make everything durable.
    Sync,
    /// End the open generation.
    Seal,
    /// Run the n-th runnable job for a quantum.
    Job(usize, u32),
    /// Take a snapshot, to be compared until it is dropped.
    Snapshot,
    /// Compare and drop the oldest snapshot.
    DropSnapshot,
    /// Close and open again.
    Reopen,
    /// Read everything and compare.
    Check,
}

/// How far the driver had come when a state was recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// What no crash may lose.
    pub durable: u64,
    /// What may have reached the disk.
    pub issued: u64,
}

/// The script for keyspaces of these kinds; `rounds` scales its length.
pub fn standard(kinds: &[KeyspaceKind], rounds: u32) -> Vec<Step> {
    let mut steps = Vec::new();
    for round in 0..rounds {
        let value = |tag: &str, length: usize| {
            let mut bytes = format!("{tag}-{round}-").into_bytes();
            bytes.resize(bytes.len().max(length), b'.');
            bytes
        };
        // A write-once key is new in each round; a mutable one comes again and again.
        let key = |keyspace: usize, n: u32| match kinds[keyspace] {
            KeyspaceKind::WriteOnce => format!("once-{:04}", round * 16 + n),
            KeyspaceKind::Mutable => format!("key-{:02}", (round * 3 + n) % 11),
        };
        let last = kinds.len() - 1;
        steps.push(Step::Write(
            vec![Op::put(0, key(0, 0), value("a", 20))],
            false,
        ));
        steps.push(Step::Write(
            vec![
                Op::put(0, key(0, 1), value("b", 90)),
                Op::put(last, key(last, 1), value("c", 30)),
                Op::delete(last, key(last, 2)),
            ],
            true,
        ));
        steps.push(Step::Job(0, 1));
        if round % 3 == 0 {
            steps.push(Step::Snapshot);
        }
        steps.push(Step::Write(
            vec![Op::put(last, key(last, 3), value("d", 700))],
            true,
        ));
        steps.push(Step::Job(1, 2));
        steps.push(Step::Group(vec![
            (vec![Op::put(0, key(0, 4), value("e", 10))], false),
            (
                vec![Op::put(last, key(last, 4), value("f", 10))],
                round % 2 == 0,
            ),
            (vec![Op::put(last, key(last, 4), value("g", 300))], false),
        ]));
        if round % 2 == 1 {
            steps.push(Step::Seal);
            steps.extend((0..6).map(|n| Step::Job(n % 3, 1)));
        }
        steps.push(Step::Write(vec![Op::delete(last, key(last, 1))], false));
        if round % 3 == 2 {
            steps.extend([Step::Sync, Step::DropSnapshot]);
        }
        if round % 5 == 4 {
            steps.extend([Step::Check, Step::Reopen]);
        }
        steps.extend((0..3).map(|n| Step::Job(n, 1 + n as u32)));
    }
    steps.extend([Step::Seal, Step::Sync, Step::Check]);
    steps
}

/// Walks a script on a subject, keeping the model and the marks.
pub struct Walker<S: Subject> {
    env: SimEnv,
    options: S::Options,
    subject: Option<S>,
    views: Vec<S::View>,
    /// What is right.
    pub model: Model,
    /// Indexed by the mark that recorded states carry.
    pub marks: Vec<Mark>,
}

fn unexpected(step: &str, stop: &Stop) -> Violation {
    Violation::new(
        "S17",
        format!(
            "{step} failed without a fault: {:?} {}",
            stop.kind, stop.text
        ),
    )
}

impl<S: Subject> Walker<S> {
    /// Opens a store on `env`, which records already if it is to.
    ///
    /// # Errors
    /// If that fails although nothing is wrong.
    pub fn open(env: SimEnv, options: S::Options) -> Result<Self, Violation> {
        let model = Model::new(&S::kinds());
        let mut walker = Self {
            env,
            options,
            subject: None,
            views: Vec::new(),
            model,
            marks: Vec::new(),
        };
        walker.mark();
        walker.reopen()?;
        Ok(walker)
    }

    /// Walks all steps.
    ///
    /// # Errors
    /// The first rule that does not hold.
    pub fn walk(&mut self, steps: &[Step]) -> Result<(), Violation> {
        for step in steps {
            self.step(step)?;
            self.mark();
        }
        Ok(())
    }

    fn subject(&self) -> &S {
        self.subject.as_ref().expect("open between steps")
    }

    /// From now on, recorded states carry where the model stands.
    fn mark(&mut self) {
        let claimed = self.subject.as_ref().map_or(0, S::claimed_durable);
        let durable = self.model.durable.max(claimed);
        self.model.durable = durable;
        self.marks.push(Mark {
            durable,
            issued: self.model.issued,
        });
        self.env.disk.set_mark(self.marks.len() as u64 - 1);
    }

    fn step(&mut self, step: &Step) -> Result<(), Violation> {
        let named =
            |answer: Answer<()>| answer.map_err(|stop| unexpected(&format!("{step:?}"), &stop));
        match step {
            Step::Write(ops, synced) => self.write(ops, *synced),
            Step::Group(batches) => self.group(batches),
            Step::Sync => {
                named(self.subject().sync())?;
                self.model.durable = self.model.visible;
                Ok(())
            }
            Step::Seal => named(self.subject().seal()),
            Step::Job(index, quantum) => match self.subject().jobs() {
                0 => Ok(()),
                count => named(self.subject().run_job(index % count, *quantum)),
            },
            Step::Snapshot => match self.subject().snapshot() {
                None => Ok(()),
                Some(view) => {
                    self.views
                        .push(view.map_err(|stop| unexpected("snapshot", &stop))?);
                    Ok(())
                }
            },
            Step::DropSnapshot => {
                if self.views.is_empty() {
                    return Ok(());
                }
                let view = self.views.remove(0);
                check_view(self.subject(), &self.model, &view)
            }
            Step::Reopen => self.reopen(),
            Step::Check => check_all(self.subject(), &self.model, self.model.visible),
        }
    }

    fn write(&mut self, ops: &[Op], synced: bool) -> Result<(), Violation> {
        if self.model.verdict(ops) != Verdict::Commit {
            return match self.subject().write(ops, synced) {
                Ok(_) => Ok(()),
                Err(stop) if stop.kind == StopKind::Conflict => Ok(()),
                Err(stop) => Err(unexpected("write", &stop)),
            };
        }
        let sequence = self.model.issue(ops);
        self.mark();
        match self.subject().write(ops, synced) {
            Ok(got) if got == sequence => {
                self.model.acknowledge(sequence, synced);
                Ok(())
            }
            Ok(got) => Err(Violation::new(
                "S1",
                format!("commit {sequence} was called {got}"),
            )),
            Err(stop) => Err(unexpected("write", &stop)),
        }
    }

    fn group(&mut self, batches: &[(Vec<Op>, bool)]) -> Result<(), Violation> {
        let mut tickets = Vec::new();
        for (ops, synced) in batches {
            if self.model.verdict(ops) != Verdict::Commit {
                continue;
            }
            let expected = self.model.issue(ops);
            self.mark();
            match self.submitted(ops, *synced)? {
                Some(ticket) => tickets.push((ticket, expected, *synced)),
                None => {
                    let got = self.subject().write(ops, *synced);
                    let got = got.map_err(|stop| unexpected("write", &stop))?;
                    self.model.acknowledge(got, *synced);
                }
            }
        }
        while self
            .subject()
            .commit_step()
            .map_err(|stop| unexpected("commit", &stop))?
        {}
        for (ticket, expected, synced) in tickets {
            match self.subject().poll(&ticket) {
                Some(Ok(got)) if got == expected => self.model.acknowledge(got, synced),
                other => {
                    let what = format!("ticket of {expected} says {other:?}");
                    return Err(Violation::new("S1", what));
                }
            }
        }
        Ok(())
    }

    /// Submits; where there is no room, background work makes some. `None`: there is no queue.
    fn submitted(&self, ops: &[Op], synced: bool) -> Result<Option<S::Ticket>, Violation> {
        let subject = self.subject();
        loop {
            match subject.submit(ops, synced) {
                Some(Err(stop)) if stop.kind == StopKind::Refused && subject.jobs() > 0 => {
                    subject
                        .run_job(0, 4)
                        .map_err(|stop| unexpected("job", &stop))?;
                }
                Some(Err(stop)) => return Err(unexpected("submit", &stop)),
                Some(Ok(ticket)) => return Ok(Some(ticket)),
                None => return Ok(None),
            }
        }
    }

    fn reopen(&mut self) -> Result<(), Violation> {
        self.views.clear();
        if let Some(subject) = self.subject.take() {
            subject.close().map_err(|stop| unexpected("close", &stop))?;
        }
        if self.env.disk.descriptors() != 0 {
            let held = self.env.disk.descriptors();
            return Err(Violation::new(
                "S14",
                format!("closed with {held} descriptors open"),
            ));
        }
        let subject = S::open(&self.env.env(), &self.options);
        let subject = subject.map_err(|stop| unexpected("open", &stop))?;
        let recovered = subject.recovered();
        if recovered != self.model.issued {
            let what = format!(
                "{} written, {recovered} after a clean reopen",
                self.model.issued
            );
            return Err(Violation::new("S2", what));
        }
        self.model.recover(recovered)?;
        self.subject = Some(subject);
        check_all(self.subject(), &self.model, recovered)
    }
}

/// Reads everything, both ways and key by key.
///
/// # Errors
/// S7 at the first difference.
pub fn check_all<S: Subject>(subject: &S, model: &Model, at: u64) -> Result<(), Violation> {
    for keyspace in 0..model.keyspaces() {
        for reverse in [false, true] {
            let items = subject
                .scan(keyspace, reverse)
                .map_err(|stop| unexpected("scan", &stop))?;
            model.check_scan("S7", (keyspace, reverse), at, &items)?;
        }
    }
    for (keyspace, key) in model.known_keys() {
        let value = subject
            .get(keyspace, key)
            .map_err(|stop| unexpected("get", &stop))?;
        model.check_get("S7", (keyspace, key), at, value.as_deref())?;
    }
    Ok(())
}

/// Reads everything of a snapshot.
///
/// # Errors
/// S8 at the first difference.
pub fn check_view<S: Subject>(subject: &S, model: &Model, view: &S::View) -> Result<(), Violation> {
    let at = S::view_sequence(view);
    for keyspace in 0..model.keyspaces() {
        for reverse in [false, true] {
            let items = subject.view_scan(view, keyspace, reverse);
            let items = items.map_err(|stop| unexpected("snapshot scan", &stop))?;
            model.check_scan("S8", (keyspace, reverse), at, &items)?;
        }
    }
    for (keyspace, key) in model.known_keys() {
        let value = subject.view_get(view, keyspace, key);
        let value = value.map_err(|stop| unexpected("snapshot get", &stop))?;
        model.check_get("S8", (keyspace, key), at, value.as_deref())?;
    }
    Ok(())
}
