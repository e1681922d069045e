//! The same for segments, and for what the manifest says of them.
//!
//! The sections are taken where the footer says they are, if they are inside the file.

use std::ops::Range;

use crc32c::crc32c_append;
use twox_hash::XxHash3_64;

use super::seal::{head, manifest_places, number, put};

/// Bytes of a page, and of a whole piece of key fences.
const PAGE_BYTES: usize = 4096;

/// Bytes of a filter under one checksum.
const FILTER_PIECE_BYTES: usize = 256 * 64;

/// Bytes of the footer before its sections, and of each of them.
const FOOTER_BYTES: usize = 120;
const SECTION_BYTES: usize = 40;

/// Bytes behind the footer's checksum, and with it.
const TRAILER_BYTES: usize = 16;
const SUM_AND_TRAILER_BYTES: usize = 24;

/// Where the footer starts: by the trailer, if that can be.
pub fn footer_at(bytes: &[u8]) -> Option<usize> {
    let length = number::<4>(bytes, bytes.len().checked_sub(TRAILER_BYTES)?) as usize;
    let least = FOOTER_BYTES + SUM_AND_TRAILER_BYTES;
    (length >= least).then_some(())?;
    bytes.len().checked_sub(length)
}

/// A section as the footer has it.
#[derive(Clone, Debug)]
pub struct Section {
    /// Where its row in the footer is.
    pub row: usize,
    /// Its id.
    pub id: u64,
    /// Where it is.
    pub span: Range<usize>,
    /// What it counts.
    pub items: u64,
}

/// The sections that are inside the file.
pub fn sections(bytes: &[u8]) -> Vec<Section> {
    let Some(footer) = footer_at(bytes) else {
        return Vec::new();
    };
    let count = number::<2>(bytes, footer + 116) as usize;
    let room = (bytes.len() - footer - FOOTER_BYTES - SUM_AND_TRAILER_BYTES) / SECTION_BYTES;
    let section = |n: usize| {
        let row = footer + FOOTER_BYTES + n * SECTION_BYTES;
        let start = number::<8>(bytes, row + 8);
        let end = start.checked_add(number::<8>(bytes, row + 16))?;
        (end <= bytes.len() as u64).then(|| Section {
            row,
            id: number::<2>(bytes, row),
            span: start as usize..end as usize,
            items: number::<8>(bytes, row + 24),
        })
    };
    (0..count.min(room)).filter_map(section).collect()
}

/// Places where the parts of a segment begin.
pub fn segment_places(bytes: &[u8]) -> Vec<usize> {
    let mut places = vec![0];
    for section in sections(bytes) {
        places.push(section.row);
        match section.id {
            1 => places.extend(records(bytes, &section.span).map(|record| record.start)),
            _ => places.push(section.span.start),
        }
    }
    places.extend(footer_at(bytes));
    places.push(bytes.len().saturating_sub(SUM_AND_TRAILER_BYTES));
    places
}

/// The records of a section, without their padding.
fn records<'a>(bytes: &'a [u8], span: &Range<usize>) -> impl Iterator<Item = Range<usize>> + 'a {
    let (mut at, end) = (span.start, span.end);
    std::iter::from_fn(move || {
        (at + 24 <= end).then_some(())?;
        let flags = number::<1>(bytes, at + 23);
        let extension = match flags & 1 {
            0 => 0,
            _ => 2 + number::<2>(bytes, at + 24),
        };
        let body = extension + number::<2>(bytes, at + 20) + number::<4>(bytes, at + 16);
        let record = at..at + 24 + body as usize;
        at = record.start + record.len().next_multiple_of(8).max(32);
        (record.end <= end).then_some(record)
    })
}

fn xxh3(seed: u64, bytes: &[u8]) -> u64 {
    XxHash3_64::oneshot_with_seed(seed, bytes)
}

/// The seeds of one identity.
#[derive(Clone, Copy, Debug)]
struct Seeds(u64);

impl Seeds {
    fn seed(self, domain: u64, place: u64) -> u64 {
        let words = [domain.to_le_bytes(), place.to_le_bytes()].concat();
        xxh3(self.0, &words)
    }
}

fn chain(sum: u64, next: u64) -> u64 {
    xxh3(sum, &next.to_le_bytes())
}

