//! Where `load` reads from: files or standard input, each a row of databases.
//!
//! `load --verify` reads everything again. A regular file is opened again; of anything else (a
//! pipe, a terminal) the keys and a 128-bit hash of each value are kept in an unnamed temporary
//! file, so that memory stays bounded and a value is still compared, by its hash.
//!
//! An input in LMDB's `print` form is looked through before it is loaded, to learn whether its
//! backslashes are escaped; what can't be read twice is copied to a temporary file for it.

use std::cell::OnceCell;
use std::fs::File;
use std::hash::Hasher as _;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Seek, Write};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use indicatif::ProgressBar;
use siphasher::sip128::{Hasher128, SipHasher13};

use crate::open::MAIN;
use crate::output::{Failure, Outcome};
use crate::text::Form;
use crate::text::backslash::Scanner;
use crate::text::reader::{Header, Reader};

const BUFFER_BYTES: usize = 1 << 18;

/// One input.
#[derive(Debug)]
pub struct Input {
    /// As it is named in messages.
    pub name: String,
    /// `None` for standard input.
    path: Option<PathBuf>,
    /// The length of a regular file, in bytes; only such a file can be read twice.
    pub regular_bytes: Option<u64>,
    backslashes: Backslashes,
    /// What looking through it found.
    unescaped: OnceCell<bool>,
}

/// How backslashes stand in LMDB's `print` form.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Backslashes {
    /// Decided by looking through the input
    #[default]
    Auto,
    /// Doubled, as LMDB writes them since 0.9.25
    Escaped,
    /// As they are, as LMDB wrote them before
    Unescaped,
}

type Source = Box<dyn BufRead>;

impl Input {
    /// The inputs that the arguments name, each checked to be there; standard input for none.
    pub fn from_arguments(arguments: &[PathBuf], backslashes: Backslashes) -> Outcome<Vec<Self>> {
        let standard = [PathBuf::from("-")];
        let arguments = if arguments.is_empty() {
            &standard
        } else {
            arguments
        };
        let inputs: Vec<_> = arguments
            .iter()
            .map(|argument| Self::new(argument, backslashes))
            .collect::<Outcome<_>>()?;
        if inputs.iter().filter(|input| input.path.is_none()).count() > 1 {
            return Err(Failure::new(
                "standard input can be read once only; give - once",
            ));
        }
        Ok(inputs)
    }

    fn new(argument: &PathBuf, backslashes: Backslashes) -> Outcome<Self> {
        if argument.as_os_str() == "-" {
            return Ok(Self {
                name: "standard input".to_owned(),
                path: None,
                regular_bytes: None,
                backslashes,
                unescaped: OnceCell::new(),
            });
        }
        let name = argument.display().to_string();
        let metadata = std::fs::metadata(argument).map_err(|e| Failure::io(&name, &e))?;
        if metadata.is_dir() {
            return Err(Failure::new(format!(
                "{name}: is a directory; give dump files"
            )));
        }
        Ok(Self {
            name,
            path: Some(argument.clone()),
            regular_bytes: metadata.is_file().then_some(metadata.len()),
            backslashes,
            unescaped: OnceCell::new(),
        })
    }

    /// Reads all databases of this input into `sink`.
    pub fn read(&self, bar: &ProgressBar, namer: &mut Namer, sink: &mut dyn Sink) -> Outcome<()> {
        let source = bar.wrap_read(self.open()?);
        let buffered: Source = Box::new(BufReader::with_capacity(BUFFER_BYTES, source));
        self.read_databases(&mut Reader::new(buffered), namer, sink)
    }

    fn open(&self) -> Outcome<Box<dyn Read>> {
        Ok(match &self.path {
            None => Box::new(io::stdin()),
            Some(path) => Box::new(File::open(path).map_err(|e| Failure::io(&self.name, &e))?),
        })
    }

    fn read_databases(
        &self,
        reader: &mut Reader<Source>,
        namer: &mut Namer,
        sink: &mut dyn Sink,
    ) -> Outcome<()> {
        let failure = |what: &dyn std::fmt::Display| Failure::new(format!("{}: {what}", self.name));
        let (mut key, mut value) = (Vec::new(), Vec::new());
        let mut databases: u64 = 0;
        while let Some(header) = reader.next_database().map_err(|e| failure(&e))? {
            let name = namer
                .name(&header)
                .map_err(|what| failure(&format!("line {}: {what}", header.line)))?;
            if header.is_ambiguous() && self.is_unescaped(reader)? {
                reader.set_form(Form::Unescaped);
            }
            sink.database(&name)?;
            while reader
                .next_record(&mut key, &mut value)
                .map_err(|e| failure(&e))?
            {
                sink.record(&mut key, &mut value, reader.line())?;
            }
            sink.end()?;
            databases += 1;
        }
        if databases == 0 {
            return Err(failure(
                &"holds no database; make a dump with mdb_dump or db_dump",
            ));
        }
        Ok(())
    }
}

