//! The backends: one suite for all of them, and what only a real directory can show.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the real directory is looked at from outside, and a child process is made"
)]

use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};

use sealstone::env::conformance::check;
use sealstone::env::memory::MemoryVfs;
use sealstone::env::{Env, FileKind, FileName, IoError, IoErrorKind, LockMode, OpenMode};

fn real(path: &Path) -> Env {
    Env::real(path).expect("an absolute path")
}

fn file(env: &Env, name: FileName, bytes: &[u8]) {
    let file = env.vfs.create_new(name).expect("creates");
    sealstone::env::io::write_all_at(file.as_ref(), bytes, 0).expect("writes");
    file.sync_data().expect("syncs");
}

fn assert_conforms(env: &Env, other: &Env) {
    if let Err(violation) = check(env, other) {
        panic!("{}: {violation}", env.vfs.describe());
    }
}

#[test]
fn the_real_backend_conforms() {
    let directory = tempfile::tempdir().expect("a directory");
    let root = directory.path();
    assert_conforms(&real(&root.join("one")), &real(&root.join("two")));
}

#[test]
fn the_memory_backend_conforms() {
    assert_conforms(&Env::in_memory(), &Env::in_memory());
}

#[test]
fn a_counted_backend_conforms() {
    let directory = tempfile::tempdir().expect("a directory");
    let root = directory.path();
    let (one, counters) = real(&root.join("one")).counting();
    let (two, _) = real(&root.join("two")).counting();
    assert_conforms(&one, &two);
    let counts = counters.snapshot();
    assert!(counts.total().written_bytes > 600_000);
    assert_eq!(counts.of(FileKind::Segment).links, 3);
    let (one, _) = Env::in_memory().counting();
    let (two, _) = Env::in_memory().counting();
    assert_conforms(&one, &two);
}

#[test]
fn backends_of_different_kinds_copy_to_each_other() {
    let directory = tempfile::tempdir().expect("a directory");
    let disk = real(directory.path());
    let memory = Env::in_memory();
    memory.vfs.create_root().expect("creates");
    let name = FileName::segment(9);
    file(&disk, name, b"from disk");
    disk.vfs
        .link_or_copy_to(name, memory.vfs.as_ref())
        .expect("copies");
    disk.vfs.unlink(name).expect("removes");
    memory
        .vfs
        .link_or_copy_to(name, disk.vfs.as_ref())
        .expect("copies back");
    let bytes = std::fs::read(directory.path().join("0000000000000009.seg")).expect("reads");
    assert_eq!(bytes, b"from disk");
}

#[test]
fn a_failed_copy_leaves_nothing_behind() {
    let source = Env::in_memory();
    source.vfs.create_root().expect("creates");
    let name = FileName::segment(1);
    file(&source, name, &[1; 1_000]);
    let small = MemoryVfs::with_capacity(999);
    let target = Env {
        vfs: std::sync::Arc::new(small),
        ..Env::in_memory()
    };
    target.vfs.create_root().expect("creates");
    let full = source.vfs.link_or_copy_to(name, target.vfs.as_ref());
    assert_eq!(full, Err(IoError::new(IoErrorKind::NoSpace)));
    assert_eq!(target.vfs.list().expect("lists").names, []);
}

#[test]
fn within_a_file_system_a_link_shares_the_bytes() {
    let directory = tempfile::tempdir().expect("a directory");
    let (one, two) = (directory.path().join("one"), directory.path().join("two"));
    let (source, _) = real(&one).counting();
    let (target, target_counters) = real(&two).counting();
    source.vfs.create_root().expect("creates");
    target.vfs.create_root().expect("creates");
    let name = FileName::segment(1);
    file(&source, name, b"sealed");
    source
        .vfs
        .link_or_copy_to(name, target.vfs.as_ref())
        .expect("links");
    let inode = |path: &Path| {
        let path = path.join(name.to_string());
        std::fs::metadata(path).expect("is there").ino()
    };
    assert_eq!(inode(&one), inode(&two));
    // Nothing was written for it.
    assert_eq!(target_counters.snapshot().total().creates, 0);
}

