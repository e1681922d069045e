//! Key fences: where to start looking for a key without reading all records.
//!
//! Records are grouped in blocks: a block ends with the record that brings it to `key_fence_bytes`. Each
//! block has a fence: its offset and a separator, the shortest prefix of its first record's
//! (keyspace, key) that is above the record before.
//!
//! ```text
//! piece: 4096 bytes, the last one only as long as needed
//! offset  bytes  field (little endian)
//!      0      8  XXH3-64 over the rest, seeded by the file's identity and the piece's number
//!      8      2  fences in the piece
//!     10      2  bytes used, header included
//!     12      4  reserved: 0
//!     16      -  fences; zero bytes to the end
//! fence:
//!      0      1  length of the separator, up to 32
//!      1      1  flags: bit 0 = inexact
//!      2      6  block's offset, in 8-byte units
//!      8      n  separator: keyspace id (big endian), then the key's first bytes
//! ```
//!
//! An exact separator is above every record before the block and not above its first. An *inexact*
//! one (cut at 32 bytes, or the block starts with an older version of the last block's key) is only a
//! prefix of the block's first key: keys that begin with it may lie on either side, and the block's
//! first record has to be asked. So long shared prefixes cost a binary search by reads, never a scan.

use std::cmp::Ordering;

use super::identity::{Chain, Domain, Seeds, checksum};
use crate::index::UNIT_BYTES;
use crate::types::KeyspaceId;

/// The longest separator, keyspace id included.
pub const SEPARATOR_BYTES_MAX: usize = 32;

/// Bytes of a piece of fences.
pub const FENCE_PIECE_BYTES: usize = 4096;

/// The most fences in a piece: only the first block of all has an empty separator.
pub const PIECE_FENCES_MAX: usize =
    (FENCE_PIECE_BYTES - PIECE_HEADER_BYTES) / (FENCE_HEADER_BYTES + 1) + 1;

const PIECE_HEADER_BYTES: usize = 16;
const FENCE_HEADER_BYTES: usize = 8;
const FLAG_INEXACT: u8 = 1;

/// The most bytes that the fences of `data_bytes` of records can take.
pub const fn key_fence_bytes_max(data_bytes: u64, key_fence_bytes: u32) -> u64 {
    let block = if key_fence_bytes == 0 {
        1
    } else {
        key_fence_bytes as u64
    };
    let fences = data_bytes / block + 1;
    let longest = FENCE_HEADER_BYTES + SEPARATOR_BYTES_MAX;
    let per_piece = ((FENCE_PIECE_BYTES - PIECE_HEADER_BYTES) / longest) as u64;
    fences.div_ceil(per_piece) * FENCE_PIECE_BYTES as u64
}

/// A separator of at most [`SEPARATOR_BYTES_MAX`] bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Separator {
    bytes: [u8; SEPARATOR_BYTES_MAX],
    len: usize,
    /// Whether it is only a prefix of the first key.
    pub inexact: bool,
}

impl Separator {
    /// The separator in front of everything.
    pub const FIRST: Self = Self {
        bytes: [0; SEPARATOR_BYTES_MAX],
        len: 0,
        inexact: false,
    };

    /// The separator between neighbours in record order.
    pub fn between(previous: (KeyspaceId, &[u8]), next: (KeyspaceId, &[u8])) -> Self {
        let (before, after) = (previous.0.0.to_be_bytes(), next.0.0.to_be_bytes());
        let mut shared = shared_prefix(&before, &after);
        if shared == 4 {
            shared += shared_prefix(previous.1, next.1);
        }
        let whole = 4 + next.1.len();
        let same_key = shared == whole;
        let wanted = if same_key { whole } else { shared + 1 };
        let mut separator = Self::FIRST;
        separator.len = wanted.min(SEPARATOR_BYTES_MAX);
        separator.inexact = same_key || wanted > SEPARATOR_BYTES_MAX;
        let bytes = after.iter().chain(next.1);
        for (to, from) in separator.bytes[..separator.len].iter_mut().zip(bytes) {
            *to = *from;
        }
        separator
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

fn shared_prefix(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(x, y)| x == y).count()
}

/// Collects fences into pieces, in memory given by the caller.
#[derive(Debug)]
pub struct KeyFenceBuilder {
    bytes: Vec<u8>,
    seeds: Seeds,
    piece_start: usize,
    in_piece: u16,
    fences: u64,
    chain: Chain,
}

impl KeyFenceBuilder {
    /// A builder in the memory of `bytes`, which is emptied.
    pub fn new(mut bytes: Vec<u8>, seeds: Seeds) -> Self {
        bytes.clear();
        Self {
            bytes,
            seeds,
            piece_start: 0,
            in_piece: 0,
            fences: 0,
            chain: Chain::default(),
        }
    }