impl Input {
    /// Whether backslashes of this input in LMDB's `print` form are not escaped.
    fn is_unescaped(&self, reader: &mut Reader<Source>) -> Outcome<bool> {
        if self.backslashes != Backslashes::Auto {
            return Ok(self.backslashes == Backslashes::Unescaped);
        }
        if let Some(&known) = self.unescaped.get() {
            return Ok(known);
        }
        let found = if self.regular_bytes.is_some() {
            let mut source = BufReader::with_capacity(BUFFER_BYTES, self.open()?);
            look_through(&mut source, &mut io::sink())
        } else {
            tempfile::tempfile().and_then(|mut copy| {
                let found = look_through(reader.input_mut(), &mut copy)?;
                copy.rewind()?;
                *reader.input_mut() = Box::new(BufReader::with_capacity(BUFFER_BYTES, copy));
                Ok(found)
            })
        };
        let found = found.map_err(|e| Failure::io(&self.name, &e))?;
        if found {
            // The status stays 0: it is a word of caution, and may be lost.
            let _ = writeln!(
                io::stderr(),
                "sealstone: {}: read as LMDB before 0.9.25 wrote print form, with backslashes not \
                 escaped; where two hex digits follow one it can't be told from an escape, so \
                 prefer dumps made without -p (or say --backslashes)",
                self.name
            );
        }
        Ok(*self.unescaped.get_or_init(|| found))
    }
}

/// Copies the rest of a source, and says whether it shows unescaped backslashes.
fn look_through(source: &mut dyn BufRead, copy: &mut dyn Write) -> io::Result<bool> {
    let mut scanner = Scanner::new();
    loop {
        let piece = source.fill_buf()?;
        if piece.is_empty() {
            return Ok(scanner.is_unescaped());
        }
        scanner.push(piece);
        copy.write_all(piece)?;
        let used = piece.len();
        source.consume(used);
    }
}

/// The length of all inputs in bytes, as far as it is known.
pub fn total_bytes(inputs: &[Input]) -> u64 {
    inputs.iter().filter_map(|input| input.regular_bytes).sum()
}

/// What takes the databases of an input, in order.
pub trait Sink {
    /// A database begins, whose records go to this keyspace.
    fn database(&mut self, keyspace: &str) -> Outcome<()>;
    /// A record, whose value stands on this line; the buffers may be taken.
    fn record(&mut self, key: &mut Vec<u8>, value: &mut Vec<u8>, line: u64) -> Outcome<()>;
    /// The database ended as it should.
    fn end(&mut self) -> Outcome<()>;
}

/// Decides which keyspace a database goes to; made anew for each pass over the inputs.
#[derive(Debug)]
pub struct Namer {
    forced: Option<String>,
    first: Option<Header>,
}

impl Namer {
    /// `forced` takes the place of the names in the input.
    pub fn new(forced: Option<&str>) -> Self {
        Self {
            forced: forced.map(str::to_owned),
            first: None,
        }
    }

    fn name(&mut self, header: &Header) -> Result<String, String> {
        if let Some(forced) = &self.forced {
            // Two databases may use one key for two things: never put them together unasked.
            let first = self.first.get_or_insert_with(|| header.clone());
            if first.database != header.database {
                return Err(
                    "a database of another name follows, and --keyspace would join the two; \
                     leave it out, or load them one by one"
                        .to_owned(),
                );
            }
            return Ok(forced.clone());
        }
        let Some(bytes) = &header.database else {
            return Ok(MAIN.to_owned());
        };
        match std::str::from_utf8(bytes) {
            Ok(name) if (1..=255).contains(&name.len()) => Ok(name.to_owned()),
            Ok(_) => Err("the database's name has not 1 to 255 bytes; give --keyspace".to_owned()),
            Err(_) => Err("the database's name is not UTF-8; give --keyspace".to_owned()),
        }
    }
}

/// What takes records that are read again: the keyspace's number, the key, and what its value was.
pub type Visit<'a> = dyn FnMut(usize, &[u8], Expected<'_>) -> Outcome<()> + 'a;

/// What a record's value must be.
#[derive(Clone, Copy, Debug)]
pub enum Expected<'a> {
    /// These bytes.
    Bytes(&'a [u8]),
    /// Bytes of this hash.
    Digest(u128),
}

impl Expected<'_> {
    /// Whether `value` is it.
    pub fn is(&self, value: &[u8]) -> bool {
        match *self {
            Self::Bytes(bytes) => bytes == value,
            Self::Digest(wanted) => digest(value) == wanted,
        }
    }
}

fn digest(value: &[u8]) -> u128 {
    let mut hasher = SipHasher13::new();
    hasher.write(value);
    hasher.finish128().as_u128()
}

/// Takes the records of an input that can't be read twice.
///
/// A record: keyspace's index u32 | key length u32 | hash of the value u128 | key, little endian.
#[derive(Debug)]
pub struct Spool {
    file: BufWriter<File>,
}

