//! Lookups in the layout.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Result, ensure};
use sealstone::env::{Env, File, Map, OpenMode, io};

use super::pool::Pool;
use super::{DATA_HEADER_BYTES, ENTRY_BYTES, INDEX_HEADER_BYTES, Key, Shape};
use super::{data_name, index_name, tier_start};
use crate::keys::{Batch, KEY_BYTES};

/// Bits a key of the filter over the newest segments.
const WINDOW_BITS_PER_KEY: u32 = 16;

/// Which Bloom filters are in memory beside the window's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Residency {
    /// None.
    Window,
    /// Of the history's newest segments, as many as that many bytes hold.
    Newest(u64),
    /// All.
    All,
}

/// Where the entries of the indexes are searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexMode {
    /// In the file: a read a probe.
    Read,
    /// In a mapping of the file.
    Mapped,
    /// In memory.
    Resident,
}

/// How a store is opened.
#[derive(Clone, Copy, Debug)]
pub struct GoOptions {
    /// How many segments it has.
    pub segments: u64,
    /// Filters in memory.
    pub residency: Residency,
    /// Where indexes are searched.
    pub index: IndexMode,
    /// The most files open at once.
    pub files_max: u64,
}

#[derive(Debug)]
struct Segment {
    height: u64,
    entries: u64,
    shape: Shape,
    bloom: Option<Box<[u8]>>,
    index: Index,
}

enum Index {
    Read,
    Mapped(Arc<dyn Map>),
    Resident(Box<[u8]>),
}

impl std::fmt::Debug for Index {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Index")
    }
}

/// An open store of the layout.
#[derive(Debug)]
pub struct GoStore {
    pool: Pool,
    tail: HashMap<Key, Box<[u8]>>,
    window: Box<[u8]>,
    window_shape: Shape,
    /// Newest first.
    segments: Vec<Segment>,
    /// How many of them the window covers.
    active: usize,
    searches: AtomicU64,
    false_searches: AtomicU64,
}

impl GoStore {
    /// Opens what [`build`](fn@super::build) wrote, with `tail` as the records that are not sealed yet.
    pub fn open(env: Env, options: &GoOptions, tail: &[Batch]) -> Result<Self> {
        let first_active = tier_start(options.segments);
        let mut budget_bytes = match options.residency {
            Residency::Window => 0,
            Residency::Newest(bytes) => bytes,
            Residency::All => u64::MAX,
        };
        let mut segments = Vec::with_capacity(options.segments as usize);
        let mut window_keys: Vec<Key> = Vec::new();
        for height in (1..=options.segments).rev() {
            let name = index_name(height);
            let file = io::uninterrupted(|| env.vfs.open(name, OpenMode::Read))?;
            let mut segment = Segment::open(height, file.as_ref(), options.index)?;
            let active = height >= first_active;
            if active {
                window_keys.extend(segment.keys(file.as_ref())?);
            } else if segment.shape.bytes > budget_bytes {
                budget_bytes = 0;
            }
            if active || budget_bytes > 0 {
                segment.load_bloom(file.as_ref())?;
                if !active {
                    budget_bytes -= segment.shape.bytes;
                }
            }
            segments.push(segment);
        }
        let window_shape = Shape::for_keys(window_keys.len() as u64, WINDOW_BITS_PER_KEY, 3);
        let mut window = vec![0; window_shape.bytes as usize].into_boxed_slice();
        for key in &window_keys {
            window_shape.insert(&mut window, key);
        }
        let record = |(key, value): (&[u8], &[u8])| (key_of(key), Box::from(value));
        Ok(Self {
            pool: Pool::new(env, options.files_max),
            tail: tail.iter().flat_map(Batch::records).map(record).collect(),
            window,
            window_shape,
            segments,
            active: (options.segments + 1 - first_active).min(options.segments) as usize,
            searches: AtomicU64::new(0),
            false_searches: AtomicU64::new(0),
        })
    }

    /// Puts the value of the key into `value`; false if there is none.
    pub fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        ensure!(key.len() == KEY_BYTES, "keys of this layout have 32 bytes");
        let key = key_of(key);
        if let Some(own) = self.tail.get(&key) {
            value.clear();
            value.extend_from_slice(own);
            return Ok(true);
        }
        let byte = |place: u64| anyhow::Ok(self.window[place as usize]);
        let from = match self.window_shape.may_contain(&key, byte)? {
            true => 0,
            false => self.active,
        };
        for segment in &self.segments[from..] {
            if !segment.may_contain(&self.pool, &key)? {
                continue;
            }
            self.searches.fetch_add(1, Ordering::Relaxed);
            if let Some((offset, length)) = segment.search(&self.pool, &key)? {
                value.resize(length as usize, 0);
                let file = self.pool.file(data_name(segment.height))?;
                io::read_exact_at(file.as_ref(), value, DATA_HEADER_BYTES + offset)?;
                return Ok(true);
            }
            self.false_searches.fetch_add(1, Ordering::Relaxed);
        }
        Ok(false)
    }

    /// Index searches so far, and those that found nothing.
    pub fn searches(&self) -> (u64, u64) {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (load(&self.searches), load(&self.false_searches))
    }

    /// Files opened by lookups.
    pub fn opens(&self) -> u64 {
        self.pool.opens()
    }

    /// Bytes of filters in memory.
    pub fn filter_bytes(&self) -> u64 {
        let of = |segment: &Segment| segment.bloom.as_ref().map_or(0, |bloom| bloom.len() as u64);
        self.window.len() as u64 + self.segments.iter().map(of).sum::<u64>()
    }
}

