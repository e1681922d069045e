//! What the process takes at its peak, as the system counts it, against what the options say.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the process's own memory is read from /proc"
)]

mod support;

use sealstone::env::Env;
use sealstone::{Durability, Options, Store};
use support::{manual, refused, write_once};

/// What is allowed beside the options' total.
const BESIDE_BYTES: u64 = 8 << 20;
const SEGMENT_BYTES: u64 = 256;

/// A figure of /proc/self/status in bytes.
fn status(name: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = text
        .lines()
        .find(|line| line.starts_with(name))
        .expect("there");
    let number = line.split_whitespace().nth(1).expect("a number");
    number.parse::<u64>().expect("kB") << 10
}

#[test]
fn the_peak_is_what_the_options_say() {
    for mebibytes in [16u64, 64, 256] {
        let total = mebibytes << 20;
        let directory = tempfile::tempdir().expect("a directory");
        let env = Env::real(directory.path().join("store")).expect("a path");
        // From here on the high-water mark is this run's.
        std::fs::write("/proc/self/clear_refs", "5").expect("may be reset");
        let before = status("VmRSS:");
        let store = Store::open_with(env, manual().memory_bytes(total)).expect("opens");
        let once = write_once(&store, "once");
        let records = 2 * total / 1024;
        let mut value = [0; 1000];
        for number in 0..records {
            let key = (number.wrapping_mul(0x9E37_79B9_7F4A_7C15)).to_be_bytes();
            value[..8].copy_from_slice(&key);
            once.put(&key[..], &value[..], Durability::Buffered)
                .expect("puts");
        }
        store.drain().expect("drains");
        let mut found = 0;
        for number in (0..records).step_by(97) {
            let key = (number.wrapping_mul(0x9E37_79B9_7F4A_7C15)).to_be_bytes();
            found += u64::from(once.contains(&key[..]).expect("reads"));
        }
        assert_eq!(found, records.div_ceil(97));
        let peak = status("VmHWM:").saturating_sub(before);
        let segments = store.stats().segments;
        println!(
            "{mebibytes} MiB: peak {:.1} MiB, {segments} segments, {records} records of 1 KiB",
            peak as f64 / (1 << 20) as f64
        );
        assert!(segments > 10);
        let allowed = total + BESIDE_BYTES + SEGMENT_BYTES * segments;
        assert!(peak <= allowed, "{peak} of {allowed}");
    }
}

#[test]
fn less_than_the_least_is_refused_with_the_least() {
    let options: Options = manual().memory_bytes(256 << 10);
    let error = refused(Store::open_with(Env::in_memory(), options));
    let sealstone::ErrorKind::TooLarge { needed, limit } = error.kind() else {
        panic!("{error}");
    };
    assert!(needed > limit, "{error}");
    assert!(error.to_string().contains("write_region_bytes"), "{error}");
}
