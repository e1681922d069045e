//! What goes wrong, and when: aimed faults and their counters.
//!
//! A [`Rule`] waits for the n-th call of its kind on its kind of file and then fails it in a given
//! way, once or again every few calls. The disk asks the plan at each call and otherwise draws
//! nothing, so a run is decided by its rules alone. Rates are rules that the runner arms again.
//! Every fault that took effect is counted: a sweep in which a counter stays 0 proves nothing about
//! that fault.

use std::collections::BTreeMap;

use sealstone::env::{FileKind, FileName};

use crate::disk::SyncFailure;

/// The kinds of call a disk sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Call {
    /// `create_root`
    CreateRoot,
    /// `open`
    Open,
    /// `create_new`
    CreateNew,
    /// `read_at`
    Read,
    /// `write_at`
    Write,
    /// `sync_data`
    SyncData,
    /// `set_len`
    SetLen,
    /// `allocate`
    Allocate,
    /// `len`
    Len,
    /// `rename`
    Rename,
    /// `unlink`
    Unlink,
    /// `list`
    List,
    /// `sync_dir`
    SyncDir,
    /// `try_lock`
    Lock,
    /// `map`
    Map,
}

impl Call {
    /// Number of kinds.
    pub const COUNT: usize = 15;

    /// All of them.
    pub const ALL: [Self; Self::COUNT] = [
        Self::CreateRoot,
        Self::Open,
        Self::CreateNew,
        Self::Read,
        Self::Write,
        Self::SyncData,
        Self::SetLen,
        Self::Allocate,
        Self::Len,
        Self::Rename,
        Self::Unlink,
        Self::List,
        Self::SyncDir,
        Self::Lock,
        Self::Map,
    ];

    /// Its name in plans.
    pub fn name(self) -> &'static str {
        match self {
            Self::CreateRoot => "create-root",
            Self::Open => "open",
            Self::CreateNew => "create",
            Self::Read => "read",
            Self::Write => "write",
            Self::SyncData => "sync",
            Self::SetLen => "set-length",
            Self::Allocate => "allocate",
            Self::Len => "length",
            Self::Rename => "rename",
            Self::Unlink => "unlink",
            Self::List => "list",
            Self::SyncDir => "sync-dir",
            Self::Lock => "lock",
            Self::Map => "map",
        }
    }
}

/// How a call fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// EIO; a write may have stored a part.
    Io,
    /// ENOSPC; a write may have stored a part, a sync has lost what delayed allocation promised.
    NoSpace,
    /// EMFILE.
    NoDescriptor,
    /// EINTR; a write may have stored a part.
    Interrupted,
    /// Fewer bytes than asked.
    Short,
    /// EROFS or EACCES.
    Denied,
    /// A sync that fails in one of its forms.
    Sync(SyncFailure),
    /// A write that reports success and never reaches the medium.
    LostWrite,
    /// A write that reports success and reaches another place of the file.
    MisdirectedWrite,
    /// A read that finds a sector unreadable from now on.
    LatentError,
    /// A write that stores nothing and reports no error. No system does this to a store on a disk; for
    /// plans only.
    Zero,
}

impl Fault {
    /// All that a system may do.
    pub const ALL: [Self; 13] = [
        Self::Io,
        Self::NoSpace,
        Self::NoDescriptor,
        Self::Interrupted,
        Self::Short,
        Self::Denied,
        Self::Sync(SyncFailure::KeepNewClean),
        Self::Sync(SyncFailure::LateReport),
        Self::Sync(SyncFailure::RevertToOld),
        Self::Sync(SyncFailure::ShutDown),
        Self::LostWrite,
        Self::MisdirectedWrite,
        Self::LatentError,
    ];

    /// The calls that can fail in this way.
    pub fn calls(self) -> &'static [Call] {
        use Call::*;
        match self {
            Self::Io => &[
                Open, CreateNew, Read, Write, SetLen, Allocate, Len, Rename, Unlink, List, SyncDir,
                Map,
            ],
            Self::NoSpace => &[CreateNew, Write, SyncData, Allocate, Rename],
            Self::NoDescriptor => &[Open, CreateNew, List, Lock],
            Self::Interrupted => &[
                Open, CreateNew, Read, Write, SyncData, SetLen, Allocate, SyncDir, List,
            ],
            Self::Short => &[Read, Write],
            Self::Denied => &[Open, CreateNew, Rename, Unlink],
            Self::Sync(_) => &[SyncData],
            Self::LostWrite | Self::MisdirectedWrite | Self::Zero => &[Write],
            Self::LatentError => &[Read],
        }
    }

    /// A short name for reports and plans.
    pub fn name(self) -> &'static str {
        match self {
            Self::Io => "io",
            Self::NoSpace => "no-space",
            Self::NoDescriptor => "no-descriptor",
            Self::Interrupted => "interrupted",
            Self::Short => "short",
            Self::Denied => "denied",
            Self::Sync(SyncFailure::KeepNewClean) => "sync-clean",
            Self::Sync(SyncFailure::LateReport) => "sync-late",
            Self::Sync(SyncFailure::RevertToOld) => "sync-revert",
            Self::Sync(SyncFailure::ShutDown) => "sync-shutdown",
            Self::LostWrite => "lost-write",
            Self::MisdirectedWrite => "misdirected-write",
            Self::LatentError => "latent-error",
            Self::Zero => "zero",
        }
    }

    /// Whether it is no error at all for a caller that loops.
    pub fn is_masked(self) -> bool {
        matches!(self, Self::Short | Self::Interrupted)
    }

    /// Whether the medium no longer holds what it said it took. A sync that reports its failure late
    /// belongs here: the commit that it acknowledged is gone, and no engine can know.
    pub fn damages(self) -> bool {
        matches!(
            self,
            Self::LostWrite
                | Self::MisdirectedWrite
                | Self::LatentError
                | Self::Sync(SyncFailure::LateReport)
        )
    }
}

