//! Options: whatever they say, a store opens or says which one is wrong; one that opens takes a write and
//! has it after a reopening with them.

use std::time::Duration;

use arbitrary::{Arbitrary, Unstructured};
use sealstone::env::Env;
use sealstone::{Background, Durability, ErrorKind, KeyspaceOptions, Options, Store};

use crate::support::{Seen, target};

/// Most of a size in bytes that a store may really get: the machine has to have it.
const REGION_BYTES_MAX: u64 = 4 << 20;

/// A number of any magnitude, with all magnitudes alike.
#[derive(Arbitrary, Clone, Copy, Debug)]
struct Size {
    bits: u8,
    mantissa: u16,
}

impl Size {
    fn value(self) -> u64 {
        (u64::from(self.mantissa) << (self.bits % 50)) >> 2
    }

    /// The same, but nothing that is allowed and beyond the machine.
    fn bounded(self) -> u64 {
        match self.value() {
            value if value > 1 << 40 => u64::MAX - value,
            value => value.min(REGION_BYTES_MAX),
        }
    }

    fn word(self) -> u32 {
        self.value() as u32
    }
}

/// Of a fixed size, as `arbitrary` serves well.
#[derive(Arbitrary, Debug)]
struct Fields {
    set: u32,
    memory_bytes: Size,
    write_region_bytes: Size,
    filter_budget_bytes: Size,
    scan_bytes: Size,
    chunk_bytes: Size,
    block_records: u16,
    seal_records: Size,
    seal_bytes: Size,
    batch_records_max: Size,
    batch_bytes_max: Size,
    pinned_generations_max: u8,
    queue_slots: u8,
    descriptors_max: u8,
    hash_bits: u8,
    output_buffer_bytes: Size,
    cursor_buffer_bytes: Size,
    key_fence_bytes: Size,
    manifest_roll_bytes: Size,
    retry_delay_ms: u8,
    write_deadline_ms: u8,
    window_bytes: Size,
}

type Setter = fn(Options, &Fields) -> Options;

/// One for each bit of `set`.
const SETTERS: [Setter; 21] = [
    |o, f| o.memory_bytes(f.memory_bytes.bounded()),
    |o, f| o.write_region_bytes(f.write_region_bytes.bounded()),
    |o, f| o.filter_budget_bytes(f.filter_budget_bytes.value()),
    |o, f| o.scan_bytes(f.scan_bytes.value()),
    |o, f| o.chunk_bytes(f.chunk_bytes.word()),
    |o, f| o.block_records(f.block_records.into()),
    |o, f| o.seal_records(f.seal_records.word()),
    |o, f| o.seal_bytes(f.seal_bytes.value()),
    |o, f| o.batch_records_max(f.batch_records_max.word()),
    |o, f| o.batch_bytes_max(f.batch_bytes_max.value()),
    |o, f| o.pinned_generations_max(f.pinned_generations_max.into()),
    |o, f| o.queue_slots(f.queue_slots.into()),
    |o, f| o.descriptors_max(f.descriptors_max.into()),
    |o, f| o.hash_bits(f.hash_bits),
    |o, f| o.output_buffer_bytes(f.output_buffer_bytes.word()),
    |o, f| o.cursor_buffer_bytes(f.cursor_buffer_bytes.word()),
    |o, f| o.key_fence_bytes(f.key_fence_bytes.word()),
    |o, f| o.manifest_roll_bytes(f.manifest_roll_bytes.value()),
    |o, f| o.retry_delay(Duration::from_millis(f.retry_delay_ms.into())),
    |o, f| o.write_deadline(Duration::from_millis(f.write_deadline_ms.into())),
    |o, f| o.window_bytes(f.window_bytes.bounded()),
];

fn options_of(fields: &Fields) -> Options {
    let base = match fields.set >> 31 {
        0 => Options::tiny(),
        _ => Options::new()
            .background(Background::Manual)
            .memory_bytes(1 << 20),
    };
    let set = |n: usize| fields.set >> n & 1 == 1;
    let chosen = SETTERS.iter().enumerate().filter(|(n, _)| set(*n));
    chosen.fold(base, |options, (_, setter)| setter(options, fields))
}

fn options(bytes: &[u8], seen: &Seen) {
    let fields = Fields::arbitrary(&mut Unstructured::new(bytes)).expect("of a fixed size");
    let options = options_of(&fields);
    let env = Env::in_memory();
    let store = match Store::open_with(env.clone(), options.clone()) {
        Ok(store) => store,
        Err(error) => {
            let is_told = matches!(
                error.kind(),
                ErrorKind::InvalidArgument | ErrorKind::TooLarge { .. }
            );
            assert!(is_told, "{options:?}: {error:?}");
            seen.hit("refused");
            return;
        }
    };
    seen.hit("opened");
    let map = store
        .keyspace("map", KeyspaceOptions::mutable())
        .expect("creates");
    let mut stored = 0_u8;
    for number in 0..40_u8 {
        let value = [number; 20];
        match map.put([number], value.as_slice(), Durability::Buffered) {
            Ok(_) => stored += 1,
            // Too little for even this, or for so many at once.
            Err(error) => assert!(
                matches!(
                    error.kind(),
                    ErrorKind::TooLarge { .. } | ErrorKind::Busy { .. }
                ),
                "{options:?}: {error:?}"
            ),
        }
        if stored < number {
            break;
        }
    }
    if stored > 0 {
        seen.hit("written");
    }
    store.seal().expect("seals");
    store.drain().expect("flushes");
    let store = store
        .reopen()
        .unwrap_or_else(|error| panic!("{options:?}: {error}"));
    let map = store
        .keyspace("map", KeyspaceOptions::mutable())
        .expect("is there");
    for number in 0..stored {
        let value = map.get([number]).expect("reads");
        assert_eq!(
            value.as_deref(),
            Some([number; 20].as_slice()),
            "{options:?}"
        );
    }
}

target!("options", options, inputs 1500, bytes 96, seen [
    ("refused", 300),
    ("opened", 100),
    ("written", 100),
]);
