//! Reads dump text in bounded memory: one key, one value and a buffer, whatever the lines' length.
//!
//! Nothing is guessed. A line that is neither data nor `DATA=END`, an input that stops inside a
//! database, a header that promises what a key/value store can't hold: each is an error with its
//! line number. Lenient only where the two programs are: header fields of other meaning are passed
//! over, a missing `format=` is `bytevalue`, a carriage return before the line feed is dropped
//! (`print` form escapes one that belongs to the data).

use std::io::{self, BufRead};

use sealstone::types::KEY_BYTES_MAX;

use super::Form;
use super::escape::{self, Decoder};

/// The longest value that is read, in bytes; it stands in memory whole.
pub const VALUE_BYTES_MAX: usize = 64 << 20;

/// The longest header line, in bytes: a name of 255 bytes, all escaped, with room.
const HEADER_LINE_BYTES_MAX: usize = 4096;

/// Why reading stopped.
#[derive(Debug)]
pub enum TextError {
    /// The input could not be read.
    Io(io::Error),
    /// A line is not what it must be.
    Malformed {
        /// Its number, from 1.
        line: u64,
        /// What is wrong, and what to do.
        what: String,
    },
}

impl From<io::Error> for TextError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl std::fmt::Display for TextError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Io(error) => write!(f, "{error}"),
            Self::Malformed { line, what } => write!(f, "line {line}: {what}"),
        }
    }
}

/// One database's header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// How its bytes are written.
    pub form: Form,
    /// Its name as bytes, decoded; `None` for the unnamed database.
    pub database: Option<Vec<u8>>,
    /// The line its name stands on, or the header's last.
    pub line: u64,
    /// Whether LMDB wrote it.
    pub lmdb: bool,
}

impl Header {
    /// Whether backslashes may be escaped or not, by the writer's version.
    pub fn is_ambiguous(&self) -> bool {
        self.lmdb && self.form == Form::Print
    }
}

/// Reads databases one after the other from `input`.
#[derive(Debug)]
pub struct Reader<R> {
    input: R,
    /// Lines read so far: the number of the last one.
    line: u64,
    form: Form,
}

/// How a line began.
enum Start {
    Data,
    End,
}

impl<R: BufRead> Reader<R> {
    /// A reader at the start of `input`.
    pub fn new(input: R) -> Self {
        Self {
            input,
            line: 0,
            form: Form::Bytevalue,
        }
    }

    /// The number of the last line read, from 1.
    pub fn line(&self) -> u64 {
        self.line
    }

    /// What it reads from.
    pub fn input_mut(&mut self) -> &mut R {
        &mut self.input
    }

    /// Reads this database's data in another form than its header's.
    pub fn set_form(&mut self, form: Form) {
        self.form = form;
    }

    /// Reads the next database's header; `None` at the end of the input.
    pub fn next_database(&mut self) -> Result<Option<Header>, TextError> {
        let mut text = Vec::new();
        loop {
            if !self.short_line(&mut text)? {
                return Ok(None);
            }
            if !text.is_empty() {
                break;
            }
        }
        let mut fields = Fields::default();
        while text != b"HEADER=END" {
            fields.take(&text).map_err(|what| self.malformed(what))?;
            if fields.name_line == 0 && fields.name.is_some() {
                fields.name_line = self.line;
            }
            if !self.short_line(&mut text)? {
                return Err(self.malformed("the input ends inside a header"));
            }
        }
        let header = fields
            .header(self.line)
            .map_err(|what| self.malformed(what))?;
        self.form = header.form;
        Ok(Some(header))
    }

    /// Reads the next record of this database into `key` and `value`; `false` at its end.
    pub fn next_record(
        &mut self,
        key: &mut Vec<u8>,
        value: &mut Vec<u8>,
    ) -> Result<bool, TextError> {
        match self.start_line()? {
            Start::End => return Ok(false),
            Start::Data => self.data("key", KEY_BYTES_MAX, key)?,
        }
        match self.start_line()? {
            Start::End => Err(self.malformed("the data ends after a key that has no value")),
            Start::Data => {
                self.data("value", VALUE_BYTES_MAX, value)?;
                Ok(true)
            }
        }
    }

    fn malformed(&self, what: impl Into<String>) -> TextError {
        TextError::Malformed {
            line: self.line,
            what: what.into(),
        }
    }

    /// Consumes the leading space of a data line, or the whole of the line `DATA=END`.
    fn start_line(&mut self) -> Result<Start, TextError> {
        match self.input.fill_buf()?.first() {
            Some(b' ') => {
                self.input.consume(1);
                self.line += 1;
                return Ok(Start::Data);
            }
            Some(_) => {}
            None => {
                return Err(self.malformed(
                    "the input ends without DATA=END after this line; it was cut short, \
                     so make the dump again",
                ));
            }
        }
        let mut text = Vec::new();
        self.short_line(&mut text)?;
        if text == b"DATA=END" {
            return Ok(Start::End);
        }
        Err(self.malformed("neither a line that begins with a space nor DATA=END"))
    }