/// An aimed fault.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// How the call fails.
    pub fault: Fault,
    /// Which kind of call; `None` is any that can fail in this way.
    pub call: Option<Call>,
    /// On which kind of file; `None` is any, and calls without a file.
    pub file: Option<FileKind>,
    /// How many matching calls pass before it.
    pub after: u64,
    /// How many matching calls pass between two; 0 fails each.
    pub every: u64,
    /// How often it strikes.
    pub times: u32,
    /// Decides the details (how much of a write was stored).
    pub seed: u64,
}

impl Rule {
    /// The `after + 1`-th call of a kind fails, once.
    pub fn once(fault: Fault, call: Call, after: u64) -> Self {
        Self {
            fault,
            call: Some(call),
            file: None,
            after,
            every: 0,
            times: 1,
            seed: after,
        }
    }

    /// The same for one kind of file.
    #[must_use]
    pub fn on(mut self, file: FileKind) -> Self {
        self.file = Some(file);
        self
    }

    /// The same again and again: `times` in all, with `every` calls between.
    #[must_use]
    pub fn again(mut self, every: u64, times: u32) -> Self {
        (self.every, self.times) = (every, times);
        self
    }

    fn matches(&self, call: Call, file: Option<FileName>) -> bool {
        self.call.map_or_else(
            || self.fault.calls().contains(&call),
            |wanted| wanted == call,
        ) && self
            .file
            .is_none_or(|kind| file.is_some_and(|file| file.kind == kind))
    }
}

/// The armed rules and what has happened.
#[derive(Clone, Debug, Default)]
pub struct FaultPlan {
    rules: Vec<Rule>,
    hits: BTreeMap<(Fault, Call), u64>,
}

impl FaultPlan {
    /// Adds a rule.
    pub fn arm(&mut self, rule: Rule) {
        self.rules.push(rule);
    }

    /// Removes all rules; counters stay.
    pub fn disarm(&mut self) {
        self.rules.clear();
    }

    /// Rules that can still strike.
    pub fn armed(&self) -> &[Rule] {
        &self.rules
    }

    /// How often each fault struck each kind of call.
    pub fn hits(&self) -> &BTreeMap<(Fault, Call), u64> {
        &self.hits
    }

    /// How often anything struck.
    pub fn total_hits(&self) -> u64 {
        self.hits.values().sum()
    }

    /// Takes over the counters of an earlier life.
    pub fn add_hits(&mut self, hits: &BTreeMap<(Fault, Call), u64>) {
        for (key, count) in hits {
            *self.hits.entry(*key).or_default() += count;
        }
    }

    /// Whether this call fails, and how. Each matching rule counts the call; the first that is due
    /// strikes.
    pub fn strike(&mut self, call: Call, file: Option<FileName>) -> Option<(Fault, u64)> {
        if self.rules.is_empty() {
            return None;
        }
        let mut struck = None;
        for rule in &mut self.rules {
            if !rule.matches(call, file) || rule.times == 0 {
                continue;
            }
            if rule.after > 0 {
                rule.after -= 1;
            } else if struck.is_none() {
                struck = Some((rule.fault, rule.seed));
                rule.seed = rule.seed.wrapping_add(1);
                rule.after = rule.every;
                rule.times -= 1;
            }
        }
        self.rules.retain(|rule| rule.times > 0);
        if let Some((fault, _)) = struck {
            *self.hits.entry((fault, call)).or_default() += 1;
        }
        struck
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_strikes_at_its_call_and_file_only() {
        let mut plan = FaultPlan::default();
        let rule = Rule::once(Fault::Io, Call::Write, 1)
            .on(FileKind::Log)
            .again(2, 2);
        plan.arm(rule);
        let log = Some(FileName::log(1));
        let mut struck = Vec::new();
        for call in 0..10 {
            assert_eq!(plan.strike(Call::Write, Some(FileName::segment(1))), None);
            assert_eq!(plan.strike(Call::Read, log), None);
            if plan.strike(Call::Write, log).is_some() {
                struck.push(call);
            }
        }
        assert_eq!(struck, [1, 4]);
        assert_eq!(plan.hits()[&(Fault::Io, Call::Write)], 2);
        assert!(plan.armed().is_empty());
    }

    #[test]
    fn names_differ() {
        let names: std::collections::BTreeSet<_> = Fault::ALL.iter().map(|f| f.name()).collect();
        assert_eq!(names.len(), Fault::ALL.len());
    }
}
