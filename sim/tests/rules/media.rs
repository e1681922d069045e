//! R25, R26 and R28: the medium itself.

use sealstone::env::FileKind;
use sealstone::env::io::{read_exact_at, write_all_at};
use sealstone_sim::faults::{Call, Fault, Rule};

use super::*;

#[test]
fn r25_a_latent_error_stays_until_it_is_written() {
    let disk = disk();
    let file = durable(&disk, LOG, &sectors(b'o', 4));
    disk.spoil(LOG, 512..1024);
    let mut sector = [0; 512];
    for _ in 0..3 {
        assert_eq!(file.read_at(&mut sector, 600).unwrap_err().code, 5);
    }
    let mut all = [0; 2048];
    assert_eq!(
        file.read_at(&mut all, 0),
        Ok(512),
        "what lies before it can be read"
    );
    read_exact_at(&*file, &mut sector, 1024).unwrap();
    let next = disk.imagine(&DROP_ALL);
    let file = next.open(LOG, OpenMode::ReadWrite).unwrap();
    file.read_at(&mut sector, 512).unwrap_err();
    write_all_at(&*file, &sectors(b'n', 1), 512).unwrap();
    read_exact_at(&*file, &mut all, 0).unwrap();
    next.arm(Rule::once(Fault::LatentError, Call::Read, 0));
    assert!(file.read_at(&mut sector, 0).is_err() && file.read_at(&mut sector, 0).is_err());
}

#[test]
fn r25_rot_is_sticky_and_of_any_size() {
    let disk = disk();
    drop(durable(&disk, LOG, &sectors(0, 2)));
    assert!(disk.flip(LOG, 700, 0b100));
    assert!(disk.overwrite(LOG, 10, &[9; 20]));
    assert!(!disk.flip(MISSING, 0, 1));
    let rotten = read(&disk, LOG).unwrap();
    assert_eq!(
        (rotten[700], rotten[701], rotten[10], rotten[9]),
        (4, 0, 9, 0)
    );
    for crash in [DROP_ALL, Crash::Kill, KEEP_ALL] {
        assert_eq!(read(&disk.imagine(&crash), LOG).unwrap(), rotten);
    }
}

const MISSING: FileName = FileName::segment(77);

#[test]
fn r25_a_misdirected_write_leaves_old_data_in_the_right_place() {
    let mut elsewhere = 0;
    for seed in 0..50 {
        let disk = disk();
        let file = durable(&disk, LOG, &sectors(b'o', 8));
        let mut rule = Rule::once(Fault::MisdirectedWrite, Call::Write, 0).on(FileKind::Log);
        rule.seed = seed;
        disk.arm(rule);
        assert_eq!(
            file.write_at(&sectors(b'n', 1), 1024),
            Ok(512),
            "it reports success"
        );
        file.sync_data().unwrap();
        let bytes = sector_bytes(&read(&disk.imagine(&DROP_ALL), LOG).unwrap());
        elsewhere += u32::from(bytes[2] == b'o' && bytes.contains(&b'n'));
    }
    assert!(elsewhere > 30);
}

#[test]
fn r25_a_lost_write_and_a_stale_block_show_old_data() {
    let disk = disk();
    let file = durable(&disk, LOG, &sectors(b'o', 2));
    let earlier = disk.state();
    disk.arm(Rule::once(Fault::LostWrite, Call::Write, 0));
    assert_eq!(file.write_at(&sectors(b'n', 2), 0), Ok(1024));
    file.sync_data().unwrap();
    assert_eq!(read(&disk, LOG).unwrap(), sectors(b'o', 2));
    write_all_at(&*file, &sectors(b'n', 2), 0).unwrap();
    file.sync_data().unwrap();
    assert!(disk.make_stale(&earlier, LOG, 512..1024));
    assert_eq!(sector_bytes(&read(&disk, LOG).unwrap()), b"no");
    assert!(disk.displace(LOG, 512, 0, 512));
    assert_eq!(sector_bytes(&read(&disk, LOG).unwrap()), b"oo");
}

#[test]
fn r26_a_crash_tears_only_what_was_not_synced() {
    let disk = disk();
    let file = durable(&disk, LOG, &sectors(b's', 3));
    write_all_at(&*file, &sectors(b't', 3), 3 * 512 + 100).unwrap();
    for bytes in outcomes(&disk, LOG).into_iter().flatten() {
        assert_eq!(
            &bytes[..1536],
            sectors(b's', 3),
            "synced bytes before a torn tail"
        );
    }
    // Rot in the middle is something else, and can be told apart: what follows is whole.
    disk.flip(LOG, 512, 1);
    let bytes = read(&disk.imagine(&KEEP_ALL), LOG).unwrap();
    assert_eq!((bytes[512], bytes[1024]), (b's' ^ 1, b's'));
}

#[test]
fn r28_a_lying_drive_keeps_nothing() {
    let disk = disk();
    let file = durable(&disk, LOG, b"old");
    disk.set_options(|options| options.sync_is_a_lie = true);
    write_all_at(&*file, b"new", 0).unwrap();
    file.sync_data().unwrap();
    disk.sync_dir().unwrap();
    assert_eq!(read(&disk.imagine(&DROP_ALL), LOG).unwrap(), b"old");
}
