//! Learns from a dump's data whether its backslashes are escaped.
//!
//! In `print` form LMDB since 0.9.25 doubles each backslash, and older ones leave it as it is.
//! Where they do, a backslash is sooner or later followed by what no escape is: neither a second
//! backslash nor two lower-case hex digits of a byte that is not printable (or of the backslash:
//! sealstone writes that). One such place is a proof; without one, all backslashes are taken for
//! escaped.
//!
//! The older form can't always be read back: a backslash before the two digits of an unprintable
//! byte looks like that byte. Among random bytes that is one backslash in 400.

use super::escape::{is_written_digit, written_escape};

#[derive(Clone, Copy, Debug)]
enum Place {
    LineStart,
    /// In a line that holds no data.
    Other,
    Data,
    Backslash,
    Digit(u8),
}

/// Looks at text in pieces.
#[derive(Debug)]
pub struct Scanner {
    place: Place,
    unescaped: bool,
}

impl Default for Scanner {
    fn default() -> Self {
        Self::new()
    }
}

impl Scanner {
    /// A scanner at the start of a line.
    pub fn new() -> Self {
        Self {
            place: Place::LineStart,
            unescaped: false,
        }
    }

    /// Whether a backslash was seen that is not escaped.
    pub fn is_unescaped(&self) -> bool {
        self.unescaped
    }

    /// Looks at the next piece.
    pub fn push(&mut self, piece: &[u8]) {
        for &byte in piece {
            if self.unescaped {
                return;
            }
            self.place = match (self.place, byte) {
                (Place::Backslash, b'\\') => Place::Data,
                (Place::Backslash, _) if is_written_digit(byte) => Place::Digit(byte),
                (Place::Digit(b'5'), b'c') => Place::Data,
                (Place::Digit(first), _) if written_escape(first, byte).is_some() => Place::Data,
                (Place::Backslash | Place::Digit(_), _) => {
                    self.unescaped = true;
                    Place::Data
                }
                (_, b'\n') => Place::LineStart,
                (Place::LineStart, b' ') => Place::Data,
                (Place::LineStart | Place::Other, _) => Place::Other,
                (Place::Data, b'\\') => Place::Backslash,
                (Place::Data, _) => Place::Data,
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::Form;
    use super::super::escape::encode;
    use super::*;

    fn seen(text: &[u8]) -> bool {
        let mut scanners = [1, 2, 100].map(|piece_bytes| {
            let mut scanner = Scanner::new();
            text.chunks(piece_bytes)
                .for_each(|piece| scanner.push(piece));
            scanner.is_unescaped()
        });
        scanners.sort_unstable();
        assert_eq!(scanners[0], scanners[2]);
        scanners[0]
    }

    #[test]
    fn one_place_is_a_proof() {
        for proof in [
            "\\vJ", "\\", "a\\b", "\\g0", "\\0g", "\\41", "\\AA", "\\\\\\x", "\\\r",
        ] {
            let text = format!(" plain\n {proof}\n plain\n");
            assert!(seen(text.as_bytes()), "{proof}");
        }
        for none in [
            "",
            "\\\\",
            "\\00",
            "\\ff\\\\\\7f",
            "\\\\aa",
            "\\\\v",
            "\\5cv",
        ] {
            let text = format!("name=\\v\n plain\n {none}\n plain\nDATA=END\\\n");
            assert!(!seen(text.as_bytes()), "{none}");
        }
    }

    proptest! {
        #[test]
        fn escaped_text_never_looks_unescaped(bytes in proptest::collection::vec(any::<u8>(), 0..99)) {
            let mut text = b" ".to_vec();
            encode(Form::Print, &bytes, &mut text);
            text.push(b'\n');
            prop_assert!(!seen(&text));
        }
    }
}
