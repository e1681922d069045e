//! What every backend has to do, as a suite that anyone can run on theirs.
//!
//! [`check`] works on two empty directories and leaves them empty (the lock file may stay). It takes
//! the calls one by one: whole, undisturbed, on one thread. Crashes, lies and storms are the
//! simulator's business, not a backend's.

use std::time::Duration;

use super::io::{read_exact_at, read_up_to_at, uninterrupted, write_all_at};
use super::{
    Env, File, FileKind, FileName, IoError, IoErrorKind, IoResult, LockMode, OpenMode, ReadRequest,
};
use crate::sync::{Arc, Signal};

/// A rule that was broken, in words.
pub type Violation = String;

type Checked = Result<(), Violation>;

/// Fails with the text unless the condition holds.
macro_rules! ensure {
    ($condition:expr, $($text:tt)+) => {
        if !$condition {
            return Err(format!($($text)+));
        }
    };
}

/// Runs every rule on `env`, whose directory is missing or empty, with `other` as a second one of
/// the same kind.
///
/// # Errors
/// The first rule that does not hold.
pub fn check(env: &Env, other: &Env) -> Result<(), Violation> {
    type Rule = fn(&Env) -> Checked;
    let rules: [(&str, Rule); 11] = [
        ("names", names),
        ("replace", replace),
        ("unlink", unlink_while_open),
        ("listing", listing),
        ("transfers", transfers),
        ("lengths", lengths),
        ("allocate", allocate),
        ("modes", modes),
        ("locks", locks),
        ("map", map),
        ("time", time),
    ];
    root(env).map_err(|text| format!("root: {text}"))?;
    root(other).map_err(|text| format!("root: {text}"))?;
    for (name, rule) in rules {
        rule(env).map_err(|text| format!("{name}: {text}"))?;
        empty(env).map_err(|text| format!("after {name}: {text}"))?;
    }
    links(env, other).map_err(|text| format!("links: {text}"))?;
    empty(env)
}

fn kind<T>(result: &IoResult<T>) -> Option<IoErrorKind> {
    result.as_ref().err().map(|error| error.kind)
}

/// A call that must succeed.
fn done<T>(what: &str, call: impl FnMut() -> IoResult<T>) -> Result<T, Violation> {
    uninterrupted(call).map_err(|error| format!("{what}: {error}"))
}

fn create(env: &Env, name: FileName, bytes: &[u8]) -> Result<Arc<dyn File>, Violation> {
    let file = done("create_new", || env.vfs.create_new(name))?;
    done("write", || write_all_at(file.as_ref(), bytes, 0))?;
    done("sync_data", || file.sync_data())?;
    Ok(file)
}

fn content(file: &dyn File) -> Result<Vec<u8>, Violation> {
    let mut bytes = vec![0xA5; done("len", || file.len())? as usize];
    done("read", || read_exact_at(file, &mut bytes, 0))?;
    Ok(bytes)
}

fn content_of(env: &Env, name: FileName) -> Result<Vec<u8>, Violation> {
    content(done("open", || env.vfs.open(name, OpenMode::Read))?.as_ref())
}

fn remove(env: &Env, name: FileName) -> Checked {
    done("unlink", || env.vfs.unlink(name))?;
    done("sync_dir", || env.vfs.sync_dir())
}

/// Nothing but the lock file.
fn empty(env: &Env) -> Checked {
    let mut names = done("list", || env.vfs.list())?.names;
    names.retain(|name| name.kind != FileKind::Lock);
    ensure!(names.is_empty(), "left behind {names:?}");
    Ok(())
}

fn root(env: &Env) -> Checked {
    done("create_root", || env.vfs.create_root())?;
    done("create_root, again", || env.vfs.create_root())?;
    empty(env)?;
    ensure!(!env.vfs.describe().is_empty(), "no description");
    ensure!(env.vfs.descriptor_limit() >= 16, "too few descriptors");
    done("free_space", || env.vfs.free_space()).map(drop)
}

