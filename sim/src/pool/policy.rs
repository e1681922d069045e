//! The policies that a trace is replayed against.
//!
//! One is the base that all others are compared with: the pool as the field's replay had it. Each of the
//! others turns one thing, some two; the last is no pool at all but sealstone's write region.

use super::rules::Rules;

/// The budget of a process with twelve processors: 16 MiB each.
const BUDGET_BYTES: u64 = 192 << 20;

/// How slices are asked for and kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The field's pool, all databases in one.
    Shared,
    /// A pool for each database; a trim is its own pool's.
    PerStore,
    /// A pool that knows the future.
    Oracle,
    /// sealstone's write region.
    Sealstone,
}

/// A policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Its name in commands and figures.
    pub name: &'static str,
    /// What differs from the base, in words.
    pub what: &'static str,
    /// How slices are kept.
    pub kind: Kind,
    /// Whether a build slice is asked for with the records that are left of its unit.
    pub exact: bool,
    /// Whether the merge reads its sources as they are, with no build slices.
    pub streaming: bool,
    /// What the pool is told.
    pub rules: Rules,
}

/// The pool of the field's replay: cap 128, every checkpoint trims to 8, upward stealing, no weak tier.
pub const BASE: Policy = Policy {
    name: "cap128",
    what: "the base: cap 128, checkpoint trim to 8, stealing",
    kind: Kind::Shared,
    exact: false,
    streaming: false,
    rules: Rules {
        cap: 128,
        checkpoint_keep: Some(8),
        flush_trim: false,
        stealing: true,
        weak: false,
        budget_bytes: BUDGET_BYTES,
        pressure: false,
    },
};

const fn with(name: &'static str, what: &'static str, rules: Rules) -> Policy {
    Policy {
        name,
        what,
        rules,
        ..BASE
    }
}

/// All policies, the base first.
pub const POLICIES: [Policy; 14] = [
    BASE,
    with(
        "cap512",
        "cap 512: the rejected candidate",
        Rules {
            cap: 512,
            ..BASE.rules
        },
    ),
    with(
        "uncapped",
        "no cap at all",
        Rules {
            cap: u32::MAX,
            ..BASE.rules
        },
    ),
    with(
        "trim16",
        "checkpoint trim to 16",
        Rules {
            checkpoint_keep: Some(16),
            ..BASE.rules
        },
    ),
    with(
        "trim-off",
        "no checkpoint trim",
        Rules {
            checkpoint_keep: None,
            ..BASE.rules
        },
    ),
    with(
        "cap512-trim-off",
        "cap 512 and no checkpoint trim",
        Rules {
            cap: 512,
            checkpoint_keep: None,
            ..BASE.rules
        },
    ),
    with(
        "no-stealing",
        "larger slices do not serve smaller requests",
        Rules {
            stealing: false,
            ..BASE.rules
        },
    ),
    Policy {
        exact: true,
        ..with("exact", "requests sized by the work", BASE.rules)
    },
    Policy {
        streaming: true,
        ..with(
            "streaming",
            "a streaming merge, no build slices",
            BASE.rules,
        )
    },
    Policy {
        kind: Kind::PerStore,
        ..with("per-store", "a pool for each database", BASE.rules)
    },
    with(
        "as-built",
        "the base with weak tier, flush trims and pressure levels",
        Rules {
            flush_trim: true,
            weak: true,
            pressure: true,
            ..BASE.rules
        },
    ),
    with(
        "as-built-cap512",
        "the same with cap 512",
        Rules {
            cap: 512,
            flush_trim: true,
            weak: true,
            pressure: true,
            ..BASE.rules
        },
    ),
    Policy {
        kind: Kind::Oracle,
        ..with(
            "oracle",
            "keeps exactly what will be asked for again",
            Rules {
                cap: u32::MAX,
                checkpoint_keep: None,
                stealing: false,
                budget_bytes: u64::MAX,
                ..BASE.rules
            },
        )
    },
    Policy {
        kind: Kind::Sealstone,
        ..with("sealstone", "sealstone's write region", BASE.rules)
    },
];

/// The policy of that name.
pub fn named(name: &str) -> Option<&'static Policy> {
    POLICIES.iter().find(|policy| policy.name == name)
}
