//! The order of what reaches the disk: rotation, naming, removal, numbers.
//!
//! A hook looks at every call of a long life with seals, flushes, rolls, reopens and the death of the
//! process, and at what the manifest says at that moment.

mod support;

use std::collections::BTreeSet;

use sealstone::env::{Env, FileKind, FileName};
use sealstone::manifest;
use sealstone::sync::{Arc, Mutex};
use sealstone::{Batch, Durability, Keyspace, Options, Store};
use support::hook::{BROKEN, Call, hooked};
use support::{Random, files, kind_of, manual, mutable, open, put, read_file, write_once};

/// Where a log's header ends; frames come behind it.
const LOG_HEADER_BYTES: usize = 64;

/// What is known of the calls so far.
#[derive(Debug, Default)]
struct Watch {
    created: BTreeSet<FileName>,
    /// Files with bytes that no sync has covered.
    dirty: BTreeSet<FileName>,
    /// Names that no directory sync has covered.
    unnamed: BTreeSet<FileName>,
    /// A rename of the manifest waits for the directory sync.
    renamed: bool,
    /// Names in the last manifest that was durable.
    named: BTreeSet<FileName>,
    /// Logs that took frames.
    used_logs: Vec<FileName>,
    unlinks: u64,
}

fn named_files(env: &Env) -> BTreeSet<FileName> {
    let read = manifest::read(&*env.vfs).expect("reads");
    let Some(read) = read else {
        return BTreeSet::new();
    };
    let logs = read.state.logs.iter().map(|log| FileName::log(log.number));
    let segments = read.state.segments.iter();
    let segments = segments.map(|segment| FileName::segment(segment.number()));
    logs.chain(segments).collect()
}

impl Watch {
    /// Before a call.
    fn look(&mut self, env: &Env, call: Call, name: FileName) {
        match call {
            Call::Create => {
                let anew = self.created.insert(name);
                let numbered = matches!(name.kind, FileKind::Log | FileKind::Segment);
                // Rule 7; guards open.rs, `open_for_writing`: the maximum with the listing.
                assert!(anew || !numbered, "{name} is created twice");
                self.unnamed.insert(name);
            }
            Call::Write => self.write(env, name),
            Call::Sync => {
                self.dirty.remove(&name);
                // A handle keeps the name it was made under; one that is still there is no manifest yet.
                let names = env.vfs.list().expect("lists").names;
                let made = !names.contains(&FileName::MANIFEST_TEMPORARY) && !self.renamed;
                if name.kind == FileKind::Manifest && made {
                    self.take_over(env);
                }
            }
            Call::Rename => {
                // Rule 6: whole and durable before it takes the place of the old one.
                assert!(!self.dirty.contains(&FileName::MANIFEST_TEMPORARY));
                self.renamed = true;
            }
            Call::SyncDir => {
                self.unnamed.clear();
                if std::mem::take(&mut self.renamed) {
                    self.take_over(env);
                }
            }
            Call::Unlink => {
                // Guards flush.rs, `install`, and open.rs: logs go only after the edit that drops them.
                assert!(!self.named.contains(&name), "{name} is still named");
                self.dirty.remove(&name);
                self.unlinks += 1;
            }
            _ => {}
        }
    }

    /// The manifest as it stands becomes the durable one: all that it names is durable already.
    fn take_over(&mut self, env: &Env) {
        self.named = named_files(env);
        for name in &self.named {
            // Guards flush.rs: the phases before `Edit`, each of them.
            assert!(
                !self.unnamed.contains(name),
                "{name} before its name was synced"
            );
            let frames = self.used_logs.contains(name);
            assert!(
                frames || !self.dirty.contains(name),
                "{name} before its sync"
            );
        }
    }

    fn write(&mut self, env: &Env, name: FileName) {
        if name.kind == FileKind::Log && read_file(env, name)[..8] != [0; 8] {
            self.frame(env, name);
        }
        self.dirty.insert(name);
    }

    /// A frame is about to be written, the header being there.
    fn frame(&mut self, env: &Env, name: FileName) {
        if self.used_logs.contains(&name) {
            assert_eq!(self.used_logs.last(), Some(&name), "back to an older log");
            return;
        }
        // Rule 5; guards commit.rs, `take_group`: a group ends with a seal, and a seal syncs.
        if let Some(last) = self.used_logs.last() {
            assert!(!self.dirty.contains(last), "{last} is not synced");
        }
        // Recovery's own log is named when it is whole.
        let opening = !self.named.contains(&name);
        if opening {
            assert!(self.unnamed.contains(&name), "{name} takes frames unnamed");
        } else {
            assert!(
                !self.dirty.contains(&name),
                "{name} before its header's sync"
            );
        }
        assert_eq!(read_file(env, name)[LOG_HEADER_BYTES..][..8], [0; 8]);
        self.used_logs.push(name);
    }

    /// A life ended: what was written may still be there, and recovery takes new logs.
    fn restart(&mut self) {
        self.used_logs.clear();
        self.dirty.clear();
    }
}

fn tight() -> Options {
    manual()
        .write_region_bytes(1 << 20)
        .chunk_bytes(1024)
        .seal_records(12)
        .seal_bytes(8192)
        .batch_bytes_max(8192)
        .output_buffer_bytes(512)
        .manifest_roll_bytes(1024)
        .queue_slots(2)
}

