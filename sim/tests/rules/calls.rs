//! R19 to R24 and R27: transfers, handles, mappings, process death, listings.

use sealstone::env::io::{read_exact_at, uninterrupted, write_all_at};
use sealstone::env::{IoErrorKind, LockMode};
use sealstone_sim::disk::{CrashPoint, Place};
use sealstone_sim::faults::{Call, Fault, Rule};

use super::*;

#[test]
fn r19_transfers_may_be_short_or_interrupted() {
    let disk = disk();
    let file = durable(&disk, LOG, b"");
    let bytes: Vec<u8> = (0..5000_u32).map(|i| i as u8).collect();
    for (fault, call) in [
        (Fault::Short, Call::Write),
        (Fault::Interrupted, Call::Write),
        (Fault::Short, Call::Read),
        (Fault::Interrupted, Call::Read),
    ] {
        disk.arm(Rule::once(fault, call, 0).again(2, 20));
    }
    let mut counts = Vec::new();
    for _ in 0..20 {
        counts.push(file.write_at(&bytes, 0).map_err(|error| error.kind));
    }
    assert!(counts.contains(&Err(IoErrorKind::Interrupted)));
    assert!(
        counts
            .iter()
            .any(|count| count.is_ok_and(|count| count < bytes.len()))
    );
    write_all_at(&*file, &bytes, 0).unwrap();
    let mut back = vec![0; bytes.len()];
    read_exact_at(&*file, &mut back, 0).unwrap();
    assert_eq!(back, bytes);
    for World { env, .. } in &worlds() {
        reads_end_at_the_end(env);
    }
}

fn reads_end_at_the_end(env: &Env) {
    env.vfs.create_root().unwrap();
    let file = durable(&*env.vfs, LOG, b"12345");
    let mut buffer = [7; 8];
    assert_eq!(file.read_at(&mut buffer, 5), Ok(0));
    assert_eq!(file.read_at(&mut buffer, 500), Ok(0));
    assert_eq!(read_up_to_at(&*file, &mut buffer, 2), Ok(3));
    let error = read_exact_at(&*file, &mut buffer, 2).unwrap_err();
    assert_eq!(error.kind, IoErrorKind::UnexpectedEof);
    file.write_at(b"9", 7).unwrap();
    assert_eq!(read(&*env.vfs, LOG).unwrap(), b"12345\0\x009");
    assert_eq!(file.len(), Ok(8));
}

#[test]
fn r19_bytes_past_the_count_are_rubbish() {
    let disk = disk();
    let file = durable(&disk, LOG, b"12345");
    let mut buffer = [0; 8];
    assert_eq!(file.read_at(&mut buffer, 0), Ok(5));
    assert_eq!(&buffer[..5], b"12345");
    assert!(buffer[5..].iter().all(|byte| *byte != 0));
}

#[test]
fn r20_closing_makes_nothing_durable() {
    let disk = disk();
    let file = durable(&disk, LOG, b"old");
    write_all_at(&*file, b"new", 0).unwrap();
    drop(file);
    assert_eq!(disk.descriptors(), 0);
    assert_eq!(read(&disk.imagine(&DROP_ALL), LOG).unwrap(), b"old");
}

#[test]
fn r21_descriptors_are_counted_exactly() {
    let disk = disk();
    drop(durable(&disk, LOG, b""));
    disk.set_options(|options| options.descriptors_max = 3);
    let lock = disk.try_lock(LockMode::Exclusive).unwrap();
    let first = disk.open(LOG, OpenMode::Read).unwrap();
    let second = disk.open(LOG, OpenMode::Read).unwrap();
    assert_eq!((disk.descriptors(), disk.descriptor_limit()), (3, 3));
    let full = |kind| assert_eq!(kind, IoErrorKind::TooManyOpenFiles);
    full(disk.open(LOG, OpenMode::Read).unwrap_err().kind);
    full(disk.create_new(FileName::log(2)).unwrap_err().kind);
    full(disk.list().unwrap_err().kind);
    drop(first);
    assert!(
        !disk.list().unwrap().names.contains(&FileName::log(2)),
        "no half-made file"
    );
    drop((second, lock));
    assert_eq!(disk.descriptors(), 0);
    disk.arm(Rule::once(Fault::NoDescriptor, Call::Open, 0));
    full(disk.open(LOG, OpenMode::Read).unwrap_err().kind);
    disk.open(LOG, OpenMode::Read).unwrap();
    for World { env, .. } in &worlds() {
        locks_exclude(env);
    }
}

fn locks_exclude(env: &Env) {
    env.vfs.create_root().unwrap();
    let held = env.vfs.try_lock(LockMode::Exclusive).unwrap();
    for mode in [LockMode::Exclusive, LockMode::Shared] {
        assert_eq!(
            env.vfs.try_lock(mode).unwrap_err().kind,
            IoErrorKind::WouldBlock
        );
    }
    drop(held);
    let shared = [(); 2].map(|()| env.vfs.try_lock(LockMode::Shared).unwrap());
    assert!(env.vfs.try_lock(LockMode::Exclusive).is_err());
    drop(shared);
    env.vfs.try_lock(LockMode::Exclusive).unwrap();
}