    /// Adds the fence of the block at `offset`.
    pub fn push(&mut self, offset: u64, separator: &Separator) {
        let separator_bytes = separator.bytes();
        let used = self.bytes.len() - self.piece_start;
        if used + FENCE_HEADER_BYTES + separator_bytes.len() > FENCE_PIECE_BYTES {
            self.bytes.resize(self.piece_start + FENCE_PIECE_BYTES, 0);
            self.seal_piece(used);
        }
        if self.in_piece == 0 {
            self.bytes.resize(self.piece_start + PIECE_HEADER_BYTES, 0);
        }
        let flags = u64::from(separator.inexact) * u64::from(FLAG_INEXACT);
        let head = separator_bytes.len() as u64 | flags << 8 | (offset / UNIT_BYTES) << 16;
        self.bytes.extend_from_slice(&head.to_le_bytes());
        self.bytes.extend_from_slice(separator_bytes);
        self.in_piece += 1;
        self.fences += 1;
    }

    /// Ends the last piece. No fence after that.
    pub fn finish(&mut self) {
        if self.in_piece > 0 {
            self.seal_piece(self.bytes.len() - self.piece_start);
        }
    }

    /// The pieces.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Number of fences, and the chained checksum of the pieces.
    pub const fn totals(&self) -> (u64, u64) {
        (self.fences, self.chain.0)
    }

    /// Gives the memory back.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    fn seal_piece(&mut self, used: usize) {
        let number = (self.piece_start / FENCE_PIECE_BYTES) as u64;
        let piece = &mut self.bytes[self.piece_start..];
        piece[8..10].copy_from_slice(&self.in_piece.to_le_bytes());
        piece[10..12].copy_from_slice(&(used as u16).to_le_bytes());
        let sum = checksum(self.seeds.seed(Domain::KeyFences, number), &piece[8..]);
        piece[..8].copy_from_slice(&sum.to_le_bytes());
        self.chain.push(sum);
        self.piece_start = self.bytes.len();
        self.in_piece = 0;
    }
}

/// A fence of a decoded piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fence {
    /// The block's offset in the file, in bytes.
    pub offset: u64,
    start: u16,
    len: u8,
    /// Whether the separator is only a prefix of the block's first key.
    pub inexact: bool,
}

impl Fence {
    /// The separator, given the piece that the fence came from.
    pub fn separator<'a>(&self, piece: &'a [u8]) -> &'a [u8] {
        let start = usize::from(self.start);
        piece
            .get(start..start + usize::from(self.len))
            .unwrap_or_default()
    }
}

/// Checks a piece read from disk and fills `fences`; returns its checksum, or what is wrong.
pub fn decode_piece(
    piece: &[u8],
    number: u64,
    seeds: Seeds,
    fences: &mut Vec<Fence>,
) -> Result<u64, &'static str> {
    fences.clear();
    let header = piece
        .first_chunk::<PIECE_HEADER_BYTES>()
        .ok_or("a fence piece is cut")?;
    let sum = checksum(seeds.seed(Domain::KeyFences, number), &piece[8..]);
    if header[..8] != sum.to_le_bytes() {
        return Err("key fence checksum");
    }
    let count = u16::from_le_bytes([header[8], header[9]]);
    let used = usize::from(u16::from_le_bytes([header[10], header[11]]));
    if piece.len() > FENCE_PIECE_BYTES || usize::from(count) > PIECE_FENCES_MAX {
        return Err("key fence count");
    }
    fences.reserve_exact(PIECE_FENCES_MAX);
    let mut at = PIECE_HEADER_BYTES;
    for _ in 0..count {
        let head = piece
            .get(at..)
            .and_then(|rest| rest.first_chunk::<FENCE_HEADER_BYTES>());
        let head = u64::from_le_bytes(*head.ok_or("a key fence is cut")?);
        let start = at + FENCE_HEADER_BYTES;
        at = start + (head & 0xFF) as usize;
        if at > used.min(piece.len()) {
            return Err("a key fence is cut");
        }
        fences.push(Fence {
            offset: (head >> 16) * UNIT_BYTES,
            inexact: (head >> 8) as u8 & FLAG_INEXACT != 0,
            start: start as u16,
            len: head as u8,
        });
    }
    match fences.is_empty() || at != used {
        true => Err("key fence count"),
        false => Ok(sum),
    }
}

