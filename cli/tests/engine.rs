//! The built command on stores: real input, odd input, and what a store says of damage.
#![allow(
    clippy::disallowed_methods,
    reason = "tests look at files from outside"
)]

mod support;

use std::io::Read;
use std::process::Stdio;

use support::{Place, command, corpus, corpus_text, printed};

const TRANSACTIONS: &str = "bitcoin-transactions.dump";
const OUTPUTS: &str = "bitcoin-outputs.dump";
const OUTPUTS_PRINT: &str = "bitcoin-outputs-print.dump";

/// The lines from the first record on: headers differ by what only LMDB knows.
fn data(text: &[u8]) -> &[u8] {
    let mark = b"HEADER=END\n";
    let at = text.windows(mark.len()).position(|window| window == mark);
    &text[at.expect("a header")..]
}

/// A read a record, whose place the window table knows; and now and then one more: a fingerprint of
/// 14 bits takes a neighbour in the bucket for the key, which the store's own seed decides.
fn assert_reads_of_window(row: &serde_json::Value, below: f64) {
    let per_hit = row["reads_per_hit"].as_f64().expect("a number");
    assert!((1.0..below).contains(&per_hit), "{row}");
}

#[test]
fn real_input_is_loaded_verified_and_dumped_again() {
    for (name, records, options) in [
        (TRANSACTIONS, 3_315, &[][..]),
        (OUTPUTS, 8_150, &["--write-once", "--batch", "7"]),
    ] {
        let place = Place::new();
        let file = corpus(name);
        let arguments = [&["--verify", "--json", "-", &file], options].concat();
        let row = place.run("load", &arguments).expect(0).row();
        let count = |key: &str| row[key].as_u64().unwrap_or(u64::MAX);
        assert_eq!(count("records"), records, "{row}");
        assert_eq!(
            (count("hits_verified"), count("misses_verified")),
            (records, records)
        );
        assert_eq!(
            (count("wrong"), count("missing"), count("superseded")),
            (0, 0, 0)
        );
        assert!(
            (1..100).contains(&count("segments")) && count("barriers") > 0,
            "{row}"
        );
        for key in ["bytes", "seconds", "records_per_second"] {
            assert!(row[key].is_number(), "{key} in {row}");
        }
        assert_reads_of_window(&row, 1.02);
        let per_miss = row["reads_per_miss"].as_f64().expect("a number");
        assert!((0.0..0.02).contains(&per_miss), "{row}");
        let dump = place.run("dump", &[]).expect(0).out;
        assert!(data(&dump) == data(&corpus_text(name)), "{name}");
        assert!(!dump.windows(9).any(|window| window == b"database="));
        place.run("verify", &[]).expect(0);
    }
}

#[test]
fn the_same_load_twice_into_the_same_store_is_fine() {
    let place = Place::new();
    let file = corpus(TRANSACTIONS);
    for segments in 1..=3 {
        let ran = place.run("load", &["--verify", "--json", "-", &file]);
        let row = ran.expect(0).row();
        assert_eq!(row["segments"], segments, "{row}");
        assert_eq!(row["hits_verified"], 3_315, "{row}");
        assert_eq!(row["misses_verified"], 3_315, "{row}");
        assert_eq!((&row["wrong"], &row["missing"]), (&0.into(), &0.into()));
        assert_reads_of_window(&row, 1.005);
    }
    let dump = place.run("dump", &[]).expect(0).out;
    assert!(data(&dump) == data(&corpus_text(TRANSACTIONS)));
    // Of write-once records nothing is written again.
    let place = Place::new();
    for _ in 0..2 {
        let arguments = ["--write-once", "--verify", "--json", "-", &file];
        let row = place.run("load", &arguments).expect(0).row();
        assert_eq!((&row["segments"], &row["wrong"]), (&1.into(), &0.into()));
    }
}

#[test]
fn batches_stay_within_what_a_store_takes() {
    let mut lines = Vec::new();
    for number in 0..40_000 {
        lines.push(number.to_string());
        lines.push(String::new());
    }
    // Large records among small ones: each of them would fit, both of them not.
    for key in ["large", "larger"] {
        lines.push(key.to_owned());
        lines.push("x".repeat(2_000_000));
        lines.push(format!("after {key}"));
        lines.push("y".repeat(900_000));
    }
    let lines: Vec<_> = lines.iter().map(String::as_str).collect();
    let place = Place::new();
    let arguments = ["--batch", "4000000000", "--verify", "--json", "-"];
    let ran = place.run_with("load", &arguments, &printed(None, &lines));
    let row = ran.expect(0).row();
    assert_eq!(row["hits_verified"], 40_004, "{row}");
    assert_reads_of_window(&row, 1.001);
}