#[test]
fn directories_are_made_with_those_above() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("a/b c/\u{e9}\u{4e16}/store");
    let env = real(&path);
    let missing = IoError {
        kind: IoErrorKind::NotFound,
        code: 2,
    };
    assert_eq!(env.vfs.list(), Err(missing));
    assert_eq!(
        env.vfs.try_lock(LockMode::Exclusive).map(drop),
        Err(missing)
    );
    env.vfs.create_root().expect("creates");
    file(&env, FileName::MANIFEST, b"here");
    assert_eq!(
        std::fs::read(path.join("MANIFEST")).expect("reads"),
        b"here"
    );
    assert!(env.vfs.describe().ends_with("\u{e9}\u{4e16}/store"));
}

#[test]
fn a_file_in_place_of_the_directory_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("file");
    std::fs::write(&path, b"mine").expect("writes");
    let not_a_directory = IoError {
        kind: IoErrorKind::Other,
        code: 20,
    };
    assert_eq!(real(&path).vfs.create_root(), Err(not_a_directory));
    assert_eq!(real(&path).vfs.list(), Err(not_a_directory));
    assert_eq!(std::fs::read(&path).expect("reads"), b"mine");
    assert!(Env::real("").is_err());
}

#[test]
fn symbolic_links_lead_to_the_same_store() {
    let directory = tempfile::tempdir().expect("a directory");
    let (path, link) = (directory.path().join("real"), directory.path().join("link"));
    let env = real(&path);
    env.vfs.create_root().expect("creates");
    std::os::unix::fs::symlink(&path, &link).expect("links");
    let linked = real(&link);
    linked.vfs.create_root().expect("is there");
    file(&linked, FileName::log(1), b"");
    assert_eq!(env.vfs.list().expect("lists").names, [FileName::log(1)]);
    // One store, so one lock.
    let lock = env.vfs.try_lock(LockMode::Exclusive).expect("free");
    let held = Err(IoErrorKind::WouldBlock);
    let second = linked.vfs.try_lock(LockMode::Exclusive);
    assert_eq!(second.map(drop).map_err(|error| error.kind), held);
    // Removing the file by hand opens no second door within the process.
    std::fs::remove_file(path.join("LOCK")).expect("removes");
    let third = linked.vfs.try_lock(LockMode::Exclusive);
    assert_eq!(third.map(drop).map_err(|error| error.kind), held);
    drop(lock);
    drop(linked.vfs.try_lock(LockMode::Exclusive).expect("free"));

    // A segment moved elsewhere behind a symbolic link is read, and linked as what it is.
    let moved = directory.path().join("moved");
    std::fs::write(&moved, b"sealed").expect("writes");
    let name = FileName::segment(2);
    std::os::unix::fs::symlink(&moved, path.join(name.to_string())).expect("links");
    assert_eq!(
        env.vfs.open(name, OpenMode::Read).expect("opens").len(),
        Ok(6)
    );
    let target = real(&directory.path().join("target"));
    target.vfs.create_root().expect("creates");
    env.vfs
        .link_or_copy_to(name, target.vfs.as_ref())
        .expect("links");
    let linked = directory.path().join("target").join(name.to_string());
    let kind = std::fs::symlink_metadata(linked).expect("is there");
    assert!(kind.is_file());
}

#[test]
fn the_store_survives_the_renaming_of_its_directory() {
    let directory = tempfile::tempdir().expect("a directory");
    let (before, after) = (
        directory.path().join("before"),
        directory.path().join("after"),
    );
    let env = real(&before);
    env.vfs.create_root().expect("creates");
    std::fs::rename(&before, &after).expect("renames");
    file(&env, FileName::log(1), b"");
    env.vfs.sync_dir().expect("syncs");
    assert!(after.join("0000000000000001.log").exists());
    // A directory made anew is taken up by create_root.
    std::fs::remove_dir_all(&after).expect("removes");
    assert_eq!(
        env.vfs.create_new(FileName::log(2)).expect_err("gone").kind,
        IoErrorKind::NotFound
    );
    env.vfs.create_root().expect("creates again");
    file(&env, FileName::log(2), b"");
    assert!(before.join("0000000000000002.log").exists());
}

#[test]
fn foreign_names_are_counted_and_left_alone() {
    use std::os::unix::ffi::OsStrExt;
    let directory = tempfile::tempdir().expect("a directory");
    let env = real(directory.path());
    let not_text = std::ffi::OsStr::from_bytes(b"\xFF.log");
    std::fs::write(directory.path().join(not_text), b"").expect("writes");
    for name in ["notes.txt", "1.log", "000000000000000A.seg", "manifest"] {
        std::fs::write(directory.path().join(name), b"").expect("writes");
    }
    file(&env, FileName::segment(10), b"");
    let listing = env.vfs.list().expect("lists");
    assert_eq!(listing.names, [FileName::segment(10)]);
    assert_eq!(listing.foreign, 5);
}

