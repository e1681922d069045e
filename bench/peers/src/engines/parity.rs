//! ParityDB: uniform keys, preimage and append-only columns, statistics off.
//!
//! A commit returns before its log is written, and nothing public waits until it is: it is **not durable
//! per batch**. The time to durability of a load is that of dropping the database as well. Files are mapped,
//! so the cache budget does not apply.

use anyhow::Result;
use parity_db::{Db, Options};

use super::{Reader, Spec, Writer};
use crate::keys::Batch;

/// An open database.
pub struct Parity {
    database: Db,
}

/// Creates or opens it.
pub fn create(spec: &Spec) -> Result<Parity> {
    let mut options = Options::with_columns(&spec.directory, 1);
    options.stats = false;
    for column in &mut options.columns {
        column.uniform = true;
        column.preimage = true;
        column.append_only = true;
    }
    let database = Db::open_or_create(&options)?;
    Ok(Parity { database })
}

impl Writer for Parity {
    fn write(&mut self, batch: &Batch) -> Result<()> {
        let changes = batch
            .records()
            .map(|(key, value)| (0, key, Some(value.to_vec())));
        Ok(self.database.commit(changes)?)
    }

    fn settle(&mut self) -> Result<()> {
        // Its queues can't be waited for; dropping it empties them.
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<()> {
        drop(self.database);
        Ok(())
    }
}

impl Reader for Parity {
    fn get(&self, key: &[u8], out: &mut Vec<u8>) -> Result<bool> {
        let found = self.database.get(0, key)?;
        let is_found = found.is_some();
        if let Some(value) = found {
            // It comes in memory of its own; copying it once more would only measure that.
            *out = value;
        }
        Ok(is_found)
    }
}