/// The real input in `print` form is of LMDB 0.9.24, which did not escape backslashes; the same
/// records stand at the head of the other file.
#[test]
fn print_form_of_an_old_lmdb_gives_the_bytes_that_were_dumped() {
    let text = corpus_text(OUTPUTS);
    let head: Vec<_> = text
        .split_inclusive(|&byte| byte == b'\n')
        .take(7 + 2_000)
        .collect();
    let expected = [head.concat(), b"DATA=END\n".to_vec()].concat();
    for by_standard_input in [false, true] {
        let place = Place::new();
        let ran = if by_standard_input {
            place.run_with("load", &["--verify"], &corpus_text(OUTPUTS_PRINT))
        } else {
            place.run("load", &["--verify", &corpus(OUTPUTS_PRINT)])
        };
        assert_eq!(ran.status, Some(0), "{}", ran.err);
        assert_eq!(ran.err.matches("backslashes").count(), 2, "{}", ran.err);
        assert!(ran.err.contains("0.9.25"), "{}", ran.err);
        let dump = place.run("dump", &[]).expect(0).out;
        assert!(data(&dump) == data(&expected));
        // The form that every version reads, without a doubt.
        let dump = place.run("dump", &["--print"]).expect(0).out;
        let other = Place::new();
        other.run_with("load", &["--verify"], &dump).expect(0);
        assert!(data(&other.run("dump", &[]).expect(0).out) == data(&expected));
    }
    let strict = ["--backslashes", "escaped", &corpus(OUTPUTS_PRINT)];
    Place::new()
        .run("load", &strict)
        .expect_message(&["line 11", "backslash"]);
}

#[test]
fn standard_input_is_loaded_and_verified_like_a_file() {
    for arguments in [
        &["--verify", "--json", "-", "-"][..],
        &["--verify", "--json", "-"],
    ] {
        let place = Place::new();
        let ran = place.run_with("load", arguments, &corpus_text(TRANSACTIONS));
        let row = ran.expect(0).row();
        assert_eq!(
            (&row["hits_verified"], &row["misses_verified"]),
            (&3315.into(), &3315.into())
        );
        assert_eq!((&row["wrong"], &row["missing"]), (&0.into(), &0.into()));
    }
}

#[test]
fn tables_are_printed_without_json() {
    let place = Place::new();
    let text = place.run("load", &["--verify", &corpus(OUTPUTS)]).expect(0);
    for name in [
        "records",
        "hits_verified",
        "wrong",
        "missing",
        "reads_per_hit",
        "reads_per_miss",
    ] {
        assert!(text.text().contains(name), "{}", text.text());
    }
    let text = place.run("keyspaces", &[]).expect(0);
    assert!(text.text().contains("main") && text.text().contains("mutable"));
    assert!(
        place
            .run("stats", &[])
            .expect(0)
            .text()
            .contains("segments")
    );
    assert!(
        place
            .run("verify", &[])
            .expect(0)
            .text()
            .contains("damaged")
    );
}

#[test]
fn get_prints_the_value_as_it_is() {
    let place = Place::new();
    let input = printed(
        None,
        &["key", "a\\00b\\0a", "empty", "", "\\ff", "x", "", "no key"],
    );
    place.run_with("load", &[], &input).expect(0);
    assert_eq!(place.run("get", &["text:key"]).expect(0).out, b"a\0b\n");
    assert_eq!(
        place.run("get", &["--hex", "hex:6b6579"]).expect(0).out,
        b"6100620a\n"
    );
    assert_eq!(place.run("get", &["text:empty"]).expect(0).out, b"");
    assert_eq!(place.run("get", &["hex:FF"]).expect(0).out, b"x");
    assert_eq!(place.run("get", &["text:"]).expect(0).out, b"no key");
    let ran = place.run("get", &["text:absent"]).expect(1);
    assert!(ran.out.is_empty() && ran.err.is_empty());
    place
        .run("get", &["--keyspace", "other", "text:key"])
        .expect_message(&["no keyspace other", "main"]);
}