#[test]
fn a_place_without_rights_says_so() {
    // The kernel's own directory refuses new files to everybody, the superuser included.
    let kernel = Path::new("/sys/kernel");
    if kernel.exists() {
        let error = real(kernel)
            .vfs
            .create_new(FileName::log(1))
            .expect_err("refused");
        assert_eq!(error.kind, IoErrorKind::PermissionDenied);
        let error = real(&kernel.join("store"))
            .vfs
            .create_root()
            .expect_err("refused");
        assert_eq!(error.kind, IoErrorKind::PermissionDenied);
    }
    let directory = tempfile::tempdir().expect("a directory");
    let read_only = std::fs::Permissions::from_mode(0o555);
    std::fs::set_permissions(directory.path(), read_only).expect("sets");
    let refused = real(directory.path()).vfs.try_lock(LockMode::Exclusive);
    // The superuser writes anywhere; everybody else is refused.
    if let Err(error) = refused {
        assert_eq!(error.kind, IoErrorKind::PermissionDenied);
    } else {
        let owner = std::fs::metadata("/proc/self").expect("is there").uid();
        assert_eq!(owner, 0);
    }
    let writable = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(directory.path(), writable).expect("sets");
}

#[test]
fn a_reader_locks_only_what_a_writer_made() {
    let directory = tempfile::tempdir().expect("a directory");
    let env = real(directory.path());
    let error = env
        .vfs
        .try_lock(LockMode::Shared)
        .expect_err("no lock file");
    assert_eq!(error.kind, IoErrorKind::NotFound);
    assert_eq!(env.vfs.list().expect("lists").names, []);
    let memory = Env::in_memory();
    memory.vfs.create_root().expect("creates");
    let error = memory
        .vfs
        .try_lock(LockMode::Shared)
        .expect_err("no lock file");
    assert_eq!(error.kind, IoErrorKind::NotFound);
}

#[test]
fn the_descriptor_limit_is_the_hard_one() {
    let directory = tempfile::tempdir().expect("a directory");
    let limit = real(directory.path()).vfs.descriptor_limit();
    let limits = std::fs::read_to_string("/proc/self/limits").expect("reads");
    let line = limits
        .lines()
        .find(|line| line.starts_with("Max open files"))
        .expect("the line is there");
    let hard = line.split_whitespace().nth(4).expect("the hard limit");
    assert_eq!(limit.to_string(), hard);
}

/// The variable that makes [`child_holds_the_lock`] one of a pair.
const CHILD_DIRECTORY: &str = "SEALSTONE_TEST_LOCK_DIRECTORY";

/// Not a test of its own: what the child of the next one runs.
#[test]
#[ignore = "run by a_killed_process_leaves_no_lock"]
fn child_holds_the_lock() {
    let Some(directory) = std::env::var_os(CHILD_DIRECTORY) else {
        return;
    };
    let env = real(Path::new(&directory));
    let _lock = env.vfs.try_lock(LockMode::Exclusive).expect("free");
    println!("\nlocked");
    std::thread::sleep(std::time::Duration::from_secs(60));
}

#[test]
fn a_killed_process_leaves_no_lock() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut child = Command::new(std::env::current_exe().expect("this program"))
        .args([
            "--exact",
            "child_holds_the_lock",
            "--ignored",
            "--nocapture",
        ])
        .env(CHILD_DIRECTORY, directory.path())
        .stdout(Stdio::piped())
        .spawn()
        .expect("starts");
    let output = BufReader::new(child.stdout.take().expect("piped"));
    let locked = output.lines().any(|line| line.expect("reads") == "locked");
    assert!(locked, "the child ended without the lock");
    let env = real(directory.path());
    for mode in [LockMode::Exclusive, LockMode::Shared] {
        let error = env.vfs.try_lock(mode).expect_err("the child holds it");
        assert_eq!(error.kind, IoErrorKind::WouldBlock);
    }
    // SIGKILL: no destructor runs.
    child.kill().expect("kills");
    child.wait().expect("ends");
    drop(env.vfs.try_lock(LockMode::Exclusive).expect("free again"));
}
