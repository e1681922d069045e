//! Odd inputs, and the round trip with the writer.

use std::io::{BufReader, Read};

use proptest::prelude::*;

use super::super::writer::{Heading, Writer};
use super::super::{Dialect, Form};
use super::*;

type Records = Vec<(Vec<u8>, Vec<u8>)>;

/// Everything in `text`, read through a buffer of `buffer_bytes`.
fn read_with(text: &[u8], buffer_bytes: usize) -> Result<Vec<(Header, Records)>, TextError> {
    let mut reader = Reader::new(BufReader::with_capacity(buffer_bytes, text));
    let mut databases = Vec::new();
    while let Some(header) = reader.next_database()? {
        let mut records = Records::new();
        let (mut key, mut value) = (Vec::new(), Vec::new());
        while reader.next_record(&mut key, &mut value)? {
            records.push((key.clone(), value.clone()));
        }
        databases.push((header, records));
    }
    Ok(databases)
}

/// The records of a text that holds one database; the same through buffers of any size.
fn one(text: &str) -> Records {
    let mut results = [1, 2, 7, 8192].map(|size| read_with(text.as_bytes(), size).unwrap());
    assert!(results.iter().all(|result| *result == results[0]));
    assert_eq!(results[0].len(), 1);
    results[0].remove(0).1
}

/// Line number and message of a text that must be refused; the same through buffers of any size.
fn refused(text: &[u8]) -> (u64, String) {
    let results = [1, 3, 8192].map(|size| match read_with(text, size) {
        Err(TextError::Malformed { line, what }) => (line, what),
        other => panic!("{other:?} for {:?}", String::from_utf8_lossy(text)),
    });
    assert!(results.iter().all(|result| *result == results[0]));
    results[0].clone()
}

fn pairs(list: &[(&[u8], &[u8])]) -> Records {
    list.iter().map(|(k, v)| (k.to_vec(), v.to_vec())).collect()
}

const HEAD: &str = "VERSION=3\nformat=bytevalue\ntype=btree\nHEADER=END\n";
const HEAD_PRINT: &str = "VERSION=3\nformat=print\ntype=btree\nHEADER=END\n";

#[test]
fn both_forms() {
    let want = pairs(&[(b"k\\", b"a b"), (b"\x00\xff", b"")]);
    assert_eq!(
        one(&format!("{HEAD} 6b5c\n 612062\n 00FF\n \nDATA=END\n")),
        want
    );
    assert_eq!(
        one(&format!(
            "{HEAD_PRINT} k\\\\\n a b\n \\00\\FF\n \nDATA=END\n"
        )),
        want
    );
}

#[test]
fn empty_keys_and_values() {
    let want = pairs(&[(b"", b"\x01"), (b"\x02", b""), (b"", b"")]);
    assert_eq!(
        one(&format!("{HEAD} \n 01\n 02\n \n \n \nDATA=END\n")),
        want
    );
}

#[test]
fn leading_and_trailing_spaces_belong_to_printed_data() {
    assert_eq!(
        one(&format!("{HEAD_PRINT}  k \n  \nDATA=END\n")),
        pairs(&[(b" k ", b" ")])
    );
}

#[test]
fn carriage_returns_before_line_feeds_are_dropped() {
    let text = format!("{HEAD_PRINT} k\n \\0d\\0a\nDATA=END\n").replace('\n', "\r\n");
    assert_eq!(one(&text), pairs(&[(b"k", b"\r\n")]));
    // One in the middle of a line stays, and two before the line feed lose one.
    assert_eq!(
        one(&format!("{HEAD_PRINT} a\rb\n v\r\r\nDATA=END\n")),
        pairs(&[(b"a\rb", b"v\r")])
    );
    // So does one that the line feed of another line follows.
    assert_eq!(
        one(&format!("{HEAD_PRINT} \r\r\n \nDATA=END")),
        pairs(&[(b"\r", b"")])
    );
}

#[test]
fn the_last_line_feed_may_be_missing() {
    assert_eq!(
        one(&format!("{HEAD} 61\n 62\nDATA=END")),
        pairs(&[(b"a", b"b")])
    );
}

#[test]
fn a_header_without_format_is_bytevalue_and_unknown_fields_are_passed_over() {
    let text = "VERSION=3\nbt_minkey=2\nchksum=1\nfuture=a=b\nkeys=1\nduplicates=0\ntype=hash\n\
                HEADER=END\n 61\n 62\nDATA=END\n";
    assert_eq!(one(text), pairs(&[(b"a", b"b")]));
}