impl Segment {
    fn open(height: u64, file: &dyn File, mode: IndexMode) -> Result<Self> {
        let mut header = [0; INDEX_HEADER_BYTES as usize];
        io::read_exact_at(file, &mut header, 0)?;
        ensure!(header.starts_with(b"SIDX\0\0\0\x01"), "not an index");
        let words = header.as_chunks::<8>().0;
        let entries = u64::from_be_bytes(words[1]);
        let index_bytes = entries * ENTRY_BYTES as u64;
        Ok(Self {
            height,
            entries,
            shape: Shape {
                bytes: u64::from_be_bytes(words[2]),
                hashes: (u64::from_be_bytes(words[3]) >> 32) as u32,
            },
            bloom: None,
            index: match mode {
                IndexMode::Read => Index::Read,
                IndexMode::Mapped => Index::Mapped(file.map(INDEX_HEADER_BYTES + index_bytes)?),
                IndexMode::Resident => {
                    let mut bytes = vec![0; index_bytes as usize].into_boxed_slice();
                    io::read_exact_at(file, &mut bytes, INDEX_HEADER_BYTES)?;
                    Index::Resident(bytes)
                }
            },
        })
    }

    fn keys(&self, file: &dyn File) -> Result<Vec<Key>> {
        let mut bytes = vec![0; self.entries as usize * ENTRY_BYTES];
        io::read_exact_at(file, &mut bytes, INDEX_HEADER_BYTES)?;
        let (entries, _) = bytes.as_chunks::<ENTRY_BYTES>();
        Ok(entries
            .iter()
            .map(|entry| key_of(&entry[..KEY_BYTES]))
            .collect())
    }

    fn bloom_offset(&self) -> u64 {
        INDEX_HEADER_BYTES + self.entries * ENTRY_BYTES as u64
    }

    fn load_bloom(&mut self, file: &dyn File) -> Result<()> {
        let mut bits = vec![0; self.shape.bytes as usize].into_boxed_slice();
        io::read_exact_at(file, &mut bits, self.bloom_offset())?;
        self.bloom = Some(bits);
        Ok(())
    }

    fn may_contain(&self, pool: &Pool, key: &Key) -> Result<bool> {
        match &self.bloom {
            Some(bits) => self
                .shape
                .may_contain(key, |place| Ok(bits[place as usize])),
            None => {
                let file = pool.file(index_name(self.height))?;
                let start = self.bloom_offset();
                self.shape.may_contain(key, |place| {
                    let mut byte = [0];
                    io::read_exact_at(file.as_ref(), &mut byte, start + place)?;
                    Ok(byte[0])
                })
            }
        }
    }

    /// Offset and length of the key's value.
    fn search(&self, pool: &Pool, key: &Key) -> Result<Option<(u64, u64)>> {
        let in_memory = |bytes: &[u8]| {
            self.bisect(key, |rank| {
                let entry = bytes.as_chunks::<ENTRY_BYTES>().0.get(rank as usize);
                Ok(entry.copied().unwrap_or([0; ENTRY_BYTES]))
            })
        };
        match &self.index {
            Index::Resident(bytes) => in_memory(bytes),
            Index::Mapped(map) => in_memory(&map.bytes()[INDEX_HEADER_BYTES as usize..]),
            Index::Read => {
                let file = pool.file(index_name(self.height))?;
                self.bisect(key, |rank| {
                    let mut entry = [0; ENTRY_BYTES];
                    let offset = INDEX_HEADER_BYTES + rank * ENTRY_BYTES as u64;
                    io::read_exact_at(file.as_ref(), &mut entry, offset)?;
                    Ok(entry)
                })
            }
        }
    }

    fn bisect(
        &self,
        key: &Key,
        mut entry: impl FnMut(u64) -> Result<[u8; ENTRY_BYTES]>,
    ) -> Result<Option<(u64, u64)>> {
        let (mut low, mut high) = (0, self.entries);
        while low < high {
            let middle = low + (high - low) / 2;
            let entry = entry(middle)?;
            match entry[..KEY_BYTES].cmp(key) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
                std::cmp::Ordering::Equal => {
                    let words = entry.as_chunks::<8>().0;
                    let word = |place: usize| u64::from_be_bytes(words[place]);
                    return Ok(Some((word(KEY_BYTES / 8), word(KEY_BYTES / 8 + 1))));
                }
            }
        }
        Ok(None)
    }
}

fn key_of(bytes: &[u8]) -> Key {
    let mut key = Key::default();
    key.copy_from_slice(bytes);
    key
}
