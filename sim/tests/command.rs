//! How `sealstone-sim` answers to what it is asked: help, and arguments that make no sense.

use sealstone_sim::command::execute;
use sealstone_sim::help;

fn asked(line: &str) -> Result<bool, String> {
    let words: Vec<String> = line.split_whitespace().map(String::from).collect();
    execute(&words)
}

#[test]
fn every_command_has_help() {
    for command in help::names().split(", ") {
        assert_eq!(asked(&format!("{command} --help")), Ok(true));
        let text = help::text(command);
        assert!(
            text.starts_with(&format!("sealstone-sim {command} ")),
            "{text}"
        );
        // Its own lines, not those of all.
        assert_eq!(text.matches("sealstone-sim ").count(), 1, "{text}");
        // And the command is one: without its arguments it may only say what is missing.
        if ["run", "sweep", "shrink", "digest"].contains(&command) {
            let complaint = asked(command).expect_err("arguments are missing");
            assert!(complaint.contains("needs --seed"), "{complaint}");
        }
    }
    assert_eq!(asked("--help"), Ok(true));
    assert!(asked("frobnicate").is_err_and(|what| what.contains("no command")));
}

#[test]
fn a_range_without_seeds_is_refused() {
    for range in ["5..2", "5..5"] {
        let complaint = asked(&format!("sweep --seeds {range}")).expect_err("nothing to sweep");
        assert!(complaint.contains("has no seed"), "{complaint}");
    }
    assert_eq!(asked("sweep --seeds 5..6"), Ok(true));
}
