//! The portable dump text that LMDB's `mdb_dump` and Berkeley DB's `db_dump` write.
//!
//! ```text
//! VERSION=3            header: one name=value a line, in any order
//! format=bytevalue     or print
//! database=NAME        absent for the unnamed database
//! type=btree
//! HEADER=END
//!  6b6579              a space, then a key; the next line is its value
//!  76616c7565
//! DATA=END             then the next database's VERSION line, or the end of the input
//! ```
//!
//! `bytevalue` is two hex digits a byte. `print` leaves printable ASCII as it is, doubles the
//! backslash and writes every other byte as a backslash and two hex digits.
//!
//! The two programs differ in two places. LMDB needs `mapsize=`, or its loader stops at 1 MiB, and
//! Berkeley DB's loader refuses a header that has it. And Berkeley DB escapes the database's name
//! as in `print` form, while LMDB writes it raw; since LMDB's header always says `mapsize=`, a
//! reader can tell.
//!
//! And one in time: before 0.9.25 LMDB did not double the backslash in `print` form, and no loader
//! reads such a dump rightly. Nothing in the header tells; [`backslash`] looks at the data.

pub mod backslash;
pub mod escape;
pub mod reader;
pub mod writer;

/// How bytes are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Two hex digits a byte.
    Bytevalue,
    /// Printable ASCII as it is, other bytes escaped.
    Print,
    /// The same with the backslash as it is, too: what LMDB wrote before 0.9.25.
    Unescaped,
}

impl Form {
    /// The word in the header.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Bytevalue => "bytevalue",
            Self::Print | Self::Unescaped => "print",
        }
    }
}

/// Whose loader a dump is written for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Dialect {
    /// LMDB's `mdb_load`.
    #[default]
    Lmdb,
    /// Berkeley DB's `db_load`.
    Berkeley,
}
