//! A segment that passes 2 GiB and 4 GiB: offsets that do not fit into 32 bits.
//!
//! The file is sparse: pages of zeros are not kept, so gigabytes of values cost a few pages.

use std::any::Any;
use std::collections::BTreeMap;

use super::*;
use crate::env::{File, IoError, IoErrorKind, IoResult, Listing, LockGuard, LockMode, OpenMode};
use crate::segment::record::padded_bytes;
use crate::sync::Mutex;

const PAGE_BYTES: usize = 4096;
/// Where the first record begins.
const FIRST: u64 = 64;
const VALUE_BYTES: u64 = 256 << 20;

#[derive(Debug, Default)]
struct Sparse {
    pages: Mutex<BTreeMap<u64, Box<[u8]>>>,
    length: Mutex<u64>,
}

impl File for Sparse {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> IoResult<usize> {
        let left = self.length.lock().saturating_sub(offset);
        let count = left.min(buffer.len() as u64) as usize;
        buffer[..count].fill(0);
        let pages = self.pages.lock();
        let end = offset + count as u64;
        let size = PAGE_BYTES as u64;
        for (page, bytes) in pages.range(offset / size..end.div_ceil(size)) {
            let (start, stop) = (page * size, (page + 1) * size);
            let (from, to) = (start.max(offset), stop.min(end));
            buffer[(from - offset) as usize..(to - offset) as usize]
                .copy_from_slice(&bytes[(from - start) as usize..(to - start) as usize]);
        }
        Ok(count)
    }

    fn write_at(&self, buffer: &[u8], offset: u64) -> IoResult<usize> {
        // Up to the end of a page.
        let (page, at) = (offset / PAGE_BYTES as u64, offset as usize % PAGE_BYTES);
        let count = buffer.len().min(PAGE_BYTES - at);
        let mut pages = self.pages.lock();
        if buffer[..count].iter().any(|byte| *byte != 0) {
            let bytes = pages
                .entry(page)
                .or_insert_with(|| vec![0; PAGE_BYTES].into());
            bytes[at..at + count].copy_from_slice(&buffer[..count]);
        }
        let mut length = self.length.lock();
        *length = (*length).max(offset + count as u64);
        Ok(count)
    }

    fn sync_data(&self) -> IoResult<()> {
        Ok(())
    }

    fn set_len(&self, length: u64) -> IoResult<()> {
        *self.length.lock() = length;
        Ok(())
    }

    fn allocate(&self, _length: u64) -> IoResult<()> {
        Ok(())
    }

    fn len(&self) -> IoResult<u64> {
        Ok(*self.length.lock())
    }
}

/// A directory with that one file.
#[derive(Clone, Debug)]
struct OneFile(Arc<Sparse>);

const NOT_HERE: IoError = IoError::new(IoErrorKind::Unsupported);

impl Vfs for OneFile {
    fn create_root(&self) -> IoResult<()> {
        Ok(())
    }

    fn open(&self, _name: FileName, _mode: OpenMode) -> IoResult<Arc<dyn File>> {
        Ok(self.0.clone())
    }

    fn create_new(&self, _name: FileName) -> IoResult<Arc<dyn File>> {
        Ok(self.0.clone())
    }

    fn rename(&self, _from: FileName, _to: FileName) -> IoResult<()> {
        Err(NOT_HERE)
    }

    fn unlink(&self, _name: FileName) -> IoResult<()> {
        Err(NOT_HERE)
    }

    fn list(&self) -> IoResult<Listing> {
        Err(NOT_HERE)
    }

    fn sync_dir(&self) -> IoResult<()> {
        Ok(())
    }

    fn try_lock(&self, _mode: LockMode) -> IoResult<Box<dyn LockGuard>> {
        Err(NOT_HERE)
    }

    fn free_space(&self) -> IoResult<u64> {
        Ok(u64::MAX)
    }

    fn descriptor_limit(&self) -> u64 {
        16
    }

    fn link_or_copy_to(&self, _name: FileName, _target: &dyn Vfs) -> IoResult<()> {
        Err(NOT_HERE)
    }

