//! R7 to R12: names, and what which sync makes durable.

use sealstone::env::io::write_all_at;

use super::*;

const TEMPORARY: FileName = FileName::MANIFEST_TEMPORARY;
const MANIFEST: FileName = FileName::MANIFEST;

fn listing(disk: &SimDisk) -> Vec<FileName> {
    disk.list().unwrap().names
}

fn listings(disk: &SimDisk) -> BTreeSet<Vec<FileName>> {
    outcomes_of(disk, power, listing)
}

#[test]
fn r07_a_new_name_needs_the_directory_synced() {
    let disk = disk();
    let file = create(&disk, LOG, b"bytes");
    file.sync_data().unwrap();
    assert_eq!(
        outcomes(&disk, LOG),
        BTreeSet::from([None, Some(b"bytes".to_vec())])
    );
    disk.sync_dir().unwrap();
    assert_eq!(
        outcomes(&disk, LOG),
        BTreeSet::from([Some(b"bytes".to_vec())])
    );
}

#[test]
fn r08_a_rename_leaves_the_old_or_the_new_name_never_neither() {
    let disk = disk();
    drop(durable(&disk, MANIFEST, b"old"));
    drop(durable(&disk, TEMPORARY, b"new"));
    disk.rename(TEMPORARY, MANIFEST).unwrap();
    let look = |disk: &SimDisk| (read(disk, MANIFEST), read(disk, TEMPORARY));
    let (old, new) = (Some(b"old".to_vec()), Some(b"new".to_vec()));
    let expected = BTreeSet::from([(old, new.clone()), (new.clone(), None)]);
    assert_eq!(outcomes_of(&disk, power, look), expected);
    disk.sync_dir().unwrap();
    assert_eq!(
        outcomes_of(&disk, power, look),
        BTreeSet::from([(new, None)])
    );
    for World { env, .. } in &worlds() {
        rename_replaces_and_open_files_stay(env);
    }
}

fn rename_replaces_and_open_files_stay(env: &Env) {
    let vfs = &*env.vfs;
    vfs.create_root().unwrap();
    let old = durable(vfs, MANIFEST, b"old");
    drop(create(vfs, TEMPORARY, b"new"));
    vfs.rename(TEMPORARY, MANIFEST).unwrap();
    assert_eq!(read(vfs, MANIFEST).unwrap(), b"new");
    assert!(read(vfs, TEMPORARY).is_none());
    let mut bytes = [0; 3];
    assert_eq!(read_up_to_at(&*old, &mut bytes, 0).unwrap(), 3);
    assert_eq!(&bytes, b"old", "an open file outlives its name");
    vfs.unlink(MANIFEST).unwrap();
    assert!(vfs.rename(MANIFEST, TEMPORARY).is_err() && vfs.unlink(MANIFEST).is_err());
}

#[test]
fn r09_a_rename_does_not_bring_the_data_along() {
    let disk = disk();
    drop(create(&disk, TEMPORARY, &sectors(b'n', 1)));
    disk.rename(TEMPORARY, MANIFEST).unwrap();
    disk.sync_dir().unwrap();
    let seen = outcomes(&disk, MANIFEST);
    assert!(seen.contains(&Some(Vec::new())), "empty under the new name");
    assert!(
        seen.contains(&Some(sectors(0, 1))),
        "zeros under the new name"
    );
    assert!(!seen.contains(&None));
}

#[test]
fn r10_an_unlink_may_be_durable_before_an_earlier_rename() {
    let disk = disk();
    drop(durable(&disk, LOG, b"log"));
    drop(durable(&disk, TEMPORARY, b"new"));
    disk.rename(TEMPORARY, MANIFEST).unwrap();
    disk.unlink(LOG).unwrap();
    assert_eq!(listings(&disk).len(), 4, "the two changes are independent");
    assert!(listings(&disk).contains(&vec![TEMPORARY]));
    disk.sync_dir().unwrap();
    assert_eq!(listings(&disk), BTreeSet::from([vec![MANIFEST]]));
}

#[test]
fn r11_a_directory_sync_is_about_names_only() {
    let disk = disk();
    let file = create(&disk, LOG, b"bytes");
    disk.sync_dir().unwrap();
    assert_eq!(read(&disk.imagine(&DROP_ALL), LOG), Some(Vec::new()));
    file.sync_data().unwrap();
    assert_eq!(read(&disk.imagine(&DROP_ALL), LOG), Some(b"bytes".to_vec()));
}

#[test]
fn r12_a_data_sync_covers_the_length_and_no_other_file() {
    let disk = disk();
    let file = durable(&disk, LOG, b"1");
    let other = durable(&disk, MANIFEST, b"1");
    write_all_at(&*file, b"23", 1).unwrap();
    write_all_at(&*other, b"23", 1).unwrap();
    file.sync_data().unwrap();
    let next = disk.imagine(&DROP_ALL);
    assert_eq!(read(&next, LOG), Some(b"123".to_vec()));
    assert_eq!(read(&next, MANIFEST), Some(b"1".to_vec()));
}
