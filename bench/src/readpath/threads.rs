//! Lookups of several threads beside as many threads that only read: `--threads`.

use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};

use super::clock::Samples;
use super::limits::PlainReads;
use super::measure::Keys;
use super::row::Row;
use super::sealed::Reader;
use crate::figures::ratio;

/// How long one rate is measured.
const TIME: Duration = Duration::from_millis(300);

/// Turns between one thread and several, so that both see the same machine.
const TURNS: usize = 3;

/// Fills in the rates of `threads` threads and how they scale.
pub fn measure(
    reader: &dyn Reader,
    plain: &mut PlainReads,
    threads: usize,
    keys: &Keys,
    row: &mut Row,
) -> Result<()> {
    let places = plain.places(keys.len());
    plain.measure(&places, &mut Samples::default())?;
    let plain = &*plain;
    let look_up = |from: usize| -> Result<u64> {
        let mut value = Vec::new();
        let end = keys.len().min(from + PIECE);
        for place in from..end {
            reader.get(keys.key(place), &mut value)?;
        }
        Ok((end - from) as u64)
    };
    let read = |from: usize| -> Result<u64> {
        let end = places.len().min(from + PIECE);
        plain.measure(&places[from..end], &mut Samples::default())?;
        Ok((end - from) as u64)
    };
    let mut rates = [[0.0; 2]; 2];
    for _ in 0..TURNS {
        for (place, threads) in [1, threads].into_iter().enumerate() {
            rates[0][place] += rate(threads, keys.len(), &look_up)? / TURNS as f64;
            rates[1][place] += rate(threads, keys.len(), &read)? / TURNS as f64;
        }
    }
    row.threads = threads as u64;
    row.lookups_per_second = rates[0][1];
    row.scaling = ratio(rates[0][1], rates[0][0]);
    row.plain_scaling = ratio(rates[1][1], rates[1][0]);
    Ok(())
}

/// Operations between two looks at the clock.
const PIECE: usize = 64;

/// Operations a second of all threads; each goes through the keys from a place of its own.
fn rate(threads: usize, keys: usize, run: &(dyn Fn(usize) -> Result<u64> + Sync)) -> Result<f64> {
    let start = Instant::now();
    let worker = |thread: usize| -> Result<u64> {
        let mut place = thread * keys / threads;
        let mut done = 0;
        while start.elapsed() < TIME {
            done += run(place)?;
            place += PIECE;
            if place >= keys {
                place = 0;
            }
        }
        Ok(done)
    };
    let done = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|thread| scope.spawn(move || worker(thread)))
            .collect();
        let mut done = 0;
        for worker in workers {
            done += worker.join().map_err(|_| anyhow!("a reader panicked"))??;
        }
        anyhow::Ok(done)
    })?;
    Ok(ratio(done as f64, start.elapsed().as_secs_f64()))
}
