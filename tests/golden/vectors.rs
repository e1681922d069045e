//! The test vectors of `docs/format.md`, read from there and computed by the engine's own code.
//!
//! `tests/format/vectors.py` does the same with the Python readers' functions.

use std::collections::BTreeSet;
use std::path::Path;

use sealstone::KeyspaceId;
use sealstone::env::{Env, FileName, OpenMode, Vfs, io};
use sealstone::filter::{Algorithm, Block, FilterShape};
use sealstone::index::{Entry, PackedEntry, fence_of, page, size_class_of};
use sealstone::log::{self, FrameHeader, FrameKind, LogIdentity, payload_checksum};
use sealstone::manifest::{Change, ManifestState, ManifestWriter};
use sealstone::segment::fences::Separator;
use sealstone::segment::identity::{self, Chain, Domain, SegmentIdentity, record_crc_start};
use sealstone::segment::record::{RecordHeader, padded_bytes};
use sealstone::types::{Hasher, KeyHash, RecordKind};
use siphasher::sip::SipHasher13;

use crate::report::hex;

/// The kinds of vector there are.
const NAMES: [&str; 18] = [
    "crc32c",
    "siphash13",
    "xxh3",
    "key-hash",
    "seed",
    "record-start",
    "chain",
    "size-class",
    "index-entry",
    "page-checksum",
    "page-fence",
    "key-fence",
    "filter-place",
    "filter-block",
    "log-head",
    "log-frame",
    "segment-record",
    "manifest",
];

#[test]
fn the_document_is_right() {
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/format.md");
    let document = std::fs::read_to_string(document).expect("reads");
    let mut seen = BTreeSet::new();
    let mut wrong = Vec::new();
    for line in lines(&document) {
        let (question, answer) = line.split_once(" = ").expect("a vector has an answer");
        let mut words = question.split(' ');
        let name = words.next().expect("a name");
        let arguments: Vec<&str> = words.collect();
        seen.insert(name);
        let computed = compute(name, &arguments);
        if computed != answer {
            wrong.push(format!("{question} = {computed}"));
        }
    }
    assert!(
        wrong.is_empty(),
        "not as in the document:\n{}",
        wrong.join("\n")
    );
    assert_eq!(seen, NAMES.into(), "some kinds of vector are missing");
}

/// The lines of the fenced blocks that are marked as vectors.
fn lines(document: &str) -> impl Iterator<Item = &str> {
    let mut inside = false;
    document.lines().filter(move |line| {
        let fence = line.starts_with("```");
        inside = if fence { *line == "```vectors" } else { inside };
        inside && !fence && !line.is_empty()
    })
}

/// Bytes as hex digits; `-` for none, `xx*n` for repetition, `+` between parts.
fn bytes(text: &str) -> Vec<u8> {
    let part = |part: &str| {
        let (digits, count) = part.split_once('*').unwrap_or((part, "1"));
        let pairs = digits.as_bytes().chunks(2);
        let pairs = pairs.map(|pair| std::str::from_utf8(pair).expect("ASCII"));
        let once: Vec<u8> = pairs
            .map(|pair| u8::from_str_radix(pair, 16).expect("hex digits"))
            .collect();
        once.repeat(count.parse().expect("a count"))
    };
    match text {
        "-" => Vec::new(),
        _ => text.split('+').flat_map(part).collect(),
    }
}

fn array<const N: usize>(text: &str) -> [u8; N] {
    bytes(text).try_into().expect("an argument of that length")
}

/// Numbers are decimal, or hex behind `0x`.
fn number(text: &str) -> u64 {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).expect("hex digits"),
        None => text.parse().expect("a number"),
    }
}

fn small<T: TryFrom<u64>>(text: &str) -> T {
    T::try_from(number(text)).ok().expect("a small number")
}

fn identity_of(text: &str) -> SegmentIdentity {
    SegmentIdentity::decode(&array(text)).expect("an identity")
}

fn kind(text: &str) -> RecordKind {
    RecordKind::from_code(small(text)).expect("a kind of record")
}

fn compute(name: &str, arguments: &[&str]) -> String {
    match (name, arguments) {
        ("crc32c", [start, data]) => {
            format!("{:08x}", crc32c::crc32c_append(small(start), &bytes(data)))
        }
        ("siphash13", [key, data]) => {
            let mut hasher = SipHasher13::new_with_key(&array(key));
            std::hash::Hasher::write(&mut hasher, &bytes(data));
            format!("{:016x}", std::hash::Hasher::finish(&hasher))
        }
        ("xxh3", [seed, data]) => {
            format!("{:016x}", identity::checksum(number(seed), &bytes(data)))
        }
        ("key-hash", [seed, bits, keyspace, key]) => {
            let hasher = Hasher::new(array(seed), small(bits));
            let hash = hasher.hash(KeyspaceId(small(keyspace)), &bytes(key));
            format!("{:012x}", hash.0)
        }
        ("seed", [of, domain, place]) => {
            let domain = [
                Domain::Record,
                Domain::KeyFences,
                Domain::IndexPage,
                Domain::Filter,
                Domain::PageFences,
            ][number(domain) as usize - 1];
            let seed = identity_of(of).seeds().seed(domain, number(place));
            format!("{seed:016x}")
        }
        ("record-start", [of, offset]) => {
            let base = identity_of(of).seeds().record_base();
            format!("{:08x}", record_crc_start(base, number(offset)))
        }
        ("chain", sums) => {
            let mut chain = Chain::default();
            sums.iter().for_each(|sum| chain.push(number(sum)));
            format!("{:016x}", chain.0)
        }
        ("segment-record", arguments) => segment_record(arguments),
        ("log-head", arguments) => hex(&log_head(arguments)),
        ("log-frame", arguments) => log_frame(arguments),
        ("manifest", arguments) => hex(&manifest(arguments)),
        _ => compute_index(name, arguments),
    }
}

