//! Every decision of a run, from one stream with three sources.
//!
//! * **seed**: one `rand_pcg` generator per [`Purpose`], so that a new draw in one does not move the
//!   others;
//! * **bytes** (a fuzzer's input): each purpose owns a region; exhausted input means 0;
//! * **recorded**: the list that an earlier run drew; exhausted means 0.
//!
//! Zero is always the simplest choice (nothing, none, first), so shortening a list or zeroing its
//! numbers makes a run simpler. Whatever the source, what was drawn is recorded per purpose.

use rand_core::Rng;
use rand_pcg::Pcg64Mcg;

/// What a draw is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Purpose {
    /// Features, sizes and rates of the whole run.
    Swarm,
    /// Operations, keys, values.
    Workload,
    /// Which job runs, and how far.
    Schedule,
    /// What fails, and when.
    Fault,
    /// How a life ends and what survives.
    Crash,
    /// Memory pressure and clock.
    Pressure,
    /// Rare orders of events that are put on the stage.
    Scene,
    /// What happens to a store's memory between two steps.
    Event,
}

/// Number of purposes.
const PURPOSES: usize = 8;
/// Of a fuzzer's bytes, this part of 16 belongs to each purpose; what goes wrong stands in front, so
/// that changing one of its bytes does not shift the operations. Events have no bytes: inputs that were kept
/// mean what they meant.
const REGION_SIXTEENTHS: [usize; PURPOSES] = [1, 7, 3, 2, 1, 1, 1, 0];
const REGION_ORDER: [Purpose; PURPOSES - 1] = [
    Purpose::Swarm,
    Purpose::Scene,
    Purpose::Fault,
    Purpose::Crash,
    Purpose::Pressure,
    Purpose::Schedule,
    Purpose::Workload,
];

#[derive(Clone, Debug)]
enum Source {
    Seed(Vec<Pcg64Mcg>),
    Bytes {
        bytes: Vec<u8>,
        at: [usize; PURPOSES],
        end: [usize; PURPOSES],
    },
    Recorded {
        lists: Recording,
        at: [usize; PURPOSES],
    },
}

/// What a run drew, one list per purpose.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recording {
    /// The numbers, in order of drawing, indexed by purpose.
    pub lists: [Vec<u32>; PURPOSES],
}

/// The stream of choices of one run.
#[derive(Clone, Debug)]
pub struct Choices {
    source: Source,
    recorded: Recording,
}

impl Choices {
    /// Choices that follow from `seed`.
    pub fn seed(seed: u64) -> Self {
        let stream = |purpose: u64| {
            let mut mix =
                SmallRandom::new(seed ^ (purpose + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
            // An odd state: the multiplicative generator never leaves zero.
            Pcg64Mcg::new((u128::from(mix.draw()) << 64) | u128::from(mix.draw() | 1))
        };
        Self::new(Source::Seed((0..PURPOSES as u64).map(stream).collect()))
    }

    /// Choices read from `bytes`.
    pub fn bytes(bytes: &[u8]) -> Self {
        let (mut at, mut end, mut next) = ([0; PURPOSES], [0; PURPOSES], 0);
        for purpose in REGION_ORDER {
            at[purpose as usize] = next;
            next += bytes.len() * REGION_SIXTEENTHS[purpose as usize] / 16;
            end[purpose as usize] = next;
        }
        // Rounding leaves some bytes: they belong to the last region.
        end[Purpose::Workload as usize] = bytes.len();
        Self::new(Source::Bytes {
            bytes: bytes.to_vec(),
            at,
            end,
        })
    }

    /// The choices of an earlier run, possibly edited.
    pub fn recorded(lists: Recording) -> Self {
        Self::new(Source::Recorded {
            lists,
            at: [0; PURPOSES],
        })
    }

    fn new(source: Source) -> Self {
        Self {
            source,
            recorded: Recording::default(),
        }
    }

    /// A number below `bound` (at least 1).
    pub fn below(&mut self, purpose: Purpose, bound: u32) -> u32 {
        let bound = bound.max(1);
        let index = purpose as usize;
        let value = match &mut self.source {
            Source::Seed(streams) => {
                ((u64::from(streams[index].next_u32()) * u64::from(bound)) >> 32) as u32
            }
            Source::Bytes { bytes, at, end } => {
                let width = if bound <= 1 << 8 {
                    1
                } else if bound <= 1 << 16 {
                    2
                } else {
                    4
                };
                let mut value = 0;
                for _ in 0..width {
                    let byte = if at[index] < end[index] {
                        bytes[at[index]]
                    } else {
                        0
                    };
                    at[index] += 1;
                    value = (value << 8) | u32::from(byte);
                }
                value % bound
            }
            Source::Recorded { lists, at } => {
                let value = lists.lists[index].get(at[index]).copied().unwrap_or(0);
                at[index] += 1;
                value.min(bound - 1)
            }
        };
        self.recorded.lists[index].push(value);
        value
    }

    /// True in `numerator` of `denominator` cases; the simplest choice is false.
    pub fn chance(&mut self, purpose: Purpose, numerator: u32, denominator: u32) -> bool {
        self.below(purpose, denominator) >= denominator - numerator.min(denominator)
    }

    /// One of `items`; the simplest is the first.
    pub fn pick<'a, T>(&mut self, purpose: Purpose, items: &'a [T]) -> &'a T {
        &items[self.below(purpose, items.len() as u32) as usize]
    }

