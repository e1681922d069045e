//! What one measurement is about: a layout, a size, and how the store is opened.

use anyhow::{Result, bail, ensure};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::go::{IndexMode, Residency};

/// How records lie on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Layout {
    /// The engine.
    Sealstone,
    /// The field report's: `crate::go`.
    Go,
}

/// Which filters are in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// The engine's planner.
    Planned,
    /// The newest ones that the budget holds.
    NewestFirst,
    /// Only those of the newest segments.
    WindowOnly,
    /// All of them.
    All,
    /// None.
    None,
}

/// How files are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// One system call a read.
    Pread,
    /// Mapped: the engine's sealed files, the other layout's indexes.
    Mmap,
    /// Only for `--layout go`: its indexes are in memory.
    Resident,
}

/// The records of a store, apart from how it is opened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shape {
    /// Whose layout.
    pub layout: Layout,
    /// Sealed segments' worth of records.
    pub segments: u64,
    /// Records of one.
    pub segment_records: u64,
    /// Bytes of a value; keys have 32.
    pub value_bytes: usize,
    /// Records behind them that are not sealed.
    pub memtable_records: u64,
    /// Whether indexes are merged.
    pub fold: bool,
    /// Filter bits a key; the engine stores several and chooses itself: 0.
    pub bits_per_key: u32,
    /// Bits that a key sets in a filter; 0 for the engine.
    pub k: u32,
    /// Seed of the records.
    pub seed: u64,
}

impl Shape {
    /// Records in segments.
    pub const fn sealed_records(&self) -> u64 {
        self.segments * self.segment_records
    }

    /// Bytes of a record as plain files would hold it: key, length, value.
    pub const fn record_bytes(&self) -> usize {
        crate::keys::KEY_BYTES + 8 + self.value_bytes
    }
}

/// How it is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opening {
    /// Filters; `None`: the layout's default.
    pub policy: Option<Policy>,
    /// The most that filters take.
    pub budget_bytes: u64,
    /// Bytes of the window table; `None`: the engine's choice. The other layout has none.
    pub window_bytes: Option<u64>,
    /// How files are read.
    pub mode: Mode,
    /// The most files open at once; `None`: the engine's choice, a part of the system's limit.
    pub descriptors_max: Option<u32>,
    /// Whether the engine tells the system of reads before it makes them.
    pub cold_reads_ahead: bool,
}

impl Opening {
    /// The policy's name in figures.
    pub fn policy_name(&self, layout: Layout) -> String {
        let policy = self.policy.unwrap_or(match layout {
            Layout::Sealstone => super::sealed::DEFAULT_POLICY,
            Layout::Go => Policy::WindowOnly,
        });
        policy_name(policy)
    }

    /// The other layout's words for it.
    pub fn go_residency(&self) -> Result<Residency> {
        Ok(match self.policy {
            None | Some(Policy::WindowOnly) => Residency::Window,
            Some(Policy::NewestFirst) => Residency::Newest(self.budget_bytes),
            Some(Policy::All) => Residency::All,
            Some(Policy::Planned | Policy::None) => {
                bail!("--layout go has the policies window-only, newest-first and all")
            }
        })
    }

    /// The same for indexes.
    pub const fn go_index(&self) -> IndexMode {
        match self.mode {
            Mode::Pread => IndexMode::Read,
            Mode::Mmap => IndexMode::Mapped,
            Mode::Resident => IndexMode::Resident,
        }
    }
}

/// A policy's name in figures.
pub fn policy_name(policy: Policy) -> String {
    let value = policy.to_possible_value();
    value.map_or_else(String::new, |value| value.get_name().to_owned())
}

/// One measurement: what is there, and how it is opened.
#[derive(Clone, Debug)]
pub struct Case {
    /// The records.
    pub shape: Shape,
    /// The opening.
    pub opening: Opening,
}

impl Case {
    /// Refuses what the layout can't do.
    pub fn check(&self) -> Result<()> {
        ensure!(self.shape.segments > 0, "--segments has to be above 0");
        ensure!(
            self.shape.segment_records > 1,
            "--segment-records has to be above 1"
        );
        match self.shape.layout {
            Layout::Sealstone => super::sealed::options(&self.shape, &self.opening).map(drop),
            Layout::Go => self.opening.go_residency().map(drop),
        }
    }
}

/// The report's list of variants: of the engine those that its options allow, of the other layout all.
pub fn variants(base: &Case) -> Vec<Case> {
    let with = |change: &dyn Fn(&mut Case)| {
        let mut case = base.clone();
        change(&mut case);
        case
    };
    match base.shape.layout {
        Layout::Sealstone => {
            let mut cases = Vec::new();
            for fold in [true, false] {
                for policy in [
                    Policy::Planned,
                    Policy::NewestFirst,
                    Policy::WindowOnly,
                    Policy::All,
                    Policy::None,
                ] {
                    for mode in [Mode::Pread, Mode::Mmap] {
                        cases.push(with(&|case| {
                            case.shape.fold = fold;
                            case.opening.policy = Some(policy);
                            case.opening.mode = mode;
                        }));
                    }
                }
                // A third of what all filters take at 12 bits a key: the report's 64 MB at 10,000 segments.
                cases.push(with(&|case| {
                    case.shape.fold = fold;
                    case.opening.budget_bytes = base.shape.sealed_records() / 2;
                }));
            }
            cases.retain(|case| case.check().is_ok());
            cases
        }
        Layout::Go => {
            let mut cases: Vec<_> = [
                (Policy::WindowOnly, Mode::Pread),
                (Policy::NewestFirst, Mode::Pread),
                (Policy::All, Mode::Pread),
                (Policy::All, Mode::Mmap),
                (Policy::All, Mode::Resident),
                (Policy::WindowOnly, Mode::Mmap),
            ]
            .into_iter()
            .map(|(policy, mode)| {
                with(&|case| {
                    case.opening.policy = Some(policy);
                    case.opening.mode = mode;
                    if policy == Policy::NewestFirst {
                        case.opening.budget_bytes = base.shape.sealed_records() / 2;
                    }
                })
            })
            .collect();
            // Bits a key with the published k and with the best one, b ln 2. The published pair is above.
            for (bits_per_key, k) in [
                (8, 3),
                (8, 6),
                (12, 8),
                (16, 3),
                (16, 11),
                (20, 3),
                (20, 14),
            ] {
                cases.push(with(&|case| {
                    case.shape.bits_per_key = bits_per_key;
                    case.shape.k = k;
                    case.opening.policy = Some(Policy::All);
                }));
            }
            cases
        }
    }
}