/// Seals everything in a segment.
pub fn segment(bytes: &mut [u8]) {
    let Some(footer) = footer_at(bytes) else {
        return head(bytes);
    };
    let identity = bytes[footer..footer + 40].to_vec();
    put(bytes, 16, &identity);
    head(bytes);
    let seeds = Seeds(xxh3(0, &identity));
    for section in sections(bytes) {
        let sum = match section.id {
            1 => seal_records(bytes, &section.span, seeds),
            2 => seal_pieces(bytes, &section.span, seeds, 2),
            3 => seal_pieces(bytes, &section.span, seeds, 3),
            4 => seal_filter(bytes, &section, seeds),
            _ => xxh3(seeds.seed(5, 0), &bytes[section.span.clone()]),
        };
        put(bytes, section.row + 32, &sum.to_le_bytes());
    }
    let at = bytes.len() - SUM_AND_TRAILER_BYTES;
    let sum = xxh3(0, &bytes[footer..at]);
    put(bytes, at, &sum.to_le_bytes());
}

fn seal_records(bytes: &mut [u8], span: &Range<usize>, seeds: Seeds) -> u64 {
    let found: Vec<_> = records(bytes, span).collect();
    let mut sum = 0;
    for record in found {
        let unit = record.start as u64 / 8;
        let start = seeds.seed(1, 0) as u32 ^ unit as u32 ^ ((unit >> 32) as u32).rotate_left(16);
        let crc = crc32c_append(start, &bytes[record.start + 4..record.end]);
        put(bytes, record.start, &crc.to_le_bytes());
        sum = chain(sum, crc.into());
    }
    sum
}

/// Pieces of a page, of which each begins with its sum.
fn seal_pieces(bytes: &mut [u8], span: &Range<usize>, seeds: Seeds, domain: u64) -> u64 {
    let mut sum = 0;
    for (number, piece) in bytes[span.clone()].chunks_mut(PAGE_BYTES).enumerate() {
        let own = xxh3(
            seeds.seed(domain, number as u64),
            piece.get(8..).unwrap_or_default(),
        );
        put(piece, 0, &own.to_le_bytes());
        sum = chain(sum, own);
    }
    sum
}

/// Blocks, then the sums of their pieces.
fn seal_filter(bytes: &mut [u8], section: &Section, seeds: Seeds) -> u64 {
    let start = section.span.start;
    let blocks_end = (section.items.min(1 << 32) as usize * 64).saturating_add(start);
    let blocks_end = blocks_end.min(section.span.end);
    let mut sum = 0;
    for (number, at) in (start..blocks_end).step_by(FILTER_PIECE_BYTES).enumerate() {
        let piece = &bytes[at..blocks_end.min(at + FILTER_PIECE_BYTES)];
        let own = xxh3(seeds.seed(4, at as u64), piece);
        put(bytes, blocks_end + 8 * number, &own.to_le_bytes());
        sum = chain(sum, own);
    }
    sum
}

/// Makes the manifest say of segment `file_number` what its footer says; the tail keeps its place.
pub fn adopt(manifest: &mut [u8], file_number: u64, segment: &[u8]) {
    let Some(footer) = footer_at(segment) else {
        return;
    };
    for field in manifest_places(manifest) {
        let at = field + 6;
        if number::<2>(manifest, field) != 4 || number::<8>(manifest, at) != file_number {
            continue;
        }
        put(manifest, at + 8, &segment[footer..footer + 36]);
        let length = segment.len() as u64;
        let tail = length.wrapping_sub(number::<8>(manifest, at + 52));
        put(manifest, at + 44, &length.to_le_bytes());
        put(manifest, at + 60, &tail.to_le_bytes());
        let sum = segment.len() - SUM_AND_TRAILER_BYTES;
        put(manifest, at + 68, &segment[sum..sum + 8]);
        put(manifest, at + 76, &segment[footer + 56..footer + 104]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::support::scene::Scene;
    use sealstone::env::{FileKind, FileName};

    #[test]
    fn sealing_changes_nothing_of_what_the_engine_wrote() {
        for scene in [Scene::wide(), Scene::narrow()] {
            let mut manifest = scene.files()[&FileName::MANIFEST].clone();
            let mut segments = 0;
            for (name, bytes) in scene.files() {
                if name.kind != FileKind::Segment {
                    continue;
                }
                segments += 1;
                let mut sealed = bytes.clone();
                segment(&mut sealed);
                assert_eq!(sections(bytes).len(), 6, "two filters");
                let differs = sealed.iter().zip(bytes).position(|(a, b)| a != b);
                assert_eq!(differs, None, "{name:?}");
                adopt(&mut manifest, name.number, bytes);
            }
            assert!(segments >= 3);
            assert!(manifest == scene.files()[&FileName::MANIFEST]);
        }
    }
}
