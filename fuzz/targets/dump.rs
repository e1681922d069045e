//! Dump text: whatever the bytes are, the reader ends with records or with a line number, what it read
//! comes back from its own writer, and how the input is cut into buffers changes nothing.

use std::io::BufReader;

use crate::support::allocations::bounded;
use crate::support::{Seen, target};
use sealstone_cli::text::backslash::Scanner;
use sealstone_cli::text::reader::{Header, Reader, TextError};
use sealstone_cli::text::writer::{Heading, Writer};
use sealstone_cli::text::{Dialect, Form, escape};

/// Most databases with a header and nothing else that are read of one input.
const DATABASES_MAX: usize = 64;

type Record = (Vec<u8>, Vec<u8>);

/// What was read before the end or an error.
#[derive(Debug, Default, PartialEq, Eq)]
struct Read {
    databases: Vec<(Header, Vec<Record>)>,
    error: Option<(u64, String)>,
}

fn read(text: &[u8], buffer_bytes: usize, form: Option<Form>) -> Read {
    let mut read = Read::default();
    let mut reader = Reader::new(BufReader::with_capacity(buffer_bytes, text));
    read.error = read_all(&mut reader, &mut read.databases, form)
        .err()
        .map(|error| match error {
            TextError::Malformed { line, what } => (line, what),
            TextError::Io(error) => panic!("memory can't fail: {error}"),
        });
    read
}

fn read_all(
    reader: &mut Reader<BufReader<&[u8]>>,
    databases: &mut Vec<(Header, Vec<Record>)>,
    form: Option<Form>,
) -> Result<(), TextError> {
    while let Some(header) = reader.next_database()? {
        if let Some(form) = form {
            reader.set_form(form);
        }
        databases.push((header, Vec::new()));
        let (mut key, mut value) = (Vec::new(), Vec::new());
        while reader.next_record(&mut key, &mut value)? {
            let (_, records) = databases.last_mut().expect("just pushed");
            records.push((key.clone(), value.clone()));
        }
        if databases.len() == DATABASES_MAX {
            break;
        }
    }
    Ok(())
}

/// Writes the records anew and reads them back.
fn round_trip(records: &[Record], database: Option<&str>, form: Form, dialect: Dialect) {
    let mut writer = Writer::new(Vec::new());
    let heading = Heading {
        form,
        dialect,
        database,
        map_bytes: 1 << 20,
    };
    writer.begin(&heading).expect("writes");
    for (key, value) in records {
        writer.record(key, value).expect("writes");
    }
    writer.end().expect("writes");
    let text = writer.finish().expect("writes");
    let again = read(&text, 64, None);
    assert_eq!(again.error, None, "{text:?}");
    let [(header, found)] = again.databases.as_slice() else {
        panic!("one database was written: {again:?}");
    };
    assert_eq!(found, records);
    assert_eq!(header.database.as_deref(), database.map(str::as_bytes));
    let mut scanner = Scanner::new();
    scanner.push(&text);
    assert!(!scanner.is_unescaped(), "{text:?}");
}

fn dump(bytes: &[u8], seen: &Seen) {
    // The buffers, and twice what grows.
    let most = 16 * bytes.len() + (64 << 10);
    let whole = bounded(most, || read(bytes, 8192, None));
    assert_eq!(whole, read(bytes, 1 + bytes.len() % 7, None));
    read(bytes, 16, Some(Form::Unescaped));
    let lines = bytes.iter().filter(|byte| **byte == b'\n').count() as u64 + 1;
    match &whole.error {
        Some((line, what)) => {
            assert!(*line <= lines && !what.is_empty());
            seen.hit("malformed");
        }
        None => seen.hit("whole"),
    }
    for (header, records) in &whole.databases {
        seen.hit("databases");
        if records
            .iter()
            .any(|(key, value)| !key.is_empty() && !value.is_empty())
        {
            seen.hit("databases with records");
        }
        let name = header
            .database
            .as_deref()
            .and_then(|name| std::str::from_utf8(name).ok());
        // A name has a keyspace's length.
        let name = name.filter(|name| (1..256).contains(&name.len()));
        round_trip(records, name, Form::Bytevalue, Dialect::Berkeley);
        round_trip(records, name, Form::Print, Dialect::Berkeley);
    }
    for form in [Form::Bytevalue, Form::Print] {
        let mut text = Vec::new();
        escape::encode(form, bytes, &mut text);
        assert_eq!(escape::decode(form, &text).as_deref(), Ok(bytes));
        if escape::decode(form, bytes).is_ok() {
            seen.hit("decodable");
        }
    }
}

target!("dump", dump, inputs 20000, bytes 512, seen [
    ("malformed", 5000),
    ("whole", 50),
    ("databases with records", 200),
    ("decodable", 1000),
]);