    fn describe(&self) -> String {
        "one sparse file".to_owned()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// The lengths of values so that records begin at these places, with short ones on both sides.
fn lengths(borders: &[u64], key_bytes: usize) -> Vec<u64> {
    let head = padded_bytes(key_bytes, 0).max(24 + key_bytes as u64);
    let (mut at, mut lengths) = (FIRST, Vec::new());
    let mut push = |at: &mut u64, length: u64| {
        lengths.push(length);
        *at += padded_bytes(key_bytes, length);
    };
    for border in borders {
        while border - at > VALUE_BYTES + 2 * head {
            push(&mut at, VALUE_BYTES);
        }
        // 24 bytes of header and the key, then exactly up to the border.
        let gap = border - at;
        push(&mut at, gap - 24 - key_bytes as u64);
        assert_eq!(at, *border);
        // The one at the border, and one behind it.
        push(&mut at, 100);
        push(&mut at, 3);
    }
    lengths
}

#[test]
fn b033_a_segment_that_passes_2_and_4_gib() {
    let key = |index: usize| format!("key{index:05}").into_bytes();
    let borders = [
        (1 << 31) - 8,
        (1 << 31) + 4096,
        (1 << 32) - 8,
        (1 << 32) + 4096,
    ];
    let lengths = lengths(&borders, key(0).len());
    let build = Build {
        key_fence_bytes: 1 << 20,
        ..Build::default()
    };
    let file = Arc::new(Sparse::default());
    let name = FileName::segment(7);
    let parameters = SegmentParameters {
        key_fence_bytes: build.key_fence_bytes,
        ..SegmentParameters::new(build.hasher())
    };
    let scratch = SegmentScratch::new(64, 5 << 30, build.key_fence_bytes, build.output_bytes);
    let identity = SegmentIdentity {
        kind: KEYSPACE.kind().unwrap_or(KeyspaceKind::WriteOnce),
        ..IDENTITY
    };
    let mut writer = SegmentWriter::new(file.clone(), name, identity, parameters, scratch).unwrap();
    let zeros = vec![0; VALUE_BYTES as usize];
    let mut starts = Vec::new();
    for (index, length) in lengths.iter().enumerate() {
        starts.push(writer.file_bytes());
        // A value ends with its number.
        let tail = [index as u8 + 1; 3];
        let body = (*length as usize).checked_sub(3).expect("long enough");
        let slices = [&zeros[..body], &tail];
        writer
            .add(
                KEYSPACE,
                &key(index),
                index as u64 + 1,
                RecordKind::Value,
                &slices,
            )
            .unwrap();
    }
    assert!(
        borders.iter().all(|border| starts.contains(border)),
        "{starts:?}"
    );
    assert!(starts.is_sorted() && starts.last() > Some(&(1 << 32)));
    let summary = loop {
        if let Some(summary) = writer.finish_step(1 << 20).unwrap() {
            break summary;
        }
    };
    assert!(summary.meta.file_len > 1 << 32);
    let files = Arc::new(FileTable::new(Arc::new(OneFile(file)), 4));
    let segment = Arc::new(Segment::new(summary.meta.pack(), Arc::new(build.hasher())));
    let (mut buffers, mut counts) = (LookupBuffers::new(), ReadCounts::default());
    for (index, length) in lengths.iter().enumerate() {
        let wanted = Wanted {
            hash: segment.hasher().hash(KEYSPACE, &key(index)),
            keyspace: KEYSPACE,
            key: &key(index),
            bound: u64::MAX,
            known_from: u64::MAX,
        };
        let found = segment
            .lookup(&files, &[], &wanted, &mut buffers, &mut counts)
            .unwrap();
        let Lookup::Value { value, .. } = found else {
            panic!("key {index} at {} is not there", starts[index]);
        };
        let value = buffers.value(&value);
        assert_eq!(value.len() as u64, *length);
        assert_eq!(value[value.len() - 3..], [index as u8 + 1; 3]);
    }
    let report = segment.verify(&files, &mut |_| {}).unwrap();
    assert!(report.damage.is_empty(), "{report:?}");
}