#[test]
fn explain_shows_the_steps_of_a_lookup_and_their_cost() {
    let place = Place::new();
    place
        .run("load", &["--verify", &corpus(TRANSACTIONS)])
        .expect(0);
    let keys = place
        .run("scan", &["--keys-only", "--limit", "1"])
        .expect(0);
    let key = keys.text().trim();
    let warm = ["hash", ".seg", "window table", "record at byte", "1 read"];
    let cold = [
        "no filter in memory",
        "index page",
        "record at byte",
        "3 reads",
    ];
    for (arguments, words) in [(&[key][..], &warm[..]), (&["--cold", key], &cold[..])] {
        let text = place.run("explain", arguments).expect(0).text().to_owned();
        for word in words {
            assert!(text.contains(word), "{word:?} in {text}");
        }
    }
    for (arguments, reads, touches) in [(&[][..], 1, 0), (&["--cold"], 3, 1)] {
        let ran = place.run("explain", &[&["--json", "-", key], arguments].concat());
        let row = ran.expect(0).row();
        let steps = row["steps"].as_array().expect("a list");
        let cost = |name: &str| {
            let costs = steps.iter().filter_map(|step| step["cost"][name].as_u64());
            assert_eq!(
                row["cost"][name].as_u64(),
                Some(costs.sum()),
                "{name} in {row}"
            );
            row["cost"][name].clone()
        };
        assert_eq!(
            (cost("reads"), cost("first_touches")),
            (reads.into(), touches.into())
        );
        assert_eq!(row["answer"]["answer"], "value");
        let found: Vec<_> = steps.iter().filter(|step| step["wanted"] == true).collect();
        assert_eq!(found.len(), 1, "{row}");
        assert_eq!(row["key"], key);
    }
    let row = place.run("explain", &["--json", "-", "text:absent"]);
    let row = row.expect(1).row();
    assert_eq!(row["answer"]["answer"], "absent");
    place
        .run("explain", &["--keyspace", "other", key])
        .expect_message(&["no keyspace other", "main"]);
}

#[test]
fn scan_lists_ranges_both_ways() {
    let place = Place::new();
    let input = printed(None, &["a", "1", "b", "2", "ba", "\\00", "c", ""]);
    place.run_with("load", &[], &input).expect(0);
    let scan = |arguments: &[&str]| place.run("scan", arguments).expect(0).text().to_owned();
    let keys = |arguments: &[&str]| {
        let text = scan(&[&["--keys-only"], arguments].concat());
        text.replace("text:", "")
            .replace('\n', " ")
            .trim()
            .to_owned()
    };
    assert_eq!(
        scan(&[]),
        "text:a\ttext:1\ntext:b\ttext:2\ntext:ba\thex:00\ntext:c\ttext:\n"
    );
    assert_eq!(scan(&["--hex", "--limit", "1"]), "hex:61\thex:31\n");
    assert_eq!(keys(&["--reverse"]), "c ba b a");
    assert_eq!(keys(&["--reverse", "--limit", "2"]), "c ba");
    assert_eq!(keys(&["--from", "text:b", "--to", "text:c"]), "b ba");
    assert_eq!(keys(&["--from", "text:b", "--reverse"]), "c ba b");
    assert_eq!(keys(&["--to", "text:b"]), "a");
    assert_eq!(keys(&["--prefix", "text:b", "--reverse"]), "ba b");
    assert_eq!(keys(&["--prefix", "text:"]), "a b ba c");
    for nothing in [
        &["--from", "text:c", "--to", "text:a"][..],
        &["--from", "text:b", "--to", "text:b"],
        &["--prefix", "text:x"],
        &["--limit", "0"],
    ] {
        assert_eq!(keys(nothing), "", "{nothing:?}");
    }
}

#[test]
fn databases_of_one_input_go_to_keyspaces_of_their_names() {
    let place = Place::new();
    let input = [
        printed(Some("one"), &["k", "1"]),
        printed(None, &["k", "2"]),
        printed(Some("two words"), &["k", "3"]),
    ]
    .concat();
    place.run_with("load", &["--verify"], &input).expect(0);
    for (keyspace, value) in [("one", b"1"), ("main", b"2"), ("two words", b"3")] {
        let ran = place
            .run("get", &["--keyspace", keyspace, "text:k"])
            .expect(0);
        assert_eq!(ran.out, value);
    }
    // All of them dumped, in either dialect, and loaded elsewhere, are the same.
    for dialect in ["lmdb", "berkeley"] {
        let dump = place
            .run("dump", &["--print", "--for", dialect])
            .expect(0)
            .out;
        let other = Place::new();
        other.run_with("load", &["--verify"], &dump).expect(0);
        assert_eq!(
            other
                .run("dump", &["--print", "--for", dialect])
                .expect(0)
                .out,
            dump
        );
    }
    let alone = place
        .run("dump", &["--print", "--keyspace", "one"])
        .expect(0);
    assert!(alone.text().contains("database=one\n"), "{}", alone.text());
}

