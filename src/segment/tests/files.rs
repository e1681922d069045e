//! The table of open files.

use super::disk::Named;
use super::*;
use crate::error::ErrorKind;

fn disk_with(files: u64) -> Disk {
    let disk = Disk::new();
    for number in 0..files {
        disk.put(FileName::segment(number), vec![number as u8; 8]);
    }
    disk
}

fn slots(count: u64) -> Vec<Arc<Named>> {
    (0..count)
        .map(|number| Named::new(FileName::segment(number)))
        .collect()
}

#[test]
fn the_cap_holds_and_recently_used_files_stay() {
    let disk = disk_with(10);
    let table = FileTable::new(Arc::new(disk.clone()), 3);
    let slots = slots(10);
    let mut counts = ReadCounts::default();
    for (round, slot) in slots.iter().enumerate() {
        table.open(slot, &mut counts).unwrap();
        // The first file is used again and again.
        table.open(&slots[0], &mut counts).unwrap();
        assert_eq!(table.open_count(), disk.open_now());
        assert_eq!(table.open_count(), (round as u64 + 1).min(3));
    }
    // Second chance may close the hot file when a sweep comes by twice, but rarely.
    assert!(counts.opens <= 14, "{} opens", counts.opens);
    assert_eq!(counts.opens, table.opens());
    let before = counts.opens;
    for _ in 0..5 {
        table.open(&slots[9], &mut counts).unwrap();
    }
    assert_eq!(counts.opens, before);
}

#[test]
fn pinned_files_are_not_closed() {
    let disk = disk_with(5);
    let table = FileTable::new(Arc::new(disk.clone()), 2);
    let slots = slots(5);
    let mut counts = ReadCounts::default();
    let pins: Vec<_> = slots[..3]
        .iter()
        .map(|s| table.open(s, &mut counts).unwrap())
        .collect();
    // All pinned: one more than the cap exists, and is counted.
    assert_eq!((table.open_count(), disk.open_now()), (3, 3));
    let mut byte = [0];
    for (number, pin) in pins.iter().enumerate() {
        pin.file().read_at(&mut byte, 0).unwrap();
        assert_eq!(byte[0] as usize, number);
    }
    drop(pins);
    table.open(&slots[4], &mut counts).unwrap();
    assert_eq!((table.open_count(), disk.open_now()), (2, 2));
    table.close_idle();
    assert_eq!((table.open_count(), disk.open_now()), (0, 0));
}

#[test]
fn a_system_without_descriptors_makes_it_close_one_and_retry() {
    let disk = disk_with(4);
    let table = FileTable::new(Arc::new(disk.clone()), 100);
    let slots = slots(4);
    let mut counts = ReadCounts::default();
    disk.limit(2);
    let pin = table.open(&slots[0], &mut counts).unwrap();
    table.open(&slots[1], &mut counts).unwrap();
    let other = table.open(&slots[2], &mut counts).unwrap();
    assert_eq!((table.open_count(), disk.open_now()), (2, 2));
    let error = table.open(&slots[3], &mut counts).unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::TooManyOpenFiles);
    assert_eq!(error.file(), Some(FileName::segment(3)));
    assert_eq!(table.open_count(), 2, "a failed open is not counted");
    drop((pin, other));
    table.open(&slots[3], &mut counts).unwrap();
    assert_eq!((table.open_count(), disk.open_now()), (2, 2));
}

#[test]
fn invalidated_and_missing_files() {
    let disk = disk_with(2);
    let table = FileTable::new(Arc::new(disk.clone()), 4);
    let slots = slots(2);
    let mut counts = ReadCounts::default();
    table.open(&slots[0], &mut counts).unwrap();
    let reader = table.open(&slots[1], &mut counts).unwrap();
    for slot in &slots {
        disk.unlink(slot.name()).unwrap();
        table.invalidate(slot.name());
        table.invalidate(slot.name());
    }
    assert_eq!(
        (table.open_count(), disk.open_now()),
        (1, 1),
        "one is still read"
    );
    drop(reader);
    assert_eq!((table.open_count(), disk.open_now()), (0, 0));
    let error = table.open(&slots[0], &mut counts).unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::MissingFile);
    assert_eq!((table.open_count(), counts.opens), (0, 2));
}

#[test]
fn files_opened_ahead_close_no_other_and_go_first() {
    let disk = disk_with(5);
    let table = FileTable::new(Arc::new(disk.clone()), 3);
    let slots = slots(5);
    let mut counts = ReadCounts::default();
    drop(table.open(&slots[2], &mut counts).unwrap());
    for slot in &slots {
        table.open_ahead(slot);
        table.open_ahead(slot);
        assert_eq!(table.open_count(), disk.open_now());
    }
    let open = |slots: &[Arc<Named>]| -> Vec<bool> {
        slots.iter().map(|slot| slot.slot().is_open()).collect()
    };
    assert_eq!(open(&slots), [true, true, true, false, false]);
    assert_eq!(table.opens(), 3);
    table.open(&slots[0], &mut counts).unwrap();
    assert_eq!(counts.opens, 1, "only the one that nobody had opened");
    table.open(&slots[4], &mut counts).unwrap();
    assert_eq!(open(&slots), [true, false, true, false, true]);

    table.close_idle();
    disk.limit(1);
    table.open_ahead(&slots[0]);
    table.open_ahead(&slots[1]);
    assert_eq!(open(&slots), [true, false, false, false, false]);
    assert_eq!((table.open_count(), disk.open_now()), (1, 1));
    // Who reads gets what there is.
    table.open(&slots[1], &mut counts).unwrap();
    assert_eq!(open(&slots), [false, true, false, false, false]);
    assert_eq!((table.open_count(), disk.open_now()), (1, 1));
}

#[test]
#[allow(clippy::disallowed_methods, reason = "a test of threads")]
fn threads_share_a_small_table() {
    let disk = disk_with(20);
    let table = FileTable::new(Arc::new(disk.clone()), 3);
    let slots = slots(20);
    std::thread::scope(|scope| {
        for thread in 0..4_usize {
            let (table, slots) = (&table, &slots);
            scope.spawn(move || {
                let mut counts = ReadCounts::default();
                let mut byte = [0];
                for i in 0..5000_usize {
                    let slot = &slots[(i * 7 + thread * 3 + i / 20) % 20];
                    let file = table.open(slot, &mut counts).unwrap();
                    file.file().read_at(&mut byte, 0).unwrap();
                    assert_eq!(u64::from(byte[0]), slot.name().number);
                }
            });
        }
    });
    assert_eq!(table.open_count(), disk.open_now());
    assert!(table.open_count() <= 3 + 4);
    table.close_idle();
    assert_eq!((table.open_count(), disk.open_now()), (0, 0));
}

#[test]
fn a_segment_takes_little_memory() {
    let fixture = Build::default().open(&numbered(5000, 4));
    let before = fixture.segment.resident_bytes();
    assert!(before <= 200, "{before} bytes");
    let mut counts = ReadCounts::default();
    fixture.segment.tail(&fixture.files, &mut counts).unwrap();
    assert_eq!(fixture.segment.resident_bytes(), before + (3 + 15) * 4);
}
