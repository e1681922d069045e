//! What a store holds and says, as text that can be compared.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use sealstone::{
    Background, Error, Keyspace, KeyspaceInfo, KeyspaceKind, KeyspaceOptions, OpenReport, Options,
    Store,
};

use crate::script::{Model, env};

/// Keyspaces by name in LMDB's dump text, without a map size.
pub fn dump(model: &Model) -> String {
    let mut text = String::new();
    for (name, records) in model {
        let _ = writeln!(
            text,
            "VERSION=3\nformat=bytevalue\ndatabase={name}\ntype=btree\nHEADER=END"
        );
        for (key, value) in records {
            let _ = writeln!(text, " {}\n {}", hex(key), hex(value));
        }
        let _ = writeln!(text, "DATA=END");
    }
    text
}

/// Bytes as hex digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// A copy of a store's directory that goes away with the guard.
pub fn copy(store: &Path) -> (tempfile::TempDir, PathBuf) {
    let guard = tempfile::tempdir().expect("a directory");
    let path = guard.path().join("store");
    std::fs::create_dir(&path).expect("creates");
    for entry in std::fs::read_dir(store).expect("a directory") {
        let from = entry.expect("an entry").path();
        let to = path.join(from.file_name().expect("a name"));
        std::fs::copy(&from, to).expect("copies");
    }
    (guard, path)
}

/// Memory enough for every image.
pub fn options() -> Options {
    Options::new()
        .background(Background::Manual)
        .memory_bytes(8 << 20)
        .create(false)
}

/// A keyspace by what the store says of it.
pub fn keyspace(store: &Store, info: &KeyspaceInfo) -> Result<Keyspace, Error> {
    let options = match info.kind {
        KeyspaceKind::WriteOnce => KeyspaceOptions::write_once(),
        KeyspaceKind::Mutable => KeyspaceOptions::mutable(),
    };
    store.keyspace(&info.name, options)
}

/// Everything that an open store holds.
pub fn contents(store: &Store) -> Result<Model, Error> {
    let mut model = Model::new();
    for info in store.keyspaces() {
        let records = keyspace(store, &info)?.iter()?;
        model.insert(info.name, records.collect::<Result<_, _>>()?);
    }
    Ok(model)
}

/// What opening a copy says, read-only and for writing, and what verification says.
pub fn opened(store: &Path) -> String {
    let (_guard, path) = copy(store);
    let mut text = String::new();
    for (title, read_only) in [("read-only", true), ("for writing", false)] {
        let store = Store::open_with(env(&path), options().read_only(read_only)).expect("opens");
        let _ = write!(text, "opened {title}:\n{}", opening(&store.open_report()));
    }
    text + &format!("verified:\n{}", damage(store))
}

fn opening(report: &OpenReport) -> String {
    let mut text = String::new();
    for (what, count) in [
        ("recovered through commit", report.recovered_through),
        ("replayed commits", report.replayed_commits),
        ("replayed records", report.replayed_records),
        ("bytes cut off the manifest", report.manifest_cut_bytes),
        ("bytes rewritten", report.rewritten_bytes),
        ("segments written", report.flushed_segments),
        ("generations split", report.split_generations),
        ("files dropped", report.dropped_files),
    ] {
        let _ = writeln!(text, "  {what}: {count}");
    }
    for cut in &report.cut {
        let (file, offset, bytes, what) = (cut.file, cut.offset, cut.bytes, &cut.what);
        let _ = writeln!(text, "  cut {file} at byte {offset}: {bytes} bytes, {what}");
    }
    text
}

/// What verification lists, a line each.
pub fn damage(store: &Path) -> String {
    let report = match Store::verify_closed(&env(store), &mut |_| ()) {
        Ok(report) => report,
        Err(error) => return format!("  refused: {}\n", line(&error)),
    };
    assert_eq!(report.unlisted, 0, "small stores, few damages");
    let mut text = format!("  {} files, {} records\n", report.files, report.records);
    for damage in &report.damaged {
        let (file, offset, what) = (damage.file, damage.offset, &damage.what);
        let _ = writeln!(text, "  {file} at byte {offset}: {what}");
    }
    // Some errors name the directory, which is another one every time.
    text.replace(&*store.to_string_lossy(), "STORE")
}

/// The parts of an error that say where it happened.
pub fn line(error: &Error) -> String {
    let file = error.file().map_or_else(String::new, |f| format!(" {f}"));
    let offset = error
        .offset()
        .map_or_else(String::new, |at| format!(" at byte {at}"));
    format!("{:?}{file}{offset}: {}", error.kind(), error.detail())
}
