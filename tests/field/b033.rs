//! B033. Elsewhere offsets wrapped at 4 GiB, close said Ok, and the file could not be read again. Here a
//! location has 43 bits of 8 bytes (64 TiB), and what a generation may hold is settled when the store is
//! opened: sizes that could pass a limit are refused with the number, before a byte is written.
//! No file beyond 4 GiB is written here: only the limits are tested.

use sealstone::env::Env;
use sealstone::{Batch, Durability, ErrorKind};

use crate::support::{compact, files, manual, mutable, open, refused};

#[test]
fn b033_no_frame_or_segment_passes_its_limit() {
    // A region that is larger than any log may be.
    let env = Env::in_memory();
    for bytes in [(1_u64 << 36) + 1, u64::MAX] {
        let options = manual().write_region_bytes(bytes);
        let error = refused(sealstone::Store::open_with(env.clone(), options));
        assert_eq!(*error.kind(), ErrorKind::InvalidArgument, "{error}");
    }
    for bytes in [1_u64 << 32, 1 << 36, (1 << 36) + 1, u64::MAX] {
        let options = match bytes {
            u64::MAX => manual().batch_bytes_max(bytes),
            _ => manual().seal_bytes(bytes),
        };
        let error = refused(sealstone::Store::open_with(env.clone(), options));
        assert!(
            matches!(
                error.kind(),
                ErrorKind::TooLarge { .. } | ErrorKind::InvalidArgument
            ),
            "{error}"
        );
    }
    // A value behind which lengths of 32 bits would wrap: refused with its length.
    let store = open(&env, compact());
    let map = mutable(&store, "map");
    let before = files(&env);
    for length in [1_usize << 31, (1 << 32) - 1, 1 << 32, (1 << 32) + 5] {
        let mut batch = Batch::new();
        batch.put_with(&map, &b"key"[..], length, |_| Ok(()));
        let error = refused(store.write(batch, Durability::Buffered));
        let ErrorKind::TooLarge { needed, limit } = *error.kind() else {
            panic!("{error}");
        };
        assert!(needed > limit && limit <= 64 << 10, "{error}");
    }
    assert!(files(&env) == before);
}
