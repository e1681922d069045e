//! Every plan of the corpus holds.

use std::path::Path;

use sealstone_sim::corpus::{find, run_file};
use sealstone_sim::plan::run_plan;

#[test]
fn every_plan_holds() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../corpus/plans");
    let plans = find(&corpus).unwrap();
    assert!(plans.len() >= 10, "the corpus is not there");
    let mut failures = Vec::new();
    for plan in &plans {
        print!("{}: ", plan.display());
        match run_file(plan) {
            Ok(line) => println!("{line}"),
            Err(failure) => {
                println!("{failure}");
                failures.push(failure);
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// A plan must be able to fail, and to fail where it is wrong.
#[test]
fn wrong_plans_fail() {
    let head = "# sim-plan 1\nkeyspace names mutable\nopen\n";
    for (lines, line, what) in [
        ("", 1, "proves nothing"),
        ("put names a 1\n", 1, "proves nothing"),
        ("expect value names a 1\n", 4, "absent"),
        ("put names a 1\nexpect value names a 2\n", 5, "right is 2"),
        (
            "put names a 1\nexpect absent names a\n",
            5,
            "right is absent",
        ),
        ("put names a 1\nexpect error Io\n", 5, "no error"),
        (
            "fault io write\nput names a 1\nput names b 1\n",
            5,
            "not expected",
        ),
        (
            "fault io write\nput names a 1\nexpect error NoSpace\n",
            6,
            "its kind",
        ),
        ("frobnicate\n", 4, "no step"),
        ("batch\nput names a 1\n", 4, "no end"),
        ("end\n", 4, "end without"),
        (
            "put names a 1\nexpect stats commits = 2\n",
            5,
            "does not hold",
        ),
        ("put nowhere a 1\n", 4, "no keyspace"),
        ("put names {i} 1\n", 4, "no variable"),
        (
            "expect count names = 0\nexhaust\nget names a\nend\n",
            5,
            "changes nothing",
        ),
        ("image a\nput names a 1\nexpect image a\n", 6, "differs"),
        ("crash-at write\nput names a 1\nexpect ok\n", 6, "dead"),
        // Nobody would look at it: the process is dead.
        (
            "crash-at write\nput names a 1\nfrobnicate\nexpect dead\n",
            6,
            "no step",
        ),
        (
            "fault io write\nput names a 1\nexpect error Io|NoSuchKind|Poisoned\n",
            6,
            "no kind of error: NoSuchKind",
        ),
        (
            "submit t\nput names a 1\nend\nfault io write\ntry commit\nexpect ticket t error Io|Poisond\n",
            9,
            "no kind of error: Poisond",
        ),
    ] {
        let text = format!("{head}{lines}");
        let failure = run_plan(&text).expect_err(&text);
        assert_eq!(failure.line, line, "{text}{failure}");
        assert!(failure.what.contains(what), "{text}{failure}");
    }
    assert!(run_plan("keyspace a once\n").is_err());
    assert!(run_plan("# sim-plan 2\n").is_err());
}

/// The rules that always hold are checked in plans too.
#[test]
fn plans_notice_broken_rules() {
    let lost = "# sim-plan 1\nkeyspace names mutable\nopen\ndisk lying\nput names a 1\n\
                crash power nothing\nopen\nexpect model\n";
    let failure = run_plan(lost).unwrap_err();
    assert_eq!((failure.line, failure.rule), (7, Some("S2")), "{failure}");
    let exhausted = "# sim-plan 1\nkeyspace names mutable\nopen\ndisk lying\nexhaust\n\
                     put names a 1\nend\n";
    let failure = run_plan(exhausted).unwrap_err();
    assert_eq!((failure.line, failure.rule), (5, Some("S2")), "{failure}");
}
