//! The phases of a store's life, each set up on its own disk.

use sealstone::env::FileKind;
use sealstone::{
    Background, Batch, Durability, Error, ErrorKind, Job, Keyspace, KeyspaceOptions, Options, Store,
};
use sealstone_sim::disk::{DiskOptions, SimDisk};
use sealstone_sim::env::SimEnv;

/// What the store is doing when the fault strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Opening a store with segments and a live log.
    Open,
    /// One synced commit.
    Commit,
    /// The commit that reaches a generation's limit, and the next one, which goes to the next log.
    Rotate,
    /// Writing a sealed generation to a segment, up to its sync.
    Flush,
    /// The rest of a flush: spare log, directory, manifest edit, removal of the old log.
    Install,
    /// Point lookups of keys in files not yet opened.
    Lookup,
    /// A scan over the same.
    Scan,
    /// Closing with a commit that is not synced.
    Close,
}

impl Phase {
    pub const ALL: [Self; 8] = [
        Self::Open,
        Self::Commit,
        Self::Rotate,
        Self::Flush,
        Self::Install,
        Self::Lookup,
        Self::Scan,
        Self::Close,
    ];
}

/// Keys in segments before the phase.
const SEALED_KEYS: u32 = 40;

fn options() -> Options {
    Options::tiny().background(Background::Manual)
}

fn key(number: u32) -> Vec<u8> {
    format!("key {number:05}").into_bytes()
}

fn value(number: u32) -> Vec<u8> {
    format!("value of {number} ").repeat(3).into_bytes()
}

/// A store on a disk of its own, and what it has acknowledged.
pub struct Scene {
    env: SimEnv,
    store: Option<Store>,
    map: Option<Keyspace>,
    /// Keys below this were acknowledged as synced.
    acknowledged: u32,
    /// Keys below this may be there.
    tried: u32,
}

impl Scene {
    /// Everything as it is right before the phase.
    pub fn before(phase: Phase) -> Self {
        let env = SimEnv::new(DiskOptions::default());
        let mut scene = Self {
            env,
            store: None,
            map: None,
            acknowledged: 0,
            tried: 0,
        };
        scene.open().expect("opens");
        for _ in 0..SEALED_KEYS / 4 {
            scene.write(4, Durability::Synced).expect("writes");
            scene.store().drain().expect("drains");
        }
        scene.store().seal().expect("seals");
        scene.store().drain().expect("drains");
        scene.write(1, Durability::Synced).expect("writes");
        match phase {
            Phase::Open | Phase::Lookup | Phase::Scan => {
                scene.close().expect("closes");
                if phase != Phase::Open {
                    scene.open().expect("opens");
                }
            }
            Phase::Commit | Phase::Rotate => {}
            Phase::Close => scene.write(1, Durability::Buffered).expect("writes"),
            Phase::Flush | Phase::Install => {
                scene.store().seal().expect("seals");
                if phase == Phase::Install {
                    scene.run_flush_until_synced().expect("flushes");
                }
            }
        }
        scene
    }

    pub fn disk(&self) -> &SimDisk {
        &self.env.disk
    }

    fn store(&self) -> &Store {
        self.store.as_ref().expect("is open")
    }

    fn map(&self) -> &Keyspace {
        self.map.as_ref().expect("is open")
    }

    pub fn is_poisoned(&self) -> bool {
        self.store
            .as_ref()
            .is_some_and(|store| store.stats().poisoned)
    }

    fn open(&mut self) -> Result<(), Error> {
        let store = Store::open_with(self.env.env(), options())?;
        let map = store.keyspace("map", KeyspaceOptions::mutable())?;
        self.store = Some(store);
        self.map = Some(map);
        Ok(())
    }

    fn close(&mut self) -> Result<(), Error> {
        self.map = None;
        match self.store.take() {
            Some(store) => store.close(),
            None => Ok(()),
        }
    }

