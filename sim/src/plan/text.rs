//! The words of a plan: bytes, numbers, substitutions.
//!
//! * bytes: `word`, `"text with \x00, \n, \\, \""`, `text:word`, `hex:00ff`, `repeat:COUNT:BYTES`,
//!   `random:LENGTH[:SEED]` (the same bytes for the same seed), `BYTES+BYTES` (joined);
//! * numbers: `12`, `4KiB`, `1MiB`, `0x1f`, sums and products of numbers and variables (`len/2-1`);
//! * `{EXPRESSION}` and `{EXPRESSION:WIDTH}` anywhere in a line become the number, with zeros in front.

use std::collections::BTreeMap;

use crate::choices::SmallRandom;

/// Variables by name.
pub type Variables = BTreeMap<String, i128>;

/// What is wrong with a line.
pub type Wrong = String;

/// Splits a line into words. Quotes keep spaces; `#` at the start of a word ends the line.
pub fn words(line: &str) -> Result<Vec<String>, Wrong> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut quoted = false;
    let mut characters = line.chars();
    while let Some(c) = characters.next() {
        match c {
            '\\' if quoted => {
                word.push(c);
                word.extend(characters.next());
            }
            '"' => {
                quoted = !quoted;
                word.push(c);
            }
            '#' if !quoted && word.is_empty() => break,
            c if c.is_whitespace() && !quoted => {
                if !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
            }
            c => word.push(c),
        }
    }
    if quoted {
        return Err("a quote is not closed".into());
    }
    if !word.is_empty() {
        words.push(word);
    }
    Ok(words)
}

/// Replaces `{EXPRESSION}` and `{EXPRESSION:WIDTH}`.
pub fn substitute(line: &str, variables: &Variables) -> Result<String, Wrong> {
    let mut text = String::new();
    let mut rest = line;
    while let Some(start) = rest.find('{') {
        text.push_str(&rest[..start]);
        let tail = &rest[start + 1..];
        let end = tail.find('}').ok_or("{ without }")?;
        let inner = &tail[..end];
        let (expression, width) = match inner.split_once(':') {
            Some((expression, width)) => {
                let width = width
                    .parse::<usize>()
                    .map_err(|_| format!("no width {width}"))?;
                (expression, width.min(1000))
            }
            None => (inner, 0),
        };
        let value = number(expression, variables)?;
        text.push_str(&format!("{value:0width$}"));
        rest = &tail[end + 1..];
    }
    text.push_str(rest);
    Ok(text)
}

/// A number: see the head of the module.
pub fn number(text: &str, variables: &Variables) -> Result<i128, Wrong> {
    let mut parser = Expression {
        rest: text,
        variables,
    };
    let value = parser.sum()?;
    if parser.rest.is_empty() {
        Ok(value)
    } else {
        Err(format!("no number: {text}"))
    }
}

struct Expression<'a> {
    rest: &'a str,
    variables: &'a Variables,
}

impl Expression<'_> {
    fn takes(&mut self, operator: char) -> bool {
        match self.rest.strip_prefix(operator) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn sum(&mut self) -> Result<i128, Wrong> {
        let mut value = if self.takes('-') {
            -self.product()?
        } else {
            self.product()?
        };
        loop {
            if self.takes('+') {
                value = value.checked_add(self.product()?).ok_or("too large")?;
            } else if self.takes('-') {
                value = value.checked_sub(self.product()?).ok_or("too small")?;
            } else {
                return Ok(value);
            }
        }
    }

    fn product(&mut self) -> Result<i128, Wrong> {
        let mut value = self.atom()?;
        loop {
            if self.takes('*') {
                value = value.checked_mul(self.atom()?).ok_or("too large")?;
            } else if self.takes('/') {
                value = value.checked_div(self.atom()?).ok_or("divided by 0")?;
            } else if self.takes('%') {
                value = value.checked_rem(self.atom()?).ok_or("divided by 0")?;
            } else {
                return Ok(value);
            }
        }
    }

    fn atom(&mut self) -> Result<i128, Wrong> {
        if self.takes('(') {
            let value = self.sum()?;
            return match self.takes(')') {
                true => Ok(value),
                false => Err("( without )".into()),
            };
        }
        let end = self
            .rest
            .find(|c: char| !(c.is_ascii_alphanumeric() || "_.".contains(c)))
            .unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        if let Some(value) = self.variables.get(word) {
            return Ok(*value);
        }
        let (digits, unit) = match word.as_bytes() {
            [.., b'K', b'i', b'B'] => (&word[..word.len() - 3], 1 << 10),
            [.., b'M', b'i', b'B'] => (&word[..word.len() - 3], 1 << 20),
            _ => (word, 1),
        };
        let parsed = match digits.strip_prefix("0x") {
            Some(hex) => i128::from_str_radix(hex, 16),
            None => digits.parse(),
        };
        parsed
            .ok()
            .and_then(|value: i128| value.checked_mul(unit))
            .ok_or_else(|| format!("no number and no variable: {word:?}"))
    }
}

/// Bytes: see the head of the module.
pub fn bytes(text: &str) -> Result<Vec<u8>, Wrong> {
    let mut all = Vec::new();
    let mut rest = text;
    loop {
        let (part, tail) = first_part(rest);
        part_bytes(part, &mut all)?;
        match tail {
            Some(tail) => rest = tail,
            None => return Ok(all),
        }
    }
}

/// Splits at the first `+` outside quotes.
fn first_part(text: &str) -> (&str, Option<&str>) {
    let (mut quoted, mut escaped) = (false, false);
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            '+' if !quoted && at > 0 && at + 1 < text.len() => {
                return (&text[..at], Some(&text[at + 1..]));
            }
            _ => {}
        }
    }
    (text, None)
}

