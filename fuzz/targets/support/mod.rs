//! What the targets share: the two ways to run one, the counters that show that it did something, and
//! the cursor that turns bytes into choices.
//!
//! A target is a function of bytes. [`repeat`] runs it over the reduced inputs in `corpus/fuzz` and over
//! inputs that are drawn and mutated from a fixed seed, the same in every run: that is the gate. The
//! harness beside it is bolero's; a fuzzing engine drives it (see `docs/testing.md`).

pub mod allocations;
pub mod ops;
pub mod scene;
pub mod seal;
pub mod seal_segment;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use sealstone_sim::choices::SmallRandom;

/// What happened, counted: a target that reaches nothing must fail.
#[derive(Debug, Default)]
pub struct Seen(Mutex<BTreeMap<String, u64>>);

impl Seen {
    /// Counts one more of `what`.
    pub fn hit(&self, what: impl Into<String>) {
        *self.counts().entry(what.into()).or_default() += 1;
    }

    /// How often `what` happened.
    pub fn count(&self, what: &str) -> u64 {
        self.counts().get(what).copied().unwrap_or(0)
    }

    fn counts(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, u64>> {
        // Nothing is left half done by a panic.
        self.0.lock().unwrap_or_else(|broken| broken.into_inner())
    }

    /// Fails unless each of these happened at least so often.
    pub fn assert_at_least(&self, wanted: &[(&str, u64)]) {
        for (what, least) in wanted {
            let count = self.count(what);
            assert!(count >= *least, "{what}: {count} times, of {self:?}");
        }
    }
}

/// A function of bytes that fails by a panic.
pub type Target = fn(&[u8], &Seen);

/// Runs the corpus of `name`, then `count` inputs from a fixed seed, up to `bytes_max` long: half of them
/// random, half mutations of the corpus.
pub fn repeat(name: &str, target: Target, count: u32, bytes_max: usize) -> Seen {
    let seen = Seen::default();
    let corpus = corpus(name);
    assert!(!corpus.is_empty(), "corpus/fuzz/{name} is empty");
    for (path, bytes) in &corpus {
        run(target, bytes, &seen, &path.display().to_string());
    }
    let mut random = SmallRandom::new(told("SEALSTONE_FUZZ_SEED").unwrap_or(0x5EA1_570E));
    let count = told("SEALSTONE_FUZZ_INPUTS").map_or(count, |inputs| inputs as u32);
    for number in 0..count {
        let bytes = if number % 2 == 0 {
            drawn(&mut random, bytes_max)
        } else {
            mutated(&mut random, &corpus, bytes_max)
        };
        run(target, &bytes, &seen, &format!("input {number}"));
    }
    assert!(seen.count("inputs") == u64::from(count) + corpus.len() as u64);
    seen
}

/// A number from the environment.
fn told(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Names the input of a failure before it goes on: the bytes can then be kept in the corpus.
fn run(target: Target, bytes: &[u8], seen: &Seen, name: &str) {
    seen.hit("inputs");
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| target(bytes, seen)));
    if let Err(panic) = result {
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        eprintln!("{name} fails: {hex}");
        std::panic::resume_unwind(panic);
    }
}

/// The reduced inputs of a target, in order of their names.
fn corpus(name: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../corpus/fuzz");
    let entries = std::fs::read_dir(directory.join(name)).expect("a corpus");
    let mut paths: Vec<_> = entries
        .map(|entry| entry.expect("an entry").path())
        .collect();
    paths.sort();
    let read = |path: PathBuf| {
        let bytes = std::fs::read(&path).expect("reads");
        (path, bytes)
    };
    paths.into_iter().map(read).collect()
}

fn drawn(random: &mut SmallRandom, bytes_max: usize) -> Vec<u8> {
    let mut bytes = vec![0; random.below(bytes_max as u64 + 1) as usize];
    random.fill(&mut bytes);
    // Small numbers are the common ones in formats.
    let small = random.below(3);
    for byte in &mut bytes {
        if random.chance(small, 3) {
            *byte &= 7;
        }
    }
    bytes
}

fn mutated(random: &mut SmallRandom, corpus: &[(PathBuf, Vec<u8>)], bytes_max: usize) -> Vec<u8> {
    let (_, first) = &corpus[random.below(corpus.len() as u64) as usize];
    let mut bytes = first.clone();
    for _ in 0..=random.below(4) {
        let at = random.below(bytes.len() as u64 + 1) as usize;
        match random.below(4) {
            0 => bytes.truncate(at),
            1 => bytes.insert(at, random.draw() as u8),
            2 => {
                let (_, other) = &corpus[random.below(corpus.len() as u64) as usize];
                let from = random.below(other.len() as u64 + 1) as usize;
                bytes.truncate(at);
                bytes.extend_from_slice(&other[from..]);
            }
            _ => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = random.draw() as u8;
                }
            }
        }
    }
    bytes.truncate(bytes_max);
    bytes
}

/// Choices from bytes; past the end everything is 0, the simplest.
#[derive(Clone, Debug)]
pub struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    /// A cursor at the start of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The next byte.
    pub fn byte(&mut self) -> u8 {
        self.array::<1>()[0]
    }

    /// The next two bytes as a number.
    pub fn short(&mut self) -> u16 {
        u16::from_le_bytes(self.array())
    }

    /// The next four bytes as a number.
    pub fn word(&mut self) -> u32 {
        u32::from_le_bytes(self.array())
    }

    /// The next bytes.
    pub fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut array = [0; N];
        let count = self.0.len().min(N);
        array[..count].copy_from_slice(&self.0[..count]);
        self.0 = &self.0[count..];
        array
    }

    /// All that is left.
    pub fn rest(self) -> &'a [u8] {
        self.0
    }
}

/// The two tests of a target: what repeats in each run, and the one for a fuzzing engine.
macro_rules! target {
    ($name:literal, $target:expr, inputs $count:literal, bytes $bytes:literal, seen $wanted:expr) => {
        #[test]
        fn corpus_and_repeatable_inputs() {
            $crate::support::repeat($name, $target, $count, $bytes).assert_at_least(&$wanted);
        }

        /// Its inputs differ in each run, so it is no gate.
        #[test]
        #[ignore = "for a fuzzing engine: see docs/testing.md"]
        #[allow(unreachable_code, reason = "a fuzzing engine never comes back")]
        fn fuzz() {
            let seen = $crate::support::Seen::default();
            bolero::check!()
                .with_iterations(1000)
                .for_each(|bytes: &[u8]| {
                    seen.hit("inputs");
                    $target(bytes, &seen);
                });
            seen.assert_at_least(&[("inputs", 1000)]);
        }
    };
}

pub(crate) use target;
