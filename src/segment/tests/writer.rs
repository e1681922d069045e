//! Writing: equal bytes, bounded steps, failures, misuse.

use super::*;
use crate::error::ErrorKind;

#[test]
fn bytes_do_not_depend_on_buffers_or_steps() {
    let records = numbered(2500, 40);
    let bytes = |output_bytes, quantum_bytes, keep_filter_bits| {
        let build = Build {
            output_bytes,
            quantum_bytes,
            keep_filter_bits,
            key_fence_bytes: 512,
            ..Build::default()
        };
        let fixture = build.open(&records);
        (fixture.disk.bytes(fixture.name()), fixture.segment.meta())
    };
    let first = bytes(256 << 10, 1 << 20, None);
    assert_eq!(bytes(1, 1, Some(12)), first);
    assert_eq!(bytes(700, 100, Some(16)), first);
    // Frozen: the format. A change here needs a new version and keeps reading the old one.
    assert_eq!(
        (first.0.len(), crc32c::crc32c(&first.0)),
        (246_832, 0x8E12_5411)
    );
}

#[test]
fn the_summary_is_right() {
    let records = numbered(500, 10);
    let disk = Disk::new();
    let summary = Build::default().write(&disk, 7, &records);
    let meta = &summary.meta;
    let bytes = disk.bytes(FileName::segment(7));
    assert_eq!(meta.file_len, bytes.len() as u64);
    assert_eq!(meta.tail_offset + meta.tail_len, meta.file_len);
    assert_eq!(meta.counts.records, 500);
    assert_eq!(meta.counts.tombstones, 45);
    assert_eq!(
        (meta.counts.min_sequence, meta.counts.max_sequence),
        (1, 500)
    );
    let key_bytes: usize = records.iter().map(|r| r.key.len()).sum();
    let value_bytes: usize = records
        .iter()
        .filter_map(|r| r.value.as_ref())
        .map(Vec::len)
        .sum();
    assert_eq!(meta.counts.key_bytes, key_bytes as u64);
    assert_eq!(meta.counts.value_bytes, value_bytes as u64);
    assert_eq!(
        disk.open_now(),
        0,
        "a finished writer holds no file once dropped"
    );
}

#[test]
fn scratch_is_not_outgrown() {
    let records = numbered(5000, 100);
    let disk = Disk::new();
    let file = disk.create_new(FileName::segment(1)).unwrap();
    let data_bytes = records.len() as u64 * 144;
    let scratch = SegmentScratch::new(5000, data_bytes, 4096, 8192);
    let before = scratch.addresses();
    let parameters = SegmentParameters::new(Build::default().hasher());
    let name = FileName::segment(1);
    let mut writer = SegmentWriter::new(file, name, IDENTITY, parameters, scratch).unwrap();
    for r in &records {
        let value = r.value.as_deref().unwrap_or_default();
        writer
            .add(r.keyspace, &r.key, r.sequence, r.kind(), &[value])
            .unwrap();
    }
    let mut steps = 0;
    while writer.finish_step(4096).unwrap().is_none() {
        steps += 1;
    }
    // 60 KB of entries sorted in three passes, 15 pages, two filters of 7,500 and 10,000 bytes.
    assert!((60..200).contains(&steps), "{steps} steps");
    let scratch = writer.into_scratch();
    let after = scratch.addresses();
    assert_eq!(before, after, "the same buffers come back");
    assert!(SegmentScratch::bytes_needed(5000, data_bytes, 4096, 8192) > 5000 * 12 + 8192);
}

#[test]
fn a_full_disk_is_a_typed_error_and_ends_the_writer() {
    let records = numbered(500, 100);
    let whole = Build::default().open(&records).segment.meta().file_len;
    for full_at in (1..whole).step_by(997) {
        let disk = Disk::new();
        disk.full_at(full_at);
        let name = FileName::segment(3);
        let file = disk.create_new(name).unwrap();
        let scratch = SegmentScratch::new(500, 1 << 16, 4096, 1024);
        let parameters = SegmentParameters::new(Build::default().hasher());
        let mut writer = SegmentWriter::new(file, name, IDENTITY, parameters, scratch).unwrap();
        let added = records.iter().try_for_each(|r| {
            let value = r.value.as_deref().unwrap_or_default();
            writer.add(r.keyspace, &r.key, r.sequence, r.kind(), &[value])
        });
        let result = added.and_then(|()| {
            loop {
                if writer.finish_step(4096)?.is_some() {
                    return Ok(());
                }
            }
        });
        let error = result.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::NoSpace);
        assert_eq!((error.operation(), error.file()), ("flush", Some(name)));
        assert!(error.offset().is_some());
        disk.full_at(0);
        let again = writer.finish_step(4096).unwrap_err();
        assert_eq!(*again.kind(), ErrorKind::NoSpace);
    }
}

fn misuse(records: &[Given]) {
    Build::default().write(&Disk::new(), 1, records);
}

#[test]
#[should_panic(expected = "newest first")]
fn keys_out_of_order_are_refused() {
    misuse(&[Given::new("b", 1, ""), Given::new("a", 2, "")]);
}

#[test]
#[should_panic(expected = "newest first")]
fn versions_out_of_order_are_refused() {
    misuse(&[Given::new("a", 1, ""), Given::new("a", 2, "")]);
}

#[test]
#[should_panic(expected = "one kind")]
fn another_kind_is_refused() {
    let mutable = Given {
        keyspace: KeyspaceId(0x8000_0000),
        ..Given::new("b", 1, "")
    };
    misuse(&[Given::new("a", 1, ""), mutable]);
}
