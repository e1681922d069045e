//! Tagged fields: how payloads can grow without a new version.
//!
//! ```text
//! field = tag u16 | length u32 | that many bytes      (little endian)
//! ```
//!
//! A tag with its top bit set may be skipped by a reader that does not know it (and is then lost when
//! the manifest is next written anew); any other unknown tag means a newer format. Entries have a
//! fixed part and then fields of their own under the same rule.

/// The bit of a tag that says: skip me if you do not know me.
pub(super) const SKIPPABLE: u16 = 0x8000;

/// Why a payload with a right checksum can't be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Malformed {
    /// It is not what any release writes.
    Damaged(&'static str),
    /// It holds a field of a newer release.
    Unknown(u16),
}

/// The result of taking something from a payload.
pub(super) type Taken<T> = Result<T, Malformed>;

/// Appends a field whose bytes `body` appends.
pub(super) fn put_field(out: &mut Vec<u8>, tag: u16, body: impl FnOnce(&mut Vec<u8>)) {
    out.extend_from_slice(&tag.to_le_bytes());
    let length_at = out.len();
    out.extend_from_slice(&[0; 4]);
    let start = out.len();
    body(out);
    let length = (out.len() - start) as u32;
    out[length_at..start].copy_from_slice(&length.to_le_bytes());
}

/// Bytes taken from the front.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bytes<'a>(pub(super) &'a [u8]);

impl<'a> Bytes<'a> {
    /// The next `count` bytes.
    pub(super) fn take(&mut self, count: usize) -> Taken<&'a [u8]> {
        let (head, rest) = self
            .0
            .split_at_checked(count)
            .ok_or(Malformed::Damaged("a field ends too early"))?;
        self.0 = rest;
        Ok(head)
    }

    /// The next `N` bytes.
    pub(super) fn array<const N: usize>(&mut self) -> Taken<[u8; N]> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    pub(super) fn u8(&mut self) -> Taken<u8> {
        self.array().map(u8::from_le_bytes)
    }

    pub(super) fn u16(&mut self) -> Taken<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Taken<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Taken<u64> {
        self.array().map(u64::from_le_bytes)
    }

    pub(super) fn u128(&mut self) -> Taken<u128> {
        self.array().map(u128::from_le_bytes)
    }

    /// The next field, `None` at the end.
    pub(super) fn field(&mut self) -> Taken<Option<(u16, Bytes<'a>)>> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let tag = self.u16()?;
        let length = self.u32()?;
        Ok(Some((tag, Bytes(self.take(length as usize)?))))
    }

    /// Takes the rest, in which no field is known yet.
    pub(super) fn finish(mut self) -> Taken<()> {
        while let Some((tag, _)) = self.field()? {
            unknown(tag)?;
        }
        Ok(())
    }
}

/// Passes over a tag that is not known here, if that is allowed.
pub(super) fn unknown(tag: u16) -> Taken<()> {
    if tag & SKIPPABLE == 0 {
        return Err(Malformed::Unknown(tag));
    }
    Ok(())
}
