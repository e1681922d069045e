//! The golden stores: their scripts, and how they and what is expected of them are written.
//!
//! ```text
//! corpus/images/v1/NAME/store/      the directory as the script left it
//! corpus/images/v1/NAME/expect.dump what it holds, from the script's model
//! corpus/images/v1/NAME/expect.txt  what opening reports, read-only and for writing, and verification
//! corpus/images/v1/damage.txt       what verification says after a flip or a cut
//! ```

use sealstone::{Background, Durability, Fold, KeyspaceKind, Options};

use crate::script::{Op, Script, Step};

/// The images of this version.
pub const NAMES: [&str; 7] = [
    "small",
    "many-keyspaces",
    "torn-tail",
    "after-process-kill",
    "large-values",
    "hash-collisions",
    "folded",
];

/// The script of an image.
pub fn script(name: &str) -> Script {
    match name {
        "small" => small(),
        "many-keyspaces" => many_keyspaces(),
        "torn-tail" => torn_tail(),
        "after-process-kill" => after_process_kill(),
        "large-values" => large_values(),
        "hash-collisions" => hash_collisions(),
        "folded" => folded(),
        _ => panic!("no image is called {name}"),
    }
}

/// Sizes that keep files small: logs of one block.
fn options(seed: u8) -> Options {
    Options::new()
        .write_region_bytes(1 << 20)
        .filter_budget_bytes(1 << 20)
        .scan_bytes(1 << 20)
        .chunk_bytes(4096)
        .block_records(16)
        .seal_records(4096)
        .seal_bytes(3900)
        .batch_bytes_max(3900)
        .background(Background::Manual)
        .output_buffer_bytes(512)
        .key_fence_bytes(256)
        .manifest_roll_bytes(1024)
        .family_seed([seed; 16])
}

fn put(keyspace: &str, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Op {
    Op {
        keyspace: keyspace.to_owned(),
        key: key.as_ref().to_vec(),
        value: Some(value.as_ref().to_vec()),
    }
}

fn delete(keyspace: &str, key: impl AsRef<[u8]>) -> Op {
    Op {
        value: None,
        ..put(keyspace, key, [])
    }
}

fn synced(ops: impl IntoIterator<Item = Op>) -> Step {
    Step::Commit(Durability::Synced, ops.into_iter().collect())
}

fn buffered(ops: impl IntoIterator<Item = Op>) -> Step {
    Step::Commit(Durability::Buffered, ops.into_iter().collect())
}

fn keyspace(name: &str, kind: KeyspaceKind) -> Step {
    Step::Keyspace(name.to_owned(), kind)
}

/// `length` bytes that differ from value to value and compress well.
fn value(number: usize, length: usize) -> Vec<u8> {
    let text = format!("value {number} ");
    text.bytes().cycle().take(length).collect()
}

/// Both kinds; segments and log; an overwrite, a delete and an insert across them; two openings.
fn small() -> Script {
    let block = |n: usize| put("blocks", format!("block {n:03}"), value(n, 20 + n % 7));
    let steps = vec![
        keyspace("blocks", KeyspaceKind::WriteOnce),
        keyspace("state", KeyspaceKind::Mutable),
        synced((0..12).map(block)),
        synced([
            put("state", "tip", "block 011"),
            put("state", "height", "11"),
        ]),
        buffered([put("state", "gone", "soon"), block(12)]),
        synced([put("state", "tip", "block 012"), delete("state", "gone")]),
        Step::Seal,
        Step::Drain,
        synced([block(13), put("state", "tip", "block 013")]),
        Step::Close,
        Step::Open,
        synced([delete("state", "height"), delete("blocks", "block 000")]),
        buffered([block(14), put("state", "", "an empty key")]),
        Step::Drain,
        Step::Close,
    ];
    Script {
        options: options(1),
        steps,
    }
}

/// Names of all lengths and letters, an empty keyspace, one key in all of them.
fn many_keyspaces() -> Script {
    let mut names: Vec<String> = (0..20).map(|n| format!("keyspace-{n:02}")).collect();
    names.push("with a space".to_owned());
    names.push("\u{e4}\u{20ac}\u{1f512}".to_owned());
    names.push("x".repeat(255));
    names.push("a/b:c=d".to_owned());
    let kind = |n: usize| KeyspaceKind::ALL[n % 2];
    let mut steps = vec![keyspace("empty", KeyspaceKind::Mutable)];
    for (n, name) in names.iter().enumerate() {
        steps.push(keyspace(name, kind(n)));
    }
    let all = |text: &str| -> Vec<Op> {
        let same = names.iter().enumerate();
        same.map(|(n, name)| put(name, "the same key", format!("{text} {n}")))
            .collect()
    };
    steps.push(synced(all("value")));
    steps.push(synced([
        put(&names[3], [0xFF; 3], []),
        put(&names[4], [], [0]),
    ]));
    steps.push(Step::Seal);
    steps.push(Step::Drain);
    let mutable = names.iter().skip(1).step_by(2);
    steps.push(synced(
        mutable.map(|name| put(name, "later", name.as_bytes())),
    ));
    steps.push(Step::Close);
    Script {
        options: options(2).manifest_roll_bytes(4096),
        steps,
    }
}

/// Two commits that were never synced, of which a power cut took half of the first; an edit of which
/// it took half.
fn torn_tail() -> Script {
    let item = |n: usize| put("log", format!("item {n:02}"), value(n, 50));
    let steps = vec![
        keyspace("log", KeyspaceKind::Mutable),
        synced((0..10).map(item)),
        Step::Seal,
        Step::Drain,
        synced((10..13).map(item)),
        buffered([item(13), delete("log", "item 03")]),
        synced([item(14)]),
        Step::LostKeyspace("never acknowledged".to_owned(), KeyspaceKind::Mutable),
        Step::LostCommit(vec![item(15), item(16)]),
        Step::LostCommit(vec![item(17), delete("log", "item 14")]),
        Step::Drop,
        Step::TearLog,
        Step::TearManifest,
    ];
    Script {
        options: options(3),
        steps,
    }
}

/// Killed half-way through a flush, with commits behind it and one that nobody wrote.
fn after_process_kill() -> Script {
    let item = |n: usize| put("items", format!("{n:04}"), value(n, 30));
    let steps = vec![
        keyspace("items", KeyspaceKind::WriteOnce),
        synced((0..16).map(item)),
        Step::Seal,
        Step::Drain,
        synced((16..32).map(item)),
        synced([delete("items", "0007")]),
        Step::Seal,
        Step::FlushQuanta(12),
        synced((32..36).map(item)),
        buffered([delete("items", "0033"), item(36)]),
        Step::Queued(vec![item(37)]),
        Step::Kill,
    ];
    Script {
        options: options(4),
        steps,
    }
}

/// Lengths around every rounding and class, up to several chunks; keys that differ only behind what a
/// key fence can say.
fn large_values() -> Script {
    let lengths = [
        0, 1, 7, 8, 9, 15, 16, 17, 24, 40, 41, 100, 255, 256, 257, 511, 512, 1000, 1023, 1024,
        2047, 4079, 4096,
    ];
    let ops = |keyspace: &'static str, from: usize| {
        let numbered = lengths.iter().enumerate().skip(from).step_by(2);
        numbered.map(move |(n, length)| synced([put(keyspace, [n as u8; 3], value(n, *length))]))
    };
    let mut steps = vec![
        keyspace("once", KeyspaceKind::WriteOnce),
        keyspace("often", KeyspaceKind::Mutable),
    ];
    steps.extend(ops("once", 0));
    steps.extend(ops("often", 1));
    steps.push(synced([put("once", [b'k'; 700], "the key is longer")]));
    let shared = |n: usize| put("often", format!("{:~<40}{n}", "shared"), value(n, 100));
    steps.push(synced((0..8).map(shared)));
    steps.push(Step::Seal);
    steps.push(Step::Drain);
    steps.push(synced([put("often", "largest", value(99, 3000))]));
    steps.push(Step::Close);
    Script {
        options: options(5).seal_bytes(12_000).batch_bytes_max(6500),
        steps,
    }
}

