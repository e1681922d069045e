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
            self.pending = match (self.pending, self.form) {
                (Pending::Nothing, Form::Bytevalue) => Pending::Digit(digit(byte)?),
                (Pending::Nothing, Form::Print) if byte == b'\\' => Pending::Backslash,
                (Pending::Nothing, Form::Print) => {
                    out.push(byte);
                    Pending::Nothing
                }
                (Pending::Backslash, _) if byte == b'\\' => {
                    out.push(byte);
                    Pending::Nothing
                }
                (Pending::Backslash, _) => Pending::Digit(
                    digit(byte)
                        .map_err(|_| "a backslash is followed by neither \\ nor two hex digits")?,
                ),
                (Pending::Digit(high), _) => {
                    out.push(high << 4 | digit(byte)?);
                    Pending::Nothing
                }
            };
        }
        Ok(())
    }

    /// Checks that the line did not end inside a byte.
    pub fn finish(&self) -> Result<(), Refusal> {
        match (self.pending, self.form) {
            (Pending::Nothing, _) => Ok(()),
            (_, Form::Bytevalue) => Err("odd number of hex digits"),
            (_, Form::Print) => Err("the line ends inside an escape"),
        }
    }
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
    decoder.finish()?;
    Ok(out)
}

/// Appends the text of `bytes`.
pub fn encode(form: Form, bytes: &[u8], out: &mut Vec<u8>) {
    match form {
        Form::Bytevalue => {
            out.reserve(bytes.len() * 2);
            bytes.iter().for_each(|&byte| push_hex(byte, out));
        }
        Form::Print => bytes.iter().for_each(|&byte| push_print(byte, out)),
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

fn push_print(byte: u8, out: &mut Vec<u8>) {
    match byte {
        b'\\' => out.extend(b"\\\\"),
        _ if is_printable(byte) => out.push(byte),
        _ => {
            out.push(b'\\');
            push_hex(byte, out);
        }
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
        assert_eq!(text(Form::Print, bytes), "a\\\\ ~\\00\\0a\\7f\\ff");
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
            decoder.finish().unwrap();
            prop_assert_eq!(out, bytes);
        }
    }
}
