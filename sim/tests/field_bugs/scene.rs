//! Scenes: a miniature on a simulated machine, step by step, compared with the model all the time.

use sealstone_sim::disk::{Crash, DiskOptions, Survivors};
use sealstone_sim::env::SimEnv;
use sealstone_sim::explore::{Limits, explore};
use sealstone_sim::faults::Rule;
use sealstone_sim::model::{Model, Op, Violation};
use sealstone_sim::script::{Step, check_all, standard};
use sealstone_sim::subject::{StopKind, Subject};

/// How a scene ended.
pub type Outcome = Result<(), Violation>;

/// A store, its machine, and what is true.
pub struct Scene<S: Subject> {
    pub env: SimEnv,
    pub model: Model,
    options: S::Options,
    subject: Option<S>,
}

impl<S: Subject> Scene<S> {
    pub fn new(options: S::Options) -> Self {
        let mut scene = Self {
            env: SimEnv::new(DiskOptions::default()),
            model: Model::new(&S::kinds()),
            options,
            subject: None,
        };
        scene.open().expect("a new store opens");
        scene
    }

    pub fn subject(&self) -> &S {
        self.subject.as_ref().expect("open")
    }

    /// The same from the beginning, on a machine of its own.
    pub fn again(&self) -> Self {
        Self::new(self.options.clone())
    }

    /// Opens and compares everything.
    pub fn open(&mut self) -> Outcome {
        let opened = S::open(&self.env.env(), &self.options);
        let subject =
            opened.map_err(|stop| Violation::new("S6", format!("open: {}", stop.text)))?;
        self.model.recover(subject.recovered())?;
        self.subject = Some(subject);
        self.check()
    }

    pub fn check(&self) -> Outcome {
        check_all(self.subject(), &self.model, self.model.visible)
    }

    /// A batch of one; whether it was acknowledged. After a failure nothing may be.
    pub fn put(&mut self, key: impl Into<Vec<u8>>, value: &str, synced: bool) -> bool {
        let ops = [Op::put(0, key, value)];
        let sequence = self.model.issue(&ops);
        match self.subject().write(&ops, synced) {
            Ok(got) => {
                assert_eq!(got, sequence);
                self.model.acknowledge(got, synced);
                true
            }
            Err(stop) => {
                assert_eq!(stop.kind, StopKind::Poisoned, "{}", stop.text);
                false
            }
        }
    }

    /// Jobs until there are none; the first error ends it.
    pub fn drain(&self) {
        for _ in 0..100 {
            if self.subject().jobs() == 0 || self.subject().run_job(0, 1).is_err() {
                return;
            }
        }
        panic!("jobs without end");
    }

    /// Some keys, sealed and flushed.
    pub fn segment(&mut self, keys: std::ops::Range<u32>) {
        for key in keys {
            assert!(self.put(format!("key {key}"), "value", true));
        }
        self.subject().seal().expect("seals");
        self.drain();
    }

    pub fn arm(&self, rule: Rule) {
        self.env.disk.arm(rule);
    }

    pub fn hits(&self) -> u64 {
        self.env.disk.faults(|plan| plan.total_hits())
    }

    pub fn kill(&mut self) {
        self.crash(&Crash::Kill);
    }

    /// Everything that is not durable is gone.
    pub fn lose_power(&mut self) {
        self.crash(&Crash::Power(Survivors::NOTHING));
    }

    /// Whether these bytes are certain to survive a loss of power.
    pub fn survived(&self, bytes: &[u8]) -> bool {
        let files = self.env.disk.durable_files();
        let holds = |file: &Vec<u8>| file.windows(bytes.len()).any(|window| window == bytes);
        files.values().any(holds)
    }

    /// Of what is not durable a part is left, in sectors, with zeros where data is missing.
    pub fn lose_power_but(&mut self, seed: u64) {
        let mut survivors = Survivors::seeded(seed);
        survivors.garbage = false;
        self.crash(&Crash::Power(survivors));
    }

    fn crash(&mut self, crash: &Crash) {
        self.subject = None;
        self.env.disk.faults(|plan| plan.disarm());
        self.env = self.env.restart(crash);
    }
}

/// Plays a scene with the bug, where exactly this rule must fail, and without it, where all must hold.
pub fn told<S: Subject>(
    bug: S::Options,
    right: S::Options,
    rule: &str,
    scene: impl Fn(&mut Scene<S>) -> Outcome,
) {
    let play = |options: S::Options| scene(&mut Scene::new(options));
    let violation = play(bug.clone()).expect_err("the bug goes unnoticed");
    println!("{bug:?}: {violation}");
    assert_eq!(violation.rule, rule, "{bug:?}: {violation}");
    if let Err(violation) = play(right) {
        panic!("without the bug: {violation}");
    }
}

/// Crashes a script at all its calls, with the bug, where this rule must fail and none but `others`
/// beside it, and without it, where all must hold.
pub fn explored<S: Subject>(bug: S::Options, right: S::Options, rule: &str, others: &[&str]) {
    let script: Vec<Step> = standard(&S::kinds(), 5);
    let run = |options: &S::Options, failures_max| {
        let limits = Limits {
            opens_max: 12_000,
            failures_max,
            ..Limits::default()
        };
        explore::<S>(options, &script, &limits)
    };
    let rules: Vec<&str> = match run(&bug, 100) {
        Ok(report) => report.failures.iter().map(|f| f.violation.rule).collect(),
        Err(violation) => vec![violation.rule],
    };
    let count = rules.iter().filter(|found| **found == rule).count();
    println!("{bug:?}: {rule} {count} times of {}", rules.len());
    assert!(count > 0, "{bug:?}: {rules:?}");
    let known = |found: &&&str| **found == rule || others.contains(found);
    assert_eq!(rules.iter().filter(known).count(), rules.len(), "{rules:?}");
    let report = run(&right, 1).unwrap_or_else(|violation| panic!("{violation}"));
    assert!(report.failures.is_empty(), "{:#?}", report.failures);
    assert!(report.crash_points > 300, "{}", report.crash_points);
}