/// A hash of 8 bits: every hash has several keys, over more than one index page.
fn hash_collisions() -> Script {
    let key = |n: usize| (n as u32).wrapping_mul(2_654_435_761).to_be_bytes();
    let item = |n: usize| put("keys", key(n), [n as u8]);
    let mut steps = vec![keyspace("keys", KeyspaceKind::Mutable)];
    for from in (0..380).step_by(38) {
        steps.push(synced((from..from + 38).map(item)));
    }
    steps.push(Step::Seal);
    steps.push(Step::Drain);
    steps.push(synced((0..380).step_by(7).map(|n| delete("keys", key(n)))));
    steps.push(synced(
        (0..40).step_by(5).map(|n| put("keys", key(n), "new")),
    ));
    steps.push(Step::Close);
    Script {
        options: options(6)
            .seal_bytes(12_000)
            .batch_bytes_max(4000)
            .hash_bits(8),
        steps,
    }
}

/// Five segments, of which four are under one index, in two parts; keys overwritten and deleted across
/// them, and a keyspace of the other kind with segments of its own.
fn folded() -> Script {
    let item = |n: usize, round: usize| put("items", format!("item {n:02}"), value(round, 20 + n));
    let mut steps = vec![
        keyspace("items", KeyspaceKind::Mutable),
        keyspace("blocks", KeyspaceKind::WriteOnce),
    ];
    for round in 0..5 {
        steps.push(synced((round * 3..round * 3 + 9).map(|n| item(n, round))));
        steps.push(synced([delete("items", format!("item {:02}", round * 4))]));
        if round < 2 {
            steps.push(synced([put("blocks", [round as u8; 4], value(round, 60))]));
        }
        steps.push(Step::Seal);
        steps.push(Step::Drain);
    }
    steps.push(synced([item(1, 9)]));
    steps.push(Step::Close);
    Script {
        options: options(7).fold(Fold::Runs(2)).run_part_records(20),
        steps,
    }
}