#[test]
fn a_given_keyspace_takes_one_database() {
    let place = Place::new();
    let named = [
        printed(Some("a"), &["k", "1"]),
        printed(Some("a"), &["l", "2"]),
    ]
    .concat();
    place
        .run_with("load", &["--keyspace", "here"], &named)
        .expect(0);
    assert_eq!(
        place
            .run("get", &["--keyspace", "here", "text:l"])
            .expect(0)
            .out,
        b"2"
    );
    let two = [
        printed(Some("a"), &["m", "1"]),
        printed(Some("b"), &["n", "2"]),
    ]
    .concat();
    place
        .run_with("load", &["--keyspace", "here"], &two)
        .expect_message(&["--keyspace", "line 11", "1 records were loaded"]);
    assert_eq!(
        place
            .run("get", &["--keyspace", "here", "text:m"])
            .expect(0)
            .out,
        b"1"
    );
    place
        .run("get", &["--keyspace", "here", "text:n"])
        .expect(1);
}

#[test]
fn a_malformed_line_ends_the_load_before_its_batch() {
    let place = Place::new();
    let mut text = b"VERSION=3\nformat=bytevalue\nHEADER=END\n".to_vec();
    for n in 0..25 {
        text.extend(format!(" {n:02x}\n 00\n").bytes());
    }
    text.extend(b" ff\n 0\nDATA=END\n");
    let file = place.file("bad \u{e9}.dump", &text);
    let ran = place.run("load", &["--batch", "10", "--verify", &file]);
    ran.expect_message(&[
        "bad \u{e9}.dump: line 55: value: odd",
        "20 records were loaded",
    ]);
    let keys = place.run("scan", &["--keys-only", "--hex"]).expect(0);
    assert_eq!(keys.text().lines().count(), 20);

    // Cut short: what has no DATA=END behind it may be half of a file.
    let place = Place::new();
    let cut = &corpus_text(OUTPUTS)[..100_000];
    place
        .run_with("load", &[], cut)
        .expect_message(&["standard input: line", "0 records"]);
}

#[test]
fn what_has_no_place_in_a_keyspace_is_refused() {
    for (field, word) in [
        ("duplicates=1", "several values"),
        ("type=recno", "record numbers"),
        ("keys=0", "without keys"),
        ("VERSION=9", "version 9"),
    ] {
        let place = Place::new();
        let text = format!("VERSION=3\n{field}\nHEADER=END\n 61\n 62\nDATA=END\n");
        place
            .run_with("load", &[], text.as_bytes())
            .expect_message(&[word, "line 2"]);
    }
    Place::new()
        .run_with("load", &[], b"")
        .expect_message(&["no database"]);
    let name = b"VERSION=3\ndatabase=\\ff\nHEADER=END\n 61\n 62\nDATA=END\n";
    let place = Place::new();
    place
        .run_with("load", &[], name)
        .expect_message(&["UTF-8", "line 2", "--keyspace"]);
    place.run_with("load", &["--keyspace", "k"], name).expect(0);
}

#[test]
fn write_once_keeps_first_values() {
    let place = Place::new();
    let first = printed(None, &["a", "1", "b", "2"]);
    place.run_with("load", &["--write-once"], &first).expect(0);
    // The same again is nothing new; the keyspace stays what it is without the flag.
    place.run_with("load", &["--verify"], &first).expect(0);
    let other = printed(None, &["c", "3", "b", "other"]);
    let ran = place.run_with("load", &[], &other);
    ran.expect_message(&[
        "conflict",
        "standard input: lines 5 to 8",
        "0 records were loaded",
    ]);
    assert_eq!(place.run("get", &["text:b"]).expect(0).out, b"2");
    place.run("get", &["text:c"]).expect(1);
}

#[test]
fn mutable_keyspaces_take_the_last_value() {
    let place = Place::new();
    place
        .run_with("load", &[], &printed(None, &["a", "1", "b", "2"]))
        .expect(0);
    let input = printed(None, &["a", "2", "c", "4", "a", "3"]);
    let ran = place.run_with("load", &["--batch", "1", "--verify", "--json", "-"], &input);
    let row = ran.expect(0).row();
    assert_eq!(
        (&row["hits_verified"], &row["superseded"]),
        (&2.into(), &1.into())
    );
    assert_eq!(place.run("get", &["text:a"]).expect(0).out, b"3");
    place
        .run_with("load", &["--write-once"], &input)
        .expect_message(&["incompatible options"]);
}

