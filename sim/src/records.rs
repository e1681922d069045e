//! Where the records of a segment lie, for damage that is aimed at them.
//!
//! Found without the engine, by what their headers look like (`docs/format.md`): a run of plausible headers,
//! each where the one before ends. Bytes that look like it by chance only make the damage less well aimed.

use std::ops::Range;

/// More keyspaces of a kind than a run has.
const KEYSPACES_MAX: u32 = 4;
/// The id of a mutable keyspace has this bit beside its number.
const MUTABLE_BIT: u32 = 1 << 31;
/// Records begin at multiples of this and are at least [`RECORD_BYTES_MIN`] long.
const RECORD_ALIGN: usize = 8;
const RECORD_BYTES_MIN: usize = 32;

/// The places of the records, in order.
pub fn find(bytes: &[u8]) -> Vec<Range<u64>> {
    let mut records: Vec<Range<u64>> = Vec::new();
    let mut at = 0;
    while let Some(rest) = bytes.get(at..) {
        match record_bytes(rest) {
            Some(length) => {
                records.push(at as u64..(at + length) as u64);
                at += length;
            }
            // They lie one behind another.
            None if !records.is_empty() => break,
            None => at += RECORD_ALIGN,
        }
    }
    records
}

/// The length of the record that these bytes begin with, if they look like one; `docs/format.md` has the
/// fields.
fn record_bytes(bytes: &[u8]) -> Option<usize> {
    let header = bytes.first_chunk::<24>()?;
    let word = |at: usize| {
        u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
    };
    let key_bytes = usize::from(u16::from_le_bytes([header[20], header[21]]));
    let value_bytes = word(16) as usize;
    // Small numbers only: of keyspaces, sequences and lengths.
    let plausible = word(4) & !MUTABLE_BIT < KEYSPACES_MAX
        && (1..1 << 24).contains(&word(8))
        && word(12) == 0
        && matches!(header[22..24], [1 | 2, 0])
        && value_bytes < 1 << 16;
    let length = (24 + key_bytes + value_bytes).next_multiple_of(RECORD_ALIGN);
    (plausible && length <= bytes.len()).then_some(length.max(RECORD_BYTES_MIN))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::DiskOptions;
    use crate::env::SimEnv;
    use sealstone::env::FileKind;
    use sealstone::{Durability, KeyspaceOptions, Options, Store};

    #[test]
    fn the_records_of_a_segment_are_found() {
        let env = SimEnv::new(DiskOptions::default());
        let store = Store::open_with(env.env(), Options::tiny()).expect("opens");
        let map = store
            .keyspace("map", KeyspaceOptions::mutable())
            .expect("a keyspace");
        for number in 0..9_usize {
            let value = "v".repeat(number * 5);
            map.put(format!("key{number}"), value, Durability::Synced)
                .expect("puts");
        }
        map.delete("key3", Durability::Synced).expect("deletes");
        store.seal().expect("seals");
        store.drain().expect("drains");
        let files = env.disk.live_files();
        let segment = files
            .iter()
            .find(|(name, _)| name.kind == FileKind::Segment);
        let (_, bytes) = segment.expect("a segment");
        let records = find(bytes);
        let text = |record: &Range<u64>| {
            String::from_utf8_lossy(&bytes[record.start as usize..record.end as usize]).into_owned()
        };
        // The newest version of each of the nine keys; that of the fourth is a tombstone.
        let lengths: Vec<_> = records
            .iter()
            .map(|record| record.end - record.start)
            .collect();
        assert_eq!(lengths, [32, 40, 40, 32, 48, 56, 64, 64, 72], "{records:?}");
        assert!(records.iter().all(|record| text(record).contains("key")));
        assert!(records.windows(2).all(|pair| pair[0].end == pair[1].start));
        assert!(find(&[0; 4096]).is_empty());
        assert!(find(&[0xFF; 100]).is_empty());
    }
}