#[test]
fn r22_a_mapping_shows_the_cache_and_ends_with_the_file() {
    for World { env, .. } in &worlds() {
        env.vfs.create_root().unwrap();
        let file = create(&*env.vfs, LOG, b"not synced");
        let map = env.vfs.map(&*file, 10).unwrap();
        assert_eq!(map.bytes(), b"not synced");
    }
    let disk = disk();
    let file = durable(&disk, LOG, b"12345");
    assert!(
        disk.map(&*file, 6).is_err(),
        "past the end is a fatal signal"
    );
    let map = disk.map(&*file, 5).unwrap();
    assert!(disk.violations().is_empty());
    file.set_len(2).unwrap();
    assert_eq!(
        disk.violations().len(),
        1,
        "cutting a mapped file is a fault of the store"
    );
    drop(map);
    disk.spoil(LOG, 0..1);
    assert!(disk.map(&*file, 2).is_err(), "a bad sector under a mapping");
}

#[test]
fn r23_nothing_is_written_through_a_mapping() {
    let disk = disk();
    let file = durable(&disk, LOG, b"12345");
    let map = disk.map(&*file, 5).unwrap();
    write_all_at(&*file, b"x", 0).unwrap();
    assert_eq!(map.bytes(), b"12345");
    assert_eq!(disk.violations().len(), 1, "a mapped file is sealed");
}

#[test]
fn r24_process_death_keeps_the_cache_and_makes_nothing_durable() {
    let disk = disk();
    let file = durable(&disk, LOG, b"old");
    write_all_at(&*file, b"new", 0).unwrap();
    disk.rename(LOG, FileName::log(2)).unwrap();
    let next = disk.restart(&Crash::Kill);
    assert_eq!(
        file.read_at(&mut [0], 0).unwrap_err().kind,
        IoErrorKind::Crashed
    );
    assert_eq!(file.sync_data().unwrap_err().kind, IoErrorKind::Crashed);
    assert_eq!(read(&next, FileName::log(2)).unwrap(), b"new");
    assert_eq!(read(&next.imagine(&DROP_ALL), LOG).unwrap(), b"old");
    next.open(FileName::log(2), OpenMode::ReadWrite)
        .unwrap()
        .sync_data()
        .unwrap();
    next.sync_dir().unwrap();
    assert_eq!(
        read(&next.imagine(&DROP_ALL), FileName::log(2)).unwrap(),
        b"new"
    );
}

#[test]
fn r24_death_strikes_before_inside_and_after_a_call() {
    let stored = |place| {
        let disk = disk();
        let file = durable(&disk, LOG, b"");
        let mutation = disk.mutations();
        disk.crash_at(Some(CrashPoint {
            mutation,
            place,
            panic: false,
        }));
        let error = file.write_at(&[1; 1000], 0).unwrap_err();
        assert_eq!(error.kind, IoErrorKind::Crashed);
        assert!(disk.is_dead());
        assert_eq!(disk.list().unwrap_err().kind, IoErrorKind::Crashed);
        read(&disk.imagine(&Crash::Kill), LOG).unwrap().len()
    };
    assert_eq!(stored(Place::Before), 0);
    assert!((1..1000).contains(&stored(Place::Inside)));
    assert_eq!(stored(Place::After), 1000);
}

#[test]
fn r24_recorded_states_equal_real_deaths() {
    let work = |disk: &SimDisk| -> sealstone::env::IoResult<()> {
        disk.create_root()?;
        let file = disk.create_new(LOG)?;
        file.write_at(&[1; 700], 0)?;
        file.sync_data()?;
        file.allocate(2000)?;
        file.write_at(&[2; 300], 600)?;
        file.set_len(800)?;
        disk.sync_dir()?;
        disk.rename(LOG, FileName::log(2))?;
        disk.unlink(FileName::log(2))
    };
    let recorded = SimDisk::new(DiskOptions::default());
    recorded.start_recording();
    work(&recorded).unwrap();
    let states = recorded.stop_recording();
    assert_eq!(states.len(), 3 * 10);
    for point in states {
        let disk = SimDisk::new(DiskOptions::default());
        disk.crash_at(Some(CrashPoint {
            mutation: point.mutation,
            place: point.place,
            panic: false,
        }));
        work(&disk).unwrap_err();
        for crash in [Crash::Kill, power(1), power(2)] {
            let dead = disk.imagine(&crash);
            let saved = SimDisk::from_state(point.state.after(&crash), DiskOptions::default());
            assert_eq!(dead.live_files(), saved.live_files(), "{:?}", point.call);
        }
    }
}

#[test]
fn r24_death_by_panic_unwinds() {
    let disk = disk();
    let mutation = disk.mutations();
    disk.crash_at(Some(CrashPoint {
        mutation,
        place: Place::Before,
        panic: true,
    }));
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let result = std::panic::catch_unwind(|| disk.create_new(LOG).map(drop));
    std::panic::set_hook(hook);
    assert!(
        result
            .unwrap_err()
            .is::<sealstone_sim::disk::SimulatedPanic>()
    );
    assert!(disk.is_dead());
}

#[test]
fn r27_directories_have_no_order_and_the_shim_sorts() {
    let disk = disk();
    for number in 0..20 {
        drop(disk.create_new(FileName::log(number)).unwrap());
    }
    let orders: BTreeSet<Vec<FileName>> = (0..5)
        .map(|_| (disk.list().unwrap(), disk.raw_listing()).1)
        .collect();
    assert!(orders.len() > 1);
    for World { env, .. } in &worlds() {
        env.vfs.create_root().unwrap();
        for number in [5, 1, 3] {
            drop(uninterrupted(|| env.vfs.create_new(FileName::log(number))).unwrap());
        }
        let names = env.vfs.list().unwrap().names;
        assert_eq!(names, [1, 3, 5].map(FileName::log));
    }
}
