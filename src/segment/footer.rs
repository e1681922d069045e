//! File head and footer: what is where in a segment, and under which checksum.
//!
//! ```text
//! head, 64 bytes at offset 0
//!      0      8  magic "SEALSEGM"; of a part of a folded run "SEALRUNS"
//!      8      4  version
//!     12      4  CRC-32C over the other 60 bytes
//!     16     40  identity
//!     56      8  incompatible feature bits
//!
//! footer, at the end of the file
//!      0     40  identity
//!     40      8  compatible feature bits: to be ignored when unknown
//!     48      8  incompatible feature bits: an unknown one refuses the file
//!     56      8  records              64      8  tombstones among them
//!     72      8  lowest sequence      80      8  highest sequence
//!     88      8  bytes of keys        96      8  bytes of values
//!    104      1  hash bits           105      1  prefix bits of the part
//!    106      1  ordinal bits        107      1  offset bits of a location
//!    108      4  page bytes          112      4  bytes of records a key fence
//!    116      2  sections            118      2  bytes of fields
//!    120   40*n  sections
//!      -      m  fields: tag u16 | length u32 | bytes, as in manifests
//!      -      8  XXH3-64 over everything before
//!      -     16  trailer: footer length u32 (with the trailer) | version u32 | magic
//!
//! section, 40 bytes
//!      0      2  id: 1 records, 2 key fences, 3 index pages, 4 filter, 5 page fences
//!      2      2  filter: algorithm, k      4      2  filter: bits a key      6      2  0
//!      8      8  offset    16      8  length    24      8  items    32      8  checksum
//! ```
//!
//! Ids and tags with the top bit set may be skipped by who does not know them; any other unknown one
//! means a newer format. The trailer keeps its place in all versions, and the version is looked at
//! before any checksum, so that a newer file is called newer and not damaged.

use super::identity::{SegmentIdentity, checksum};
use super::layout::{FilterSection, Section, SegmentLayout, Span};
use crate::filter::{Algorithm, FilterShape};
use crate::index::LOCATION_BITS;
use crate::index::page::PAGE_BYTES;
use crate::types::Sequence;

/// The newest segment format known here.
pub const SEGMENT_VERSION: u32 = 1;

/// Bytes of the file head; the first record starts behind it.
pub const HEAD_BYTES: usize = 64;

/// Bytes of the trailer, the part of the footer that never moves.
pub const TRAILER_BYTES: usize = 16;

const MAGIC: [u8; 8] = *b"SEALSEGM";
/// Of the index of a folded run.
const RUN_MAGIC: [u8; 8] = *b"SEALRUNS";
const FIXED_BYTES: usize = 120;
const SECTION_BYTES: usize = 40;
const CHECKSUM_BYTES: usize = 8;
const SKIPPABLE: u16 = 0x8000;
/// Part numbers have 16 bits, and a fence of 32 bits must be left.
pub const PREFIX_BITS_MAX: u8 = 14;
/// Incompatible features known here: none.
const FEATURES_KNOWN: u64 = 0;

/// Why a head or footer can't be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FooterFault {
    /// Not what was written.
    Damaged(&'static str),
    /// A newer format: what the file says, and why.
    Newer(u32, &'static str),
}

use FooterFault::{Damaged, Newer};

/// A feature or id of a later format under today's version number: newer than this build by one.
const fn newer_feature(what: &'static str) -> FooterFault {
    Newer(SEGMENT_VERSION + 1, what)
}

/// Totals over the records of a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SegmentCounts {
    /// Records.
    pub records: u64,
    /// Tombstones among them.
    pub tombstones: u64,
    /// The lowest sequence; 0 without records.
    pub min_sequence: Sequence,
    /// The highest.
    pub max_sequence: Sequence,
    /// Bytes of all keys.
    pub key_bytes: u64,
    /// Bytes of all values.
    pub value_bytes: u64,
}

/// Everything the footer says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Footer {
    /// What the segment is.
    pub identity: SegmentIdentity,
    /// Totals over its records.
    pub counts: SegmentCounts,
    /// Hash bits of its store.
    pub hash_bits: u8,
    /// Leading hash bits that all its keys share.
    pub prefix_bits: u8,
    /// Bits of a location that say which segment of the run; 0 in a segment's own index.
    pub ordinal_bits: u8,
    /// Bytes of records a key fence.
    pub key_fence_bytes: u32,
    /// Where everything is.
    pub layout: SegmentLayout,
}

/// The magic of what has this level.
const fn magic_of(level: u8) -> [u8; 8] {
    match level {
        0 => MAGIC,
        _ => RUN_MAGIC,
    }
}

/// The encoded file head.
pub fn encode_head(identity: &SegmentIdentity) -> [u8; HEAD_BYTES] {
    let mut head = [0; HEAD_BYTES];
    head[..8].copy_from_slice(&magic_of(identity.level));
    head[8..12].copy_from_slice(&SEGMENT_VERSION.to_le_bytes());
    head[16..56].copy_from_slice(&identity.encode());
    let crc = head_crc(&head);
    head[12..16].copy_from_slice(&crc.to_le_bytes());
    head
}

