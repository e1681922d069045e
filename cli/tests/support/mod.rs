//! Runs the built command.
#![allow(dead_code, reason = "each test file uses a part of it")]
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests drive a process"
)]

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

/// What a run ended with.
#[derive(Debug)]
pub struct Ran {
    /// The exit status; `None` after a signal.
    pub status: Option<i32>,
    /// Standard output.
    pub out: Vec<u8>,
    /// Standard error.
    pub err: String,
}

impl Ran {
    /// Standard output as text.
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.out).expect("text")
    }

    /// Checks the exit status, and that standard error is empty exactly when nothing is to tell.
    #[track_caller]
    pub fn expect(self, status: i32) -> Self {
        assert_eq!(
            self.status,
            Some(status),
            "{}\n{}",
            self.err,
            String::from_utf8_lossy(&self.out)
        );
        if status == 0 {
            assert_eq!(self.err, "");
        }
        self
    }

    /// Checks for a failure whose message has all these words.
    #[track_caller]
    pub fn expect_message(self, words: &[&str]) -> Self {
        let ran = self.expect(2);
        assert!(ran.err.starts_with("sealstone: "), "{}", ran.err);
        for word in words {
            assert!(ran.err.contains(word), "{word:?} in {}", ran.err);
        }
        ran
    }

    /// The one row of the figures on standard output.
    pub fn row(&self) -> serde_json::Value {
        let figures: serde_json::Value = serde_json::from_slice(&self.out).expect("JSON");
        for key in ["tool", "commit", "machine", "arguments"] {
            assert!(!figures[key].is_null(), "{key} in {figures}");
        }
        assert_eq!(figures["rows"].as_array().map(Vec::len), Some(1));
        figures["rows"][0].clone()
    }
}

/// The command with these arguments.
pub fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sealstone"));
    command.args(arguments);
    command
}

/// Runs the command with an empty standard input.
pub fn run(arguments: &[&str]) -> Ran {
    run_with(arguments, b"")
}

/// Runs the command with `input` on standard input.
pub fn run_with(arguments: &[&str], input: &[u8]) -> Ran {
    let mut child = command(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    let input = input.to_vec();
    // The command may go away before it has read everything.
    let writer = std::thread::spawn(move || drop(stdin.write_all(&input)));
    let Output {
        status,
        stdout,
        stderr,
    } = child.wait_with_output().expect("the command ends");
    writer.join().expect("the writer ends");
    Ran {
        status: status.code(),
        out: stdout,
        err: String::from_utf8(stderr).expect("text"),
    }
}

/// A directory for a test and, in it, the path of a store with odd characters.
pub struct Place {
    directory: TempDir,
    store: String,
}

impl Place {
    /// A fresh one.
    pub fn new() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let store = directory.path().join("a store \u{e4}\u{4e16}");
        let store = store.to_str().expect("UTF-8").to_owned();
        Self { directory, store }
    }

    /// The store's path.
    pub fn store(&self) -> &str {
        &self.store
    }

    /// A path beside the store.
    pub fn path(&self, name: &str) -> String {
        let path = self.directory.path().join(name);
        path.to_str().expect("UTF-8").to_owned()
    }

    /// Writes a file beside the store.
    pub fn file(&self, name: &str, content: &[u8]) -> String {
        let path = self.path(name);
        std::fs::write(&path, content).expect("written");
        path
    }

    /// Runs a subcommand on the store.
    pub fn run(&self, subcommand: &str, arguments: &[&str]) -> Ran {
        self.run_with(subcommand, arguments, b"")
    }

    /// Runs a subcommand on the store with `input` on standard input.
    pub fn run_with(&self, subcommand: &str, arguments: &[&str], input: &[u8]) -> Ran {
        run_with(
            &[&[subcommand, "--store", self.store()], arguments].concat(),
            input,
        )
    }
}

/// The path of a file of real input.
pub fn corpus(name: &str) -> String {
    let path: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../corpus/data")
        .join(name);
    path.to_str().expect("UTF-8").to_owned()
}

/// The content of a file of real input.
pub fn corpus_text(name: &str) -> Vec<u8> {
    std::fs::read(corpus(name)).expect("real input")
}

/// Dump text of `print` form with these lines of data.
pub fn printed(database: Option<&str>, lines: &[&str]) -> Vec<u8> {
    let mut text = "VERSION=3\nformat=print\n".to_owned();
    if let Some(name) = database {
        text += &format!("database={name}\n");
    }
    text += "type=btree\nHEADER=END\n";
    for line in lines {
        text += &format!(" {line}\n");
    }
    (text + "DATA=END\n").into_bytes()
}