#[test]
fn databases_follow_one_another() {
    let text = "VERSION=3\nformat=print\ndatabase=one\nHEADER=END\n a\n b\nDATA=END\n\n\
                VERSION=3\ndatabase=two\nHEADER=END\n 61\n 62\nDATA=END\n\
                VERSION=2\nHEADER=END\nDATA=END\n\n";
    let found = read_with(text.as_bytes(), 5).unwrap();
    let names: Vec<_> = found
        .iter()
        .map(|(header, _)| header.database.clone())
        .collect();
    assert_eq!(names, [Some(b"one".to_vec()), Some(b"two".to_vec()), None]);
    assert_eq!((found[0].0.line, found[1].0.line), (3, 10));
    let want = pairs(&[(b"a", b"b")]);
    assert_eq!(
        (&found[0].1, &found[1].1, &found[2].1),
        (&want, &want, &Vec::new())
    );
}

#[test]
fn names_are_raw_in_lmdb_headers_and_escaped_in_others() {
    let name = |text: &[u8]| read_with(text, 64).unwrap().remove(0).0.database.unwrap();
    let berkeley = b"VERSION=3\ndatabase=a\\\\b\\ff\nHEADER=END\nDATA=END\n";
    assert_eq!(name(berkeley), b"a\\b\xff");
    let lmdb = b"VERSION=3\ndatabase=a\\\\b\\ff\xff\nmapsize=4096\nHEADER=END\nDATA=END\n";
    assert_eq!(name(lmdb), b"a\\\\b\\ff\xff");
    let (line, what) = refused(b"VERSION=3\ndatabase=a\\q\nHEADER=END\nDATA=END\n");
    assert_eq!(line, 3);
    assert!(what.starts_with("database name"), "{what}");
}

#[test]
fn nothing_holds_no_database() {
    assert!(read_with(b"", 8).unwrap().is_empty());
    assert!(read_with(b"\n\r\n", 8).unwrap().is_empty());
}

#[test]
fn malformed_data_is_refused_with_its_line() {
    let cases: [(&str, u64, &str); 10] = [
        (" 61\n 6\nDATA=END\n", 6, "value: odd number"),
        (" 6g\n 61\nDATA=END\n", 5, "key: a character"),
        (" 61\n 62\n 0x63\n 64\nDATA=END\n", 7, "key: a character"),
        (" 61\n", 5, "without DATA=END"),
        (" 61\n 62\n", 6, "without DATA=END"),
        (" 61\n 62", 6, "without DATA=END"),
        ("", 4, "without DATA=END"),
        (" 61\nDATA=END\n", 6, "no value"),
        ("61\n 62\nDATA=END\n", 5, "neither a line"),
        ("\n 61\n 62\nDATA=END\n", 5, "neither a line"),
    ];
    for (data, line, words) in cases {
        let (at, what) = refused(format!("{HEAD}{data}").as_bytes());
        assert_eq!(at, line, "{data:?}: {what}");
        assert!(what.contains(words), "{data:?}: {what}");
    }
    for (data, line) in [(" a\\\n b\n", 5), (" a\n b\\6\n", 6), (" a\n \\zz\n", 6)] {
        assert_eq!(
            refused(format!("{HEAD_PRINT}{data}").as_bytes()).0,
            line,
            "{data:?}"
        );
    }
}

#[test]
fn malformed_headers_are_refused_with_their_line() {
    let cases: [(&str, u64, &str); 12] = [
        ("hello\n", 1, "not a dump"),
        ("VERSION=3\nhello\nHEADER=END\n", 2, "no name=value"),
        ("VERSION=3\nformat=print\n", 2, "ends inside a header"),
        ("VERSION=1\nHEADER=END\n", 1, "version 1"),
        ("VERSION=4\nHEADER=END\n", 1, "version 4"),
        ("format=print\nHEADER=END\n", 2, "no VERSION"),
        ("VERSION=3\nformat=xml\nHEADER=END\n", 2, "format xml"),
        ("VERSION=3\ntype=recno\nHEADER=END\n", 2, "type recno"),
        ("VERSION=3\ntype=queue\nHEADER=END\n", 2, "type queue"),
        ("VERSION=3\nkeys=0\nHEADER=END\n", 2, "without keys"),
        ("VERSION=3\nduplicates=1\nHEADER=END\n", 2, "several values"),
        ("VERSION=3\ndupsort=1\nHEADER=END\n", 2, "several values"),
    ];
    for (text, line, words) in cases {
        let (at, what) = refused(text.as_bytes());
        assert_eq!(at, line, "{text:?}: {what}");
        assert!(what.contains(words), "{text:?}: {what}");
    }
}

