//! Damage done to the images on purpose, and the table of what verification must say of it.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use crate::report;

/// The images that are damaged: the others have the same kinds of files.
const DAMAGED: [&str; 2] = ["small", "hash-collisions"];

/// How many places of a log or manifest are flipped.
const FLIPS: usize = 8;

/// Places of a segment's footer, from the end: in its counts, its checksum, its length, its version.
const FOOTER: [usize; 4] = [320, 20, 16, 12];

/// Something that happens to a file.
#[derive(Clone, Copy, Debug)]
pub enum Damage {
    /// All bits of a byte.
    Flip(usize),
    /// The end, from here on.
    Cut(usize),
    /// Everything.
    Remove,
}

impl Damage {
    fn apply(self, file: &Path) {
        let mut bytes = std::fs::read(file).expect("reads");
        match self {
            Self::Flip(at) => bytes[at] ^= 0xFF,
            Self::Cut(at) => bytes.truncate(at),
            Self::Remove => return std::fs::remove_file(file).expect("removes"),
        }
        std::fs::write(file, bytes).expect("writes");
    }
}

/// A damaged copy of an image.
pub struct Case {
    pub image: &'static str,
    pub file: String,
    pub damage: Damage,
}

impl Case {
    /// Makes the copy.
    pub fn copy(&self, images: &Path) -> (tempfile::TempDir, PathBuf) {
        let (guard, store) = report::copy(&images.join(self.image).join("store"));
        self.damage.apply(&store.join(&self.file));
        (guard, store)
    }
}

/// All cases, in a fixed order.
pub fn cases(images: &Path) -> Vec<Case> {
    let mut cases = Vec::new();
    for image in DAMAGED {
        let store = images.join(image).join("store");
        let entries = std::fs::read_dir(&store).expect("a directory");
        let mut names: Vec<String> = entries
            .map(|entry| entry.expect("an entry").file_name())
            .map(|name| name.into_string().expect("one of ours"))
            .filter(|name| name != "LOCK")
            .collect();
        names.sort();
        for file in names {
            let bytes = std::fs::read(store.join(&file)).expect("reads");
            for damage in damages(&file, &bytes) {
                let file = file.clone();
                cases.push(Case {
                    image,
                    file,
                    damage,
                });
            }
        }
    }
    cases
}

/// Flips, two cuts, and the loss of all. A log without frames is its head.
fn damages(name: &str, bytes: &[u8]) -> Vec<Damage> {
    let used = bytes
        .iter()
        .rposition(|byte| *byte != 0)
        .map_or(0, |at| at + 1);
    let flips = if name.ends_with(".seg") {
        segment_places(bytes)
    } else if used <= 64 {
        return vec![
            Damage::Flip(8),
            Damage::Flip(32),
            Damage::Cut(40),
            Damage::Remove,
        ];
    } else {
        // From the end, so that the last byte, which is never padding, is one of them.
        (0..FLIPS).map(|n| used - 1 - used / FLIPS * n).collect()
    };
    let cuts = [used / 2, used - 1].map(Damage::Cut);
    let flips = flips.into_iter().map(Damage::Flip);
    flips.chain(cuts).chain([Damage::Remove]).collect()
}

/// The head, the first and the last byte of every section, the padding, and the footer.
fn segment_places(bytes: &[u8]) -> Vec<usize> {
    let number = |at: usize| {
        let bytes = bytes[at..].first_chunk().expect("a footer");
        u64::from_le_bytes(*bytes) as usize
    };
    let footer = bytes.len() - number(bytes.len() - 16) % (1 << 32);
    let sections = number(footer + 116) % (1 << 16);
    let mut places = vec![20];
    for n in 0..sections {
        let at = footer + 120 + 40 * n;
        let (first, length) = (number(at + 8), number(at + 16));
        places.extend([first, first + length - 1]);
        if n == 1 {
            places.push(first + length);
        }
    }
    places.extend(FOOTER.map(|back| bytes.len() - back));
    places.push(bytes.len() - 1);
    places
}

/// The table: a line for each case, then what is found, indented.
pub fn table(images: &Path) -> String {
    let mut text = String::new();
    for case in cases(images) {
        let (_guard, store) = case.copy(images);
        let Case {
            image,
            file,
            damage,
        } = &case;
        let _ = write!(
            text,
            "{image} {file} {damage:?}\n{}",
            report::damage(&store)
        );
    }
    text
}
