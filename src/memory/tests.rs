//! The books and the buffers, against a plain model.

use proptest::prelude::*;

use super::*;
use crate::sync::{AtomicU32, AtomicU64, Ordering};

const CHUNK_BYTES: u32 = 256;

fn region(chunks: u64) -> Region {
    Region::new(chunks * u64::from(CHUNK_BYTES), CHUNK_BYTES)
}

#[test]
fn refusal_takes_nothing() {
    let region = region(4);
    let held = region.try_acquire(1000, Owner::Open).expect("free");
    let shortage = region.try_acquire(25, Owner::Scratch).unwrap_err();
    assert_eq!((shortage.needed, shortage.free), (25, 24));
    assert_eq!(region.ledger().owned_bytes(Owner::Scratch), 0);
    drop(held);
    assert_eq!(region.ledger().free_bytes(), 1024);
    assert_eq!(region.ledger().free_bytes_min(), 24);
}

#[test]
fn permits_of_two_owners_keep_the_sum() {
    let region = region(4);
    let mut open = region.try_acquire(500, Owner::Open).expect("free");
    let mut batch = region.try_acquire(300, Owner::Reserved).expect("free");
    open.absorb(batch.split(120).expect("has them"));
    let ledger = region.ledger();
    assert_eq!(ledger.owned_bytes(Owner::Open), 620);
    assert_eq!(ledger.owned_bytes(Owner::Reserved), 180);
    assert!(batch.split(181).is_none());
    open.move_to(Owner::Flushing);
    assert_eq!(region.ledger().owned_bytes(Owner::Flushing), 620);
    assert_eq!(region.ledger().owned_bytes(Owner::Open), 0);
    assert!(region.ledger().is_exact());
}

#[test]
fn chunk_shows_only_what_was_written() {
    let region = region(1);
    let mut permit = region.try_acquire(256, Owner::Open).expect("free");
    let (mut writer, part) = permit.chunk().expect("has a chunk's bytes");
    assert!(permit.chunk().is_none());
    assert_eq!(writer.append(b"abc"), Some(0));
    let handle = writer.handle().clone();
    let chunk = handle.get().expect("there as long as its handle");
    assert_eq!(chunk.bytes(0..3), Some(&b"abc"[..]));
    assert_eq!(chunk.bytes(0..4), None);
    #[allow(
        clippy::reversed_empty_ranges,
        reason = "the refusal is what is tested"
    )]
    let reversed = 2..1;
    assert_eq!(chunk.bytes(reversed), None);
    assert_eq!(writer.append(&[7; 254]), None);
    assert_eq!(writer.append(&[7; 253]), Some(3));
    assert_eq!(writer.remaining(), 0);
    assert_eq!(chunk.bytes(0..3), Some(&b"abc"[..]));
    drop(writer);
    assert_eq!(region.pooled_bytes(), 0, "a reader has it");
    assert_eq!(chunk.bytes(0..3), Some(&b"abc"[..]));
    drop((handle, part));
    assert_eq!(region.pooled_bytes(), 256);
}

#[test]
fn a_chunk_is_used_again_with_its_count() {
    let region = region(1);
    let mut seen = Vec::new();
    for round in 0..3 {
        let mut permit = region.try_acquire(256, Owner::Open).expect("free");
        let (mut writer, part) = permit.chunk().expect("has a chunk's bytes");
        let reader = writer.handle().clone();
        let chunk = reader.get().expect("there as long as its handle");
        assert!(chunk.is_empty(), "round {round}");
        writer.append(&[round; 100]).expect("fits");
        assert_eq!(chunk.bytes_from(0), Some(&[round; 100][..]));
        seen.push(std::ptr::from_ref(chunk).addr());
        // Either can be the last.
        match round {
            0 => drop((reader, writer)),
            _ => drop((writer, reader)),
        }
        drop(part);
    }
    assert!(seen.windows(2).all(|pair| pair[0] == pair[1]));
    let counts = region.counts();
    assert!(counts.add_up());
}

#[test]
fn reused_buffers_are_empty_and_bounded() {
    let region = region(4);
    {
        let mut permit = region.try_acquire(1024, Owner::Open).expect("free");
        let mut held = Vec::new();
        while let Some((mut writer, part)) = permit.chunk() {
            writer.append(&[1; 200]).expect("fits");
            held.push((writer, part));
        }
        assert_eq!(held.len(), 4);
    }
    assert_eq!(region.pooled_bytes(), 1024);
    // Words of another size than what is kept: chunks must go, or twice the total would be held.
    let mut permit = region.try_acquire(1024, Owner::Open).expect("free");
    let (words, part) = permit.words::<AtomicU64>(64).expect("512 bytes");
    assert_eq!(region.pooled_bytes(), 512);
    words[3].store(9, Ordering::Relaxed);
    drop(words);
    permit.absorb(part);
    let (words, _part) = permit.words::<AtomicU64>(64).expect("512 bytes");
    assert_eq!(words[3].load(Ordering::Relaxed), 0);
    let (writer, _part) = permit.chunk().expect("256 bytes");
    let chunk = writer.handle().get().expect("there");
    assert_eq!((writer.len(), chunk.len()), (0, 0));
    drop((words, writer));
    region.trim_pool(300);
    assert!(region.pooled_bytes() <= 300);
}