#[test]
fn figures_go_to_files_and_standard_output() {
    let place = Place::new();
    let figures = place.path("figures.json");
    let ran = place
        .run("load", &["--json", &figures, &corpus(OUTPUTS)])
        .expect(0);
    assert!(ran.text().contains("records_per_second"));
    let written = std::fs::read_to_string(&figures).expect("figures");
    assert!(written.contains("\"sealstone load\"") && written.contains("\"records\": 8150"));
    let row = place.run("stats", &["--json", "-"]).expect(0).row();
    assert_eq!(row["keyspaces"][0]["name"], "main");
    assert_eq!(row["keyspaces"][0]["kind"], "mutable");
    let number = |key: &str| {
        row[key]
            .as_u64()
            .unwrap_or_else(|| panic!("{key} in {row}"))
    };
    assert_eq!(number("sequence"), 9);
    for key in ["runs", "segments", "opens", "pinned"] {
        assert_eq!(number(key), 0, "{key} in {row}");
    }
    assert!(number("log_bytes") > 0 && row["residency"].is_object());
    let memory = row["memory"].as_object().expect("a ledger");
    let sum: u64 = memory.values().filter_map(serde_json::Value::as_u64).sum();
    assert_eq!(row["memory"]["total"].as_u64(), Some(sum / 2));
    assert!(row["memory"]["open"].as_u64() > Some(0), "{row}");
    let row = place.run("verify", &["--json", "-"]).expect(0).row();
    assert_eq!(
        (&row["records"], &row["damaged"]),
        (&8150.into(), &serde_json::json!([]))
    );
}

#[test]
fn dumps_go_to_files() {
    let place = Place::new();
    place.run("load", &[&corpus(OUTPUTS)]).expect(0);
    let output = place.path("out \u{e4}.dump");
    let ran = place.run("dump", &["--output", &output]).expect(0);
    assert!(ran.out.is_empty());
    let written = std::fs::read(&output).expect("a dump");
    assert!(data(&written) == data(&corpus_text(OUTPUTS)));
    // A wrong name leaves it alone.
    place
        .run("dump", &["--keyspace", "x", "--output", &output])
        .expect(2);
    assert!(std::fs::read(&output).expect("a dump") == written);
}

/// Flips a bit in each segment, and says how many there are.
fn damage_segments(place: &Place) -> usize {
    let mut damaged = 0;
    for entry in std::fs::read_dir(place.store())
        .expect("the store")
        .flatten()
    {
        let path = entry.path();
        if path.extension().is_some_and(|extension| extension == "seg") {
            let mut bytes = std::fs::read(&path).expect("a segment");
            let middle = bytes.len() / 3;
            bytes[middle] ^= 1;
            std::fs::write(&path, bytes).expect("damaged");
            damaged += 1;
        }
    }
    damaged
}

#[test]
fn damage_is_found_and_named() {
    let place = Place::new();
    place.run("load", &["--verify", &corpus(OUTPUTS)]).expect(0);
    let damaged = damage_segments(&place);
    assert!(damaged > 0, "the load left segments");
    let row = place.run("verify", &["--json", "-"]).expect(1).row();
    let places = row["damaged"].as_array().expect("a list");
    assert!(places.len() >= damaged, "{row}");
    for at in places {
        assert!(
            at["file"]
                .as_str()
                .is_some_and(|file| file.ends_with(".seg")),
            "{row}"
        );
        assert!(at["offset"].is_u64() && at["what"].is_string(), "{row}");
    }
    let text = place.run("verify", &[]).expect(1);
    assert!(text.text().contains(".seg at byte "), "{}", text.text());
}

#[test]
fn a_reader_that_goes_away_ends_the_command_quietly() {
    let place = Place::new();
    place.run("load", &[&corpus(TRANSACTIONS)]).expect(0);
    for subcommand in ["dump", "scan"] {
        let mut child = command(&[subcommand, "--store", place.store()])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the command starts");
        let mut out = child.stdout.take().expect("a pipe");
        out.read_exact(&mut [0; 100]).expect("some output");
        drop(out);
        let ended = child.wait_with_output().expect("the command ends");
        assert_eq!(ended.status.code(), Some(0), "{subcommand}");
        assert!(
            ended.stderr.is_empty(),
            "{}",
            String::from_utf8_lossy(&ended.stderr)
        );
    }
}

#[test]
fn damage_shows_in_the_exit_status_even_if_nobody_reads() {
    let place = Place::new();
    place.run("load", &["--verify", &corpus(OUTPUTS)]).expect(0);
    damage_segments(&place);
    let mut child = command(&["verify", "--store", place.store()])
        .stdout(Stdio::piped())
        .spawn()
        .expect("the command starts");
    drop(child.stdout.take());
    assert_eq!(child.wait().expect("the command ends").code(), Some(1));
}