fn compute_index(name: &str, arguments: &[&str]) -> String {
    match (name, arguments) {
        ("size-class", [length]) => size_class_of(number(length)).to_string(),
        ("index-entry", [hash, offset, class, tombstone]) => {
            let location = number(offset) / 8;
            let tombstone = number(tombstone) == 1;
            let entry = Entry::new(KeyHash(number(hash)), location, small(class), tombstone);
            hex(&entry.pack())
        }
        ("page-checksum", [of, place, entries]) => {
            let seed = identity_of(of)
                .seeds()
                .seed(Domain::IndexPage, number(place));
            let entries = bytes(entries);
            let entries: Vec<PackedEntry> = entries.as_chunks().0.to_vec();
            let mut page = [0; page::PAGE_BYTES];
            format!("{:016x}", page::encode_page(&entries, seed, &mut page))
        }
        ("page-fence", [hash, prefix]) => {
            format!("{:08x}", fence_of(KeyHash(number(hash)), small(prefix)))
        }
        ("key-fence", [previous, previous_key, next, next_key]) => {
            let (previous_key, next_key) = (bytes(previous_key), bytes(next_key));
            let previous = (KeyspaceId(small(previous)), previous_key.as_slice());
            let next = (KeyspaceId(small(next)), next_key.as_slice());
            let separator = Separator::between(previous, next);
            format!("{} {}", u8::from(separator.inexact), hex(separator.bytes()))
        }
        ("filter-place", [hash, prefix, blocks]) => {
            let shape = FilterShape {
                algorithm: Algorithm::Split,
                bits_per_key: 12,
                prefix_bits: small(prefix),
                blocks: number(blocks),
            };
            shape.block_of(KeyHash(number(hash))).to_string()
        }
        ("filter-block", [algorithm, k, hashes @ ..]) => {
            let algorithm = Algorithm::from_code(small(algorithm), small(k)).expect("known");
            let mut block = Block::default();
            for hash in hashes {
                block.insert(algorithm, KeyHash(number(hash)));
            }
            hex(&block.to_bytes())
        }
        _ => panic!("no vector is called {name} {arguments:?}"),
    }
}

fn segment_record(arguments: &[&str]) -> String {
    let [of, offset, keyspace, sequence, code, key, value] = arguments else {
        panic!("seven arguments");
    };
    let (key, value) = (bytes(key), bytes(value));
    let header = RecordHeader {
        keyspace: KeyspaceId(small(keyspace)),
        sequence: number(sequence),
        kind: kind(code),
        key_len: key.len() as u16,
        value_len: value.len() as u32,
    };
    let base = identity_of(of).seeds().record_base();
    let mut record = header
        .encode(base, number(offset), &key, &[&value])
        .to_vec();
    record.extend_from_slice(&key);
    record.extend_from_slice(&value);
    record.resize(padded_bytes(key.len(), value.len() as u64) as usize, 0);
    hex(&record)
}

fn log_identity(store: &str, number_of: &str, incarnation: &str) -> LogIdentity {
    LogIdentity {
        store_id: u128::from_le_bytes(array(store)),
        number: number(number_of),
        incarnation: number(incarnation),
    }
}

fn log_head(arguments: &[&str]) -> Vec<u8> {
    let [store, file, incarnation] = arguments else {
        panic!("three arguments");
    };
    let env = Env::in_memory();
    let identity = log_identity(store, file, incarnation);
    env.vfs.create_root().expect("creates");
    log::create(&*env.vfs, &identity, 64).expect("creates");
    content(&*env.vfs, identity.name())
}

fn log_frame(arguments: &[&str]) -> String {
    let [
        store,
        file,
        incarnation,
        offset,
        sequence,
        durable,
        keyspace,
        code,
        key,
        value,
    ] = arguments
    else {
        panic!("ten arguments");
    };
    let (key, value) = (bytes(key), bytes(value));
    let (key_len, value_len) = (key.len() as u16, value.len() as u32);
    let keyspace = KeyspaceId(small(keyspace));
    let mut payload = log::record::encode_header(kind(code), keyspace, key_len, value_len).to_vec();
    payload.extend_from_slice(&key);
    payload.extend_from_slice(&value);
    payload.resize(payload.len().next_multiple_of(8), 0);
    let header = FrameHeader {
        kind: FrameKind::Commit,
        sequence: number(sequence),
        durable_through: number(durable),
        payload_len: payload.len() as u32,
        records: 1,
        payload_crc: payload_checksum(&[&payload]),
    };
    let identity = log_identity(store, file, incarnation);
    hex(&header.encode(&identity, number(offset))) + &hex(&payload)
}

/// A manifest without names, and an edit that sets the next number to 5.
fn manifest(arguments: &[&str]) -> Vec<u8> {
    let [store, seed, bits, incarnation] = arguments else {
        panic!("four arguments");
    };
    let seed = array(seed);
    let store = u128::from_le_bytes(array(store));
    let mut state = ManifestState::new(store, u128::from_le_bytes(seed), seed, small(bits));
    state.incarnation = number(incarnation);
    let env = Env::in_memory();
    env.vfs.create_root().expect("creates");
    let mut writer = ManifestWriter::create(&*env.vfs, &state, 0).expect("creates");
    writer.append(&[Change::NextNumber(5)]).expect("appends");
    content(&*env.vfs, FileName::MANIFEST)
}

fn content(vfs: &dyn Vfs, name: FileName) -> Vec<u8> {
    let file = vfs.open(name, OpenMode::Read).expect("opens");
    let mut content = vec![0; file.len().expect("a length") as usize];
    io::read_exact_at(&*file, &mut content, 0).expect("reads");
    content
}
