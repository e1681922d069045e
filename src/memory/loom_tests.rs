//! Models of the region and its chunks: `&[u8]` of a growing buffer, reuse, and waiting for memory.
//!
//! Each model was seen to fail under a change of the code that it is about:
//! * `loom_readers_of_a_chunk_see_written_bytes_only`: the store of `len` Relaxed, or before the copy;
//!   the load of `len` Relaxed.
//! * `loom_a_recycled_chunk_is_nobodys`: a permit that goes before its buffer.
//! * `loom_the_last_of_two_gives_a_chunk_back`: shares given up outside the lock.
//! * `loom_no_freed_byte_is_missed`: the signal raised before the bytes are given; watches read outside
//!   the lock, before it.

use super::{Owner, Region};
use crate::sync::loom_tests::explore;
use crate::sync::{Arc, AtomicU64, Ordering, Watched};

const CHUNK_BYTES: u32 = 64;

#[test]
fn loom_readers_of_a_chunk_see_written_bytes_only() {
    explore("chunk", 3, 3, |seen| {
        let region = Region::new(u64::from(CHUNK_BYTES), CHUNK_BYTES);
        let mut permit = region
            .try_acquire(u64::from(CHUNK_BYTES), Owner::Open)
            .expect("free");
        let (writer, held) = permit.chunk().expect("covered");
        // A buffer goes before its permit.
        let (_held, mut writer) = (held, writer);
        let handle = writer.handle().clone();
        let reader = loom::thread::spawn(move || {
            let chunk = handle.get().expect("has a handle");
            let first = chunk.bytes_from(0).expect("from the front");
            let again = chunk.bytes_from(0).expect("from the front");
            assert!(first.len() <= again.len());
            assert_eq!(first, &again[..first.len()]);
            for (place, byte) in again.iter().enumerate() {
                assert_eq!(usize::from(*byte), 1 + place / 8);
            }
            assert!(chunk.bytes(0..again.len() as u32 + 8).is_none() || again.len() < 16);
            again.len() / 8
        });
        writer.append(&[1; 8]).expect("fits");
        writer.append(&[2; 8]).expect("fits");
        seen.saw(reader.join().expect("ends"));
    });
}

#[test]
fn loom_a_recycled_chunk_is_nobodys() {
    explore("recycled chunk", 3, 2, |seen| {
        let bytes = u64::from(CHUNK_BYTES);
        let region = Region::new(bytes, CHUNK_BYTES);
        let mut permit = region.try_acquire(bytes, Owner::Open).expect("free");
        let (mut writer, held) = permit.chunk().expect("covered");
        writer.append(&[7; 16]).expect("fits");
        let handle = writer.handle().clone();
        drop(writer);
        let reader = loom::thread::spawn(move || {
            let chunk = handle.get().expect("has a handle");
            assert_eq!(chunk.bytes_from(8), Some(&[7; 8][..]));
            // A buffer before its permit, as everywhere.
            drop(handle);
            drop(held);
        });
        let second = region.try_acquire(bytes, Owner::Open);
        seen.saw(usize::from(second.is_ok()));
        if let Ok(mut permit) = second {
            let (mut writer, held) = permit.chunk().expect("covered");
            writer.append(&[9; 16]).expect("fits");
            let chunk = writer.handle().get().expect("has a handle");
            assert_eq!(chunk.bytes(0..16), Some(&[9; 16][..]));
            drop(writer);
            drop(held);
        }
        reader.join().expect("ends");
        assert!(region.ledger().is_exact());
        assert_eq!(region.ledger().free_bytes(), bytes);
        assert_eq!(region.pooled_bytes(), bytes);
    });
}

/// What a reader has read, by the eyes of the model.
struct Read(Watched);

// SAFETY: a `Watched` has no bytes; its cells are there to be seen from any thread.
#[allow(unsafe_code, reason = "threads of a model share it")]
unsafe impl Sync for Read {}

#[test]
fn loom_the_last_of_two_gives_a_chunk_back() {
    explore("last handle", 3, 2, |seen| {
        let bytes = u64::from(CHUNK_BYTES);
        let region = Region::new(bytes, CHUNK_BYTES);
        let mut permit = region.try_acquire(bytes, Owner::Open).expect("free");
        let (mut writer, held) = permit.chunk().expect("covered");
        writer.append(&[7; 16]).expect("fits");
        let handle = writer.handle().clone();
        let read = Arc::new(Read(Watched::new(1)));
        let read_there = read.clone();
        let reader = loom::thread::spawn(move || {
            let chunk = handle.get().expect("has a handle");
            assert_eq!(chunk.bytes(8..16), Some(&[7; 8][..]));
            read_there.0.read(0..1);
            drop(handle);
        });
        writer.append(&[8; 16]).expect("fits");
        drop(writer);
        // With the reader's handle gone it waits for its next writer, with its bytes still held.
        let pooled = region.pooled_bytes() == bytes;
        if pooled {
            // All reads came before.
            read.0.write(0..1);
        }
        seen.saw(usize::from(pooled));
        permit.absorb(held);
        reader.join().expect("ends");
        assert_eq!(region.pooled_bytes(), bytes);
        let (mut writer, held) = permit.chunk().expect("covered");
        writer.append(&[9; 16]).expect("fits");
        assert_eq!(region.pooled_bytes(), 0);
        // A buffer before its permit, as everywhere.
        drop(writer);
        drop(held);
    });
}

#[test]
fn loom_no_freed_byte_is_missed() {
    explore("freed bytes", 3, 2, |seen| {
        let region = Region::new(256, CHUNK_BYTES);
        let held = region.try_acquire(200, Owner::Sealed).expect("free");
        let inside = Arc::new(AtomicU64::new(0));
        let (region_there, inside_there) = (region.clone(), inside.clone());
        let waiter = loom::thread::spawn(move || {
            let watch = region_there.watch_freed();
            let mut waits = 0;
            loop {
                let count = watch.signal().count();
                if let Ok(permit) = region_there.try_acquire(150, Owner::Open) {
                    assert_eq!(inside_there.load(Ordering::Relaxed), 0);
                    drop(permit);
                    return waits;
                }
                waits += 1;
                watch.signal().block(count, None);
            }
        });
        inside.store(1, Ordering::Relaxed);
        inside.store(0, Ordering::Relaxed);
        drop(held);
        let waits = waiter.join().expect("ends");
        seen.saw(usize::from(waits > 0));
        assert_eq!(region.ledger().free_bytes(), 256);
    });
}
