//! Bytes to text and back, for both forms.
//!
//! Decoding takes a line in pieces of any size, so that a value of many megabytes never stands in
//! memory as text; what a piece leaves half done is kept in the decoder.

use super::Form;

const HEX: &[u8; 16] = b"0123456789abcdef";

/// Why a line can't be decoded.
pub type Refusal = &'static str;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pending {
    /// Between two bytes.
    Nothing,
    /// After a backslash.
    Backslash,
    /// After the first of two hex digits.
    Digit(u8),
}

/// Decodes one line.
#[derive(Debug)]
pub struct Decoder {
    form: Form,
    pending: Pending,
}

impl Decoder {
    /// A decoder at the start of a line.
    pub fn new(form: Form) -> Self {
        Self {
            form,
            pending: Pending::Nothing,
        }
    }

    /// Decodes the next piece of the line and appends to `out`.
    pub fn push(&mut self, piece: &[u8], out: &mut Vec<u8>) -> Result<(), Refusal> {
        for &byte in piece {
            self.pending = match self.form {
                Form::Bytevalue => self.hex(byte, out)?,
                Form::Print => self.print(byte, out)?,
                Form::Unescaped => self.unescaped(byte, out),
            };
        }
        Ok(())
    }

    /// Ends the line, and checks that it did not end inside a byte.
    pub fn finish(self, out: &mut Vec<u8>) -> Result<(), Refusal> {
        match (self.pending, self.form) {
            (Pending::Nothing, _) => Ok(()),
            (_, Form::Bytevalue) => Err("odd number of hex digits"),
            (_, Form::Print) => Err("the line ends inside an escape"),
            (Pending::Backslash, Form::Unescaped) => {
                out.push(b'\\');
                Ok(())
            }
            (Pending::Digit(first), Form::Unescaped) => {
                out.extend([b'\\', first]);
                Ok(())
            }
        }
    }

    fn hex(&self, byte: u8, out: &mut Vec<u8>) -> Result<Pending, Refusal> {
        let low = digit(byte)?;
        Ok(match self.pending {
            Pending::Digit(high) => {
                out.push(high << 4 | low);
                Pending::Nothing
            }
            _ => Pending::Digit(low),
        })
    }

    fn print(&self, byte: u8, out: &mut Vec<u8>) -> Result<Pending, Refusal> {
        match self.pending {
            Pending::Nothing if byte == b'\\' => return Ok(Pending::Backslash),
            Pending::Nothing => out.push(byte),
            Pending::Backslash if byte == b'\\' => out.push(byte),
            Pending::Backslash => {
                let high = digit(byte)
                    .map_err(|_| "a backslash is followed by neither \\ nor two hex digits")?;
                return Ok(Pending::Digit(high));
            }
            Pending::Digit(high) => out.push(high << 4 | digit(byte)?),
        }
        Ok(Pending::Nothing)
    }

    /// Here a pending digit is kept as its character. What was held back and is no escape is
    /// given out, and the byte stands as at the start.
    fn unescaped(&self, byte: u8, out: &mut Vec<u8>) -> Pending {
        match self.pending {
            Pending::Nothing => {}
            Pending::Backslash if is_written_digit(byte) => return Pending::Digit(byte),
            Pending::Backslash => out.push(b'\\'),
            Pending::Digit(first) => match written_escape(first, byte) {
                Some(code) => {
                    out.push(code);
                    return Pending::Nothing;
                }
                None => out.extend([b'\\', first]),
            },
        }
        if byte == b'\\' {
            return Pending::Backslash;
        }
        out.push(byte);
        Pending::Nothing
    }
}

/// Whether `mdb_dump` writes this character as a hex digit.
pub const fn is_written_digit(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'a'..=b'f')
}

/// The byte of an escape with these digits, if `mdb_dump` would write it: the digits in lower case,
/// the byte none that stands for itself.
pub fn written_escape(first: u8, second: u8) -> Option<u8> {
    if !is_written_digit(first) || !is_written_digit(second) {
        return None;
    }
    let code = digit(first).ok()? << 4 | digit(second).ok()?;
    (!is_printable(code)).then_some(code)
}

fn digit(byte: u8) -> Result<u8, Refusal> {
    match byte {
        b'0'..=b'9' => Ok(byte - b'0'),
        b'a'..=b'f' => Ok(byte - b'a' + 10),
        b'A'..=b'F' => Ok(byte - b'A' + 10),
        _ => Err("a character that is no hex digit"),
    }
}

