//! Writes dump text.

use std::io::{self, Write};

use super::{Dialect, Form, escape};

/// What the header of one database says.
#[derive(Clone, Copy, Debug)]
pub struct Heading<'a> {
    /// How bytes are written.
    pub form: Form,
    /// Whose loader it is for.
    pub dialect: Dialect,
    /// The database's name; `None` for the unnamed one.
    pub database: Option<&'a str>,
    /// The address space that LMDB shall reserve, in bytes; written for LMDB alone.
    pub map_bytes: u64,
}

/// Writes databases one after the other. One that is cut short lacks `DATA=END`, and every reader
/// sees it.
#[derive(Debug)]
pub struct Writer<W> {
    output: W,
    form: Form,
    line: Vec<u8>,
}

impl<W: Write> Writer<W> {
    /// A writer onto `output`, which should be buffered.
    pub fn new(output: W) -> Self {
        Self {
            output,
            form: Form::Bytevalue,
            line: Vec::new(),
        }
    }

    /// Begins a database.
    pub fn begin(&mut self, heading: &Heading<'_>) -> io::Result<()> {
        self.form = heading.form;
        writeln!(self.output, "VERSION=3\nformat={}", heading.form.word())?;
        if let Some(name) = heading.database {
            self.output.write_all(b"database=")?;
            self.output.write_all(&name_text(heading.dialect, name)?)?;
            self.output.write_all(b"\n")?;
        }
        writeln!(self.output, "type=btree")?;
        if heading.dialect == Dialect::Lmdb {
            writeln!(self.output, "mapsize={}", heading.map_bytes)?;
        }
        writeln!(self.output, "HEADER=END")
    }

    /// Writes a record.
    pub fn record(&mut self, key: &[u8], value: &[u8]) -> io::Result<()> {
        self.bytes(key)?;
        self.bytes(value)
    }

    /// Ends a database.
    pub fn end(&mut self) -> io::Result<()> {
        writeln!(self.output, "DATA=END")
    }

    /// Gives back the output, flushed.
    pub fn finish(mut self) -> io::Result<W> {
        self.output.flush()?;
        Ok(self.output)
    }

    fn bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.line.clear();
        self.line.push(b' ');
        escape::encode(self.form, bytes, &mut self.line);
        self.line.push(b'\n');
        self.output.write_all(&self.line)
    }
}

/// The name as the loader wants it.
fn name_text(dialect: Dialect, name: &str) -> io::Result<Vec<u8>> {
    match dialect {
        Dialect::Berkeley => {
            let mut text = Vec::new();
            escape::encode(Form::Print, name.as_bytes(), &mut text);
            Ok(text)
        }
        Dialect::Lmdb if name.contains(|c: char| c.is_ascii_control()) => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("LMDB's form has no way to write the name {name:?}; use --for berkeley"),
        )),
        Dialect::Lmdb => Ok(name.as_bytes().to_vec()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dump(dialect: Dialect, form: Form, database: Option<&str>) -> io::Result<Vec<u8>> {
        let mut writer = Writer::new(Vec::new());
        writer.begin(&Heading {
            form,
            dialect,
            database,
            map_bytes: 1 << 20,
        })?;
        writer.record(b"k\x01", b"")?;
        writer.end()?;
        writer.finish()
    }

    #[test]
    fn lmdb_form() {
        let text = dump(Dialect::Lmdb, Form::Bytevalue, Some("a\\b\u{e4}")).unwrap();
        let want = "VERSION=3\nformat=bytevalue\ndatabase=a\\b\u{e4}\ntype=btree\n\
                    mapsize=1048576\nHEADER=END\n 6b01\n \nDATA=END\n";
        assert_eq!(String::from_utf8(text).unwrap(), want);
    }

    #[test]
    fn berkeley_form() {
        let text = dump(Dialect::Berkeley, Form::Print, Some("a\\b\u{e4}")).unwrap();
        let want = "VERSION=3\nformat=print\ndatabase=a\\5cb\\c3\\a4\ntype=btree\n\
                    HEADER=END\n k\\01\n \nDATA=END\n";
        assert_eq!(String::from_utf8(text).unwrap(), want);
    }

    #[test]
    fn a_name_that_lmdb_can_not_read_back_is_refused() {
        assert!(dump(Dialect::Lmdb, Form::Print, Some("two\nlines")).is_err());
        assert!(dump(Dialect::Berkeley, Form::Print, Some("two\nlines")).is_ok());
    }
}
