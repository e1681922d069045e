//! Opening the store that `--store` names.

use std::path::PathBuf;
use std::sync::Arc;

use crate::engine::{
    Background, Counters, Env, Error, Keyspace, KeyspaceKind, KeyspaceOptions, Options, Result,
    Store,
};
use crate::output::{Failure, Outcome, shown};

/// The keyspace of a database without a name.
pub const MAIN: &str = "main";

/// The store that a subcommand works on.
#[derive(Clone, Debug, clap::Args)]
pub struct StoreArgs {
    /// The store's directory
    #[arg(long = "store", value_name = "DIR")]
    pub path: PathBuf,
}

impl StoreArgs {
    /// Opens it for reading; nothing on disk changes.
    pub fn open_read_only(&self) -> Outcome<Store> {
        Ok(self
            .open(Options::default().create(false).read_only(true))?
            .0)
    }

    /// Opens it for reading with jobs that only the caller runs.
    pub fn open_stepped(&self) -> Outcome<Store> {
        let options = Options::default().create(false).read_only(true);
        Ok(self.open(options.background(Background::Manual))?.0)
    }

    /// Opens it for writing, creating what is not there. Everything asked of the directory is counted.
    pub fn open_or_create(&self) -> Outcome<(Store, Arc<Counters>)> {
        self.open(Options::default())
    }

    fn open(&self, options: Options) -> Outcome<(Store, Arc<Counters>)> {
        let (env, counters) = self.env().map_err(|e| self.failure(&e))?.counting();
        let store = Store::open_with(env, options).map_err(|e| self.failure(&e))?;
        Ok((store, counters))
    }

    /// Its directory, not opened.
    pub fn env(&self) -> Result<Env> {
        Env::real(&self.path).map_err(|cause| Error::io_dir("open", cause))
    }

    /// Opens a keyspace that exists.
    pub fn keyspace(&self, store: &Store, name: &str) -> Outcome<Keyspace> {
        let known = store.keyspaces();
        let Some(info) = known.iter().find(|info| info.name == name) else {
            let names: Vec<_> = known.iter().map(|info| shown(&info.name)).collect();
            let remedy = if names.is_empty() {
                "the store has none".to_owned()
            } else {
                format!("give --keyspace one of: {}", names.join(", "))
            };
            return Err(Failure::new(format!(
                "{}: no keyspace {}; {remedy}",
                self.path.display(),
                shown(name)
            )));
        };
        store
            .keyspace(name, options_of(info.kind))
            .map_err(|e| self.failure(&e))
    }

    /// A failure of the engine on this store.
    pub fn failure(&self, error: &Error) -> Failure {
        Failure::engine(&self.path, error)
    }
}

/// The options that open a keyspace of this kind.
pub fn options_of(kind: KeyspaceKind) -> KeyspaceOptions {
    match kind {
        KeyspaceKind::WriteOnce => KeyspaceOptions::write_once(),
        KeyspaceKind::Mutable => KeyspaceOptions::mutable(),
    }
}

/// The word for a kind.
pub fn kind_word(kind: KeyspaceKind) -> &'static str {
    match kind {
        KeyspaceKind::WriteOnce => "write-once",
        KeyspaceKind::Mutable => "mutable",
    }
}
