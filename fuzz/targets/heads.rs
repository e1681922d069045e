//! Heads of files, field by field: the engine must say of each what `docs/format.md` says.

use arbitrary::{Arbitrary, Unstructured};
use sealstone::env::FileKind;
use sealstone::{ErrorKind, Store};

use crate::support::allocations::bounded;
use crate::support::scene::Scene;
use crate::support::{Seen, seal, target};

/// What is done to a head; of a fixed size, as `arbitrary` serves well.
#[derive(Arbitrary, Debug)]
struct Head {
    /// 0 log, 1 segment, 2 manifest.
    file: u8,
    which: u8,
    /// A bit for each of the fields below that is set.
    set: u8,
    magic: [u8; 8],
    version: u32,
    incompatible: u64,
    compatible: u64,
    /// Store id, number and incarnation, family and generations: what the head is bound to.
    binding_at: u8,
    binding: u8,
    /// Whether the checksum is wrong, and how.
    sum: u32,
}

/// What comes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Fine,
    Damaged,
    /// Of a newer format, or of one that never was.
    OtherVersion,
}

/// Where the parts are in each kind of file: magic, incompatible bits, compatible bits, binding.
struct Shape {
    kind: FileKind,
    incompatible: usize,
    compatible: Option<usize>,
    binding: std::ops::Range<usize>,
}

const SHAPES: [Shape; 3] = [
    Shape {
        kind: FileKind::Log,
        incompatible: 56,
        compatible: Some(48),
        binding: 16..48,
    },
    Shape {
        kind: FileKind::Segment,
        incompatible: 56,
        compatible: None,
        binding: 16..56,
    },
    Shape {
        kind: FileKind::Manifest,
        incompatible: 24,
        compatible: Some(16),
        // The store id binds frames and logs; the incarnation is that of the base field.
        binding: 32..56,
    },
];

/// Changes the head and says what must be found, in the order of section 4 of the format.
fn apply(head: &Head, shape: &Shape, file: &mut [u8]) -> Answer {
    let before = file[..seal::HEAD_BYTES].to_vec();
    let set = |bit: u8| head.set >> bit & 1 == 1;
    if set(0) {
        seal::put(file, 0, &head.magic);
    }
    if set(1) {
        seal::put(file, 8, &head.version.to_le_bytes());
    }
    if set(2) {
        seal::put(file, shape.incompatible, &head.incompatible.to_le_bytes());
    }
    if let (true, Some(at)) = (set(3), shape.compatible) {
        seal::put(file, at, &head.compatible.to_le_bytes());
    }
    if set(4) {
        let at = shape.binding.start + usize::from(head.binding_at) % shape.binding.len();
        file[at] = head.binding;
    }
    seal::head(file);
    if set(5) {
        let sum = seal::number::<4>(file, 12) as u32 ^ head.sum;
        seal::put(file, 12, &sum.to_le_bytes());
    }
    let version = seal::number::<4>(file, 8);
    if file[..8] != before[..8] {
        Answer::Damaged
    } else if version != 1 {
        Answer::OtherVersion
    } else if set(5) && head.sum != 0 {
        Answer::Damaged
    } else if seal::number::<8>(file, shape.incompatible) != 0 {
        Answer::OtherVersion
    } else if file[shape.binding.clone()] != before[shape.binding.clone()] {
        Answer::Damaged
    } else {
        Answer::Fine
    }
}

fn heads(bytes: &[u8], seen: &Seen) {
    let head = Head::arbitrary(&mut Unstructured::new(bytes)).expect("of a fixed size");
    let scene = Scene::wide();
    let shape = &SHAPES[usize::from(head.file) % SHAPES.len()];
    let (name, mut file) = scene.pick(shape.kind, head.which);
    let wanted = match apply(&head, shape, &mut file) {
        // No log has so high a version.
        Answer::OtherVersion if shape.kind == FileKind::Log && file[10..12] != [0; 2] => {
            Answer::Damaged
        }
        wanted => wanted,
    };
    seen.hit(format!("{wanted:?}"));
    let env = scene.with(&[(name, &file)]);
    let found = bounded(1 << 20, || {
        let report = match Store::verify_closed(&env, &mut |_| ()) {
            Ok(report) => report,
            Err(error) => return answer(error.kind()),
        };
        let of_file = report.damaged.iter().filter(|damage| damage.file == name);
        match of_file.clone().next() {
            None => Answer::Fine,
            Some(damage) if damage.what.contains("format version") => Answer::OtherVersion,
            Some(_) => Answer::Damaged,
        }
    });
    assert_eq!(found, wanted, "{head:?} of {name:?}");
    if shape.kind == FileKind::Segment {
        // Nobody who has the manifest looks at it but for verification.
        return;
    }
    match scene.open_read_only(&env) {
        Ok(_) => assert_eq!(wanted, Answer::Fine, "{head:?} of {name:?}"),
        Err(error) => {
            assert_eq!(answer(error.kind()), wanted, "{head:?}: {error}");
            assert_eq!(error.file(), Some(name));
        }
    }
}

fn answer(kind: &ErrorKind) -> Answer {
    match kind {
        ErrorKind::UnsupportedVersion { .. } => Answer::OtherVersion,
        ErrorKind::Corruption => Answer::Damaged,
        other => panic!("{other:?}"),
    }
}

target!("heads", heads, inputs 3000, bytes 48, seen [
    ("Fine", 300),
    ("Damaged", 300),
    ("OtherVersion", 300),
]);