fn names(env: &Env) -> Checked {
    let name = FileName::log(1);
    let vfs = &env.vfs;
    for mode in [OpenMode::Read, OpenMode::ReadWrite] {
        let missing = uninterrupted(|| vfs.open(name, mode));
        ensure!(
            kind(&missing) == Some(IoErrorKind::NotFound),
            "open of a missing file gave {missing:?}"
        );
    }
    for result in [
        uninterrupted(|| vfs.unlink(name)),
        uninterrupted(|| vfs.rename(name, FileName::log(2))),
    ] {
        ensure!(
            kind(&result) == Some(IoErrorKind::NotFound),
            "a missing file gave {result:?}"
        );
    }
    create(env, name, b"first")?;
    let second = uninterrupted(|| vfs.create_new(name));
    ensure!(
        kind(&second) == Some(IoErrorKind::AlreadyExists),
        "create_new of an existing file gave {second:?}"
    );
    ensure!(
        content_of(env, name)? == b"first",
        "create_new altered a file"
    );
    remove(env, name)
}

fn replace(env: &Env) -> Checked {
    let (from, to) = (FileName::MANIFEST_TEMPORARY, FileName::MANIFEST);
    create(env, to, b"old content")?;
    let old = done("open", || env.vfs.open(to, OpenMode::Read))?;
    let new = create(env, from, b"new")?;
    done("rename", || env.vfs.rename(from, to))?;
    done("sync_dir", || env.vfs.sync_dir())?;
    ensure!(content_of(env, to)? == b"new", "rename did not replace");
    ensure!(
        content(old.as_ref())? == b"old content",
        "an open file changed when its name was replaced"
    );
    done("write", || write_all_at(new.as_ref(), b"N", 0))?;
    ensure!(
        content_of(env, to)? == b"New",
        "an open file does not follow its new name"
    );
    let gone = uninterrupted(|| env.vfs.open(from, OpenMode::Read));
    ensure!(
        kind(&gone) == Some(IoErrorKind::NotFound),
        "the old name still gives {gone:?}"
    );
    remove(env, to)
}

fn unlink_while_open(env: &Env) -> Checked {
    let name = FileName::segment(7);
    let writer = create(env, name, b"read on")?;
    let reader = done("open", || env.vfs.open(name, OpenMode::Read))?;
    remove(env, name)?;
    ensure!(
        content(reader.as_ref())? == b"read on",
        "content went with the name"
    );
    let next = create(env, name, b"another")?;
    ensure!(
        content(reader.as_ref())? == b"read on",
        "a new file of the name shows through"
    );
    done("write", || write_all_at(writer.as_ref(), b"R", 0))?;
    ensure!(
        content(reader.as_ref())? == b"Read on",
        "handles of one file differ"
    );
    ensure!(
        content(next.as_ref())? == b"another",
        "an unlinked file writes through its name"
    );
    remove(env, name)
}

fn listing(env: &Env) -> Checked {
    let before = done("list", || env.vfs.list())?;
    let mut made = vec![
        FileName::segment(0xAB),
        FileName::log(300),
        FileName::MANIFEST,
        FileName::log(u64::MAX),
        FileName {
            kind: FileKind::Run,
            number: 5,
            temporary: true,
        },
        FileName::log(20),
    ];
    for name in &made {
        create(env, *name, b"")?;
    }
    let mut listing = done("list", || env.vfs.list())?;
    listing.names.retain(|name| name.kind != FileKind::Lock);
    made.sort();
    ensure!(listing.names == made, "listed {:?}", listing.names);
    ensure!(
        listing.foreign == before.foreign,
        "our own names count as foreign"
    );
    made.iter().try_for_each(|name| remove(env, *name))
}

