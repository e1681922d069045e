//! Arguments, messages and exit statuses that need no store.

#![allow(
    clippy::disallowed_methods,
    reason = "tests look at files from outside"
)]

mod support;

use support::{Place, run};

const SUBCOMMANDS: [&str; 8] = [
    "load",
    "get",
    "explain",
    "scan",
    "dump",
    "keyspaces",
    "stats",
    "verify",
];

#[test]
fn every_subcommand_has_help_with_examples() {
    let text = run(&["--help"]).expect(0).text().to_owned();
    for subcommand in SUBCOMMANDS {
        assert!(
            text.contains(&format!("\n  {subcommand} ")),
            "{subcommand} in {text}"
        );
        let ran = run(&[subcommand, "--help"]).expect(0);
        let example = format!("sealstone {subcommand} --store");
        assert!(ran.text().contains("Examples:"), "{}", ran.text());
        assert!(ran.text().contains(&example), "{}", ran.text());
    }
    assert!(
        run(&["--version"])
            .expect(0)
            .text()
            .starts_with("sealstone ")
    );
}

#[test]
fn usage_errors_end_with_2() {
    for arguments in [
        &[][..],
        &["unknown"],
        &["get", "text:a"],
        &["get", "--store", "x"],
        &["explain", "--store", "x"],
        &["get", "--store", "x", "word"],
        &["get", "--store", "x", "hex:0"],
        &[
            "scan", "--store", "x", "--prefix", "text:a", "--to", "text:b",
        ],
        &["scan", "--store", "x", "--limit", "-1"],
        &["load", "--store", "x", "--batch", "0"],
        &["dump", "--store", "x", "--for", "oracle"],
    ] {
        let ran = run(arguments).expect(2);
        assert!(!ran.err.is_empty() && ran.out.is_empty(), "{arguments:?}");
    }
    let ran = run(&["get", "--store", "x", "word"]).expect(2);
    assert!(ran.err.contains("text:WORD"), "{}", ran.err);
}

#[test]
fn inputs_are_looked_at_before_a_store_is_made() {
    let place = Place::new();
    let good = place.file("good.dump", b"VERSION=3\nHEADER=END\nDATA=END\n");
    let absent = place.path("absent.dump");
    place
        .run("load", &[&good, &absent])
        .expect_message(&["absent.dump"]);
    place
        .run("load", &[&place.path("")])
        .expect_message(&["directory"]);
    place.run("load", &["-", "-"]).expect_message(&["once"]);
    assert!(!std::path::Path::new(place.store()).exists());
}

#[test]
fn reading_what_is_no_store_fails_and_makes_none() {
    let place = Place::new();
    for (subcommand, arguments) in [
        ("get", &["text:a"][..]),
        ("explain", &["text:a"]),
        ("scan", &[]),
        ("dump", &[]),
        ("keyspaces", &[]),
        ("stats", &[]),
        ("verify", &[]),
    ] {
        let ran = place.run(subcommand, arguments);
        ran.expect_message(&["not a store", "a store "]);
    }
    let output = place.file("older.dump", b"older");
    place.run("dump", &["--output", &output]).expect(2);
    assert_eq!(std::fs::read(&output).expect("still there"), b"older");
    assert!(!std::path::Path::new(place.store()).exists());
}
