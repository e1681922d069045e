//! A plan as a tree of lines: blocks begin with one of [`BLOCKS`] and end with `end`.

use super::PlanFailure;

/// The newest version of the text form.
pub const VERSION: u32 = 1;

/// Words that begin a block.
const BLOCKS: [&str; 4] = ["for", "batch", "submit", "exhaust"];
/// Words that damage a file.
pub(super) const DAMAGES: [&str; 7] = [
    "flip",
    "overwrite",
    "truncate",
    "extend",
    "delete-file",
    "spoil",
    "displace",
];
/// Words that begin a step, beside the blocks and damage. Known here because a machine that is dead skips steps without
/// looking at them.
const STEPS: [&str; 50] = [
    "expect",
    "option",
    "options",
    "keyspace",
    "open",
    "use",
    "close",
    "drop",
    "reopen",
    "put",
    "put-with",
    "put-failing",
    "put-panicking",
    "delete",
    "commit",
    "sync",
    "seal",
    "drain",
    "settle",
    "filter-budget",
    "set-pressure",
    "look",
    "job",
    "jobs",
    "get",
    "get-into",
    "contains",
    "multi-get",
    "scan",
    "snapshot",
    "drop-snapshot",
    "iterator",
    "drop-iterator",
    "next",
    "back",
    "hold",
    "crash",
    "crash-at",
    "fault",
    "capacity",
    "descriptors",
    "disk",
    "clock",
    "wall-clock",
    "pressure",
    "spike",
    "image",
    "locate",
    "let",
    "reset",
];
/// Whether a step begins with this word.
fn is_step(word: &str) -> bool {
    STEPS.contains(&word) || DAMAGES.contains(&word)
}

/// Lines of one plan file, at most.
const LINES_MAX: usize = 100_000;

/// A line, or a block with its lines.
#[derive(Clone, Debug)]
pub struct Node {
    /// Its number in the file, from 1.
    pub line: usize,
    /// Its text.
    pub text: String,
    /// The lines inside; a second part follows `then`.
    pub parts: Vec<Vec<Node>>,
}

/// Reads the text of a plan.
pub fn parse(text: &str) -> Result<Vec<Node>, PlanFailure> {
    let mut lines = text.lines().enumerate().map(|(at, line)| (at + 1, line));
    check_header(lines.next())?;
    let mut open: Vec<Node> = Vec::new();
    let mut top = Vec::new();
    for (line, raw) in lines {
        if line > LINES_MAX {
            return Err(PlanFailure::new(line, raw, "the plan is too long"));
        }
        let text = raw.trim();
        if text.is_empty() || text.starts_with('#') {
            continue;
        }
        let mut words = text.split_whitespace().skip_while(|word| *word == "try");
        let first = words.next().unwrap_or("");
        let node = Node {
            line,
            text: text.to_string(),
            parts: Vec::new(),
        };
        match first {
            "end" => {
                let Some(block) = open.pop() else {
                    return Err(PlanFailure::new(line, raw, "end without a block"));
                };
                place(&mut open, &mut top, block);
            }
            "then" => match open.last_mut() {
                Some(block) if block.text.starts_with("exhaust") && block.parts.len() == 1 => {
                    block.parts.push(Vec::new());
                }
                _ => return Err(PlanFailure::new(line, raw, "then outside of exhaust")),
            },
            _ if BLOCKS.contains(&first) => open.push(Node {
                parts: vec![Vec::new()],
                ..node
            }),
            // What variables make of a word is seen when they have values.
            _ if !is_step(first) && !first.contains('{') => {
                return Err(PlanFailure::new(line, raw, format!("no step {first}")));
            }
            _ => place(&mut open, &mut top, node),
        }
    }
    match open.pop() {
        Some(block) => Err(PlanFailure::new(
            block.line,
            &block.text,
            "the block has no end",
        )),
        None => Ok(top),
    }
}

fn place(open: &mut [Node], top: &mut Vec<Node>, node: Node) {
    let lines = open.last_mut().and_then(|block| block.parts.last_mut());
    lines.unwrap_or(top).push(node);
}

fn check_header(first: Option<(usize, &str)>) -> Result<(), PlanFailure> {
    let text = first.map_or("", |(_, text)| text);
    let mut words = text.split_whitespace();
    let wrong = |what: &str| Err(PlanFailure::new(1, text, what));
    if (words.next(), words.next()) != (Some("#"), Some("sim-plan")) {
        return wrong("a plan begins with: # sim-plan 1");
    }
    match words.next().and_then(|word| word.parse::<u32>().ok()) {
        Some(version) if (1..=VERSION).contains(&version) => Ok(()),
        Some(_) => wrong("the plan is of a newer version"),
        None => wrong("a plan begins with: # sim-plan 1"),
    }
}