#[test]
fn watch_sees_freed_bytes() {
    let region = region(1);
    let permit = region.try_acquire(10, Owner::Open).expect("free");
    let watch = region.watch_freed();
    let seen = watch.signal().count();
    drop(permit);
    assert_ne!(watch.signal().count(), seen);
    let seen = watch.signal().count();
    let second = region.watch_freed();
    drop(watch);
    drop(region.try_acquire(10, Owner::Open).expect("free"));
    assert_ne!(second.signal().count(), seen);
}

#[derive(Clone, Debug)]
enum Step {
    Acquire(u64, usize),
    Split(usize, u64),
    Absorb(usize, usize),
    Move(usize, usize),
    Drop(usize),
    Chunk(usize),
    Words32(usize, usize),
    GiveBack(usize),
    Trim(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let owner = 0..Owner::ALL.len();
    prop_oneof![
        (0..900u64, owner.clone()).prop_map(|(bytes, owner)| Step::Acquire(bytes, owner)),
        (any::<usize>(), 0..600u64).prop_map(|(at, bytes)| Step::Split(at, bytes)),
        (any::<usize>(), any::<usize>()).prop_map(|(at, from)| Step::Absorb(at, from)),
        (any::<usize>(), owner).prop_map(|(at, owner)| Step::Move(at, owner)),
        any::<usize>().prop_map(Step::Drop),
        any::<usize>().prop_map(Step::Chunk),
        (any::<usize>(), 1..80usize).prop_map(|(at, len)| Step::Words32(at, len)),
        any::<usize>().prop_map(Step::GiveBack),
        (0..2000u64).prop_map(Step::Trim),
    ]
}

enum Buffer {
    Chunk(ChunkWriter),
    Words(Words<AtomicU32>),
}

/// Permits and the buffers that live on them, with the sums worked out from scratch.
struct Model {
    region: Region,
    permits: Vec<Permit>,
    buffers: Vec<(Buffer, Permit)>,
}

impl Model {
    fn apply(&mut self, step: Step) {
        if let Step::Acquire(bytes, owner) = step {
            let free = self.region.ledger().free_bytes();
            match self.region.try_acquire(bytes, Owner::ALL[owner]) {
                Ok(permit) => self.permits.push(permit),
                Err(shortage) => assert!(shortage.free == free && bytes > free),
            }
            return;
        }
        match step {
            Step::Trim(keep) => self.region.trim_pool(keep),
            Step::GiveBack(at) if !self.buffers.is_empty() => {
                let (buffer, permit) = self.buffers.remove(at % self.buffers.len());
                drop(buffer);
                drop(permit);
            }
            _ if self.permits.is_empty() => {}
            Step::Split(at, bytes) => {
                let at = at % self.permits.len();
                let part = self.permits[at].split(bytes);
                self.permits.extend(part);
            }
            Step::Absorb(at, from) => {
                let other = self.permits.remove(from % self.permits.len());
                match self.permits.len() {
                    0 => self.permits.push(other),
                    len => self.permits[at % len].absorb(other),
                }
            }
            Step::Move(at, owner) => {
                let at = at % self.permits.len();
                self.permits[at].move_to(Owner::ALL[owner]);
            }
            Step::Drop(at) => drop(self.permits.remove(at % self.permits.len())),
            Step::Chunk(at) => {
                let at = at % self.permits.len();
                let made = self.permits[at].chunk();
                self.buffers
                    .extend(made.map(|(writer, part)| (Buffer::Chunk(writer), part)));
            }
            Step::Words32(at, len) => {
                let at = at % self.permits.len();
                let made = self.permits[at].words(len);
                self.buffers
                    .extend(made.map(|(words, part)| (Buffer::Words(words), part)));
            }
            Step::Acquire(..) | Step::GiveBack(_) => {}
        }
    }

    fn check(&self) {
        let ledger = self.region.ledger();
        assert!(ledger.is_exact());
        let parts = self.buffers.iter().map(|(_, permit)| permit);
        let mut owned = [0; Owner::ALL.len()];
        for permit in self.permits.iter().chain(parts) {
            owned[permit.owner() as usize] += permit.bytes();
        }
        for owner in Owner::ALL {
            assert_eq!(ledger.owned_bytes(owner), owned[owner as usize]);
        }
        let live: u64 = self
            .buffers
            .iter()
            .map(|(buffer, permit)| {
                let bytes = match buffer {
                    Buffer::Chunk(writer) => u64::from(writer.remaining() + writer.len()),
                    Buffer::Words(words) => 4 * words.len() as u64,
                };
                assert_eq!(permit.bytes(), bytes);
                bytes
            })
            .sum();
        assert!(live + self.region.pooled_bytes() <= ledger.total_bytes());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn books_are_exact_after_every_step(steps in prop::collection::vec(step(), 1..80)) {
        let mut model = Model { region: region(8), permits: Vec::new(), buffers: Vec::new() };
        for step in steps {
            model.apply(step);
            model.check();
        }
        let region = model.region.clone();
        model.buffers.drain(..).for_each(|(buffer, permit)| {
            drop(buffer);
            drop(permit);
        });
        drop(model);
        prop_assert_eq!(region.ledger().free_bytes(), region.total_bytes());
    }
}