/// The most bytes that `repeat` and `random` make.
const REPEATED_BYTES_MAX: usize = 1 << 28;

fn part_bytes(text: &str, out: &mut Vec<u8>) -> Result<(), Wrong> {
    let count = |text: &str| {
        let value = number(text, &Variables::new())?;
        usize::try_from(value).map_err(|_| format!("no length: {text}"))
    };
    if let Some(quoted) = text.strip_prefix('"') {
        let inner = quoted.strip_suffix('"').ok_or("text after a quote")?;
        return unescape(inner, out);
    }
    if let Some(plain) = text.strip_prefix("text:") {
        out.extend_from_slice(plain.as_bytes());
    } else if let Some(hex) = text.strip_prefix("hex:") {
        if !hex.len().is_multiple_of(2) || !hex.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(format!("no hexadecimal bytes: {hex}"));
        }
        for at in (0..hex.len()).step_by(2) {
            out.push(u8::from_str_radix(&hex[at..at + 2], 16).map_err(|e| e.to_string())?);
        }
    } else if let Some(repeated) = text.strip_prefix("repeat:") {
        let (times, unit) = repeated.split_once(':').ok_or("repeat:COUNT:BYTES")?;
        let mut one = Vec::new();
        part_bytes(unit, &mut one)?;
        let times = count(times)?;
        if times.saturating_mul(one.len()) > REPEATED_BYTES_MAX {
            return Err(format!(
                "{repeated} is longer than {REPEATED_BYTES_MAX} bytes"
            ));
        }
        out.extend(one.repeat(times));
    } else if let Some(random) = text.strip_prefix("random:") {
        let (length, seed) = random.split_once(':').unwrap_or((random, "0"));
        let (start, length) = (out.len(), count(length)?);
        if length > REPEATED_BYTES_MAX {
            return Err(format!(
                "{random} is longer than {REPEATED_BYTES_MAX} bytes"
            ));
        }
        out.resize(start + length, 0);
        SmallRandom::new(count(seed)? as u64).fill(&mut out[start..]);
    } else {
        out.extend_from_slice(text.as_bytes());
    }
    Ok(())
}

fn unescape(text: &str, out: &mut Vec<u8>) -> Result<(), Wrong> {
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        out.extend_from_slice(&rest.as_bytes()[..at]);
        let escape = &rest[at + 1..];
        let skip = match escape.as_bytes() {
            [b'x', a, b, ..] if a.is_ascii_hexdigit() && b.is_ascii_hexdigit() => {
                out.push(u8::from_str_radix(&escape[1..3], 16).map_err(|e| e.to_string())?);
                3
            }
            [b'n', ..] => {
                out.push(b'\n');
                1
            }
            [b't', ..] => {
                out.push(b'\t');
                1
            }
            [c @ (b'\\' | b'"'), ..] => {
                out.push(*c);
                1
            }
            _ => return Err(format!("no escape: \\{escape}")),
        };
        rest = &escape[skip..];
    }
    out.extend_from_slice(rest.as_bytes());
    Ok(())
}

/// Bytes as a plan writes them.
pub fn show_bytes(bytes: &[u8]) -> String {
    let plain = |b: &u8| b.is_ascii_alphanumeric() || b"-_~/.".contains(b);
    if bytes.is_empty() {
        return "\"\"".into();
    }
    if bytes.iter().all(plain) {
        if bytes.len() > 24 && bytes.iter().all(|b| *b == bytes[0]) {
            return format!("repeat:{}:{}", bytes.len(), char::from(bytes[0]));
        }
        return String::from_utf8_lossy(bytes).into_owned();
    }
    let digits: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
    format!("hex:{digits}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_many_forms_and_come_back() {
        for (text, right) in [
            ("abc", &b"abc"[..]),
            ("\"a b\\x00\\n\"", b"a b\0\n"),
            ("hex:00ff", &[0, 255]),
            ("repeat:3:ab", b"ababab"),
            ("text:repeat:", b"repeat:"),
            ("a+hex:01+\"+\"", b"a\x01+"),
            ("\"\"", b""),
        ] {
            assert_eq!(bytes(text).unwrap(), right, "{text}");
            assert_eq!(bytes(&show_bytes(right)).unwrap(), right);
        }
        assert_eq!(bytes("random:5:1"), bytes("random:5:1"));
        assert_ne!(bytes("random:5:1"), bytes("random:5:2"));
        for wrong in [
            "repeat:99999999999:x",
            "random:99999999999",
            "hex:0",
            "hex:zz",
            "\"a",
            "repeat:x:a",
            "\"\\q\"",
        ] {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn numbers_and_substitutions() {
        let variables = Variables::from([("len".into(), 100), ("i".into(), 7)]);
        for (text, right) in [
            ("12", 12),
            ("4KiB", 4096),
            ("len/2-1", 49),
            ("-3+2*(i+1)", 13),
            ("0x10", 16),
            ("i%2", 1),
        ] {
            assert_eq!(number(text, &variables), Ok(right), "{text}");
        }
        for wrong in ["", "x", "1/0", "(1", "1 2"] {
            assert!(number(wrong, &variables).is_err(), "{wrong}");
        }
        let line = substitute("put k{i:4} v{i*2}", &variables).unwrap();
        assert_eq!(line, "put k0007 v14");
    }

    #[test]
    fn words_keep_quotes_and_drop_comments() {
        assert_eq!(
            words("put ks \"a b\" c # no").unwrap(),
            ["put", "ks", "\"a b\"", "c"]
        );
        assert!(words("put \"a").is_err());
    }
}