/// The identity that a file head gives.
pub fn decode_head(head: &[u8; HEAD_BYTES]) -> Result<SegmentIdentity, FooterFault> {
    if head[..8] != MAGIC && head[..8] != RUN_MAGIC {
        return Err(Damaged("file head magic"));
    }
    check_version(u32_at(head, 8), "file head version")?;
    if head[12..16] != head_crc(head).to_le_bytes() {
        return Err(Damaged("file head checksum"));
    }
    if u64_at(head, 56) & !FEATURES_KNOWN != 0 {
        return Err(newer_feature("unknown feature bits in the file head"));
    }
    let identity = head[16..].first_chunk().and_then(SegmentIdentity::decode);
    identity
        .filter(|identity| head[..8] == magic_of(identity.level))
        .ok_or(Damaged("file head identity"))
}

fn head_crc(head: &[u8; HEAD_BYTES]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&head[..12]), &head[16..])
}

fn check_version(found: u32, what: &'static str) -> Result<(), FooterFault> {
    match found {
        SEGMENT_VERSION => Ok(()),
        _ => Err(Newer(found, what)),
    }
}

impl Footer {
    /// Bytes of the encoded form.
    pub fn encoded_bytes(&self) -> usize {
        let sections = 4 + self.layout.filters.len();
        FIXED_BYTES + sections * SECTION_BYTES + CHECKSUM_BYTES + TRAILER_BYTES
    }

    /// Appends the encoded form; returns its checksum.
    pub fn encode(&self, out: &mut Vec<u8>) -> u64 {
        let start = out.len();
        let sections = 4 + self.layout.filters.len();
        out.extend_from_slice(&self.identity.encode());
        let counts = &self.counts;
        for value in [
            0, // compatible features
            0, // incompatible features
            counts.records,
            counts.tombstones,
            counts.min_sequence,
            counts.max_sequence,
            counts.key_bytes,
            counts.value_bytes,
        ] {
            out.extend_from_slice(&value.to_le_bytes());
        }
        let offset_bits = LOCATION_BITS as u8 - self.ordinal_bits;
        out.extend_from_slice(&[
            self.hash_bits,
            self.prefix_bits,
            self.ordinal_bits,
            offset_bits,
        ]);
        out.extend_from_slice(&(PAGE_BYTES as u32).to_le_bytes());
        out.extend_from_slice(&self.key_fence_bytes.to_le_bytes());
        out.extend_from_slice(&(sections as u16).to_le_bytes());
        out.extend_from_slice(&[0, 0]);
        for (id, section) in (1_u16..).zip([
            &self.layout.records,
            &self.layout.key_fences,
            &self.layout.pages,
        ]) {
            encode_section(out, id, [0; 6], section);
        }
        for filter in &self.layout.filters {
            let (algorithm, k) = filter.shape.algorithm.code();
            let [low, high] = filter.shape.bits_per_key.to_le_bytes();
            encode_section(out, 4, [algorithm, k, low, high, 0, 0], &filter.section);
        }
        encode_section(out, 5, [0; 6], &self.layout.page_fences);
        let sum = checksum(0, &out[start..]);
        out.extend_from_slice(&sum.to_le_bytes());
        let length = (out.len() - start + TRAILER_BYTES) as u32;
        out.extend_from_slice(&length.to_le_bytes());
        out.extend_from_slice(&SEGMENT_VERSION.to_le_bytes());
        out.extend_from_slice(&magic_of(self.identity.level));
        sum
    }

    /// Decodes the footer at the end of `tail`, which ends where the file does; returns its length
    /// and its checksum too. Places are checked against `file_bytes` and each other.
    pub fn decode(tail: &[u8], file_bytes: u64) -> Result<(Self, usize, u64), FooterFault> {
        let trailer = tail
            .last_chunk::<TRAILER_BYTES>()
            .ok_or(Damaged("the footer is cut"))?;
        if trailer[8..] != MAGIC && trailer[8..] != RUN_MAGIC {
            return Err(Damaged("footer magic"));
        }
        check_version(u32_at(trailer, 4), "footer version")?;
        let length = u32_at(trailer, 0) as usize;
        let start = tail
            .len()
            .checked_sub(length)
            .ok_or(Damaged("footer length"))?;
        let body_bytes = length
            .checked_sub(TRAILER_BYTES + CHECKSUM_BYTES)
            .filter(|bytes| *bytes >= FIXED_BYTES)
            .ok_or(Damaged("footer length"))?;
        let (body, rest) = tail[start..].split_at(body_bytes);
        let sum = checksum(0, body);
        if rest[..CHECKSUM_BYTES] != sum.to_le_bytes() {
            return Err(Damaged("footer checksum"));
        }
        let footer = Self::decode_body(body)?;
        let level = footer.identity.level;
        if trailer[8..] != magic_of(level) {
            return Err(Damaged("footer magic"));
        }
        footer
            .layout
            .check(level, &footer.counts, file_bytes, length as u64)
            .map_err(Damaged)?;
        Ok((footer, length, sum))
    }

