//! Writes segments of the layout.

use anyhow::Result;
use sealstone::env::{Env, File, io};

use super::{DATA_HEADER_BYTES, ENTRY_BYTES, INDEX_HEADER_BYTES, Key, Shape};
use super::{data_name, index_name};
use crate::keys::{Batch, Source};

/// Writes `segments` segments of `segment_records` records of the source into the directory.
pub fn build(
    env: &Env,
    source: &Source,
    segments: u64,
    segment_records: u64,
    (bits_per_key, hashes): (u32, u32),
) -> Result<()> {
    env.vfs.create_root()?;
    let shape = Shape::for_keys(segment_records, bits_per_key, hashes);
    let (mut data, mut index) = (Vec::new(), Vec::new());
    for height in 1..=segments {
        let first = (height - 1) * segment_records;
        let batches = source.batches(first, segment_records, segment_records);
        encode(&batches[0], &shape, &mut data, &mut index);
        for (name, bytes) in [(data_name(height), &data), (index_name(height), &index)] {
            let file = env.vfs.create_new(name)?;
            io::write_all_at(file.as_ref() as &dyn File, bytes, 0)?;
            io::uninterrupted(|| file.sync_data())?;
        }
    }
    Ok(env.vfs.sync_dir()?)
}

fn encode(batch: &Batch, shape: &Shape, data: &mut Vec<u8>, index: &mut Vec<u8>) {
    data.clear();
    data.extend_from_slice(b"SEG1\0\0\0\x01\0\0\0\0\0\0\0\0");
    data.extend_from_slice(&(batch.len() as u64).to_be_bytes());
    let mut entries: Vec<(Key, u64, u64)> = Vec::with_capacity(batch.len());
    let mut bits = vec![0; shape.bytes as usize];
    for (key, value) in batch.records() {
        let mut own = Key::default();
        own.copy_from_slice(key);
        shape.insert(&mut bits, &own);
        data.extend_from_slice(key);
        data.extend_from_slice(&(value.len() as u64).to_be_bytes());
        entries.push((
            own,
            data.len() as u64 - DATA_HEADER_BYTES,
            value.len() as u64,
        ));
        data.extend_from_slice(value);
    }
    entries.sort_unstable();
    index.clear();
    index.extend_from_slice(b"SIDX\0\0\0\x01");
    index.extend_from_slice(&(entries.len() as u64).to_be_bytes());
    index.extend_from_slice(&shape.bytes.to_be_bytes());
    index.extend_from_slice(&shape.hashes.to_be_bytes());
    index.extend_from_slice(&[0; 4]);
    debug_assert_eq!(index.len() as u64, INDEX_HEADER_BYTES);
    index.reserve(entries.len() * ENTRY_BYTES + bits.len());
    for (key, offset, length) in &entries {
        index.extend_from_slice(key);
        index.extend_from_slice(&offset.to_be_bytes());
        index.extend_from_slice(&length.to_be_bytes());
    }
    index.extend_from_slice(&bits);
}