    /// Decodes the rest of a line. After an error the rest is unread: the caller stops there.
    fn data(&mut self, role: &str, bytes_max: usize, out: &mut Vec<u8>) -> Result<(), TextError> {
        out.clear();
        let mut decoder = Decoder::new(self.form);
        let line = self.line;
        let malformed = |what: &str| TextError::Malformed {
            line,
            what: format!("{role}: {what}"),
        };
        let mut pieces = Pieces::default();
        while let Some(used) = pieces.next(&mut self.input, |piece| {
            decoder.push(piece, out).map_err(malformed)?;
            if out.len() > bytes_max {
                return Err(malformed(&format!("longer than {bytes_max} bytes")));
            }
            Ok(())
        })? {
            self.input.consume(used);
        }
        decoder.finish(out).map_err(malformed)
    }

    /// Reads a line of header length, without its end; `false` at the end of the input.
    fn short_line(&mut self, text: &mut Vec<u8>) -> Result<bool, TextError> {
        text.clear();
        if self.input.fill_buf()?.is_empty() {
            return Ok(false);
        }
        self.line += 1;
        let line = self.line;
        let mut pieces = Pieces::default();
        while let Some(used) = pieces.next(&mut self.input, |piece| {
            text.extend_from_slice(piece);
            if text.len() > HEADER_LINE_BYTES_MAX {
                return Err(TextError::Malformed {
                    line,
                    what: "too long for a line of a header; is this a dump?".to_owned(),
                });
            }
            Ok(())
        })? {
            self.input.consume(used);
        }
        Ok(true)
    }
}

/// Hands out a line as the buffer's pieces, without its line feed and a carriage return before it.
#[derive(Default)]
struct Pieces {
    done: bool,
    /// A carriage return ended the last piece; whether it is data shows in the next one.
    held: bool,
}

impl Pieces {
    /// Passes the next piece to `take` and says how much of the buffer it used; `None` after the
    /// line's end.
    fn next<R: BufRead>(
        &mut self,
        input: &mut R,
        mut take: impl FnMut(&[u8]) -> Result<(), TextError>,
    ) -> Result<Option<usize>, TextError> {
        if self.done {
            return Ok(None);
        }
        let buffer = input.fill_buf()?;
        let end = buffer.iter().position(|&byte| byte == b'\n');
        let mut piece = buffer.get(..end.unwrap_or(buffer.len())).unwrap_or(buffer);
        let used = end.map_or(buffer.len(), |at| at + 1);
        self.done = end.is_some() || buffer.is_empty();
        if self.held && !piece.is_empty() {
            take(b"\r")?;
            self.held = false;
        }
        if let Some(before) = piece.strip_suffix(b"\r") {
            self.held = true;
            piece = before;
        }
        take(piece)?;
        Ok(Some(used))
    }
}

/// What the header said so far.
#[derive(Default)]
struct Fields {
    version: bool,
    form: Option<Form>,
    name: Option<Vec<u8>>,
    name_line: u64,
    /// LMDB writes its names raw.
    lmdb: bool,
}

impl Fields {
    fn take(&mut self, text: &[u8]) -> Result<(), String> {
        let Some(at) = text.iter().position(|&byte| byte == b'=') else {
            return Err(if self.version {
                "no name=value in a header".to_owned()
            } else {
                "not a dump: expected a line like VERSION=3; make one with mdb_dump or db_dump"
                    .to_owned()
            });
        };
        let (name, value) = text.split_at(at);
        let value = value.get(1..).unwrap_or_default();
        let shown = String::from_utf8_lossy(value);
        match name {
            b"VERSION" => match value {
                b"2" | b"3" => self.version = true,
                _ => {
                    return Err(format!(
                        "dump version {shown} is unknown here; 2 and 3 are read"
                    ));
                }
            },
            b"format" => {
                self.form = Some(match value {
                    b"bytevalue" => Form::Bytevalue,
                    b"print" => Form::Print,
                    _ => return Err(format!("format {shown} is neither bytevalue nor print")),
                });
            }
            b"database" | b"subdatabase" => self.name = Some(value.to_vec()),
            b"mapsize" | b"maxreaders" => self.lmdb = true,
            b"type" if !matches!(value, b"btree" | b"hash") => {
                return Err(format!(
                    "a database of type {shown} has record numbers in place of keys and can't be \
                     loaded; copy it into a btree database first"
                ));
            }
            b"keys" if value == b"0" => {
                return Err(
                    "this dump was made without keys and can't be loaded; make it with db_dump -k"
                        .to_owned(),
                );
            }
            b"duplicates" | b"dupsort" | b"dupfixed" | b"integerdup" | b"reversedup"
                if value != b"0" =>
            {
                return Err(
                    "this database holds several values for one key and can't be loaded: a \
                     keyspace has one value for a key"
                        .to_owned(),
                );
            }
            _ => {}
        }
        Ok(())
    }

    fn header(self, line: u64) -> Result<Header, String> {
        if !self.version {
            return Err("the header has no VERSION line; is this a dump?".to_owned());
        }
        let database = match self.name {
            Some(raw) if !self.lmdb => Some(
                escape::decode(Form::Print, &raw)
                    .map_err(|what| format!("database name: {what}"))?,
            ),
            other => other,
        };
        Ok(Header {
            form: self.form.unwrap_or(Form::Bytevalue),
            database,
            line: if self.name_line == 0 {
                line
            } else {
                self.name_line
            },
            lmdb: self.lmdb,
        })
    }
}

#[cfg(test)]
#[path = "reader_tests.rs"]
mod tests;
