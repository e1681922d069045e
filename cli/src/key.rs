//! Keys as arguments and in listings: `text:` for printable ASCII, `hex:` for anything.
//!
//! What a listing prints can be given back as an argument.

use std::str::FromStr;

use crate::text::Form;
use crate::text::escape::{decode, encode, is_printable};

/// A key given as an argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key(pub Vec<u8>);

impl FromStr for Key {
    type Err = String;

    fn from_str(argument: &str) -> Result<Self, String> {
        if let Some(text) = argument.strip_prefix("text:") {
            return Ok(Self(text.as_bytes().to_vec()));
        }
        let Some(digits) = argument.strip_prefix("hex:") else {
            return Err("write a key as text:WORD or hex:00FF".to_owned());
        };
        decode(Form::Bytevalue, digits.as_bytes())
            .map(Self)
            .map_err(|what| format!("{what}; two hex digits make a byte"))
    }
}

/// Appends bytes as they stand in a listing.
pub fn push_listed(bytes: &[u8], always_hex: bool, out: &mut Vec<u8>) {
    if always_hex || !bytes.iter().all(|&byte| is_printable(byte)) {
        out.extend_from_slice(b"hex:");
        encode(Form::Bytevalue, bytes, out);
    } else {
        out.extend_from_slice(b"text:");
        out.extend_from_slice(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments() {
        assert_eq!("text:a b".parse(), Ok(Key(b"a b".to_vec())));
        assert_eq!("text:hex:00".parse(), Ok(Key(b"hex:00".to_vec())));
        assert_eq!("hex:00fF".parse(), Ok(Key(vec![0, 255])));
        assert_eq!(
            ("hex:".parse(), "text:".parse()),
            (Ok(Key(vec![])), Ok(Key(vec![])))
        );
        for bad in ["", "word", "hex:0", "hex:zz", "HEX:00"] {
            assert!(bad.parse::<Key>().is_err(), "{bad}");
        }
    }

    #[test]
    fn what_is_listed_can_be_given_back() {
        for bytes in [
            &b""[..],
            b"word",
            b"a\\ b~",
            b"tab\there",
            b"\xc3\xa4",
            b"text:x",
        ] {
            for always_hex in [false, true] {
                let mut listed = Vec::new();
                push_listed(bytes, always_hex, &mut listed);
                let listed = String::from_utf8(listed).unwrap();
                assert_eq!(listed.parse(), Ok(Key(bytes.to_vec())), "{listed}");
            }
        }
    }
}
