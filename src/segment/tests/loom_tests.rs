//! A model of the descriptor table: readers that pin files under a cap of one, and an invalidation.
//!
//! It was seen to fail under these changes of `files`: a sweep closes pinned files (no look at the
//! reference count); `invalidate` leaves the file in its slot.

use super::disk::{Disk, Named};
use crate::env::FileName;
use crate::segment::ReadCounts;
use crate::segment::files::FileTable;
use crate::sync::Arc;
use crate::sync::loom_tests::explore;

fn read(table: &FileTable, slot: &Arc<Named>, byte: u8) -> u64 {
    let mut counts = ReadCounts::default();
    let file = table.open(slot, &mut counts).expect("opens");
    let mut buffer = [0; 1];
    assert_eq!(file.file().read_at(&mut buffer, 0), Ok(1));
    assert_eq!(buffer, [byte]);
    counts.opens
}

#[test]
fn loom_the_table_counts_what_is_open_and_closes_only_what_is_idle() {
    explore("descriptors", 2, 2, |seen| {
        let disk = Disk::new();
        let names = [FileName::segment(1), FileName::segment(2)];
        let slots = names.map(|name| Named::new(name));
        disk.put(names[0], vec![11]);
        disk.put(names[1], vec![22]);
        let table = Arc::new(FileTable::new(Arc::new(disk.clone()), 1));
        read(&table, &slots[0], 11);
        let (there, slot) = (table.clone(), slots[1].clone());
        let other = loom::thread::spawn(move || read(&there, &slot, 22));
        let again = read(&table, &slots[0], 11);
        let mut counts = ReadCounts::default();
        let pin = table.open(&slots[0], &mut counts).expect("opens");
        let same = table.open(&slots[0], &mut counts).expect("opens");
        assert!(Arc::ptr_eq(&pin, &same), "a pinned file was closed");
        drop((pin, same));
        table.invalidate(names[0]);
        other.join().expect("ends");
        seen.saw(again as usize);
        assert_eq!(table.open_count(), disk.open_now());
        assert!(table.open_count() <= 1, "the cap and nobody reads");
        table.close_idle();
        assert_eq!((table.open_count(), disk.open_now()), (0, 0));
    });
}
