//! Bytes of a segment: damaged ones are reported where they are read and never read as something else;
//! forged ones, with right checksums and a manifest that agrees, are refused, found damaged, or sound.
//!
//! ```text
//! input = flags u8 | which segment u8 | changes of 8 bytes      flags: 1 forged, 2 read only,
//!                                        4 hashes collide, 8 the manifest keeps what it says of it
//! ```

use crate::support::scene::Scene;
use crate::support::{Cursor, Seen, ops, seal, seal_segment, target};
use sealstone::env::{FileKind, FileName};

fn segment(bytes: &[u8], seen: &Seen) {
    let mut cursor = Cursor::new(bytes);
    let (flags, which) = (cursor.byte(), cursor.byte());
    let scene = Scene::of(flags);
    let (name, mut file) = scene.pick(FileKind::Segment, which);
    let read_only = flags & 2 != 0;
    if flags & 1 == 0 {
        let taken = ops::damage(&mut file, &mut cursor);
        seen.hit(taken.name());
        let env = scene.with(&[(name, &file)]);
        scene.judge_damaged(&env, read_only, true, seen);
        return;
    }
    ops::edit(&mut file, &mut cursor, false, seal_segment::segment_places);
    seal_segment::segment(&mut file);
    let mut manifest = scene.files()[&FileName::MANIFEST].clone();
    if flags & 8 == 0 {
        seal_segment::adopt(&mut manifest, name.number, &file);
        seal::manifest(&mut manifest);
    }
    seen.hit("forged");
    let env = scene.with(&[(name, &file), (FileName::MANIFEST, &manifest)]);
    scene.judge_forged(&env, read_only, seen);
}

target!("segment", segment, inputs 4000, bytes 160, seen [
    ("damaged", 500),
    ("forged", 1000),
    ("refused", 80),
    ("read in part", 200),
    ("read right", 200),
    ("opened, damage found", 300),
    ("opened, sound", 50),
]);
