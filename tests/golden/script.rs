//! A small language of store histories, its player on a real directory, and its model.
//!
//! A script is data: the player makes the files, the model says what they must hold, and neither asks
//! the other. Played with the same entropy, a script gives the same bytes.

use std::collections::BTreeMap;
use std::path::Path;

use sealstone::env::{Entropy, Env, IoResult};
use sealstone::{Batch, Durability, Job, Keyspace, KeyspaceKind, KeyspaceOptions, Options, Store};

use crate::tear;

/// An operation: a put, or a delete where `value` is `None`.
#[derive(Clone, Debug)]
pub struct Op {
    pub keyspace: String,
    pub key: Vec<u8>,
    pub value: Option<Vec<u8>>,
}

/// Something that happens to a store.
#[derive(Clone, Debug)]
pub enum Step {
    /// Creates a keyspace, or opens it again.
    Keyspace(String, KeyspaceKind),
    /// Creates a keyspace that a later tear takes back.
    LostKeyspace(String, KeyspaceKind),
    /// Writes a batch.
    Commit(Durability, Vec<Op>),
    /// Writes a batch that a later tear takes back.
    LostCommit(Vec<Op>),
    /// Submits a batch that nobody writes.
    Queued(Vec<Op>),
    /// Ends the generation.
    Seal,
    /// Runs all jobs.
    Drain,
    /// Runs that many quanta of the flush, a record each.
    FlushQuanta(u32),
    /// Closes in order.
    Close,
    /// Lets go of the store without closing it.
    Drop,
    /// Opens it again.
    Open,
    /// Kills the process.
    Kill,
    /// Zeros the second half of the frame before the last one of the only log with frames.
    TearLog,
    /// Zeros the second half of the manifest's last edit.
    TearManifest,
}

/// A history and the options that it is played with.
#[derive(Clone, Debug)]
pub struct Script {
    pub options: Options,
    pub steps: Vec<Step>,
}

/// Keyspaces by name, each with its records.
pub type Model = BTreeMap<String, BTreeMap<Vec<u8>, Vec<u8>>>;

/// What the store must hold after the script.
pub fn model(script: &Script) -> Model {
    let mut model = Model::new();
    for step in &script.steps {
        match step {
            Step::Keyspace(name, _) => drop(model.entry(name.clone()).or_default()),
            Step::Commit(_, ops) => {
                for op in ops {
                    let records = model
                        .get_mut(&op.keyspace)
                        .expect("a keyspace of the script");
                    match &op.value {
                        Some(value) => drop(records.insert(op.key.clone(), value.clone())),
                        None => drop(records.remove(&op.key)),
                    }
                }
            }
            _ => {}
        }
    }
    model
}

/// The same numbers every time.
#[derive(Debug)]
struct FixedEntropy;

impl Entropy for FixedEntropy {
    fn fill(&self, buffer: &mut [u8]) -> IoResult<()> {
        for (byte, value) in buffer.iter_mut().zip(1..) {
            *byte = value;
        }
        Ok(())
    }
}

/// A real directory with fixed entropy.
pub fn env(directory: &Path) -> Env {
    let mut env = Env::real(directory).expect("a path");
    env.entropy = std::sync::Arc::new(FixedEntropy);
    env
}

/// Plays a script in a directory, which it creates.
pub fn play(script: &Script, directory: &Path) {
    let mut player = Player {
        script,
        directory,
        store: None,
        keyspaces: BTreeMap::new(),
    };
    player.open();
    script.steps.iter().for_each(|step| player.step(step));
}

struct Player<'a> {
    script: &'a Script,
    directory: &'a Path,
    store: Option<Store>,
    keyspaces: BTreeMap<String, Keyspace>,
}

impl Player<'_> {
    fn open(&mut self) {
        let store = Store::open_with(env(self.directory), self.script.options.clone());
        let store = store.expect("opens");
        for info in store.keyspaces() {
            self.keyspace(&store, &info.name, info.kind);
        }
        self.store = Some(store);
    }

    fn keyspace(&mut self, store: &Store, name: &str, kind: KeyspaceKind) {
        let options = match kind {
            KeyspaceKind::WriteOnce => KeyspaceOptions::write_once(),
            KeyspaceKind::Mutable => KeyspaceOptions::mutable(),
        };
        let keyspace = store.keyspace(name, options).expect("a keyspace");
        self.keyspaces.insert(name.to_owned(), keyspace);
    }

    fn let_go(&mut self) -> Option<Store> {
        self.keyspaces.clear();
        self.store.take()
    }

    fn batch(&self, ops: &[Op]) -> Batch<'static> {
        let mut batch = Batch::new();
        for op in ops {
            let keyspace = &self.keyspaces[&op.keyspace];
            match &op.value {
                Some(value) => batch.put(keyspace, op.key.clone(), value.clone()),
                None => batch.delete(keyspace, op.key.clone()),
            };
        }
        batch
    }

    fn step(&mut self, step: &Step) {
        let store = self.store.clone();
        let store = || store.as_ref().expect("an open store");
        match step {
            Step::Keyspace(name, kind) | Step::LostKeyspace(name, kind) => {
                self.keyspace(store(), name, *kind);
            }
            Step::Commit(durability, ops) => {
                store().write(self.batch(ops), *durability).expect("writes");
            }
            Step::LostCommit(ops) => {
                let written = store().write(self.batch(ops), Durability::Buffered);
                written.expect("writes");
            }
            Step::Queued(ops) => {
                let ticket = store().submit(self.batch(ops), Durability::Buffered);
                drop(ticket.expect("submits"));
            }
            Step::Seal => store().seal().expect("seals"),
            Step::Drain => store().drain().expect("drains"),
            Step::FlushQuanta(count) => {
                for _ in 0..*count {
                    store().run(Job::Flush, 1).expect("flushes");
                }
            }
            Step::Close => {
                store().close().expect("closes");
                self.let_go();
            }
            Step::Drop => drop(self.let_go()),
            Step::Open => self.open(),
            Step::Kill => kill(),
            Step::TearLog => tear::log(self.directory),
            Step::TearManifest => tear::manifest(self.directory),
        }
    }
}

/// Ends this process as the system's out-of-memory killer would.
fn kill() -> ! {
    use rustix::process::{Signal, getpid, kill_process};
    kill_process(getpid(), Signal::KILL).expect("a process may kill itself");
    unreachable!("no process outlives that signal");
}