const SPOOL_HEADER_BYTES: usize = 24;

impl Spool {
    /// An empty one.
    pub fn new() -> Outcome<Self> {
        let file = tempfile::tempfile().map_err(spool_failure)?;
        Ok(Self {
            file: BufWriter::with_capacity(BUFFER_BYTES, file),
        })
    }

    /// Appends a record.
    pub fn push(&mut self, keyspace: usize, key: &[u8], value: &[u8]) -> Outcome<()> {
        let mut header = [0; SPOOL_HEADER_BYTES];
        // Keyspaces are few, and a key has at most 65,535 bytes.
        header[..4].copy_from_slice(&(keyspace as u32).to_le_bytes());
        header[4..8].copy_from_slice(&(key.len() as u32).to_le_bytes());
        header[8..].copy_from_slice(&digest(value).to_le_bytes());
        self.file.write_all(&header).map_err(spool_failure)?;
        self.file.write_all(key).map_err(spool_failure)
    }

    /// Ends writing.
    pub fn finish(self) -> Outcome<Spooled> {
        let file = self
            .file
            .into_inner()
            .map_err(|e| spool_failure(e.into_error()))?;
        Ok(Spooled { file })
    }
}

/// A spool that can be read, several times and at once.
#[derive(Debug)]
pub struct Spooled {
    file: File,
}

impl Spooled {
    /// Passes every record on, in order.
    pub fn replay(&self, visit: &mut Visit<'_>) -> Outcome<()> {
        let positioned = Positioned {
            file: &self.file,
            offset: 0,
        };
        let mut reader = BufReader::with_capacity(BUFFER_BYTES, positioned);
        let (mut header, mut key) = ([0; SPOOL_HEADER_BYTES], Vec::new());
        while !reader.fill_buf().map_err(spool_failure)?.is_empty() {
            reader.read_exact(&mut header).map_err(spool_failure)?;
            let word = |at: usize| {
                u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
            };
            let mut hash = [0; 16];
            hash.copy_from_slice(&header[8..]);
            key.resize(word(4) as usize, 0);
            reader.read_exact(&mut key).map_err(spool_failure)?;
            visit(
                word(0) as usize,
                &key,
                Expected::Digest(u128::from_le_bytes(hash)),
            )?;
        }
        Ok(())
    }
}

/// Reads a file from a place of its own.
struct Positioned<'a> {
    file: &'a File,
    offset: u64,
}

impl Read for Positioned<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let len = self.file.read_at(out, self.offset)?;
        self.offset += len as u64;
        Ok(len)
    }
}

fn spool_failure(error: io::Error) -> Failure {
    Failure::new(format!(
        "the temporary file for --verify: {error}; give it room by setting TMPDIR"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(database: Option<&[u8]>) -> Header {
        Header {
            form: Form::Print,
            database: database.map(<[u8]>::to_vec),
            line: 1,
            lmdb: false,
        }
    }

    #[test]
    fn names_come_from_the_input() {
        let mut namer = Namer::new(None);
        assert_eq!(namer.name(&header(None)).as_deref(), Ok(MAIN));
        assert_eq!(namer.name(&header(Some(b"one"))).as_deref(), Ok("one"));
        let long = [b'x'; 256];
        for bad in [&b""[..], b"\xff", &long] {
            assert!(namer.name(&header(Some(bad))).is_err());
        }
        assert!(namer.name(&header(Some(&long[1..]))).is_ok());
    }

    #[test]
    fn a_forced_name_takes_one_database_of_any_name() {
        let mut namer = Namer::new(Some("here"));
        assert_eq!(namer.name(&header(Some(b"\xff"))).as_deref(), Ok("here"));
        assert_eq!(namer.name(&header(Some(b"\xff"))).as_deref(), Ok("here"));
        assert!(namer.name(&header(Some(b"two"))).is_err());
        assert!(namer.name(&header(None)).is_err());
    }

    #[test]
    fn spools_give_back_keys_and_know_values() {
        let mut spool = Spool::new().unwrap();
        let long = vec![7; 65_535];
        let records: [(usize, &[u8], &[u8]); 4] = [
            (0, b"a", b"1"),
            (9, b"", b""),
            (1, &long, b"22"),
            (0, b"a", b"3"),
        ];
        for (keyspace, key, value) in records {
            spool.push(keyspace, key, value).unwrap();
        }
        let spooled = spool.finish().unwrap();
        for _ in 0..2 {
            let mut at = 0;
            let mut visit = |keyspace: usize, key: &[u8], expected: Expected<'_>| {
                let (want_keyspace, want_key, value) = records[at];
                assert_eq!((keyspace, key), (want_keyspace, want_key));
                assert!(expected.is(value) && !expected.is(b"other"));
                at += 1;
                // Another reader in between must not move this one.
                spooled.replay(&mut |_, _, _| Ok(()))
            };
            spooled.replay(&mut visit).unwrap();
            assert_eq!(at, records.len());
        }
    }
}
