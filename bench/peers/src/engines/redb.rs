//! redb: a write transaction a batch, durable at its commit (the default), the batch sorted by key;
//! compacted to settle; one read transaction and one open table for all lookups.
//!
//! Outside the cache budget: next to nothing.

use anyhow::Result;
use redb::{Builder, Database, ReadOnlyTable, ReadableDatabase, TableDefinition};

use super::{Reader, Spec, Writer, by_key, copy};
use crate::keys::{Batch, KEY_BYTES};

type Key = &'static [u8; KEY_BYTES];

const RECORDS: TableDefinition<Key, &[u8]> = TableDefinition::new("records");

/// The database while it is loaded.
pub struct Load {
    database: Database,
}

/// The table while keys are looked up. The database must outlive it: fields are dropped in order.
pub struct Lookup {
    table: ReadOnlyTable<Key, &'static [u8]>,
    _database: Database,
}

fn database(spec: &Spec) -> Result<Database> {
    let mut builder = Builder::new();
    builder.set_cache_size(usize::try_from(spec.cache_bytes)?);
    Ok(builder.create(spec.directory.join("records.redb"))?)
}

/// Creates it.
pub fn create(spec: &Spec) -> Result<Load> {
    let database = database(spec)?;
    Ok(Load { database })
}

/// Opens it.
pub fn open(spec: &Spec) -> Result<Lookup> {
    let database = database(spec)?;
    let table = database.begin_read()?.open_table(RECORDS)?;
    Ok(Lookup {
        table,
        _database: database,
    })
}

impl Writer for Load {
    fn write(&mut self, batch: &Batch) -> Result<()> {
        let transaction = self.database.begin_write()?;
        {
            let mut table = transaction.open_table(RECORDS)?;
            for (key, value) in by_key(batch) {
                let key: &[u8; KEY_BYTES] = key.try_into()?;
                table.insert(key, value)?;
            }
        }
        Ok(transaction.commit()?)
    }

    fn settle(&mut self) -> Result<()> {
        self.database.compact()?;
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(self.database.close()?)
    }
}

impl Reader for Lookup {
    fn get(&self, key: &[u8], out: &mut Vec<u8>) -> Result<bool> {
        let key: &[u8; KEY_BYTES] = key.try_into()?;
        let found = self.table.get(key)?;
        if let Some(value) = &found {
            copy(value.value(), out);
        }
        Ok(found.is_some())
    }
}
