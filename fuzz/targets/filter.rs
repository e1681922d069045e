//! Bytes of filters: no answer depends on a damaged one; a forged one, whose checksums are right, can
//! only hide keys, and verification says so.
//!
//! ```text
//! input = flags u8 | which segment u8 | which filter u8 | algorithm u8, k u8, bits u16 | changes of 8 bytes
//!         flags: 1 forged, 2 read only, 4 hashes collide, 8 with this algorithm, k and bits a key,
//!                16 the rest of the input as blocks
//! ```

use crate::support::scene::Scene;
use crate::support::{Cursor, Seen, ops, seal, seal_segment, target};
use sealstone::env::{FileKind, FileName};

fn filter(bytes: &[u8], seen: &Seen) {
    let mut cursor = Cursor::new(bytes);
    let [flags, which, section, algorithm, k] = cursor.array();
    let bits = cursor.short();
    let scene = Scene::of(flags);
    let (name, mut file) = scene.pick(FileKind::Segment, which);
    let read_only = flags & 2 != 0;
    let mut filters = seal_segment::sections(&file);
    filters.retain(|section| section.id == 4);
    let filter = filters[usize::from(section) % filters.len()].clone();
    let mut part = file[filter.span.clone()].to_vec();
    if flags & 1 == 0 {
        let taken = ops::damage(&mut part, &mut cursor);
        part.resize(filter.span.len(), 0);
        file[filter.span].copy_from_slice(&part);
        seen.hit(taken.name());
        let env = scene.with(&[(name, &file)]);
        let errors = seen.count("refused") + seen.count("read in part");
        scene.judge_damaged(&env, read_only, true, seen);
        let after = seen.count("refused") + seen.count("read in part");
        assert_eq!(errors, after, "a filter is optional");
        return;
    }
    if flags & 8 != 0 {
        file[filter.row + 2..filter.row + 4].copy_from_slice(&[algorithm, k]);
        file[filter.row + 4..filter.row + 6].copy_from_slice(&bits.to_le_bytes());
    }
    if flags & 16 == 0 {
        ops::edit(&mut part, &mut cursor, false, |part| {
            vec![0, part.len() / 2]
        });
    } else {
        seal::put(&mut part, 0, cursor.rest());
    }
    file[filter.span].copy_from_slice(&part);
    seal_segment::segment(&mut file);
    let mut manifest = scene.files()[&FileName::MANIFEST].clone();
    seal_segment::adopt(&mut manifest, name.number, &file);
    seal::manifest(&mut manifest);
    seen.hit("forged");
    let env = scene.with(&[(name, &file), (FileName::MANIFEST, &manifest)]);
    scene.judge_forged(&env, read_only, seen);
}

target!("filter", filter, inputs 3000, bytes 160, seen [
    ("damaged", 500),
    ("forged", 1000),
    ("read right", 500),
    ("opened, damage found", 300),
    ("opened, sound", 50),
]);
