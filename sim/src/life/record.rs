//! The run written down as a plan, for the failures that are kept.
//!
//! Every line is tried, as the run tries every call; what a plan checks all the time is what the run
//! checks. What no plan can say (rot by a misdirected block's exact bytes is said, a fuzzer's bytes are
//! not needed) is left to the seed.

use super::Run;
use crate::disk::{AimedCrash, Crash, CrashPoint, DiskOptions, Keep, Order, Place, Strength};
use crate::faults::Rule;
use crate::model::Op;
use crate::plan::text::show_bytes;
use crate::subject::Subject;

impl<S: Subject> Run<S> {
    pub(super) fn plan_line(&mut self, line: impl FnOnce() -> String) {
        if let Some(plan) = &mut self.plan {
            plan.push(line());
        }
    }

    pub(super) fn plan_lines(&mut self, lines: impl FnOnce(&Self) -> Vec<String>) {
        if self.plan.is_some() {
            let lines = lines(self);
            self.plan.get_or_insert_default().extend(lines);
        }
    }

    pub(super) fn plan_head(&mut self, seed: u64) {
        self.plan_lines(|run| {
            let mut lines = vec!["# sim-plan 1".to_string()];
            for (index, kind) in S::kinds().iter().enumerate() {
                let kind = match kind {
                    sealstone::types::KeyspaceKind::WriteOnce => "once",
                    sealstone::types::KeyspaceKind::Mutable => "mutable",
                };
                lines.push(format!("keyspace {} {kind}", S::plan_keyspace(index)));
            }
            lines.push(format!("disk seed {seed}"));
            if run.swarm.strength == Strength::Adversarial {
                lines.push("disk adversarial".into());
            }
            if run.env.disk.options().sync_is_a_lie {
                lines.push("disk lying".into());
            }
            if let Some(seed) = run.swarm.listing_seed {
                lines.push(format!("disk listings {seed}"));
            }
            lines.extend(S::plan_options(&run.options));
            lines
        });
    }

    pub(super) fn plan_limits(&mut self, calm: bool) {
        let (capacity, descriptors) = match calm {
            true => (None, None),
            false => (self.swarm.capacity_bytes, self.swarm.descriptors),
        };
        if self.swarm.capacity_bytes.is_some() {
            self.plan_line(|| {
                let bytes = capacity.unwrap_or(DiskOptions::default().capacity_bytes);
                format!("capacity {bytes}")
            });
        }
        if self.swarm.descriptors.is_some() {
            self.plan_line(|| {
                let count = descriptors.unwrap_or(DiskOptions::default().descriptors_max);
                format!("descriptors {count}")
            });
        }
    }

    pub(super) fn plan_rule(&mut self, rule: &Rule) {
        self.plan_line(|| {
            let call = rule.call.map_or("", crate::faults::Call::name);
            let on = rule
                .file
                .map_or(String::new(), |kind| format!(" on {kind:?}"));
            let aim = format!(
                "{}{call}{}",
                if call.is_empty() { "" } else { " " },
                on.to_lowercase()
            );
            format!(
                "fault {}{aim} nth {} every {} times {} seed {}",
                rule.fault.name(),
                rule.after + 1,
                rule.every + 1,
                rule.times,
                rule.seed
            )
        });
    }

    pub(super) fn plan_crash_point(&mut self, point: &CrashPoint) {
        self.plan_crash_at("any", point.mutation, (point.place, point.panic));
    }

    pub(super) fn plan_aimed_crash(&mut self, aimed: &AimedCrash) {
        let on = aimed
            .file
            .map_or(String::new(), |kind| format!(" on {kind:?}"));
        let call = format!("{}{}", aimed.call.name(), on.to_lowercase());
        self.plan_crash_at(&call, aimed.after, (aimed.place, aimed.panic));
    }

    fn plan_crash_at(&mut self, call: &str, after: u64, (place, panic): (Place, bool)) {
        self.plan_line(|| {
            let place = match place {
                Place::Before => "before",
                Place::Inside => "inside",
                Place::After => "after",
            };
            let panic = if panic { " panic" } else { "" };
            format!("crash-at {call} nth {} {place}{panic}", after + 1)
        });
    }

    pub(super) fn plan_batch(&mut self, first: &str, ops: &[Op], synced: bool, failing: bool) {
        self.plan_lines(|_| {
            let buffered = if synced { "" } else { " buffered" };
            let mut lines = vec![format!("try {first}{buffered}")];
            for op in ops {
                let (keyspace, key) = (S::plan_keyspace(op.keyspace), show_bytes(&op.key));
                lines.push(match &op.value {
                    None => format!("  delete {keyspace} {key}"),
                    Some(value) => {
                        let way = if value.len() % 3 == 0 {
                            "put-with"
                        } else {
                            "put"
                        };
                        format!("  {way} {keyspace} {key} {}", show_bytes(value))
                    }
                });
            }
            if failing {
                lines.push(format!("  put-failing {} never", S::plan_keyspace(0)));
            }
            lines.push("end".into());
            lines
        });
    }

    pub(super) fn plan_crash(&mut self, crash: &Crash) {
        self.plan_line(|| {
            let Crash::Power(survivors) = crash else {
                return "crash kill".into();
            };
            let keep = match survivors.keep {
                Keep::Nothing => "nothing".into(),
                Keep::Everything => "everything".into(),
                Keep::Seeded(seed) => format!("seed {seed}"),
                Keep::Mask(mask) => format!("mask {mask}"),
            };
            let order = match survivors.order {
                Order::AnySubset => "any",
                Order::PrefixPerFile => "file",
                Order::PrefixGlobal => "global",
            };
            let garbage = if survivors.garbage { " garbage" } else { "" };
            format!(
                "crash power {keep} order {order} sector {}{garbage}",
                survivors.sector_bytes
            )
        });
    }
}
