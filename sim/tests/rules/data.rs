//! R1 to R6: bytes and lengths before a sync.

use sealstone::env::io::write_all_at;
use sealstone_sim::disk::{Crash, Keep, Order, Strength, Survivors};

use super::*;

fn with(change: impl Fn(&mut Survivors)) -> impl Fn(u64) -> Crash {
    move |seed| {
        let mut survivors = Survivors::seeded(seed);
        survivors.garbage = false;
        change(&mut survivors);
        Crash::Power(survivors)
    }
}

#[test]
fn r01_overwrite_keeps_any_subset_of_sectors_in_any_order() {
    let disk = disk();
    let file = durable(&disk, LOG, &sectors(b'o', 3));
    write_all_at(&*file, &sectors(b'1', 2), 0).unwrap();
    write_all_at(&*file, &sectors(b'2', 2), 512).unwrap();
    let seen: BTreeSet<Vec<u8>> = outcomes(&disk, LOG)
        .into_iter()
        .map(|bytes| sector_bytes(&bytes.unwrap()))
        .collect();
    // First sector o or 1, second o, 1 or 2, third o or 2: all twelve, and only they.
    assert_eq!(seen.len(), 12, "{seen:?}");
    assert!(
        seen.contains(b"o22".as_slice()),
        "the later write without the earlier"
    );
    file.sync_data().unwrap();
    let exact = [sectors(b'1', 1), sectors(b'2', 2)].concat();
    assert_eq!(outcomes(&disk, LOG), BTreeSet::from([Some(exact)]));
}

#[test]
fn r02_append_may_leave_nothing_zeros_garbage_or_data() {
    let disk = disk();
    let file = durable(&disk, LOG, &sectors(b'o', 1));
    write_all_at(&*file, &sectors(b'n', 1), 512).unwrap();
    let (mut zeros, mut garbage, mut data, mut nothing) = (0, 0, 0, 0);
    for bytes in outcomes(&disk, LOG).into_iter().flatten() {
        assert_eq!(&bytes[..512], sectors(b'o', 1));
        match &bytes[512..] {
            [] => nothing += 1,
            tail if tail == sectors(b'n', 1) => data += 1,
            tail if tail == sectors(0, 1) => zeros += 1,
            tail => {
                assert_eq!(tail.len(), 512);
                garbage += 1;
            }
        }
    }
    assert!(nothing > 0 && zeros > 0 && garbage > 0 && data > 0);
    // Without the switch nothing but zeros stands in for missing data.
    let tame = outcomes_of(&disk, with(|_| {}), |disk| read(disk, LOG));
    assert_eq!(tame.len(), 3);
}

#[test]
fn r03_second_append_may_survive_without_the_first() {
    let disk = disk();
    let file = durable(&disk, LOG, b"");
    write_all_at(&*file, &sectors(b'1', 1), 0).unwrap();
    write_all_at(&*file, &sectors(b'2', 1), 512).unwrap();
    let seen = |order| {
        let crash = with(move |survivors| survivors.order = order);
        outcomes_of(&disk, crash, |disk| sector_bytes(&read(disk, LOG).unwrap()))
    };
    let hole = b"\x002".to_vec();
    assert!(seen(Order::AnySubset).contains(&hole));
    for order in [Order::PrefixPerFile, Order::PrefixGlobal] {
        let seen = seen(order);
        assert!(!seen.contains(&hole), "{order:?}");
        assert!(seen.contains(b"1".as_slice()) && seen.contains(b"12".as_slice()));
    }
}

#[test]
fn r04_tearing_has_the_unit_that_was_asked_for() {
    let disk = disk();
    let file = durable(&disk, LOG, &sectors(b'o', 16));
    write_all_at(&*file, &sectors(b'n', 16), 0).unwrap();
    for unit in [512_u32, 4096] {
        let crash = with(move |survivors| survivors.sector_bytes = unit);
        let seen = outcomes_of(&disk, crash, |disk| read(disk, LOG).unwrap());
        assert!(seen.len() > 2, "nothing was torn");
        for bytes in &seen {
            for sector in bytes.chunks(unit as usize) {
                assert!(sector.iter().all(|byte| *byte == sector[0]));
            }
        }
    }
    // A write inside one sector is never torn by power.
    file.sync_data().unwrap();
    write_all_at(&*file, &[b'x'; 100], 30).unwrap();
    assert_eq!(outcomes(&disk, LOG).len(), 2);
}

#[test]
fn r05_shrinking_may_be_lost_and_is_not_ordered_with_data() {
    let disk = disk();
    let file = durable(&disk, LOG, &sectors(b'o', 4));
    file.set_len(512).unwrap();
    write_all_at(&*file, &sectors(b'n', 1), 0).unwrap();
    let seen = outcomes(&disk, LOG);
    for (first, length) in [(b'o', 4), (b'n', 4), (b'o', 1), (b'n', 1)] {
        let expected = [sectors(first, 1), sectors(b'o', length - 1)].concat();
        assert!(seen.contains(&Some(expected)), "{first} {length}");
    }
    assert_eq!(seen.len(), 4);
    // A file cut and grown again may show what was there before; never once it was synced between.
    let stale = |disk: &SimDisk| {
        let crash = |seed| {
            let mut survivors = Survivors::seeded(seed);
            survivors.strength = Strength::Adversarial;
            Crash::Power(survivors)
        };
        outcomes_of(disk, crash, |disk| read(disk, LOG).unwrap())
            .iter()
            .any(|bytes| bytes.len() == 2048 && bytes[1024..1536] == sectors(b'o', 1))
    };
    write_all_at(&*file, &sectors(b'x', 1), 1536).unwrap();
    assert!(stale(&disk));
    file.set_len(512).unwrap();
    file.sync_data().unwrap();
    write_all_at(&*file, &sectors(b'x', 1), 1536).unwrap();
    assert!(!stale(&disk));
}

#[test]
fn r06_growth_may_be_lost_although_a_later_write_survived() {
    let grow: [fn(&dyn File); 2] = [
        |file| file.set_len(4096).unwrap(),
        |file| file.allocate(4096).unwrap(),
    ];
    for grow in grow {
        let disk = disk();
        let file = durable(&disk, LOG, &sectors(b'o', 1));
        grow(&*file);
        write_all_at(&*file, &sectors(b'n', 1), 0).unwrap();
        let seen = outcomes(&disk, LOG);
        assert!(
            seen.contains(&Some(sectors(b'n', 1))),
            "header without the growth"
        );
        file.sync_data().unwrap();
        let exact = [sectors(b'n', 1), sectors(0, 7)].concat();
        assert_eq!(outcomes(&disk, LOG), BTreeSet::from([Some(exact)]));
    }
}

#[test]
fn survivors_at_both_ends_are_what_they_say() {
    let disk = disk();
    let file = durable(&disk, LOG, b"old");
    write_all_at(&*file, b"new and longer", 0).unwrap();
    assert_eq!(read(&disk.imagine(&DROP_ALL), LOG).unwrap(), b"old");
    assert_eq!(
        read(&disk.imagine(&KEEP_ALL), LOG).unwrap(),
        b"new and longer"
    );
    let same = Survivors {
        keep: Keep::Seeded(5),
        ..Survivors::seeded(5)
    };
    let twice = [(); 2].map(|()| read(&disk.imagine(&Crash::Power(same)), LOG));
    assert_eq!(twice[0], twice[1], "a seed means one outcome");
}
