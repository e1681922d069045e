//! What `--help` prints.

/// The commands, with how each is called and what it does.
const COMMANDS: [(&str, &str, &str); 10] = [
    (
        "sweep",
        "--seeds A..B [--strength honest|adversarial] [--jobs N] [--failures N] [--json FILE]",
        "makes a random run of the store for each seed and checks every rule after every step",
    ),
    (
        "run",
        "--seed N [--strength honest|adversarial] [--trace]",
        "makes the run of one seed; --trace prints every step and every call of the disk",
    ),
    (
        "replay",
        "FILE|DIRECTORY...",
        "runs plans; sim/README.md has their words",
    ),
    (
        "shrink",
        "--seed N [--strength honest|adversarial] [--plan FILE]",
        "makes a failing run small and writes it as a plan",
    ),
    (
        "digest",
        "--seed N [--strength honest|adversarial]",
        "makes a run twice and compares calls and bytes",
    ),
    (
        "exhaust",
        "[--rounds N] [--jobs N]",
        "tries every crash of a script, and every crash of each recovery",
    ),
    (
        "plants",
        "[--only ID] [--check] [--seeds A..B] [--jobs N] [--json FILE]",
        "plants bugs into a copy of the engine and sweeps until each is caught; from the project's root",
    ),
    (
        "kill",
        "[--seconds N] [--seed N] [--lies]",
        "kills a process that writes to a real directory, again and again",
    ),
    (
        "pool",
        "[--workload W] [--policy NAME|all] [--trace FILE] [--record FILE] [--json FILE]",
        "compares policies for memory; docs/laboratory.md has the details",
    ),
    (
        "age",
        "[--writes N] [--reopenings N] [--seed N] [--seconds-max S] [--directory DIR] \
         [--limit NAME=VALUE] [--json FILE|-]",
        "one long life of a store, with counts by the hour and gates",
    ),
];

/// Whether the arguments ask for help.
pub fn is_asked(arguments: &[String]) -> bool {
    let asks = |argument: &String| argument == "--help" || argument == "-h";
    arguments.iter().any(asks) || arguments.first().is_some_and(|first| first == "help")
}

/// The help on a command, or on all if it is none.
pub fn text(command: &str) -> String {
    let one = COMMANDS.iter().filter(|(name, ..)| *name == command);
    let mut lines: Vec<String> = one.map(line).collect();
    if lines.is_empty() {
        lines = COMMANDS.iter().map(line).collect();
    }
    lines.push(
        "It ends with 0 only if every rule held, and with 2 if it was called wrongly.".into(),
    );
    lines.join("\n")
}

/// The names of the commands, for who gave none.
pub fn names() -> String {
    COMMANDS.map(|(name, ..)| name).join(", ")
}

fn line((name, arguments, what): &(&str, &str, &str)) -> String {
    format!("sealstone-sim {name} {arguments}\n    {what}\n")
}