    fn decode_body(body: &[u8]) -> Result<Self, FooterFault> {
        if u64_at(body, 48) & !FEATURES_KNOWN != 0 {
            return Err(newer_feature("unknown feature bits in the footer"));
        }
        if u32_at(body, 108) != PAGE_BYTES as u32 {
            return Err(newer_feature("page bytes"));
        }
        let sections_end = FIXED_BYTES + usize::from(u16_at(body, 116)) * SECTION_BYTES;
        let fields = body.get(sections_end..).ok_or(Damaged("footer sections"))?;
        if fields.len() != usize::from(u16_at(body, 118)) {
            return Err(Damaged("footer fields"));
        }
        check_fields(fields)?;
        let prefix_bits = body[105];
        let layout = decode_sections(&body[FIXED_BYTES..sections_end], prefix_bits)?;
        let identity = body.first_chunk().and_then(SegmentIdentity::decode);
        let identity = identity.ok_or(Damaged("footer identity"))?;
        let (ordinal_bits, offset_bits) = (body[106], body[107]);
        if identity.level == 0 && ordinal_bits != 0 {
            return Err(newer_feature("ordinal bits in a segment's own index"));
        }
        if prefix_bits > PREFIX_BITS_MAX
            || (identity.level == 0 && prefix_bits != 0)
            || u32::from(ordinal_bits) + u32::from(offset_bits) != LOCATION_BITS
        {
            return Err(Damaged("footer bit counts"));
        }
        Ok(Self {
            identity,
            counts: SegmentCounts {
                records: u64_at(body, 56),
                tombstones: u64_at(body, 64),
                min_sequence: u64_at(body, 72),
                max_sequence: u64_at(body, 80),
                key_bytes: u64_at(body, 88),
                value_bytes: u64_at(body, 96),
            },
            hash_bits: body[104],
            prefix_bits,
            ordinal_bits,
            key_fence_bytes: u32_at(body, 112),
            layout,
        })
    }
}

fn encode_section(out: &mut Vec<u8>, id: u16, parameters: [u8; 6], section: &Section) {
    out.extend_from_slice(&id.to_le_bytes());
    out.extend_from_slice(&parameters);
    for value in [
        section.span.offset,
        section.span.bytes,
        section.items,
        section.checksum,
    ] {
        out.extend_from_slice(&value.to_le_bytes());
    }
}

fn decode_sections(bytes: &[u8], prefix_bits: u8) -> Result<SegmentLayout, FooterFault> {
    let mut layout = SegmentLayout::default();
    let mut seen = 0_u16;
    for entry in bytes.as_chunks::<SECTION_BYTES>().0 {
        let section = Section {
            span: Span {
                offset: u64_at(entry, 8),
                bytes: u64_at(entry, 16),
            },
            items: u64_at(entry, 24),
            checksum: u64_at(entry, 32),
        };
        let id = u16_at(entry, 0);
        match id {
            1 => layout.records = section,
            2 => layout.key_fences = section,
            3 => layout.pages = section,
            4 => layout
                .filters
                .extend(decode_filter(entry, section, prefix_bits)),
            5 => layout.page_fences = section,
            _ if id & SKIPPABLE != 0 => continue,
            _ => return Err(newer_feature("an unknown section")),
        }
        if id != 4 && seen & (1 << id) != 0 {
            return Err(Damaged("a section twice"));
        }
        seen |= 1 << id;
    }
    match seen & 0b10_1110 {
        0b10_1110 => Ok(layout),
        _ => Err(Damaged("a section is missing")),
    }
}

/// A filter alternative; `None` for an algorithm unknown here, which is as if it were not there.
fn decode_filter(
    entry: &[u8; SECTION_BYTES],
    section: Section,
    prefix_bits: u8,
) -> Option<FilterSection> {
    let shape = FilterShape {
        algorithm: Algorithm::from_code(entry[2], entry[3])?,
        bits_per_key: u16_at(entry, 4),
        prefix_bits,
        blocks: section.items,
    };
    Some(FilterSection { shape, section })
}

fn check_fields(mut fields: &[u8]) -> Result<(), FooterFault> {
    while !fields.is_empty() {
        let cut = Damaged("a footer field is cut");
        let Some((head, rest)) = fields.split_first_chunk::<6>() else {
            return Err(cut);
        };
        if u16_at(head, 0) & SKIPPABLE == 0 {
            return Err(newer_feature("an unknown footer field"));
        }
        fields = rest.get(u32_at(head, 2) as usize..).ok_or(cut)?;
    }
    Ok(())
}

/// Little-endian numbers at places that the caller has checked to exist; 0 beyond the end.
fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes
        .get(at..)
        .and_then(|b| b.first_chunk())
        .map_or(0, |b| u16::from_le_bytes(*b))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes
        .get(at..)
        .and_then(|b| b.first_chunk())
        .map_or(0, |b| u32::from_le_bytes(*b))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes
        .get(at..)
        .and_then(|b| b.first_chunk())
        .map_or(0, |b| u64::from_le_bytes(*b))
}
