//! The golden stores: every one opens, holds and says what it should, and the writer still writes them.
//!
//! While the format is at the version that the files in `corpus/images` are of, playing their scripts
//! gives the same bytes; later versions keep reading them.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests look at the real directory from outside"
)]

mod damage;
mod images;
mod python;
mod report;
mod script;
mod tear;
mod vectors;
mod versions;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use sealstone::Store;

/// Where the images of version 1 are.
fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/images/v1")
}

fn text(path: PathBuf) -> String {
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn images_hold_what_they_should() {
    for name in images::NAMES {
        let image = corpus().join(name);
        let expected = text(image.join("expect.dump"));
        let model = script::model(&images::script(name));
        assert_eq!(report::dump(&model), expected, "{name}: script");
        let (_guard, path) = report::copy(&image.join("store"));
        for read_only in [true, false, true] {
            let options = report::options().read_only(read_only);
            let store = Store::open_with(script::env(&path), options).expect("opens");
            let contents = report::contents(&store).expect("reads");
            assert_eq!(report::dump(&contents), expected, "{name}");
            for (keyspace, records) in &contents {
                let info = store
                    .keyspaces()
                    .into_iter()
                    .find(|info| info.name == *keyspace);
                let keyspace = report::keyspace(&store, &info.expect("listed")).expect("opens");
                for (key, value) in records {
                    let got = keyspace.get(key).expect("reads");
                    assert_eq!(got.as_deref(), Some(value.as_slice()), "{name}: {key:02x?}");
                }
            }
            store.close().expect("closes");
        }
    }
}

#[test]
fn images_are_reported_as_they_should_be() {
    for name in images::NAMES {
        let image = corpus().join(name);
        let expected = text(image.join("expect.txt"));
        assert_eq!(report::opened(&image.join("store")), expected, "{name}");
    }
}

#[test]
fn damage_is_reported_as_it_should_be() {
    let expected = text(corpus().join("damage.txt"));
    assert_eq!(damage::table(&corpus()), expected);
}

/// The images whose scripts end in order.
const CLEAN: [&str; 5] = [
    "small",
    "many-keyspaces",
    "large-values",
    "hash-collisions",
    "folded",
];

#[test]
fn the_writer_still_writes_the_same_bytes() {
    for name in images::NAMES {
        let golden = files(&corpus().join(name).join("store"));
        let [first, second] = [(); 2].map(|()| {
            let guard = tempfile::tempdir().expect("a directory");
            let store = guard.path().join("store");
            play_in_child(name, &store);
            files(&store)
        });
        assert_same(name, &first, &second);
        if CLEAN.contains(&name) {
            assert_same(name, &first, &golden);
        }
        assert_eq!(segments(&first), segments(&golden), "{name}: segments");
    }
}

fn assert_same(image: &str, a: &BTreeMap<String, Vec<u8>>, b: &BTreeMap<String, Vec<u8>>) {
    assert!(
        a.keys().eq(b.keys()),
        "{image}: {:?}, {:?}",
        a.keys(),
        b.keys()
    );
    for (file, bytes) in a {
        let differs = bytes.iter().zip(&b[file]).position(|(a, b)| a != b);
        assert_eq!(differs, None, "{image}/{file}: the first byte that differs");
        assert_eq!(bytes.len(), b[file].len(), "{image}/{file}");
    }
}

/// Whole segments, whatever their numbers.
fn segments(files: &BTreeMap<String, Vec<u8>>) -> BTreeSet<&Vec<u8>> {
    let segments = files.iter().filter(|(name, _)| name.ends_with(".seg"));
    let whole = segments.filter(|(_, bytes)| bytes.ends_with(b"SEALSEGM"));
    whole.map(|(_, bytes)| bytes).collect()
}

fn files(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = std::fs::read_dir(directory).expect("a directory");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    paths
        .map(|path| {
            let name = path.file_name().expect("a name").to_string_lossy();
            (name.into_owned(), std::fs::read(&path).expect("reads"))
        })
        .collect()
}

/// What tells the child which script to play, and where.
const PLAY: [&str; 2] = ["SEALSTONE_TEST_IMAGE", "SEALSTONE_TEST_IMAGE_DIRECTORY"];

/// Not a test of its own: one script kills its process.
#[test]
#[ignore = "run by the_writer_still_writes_the_same_bytes"]
fn child_plays_a_script() {
    let [Some(name), Some(directory)] = PLAY.map(std::env::var_os) else {
        return;
    };
    let name = name.into_string().expect("an image's name");
    script::play(&images::script(&name), Path::new(&directory));
}

fn play_in_child(name: &str, store: &Path) {
    let status = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "child_plays_a_script", "--ignored"])
        .envs([(PLAY[0], name.as_ref()), (PLAY[1], store.as_os_str())])
        .stdout(std::process::Stdio::null())
        .status()
        .expect("starts");
    let killed = status.code().is_none();
    assert_eq!(killed, name == "after-process-kill", "{name}: {status}");
    assert!(killed || status.success(), "{name}: {status}");
}
