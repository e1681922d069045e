//! Changes to the bytes of a file, as a fuzzer's bytes say: eight bytes a change, so that taking eight
//! away takes one change.
//!
//! Two kinds. [`Damage`] is what disks do; what it writes is the output of a mixing function, so that no
//! fuzzer can steer it into a right checksum. [`Edit`] is what an adversary would do; checksums are made
//! right afterwards.

use sealstone_sim::choices::SmallRandom;

use super::Cursor;
use super::seal::put;

/// Most changes of one input.
const CHANGES_MAX: usize = 12;

/// Numbers that formats stumble over.
const NOTABLE: [u64; 12] = [
    0,
    1,
    u64::MAX,
    u64::MAX - 7,
    1 << 63,
    u32::MAX as u64,
    1 << 31,
    1 << 32,
    (1 << 43) - 1,
    u16::MAX as u64,
    1 << 15,
    64,
];

/// What a disk may do to a file.
#[derive(Clone, Copy, Debug)]
pub struct Damage {
    kind: u8,
    seed: u8,
    place: u16,
    length: u16,
}

/// Damage that a file took.
#[derive(Clone, Copy, Debug, Default)]
pub struct Taken {
    /// Bytes of the file differ.
    pub changed: bool,
    /// At most one place of at most four bytes differs.
    pub small: bool,
}

impl Taken {
    /// What a target counts it as.
    pub fn name(&self) -> &'static str {
        match self.changed {
            true => "damaged",
            false => "untouched",
        }
    }
}

impl Damage {
    fn next(cursor: &mut Cursor<'_>) -> Self {
        let damage = Self {
            kind: cursor.byte(),
            seed: cursor.byte(),
            place: cursor.short(),
            length: cursor.short(),
        };
        cursor.short();
        damage
    }

    fn apply(self, bytes: &mut Vec<u8>) {
        let at = usize::from(self.place) % bytes.len().max(1);
        let rest = bytes.len() - at;
        let mut random = SmallRandom::new(u64::from(self.seed) | u64::from(self.place) << 8);
        match self.kind % 5 {
            0 | 1 => {
                let count = rest.min(1 + usize::from(self.length % 4));
                for byte in &mut bytes[at..at + count] {
                    *byte ^= 1 + random.below(255) as u8;
                }
            }
            2 => {
                let count = rest.min(usize::from(self.length));
                bytes[at..at + count].fill(0);
            }
            3 => {
                let count = rest.min(usize::from(self.length % 1024));
                random.fill(&mut bytes[at..at + count]);
            }
            _ => bytes.truncate(at),
        }
    }
}

/// Damages `bytes` as the cursor says.
pub fn damage(bytes: &mut Vec<u8>, cursor: &mut Cursor<'_>) -> Taken {
    let before = bytes.clone();
    let mut small = true;
    for number in 0..CHANGES_MAX {
        if cursor.is_empty() {
            break;
        }
        let damage = Damage::next(cursor);
        small &= number == 0 && damage.kind % 5 < 2;
        damage.apply(bytes);
    }
    Taken {
        changed: before != *bytes,
        small: small && before.len() == bytes.len(),
    }
}

/// One change on purpose.
#[derive(Clone, Copy, Debug)]
struct Edit {
    kind: u8,
    anchor: u8,
    distance: i8,
    size: u8,
    value: u32,
}

impl Edit {
    fn next(cursor: &mut Cursor<'_>) -> Self {
        Self {
            kind: cursor.byte(),
            anchor: cursor.byte(),
            distance: cursor.byte() as i8,
            size: cursor.byte(),
            value: cursor.word(),
        }
    }

    /// Applies it near one of `places`; `resize` says whether bytes may move.
    fn apply(self, bytes: &mut Vec<u8>, places: &[usize], resize: bool) {
        let place = places[usize::from(self.anchor) % places.len()];
        let at = place.saturating_add_signed(self.distance.into());
        let at = at.min(bytes.len());
        let width = 1 << (self.size % 4);
        let count = 8 * usize::from(self.size).min((bytes.len() - at) / 8);
        let other = places[self.value as usize % places.len()].min(bytes.len());
        match self.kind % 10 {
            0 | 1 => put(bytes, at, &u64::from(self.value).to_le_bytes()[..width]),
            2 => {
                let value = NOTABLE[self.value as usize % NOTABLE.len()];
                put(bytes, at, &value.to_le_bytes()[..width]);
            }
            3 => {
                // A small step up or down.
                let mut word = [0; 8];
                let count = width.min(bytes.len() - at);
                word[..count].copy_from_slice(&bytes[at..at + count]);
                let step = i64::from(self.value as i8);
                let value = u64::from_le_bytes(word).wrapping_add_signed(step);
                put(bytes, at, &value.to_le_bytes()[..width]);
            }
            4 => put(bytes, at, &self.value.to_le_bytes()),
            5 => put(
                bytes,
                at,
                &(self.value as u64).wrapping_mul(0x0101_0101).to_le_bytes(),
            ),
            6 => {
                let from = bytes[other..].to_vec();
                put(bytes, at, &from[..from.len().min(count)]);
            }
            7 if resize => drop(bytes.drain(at..at + count)),
            8 if resize => {
                let end = bytes.len().min(other + count);
                let copied = bytes[other..end].to_vec();
                bytes.splice(at..at, copied);
            }
            9 if resize => bytes.truncate(at),
            _ => {
                let end = at + count;
                bytes[at..end].fill(self.value as u8);
            }
        }
    }
}

/// Edits `bytes` as the cursor says, near the places that `places` finds.
pub fn edit(
    bytes: &mut Vec<u8>,
    cursor: &mut Cursor<'_>,
    resize: bool,
    places: impl Fn(&[u8]) -> Vec<usize>,
) {
    for _ in 0..CHANGES_MAX {
        if cursor.is_empty() {
            return;
        }
        Edit::next(cursor).apply(bytes, &places(bytes), resize);
    }
}
