//! The stores of a plan's machine and their keyspaces: declared, opened, and gone with the machine.

use std::collections::BTreeMap;

use sealstone::types::KeyspaceKind;
use sealstone::{KeyspaceOptions, Store};

use super::machine::{Called, Machine, Opened};
use super::text;
use crate::disk::Crash;

impl Machine {
    pub(super) fn declare(&mut self, name: &str, kind: &str) -> Called {
        let name = String::from_utf8(text::bytes(name)?).map_err(|_| "a name is text")?;
        let kind = match kind {
            "once" => KeyspaceKind::WriteOnce,
            "mutable" => KeyspaceKind::Mutable,
            other => return Err(format!("a keyspace is once or mutable, not {other}").into()),
        };
        let made = match self.stores.get(&self.current) {
            Some(opened) => opened.store.keyspace(&name, keyspace_options(kind)),
            None => {
                self.remember_keyspace(&name, kind);
                return Ok(Ok(()));
            }
        };
        Ok(made.map(|keyspace| {
            self.remember_keyspace(&name, kind);
            let current = self.current.clone();
            if let Some(opened) = self.stores.get_mut(&current) {
                opened.keyspaces.insert(name, keyspace);
            }
        }))
    }

    fn remember_keyspace(&mut self, name: &str, kind: KeyspaceKind) {
        if !self.declared.iter().any(|(declared, _)| declared == name) {
            self.declared.push((name.to_string(), kind));
            self.model.add_keyspace(kind);
        }
    }

    pub(super) fn open(&mut self, name: &str) -> Called {
        match Store::open_with(self.env.env(), self.options.clone()) {
            Ok(store) => self.take_store(name, store),
            Err(error) => Ok(Err(error)),
        }
    }

    pub(super) fn take_store(&mut self, name: &str, store: Store) -> Called {
        let read_only = format!("{:?}", self.options).contains("read_only: true");
        let existing: Vec<String> = store
            .keyspaces()
            .into_iter()
            .map(|info| info.name)
            .collect();
        let mut keyspaces = BTreeMap::new();
        for (declared, kind) in &self.declared {
            if read_only && !existing.contains(declared) {
                continue;
            }
            match store.keyspace(declared, keyspace_options(*kind)) {
                Ok(keyspace) => keyspaces.insert(declared.clone(), keyspace),
                Err(error) => return Ok(Err(error)),
            };
        }
        let recovered = store.open_report().recovered_through;
        let durable = self.model.durable;
        if self.damaged {
            self.model.durable = 0;
        }
        self.model.recover(recovered)?;
        if read_only && !self.damaged {
            // A reader rewrites nothing.
            self.model.durable = durable;
        }
        self.tickets.clear();
        let opened = Opened {
            store,
            keyspaces,
            closed: false,
            read_only,
        };
        self.stores.insert(name.to_string(), opened);
        self.current = name.to_string();
        Ok(Ok(()))
    }

    /// The machine goes down and comes up again.
    pub(super) fn crash(&mut self, crash: &Crash) {
        let next = self.env.restart(crash);
        self.let_go();
        self.env = next;
    }

    /// Everything that the plan holds of stores; bytes that were handed out stay.
    pub(super) fn let_go(&mut self) {
        self.iterators.clear();
        self.snapshots.clear();
        self.tickets.clear();
        self.stores.clear();
        self.current = "main".into();
    }
}

fn keyspace_options(kind: KeyspaceKind) -> KeyspaceOptions {
    match kind {
        KeyspaceKind::WriteOnce => KeyspaceOptions::write_once(),
        KeyspaceKind::Mutable => KeyspaceOptions::mutable(),
    }
}