#[test]
fn keys_of_the_longest_length_are_read_and_longer_ones_refused() {
    let key = vec![b'k'; KEY_BYTES_MAX];
    let text = |key: &[u8]| {
        let mut text = HEAD_PRINT.as_bytes().to_vec();
        text.push(b' ');
        text.extend_from_slice(key);
        text.extend_from_slice(b"\n v\nDATA=END\n");
        text
    };
    let found = read_with(&text(&key), 4096).unwrap();
    assert_eq!(found[0].1, [(key.clone(), b"v".to_vec())]);
    let (line, what) = refused(&text(&[&key[..], b"k"].concat()));
    assert_eq!(line, 5);
    assert!(what.contains("65535"), "{what}");
}

#[test]
fn endless_lines_are_refused_in_bounded_memory() {
    // An input without end: a reader that collected the line first would never return.
    let head = HEAD.as_bytes().chain(&b" 61\n "[..]);
    let mut reader = Reader::new(BufReader::new(head.chain(std::io::repeat(b'0'))));
    reader.next_database().unwrap();
    let (mut key, mut value) = (Vec::new(), Vec::new());
    match reader.next_record(&mut key, &mut value) {
        Err(TextError::Malformed { line: 6, what }) => assert!(what.contains("longer than")),
        other => panic!("{other:?}"),
    }
    assert!(value.capacity() < 4 * VALUE_BYTES_MAX);

    let mut reader = Reader::new(BufReader::new(std::io::repeat(b'x')));
    match reader.next_database() {
        Err(TextError::Malformed { line: 1, what }) => assert!(what.contains("too long")),
        other => panic!("{other:?}"),
    }
    let head = HEAD.as_bytes();
    let mut reader = Reader::new(BufReader::new(head.chain(std::io::repeat(b'x'))));
    reader.next_database().unwrap();
    assert!(reader.next_record(&mut key, &mut value).is_err());
}

#[test]
fn a_value_of_many_megabytes_is_read() {
    let value = vec![0xa5; 9 << 20];
    let mut writer = Writer::new(Vec::new());
    let heading = Heading {
        form: Form::Print,
        dialect: Dialect::Lmdb,
        database: None,
        map_bytes: 1 << 30,
    };
    writer.begin(&heading).unwrap();
    writer.record(b"big", &value).unwrap();
    writer.end().unwrap();
    let found = read_with(&writer.finish().unwrap(), 1 << 16).unwrap();
    assert!(found[0].1 == [(b"big".to_vec(), value)]);
}

fn database() -> impl Strategy<Value = (Option<String>, bool, Records)> {
    let bytes = || proptest::collection::vec(any::<u8>(), 0..40);
    let name = proptest::option::of("[a-z\\\\ \u{e4}=]{1,12}");
    (
        name,
        any::<bool>(),
        proptest::collection::vec((bytes(), bytes()), 0..12),
    )
}

proptest! {
    #[test]
    fn reader_undoes_writer(
        databases in proptest::collection::vec(database(), 0..4),
        berkeley in any::<bool>(),
        buffer_bytes in 1_usize..40,
        crlf in any::<bool>(),
    ) {
        let dialect = if berkeley { Dialect::Berkeley } else { Dialect::Lmdb };
        let mut writer = Writer::new(Vec::new());
        for (name, print, records) in &databases {
            let form = if *print { Form::Print } else { Form::Bytevalue };
            let database = name.as_deref();
            writer.begin(&Heading { form, dialect, database, map_bytes: 4096 }).unwrap();
            for (key, value) in records {
                writer.record(key, value).unwrap();
            }
            writer.end().unwrap();
        }
        let mut text = writer.finish().unwrap();
        if crlf {
            text = text.split(|&b| b == b'\n').collect::<Vec<_>>().join(&b"\r\n"[..]);
        }
        let found: Vec<_> = read_with(&text, buffer_bytes)
            .unwrap()
            .into_iter()
            .map(|(header, records)| {
                let name = header.database.map(|name| String::from_utf8(name).unwrap());
                (name, header.form == Form::Print, records)
            })
            .collect();
        prop_assert_eq!(found, databases);
    }

    #[test]
    fn no_input_panics(text in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = read_with(&text, 16);
        let _ = read_with(&[HEAD_PRINT.as_bytes(), &text].concat(), 16);
        let _ = read_with(&[HEAD.as_bytes(), &text].concat(), 16);
    }
}