fn transfers(env: &Env) -> Checked {
    let name = FileName::log(1);
    let file = create(env, name, b"")?;
    ensure!(
        done("is_empty", || file.is_empty())?,
        "a new file is not empty"
    );
    done("write", || write_all_at(file.as_ref(), b"0123456789", 0))?;
    done("write", || write_all_at(file.as_ref(), b"abc", 4))?;
    ensure!(
        content(file.as_ref())? == b"0123abc789",
        "an overwrite went wrong"
    );
    done("write of nothing", || write_all_at(file.as_ref(), b"", 90))?;
    ensure!(
        done("len", || file.len())? == 10,
        "writing nothing grew the file"
    );
    done("write past the end", || {
        write_all_at(file.as_ref(), b"z", 12)
    })?;
    ensure!(
        content(file.as_ref())? == b"0123abc789\0\0z",
        "the gap before a write past the end is not zero"
    );
    let mut buffer = [9; 8];
    let read = done("read", || read_up_to_at(file.as_ref(), &mut buffer, 8))?;
    ensure!(
        read == 5 && buffer == *b"89\0\0z\x09\x09\x09",
        "a read over the end"
    );
    for offset in [13, 1 << 40] {
        let read = done("read", || read_up_to_at(file.as_ref(), &mut buffer, offset))?;
        ensure!(
            read == 0,
            "a read at {offset}, past the end, gave {read} bytes"
        );
    }
    many(file.as_ref())?;
    remove(env, name)
}

fn many(file: &dyn File) -> Checked {
    let (mut first, mut second, mut third) = ([0; 4], [0; 4], [0; 4]);
    let untried = Err(IoError::new(IoErrorKind::Other));
    let mut requests =
        [(4, &mut first), (10, &mut second), (50, &mut third)].map(|(offset, buffer)| {
            ReadRequest {
                offset,
                buffer,
                result: untried,
            }
        });
    file.read_many(&mut requests);
    for (request, most) in requests.iter().zip([4, 3, 0]) {
        match request.result {
            // A request may end short, but only at the end of the file with nothing.
            Ok(count) => ensure!(
                count <= most && (count > 0) == (most > 0),
                "read_many gave {count} bytes at {}",
                request.offset
            ),
            Err(error) => ensure!(error.kind == IoErrorKind::Interrupted, "read_many: {error}"),
        }
        let count = request.result.unwrap_or(0);
        let expected: &[u8] = if request.offset == 4 {
            b"abc7"
        } else {
            b"\0\0z"
        };
        ensure!(
            request.buffer[..count] == expected[..count],
            "read_many gave wrong bytes at {}",
            request.offset
        );
    }
    Ok(())
}

fn lengths(env: &Env) -> Checked {
    let name = FileName::log(1);
    let file = create(env, name, b"0123456789")?;
    done("set_len", || file.set_len(4))?;
    ensure!(content(file.as_ref())? == b"0123", "shrinking");
    done("set_len", || file.set_len(7))?;
    ensure!(
        content(file.as_ref())? == b"0123\0\0\0",
        "what was cut off comes back"
    );
    done("set_len", || file.set_len(0))?;
    ensure!(
        done("is_empty", || file.is_empty())?,
        "not empty after set_len(0)"
    );
    remove(env, name)
}

fn allocate(env: &Env) -> Checked {
    let name = FileName::log(1);
    let file = create(env, name, b"kept")?;
    done("allocate", || file.allocate(10_000))?;
    let bytes = content(file.as_ref())?;
    ensure!(bytes.len() == 10_000, "allocate gave {} bytes", bytes.len());
    ensure!(bytes.starts_with(b"kept"), "allocate altered content");
    ensure!(
        bytes.iter().skip(4).all(|byte| *byte == 0),
        "allocated bytes are not zero"
    );
    done("allocate", || file.allocate(10))?;
    done("allocate", || file.allocate(0))?;
    ensure!(
        done("len", || file.len())? == 10_000,
        "allocate shrank the file"
    );
    done("write", || write_all_at(file.as_ref(), b"end", 9_997))?;
    ensure!(
        done("len", || file.len())? == 10_000,
        "a write within grew the file"
    );
    remove(env, name)
}

fn modes(env: &Env) -> Checked {
    let name = FileName::segment(1);
    create(env, name, b"sealed")?;
    let reader = done("open", || env.vfs.open(name, OpenMode::Read))?;
    let refused = uninterrupted(|| reader.write_at(b"X", 0));
    ensure!(refused.is_err(), "a file opened for reading takes writes");
    let writer = done("open", || env.vfs.open(name, OpenMode::ReadWrite))?;
    done("write", || write_all_at(writer.as_ref(), b"S", 0))?;
    ensure!(
        content(reader.as_ref())? == b"Sealed",
        "handles of one file differ"
    );
    remove(env, name)
}