/// Where a search goes from a fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FenceAnswer {
    /// Nothing before this block is wanted: start here or later.
    HereOrLater,
    /// Start before this block.
    Before,
    /// The block's first record decides.
    AskRecord,
}

/// A (keyspace, key) to compare separators with: as many bytes of it as they can have, and one more.
#[derive(Clone, Copy, Debug)]
pub struct SearchKey {
    bytes: [u8; SEPARATOR_BYTES_MAX + 1],
    len: usize,
}

impl SearchKey {
    /// The search key of a key.
    pub fn new(keyspace: KeyspaceId, key: &[u8]) -> Self {
        let mut bytes = [0; SEPARATOR_BYTES_MAX + 1];
        let len = (4 + key.len()).min(bytes.len());
        bytes[..4].copy_from_slice(&keyspace.0.to_be_bytes());
        bytes[4..len].copy_from_slice(&key[..len - 4]);
        Self { bytes, len }
    }

    /// Whether the first record that is not below the key can lie before the fence's block.
    pub fn ask(&self, separator: &[u8], inexact: bool) -> FenceAnswer {
        let wanted = &self.bytes[..self.len];
        match separator.cmp(wanted) {
            Ordering::Greater => FenceAnswer::Before,
            _ if inexact && wanted.starts_with(separator) => FenceAnswer::AskRecord,
            _ => FenceAnswer::HereOrLater,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::identity::tests::IDENTITY;
    use super::*;

    const A: KeyspaceId = KeyspaceId(1);
    const B: KeyspaceId = KeyspaceId(0x102);

    #[test]
    fn separators_are_short_and_say_when_they_are_inexact() {
        let sep = |a: (KeyspaceId, &[u8]), b: (KeyspaceId, &[u8])| {
            let s = Separator::between(a, b);
            (s.bytes().to_vec(), s.inexact)
        };
        assert_eq!(
            sep((A, b"apple"), (A, b"banana")),
            (b"\0\0\0\x01b".to_vec(), false)
        );
        assert_eq!(sep((A, b""), (A, b"x")), (b"\0\0\0\x01x".to_vec(), false));
        assert_eq!(sep((A, b"zz"), (B, b"aa")), (b"\0\0\x01".to_vec(), false));
        assert_eq!(
            sep((A, b"key"), (A, b"key")),
            (b"\0\0\0\x01key".to_vec(), true)
        );
        assert_eq!(sep((A, b""), (A, b"")), (b"\0\0\0\x01".to_vec(), true));
        let (long, longer) = ([7; 40], [7; 41]);
        assert_eq!(sep((A, &long), (A, &longer)).0.len(), 32);
        assert!(sep((A, &long), (A, &longer)).1);
        let (x, y) = ([7; 27], [7; 28]);
        assert_eq!(
            (sep((A, &x), (A, &y)).0.len(), sep((A, &x), (A, &y)).1),
            (32, false)
        );
    }

    #[test]
    fn answers_follow_from_the_separator() {
        let key = SearchKey::new(A, b"mm");
        assert_eq!(key.ask(b"", false), FenceAnswer::HereOrLater);
        assert_eq!(key.ask(b"\0\0\0\x01m", false), FenceAnswer::HereOrLater);
        assert_eq!(key.ask(b"\0\0\0\x01m", true), FenceAnswer::AskRecord);
        assert_eq!(key.ask(b"\0\0\0\x01mm", true), FenceAnswer::AskRecord);
        assert_eq!(key.ask(b"\0\0\0\x01mma", true), FenceAnswer::Before);
        assert_eq!(key.ask(b"\0\0\0\x01ma", true), FenceAnswer::HereOrLater);
        assert_eq!(key.ask(b"\0\0\0\x01n", false), FenceAnswer::Before);
    }

    #[test]
    fn pieces_round_trip_and_flips_are_seen() {
        let seeds = IDENTITY.seeds();
        let mut builder = KeyFenceBuilder::new(Vec::new(), seeds);
        builder.push(64, &Separator::FIRST);
        for i in 1..300_u32 {
            let (before, after) = ((i - 1).to_be_bytes(), i.to_be_bytes());
            let separator = Separator::between((A, &before), (A, &after));
            builder.push(64 + u64::from(i) * 4096, &separator);
        }
        builder.finish();
        let bytes = builder.bytes().to_vec();
        assert_eq!(bytes.len().div_ceil(FENCE_PIECE_BYTES), 2);
        assert!(bytes.len() as u64 <= key_fence_bytes_max(299 * 4096, 4096));
        let mut fences = Vec::new();
        let mut offsets = Vec::new();
        for (number, piece) in bytes.chunks(FENCE_PIECE_BYTES).enumerate() {
            decode_piece(piece, number as u64, seeds, &mut fences).expect("intact");
            offsets.extend(fences.iter().map(|fence| fence.offset));
            assert!(decode_piece(piece, 7, seeds, &mut fences).is_err());
        }
        assert_eq!(offsets, (0..300).map(|i| 64 + i * 4096).collect::<Vec<_>>());
        let last = &bytes[FENCE_PIECE_BYTES..];
        for at in 0..last.len() {
            let mut bad = last.to_vec();
            bad[at] ^= 1;
            assert!(
                decode_piece(&bad, 1, seeds, &mut fences).is_err(),
                "byte {at}"
            );
            assert!(
                decode_piece(&last[..at], 1, seeds, &mut fences).is_err(),
                "cut {at}"
            );
        }
    }

    /// Few letters and long shared beginnings: neighbours that are hard to tell apart.
    fn any_key() -> impl Strategy<Value = (u32, Vec<u8>)> {
        let tail = prop::collection::vec(prop::sample::select(vec![0, 1, 255_u8]), 0..4);
        (1..4_u32, 0..40_usize, tail).prop_map(|(keyspace, shared, tail)| {
            let mut key = vec![7; shared];
            key.extend(tail);
            (keyspace, key)
        })
    }

    fn joined((keyspace, key): &(u32, Vec<u8>)) -> Vec<u8> {
        [&keyspace.to_be_bytes()[..], key].concat()
    }

    proptest! {
        #[test]
        fn separators_part_what_they_stand_between(
            mut pair in [any_key(), any_key()],
            wanted in any_key(),
        ) {
            pair.sort();
            let [previous, next] = &pair;
            let [p, q] = [previous, next].map(joined);
            let separator = Separator::between(
                (KeyspaceId(previous.0), &previous.1),
                (KeyspaceId(next.0), &next.1),
            );
            let bytes = separator.bytes();
            prop_assert!(q.starts_with(bytes) && bytes.len() <= SEPARATOR_BYTES_MAX);
            let is_cut = p.starts_with(bytes);
            prop_assert_eq!(separator.inexact, is_cut);
            if !separator.inexact {
                prop_assert!(p.as_slice() < bytes);
                prop_assert!(p.starts_with(&bytes[..bytes.len() - 1]), "the shortest");
            }
            // Whatever is sought: what stands in front is never sought behind, nor the other way.
            let key = SearchKey::new(KeyspaceId(wanted.0), &wanted.1);
            let sought = joined(&wanted);
            match key.ask(bytes, separator.inexact) {
                FenceAnswer::Before => prop_assert!(sought < q),
                FenceAnswer::HereOrLater => prop_assert!(sought > p || sought == q),
                FenceAnswer::AskRecord => prop_assert!(sought.starts_with(bytes)),
            }
        }
    }
}