    /// A number from 1 to `2^bits - 1`, every magnitude equally likely; the simplest is 1.
    pub fn log_uniform(&mut self, purpose: Purpose, bits: u32) -> u32 {
        let magnitude = self.below(purpose, bits);
        (1 << magnitude) + self.below(purpose, 1 << magnitude)
    }

    /// A seed for something that decides by itself (which sectors survive a crash); simplest 0.
    pub fn subseed(&mut self, purpose: Purpose) -> u64 {
        u64::from(self.below(purpose, u32::MAX))
    }

    /// What was drawn so far.
    pub fn recording(&self) -> &Recording {
        &self.recorded
    }
}

/// SplitMix64 (Steele, Lea and Flood 2014): for decisions that hang on one drawn seed.
#[derive(Clone, Debug)]
pub struct SmallRandom(u64);

impl SmallRandom {
    /// A generator that follows from `seed`.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `bound` (at least 1).
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.draw()) * u128::from(bound.max(1))) >> 64) as u64
    }

    /// True in `numerator` of `denominator` cases.
    pub fn chance(&mut self, numerator: u64, denominator: u64) -> bool {
        self.below(denominator) < numerator
    }

    /// Fills the buffer.
    pub fn fill(&mut self, buffer: &mut [u8]) {
        for chunk in buffer.chunks_mut(8) {
            let bytes = self.draw().to_le_bytes();
            chunk.copy_from_slice(&bytes[..chunk.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draw(choices: &mut Choices) -> Vec<u32> {
        (1..200)
            .map(|i| choices.below(REGION_ORDER[i % REGION_ORDER.len()], i as u32 * 7))
            .collect()
    }

    #[test]
    fn a_recording_replays_and_zero_is_the_end() {
        let mut first = Choices::seed(7);
        let drawn = draw(&mut first);
        assert_ne!(drawn, draw(&mut Choices::seed(8)));
        let mut again = Choices::recorded(first.recording().clone());
        assert_eq!(drawn, draw(&mut again));
        assert_eq!(again.below(Purpose::Fault, 1000), 0);
        assert!(!again.chance(Purpose::Fault, 9, 10));
    }

    #[test]
    fn purposes_do_not_move_each_other() {
        let (mut a, mut b) = (Choices::seed(3), Choices::seed(3));
        for _ in 0..50 {
            b.below(Purpose::Schedule, 9);
        }
        let draw = |c: &mut Choices| c.below(Purpose::Workload, 1 << 30);
        assert_eq!(draw(&mut a), draw(&mut b));
    }

    #[test]
    fn bytes_drive_every_purpose_and_end_in_zeros() {
        let mut choices = Choices::bytes(&[0xFF; 64]);
        for purpose in REGION_ORDER {
            assert_eq!(choices.below(purpose, 256), 0xFF, "{purpose:?}");
        }
        let rest: u32 = (0..100).map(|_| choices.below(Purpose::Crash, 2)).sum();
        assert!(rest < 4);
        assert!(
            (0..1000)
                .map(|_| Choices::bytes(&[]).below(Purpose::Swarm, 5))
                .all(|v| v == 0)
        );
    }

    #[test]
    fn log_uniform_covers_magnitudes() {
        let mut choices = Choices::seed(1);
        let drawn: Vec<u32> = (0..2000)
            .map(|_| choices.log_uniform(Purpose::Swarm, 10))
            .collect();
        assert!(drawn.iter().all(|v| (1..1024).contains(v)));
        assert!(drawn.iter().filter(|v| **v < 32).count() > 700);
        assert!(drawn.iter().any(|v| *v > 700));
    }
}