    fn write(&mut self, keys: u32, durability: Durability) -> Result<(), Error> {
        let first = self.acknowledged;
        let mut batch = Batch::new();
        for number in first..first + keys {
            batch.put(self.map(), key(number), value(number));
        }
        self.tried = self.tried.max(first + keys);
        self.store().write(batch, durability)?;
        if durability == Durability::Synced {
            self.acknowledged = first + keys;
        }
        Ok(())
    }

    fn run_flush_until_synced(&self) -> Result<(), Error> {
        let syncs = self.store().stats().flush_syncs;
        for _ in 0..1000 {
            if self.store().stats().flush_syncs > syncs
                || !self.store().runnable().contains(&Job::Flush)
            {
                return Ok(());
            }
            self.store().run(Job::Flush, 4)?;
        }
        panic!("the flush does not come to its sync");
    }

    /// Does what the phase is about.
    pub fn play(&mut self, phase: Phase) -> Result<(), Error> {
        match phase {
            Phase::Open => self.open(),
            Phase::Commit => self.write(1, Durability::Synced),
            Phase::Rotate => {
                self.write(15, Durability::Synced)?;
                self.write(2, Durability::Synced)
            }
            Phase::Flush => self.run_flush_until_synced(),
            Phase::Install => self.store().drain(),
            Phase::Lookup => (0..SEALED_KEYS + 3).try_for_each(|number| {
                let found = self.map().get(key(number))?;
                let expected = (number < self.acknowledged).then(|| value(number));
                assert_eq!(found.map(|value| value.to_vec()), expected, "key {number}");
                Ok(())
            }),
            Phase::Scan => {
                let mut number = 0;
                for item in self.map().iter()? {
                    let (found, content) = item?;
                    assert_eq!((found, content), (key(number), value(number)));
                    number += 1;
                }
                assert_eq!(number, self.acknowledged);
                Ok(())
            }
            Phase::Close => self.close(),
        }
    }

    /// The fault is gone: the store goes on, at once or after a reopen, with all it acknowledged.
    pub fn check_after(&mut self, cell: &str, phase: Phase, failed: bool) {
        if self.is_poisoned() {
            let error = self.write(1, Durability::Synced).expect_err(cell);
            assert_eq!(error.kind(), &ErrorKind::Poisoned, "{cell}");
            assert_eq!(
                self.map().get(key(0)).expect(cell).as_deref(),
                Some(&*value(0)),
                "{cell}"
            );
        } else if self.store.is_some() && phase != Phase::Close {
            // A failed job waits for its time.
            self.env.clock.advance(std::time::Duration::from_secs(10));
            self.store().drain().expect(cell);
            // A refused write has had no effect.
            let next = self.map().get(key(self.acknowledged)).expect(cell);
            assert_eq!(next, None, "{cell}");
            self.write(1, Durability::Synced).expect(cell);
        }
        if failed || phase == Phase::Close {
            // What was tried and failed may have come through as a whole.
            let _ = self.close();
        } else {
            self.close().expect(cell);
        }
        let acknowledged = self.acknowledged;
        self.open().expect(cell);
        self.store().drain().expect(cell);
        let items: Vec<_> = self
            .map()
            .iter()
            .expect(cell)
            .map(|item| item.expect(cell))
            .collect();
        assert!(
            items.len() as u32 >= acknowledged,
            "{cell}: {} keys",
            items.len()
        );
        assert!(
            items.len() as u32 <= self.tried,
            "{cell}: {} keys",
            items.len()
        );
        for (number, (found, content)) in (0..).zip(&items) {
            if number >= acknowledged {
                break;
            }
            assert_eq!((found, content), (&key(number), &value(number)), "{cell}");
        }
        self.acknowledged = items.len() as u32;
        self.write(1, Durability::Synced).expect(cell);
        let segments = self
            .disk()
            .live_files()
            .keys()
            .filter(|f| f.kind == FileKind::Segment)
            .count();
        assert_eq!(
            segments as u64,
            self.store().stats().segments,
            "{cell}: no debris"
        );
    }
}
