//! The process that is killed: threads that write without end and say on standard output what was
//! acknowledged, one line a time.
//!
//! ```text
//! O RECOVERED                  the store is open
//! A THREAD COUNTER SEQUENCE    a batch was acknowledged
//! ```

use std::io::Write as _;
use std::path::Path;
use std::sync::Mutex;

use sealstone::{Durability, ErrorKind, Keyspace, Result, Store};

use super::work::{self, Piece};
use crate::choices::SmallRandom;

/// Threads that write.
pub const THREADS: u64 = 3;

/// What the child is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Orders {
    /// Where the store is.
    pub directory: String,
    /// Decides everything but the meeting of threads.
    pub seed: u64,
    /// Which process it is.
    pub life: u64,
    /// How far each thread had come.
    pub counters: Vec<u64>,
    /// Says a batch is acknowledged before it is written: the check has to notice.
    pub lies: bool,
}

impl Orders {
    /// As arguments.
    pub fn arguments(&self) -> Vec<String> {
        let counters: Vec<String> = self.counters.iter().map(u64::to_string).collect();
        vec![
            self.directory.clone(),
            self.seed.to_string(),
            self.life.to_string(),
            counters.join(","),
            u64::from(self.lies).to_string(),
        ]
    }

    /// From arguments.
    ///
    /// # Errors
    /// Says what is wrong with them.
    pub fn parse(arguments: &[String]) -> std::result::Result<Self, String> {
        let [directory, seed, life, counters, lies] = arguments else {
            return Err("the child needs five arguments".into());
        };
        let number = |text: &str| text.parse::<u64>().map_err(|error| error.to_string());
        Ok(Self {
            directory: directory.clone(),
            seed: number(seed)?,
            life: number(life)?,
            counters: counters
                .split(',')
                .map(number)
                .collect::<std::result::Result<_, _>>()?,
            lies: number(lies)? == 1,
        })
    }
}

/// Works until killed.
///
/// # Errors
/// The store's: nothing but a kill may end the child.
pub fn run(orders: &Orders) -> Result<()> {
    let store = Store::open(Path::new(&orders.directory), work::options(true))?;
    let keyspaces = work::keyspaces(&store)?;
    say(&format!("O {}\n", store.open_report().recovered_through));
    let failure = Mutex::new(None);
    std::thread::scope(|scope| {
        for (thread, counter) in orders.counters.iter().enumerate() {
            let (store, keyspaces, failure) = (&store, &keyspaces, &failure);
            scope.spawn(move || {
                let piece = Piece {
                    life: orders.life,
                    thread: thread as u64,
                    counter: *counter,
                };
                let Err(error) = write(store, keyspaces, orders, piece);
                *failure.lock().expect("no panic") = Some(error);
                // The others would go on for ever.
                std::process::exit(9);
            });
        }
    });
    failure.into_inner().expect("no panic").map_or(Ok(()), Err)
}

fn say(line: &str) {
    // One write: lines of several threads do not mix, and a kill cuts none.
    let mut out = std::io::stdout().lock();
    if out
        .write_all(line.as_bytes())
        .and_then(|()| out.flush())
        .is_err()
    {
        std::process::exit(8);
    }
}

fn write(
    store: &Store,
    keyspaces: &[Keyspace; 2],
    orders: &Orders,
    mut piece: Piece,
) -> Result<std::convert::Infallible> {
    let mut random = SmallRandom::new(orders.seed ^ piece.life << 8 ^ piece.thread);
    loop {
        piece.counter += 1;
        let changes = work::changes(orders.seed, piece);
        let Piece {
            thread, counter, ..
        } = piece;
        if orders.lies {
            say(&format!("A {thread} {counter} 0\n"));
        }
        let durability = match random.chance(1, 8) {
            true => Durability::Synced,
            false => Durability::Buffered,
        };
        let sequence = loop {
            match store.write(work::batch(keyspaces, &changes), durability) {
                Err(error) if matches!(error.kind(), ErrorKind::Busy { .. }) => {}
                result => break result?,
            }
        };
        if !orders.lies {
            say(&format!("A {thread} {counter} {sequence}\n"));
        }
        match random.below(200) {
            0 => store.seal()?,
            1 => store.sync()?,
            _ => {}
        }
    }
}
