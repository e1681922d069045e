//! LMDB through heed: a write transaction a batch, synced at its commit (the default), the batch sorted by
//! key; one read transaction for all lookups.
//!
//! It has no cache of its own to bound: pages belong to the system, so the budget does not apply.

use anyhow::{Result, anyhow};
use heed::types::Bytes;
use heed::{CommitOrAbort, Database, Env, EnvOpenOptions, RoTxn, WithoutTls};

use super::{Reader, Spec, Writer, by_key, copy};
use crate::keys::Batch;

type Records = Database<'static, Bytes, Bytes>;

/// The environment while it is loaded.
pub struct Load {
    env: Env<WithoutTls>,
    records: Records,
}

/// The one transaction of all lookups.
pub struct Lookup {
    transaction: RoTxn<'static, WithoutTls>,
    records: Records,
}

fn env(spec: &Spec) -> Result<Env<WithoutTls>> {
    // Address space, not memory: trees filled at random are twice their data.
    let map_bytes = (4 * spec.user_bytes() + (64 << 20)).next_multiple_of(1 << 20);
    let mut options = EnvOpenOptions::new().read_txn_without_tls();
    options.map_size(usize::try_from(map_bytes)?);
    // SAFETY: the directory is this run's own, nothing else writes to the file or maps it.
    Ok(unsafe { options.open(&spec.directory)? })
}

/// Creates it.
pub fn create(spec: &Spec) -> Result<Load> {
    let env = env(spec)?;
    let transaction = env.write_txn()?;
    let created = env.create_databases_and_commit(transaction, |opener, transaction| {
        let records = opener.create_database::<Bytes, Bytes>(transaction, None)?;
        Ok::<_, heed::Error>(CommitOrAbort::<_, ()>::Commit(records))
    })?;
    let records = created.unwrap_commit();
    Ok(Load { env, records })
}

/// Opens it.
pub fn open(spec: &Spec) -> Result<Lookup> {
    let Load { env, records } = create(spec)?;
    let transaction = env.static_read_txn()?;
    Ok(Lookup {
        transaction,
        records,
    })
}

impl Writer for Load {
    fn write(&mut self, batch: &Batch) -> Result<()> {
        let mut transaction = self.env.write_txn()?;
        for (key, value) in by_key(batch) {
            self.records.put(&mut transaction, key, value)?;
        }
        Ok(transaction.commit()?)
    }

    fn settle(&mut self) -> Result<()> {
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.env.force_sync()?;
        let closing = self.env.prepare_for_closing();
        if closing.wait_timeout(std::time::Duration::from_secs(10)) {
            return Ok(());
        }
        Err(anyhow!("the environment is still in use"))
    }
}

impl Reader for Lookup {
    fn get(&self, key: &[u8], out: &mut Vec<u8>) -> Result<bool> {
        let found = self.records.get(&self.transaction, key)?;
        if let Some(value) = found {
            copy(value, out);
        }
        Ok(found.is_some())
    }
}
