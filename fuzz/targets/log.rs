//! Bytes of a log: damaged ones give an error or a history that ends early, never a wrong one; forged
//! ones, with right checksums, are refused or make a store that is sound.
//!
//! ```text
//! input = flags u8 | which log u8 | changes of 8 bytes      flags: 1 forged, 2 read only, 4 hashes collide,
//!                                                           8 a frame of the rest of the input instead
//! ```

use crate::support::scene::Scene;
use crate::support::{Cursor, Seen, ops, seal, target};
use sealstone::env::FileKind;

fn log(bytes: &[u8], seen: &Seen) {
    let mut cursor = Cursor::new(bytes);
    let (flags, which) = (cursor.byte(), cursor.byte());
    let scene = Scene::of(flags);
    let (name, mut file) = scene.pick(FileKind::Log, which);
    let read_only = flags & 2 != 0;
    if flags & 1 == 0 {
        let taken = ops::damage(&mut file, &mut cursor);
        seen.hit(taken.name());
        let env = scene.with(&[(name, &file)]);
        scene.judge_damaged(&env, read_only, taken.small, seen);
        return;
    }
    if flags & 8 == 0 {
        ops::edit(&mut file, &mut cursor, true, seal::log_places);
    } else {
        let frame = frame(&file, &mut cursor);
        let places = seal::log_places(&file);
        let at = places[places.len() - 1].min(file.len());
        file.truncate(at);
        file.extend(frame);
    }
    seal::log(&mut file);
    seen.hit("forged");
    scene.judge_forged(&scene.with(&[(name, &file)]), read_only, seen);
}

/// A frame that goes on behind the last one of `file`, with the rest of the input as its payload.
fn frame(file: &[u8], cursor: &mut Cursor<'_>) -> Vec<u8> {
    let places = seal::log_places(file);
    let frames = places
        .iter()
        .filter(|at| seal::number::<1>(file, **at + 4) == 1);
    let last = frames
        .map(|at| seal::number::<8>(file, at + 8))
        .max()
        .unwrap_or(0);
    let (kind, records) = (1 + cursor.byte() % 2, cursor.byte());
    let mut payload = cursor.clone().rest().to_vec();
    payload.resize(payload.len().next_multiple_of(8), 0);
    let sequence = if kind == 1 { last + 1 } else { last };
    let mut frame = vec![0; seal::LOG_FRAME_BYTES];
    frame[4] = kind;
    seal::put(&mut frame, 8, &sequence.to_le_bytes());
    seal::put(&mut frame, 24, &(payload.len() as u32).to_le_bytes());
    seal::put(&mut frame, 28, &u32::from(records).to_le_bytes());
    frame.extend(payload);
    frame
}

target!("log", log, inputs 4000, bytes 160, seen [
    ("damaged", 500),
    ("forged", 1000),
    ("refused", 500),
    ("read right", 200),
    ("opened, sound", 200),
]);