fn work(store: &Store, map: &Keyspace, once: &Keyspace, random: &mut Random) {
    let mut batch = Batch::new();
    for _ in 0..=random.below(4) {
        let key = format!("key {}", random.below(100));
        let length = random.below(500) as usize;
        match random.below(4) {
            0 => batch.put(once, key.clone(), key),
            1 => batch.delete(map, key),
            _ => batch.put(map, key, random.bytes(length)),
        };
    }
    let durability = match random.below(3) {
        0 => Durability::Synced,
        _ => Durability::Buffered,
    };
    store.write(batch, durability).expect("writes");
    if random.below(20) == 0 {
        store.seal().expect("seals");
    }
    for _ in 0..random.below(5) {
        if let Some(job) = store.runnable().first() {
            store.run(*job, 4).expect("runs");
        }
    }
}

#[test]
fn a_long_life() {
    let plain = Env::in_memory();
    let (env, hook) = hooked(plain.clone());
    let watch = Arc::new(Mutex::new(Watch::default()));
    let (inner, seen) = (plain.clone(), watch.clone());
    hook.set(move |call, name| {
        seen.lock().look(&inner, call, name);
        Ok(())
    });
    let mut random = Random(1);
    let mut store = open(&env, tight());
    for life in 0..12 {
        let (map, once) = (mutable(&store, "map"), write_once(&store, "once"));
        for _ in 0..60 {
            work(&store, &map, &once, &mut random);
        }
        let audit = store.audit();
        let listed = env.vfs.list().expect("lists").names;
        let flushing = audit.memory.flushing_bytes > 0;
        assert!(
            audit.files == listed || flushing,
            "the store knows what is there"
        );
        if life % 2 == 0 {
            store.close().expect("closes");
        }
        drop((store, map, once));
        watch.lock().restart();
        store = open(&env, tight());
        store.drain().expect("drains");
        let audit = store.audit();
        assert_eq!(audit.files, env.vfs.list().expect("lists").names);
    }
    assert!(
        store.stats().manifest_rolls < 2,
        "most were in earlier lives"
    );
    let watch = watch.lock();
    assert!(watch.unlinks > 100 && watch.created.len() > 200);
}

#[test]
fn numbers_are_never_reused() {
    // What a manifest ever named keeps its number for good, over aborted opens too. (What an aborted
    // open made and the next one removed was never part of the store.)
    let plain = Env::in_memory();
    let (env, hook) = hooked(plain.clone());
    let fail_at = Arc::new(Mutex::new(u64::MAX));
    let named: Arc<Mutex<BTreeSet<FileName>>> = Arc::default();
    let (inner, due, seen) = (plain.clone(), fail_at.clone(), named.clone());
    hook.set(move |call, name| {
        let mut seen = seen.lock();
        match call {
            Call::Create => assert!(!seen.contains(&name), "{name} is made again"),
            Call::Sync | Call::SyncDir => seen.extend(named_files(&inner)),
            _ => {}
        }
        let mut due = due.lock();
        *due = due.saturating_sub(1);
        if *due == 0 { Err(BROKEN) } else { Ok(()) }
    });
    let mut random = Random(2);
    let mut opened = 0;
    for round in 0..150 {
        *fail_at.lock() = match round % 3 {
            0 => u64::MAX,
            _ => 1 + random.below(100),
        };
        let Ok(store) = Store::open_with(env.clone(), tight()) else {
            continue;
        };
        *fail_at.lock() = u64::MAX;
        opened += 1;
        let map = mutable(&store, "map");
        for number in 0..20 {
            put(&map, format!("{round} {number}"), "value");
        }
        if round % 2 == 0 {
            store.drain().expect("drains");
        }
    }
    assert!((50..120).contains(&opened), "{opened}");
    assert!(named.lock().len() > 200);
}

#[test]
fn aborted_opens_leave_the_debris_of_one() {
    // Guards open.rs, `remove_debris`.
    let plain = Env::in_memory();
    let (env, hook) = hooked(plain.clone());
    let store = open(&env, tight());
    let map = mutable(&store, "map");
    for number in 0..20 {
        put(&map, format!("key {number}"), vec![7; 300]);
    }
    drop((store, map));
    let whole = files(&plain);
    let mut sizes = Vec::new();
    for _ in 0..20 {
        // The last step before the open's atomic point.
        hook.fail_once(Call::Rename, |_| true);
        let error = kind_of(Store::open_with(env.clone(), tight()));
        assert_eq!(error, sealstone::ErrorKind::Io);
        let left = files(&plain);
        for (name, bytes) in &whole {
            assert_eq!(left.get(name), Some(bytes), "{name} was touched");
        }
        sizes.push(left.len());
    }
    assert!(sizes[0] > whole.len(), "it had got so far");
    assert!(sizes.iter().all(|size| *size == sizes[0]), "{sizes:?}");
    hook.clear();
    let store = open(&env, tight());
    store.drain().expect("drains");
    assert_eq!(store.audit().files, env.vfs.list().expect("lists").names);
    assert_eq!(store.open_report().replayed_commits, 20);
}