/// Decodes a whole text at once.
pub fn decode(form: Form, text: &[u8]) -> Result<Vec<u8>, Refusal> {
    let mut out = Vec::with_capacity(text.len());
    let mut decoder = Decoder::new(form);
    decoder.push(text, &mut out)?;
    decoder.finish(&mut out)?;
    Ok(out)
}

/// Appends the text of `bytes`.
///
/// In `print` form a backslash is written as its code, though the programs double it: all of them
/// read the code, while LMDB's loader before 0.9.25 makes a zero of a double one.
pub fn encode(form: Form, bytes: &[u8], out: &mut Vec<u8>) {
    match form {
        Form::Bytevalue => {
            out.reserve(bytes.len() * 2);
            bytes.iter().for_each(|&byte| push_hex(byte, out));
        }
        Form::Print | Form::Unescaped => {
            let escape_backslash = form == Form::Print;
            bytes
                .iter()
                .for_each(|&byte| push_print(byte, escape_backslash, out));
        }
    }
}

/// Whether a byte stands for itself in `print` form (the backslash aside). Fixed to ASCII: what a
/// locale calls printable must not change a file format.
pub const fn is_printable(byte: u8) -> bool {
    matches!(byte, b' '..=b'~')
}

fn push_hex(byte: u8, out: &mut Vec<u8>) {
    out.extend([HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
}

fn push_print(byte: u8, escape_backslash: bool, out: &mut Vec<u8>) {
    let plain = is_printable(byte) && !(escape_backslash && byte == b'\\');
    if plain {
        out.push(byte);
    } else {
        out.push(b'\\');
        push_hex(byte, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn text(form: Form, bytes: &[u8]) -> String {
        let mut out = Vec::new();
        encode(form, bytes, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn both_forms_of_known_bytes() {
        let bytes = b"a\\ ~\x00\n\x7f\xff";
        assert_eq!(text(Form::Bytevalue, bytes), "615c207e000a7fff");
        assert_eq!(text(Form::Print, bytes), "a\\5c ~\\00\\0a\\7f\\ff");
        assert_eq!(text(Form::Print, b""), "");
    }

    #[test]
    fn upper_case_digits_are_read() {
        assert_eq!(decode(Form::Bytevalue, b"AbCD").unwrap(), [0xab, 0xcd]);
        assert_eq!(decode(Form::Print, b"\\FF\\fF").unwrap(), [0xff, 0xff]);
    }

    #[test]
    fn what_is_no_byte_is_refused() {
        for bad in ["a", "abc", "0g", "0x61", "61 62", " 61"] {
            assert!(decode(Form::Bytevalue, bad.as_bytes()).is_err(), "{bad}");
        }
        for bad in ["\\", "\\6", "\\\\\\", "\\n", "\\6g", "\\x61"] {
            assert!(decode(Form::Print, bad.as_bytes()).is_err(), "{bad}");
        }
    }

    #[test]
    fn unescaped_backslashes_are_read_where_no_escape_is_meant() {
        for (text, bytes) in [
            (&b"U\\\\aa\\a3"[..], &b"U\\\xaa\xa3"[..]),
            (b"\\vJ\\bo", b"\\vJ\\bo"),
            (b"\\", b"\\"),
            (b"\\\\", b"\\\\"),
            (b"\\a", b"\\a"),
            (b"\\a\\00", b"\\a\0"),
            // Codes that mdb_dump writes as they are, or in lower case: no escapes.
            (b"\\4141\\20", b"\\4141\\20"),
            (b"\\FF", b"\\FF"),
        ] {
            assert_eq!(decode(Form::Unescaped, text).unwrap(), bytes);
            assert_eq!(self::text(Form::Unescaped, bytes).as_bytes(), text);
        }
    }

    #[test]
    fn raw_bytes_stand_for_themselves_in_print_form() {
        assert_eq!(decode(Form::Print, b"\xe4\t").unwrap(), b"\xe4\t");
    }

    proptest! {
        #[test]
        fn decode_undoes_encode_in_pieces(
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
            piece_bytes in 1_usize..9,
            print in any::<bool>(),
        ) {
            let form = if print { Form::Print } else { Form::Bytevalue };
            let text = text(form, &bytes);
            let (mut decoder, mut out) = (Decoder::new(form), Vec::new());
            for piece in text.as_bytes().chunks(piece_bytes) {
                decoder.push(piece, &mut out).unwrap();
            }
            decoder.finish(&mut out).unwrap();
            prop_assert_eq!(out, bytes);
        }
    }
}
