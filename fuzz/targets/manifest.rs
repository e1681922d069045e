//! Bytes of a manifest: damaged ones give an error or nothing less than everything; forged ones, with
//! right checksums, are refused or make a store that is sound.
//!
//! ```text
//! input = flags u8 | changes of 8 bytes      flags: 1 forged, 2 read only, 4 hashes collide,
//!                                            8 an edit of the rest of the input instead
//! ```

use crate::support::scene::Scene;
use crate::support::{Cursor, Seen, ops, seal, target};
use sealstone::env::{FileKind, FileName};

fn manifest(bytes: &[u8], seen: &Seen) {
    let mut cursor = Cursor::new(bytes);
    let flags = cursor.byte();
    let scene = Scene::of(flags);
    let (name, mut file) = scene.pick(FileKind::Manifest, 0);
    assert_eq!(name, FileName::MANIFEST);
    let read_only = flags & 2 != 0;
    if flags & 1 == 0 {
        let taken = ops::damage(&mut file, &mut cursor);
        seen.hit(taken.name());
        let env = scene.with(&[(name, &file)]);
        scene.judge_damaged(&env, read_only, taken.small, seen);
        return;
    }
    if flags & 8 == 0 {
        ops::edit(&mut file, &mut cursor, true, seal::manifest_places);
    } else {
        append_edit(&mut file, cursor.rest());
    }
    seal::manifest(&mut file);
    seen.hit("forged");
    scene.judge_forged(&scene.with(&[(name, &file)]), read_only, seen);
}

/// One more edit with this payload.
fn append_edit(file: &mut Vec<u8>, payload: &[u8]) {
    let (mut at, mut number) = (seal::HEAD_BYTES, 0);
    while seal::number::<4>(file, at) != 0 {
        number = seal::number::<8>(file, at + 8);
        at += 16 + (seal::number::<4>(file, at) as usize).next_multiple_of(8);
    }
    file.truncate(at);
    file.extend((payload.len() as u32).to_le_bytes());
    file.extend([0; 4]);
    file.extend((number + 1).to_le_bytes());
    file.extend(payload);
    file.resize(file.len().next_multiple_of(8), 0);
}

target!("manifest", manifest, inputs 4000, bytes 160, seen [
    ("damaged", 500),
    ("forged", 1000),
    ("refused", 500),
    ("read right", 50),
    ("opened, sound", 100),
]);