fn locks(env: &Env) -> Checked {
    use LockMode::{Exclusive, Shared};
    let lock = |mode| uninterrupted(|| env.vfs.try_lock(mode));
    let refused = |mode| kind(&lock(mode)) == Some(IoErrorKind::WouldBlock);
    let writer = done("lock", || lock(Exclusive))?;
    ensure!(refused(Exclusive), "two writers");
    ensure!(refused(Shared), "a reader beside a writer");
    drop(writer);
    let first = done("shared lock", || lock(Shared))?;
    let second = done("second shared lock", || lock(Shared))?;
    ensure!(refused(Exclusive), "a writer beside two readers");
    drop(first);
    ensure!(refused(Exclusive), "a writer beside one reader");
    drop(second);
    drop(done("lock after all went", || lock(Exclusive))?);
    let names = done("list", || env.vfs.list())?.names;
    ensure!(
        names == [FileName::LOCK],
        "the lock file is not listed: {names:?}"
    );
    Ok(())
}

fn map(env: &Env) -> Checked {
    let name = FileName::segment(1);
    let bytes: Vec<u8> = (0..10_000_u32).map(|i| (i % 251) as u8).collect();
    create(env, name, &bytes)?;
    let file = done("open", || env.vfs.open(name, OpenMode::Read))?;
    match uninterrupted(|| env.vfs.map(file.as_ref(), bytes.len() as u64)) {
        Err(error) if error.kind == IoErrorKind::Unsupported => {}
        Err(error) => return Err(format!("map: {error}")),
        Ok(map) => {
            ensure!(map.bytes() == bytes, "a map shows other bytes");
            ensure!(
                map.access(9_000, 1_000) == bytes.get(9_000..),
                "an access to a map shows other bytes"
            );
            ensure!(
                map.access(9_001, 1_000).is_none() && map.access(u64::MAX, 1).is_none(),
                "an access goes beyond a map"
            );
            let part = done("map of a part", || env.vfs.map(file.as_ref(), 5_000))?;
            let none = done("map of nothing", || env.vfs.map(file.as_ref(), 0))?;
            let beyond = uninterrupted(|| env.vfs.map(file.as_ref(), 10_001));
            ensure!(beyond.is_err(), "a map goes beyond the end of the file");
            drop(file);
            remove(env, name)?;
            ensure!(
                part.bytes() == &bytes[..5_000],
                "a map ended with its file's name"
            );
            ensure!(none.bytes().is_empty(), "a map of nothing has bytes");
            return Ok(());
        }
    }
    remove(env, name)
}

fn time(env: &Env) -> Checked {
    let (clock, signal) = (&env.clock, Signal::new());
    signal.raise();
    // Returns at once, or this never ends.
    clock.wait(&signal, 0, None);
    let until = clock.monotonic() + Duration::from_millis(3);
    clock.wait(&signal, 1, Some(until));
    ensure!(clock.monotonic() >= until, "a wait ended too early");
    let mut words = [[0; 16]; 2];
    for word in &mut words {
        done("entropy", || env.entropy.fill(word))?;
    }
    ensure!(words[0] != words[1], "random bytes repeat");
    Ok(())
}

fn links(env: &Env, other: &Env) -> Checked {
    let name = FileName::segment(4);
    // Longer than one buffer of a copy.
    let bytes: Vec<u8> = (0..600_000_u32).map(|i| (i % 253) as u8).collect();
    create(env, name, &bytes)?;
    let link = || env.vfs.link_or_copy_to(name, other.vfs.as_ref());
    done("link_or_copy_to", link)?;
    done("sync_dir", || other.vfs.sync_dir())?;
    ensure!(content_of(other, name)? == bytes, "a link or copy differs");
    let twice = uninterrupted(link);
    ensure!(
        kind(&twice) == Some(IoErrorKind::AlreadyExists),
        "a second link gave {twice:?}"
    );
    remove(env, name)?;
    ensure!(
        content_of(other, name)? == bytes,
        "a link went with its source"
    );
    let missing = uninterrupted(link);
    ensure!(
        kind(&missing) == Some(IoErrorKind::NotFound),
        "a link to a missing file gave {missing:?}"
    );
    remove(other, name)?;
    empty(other)
}
